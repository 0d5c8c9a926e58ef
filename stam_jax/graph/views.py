"""Two ways to look at a state: what was true on a date, and why a memory stands where it stands.

Standard library only.
"""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from stam_jax.graph.clinical_time import Order, bounds
from stam_jax.graph.memory import Entry, Memory, Provenance, Tombstone
from stam_jax.graph.relations import Relation
from stam_jax.graph.transitions import Transition

if TYPE_CHECKING:
    from stam_jax.graph.state import State


@dataclasses.dataclass(frozen=True, slots=True)
class DateView:
    """Memories by what the known dates say about `date`, each in the order of arrival.

    held: had begun and not ended. ended: was over. ahead: had not begun. uncertain: their dates do not decide it.
    What was corrected never held, and stands in none. An event, once begun, holds: it has happened.
    """

    date: str
    held: tuple[Memory, ...]
    ended: tuple[Memory, ...]
    ahead: tuple[Memory, ...]
    uncertain: tuple[Memory, ...]


def date_view(state: State, date: str) -> DateView:
    """Raises: RecordError: no date."""
    bounds(date)
    found: dict[str, list[Memory]] = {"held": [], "ended": [], "ahead": [], "uncertain": []}
    for m in state.memories.values():
        standing = state.standing(m.mid)
        if standing is not None and standing.reason == "CORRECTED":
            continue
        begun = _reached(m.clinical_time.start, date)
        over = [_reached(end, date) for end in ends(state, m, standing)]
        if "yes" in over:
            found["ended"].append(m)
        elif begun == "no":
            found["ahead"].append(m)
        elif begun == "yes" and all(o == "no" for o in over):
            found["held"].append(m)
        else:
            found["uncertain"].append(m)
    return DateView(date, **{name: tuple(ms) for name, ms in found.items()})


def _reached(moment: str | None, date: str) -> Order:
    """Whether `moment` had come on `date`; an unknown moment may have."""
    if moment is None:
        return "unknown"
    (first, last), (day, until) = bounds(moment), bounds(date)
    return "yes" if last <= day else "no" if first > until else "unknown"


def ends(state: State, m: Memory, standing: Transition | None) -> list[str | None]:
    """The moments from which it no longer held: none while it does, None where one is certain but undated."""
    ends: list[str | None] = [] if m.clinical_time.end is None else [m.clinical_time.end]
    if standing is None or standing.reason == "EXPIRED":
        return ends
    successor = state.memories.get(standing.successor or "")
    if successor is not None and successor.clinical_time.start is not None:
        return [*ends, successor.clinical_time.start]
    if standing.reason != "PRIOR_STATE":  # the entry that archived it
        dates = [e.date for key, e in state.entries.items() if state.entry_seq[key] == standing.update_seq and e.date]
        if dates:
            return [*ends, max(dates)]
    return ends or [None]


@dataclasses.dataclass(frozen=True, slots=True)
class Why:
    """Where a memory came from and what moved it.

    record: the memory, or what is left of it. sources: (entry, span) of each place that says it. transitions: all its
    moves, oldest first, each with rule or model line, grounds and score. relations: those that served as evidence and
    still stand, by rid. chain: mids from it to what holds now.
    """

    mid: str
    place: str
    record: Memory | Tombstone
    inserted_seq: int
    sources: tuple[tuple[Entry, Provenance], ...]
    transitions: tuple[Transition, ...]
    relations: dict[str, Relation]
    chain: tuple[str, ...]


def explain(state: State, mid: str) -> Why:
    """`mid` is one of the state's."""
    record = state.memories.get(mid) or state.tombstones.get(mid)
    if record is None:
        raise LookupError(f"patient {state.patient_id!r}: {mid!r} was erased after update {state.version}")
    moves = state.transitions.get(mid, ())
    here = isinstance(record, Memory)
    return Why(
        mid, state.places[mid], record, record.update_seq if here else record.inserted_seq,
        tuple((state.entries[p.entry_key], p) for p in record.provenance) if here else (), moves,
        {rid: state.relations[rid] for t in moves for rid in t.way if rid in state.relations},
        tuple(link.mid for link in state.chain(mid)),
    )
