"""What a writer hands in for one patient (Commit), and the numbered update that it becomes (Update).

Standard library only.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from core_jax.records import RecordError
from stam_jax.graph import canonical
from stam_jax.graph.memory import STATUSES, Entry, Memory, Provenance, flag_set, provenances
from stam_jax.graph.relations import Relation
from stam_jax.graph.transitions import Transition


@dataclasses.dataclass(frozen=True, slots=True)
class Confirmation:
    """More places that say what a memory says (rule R7). Raises: RecordError."""

    mid: str
    provenance: tuple[Provenance, ...]

    def __post_init__(self):
        canonical.text(self.mid, "mid")
        object.__setattr__(self, "provenance", canonical.sequence(self.provenance, "provenance", Provenance))
        if not self.provenance:
            raise RecordError("got none, expected at least one", field="provenance")


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """The flags that a memory has from now on. Raises: RecordError."""

    mid: str
    flags: frozenset[str] = frozenset()

    def __post_init__(self):
        canonical.text(self.mid, "mid")
        object.__setattr__(self, "flags", flag_set(self.flags))


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """The status that an entry has from now on. Raises: RecordError."""

    entry_key: str
    status: str

    def __post_init__(self):
        canonical.text(self.entry_key, "entry_key")
        canonical.choice(self.status, "status", STATUSES)


@dataclasses.dataclass(frozen=True, slots=True)
class Redaction:
    """Text of an entry that is gone. whole: source, author, date and kind went too (the patient was erased).

    spans: (start, end) offsets, sorted and apart. sha256: of what is left of the entry (`canonical.digest`), so that
    nothing can be put in its place.
    """

    entry_key: str
    sha256: str
    spans: tuple[tuple[int, int], ...] = ()
    whole: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Erased:
    """A memory in the update that inserted it, after its deletion: that it was there, and where it stood."""

    mid: str
    store: str
    experiencer: str
    update_seq: int


_ITEMS = {"entries": Entry, "memories": Memory, "relations": Relation, "transitions": Transition,
          "confirmations": Confirmation, "marks": Mark, "statuses": Status}


@dataclasses.dataclass(frozen=True, eq=False)
class Commit:
    """What one patient's entry (or entries) changed, written as one update or not at all.

    expected_version: the version of the state it was decided on; another one in the store refuses it.
    memories: `store` says where each goes; one in HISTORY needs its PRIOR_STATE among the transitions.
    transitions: in the order in which they happen. embeddings: mid -> [dim] floats, one of each inserted memory.
    counters: name -> count (`blocked_no_relation`); names are of small letters, since they outlive an erasure.
    model_hashes: name -> hash or id of the model or prompt that decided.

    Raises: RecordError naming the field.
    """

    patient_id: str
    expected_version: int
    entries: tuple[Entry, ...] = ()
    memories: tuple[Memory, ...] = ()
    relations: tuple[Relation, ...] = ()
    transitions: tuple[Transition, ...] = ()
    embeddings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    model_hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    confirmations: tuple[Confirmation, ...] = ()
    marks: tuple[Mark, ...] = ()
    statuses: tuple[Status, ...] = ()

    def __post_init__(self):
        canonical.text(self.patient_id, "patient_id")
        canonical.integer(self.expected_version, "expected_version", 0)
        for name, kind in _ITEMS.items():
            object.__setattr__(self, name, canonical.sequence(getattr(self, name), name, kind))
        for name in ("entries", "memories"):
            for i, item in enumerate(getattr(self, name)):
                if item.patient_id != self.patient_id:
                    raise RecordError(f"got {item.patient_id!r} in a commit of {self.patient_id!r}",
                                      field=f"{name}[{i}].patient_id")
        for name, value in self.counters.items():
            if not isinstance(name, str) or not re.fullmatch("[a-z0-9_]{1,64}", name):
                raise RecordError(f"got {name!r:.80}, expected a name such as bad_line", field="counters")
            canonical.integer(value, f"counters.{name}", 0)
        for name, value in self.model_hashes.items():
            canonical.text(name, "model_hashes")
            canonical.text(value, f"model_hashes.{name}")


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """Everything that one `update_seq` of one patient did. The journal holds its body.

    withdrawn: rids that are gone; retractions: provenance taken back (both by an undo, whose `reverts` names the
    update it undid). tombstones: (mid, sha256 of its content in the journal) of what it deleted.
    """

    patient_id: str
    seq: int
    entries: tuple[Entry, ...] = ()
    memories: tuple[Memory | Erased, ...] = ()
    relations: tuple[Relation, ...] = ()
    withdrawn: tuple[str, ...] = ()
    transitions: tuple[Transition, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    retractions: tuple[Confirmation, ...] = ()
    marks: tuple[Mark, ...] = ()
    statuses: tuple[Status, ...] = ()
    redactions: tuple[Redaction, ...] = ()
    tombstones: tuple[tuple[str, str], ...] = ()
    reverts: int | None = None
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    model_hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, commit: Commit) -> Update:
        """The update that follows the commit's expected version."""
        names = (*_ITEMS, "counters", "model_hashes")
        return cls(commit.patient_id, commit.expected_version + 1,
                   **{name: getattr(commit, name) for name in names}).numbered()

    def numbered(self) -> Update:
        """The same with this update's number on its memories, relations and transitions."""
        seq = self.seq
        return canonical.replaced(
            self,
            memories=tuple(canonical.replaced(m, update_seq=seq) for m in self.memories),
            relations=tuple(canonical.replaced(r, update_seq=seq) for r in self.relations),
            transitions=tuple(canonical.replaced(t, tid=f"t{seq}.{i}", update_seq=seq)
                              for i, t in enumerate(self.transitions)),
        )


