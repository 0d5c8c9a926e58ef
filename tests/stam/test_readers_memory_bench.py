"""MedMemoryBench's files: the text that a memory is shown, the checkpoints, and no session lost between them."""
from __future__ import annotations

import json

import pytest
from memory_bench_cases import NOISE, PLAIN_NOISE, QUERIES, SESSIONS, folder, query, session

from core_jax.records import RecordError
from stam_jax.readers.memory_bench import personas, read


def test_a_session_is_an_entry_in_the_benchmarks_words(tmp_path):
    entries = list(read(folder(tmp_path)))
    assert len(entries) == 32
    first = entries[0]
    assert (first.patient_id, first.source_id, first.date) == ("persona_1", "session_1", "2024-01-01")
    assert first.kind == "dialogue"
    assert first.text == "[2024-01-01]\n\nPatient: Session 1: I take 1 mg.\n\nDoctor: Noted.\n"


def test_distractors_have_no_date_and_say_whose_they_are(tmp_path):
    dated = NOISE | {"event_info": {"date": "2024-01-01"}}
    path = folder(tmp_path, noise=[SESSIONS[0], dated, PLAIN_NOISE, *SESSIONS[1:]])
    entries = list(read(path, noise=True))
    assert (entries[1].date, entries[1].source_id) == (None, "noise_1")
    assert entries[1].text.startswith("[Health consultation about Karl (father)]\n\nPatient: My father coughs.")
    assert entries[2].text.startswith("[Health consultation]\n\n")
    assert "患者: What is flu?" in list(read(path, noise=True, language="zh"))[2].text
    assert len(list(read(path))) == 32


def test_units_lose_no_session_where_a_checkpoint_has_no_queries(tmp_path):
    """The published loader clears what waits at every tenth session, queries or not: sessions 11 to 20 would be
    lost."""
    (persona,) = personas(folder(tmp_path, noise=[NOISE, *SESSIONS]), noise=True)
    units = list(persona.units())
    assert [[s.number for s in u.sessions] for u in units] == [[None, *range(1, 11)], list(range(11, 31)), [31, 32]]
    assert [[q.query_id for q in u.queries] for u in units] == [["eem", "mq"], ["sua", "mcd"], []]
    lost = list(range(11, 21))
    assert set(lost) <= {s.number for u in units for s in u.sessions}


def test_queries(tmp_path):
    (persona,) = personas(folder(tmp_path))
    assert persona.queries[1].gold == ("B. y", "D. z") and persona.queries[0].evidence == (1,)
    assert persona.queries[3].metadata == {"hop_count": 2}


def test_personas_come_by_number(tmp_path):
    for number in (10, 2):
        folder(tmp_path, persona=number)
    assert [p.patient_id for p in personas(tmp_path)] == ["persona_2", "persona_10"]
    assert [p.patient_id for p in personas(tmp_path / "persona_10")] == ["persona_10"]


@pytest.mark.parametrize(("kw", "field"), [
    (dict(sessions=[SESSIONS[0], SESSIONS[0]]), "sessions[1].session_id"),
    (dict(sessions=[{k: v for k, v in SESSIONS[0].items() if k != "messages"}]), "sessions[0].messages"),
    (dict(sessions=[session(1, "x", date="May 1st")], queries=[]), "sessions[0].event_info.date"),
    (dict(sessions=[session(None, "x")], queries=[]), "sessions[0].session_id"),
    (dict(queries=[query("q", 99, "state_update", ("x", True))]), "queries[0].session_id"),
    (dict(queries=[query("q", 10, "riddle", ("x", True))]), "queries[0].query_type"),
    (dict(queries=[query("q", 10, "state_update", ("x", False))]), "queries[0].answers"),
    (dict(queries=[QUERIES[0] | {"question": 3}]), "queries[0].question"),
    (dict(queries=[QUERIES[0] | {"question": "\ud800"}]), "queries[0].question"),
    (dict(queries=[QUERIES[0] | {"query_id": ""}]), "queries[0].query_id"),
    (dict(queries=[QUERIES[0] | {"metadata": {"a": ["\ud800"]}}]), "queries[0].metadata"),
    (dict(queries=[query("q", 10, "state_update", ("\ud800", True))]), "queries[0].answers[0].content"),
    (dict(sessions={"a": 1}), "sessions"),
    (dict(sessions=[SESSIONS[0] | {"session_id": True}]), "sessions[0].session_id"),
])
def test_faults_name_the_field(tmp_path, kw, field):
    with pytest.raises(RecordError) as e:
        list(personas(folder(tmp_path, **kw)))
    assert e.value.field == field and "persona_1" in e.value.file


def test_missing_files(tmp_path):
    with pytest.raises(RecordError, match="no folder persona_"):
        list(personas(tmp_path))
    folder(tmp_path)
    with pytest.raises(RecordError, match="No such file"):
        list(personas(tmp_path, noise=True))
    (tmp_path / "persona_1" / "eval" / "generated_queries.json").write_text(json.dumps([]), encoding="utf-8")
    with pytest.raises(RecordError, match="expected an object"):
        list(personas(tmp_path))
    with pytest.raises(ValueError, match="language"):
        list(personas(tmp_path, language="fr"))
