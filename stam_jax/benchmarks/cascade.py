"""The Cascade and Absence suite: what falls with something else although the words differ, and what is then not there.

From planted timelines: monitoring plans that fall with their drug. From records written by hand: the same changes over
all slots, plans that fall and drugs that interact with a new one. Both come after a crowd of other drugs that were
begun and stopped, since in a short record everything is among the most alike. `surfaced` asks whether impact retrieval
brought a memory before the writer at all; `fell` what was done with it.
"""
from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_jax.embed import Encoder
from core_jax.synth.timelines import Timeline, TimelineConfig, fingerprint, generate
from stam_jax import metrics
from stam_jax.baselines import slots
from stam_jax.baselines.serving import FromMemory
from stam_jax.baselines.writers import AppendOnly
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.harness import (
    Ask,
    Memories,
    OnceEncoder,
    OnceWriter,
    build,
    evaluate,
    length_of,
    memory_rows,
    serve,
    sha256_of,
)
from stam_jax.benchmarks.planted import READ, WRITE, entries_of
from stam_jax.benchmarks.scenarios import ALIASES, SCENARIOS, Expect, Scenario, crowd
from stam_jax.benchmarks.write_paths import INGESTED, STAM, settings_of, told_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry
from stam_jax.graph.state import State
from stam_jax.read.answer import NOT_IN_MEMORY, NOT_MENTIONED, Reader
from stam_jax.read.search import encode_query
from stam_jax.write.writer import UpdateAnswer, UpdateTask, Writer

_DRAWN = "`patients drawn`: whole patients with replacement (10,000 times), since what one record does hangs together."
_FLIPPED = "Whole patients' signs flip (10,000 times; all patterns up to 16 patients). Holm within the column."
CONTROLS = (STAM, "semantic only, B 12", "semantic only, B 24", "no relations", "append only")
SCANNED = 3  # timelines that are looked through for one that holds a cascade


class Watch:
    """A writer that notes what its update tasks bring up: (patient, entry key) -> mids."""

    def __init__(self, writer: Writer):
        self.writer, self.decider, self.hashes = writer, writer.decider, writer.hashes
        self.extract, self.link = writer.extract, writer.link
        self.seen: dict[tuple[str, str], set[str]] = {}

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        for t in tasks:
            mids = self.seen.setdefault((t.entry.patient_id, t.entry.entry_key), set())
            mids.update(a.memory.mid for a in t.candidates)
        return self.writer.update(tasks)


@dataclasses.dataclass(frozen=True, eq=False)
class Watched:
    memories: Memories
    seen: Mapping[tuple[str, str], set[str]]


def watched(entries: Sequence, writer: Writer, encoder: Encoder, progress: Callable[[str], Any] | None = None, *,
            write: WriteConfig = WRITE) -> dict[str, Watched]:
    """STAM and the controls of its write path, with what each brought before the writer."""
    out = {}
    for name in CONTROLS:
        if progress is not None:
            progress(f"cascade: {name}")
        wrap, _ = INGESTED[name]
        watch = Watch(wrap(writer))
        made = build(name, entries, watch, encoder, settings_of(name, write), updates=wrap is AppendOnly)
        out[name] = Watched(made.changed(name, slots.append_only) if wrap is AppendOnly else made, watch.seen)
    return out


def crowded(timeline: Timeline) -> list[Entry]:
    """The entries of a timeline after the crowd, which names none of its drugs."""
    own = entries_of(timeline)
    before = crowd(" ".join((*(e.text for e in own), *(n for names in timeline.aliases.values() for n in names),
                             *(f.concept for f in timeline.facts))))
    return [*(Entry.of(timeline.patient_id, f"c{i:03d}", "clinic", text, date=date)
              for i, (date, text) in enumerate(before)), *own]


# ---- planted cascades ------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, slots=True)
class Fall:
    """One gold cascade: the plan was extracted, brought up by the stop's entry, archived for an accepted reason, and
    by the right stop."""

    patient_id: str
    extracted: bool
    surfaced: bool
    fell: bool
    by_the_stop: bool


def falls(timeline: Timeline, state: State, seen: Mapping[tuple[str, str], set[str]]) -> list[Fall]:
    rows = memory_rows(state)
    by_mid = {m.mid: m for m in rows}
    aligned, facts = metrics.align(timeline, rows), {f.fact_id: f for f in timeline.facts}
    keys = {e.source_id: e.entry_key for e in state.entries.values()}

    def held(fact_id: str) -> set[str]:
        root = facts[fact_id].restates or fact_id
        return {mid for f in timeline.facts if (f.restates or f.fact_id) == root for mid in aligned[f.fact_id]}

    out = []
    for t in timeline.transitions:
        if not t.cascade:
            continue
        plans, stops = held(t.fact), held(t.successor)
        up = seen.get((timeline.patient_id, keys.get(t.session, "")), set())
        gone = [by_mid[m] for m in sorted(plans) if by_mid[m].store == "HISTORY" and by_mid[m].reason in t.accept]
        out.append(Fall(timeline.patient_id, bool(plans), bool(plans & up), bool(gone),
                        any(m.successor in stops for m in gone)))
    return out


