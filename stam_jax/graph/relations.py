"""Typed clinical relations between the memories of one patient (paper 3.2; defaults are ours, docs/choices.md).

Standard library only.
"""
from __future__ import annotations

import dataclasses
from typing import Any

from core_jax.records import RecordError
from stam_jax.graph import canonical

ORIGINS = ("LINKER", "RULE", "USER")


@dataclasses.dataclass(frozen=True, slots=True)
class RelationType:
    """directed: (src, dst) differs from (dst, src). archive_admissible: new evidence may archive along it.
    expand: impact retrieval walks it."""

    name: str
    directed: bool = False
    archive_admissible: bool = False
    expand: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class RelationTable:
    """The relation types of a store, in the order in which they win (rule R10).

    Raises: RecordError: a name twice, or the name NONE, which is the linker's answer for "no relation".
    """

    types: tuple[RelationType, ...]

    def __post_init__(self):
        names = [t.name for t in self.types]
        for name in names:
            canonical.text(name, "name")
            if name == "NONE" or names.count(name) > 1:
                raise RecordError(f"got {name!r} {names.count(name)} times, expected distinct names, none of them NONE",
                                  field="types")

    def __getitem__(self, name: str) -> RelationType:
        """Raises: RecordError: no such type."""
        for t in self.types:
            if t.name == name:
                return t
        raise RecordError(f"got {name!r:.80}, expected one of {[t.name for t in self.types]}", field="type")


DEFAULT = RelationTable((
    RelationType("restatement", archive_admissible=True),
    RelationType("same_condition_thread", archive_admissible=True),
    RelationType("drug_interaction"),
    RelationType("systemic_link"),
    RelationType("causal", directed=True),
    RelationType("treatment_for", directed=True, archive_admissible=True),
    RelationType("monitoring_for", directed=True, archive_admissible=True),
))


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """src, dst: mids. update_seq: the update that stored it; 0 until then. One (src, dst, type) stands once.

    Raises: RecordError naming the field.
    """

    rid: str
    src: str
    dst: str
    type: str
    confidence: float = 1.0
    origin: str = "RULE"
    update_seq: int = 0

    def __post_init__(self):
        for name in ("rid", "src", "dst", "type"):
            canonical.text(getattr(self, name), name)
        canonical.share(self.confidence, "confidence")
        canonical.choice(self.origin, "origin", ORIGINS)
        canonical.integer(self.update_seq, "update_seq", 0)
        object.__setattr__(self, "confidence", float(self.confidence))
        if self.src == self.dst:
            raise RecordError(f"got {self.src} on both ends", field="dst")
        if (expected := relation_id(self.src, self.dst, self.type)) != self.rid:
            raise RecordError(f"got {self.rid!r}, expected {expected!r} for these ends and type", field="rid")

    @classmethod
    def of(cls, src: str, dst: str, type: str, *, table: RelationTable = DEFAULT, **fields) -> Relation:
        """A relation in its stored form: a symmetric type has the smaller mid as src. Raises: RecordError."""
        if not table[type].directed and dst < src:
            src, dst = dst, src
        return cls(relation_id(src, dst, type), src, dst, type, **fields)

    @classmethod
    def from_dict(cls, raw: Any, where: str = "relation") -> Relation:
        """Raises: RecordError."""
        return canonical.from_dict(cls, raw, where)

    def other(self, mid: str) -> str:
        """The end that is not `mid`."""
        return self.dst if mid == self.src else self.src


def relation_id(src: str, dst: str, type: str) -> str:
    return canonical.identifier("r", src, dst, type)


def check_stored_form(relation: Relation, table: RelationTable) -> None:
    """Raises: RecordError: a type that the table lacks, a symmetric relation the wrong way round."""
    if not table[relation.type].directed and relation.dst < relation.src:
        raise RecordError(f"got {relation.src} before {relation.dst}, expected the smaller first ({relation.type} is "
                          "symmetric)", field="src")