# ---- bodies ---------------------------------------------------------------------------------------------------
# Free text stands only under "content", so that the journal can drop it and keep its hash (`journal.redact`).

_OUTSIDE = {"entries": ("entry_key",), "memories": ("mid", "store", "experiencer"), "confirmations": ("mid",),
            "retractions": ("mid",)}
_PLAIN = {"relations": Relation, "transitions": Transition, "marks": Mark, "statuses": Status, "redactions": Redaction}


def _leaf(item: Any, outside: tuple[str, ...]) -> dict[str, Any]:
    raw = canonical.to_dict(item)
    content = {k: v for k, v in raw.items() if k not in (*outside, "patient_id", "update_seq")}
    return {name: raw[name] for name in outside} | {"content": content}


def to_body(update: Update) -> dict[str, Any]:
    """JSON object of an update that has not been redacted; what is empty is left out."""
    body: dict[str, Any] = {}
    for name, outside in _OUTSIDE.items():
        body[name] = [_leaf(item, outside) for item in getattr(update, name)]
    for name in _PLAIN:
        body[name] = [canonical.to_dict(item) for item in getattr(update, name)]
    body["withdrawn"] = list(update.withdrawn)
    body["tombstones"] = [list(t) for t in update.tombstones]
    body["counters"], body["model_hashes"] = dict(update.counters), dict(update.model_hashes)
    body = {k: v for k, v in body.items() if v}
    return body if update.reverts is None else body | {"reverts": update.reverts}


def from_body(patient_id: str, seq: int, body: Any) -> Update:
    """Body, redacted or not -> Update. Raises: RecordError, IllegalTransition."""
    where = f"update {seq}"
    if not isinstance(body, dict):
        raise RecordError(f"got {type(body).__name__}, expected an object", field=where)
    known = {*_OUTSIDE, *_PLAIN, "withdrawn", "tombstones", "counters", "model_hashes", "reverts"}
    if unknown := sorted(body.keys() - known):
        raise RecordError("unknown field", field=f"{where}.{unknown[0]}")
    parts: dict[str, Any] = {name: body[name] for name in ("counters", "model_hashes", "reverts") if name in body}
    parts["withdrawn"] = tuple(body.get("withdrawn", ()))
    parts["tombstones"] = tuple((mid, sha) for mid, sha in body.get("tombstones", ()))
    parts["entries"] = tuple(
        Entry.from_dict(leaf.get("content", leaf.get("remains"))
                        | {"entry_key": leaf["entry_key"], "patient_id": patient_id}, f"{where}.entries[{i}]")
        for i, leaf in enumerate(body.get("entries", ())))
    parts["memories"] = tuple(
        Memory.from_dict(leaf["content"] | {name: leaf[name] for name in _OUTSIDE["memories"]}
                         | {"patient_id": patient_id, "update_seq": seq}, f"{where}.memories[{i}]") if "content" in leaf
        else Erased(leaf["mid"], leaf["store"], leaf["experiencer"], seq)
        for i, leaf in enumerate(body.get("memories", ())))
    for name in ("confirmations", "retractions"):
        parts[name] = tuple(
            Confirmation(leaf["mid"], provenances(leaf["content"]["provenance"], f"{where}.{name}[{i}]"))
            for i, leaf in enumerate(body.get(name, ())) if "content" in leaf)
    for name, kind in _PLAIN.items():
        parts[name] = tuple(_item(kind, raw, f"{where}.{name}[{i}]") for i, raw in enumerate(body.get(name, ())))
    return Update(patient_id, seq, **parts)


def _item(kind: type, raw: Any, where: str) -> Any:
    if kind is Transition:
        return Transition.from_dict(raw, where)
    if kind is Redaction:
        return canonical.from_dict(kind, raw, where, spans=tuple((a, b) for a, b in raw.get("spans", ())))
    return canonical.from_dict(kind, raw, where)
