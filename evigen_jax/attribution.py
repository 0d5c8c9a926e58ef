"""Integrated Gradients of a prediction on its retrieved chunks (paper 3.2 "Training and inference").

The path scales every retrieved chunk of a patient from zero to itself. Cosines do not change on it, so neither does
the selection or a gate: holding them fixed is exact.

On the path a pooled context c_i never leaves the span of its K chunks. With a scale t_ij per slot,
    c_i(t) = sum_j beta_ij x_ij,   beta_ij = t_ij softmax_j(t_ij s_ij / temperature),
the integral of dF/dt_ij over t = alpha * 1 is slot (i, j)'s attribution, and a chunk's is the sum over its slots. So the
K projections W1^T (ln_scale * centred x_ij) and the K x K Gram matrix of the centred chunks (LayerNorm's variance) are
computed once per patient; a node then costs K*h instead of d*h in the first layer, and no d-vector gradient exists.
Nodes and patients together are the rows of one matrix product per layer. float32 throughout, HIGHEST precision.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from evigen_jax.quadrature import Rule, rule

Target = Literal["logit", "prob"]
_HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True)
class Quadrature:
    """Start with `nodes`; double, up to `max_nodes`, until the completeness gap is at most `tolerance`."""

    rule: Rule = "graded"
    nodes: int = 32
    max_nodes: int = 256
    tolerance: float = 1e-4

    def __post_init__(self):
        rule(self.rule, self.nodes)
        if self.max_nodes < self.nodes or not self.tolerance > 0:
            raise ValueError(f"quadrature: got {self}, expected max_nodes >= nodes and tolerance > 0")


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkAttribution:
    """One retrieved chunk. row: its row in the batch's x of `modality`; similarity: the largest over `queries`."""

    modality: Literal["note", "code"]
    row: int
    attribution: float
    similarity: float
    queries: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Attribution:
    """Of one patient. `base` and `value` are F(0) and F(x) in units of the target; base_logit is always a logit.

    gap: |total - (value - base)| / max(|value - base|, 0.1).
    """

    chunks: tuple[ChunkAttribution, ...]
    base_logit: float
    base: float
    value: float
    total: float
    gap: float
    converged: bool
    nodes: int
    rule: str
    target: str
    active: tuple[int, ...]


