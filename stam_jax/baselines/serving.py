"""What is served for a question, by STAM and by its controls: one `serve` each, packets out.

The reader of a raw record is given the record's words; a reader without a model is given, beside them, the statements
that stand in those words, so that it reads every arm by the same eyes. What of the entries was served is known of every
arm (`places`): by the words of a raw packet, by the places that a memory cites. NumPy, no JAX.
"""
from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from stam_jax.baselines.external import Line, MemorySystem
from stam_jax.config import ReadConfig
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.state import State
from stam_jax.read.packet import Item, Packet
from stam_jax.read.render import line, render
from stam_jax.read.search import Vectors, packet, search
from stam_jax.write.chunks import chunks

Place = tuple[str, int, int]  # entry_key, start, end
NO_STATE = "raw"  # arm of a packet whose memories stand in no store


@dataclasses.dataclass(frozen=True, slots=True)
class Raw(Packet):
    """A packet of an entry's own words. spans: which of them. cut: whether the oldest words of a record that should be
    whole were left out; None = what was chosen from it."""

    spans: tuple[Place, ...] = ()
    cut: bool | None = None


def places(packet: Packet) -> dict[str, list[tuple[int, int]]]:
    """entry_key -> [start, end) of its text that a packet serves, in order, none touching the next.

    Of a packet of memories, where a quote was not found nothing is served, since then the whole chunk is cited.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    spans = packet.spans if isinstance(packet, Raw) else (
        (p.entry_key, p.start, p.end) for i in packet.items for p in i.memory.provenance if p.verified)
    for key, start, end in spans:
        found.setdefault(key, []).append((start, end))
    for key, own in found.items():
        joined: list[tuple[int, int]] = []
        for start, end in sorted(own):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        found[key] = joined
    return found


def words(text: str) -> int:
    """The length of a text to a reader without a tokenizer."""
    return len(text.split())


class Arm(Protocol):
    """One way to serve. Nothing that it returns depends on earlier questions."""

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet: ...


@dataclasses.dataclass(frozen=True, eq=False)
class FromMemory:
    """STAM's read path. told: False = the reader is not told where a memory stands, nor what followed it. count:
    tokens of a text as the reader counts them, for a budget in tokens."""

    states: Mapping[str, State]
    vectors: Mapping[str, Vectors]
    config: ReadConfig = ReadConfig()
    arm: str = "BOTH"
    told: bool = True
    count: Callable[[str], int] | None = None

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet:
        found = search(self.states[patient_id], self.vectors[patient_id], vector, self.config)
        served = packet(found, self.arm, self.config, self.count)
        if self.told:
            return served
        items = tuple(dataclasses.replace(i, place="ACTIVE", past=None) for i in served.items)
        return Packet(served.arm, items, render(items, labels=False, spans=self.config.spans), served.edges)

    def lengths(self, patient_id: str, vector: np.ndarray, count: Callable[[str], int]) -> list[int]:
        """How long the packet of both stores would be with its first 1, 2, ... `config.most` memories, line by line."""
        found = search(self.states[patient_id], self.vectors[patient_id], vector, self.config)
        lines = (line(i, labels=self.told and self.config.labels, spans=self.config.spans)
                 for i in found.ranked()[:self.config.most])
        return list(itertools.accumulate(count(text) for text in lines))


@dataclasses.dataclass(frozen=True, eq=False)
class FullContext:
    """The record as it stands, in the order of arrival; where it is longer than `most`, the oldest words are cut off.

    count: the length of a text to the reader; `most` is in its unit, None = no limit. The packet does not depend on the
    question.
    """

    entries: Mapping[str, Sequence[Entry]]
    states: Mapping[str, State]  # append-only: what the words say
    most: int | None = None
    count: Callable[[str], int] = words
    _made: dict[str, Raw] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Raw:
        if patient_id not in self._made:
            self._made[patient_id] = self._packet(patient_id)
        return self._made[patient_id]

    def _packet(self, patient_id: str) -> Raw:
        own, most = self.entries[patient_id], self.most
        size = sum(words(_headed(e)) for e in own)
        kept = size
        if most is not None and self.count is words:
            kept = min(size, most)
        elif most is not None and self.count(_text(_last(own, size))) > most:
            low, high = 0, size - 1
            while low < high:
                middle = (low + high + 1) // 2
                fits = self.count(_text(_last(own, middle))) <= most
                low, high = (middle, high) if fits else (low, middle - 1)
            kept = low
        parts = _last(own, kept)
        spans = tuple((e.entry_key, max(0, cut - len(_headed(e)) + len(e.text)), len(e.text)) for e, cut in parts)
        return Raw(NO_STATE, _said(self.states[patient_id], spans), _text(parts), spans=spans, cut=kept < size)


def _last(entries: Sequence[Entry], room: int) -> list[tuple[Entry, int]]:
    """The last `room` words of a record: its entries, and from which character on each is kept."""
    kept: list[tuple[Entry, int]] = []
    for e in reversed(entries):
        cut = _last_words(_headed(e), room)
        if cut is None:
            break
        kept.append((e, cut))
        room -= words(_headed(e)[cut:])
    return kept[::-1]


def _text(parts: Sequence[tuple[Entry, int]]) -> str:
    return "".join(_headed(e)[cut:] + "\n" for e, cut in parts)


def _headed(e: Entry) -> str:
    return f"[{e.date or 'date unknown'}] {e.text}"


def _last_words(text: str, room: int) -> int | None:
    """Where the last `room` words of a text begin; None for none of them."""
    found = text.split()
    if room <= 0:
        return None
    if len(found) <= room:
        return 0
    at = len(text)
    for word in reversed(found[-room:]):
        at = text.rindex(word, 0, at)
    return at


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """A chunk of an entry: [start, end) of its text."""

    entry: Entry
    start: int
    end: int

    @property
    def text(self) -> str:
        return f"[{self.entry.date or 'date unknown'}] {self.entry.text[self.start:self.end].strip()}"


def pieces(entries: Sequence[Entry], most: int) -> list[Piece]:
    """Chunks of at most `most` words, entry by entry."""
    return [Piece(e, a, b) for e in entries for a, b in chunks(e.text, most)]


@dataclasses.dataclass(frozen=True, eq=False)
class FlatRag:
    """The `most` chunks that are most like the question, in the order of the record.

    vectors: [len(pieces), dim] of the chunks' texts, of unit length.
    """

    pieces: Mapping[str, Sequence[Piece]]
    vectors: Mapping[str, np.ndarray]
    states: Mapping[str, State]  # append-only: what the words say
    most: int

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Raw:
        own = self.pieces[patient_id]
        likeness = np.round(self.vectors[patient_id] @ vector, 6) if own else np.empty(0)
        best = sorted(np.argsort(-likeness, kind="stable")[:self.most].tolist())
        chosen = [own[i] for i in best]
        text = "".join(p.text + "\n" for p in chosen)
        spans = tuple((p.entry.entry_key, p.start, p.end) for p in chosen)
        return Raw(NO_STATE, _said(self.states[patient_id], spans), text, spans=spans)


@dataclasses.dataclass(frozen=True, eq=False)
class FromSystem:
    """Another memory system: what its search returns, one line each.

    read: a line of a patient -> what it says, for a reader without a model. Its places are not those of the record.
    """

    system: MemorySystem
    most: int
    read: Callable[[str, Line], Sequence[Memory]]

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet:
        found = self.system.search(patient_id, question, self.most)
        text = "".join(f"[{f.date or 'date unknown'}] {' '.join(f.text.split())}\n" for f in found)
        items = {m.mid: Item(m, "ACTIVE", 0.0) for f in found for m in self.read(patient_id, f)}
        return Packet(NO_STATE, tuple(items.values()), text)


def _said(state: State, parts: Sequence[Place]) -> tuple[Item, ...]:
    """The statements of which the words stand within the parts."""
    of: dict[str, list[tuple[int, int]]] = {}
    for key, start, end in parts:
        of.setdefault(key, []).append((start, end))
    return tuple(Item(m, "ACTIVE", 0.0) for m in state.memories.values()
                 if any(start <= p.start and p.end <= end
                        for p in m.provenance for start, end in of.get(p.entry_key, ())))
