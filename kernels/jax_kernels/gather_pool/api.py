"""gather_pool: the masked softmax, selection of the implementation, and the gradient to the scores."""
from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jax_kernels import dispatch
from jax_kernels.gather_pool import reference, xla

TABLE = (
    dispatch.Implementation("xla", xla.gather_pool),
    dispatch.Implementation("reference", reference.gather_pool),
)


def gather_pool(x: jax.Array, rows: jax.Array, scores: jax.Array, valid: jax.Array, *, temperature: float = 1.0,
                implementation: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Attention pooling over retrieved rows (EviGen equation 2).

    Args:
        x: [S, d] float32 or bfloat16. rows: int32 [P, N, k], rows of x, -1 where not valid. scores: float32 [P, N, k].
        valid: bool [P, N, k]. temperature: scores are divided by it before the softmax (paper: 1).
    Returns:
        c float32 [P, N, d] and alpha float32 [P, N, k]: alpha sums to 1 over the valid ranks and is 0 elsewhere; where
        none is valid both are 0. Differentiable in the scores; x gets no gradient (it is data).
    Raises: ValueError on shapes that do not fit.
    """
    if rows.ndim != 3 or rows.shape != scores.shape or rows.shape != valid.shape or x.ndim != 2:
        raise ValueError(f"got x {tuple(x.shape)}, rows {tuple(rows.shape)}, scores {tuple(scores.shape)}, valid "
                         f"{tuple(valid.shape)}, expected [S, d] and three of [P, N, k]")
    if not temperature > 0:
        raise ValueError(f"got temperature={temperature}, expected above 0")
    x, rows, scores, valid = rows_or_zero(x), jnp.asarray(rows), jnp.asarray(scores), jnp.asarray(valid)
    return _gather_pool(x, rows, scores, valid, temperature, implementation)


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _gather_pool(x, rows, scores, valid, temperature, implementation):
    alpha = masked_softmax(scores, valid, temperature)
    return run(x, rows, alpha, valid, implementation), alpha


def run(x, rows, alpha, valid, implementation):
    """Weighted sum alone, without a gradient rule."""
    return dispatch.call("gather_pool", TABLE, implementation, x, rows, alpha, valid)


def masked_softmax(scores: jax.Array, valid: jax.Array, temperature: float) -> jax.Array:
    """Softmax over the valid ranks of the last axis, in float32; 0 elsewhere and everywhere where none is valid."""
    safe = jnp.where(valid, scores.astype(jnp.float32), 0.0) / temperature
    peak = jnp.max(jnp.where(valid, safe, jnp.finfo(jnp.float32).min), axis=-1, keepdims=True)
    weight = jnp.where(valid, jnp.exp(jnp.where(valid, safe - peak, 0.0)), 0.0)
    total = jnp.sum(weight, axis=-1, keepdims=True)
    return weight / jnp.where(total > 0.0, total, 1.0)


def score_cotangent(alpha: jax.Array, toward: jax.Array, temperature: float) -> jax.Array:
    """Softmax vjp: cotangent of the scores from the cotangent `toward` of alpha. All [P, N, k]."""
    return alpha * (toward - jnp.sum(alpha * toward, axis=-1, keepdims=True)) / temperature


def rows_or_zero(x: jax.Array) -> jax.Array:
    """x [S, d], or one row of zeros where S is 0, so that an index always has something to point at."""
    return jnp.asarray(x) if x.shape[0] else jnp.zeros((1, x.shape[1]), x.dtype)


def gathered(x: jax.Array, rows: jax.Array, valid: jax.Array) -> jax.Array:
    """Rows [P, N, k, d] in float32, 0 where not valid."""
    picked = x.at[jnp.maximum(rows, 0)].get(mode="promise_in_bounds").astype(jnp.float32)
    return jnp.where(valid[..., None], picked, 0.0)


def _forward(x, rows, scores, valid, temperature, implementation):
    c, alpha = _gather_pool(x, rows, scores, valid, temperature, implementation)
    return (c, alpha), (x, rows, valid, alpha)


def _backward(temperature, implementation, saved, cotangents):
    x, rows, valid, alpha = saved
    dc, dalpha = cotangents
    toward = dalpha + jnp.einsum("pnd,pnkd->pnk", dc, gathered(x, rows, valid), precision=jax.lax.Precision.HIGHEST)
    return None, None, score_cotangent(alpha, toward, temperature), None


_gather_pool.defvjp(_forward, _backward)
