"""Both suites on tables, end to end on the invented hospital: figures that must come out, and none that may."""
from __future__ import annotations

import json

import pytest
from table_cases import folder

from core_jax.embed import load_encoder
from stam_jax.baselines.writers import SameSlot
from stam_jax.benchmarks import mimic_qa, table_suites
from stam_jax.benchmarks import tables as T
from stam_jax.config import ReadConfig
from stam_jax.read.answer import ExtractiveReader
from stam_jax.write.writer import Extraction

READ = ReadConfig(12, 12, 12)


class _Nothing:
    """A writer that is asked for nothing but what its wrapper leaves to it."""

    decider, hashes = "rule", {}

    def extract(self, entries):
        return [Extraction() for _ in entries]


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    path = folder(tmp_path_factory.mktemp("hospital"))
    return path, table_suites.tell(path, SameSlot(_Nothing()), load_encoder("hash:32"))


def _rows(report: T.Report, table: str) -> list[dict]:
    return json.loads(T.to_json(report))["tables"][table]["rows"]


def test_mimic_qa(hospital, monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    path, told = hospital
    report = table_suites.mimic_qa_report(path, told, ExtractiveReader(), read=READ)
    store = {r["write path"]: r for r in _rows(report, "store")}
    assert list(store) == list(table_suites.PATHS)
    assert store["append only"]["superseded"] == 0 < store["STAM"]["superseded"]
    assert store["append only"]["archived"]["value"] < store["STAM"]["archived"]["value"] < 1
    assert all(r["rows that no memory cites"] == 0 for r in store.values())
    assert store["append only"]["evidence in HISTORY"] == 0 < store["STAM"]["evidence in HISTORY"]
    assert 0 < store["STAM"]["questions with such"] <= store["STAM"]["evidence in HISTORY"]
    kept = {(r["write path"], r["read"]): r for r in _rows(report, "kept")}
    whole = kept["STAM", "all of the store"]
    assert whole["exact"] == 1.0 and whole["evidence read"] == 1.0
    assert kept["STAM", "all of ACTIVE"]["F1 temporal"] < whole["F1 temporal"]
    got = {r["system"]: r for r in _rows(report, "answers")}
    assert set(got) == {"STAM, BOTH", *table_suites._SHOWN, "flat RAG", "full context"}
    assert all("F1 extractive" in r and r["patients drawn"]["value"] == r["token F1"]["value"] for r in got.values())
    assert got["full context"]["truncated"] > 0 and got["STAM, BOTH"]["truncated"] is None
    assert {r["system"] for r in _rows(report, "differences")} == set(got) - {"STAM, BOTH"}
    arms = {r["system"]: r for r in _rows(report, "arms")}
    assert arms["STAM, ACTIVE"]["evidence served"] <= arms["STAM, BOTH"]["evidence served"] <= 1.0
    depths = {(r["system"], r["depth"]): r for r in _rows(report, "depths")}
    assert {d for s, d in depths if s == "STAM, BOTH"} == {"k 30", "k 60", "k 120", "k 240", "4500 words", "all"}
    assert depths["STAM, BOTH", "all"]["evidence served"] == 1.0
    assert depths["full context", "whole record"]["evidence served"] == 1.0
    assert depths["full context", "whole record"]["token F1"]["value"] == 1.0
    assert depths["full context", "whole record"]["truncated"] == 0
    splits = {(r["split"], r["system"]): r for r in _rows(report, "splits")}
    assert {s for _, s in splits} == set(got) and {s for s, _ in splits} == {"train", "validation"}
    assert sum(r["questions"] for (_, s), r in splits.items() if s == "flat RAG") == report.config["questions"]
    assert report == table_suites.mimic_qa_report(path, told, ExtractiveReader(), read=READ)


def test_evidence_in_history_is_what_nothing_active_cites(hospital):
    state = hospital[1].memories["STAM"].states["20000001"]
    past = {m.concept for m in state.history() if state.entries[m.provenance[0].entry_key].kind == "admissions"}
    found = table_suites._past(state)
    assert "insurance" in past and "admissions/101" not in found  # of one row, the plan is past and the stay is not
    assert "omr/2015-02-01/Weight (Lbs)/1" in found and "omr/2016-02-01/Weight (Lbs)/1" not in found


def test_controls_are_told_the_patients_of_the_test_split(tmp_path, monkeypatch):
    path = folder(tmp_path)
    monkeypatch.setattr(mimic_qa, "splits", lambda patients, most=0: dict.fromkeys(patients, "train") | {"20000001": "test"})
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    told = table_suites.tell(path, SameSlot(_Nothing()), load_encoder("hash:32"), paths=("STAM", "append only"))
    assert told.chosen == {"20000001"}
    assert {n: sorted(m.states) for n, m in told.memories.items()} == {
        "STAM": ["20000001", "20000002"], "append only": ["20000001"]}
    report = table_suites.mimic_qa_report(path, told, ExtractiveReader(), read=READ)
    splits = {(r["split"], r["system"]) for r in _rows(report, "splits")}
    assert {s for split, s in splits if split == "train"} == {"STAM, BOTH"}
    assert {s for split, s in splits if split == "test"} == {"STAM, BOTH", "append only", "flat RAG", "full context"}
    assert report.config["questions of controls"] < report.config["questions"]
    everybody = table_suites.tell(path, SameSlot(_Nothing()), load_encoder("hash:32"), paths=("STAM", "append only"),
                                  everybody=True)
    assert sorted(everybody.memories["append only"].states) == sorted(everybody.record)


def test_ehrsql(hospital, tmp_path):
    path, told = hospital
    raw = [{"id": "a", "question": "What is the sex of patient 20000001?", "sql": "-", "answer": "[['f']]"},
           {"id": "b", "question": "What was the total dose of 0.9% sodium chloride prescribed to patient 20000001?",
            "sql": "-", "answer": "[['2000.0']]"},
           {"id": "c", "question": "What was the total foley output of patient 20000001?", "sql": "-",
            "answer": "[['1']]"}]
    (tmp_path / "q.json").write_text(json.dumps(raw), encoding="utf-8")
    report = table_suites.ehrsql_report(tmp_path / "q.json", told)
    rates = {r["read"]: r for r in _rows(report, "rates")}
    assert set(rates) == {"the record as it was told", *table_suites.PATHS}
    assert all(r["right"]["value"] == pytest.approx(2 / 3) for r in rates.values())
    assert all(r["without defective or foreign questions"]["value"] == 1.0 for r in rates.values())
    assert [(r["class"], r.get("answered")) for r in _rows(report, "missed")] == [("table not ingested", None)]
