"""The planted suite: timelines with gold, in a wording that the rules' author has not read.

State: which values were superseded, what was archived by mistake, which relations and transitions were found, for STAM
and for every control of its write path. Answers: six types of questions, every arm read by the same reader, compared at
approximately the same median rendered context (paper 5.1, C.2), with a sweep over depths (C.3), the refill and
source-span arms (C.3, D.2) and the controls of retrieval and rendering (D.3).
"""
from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from core_jax.synth.timelines import Fact, Timeline, TimelineConfig, fingerprint, generate
from stam_jax import metrics
from stam_jax.baselines import slots
from stam_jax.baselines.external import Line, MemorySystem, fill
from stam_jax.baselines.serving import FlatRag, FromMemory, FromSystem, FullContext, Piece, pieces
from stam_jax.baselines.writers import MEASURED, AppendOnly, SameSlot
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.harness import (
    Ask,
    Memories,
    OnceEncoder,
    OnceWriter,
    Score,
    build,
    evaluate,
    evidence_served,
    matched,
    median_words,
    memory_rows,
    relation_rows,
    serve,
)
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.read.packet import Item, Packet
from stam_jax.read.search import encode_query, packet, search
from stam_jax.write.arbitrate import SINGLE_VALUED
from stam_jax.write.normalise import normalise
from stam_jax.write.writer import Writer

STAM = "STAM"
# the controls of the write path that run through ingestion: name -> (wrap the writer, settings)
INGESTED: dict[str, tuple[Callable[[Writer], Writer], WriteConfig]] = {
    STAM: (lambda w: w, WriteConfig()),
    "semantic only, B 12": (lambda w: w, WriteConfig(similar=12, related=0, budget=12)),
    "semantic only, B 24": (lambda w: w, WriteConfig(similar=24, related=0, budget=24)),
    "B 24": (lambda w: w, WriteConfig(similar=16, related=16, budget=24)),
    "no relations": (lambda w: w, WriteConfig(relations=False)),
    "same slot, arbitrated": (SameSlot, WriteConfig()),
    "append only": (AppendOnly, WriteConfig(relations=False, restatement="keep_both")),
}
# those that move the memories of "append only" by a bare rule
REPLAYED: dict[str, Callable[[State], State]] = {
    "append only": slots.append_only,
    "same slot": slots.same_slot,
    "doses and measurements": lambda state: slots.same_slot(state, MEASURED),
}
ORDER = (STAM, "B 24", "semantic only, B 12", "semantic only, B 24", "no relations", "same slot, arbitrated",
         "same slot", "doses and measurements", "append only")
REFERENCE = 12  # memories of a packet: about a third of a planted record
DEPTHS = (6, REFERENCE, 30, 60, 120, 240)
WORDS = 4500
ALL = 1_000_000
CHUNK = 40  # words of a chunk of the flat retrieval
ASPECTS = {"state": ("current_state", "change"), "temporal": ("past_state", "temporal_order")}


def entries_of(timeline: Timeline) -> list[Entry]:
    """Its entries in the order of arrival, named by their sessions."""
    return [Entry.of(timeline.patient_id, e.session, e.kind, e.text, date=e.date) for e in timeline.entries]


def asks_of(timeline: Timeline) -> list[Ask]:
    """Its questions. A fact and its restatements are one piece of evidence."""
    keys = {e.source_id: e.entry_key for e in entries_of(timeline)}
    facts = {f.fact_id: f for f in timeline.facts}
    runs: dict[str, list[Fact]] = {}
    for f in timeline.facts:
        runs.setdefault(f.restates or f.fact_id, []).append(f)

    def places(fact_id: str) -> tuple[tuple[str, int, int], ...]:
        f = facts[fact_id]
        return tuple((keys[g.session], g.start, g.end) for g in runs[f.restates or f.fact_id])

    return [Ask(q.question_id, timeline.patient_id, q.type, q.text, q.answers, tuple(map(places, q.facts)),
                q.history_needed) for q in timeline.questions]


