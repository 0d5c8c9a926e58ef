"""Whole entries: layouts, wrapped lines, sections, dialogue, lists, dates, and texts made to be slow."""
from __future__ import annotations

import time

import pytest

from stam_jax.graph.clinical_time import resolve
from stam_jax.graph.memory import Entry
from stam_jax.rules import RulesWriter
from stam_jax.rules.quantities import amounts, frequencies, intervals, spelled
from stam_jax.rules.sentences import sentences


def drafts(text: str, date: str | None = "2021-03-04"):
    entry = Entry.of("p", "s", "note", text, date=date)
    found = RulesWriter().extract([entry])[0].drafts
    assert all(entry.text[slice(*d.span)] == d.quote and d.statement for d in found)
    return found


def slots(text: str, date: str | None = "2021-03-04"):
    return [(d.concept, d.value, d.polarity, d.experiencer) for d in drafts(text, date)]


P = "PATIENT"


def test_wrapped_lines_are_joined_and_lists_are_not():
    wrapped = ("HOSPITAL COURSE\nThe patient was admitted with shortness of breath and the dose of furosemide was\n"
               "increased to 80 mg daily. Potassium was checked before she left and came back at\n4.4 mmol/L.\n")
    assert slots(wrapped) == [("shortness of breath", None, "AFFIRMED", P),
                              ("furosemide", "80 mg daily", "AFFIRMED", P), ("potassium", "4.4", "AFFIRMED", P)]
    listed = "MEDICATIONS\nmetformin 850 mg twice daily\nlisinopril 10 mg daily\n1. atorvastatin 40 mg at bedtime\n"
    assert [s[:2] for s in slots(listed)] == [("metformin", "850 mg bid"), ("lisinopril", "10 mg daily"),
                                              ("atorvastatin", "40 mg nightly")]


def test_sections_change_who_and_what():
    text = ("FAMILY HISTORY:\nBreast cancer\nStroke\n\nALLERGIES:\n- Penicillin: hives\n- latex (itching)\n\n"
            "DISCONTINUED MEDICATIONS:\nGlipizide 5 mg daily\n\nASSESSMENT:\nHypertension\n")
    assert slots(text) == [("breast cancer", None, "AFFIRMED", "FAMILY"), ("stroke", None, "AFFIRMED", "FAMILY"),
                           ("penicillin", "hives", "AFFIRMED", P), ("latex", "itching", "AFFIRMED", P),
                           ("glipizide", None, "NEGATED", P), ("hypertension", None, "AFFIRMED", P)]


def test_dialogue_questions_take_their_answers():
    text = ("Doctor: Any chest pain?\nPatient: No, none at all.\nDoctor: And headaches?\nPatient: Yes, every week.\n"
            "Doctor: Are you still on the amlodipine?\nPatient: No, I don't take that anymore.\n")
    found = drafts(text)
    assert [(d.concept, d.polarity) for d in found] == [("chest pain", "NEGATED"), ("headache", "AFFIRMED"),
                                                        ("amlodipine", "NEGATED")]
    assert found[0].quote == "Any chest pain?\nPatient: No, none at all"


def test_a_sentence_without_its_drug_goes_on_about_the_last_one():
    assert slots("Levothyroxine reviewed. Increase to 88 mcg daily.") == [
        ("levothyroxine", "88 mcg daily", "AFFIRMED", P)]
    assert slots("Started tramadol 50 mg bid. It was stopped.") == [
        ("tramadol", "50 mg bid", "AFFIRMED", P), ("tramadol", None, "NEGATED", P)]
    assert slots("Hypertension stable. Increase to 40 mg daily.") == [("hypertension", None, "AFFIRMED", P)]


