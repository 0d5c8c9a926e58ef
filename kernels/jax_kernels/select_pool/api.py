"""select_pool: retrieval and pooling as one differentiable operation (EviGen section 3.2 and equation 3)."""
from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jax_kernels import dispatch
from jax_kernels.gather_pool import api as pool
from jax_kernels.segment_topk import api as topk
from jax_kernels.select_pool import xla, xla_cpu
from jax_kernels.unit import unit, unit_vjp

GRADIENTS = (
    dispatch.Implementation("xla_cpu", xla_cpu.to_direction, ("cpu",)),
    dispatch.Implementation("xla", xla.to_direction),
)


def select_pool(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int, temperature: float = 1.0,
                implementation: str | None = None) -> tuple[jax.Array, ...]:
    """Cosine top-k of each query in each segment, pooled by a softmax over the k scores.

    Args:
        q: [N, d] float, raw queries of any length; a query of length 0 scores 0 everywhere.
        x: [S, d] float32 or bfloat16 unit rows. offsets, k, max_segment: as in `segment_topk`.
        temperature: of the softmax. implementation: of both forward steps; the gradient's is chosen by platform.
    Returns:
        (c float32 [P, N, d], alpha [P, N, k], scores [P, N, k], rows int32 [P, N, k], valid bool [P, N, k]).
        An empty segment has c = 0 and alpha = 0.

    The gradient goes to q alone, in closed form with the selection held fixed: with u_j = <dL/dc, x_j>, equation 3 of
    the paper gives dL/dq~ = sum_j alpha_j (u_j - sum_i alpha_i u_i) x_j / temperature, and the normalisation, which
    the paper drops "for clarity", gives dL/dq = (I - q~ q~^T) dL/dq~ / |q|. Cotangents of alpha and of the scores are
    included. The backward pass reads the selected rows of x again and nothing else of it. x gets no gradient, whoever
    asks: it is data, and a scatter into it would be the slowest part of the step.
    Raises: as `segment_topk`; ValueError where temperature is not above 0.
    """
    topk.check(q, x, offsets, k, max_segment)
    if not temperature > 0:
        raise ValueError(f"got temperature={temperature}, expected above 0")
    return _select_pool(jnp.asarray(q), pool.rows_or_zero(x), jnp.asarray(offsets), k, max_segment, temperature,
                        implementation)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5, 6))
def _select_pool(q, x, offsets, k, max_segment, temperature, implementation):
    return _run(unit(q)[0], x, offsets, k, max_segment, temperature, implementation)


def _run(direction, x, offsets, k, max_segment, temperature, implementation):
    scores, rows, valid = topk.run(direction, x, offsets, k, max_segment, implementation)
    alpha = pool.masked_softmax(scores, valid, temperature)
    return pool.run(x, rows, alpha, valid, implementation), alpha, scores, rows, valid


def _forward(q, x, offsets, k, max_segment, temperature, implementation):
    direction, length = unit(q)
    out = _run(direction, x, offsets, k, max_segment, temperature, implementation)
    _, alpha, _, rows, valid = out
    return out, (direction, length, x, rows, valid, alpha, jnp.zeros((0,), q.dtype))


def _backward(k, max_segment, temperature, implementation, saved, cotangents):
    direction, length, x, rows, valid, alpha, like = saved
    dq = dispatch.call("select_pool", GRADIENTS, None, x, rows, valid, alpha, *cotangents[:3], temperature=temperature)
    return unit_vjp(direction, length, dq).astype(like.dtype), None, None


_select_pool.defvjp(_forward, _backward)
