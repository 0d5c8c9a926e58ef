"""Choosing tokens on the device: greedy, temperature, top-k, top-p; float32 throughout.

A row's token depends on its own logits and on (seed, index) alone: the noise is drawn from a counter-based key of the
two, so neither its place in the batch nor its batch mates can change it. Nothing is sorted: the k-th largest logit and
the top-p threshold are found by bisection over the 32 bits of a float.
"""
from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LOWEST = float(jnp.finfo(jnp.float32).min)


class Choice(NamedTuple):
    """How each row chooses. temperature, top_p: float32 [R]; top_k: int32 [R] (0 = all); seed: uint32 [R];
    index: int32 [R], how many tokens the row's completion has already."""

    temperature: jax.Array
    top_p: jax.Array
    top_k: jax.Array
    seed: jax.Array
    index: jax.Array


def unpack(words: jax.Array, vocabulary: int) -> jax.Array:
    """uint32 [R, ceil(V / 32)] -> bool [R, V]; bit v % 32 of word v // 32 is token v."""
    bits = (words[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)[None, None]) & np.uint32(1)
    return bits.reshape(words.shape[0], -1)[:, :vocabulary].astype(bool)


def words(vocabulary: int) -> int:
    return -(-vocabulary // 32)


def _ordered(x: jax.Array) -> jax.Array:
    """float32 -> uint32 in the same order."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))


def _highest(enough, shape: tuple[int, ...]) -> jax.Array:
    """The highest uint32 [R] threshold for which enough(threshold [R, 1]) bool [R] holds; it must hold for 0."""
    def bit(i: jax.Array, threshold: jax.Array) -> jax.Array:
        trial = threshold | (np.uint32(1 << 31) >> i.astype(jnp.uint32))
        return jnp.where(enough(trial[:, None]), trial, threshold)

    return jax.lax.fori_loop(0, 32, bit, jnp.zeros(shape, jnp.uint32))


def _keep_top_k(logits: jax.Array, k: jax.Array) -> jax.Array:
    """[R, V] bool: the k largest (more where the k-th is tied); k = 0 keeps all."""
    order = _ordered(logits)
    least = _highest(lambda t: jnp.sum(order >= t, axis=-1, dtype=jnp.int32) >= k, k.shape)
    return (order >= least[:, None]) | (k <= 0)[:, None]


def _keep_top_p(logits: jax.Array, p: jax.Array) -> jax.Array:
    """[R, V] bool: the likeliest tokens whose probabilities reach p (all that tie with the last of them)."""
    weights = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    order, enough = _ordered(weights), p * jnp.sum(weights, axis=-1)
    least = _highest(lambda t: jnp.sum(jnp.where(order >= t, weights, 0.0), axis=-1) >= enough, p.shape)
    least = jnp.minimum(least, jnp.max(order, axis=-1))  # a p so small that `enough` is 0 keeps the likeliest
    return (order >= least[:, None]) | (p >= 1.0)[:, None]


def _noise(seed: jax.Array, index: jax.Array, width: int) -> jax.Array:
    """Gumbel noise float32 [R, width] of (seed, index)."""
    def one(seed: jax.Array, index: jax.Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), index), (width,), jnp.float32)

    return jax.vmap(one)(seed, index)


def sample(logits: jax.Array, choice: Choice, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One token a row.

    Args:
        logits: [R, V] float32.
        allowed: uint32 [R, ceil(V / 32)] as `unpack`; a row that allows nothing gets token 0.

    Returns:
        int32 [R] tokens; float32 [R] their log probability under `logits` alone.
    """
    masked = jnp.where(unpack(allowed, logits.shape[1]), logits, _LOWEST)
    random = choice.temperature > 0.0

    def draw() -> jax.Array:
        z = masked - jnp.max(masked, axis=-1, keepdims=True)  # the largest is 0, however cold
        z = jnp.maximum(z / jnp.where(random, choice.temperature, 1.0)[:, None], _LOWEST)
        keep = jax.lax.cond(jnp.any(random & (choice.top_k > 0)), lambda: _keep_top_k(z, choice.top_k),
                            lambda: jnp.ones(z.shape, bool))
        z = jnp.where(keep, z, _LOWEST)
        keep = jax.lax.cond(jnp.any(random & (choice.top_p < 1.0)), lambda: _keep_top_p(z, choice.top_p),
                            lambda: jnp.ones(z.shape, bool))
        noise = _noise(choice.seed, choice.index, z.shape[1])
        return jnp.argmax(jnp.where(keep & (z > _LOWEST), z + noise, -jnp.inf), axis=-1).astype(jnp.int32)

    greedy = jnp.argmax(masked, axis=-1).astype(jnp.int32)
    tokens = jnp.where(random, jax.lax.cond(jnp.any(random), draw, lambda: greedy), greedy)
    chosen = jnp.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    return tokens, chosen - jax.nn.logsumexp(logits, axis=-1)
