"""The planted suite: timelines with gold, in a wording that the rules' author has not read.

State: which values were superseded, what was archived by mistake, which relations and transitions were found, for STAM
and for every control of its write path. Answers: six types of questions, every arm read by the same reader, compared at
approximately the same median rendered context (paper 5.1, C.2), with a sweep over depths (C.3), the refill and
source-span arms (C.3, D.2) and the controls of retrieval and rendering (D.3).
"""
from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_jax.embed import Encoder
from core_jax.synth.timelines import Fact, Timeline, TimelineConfig, fingerprint, generate
from stam_jax import metrics
from stam_jax.baselines.external import Line, MemorySystem, fill
from stam_jax.baselines.serving import FromSystem
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.answers import (
    ALL,
    CHUNK,
    DRAWN,
    TESTED,
    Answers,
    Served,
    aspects,
    by_type,
    dependence,
    depths,
    losses,
    repeatability,
)
from stam_jax.benchmarks.harness import (
    Ask,
    Memories,
    OnceEncoder,
    OnceWriter,
    build,
    evaluate,
    matched,
    median_words,
    memory_rows,
    relation_rows,
)
from stam_jax.benchmarks.write_paths import ORDER, STAM, memories_of, told_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.write.arbitrate import SINGLE_VALUED
from stam_jax.write.normalise import normalise
from stam_jax.write.writer import Writer

REFERENCE = 12  # memories of a packet: about a third of a planted record
WRITE, READ = WriteConfig(), ReadConfig(REFERENCE, REFERENCE, REFERENCE)
DEPTHS = (6, 30)  # beside the packets' own; below the fifty memories of a record
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
            _ratio(own, "loose", "pairs_covered", seed), _ratio(own, "falsely_archived", "current", seed), total.archived_fraction,
            total.stale / total.pairs if total.pairs else None, total.evidence_in_history, total.relation_f1(),
            total.transition_accuracy))
    state = T.Table(
        "state", "Supersession and false archival",
        ("write path", "pair recall (loose)", "pair recall (strict)", "loose, of covered pairs", "false archival",
         "archived", "stale", "evidence in HISTORY", "relation F1", "transition accuracy"), tuple(rows),
        "Intervals: patients drawn with replacement. Pairs whose old value was never extracted are misses; `of covered "
        "pairs` leaves them out. `stale`: pairs of which the old value still holds. The last three rows come of bare "
        "rules, without arbitration.")
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


def order_table(timelines: Sequence[Timeline], writer: Writer, encoder: Encoder, seed: int, *, orders: int = 3,
                write: WriteConfig = WRITE) -> T.Table:
    """What holds after another order of arrival: (slot, value) of dated single-valued slots."""
    entries = {t.patient_id: entries_of(t) for t in timelines}

    def held(state: State) -> frozenset:
        return frozenset((m.experiencer, *m.slot, m.value, m.polarity) for m in state.active() if m.concept is not None
                         and m.attribute in SINGLE_VALUED and m.clinical_time.start is not None)

    def built(order: Mapping[str, Sequence[Entry]]) -> dict[str, frozenset]:
        made = build("order", [e for own in order.values() for e in own], writer, encoder, write)
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


# ---- answers ---------------------------------------------------------------------------------------------------------

def answers_of(timelines: Sequence[Timeline], memories: Mapping[str, Memories], encoder: Encoder, reader: Reader,
               seed: int, read: ReadConfig = READ) -> Answers:
    """The questions of a cohort before a reader."""
    return Answers([a for t in timelines for a in asks_of(t)], {t.patient_id: entries_of(t) for t in timelines},
                   memories, encoder, reader, read=read, seed=seed)


