"""The specification of expert_matmul: a batched product, and its gradient to x as autodiff writes it."""
from __future__ import annotations

import jax
import jax.numpy as jnp


def forward(x: jax.Array, w: jax.Array) -> jax.Array:
    """[N, P, a] x [N, a, b] -> [N, P, b]."""
    return jax.lax.dot_general(x, w, (((2,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)


def to_x(dy: jax.Array, w: jax.Array) -> jax.Array:
    """[N, P, b] x [N, a, b] -> [N, P, a]."""
    return jax.lax.dot_general(dy, w, (((2,), (2,)), ((0,), (0,))), preferred_element_type=jnp.float32)


def to_w(x: jax.Array, dy: jax.Array) -> jax.Array:
    """[N, P, a] x [N, P, b] -> [N, a, b]."""
    return jax.lax.dot_general(x, dy, (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)
