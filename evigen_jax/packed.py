"""A cohort's embeddings as packed rows: every patient's visible observations one after another, nothing padded."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from core_jax.records import RecordError

MODALITIES = ("note", "code")
UNIT_TOLERANCE = 1e-3
READ_ROWS = 16_384  # at most this many rows a read, unless one patient has more


class Store(Protocol):
    """What is read of a `core_jax.vector_store.VectorStore`."""

    dim: int

    def rows(self, patient_id: str) -> tuple[int, int]: ...
    def index(self, patient_id: str) -> Sequence[Mapping[str, Any]]: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class PackedCohort:
    """Rows off_m[p] : off_m[p+1] of x_m are patient p's observations of modality m, in the order asked for.

    label: int32 [P]. For m in note, code: x_m float32 [S, d] unit rows (an array or a memory map), off_m int64 [P+1],
    obs_m the observation id of each row, mean_m float32 [P, d] the mean of the patient's rows (0 where it has none).
    """

    patient_ids: list[str]
    label: np.ndarray
    x_note: np.ndarray
    off_note: np.ndarray
    obs_note: list[str]
    mean_note: np.ndarray
    x_code: np.ndarray
    off_code: np.ndarray
    obs_code: list[str]
    mean_code: np.ndarray

    @classmethod
    def from_store(cls, store: Store, wanted: Iterable[tuple[str, Sequence[str]]], labels: Mapping[str, int], *,
                   scratch: str | os.PathLike | None = None) -> PackedCohort:
        """Read the wanted observations of each patient out of a vector store.

        Args:
            wanted: (patient_id, obs_ids in order), one a patient; what lies after the prediction time has been left
                out of it (`records.visible` and `observations` are the door for that).
            labels: outcome 0 or 1 by patient_id.
            scratch: folder for memory-mapped rows, where the cohort does not fit in memory.
        Raises: RecordError naming patient and observation: an id that the store lacks or that is asked for twice, a
            vector with NaN or infinity, of length 0 or not of length 1 (within 1e-3); naming the patient: nothing to
            read in either modality, asked for twice, no label or one that is not 0 or 1. (Traps 5 to 7.)
        """
        plans = [_plan(store, patient_id, list(obs_ids)) for patient_id, obs_ids in wanted]
        ids = [p.patient_id for p in plans]
        if not ids:
            raise RecordError("got no patients")
        if len(set(ids)) != len(ids):
            twice = next(i for n, i in enumerate(ids) if i in ids[:n])
            raise RecordError(f"patient {twice}: asked for twice")
        for i in ids:
            if labels.get(i) not in (0, 1):
                raise RecordError(f"patient {i}: label is {labels.get(i)!r}, expected 0 or 1")
        sizes = {m: [len(p.local[m]) for p in plans] for m in MODALITIES}
        x, off, mean = {}, {}, {}
        for m in MODALITIES:
            off[m] = np.concatenate([[0], np.cumsum(sizes[m])]).astype(np.int64)
            x[m] = _rows(int(off[m][-1]), store.dim, scratch, m)
            mean[m] = np.zeros((len(ids), store.dim), np.float32)
        for n, plan, rows in _read(store, plans):
            for m in MODALITIES:
                mine = rows[plan.local[m]]
                _check_rows(mine, plan.patient_id, plan.obs[m])
                if len(mine):
                    x[m][off[m][n]: off[m][n + 1]] = mine
                    mean[m][n] = mine.mean(axis=0, dtype=np.float64)
        fields = {f"{name}_{m}": d[m] for m in MODALITIES for name, d in (("x", x), ("off", off), ("mean", mean))}
        fields |= {f"obs_{m}": [o for p in plans for o in p.obs[m]] for m in MODALITIES}
        return cls(patient_ids=ids, label=np.array([labels[i] for i in ids], np.int32), **fields)

    def observations(self, patient: int, modality: str) -> list[str]:
        """Observation ids of patient number `patient`, in row order."""
        off = getattr(self, f"off_{modality}")
        return getattr(self, f"obs_{modality}")[off[patient]: off[patient + 1]]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Where one patient's wanted rows lie: local[m] counts from `start`."""

    patient_id: str
    start: int
    stop: int
    local: dict[str, np.ndarray]
    obs: dict[str, list[str]]


