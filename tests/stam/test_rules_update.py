"""Relations and updates of the rules: what the second entry makes of the memories of the first."""
from __future__ import annotations

import dataclasses

import pytest

from stam_jax.graph.clinical_time import resolve
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.relations import Relation
from stam_jax.rules import RulesWriter, names
from stam_jax.write.writer import Affected, LinkTask, UpdateTask, Writer

WRITER = RulesWriter()


def told(text: str, date: str | None = "2021-03-04") -> tuple[Entry, list[Memory]]:
    entry = Entry.of("p", date or "undated", "note", text, date=date)
    drafts = WRITER.extract([entry])[0].drafts
    return entry, [Memory.of("p", d.statement, [Provenance.of(entry, *d.span)], ordinal=i, kind=d.kind,
                             concept=d.concept, attribute=d.attribute, value=d.value, unit=d.unit, polarity=d.polarity,
                             experiencer=d.experiencer, clinical_time=resolve(d.time, entry.date))
                   for i, d in enumerate(drafts)]


def links(first: str, second: str) -> set[tuple[str, str, str]]:
    """(concept of the source, type, concept of the destination) between the entries' memories."""
    _, old = told(first, "2021-01-02")
    entry, new = told(second)
    out = set()
    for memory in new:
        for found in WRITER.link([LinkTask(entry, memory, tuple(old))])[0].links:
            pair = (memory.concept, old[found.candidate].concept)
            out.add((pair[0], found.type, pair[1]) if found.forward else (pair[1], found.type, pair[0]))
    return out


def outcome(first: str, second: str, dates=("2021-01-02", "2021-03-04")) -> dict[str, str]:
    """statement of the first entry -> what becomes of it; placements of the second that are not CURRENT too."""
    _, old = told(first, dates[0])
    entry, new = told(second, dates[1])
    relations = [Relation.of(m.mid, n.mid, "monitoring_for") for m in old for n in old
                 if m.attribute == "plan" and n.attribute == "dose"]
    affected = tuple(Affected(m, tuple(r for r in relations if m.mid in (r.src, r.dst))) for m in old)
    answer = WRITER.update([UpdateTask(entry, tuple(new), affected)])[0]
    out = {old[v.candidate].text: v.kind for v in answer.verdicts}
    return out | {new[p.new].text: p.kind for p in answer.placements}


def test_it_is_a_writer():
    assert isinstance(WRITER, Writer) and WRITER.decider == "rule"
    assert WRITER.hashes == RulesWriter().hashes and len(WRITER.hashes["rules"]) == 64


@pytest.mark.parametrize(("first", "second", "expected"), [
    ("Has hypertension.", "Started lisinopril 10 mg daily.", {("lisinopril", "treatment_for", "hypertension")}),
    ("Started lisinopril 10 mg daily.", "Has hypertension.", {("lisinopril", "treatment_for", "hypertension")}),
    ("Has depression and fibromyalgia.", "Cymbalta 30 mg daily for fibromyalgia.",
     {("duloxetine", "treatment_for", "fibromyalgia"), ("fibromyalgia", "restatement", "fibromyalgia")}),
    ("Warfarin 5 mg nightly.", "INR check every 2 weeks.", {("inr monitoring", "monitoring_for", "warfarin")}),
    ("Warfarin 5 mg nightly.", "CBC monthly while on clozapine.", set()),
    ("Warfarin 5 mg nightly.", "Amiodarone 200 mg daily added.", {("warfarin", "drug_interaction", "amiodarone")}),
    ("Metformin 500 mg bid.", "Atorvastatin 40 mg nightly.", set()),
    ("Amlodipine 5 mg daily.", "Ankle swelling due to amlodipine.", {("amlodipine", "causal", "ankle swelling")}),
    ("Has type 2 diabetes.", "Diabetic retinopathy caused by type 2 diabetes.",
     {("type 2 diabetes", "causal", "diabetic retinopathy")}),
    ("Has gout.", "Kidney stones associated with gout.", {("kidney stones", "systemic_link", "gout")}),
    ("Metformin 500 mg bid.", "Metformin 1000 mg bid.", {("metformin", "same_condition_thread", "metformin")}),
    ("Metformin 500 mg bid.", "Continue metformin 500 mg twice daily.", {("metformin", "restatement", "metformin")}),
    ("Metformin 500 mg bid.", "Mother takes metformin 500 mg bid.", set()),
    ("Mother takes warfarin 5 mg nightly.", "Amiodarone 200 mg daily added.", set()),
    ("Metformin 500 mg bid.", "Could raise metformin to 1000 mg bid.", set()),
])
def test_links(first, second, expected):
    found = links(first, second)
    undirected = {"drug_interaction", "systemic_link"}
    assert {frozenset((a, b)) | {t} if t in undirected else (a, t, b) for a, t, b in found} == \
        {frozenset((a, b)) | {t} if t in undirected else (a, t, b) for a, t, b in expected}


