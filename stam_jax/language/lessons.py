"""Lessons for the write modules from planted timelines: training rows, and scores of any writer on the same cases.

A case is a task as a writer gets it, and the gold's answer: targets come from facts, relations and transitions, never
from another writer. Rows hold the messages that `stam_jax.language.writer` sends and the lines that it reads, so that
an adapter serves what it was taught. Patients are disjoint between the files: by the timelines' own split, or in folds.
Imports without JAX.
"""
from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core_jax.records import write_jsonl
from core_jax.synth.timeline_gold import Fact, Timeline, TimelineEntry, When
from stam_jax.graph import clinical_time as ct
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.relations import DEFAULT, Relation
from stam_jax.language import lines
from stam_jax.language.writer import STAGES, Messages, extract_messages, link_messages, update_messages
from stam_jax.write.writer import Affected, Draft, LinkTask, Placement, UpdateAnswer, UpdateTask, Verdict, Writer

SPLITS = ("train", "val", "test")
Label = tuple[str | None, bool]  # type of a relation (None = none), and whether it goes from the new memory


@dataclasses.dataclass(frozen=True)
class LessonConfig:
    """words: of a chunk, about; an entry is cut between its lines. candidates, budget, group: as in `WriteConfig`.
    noise: unrelated memories among an updater's candidates. seed: of what is drawn, and of the candidates' order."""

    words: int = 120
    candidates: int = 6
    budget: int = 8
    group: int = 8
    noise: int = 2
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class ExtractCase:
    """drafts: of the whole entry."""

    entry: Entry
    drafts: tuple[Draft, ...]


@dataclasses.dataclass(frozen=True)
class LinkCase:
    """labels: one a candidate of the task."""

    task: LinkTask
    labels: tuple[Label, ...]


@dataclasses.dataclass(frozen=True)
class UpdateCase:
    """answer: the best one. accept: of each candidate that the entry changes, the verdicts that are right."""

    task: UpdateTask
    answer: UpdateAnswer
    accept: dict[int, tuple[str, ...]]


Case = ExtractCase | LinkCase | UpdateCase


# ---- cases -------------------------------------------------------------------------------------------------------

def cases(stage: str, timeline: Timeline, config: LessonConfig = LessonConfig()) -> Iterator[Case]:
    """In the order of the record. Raises: ValueError: no such stage."""
    if stage not in STAGES:
        raise ValueError(f"stage: got {stage!r}, expected one of {STAGES}")
    record = _Record(timeline, config)
    for i, planted in enumerate(timeline.entries):
        news = [f for f in timeline.facts if f.session == planted.session]
        if stage == "extract":
            yield record.extract(planted, news)
        elif stage == "link":
            yield from record.link(i, news)
        else:
            yield from record.update(i, news)


def statement(fact: Fact) -> str:
    """A fact in one sentence that can be understood alone."""
    name, value = fact.concept, fact.value
    if fact.attribute == "dose":
        said = f"{name} stopped" if value is None else f"{name} {value}"
        said = f"if needed {said}" if fact.polarity == "CONDITIONAL" else said
    elif fact.attribute == "status":
        said = {"AFFIRMED": name, "NEGATED": f"no {name}", "UNCERTAIN": f"possible {name}",
                "CONDITIONAL": f"{name} if it comes to that"}[fact.polarity]
    elif fact.attribute == "value":
        said = f"{name} {value} {fact.unit}" if fact.unit else f"{name} {value}"
    elif fact.attribute == "allergy":
        said = f"allergic to {name}: {value}"
    elif fact.attribute == "plan":
        said = f"planned: {name}" + (f" {value}" if value else "")
    else:
        said = f"{name}: {value}" if value else name
    said = f"family history: {said}" if fact.experiencer == "FAMILY" else said
    return said[0].upper() + said[1:] + "."


