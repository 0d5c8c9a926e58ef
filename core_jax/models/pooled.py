"""One vector a text: texts laid end to end through a model, attention within each of them, pooling.

A model gives its `Hidden`, in which all but attention runs on tokens alone, whatever the texts' lengths. How the texts
stand beside each other for attention is decided here, once for all models. Letters: B texts, T tokens of a text,
M tokens of a batch laid end to end, D model width, N heads, K kv heads, H head dim.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from core_jax import params as P

POOLINGS = ("mean", "cls", "last")
QUERY_BLOCK = 512  # rows of scores in memory at a time, per text and head

# q [B, T, N, H], k and v [B, T, K, H], real [B, T] True = token -> [B, T, N, H] in the dtype of q
Mix = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
# mix, q [M, N, H], k and v [M, K, H] -> every token mixed with those of its own text, [M, N, H]
Attend = Callable[[Mix, jax.Array, jax.Array, jax.Array], jax.Array]
# config, params, ids [M], positions [M] of the tokens within their texts, attend -> last hidden states [M, D]
Hidden = Callable[[Any, P.Tree, jax.Array, jax.Array, Attend], jax.Array]


def mix(
    q: jax.Array, k: jax.Array, v: jax.Array, real: jax.Array, *, reach: int | None = None
) -> jax.Array:
    """softmax(q k^T / sqrt(H)) v in both directions, as a `Mix` with K = N; float32.

    A plain batched matmul on `[.., T, H]`, the exponential not normalised and the division done on the product with the
    values: on XLA:CPU several times faster than the einsum over four axes. Queries go block by block.

    Args:
        reach: a token attends to tokens at most so far from it; None: to all.
    """
    (b, t, n, h), real = q.shape, jnp.repeat(real, q.shape[2], axis=0)
    q, k, v = (y.transpose(0, 2, 1, 3).reshape(b * n, t, h) for y in (q * (1.0 / math.sqrt(h)), k, v))
    blocks = []
    for first in range(0, t, QUERY_BLOCK):
        stop = min(first + QUERY_BLOCK, t)
        low, high = (0, t) if reach is None else (max(first - reach, 0), min(stop + reach, t))
        allowed = real[:, None, low:high]
        if reach is not None:
            query, key = (jnp.arange(*ends, dtype=jnp.int32) for ends in ((first, stop), (low, high)))
            allowed = allowed & (jnp.abs(query[:, None] - key[None]) <= reach)[None]
        scores = jnp.matmul(q[:, first:stop], k[:, low:high].swapaxes(1, 2))
        scores = jnp.where(allowed, scores, jnp.finfo(jnp.float32).min)
        weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
        blocks.append(jnp.matmul(weights, v[:, low:high]) / jnp.sum(weights, axis=-1, keepdims=True))
    return jnp.concatenate(blocks, axis=1).reshape(b, n, t, h).transpose(0, 2, 1, 3)


def padded(hidden: Hidden, config: Any, params: P.Tree, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Last hidden states of a padded batch.

    Args:
        ids: [B, T] int32.
        mask: [B, T] bool, True = token, False = padding on the right.

    Returns:
        [B, T, D]; what stands at padding is undefined, but finite.
    """
    b, t = ids.shape

    def attend(mix: Mix, *qkv: jax.Array) -> jax.Array:
        return mix(*(y.reshape(b, t, *y.shape[1:]) for y in qkv), mask).reshape(b * t, *qkv[0].shape[1:])

    positions = jnp.tile(jnp.arange(t, dtype=jnp.int32), b)
    return hidden(config, params, ids.reshape(b * t), positions, attend).reshape(b, t, -1)


@functools.partial(jax.jit, static_argnames=("hidden", "config", "width", "pooling", "normalized"))
def vectors(
    hidden: Hidden, config: Any, params: P.Tree, ids: jax.Array, lengths: jax.Array, *, width: int, pooling: str,
    normalized: bool,
) -> jax.Array:
    """Vectors of texts laid end to end.

    Args:
        ids: [M] int32, the texts' tokens one text after the other, then filler.
        lengths: [B] int32, tokens of each text; 0 in unused slots, whose vectors are undefined (but finite).
        width: T, at least the longest length; attention is computed on [B, T].
        pooling: "mean" over a text's tokens, "cls" its first token, "last" its last one.

    Returns:
        [B, D] float32.

    Raises:
        ValueError: another pooling.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"got pooling {pooling!r}, expected one of {POOLINGS}")
    m, b = ids.shape[0], lengths.shape[0]
    stops = jnp.cumsum(lengths, dtype=jnp.int32)
    starts = stops - lengths
    place = jnp.arange(m, dtype=jnp.int32)
    row = jnp.minimum(jnp.searchsorted(stops, place, side="right").astype(jnp.int32), b - 1)  # of each token
    position = jnp.clip(place - starts[row], 0, width - 1)  # filler reads real rows too
    column = jnp.arange(width, dtype=jnp.int32)
    token = jnp.minimum(starts[:, None] + column[None], m - 1)  # of each cell of [B, T]

    def at_once(mix: Mix, *qkv: jax.Array) -> jax.Array:
        mixed = mix(*(y[token] for y in qkv), column[None] < lengths[:, None])
        return mixed.reshape(b * width, *mixed.shape[2:])[row * width + position]

    def attend(mix: Mix, *qkv: jax.Array) -> jax.Array:
        by_text = functools.partial(_by_text, mix, starts, lengths, width)
        return jax.lax.platform_dependent(*qkv, cpu=by_text, default=functools.partial(at_once, mix))

    x = hidden(config, params, ids, position, attend)
    if pooling == "mean":
        mine = (row[None] == jnp.arange(b, dtype=jnp.int32)[:, None]) & (place < stops[-1])[None]
        x = (mine.astype(jnp.float32) @ x.astype(jnp.float32)) / jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]
    else:
        x = x[jnp.minimum(starts if pooling == "cls" else jnp.maximum(stops - 1, 0), m - 1)].astype(jnp.float32)
    if not normalized:
        return x
    return x / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True)), 1e-12)


def _by_text(mix: Mix, starts: jax.Array, lengths: jax.Array, width: int, *qkv: jax.Array) -> jax.Array:
    """One text after another: on a CPU its scores stay in cache, and slices are cheaper than gathers.

    Text i is rows [starts[i], starts[i] + lengths[i]), starts rising. A slice is `width` rows; what a text writes past
    its end is overwritten by the next one.
    """
    m, count = qkv[0].shape[0], jnp.sum(lengths > 0, dtype=jnp.int32)
    qkv = tuple(jnp.pad(y, ((0, width), (0, 0), (0, 0))) for y in qkv)
    column = jnp.arange(width, dtype=jnp.int32)

    def one(i: jax.Array, out: jax.Array) -> jax.Array:
        parts = (jax.lax.dynamic_slice_in_dim(y, starts[i], width)[None] for y in qkv)
        return jax.lax.dynamic_update_slice_in_dim(out, mix(*parts, (column < lengths[i])[None])[0], starts[i], axis=0)

    return jax.lax.fori_loop(0, count, one, jnp.zeros_like(qkv[0]))[:m]
