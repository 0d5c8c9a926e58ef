"""segment_topk in fast jnp: one product over the packed rows, then selection on scores alone.

The embeddings are read once and never padded. For the selection there are two exact forms, chosen by cost:

padded  scores gathered into [P, max_segment, N], one `lax.top_k`. Cost grows with P * max_segment.
passes  k rounds of segment maximum over the packed scores. Cost grows with k * S and knows nothing of the longest
        segment, so one patient of 60,000 rows among short ones costs what its rows cost.

On two CPU cores both cost 5 to 8 ns an element, hence the rule P * max_segment <= k * S.
"""
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def segment_topk(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int):
    """See api.segment_topk."""
    segments, rows = offsets.shape[0] - 1, x.shape[0]
    select = _padded if segments * max_segment <= k * rows else _passes
    best, row = select(similarity(q, x), offsets, k, max_segment)
    valid = jnp.arange(k, dtype=jnp.int32)[None, None] < jnp.diff(offsets)[:, None, None]
    valid = jnp.broadcast_to(valid, best.shape)
    return jnp.where(valid, best, -jnp.inf), jnp.where(valid, row, -1), valid


def similarity(q: jax.Array, x: jax.Array) -> jax.Array:
    """Dot products [S, N] accumulated in float32. A bfloat16 x is not widened in memory: q is split into three
    bfloat16 parts that sum to it, whose products with x are exact in float32."""
    q = q.astype(jnp.float32)
    if x.dtype != jnp.bfloat16:
        return _dot(x.astype(jnp.float32), q)
    parts, rest = [], q
    for _ in range(3):  # reduce_precision, because XLA may cancel a cast there and back
        part = lax.reduce_precision(rest, exponent_bits=8, mantissa_bits=7)
        parts, rest = [*parts, part.astype(jnp.bfloat16)], rest - part
    return _dot(x, jnp.concatenate(parts)).reshape(x.shape[0], 3, q.shape[0]).sum(axis=1)


def _dot(x, q):
    return lax.dot_general(x, q, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST,
                           preferred_element_type=jnp.float32)


def _padded(scores, offsets, k, max_segment):
    """scores [S, N] -> (best [P, N, k], row i32 [P, N, k])."""
    start = offsets[:-1]
    step = jnp.arange(max(k, max_segment), dtype=jnp.int32)
    inside = step[None] < jnp.diff(offsets)[:, None]
    index = jnp.minimum(start[:, None] + step[None], scores.shape[0] - 1)
    padded = jnp.where(inside[..., None], scores.at[index].get(mode="promise_in_bounds"), -jnp.inf)
    best, rank = lax.top_k(padded.transpose(0, 2, 1), k)
    return best, start[:, None, None] + rank.astype(jnp.int32)


def _passes(scores, offsets, k, max_segment):
    """As _padded, without any padding; `max_segment` is not needed."""
    rows, segments = scores.shape[0], offsets.shape[0] - 1
    row = jnp.arange(rows, dtype=jnp.int32)
    owner = jnp.cumsum(jnp.zeros((rows,), jnp.int32).at[offsets[1:]].add(1, mode="drop"))  # ends at or before each row
    inside = (row >= offsets[0]) & (row < offsets[-1])
    scores = jnp.where(inside[:, None], scores, -jnp.inf)
    mine = jnp.minimum(owner, segments - 1)
    best, chosen = [], []
    for _ in range(k):
        top = jax.ops.segment_max(scores, owner, num_segments=segments, indices_are_sorted=True)
        hit = scores == top.at[mine].get(mode="promise_in_bounds")
        first = jax.ops.segment_min(jnp.where(hit, row[:, None], rows), owner, num_segments=segments,
                                    indices_are_sorted=True)
        scores = jnp.where(row[:, None] == first.at[mine].get(mode="promise_in_bounds"), -jnp.inf, scores)
        best, chosen = [*best, top], [*chosen, first]
    return jnp.stack(best, axis=-1), jnp.stack(chosen, axis=-1)
