"""Visits that lie ahead, the shorthand of real notes, habits, class stops and doses said without their drug."""
from __future__ import annotations

import pytest

from stam_jax.graph.clinical_time import resolve
from stam_jax.graph.memory import Entry
from stam_jax.rules import RulesWriter

A, N, U, C, F = "AFFIRMED", "NEGATED", "UNCERTAIN", "CONDITIONAL", "FAMILY"
DATE = "2021-03-04"


def drafts(text: str, date: str | None = DATE) -> list:
    entry = Entry.of("p", "s", "note", text, date=date)
    found = RulesWriter().extract([entry])[0]
    assert found.error is None and all(entry.text[slice(*d.span)] == d.quote for d in found.drafts)
    return list(found.drafts)


def told(text: str, attribute: str) -> list[tuple]:
    return [(d.concept, d.value, d.polarity) for d in drafts(text) if d.attribute == attribute]


def held(tmp_path, *texts: tuple[str, str]) -> set[tuple]:
    """What holds of a patient after the entries, given as (date, text)."""
    from core_jax.embed import HashEncoder
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    encoder = HashEncoder(64)
    with Store.open(tmp_path / "store", encoder=header_of(encoder)) as store:
        for i, (date, text) in enumerate(texts):
            ingest(store, [Entry.of("P", str(i), "clinic", text, date=date)], RulesWriter(), encoder)
        return {(m.concept, m.value, m.polarity, m.clinical_time.end) for m in store.state("P").active()}


VISIT = "follow-up visit"


