"""The training objective: cross-entropy plus diversity and simplicity of the queries (EviGen A.1.4, equation 4)."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax_kernels.unit import unit

from evigen_jax.retriever import EviGenConfig


def bce(logit: jax.Array, label: jax.Array, real: jax.Array, *, pos_weight: float = 1.0) -> jax.Array:
    """Mean cross-entropy over real patients from logits.

    Args: logit, label: float32 [P]. real: bool [P], False for padding patients. pos_weight: weight of the positives.
    Returns: float32 scalar, 0 where no patient is real.
    """
    logit, label = logit.astype(jnp.float32), label.astype(jnp.float32)
    each = pos_weight * label * jax.nn.softplus(-logit) + (1.0 - label) * jax.nn.softplus(logit)
    return jnp.where(real, each, 0.0).sum() / jnp.maximum(real.sum(dtype=jnp.int32), 1).astype(jnp.float32)


def diversity(query: jax.Array, *, scope: str = "all") -> jax.Array:
    """|Q~ Q~^T - I|_F^2 over unit queries [N, d]; scope "dynamic" leaves query 0 out, as the authors' release does."""
    if scope not in ("all", "dynamic"):
        raise ValueError(f"scope: got {scope!r}, expected all or dynamic")
    direction = unit(query if scope == "all" else query[1:])[0]
    gram = jnp.matmul(direction, direction.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.square(gram - jnp.eye(gram.shape[0], dtype=jnp.float32)).sum()


def simplicity(query: jax.Array) -> jax.Array:
    """Mean squared length of queries 1 .. N-1, 0 where there are none. query: [N, d]."""
    return jnp.square(query[1:].astype(jnp.float32)).sum() / max(1, query.shape[0] - 1)


def total(params: Mapping[str, Any], out: Mapping[str, jax.Array], batch: Mapping[str, jax.Array], *,
          config: EviGenConfig, pos_weight: float = 1.0) -> tuple[jax.Array, dict[str, jax.Array]]:
    """bce + lambda_aux (diversity + simplicity).

    Args: params: has query [N, d]. out: of `retriever.apply`. batch: label and real.
    Returns: (scalar, {"ce", "diversity", "simplicity"}), float32.
    """
    ce = bce(out["logit"], batch["label"], batch["real"], pos_weight=pos_weight)
    apart = diversity(params["query"], scope=config.diversity_scope)
    short = simplicity(params["query"])
    return ce + config.lambda_aux * (apart + short), {"ce": ce, "diversity": apart, "simplicity": short}