def _plan(store: Store, patient_id: str, obs_ids: list[str]) -> _Plan:
    start, stop = store.rows(patient_id)
    stored = {entry["obs_id"]: (n, entry["kind"]) for n, entry in enumerate(store.index(patient_id))}
    local: dict[str, list[int]] = {m: [] for m in MODALITIES}
    obs: dict[str, list[str]] = {m: [] for m in MODALITIES}
    seen: set[str] = set()
    for o in obs_ids:
        if o in seen:
            raise RecordError(f"patient {patient_id}: observation {o} is asked for twice")
        seen.add(o)
        if o not in stored:
            raise RecordError(f"patient {patient_id}: observation {o} is not in the vector store; run `embed` again")
        n, kind = stored[o]
        if kind not in MODALITIES:
            raise RecordError(f"patient {patient_id}: observation {o} is of kind {kind!r}, expected one of "
                              f"{MODALITIES}")
        local[kind].append(n)
        obs[kind].append(o)
    if not seen:
        raise RecordError(f"patient {patient_id}: no note and no code before the prediction time")
    return _Plan(patient_id, start, stop, {m: np.array(v, np.int64) for m, v in local.items()}, obs)


def join_shards(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Batches of equal shapes, one a device, as the one batch that `retriever.apply(..., mesh=mesh)` takes.

    Args: batches: D host batches in the order of the mesh axis "data".
    Returns: off_m int32 [D, P+1], row i counting inside block i; every other array joined along its first axis. All are
        to be placed with PartitionSpec("data").
    Raises: ValueError where shapes differ.
    """
    first = {k: np.shape(v) for k, v in batches[0].items()}
    for i, batch in enumerate(batches):
        if (shapes := {k: np.shape(v) for k, v in batch.items()}) != first:
            raise ValueError(f"batch {i}: got shapes {shapes}, expected those of batch 0, {first}")
    return {k: (np.stack if k.startswith("off_") else np.concatenate)([b[k] for b in batches]) for k in first}


def _read(store: Store, plans: Sequence[_Plan]):
    """(number, plan, its stored rows [n, d]), patients that follow each other in the store read together."""
    first = 0
    while first < len(plans):
        last = first + 1
        while (last < len(plans) and plans[last].start == plans[last - 1].stop
               and plans[last].stop - plans[first].start <= READ_ROWS):
            last += 1
        block = np.asarray(store.read(plans[first].start, plans[last - 1].stop), np.float32)
        for n in range(first, last):
            yield n, plans[n], block[plans[n].start - plans[first].start: plans[n].stop - plans[first].start]
        first = last


def _rows(n: int, d: int, scratch: str | os.PathLike | None, modality: str) -> np.ndarray:
    if scratch is None or n == 0:
        return np.empty((n, d), np.float32)
    os.makedirs(scratch, exist_ok=True)
    return np.lib.format.open_memmap(os.path.join(scratch, f"x_{modality}.npy"), "w+", np.float32, (n, d))


def _check_rows(rows: np.ndarray, patient_id: str, obs_ids: Sequence[str]) -> None:
    length = np.sqrt(np.einsum("sd,sd->s", rows, rows, dtype=np.float64))
    bad = np.flatnonzero(~(np.abs(length - 1.0) < UNIT_TOLERANCE))  # NaN and infinity are caught here too
    if bad.size:
        n = bad[0]
        what = ("holds NaN or infinity" if not np.isfinite(length[n]) else "is zero" if length[n] == 0.0
                else f"has length {length[n]:.6g}, expected 1 within {UNIT_TOLERANCE:g}")
        raise RecordError(f"patient {patient_id}: the vector of observation {obs_ids[n]} {what}")