def attribute(
    params: Any, out: dict, batch: dict, config: Any, *,
    target: Target = "logit", quadrature: Quadrature = Quadrature(), ig_batch: int = 16,
) -> list[Attribution | None]:
    """Attributions of every patient of a batch, None for padding patients.

    Args:
        params: the retriever's parameters (float32).
        out: what `retriever.apply(params, batch)` returned: gate [P, N], scores, rows, valid [P, N, K], logit [P].
        batch: x_note [S_n, D], x_code [S_c, D], real [P].
        config: `EviGenConfig` (temperature, aggregate, ln_eps, n_note are read).
        target: the logit (default), or the probability.
        ig_batch: patients per compiled call at `quadrature.nodes` nodes; a call with more nodes takes fewer.

    Raises:
        ValueError: F at the end of the path is not the prediction, so the head in `config` is not the one that predicted.
    """
    if target not in ("logit", "prob"):
        raise ValueError(f"target: got {target!r}, expected logit or prob")
    if ig_batch < 1:
        raise ValueError(f"ig_batch: got {ig_batch}, expected at least 1")
    host = {k: np.asarray(out[k]) for k in ("gate", "scores", "rows", "valid", "logit")}
    host["scores"] = np.where(host["valid"], host["scores"], 0.0).astype(np.float32)
    active = host["gate"] > 0.5
    todo = np.flatnonzero(np.asarray(batch["real"]))
    results: list[Attribution | None] = [None] * len(active)
    weights = jax.device_put({k: params[k] for k in ("expert", "final_ln", "head")})
    head = _Head(
        int(config.n_note), float(config.temperature), float(config.ln_eps), config.aggregate == "mean", target == "prob",
    )
    nodes = quadrature.nodes
    while todo.size:
        alpha, weight = (a.astype(np.float32) for a in rule(quadrature.rule, nodes))
        alpha, weight = np.append(alpha, [0, 1]).astype(np.float32), np.append(weight, [0, 0]).astype(np.float32)
        last = 2 * nodes > quadrature.max_nodes
        again = []
        for chunk in _chunks(todo, active, max(1, ig_batch * quadrature.nodes // nodes)):
            ids = _queries(active[chunk].any(0))
            pick = np.ix_(chunk, ids)
            slot, value = _integrate(
                weights, batch["x_note"], batch["x_code"], host["rows"][pick], host["valid"][pick],
                host["scores"][pick], active[pick].astype(np.float32), ids.astype(np.int32),
                alpha, weight, head=head,
            )
            slot, value = np.asarray(slot, np.float64), np.asarray(value, np.float64)
            for n, p in enumerate(chunk):
                if results[p] is not None and nodes == results[p].nodes:
                    continue  # a patient repeated to fill the call
                results[p] = _collect(host, p, ids, slot[n], value[n], head, quadrature, nodes, target)
                if not results[p].converged and not last:
                    again.append(p)
        todo = np.asarray(again, np.int64)
        nodes *= 2
    return results


@dataclasses.dataclass(frozen=True)
class _Head:
    """What of the configuration the compiled call depends on."""

    n_note: int
    temperature: float
    eps: float
    mean: bool
    prob: bool


def _chunks(todo: np.ndarray, active: np.ndarray, size: int):
    """Patients with like active sets together, each call filled to `size` or a small power of 4: few compiled shapes."""
    order = todo[np.lexsort(active[todo].T)]
    for start in range(0, len(order), size):
        part = order[start:start + size]
        full = next(n for n in (1, 4, 16, 64, 256, size) if n >= len(part))
        yield np.concatenate([part, np.repeat(part[:1], min(full, size) - len(part))])


def _queries(active: np.ndarray) -> np.ndarray:
    """The active queries, filled up with idle ones to half of all or to all. An idle query has weight 0."""
    n = len(active)
    size = (n + 1) // 2 if active.sum() <= (n + 1) // 2 else n
    return np.sort(np.argsort(~active, kind="stable")[:size])


@functools.partial(jax.jit, static_argnames="head")
def _integrate(params, x_note, x_code, rows, valid, scores, gate, ids, alpha, weight, *, head: _Head):
    """One compiled call: C patients, U queries (`ids`), n nodes of which the last two are 0 and 1 with weight 0.

    Args: rows, valid, scores: [C, U, K]; gate: [C, U]; alpha, weight: [n].
    Returns: slot attributions [C, U, K]; logits at 0 and at 1, [C, 2].
    """
    expert = params["expert"]
    if len(ids) < len(expert["b1"]):
        expert = {k: jnp.take(v, ids, axis=0) for k, v in expert.items()}
    of_note = (ids < head.n_note)[None, :, None, None]
    x = jnp.where(of_note, _rows(x_note, rows), _rows(x_code, rows))
    x = jnp.where(valid[..., None], x, 0.0)  # [C, U, K, D]
    d, h = expert["w1"].shape[1:]
    xc = x - x.mean(-1, keepdims=True)
    gram = jnp.einsum("CUKD,CULD->CUKL", xc, xc, precision=_HIGHEST) / d
    lhs = (xc * expert["ln_scale"][None, :, None]).swapaxes(0, 1).reshape(xc.shape[1], -1, d)
    lhs = jnp.concatenate([lhs, expert["ln_bias"][:, None]], 1)  # one matrix product per expert: every chunk, and the bias
    lhs = jnp.einsum("UMD,UDH->UMH", lhs, expert["w1"], precision=_HIGHEST)
    projected = lhs[:, :-1].reshape(xc.shape[1], *xc.shape[0:3:2], h).swapaxes(0, 1)  # [C, U, K, H]
    bias = expert["b1"] + lhs[:, -1]
    w2 = expert["w2"].reshape(-1, d)
    count = jnp.maximum(gate.sum(-1), 1.0) if head.mean else jnp.ones_like(gate[:, 0])
    readout = params["final_ln"]["scale"] * params["head"]["w"]
    constant = params["final_ln"]["bias"] @ params["head"]["w"] + params["head"]["b"]

    def logits(t):  # [C, n, U, K] -> [C, n]
        z = jnp.where(valid[:, None], t * scores[:, None] / head.temperature, jnp.finfo(t.dtype).min)
        e = jnp.where(valid[:, None], jnp.exp(z - jax.lax.stop_gradient(z.max(-1, keepdims=True))), 0.0)
        total = e.sum(-1, keepdims=True)
        beta = t * e / jnp.where(total > 0, total, 1.0)
        variance = (beta[..., None] * beta[..., None, :] * gram[:, None]).sum((-2, -1))
        unit = beta * jax.lax.rsqrt(jnp.maximum(variance, 0.0) + head.eps)[..., None]
        act = _gelu(jnp.einsum("CnUK,CUKH->CnUH", unit, projected, precision=_HIGHEST) + bias[None, None])
        act *= gate[:, None, :, None]
        pooled = _second(act.reshape(-1, w2.shape[0]), w2).reshape(*t.shape[:2], d)
        pooled += jnp.einsum("CnUK,CUKD->CnD", beta * gate[:, None, :, None], x, precision=_HIGHEST)
        pooled = (pooled + jnp.matmul(gate, expert["b2"], precision=_HIGHEST)[:, None]) / count[:, None, None]
        centred = pooled - pooled.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1) + head.eps)
        return jnp.einsum("CnD,D->Cn", centred, readout, precision=_HIGHEST) * scale + constant

    t = jnp.broadcast_to(alpha[None, :, None, None], (x.shape[0], alpha.shape[0], *x.shape[1:3]))
    value, pullback = jax.vjp(logits, t)
    cotangent = jnp.broadcast_to(weight[None], value.shape)
    if head.prob:
        p = jax.nn.sigmoid(value)
        cotangent = cotangent * p * (1.0 - p)
    return pullback(cotangent)[0].sum(1), value[:, -2:]