def memories_of(entries: Sequence[Entry], writer: Writer, encoder: Encoder, names: Sequence[str] = ORDER,
                progress: Callable[[str], Any] | None = None) -> dict[str, Memories]:
    """STAM's memories and those of the named controls, each entry extracted and each text encoded once."""
    out: dict[str, Memories] = {}
    for name, (wrap, config) in INGESTED.items():
        if name in names or (name == "append only" and set(names) & set(REPLAYED)):
            if progress is not None:
                progress(f"writing: {name}")
            out[name] = build(name, entries, wrap(writer), encoder, config, updates=name in REPLAYED)
    if "append only" in out:
        said = out["append only"]
        out |= {name: said.changed(name, rule) for name, rule in REPLAYED.items() if name in (*names, "append only")}
    return {name: out[name] for name in ORDER if name in out}


# ---- state -----------------------------------------------------------------------------------------------------------

def counts_of(timelines: Sequence[Timeline], memories: Memories) -> list[metrics.StateCounts]:
    """One a patient."""
    return [metrics.state_counts(t, memory_rows(memories.states[t.patient_id]), relation_rows(
        memories.states[t.patient_id])) for t in timelines]


def state_tables(timelines: Sequence[Timeline], found: Mapping[str, Memories], seed: int) -> list[T.Table]:
    counts = {name: counts_of(timelines, m) for name, m in found.items()}
    rows = []
    for name, own in counts.items():
        total = sum(own, metrics.StateCounts())
        rows.append((
            name, _ratio(own, "loose", "pairs", seed), _ratio(own, "strict", "pairs", seed),
            _ratio(own, "falsely_archived", "current", seed), total.archived_fraction,
            total.stale / total.pairs if total.pairs else None, total.evidence_in_history, total.relation_f1(),
            total.transition_accuracy))
    state = T.Table(
        "state", "Supersession and false archival",
        ("write path", "pair recall (loose)", "pair recall (strict)", "false archival", "archived", "stale",
         "evidence in HISTORY", "relation F1", "transition accuracy"), tuple(rows),
        "Intervals: patients drawn with replacement. `stale`: pairs of which the old value still holds. The last "
        "three rows come of bare rules, without arbitration.")
    others = [name for name in counts if name != STAM]
    columns = [T.adjusted([_compare(counts[STAM], counts[n], part, whole, seed) for n in others])
               for part, whole in (("loose", "pairs"), ("strict", "pairs"), ("falsely_archived", "current"))]
    against = T.Table(
        "state_differences", "STAM minus each control: state",
        ("control", "pair recall (loose)", "pair recall (strict)", "false archival"), tuple(zip(others, *columns)),
        "Sign flip over patients; Holm within the column. More recall and less false archival are better. Loose recall "
        "asks only that the old value is past, for whatever successor; strict recall asks for the right one.")
    return [state, against, _slot_table(timelines, found[STAM], seed), _move_table(counts[STAM])]


def _ratio(counts: Sequence[metrics.StateCounts], part: str, whole: str, seed: int) -> T.Figure:
    return T.ratio([getattr(c, part) for c in counts], [getattr(c, whole) for c in counts], seed=seed)


def _compare(a: Sequence[metrics.StateCounts], b: Sequence[metrics.StateCounts], part: str, whole: str, seed: int
             ) -> T.Difference:
    return T.compare_ratios(*(([getattr(c, part) for c in own], [getattr(c, whole) for c in own]) for own in (a, b)),
                            seed=seed)


def slot_of(fact: Fact) -> str:
    """The attribute of a fact, and what is special about it."""
    if fact.experiencer != "PATIENT":
        return f"{fact.attribute} (family)"
    return fact.attribute if fact.polarity == "AFFIRMED" else f"{fact.attribute} ({fact.polarity.lower()})"


