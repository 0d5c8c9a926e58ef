"""Named shapes of retrieval, shared by tests, tuning and benchmarks.

The real ones have the paper's widths; patient lengths are log-normal, as histories are. `small` ones
run everywhere in milliseconds.
"""
from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """patients, queries, k, width d; rows: total; longest: cap of one patient; giants: lengths put in front."""

    name: str
    patients: int
    queries: int
    k: int
    d: int
    rows: int
    longest: int
    giants: tuple[int, ...] = ()
    padding: int = 0
    small: bool = False

    def lengths(self, seed: int = 0) -> np.ndarray:
        """int64 [P]; they add up to rows, up to the cap."""
        rng = np.random.default_rng(seed)
        draw = rng.lognormal(0.0, 0.9, self.patients - len(self.giants))
        draw = np.clip((draw / draw.sum() * (self.rows - sum(self.giants))).astype(np.int64), 1, self.longest)
        return np.concatenate([np.array(self.giants, np.int64), draw])

    def make(self, seed: int = 0, dtype=np.float32) -> dict[str, np.ndarray]:
        """q [N, d] raw queries, x [S, d] unit rows with NaN in the padding, offsets int32 [P+1]."""
        rng = np.random.default_rng(seed)
        offsets = np.concatenate([[0], np.cumsum(self.lengths(seed))]).astype(np.int32)
        x = rng.standard_normal((int(offsets[-1]) + self.padding, self.d), dtype=np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        x[offsets[-1]:] = np.nan
        q = rng.standard_normal((self.queries, self.d), dtype=np.float32) / np.float32(np.sqrt(self.d))
        return {"q": q, "x": x.astype(dtype), "offsets": offsets}


CASES = (
    Case("train_mortality", 16, 8, 4, 4096, 1600, 700),
    Case("train_mortality_1024", 16, 8, 4, 1024, 1600, 700),
    Case("train_adhd", 32, 12, 4, 4096, 21700, 8800),
    Case("bench_cpu", 64, 8, 4, 4096, 5757, 315),
    Case("minilm_demo", 16, 8, 4, 384, 1600, 400),
    Case("one_giant", 16, 8, 4, 1024, 61500, 300, giants=(60000,)),
    Case("small_odd", 5, 3, 4, 17, 61, 40, padding=3, small=True),
    Case("small_single", 1, 1, 1, 8, 7, 7, padding=1, small=True),
    Case("small_giant", 9, 2, 3, 8, 700, 4, giants=(670,), padding=5, small=True),
)


def by_name(name: str) -> Case:
    """Raises: KeyError naming the cases there are."""
    table = {c.name: c for c in CASES}
    if name not in table:
        raise KeyError(f"{name!r}; expected one of {sorted(table)}")
    return table[name]
