"""What a memory consists of, in numbers: counts by place, reason and type, ages, sizes. Standard library only."""
from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from stam_jax.graph.clinical_time import bounds
from stam_jax.graph.state import State


def census(states: Iterable[State]) -> dict[str, Any]:
    """A JSON object over all patients.

    memories: by ACTIVE, HISTORY, DELETED. history: by the reason for which they stand there. age_days: from a memory's
    first day to the last day that its patient's entries know, `undated` ones left out and `ahead` those that begin
    later. archived: share of HISTORY among ACTIVE and HISTORY. No clock is read.
    """
    names = ("memories", "history", "kinds", "attributes", "polarities", "experiencers", "flags", "transitions",
             "deciders", "relations", "entries")
    count: dict[str, Counter[str]] = {name: Counter() for name in names}
    ages: dict[str, list[int]] = {"ACTIVE": [], "HISTORY": []}
    undated, ahead = Counter(dict.fromkeys(ages, 0)), Counter(dict.fromkeys(ages, 0))
    sizes: dict[str, list[int]] = {"entry_characters": [], "statement_words": [], "memories_of_a_patient": [],
                                   "updates_of_a_patient": []}
    for state in states:
        count["memories"].update(state.places.values())
        count["entries"].update(e.status for e in state.entries.values())
        count["relations"].update(r.type for r in state.relations.values())
        moves = [t for ts in state.transitions.values() for t in ts]
        count["transitions"].update(t.reason for t in moves)
        count["deciders"].update(t.decided_by.split(":")[0] for t in moves)
        last = max((bounds(e.date)[1] for e in state.entries.values() if e.date), default=None)
        for m in state.memories.values():
            if (standing := state.standing(m.mid)) is not None:
                count["history"][standing.reason] += 1
            count["kinds"][m.kind] += 1
            count["attributes"][m.attribute or "none"] += 1
            count["polarities"][m.polarity] += 1
            count["experiencers"][m.experiencer] += 1
            count["flags"].update(m.flags)
            sizes["statement_words"].append(len(m.text.split()))
            if m.clinical_time.start is None or last is None:
                undated[m.store] += 1
            elif (days := (last - bounds(m.clinical_time.start)[0]).days) < 0:
                ahead[m.store] += 1
            else:
                ages[m.store].append(days)
        sizes["entry_characters"] += [len(e.text) for e in state.entries.values()]
        sizes["memories_of_a_patient"].append(len(state.memories))
        sizes["updates_of_a_patient"].append(state.version)
    held = count["memories"]["ACTIVE"] + count["memories"]["HISTORY"]
    return {"patients": len(sizes["memories_of_a_patient"]),
            "archived": round(count["memories"]["HISTORY"] / held, 4) if held else 0.0,
            **{name: dict(sorted((+c).items())) for name, c in count.items()},
            "age_days": {place: _told(days) | {"undated": undated[place], "ahead": ahead[place]}
                         for place, days in ages.items()},
            "sizes": {name: _told(values) | {"total": sum(values)} for name, values in sizes.items()}}


def _told(values: Sequence[int]) -> dict[str, float]:
    return {"count": len(values), "median": statistics.median(values) if values else 0,
            "most": max(values, default=0)}
