"""Cross-entropy over a large vocabulary without its logits: block by block, the gradient made on the way forward.

Letters: B rows, T tokens of each, D width, V vocabulary, n new token rows.

Logits of a block are float32 and exist once: their gradient is taken at once, so that the backward pass multiplies by
a number and nothing is computed again. Tokens without loss are passed over: each row's tokens with loss come first,
and blocks in which no row has any left are never computed (a prompt costs nothing here).
"""
from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

BLOCK_TOKENS = 1024  # of all rows together; a block's logits take 4 V bytes a token
SHORT_ROWS = 8  # blocks that a row has at least: in short rows too, what has no loss is passed over


def cross_entropy(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, weights: jax.Array, *, rows: jax.Array | None = None,
    ids: jax.Array | None = None, train_head: bool = False, block_tokens: int = BLOCK_TOKENS,
) -> jax.Array:
    """float32[]: sum over tokens of weight times -log softmax(hidden head^T)[target].

    Args:
        hidden: [B, T, D].
        head: [V, D]; its gradient is zero unless train_head.
        targets: [B, T] int32; weights: [B, T] float32, at least 0.
        rows: [n, D], in place of the head's rows `ids` [n]; they have a gradient.
    """
    if rows is None:
        rows, ids = jnp.zeros((0, head.shape[1]), head.dtype), jnp.zeros((0,), jnp.int32)
    block = max(1, math.ceil(min(hidden.shape[1] / SHORT_ROWS, block_tokens / hidden.shape[0])))
    return _loss((block, train_head), hidden, head, rows, ids, targets, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loss(how, hidden, head, rows, ids, targets, weights):
    return _sweep(how, hidden, head, rows, ids, targets, weights, gradient=False)[0]


def _forward(how, hidden, head, rows, ids, targets, weights):
    loss, gradient = _sweep(how, hidden, head, rows, ids, targets, weights, gradient=True)
    return loss, (gradient, ids, targets, weights)


def _backward(how, saved, pull):
    gradient, ids, targets, weights = saved
    none = [np.zeros(x.shape, jax.dtypes.float0) for x in (ids, targets)]
    scaled = [(x.astype(jnp.float32) * pull).astype(x.dtype) for x in gradient]
    return (*scaled, *none, jnp.zeros_like(weights))


_loss.defvjp(_forward, _backward)


def _sweep(how, hidden, head, rows, ids, targets, weights, *, gradient: bool):
    """(loss, (d hidden, d head, d rows)); the gradients are zero where they are not asked for."""
    block, train_head = how
    b, t, d = hidden.shape
    table = head.at[ids].set(rows.astype(head.dtype)) if ids.size else head
    first = jnp.argsort(weights == 0, axis=1, stable=True)  # tokens with loss, in their order
    blocks = -(-jnp.max(jnp.sum(weights > 0, axis=1, dtype=jnp.int32)) // block)

    def laid(x: jax.Array) -> jax.Array:
        index = first if x.ndim == 2 else first[..., None]
        x = jnp.take_along_axis(x, index, axis=1)
        return jnp.pad(x, [(0, 0), (0, -t % block), *[(0, 0)] * (x.ndim - 2)])

    hidden, targets, weights = laid(hidden), laid(targets), laid(weights)

    def step(carry):
        i, loss, dh, dtable, drows = carry
        h, y, w = (jax.lax.dynamic_slice_in_dim(x, i * block, block, 1) for x in (hidden, targets, weights))
        h, y, w = h.reshape(-1, d), y.reshape(-1), w.reshape(-1)
        logits = _logits(h, table)
        top = jnp.max(logits, axis=1, keepdims=True)
        parts = jnp.exp(logits - top)
        total = jnp.sum(parts, axis=1, keepdims=True)
        hit = y[:, None] == jnp.arange(logits.shape[1], dtype=jnp.int32)[None]
        picked = jnp.sum(jnp.where(hit, logits, 0), axis=1)
        loss = loss + jnp.sum(w * (jnp.log(total[:, 0]) + top[:, 0] - picked))
        if gradient:
            pull = (w[:, None] * (parts / total - hit.astype(jnp.float32))).astype(table.dtype)
            new = _dot(pull, table, 0).astype(dh.dtype).reshape(b, block, d)
            dh = jax.lax.dynamic_update_slice_in_dim(dh, new, i * block, 1)
            if train_head:
                dtable = dtable + _dot(pull.T, h.astype(table.dtype), 0)
            if ids.size:
                drows = drows + _dot(pull[:, ids].T, h.astype(table.dtype), 0)
        return i + 1, loss, dh, dtable, drows

    start = (jnp.int32(0), jnp.float32(0), jnp.zeros_like(hidden) if gradient else None,
             jnp.zeros(head.shape, jnp.float32) if gradient and train_head else None,
             jnp.zeros(rows.shape, jnp.float32) if gradient else None)
    _, loss, dh, dtable, drows = jax.lax.while_loop(lambda carry: carry[0] < blocks, step, start)
    if not gradient:
        return loss, None
    dh = jnp.take_along_axis(dh[:, :t], jnp.argsort(first, axis=1)[..., None], axis=1)
    dhead = jnp.zeros_like(head) if dtable is None else dtable
    if ids.size and train_head:
        dhead = dhead.at[ids].set(0)
    return loss, (dh, dhead.astype(head.dtype), drows.astype(rows.dtype))


def _logits(h: jax.Array, table: jax.Array) -> jax.Array:
    """h [M, D] -> float32 [M, V]. With the table on the right XLA:CPU copies it transposed, block after block, which
    takes as long as the product; the barrier keeps it on the left."""
    def left(h, table):
        return jax.lax.optimization_barrier(_dot(table, h, 1)).T

    return jax.lax.platform_dependent(h.astype(table.dtype), table, cpu=left, default=lambda h, w: _dot(h, w, 1))


def _dot(x: jax.Array, w: jax.Array, axis: int) -> jax.Array:
    """x [M, k] times w, contracting w's `axis`; float32."""
    return jax.lax.dot_general(x.astype(w.dtype), w, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)
