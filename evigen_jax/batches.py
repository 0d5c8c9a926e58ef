"""Packed batches of a cohort on the device, in few enough shapes that each is compiled once.

The groups of patients of a whole run are known before it starts (they follow from the seed), so their shapes are planned
ahead: row counts and longest segments go up a geometric ladder, and the rarest rungs are merged into larger ones until
`most` shapes remain. Embeddings are never padded to the longest patient, only the end of a batch is.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from evigen_jax.packed import PackedCohort

MODALITIES = ("note", "code")


@dataclasses.dataclass(frozen=True, order=True)
class Shape:
    """Static sizes of a batch. rows, segments: (note, code); segments bounds the longest patient."""

    patients: int
    rows: tuple[int, int]
    segments: tuple[int, int]

    def join(self, other: Shape) -> Shape:
        return Shape(max(self.patients, other.patients), tuple(map(max, self.rows, other.rows)),
                     tuple(map(max, self.segments, other.segments)))

    @property
    def cost(self) -> int:
        return sum(self.rows) + self.patients * sum(self.segments)


def rung(n: int, least: int = 16) -> int:
    """The smallest of 16, 24, 32, 48, 64, 96, ... that holds n."""
    size = least
    while size < n:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def plan(packed: PackedCohort, groups: Sequence[np.ndarray], patients: int, *, most: int = 6) -> list[Shape]:
    """A shape for each group of patient indices (each at most `patients` long), at most `most` different ones."""
    lengths = [np.diff(getattr(packed, f"off_{m}")) for m in MODALITIES]
    needs = [Shape(patients, tuple(rung(int(n[g].sum())) for n in lengths), tuple(rung(int(n[g].max(initial=0)), 8) for n in lengths))
             for g in groups]
    count = Counter(needs)
    goes: dict[Shape, Shape] = {s: s for s in count}
    while len(count) > most:
        rare = min(count, key=lambda s: (count[s] * s.cost, s))
        others = [s for s in count if s != rare]
        near = min(others, key=lambda s: (count[rare] * (s.join(rare).cost - rare.cost) + count[s] * (s.join(rare).cost - s.cost), s))
        joined = near.join(rare)
        moved = count.pop(rare) + count.pop(near)
        count[joined] += moved
        goes = {s: joined if t in (rare, near) else t for s, t in goes.items()}
    return [goes[s] for s in needs]


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