def _slot_table(timelines: Sequence[Timeline], memories: Memories, seed: int) -> T.Table:
    """What was extracted and what was superseded, by slot."""
    facts, got = Counter(), Counter()
    pairs: dict[str, list[metrics.StateCounts]] = {}
    for t in timelines:
        rows = memory_rows(memories.states[t.patient_id])
        aligned = metrics.align(t, rows)
        by_id = {f.fact_id: f for f in t.facts}
        facts.update(map(slot_of, t.facts))
        got.update(slot_of(by_id[f]) for f, mids in aligned.items() if mids)
        of = Counter(by_id[p.old].attribute + (" (late)" if p.late else "") for p in t.pairs)
        for kind in of:
            some = tuple(p for p in t.pairs if by_id[p.old].attribute + (" (late)" if p.late else "") == kind)
            part = dataclasses.replace(t, pairs=some)
            pairs.setdefault(kind, []).append(metrics.state_counts(part, rows))
    out = []
    for kind in sorted(facts.keys() | pairs.keys()):
        own = pairs.get(kind, [])
        recall = [_ratio(own, part, "pairs", seed) if own else None for part in ("loose", "strict")]
        out.append((kind, T.share(got[kind], facts[kind]), facts[kind], *recall, sum(c.pairs for c in own)))
    return T.Table("slots", "STAM by kind of slot",
                   ("slot", "extracted", "facts", "pair recall (loose)", "pair recall (strict)", "pairs"), tuple(out))


def _move_table(counts: Sequence[metrics.StateCounts]) -> T.Table:
    total = sum(counts, metrics.StateCounts())
    rows = [(reason, n, T.share(total.moves[reason], n), T.share(total.moves_reason[reason], n),
             T.share(total.moves_right[reason], n)) for reason, n in sorted(total.transitions.items())]
    related = [(f"relation {kind}", total.gold[kind], T.share(total.found[kind], total.gold[kind]),
                T.share(total.right[kind], total.predicted[kind]), total.relation_f1(kind))
               for kind in sorted(total.gold | total.predicted)]
    return T.Table("moves", "STAM by transition and relation",
                   ("kind", "gold", "memory there | recall", "right reason | precision", "right successor | F1"),
                   (*rows, *related))


def order_table(timelines: Sequence[Timeline], writer: Writer, encoder: Encoder, seed: int, *, orders: int = 3
                ) -> T.Table:
    """What holds after another order of arrival: (slot, value) of dated single-valued slots."""
    entries = {t.patient_id: entries_of(t) for t in timelines}

    def held(state: State) -> frozenset:
        return frozenset((m.experiencer, *m.slot, m.value, m.polarity) for m in state.active() if m.concept is not None
                         and m.attribute in SINGLE_VALUED and m.clinical_time.start is not None)

    def built(order: Mapping[str, Sequence[Entry]]) -> dict[str, frozenset]:
        made = build("order", [e for own in order.values() for e in own], writer, encoder, WriteConfig())
        return {p: held(s) for p, s in made.states.items()}

    first, same, alike = built(entries), [], []
    for n in range(orders):
        rng = random.Random(f"{seed}:{n}")
        other = built({p: own[::-1] if n == 0 else rng.sample(own, len(own)) for p, own in entries.items()})
        for p in entries:
            share, jaccard = metrics.order_invariance(first[p], [other[p]])
            same.append(share)
            alike.append(jaccard)
    return T.Table("order", "The same entries in another order of arrival",
                   ("patients", "orders", "same ACTIVE set", "Jaccard similarity"),
                   ((len(entries), orders, T.mean(same, seed=seed), T.mean(alike, seed=seed)),),
                   "Reversed and shuffled; sets of (slot, value, polarity) of dated single-valued slots.")


def deletion_table(timelines: Sequence[Timeline], memories: Memories) -> T.Table:
    """Deleting by temporal status, all of HISTORY: what endurance labels say of it (paper F.5)."""
    removed, label_removed, labels, stored = 0, Counter(), Counter(), 0
    for t in timelines:
        rows = memory_rows(memories.states[t.patient_id])
        aligned = metrics.align(t, rows)
        worst: dict[str, str] = {}
        rank = {"never-forget": 2, "uncertain": 1, "safe-to-forget": 0}
        for f in t.facts:
            for mid in aligned[f.fact_id]:
                if mid not in worst or rank[f.endurance] > rank[worst[mid]]:
                    worst[mid] = f.endurance
        stored += len(rows)
        for m in rows:
            label = worst.get(m.mid, "uncertain")
            labels[label] += 1
            if m.store == "HISTORY":
                removed += 1
                label_removed[label] += 1
    safe, never = "safe-to-forget", "never-forget"
    return T.Table(
        "deletion", "Deletion by temporal status: everything in HISTORY",
        ("removed", "safe precision", "safe recall", "never-forget lost", "never-forget removed"),
        ((T.share(removed, stored), T.share(label_removed[safe], removed), T.share(label_removed[safe], labels[safe]),
          T.share(label_removed[never], labels[never]), label_removed[never]),),
        "A memory that no gold fact is aligned to counts as uncertain.")


