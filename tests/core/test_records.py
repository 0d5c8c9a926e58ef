"""The neutral record: what is accepted, how each fault is named, what a model may see, whole files or none."""
import datetime
import gzip
import json
import os
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax import records as r

PATIENT = {
    "patient_id": "p1", "sex": "F", "birth_date": "1950-02-01", "death_date": "2012-01-09",
    "encounters": [{"encounter_id": "e1", "type": "inpatient", "start": "2011-01-01", "end": "2011-01-05T10:00:00"}],
    "notes": [
        {"note_id": "p1-DS-21", "text": "second", "time": "2011-01-05"},
        {"note_id": "p1-DS-9", "text": "first", "time": "2011-01-05"},
        {"note_id": "n0", "text": "", "time": "2010-01-05 08:30"},
    ],
    "codes": [{"code": "0010", "version": "9", "title": "Cholera", "time": "2011-01-05T10:00:00"}],
    "events": [{"event_id": "x", "kind": "lab", "time": "2011-01-02", "fields": {"value": "7"}}],
}


def changed(**change):
    return json.loads(json.dumps(PATIENT)) | change


def test_round_trip_and_what_is_filled_in():
    p = r.patient_from_dict(PATIENT)
    assert [n.note_id for n in p.notes] == ["n0", "p1-DS-9", "p1-DS-21"], "the numbers in an id count as numbers"
    assert p.notes[0].time == "2010-01-05T08:30:00"
    assert p.notes[0].age_years == pytest.approx(59.928, abs=1e-3)
    assert p.codes[0].code == "0010" and p.codes[0].obs_id == "0010-9"
    assert p.death_date == "2012-01-09"
    assert r.patient_from_dict(json.loads(json.dumps(r.patient_to_dict(p)))) == p


def test_order_of_the_parts_does_not_matter():
    backwards = changed(notes=PATIENT["notes"][::-1])
    assert r.patient_from_dict(backwards) == r.patient_from_dict(PATIENT)


@pytest.mark.parametrize("change, field, said", [
    ({"patient_id": 7}, "patient_id", "got int"),
    ({"patient_id": " "}, "patient_id", "empty"),
    ({"colour": "red"}, "colour", "unknown field"),
    ({"schema": "patient/2"}, "schema", "patient/2"),
    ({"sex": ["F"]}, "sex", "got list"),
    ({"birth_date": "1950-13-01"}, "birth_date", "1950-13-01"),
    ({"birth_year": True}, "birth_year", "expected a year"),
    ({"birth_year": 1951}, "birth_year", "birth_date is 1950-02-01"),
    ({"death_date": "1949-01-01"}, "death_date", "before birth"),
    ({"notes": {}}, "notes", "expected a list"),
    ({"notes": 0}, "notes", "expected a list"),
    ({"notes": ["x"]}, "notes[0]", "expected an object"),
    ({"notes": [{"note_id": "a"}]}, "notes[0].text", "missing"),
    ({"notes": [{"note_id": "a", "text": "x", "time": "5 May"}]}, "notes[0].time", "5 May"),
    ({"notes": [{"note_id": "a", "text": "x", "time": 20110105}]}, "notes[0].time", "got int"),
    ({"notes": [{"note_id": "a", "text": "x", "time": "0001-01-01T00:00:00+14:00"}]}, "notes[0].time", "outside"),
    ({"notes": [{"note_id": "a", "text": "x", "time": "1950-01-31"}]}, "notes[0].time", "before birth"),
    ({"notes": [{"note_id": "a", "text": "x", "time": "2150-01-31"}]}, "notes[0].time", "200 years after birth"),
    ({"notes": [{"note_id": "a", "text": "x\x00"}]}, "notes[0].text", "NUL"),
    ({"notes": [{"note_id": "a", "text": "\ud800"}]}, "notes[0].text", "surrogate"),
    ({"notes": [{"note_id": "a", "text": "x", "extra": 1}]}, "notes[0].extra", "unknown field"),
    ({"notes": [{"note_id": "a", "text": "x"}, {"note_id": "a", "text": "y"}]}, "notes[1].note_id", "duplicate"),
    ({"notes": [{"note_id": "a", "text": "x", "age_years": -1}]}, "notes[0].age_years", "got -1"),
    ({"codes": [{"code": "I10", "version": 10, "title": "t"}]}, "codes[0].version", "got int"),
    ({"codes": [{"code": "I10", "version": "10", "title": ""}]}, "codes[0].title", "empty"),
    ({"encounters": [{"encounter_id": "e", "start": "2011-01-02", "end": "2011-01-01"}]}, "encounters[0].end",
     "before start"),
    ({"encounters": [{"encounter_id": "e", "type": 3}]}, "encounters[0].type", "got int"),
    ({"encounters": [{"encounter_id": "e"}, {"encounter_id": "e"}]}, "encounters[1].encounter_id", "duplicate"),
    ({"events": [{"event_id": "x", "kind": "lab", "fields": {"a": 1}}]}, "events[0].fields", "object of strings"),
    ({"events": [{"event_id": "x", "kind": "lab", "fields": {"a": "\x00"}}]}, "events[0].fields.a", "NUL"),
])
def test_faults_name_the_field(change, field, said):
    with pytest.raises(r.RecordError, match=said) as e:
        r.patient_from_dict(changed(**change))
    assert e.value.field == field
    assert str(e.value).startswith(field + ": ")