def cascade_tables(timelines: Sequence[Timeline], found: Mapping[str, Watched], seed: int) -> list[T.Table]:
    got = {name: [f for t in timelines for f in falls(t, w.memories.states[t.patient_id], w.seen)]
           for name, w in found.items()}
    parts, tested = ("extracted", "surfaced", "fell", "by_the_stop"), ("surfaced", "fell")
    patients = [f.patient_id for f in got[STAM]]  # of each cascade, under every write path

    def hits(name: str, part: str) -> list[int]:
        return [int(getattr(f, part)) for f in got[name]]

    rows = [(name, len(own), *(T.share(sum(hits(name, part)), len(own)) for part in parts),
             *(T.mean(hits(name, part), None, patients, seed=seed) for part in tested)) for name, own in got.items()]
    table = T.Table("cascade", "Monitoring plans that fall with their drug (planted)",
                    ("write path", "cascades", "plan extracted", "surfaced", "fell", "by the right stop",
                     "surfaced, patients drawn", "fell, patients drawn"), tuple(rows),
                    "surfaced: the stop's entry brought the plan before the writer. Wilson's intervals over cascades; "
                    f"{_DRAWN}")
    others = [n for n in got if n != STAM]
    columns = []
    for part in tested:
        columns.append(T.adjusted([T.compare_right(hits(STAM, part), hits(o, part)) for o in others]))
        columns.append(T.adjusted([T.compare_scores(hits(STAM, part), hits(o, part), None, patients, seed=seed)
                                   for o in others]))
    against = T.Table("cascade_differences", "STAM minus each control: cascades",
                      ("control", "surfaced", "surfaced, patients drawn", "fell", "fell, patients drawn"),
                      tuple(zip(others, *columns)), f"Exact McNemar over cascades; {_DRAWN} {_FLIPPED}")
    return [table, against]


def asks_of(timeline: Timeline) -> list[Ask]:
    """What is asked about a plan that fell, and about its drug: the answer is that it is not there."""
    facts = {f.fact_id: f for f in timeline.facts}
    current = {f.key for f in timeline.facts if f.status == "current" and f.polarity == "AFFIRMED"}
    nothing = (NOT_IN_MEMORY, NOT_MENTIONED, "no", "none", "stopped")
    out = []
    for t in timeline.transitions:
        plan = facts[t.fact]
        if not t.cascade or plan.key in current:
            continue
        drug = facts[t.successor]
        found = [("fallen plan", f"What is the current interval of {plan.concept}?", nothing),
                 ("still needed", f"Is {plan.concept} still needed, and why?", (f"no, {drug.concept} was stopped",))]
        if drug.key not in current:
            found.append(("stopped drug", f"What is the current dose of {drug.concept}?", nothing))
        for kind, text, answers in found:
            out.append(Ask(f"{timeline.patient_id}-a{len(out):02d}", timeline.patient_id, kind, text, answers))
    return out


def absence_table(timelines: Sequence[Timeline], found: Mapping[str, Watched], encoder: Encoder, reader: Reader,
                  seed: int, read: ReadConfig = READ) -> T.Table:
    asks = [a for t in timelines for a in asks_of(t)]
    texts = list(dict.fromkeys(a.text for a in asks))
    vectors = dict(zip(texts, encode_query(encoder, texts, read.instruction)))
    count, right = length_of(reader).count, {}
    for name, w in found.items():
        packets = serve(FromMemory(w.memories.states, w.memories.vectors, read, count=count), asks, vectors)
        right[name] = [s.right for s in evaluate(packets, asks, reader)]
    kinds, patients = list(dict.fromkeys(a.type for a in asks)), [a.patient_id for a in asks]
    others = [n for n in right if n != STAM]
    questions = T.adjusted([T.compare_right(right[STAM], right[n]) for n in others])
    flipped = T.adjusted([T.compare_scores(right[STAM], right[n], None, patients, seed=seed) for n in others])
    against = dict(zip(others, zip(questions, flipped)))
    rows = []
    for name, own in right.items():
        by_kind = [[r for r, a in zip(own, asks) if a.type == kind] for kind in kinds]
        rows.append((name, *(T.share(sum(r), len(r)) for r in by_kind), T.mean(own, None, patients, seed=seed),
                     *against.get(name, (None, None))))
    return T.Table("absence", "Absence: questions about what fell",
                   ("write path", *kinds, "all, patients drawn", "STAM minus it", "the same, patients drawn"),
                   tuple(rows), "Right is to say that nothing of it holds; for `still needed`, also why. Depth "
                   f"{read.most}; exact McNemar over questions; {_DRAWN} {_FLIPPED}")


