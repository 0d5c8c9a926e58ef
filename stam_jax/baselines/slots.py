"""Controls of the write path without arbitration: the same memories, kept apart or moved by one bare rule.

Both take a state that was made with `restatement="keep_both"`, so that each statement is a memory of its own, and read
no more of it than what arrived when. Standard library only.
"""
from __future__ import annotations

from collections.abc import Collection

from stam_jax.graph import canonical
from stam_jax.graph.memory import Memory
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition, archive
from stam_jax.graph.update import Commit, Update


def append_only(state: State) -> State:
    """Everything that was ever said, in ACTIVE."""
    return _replayed(state, frozenset())


def same_slot(state: State, attributes: Collection[str] | None = None) -> State:
    """The last to arrive of a slot (experiencer, concept, attribute) holds; those before it were superseded, or
    restated where they say the same. attributes: only slots of these; None = all.

    It looks at no date, no polarity and no relation.
    """
    return _replayed(state, attributes)


def _replayed(state: State, attributes: Collection[str] | None) -> State:
    out = State(state.patient_id, table=state.table)
    held: dict[tuple, Memory] = {}
    for update in state.updates():
        memories = [canonical.replaced(m, store="ACTIVE", update_seq=0) for m in update.memories]
        moves: list[Transition] = []
        for m in memories:
            if None in m.slot or (attributes is not None and m.attribute not in attributes):
                continue
            key = (m.experiencer, *m.slot)
            if (old := held.get(key)) is not None:
                same = (old.value, old.unit, old.polarity) == (m.value, m.unit, m.polarity)
                moves.append(archive(old.mid, "RESTATED" if same else "SUPERSEDED", successor=m.mid, order="assumed",
                                     decided_by="rule:same slot"))
            held[key] = m
        out = out.apply(Update.of(Commit(state.patient_id, out.version, update.entries, tuple(memories),
                                         transitions=tuple(moves))))
    return out
