"""The specification of segment_topk in plain jnp: every score against every segment, masked, sorted."""
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def segment_topk(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int):
    """See api.segment_topk. Memory O(P N S): for tests and small inputs only. `max_segment` is not needed here."""
    s, p = x.shape[0], offsets.shape[0] - 1
    row = jnp.arange(s, dtype=jnp.int32)
    inside = (row >= offsets[0]) & (row < offsets[-1])
    x = jnp.where(inside[:, None], x.astype(jnp.float32), 0.0)
    scores = jnp.matmul(q.astype(jnp.float32), x.T, precision=lax.Precision.HIGHEST)  # [N, S]
    member = (row[None] >= offsets[:-1, None]) & (row[None] < offsets[1:, None])  # [P, S]
    masked = jnp.where(member[:, None], scores[None], -jnp.inf)  # [P, N, S]
    masked = jnp.pad(masked, ((0, 0), (0, 0), (0, max(0, k - s))), constant_values=-jnp.inf)
    best, rows = lax.top_k(masked, k)  # stable: ties go to the lower row
    valid = jnp.arange(k, dtype=jnp.int32)[None, None] < jnp.diff(offsets)[:, None, None]
    valid = jnp.broadcast_to(valid, (p, q.shape[0], k))
    return jnp.where(valid, best, -jnp.inf), jnp.where(valid, rows.astype(jnp.int32), -1), valid
