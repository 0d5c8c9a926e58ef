"""The clinosim suite: notes are drawn by their ids, and a kind is found where its statement is."""
import json

import pytest

from core_jax.records import RecordError
from stam_jax.benchmarks import clinosim
from stam_jax.rules import RulesWriter

NOTES = [
    ("a", "Vital signs: heart rate 75 bpm.", ["ctx.vitals.today"]),
    ("b", "Discharged on metformin 500 mg twice daily.", ["ctx.discharge_medications"]),
    ("c", "Allergic to penicillin (hives).", ["ctx.allergies", "ctx.vitals"]),
    ("d", "Potassium 4.1 mmol/L.", ["ctx.lab_results.today"]),
]


def _file(tmp_path, notes=NOTES):
    rows = [{"patient_id": "P", "notes": [{"id": i, "text": text, "time": "2020-01-01T10:00:00", "facts": facts} for i, text, facts in notes]}]
    path = tmp_path / "cohort.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_kinds(tmp_path):
    rows = {r[0]: r[1:] for r in clinosim.run(_file(tmp_path), RulesWriter()).tables[0].rows}
    assert [rows["vital signs"][i] for i in (0, 2)] == [2, 2]
    assert rows["vital signs"][1].value == 0.5  # the note of the allergy states none
    assert rows["medicines"][1].value == rows["allergies"][1].value == rows["laboratory values"][1].value == 1.0
    assert rows["medicines"][3].value == 0.0


def test_the_draw_does_not_depend_on_the_order(tmp_path):
    (tmp_path / "b").mkdir()
    first, second = _file(tmp_path), _file(tmp_path / "b", NOTES[::-1])
    assert list(clinosim.notes(first, 2)) == list(clinosim.notes(second, 2))


def test_bad_file(tmp_path):
    path = tmp_path / "cohort.jsonl"
    path.write_text('{"patient_id": "P", "notes": [{"text": "x"}]}\n')
    with pytest.raises(RecordError, match=r"cohort.jsonl.*line 1|cohort.jsonl:1"):
        list(clinosim.notes(path, 2))
    path.write_text('{"patient_id": "P", "notes": []}\n')
    with pytest.raises(RecordError, match="no notes"):
        clinosim.run(path, RulesWriter())