@pytest.mark.parametrize(("text", "expected"), [
    ("Next visit: in 28 days (planned)", {VISIT: "2021-04-02"}),
    ("Plan: Next visit: in 28 days", {VISIT: "2021-04-02"}),
    ("RTC 3 months", {VISIT: "2021-07"}),
    ("RTC in 3-4 mo or sooner if needed.", {VISIT: "2021-08"}),
    ("f/u 6/12", {VISIT: "2021-10"}),
    ("Review 2/52", {VISIT: "2021-03-19"}),
    ("F/U 2 wks w/ PCP", {"primary care follow-up": "2021-03-19"}),
    ("Follow up with PCP in 7-10 days", {"primary care follow-up": "2021-03-15"}),
    ("Follow up with cardiology in 2 weeks.", {"cardiology follow-up": "2021-03-19"}),
    ("Follow-up with his nephrologist in 6 weeks", {"nephrology follow-up": "2021-04-16"}),
    ("F/u in 2 weeks with Dr. Lee (endocrinology).", {"endocrinology follow-up": "2021-03-19"}),
    ("Follow up with PCP in 1 week and cardiology in 2 weeks.",
     {"primary care follow-up": "2021-03-12", "cardiology follow-up": "2021-03-19"}),
    ("Doctor: See me again in a month.", {VISIT: "2021-05"}),
    ("I'd like to see you back in 6 weeks.", {VISIT: "2021-04-16"}),
    ("Pt to return in 1 year.", {VISIT: "2023"}),
    ("Return to clinic in a fortnight", {VISIT: "2021-03-19"}),
    ("Should be seen again in 2 weeks.", {VISIT: "2021-03-19"}),
    ("Next appointment 2021-05-14.", {VISIT: "2021-05-15"}),
    ("Follow-up for hypertension in 3 months.", {VISIT: "2021-07"}),
    ("Metformin 500 mg BID, f/u 3 months.", {VISIT: "2021-07"}),
    ("Follow up in 2 weeks, call if worse.", {VISIT: "2021-03-19"}),
    ("Pt to see cardiology in 2-3 wks, f/u here 3 mo.", {"cardiology follow-up": "2021-03-26", VISIT: "2021-07"}),
    ("f/u w/ me 2w, ortho 6w", {VISIT: "2021-03-19", "orthopedic follow-up": "2021-04-16"}),
    ("F/U prn, RTC 1 yr", {VISIT: "2023"}),
    ("f/u with dentist in 2 weeks; f/u HF clinic 2 wks",
     {"dentist follow-up": "2021-03-19", "cardiology follow-up": "2021-03-19"}),
    ("Return to cardiology clinic 4/12; see GP in 1 week for BP check",
     {"cardiology follow-up": "2021-08", "primary care follow-up": "2021-03-12"}),
    ("GP review in 1/52", {"primary care follow-up": "2021-03-12"}),
    ("Please make an appointment to see me in 6 weeks.", {VISIT: "2021-04-16"}),
    ("assessment: Encounter reason: Well-child visit, infant, routine\nplan: Next visit: in 28 days (planned).",
     {VISIT: "2021-04-02"}),
    # nothing that lies ahead, nothing that is settled, or nobody's visit
    ("Seen in follow-up 3 months after surgery.", {}),
    ("At 6 month follow-up she was well.", {}),
    ("Presents for 3 month follow-up.", {}),
    ("Follow-up 3 months later showed no change.", {}),
    ("He missed his follow-up 2 weeks ago.", {}),
    ("Lost to follow-up for 2 years.", {}),
    ("Follow up as needed.", {}),
    ("Return if symptoms worsen.", {}),
    ("Follow up in 2 weeks if not better.", {}),
    ("Consider follow-up in 6 months.", {}),
    ("May return to work in 2 weeks.", {}),
    ("Her pain will return in 2 weeks.", {}),
    ("Mother has a follow-up with cardiology in 2 weeks.", {}),
    ("Follow up labs in 3 months.", {}),
    ("F/u potassium in 1 week.", {}),
    ("Defer diabetes focused review to next visit", {}),
    ("Do you want to follow up in 2 weeks?", {}),
    ("I haven't seen you in 3 months.", {}),
    ("Symptoms improved in 2 weeks.", {}),
    ("Back pain in 3 months.", {}),
    ("Review of systems in 2 weeks.", {}),
    ("We hope to see improvement in 2 weeks.", {}),
    ("The patient's wife will return in 2 weeks.", {}),
    ("Seen by cardiology in 2 weeks after discharge.", {}),
])
def test_visits_ahead(text, expected):
    found = [d for d in drafts(text) if d.attribute == "plan"]
    assert {d.concept: resolve(d.time, DATE).end for d in found} == expected
    assert all((d.kind, d.value, d.polarity, d.experiencer) == ("PLAN", None, A, "PATIENT") for d in found)


@pytest.mark.parametrize(("text", "expected"), [
    ("No further follow-up needed.", [(VISIT, None, N)]),
    ("Discharged from cardiology follow-up.", [("cardiology follow-up", None, N)]),
    ("Follow-up appointment cancelled.", [(VISIT, None, N)]),
    ("No follow-up needed if the scan is normal.", []),
])
def test_visits_called_off(text, expected):
    assert told(text, "plan") == expected


def test_the_next_visit_takes_the_place_of_the_one_before(tmp_path):
    found = held(tmp_path, ("2021-01-04", "Follow up in 3 months."),
                 ("2021-02-04", "RTC 6/12. Cardiology f/u 2 weeks."))
    assert {f for f in found if "follow-up" in f[0]} == {
        (VISIT, None, A, "2021-09"), ("cardiology follow-up", None, A, "2021-02-19")}


def test_who_quit_years_ago_does_not_smoke_whatever_was_said_since(tmp_path):
    found = held(tmp_path, ("2021-01-04", "Current smoker, 20 pack years."), ("2021-02-14", "Former smoker, quit 2015."))
    assert [x for x in found if x[0] == "tobacco use"] == [("tobacco use", None, "NEGATED", None)], found


def test_a_visit_whose_day_is_past_is_over(tmp_path):
    found = held(tmp_path, ("2021-01-04", "Next visit: in 28 days."), ("2021-02-14", "Has gout."))
    assert [f[0] for f in found] == ["gout"]


