"""The one protocol behind which writers stand (rules, a local model, an endpoint), and what goes in and comes out.

    extract  entries -> drafts                    state-free: may run for the whole record ahead of time
    link     new memory, candidates -> links
    update   new memories, impact set -> where the new ones go, what becomes of the old ones

A writer proposes; `stam_jax.write.arbitrate` decides. Candidates are named by their place in the task, so that a writer never
sees an id. Every method answers in the order of its tasks, and raises for no task's sake: a task that failed says so.
Standard library only.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.relations import Relation

PLACEMENTS = ("CURRENT", "PRIOR", "SAME")
VERDICTS = ("KEEP", "SUPERSEDED", "RESOLVED", "CORRECTED")


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """One statement as a writer gives it, before it is checked against its entry.

    quote: the words of the entry that say it. span: their (start, end) in the entry's text, where the writer knows
    them; None = to be found. time: time words as they stand ("two weeks ago"), None = the entry's own date.
    The other fields are those of `stam_jax.graph.memory.Memory`.
    """

    statement: str
    quote: str
    chunk: int = 0
    span: tuple[int, int] | None = None
    kind: str = "STATE"
    concept: str | None = None
    attribute: str | None = None
    value: str | None = None
    unit: str | None = None
    polarity: str = "AFFIRMED"
    experiencer: str = "PATIENT"
    time: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Extraction:
    """Drafts of one entry, in the order of the text. problems: kind -> count (`bad_line`). error: it failed, and why."""

    drafts: tuple[Draft, ...] = ()
    problems: Mapping[str, int] = dataclasses.field(default_factory=dict)
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LinkTask:
    """Which relations does `memory` have with each candidate? Writers are not shown where a candidate stands."""

    entry: Entry
    memory: Memory
    candidates: tuple[Memory, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """candidate: place among the task's. forward: the relation goes from the new memory to the candidate."""

    candidate: int
    type: str
    forward: bool = True
    confidence: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class LinkAnswer:
    links: tuple[Link, ...] = ()
    problems: Mapping[str, int] = dataclasses.field(default_factory=dict)
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Affected:
    """A candidate of an update: a memory, and the relations along which it was reached from the new ones (none where
    likeness alone found it)."""

    memory: Memory
    path: tuple[Relation, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateTask:
    """news: memories of the entry, at most G of them. candidates: their impact sets, joined."""

    entry: Entry
    news: tuple[Memory, ...]
    candidates: tuple[Affected, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """new CURRENT, new PRIOR to candidate, new SAME as candidate. new, candidate: places in the task."""

    new: int
    kind: str
    candidate: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a candidate. new: the memory that does it. delete: deletion is proposed too."""

    candidate: int
    kind: str
    new: int | None = None
    delete: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateAnswer:
    """What is not named stays: a new memory CURRENT, a candidate KEEP."""

    placements: tuple[Placement, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    problems: Mapping[str, int] = dataclasses.field(default_factory=dict)
    error: str | None = None


@runtime_checkable
class Writer(Protocol):
    """decider: "rule" or "model", which stands in front of `Transition.decided_by`. hashes: name -> model id or prompt
    hash, written to the journal."""

    decider: str
    hashes: Mapping[str, str]

    def extract(self, entries: Sequence[Entry]) -> list[Extraction]: ...

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]: ...

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]: ...
