"""The read path: a question's vector -> what ACTIVE and HISTORY hold on it -> the packet of each arm.

    state, vectors = read.snapshot(store, patient_id)
    found = read.search(state, vectors, read.encode_query(encoder, [question])[0], config)
    packet = read.packet(found, "BOTH", config, reader.count)

Packets depend on the state, the vectors, the question's vector and the settings only. NumPy, no JAX.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from core_jax.records import RecordError
from stam_jax.config import ReadConfig
from stam_jax.graph import canonical
from stam_jax.graph.clinical_time import bounds
from stam_jax.graph.memory import Memory
from stam_jax.graph.redaction import BLOCK
from stam_jax.graph.state import State
from stam_jax.read.packet import ARMS, Edge, Item, Packet, Past
from stam_jax.read.render import render, said
from stam_jax.storage.store import Store

Vectors = tuple[Sequence[str], np.ndarray]  # mids, [n, dim]


@dataclasses.dataclass(frozen=True)
class Found:
    """Both searches of one question. active, history: the best first, as many as the settings ask for.

    state: the view that was searched. stored: how many memories ACTIVE and HISTORY hold in it.
    """

    state: State
    active: tuple[Item, ...]
    history: tuple[Item, ...]
    stored: tuple[int, int]

    def ranked(self) -> list[Item]:
        """Both together, the best first; equal ones by mid."""
        return sorted((*self.active, *self.history), key=_rank)


def snapshot(store: Store, patient_id: str) -> tuple[State, Vectors]:
    """State and vectors of one moment, whatever is being written meanwhile."""
    while True:
        state = store.state(patient_id)
        vectors = store.vectors(patient_id)
        if store.version(patient_id) == state.version:
            return state, vectors


def encode_query(encoder: Any, questions: Sequence[str], instruction: str | None = None) -> np.ndarray:
    """Vectors of questions: float32 [n, dim].

    The encoder's own prompt named "query" is put before them where it has one (`TextEncoder.prompts`). instruction: put
    before them instead, for encoders whose files do not say theirs (BGE).
    """
    if instruction is not None:
        return encoder.encode([instruction + q for q in questions])
    if "query" in getattr(encoder, "prompts", ()):
        return encoder.encode(list(questions), "query")
    return encoder.encode(list(questions))


# ---- search -------------------------------------------------------------------------------------------------------

def search(state: State, vectors: Vectors, query: np.ndarray, config: ReadConfig, *, as_of_seq: int | None = None,
           as_of_date: str | None = None) -> Found:
    """The nearest memories of each store, searched apart.

    Args:
        vectors: a row for each memory of the state; rows of others are not looked at.
        query: [dim].
        as_of_seq: search what the system knew after this update.
        as_of_date: search by what was true on this date: ACTIVE is what held, HISTORY what was over; what had not begun
            is not found; where the dates do not decide, a memory stands as it stands now.

    Raises: ValueError: no such update, no date, a vector of another dimension or with NaN, a memory without a row.
    """
    if as_of_seq is not None:
        state = state.as_of_seq(as_of_seq)
    places = _places(state, as_of_date)
    cosines = _cosines(vectors, query, places, state.patient_id)
    near: dict[str, list[Item]] = {"ACTIVE": [], "HISTORY": []}
    for mid, place in places.items():
        near[place].append(Item(state.memories[mid], place, cosines[mid]))
    most = {"ACTIVE": config.active, "HISTORY": config.history}
    kept = {p: sorted(items, key=_rank)[:most[p]] for p, items in near.items()}
    items = {p: tuple(_told(state, i, places, as_of_date) for i in kept[p]) for p in kept}
    return Found(state, items["ACTIVE"], items["HISTORY"], (len(near["ACTIVE"]), len(near["HISTORY"])))


def _rank(item: Item) -> tuple[float, str]:
    return -item.cosine, item.mid


def _places(state: State, as_of_date: str | None) -> dict[str, str]:
    """mid -> where a memory stands in the view."""
    if as_of_date is None:
        return {m.mid: m.store for m in state.memories.values()}
    view = state.as_of_date(as_of_date)
    placed = {m.mid: "ACTIVE" for m in view.held} | {m.mid: "HISTORY" for m in view.ended}
    placed |= {m.mid: m.store for m in view.uncertain}
    return {mid: placed[mid] for mid in state.memories if mid in placed}


def _cosines(vectors: Vectors, query: np.ndarray, wanted: Iterable[str], patient_id: str) -> dict[str, float]:
    """In float64, told as float32: rows that are equal tie, wherever they stand."""
    mids, matrix = vectors
    query, matrix = np.asarray(query, np.float64), np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or len(mids) != len(matrix) or query.shape != matrix.shape[1:]:
        raise ValueError(f"patient {patient_id!r}: got {len(mids)} mids, vectors {list(matrix.shape)} and a query "
                         f"{list(query.shape)}, expected [n, dim] and [dim]")
    if not np.isfinite(query).all():
        raise ValueError("query: has numbers that are not finite")
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    cosines = (matrix @ query / np.where(norms > 0, norms, 1.0)).astype(np.float32)
    out = dict(zip(mids, cosines.tolist()))
    if missing := [mid for mid in wanted if mid not in out]:
        raise ValueError(f"patient {patient_id!r}: {missing[0]} has no vector; read the state and the vectors again")
    return out


def _told(state: State, item: Item, places: dict[str, str], as_of_date: str | None) -> Item:
    """The item with its source and, where it is past, with why."""
    past = _past(state, item.memory, places, as_of_date) if item.place == "HISTORY" else None
    return dataclasses.replace(item, past=past, source=_source(state, item.memory))


def _past(state: State, m: Memory, places: dict[str, str], as_of_date: str | None) -> Past:
    if (standing := state.standing(m.mid)) is None:
        return Past("ENDED", on=m.clinical_time.end)
    successor = state.memories.get(standing.successor) if standing.successor in places else None
    dates = [e.date[:10] for key, e in state.entries.items() if state.entry_seq[key] == standing.update_seq and e.date]
    on = max(dates, default=None)
    if standing.reason == "EXPIRED":
        on = m.clinical_time.end
    elif successor is not None and successor.clinical_time.start is not None:
        on = successor.clinical_time.start
    elif standing.reason == "PRIOR_STATE":
        on = m.clinical_time.end
    if on is not None and as_of_date is not None and bounds(on)[0] > bounds(as_of_date)[1]:
        on = m.clinical_time.end
    return Past(standing.reason, None if successor is None else successor.mid,
                None if successor is None else said(successor, m), on)


def _source(state: State, m: Memory) -> str | None:
    """The words of the first place that was verified."""
    for p in m.provenance:
        words = state.entries[p.entry_key].text[p.start:p.end]
        if p.verified and words.replace(BLOCK, "").strip():
            return words
    return None


# ---- packets ------------------------------------------------------------------------------------------------------

def packet(found: Found, arm: str, config: ReadConfig, count: Callable[[str], int] | None = None) -> Packet:
    """What one arm is served.

    BOTH: the memories of both stores by cosine, cut to `config.most` and to the words and tokens that the text may
    have. ACTIVE: that packet without its HISTORY, not filled up; filled up (REFILLED) where `config.refill` is set.

    Args:
        count: tokens of a text as the reader counts them; needed for a budget in tokens.

    Raises: RecordError: no such arm, a budget in tokens without `count`.
    """
    canonical.choice(arm, "arm", ARMS)
    if config.tokens is not None and count is None:
        raise RecordError(f"got {config.tokens}, but this reader counts no tokens", field="read.tokens")
    if arm == "ACTIVE" and config.refill:
        arm = "REFILLED"
    items = (list(found.active) if arm == "REFILLED" else found.ranked())[:config.most]

    def text(some: list[Item]) -> str:
        return render(some, labels=config.labels, spans=config.spans)

    if config.words is not None:
        items = items[:_fit(items, lambda some: len(text(some).split()), config.words)]
    if config.tokens is not None:
        items = items[:_fit(items, lambda some: count(text(some)), config.tokens)]
    if arm == "ACTIVE":
        items = [i for i in items if i.place == "ACTIVE"]
    return Packet(arm, tuple(items), text(items), edges(found.state, [i.mid for i in items]))


def _fit(items: list[Item], cost: Callable[[list[Item]], int], most: int) -> int:
    """How many of the first items cost at most `most` together."""
    low, high = 0, len(items)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(items[:middle]) <= most else (low, middle - 1)
    return low


def edges(state: State, mids: Iterable[str]) -> tuple[Edge, ...]:
    """The relations between memories; where one followed an end of a relation, it stands for that end."""
    served = set(mids)
    stands: dict[str, str | None] = {}

    def served_for(mid: str) -> str | None:
        if mid not in stands:
            stands[mid] = next((m.mid for m in state.chain(mid) if m.mid in served), None)
        return stands[mid]

    out = {}
    for r in sorted(state.relations.values(), key=lambda r: (r.update_seq, r.rid)):
        src, dst = served_for(r.src), served_for(r.dst)
        if src is not None and dst is not None and src != dst:
            out[src, dst, r.type] = Edge(src, dst, r.type)
    return tuple(out.values())