@pytest.mark.parametrize(("text", "expected"), [
    ("metop 25 BID", [("metoprolol", "25 mg bid", A)]),
    ("ASA 81", [("aspirin", "81 mg", A)]),
    ("incr lasix 40->80 daily", [("furosemide", "80 mg daily", A)]),
    ("↑ Lasix 40→80 mg daily", [("furosemide", "80 mg daily", A)]),
    ("d/c'd lisinopril", [("lisinopril", None, N)]),
    ("- lisinopril 10 mg 1 tab PO daily #30 RF2", [("lisinopril", "10 mg daily", A)]),
    ("metformin 500 mg tablet. Sig: take 1 tab by mouth twice daily. Disp #60, RF 3", [("metformin", "500 mg bid", A)]),
    ("Rx: amoxicillin 500 TID x 7d", [("amoxicillin", "500 mg tid", A)]),
    ("- metoprolol succ 50 mg PO QD #90 RF3", [("metoprolol", "50 mg daily", A)]),
    ("DM - start jardiance 10 daily, d/c glipizide.", [("empagliflozin", "10 mg daily", A), ("glipizide", None, N)]),
    ("Allergies: PCN (rash); Meds: metoprolol 25 BID, ASA 81",
     [("metoprolol", "25 mg bid", A), ("aspirin", "81 mg", A)]),
    ("HTN, T2DM, NKDA, ASA 81", [("aspirin", "81 mg", A)]),
    ("Tiotropium 18 daily", []),
    ("meds: metop 25 BID, ASA 81, lisinopril 10 daily; NKDA",
     [("metoprolol", "25 mg bid", A), ("aspirin", "81 mg", A), ("lisinopril", "10 mg daily", A)]),
    ("Patient: I take: metformin 500 twice a day, lisinopril 10 and a baby aspirin.",
     [("metformin", "500 mg bid", A), ("lisinopril", "10 mg", A), ("aspirin", None, A)]),
    ("Chat: My meds are metoprolol 25 twice a day, and a vitamin D.",
     [("metoprolol", "25 mg bid", A), ("vitamin d", None, A)]),
    ("Mom takes metformin 500 mg bid, lisinopril 10 and a baby aspirin.",
     [("metformin", "500 mg bid", A), ("lisinopril", "10 mg", A)]),
])
def test_doses_in_shorthand(text, expected):
    assert told(text, "dose") == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("Cr 1.4 (1.1)", [("creatinine", "1.4")]),
    ("A1c 8.1 <- 7.4", [("hba1c", "8.1")]),
    ("A1c 7.4->8.1", [("hba1c", "8.1")]),
    ("Recheck INR 1 wk.", []),
    ("Hold spironolactone until K < 5.", []),
    ("wt up 3 kg", []),
    ("Cr 1.4, A1c 8.1 (was 7.4 in March)", [("creatinine", "1.4"), ("hba1c", "8.1")]),
    ("Weight 84 kg, up 3 kg", [("weight", "84")]),
    ("K 3.2, Cr 1.4 (1.1), wt 84 kg, BP 142/88",
     [("potassium", "3.2"), ("creatinine", "1.4"), ("weight", "84"), ("blood pressure", "142/88")]),
])
def test_values_in_shorthand(text, expected):
    assert [v[:2] for v in told(text, "value")] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("PMHx: HTN, T2DM, CKD3, s/p CABG '15",
     [("hypertension", A, None), ("type 2 diabetes", A, None), ("chronic kidney disease", A, None),
      ("coronary artery bypass", A, "2015")]),
    ("HTN, MI 2015, gout", [("hypertension", A, None), ("myocardial infarction", A, "2015"), ("gout", A, None)]),
    ("Hypertension and gout since 2015", [("hypertension", A, "2015"), ("gout", A, "2015")]),
    ("h/o DVT '09, on apixaban 5 mg bid", [("deep vein thrombosis", A, "2009")]),
    ("Neg for CP/SOB, pos for HA", [("chest pain", N, None), ("shortness of breath", N, None), ("headache", A, None)]),
    ("no CP/SOB, c/o HA", [("chest pain", N, None), ("shortness of breath", N, None), ("headache", A, None)]),
    ("DM w/o retinopathy; r/o PE",
     [("diabetes", A, None), ("diabetic retinopathy", N, None), ("pulmonary embolism", U, None)]),
    ("T2DM (A1c 8.1), s/p CABG '15 p/w CP",
     [("type 2 diabetes", A, None), ("coronary artery bypass", A, "2015"), ("chest pain", A, None)]),
    ("CAD s/p PCI '12, HFrEF, CKD3b, ex-smoker, quit '05",
     [("tobacco use", N, None), ("coronary artery disease", A, None), ("coronary stent placement", A, "2012"),
      ("heart failure", A, None), ("chronic kidney disease", A, None)]),
    ("LMP 1/20/21, c/o HA, denies fever", [("headache", A, None), ("fever", N, None)]),
    ("PSHx: appy '99, CABG 2015", [("appendectomy", A, "1999"), ("coronary artery bypass", A, "2015")]),
    ("ROS: +cough, -fever, -CP, +HA", [("cough", A, None), ("fever", N, None), ("chest pain", N, None),
                                       ("headache", A, None)]),
    ("-CP, -SOB, +cough", [("chest pain", N, None), ("shortness of breath", N, None), ("cough", A, None)]),
    ("- cough\n- fever", [("cough", A, None), ("fever", A, None)]),
    # abbreviations that are something else there
    ("PE: lungs clear", []),
    ("No CVA tenderness.", []),
    ("AF, VSS", []),
    ("Seen at UC yesterday.", []),
    ("GABAPENTIN 300 MG CAP TID", []),
])
def test_problems_in_shorthand(text, expected):
    found = [d for d in drafts(text) if d.attribute in ("status", "procedure")]
    assert [(d.concept, d.polarity, resolve(d.time, DATE).start if d.time else None) for d in found] == expected


