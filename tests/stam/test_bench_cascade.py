"""The Cascade and Absence suite: its judgements on states that are made to be right or wrong."""
import dataclasses
import json
import re

import bench_cases as cases
import pytest

from core_jax.embed import HashEncoder
from core_jax.synth.timelines import TimelineConfig, generate
from stam_jax.benchmarks import cascade, harness, planted
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.scenarios import SCENARIOS, Expect, Scenario, crowd
from stam_jax.config import WriteConfig
from stam_jax.read.answer import ExtractiveReader
from stam_jax.write.writer import Draft, Extraction, LinkAnswer, UpdateAnswer

ENCODER = HashEncoder(64)


@pytest.fixture(scope="module")
def timelines():
    found = (t for t in generate(TimelineConfig(40, 0, "train")) if any(x.cascade for x in t.transitions))
    return [next(found), next(found)]


@pytest.fixture(scope="module")
def stam(timelines):
    entries = [e for t in timelines for e in planted.entries_of(t)]
    watch = cascade.Watch(cases.Gold(timelines))
    return harness.build("gold", entries, watch, ENCODER, WriteConfig()), watch.seen


def test_gold_writer_lets_plans_fall(timelines, stam):
    memories, seen = stam
    got = [f for t in timelines for f in cascade.falls(t, memories.states[t.patient_id], seen)]
    assert len(got) == sum(x.cascade for t in timelines for x in t.transitions)
    assert all(f.extracted and f.surfaced and f.fell and f.by_the_stop for f in got)


def test_nothing_falls_without_the_graph(timelines):
    entries = [e for t in timelines for e in planted.entries_of(t)]
    watch = cascade.Watch(cases.Gold(timelines))
    made = harness.build("bare", entries, watch, ENCODER, WriteConfig(relations=False))
    got = [f for t in timelines for f in cascade.falls(t, made.states[t.patient_id], watch.seen)]
    assert got and all(f.extracted for f in got) and not any(f.fell for f in got)


def test_surfaced_is_what_the_stop_brought_up(timelines, stam):
    memories, _ = stam
    got = cascade.falls(timelines[0], memories.states[timelines[0].patient_id], {})
    assert got and not any(f.surfaced for f in got)


def test_absence_asks_only_of_what_is_gone(timelines):
    for t in timelines:
        current = {f.key for f in t.facts if f.status == "current" and f.polarity == "AFFIRMED"}
        for a in cascade.asks_of(t):
            concept = a.text.split(" of ")[-1].rstrip("?") if " of " in a.text else a.text[3:].split(" still")[0]
            assert not any(key[1] == concept and key[2] in ("plan", "dose") for key in current)
    kinds = {a.type for t in timelines for a in cascade.asks_of(t)}
    assert kinds <= {"fallen plan", "still needed", "stopped drug"} and "fallen plan" in kinds


def test_cascades_and_questions_of_a_patient_hang_together(timelines, stam, monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)
    entries = [e for t in timelines for e in planted.entries_of(t)]
    watch = cascade.Watch(cases.Gold(timelines))
    bare = harness.build("bare", entries, watch, ENCODER, WriteConfig(relations=False))
    found = {planted.STAM: cascade.Watched(*stam), "no relations": cascade.Watched(bare, watch.seen)}
    own, against = cascade.cascade_tables([*timelines, timelines[0]], found, 0)  # twice the cascades of one patient
    rows = {r[0]: dict(zip(own.columns, r)) for r in own.rows}
    assert [rows[name]["fell, patients drawn"].value for name in found] == [1, 0]
    (row,) = (dict(zip(against.columns, r)) for r in against.rows)
    assert row["fell"].n == row["surfaced"].n == 3
    assert (row["fell, patients drawn"].n, row["fell, patients drawn"].p) == (2, 0.5)  # two patients: no p is smaller
    absence = cascade.absence_table(timelines, found, ENCODER, ExtractiveReader(), 0)
    row = dict(zip(absence.columns, absence.rows[1]))
    assert row["the same, patients drawn"].n == 2 < row["STAM minus it"].n
    assert row["the same, patients drawn"].value == pytest.approx(row["STAM minus it"].value)
    assert dict(zip(absence.columns, absence.rows[0]))["the same, patients drawn"] is None