def test_two_patients_may_share_a_note_id(tmp_path):
    path = tmp_path / "p.jsonl"
    r.write_jsonl(path, [changed(), changed(patient_id="p2")])
    assert [p.patient_id for p in r.read_patients(path)] == ["p1", "p2"]


# ---- what a model sees ----------------------------------------------------------------------------------------

def test_visible_hides_everything_later():
    more = [{"note_id": "late", "text": "x", "time": "2011-01-05T00:00:01"}, {"note_id": "static", "text": "x"}]
    p = r.patient_from_dict(changed(notes=PATIENT["notes"] + more))
    seen = r.visible(p, "2011-01-05")
    assert seen.death_date is None
    assert [n.note_id for n in seen.notes] == ["n0", "p1-DS-9", "p1-DS-21"], "inclusive, without static ones"
    assert seen.codes == (), "a code is dated by the end of its stay"
    assert seen.encounters[0].end is None, "a stay that goes on does not tell when it ends"
    assert r.visible(p, "2011-01-05T10:00:00").encounters[0].end == "2011-01-05T10:00:00"
    assert r.visible(p, "2011-01-05", include_static=True).notes[0].note_id == "static"


@pytest.mark.parametrize("time", ["", None, "soon"])
def test_visible_needs_a_time(time):
    with pytest.raises(ValueError, match="prediction_time"):
        r.visible(r.patient_from_dict(PATIENT), time)


dates = st.dates(min_value=datetime.date(1960, 1, 1)).map(str) | st.just("2011-01-05T10:00:00")


@given(st.lists(st.tuples(dates, st.booleans()), max_size=8), dates)
@settings(max_examples=60, deadline=None)
def test_visible_is_exactly_the_past(times, cut):
    p = r.Patient("p", notes=tuple(r.Note(f"n{i}", "t", None if static else r.parse_time(t))
                                   for i, (t, static) in enumerate(times)))
    seen = {n.note_id for n in r.visible(p, cut).notes}
    assert seen == {n.note_id for n in p.notes if n.time is not None and n.time <= r.parse_time(cut)}


def test_ages():
    assert r.age_years("2000-01-01", None, "2001-01-01T00:00:00") == pytest.approx(366 / 365.25)
    assert r.age_years(None, 1950, "2011-12-31T00:00:00") == 61.0
    assert r.age_years(None, None, "2011-12-31T00:00:00") is None
    assert r.age_years("2000-01-01", None, None) is None


@pytest.mark.parametrize("given_, expected", [
    ("2011-01-05", "2011-01-05T00:00:00"), ("2011-01-05 08:30:15.9", "2011-01-05T08:30:15"),
    ("2011-01-05T08:30:15+02:00", "2011-01-05T06:30:15"), ("", None), (None, None),
])
def test_times(given_, expected):
    assert r.parse_time(given_) == expected


