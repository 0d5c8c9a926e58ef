"""Unit vectors that stay finite at zero."""
from __future__ import annotations

import jax
import jax.numpy as jnp

EPS = 1e-12


def unit(v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Direction and length of vectors.

    Args: v: [..., d] float; computed in float32.
    Returns: (direction [..., d] float32, length [..., 1] float32). Where the length is at most 1e-12 both are 0 and
        so is their gradient; the second `where` keeps the unused branch of the square root finite under autodiff.
    """
    v = v.astype(jnp.float32)
    square = jnp.sum(v * v, axis=-1, keepdims=True)
    positive = square > EPS * EPS
    length = jnp.sqrt(jnp.where(positive, square, 1.0))
    return jnp.where(positive, v / length, 0.0), jnp.where(positive, length, 0.0)


def unit_vjp(direction: jax.Array, length: jax.Array, cotangent: jax.Array) -> jax.Array:
    """(I - u u^T) / |v| applied to a cotangent of u; 0 where |v| is 0. Shapes as `unit` returns them."""
    tangent = cotangent - direction * jnp.sum(direction * cotangent, axis=-1, keepdims=True)
    positive = length > 0.0
    return jnp.where(positive, tangent / jnp.where(positive, length, 1.0), 0.0)
