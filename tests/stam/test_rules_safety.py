"""Faults that would harm: a dose, a stop, an allergy or a disease told of the wrong drug, person or time."""
from __future__ import annotations

import pytest

from stam_jax.graph.memory import Entry
from stam_jax.rules import RulesWriter

A, N, C, F = "AFFIRMED", "NEGATED", "CONDITIONAL", "FAMILY"


def drafts(text: str, date: str | None = "2021-03-04") -> list:
    entry = Entry.of("p", "s", "note", text, date=date)
    found = RulesWriter().extract([entry])[0]
    assert found.error is None and all(entry.text[slice(*d.span)] == d.quote for d in found.drafts)
    return list(found.drafts)


def told(text: str, attribute: str, date: str | None = "2021-03-04") -> list[tuple]:
    return [(d.concept, d.value, d.polarity) for d in drafts(text, date) if d.attribute == attribute]


@pytest.mark.parametrize(("text", "expected"), [
    # a dose belongs to the drug before it in its own comma part
    ("TTOs: HCQ 200 mg BD, ramipril 5 mg OD, doxycycline.",
     [("hydroxychloroquine", "200 mg bid", A), ("ramipril", "5 mg daily", A)]),
    ("Meds: XYZ 10 mg BD, ramipril 5 mg OD.", [("ramipril", "5 mg daily", A)]),
    ("On ramipril, QQ 20 mg bd.", [("ramipril", None, A)]),
    ("Discharged with XY 40 mg nocte, bisoprolol.", []),
    # a stop belongs to its object
    ("Advised to stop NSAIDs given apixaban.", []),
    ("As on apixaban, NSAIDs stopped.", []),
    ("Stop naproxen in view of ramipril.", [("naproxen", None, N)]),
    ("NSAIDs stopped, on apixaban 5 mg bd.", [("apixaban", "5 mg bid", A)]),
    ("XYZ stopped, ramipril 5 mg od.", [("ramipril", "5 mg daily", A)]),
    # names by which drugs are stopped
    ("HCQ stopped (retinal OCT - early toxicity)", [("hydroxychloroquine", None, N)]),
    ("cyclizine stopped", [("cyclizine", None, N)]),
    ("FeSO4 finished", [("ferrous sulfate", None, N)]),
    ("off enalapril since 1/9", [("enalapril", None, N)]),
    # a switch ends the one drug of the sentence before
    ("Ankle oedema on amlodipine. Changed to indapamide MR 1.5 mg od.",
     [("amlodipine", None, N), ("indapamide", "1.5 mg daily", A)]),
    ("Dry cough on ramipril 5 mg od. Switched to losartan 50 mg od.",
     [("ramipril", None, N), ("losartan", "50 mg daily", A)]),
    ("Ankle oedema on amlodipine and ramipril. Changed to indapamide MR 1.5 mg od.",
     [("amlodipine", None, A), ("ramipril", None, A), ("indapamide", "1.5 mg daily", A)]),
    ("Mother had oedema on amlodipine. Changed to indapamide MR 1.5 mg od.",
     [("amlodipine", None, A), ("indapamide", "1.5 mg daily", A)]),
    # a stop that is only planned
    ("Plan: stop clopidogrel Jan 2021", [("clopidogrel", None, C)]),
    ("Will stop prednisolone in 2 weeks.", [("prednisolone", None, C)]),
    ("Clopidogrel to be stopped in 6 months.", [("clopidogrel", None, C)]),
    ("She plans to stop metformin.", [("metformin", None, C)]),
    ("Stop lisinopril and recheck BP in 2 weeks.", [("lisinopril", None, N)]),
    ("Clopidogrel 75 mg od, stop June 2021.", [("clopidogrel", "75 mg daily", A)]),
    ("Stopped clopidogrel in January 2021.", [("clopidogrel", None, N)]),
    ("Stop lisinopril today.", [("lisinopril", None, N)]),
    # a condition binds its own clause
    ("Metformin 500 mg BD. If fasting >5.3 on metformin, start insulin.", [("metformin", "500 mg bid", A)]),
    ("Metformin 500 mg BD, if fasting >5.3 on metformin, start insulin.", [("metformin", "500 mg bid", A)]),
    ("Continue metformin 500 mg BD - if fasting >5.3, start insulin glargine 10 units nightly.",
     [("metformin", "500 mg bid", A), ("insulin glargine", "10 units nightly", C)]),
    ("Start insulin glargine 10 units nightly if fasting >5.3.", [("insulin glargine", "10 units nightly", C)]),
])
def test_doses(text, expected):
    assert told(text, "dose") == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("mother d. MI age 62, sister breast CA", [("myocardial infarction", F), ("breast cancer", F)]),
    ("Mother d. of breast cancer, father b. 1940 dx. T2DM.", [("breast cancer", F), ("type 2 diabetes", F)]),
    ("Mother h/o. MI, patient has HTN.", [("myocardial infarction", F), ("hypertension", "PATIENT")]),
    ("FHx: d. MI aged 50.", [("myocardial infarction", F)]),
])
def test_what_a_relative_died_of(text, expected):
    assert [(d.concept, d.experiencer) for d in drafts(text) if d.attribute == "status"] == expected