@jax.custom_vjp
def _gelu(u: jax.Array) -> jax.Array:
    """Exact GELU whose slope is found with its value, so that the backward pass computes no erf (2 times on CPU)."""
    return _gelu_and_slope(u)[0]


def _gelu_and_slope(u):
    half = 0.5 * (1.0 + jax.lax.erf(u * math.sqrt(0.5)))
    return u * half, half + u * jnp.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)


_gelu.defvjp(_gelu_and_slope, lambda slope, g: (g * slope,))


@jax.custom_vjp
def _second(act: jax.Array, w2: jax.Array) -> jax.Array:
    """act [M, F] @ w2 [F, D]; w2 is constant. The pullback is computed as [F, M], in which XLA:CPU is 2 times faster."""
    return jnp.matmul(act, w2, precision=_HIGHEST)


def _second_pullback(w2, g):
    out = jnp.einsum("FD,MD->FM", w2, g, precision=_HIGHEST)
    return jax.lax.optimization_barrier(out).T, jnp.zeros_like(w2)


_second.defvjp(lambda act, w2: (_second(act, w2), w2), _second_pullback)


def _rows(x: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.take(x, rows, axis=0, mode="clip") if x.shape[0] else jnp.zeros((*rows.shape, x.shape[1]), x.dtype)


def _collect(host, p, ids, slot, value, head, quadrature, nodes, target) -> Attribution:
    """Slots -> unique chunks by (modality, row), never by position; completeness."""
    told, found = host["logit"][p], value[1]
    if not abs(told - found) <= 1e-3 * max(1.0, abs(told)):
        raise ValueError(
            f"attribution: patient {p} of the batch: the path ends at logit {found:.6f}, the prediction is {told:.6f}; "
            "attribute() knows the standard pooling, experts, aggregation and head only"
        )
    chunks: dict[tuple[str, int], list] = {}
    for u, i in enumerate(ids):
        if host["gate"][p, i] <= 0.5:
            continue
        for k in np.flatnonzero(host["valid"][p, i]):
            key = ("note" if i < head.n_note else "code", int(host["rows"][p, i, k]))
            entry = chunks.setdefault(key, [0.0, -np.inf, []])
            entry[0] += slot[u, k]
            entry[1] = max(entry[1], float(host["scores"][p, i, k]))
            entry[2].append(int(i))
    base, end = (1 / (1 + np.exp(-value)) if head.prob else value).tolist()
    total = float(slot.sum())
    gap = abs(total - (end - base)) / max(abs(end - base), 0.1)
    return Attribution(
        tuple(ChunkAttribution(m, r, float(a), float(s), tuple(q)) for (m, r), (a, s, q) in sorted(chunks.items())),
        float(value[0]), base, end, total, gap, bool(gap <= quadrature.tolerance), nodes, quadrature.rule, target,
        tuple(np.flatnonzero(host["gate"][p] > 0.5).tolist()),
    )