# ---- records written by hand -----------------------------------------------------------------------------------------

def holds(expect: Expect, state: State) -> bool:
    """Whether what is expected of a slot is so."""
    about = [m for m in memory_rows(state)
             if m.concept in _called(expect.concept)
             and (m.attribute, m.polarity, m.experiencer) == (expect.attribute, expect.polarity, expect.experiencer)
             and metrics.values_agree(expect, m.value, m.unit)]
    if expect.place == "NOT ACTIVE":
        return not any(m.store == "ACTIVE" for m in about)
    return any(m.store == expect.place and (not expect.reasons or m.reason in expect.reasons) for m in about)


def passes(scenario: Scenario, state: State, seen: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether all of a scenario's expectations hold."""
    if not all(holds(e, state) for e in scenario.expects):
        return False
    if scenario.surfaces is not None:
        last = scenario.entries()[-1].entry_key
        up = {state.memories[m].slot for m in seen.get((scenario.name, last), ()) if m in state.memories}
        concept, attribute = scenario.surfaces
        if up.isdisjoint((name, attribute) for name in _called(concept)):
            return False
    if scenario.related is not None:
        first, second, type_ = scenario.related
        ends = {frozenset((state.memories[r.src].concept, state.memories[r.dst].concept))
                for r in state.relations.values() if r.type == type_}
        return any(frozenset((a, b)) in ends for a in _called(first) for b in _called(second))
    return True


def _called(concept: str) -> tuple[str, ...]:
    return concept, *ALIASES.get(concept, ())


def scenario_tables(found: Mapping[str, Watched]) -> list[T.Table]:
    got = {name: [int(passes(s, w.memories.states[s.name], w.seen)) for s in SCENARIOS] for name, w in found.items()}
    aspects = list(dict.fromkeys(s.aspect for s in SCENARIOS))
    against = dict(zip([n for n in got if n != STAM],
                       T.adjusted([T.compare_right(got[STAM], got[n]) for n in got if n != STAM])))
    rows = []
    for name, own in got.items():
        cells = []
        for aspect in aspects:
            at = [r for r, s in zip(own, SCENARIOS) if s.aspect == aspect]
            cells.append(f"{sum(at)}/{len(at)}")
        rows.append((name, f"{sum(own)}/{len(own)}", *cells, against.get(name)))
    table = T.Table("scenarios", "Records written by hand", ("write path", "all", *aspects, "STAM minus it"),
                    tuple(rows))
    missed = [(s.name, s.aspect, ", ".join(n for n in got if not got[n][i])) for i, s in enumerate(SCENARIOS)
              if not all(own[i] for own in got.values())]
    return [table, T.Table("scenario_misses", "Who misses which record", ("record", "aspect", "missed by"),
                           tuple(missed))]


# ---- the suite -------------------------------------------------------------------------------------------------------

def run(writer: Writer, encoder: Encoder, reader: Reader, *, patients: int = 40, seed: int = 0,
        wording: str = "heldout", write: WriteConfig = WRITE, read: ReadConfig = READ,
        command: str = "stam_jax.benchmarks.cascade.run(...)", progress: Callable[[str], Any] | None = None
        ) -> T.Report:
    """patients: timelines with a cascade, the first of some `SCANNED` times as many. write, read: STAM's settings."""
    config = TimelineConfig(patients * SCANNED + 10, seed, wording)
    timelines = list(itertools.islice((t for t in generate(config) if any(x.cascade for x in t.transitions)), patients))
    writer, encoder = OnceWriter(writer), OnceEncoder(encoder)
    entries = [e for t in timelines for e in crowded(t)]
    written = [e for s in SCENARIOS for e in s.entries()]
    found = watched([*entries, *written], writer, encoder, progress, write=write)
    made = [*cascade_tables(timelines, found, seed), absence_table(timelines, found, encoder, reader, seed, read),
            *scenario_tables(found)]
    settings = {"patients": len(timelines), "wording": wording, "encoder": encoder.id, "reader": reader.name,
                "writer": dict(writer.hashes), "read": dataclasses.asdict(read), "write": told_of(CONTROLS, write)}
    return T.Report("cascade", "Cascade and Absence", command, settings, {"timelines": seed, "resampling": seed},
                    {"timelines": fingerprint(config), "scenarios": sha256_of(written),
                     "expectations": canonical.sha256(repr(SCENARIOS))}, tuple(made))
