"""The gradient to x on XLA:CPU through a transposed copy of w.

Contracting the last axis of w makes Eigen pack columns that lie a row length apart. For rows of 1,024 or 4,096 floats
that is a multiple of 4 KiB, so the columns fall into the same cache sets: 80 cpu-ms for [8, 16, 1024] where the copy
and a straight product cost 37 together. The barrier keeps XLA from folding the transpose back into the product.
"""
from __future__ import annotations

import jax

from jax_kernels.expert_matmul import reference


def to_x(dy: jax.Array, w: jax.Array) -> jax.Array:
    """See reference.to_x."""
    return reference.forward(dy, jax.lax.optimization_barrier(w.transpose(0, 2, 1)))
