"""LoCoMo-shaped files and their scores, on a conversation invented here."""
from __future__ import annotations

import copy
import json

import pytest

from core_jax.engine.scripted import Scripted
from core_jax.records import RecordError
from stam_jax.benchmarks import cohorts
from stam_jax.benchmarks import locomo as bench
from stam_jax.benchmarks.judge import Judge
from stam_jax.readers.locomo import Question, read, samples, turns

SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann", "speaker_b": "Ben",
        "session_2_date_time": "9:05 am on 3 June, 2023", "session_2": [
            {"speaker": "Ann", "dia_id": "D2:1", "text": "I stopped\njogging."}],
        "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I jog daily."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red bike"}]},
    "qa": [
        {"question": "When did Ann stop?", "answer": "June 2023", "category": 2, "evidence": ["D2:1"]},
        {"question": "What do they do?", "answer": "jogging, cycling", "category": 1, "evidence": ["D1:1; D1:2"]},
        {"question": "How many?", "answer": 2, "category": 4, "evidence": ["D"]},
        {"question": "Does Ben swim?", "adversarial_answer": "yes", "category": 5, "evidence": []}],
}


def _file(tmp_path, *raw):
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(list(raw)), encoding="utf-8")
    return path


def test_sessions_are_entries_with_their_turns(tmp_path):
    entries = list(read(_file(tmp_path, SAMPLE)))
    assert [(e.patient_id, e.source_id, e.date) for e in entries] == [
        ("conv-1", "session_1", "2023-05-08"), ("conv-1", "session_2", "2023-06-03")]
    assert entries[0].text == "Ann: I jog daily. [D1:1]\nBen: Look! (shows a red bike) [D1:2]\n"
    assert entries[1].text == "Ann: I stopped jogging. [D2:1]\n"
    text = entries[0].text
    assert turns(text) == ("D1:1", "D1:2") and turns(text, 5, 8) == ("D1:1",)
    assert turns(text, text.index("Look"), text.index("Look") + 4) == ("D1:2",)
    assert turns(text, 0, text.index("\n") + 1) == ("D1:1",)  # the line's end is its own
    assert turns(text, 20, 30) == ("D1:1", "D1:2")


def test_questions(tmp_path):
    (sample,) = samples(_file(tmp_path, SAMPLE))
    assert [(q.answer, q.category, q.evidence) for q in sample.questions] == [
        ("June 2023", 2, ("D2:1",)), ("jogging, cycling", 1, ("D1:1", "D1:2")), ("2", 4, ("D",)), ("yes", 5, ())]


def test_served_turns(tmp_path):
    (sample,) = samples(_file(tmp_path, SAMPLE))
    first = sample.entries[0]
    said = first.text.index(" [D1:1]")
    assert turns(first.text, 0, said) == ("D1:1",) and turns(first.text, said + 8, said + 9) == ("D1:2",)


def _question(answer, category):
    return Question("q", "?", answer, category, ())


@pytest.mark.parametrize(("answer", "gold", "category", "compat", "strict"), [
    ("June 2023", "June 2023", 2, 1.0, 1.0),
    ("8 May 2023", "7 May 2023", 2, 2 / 3, 0.0),  # the benchmark's traps: another date earns a share
    ("May 2023", "7 May 2023", 2, 0.8, 0.8),
    ("82 mg", "8.2 mg", 4, 1.0, 0.0),
    ("cycling, jogging", "jogging, cycling", 1, 1.0, 1.0),
    ("jogging, cycling, chess, golf", "jogging, cycling", 1, 1.0, 2 / 3),  # a list that names everything
    ("jogging", "jogging and cycling", 1, 2 / 3, 2 / 3),
    ("not mentioned", "jogging", 4, 0.0, 0.0),
    ("", "jogging", 4, 0.0, 0.0),
    ("It is not mentioned.", "yes, 5 mg", 5, 1.0, 1.0),
    ("not in memory", "yes, 5 mg", 5, 0.0, 1.0),  # and to decline counts in two wordings only
    ("Yes, 5 mg. What else he takes is not mentioned.", "yes, 5 mg", 5, 1.0, 0.0),
    ("The question is not answerable", "the question is not answerable", "adversarial", 0.0, 1.0),
    ("worse; then better", "better", "longitudinal_progression", 0.5, 0.5),
    ("painting", "painting; she said so", 3, 1.0, 1.0),
])
def test_both_scores(answer, gold, category, compat, strict):
    (got,) = bench.marks([_question(gold, category)], [answer])
    assert (got.by, got.judged) == ("F1", None)
    assert (got.compat, got.strict) == (pytest.approx(compat), pytest.approx(strict))


