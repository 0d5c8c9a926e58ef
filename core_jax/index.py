"""Nearest vectors by inner product: exact on the device, or FAISS, behind the same two methods.

`Index(vectors)`, then `search(queries, k) -> (scores, rows)`. Cosine where the vectors are of unit length.
"""
from __future__ import annotations

import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np


class Index(Protocol):
    """vectors: [S, E] float."""

    def __init__(self, vectors: np.ndarray): ...

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """queries: [Q, E] -> scores float32 [Q, K], rows int32 [Q, K], best first; K = min(k, S)."""


def _checked(x: np.ndarray, what: str, width: int | None = None) -> np.ndarray:
    x = np.asarray(x, np.float32)
    if x.ndim != 2 or (width is not None and x.shape[1] != width):
        raise ValueError(f"{what}: got shape {x.shape}, expected [n, {'E' if width is None else width}]")
    if not np.isfinite(x).all():
        raise ValueError(f"{what}: row {int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])} holds NaN or infinity")
    return x


@functools.partial(jax.jit, static_argnames="k")
def _top_k(queries: jax.Array, blocks: jax.Array, count: jax.Array, *, k: int) -> tuple[jax.Array, jax.Array]:
    """queries: [Q, E]; blocks: [C, S, E]; the first `count` of the C*S rows are real."""
    size = blocks.shape[1]

    def step(best, block):
        scores, rows = best
        first, x = block
        found = first + jnp.arange(size, dtype=jnp.int32)
        fresh = jnp.matmul(queries, x.T, precision=jax.lax.Precision.HIGHEST)
        fresh = jnp.where((found < count)[None], fresh, -jnp.inf)
        top, at = jax.lax.top_k(fresh, min(k, size))
        # earlier rows stand first, and lax.top_k is stable: equal scores go to the lower row
        scores, picked = jax.lax.top_k(jnp.concatenate([scores, top], axis=1), k)
        rows = jnp.take_along_axis(jnp.concatenate([rows, found[at]], axis=1), picked, axis=1)
        return (scores, rows), None

    q = queries.shape[0]
    empty = jnp.full((q, k), -jnp.inf, jnp.float32), jnp.full((q, k), count, jnp.int32)
    firsts = jnp.arange(blocks.shape[0], dtype=jnp.int32) * size
    return jax.lax.scan(step, empty, (firsts, blocks))[0]


class ExactIndex:
    """Every vector scored, in blocks of rows; equal scores go to the lower row.

    Raises: ValueError: another shape, NaN, infinity.
    """

    QUERY_BLOCK = 256

    def __init__(self, vectors: np.ndarray, *, block_rows: int = 65536):
        vectors = _checked(vectors, "vectors")
        self.count, self.dim = vectors.shape
        size = max(1, min(block_rows, self.count))
        padded = np.zeros((-(-max(self.count, 1) // size) * size, self.dim), np.float32)
        padded[: self.count] = vectors
        self._blocks = jnp.asarray(padded.reshape(-1, size, self.dim))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """queries: [Q, E] -> scores float32 [Q, K], rows int32 [Q, K], best first; K = min(k, S).

        Raises: ValueError: another width, NaN, infinity, k < 1.
        """
        queries = _checked(queries, "queries", self.dim)
        if k < 1:
            raise ValueError(f"got k {k}, expected at least 1")
        k = min(k, self.count)
        scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int32)
        if k == 0:
            return scores, rows
        for first in range(0, len(queries), self.QUERY_BLOCK):
            block = queries[first:first + self.QUERY_BLOCK]
            padded = np.zeros((1 << (len(block) - 1).bit_length(), self.dim), np.float32)
            padded[: len(block)] = block
            s, r = _top_k(padded, self._blocks, np.int32(self.count), k=k)
            scores[first:first + len(block)], rows[first:first + len(block)] = s[: len(block)], r[: len(block)]
        return scores, rows


class FaissIndex:
    """FAISS flat inner product. Among equal scores FAISS decides which rows are kept; kept ones are ordered by row.

    Raises: ImportError naming the extra to install; ValueError: another shape, NaN, infinity.
    """

    def __init__(self, vectors: np.ndarray):
        try:
            import faiss
        except (ImportError, RuntimeError) as e:  # faiss-gpu without its CUDA libraries raises RuntimeError
            raise ImportError(
                f"FAISS cannot be used ({e}); install exactly one of the extras `faiss-cpu`, `faiss-gpu`: "
                "pip install 'evigen-stam-jax[faiss-cpu]'") from e
        vectors = _checked(vectors, "vectors")
        self.count, self.dim = vectors.shape
        self._index = faiss.IndexFlatIP(self.dim)
        self._index.add(np.ascontiguousarray(vectors))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """queries: [Q, E] -> scores float32 [Q, K], rows int32 [Q, K], best first; K = min(k, S).

        Raises: ValueError: another width, NaN, infinity, k < 1.
        """
        queries = _checked(queries, "queries", self.dim)
        if k < 1:
            raise ValueError(f"got k {k}, expected at least 1")
        k = min(k, self.count)
        if k == 0 or len(queries) == 0:
            return np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int32)
        scores, rows = self._index.search(np.ascontiguousarray(queries), k)
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1).astype(np.int32)
