"""MedMemoryBench's scorer, with its traps, and the strict one that does not fall into them."""
from __future__ import annotations

import pytest

from core_jax.engine.scripted import Scripted
from stam_jax.benchmarks import memory_bench as mb
from stam_jax.benchmarks.judge import Judge, prompt, read_verdict
from stam_jax.readers.memory_bench import Answer, Query


def _query(kind: str, *answers: tuple[str, bool]) -> Query:
    return Query("q", 10, kind, "?", tuple(Answer(*a) for a in answers))


@pytest.mark.parametrize(("output", "gold", "compat", "strict"), [
    ("The dose is 5 mg.", "5 mg", True, True),
    ("The dose is 75 mg.", "5 mg", True, False),  # the benchmark's traps
    ("It was 18.2 mmol/L.", "8.2 mmol/L", True, False),
    ("It was 82 mmol/L.", "8.2 mmol/L", True, False),
    ("not metformin; insulin", "metformin", True, False),
    ("not metformin; insulin", "insulin", True, True),
    ("5mg", "5 mg", True, True),
    ("5.0 mg", "5 mg", False, True),
    ("1,000 units", "1000 units", True, True),
    ("She never took aspirin but takes warfarin", "warfarin", True, True),
    ("She is not only on warfarin", "warfarin", True, True),
    ("No. Metformin.", "metformin", True, True),
    ("no known drug allergies", "no known drug allergies", True, True),
    ("paracetamol", "para", True, False),
    ("她没有服用二甲双胍", "二甲双胍", True, False),
    ("她服用二甲双胍", "二甲双胍", True, True),
    ("", "5 mg", False, False),
])
def test_entities(output, gold, compat, strict):
    assert mb.compat_contains(output, [gold]) is compat
    assert mb.strict_contains(output, [gold]) is strict


def test_every_gold_entity_must_stand_there():
    for contains in (mb.compat_contains, mb.strict_contains):
        assert contains("aspirin and metformin", ["metformin", "aspirin"])
        assert not contains("aspirin", ["metformin", "aspirin"])
        assert not contains("aspirin", []) and not contains("aspirin", ["..."])


@pytest.mark.parametrize(("output", "compat", "strict"), [
    ("B, D", "BD", "BD"),
    ("A patient with this history should have B, D.", "ABD", "BD"),  # the benchmark's traps
    ("BD", "", "BD"),
    ("The answer is B and D.", "BD", "BD"),
    ("b,d", "BD", "BD"),
    ("Answer: **BD**", "", "BD"),
    ("B. Stop the statin\nD. Check potassium", "BD", "BD"),
    ("I would choose B. A is wrong since a drug was stopped.", "AB", "B"),
    ("答案是B、D", "BD", "BD"),
    ("选B", "B", "B"),
    ("Not A, but B", "AB", "B"),
    ("A", "A", "A"),
    ("A and C are right", "AC", "AC"),
    ("I do not know.", "", ""),
])
def test_options(output, compat, strict):
    assert mb.compat_options(output) == set(compat)
    assert mb.strict_options(output) == set(strict)


def test_right_options_come_from_labels_else_from_letters():
    query = _query("multiple_choice", ("A. x", False), ("b. y", True), ("D、z", True))
    assert mb.compat_right_options(query) == {"B", "D"}
    assert mb.compat_right_options(_query("multiple_choice", ("the options B and E", True))) == {"B", "E"}


def test_scores_without_a_judge_say_what_scored_them():
    def score(kind, output, gold):
        return mb.score(_query(kind, (gold, True)), output)

    entity = score("entity_exact_match", "75 mg", "5 mg")
    assert (entity.by, entity.compat, entity.strict) == ("match", 1.0, 0.0)
    assert score("multiple_choice", "B", "B. x").by == "options"
    for kind in ("inference_generation", "multi_hop_clinical_deduction"):
        assert (score(kind, "x", "x").by, score(kind, "x", "x").strict) == ("unscored", None)
    ruled = score("temporal_localization", "It was on March 4, 2024.", "2024-03-04")
    assert (ruled.by, ruled.compat, ruled.strict) == ("rule", None, 1.0)
    assert score("temporal_localization", "It was on March 5, 2024.", "2024-03-04").strict == 0.0
    assert score("temporal_localization", "in March 2024", "2024-03-04").strict == 0.0
    assert score("temporal_localization", "on 2024-03-04", "March 2024").strict == 1.0
    assert score("temporal_localization", "after the surgery", "right after the surgery").strict == 1.0
    now = "The dose is now 10 mg daily"
    assert score("state_update", "Dose now 10 mg daily.", now).strict == 1.0
    assert score("state_update", "Dose now 100 mg daily.", now).strict == 0.0
    assert score("state_update", "The dose is now not 10 mg daily.", now).strict == 0.0
    assert score("state_update", "I don't know whether the dose is now 10 mg daily.", now).strict == 0.0