@pytest.mark.parametrize(("first", "second", "expected"), [
    ("Lisinopril 10 mg daily.", "Lisinopril 20 mg daily.", {"Lisinopril 10 mg daily": "SUPERSEDED"}),
    ("Lisinopril 10 mg daily.", "Stop lisinopril.", {"Lisinopril 10 mg daily": "RESOLVED"}),
    ("Lisinopril 10 mg daily.", "Lisinopril was listed as 10 mg in error; it is 20 mg daily.",
     {"Lisinopril 10 mg daily": "CORRECTED"}),
    ("Lisinopril 10 mg daily.", "Continue lisinopril 10 mg once a day.",
     {"Continue lisinopril 10 mg once a day": "SAME"}),
    ("Lisinopril 10 mg daily.", "On lisinopril 10 mg.", {"On lisinopril 10 mg": "SAME"}),
    ("Metformin 1 g bid.", "Metformin 1000 mg bid.", {"Metformin 1000 mg bid": "SAME"}),
    ("Lisinopril 10 mg daily.", "Old records: lisinopril 5 mg daily in March 2019.",
     {"Old records: lisinopril 5 mg daily in March 2019": "PRIOR"}),
    ("Stopped lisinopril.", "Restart lisinopril 5 mg daily.", {"Stopped lisinopril": "SUPERSEDED"}),
    ("Lisinopril 10 mg daily.", "Consider lisinopril 20 mg daily.", {}),
    ("Lisinopril 10 mg daily.", "Father takes lisinopril 40 mg daily.", {}),
    ("Has pneumonia.", "Pneumonia has resolved.", {"Has pneumonia": "RESOLVED"}),
    ("Has asthma.", "Asthma was entered in error.", {"Has asthma": "CORRECTED"}),
    ("Possible lupus.", "Lupus was ruled out.", {"Possible lupus": "RESOLVED"}),
    ("Possible lupus.", "Lupus confirmed on testing.", {"Possible lupus": "SUPERSEDED"}),
    ("Denies chest pain.", "Reports chest pain.", {"Denies chest pain": "SUPERSEDED"}),
    ("Has asthma.", "Possible asthma.", {}),
    ("Allergic to penicillin (rash).", "Allergic to latex (hives).", {}),
    ("Allergic to penicillin (rash).", "Reaction to penicillin was hives, not rash.",
     {"Allergic to penicillin (rash)": "CORRECTED"}),
    ("Code status: full code.", "Code status is now DNR.", {"Code status: full code": "SUPERSEDED"}),
    ("A1c 8.1%.", "A1c 7.4%.", {"A1c 8.1%": "SUPERSEDED"}),
    ("Status post appendectomy in 2001.", "Status post hysterectomy in 2005.", {}),
])
def test_update(first, second, expected):
    assert outcome(first, second) == expected


def test_a_monitoring_plan_falls_with_its_drug():
    assert outcome("Warfarin 5 mg nightly. INR check every 2 weeks.", "Coumadin was discontinued.") == {
        "Warfarin 5 mg nightly": "RESOLVED", "INR check every 2 weeks": "RESOLVED"}


def test_a_monitoring_plan_stays_with_another_drug():
    first = "Spironolactone 25 mg daily. Eplerenone 25 mg daily. Potassium check every month."
    assert outcome(first, "Stop spironolactone.") == {"Spironolactone 25 mg daily": "RESOLVED"}
    named = "Methotrexate 15 mg weekly. CBC every month for azathioprine."
    assert "CBC every month for azathioprine" not in outcome(named, "Stop methotrexate.")


def test_what_stands_in_history_is_left_alone():
    _, old = told("Lisinopril 10 mg daily.", "2021-01-02")
    entry, new = told("Lisinopril 20 mg daily.")
    past = Affected(dataclasses.replace(old[0], store="HISTORY"))
    answer = WRITER.update([UpdateTask(entry, tuple(new), (past,))])[0]
    assert answer.verdicts == () and answer.placements == ()


def test_an_undated_entry_ends_nothing_that_is_dated():
    assert outcome("Lisinopril 10 mg daily.", "Lisinopril 20 mg daily.", ("2021-01-02", None)) == {}


def test_names():
    assert names("Why was Lasix stopped, and how is the CHF?") == ["furosemide", "heart failure"]
    assert names("What is her A1c?") == ["hba1c", "hba1c monitoring"]
    assert names("") == []