SMOKES, DRINKS = "tobacco use", "alcohol use"


@pytest.mark.parametrize(("text", "expected"), [
    ("Current smoker, 1 ppd.", [(SMOKES, A, None)]),
    ("Smokes 10 cigarettes a day.", [(SMOKES, A, None)]),
    ("Tobacco: 1 ppd x 20 yrs", [(SMOKES, A, None)]),
    ("Former smoker, quit 2015.", [(SMOKES, N, None)]),
    ("Ex-smoker (20 pack years, quit in 2015)", [(SMOKES, N, None)]),
    ("Patient: I quit smoking five years ago.", [(SMOKES, N, None)]),
    ("Quit smoking last month.", [(SMOKES, N, None)]),
    ("Smoking status: never", [(SMOKES, N, None)]),
    ("Lifelong non-smoker, social drinker.", [(SMOKES, N, None), (DRINKS, A, None)]),
    ("Denies tobacco, alcohol, or drugs.", [(SMOKES, N, None), (DRINKS, N, None)]),
    ("No alcohol since 2010.", [(DRINKS, N, None)]),
    ("Drinks 2 glasses of wine nightly.", [(DRINKS, A, None)]),
    ("EtOH: none", [(DRINKS, N, None)]),
    ("He quit smoking but has resumed smoking 5 cigs/day.", [(SMOKES, A, None)]),
    # advised, wished, somebody else's, or of something else
    ("Advised to quit smoking.", []),
    ("She wants to stop smoking.", []),
    ("Has not quit smoking yet.", []),
    ("Quit smoking!", []),
    ("Drinks 2 liters of water daily.", []),
    ("Avoid alcohol with metronidazole.", []),
    ("Smoking cessation counselling given.", []),
    ("Does he smoke?", []),
    ("Denies alcohol, tobacco 1 ppd.", [(DRINKS, N, None)]),
])
def test_tobacco_and_alcohol(text, expected):
    found = [d for d in drafts(text) if d.concept in (SMOKES, DRINKS)]
    assert [(d.concept, d.polarity, resolve(d.time, DATE).start if d.time else None) for d in found] == expected


