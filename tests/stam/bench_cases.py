"""A writer that reads planted gold instead of text, and small cohorts: what the benchmarks are tested with."""
from __future__ import annotations

import itertools

from core_jax.embed import HashEncoder
from core_jax.synth.timelines import Fact, Timeline, TimelineConfig, generate
from stam_jax.baselines.writers import SameSlot
from stam_jax.benchmarks.planted import entries_of
from stam_jax.write.writer import Draft, Extraction, Link, LinkAnswer, UpdateAnswer, Verdict


def cohort(n: int, *, late: bool = False) -> list[Timeline]:
    """The first n timelines; late: those in which what holds was followed by a late report of what held before."""
    def has_late(t: Timeline) -> bool:
        current = {f.fact_id for f in t.facts if f.status == "current"}
        last = {f.key: f.fact_id for f in t.facts}
        keys = {f.fact_id: f.key for f in t.facts}
        return any(p.late and p.new in current and last[keys[p.old]] == p.old for p in t.pairs)

    found = (t for t in generate(TimelineConfig(400, 0, "train")) if not late or has_late(t))
    return list(itertools.islice(found, n))


def _draft(fact: Fact, text: str) -> Draft:
    cut = {"day": 10, "month": 7, "year": 4}.get(fact.when.precision)
    time = fact.when.start[:cut] if cut and fact.when.source != "entry_default" else None
    return Draft(text[fact.start:fact.end], text[fact.start:fact.end], 0, (fact.start, fact.end), fact.kind,
                 fact.concept, fact.attribute, fact.value, fact.unit, fact.polarity, fact.experiencer, time)


class Gold(SameSlot):
    """Extracts the gold facts; the same slot follows; a plan falls with the drug that it is linked to."""

    def __init__(self, timelines: list[Timeline]):
        self.decider, self.hashes, self.attributes = "rule", {"writer": "gold"}, None
        self._drafts, self._related = {}, {}
        for t in timelines:
            by_id = {f.fact_id: f for f in t.facts}
            for e, entry in zip(t.entries, entries_of(t)):
                own = [_draft(f, e.text) for f in t.facts if f.session == e.session]
                self._drafts[entry.entry_key] = Extraction(tuple(own))
            for r in t.relations:
                a, b = by_id[r.src], by_id[r.dst]
                if a.key != b.key:
                    self._related[t.patient_id, a.key, b.key] = r.type

    def extract(self, entries):
        return [self._drafts.get(e.entry_key, Extraction()) for e in entries]

    def link(self, tasks):
        out = []
        for task, same in zip(tasks, super().link(tasks)):
            links = list(same.links)
            for i, c in enumerate(task.candidates):
                ends = [(m.experiencer, m.concept, m.attribute) for m in (task.memory, c)]
                for forward in (True, False):
                    type_ = self._related.get((task.memory.patient_id, *(ends if forward else ends[::-1])))
                    if type_ is not None:
                        links.append(Link(i, type_, forward))
            out.append(LinkAnswer(tuple(links)))
        return out

    def _answer(self, task):
        same = super()._answer(task)
        falls = []
        for c, affected in enumerate(task.candidates):
            for n, new in enumerate(task.news):
                watched = any(r.type == "monitoring_for" for r in affected.path)
                if watched and affected.memory.attribute == "plan" and affected.memory.store == "ACTIVE" \
                        and new.attribute == "dose" and new.polarity == "NEGATED":
                    falls.append(Verdict(c, "RESOLVED", n))
        return UpdateAnswer(same.placements, (*same.verdicts, *falls))


class Prompted(HashEncoder):
    """An encoder whose files name a prompt for questions. asked: texts that were encoded with it; plain: without."""

    prompts = {"query": "Find: "}

    def __init__(self, dim: int):
        super().__init__(dim)
        self.asked: set[str] = set()
        self.plain: set[str] = set()

    def encode(self, texts, prompt=None):
        (self.plain if prompt is None else self.asked).update(texts)
        return super().encode(texts if prompt is None else [self.prompts[prompt] + t for t in texts])
