"""The invariants I1 to I15 of a patient's state, each checkable from outside.

    I1  each memory stands in exactly one store, and none is lost
    I2  texts never change
    I3  each memory in HISTORY has its reason, and the successor that it needs
    I4  successors form no circle and end in what holds or ended by itself
    I5  no relation ends in a deleted or foreign memory
    I6  updates are numbered without gaps and chained
    I7  one embedding row for each memory that is not deleted, made by the store's encoder
    I8  verified quotes stand in their entries
    I9  no successor is clinically earlier than what it follows
    I10 nothing moves without a committed update; nothing expires without a later entry
    I11 the journal, replayed, is the state
    I12 an entry is taken in once
    I13 nothing of a deleted memory is left
    I14 nothing that held is deleted, save at a user's request
    I15 patients never share a row

I7, I11 and I15 concern the store too: `Store.verify` looks at its rows and adds what it finds. Standard library only.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from stam_jax.graph import redaction
from stam_jax.graph.clinical_time import later
from stam_jax.graph.memory import memory_id
from stam_jax.graph.transitions import CHAIN_ENDS, LEGAL, SUCCESSOR_REQUIRED
from stam_jax.graph.update import Erased

if TYPE_CHECKING:
    from stam_jax.graph.state import State


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name, the patient, and what is wrong."""

    invariant: str
    patient_id: str
    message: str

    def __str__(self):
        return f"{self.invariant}: patient {self.patient_id!r}: {self.message}"


def check(state: State, embedded: Collection[str] | None = None) -> list[Violation]:
    """Every violation, ordered by invariant. embedded: mids that have an embedding row."""
    parts = [_places, _texts, _history, _chains, _relations, _numbers, _quotes, _order, _moves, _replay, _entries,
             _deleted, _owners]
    found = [Violation(name, state.patient_id, message) for part in parts for name, message in part(state)]
    if embedded is not None:
        found += [Violation("I7", state.patient_id, message) for message in _rows(state, set(embedded))]
    return sorted(found, key=lambda v: (int(v.invariant[1:]), v.message))


_Found = Iterator[tuple[str, str]]


def _places(state: State) -> _Found:
    for mid, place in state.places.items():
        m, tombstone, erased = state.memories.get(mid), state.tombstones.get(mid), state.erased.get(mid)
        if (m is not None) + (tombstone is not None) + (erased is not None) != 1:
            yield "I1", f"{mid} stands in more than one store, or in none"
        elif (tombstone is not None) != (place == "DELETED") or (m is not None and m.store != place):
            yield "I1", f"{mid} stands in another store than {place}"
    for mid in (state.memories.keys() | state.tombstones.keys()) - state.places.keys():
        yield "I1", f"{mid} was never inserted"


def _texts(state: State) -> _Found:
    for mid, m in state.memories.items():
        first = m.provenance[0]
        if memory_id(m.patient_id, first.entry_key, first.chunk, m.ordinal, m.text) != mid or m.mid != mid:
            yield "I2", f"{mid} is not the id of its text"


def _history(state: State) -> _Found:
    gone = {mid: t.update_seq for mid, t in state.tombstones.items()}
    for mid in state.places:
        for t in state.transitions.get(mid, ()):
            if t.to != "HISTORY":
                continue
            if t.reason in SUCCESSOR_REQUIRED and t.successor is None:
                yield "I3", f"{mid} is {t.reason} by nothing"
            for other in (t.successor, *t.also_by):
                if other is None:
                    continue
                if other not in state.places:
                    yield "I3", f"{mid} is followed by {other}, which is no memory of this patient"
                elif gone.get(other, t.update_seq) < t.update_seq:
                    yield "I3", f"{mid} is followed by {other}, which was deleted before"
                elif _experiencer(state, other) != _experiencer(state, mid):
                    yield "I3", f"{mid} is followed by {other}, which is about {_experiencer(state, other)}"
        if state.places[mid] == "HISTORY" and state.standing(mid) is None:
            yield "I3", f"{mid} stands in HISTORY without a reason"


def _experiencer(state: State, mid: str) -> str:
    record = state.memories.get(mid) or state.tombstones.get(mid) or state.erased.get(mid)
    return "nobody" if record is None else record.experiencer


def _chains(state: State) -> _Found:
    for mid, place in state.places.items():
        if place != "HISTORY":
            continue
        at, seen = mid, {mid}
        while (following := state.successor(at)) is not None and following in state.places:
            if following in seen:
                yield "I4", f"successors of {mid} run in a circle"
                break
            seen.add(following)
            at = following
        else:
            standing = state.standing(at)
            if following is None and state.places[at] == "HISTORY" and standing and standing.reason not in CHAIN_ENDS:
                yield "I4", f"successors of {mid} end in {at}, which is {standing.reason}"


