"""segment_topk: checks, selection of the implementation, and the gradient, once for all implementations."""
from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jax_kernels import dispatch
from jax_kernels.gather_pool.api import gathered, rows_or_zero
from jax_kernels.segment_topk import reference, xla

TABLE = (
    dispatch.Implementation("xla", xla.segment_topk),
    dispatch.Implementation("reference", reference.segment_topk),
)


def segment_topk(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int,
                 implementation: str | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The k rows of each segment with the largest dot product, for each query (EviGen section 3.2, retrieval).

    Args:
        q: [N, d] float, unit queries.
        x: [S, d] float32 or bfloat16, unit rows. Segment p is x[offsets[p]:offsets[p+1]]; rows outside
            [offsets[0], offsets[P]) are padding: whatever they hold, NaN included, reaches no result.
        offsets: int32 [P+1], not decreasing.
        k: how many to keep. max_segment: static bound on a segment's length (a shape ladder, so that jit compiles
            once a rung); a longer segment is an error where the offsets are concrete, undefined inside jit.
    Returns:
        scores float32 [P, N, k], descending, accumulated in float32; rows int32 [P, N, k], rows of x; valid bool
        [P, N, k]. Equal scores go to the lower row. A segment shorter than k has valid False, row -1 and score -inf
        in the ranks that it cannot fill.
        Scores are differentiable in q with the selection held fixed; x gets no gradient (it is data).
    Raises: ValueError on shapes, dtypes or offsets that do not fit; NotImplementedError where a named implementation
        cannot run here.
    """
    check(q, x, offsets, k, max_segment)
    return _segment_topk(jnp.asarray(q), rows_or_zero(x), jnp.asarray(offsets), k, max_segment, implementation)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _segment_topk(q, x, offsets, k, max_segment, implementation):
    return run(q, x, offsets, k, max_segment, implementation)


def run(q, x, offsets, k, max_segment, implementation):
    """The forward pass without a gradient rule, for operations that carry their own."""
    return dispatch.call("segment_topk", TABLE, implementation, q, x, offsets, k=k, max_segment=max_segment)


def _forward(q, x, offsets, k, max_segment, implementation):
    scores, rows, valid = run(q, x, offsets, k, max_segment, implementation)
    like = jnp.zeros((0,), q.dtype)
    return (scores, rows, valid), (x, rows, valid, like)


def _backward(k, max_segment, implementation, saved, cotangents):
    x, rows, valid, like = saved
    weight = jnp.where(valid, cotangents[0], 0.0)
    dq = jnp.einsum("pnk,pnkd->nd", weight, gathered(x, rows, valid), precision=jax.lax.Precision.HIGHEST)
    return dq.astype(like.dtype), None, None


_segment_topk.defvjp(_forward, _backward)


def check(q, x, offsets, k: int, max_segment: int) -> None:
    """Raises: ValueError where arguments of segment_topk or select_pool do not fit together."""
    if q.ndim != 2 or x.ndim != 2 or q.shape[1] != x.shape[1]:
        raise ValueError(f"got q {tuple(q.shape)} and x {tuple(x.shape)}, expected [N, d] and [S, d]")
    if offsets.ndim != 1 or offsets.shape[0] < 2 or offsets.dtype != jnp.int32:
        raise ValueError(f"got offsets {offsets.dtype}{tuple(offsets.shape)}, expected int32 [P+1] with P >= 1")
    if not (jnp.issubdtype(q.dtype, jnp.floating) and jnp.issubdtype(x.dtype, jnp.floating)):
        raise ValueError(f"got q {q.dtype} and x {x.dtype}, expected floating point")
    if k < 1 or max_segment < 1:
        raise ValueError(f"got k={k}, max_segment={max_segment}, expected at least 1")
    if not isinstance(offsets, jax.core.Tracer):
        o = np.asarray(offsets)
        length = np.diff(o)
        if length.min() < 0 or o[0] < 0 or o[-1] > x.shape[0]:
            raise ValueError(f"offsets must not decrease and must lie in [0, S={x.shape[0]}]; got {o[0]} .. {o[-1]}, "
                             f"smallest step {length.min()}")
        if length.max() > max_segment:
            raise ValueError(f"segment {int(length.argmax())} has {int(length.max())} rows, "
                             f"max_segment is {max_segment}")
