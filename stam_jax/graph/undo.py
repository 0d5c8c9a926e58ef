"""Undo: an update that takes back what an earlier one did; nothing is removed from the journal.

What the earlier update inserted goes to HISTORY as CORRECTED, what it archived is reinstated, its relations and
confirmations are withdrawn, its entries are marked as reverted. Undoing an undo brings all of it back. A deletion
cannot be undone. A single memory that was archived wrongly is reinstated by a user, in words that stay with it.
Standard library only.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stam_jax.graph.memory import Entry, Provenance
from stam_jax.graph.transitions import Transition, archive, reinstate
from stam_jax.graph.update import Commit, Confirmation, Mark, Status, Update

if TYPE_CHECKING:
    from stam_jax.graph.state import State


class UndoRefused(ValueError):
    """An update that cannot be taken back. dependents: later updates that build on it, which would have to go first."""

    def __init__(self, message: str, dependents: Sequence[int] = ()):
        super().__init__(message)
        self.dependents = tuple(dependents)


def effective(updates: Sequence[Update]) -> set[int]:
    """Numbers of the updates that no later one has taken back."""
    out, reverted = set(), set()
    for u in reversed(updates):
        if u.seq not in reverted:
            out.add(u.seq)
            if u.reverts is not None:
                reverted.add(u.reverts)
    return out


def dependents(updates: Sequence[Update], seq: int) -> list[int]:
    """Later updates in effect that build on update `seq`, oldest first, without those that build on these.

    One builds on it that moves what it inserted or moved, names what it inserted as a successor, rests on a relation it
    stored, confirms what it inserted, or goes on with its entries.
    """
    base, standing = updates[seq - 1], effective(updates)
    inserted, keys = {m.mid for m in base.memories}, {e.entry_key for e in base.entries}
    moved, rids = inserted | {t.mid for t in base.transitions}, {r.rid for r in base.relations}

    def builds(u: Update) -> bool:
        return (
            any(t.mid in moved or inserted & {t.successor, *t.also_by} or not rids.isdisjoint(t.way)
                for t in u.transitions)
            or any(c.mid in inserted for c in (*u.confirmations, *u.retractions))
            or any(s.entry_key in keys for s in u.statuses)
            or any(p.entry_key in keys for m in (*u.memories, *u.confirmations) for p in getattr(m, "provenance", ()))
        )

    undone = {u.seq for u in updates if u.seq in standing and (u.reverts or 0) > seq}  # they and their targets cancel
    return [u.seq for u in updates[seq:] if u.seq in standing - undone and builds(u)]


def order(updates: Sequence[Update], seq: int, *, cascade: bool) -> list[int]:
    """The updates to take back so that `seq` is, latest first.

    Raises: UndoRefused: it is taken back already; others build on it and `cascade` is off. ValueError: no such update.
    """
    if isinstance(seq, bool) or not isinstance(seq, int) or not 1 <= seq <= len(updates):
        raise ValueError(f"update {seq!r}: expected 1 to {len(updates)}")
    if seq not in effective(updates):
        by = next(u.seq for u in reversed(updates) if u.reverts == seq)
        raise UndoRefused(f"update {seq} was reverted by update {by} already")
    found, waiting = {seq}, [seq]
    while waiting:
        fresh = set(dependents(updates, waiting.pop())) - found
        found |= fresh
        waiting += fresh
    if len(found) > 1 and not cascade:
        later = sorted(found - {seq})
        raise UndoRefused(f"update {seq}: updates {', '.join(map(str, later))} build on it; revert them first, or "
                          "cascade", later)
    return sorted(found, reverse=True)


def compensation(state: State, seq: int, *, by: str = "user:undo") -> Update:
    """The next update of `state`, which takes back update `seq`; nothing that is in effect builds on that.

    Raises: UndoRefused: it deleted something, or what it would bring back has lost its ground.
    """
    updates = state.updates()
    base, before = updates[seq - 1], state.as_of_seq(seq - 1)
    if base.tombstones or base.redactions or any(m.mid in state.tombstones for m in base.memories):
        raise UndoRefused(f"update {seq}: what was deleted cannot be brought back or taken back")
    places, moves = dict(state.places), []

    def move(t: Transition):
        moves.append(t)
        places[t.mid] = t.to

    for t in reversed(base.transitions):
        if t.from_ is None:
            continue  # an insertion: below
        if t.to == "HISTORY":
            move(reinstate(t.mid, "UNDO", decided_by=by))
        else:
            move(_again(state, t, by))
    for m in base.memories:
        if places[m.mid] == "HISTORY":
            move(reinstate(m.mid, "UNDO", decided_by=by))
        move(archive(m.mid, "CORRECTED", decided_by=by))

    inserted = {m.mid for m in base.memories}
    marked_later = {k.mid for u in updates[seq:] for k in u.marks}
    return Update(
        state.patient_id, state.version + 1, reverts=seq, transitions=tuple(moves),
        withdrawn=tuple(r.rid for r in base.relations if r.rid in state.relations),
        relations=tuple(r for rid in base.withdrawn
                        if (r := before.relations.get(rid)) and {r.src, r.dst} <= state.memories.keys()),
        retractions=tuple(
            Confirmation(c.mid, fresh) for c in base.confirmations
            if c.mid in before.memories and c.mid in state.memories
            and (fresh := tuple(p for p in c.provenance if p not in before.memories[c.mid].provenance))),
        confirmations=tuple(c for c in base.retractions if c.mid in state.memories),
        marks=tuple(Mark(k.mid, before.memories[k.mid].flags) for k in base.marks
                    if k.mid not in inserted | marked_later and k.mid in before.memories and k.mid in state.memories),
        statuses=(*(Status(e.entry_key, "reverted") for e in base.entries),
                  *(Status(s.entry_key, before.entries[s.entry_key].status) for s in base.statuses
                    if s.entry_key in before.entries)),
    ).numbered()


def reinstatement(state: State, mid: str, why: str, *, by: str = "user:reinstate") -> Commit:
    """What says that a memory in HISTORY holds after all.

    `why`, in a user's words, is an entry of its own and one more place that the memory cites: it is erased with it, and
    an undo of the update takes both back.

    Raises: LookupError: no such memory; UndoRefused: it holds, or it is over by its own planned end; ValueError: no
        words.
    """
    m, standing = state.memory(mid), state.standing(mid)
    if standing is None:
        raise UndoRefused(f"{mid} holds already")
    if standing.reason == "EXPIRED":
        raise UndoRefused(f"{mid} ended on {m.clinical_time.end}, as was planned; what goes on needs an entry that says "
                          "so")
    if not why.strip():
        raise ValueError("a reinstatement needs words that say why")
    head = f"{mid} holds again (update {state.version + 1}): "
    entry = Entry.of(state.patient_id, f"reinstatement/{state.version + 1}", "reinstatement", head + why.strip(),
                     author_role="user")
    span = Provenance.of(entry, len(head), len(entry.text))
    marks = (Mark(mid, m.flags - {"deletion_proposed"}),) if "deletion_proposed" in m.flags else ()
    return Commit(state.patient_id, state.version, (entry,), transitions=(reinstate(mid, decided_by=by),),
                  confirmations=(Confirmation(mid, (span,)),), marks=marks)


def _again(state: State, t: Transition, by: str) -> Transition:
    """The move back into HISTORY, for the reason that held before `t` reinstated the memory."""
    moves = state.transitions[t.mid]
    was = next(m for m in reversed(moves[:moves.index(t)]) if m.to == "HISTORY")
    reason = was.reason
    if reason == "PRIOR_STATE":  # which is for new memories only
        reason = "RESOLVED" if was.successor is None else "SUPERSEDED"
    return archive(t.mid, reason, successor=was.successor, also_by=was.also_by, order=was.order, decided_by=by)