def test_habits_of_relatives_are_theirs():
    found = drafts("Fam hx: dad MI 52; SH: lives w/ wife, smokes 1/2 ppd, 2 beers/night")
    assert [(d.concept, d.experiencer) for d in found] == [
        ("myocardial infarction", F), (SMOKES, "PATIENT"), (DRINKS, "PATIENT")]
    assert [(d.concept, d.experiencer) for d in drafts("Father is a heavy smoker.")] == [(SMOKES, F)]
    assert [(d.concept, d.polarity) for d in drafts("Former smoker with COPD.") if d.attribute == "status"] == [
        (SMOKES, N), ("chronic obstructive pulmonary disease", A)]


@pytest.mark.parametrize(("text", "expected"), [
    ("20 pack-year history", [("pack years", "20")]),
    ("30 py smoker", [("pack years", "30")]),
    ("G2P1, LMP 2/14/2021", [("gravidity", "2"), ("parity", "1"), ("last menstrual period", "2/14/2021")]),
    ("Gravida 3 para 2", [("gravidity", "3"), ("parity", "2")]),
    ("G6PD deficiency", []),
])
def test_counts_of_a_life(text, expected):
    assert [v[:2] for v in told(text, "value")] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("Mild intermittent chest pain, resolved.", [("chest pain", N)]),
    ("Chest pain only on exertion.", [("chest pain", A)]),
    ("No chest pain except on exertion.", [("chest pain", A)]),
    ("Chest pain resolved, now only on exertion.", [("chest pain", A)]),
    ("Denies chest pain at rest.", [("chest pain at rest", N)]),
    ("Denies chest pain.", [("chest pain", N)]),
    ("Denies exertional chest pain.", [("exertional chest pain", N)]),
    ("Hold lisinopril until AKI resolves.", []),
    ("AKI resolved.", [("acute kidney injury", N)]),
    ("Metformin 500 mg bid for type 2 diabetes.", [("type 2 diabetes", A)]),
    ("Aspirin 81 mg daily for stroke prevention.", []),
    ("Ibuprofen 400 mg prn for pain.", []),
    ("If needed start metformin 500 mg bid for type 2 diabetes.", []),
    ("Stopped amoxicillin for pneumonia.", []),
])
def test_qualified_problems_and_indications(text, expected):
    assert [v[::2] for v in told(text, "status")] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("Stop all NSAIDs.", ["nsaids"]),
    ("Stop ibuprofen and all other NSAIDs.", ["nsaids"]),
    ("Hold ACE inhibitor and NSAIDs until AKI resolves.", ["ace inhibitors", "nsaids"]),
    ("Hold ACE inhibitor.", ["ace inhibitors"]),
    ("Statins were stopped.", ["statins"]),
    ("Do not stop NSAIDs.", []),
    ("Stop NSAIDs if creatinine rises.", []),
    ("Hold ACE inhibitor on the morning of surgery.", []),
    ("Avoid NSAIDs.", []),
    ("Allergic to NSAIDs.", []),
    ("Consider stopping statins.", []),
])
def test_class_stops(text, expected):
    assert [d.concept for d in drafts(text) if d.attribute == "background" and d.polarity == N] == expected


def test_a_class_stop_ends_the_drugs_of_the_class_that_hold_and_no_other(tmp_path):
    taken = "Ibuprofen 400 mg tid. Naproxen 250 mg bid. Aspirin 81 mg daily. Metformin 500 mg bid."
    found = held(tmp_path / "one", ("2021-01-04", taken), ("2021-02-04", "Stop all NSAIDs."))
    assert {f[:3] for f in found} == {
        ("aspirin", "81 mg daily", A), ("metformin", "500 mg bid", A), ("nsaids", None, N)}
    found = held(tmp_path / "other", ("2021-01-04", "Lisinopril 10 mg daily. Mother takes ramipril 5 mg daily."),
                 ("2021-02-04", "Hold ACE inhibitor."))
    assert {f[:3] for f in found} == {("ramipril", "5 mg daily", A), ("ace inhibitors", None, N)}