class _Record:
    """A timeline as entries and memories."""

    def __init__(self, timeline: Timeline, config: LessonConfig):
        self.timeline, self.config = timeline, config
        self.facts = {f.fact_id: f for f in timeline.facts}
        self.order = {e.session: i for i, e in enumerate(timeline.entries)}
        self.entries = {e.session: self._entry(e) for e in timeline.entries}
        self.memories = {f.fact_id: self._memory(i, f) for i, f in enumerate(timeline.facts)}
        self.between: dict[tuple[str, str], tuple[str, bool]] = {}  # (a, b) -> type, whether it goes from a to b
        for r in sorted(timeline.relations, key=lambda r: [t.name for t in DEFAULT.types].index(r.type)):
            self.between.setdefault((r.src, r.dst), (r.type, True))
            self.between.setdefault((r.dst, r.src), (r.type, not DEFAULT[r.type].directed))

    def _entry(self, planted: TimelineEntry) -> Entry:
        inside = [(f.start, f.end) for f in self.timeline.facts if f.session == planted.session]
        return Entry.of(self.timeline.patient_id, planted.session, planted.kind, planted.text, date=planted.date,
                        chunks=_chunks(planted.text, inside, self.config.words))

    def _memory(self, ordinal: int, fact: Fact) -> Memory:
        entry = self.entries[fact.session]
        source = Provenance.of(entry, fact.start, fact.end, chunk=_chunk_of(entry, fact.start))
        return Memory.of(entry.patient_id, statement(fact), [source], ordinal=ordinal, kind=fact.kind,
                         concept=fact.concept, attribute=fact.attribute, value=fact.value, unit=fact.unit,
                         polarity=fact.polarity, experiencer=fact.experiencer, clinical_time=_interval(fact.when))

    def _rng(self, *key: object) -> random.Random:
        return random.Random(f"{self.config.seed} {self.timeline.patient_id} {key}")

    def _held(self, at: int) -> list[Fact]:
        """What holds before entry `at` arrives, each thing once."""
        if at == 0:
            return []
        return [f for f in self.timeline.current(self.timeline.entries[at - 1].session) if f.restates is None]

    def extract(self, planted: TimelineEntry, news: Sequence[Fact]) -> ExtractCase:
        entry = self.entries[planted.session]
        return ExtractCase(entry, tuple(Draft(
            statement(f), " ".join(planted.text[f.start:f.end].split()), _chunk_of(entry, f.start), None, f.kind,
            f.concept, f.attribute, f.value, f.unit, f.polarity, f.experiencer,
            _time_words(f.when, planted.date, planted.text[f.start:f.end])) for f in news))

    def link(self, at: int, news: Sequence[Fact]) -> Iterator[LinkCase]:
        held = self._held(at)
        for i, new in enumerate(news):
            rng = self._rng("link", new.fact_id)
            pool = [f for f in (*held, *news[:i]) if f.experiencer == new.experiencer and f.restates is None]
            related = [f for f in pool if (new.fact_id, f.fact_id) in self.between][:self.config.candidates]
            others = [f for f in pool if f not in related]
            chosen = related + rng.sample(others, min(len(others), self.config.candidates - len(related)))
            rng.shuffle(chosen)
            if chosen:
                task = LinkTask(self.entries[new.session], self.memories[new.fact_id],
                                tuple(self.memories[f.fact_id] for f in chosen))
                yield LinkCase(task, tuple(self.between.get((new.fact_id, f.fact_id), (None, True)) for f in chosen))

    def update(self, at: int, news: Sequence[Fact]) -> Iterator[UpdateCase]:
        session = self.timeline.entries[at].session
        leaving = {t.fact: t for t in self.timeline.transitions if t.session == session}
        held = [f for f in self._held(at) if f.fact_id not in leaving or leaving[f.fact_id].successor is not None]
        still = {f.fact_id for f in held}
        past = [f for f in self.timeline.facts if f.restates is None and f.fact_id not in still
                and self.order[f.session] < at]
        for first in range(0, len(news), self.config.group):
            group = news[first:first + self.config.group]
            if case := self._decide(session, group, held, past, leaving):
                yield case

    def _decide(self, session: str, group: Sequence[Fact], held: Sequence[Fact], past: Sequence[Fact],
                leaving: dict[str, Any]) -> UpdateCase | None:
        rng = self._rng("update", session, group[0].fact_id)
        numbers = {f.fact_id: i for i, f in enumerate(group)}
        whose = {f.experiencer for f in group}
        pool = [f for f in held if f.experiencer in whose]
        moved = {f.fact_id for f in pool if f.fact_id in leaving and leaving[f.fact_id].successor in numbers}
        touched = {f.fact_id for f in pool if any((n, f.fact_id) in self.between for n in numbers)} - moved
        chosen = [f for ids in (moved, touched) for f in pool if f.fact_id in ids][:self.config.budget]
        gone = [f for f in past if f.experiencer in whose]
        for others in ([f for f in pool if f.fact_id not in moved | touched], gone):
            room = min(len(others), self.config.noise, self.config.budget - len(chosen))
            chosen += rng.sample(others, max(room, 0))
        if not chosen:
            return None
        rng.shuffle(chosen)
        places = {f.fact_id: i for i, f in enumerate(chosen)}
        placements = []
        for f in group:
            earlier = f.restates if f.restates is not None else leaving[f.fact_id].successor if f.late else None
            if earlier in places:
                placements.append(Placement(numbers[f.fact_id], "SAME" if f.restates else "PRIOR", places[earlier]))
        verdicts, accept = [], {}
        for f in chosen:
            if f.fact_id in moved:
                move, place = leaving[f.fact_id], places[f.fact_id]
                kinds = tuple(r for r in move.accept if r in ("SUPERSEDED", "RESOLVED", "CORRECTED"))
                accept[place] = kinds
                verdicts.append(Verdict(place, kinds[0], numbers[move.successor], f.endurance == "safe-to-forget"))
        task = UpdateTask(self.entries[session], tuple(self.memories[f.fact_id] for f in group),
                          tuple(self._affected(f, f in gone, numbers, leaving) for f in chosen))
        return UpdateCase(task, UpdateAnswer(tuple(placements), tuple(verdicts)), accept)

    def _affected(self, fact: Fact, is_past: bool, numbers: dict[str, int], leaving: dict[str, Any]) -> Affected:
        """With the relation to a new memory, or, where it falls with another fact, the way over that one."""
        memory = self.memories[fact.fact_id]
        direct = [n for n in numbers if (n, fact.fact_id) in self.between]
        pairs = [(direct[0], fact.fact_id)] if direct else []
        move = leaving.get(fact.fact_id)
        if not pairs and move is not None and move.cascade and move.successor in numbers:
            way = [f for f in self.facts if (move.successor, f) in self.between and (f, fact.fact_id) in self.between]
            pairs = [(move.successor, way[-1]), (way[-1], fact.fact_id)] if way else []
        path = []
        for a, b in pairs:
            type_, forward = self.between[a, b]
            src, dst = (a, b) if forward else (b, a)
            path.append(Relation.of(self.memories[src].mid, self.memories[dst].mid, type_))
        return Affected(dataclasses.replace(memory, store="HISTORY" if is_past else "ACTIVE"), tuple(path))


