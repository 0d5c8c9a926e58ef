"""Sentences of notes and letters that told of the wrong drug, dose, person or disease."""
from __future__ import annotations

import pytest
from test_rules_safety import A, N, drafts, held, told

U, GONE = "UNCERTAIN", "NEGATED"


@pytest.mark.parametrize(("text", "expected"), [
    # the dose stands behind the drug that took the place
    ("The ramipril gave me a bad cough so the practice nurse swapped it for losartan 50 mg.",
     [("ramipril", None, N), ("losartan", "50 mg", A)]),
    ("Co-amox stopped -> IV levofloxacin 500 mg BD.",
     [("amoxicillin-clavulanate", None, N), ("levofloxacin", "500 mg bid", A)]),
    ("Warfarin -> apixaban 5 mg bd.", [("warfarin", None, N), ("apixaban", "5 mg bid", A)]),
    # a name that no list has lends its dose to nothing
    ("Hold metformin. Zzpril 30 mg OD.", [("metformin", None, N), ("zzpril", "30 mg daily", A)]),
    ("Hold metformin. Zed 30 mg OD x5/7.", [("metformin", None, N)]),
    ("Hold metformin. Pred 30 mg OD x5/7.", [("metformin", None, N), ("prednisolone", "30 mg daily", A)]),
    ("Salbutamol prn, Trelegy 1 puff od.", [("albuterol", None, A), ("trelegy", "1 puffs daily", A)]),
    ("DHx: metformin 500 bd, salbutamol inhaler prn.", [("metformin", "500 mg bid", A), ("albuterol", None, A)]),
    ("Uses ibuprofen as needed.", [("ibuprofen", None, A)]),
    ("Advised to avoid ibuprofen prn.", []),
    ("Declines loratadine as needed.", []),
    ("Was previously on ibuprofen as needed.", []),
    ("On salbutamol, Zedron 2 tablets od.", [("albuterol", None, A)]),
    ("Hb 74 on admission, 2 units RBC transfused.", []),
    # asked about, wished, queried
    ("My wife says I should ask about sertraline 50 but I don't want that again.", []),
    ("?lisinopril - wife thinks he takes this, not on GP record.", []),
    ("Metoprolol 25 -> 50 mg and lisinopril 10 mg daily.",
     [("metoprolol", "50 mg", A), ("lisinopril", "10 mg daily", A)]),
    ("Stopped metformin, not restarted.", [("metformin", None, N)]),
    # a single dose is over
    ("She was given morphine 5 mg once for pain.", []),
    ("Aspirin 300 mg stat.", []),
    ("She was given morphine 5 mg once daily.", [("morphine", "5 mg daily", A)]),
    # stopped for a while, and taken again
    ("I stopped empagliflozin for a week but I am back on it now.", [("empagliflozin", None, A)]),
    ("Clinician: And the mirtazapine?\nPatient: Down to 15 at night, I want to come off it by Christmas.",
     [("mirtazapine", "15 mg nightly", A)]),
    ("On hold:\n  Atorvastatin 20 mg - while on clarithromycin", [("atorvastatin", None, N)]),
    # who tells, and of whom
    ("T/C from pt's wife: he has stopped sertraline by himself.", [("sertraline", None, N)]),
])
def test_doses(text, expected):
    assert told(text, "dose") == expected
    assert all(d.experiencer == "PATIENT" for d in drafts(text))


def test_a_quoted_list_has_the_date_of_its_quotation():
    found = drafts('Copied from 12/01/2023: "Takes amlodipine 10 mg od, metformin 1 g bd, atorvastatin 20 mg nocte."')
    assert {d.time for d in found} == {"12/01/2023"} and len(found) == 3


@pytest.mark.parametrize(("text", "expected"), [
    ('Letter of 13/01/2023: "Amlodipine 10 mg od. He has gout. Prednisolone 30 mg od for 5 days." Ramipril 5 mg od.',
     [("amlodipine", "2023-01-13"), ("gout", "2023-01-13"), ("prednisolone", "from 2023-01-13 to 2023-01-17"),
      ("ramipril", None)]),
    ('On 13/01/2023 the GP wrote: "Takes metformin 1 g bd. She has had gout since 2019."',
     [("metformin", "2023-01-13"), ("gout", "2019")]),
    ('Seen 13/01/2023. He says "I take metformin 1 g bd".', [("metformin", None)]),
    ('Letter of 13/01/2023 read. Height 5\'10". Takes metformin 1 g bd. Told "not now".', [("metformin", None)]),
])
def test_a_quotation_is_of_its_own_day(text, expected):
    assert [(d.concept, d.time) for d in drafts(text, "2024-01-18") if d.attribute != "value"] == expected


@pytest.mark.parametrize(("text", "time"), [
    ("Hyperkalaemia was recorded in June.", "June 2023"), ("Has had gout since June.", "June 2023"),
    ("Hyperkalaemia was recorded in December.", "December"),
])
def test_a_month_of_what_has_been_is_the_last_one(text, time):
    (draft,) = [d for d in drafts(text, "2024-01-18") if d.attribute == "status"]
    assert draft.time == time


def test_a_past_year_does_not_replace_a_stop_within_it(tmp_path):
    found = held(tmp_path, ("2023-02-03", "Stop amlodipine."), ("2024-01-18", "Was on amlodipine 10 mg od in 2023."))
    assert ("amlodipine", "10 mg daily", A) not in found and ("amlodipine", None, N) in found