def answer_tables(a: Answers, progress: Callable[[str], Any] | None = None) -> list[T.Table]:
    def tell(what: str) -> None:
        if progress is not None:
            progress(f"answering: {what}")

    tell("reference")
    both = a.arm("STAM, BOTH")
    aim = median_words(both.packets, a.length)
    tell("matched")
    systems = [
        a.like("append only", aim, memories="append only"),
        a.like("same-slot rule", aim, memories="same slot"),
        a.like("doses-and-measurements rule", aim, memories="doses and measurements"),
        a.like("semantic only, B 12", aim, memories="semantic only, B 12"),
        a.like("no relations", aim, memories="no relations"),
        a.flat("flat RAG", aim),
        a.full("full context", aim)]
    out = [a.table("answers", "Answers at approximately matched median context", [both, *systems],
                   f"Full context is cut to the same length, the oldest words first. {DRAWN} An answer is right when it "
                   "has all words of a gold answer (but for a measurement's unit) and no other number. Evidence is "
                   "served when half of its words are, whatever serves them."),
           a.differences("answer_differences", "STAM minus each system at matched context", both, systems, TESTED)]
    tell("arms")
    active = a.arm("STAM, ACTIVE", arm="ACTIVE")
    refilled = a.arm("ACTIVE, filled up (all HISTORY deleted)", arm="REFILLED")
    half = max(1, a.read.most // 2)
    arms = [active, refilled, a.arm("separate allocation, half each", active=half, history=half),
            a.arm("no store labels", told=False), a.arm("with source spans", spans=True)]
    out += [a.table("arms", "Serving arms and controls at the same depth", [both, *arms],
                    "The reader without a model reads slots, not sentences: source spans lengthen its context and "
                    "change nothing else. Without labels it is not told where a memory stands."),
            a.differences("arm_differences", "STAM (BOTH) minus each arm", both, arms, TESTED),
            dependence(a, both, refilled), losses(a, both),
            by_type(a, [both, active, refilled, systems[0], systems[-2], systems[-1]]),
            aspects(a, ASPECTS, both, [active, systems[0], systems[-2], systems[-1]])]
    if (again := repeatability(a, both)) is not None:
        out.append(again)
    tell("depths")
    found = depths(a, [*map(a.sized, sorted({*DEPTHS, a.read.most})), a.sized(ALL)])
    out.append(a.table("depths", "Depth", [*(s for own in found.values() for s, _ in own), a.full("full context", None)],
                       "A planted record holds about fifty memories: greater depths are those of the suite `mimic_qa`."))
    return out


# ---- other memory systems --------------------------------------------------------------------------------------------

def system_tables(timelines: Sequence[Timeline], memories: Mapping[str, Memories], encoder: Encoder, reader: Reader,
                  writer: Writer, system: MemorySystem, seed: int, *, write: WriteConfig = WRITE,
                  read: ReadConfig = READ) -> list[T.Table]:
    """Another memory system on the same entries and questions, at matched context."""
    a = answers_of(timelines, memories, encoder, reader, seed, read)
    entries = [e for own in a.entries.values() for e in own]
    filled = fill(system, entries)
    both = a.arm("STAM, BOTH")
    aim = median_words(both.packets, a.length)
    append = a.like("append only", aim, memories="append only")
    lines = LineReader(writer, write)
    arms = [(f"k {k}", FromSystem(system, k, lines)) for k in (2, 3, 4, 6, 8, REFERENCE, 16, 20, 24)]
    setting, packets = matched(arms, a.asks, a.vectors, aim, length=a.length)
    scores = evaluate(packets, a.asks, reader, placed=False)
    theirs = Served(system.name, setting, packets, scores, [x.answer for x in scores])
    lost = ", ".join(f"{k} {n}" for k, n in sorted(system.lost.items())) or "nothing"
    note = (f"{len(timelines)} patients, {filled['entries']} entries; {system.name} made {filled['memories']} memories "
            f"and nothing of {filled['empty']} entries; it asked its language model {system.asked['calls']} times, with "
            f"{system.asked['words read']} words for {system.asked['words said']}; it failed at: {lost}.")
    return [a.table("systems", "Another memory system", [both, append, theirs], note),
            a.differences("system_differences", f"STAM minus {system.name}", both, [append, theirs], TESTED)]


class LineReader:
    """What the lines of another memory say, by the writer's extraction; each line is read once."""

    def __init__(self, writer: Writer, write: WriteConfig = WRITE):
        self.writer, self.write = writer, write
        self._known: dict[tuple[str, Line], list[Memory]] = {}

    def __call__(self, patient_id: str, line: Line) -> list[Memory]:
        if (key := (patient_id, line)) not in self._known:
            entry = Entry.of(patient_id, "line", "line", line.text, date=line.date)
            self._known[key] = normalise(entry, self.writer.extract([entry])[0], self.write)[0]
        return self._known[key]


# ---- the suite -------------------------------------------------------------------------------------------------------

def run(writer: Writer, encoder: Encoder, reader: Reader, *, patients: int = 60, seed: int = 0,
        wording: str = "heldout", write: WriteConfig = WRITE, read: ReadConfig = READ,
        command: str = "stam_jax.benchmarks.planted.run(...)", system: MemorySystem | None = None,
        system_patients: int = 12, order_patients: int = 20, progress: Callable[[str], Any] | None = None) -> T.Report:
    """The whole suite. write, read: STAM's settings. system: another memory system, asked about the first
    `system_patients`."""
    config = TimelineConfig(patients, seed, wording)
    timelines = list(generate(config))
    writer, encoder = OnceWriter(writer), OnceEncoder(encoder)
    entries = [e for t in timelines for e in entries_of(t)]
    memories = memories_of(entries, writer, encoder, progress=progress, write=write)
    found = state_tables(timelines, memories, seed)
    if progress is not None:
        progress("order of arrival")
    found.append(order_table(timelines[:order_patients], writer, encoder, seed, write=write))
    found += answer_tables(answers_of(timelines, memories, encoder, reader, seed, read), progress)
    if system is not None:
        if progress is not None:
            progress(system.name)
        found += system_tables(timelines[:system_patients], memories, encoder, reader, writer, system, seed,
                               write=write, read=read)
    settings = {"patients": patients, "wording": wording, "chunk words": CHUNK, "encoder": encoder.id,
                "reader": reader.name, "writer": dict(writer.hashes), "read": dataclasses.asdict(read),
                "write": told_of(ORDER, write), "system": None if system is None else system.name}
    return T.Report("planted", "STAM on planted timelines", command, settings, {"timelines": seed, "resampling": seed},
                    {"timelines": fingerprint(config)}, tuple(found))
