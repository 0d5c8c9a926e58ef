"""The deletion suite: gold labels, patients apart, what is deleted and what is answered afterwards."""
import dataclasses
import json

import bench_cases as cases
import numpy as np
import pytest

from core_jax.embed import HashEncoder
from stam_jax import metrics
from stam_jax.benchmarks import deletion as suite
from stam_jax.benchmarks import harness
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.planted import asks_of, entries_of
from stam_jax.config import WriteConfig
from stam_jax.deletion.conformal import WARNING, Control
from stam_jax.deletion.endurance import CandidateRule
from stam_jax.read.answer import ExtractiveReader
from stam_jax.rules import names

ENCODER = HashEncoder(64)


@pytest.fixture(scope="module")
def timelines():
    return cases.cohort(20)


@pytest.fixture(scope="module")
def study(timelines):
    from stam_jax.graph.relations import DEFAULT

    made = harness.build("gold", [e for t in timelines for e in entries_of(t)], cases.Gold(timelines), ENCODER,
                         WriteConfig())
    held = {p: (s, made.vectors[p]) for p, s in made.states.items()}
    labels = {(t.patient_id, mid): label for t in timelines
              for mid, label in suite.endurance_of(t, made.states[t.patient_id]).items()}
    return suite.Study(held, labels, DEFAULT)


def test_a_memory_has_the_strictest_label_of_its_facts(timelines, study):
    assert len(set(study.labels.values())) == 3
    mid, said, t = next((mid, own, t) for t in timelines for mid, own in _facts_of(t, study).items() if len(own) > 1)
    state = study.held[t.patient_id][0]
    for first, second, want in (("safe-to-forget", "never-forget", "never-forget"),
                                ("uncertain", "safe-to-forget", "uncertain"),
                                ("never-forget", "uncertain", "never-forget")):
        relabelled = {said[0]: first} | dict.fromkeys(said[1:], second)
        facts = tuple(dataclasses.replace(f, endurance=relabelled.get(f.fact_id, f.endurance)) for f in t.facts)
        assert suite.endurance_of(dataclasses.replace(t, facts=facts), state)[mid] == want
    fewer = dataclasses.replace(t, facts=tuple(f for f in t.facts if f.fact_id not in said))
    assert suite.endurance_of(fewer, state)[mid] == "uncertain"
    assert suite.endurance_of(t, state).keys() == state.memories.keys()


def _facts_of(timeline, study) -> dict[str, list[str]]:
    out = {}
    rows = harness.memory_rows(study.held[timeline.patient_id][0])
    for fact_id, mids in metrics.align(timeline, rows).items():
        for mid in mids:
            out.setdefault(mid, []).append(fact_id)
    return out


def test_three_parts_share_no_patient(study):
    part = study.parts(suite.RULE)
    people = [{e.patient_id for e in own} for own in part.values()]
    assert len(set.union(*people)) == 20 == sum(map(len, people)) and study.deployed == tuple(sorted(people[2]))


def test_rows_say_what_a_criterion_does(study):
    scorer, part = study.scorer(), study.parts(suite.RULE)
    control = Control("0.1", unit="patient")
    tau, units, loss, candidates, removed, _, _, lost, number, mean = study.row(scorer, suite.RULE, control)
    scores = scorer.score(part["test"])
    gone = [e for e, s in zip(part["test"], scores) if e.deletable and s >= float(tau) - 5e-4]
    assert abs(removed.value * removed.n - len(gone)) <= 2 and removed.n == len(part["test"])  # tau is rounded
    assert units == len({e.concept_type for e in part["calibration"]}) and loss + 1 <= 0.1 * (units + 1)
    assert candidates == sum(e.deletable for e in part["test"]) and 0 < removed.value < candidates / removed.n
    assert number == round(lost.value * lost.n) and 0 <= mean < 0.2
    never = study.row(scorer, suite.RULE, Control("0.1", unit="patient", protect=("never-forget",)))
    assert float(never[0]) <= float(tau)  # what protects less deletes more
    nothing = study.row(scorer, suite.RULE, Control("0.001", unit="patient"))
    assert nothing[0] == "inf" and nothing[4].value == 0 and nothing[5].value is None
    wide = study.row(scorer, CandidateRule(floors=()), control)
    assert wide[3] > candidates