def _relations(state: State) -> _Found:
    stored = set()
    for rid, r in state.relations.items():
        for mid in (r.src, r.dst):
            if mid not in state.memories and mid not in state.erased:
                yield "I5", f"relation {rid} ends in {mid}, which is {'deleted' if mid in state.places else 'foreign'}"
        if (key := (r.src, r.dst, r.type)) in stored:
            yield "I5", f"relation {rid} stands twice"
        stored.add(key)


def _numbers(state: State) -> _Found:
    if (got := [u.seq for u in state.updates()]) != list(range(1, state.version + 1)):
        yield "I6", f"version {state.version} has updates {got}"
    numbered = [m.update_seq for m in state.memories.values()] + [r.update_seq for r in state.relations.values()]
    numbered += [t.update_seq for ts in state.transitions.values() for t in ts]
    if any(not 1 <= n <= state.version for n in numbered):
        yield "I6", f"a row names an update that is not among 1 to {state.version}"


def _quotes(state: State) -> _Found:
    for mid, m in state.memories.items():
        for p in m.provenance:
            entry = state.entries.get(p.entry_key)
            if entry is None:
                yield "I8", f"{mid} stands in entry {p.entry_key}, which is not there"
            elif p.verified and not p.holds(entry):
                yield "I8", f"{mid} quotes [{p.start}, {p.end}) of entry {p.entry_key}, which says something else"


def _order(state: State) -> _Found:
    for mid, m in state.memories.items():
        for t in state.transitions.get(mid, ()):
            s = state.memories.get(t.successor or "")
            if s is None or t.reason == "CORRECTED" or t.order == "assumed":
                continue
            if later(m.clinical_time, s.clinical_time) == "yes":
                yield "I9", f"{mid} starts {m.clinical_time.start}, its successor {s.mid} {s.clinical_time.start}"


def _moves(state: State) -> _Found:
    for mid, place in state.places.items():
        moves = state.transitions.get(mid, ())
        at: str | None = None if moves and moves[0].from_ is None else "ACTIVE"
        for t in moves:
            if t.from_ != at or t.reason not in LEGAL.get((t.from_, t.to), ()):
                yield "I10", f"{mid}: {t.from_ or 'new'} -> {t.to} for {t.reason}, where it was {at or 'new'}"
            if at == "ACTIVE" and t.to == "DELETED" and t.reason != "ERASURE_REQUEST":
                yield "I14", f"{mid} was deleted out of ACTIVE for {t.reason}"
            if t.reason == "EXPIRED" and (m := state.memories.get(mid)) is not None:
                dated = [e.date for k, e in state.entries.items() if state.entry_seq[k] <= t.update_seq and e.date]
                if not any(m.clinical_time.ended_before(date) for date in dated):
                    yield "I10", f"{mid} expired, but no entry was dated after its end {m.clinical_time.end}"
            at = t.to
        if at != place:
            yield "I10", f"{mid} stands in {place}, its transitions end in {at or 'nothing'}"
    for mid in state.transitions.keys() - state.places.keys():
        yield "I10", f"{mid} has transitions, but was never inserted"


def _replay(state: State) -> _Found:
    try:
        replayed = type(state).replay(state.patient_id, state.updates(), table=state.table)
    except (ValueError, LookupError) as e:
        yield "I11", f"the updates cannot be replayed: {e}"
        return
    if replayed.canonical() != state.canonical():
        yield "I11", "the updates, replayed, give another state"


def _entries(state: State) -> _Found:
    keys = [e.entry_key for u in state.updates() for e in u.entries]
    if sorted(keys) != sorted(state.entries):
        yield "I12", "entries are not those of the updates, each taken in once"


def _deleted(state: State) -> _Found:
    gone = state.tombstones.keys()
    for mid in gone & state.memories.keys():
        yield "I13", f"{mid} is deleted, but its content is there"
    last = {r.entry_key: r for u in state.updates() for r in u.redactions}
    for key, r in last.items():
        if not state.past and redaction.fingerprint(state.entries[key]) != r.sha256:
            yield "I13", f"entry {key} is not what its redaction left"
    for update in state.updates():
        for item in (*update.memories, *update.confirmations, *update.retractions):
            if item.mid in gone and not isinstance(item, Erased):
                yield "I13", f"update {update.seq} still holds the content of {item.mid}, which is deleted"


def _owners(state: State) -> _Found:
    for item in (*state.memories.values(), *state.entries.values()):
        if item.patient_id != state.patient_id:
            yield "I15", f"{getattr(item, 'mid', None) or item.entry_key} belongs to patient {item.patient_id!r}"


def _rows(state: State, embedded: set[str]) -> Iterator[str]:
    for mid in sorted(state.memories.keys() - embedded):
        yield f"{mid} has no embedding row"
    for mid in sorted(embedded - state.memories.keys()):
        yield f"{mid} has an embedding row, but is {'deleted' if mid in state.places else 'not there'}"