class Says:
    """A writer that extracts what it is told to, and moves nothing."""

    decider, hashes = "rule", {}

    def __init__(self, said):
        self.said = said

    def extract(self, entries):
        return [Extraction(tuple(dataclasses.replace(d, quote=d.statement) for d in self.said if d.statement in e.text))
                for e in entries]

    def link(self, tasks):
        return [LinkAnswer() for _ in tasks]

    def update(self, tasks):
        return [UpdateAnswer() for _ in tasks]


def test_expectations():
    scenario = Scenario("toy", "change", (("2024-01-01", "Lisinopril 10 mg daily."), ("2024-02-01", "Latex: rash.")))
    drafts = [Draft("Lisinopril 10 mg daily", "", concept="lisinopril", attribute="dose", value="10 mg daily"),
              Draft("Latex: rash", "", kind="BACKGROUND", concept="latex", attribute="allergy", value="rash")]
    state = harness.build("toy", scenario.entries(), Says(drafts), ENCODER, WriteConfig()).states["toy"]
    assert cascade.holds(Expect("ACTIVE", "lisinopril", "dose", "10 mg daily"), state)
    assert not cascade.holds(Expect("ACTIVE", "lisinopril", "dose", "20 mg daily"), state)
    assert not cascade.holds(Expect("HISTORY", "lisinopril", "dose", "10 mg daily"), state)
    assert cascade.holds(Expect("NOT ACTIVE", "lisinopril", "dose", "20 mg daily"), state)
    assert not cascade.holds(Expect("NOT ACTIVE", "lisinopril", "dose"), state)
    assert not cascade.holds(Expect("ACTIVE", "latex", "allergy", "rash", experiencer="FAMILY"), state)
    ok = dataclasses.replace(scenario, expects=(Expect("ACTIVE", "latex", "allergy", "rash"),))
    assert cascade.passes(ok, state, {})
    mid = next(m.mid for m in state.memories.values() if m.concept == "lisinopril")
    last = ok.entries()[-1].entry_key
    raised = dataclasses.replace(ok, surfaces=("lisinopril", "dose"))
    assert not cascade.passes(raised, state, {}) and cascade.passes(raised, state, {("toy", last): {mid}})
    assert not cascade.passes(dataclasses.replace(ok, related=("lisinopril", "latex", "causal")), state, {})


def test_scenarios_are_well_formed():
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS) >= 36
    slots = {e.attribute for s in SCENARIOS for e in s.expects}
    assert slots == {"dose", "value", "status", "allergy", "plan", "preference", "procedure"}
    for s in SCENARIOS:
        dates = [e.date for e in s.entries()]
        assert dates == sorted(dates) and (s.expects or s.related)
        assert len({e.entry_key for e in s.entries()}) == len(s.entries())
        assert {e.patient_id for e in s.entries()} == {s.name}


def test_crowd_names_nothing_of_the_record(timelines):
    assert len(crowd("")) == 18 and len(crowd("Takes Naproxen and omeprazole, sertraline, cetirizine.")) == 16
    for t in timelines:
        own = {f.concept for f in t.facts}
        before = [e for e in cascade.crowded(t) if e.source_id.startswith("c")]
        assert before and not any(re.search(rf"\b{c}\b", e.text.lower()) for e in before for c in own)
        assert max(e.date for e in before) < min(e.date for e in t.entries if e.date)


@pytest.mark.slow
def test_suite(monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    cohort = list(generate(TimelineConfig(6, 0, "train")))
    report = cascade.run(cases.Gold(cohort), ENCODER, ExtractiveReader(), patients=2, wording="train")
    found = json.loads(T.to_json(report))["tables"]
    rows = {r["write path"]: r for r in found["cascade"]["rows"]}
    assert rows[planted.STAM]["fell"]["value"] == 1.0 and rows["append only"]["fell"]["value"] == 0.0
    absent = {r["write path"]: r for r in found["absence"]["rows"]}
    assert absent[planted.STAM]["fallen plan"]["value"] == 1.0 > absent["append only"]["fallen plan"]["value"]
    assert {r["write path"] for r in found["scenarios"]["rows"]} == set(cascade.CONTROLS)
