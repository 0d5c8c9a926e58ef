"""Nearest memories of many patients at once: one masked matmul on the device, whose answer depends on nothing else.

Unit vectors are rounded to whole multiples of 1 / SCALE. Every product, and every partial sum of products, is then a
whole number below 2^24, which float32 holds exactly: a cosine is the same number on any device, in any order of
summation, beside any other patient and under any padding. Rounding moves a cosine by about 1e-4.
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SCALE = 4000
QUERIES = 8  # of one tile
ROWS = {64: 512, 1024: 64}  # rows of one tile -> tiles of one device call, at most; long records have the longer tiles
KEPT = (16, 64)  # of one tile's rows, the best: searches of a different k share one compilation
TILES = (8, 16, 32, 64, 128, 256, 512)  # of one device call, which is the only axis that varies


@dataclasses.dataclass(frozen=True, eq=False)
class Vectors:
    """A patient's rows: mids in ascending order, rows int16 [n, E] as `whole` makes them."""

    mids: tuple[str, ...]
    rows: np.ndarray

    @classmethod
    def of(cls, mids: Sequence[str], rows: np.ndarray) -> Vectors:
        """From any order."""
        order = sorted(range(len(mids)), key=mids.__getitem__)
        return cls(tuple(mids[i] for i in order), rows[order])

    def with_rows(self, mids: Sequence[str], rows: np.ndarray) -> Vectors:
        return Vectors.of((*self.mids, *mids), np.concatenate([self.rows, rows])) if len(mids) else self

    @functools.cached_property
    def place(self) -> dict[str, int]:
        return {mid: i for i, mid in enumerate(self.mids)}


class Search(NamedTuple):
    """One patient's part of a wave. A query looks at the rows that have its label; a row labelled -1 is not looked at.

    queries: int16 [Q, E] and rows: int16 [S, E], as `whole` makes them; the order of the rows decides ties.
    wanted: int32 [Q]; labels: int32 [S].
    """

    queries: np.ndarray
    wanted: np.ndarray
    rows: np.ndarray
    labels: np.ndarray


def whole(vectors: np.ndarray) -> np.ndarray:
    """float [n, E] of any length -> int16 [n, E] of length SCALE (zero stays zero)."""
    x = np.asarray(vectors, np.float64)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.rint(x / np.where(norm == 0, 1, norm) * SCALE).astype(np.int16)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """int16 [A, E], [B, E] -> float64 [A, B], the same numbers as `nearest` gives."""
    return np.matmul(a.astype(np.float32), b.astype(np.float32).T).astype(np.float64) / SCALE ** 2


@functools.partial(jax.jit, static_argnames="k")
def _tiles(queries: jax.Array, wanted: jax.Array, rows: jax.Array, labels: jax.Array, *, k: int):
    """queries: int16 [T, QUERIES, E]; wanted: int32 [T, QUERIES]; rows: int16 [T, R, E]; labels: int32 [T, R] -> the k
    best of each query in its tile, (scores float32, places int32) [T, QUERIES, k]."""
    q, x = queries.astype(jnp.float32), rows.astype(jnp.float32)
    scores = jnp.einsum("tqe,tse->tqs", q, x, precision=jax.lax.Precision.HIGHEST)
    scores = jnp.where(wanted[:, :, None] == labels[:, None, :], scores, -jnp.inf)
    return jax.lax.top_k(scores, k)  # stable: equal scores go to the earlier row


def nearest(searches: Sequence[Search], k: int) -> list[list[list[tuple[int, float]]]]:
    """For each query of each search its k best rows as (row, cosine), best first, equal ones in the order of the rows.

    Tiles of one patient's queries and rows are laid into a batch; a batch has one of few sizes, so few shapes compile.
    """
    out = [[[] for _ in s.queries] for s in searches]
    if k < 1:
        return out
    seen = [np.flatnonzero(s.labels >= 0) for s in searches]
    for size, most in ROWS.items():
        mine = [i for i, rows in enumerate(seen) if (size == max(ROWS)) == (2 * len(rows) > max(ROWS))]
        tiles = [_Tile(i, slice(q, q + QUERIES), seen[i][r:r + size]) for i in mine
                 for q in range(0, len(searches[i].queries), QUERIES) for r in range(0, len(seen[i]), size)]
        kept = next((n for n in KEPT if n >= min(k, size)), size)
        found = [best for first in range(0, len(tiles), most)
                 for best in _scored(searches, tiles[first:first + most], size, kept)]
        asked = itertools.groupby(zip(tiles, found), key=lambda tile: (tile[0].search, tile[0].asking.start))
        for (i, first), parts in asked:
            scores, rows = (np.concatenate(x, axis=1) for x in zip(*(best for _, best in parts)))
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # tiles stand in the order of their rows
            scores, rows = (np.take_along_axis(x, order, axis=1).tolist() for x in (scores, rows))
            for j, own in enumerate(out[i][first:first + QUERIES]):
                own += [(row, score / SCALE ** 2) for row, score in zip(rows[j], scores[j]) if score > -np.inf]
    return out


class _Tile(NamedTuple):
    """Queries of a search against some of its rows: looked, int [at most R]."""

    search: int
    asking: slice
    looked: np.ndarray


def _scored(searches: Sequence[Search], tiles: Sequence[_Tile], size: int, kept: int):
    """Each tile's (scores, rows) [QUERIES, kept], the rows as its search counts them."""
    count, width = next(n for n in TILES if n >= len(tiles)), searches[tiles[0].search].rows.shape[1]
    queries, rows = np.zeros((count, QUERIES, width), np.int16), np.zeros((count, size, width), np.int16)
    wanted, labels = np.full((count, QUERIES), -2, np.int32), np.full((count, size), -1, np.int32)
    for t, (i, asking, looked) in enumerate(tiles):
        for to, source, at in ((queries, searches[i].queries, asking), (wanted, searches[i].wanted, asking),
                               (rows, searches[i].rows, looked), (labels, searches[i].labels, looked)):
            part = source[at]
            to[t, :len(part)] = part
    scores, places = (np.asarray(x) for x in _tiles(queries, wanted, rows, labels, k=kept))
    return [(own, tile.looked[np.minimum(place, len(tile.looked) - 1)])
            for own, place, tile in zip(scores, places, tiles)]