# ---- answers ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Served:
    """One arm's packets and scores. setting: what its context was matched by."""

    name: str
    setting: str
    packets: Sequence[Packet]
    scores: Sequence[Score]


class Answers:
    """All arms of one cohort's questions before one reader."""

    def __init__(self, timelines: Sequence[Timeline], memories: Mapping[str, Memories], encoder: Encoder,
                 reader: Reader, seed: int):
        self.asks = [a for t in timelines for a in asks_of(t)]
        self.types = [a.type for a in self.asks]
        self.entries = {t.patient_id: entries_of(t) for t in timelines}
        self.memories, self.reader, self.seed = memories, reader, seed
        texts = list(dict.fromkeys(a.text for a in self.asks))
        self.vectors = dict(zip(texts, encode_query(encoder, texts)))
        self.pieces: dict[str, list[Piece]] = {p: pieces(own, CHUNK) for p, own in self.entries.items()}
        rows = encoder.encode([c.text for own in self.pieces.values() for c in own])  # one batch: no call is padded
        ends = itertools.accumulate((len(own) for own in self.pieces.values()), initial=0)
        self.piece_vectors = {p: rows[first:first + len(own)] for (p, own), first in zip(self.pieces.items(), ends)}
        self.said = memories["append only"].states

    def scored(self, name: str, setting: str, packets: Sequence[Packet]) -> Served:
        return Served(name, setting, packets, evaluate(packets, self.asks, self.reader))

    def arm(self, name: str, most: int, *, memories: str = STAM, **how) -> Served:
        """A packet of each question from one of the memories."""
        arm = self._from(memories, most, **how)
        return self.scored(name, f"k {most}", serve(arm, self.asks, self.vectors))

    def _from(self, memories: str, most: int, *, arm: str = "BOTH", told: bool = True, **config) -> FromMemory:
        m = self.memories[memories]
        read = ReadConfig(**({"active": most, "history": most, "most": most} | config))
        return FromMemory(m.states, m.vectors, read, arm, told)

    def matched(self, name: str, arms: Sequence[tuple[str, Any]], words: float) -> Served:
        setting, packets = matched(arms, self.asks, self.vectors, words)
        return self.scored(name, setting, packets)

    def like(self, name: str, words: float, **how) -> Served:
        """The depth at which a memory's packets are about as long as `words`."""
        near = [REFERENCE, *(k for d in (1, 2, 3, 4, 6) for k in (REFERENCE - d, REFERENCE + d) if k > 0)]
        return self.matched(name, [(f"k {k}", self._from(how.get("memories", STAM), k, **{
            n: v for n, v in how.items() if n != "memories"})) for k in near], words)

    def full_context(self, words: int | None) -> FullContext:
        return FullContext(self.entries, self.said, words)

    def flat(self, most: int) -> FlatRag:
        return FlatRag(self.pieces, self.piece_vectors, self.said, most)

    def row(self, s: Served) -> tuple:
        f1 = T.mean([x.f1 for x in s.scores], self.types, seed=self.seed)
        right = [x.right for x in s.scores]
        served = [x.served for x in s.scores if x.served is not None]
        return (s.name, s.setting, median_words(s.packets), f1, T.mean([x.f1_clinical for x in s.scores], self.types,
                                                                       seed=self.seed),
                T.mean(right, self.types, seed=self.seed), float(np.mean(served)) if served else None)

    def compare(self, a: Served, b: Served) -> tuple[T.Difference, T.Difference]:
        return (T.compare_scores([x.f1 for x in a.scores], [x.f1 for x in b.scores], self.types, seed=self.seed),
                T.compare_right([x.right for x in a.scores], [x.right for x in b.scores]))

    def differences(self, name: str, title: str, first: Served, others: Sequence[Served], note: str = "") -> T.Table:
        found = [self.compare(first, o) for o in others]
        f1, right = (T.adjusted(column) for column in zip(*found))
        return T.Table(name, title, ("system", "type-macro F1", "accuracy (pooled)"),
                       tuple(zip([o.name for o in others], f1, right)), note)


