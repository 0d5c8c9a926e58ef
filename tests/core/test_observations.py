"""What can be cited: ids, order, the age line, duplicates of codes (EviGen A.1.1, F.3)."""
from __future__ import annotations

import pytest

from core_jax.observations import observations
from core_jax.records import Code, Note, Patient, RecordError
from core_jax.text import word_spans


def _patient(**parts) -> Patient:
    return Patient("p1", **parts)


def test_notes_in_time_order_then_codes():
    p = _patient(
        notes=(Note("late", "c d", "2021-01-01T00:00:00", 61.9), Note("early", " a\r\nb ", "2020-01-01T00:00:00", 60.9)),
        codes=(Code("I10", "10", "Essential hypertension", "2021-01-01T00:00:00", 61.9),
               Code("4019", "9", "Hypertension", "2019-01-01T00:00:00", 59.0)),
    )
    out = observations(p, word_spans)
    assert [o.obs_id for o in out] == ["early#0-6", "late#0-3", "4019-9", "I10-10"]
    assert [o.kind for o in out] == ["note", "note", "code", "code"]
    assert [o.source_id for o in out] == ["early", "late", "4019-9", "I10-10"]
    assert out[0].text == " a\r\nb "
    assert out[0].embed_text == "Patient age: 60 years\n\nClinical Note:\n a\r\nb "
    assert out[3].embed_text == "Patient age: 61 years\n\nEssential hypertension"
    assert (out[3].start, out[3].end, out[3].text) == (None, None, "Essential hypertension")


def test_chunk_text_is_the_notes_own_slice():
    text = "\n".join(f"word{i}\t" for i in range(500))
    p = _patient(notes=(Note("n", text, "2020-01-01T00:00:00", 40.0),))
    out = observations(p, word_spans)
    assert len(out) == 3
    assert all(o.text == text[o.start:o.end] and o.obs_id == f"n#{o.start}-{o.end}" for o in out)
    assert all(o.embed_text.endswith(o.text) for o in out)


def test_unknown_age_leaves_the_age_line_out():
    p = _patient(notes=(Note("n", "a", None),), codes=(Code("I10", "10", "Hypertension"),))
    note, code = observations(p, word_spans)
    assert note.embed_text == "Clinical Note:\na" and code.embed_text == "Hypertension"


def test_a_code_is_kept_once_with_its_earliest_age():
    p = _patient(codes=(
        Code("I10", "10", "Hypertension", "2021-01-01T00:00:00", 61.0),
        Code("I10", "10", "Hypertension", None, None),
        Code("I10", "10", "Hypertension", "2020-01-01T00:00:00", 60.0),
        Code("I10", "9", "Another vocabulary", "2022-01-01T00:00:00", 62.0),
    ))
    out = observations(p, word_spans)
    assert [(o.obs_id, o.age_years) for o in out] == [("I10-10", 60.0), ("I10-9", 62.0)]


def test_duplicate_rows_and_row_order_change_nothing():
    a = Code("E11.9", "10", "Diabetes", "2020-01-01T00:00:00", 60.0)
    b = Code("I10", "10", "Hypertension", "2020-01-01T00:00:00", 60.0)
    assert observations(_patient(codes=(a, b, a)), word_spans) == observations(_patient(codes=(b, a)), word_spans)


def test_a_blank_note_and_an_empty_patient_give_nothing():
    assert observations(_patient(notes=(Note("n", " \n ", "2020-01-01T00:00:00"),)), word_spans) == []
    assert observations(_patient(), word_spans) == []


def test_two_observations_of_one_id_are_an_error():
    p = _patient(codes=(Code("A-1", "0", "x"), Code("A", "1-0", "y")))
    with pytest.raises(RecordError, match="'A-1-0'"):
        observations(p, word_spans)