def test_a_plan_that_is_told_after_its_drugs_stop_does_not_hold(tmp_path):
    """The order of arrival does not matter: the older plan of a drug that was stopped since is past at once."""
    from core_jax.embed import HashEncoder
    from stam_jax.graph.memory import Entry
    from stam_jax.rules import RulesWriter
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    texts = [("2020-01-05", "Warfarin 5 mg daily was started for atrial fibrillation."), ("2020-02-01", "Check INR every 2 weeks."),
             ("2020-06-01", "Warfarin was stopped.")]
    encoder, held = HashEncoder(64), []
    for n, order in enumerate(((0, 1, 2), (2, 1, 0), (0, 2, 1))):
        with Store.open(tmp_path / str(n), encoder=header_of(encoder)) as store:
            ingest(store, [Entry.of("P", str(i), "clinic", texts[i][1], date=texts[i][0]) for i in order], RulesWriter(), encoder)
            held.append({(m.slot, m.polarity) for m in store.state("P").active() if m.attribute in ("dose", "plan")})
    assert held == [{(("warfarin", "dose"), "NEGATED")}] * 3


@pytest.mark.parametrize(("taken", "stop", "expected"), [
    ("Furosemide 40 mg daily.", "Stop the water pill.", {"Furosemide 40 mg daily": "RESOLVED"}),
    ("Furosemide 40 mg daily. Spironolactone 25 mg daily.", "Stop the water pill.", {}),
    ("Furosemide 40 mg daily. Spironolactone 25 mg daily.", "Stop all diuretics.",
     {"Furosemide 40 mg daily": "RESOLVED", "Spironolactone 25 mg daily": "RESOLVED"}),
    ("Ibuprofen 400 mg tid. Aspirin 81 mg daily. Metformin 500 mg bid.", "Stop NSAIDs.",
     {"Ibuprofen 400 mg tid": "RESOLVED"}),
    ("Ibuprofen 400 mg tid. Celecoxib 200 mg daily.", "Stop all NSAIDs except celecoxib.",
     {"Ibuprofen 400 mg tid": "RESOLVED"}),
    ("Mother takes ibuprofen 400 mg tid.", "Stop all NSAIDs.", {}),
])
def test_a_class_stop_ends_what_is_taken_of_the_class(taken, stop, expected):
    assert outcome(taken, stop) == expected


@pytest.mark.parametrize("most", [None, 3])
def test_a_class_stop_reaches_every_dose_of_a_long_record(tmp_path, most):
    """Among more than sixty memories that are more alike; most: memories of the class that one task has room for."""
    from core_jax.embed import HashEncoder
    from stam_jax.config import WriteConfig
    from stam_jax.rules import vocabulary
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    config = WriteConfig() if most is None else WriteConfig(link_candidates=most, related=most, budget=most)
    of_class = {c for c, f in vocabulary.DRUGS.items() if f.family == "nsaid" and c != "aspirin"}
    drugs = [*sorted(of_class), *[c for c, f in vocabulary.DRUGS.items() if f.family != "nsaid"][:70]]
    entries = [(f"2021-01-{at // 20 + 1:02d}", "\n".join(f"- {c} 10 mg daily" for c in drugs[at:at + 20]))
               for at in range(0, len(drugs), 20)]
    encoder, held = HashEncoder(64), []
    with Store.open(tmp_path / "store", encoder=header_of(encoder)) as store:
        for batch in (entries, [("2021-03-04", "Stop all NSAIDs.")]):
            made = [Entry.of("P", date, "clinic", text, date=date) for date, text in batch]
            ingest(store, made, WRITER, encoder, config)
            held.append({m.concept for m in store.state("P").active() if m.attribute == "dose"})
    before, after = held
    assert len(before) > 60 and len(before & of_class) > 6
    assert after == before - of_class


@pytest.mark.parametrize(("text", "held"), [
    ("Meds: ibuprofen 400 mg tid, lisinopril 10 mg daily. Plan: stop all NSAIDs.", {"lisinopril"}),
    ("Ibuprofen 400 mg tid, naproxen 250 mg bd. Stop all NSAIDs except naproxen.", {"naproxen"}),
    ("Furosemide 40 mg daily, spironolactone 25 mg daily. Stop the water pill.", {"furosemide", "spironolactone"}),
    ("Ibuprofen 400 mg tid. Stop NSAIDs if creatinine rises.", {"ibuprofen"}),
    ("Stop all NSAIDs. Mother takes ibuprofen 400 mg tid.", {"ibuprofen"}),
])
def test_a_class_stop_ends_what_its_own_entry_told_of_before(text, held):
    _, found = told(text)
    last = {m.concept: m.polarity for m in found if m.attribute == "dose"}
    assert {c for c, polarity in last.items() if polarity == "AFFIRMED"} == held
