"""Both suites on tables, end to end on the invented hospital: figures that must come out, and none that may."""
from __future__ import annotations

import json

import pytest
from table_cases import folder

from core_jax.embed import load_encoder
from stam_jax.baselines.writers import SameSlot
from stam_jax.benchmarks import table_suites
from stam_jax.benchmarks import tables as T
from stam_jax.read.answer import ExtractiveReader
from stam_jax.write.writer import Extraction


class _Nothing:
    """A writer that is asked for nothing but what its wrapper leaves to it."""

    decider, hashes = "rule", {}

    def extract(self, entries):
        return [Extraction() for _ in entries]


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    path = folder(tmp_path_factory.mktemp("hospital"))
    told = table_suites.tell(path, SameSlot(_Nothing()), load_encoder("hash:32"),
                             paths=tuple(table_suites.PATHS))
    return path, told


def _rows(report: T.Report, table: str) -> list[dict]:
    return json.loads(T.to_json(report))["tables"][table]["rows"]


def test_mimic_qa(hospital):
    path, told = hospital
    report = table_suites.mimic_qa_report(path, told, ExtractiveReader())
    store = {r["write path"]: r for r in _rows(report, "store")}
    assert store["append only"]["superseded"] == 0 < store["STAM"]["superseded"]
    assert store["append only"]["archived"]["value"] < store["STAM"]["archived"]["value"] < 1
    assert all(r["rows that no memory cites"] == 0 for r in store.values())
    got = {(r["write path"], r["read"], r["reader"]): r for r in _rows(report, "answers")}
    whole = got["STAM", "all of the store", "rows"]
    assert whole["exact"] == 1.0 and whole["evidence read"] == 1.0
    assert got["STAM", "all of ACTIVE", "rows"]["F1 temporal"] < whole["F1 temporal"]
    both, active = (got["STAM", f"packet {arm}", "rows"] for arm in ("BOTH", "ACTIVE"))
    assert active["evidence read"] <= both["evidence read"] <= 1.0
    assert {r["reader"] for r in _rows(report, "answers")} == {"rows", "extractive"}
    assert len(_rows(report, "differences")) == 4
    assert report == table_suites.mimic_qa_report(path, told, ExtractiveReader())


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
