"""The gradient of select_pool to unit queries: equation 3, by gathering the selected rows once more."""
from __future__ import annotations

import jax
import jax.numpy as jnp

from jax_kernels.gather_pool.api import gathered, score_cotangent

_HIGHEST = jax.lax.Precision.HIGHEST


def to_direction(x, rows, valid, alpha, dc, dalpha, dscores, *, temperature: float) -> jax.Array:
    """Cotangent [N, d] of the unit queries.

    Args: x: [S, d]. rows, valid, alpha: [P, N, k] as the forward pass returned them. dc: [P, N, d]; dalpha, dscores:
        [P, N, k], cotangents of its outputs.
    """
    return of_patients(gathered(x, rows, valid), valid, alpha, dc, dalpha, dscores, temperature)


def of_patients(picked, valid, alpha, dc, dalpha, dscores, temperature: float) -> jax.Array:
    """The same from the gathered rows [P, N, k, d]."""
    toward = dalpha + jnp.einsum("pnd,pnkd->pnk", dc, picked, precision=_HIGHEST)
    weight = score_cotangent(alpha, toward, temperature) + jnp.where(valid, dscores, 0.0)
    return jnp.einsum("pnk,pnkd->nd", weight, picked, precision=_HIGHEST)
