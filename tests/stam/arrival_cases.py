"""Arrivals for the tests of candidates and impact sets: a state, an entry, and vectors by hashing words."""
from __future__ import annotations

import numpy as np
from memory_cases import commit, entry, memory

from core_jax.embed import HashEncoder
from stam_jax.graph.state import State
from stam_jax.graph.transitions import archive
from stam_jax.graph.update import Update
from stam_jax.write.candidates import Arrival
from stam_jax.write.nearest import Vectors, whole


def arrival(texts, news, *, archived=(), patient="p1") -> Arrival:
    """A state of memories with these texts, and an entry with new ones. A text `concept attribute: words`; rows by
    hashing words."""
    e0 = entry("\n".join(texts) or "nothing", date="2024-01-01", patient=patient)
    old = [made(e0, t, i) for i, t in enumerate(texts)]
    state = State(patient).apply(Update.of(commit(0, [e0], old, patient=patient)))
    if archived:
        moves = [archive(old[i].mid, "RESOLVED") for i in archived]
        state = state.apply(Update.of(commit(1, patient=patient, transitions=moves)))
    e = entry("\n".join(news) or "nothing new", date="2024-02-01", patient=patient)
    fresh = tuple(made(e, t, i) for i, t in enumerate(news))
    mids = list(state.memories)
    return Arrival(state, e, fresh, embedded(fresh), Vectors.of(mids, embedded(list(state.memories.values()))))


def made(e, text, i):
    slot = text.split(":")[0].split(" ") if ":" in text else None
    fields = {} if slot is None else dict(concept=slot[0], attribute=slot[1])
    return memory(e, text, text=text, ordinal=i, experiencer="FAMILY" if "mother" in text else "PATIENT", **fields)


def embedded(memories):
    return whole(HashEncoder(64).encode([m.text for m in memories])) if memories else np.empty((0, 64), np.int16)
