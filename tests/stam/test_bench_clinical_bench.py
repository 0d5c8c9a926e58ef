"""ClinicalBench-shaped questions and scores."""
from __future__ import annotations

import json

import pytest

from core_jax.records import RecordError
from stam_jax.benchmarks import clinical_bench as cb

ROWS = [{"question_id": f"q{i}", "subject_id": 7, "category": c, "question": "?", "reference": "no"}
        for i, c in enumerate(("negated", "negated", "change"))]
SCORES = "question_id,condition,score,judge\nq0,A,1,x\nq1,A,0.5,x\nq2,A,0,x\nq0,B,1.0,x\nq1,B,1,x\nq2,B,1,x\n"


def _questions(tmp_path, rows=ROWS):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return list(cb.questions(path))


def _scores(tmp_path, text=SCORES):
    path = tmp_path / "scores.csv"
    path.write_text(text, encoding="utf-8")
    return cb.scores(path)


def test_accuracy_by_category_and_the_half_points(tmp_path):
    asked, got = _questions(tmp_path), _scores(tmp_path)
    assert (asked[0].patient_id, asked[0].answer) == ("7", "no")
    strict, half = cb.summarise(asked, got["A"]), cb.summarise(asked, got["A"], half=True)
    assert strict.types == {"change": (0.0, 1), "negated": (0.5, 2)} and strict.pooled == pytest.approx(1 / 3)
    assert half.types["negated"] == (0.75, 2)
    m = cb.compare(got["A"], got["B"])
    assert (m.b, m.c, m.p_value) == (0, 2, 0.5)
    with pytest.raises(LookupError, match="2 questions without a score, 'q1'"):
        cb.summarise(asked, {"q0": 1.0})
    with pytest.raises(ValueError, match="the same questions"):
        cb.compare(got["A"], {"q0": 1.0})


@pytest.mark.parametrize(("text", "line", "field"), [
    (SCORES.replace("0.5", "0.7"), 3, "score"), (SCORES.replace("q1,A", "q0,A"), 3, "question_id"),
    (SCORES.replace("condition", "arm"), 1, "condition"), (SCORES.replace("q1,A,0.5", "q1,A,"), 3, "score")])
def test_faults_of_scores(tmp_path, text, line, field):
    with pytest.raises(RecordError) as e:
        _scores(tmp_path, text)
    assert (e.value.line, e.value.field) == (line, field)


def test_faults_of_questions(tmp_path):
    with pytest.raises(RecordError) as e:
        _questions(tmp_path, [ROWS[0], ROWS[0]])
    assert (e.value.line, e.value.field) == (2, "question_id")
    with pytest.raises(RecordError) as e:
        _questions(tmp_path, [ROWS[0] | {"category": " "}])
    assert (e.value.line, e.value.field) == (1, "category")