def _chunks(text: str, inside: Sequence[tuple[int, int]], words: int) -> list[tuple[int, int]]:
    """Cut between lines, and within none of the spans `inside`, where a chunk has `words` words."""
    out, start, count = [], 0, 0
    for line in re.finditer(r"[^\n]*\n?", text):
        size = len(line[0].split())
        at = line.start()
        if count and count + size > words and not any(a < at < b for a, b in inside):
            out.append((start, at))
            start, count = at, 0
        count += size
    return [*out, (start, len(text))]


def _chunk_of(entry: Entry, at: int) -> int:
    return next(i for i, (a, b) in enumerate(entry.chunks) if a <= at < b)


def _interval(when: When) -> ct.ClinicalTime:
    if when.start is None and when.end is None:
        return ct.UNKNOWN
    start = when.start and when.start[:{"day": 10, "month": 7, "year": 4}[when.precision]]
    return ct.ClinicalTime(start, when.end, when.end_planned, when.source)


def _time_words(when: When, date: str | None, quote: str) -> str | None:
    """The words of the quote that mean this time, the longest run of them; else a date that does."""
    goal = _interval(when)
    if date is None or when.source in ("entry_default", "unknown") and goal.end is None:
        return None

    def meant(words: str) -> bool:
        found = ct.resolve(words, date)
        return (found.start, found.end) == (goal.start, goal.end)

    said = quote.split()
    for size in range(min(6, len(said)), 0, -1):
        for i in range(len(said) - size + 1):
            words = " ".join(said[i:i + size]).strip(".,;:()")
            if meant(words):
                return words
    if (length := re.search(r"for ([0-9]+) days", quote)) and meant(f"for the next {length[1]} days"):
        return f"for the next {length[1]} days"
    if goal.end is None:
        return goal.start
    last = (ct.bounds(goal.end)[0] - ct.dt.timedelta(days=1)).isoformat()
    return f"until {last}" if meant(f"until {last}") else f"from {goal.start} to {last}"


