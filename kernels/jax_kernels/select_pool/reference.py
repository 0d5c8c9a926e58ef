"""The specification of select_pool: the two references in a row, differentiable by plain autodiff."""
from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_kernels.gather_pool import reference as pool
from jax_kernels.gather_pool.api import masked_softmax
from jax_kernels.segment_topk import reference as topk
from jax_kernels.unit import unit


def select_pool(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int, temperature: float = 1.0):
    """See api.select_pool."""
    x = jax.lax.stop_gradient(x)
    scores, rows, valid = topk.segment_topk(unit(q)[0], x, offsets, k=k, max_segment=max_segment)
    alpha = masked_softmax(jnp.where(valid, scores, 0.0), valid, temperature)
    return pool.gather_pool(x, rows, alpha, valid), alpha, scores, rows, valid
