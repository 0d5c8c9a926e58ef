"""ClinicalBench-shaped questions and scores."""
from __future__ import annotations

import json

import pytest

from core_jax.engine.scripted import Scripted
from core_jax.records import RecordError
from stam_jax.benchmarks import clinical_bench as cb
from stam_jax.benchmarks import cohorts
from stam_jax.benchmarks.judge import Judge

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


def test_questions_and_published_scores(tmp_path):
    asked, got = _questions(tmp_path), _scores(tmp_path)
    assert (asked[0].patient_id, asked[0].answer) == ("7", "no")
    assert got == {"A": {"q0": 1.0, "q1": 0.5, "q2": 0.0}, "B": {"q0": 1.0, "q1": 1.0, "q2": 1.0}}
    assert _scores(tmp_path, SCORES.replace("score,judge", "judge_score,judge_reason")) == got  # as it is published


@pytest.mark.parametrize(("answer", "reference", "contradicts", "rule"), [
    ("20 mg daily", "20 mg daily", False, True), ("25 mg daily", "20 mg daily", True, False),
    ("daily", "20 mg daily", False, False), ("20 mg", "20 mg daily", False, True), ("20", "20 mg daily", False, False),
    ("Yes, chest pain", "No, the patient denies chest pain.", True, False),
    ("No, denies chest pain", "No, the patient denies chest pain.", False, True),
    ("not in memory", "20 mg daily", False, False), ("unknown", "It cannot be determined.", False, True),
    ("20 mg", "It cannot be determined.", False, False)])
def test_what_can_be_told_without_a_judge(answer, reference, contradicts, rule):
    assert (cb.contradicts(answer, reference), cb.rule(answer, reference)) == (contradicts, rule)
    (got,) = cb.marks([cb.Question("q", "p", "change", "?", reference)], [answer])
    assert (got.by, got.compat, got.strict) == ("rule", None, float(rule))


def test_a_judge_gives_points(tmp_path):
    asked = [cb.Question(f"q{i}", "p", "change", "?", "20 mg daily") for i in range(6)]
    backend = Scripted(['{"score": 1}', '{"score": 0.5}', '{"score": 1.0}', '{"score": 7}', '{"score": true}'])
    got = cb.marks(asked, ["20 mg", "a", "25 mg", "b", "c", " "], Judge(backend))
    assert [m.judged for m in got] == [1.0, 0.5, 1.0, 0.0, 0.0, 0.0]
    assert [m.compat for m in got] == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert [m.strict for m in got] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # 25 mg is not 20 mg, whatever the judge says
    assert '"category": "change"' in backend.requests[0].prompt[0]["content"]


@pytest.mark.parametrize(("text", "line", "field"), [
    (SCORES.replace("0.5", "0.7"), 3, "score"), (SCORES.replace("q1,A", "q0,A"), 3, "question_id"),
    (SCORES.replace("condition", "arm"), 1, "condition"), (SCORES.replace("q1,A,0.5", "q1,A,"), 3, "score"),
    (SCORES.replace(",score,", ",points,"), 1, "judge_score"), (SCORES.replace("q1,A", "q1," + "A" * 200000), 2, None)])
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
    for bad in ("\ud800", "a\0", 1.5, True):
        with pytest.raises(RecordError) as e:
            _questions(tmp_path, [ROWS[0] | {"question": bad}])
        assert (e.value.line, e.value.field) == (1, "question")


def test_a_blank_note_is_not_told(tmp_path):
    _questions(tmp_path)
    (tmp_path / "records" / "7").mkdir(parents=True)
    (tmp_path / "records" / "7" / "2020_a.txt").write_text(" \n")
    with pytest.raises(RecordError, match="is about '7', who has no record"):
        cohorts.read("clinical_bench", tmp_path)
    (tmp_path / "records" / "7" / "2021_a.txt").write_text("No cough.")
    assert [e.date for e in cohorts.read("clinical_bench", tmp_path).entries["7"]] == ["2021"]
