"""What is served for a question, by STAM and by its controls: one `serve` each, packets out.

The reader of a raw record is given the record's words; a reader without a model is given, beside them, the statements
that stand in those words, so that it reads every arm by the same eyes. NumPy, no JAX.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from stam_jax.baselines.external import Line, MemorySystem
from stam_jax.config import ReadConfig
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.state import State
from stam_jax.read.packet import Item, Packet
from stam_jax.read.render import render
from stam_jax.read.search import Vectors, packet, search
from stam_jax.write.chunks import chunks

Place = tuple[str, int, int]  # entry_key, start, end
NO_STATE = "raw"  # arm of a packet whose memories stand in no store


class Arm(Protocol):
    """One way to serve. Nothing that it returns depends on earlier questions."""

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet: ...


@dataclasses.dataclass(frozen=True, eq=False)
class FromMemory:
    """STAM's read path. told: False = the reader is not told where a memory stands, nor what followed it."""

    states: Mapping[str, State]
    vectors: Mapping[str, Vectors]
    config: ReadConfig = ReadConfig()
    arm: str = "BOTH"
    told: bool = True

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet:
        found = search(self.states[patient_id], self.vectors[patient_id], vector, self.config)
        served = packet(found, self.arm, self.config)
        if self.told:
            return served
        items = tuple(dataclasses.replace(i, place="ACTIVE", past=None) for i in served.items)
        return Packet(served.arm, items, render(items, labels=False, spans=self.config.spans), served.edges)


@dataclasses.dataclass(frozen=True, eq=False)
class FullContext:
    """The record as it stands, in the order of arrival; of more than `words` words the oldest are cut off."""

    entries: Mapping[str, Sequence[Entry]]
    states: Mapping[str, State]  # append-only: what the words say
    words: int | None = None

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet:
        kept: list[tuple[Entry, int]] = []  # newest first, from which character on
        room = self.words
        for e in reversed(self.entries[patient_id]):
            cut = 0 if room is None else _last_words(_headed(e), room)
            if cut is None:
                break
            kept.append((e, cut))
            room = None if room is None else room - len(_headed(e)[cut:].split())
        kept.reverse()
        parts = [(e.entry_key, max(0, cut - len(_headed(e)) + len(e.text)), len(e.text)) for e, cut in kept]
        text = "".join(_headed(e)[cut:] + "\n" for e, cut in kept)
        return Packet(NO_STATE, _said(self.states[patient_id], parts), text)


def _headed(e: Entry) -> str:
    return f"[{e.date or 'date unknown'}] {e.text}"


def _last_words(text: str, room: int) -> int | None:
    """Where the last `room` words of a text begin; None for none of them."""
    words = text.split()
    if room <= 0:
        return None
    if len(words) <= room:
        return 0
    at = len(text)
    for word in reversed(words[-room:]):
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


def pieces(entries: Sequence[Entry], words: int) -> list[Piece]:
    """Chunks of at most `words` words, entry by entry."""
    return [Piece(e, a, b) for e in entries for a, b in chunks(e.text, words)]


@dataclasses.dataclass(frozen=True, eq=False)
class FlatRag:
    """The `most` chunks that are most like the question, in the order of the record.

    vectors: [len(pieces), dim] of the chunks' texts, of unit length.
    """

    pieces: Mapping[str, Sequence[Piece]]
    vectors: Mapping[str, np.ndarray]
    states: Mapping[str, State]  # append-only: what the words say
    most: int

    def serve(self, patient_id: str, question: str, vector: np.ndarray) -> Packet:
        own = self.pieces[patient_id]
        likeness = np.round(self.vectors[patient_id] @ vector, 6) if own else np.empty(0)
        best = sorted(np.argsort(-likeness, kind="stable")[:self.most].tolist())
        chosen = [own[i] for i in best]
        text = "".join(p.text + "\n" for p in chosen)
        return Packet(NO_STATE, _said(self.states[patient_id], [(p.entry.entry_key, p.start, p.end) for p in chosen]),
                      text)


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
    out = []
    for m in state.memories.values():
        if any(p.entry_key == key and start <= p.start and p.end <= end
               for p in m.provenance for key, start, end in parts):
            out.append(Item(m, "ACTIVE", 0.0))
    return tuple(out)