def test_a_judge_stands_beside():
    backend = Scripted(['{"is_correct": true}', '{"is_correct": true}'])
    questions = [_question("7 May 2023", 2), _question("yes", 5), _question("x", 4)]
    got = bench.marks(questions, ["on 2023-05-07", "I cannot say", ""], Judge(backend))
    assert [m.judged for m in got] == [1.0, 1.0, 0.0] and got[0].compat < 1
    first, second = (r.prompt[0]["content"] for r in backend.requests)
    assert "cannot be answered" in second and "cannot be answered" not in first and '"on 2023-05-07"' in first


def test_a_type_by_name(tmp_path):
    raw = copy.deepcopy(SAMPLE)
    raw["qa"] = [{"question": "?", "answer": "worse", "category": "longitudinal_progression"},
                 {"question": "?", "answer": "1", "adversarial_answer": "2", "category": 5},
                 {"question": "?", "answer": "1", "adversarial_answer": None, "category": 5}]
    (sample,) = samples(_file(tmp_path, raw))
    assert [bench.type_of(q) for q in sample.questions] == ["longitudinal_progression", "adversarial", "adversarial"]
    assert [q.answer for q in sample.questions] == ["worse", "2", "1"]
    for bad in (" ", True, 0, 1.0, None, [5]):
        raw["qa"][0]["category"] = bad
        with pytest.raises(RecordError) as e:
            list(samples(_file(tmp_path, raw)))
        assert e.value.field == "[0].qa[0].category"


@pytest.mark.parametrize(("change", "field"), [
    (lambda s: s.pop("sample_id"), "[0].sample_id"), (lambda s: s["conversation"].pop("session_1_date_time"),
                                                      "[0].conversation.session_1_date_time"),
    (lambda s: s["conversation"].update(session_1_date_time="soon"), "[0].conversation.session_1_date_time"),
    (lambda s: s["conversation"]["session_2"][0].update(dia_id="D1:1"), "[0].conversation.session_2[0].dia_id"),
    (lambda s: s["qa"][0].update(category=6), "[0].qa[0].category"),
    (lambda s: s["qa"][0].pop("answer"), "[0].qa[0].answer"),
    (lambda s: s["conversation"]["session_1"][0].pop("text"), "[0].conversation.session_1[0].text"),
    (lambda s: s["qa"][0].update(evidence=[1]), "[0].qa[0].evidence[0]"),
    (lambda s: s.update(sample_id=""), "[0].sample_id"), (lambda s: s.update(sample_id="a\0"), "[0].sample_id"),
    (lambda s: s["qa"][0].update(question=" "), "[0].qa[0].question"),
    (lambda s: s["qa"][0].update(question="\ud800"), "[0].qa[0].question"),
    (lambda s: s["qa"][0].update(answer="\ud800"), "[0].qa[0].answer"),
    (lambda s: s["qa"][0].update(category="\ud800"), "[0].qa[0].category"),
    (lambda s: s.update(conversation={f"session_{'9' * 5000}": []}), "[0].conversation")])
def test_faults_name_the_field(tmp_path, change, field):
    raw = copy.deepcopy(SAMPLE)
    change(raw)
    with pytest.raises(RecordError) as e:
        list(samples(_file(tmp_path, raw)))
    assert e.value.field == field
    with pytest.raises(RecordError, match="stands twice"):
        list(samples(_file(tmp_path, SAMPLE, SAMPLE)))


def test_a_session_without_a_turn_is_not_told(tmp_path):
    raw = copy.deepcopy(SAMPLE)
    raw["conversation"]["session_1"] = []
    found = cohorts.read("locomo", _file(tmp_path, raw))
    assert [e.source_id for e in found.entries["conv-1"]] == ["session_2"] and found.told == {"conv-1": ("conv-1", 1)}
    raw["conversation"]["session_2"] = []
    with pytest.raises(RecordError, match="talks.json: conversation: 'conv-1' has no turn in any session"):
        cohorts.read("locomo", _file(tmp_path, raw))
