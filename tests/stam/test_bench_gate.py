"""The gate suite: what is fitted on some patients is judged on others, and figures are those of what is served."""
import json

import bench_cases as cases
import numpy as np
import pytest

from core_jax import stats
from core_jax.embed import HashEncoder
from stam_jax.benchmarks import gate, harness
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.planted import asks_of, entries_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.history.threshold import LAMBDAS
from stam_jax.metrics import token_f1
from stam_jax.read.answer import ExtractiveReader
from stam_jax.read.search import encode_query, packet, search
from stam_jax.rules import names

ENCODER = HashEncoder(64)
READ = ReadConfig(6, 6, 6)


@pytest.fixture(scope="module")
def timelines():
    return cases.cohort(10)


@pytest.fixture(scope="module")
def replayed(timelines):
    memories = harness.build("gold", [e for t in timelines for e in entries_of(t)], cases.Gold(timelines), ENCODER,
                             WriteConfig())
    asks = [a for t in timelines for a in asks_of(t)]
    return memories, asks, gate.replays(asks, memories, ENCODER, ExtractiveReader(names), READ)


def test_replays_are_what_both_arms_say(replayed):
    memories, asks, rows = replayed
    assert [r.question_id for r in rows] == [a.ask_id for a in asks]
    ask, row = next((a, r) for a, r in zip(asks, rows) if r.needs_history)
    found = search(memories.states[ask.patient_id], memories.vectors[ask.patient_id],
                   encode_query(ENCODER, [ask.text])[0], READ)
    for arm, served in (("ACTIVE", row.active), ("BOTH", row.both), ("REFILLED", row.refilled)):
        own = packet(found, arm, READ)
        said = ExtractiveReader(names).answer([ask.text], [own])[0]
        assert (served.packet_sha256, served.answer) == (own.sha256, said.text)
        assert served.score == token_f1(said.text, ask.answers)


def test_figures_are_those_of_what_is_served(replayed, monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    _, asks, rows = replayed
    people = sorted({r.patient_id for r in rows})
    fitted = [r for r in rows if r.patient_id in people[:5]]
    judged = gate.Judged.of([r for r in rows if r.patient_id in people[5:]], asks)
    served, need, dependence = gate.gate_tables(fitted, judged, 0)
    shown = {(r[0], r[1]): dict(zip(served.columns, r)) for r in served.rows}
    assert len(shown) == 3 + 2 * len(LAMBDAS)
    d = np.array(judged.f1(np.zeros(len(judged.rows), bool))) - judged.f1(np.ones(len(judged.rows), bool))
    by_patient = shown["ACTIVE", None]["the same, patients drawn"]
    flip = stats.sign_flip(d, judged.types, judged.patients)
    assert (by_patient.n, by_patient.p, by_patient.value) == (5, flip.p_value, flip.estimate)
    assert by_patient.n < shown["ACTIVE", None]["F1 minus BOTH"].n == len(d) and by_patient.holm >= by_patient.p
    for name, every in (("ACTIVE", False), ("BOTH", True)):
        drawn = shown[name, None]["patients drawn"]
        assert drawn == T.mean(judged.f1(np.full(len(d), every)), judged.types, judged.patients)
        assert drawn.value == shown[name, None]["type-macro F1"].value
    both, active, gold = (shown[name, None] for name in ("BOTH", "ACTIVE", "gold need of HISTORY"))
    assert both["HISTORY skipped"].value == 0 and active["HISTORY skipped"].value == 1 and both["tokens saved"] == 0
    assert active["F1 minus BOTH"].value < 0 < active["prefill saved"] < 1
    assert active["accuracy minus BOTH"].c > active["accuracy minus BOTH"].b
    assert gold["type-macro F1"].value > active["type-macro F1"].value
    costs = [shown["similarities", lam]["mean tokens"] for lam in LAMBDAS]
    assert costs[0] >= costs[-1] and all(active["mean tokens"] <= c <= both["mean tokens"] for c in costs)
    mask = np.array([i % 2 == 0 for i in range(len(judged.rows))])
    want = [r.both.tokens if i % 2 == 0 else r.active.tokens for i, r in enumerate(judged.rows)]
    assert judged.costs(mask)[0] == pytest.approx(np.mean(want))
    assert judged.is_right(mask) == [int(judged.right[i, 1 if i % 2 == 0 else 0]) for i in range(len(want))]
    assert len(need.rows) == 2 * len(LAMBDAS) and dependence.rows[-1][0] == "all"
    critical = sum(b > f for _, b, f in judged.right)
    assert dependence.rows[-1][4] == critical > 0


def test_suite(timelines, monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    how = dict(patients=10, wording="train", seed=0)
    report = gate.run(cases.Gold(timelines), ENCODER, ExtractiveReader(names), **how)
    found = json.loads(T.to_json(report))["tables"]
    assert set(found) == {"gate", "need", "dependence"} and "5 patients" in found["gate"]["note"]
    assert T.to_json(gate.run(cases.Gold(timelines), ENCODER, ExtractiveReader(names), **how)) == T.to_json(report)
    with pytest.raises(ValueError, match="at least 10"):
        gate.run(cases.Gold(timelines), ENCODER, ExtractiveReader(names), patients=9)
