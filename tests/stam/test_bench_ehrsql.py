"""EHRSQL questions, answered from the memory of the tables: wordings, misses by class, and the published answers."""
from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest
from table_cases import folder, remembered

from core_jax.records import RecordError
from stam_jax.benchmarks import ehrsql, table_memory
from stam_jax.readers import tables

ANSWERED = [
    ("What is the recorded sex of patient 20000001?", ["f"]),
    ("How old was patient 20000001 during their last hospital encounter?", ["62"]),
    ("Tell me the insurance plan of patient 20000001 on the first hospital visit.", ["medicaid"]),
    ("What was the admission type for patient 20000001's last visit to the hospital?", ["elective"]),
    ("What diagnosis did patient 20000001 have last in their first hospital visit?",
     ["diabetes mellitus, type ii", "unspecified essential hypertension"]),
    ("What was the last drug that was prescribed to patient 20000001 via the po route?", ["lisinopril"]),
    ("What was the drug that patient 20000001 was first prescribed via the iv route?", ["0.9% sodium chloride"]),
    ("What medication was last given to patient 20000001?", ["insulin (regular)"]),
    ("What was the last dose of lisinopril that patient 20000001 was prescribed during the first hospital visit?",
     ["10.0"]),
    ("For the first time , how much lisinopril was prescribed to patient 20000001?", ["5.0"]),
    ("What was the total dose of 0.9% sodium chloride prescribed to patient 20000001?", ["2000.0"]),
    ("How much lisinopril has patient 20000001 been prescribed on the first hospital visit?", ["15.0"]),
    ("What was the organism found in patient 20000001's last urine test?", ["escherichia coli"]),
    ("What was the last specimen test that was given to patient 20000001?", ["urine"]),
    ("Has any organism been found in the last urine test of patient 20000001?", ["1"]),
    ("Has there been any organism found in patient 20000001's first urine test in their last hospital visit?", ["0"]),
    ("Has patient 20000002 come to the ER?", ["1"]),
    ("Was patient 20000001 to the er during their last hospital visit?", ["0"]),
    ("Has patient 20000001 been given a diagnosis?", ["1"]),
    ("Was any medication prescribed to patient 20000002 on the last hospital visit?", ["1"]),
    ("Was ketorolac, lisinopril, or aspirin prescribed to patient 20000001 during their first hospital encounter?",
     ["1"]),
    ("Was lisinopril, aspirin, or ketorolac prescribed to patient 20000001?", ["1"]),
    ("Was aspirin, ketorolac, or insulin (regular) prescribed to patient 20000001?", ["1"]),
    ("Was insulin (regular) for hyperkalemia, aspirin, or ceftriaxone prescribed to patient 20000001?", ["0"]),
    ("Count the number of hospital visits for patient 20000001.", ["2"]),
    ("What is the number of ICU visits for patient 20000001.", ["2"]),
    ("Has patient 20000002 entered the hospital?", ["1"]),
]


def _store(path) -> ehrsql.Store:
    record = defaultdict(list)
    for r in tables.read(path):
        record[r.entry.patient_id].append(r)
    return ehrsql.Store({p: table_memory.rows(remembered(of)) for p, of in record.items()})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return _store(folder(tmp_path_factory.mktemp("hospital")))


@pytest.mark.parametrize(("question", "answer"), ANSWERED)
def test_each_family_is_answered_from_the_store(store, question, answer):
    said, rows, why = ehrsql.answer(question, store)
    assert (list(said or ()), why) == (answer, None)
    assert rows or answer == ["0"]


@pytest.mark.parametrize(("question", "why"), [
    ("What was the total volume of foley patient 20000001 had?", "table not ingested"),
    ("What colour has patient 20000001?", "not understood"), ("What is the sex of the patient?", "not understood"),
    ("What was the last dose of unheardofine that patient 20000001 was prescribed?", "not understood"),
    ("What is the sex of patient 30000000?", "not in memory"),
    ("What was the last dose of ceftriaxone that patient 20000001 was prescribed?", "not in memory")])
def test_what_cannot_be_answered_says_why(store, question, why):
    assert ehrsql.answer(question, store) == (None, (), why) and why in ehrsql.MISSES


def test_a_memory_that_lost_a_row_answers_otherwise(store):
    rows = [r for r in store.rows["20000001"] if r.row != "prescriptions/14"]
    less = ehrsql.Store({**store.rows, "20000001": rows})
    question = "What was the total dose of 0.9% sodium chloride prescribed to patient 20000001?"
    assert ehrsql.answer(question, less)[0] == ("1000.0",)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7])
def test_whatever_is_missing_there_is_an_answer_or_a_reason(store, kept):
    draw = random.Random(1)
    less = ehrsql.Store({p: [r for r in of if draw.random() < kept] for p, of in store.rows.items()})
    for question, _ in ANSWERED:
        said, _, why = ehrsql.answer(question, less)
        assert (said is None) == (why in ehrsql.MISSES)


def test_questions_and_results(tmp_path, store):
    raw = [
        {"id": "a", "question": "What is the sex of patient 20000001?", "sql": "-", "answer": "[['f']]"},
        {"id": "b", "question": "What is the sex of patient 20000002?", "sql": "-", "answer": "[['f']]"},
        {"id": "c", "question": "How old was patient 20000001 during their last hospital encounter?", "sql": "-",
         "answer": "[['61']]"},
        {"id": "d", "question": "What was the total foley output of patient 20000001?", "sql": "-",
         "answer": "[[1.0]]"},
        {"id": "e", "question": "Count the number of hospital visits for patient 20000001.", "sql": "-",
         "answer": "[[2.0]]"}]
    path = tmp_path / "q.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    results = ehrsql.run(ehrsql.load(path), store)
    assert [r.miss for r in results] == [None, "other answer", "age at the anchor", "table not ingested", None]
    got = ehrsql.summarise(results)
    assert (got.right, got.n, got.sound) == (2, 5, (2, 3))
    assert got.kinds == {"count": (1, 1), "date arithmetic": (0, 1), "lookup": (1, 2), "other table": (0, 1)}
    assert got.misses == {"age at the anchor": 1, "other answer": 1, "table not ingested": 1}
    for old, new, field in (("[['f']]", "[[", "[0].answer"), ('"id": "a"', '"id": 1', "[0].id")):
        path.write_text(json.dumps(raw).replace(old, new, 1), encoding="utf-8")
        with pytest.raises(RecordError) as e:
            ehrsql.load(path)
        assert e.value.field == field


@pytest.mark.slow
def test_the_published_questions(ehr_data):
    if not (ehr_data / "ehrsql2024").is_dir() or not (ehr_data / "mimic_iv_demo").is_dir():
        pytest.skip("no ehrsql2024 or mimic_iv_demo in the data folder")
    asked = ehrsql.load(ehr_data / "ehrsql2024" / "train_reproducible.json")
    record = defaultdict(list)
    for r in tables.read(ehr_data / "mimic_iv_demo"):
        record[r.entry.patient_id].append(r)
    results = ehrsql.run(asked, ehrsql.Store({p: table_memory.told(of) for p, of in record.items()}))
    got = ehrsql.summarise(results)
    assert (got.right, got.n, got.sound) == (292, 315, (292, 292))
    assert got.misses == {"age at the anchor": 5, "table not ingested": 18}
