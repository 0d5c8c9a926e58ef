"""The specification of gather_pool in plain jnp."""
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def gather_pool(x: jax.Array, rows: jax.Array, alpha: jax.Array, valid: jax.Array) -> jax.Array:
    """c [P, N, d] = sum over k of alpha * x[row], rows that are not valid left out."""
    picked = jnp.where(valid[..., None], x[jnp.maximum(rows, 0)].astype(jnp.float32), 0.0)  # [P, N, K, d]
    return jnp.einsum("pnk,pnkd->pnd", alpha, picked, precision=lax.Precision.HIGHEST)
