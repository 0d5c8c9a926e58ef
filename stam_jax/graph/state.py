"""The memory of one patient: what holds, what held, what is gone, and how it came to that.

A State is a value: `apply` returns the next one and leaves this one as it was. It is a fold over updates and nothing
else: no clock, no place on disk. Standard library only.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from stam_jax.graph import canonical, redaction
from stam_jax.graph.clinical_time import later
from stam_jax.graph.invariants import Violation
from stam_jax.graph.invariants import check as check_invariants
from stam_jax.graph.memory import Entry, Memory, Tombstone
from stam_jax.graph.relations import DEFAULT, Relation, RelationTable, check_stored_form
from stam_jax.graph.transitions import IllegalTransition, Transition
from stam_jax.graph.update import Confirmation, Erased, Update
from stam_jax.graph.views import DateView, Why, date_view, explain


class StateError(ValueError):
    """An update that does not fit the state: a name that is not there, or is there already."""


class State:
    """Read `version`, `entries` (key -> Entry), `memories` (mid -> Memory, deleted ones absent), `places` (every mid ->
    ACTIVE, HISTORY or DELETED), `relations` (rid -> Relation), `transitions` (mid -> its moves, oldest first),
    `tombstones` and, in a view of the past (`past`), `erased`: what was deleted since. Do not change them.
    """

    def __init__(self, patient_id: str, *, table: RelationTable = DEFAULT):
        self.patient_id, self.table, self.version = patient_id, table, 0
        self.entries: dict[str, Entry] = {}
        self.entry_seq: dict[str, int] = {}
        self.memories: dict[str, Memory] = {}
        self.places: dict[str, str] = {}
        self.relations: dict[str, Relation] = {}
        self.transitions: dict[str, tuple[Transition, ...]] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.erased: dict[str, Erased] = {}
        self.past = False
        # (updates, load, loaded): the first `loaded` ones are still to be read; one attribute, so that threads that
        # share a state see all of it or nothing
        self._log: tuple[list[Update], Callable[[int], list[Update]] | None, int] = [], None, 0

    # ---- reading ----------------------------------------------------------------------------------------------

    def active(self) -> list[Memory]:
        """What currently holds, in the order of arrival."""
        return [m for m in self.memories.values() if m.store == "ACTIVE"]

    def history(self) -> list[Memory]:
        """What was superseded, resolved, corrected, restated or expired, or held before it was reported."""
        return [m for m in self.memories.values() if m.store == "HISTORY"]

    def memory(self, mid: str) -> Memory:
        """Raises: LookupError: this patient never had it, or it is deleted."""
        if (found := self.memories.get(mid)) is None:
            gone = "is deleted" if mid in self.places else "is not a memory of this patient"
            raise LookupError(f"patient {self.patient_id!r}: {mid!r} {gone}")
        return found

    def standing(self, mid: str) -> Transition | None:
        """The transition that put a memory into HISTORY, where it stands there or stood there when it was deleted."""
        if self.places.get(mid) == "ACTIVE":
            return None
        moves = self.transitions.get(mid, ())
        last = next((t for t in reversed(moves) if t.to != "DELETED"), None)
        return last if last is not None and last.to == "HISTORY" else None

    def successor(self, mid: str) -> str | None:
        """The memory that holds instead of one in HISTORY."""
        return None if (t := self.standing(mid)) is None else t.successor

    def chain(self, mid: str) -> list[Memory | Tombstone]:
        """The memory and what followed it, up to what holds now or ended without a successor. Raises: LookupError."""
        if mid not in self.places:
            self.memory(mid)
        out, seen, at = [], set(), mid
        while at is not None and at not in seen and (found := self.memories.get(at) or self.tombstones.get(at)):
            out.append(found)
            seen.add(at)
            at = self.successor(at)
        return out

    def predecessors(self, mid: str) -> list[str]:
        """Memories in HISTORY whose successor it is."""
        return [m for m in self.memories if self.successor(m) == mid]

    def why(self, mid: str) -> Why:
        """Where a memory came from and what moved it. Raises: LookupError: this patient never had it."""
        if mid not in self.places:
            self.memory(mid)
        return explain(self, mid)

    def as_of_seq(self, seq: int) -> State:
        """What the system knew after update `seq` (0 = nothing); what was erased since is missing there too.

        Raises: ValueError: no such update.
        """
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= self.version:
            raise ValueError(f"patient {self.patient_id!r}: update {seq!r}: expected 0 to {self.version}")
        view = State.replay(self.patient_id, self.updates()[:seq], table=self.table)
        view.past = seq < self.version
        return view

    def as_of_date(self, date: str) -> DateView:
        """What was true on a date, by all that is known now. Raises: RecordError: no date."""
        return date_view(self, date)

    def updates(self) -> list[Update]:
        """The updates that made this state, oldest first."""
        updates, load, loaded = self._log
        if load is not None:
            updates = [*load(loaded), *updates]
            self._log = updates, None, 0
        return updates[:self.version]

    def check(self, embedded: Collection[str] | None = None) -> list[Violation]:
        """Every violated invariant I1 to I15; I7 is looked at where the mids that have an embedding row are given."""
        return check_invariants(self, embedded)

    # ---- canonical form ---------------------------------------------------------------------------------------

    def canonical(self) -> str:
        """One text for one state, however it was reached."""
        return canonical.dumps({
            "patient_id": self.patient_id, "version": self.version,
            "entries": {k: canonical.to_dict(e) | {"update_seq": self.entry_seq[k]} for k, e in self.entries.items()},
            "memories": {k: canonical.to_dict(m) for k, m in self.memories.items()},
            "relations": {k: canonical.to_dict(r) for k, r in self.relations.items()},
            "transitions": {k: [canonical.to_dict(t) for t in ts] for k, ts in self.transitions.items()},
            "tombstones": {k: canonical.to_dict(t) for k, t in self.tombstones.items()},
            "erased": {k: canonical.to_dict(e) for k, e in self.erased.items()},
            "places": self.places,
        })

    @property
    def sha256(self) -> str:
        """Of the canonical form, in hexadecimal."""
        return canonical.sha256(self.canonical())

    # ---- change -----------------------------------------------------------------------------------------------

    def apply(self, update: Update) -> State:
        """The state after `update`; this one stays.

        Raises: StateError: it does not follow this version, or names what is not there; IllegalTransition.
        """
        after = self._copy()
        after._fold(update, trusted=False)
        if update.tombstones or update.redactions:
            after._log = _redacted(self.updates(), update), None, 0
        updates, load, loaded = after._log
        if len(updates) != self.version - loaded:  # another state went on from here
            after._log = updates[:self.version - loaded], load, loaded
        after._log[0].append(update)
        return after

    def stored(self, load: Callable[[int], list[Update]]) -> State:
        """This state, now in a journal: it lets go of its updates. load: version -> the updates up to it."""
        self._log = [], load, self.version
        return self

    @classmethod
    def replay(cls, patient_id: str, updates: Sequence[Update], *, table: RelationTable = DEFAULT) -> State:
        """The state that committed updates make: their moves are followed, their grounds are not judged again.

        Raises: StateError, IllegalTransition.
        """
        state = cls(patient_id, table=table)
        for update in updates:
            state._fold(update, trusted=True)
        state._log = list(updates), None, 0
        return state

    @classmethod
    def restore(cls, patient_id: str, version: int, entries: Iterable[tuple[Entry, int]], memories: Iterable[Memory],
                relations: Iterable[Relation], transitions: Iterable[Transition], tombstones: Iterable[Tombstone],
                load: Callable[[int], list[Update]], *, table: RelationTable = DEFAULT) -> State:
        """A state from its parts. load: version -> the updates up to it, called once they are asked for."""
        state = cls(patient_id, table=table)
        state.version = version
        state.stored(load)
        for entry, seq in entries:
            state.entries[entry.entry_key], state.entry_seq[entry.entry_key] = entry, seq
        state.memories = {m.mid: m for m in memories}
        state.tombstones = {t.mid: t for t in tombstones}
        state.places = {m.mid: m.store for m in state.memories.values()} | dict.fromkeys(state.tombstones, "DELETED")
        state.relations = {r.rid: r for r in relations}
        for t in transitions:
            state.transitions[t.mid] = (*state.transitions.get(t.mid, ()), t)
        return state

    def _copy(self) -> State:
        out = State.__new__(State)
        for name, value in vars(self).items():
            setattr(out, name, value.copy() if isinstance(value, dict) else value)
        return out

    def _fail(self, what: str):
        raise StateError(f"patient {self.patient_id!r}: update {self.version}: {what}")

    def _fold(self, update: Update, *, trusted: bool) -> None:
        if update.patient_id != self.patient_id:
            self._fail(f"belongs to patient {update.patient_id!r}")
        if update.seq != self.version + 1:
            self._fail(f"is followed by {self.version + 1}, got {update.seq}")
        self.version = update.seq
        for entry in update.entries:
            if entry.entry_key in self.entries:
                self._fail(f"entry {entry.entry_key} is there already")
            self.entries[entry.entry_key], self.entry_seq[entry.entry_key] = entry, update.seq
        for m in update.memories:
            self._insert(m, trusted)
        for r in update.relations:
            self._relate(r, trusted)
        for rid in update.withdrawn:
            if self.relations.pop(rid, None) is None:
                self._fail(f"relation {rid} is not there")
        shas = dict(update.tombstones)
        for t in update.transitions:
            self._move(t, shas, trusted)
        for m in update.memories:
            if m.store == "HISTORY" and self.transitions.get(m.mid, ())[:1] == ():
                self._fail(f"{m.mid} is inserted into HISTORY without its PRIOR_STATE")
        for c in update.confirmations:
            self._confirm(c, trusted)
        for c in update.retractions:
            if (m := self._living(c.mid, trusted)) is not None:
                kept = (m.provenance[0], *(p for p in m.provenance[1:] if p not in c.provenance))
                self.memories[c.mid] = canonical.replaced(m, provenance=kept)
        for mark in update.marks:
            if (m := self._living(mark.mid, trusted)) is not None:
                self.memories[mark.mid] = canonical.replaced(m, flags=mark.flags)
        for status in update.statuses:
            if (entry := self.entries.get(status.entry_key)) is None:
                self._fail(f"entry {status.entry_key} is not there")
            self.entries[status.entry_key] = canonical.replaced(entry, status=status.status)
        for r in update.redactions:
            if (entry := self.entries.get(r.entry_key)) is None:
                self._fail(f"entry {r.entry_key} is not there")
            self.entries[r.entry_key] = redaction.blank(entry, r.spans, whole=r.whole)

    def _living(self, mid: str, trusted: bool) -> Memory | None:
        if (found := self.memories.get(mid)) is None and not (trusted and mid in self.erased):
            self._fail(f"{mid} is {'deleted' if mid in self.places else 'not there'}")
        return found

    def _insert(self, m: Memory | Erased, trusted: bool) -> None:
        if m.mid in self.places:
            self._fail(f"{m.mid} is there already")
        self.places[m.mid] = m.store
        if isinstance(m, Erased):
            if not trusted:
                self._fail(f"{m.mid} is inserted without its content")
            self.erased[m.mid] = m
            return
        if m.patient_id != self.patient_id or m.update_seq != self.version:
            self._fail(f"{m.mid} belongs to patient {m.patient_id!r}, update {m.update_seq}")
        self._prove(m.mid, m.provenance, trusted)
        self.memories[m.mid] = m

    def _prove(self, mid: str, provenance, trusted: bool) -> None:
        for p in provenance:
            if (entry := self.entries.get(p.entry_key)) is None:
                self._fail(f"{mid} stands in entry {p.entry_key}, which is not there")
            if not trusted and p.verified and not p.holds(entry):
                self._fail(f"{mid} quotes [{p.start}, {p.end}) of entry {p.entry_key}, which says something else")

    def _relate(self, r: Relation, trusted: bool) -> None:
        check_stored_form(r, self.table)
        for mid in (r.src, r.dst):
            self._living(mid, trusted)
        if r.rid in self.relations:
            self._fail(f"relation {r.rid} ({r.type} from {r.src} to {r.dst}) is there already")
        self.relations[r.rid] = r

    def _confirm(self, c: Confirmation, trusted: bool) -> None:
        if (m := self._living(c.mid, trusted)) is not None:
            fresh = tuple(p for p in dict.fromkeys(c.provenance) if p not in m.provenance)
            self._prove(c.mid, fresh, trusted)
            self.memories[c.mid] = canonical.replaced(m, provenance=m.provenance + fresh)

    def _move(self, t: Transition, shas: dict[str, str], trusted: bool) -> None:
        before = self.transitions.get(t.mid, ())
        place = self.places.get(t.mid)
        if place is None:
            self._fail(f"{t.mid} is not there")
        new = place == "HISTORY" and not before
        if t.from_ != (None if new else place):
            raise IllegalTransition(f"patient {self.patient_id!r}: {t.mid}: {t.from_ or 'new'} -> {t.to} for "
                                    f"{t.reason}, but it is {'new' if new else place}")
        if not trusted:
            self._judge(t)
        self.transitions[t.mid] = (*before, t)
        self.places[t.mid] = t.to
        gone = self.memories.get(t.mid) or self.erased[t.mid]
        if t.to != "DELETED":
            if isinstance(gone, Memory):
                self.memories[t.mid] = canonical.replaced(gone, store=t.to)
            return
        if t.mid not in shas:
            self._fail(f"{t.mid} is deleted without the hash of its content")
        self.tombstones[t.mid] = Tombstone(t.mid, gone.experiencer, gone.update_seq, t.update_seq, t.reason,
                                           shas[t.mid], t.score, t.tau, t.calibration_id)
        self.memories.pop(t.mid, None)
        self.erased.pop(t.mid, None)
        self.relations = {k: r for k, r in self.relations.items() if t.mid not in (r.src, r.dst)}

    def _judge(self, t: Transition) -> None:
        """Raises: IllegalTransition: the grounds of a move do not hold."""
        def refuse(why: str):
            raise IllegalTransition(f"patient {self.patient_id!r}: {t.mid}: {t.reason}: {why}")

        m = self.memories[t.mid]
        for other in (t.successor, *t.also_by):
            if other is None:
                continue
            if (s := self.memories.get(other)) is None:
                refuse(f"{other} is {'deleted' if other in self.places else 'not a memory of this patient'}")
            if s.experiencer != m.experiencer:
                refuse(f"{other} is about {s.experiencer}, this about {m.experiencer}")
        if t.successor is not None:
            s = self.memories[t.successor]
            if t.reason != "CORRECTED" and t.order != "assumed" and later(m.clinical_time, s.clinical_time) == "yes":
                refuse(f"{t.successor} starts {s.clinical_time.start}, before {m.clinical_time.start}")
            if any(link.mid == t.mid for link in self.chain(t.successor)):
                refuse(f"{t.successor} is followed by {t.mid} itself")
        if (lost := next((rid for rid in t.way if rid not in self.relations), None)) is not None:
            refuse(f"relation {lost} is not there")
        if t.reason == "EXPIRED" and not any(
                e.date and m.clinical_time.ended_before(e.date) for e in reversed(self.entries.values())):
            refuse(f"no entry is dated after its end {m.clinical_time.end}")


def _redacted(updates: list[Update], update: Update) -> list[Update]:
    """Past updates without what `update` deletes."""
    gone, redactions = {mid for mid, _ in update.tombstones}, {r.entry_key: r for r in update.redactions}
    return [redaction.without(u, gone, redactions) for u in updates]
