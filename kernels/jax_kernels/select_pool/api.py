"""select_pool: retrieval and pooling as one differentiable operation (EviGen section 3.2 and equation 3)."""
from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jax_kernels.gather_pool import api as pool
from jax_kernels.segment_topk import api as topk
from jax_kernels.unit import unit, unit_vjp


def select_pool(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int, temperature: float = 1.0,
                implementation: str | None = None) -> tuple[jax.Array, ...]:
    """Cosine top-k of each query in each segment, pooled by a softmax over the k scores.

    Args:
        q: [N, d] float, raw queries of any length; a query of length 0 scores 0 everywhere.
        x: [S, d] float32 or bfloat16 unit rows. offsets, k, max_segment: as in `segment_topk`.
        temperature: of the softmax. implementation: of both steps.
    Returns:
        (c float32 [P, N, d], alpha [P, N, k], scores [P, N, k], rows int32 [P, N, k], valid bool [P, N, k]).
        An empty segment has c = 0 and alpha = 0.

    The gradient goes to q alone, in closed form with the selection held fixed: with u_j = <dL/dc, x_j>, equation 3 of
    the paper gives dL/dq~ = sum_j alpha_j (u_j - sum_i alpha_i u_i) x_j / temperature, and the normalisation, which
    the paper drops "for clarity", gives dL/dq = (I - q~ q~^T) dL/dq~ / |q|. Cotangents of alpha and of the scores are
    included. x gets none, whoever asks: it is data, and a scatter into it would be the slowest part of the step.
    Raises: as `segment_topk`; ValueError where temperature is not above 0.
    """
    topk.check(q, x, offsets, k, max_segment)
    if not temperature > 0:
        raise ValueError(f"got temperature={temperature}, expected above 0")
    return _select_pool(jnp.asarray(q), pool.rows_or_zero(x), jnp.asarray(offsets), k, max_segment, temperature, implementation)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5, 6))
def _select_pool(q, x, offsets, k, max_segment, temperature, implementation):
    scores, rows, valid = topk.run(unit(q)[0], x, offsets, k, max_segment, implementation)
    alpha = pool.masked_softmax(scores, valid, temperature)
    return pool.run(x, rows, alpha, valid, implementation), alpha, scores, rows, valid


def _forward(q, x, offsets, k, max_segment, temperature, implementation):
    """As the primal, but the k rows are gathered once and kept: the backward pass never touches x."""
    direction, length = unit(q)
    scores, rows, valid = topk.run(direction, x, offsets, k, max_segment, implementation)
    alpha = pool.masked_softmax(scores, valid, temperature)
    picked = pool.gathered(x, rows, valid)
    c = jnp.einsum("pnk,pnkd->pnd", alpha, picked, precision=jax.lax.Precision.HIGHEST)
    saved = (direction, length, alpha, picked, valid, jnp.zeros((0,), q.dtype))
    return (c, alpha, scores, rows, valid), saved


def _backward(k, max_segment, temperature, implementation, saved, cotangents):
    direction, length, alpha, picked, valid, like = saved
    dc, dalpha, dscores, _, _ = cotangents
    toward = dalpha + jnp.einsum("pnd,pnkd->pnk", dc, picked, precision=jax.lax.Precision.HIGHEST)
    weight = pool.score_cotangent(alpha, toward, temperature) + jnp.where(valid, dscores, 0.0)
    dq = jnp.einsum("pnk,pnkd->nd", weight, picked, precision=jax.lax.Precision.HIGHEST)
    return unit_vjp(direction, length, dq).astype(like.dtype), None, None


_select_pool.defvjp(_forward, _backward)