def test_how_often_alone_repeats_the_dose(tmp_path):
    found = held(tmp_path, ("2024-02-03", "Start apixaban 5 mg BID."),
                 ("2024-03-03", "Reminded to take apixaban twice daily."))
    assert {f for f in found if f[0] == "apixaban"} == {("apixaban", "5 mg bid", A)}


@pytest.mark.parametrize(("text", "expected"), [
    ("Tolerated amoxicillin 1 g BD without any reaction, so penicillin allergy label removed after formal review.",
     [("amoxicillin", None, N), ("penicillin", None, N)]),
    ("Allergies: NKDA (penicillin label removed this admission). Trimethoprim - hyperkalaemia.",
     [("trimethoprim", "hyperkalaemia", A)]),
    ("All: codeine (vomiting), NKDA otherwise.", [("codeine", "vomiting", A)]),
    ("Reaction was attributed to the clarithromycin. Clarithromycin added to allergy list: urticaria.",
     [("clarithromycin", "urticaria", A)]),
    ("Reaction to penicillin (rash), referred to allergist.", [("penicillin", "rash", A)]),
    ("NKDA. Allergic to peanuts (hives).", [("drug allergies", None, N), ("peanuts", "hives", A)]),
])
def test_allergies(text, expected):
    assert told(text, "allergy") == expected
    assert [d for d in drafts(text) if d.attribute == "status"] == []


@pytest.mark.parametrize(("text", "ended"), [
    ("Oral challenge: he is NOT allergic to penicillin; reaction was attributed to the clarithromycin.", True),
    ("He is not allergic to penicillin. The reaction was due to clarithromycin.", True),
    ("He is not allergic to penicillin.", False),
    ("He is not allergic to penicillin; reaction was due to augmentin.", False),
    ("He is not allergic to penicillin; reaction may be due to clarithromycin.", False),
])
def test_a_reaction_that_another_drug_caused_ends_the_allergy_to_the_class(tmp_path, text, ended):
    found = held(tmp_path, ("2024-03-03", "Allergy: co-amoxiclav - urticaria."),
                 ("2024-03-04", "Allergy: trimethoprim - rash."), ("2024-06-11", text))
    assert ("trimethoprim", "rash", A) in found
    assert (("amoxicillin-clavulanate", "urticaria", A) not in found) == ended


@pytest.mark.parametrize(("text", "expected"), [
    ("She has increasing breathlessness on exertion and ankle swelling over six weeks.",
     [("shortness of breath", A), ("ankle swelling", A)]),
    ("Cough is over now.", [("cough", GONE)]),
    ("Secondary: AKI on CKD 3a, resolved. AF.",
     [("acute kidney injury", GONE), ("chronic kidney disease", A), ("atrial fibrillation", A)]),
    ("stop amlodipine (ankle oedema)", []),
    ("Stopped:\n  Candesartan 4 mg OD (AKI)", []),
    ("PE less likely - low Wells, no CTPA.", [("pulmonary embolism", U)]),
    ("Flu jab given.", []),
    ("PMH: AF, ?gout - no, urate normal, not gout.", [("atrial fibrillation", A), ("gout", GONE)]),
    ("Overnight: generalised urticaria after co-amox dose 3, chlorphenamine given, settled.", [("urticaria", GONE)]),
])
def test_problems(text, expected):
    assert [(d.concept, d.polarity) for d in drafts(text) if d.attribute == "status"] == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("Flu jab given.", [("influenza vaccine", A, None)]),
    ("Had her flu vaccine in October 2023.", [("influenza vaccine", A, "October 2023")]),
    ("COVID-19 booster given today.", [("covid-19 vaccine", A, "today")]),
    ("Declined flu jab.", []),
    ("Flu jab not given.", []),
    ("Flu vaccine to be given in October.", []),
    ("He has not had a flu jab.", []),
    ("Flu jab advised.", []),
])
def test_vaccines(text, expected):
    found = drafts(text, "2024-01-18")
    assert [(d.concept, d.polarity, d.time) for d in found if d.attribute == "procedure"] == expected
    assert [d for d in found if d.attribute == "status"] == []


@pytest.mark.parametrize(("text", "expected"), [
    ("Wife's lisinopril has run out, she wants a script for herself - told to phone her own GP.", []),
    ("She prefers to be contacted by phone.", [("contact method", "phone call", A)]),
])
def test_a_call_to_make_is_no_preference(text, expected):
    assert told(text, "preference") == expected


@pytest.mark.parametrize(("text", "warned", "taken"), [
    ("Avoid NSAIDs, on apixaban 5 mg bd.", ["avoid nsaids"], [("apixaban", "5 mg bid", A)]),
    ("He should not receive penicillins.", ["avoid penicillin"], []),
    ("Avoid ibuprofen 400 mg.", ["avoid ibuprofen"], []),
    ("Not to be given metoclopramide 10 mg tds.", ["avoid metoclopramide"], []),
    ("Avoid NSAIDs for 2 weeks.", [], []),
    ("Avoid NSAIDs until the ulcer has healed.", [], []),
    ("Avoid alcohol.", [], []),
    ("Avoid ACE inhibitors because of angioedema.", [], []),
])
def test_what_must_not_be_given_is_not_taken(text, warned, taken):
    found = drafts(text)
    assert [d.concept for d in found if d.attribute == "plan"] == warned
    assert [(d.concept, d.value, d.polarity) for d in found if d.attribute == "dose"] == taken
