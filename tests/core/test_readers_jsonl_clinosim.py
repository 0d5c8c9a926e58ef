"""The neutral JSON Lines reader and the clinosim file."""
import gzip
import json
from collections import Counter

import pytest

from core_jax.readers import clinosim, jsonl
from core_jax.records import RecordError, patient_from_dict, visible, write_jsonl

ROW = {
    "patient_id": "POP-1", "sex": "M", "birth": "2020-05-01", "death": "2022-03-04", "chronic": [{"code": "E78"}],
    "encounters": [
        {"encounter_id": "E1", "encounter_type": "inpatient", "admission_datetime": "2021-01-01T10:00:00",
         "discharge_datetime": "2021-01-03T10:00:00.5", "chief_complaint": "x", "department_id": "y"},
        {"encounter_id": "E0", "encounter_type": "outpatient", "admission_datetime": "2020-01-01T10:00:00",
         "discharge_datetime": None, "chief_complaint": "x", "department_id": "y"},
    ],
    "codes": [["E1", "Z00.00", "Examination"], ["E1", "E78", ""], ["E0", "I10", "Hypertension"]],
    "notes": [
        {"id": "d2", "enc": "E1", "type": "64297-5", "time": "2021-01-03T10:00:00", "text": "certificate", "facts": []},
        {"id": "d1", "enc": "E1", "type": "34131-3", "time": "2021-01-01T10:00:00", "text": "visit", "facts": ["a"]},
        {"id": "d0", "enc": "E0", "type": "34131-3", "time": "2020-01-01T10:00:00", "text": "unborn", "facts": []},
    ],
}


def lines(path, *rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_jsonl(tmp_path):
    raw = {"patient_id": "p", "codes": [{"code": "I50.9", "version": "10", "title": "Heart failure"}]}
    write_jsonl(tmp_path / "a.jsonl", [raw])
    assert list(jsonl.read(tmp_path / "a.jsonl")) == [patient_from_dict(raw)]


def test_clinosim_record(tmp_path):
    counts = Counter()
    (p,) = clinosim.read(lines(tmp_path / "a.jsonl", ROW), counts=counts)
    assert (p.patient_id, p.birth_date, p.death_date) == ("POP-1", "2020-05-01", "2022-03-04")
    assert [n.note_id for n in p.notes] == ["d1"] and p.notes[0].encounter_id == "E1"
    assert [(c.obs_id, c.title, c.time) for c in p.codes] == [
        ("E78-10", "ICD-10 E78 (no description)", "2021-01-03T10:00:00"),
        ("Z0000-10", "Examination", "2021-01-03T10:00:00")]
    assert [e.encounter_id for e in p.encounters] == ["E1"]
    assert counts == {"death_certificate": 1, "encounter_before_birth": 1, "code_before_birth": 1,
                      "note_before_birth": 1}
    assert visible(p, "2021-01-01T10:00:00").codes == (), "a code is known from the end of its encounter"


@pytest.mark.parametrize("change, field, said", [
    ({"birth": "x"}, "birth", "expected an ISO"), ({"birth": None, "patient_id": 3}, "patient_id", "got int"),
    ({"encounters": {}}, "encounters", "expected a list"),
    ({"encounters": [[]]}, "encounters[0]", "expected an object"),
    ({"encounters": [{"encounter_id": "E1"}]}, "encounters[0].encounter_type", "missing"),
    ({"encounters": [ROW["encounters"][0] | {"encounter_id": []}]}, "encounters[0].encounter_id", "expected a string"),
    ({"encounters": [ROW["encounters"][0] | {"admission_datetime": "1"}]}, "encounters[0].admission_datetime", "ISO"),
    ({"codes": [["E9", "I10", "x"]]}, "codes[0]", "no such encounter"),
    ({"codes": [["E1", "I10"]]}, "codes[0]", "expected"),
    ({"notes": [ROW["notes"][1], ROW["notes"][1]]}, "notes.id", "duplicate"),
    ({"notes": [ROW["notes"][1] | {"text": None}]}, "notes.text", "got NoneType"),
    ({"death": "2001-01-01"}, "death", "before birth"),
])
def test_clinosim_faults(tmp_path, change, field, said):
    path = lines(tmp_path / "a.jsonl", ROW, ROW | {"patient_id": "POP-2"} | change)
    with pytest.raises(RecordError, match=said) as e:
        list(clinosim.read(path))
    assert (e.value.file, e.value.line, e.value.field) == (str(path), 2, field)


def test_clinosim_missing_field_and_repeat(tmp_path):
    with pytest.raises(RecordError, match="missing") as e:
        list(clinosim.read(lines(tmp_path / "a.jsonl", {k: v for k, v in ROW.items() if k != "notes"})))
    assert e.value.field == "notes"
    with pytest.raises(RecordError, match="line 1 already"):
        list(clinosim.read(lines(tmp_path / "a.jsonl", ROW, ROW)))


def test_clinosim_bad_files(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(ROW).encode())[:-12])
    with pytest.raises(RecordError, match="gzip"):
        list(clinosim.read(path))
    path.write_bytes(b"")
    with pytest.raises(RecordError, match="empty file"):
        list(clinosim.read(path))