# ---- rows --------------------------------------------------------------------------------------------------------

def rows(stage: str, timelines: Iterable[Timeline], config: LessonConfig = LessonConfig()) -> Iterator[dict[str, Any]]:
    """Training rows {"messages": [...]} of a stage. Of a new memory's links every related candidate is asked about,
    in both directions where the relation has one, and, where there is one, a candidate that is not related: a linker
    that sees mostly unrelated pairs learns to say no."""
    for timeline in timelines:
        for case in cases(stage, timeline, config):
            for messages, answer in _taught(case):
                yield {"messages": [*messages, {"role": "assistant", "content": answer}]}


def _taught(case: Case) -> Iterator[tuple[Messages, str]]:
    if isinstance(case, ExtractCase):
        for chunk in range(len(case.entry.chunks)):
            drafts = [d for d in case.drafts if d.chunk == chunk]
            yield extract_messages(case.entry, chunk, tuned=True), lines.render_drafts(drafts)
    elif isinstance(case, LinkCase):
        letters = {(label.type, label.forward): label.letter for label in lines.LABELS}
        related = any(type_ is not None for type_, _ in case.labels)
        unrelated = [i for i, (type_, _) in enumerate(case.labels) if type_ is None][:related]
        for i, label in enumerate(case.labels):
            if label[0] is not None or i in unrelated:
                yield link_messages(case.task, i, tuned=True), letters[label]
            if label[0] is not None and DEFAULT[label[0]].directed:
                yield link_messages(_turned(case.task, i), i, tuned=True), letters[label[0], not label[1]]
    else:
        sizes = len(case.task.news), len(case.task.candidates)
        yield update_messages(case.task, tuned=True), lines.render_update(case.answer, *sizes)


def _turned(task: LinkTask, candidate: int) -> LinkTask:
    """The new memory and a candidate change places: records tell of either end of a relation first."""
    candidates = list(task.candidates)
    new, candidates[candidate] = candidates[candidate], task.memory
    return LinkTask(task.entry, new, tuple(candidates))


def fold_of(patients: Iterable[str], count: int = 5) -> dict[str, int]:
    """Patient -> one of `count` folds of like size, by the hash of the name."""
    ordered = sorted(set(patients), key=lambda p: (hashlib.sha256(p.encode()).hexdigest(), p))
    return {p: i % count for i, p in enumerate(ordered)}


def split(timelines: Sequence[Timeline], *, fold: int | None = None, folds: int = 5) -> dict[str, list[Timeline]]:
    """{"train", "val", "test"}, patient-disjoint: by the timelines' own split, or with `fold` as test, the next fold
    as val and the others as train. Raises: ValueError: no such fold, fewer than three folds."""
    if fold is None:
        return {name: [t for t in timelines if t.split == name] for name in SPLITS}
    if folds < 3 or not 0 <= fold < folds:
        raise ValueError(f"fold: got {fold} of {folds}, expected one of at least 3 folds, counted from 0")
    place = fold_of((t.patient_id for t in timelines), folds)
    names = {fold: "test", (fold + 1) % folds: "val"}
    return {name: [t for t in timelines if names.get(place[t.patient_id], "train") == name] for name in SPLITS}


def write(folder: str | os.PathLike, timelines: Sequence[Timeline], config: LessonConfig = LessonConfig(), *,
          fold: int | None = None, most: int | None = None) -> dict[str, int]:
    """Files for `launch/run.py`: extract.jsonl, extract_val.jsonl, extract_test.jsonl, and so for link and update.

    Args:
        fold: as `split`. most: rows of a file, drawn from all by the config's seed.

    Returns: file name -> rows.
    """
    os.makedirs(folder, exist_ok=True)
    counts = {}
    for name, part in split(timelines, fold=fold).items():
        for stage in STAGES:
            found = list(rows(stage, part, config))
            rng = random.Random(f"{config.seed} {stage} {name}")
            rng.shuffle(found)
            file = f"{stage}.jsonl" if name == "train" else f"{stage}_{name}.jsonl"
            counts[file] = write_jsonl(os.path.join(os.fspath(folder), file), found[:most])
    return counts


# ---- scores ------------------------------------------------------------------------------------------------------

