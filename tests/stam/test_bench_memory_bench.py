"""MedMemoryBench's scorer, with its traps, and the strict one that does not fall into them."""
from __future__ import annotations

import json

import pytest
from memory_bench_cases import folder

from core_jax.engine.scripted import Scripted
from stam_jax.benchmarks import memory_bench as mb
from stam_jax.benchmarks.judge import judged_by, prompt
from stam_jax.readers.memory_bench import Answer, Query, personas


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


def test_a_judges_verdict_is_read_out_of_its_words():
    query = _query("state_update", ("x", True))
    assert mb.score(query, "out", judge=lambda q, o: 'So: {"is_correct": true, "reason": "a } b"} done {').compat == 1.0
    assert mb.score(query, "out", judge=lambda q, o: '{"is_correct": tr').compat == 0.0
    assert mb.score(query, " ", judge=lambda q, o: '{"is_correct": true}').compat == 0.0
    assert mb.read_verdict("[1]") is None and mb.read_verdict('{"a": "\\"{"}') == {"a": '"{'}


def test_a_model_judges():
    query = Query("q", 10, "multi_hop_clinical_deduction", "Why?", (Answer("the statin", True, "it was new"),), (),
                  {"reasoning_chain": [{"content": "statin started"}]})
    backend = Scripted(['{"is_correct": true, "ncr_score": 1, "crc_score": 1, "cc_score": 1}'])
    judge = judged_by(backend)
    assert mb.score(query, 'the {statin} "x"', judge=judge).strict == 1.0
    (request,) = backend.requests
    asked = request.prompt[0]["content"]
    for piece in ("statin started", '"the {statin} \\"x\\""', "it was new", "cc_score"):
        assert piece in asked
    assert (request.sampling.temperature, request.sampling.max_tokens) == (1.0, 2000)
    assert mb.score(query, "x", judge=judge).compat == 0.0  # the script is used up: an error, not a right answer
    assert "cc_score" not in prompt(_query("state_update", ("x", True)), "y")


def test_deduction():
    verdict = {"is_correct": True, "ncr_score": 1.0, "crc_score": 0.8, "cc_score": 0.6,
               "uses_patient_specific_info": True, "memory_retrieval_quality": "good"}
    assert mb.deduction_score(verdict) == pytest.approx((0.35 + 0.28 + 0.18) * 0.9)
    assert mb.deduction_score(verdict | {"uses_patient_specific_info": False}) == pytest.approx(0.81 * 0.5 * 0.9)
    assert mb.deduction_score(verdict | {"memory_retrieval_quality": "?"}) == pytest.approx(0.81 * 0.5)
    query = _query("multi_hop_clinical_deduction", ("x", True))
    got = mb.score(query, "out", judge=lambda q, o: json.dumps(verdict))
    assert (got.compat, got.strict) == (1.0, 0.0)  # chain completeness 0.6 is below the 0.7 that the judge was told
    assert mb.score(query, "out", judge=lambda q, o: json.dumps(verdict | {"cc_score": 0.7})).strict == 1.0


def test_the_protocol_and_its_summary(tmp_path):
    (persona,) = personas(folder(tmp_path))
    told, asked = [], []

    def ask(query):
        asked.append((query.query_id, len(told)))
        return {"eem": "75 mg", "mq": "BD", "sua": "The dose is now 10 mg daily", "mcd": "statin"}[query.query_id]

    results = mb.run(persona, lambda sessions: told.extend(s.number for s in sessions), ask)
    assert told == list(range(1, 33))
    assert asked == [("eem", 10), ("mq", 10), ("sua", 30), ("mcd", 30)]
    compat, strict = (mb.summarise(results, s) for s in ("compat", "strict"))
    assert compat.types == {"entity_exact_match": (1.0, 1), "multiple_choice": (0.0, 1)} and compat.macro == 0.5
    assert compat.missing == ("state_update", "multi_hop_clinical_deduction")
    assert strict.types["entity_exact_match"] == (0.0, 1) and strict.missing == ("multi_hop_clinical_deduction",)
    assert strict.macro == pytest.approx(2 / 3)
    assert mb.summarise(results[3:], "strict").macro is None