def test_a_letter_at_the_end_of_a_sentence_ends_it():
    found = drafts("Her mother asked about vitamin D. Has asthma.")
    assert [(d.concept, d.experiencer) for d in found if d.attribute == "status"] == [("asthma", "PATIENT")]


@pytest.mark.parametrize(("text", "expected"), [
    ("PCN allergy de-labelled", [("penicillin", None, N)]),
    ("Penicillin de-labelled in 2019.", [("penicillin", None, N)]),
    ("Penicillin allergy removed after negative challenge.", [("penicillin", None, N)]),
    ("Penicillin allergy not yet removed.", [("penicillin", None, A)]),
    ("Latex allergy removed", [("latex", None, N)]),
    ("No latex allergy.", [("latex", None, N)]),
    ("Reacts to adhesive tape, not latex.", [("adhesive tape", None, A)]),
    ("Allergies: penicillin, not latex", [("penicillin", None, A)]),
])
def test_allergies(text, expected):
    assert told(text, "allergy") == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("She was first seen on 3 May 2015. At that time she was taking metformin 500 mg BID and levothyroxine 50 mcg.",
     [("metformin", "3 May 2015"), ("levothyroxine", "3 May 2015")]),
    ("Letter of 2 June 2018. Well then. Back then he took ramipril 5 mg od.", [("ramipril", "2 June 2018")]),
    ("At that time she was taking metformin 500 mg BID.", []),
    ("Review in 2 weeks. At that point metformin 500 mg BID.", []),
])
def test_what_held_at_an_earlier_time(text, expected):
    assert [(d.concept, d.time) for d in drafts(text) if d.attribute == "dose"] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("PMH: HTN, T2DM (dx 2012), hypothyroidism, OA knees",
     {"hypertension": None, "type 2 diabetes": "2012", "hypothyroidism": None, "osteoarthritis": None}),
    ("PMH: asthma (2001), COPD (2015), gout.",
     {"asthma": "2001", "chronic obstructive pulmonary disease": "2015", "gout": None}),
    ("In 2012 diagnosed with hypertension and gout.", {"hypertension": "2012", "gout": "2012"}),
])
def test_a_date_in_brackets(text, expected):
    assert {d.concept: _year(d.time) for d in drafts(text) if d.attribute == "status"} == expected


def _year(time: str | None) -> str | None:
    return time and time[-4:]


def held(tmp_path, *texts: tuple[str, str]) -> set[tuple]:
    """What holds of a patient after the entries, given as (date, text)."""
    from core_jax.embed import HashEncoder
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    encoder = HashEncoder(64)
    entries = [Entry.of("P", str(i), "clinic", text, date=date) for i, (date, text) in enumerate(texts)]
    with Store.open(tmp_path / "store", encoder=header_of(encoder)) as store:
        for entry in entries:
            ingest(store, [entry], RulesWriter(), encoder)
        return {(m.concept, m.value, m.polarity) for m in store.state("P").active()}


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the older entry last"])
def test_no_known_allergies_ends_with_an_allergy(tmp_path, order):
    entries = [("2020-01-01", "NKDA."), ("2020-02-01", "Allergic to penicillin (hives).")]
    assert held(tmp_path, *entries[::order]) == {("penicillin", "hives", A)}


def test_another_denied_allergy_leaves_no_known_allergies(tmp_path):
    assert ("drug allergies", None, N) in held(
        tmp_path, ("2020-01-01", "NKDA."), ("2020-02-01", "Latex allergy removed."))


def test_a_past_dose_does_not_replace_the_one_that_holds(tmp_path):
    assert held(tmp_path, ("2020-01-01", "Metformin 1000 mg BID."),
                ("2020-02-01", "Seen on 3 May 2015. At that time she took metformin 500 mg BID.")) == {
        ("metformin", "1000 mg bid", A)}


def test_a_planned_stop_archives_nothing(tmp_path):
    assert ("clopidogrel", "75 mg daily", A) in held(
        tmp_path, ("2020-01-01", "Clopidogrel 75 mg daily."), ("2020-02-01", "Plan: stop clopidogrel Jan 2021."))


def test_a_switch_ends_the_drug_before(tmp_path):
    found = held(tmp_path, ("2020-01-01", "Amlodipine 5 mg daily."),
                 ("2020-02-01", "Ankle oedema on amlodipine. Changed to indapamide MR 1.5 mg od."))
    assert ("amlodipine", "5 mg daily", A) not in found and ("indapamide", "1.5 mg daily", A) in found


@pytest.mark.parametrize(("first", "left"), [
    ("Has a dry cough.", set()),
    ("Has a dry cough. Has a productive cough.", {"dry cough", "productive cough"}),
])
def test_a_symptom_that_resolved_ends_its_only_kind(tmp_path, first, left):
    found = held(tmp_path, ("2020-01-01", first), ("2020-02-01", "Cough resolved."))
    assert {c for c, _, polarity in found if polarity == A} == left