# ---- labels ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("change, field", [
    ({"label": True}, "label"), ({"label": 2}, "label"), ({"label": None}, "label"),
    ({"prediction_time": None}, "prediction_time"), ({"prediction_time": "x"}, "prediction_time"),
    ({"split": "dev"}, "split"), ({"note": 1}, "note"),
    ({"patient_id": 1}, "patient_id"),
])
def test_label_faults(change, field):
    with pytest.raises(r.RecordError) as e:
        r.label_from_dict({"patient_id": "p", "prediction_time": "2011-01-05", "label": 1} | change)
    assert e.value.field == field


def test_a_patient_labelled_twice(tmp_path):
    path = tmp_path / "labels.jsonl"
    r.write_jsonl(path, [r.Label("p", "2011-01-05T00:00:00", 1), r.Label("p", "2011-01-05T00:00:00", 0)])
    with pytest.raises(r.RecordError, match="line 1 already") as e:
        r.read_labels(path)
    assert e.value.line == 2


# ---- files ----------------------------------------------------------------------------------------------------

def write(path: pathlib.Path, data: bytes) -> pathlib.Path:
    path.write_bytes(data)
    return path


GOOD = json.dumps(PATIENT).encode() + b"\n"


@pytest.mark.parametrize("name, data, line, said", [
    ("a.jsonl", b"", None, "empty file"),
    ("a.jsonl", b"\n \n", None, "empty file"),
    ("a.jsonl.gz", b"", None, "empty file"),
    ("a.jsonl", GOOD + b"{\n", 2, "not valid JSON"),
    ("a.jsonl", GOOD + b'\n{"patient_id": NaN}\n', 3, "NaN"),
    ("a.jsonl", GOOD + b"\xff\xfe\n", 2, "not valid UTF-8"),
    ("a.jsonl", GOOD + b"[" * 100_000 + b"\n", 2, "nested too deep"),
    ("a.jsonl", GOOD + GOOD, 2, "line 1 already"),
    ("a.jsonl", b"[]\n", 1, "expected an object"),
    ("a.jsonl.gz", gzip.compress(GOOD, mtime=0)[:-9], None, "gzip"),
    ("a.jsonl.gz", GOOD, 1, "gzip"),
])
def test_bad_files_name_the_line(tmp_path, name, data, line, said):
    path = write(tmp_path / name, data)
    with pytest.raises(r.RecordError, match=said) as e:
        list(r.read_patients(path))
    assert e.value.file == str(path) and str(e.value).startswith(str(path))
    if line is not None:
        assert e.value.line == line


def test_the_field_survives_the_file(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps(changed(birth_date="x")).encode())
    with pytest.raises(r.RecordError) as e:
        list(r.read_patients(path))
    assert (e.value.line, e.value.field) == (1, "birth_date")
    assert str(e.value).count("birth_date") == 1


def test_no_such_file(tmp_path):
    with pytest.raises(r.RecordError, match="No such file"):
        list(r.read_patients(tmp_path / "none.jsonl"))


def test_writing_is_all_or_nothing(tmp_path):
    path = tmp_path / "out" / "x.jsonl.gz"
    r.write_jsonl(path, [PATIENT])
    before = path.read_bytes()

    def broken():
        yield PATIENT
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        r.write_jsonl(path, broken())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["x.jsonl.gz"]
    with pytest.raises(ValueError):
        r.write_jsonl(path, [{"x": float("nan")}])
    assert os.listdir(path.parent) == ["x.jsonl.gz"]


def test_equal_content_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        r.write_jsonl(tmp_path / name / "x.jsonl.gz", [r.patient_from_dict(PATIENT)])
    assert (tmp_path / "a/x.jsonl.gz").read_bytes() == (tmp_path / "b/x.jsonl.gz").read_bytes()
    assert next(r.read_patients(tmp_path / "a/x.jsonl.gz")) == r.patient_from_dict(PATIENT)


text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=20)


@given(st.lists(text, max_size=4), st.integers(1900, 2000))
@settings(max_examples=60, deadline=None)
def test_any_text_survives_the_round_trip(texts, year):
    notes = [{"note_id": f"n{i}", "text": t, "time": "2011-01-05"} for i, t in enumerate(texts)]
    p = r.patient_from_dict({"patient_id": "p", "birth_year": year, "notes": notes})
    again = r.patient_from_dict(json.loads(json.dumps(r.patient_to_dict(p), ensure_ascii=False)))
    assert again == p and [n.text for n in again.notes] == texts