@pytest.mark.parametrize(("text", "expected"), [
    ("Lisinopril 20 mg daily. Increase to 40.", [("lisinopril", "20 mg daily", A), ("lisinopril", "40 mg", A)]),
    ("Switched from ramipril to losartan 50 mg daily. Increase to 100 in 2 weeks.",
     [("ramipril", None, N), ("losartan", "50 mg daily", A), ("losartan", "100 mg", C)]),
    ("Lisinopril 20 mg daily. BP 160/90. Increase to 40 mg.",
     [("lisinopril", "20 mg daily", A), ("lisinopril", "40 mg", A)]),
    # a change that is planned for later
    ("Amlodipine 5 mg daily, will increase to 10 mg at next visit.",
     [("amlodipine", "5 mg daily", A), ("amlodipine", "10 mg", "CONDITIONAL")]),
    ("Increase lisinopril to 40 mg daily in 2 weeks.", [("lisinopril", "40 mg daily", C)]),
    ("Hold metformin day of surgery.", [("metformin", None, C)]),
    # a stop of something else
    ("Patient: I stopped my water pill, and I only take half of the metoprolol.", []),
    ("I stopped gabapentin and I take metoprolol 25 mg bid.", [("gabapentin", None, N), ("metoprolol", "25 mg bid", A)]),
    ("I stopped going to the gym and I only take half of the metoprolol.", []),
    ("Stopped the statin because of cramps, metoprolol unchanged.", []),
    ("Stop statin and metoprolol.", [("metoprolol", None, N)]),
    ("Insulin: lantus 20->24 qhs", [("insulin glargine", "24 units nightly", A)]),
    ("zosyn 3.375 q6", []),
    ("Prior auth for Ozempic 0.5 mg weekly.", [("semaglutide", "0.5 mg weekly", C)]),
    # which drug is not told
    ("Her sister takes lisinopril 10 mg. Increase to 20.", [("lisinopril", "10 mg", A)]),
    ("Mother takes metoprolol 50 mg. Stop it.", [("metoprolol", "50 mg", A)]),
    ("On lisinopril 10 and HCTZ 25; stop the former.",
     [("lisinopril", "10 mg", A), ("hydrochlorothiazide", "25 mg", A)]),
    ("Lisinopril 20 mg and metoprolol 25 mg daily. Increase to 40.",
     [("lisinopril", "20 mg", A), ("metoprolol", "25 mg daily", A)]),
    ("On lisinopril and metoprolol, increase to 40.", [("lisinopril", None, A)]),
    ("- lisinopril 10 mg daily\n- metoprolol 25 mg bid\n- increase to 40",
     [("lisinopril", "10 mg daily", A), ("metoprolol", "25 mg bid", A)]),
    ("Takes lisinopril and metoprolol. Stop it.", [("lisinopril", None, A), ("metoprolol", None, A)]),
    ("Digoxin reviewed. Increase to 40.", []),
    ("Lisinopril 20 mg daily. Back to the previous dose.", [("lisinopril", "20 mg daily", A)]),
    ("Lisinopril 20 mg daily. Halve it.", [("lisinopril", "20 mg daily", A)]),
    # each part has its own drug
    ("Lisinopril 10, increase to 20; metoprolol unchanged.", [("lisinopril", "20 mg", A)]),
])
def test_doses_said_without_their_drug(text, expected):
    assert told(text, "dose") == expected


def test_an_earlier_value_in_brackets_dates_nothing():
    assert [d.time for d in drafts("Cr 1.4, A1c 8.1 (was 7.4 in March)")] == [None, None]
    assert [d.time for d in drafts("A1c 8.1 (March 2021)")] == ["March 2021"]
