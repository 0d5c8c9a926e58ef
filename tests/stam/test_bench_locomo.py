"""LoCoMo-shaped files and their scores, on a conversation invented here."""
from __future__ import annotations

import copy
import json

import pytest

from core_jax.records import RecordError
from stam_jax.benchmarks import locomo as bench
from stam_jax.graph.memory import Memory, Provenance
from stam_jax.readers.locomo import read, samples, turns

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


def test_scores(tmp_path):
    (sample,) = samples(_file(tmp_path, SAMPLE))
    entries = {e.entry_key: e for e in sample.entries}
    first = sample.entries[0]
    memory = Memory.of("conv-1", "Ann jogs daily", [Provenance.of(first, 0, first.text.index(" [D1:1]"))])
    found = bench.served(entries, [memory])
    assert found == {"D1:1"}
    got = bench.score(sample.questions, ["June 2023", "cycling, jogging", "3", "It is not mentioned."], [found] * 4)
    assert got.f1.types == {"temporal": (1.0, 1), "multi-hop": (1.0, 1), "single-hop": (0.0, 1),
                            "adversarial": (1.0, 1)}
    assert got.f1.macro == 0.75 and got.plain.types["multi-hop"] == (1.0, 1) and "adversarial" not in got.plain.types
    assert (got.recall, got.with_evidence) == (pytest.approx((0 + 0.5 + 0) / 3), 3)
    assert bench.score(sample.questions[3:], ["no"]).recall is None
    with pytest.raises(ValueError, match="as many"):
        bench.score(sample.questions, ["x"])


@pytest.mark.parametrize(("change", "field"), [
    (lambda s: s.pop("sample_id"), "[0].sample_id"), (lambda s: s["conversation"].pop("session_1_date_time"),
                                                      "[0].conversation.session_1_date_time"),
    (lambda s: s["conversation"].update(session_1_date_time="soon"), "[0].conversation.session_1_date_time"),
    (lambda s: s["conversation"]["session_2"][0].update(dia_id="D1:1"), "[0].conversation.session_2[0].dia_id"),
    (lambda s: s["qa"][0].update(category=6), "[0].qa[0].category"),
    (lambda s: s["qa"][0].pop("answer"), "[0].qa[0].answer"),
    (lambda s: s["conversation"]["session_1"][0].pop("text"), "[0].conversation.session_1[0].text"),
    (lambda s: s["qa"][0].update(evidence=[1]), "[0].qa[0].evidence[0]")])
def test_faults_name_the_field(tmp_path, change, field):
    raw = copy.deepcopy(SAMPLE)
    change(raw)
    with pytest.raises(RecordError) as e:
        list(samples(_file(tmp_path, raw)))
    assert e.value.field == field
    with pytest.raises(RecordError, match="stands twice"):
        list(samples(_file(tmp_path, SAMPLE, SAMPLE)))