def test_suite_deletes_and_nothing_protected_goes(timelines, monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    monkeypatch.setattr(suite, "CONTROL", Control("0.1", unit="patient"))
    encoder, write = cases.Prompted(64), WriteConfig(group=15)
    report = suite.run(cases.Gold(timelines), encoder, ExtractiveReader(names), patients=20, wording="train",
                       write=write)
    assert encoder.asked == {a.text for t in timelines if t.patient_id in _deployed(timelines) for a in asks_of(t)}
    assert report.config["write"] == dataclasses.asdict(write)
    assert report.config["read"] == dataclasses.asdict(suite.READ)
    found = {name: t["rows"] for name, t in json.loads(T.to_json(report))["tables"].items()}
    assert set(found) == {"criteria", "alphas", "candidates", "kept", "answers", "examples"}
    kept = {r["memories"]: (r["before"], r["after"]) for r in found["kept"]}
    tombs = kept["tombstones"][1]
    assert tombs > 0 and "0 violated" in report.tables[3].note
    for name, (before, after) in kept.items():
        if name == "ACTIVE" or "else" not in name and name != "tombstones":
            assert before == after > 0 or before == after == 0, name
    assert sum(b - a for n, (b, a) in kept.items() if n != "tombstones") == tombs
    before, calibrated, nothing = (r for r in found["answers"] if r["questions"] == "all")
    asked = sum(len(asks_of(t)) for t in timelines if t.patient_id in {e for e in _deployed(timelines)})
    assert calibrated["same answers"]["n"] == asked
    assert calibrated["the same, patients drawn"]["n"] == len(_deployed(timelines)) < calibrated["F1 minus before"]["n"]
    assert calibrated["the same, patients drawn"]["value"] == calibrated["F1 minus before"]["value"]
    assert before["patients drawn"]["value"] == before["type-macro F1"]["value"]
    changed = calibrated["accuracy minus before"]
    assert changed["b"] + changed["c"] <= asked * (1 - calibrated["same answers"]["value"]) + 1e-9
    assert nothing["accuracy"]["value"] < before["accuracy"]["value"]
    assert nothing["same answers"]["value"] < calibrated["same answers"]["value"]
    rest = {(r["questions"], r["store"]): r["accuracy"] for r in found["answers"]}
    for store in ("before", "calibrated deletion"):
        apart = [rest[part, store] for part in ("on what is safe to forget", "on nothing of that")]
        assert sum(x["n"] for x in apart) == asked and all(x["n"] for x in apart)
    whole = {r["candidates"]: r for r in found["candidates"]}["temporal status: all HISTORY"]
    assert whole["safe recall"]["value"] > 0.5 and whole["never-forget removed"] > 0
    assert {r[""] for r in found["examples"]} == {"removed", "kept"}
    assert WARNING in T.to_markdown(report)
    with pytest.raises(ValueError, match="at least 6"):
        suite.run(cases.Gold(timelines), ENCODER, ExtractiveReader(names), patients=5)


def _deployed(timelines) -> list[str]:
    from stam_jax.deletion.scorer import split

    of = split((t.patient_id for t in timelines), suite.SHARES)
    return [p for p, part in of.items() if part == "test"]


def test_paired_answers():
    def scores(right):
        return [harness.Score(str(r), float(r), float(r), r, None) for r in right]

    asks = [harness.Ask(f"q{i}", f"p{i // 2}", "t", "?", ("1",)) for i in range(6)]
    made = suite.answers_table(asks, {"before": scores([1, 1, 1, 0, 0, 1]), "after": scores([1, 0, 1, 1, 1, 1]),
                                      "same": scores([1, 1, 1, 0, 0, 1])}, {"q1", "q3"}, 0)
    rows = [dict(zip(made.columns, row)) for row in made.rows]
    _, after, same = rows[:3]
    assert [(r["questions"], r["accuracy"].n) for r in rows[::3]] == [
        ("all", 6), ("on what is safe to forget", 2), ("on nothing of that", 4)]
    assert (rows[4]["accuracy minus before"].b, rows[4]["accuracy minus before"].c) == (1, 1)
    assert (rows[7]["accuracy minus before"].b, rows[7]["accuracy minus before"].c) == (1, 0)
    assert after["F1 minus before"].n == 6 and after["the same, patients drawn"].n == 3  # p0 -1, p1 +1, p2 +1: any sign
    assert after["the same, patients drawn"].p == 1.0
    assert after["the same, patients drawn"].value == after["F1 minus before"].value
    assert (after["accuracy minus before"].b, after["accuracy minus before"].c) == (2, 1)
    assert after["accuracy minus before"].p == 1.0 and after["same answers"].value == 0.5
    assert same["same answers"].value == 1.0 and np.isclose(same["F1 minus before"].value, 0)