@pytest.mark.parametrize(("text", "date", "start", "end"), [
    ("Metformin 500 mg bid started on 14-Feb-2021.", "2021-03-04", "2021-02-14", None),
    ("Visit of 03/04/2021. A1c on 02/01/2021 was 8.1%.", "2021-03-04", "2021-02-01", None),
    ("Visit of 04.03.2021. A1c on 01.02.2021 was 8.1%.", "2021-03-04", "2021-02-01", None),
    ("Records from March 2019 list metformin 500 mg bid.", "2021-03-04", "2019-03", None),
    ("Amoxicillin 500 mg tid for 7 days.", "2021-03-04", "2021-03-04", "2021-03-11"),
    ("Amoxicillin 500 mg tid through March 10, 2021.", "2021-03-04", "2021-03-04", "2021-03-11"),
    ("Gout since 2015.", "2021-03-04", "2015", None),
    ("Stopped warfarin two weeks ago.", "2021-03-04", "2021-02-18", None),
    ("Correction to the note of 2021-02-01: metformin is 850 mg bid, not 500 mg.", "2021-03-04", "2021-03-04", None),
    ("Metformin 500 mg bid, recheck A1c in 3 months.", "2021-03-04", "2021-03-04", None),
    ("Stopped warfarin two weeks ago.", None, None, None),
])
def test_time_words(text, date, start, end):
    when = resolve(drafts(text, date)[0].time, date)
    assert (when.start, when.end) == (start, end)


def test_planned_ends_are_planned():
    assert resolve(drafts("Colonoscopy scheduled for 2021-05-14.")[0].time, "2021-03-04").end_planned


def test_quantities():
    assert [str(a) for a in amounts("1,000 mg, .5mg, 88 µg, twenty five milligrams, 30 U, K 4.1 mg/dL")] == [
        "1000 mg", "0.5 mg", "88 mcg", "25 mg", "30 units"]
    often = "q.d. BID tid q6h qHS, once daily at bedtime, every other day, once a week"
    assert [w.code for w in frequencies(often)] == [
        "daily", "bid", "tid", "qid", "nightly", "nightly", "every other day", "weekly"]
    assert [w.code for w in intervals("q6wk; every two weeks; monthly; quarterly; every 14 days; 3-monthly")] == [
        "every 6 weeks", "every 2 weeks", "every month", "every 3 months", "every 2 weeks", "every 3 months"]
    assert (spelled("two and a half"), spelled("one hundred fifty"), spelled("hundreds")) == ("2.5", "150", None)


def test_sentences_keep_abbreviations_and_decimals():
    text = "Seen by Dr. Smith. Takes 2.5 mg p.o. daily; K 4.1. Next?"
    assert [text[s.start:s.end] for s in sentences(text)] == [
        "Seen by Dr. Smith", "Takes 2.5 mg p.o. daily", "K 4.1", "Next"]


@pytest.mark.parametrize("piece", ["a", "1", "1.", " ", "\n", ",", "(", "-", "no ", "lisinopril and ", "from 10 mg to ",
                                   "my mother ", "2020-01-01 ", "metformin 500 mg;", "K 5.4 ", "chest pain, ", "q2",
                                   "every 2 weeks ", "left ", "one hundred ", "diagnosed with ", "stop lisinopril ", "f/u ",
                                   "follow up with cardiology and ", "denies tobacco, alcohol, ", "quit smoking ",
                                   "smokes 1 ppd, ", "drinks 2 ", "stop all NSAIDs ", "s/p CABG '15, ", "no CP/SOB "])
def test_time_is_linear(piece):
    """Twice the text takes about twice the time, and no text makes a pattern look back over and over."""
    def seconds(size: int) -> float:
        entry = Entry.of("p", "s", "note", piece * (size // len(piece)), date="2021-03-04")
        before = time.process_time()
        RulesWriter().extract([entry])
        return time.process_time() - before

    seconds(1_000)
    assert seconds(16_000) < 3 * seconds(8_000) + 0.1


def test_drafts_name_the_chunk_that_holds_them():
    text = "Has gout. Stop allopurinol 100 mg daily. K 4.1."
    entry = Entry.of("p", "s", "note", text, date="2021-03-04", chunks=[(0, 9), (10, 25), (25, len(text))])
    found = RulesWriter().extract([entry])[0].drafts
    assert [(d.chunk, d.quote) for d in found] == [(0, "Has gout"), (1, "Stop allopurinol 100 mg daily"), (2, "K 4.1")]
    assert all(entry.text[slice(*d.span)] == d.quote for d in found)


def test_a_text_without_any_end_is_cut():
    found = drafts("has gout and takes metformin 500 mg bid and " * 200)
    assert found and max(len(d.quote) for d in found) <= 2000


@pytest.mark.parametrize("text", ["", " ", "\n\n", "?", ":", "Patient:", "\u0130\u0130 lisinopril 10 mg", "mg",
                                  "10 mg daily", "\ud7ff mother", "Stop", "x" * 5000, "No. " * 50])
def test_odd_texts_give_drafts_or_none(text):
    drafts(text)
