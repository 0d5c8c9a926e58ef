"""What is served for one question: memories with where they stand, and the text that a reader is given.

Standard library only.
"""
from __future__ import annotations

import dataclasses

from stam_jax.graph import canonical
from stam_jax.graph.memory import Memory

ARMS = ("BOTH", "ACTIVE", "REFILLED")


@dataclasses.dataclass(frozen=True, slots=True)
class Past:
    """Why a memory is past.

    reason: of its transition, or ENDED where its own dates ended it. successor: the mid that holds instead, where the
    view knows one. by: what that says, in words. on: the date from which it was past, None = unknown.
    """

    reason: str
    successor: str | None = None
    by: str | None = None
    on: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One memory of a packet. place: ACTIVE or HISTORY in the view that was searched (which may be of another day).

    cosine: to the question. past: of a memory in HISTORY. source: the words of the entry that prove it, None where they
    were not verified or are gone.
    """

    memory: Memory
    place: str
    cosine: float
    past: Past | None = None
    source: str | None = None

    @property
    def mid(self) -> str:
        return self.memory.mid


@dataclasses.dataclass(frozen=True, slots=True)
class Edge:
    """A relation between two served memories; one that followed an end of the relation stands for it."""

    src: str
    dst: str
    type: str


@dataclasses.dataclass(frozen=True, slots=True)
class Packet:
    """arm: BOTH, ACTIVE (BOTH without HISTORY, not filled up) or REFILLED (ACTIVE, filled up).

    items: the best first. text: what a reader is given. edges: between the items, for readers without a model.
    """

    arm: str
    items: tuple[Item, ...]
    text: str
    edges: tuple[Edge, ...] = ()

    @property
    def sha256(self) -> str:
        """Of the text's UTF-8 bytes, in hexadecimal."""
        return canonical.sha256(self.text)

    @property
    def mids(self) -> tuple[str, ...]:
        return tuple(item.mid for item in self.items)

    @property
    def words(self) -> int:
        return len(self.text.split())