COLUMNS = ("system", "depth", "median words", "type-macro F1", "clinical F1", "macro accuracy", "evidence served")


def answer_tables(a: Answers, progress: Callable[[str], Any] | None = None) -> list[T.Table]:
    def tell(what: str) -> None:
        if progress is not None:
            progress(f"answering: {what}")

    tell("reference")
    both = a.arm("STAM, BOTH", REFERENCE)
    words = median_words(both.packets)
    tell("matched")
    systems = [
        a.like("append only", words, memories="append only"),
        a.like("same-slot rule", words, memories="same slot"),
        a.like("doses-and-measurements rule", words, memories="doses and measurements"),
        a.like("semantic only, B 12", words, memories="semantic only, B 12"),
        a.like("no relations", words, memories="no relations"),
        a.matched("flat RAG", [(f"{n} chunks", a.flat(n)) for n in range(1, 13)], words),
        a.matched("full context", [(f"{int(words)} words", a.full_context(int(words)))], words)]
    headline = T.Table("answers", "Answers at approximately matched median context", COLUMNS,
                       tuple(map(a.row, [both, *systems])),
                       "Full context is cut to the same length, the oldest words first. Intervals: questions drawn "
                       "with replacement within their type. An answer is right when it has all words of a gold answer "
                       "(but for a measurement's unit) and no other number.")
    out = [headline, a.differences("answer_differences", "STAM minus each system at matched context", both, systems,
                                   "Sign flip and exact McNemar over questions; Holm within the column.")]
    tell("arms")
    active = a.arm("STAM, ACTIVE", REFERENCE, arm="ACTIVE")
    refilled = a.arm("ACTIVE, filled up (all HISTORY deleted)", REFERENCE, arm="REFILLED")
    half = REFERENCE // 2
    arms = [active, refilled, a.arm("separate allocation, half each", REFERENCE, active=half, history=half),
            a.arm("no store labels", REFERENCE, told=False), a.arm("with source spans", REFERENCE, spans=True)]
    out += [T.Table("arms", "Serving arms and controls at the same depth", COLUMNS, tuple(map(a.row, [both, *arms])),
                    "The reader without a model reads slots, not sentences: source spans lengthen its context and "
                    "change nothing else. Without labels it is not told where a memory stands."),
            a.differences("arm_differences", "STAM (BOTH) minus each arm", both, arms)]
    out.append(_dependence(a, both, refilled))
    shown = [both, active, refilled, systems[0], systems[-2], systems[-1]]
    out += [_losses(a, both), _by_type(a, shown), _aspects(a, both, [active, systems[0], systems[-2], systems[-1]])]
    tell("depths")
    out.append(_sweep(a))
    return out


def _dependence(a: Answers, both: Served, refilled: Served) -> T.Table:
    """Questions that need HISTORY, and those that it spoils (paper D.2)."""
    rows = []
    for kind in (*dict.fromkeys(a.types), "all"):
        at = [i for i, t in enumerate(a.types) if kind in (t, "all")]
        critical = sum(both.scores[i].right > refilled.scores[i].right for i in at)
        harmful = sum(both.scores[i].right < refilled.scores[i].right for i in at)
        needed = [a.asks[i].history_needed for i in at]
        rows.append((kind, len(at), float(np.mean(needed)), critical, harmful,
                     T.compare_right([both.scores[i].right for i in at], [refilled.scores[i].right for i in at])))
    return T.Table("history", "Dependence on HISTORY: BOTH against filled-up ACTIVE",
                   ("type", "questions", "gold needs HISTORY", "critical", "harmful", "BOTH minus it"), tuple(rows),
                   "critical: only BOTH is right; harmful: only filled-up ACTIVE is. Exact McNemar, not adjusted.")


