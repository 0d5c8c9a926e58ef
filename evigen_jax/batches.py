"""Packed batches of a cohort on the device, in few enough shapes that each is compiled once.

The groups of patients of a whole run are known before it starts (they follow from the seed), so their shapes are planned
ahead: row counts and longest segments go up a geometric ladder, and shapes are merged while that adds little padding or
too many remain, since each costs a compilation. Embeddings are never padded to the longest patient, only the end of a
batch is.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from evigen_jax.packed import MODALITIES, PackedCohort

_COMPILATION = 2**30  # padded floats that take about as long as compiling a step does on a CPU


@dataclasses.dataclass(frozen=True)
class Shape:
    """Static sizes of a batch. rows, segments: (note, code); segments bounds the longest patient."""

    patients: int
    rows: tuple[int, int]
    segments: tuple[int, int]


def rung(n: int, least: int = 16) -> int:
    """The smallest of 16, 24, 32, 48, 64, 96, ... that holds n."""
    size = least
    while size < n:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def plan(packed: PackedCohort, groups: Sequence[np.ndarray], patients: int, *, most: int = 6, slack: float = 0.15) -> list[Shape]:
    """A shape for each group of patient indices (each at most `patients` long), the same for equal arguments.

    Shapes are merged, the cheapest pair first, as long as the padding added in all is at most `slack` of the work or
    worth a compilation, and beyond that until at most `most` remain.
    """
    sizes = [np.diff(getattr(packed, f"off_{m}")) for m in MODALITIES]
    needs = [(*(rung(int(n[g].sum())) for n in sizes), *(rung(int(n[g].max(initial=0)), 8) for n in sizes)) for g in groups]
    if not needs:
        return []
    kinds, which, count = np.unique(np.array(needs), axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)

    def cost(rows_and_segments):
        return rows_and_segments[..., :2].sum(-1) + patients * rows_and_segments[..., 2:].sum(-1)

    budget = max(slack * float(count @ cost(kinds)), _COMPILATION / packed.x_note.shape[1])
    while len(kinds) > 1:
        own, joined = count * cost(kinds), np.maximum(kinds[:, None], kinds[None])
        price = (count[:, None] + count[None]) * cost(joined) - own[:, None] - own[None]
        price[np.tril_indices(len(kinds))] = np.iinfo(price.dtype).max
        i, j = np.unravel_index(price.argmin(), price.shape)  # i < j
        if price[i, j] > budget and len(kinds) <= most:
            break
        budget -= price[i, j]
        kinds[i], count[i] = joined[i, j], count[i] + count[j]
        kinds, count = np.delete(kinds, j, axis=0), np.delete(count, j)
        which = np.where(which == j, i, which - (which > j))
    shapes = [Shape(patients, (int(a), int(b)), (int(c), int(d))) for a, b, c, d in kinds]
    return [shapes[k] for k in which]


class Feed:
    """Batches of one cohort. With `resident` all rows lie on the device and a batch carries row numbers, else rows."""

    def __init__(self, packed: PackedCohort, *, resident: bool):
        self.packed, self.resident = packed, resident
        self.corpus: dict[str, jax.Array] = {}
        if resident:
            for m in MODALITIES:
                x = np.asarray(getattr(packed, f"x_{m}"), np.float32)
                self.corpus[m] = jax.device_put(x if len(x) else np.zeros((1, x.shape[1]), np.float32))

    def host_batch(self, patients: np.ndarray, shape: Shape) -> dict[str, np.ndarray]:
        packed, size = self.packed, shape.patients
        out = {"label": np.zeros(size, np.float32), "real": np.arange(size) < len(patients)}
        out["label"][: len(patients)] = packed.label[patients]
        for m, rows in zip(MODALITIES, shape.rows):
            x, off, mean = (getattr(packed, f"{name}_{m}") for name in ("x", "off", "mean"))
            spans = [(int(off[i]), int(off[i + 1])) for i in patients]
            ends = np.cumsum([0] + [b - a for a, b in spans])
            out[f"off_{m}"] = np.concatenate([ends, np.full(size - len(patients), ends[-1])]).astype(np.int32)
            out[f"mean_{m}"] = np.zeros((size, mean.shape[1]), np.float32)
            out[f"mean_{m}"][: len(patients)] = mean[patients]
            if self.resident:
                out[f"rows_{m}"] = np.zeros(rows, np.int32)
                for (a, b), at in zip(spans, ends):
                    out[f"rows_{m}"][at: at + b - a] = np.arange(a, b, dtype=np.int32)
            else:
                out[f"x_{m}"] = np.zeros((rows, mean.shape[1]), np.float32)
                for (a, b), at in zip(spans, ends):
                    out[f"x_{m}"][at: at + b - a] = x[a:b]
        return out

    def batches(self, groups: Sequence[np.ndarray], shapes: Sequence[Shape]) -> Iterator[tuple[dict[str, jax.Array], Shape]]:
        """Device batches in order; the next one is assembled and sent while the device works on this one."""
        def make(i):
            return jax.device_put(self.host_batch(groups[i], shapes[i]))

        with concurrent.futures.ThreadPoolExecutor(1) as ahead:
            pending = ahead.submit(make, 0) if len(groups) else None
            for i in range(len(groups)):
                batch = pending.result()
                if i + 1 < len(groups):
                    pending = ahead.submit(make, i + 1)
                yield batch, shapes[i]


def assemble(corpus: dict[str, jax.Array], batch: dict[str, Any]) -> dict[str, Any]:
    """Inside jit: the rows of a resident corpus put into the batch; a batch that carries its rows passes through."""
    out = dict(batch)
    for m, x in corpus.items():
        out[f"x_{m}"] = x.at[out.pop(f"rows_{m}")].get(mode="promise_in_bounds")
    return out


def fits_on_device(packed: PackedCohort) -> bool:
    """Whether the embeddings fill at most half of an accelerator's memory. False on CPU, where host memory is the device's."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return False
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    size = sum(getattr(packed, f"x_{m}").shape[0] * getattr(packed, f"x_{m}").shape[1] * 4 for m in MODALITIES)
    return 2 * size <= limit