@pytest.mark.parametrize(("said", "verdict"), [
    ('So: {"is_correct": true, "reason": "a } b"} done {', {"is_correct": True, "reason": "a } b"}),
    ('{"is_correct": tr', None), ("[1]", None), ("no", None), ("", None),
    ("9" * 5000, None), ('{"is_correct": NaN}', None), ("[" * 100000, None), ('{"a": 1, "a": 0}', None), ('{"a": "\\"{"}', {"a": '"{'})])
def test_a_judges_verdict_is_read_out_of_its_words(said, verdict):
    assert read_verdict(said) == verdict


def test_a_model_judges():
    chain = Query("q", 10, "multi_hop_clinical_deduction", "Why?", (Answer("the statin", True, "it was new"),), (),
                  {"reasoning_chain": [{"content": "statin started"}]})
    update, entity = _query("state_update", ("x", True)), _query("entity_exact_match", ("x", True))
    backend = Scripted(['{"is_correct": "false"}', "no JSON",
                        '{"is_correct": true, "ncr_score": 1, "crc_score": 1, "cc_score": 1}'])
    judge = Judge(backend)
    queries = [chain, update, update, update, update, entity]
    got = mb.marks(queries, ['the {statin} "x"', "a", "a", "b", " ", "x"], judge)
    assert [(m.by, m.compat, m.strict) for m in got] == [
        ("judge", 1.0, 1.0), ("judge", 1.0, 0.0), ("judge", 1.0, 0.0),  # "false" in quotes is true by compat
        ("judge", 0.0, 0.0), ("judge", 0.0, 0.0), ("match", 1.0, 1.0)]
    assert got[0].judged == pytest.approx(0.05) and got[1].judged is None
    assert (judge.asked, judge.unread, judge.failed, judge.name) == (3, 1, 0, "scripted")  # equal answers: judged once
    first, _, last = backend.requests
    assert (first.sampling.temperature, first.sampling.max_tokens) == (1.0, 500)
    assert (last.sampling.temperature, last.sampling.max_tokens) == (1.0, 2000)
    for piece in ("statin started", '"the {statin} \\"x\\""', "it was new", "cc_score"):
        assert piece in last.prompt[0]["content"]
    assert "cc_score" not in prompt(update, "y")
    assert mb.marks([update], ["a"], judge)[0] == got[1] and len(backend.requests) == 3  # nor asked of again
    assert mb.marks([update], ["c"], judge)[0].compat == 0.0 and judge.failed == 1  # the script is used up
    assert mb.marks([chain], ["d"])[0].by == "unscored"


def test_what_a_reader_is_asked():
    choice = Query("q", 10, "multiple_choice", "Which?", (Answer("A. x", False), Answer("B. y", True)))
    assert mb.asked(choice) == "Which?\nA. x\nB. y\nAnswer with the letters of all options that are right."
    told = Query("q", 10, "multiple_choice", "Which? A. x B. y", choice.answers)
    assert mb.asked(told, "zh") == "Which? A. x B. y\n请只回答所有正确选项的字母。"
    assert mb.asked(_query("state_update", ("x", True))) == "?"


def test_deduction():
    verdict = {"is_correct": True, "ncr_score": 1.0, "crc_score": 0.8, "cc_score": 0.6,
               "uses_patient_specific_info": True, "memory_retrieval_quality": "good"}
    assert mb.deduction_score(verdict) == pytest.approx((0.35 + 0.28 + 0.18) * 0.9)
    assert mb.deduction_score(verdict | {"uses_patient_specific_info": False}) == pytest.approx(0.81 * 0.5 * 0.9)
    assert mb.deduction_score(verdict | {"memory_retrieval_quality": "?"}) == pytest.approx(0.81 * 0.5)
    assert mb.deduction_score(verdict | {"memory_retrieval_quality": ["good"]}) == pytest.approx(0.81 * 0.5)
    for no_share in (float("nan"), float("inf"), 10**400, -1, 85, "1", True, None):
        assert mb.deduction_score(verdict | {"ncr_score": no_share}) == pytest.approx((0.28 + 0.18) * 0.9)
    query = _query("multi_hop_clinical_deduction", ("x", True))
    got = mb.score(query, "out", verdict)
    assert (got.compat, got.strict) == (1.0, 0.0)  # chain completeness 0.6 is below the 0.7 that the judge was told
    assert got.judged == mb.deduction_score(verdict)
    assert mb.score(query, "out", verdict | {"cc_score": 0.7}).strict == 1.0