def _losses(a: Answers, both: Served) -> T.Table:
    """Where STAM's wrong answers were lost: the evidence is not all in its store, or not all served, or was served."""
    stored = {p: Packet("stored", tuple(Item(m, m.store, 0.0) for m in s.memories.values()), "")
              for p, s in a.memories[STAM].states.items()}
    rows = []
    for kind in (*dict.fromkeys(a.types), "all"):
        found = Counter()
        for ask, score in zip(a.asks, both.scores):
            if kind in (ask.type, "all"):
                there = evidence_served(stored[ask.patient_id], ask.evidence)
                found["right" if score.right else "not stored" if there is not None and there < 1 else
                      "not served" if score.served is not None and score.served < 1 else "served"] += 1
        rows.append((kind, found.total(), *(found[w] for w in ("right", "not stored", "not served", "served"))))
    return T.Table("losses", "Where answers are lost (STAM, BOTH)",
                   ("type", "questions", "right", "evidence not stored", "stored, not served",
                    "served, answered wrongly"), tuple(rows))


def _by_type(a: Answers, shown: Sequence[Served]) -> T.Table:
    rows = []
    for kind in dict.fromkeys(a.types):
        at = [i for i, t in enumerate(a.types) if t == kind]
        rows.append((kind, len(at), *(T.share(sum(s.scores[i].right for i in at), len(at)) for s in shown)))
    return T.Table("types", "Accuracy by type of question", ("type", "questions", *(s.name for s in shown)),
                   tuple(rows))


def _aspects(a: Answers, both: Served, others: Sequence[Served]) -> T.Table:
    """State- and time-oriented questions apart (paper 5.2)."""
    rows, found = [], []
    for aspect, kinds in ASPECTS.items():
        at = [i for i, t in enumerate(a.types) if t in kinds]
        for o in others:
            rows.append((aspect, o.name, float(np.mean([both.scores[i].f1 for i in at])),
                         float(np.mean([o.scores[i].f1 for i in at]))))
            found.append(T.compare_scores([both.scores[i].f1 for i in at], [o.scores[i].f1 for i in at],
                                          [a.types[i] for i in at], seed=a.seed))
    return T.Table("aspects", "State and temporal questions apart",
                   ("aspect", "system", "STAM F1", "its F1", "difference"),
                   tuple((*row, d) for row, d in zip(rows, T.adjusted(found))),
                   "state: current_state, change; temporal: past_state, temporal_order.")


def _sweep(a: Answers) -> T.Table:
    """Depth against quality, for both arms. What serves all of a record is served once."""
    states, vectors = a.memories[STAM].states, a.memories[STAM].vectors
    whole: list[tuple[Packet, Packet]] = []
    rows: dict[str, list[tuple]] = {arm: [] for arm in ("BOTH", "ACTIVE")}
    known: dict[str, Served] = {}
    for setting, read in (("all", ReadConfig(ALL, ALL, ALL)), (f"{WORDS} words", ReadConfig(ALL, ALL, ALL, WORDS)),
                          *((f"k {k}", ReadConfig(k, k, k)) for k in sorted(DEPTHS, reverse=True))):
        packets = []
        for i, ask in enumerate(a.asks):
            if whole and (len(states[ask.patient_id].memories) <= read.most
                          and (read.words is None or whole[i][0].words <= read.words)):
                packets.append(whole[i])
                continue
            found = search(states[ask.patient_id], vectors[ask.patient_id], a.vectors[ask.text], read)
            packets.append((packet(found, "BOTH", read), packet(found, "ACTIVE", read)))
        whole = whole or packets
        for arm, own in zip(rows, zip(*packets)):
            if arm not in known or any(p is not q for p, q in zip(own, known[arm].packets)):
                known[arm] = a.scored(f"STAM, {arm}", setting, own)
            rows[arm].append(a.row(dataclasses.replace(known[arm], setting=setting)))
    record = a.scored("full context", "all", serve(a.full_context(None), a.asks, a.vectors))
    shown = [row for own in rows.values() for row in reversed(own)]
    return T.Table("depths", "Depth", COLUMNS, (*shown, a.row(record)),
                   "A planted record holds about fifty memories, so that depths from 60 on serve all of it.")