def score(writer: Writer, timelines: Iterable[Timeline], config: LessonConfig = LessonConfig(), *,
          stages: Sequence[str] = STAGES, most: int | None = None) -> dict[str, dict[str, Any]]:
    """How a writer does, by stage. A task that failed has nothing extracted, and each of its decisions wrong.

    extract: precision, recall and F1 of (concept, attribute, value) over all entries; quoted = share of its drafts
    whose quote stands in the entry. link: accuracy over all candidates; related = over those with a relation;
    unrelated = over the others. update: accuracy over all new memories and candidates; changes = over those where the
    right line is not the default one; defaults = over the others. A verdict names the right memory, or is RESOLVED.

    Args:
        most: cases of a stage, drawn from all by the config's seed.
    """
    timelines, out = list(timelines), {}
    for stage in stages:
        drawn = [case for t in timelines for case in cases(stage, t, config)]
        random.Random(f"{config.seed} {stage} score").shuffle(drawn)
        out[stage] = {"extract": _extracted, "link": _linked, "update": _updated}[stage](writer, drawn[:most])
    return out


def _slot(draft: Draft) -> tuple[str, str, str]:
    return tuple(" ".join((x or "").lower().split()) for x in (draft.concept, draft.attribute, draft.value))


def _extracted(writer: Writer, drawn: Sequence[ExtractCase]) -> dict[str, Any]:
    right = said = expected = quoted = failed = 0
    for case, answer in zip(drawn, writer.extract([c.entry for c in drawn])):
        gold, got = (collections.Counter(map(_slot, x)) for x in (case.drafts, answer.drafts))
        right += (gold & got).total()
        said += got.total()
        expected += gold.total()
        text = " ".join(case.entry.text.split()).casefold()
        quoted += sum(d.quote.casefold() in text for d in answer.drafts)
        failed += answer.error is not None
    return {"cases": len(drawn), "failed": failed, "expected": expected, "said": said,
            "precision": _share(right, said), "recall": _share(right, expected),
            "f1": _share(2 * right, said + expected), "quoted": _share(quoted, said)}


def _linked(writer: Writer, drawn: Sequence[LinkCase]) -> dict[str, Any]:
    marks: dict[bool, list[bool]] = {True: [], False: []}
    failed = 0
    for case, answer in zip(drawn, writer.link([c.task for c in drawn])):
        failed += answer.error is not None
        given: dict[int, Label] = {}
        for link in answer.links:
            given.setdefault(link.candidate, (link.type, link.forward or not DEFAULT[link.type].directed))
        for i, label in enumerate(case.labels):
            marks[label[0] is not None].append(answer.error is None and given.get(i, (None, True)) == label)
    return {"cases": len(drawn), "failed": failed, "decisions": len(marks[True]) + len(marks[False]),
            "accuracy": _mean(marks[True] + marks[False]), "related": _mean(marks[True]),
            "unrelated": _mean(marks[False])}


def _updated(writer: Writer, drawn: Sequence[UpdateCase]) -> dict[str, Any]:
    marks: dict[bool, list[bool]] = {True: [], False: []}
    failed = 0
    for case, answer in zip(drawn, writer.update([c.task for c in drawn])):
        failed += answer.error is not None
        right, given = ({p.new: p for p in x.placements if p.kind != "CURRENT"} for x in (case.answer, answer))
        for i in range(len(case.task.news)):
            marks[i in right].append(answer.error is None and given.get(i) == right.get(i))
        best = {v.candidate: v for v in case.answer.verdicts}
        found = {v.candidate: v for v in answer.verdicts if v.kind != "KEEP"}
        for i in range(len(case.task.candidates)):
            verdict = found.get(i)
            if i not in best:
                good = verdict is None
            else:
                good = verdict is not None and verdict.kind in case.accept[i] \
                    and (verdict.new == best[i].new or verdict.kind == "RESOLVED")
            marks[i in best].append(answer.error is None and good)
    return {"cases": len(drawn), "failed": failed, "decisions": len(marks[True]) + len(marks[False]),
            "accuracy": _mean(marks[True] + marks[False]), "changes": _mean(marks[True]),
            "defaults": _mean(marks[False])}


def _share(a: int, b: int) -> float | None:
    return a / b if b else None


def _mean(marks: Sequence[bool]) -> float | None:
    return _share(sum(marks), len(marks))