# ---- other memory systems --------------------------------------------------------------------------------------------

def system_tables(timelines: Sequence[Timeline], memories: Mapping[str, Memories], encoder: Encoder, reader: Reader,
                  writer: Writer, system: MemorySystem, seed: int) -> list[T.Table]:
    """Another memory system on the same entries and questions, at matched context."""
    a = Answers(timelines, memories, encoder, reader, seed)
    entries = [e for own in a.entries.values() for e in own]
    filled = fill(system, entries)
    both = a.arm("STAM, BOTH", REFERENCE)
    words = median_words(both.packets)
    append = a.like("append only", words, memories="append only")
    read = LineReader(writer)
    arms = [(f"k {k}", FromSystem(system, k, read)) for k in (8, REFERENCE, 16, 20, 24)]
    setting, packets = matched(arms, a.asks, a.vectors, words)
    theirs = Served(system.name, setting, packets, evaluate(packets, a.asks, reader, places=False))
    lost = ", ".join(f"{k} {n}" for k, n in sorted(system.lost.items())) or "none"
    note = (f"{len(timelines)} patients, {filled['entries']} entries; {system.name} made {filled['memories']} memories "
            f"and nothing of {filled['empty']} entries; entries that it lost: {lost}.")
    return [T.Table("systems", "Another memory system", COLUMNS, tuple(map(a.row, [both, append, theirs])), note),
            a.differences("system_differences", f"STAM minus {system.name}", both, [append, theirs])]


class LineReader:
    """What the lines of another memory say, by the writer's extraction; each line is read once."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self._known: dict[tuple[str, Line], list[Memory]] = {}

    def __call__(self, patient_id: str, line: Line) -> list[Memory]:
        if (key := (patient_id, line)) not in self._known:
            entry = Entry.of(patient_id, "line", "line", line.text, date=line.date)
            self._known[key] = normalise(entry, self.writer.extract([entry])[0], WriteConfig())[0]
        return self._known[key]


# ---- the suite -------------------------------------------------------------------------------------------------------

def run(writer: Writer, encoder: Encoder, reader: Reader, *, patients: int = 60, seed: int = 0,
        wording: str = "heldout", command: str = "stam bench --suite planted", system: MemorySystem | None = None,
        system_patients: int = 12, order_patients: int = 20, progress: Callable[[str], Any] | None = None) -> T.Report:
    """The whole suite. system: another memory system, asked about the first `system_patients`."""
    config = TimelineConfig(patients, seed, wording)
    timelines = list(generate(config))
    writer, encoder = OnceWriter(writer), OnceEncoder(encoder)
    entries = [e for t in timelines for e in entries_of(t)]
    memories = memories_of(entries, writer, encoder, progress=progress)
    found = state_tables(timelines, memories, seed)
    if progress is not None:
        progress("order of arrival")
    found.append(order_table(timelines[:order_patients], writer, encoder, seed))
    found.append(deletion_table(timelines, memories[STAM]))
    found += answer_tables(Answers(timelines, memories, encoder, reader, seed), progress)
    if system is not None:
        if progress is not None:
            progress(system.name)
        found += system_tables(timelines[:system_patients], memories, encoder, reader, writer, system, seed)
    settings = {"patients": patients, "wording": wording, "reference depth": REFERENCE, "chunk words": CHUNK,
                "encoder": encoder.id, "reader": reader.name, "writer": dict(writer.hashes),
                "write": {n: dataclasses.asdict(c) for n, (_, c) in INGESTED.items()}}
    return T.Report("planted", "STAM on planted timelines", command, settings, {"timelines": seed, "resampling": seed},
                    {"timelines": fingerprint(config)}, tuple(found))
