"""The evidence selector (EviGen 3.2, A.1): queries retrieve observations, gates choose queries, experts read them.

Pure functions over a parameter tree: `spec` declares it, `init` draws it, `apply` runs it. `EvidenceSelector` is the
same as a Flax NNX module. "Trap n" is a row of the specification's table of mathematical traps; docs/choices.md says
which of its choices users can change.

    params  query [N, d]; eta [N-1];
            expert {ln_scale, ln_bias [N, d], w1 [N, d, h], b1 [N, h], w2 [N, h, d], b2 [N, d]};
            final_ln {scale, bias [d]}; head {w [d], b []}; with summary_ln also summary_ln {scale, bias [M, d]}
    batch   for m in note, code: x_m [S, d] unit rows, off_m int32 [P+1], mean_m [P, d]; label [P]; real bool [P]

Queries 0 .. n_note-1 read notes (0 is always on), the rest read codes. Everything that decides is float32: cosines,
gates, softmax, LayerNorm, logits. Letters: P patients, N queries, K top-K, S packed rows, d embedding, h expert hidden.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jax_kernels.expert_matmul import expert_matmul
from jax_kernels.gather_pool import gather_pool
from jax_kernels.segment_topk import segment_topk
from jax_kernels.select_pool import select_pool, select_pool_sharded
from jax_kernels.unit import unit

from core_jax import axes as A
from core_jax import params as specs
from core_jax.params import ParamSpec

Params = dict[str, Any]
MODALITIES = ("note", "code")
_HIGHEST = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True)
class EviGenConfig:
    """The architecture and its loss weights.

    d: embedding width. n_note, n_code: queries per modality (paper: 4 + 4 for mortality, 6 + 6 for autism and ADHD).
    k: observations per query. d_hidden: expert width. temperature: of the pooling softmax.
    aggregate: "mean" over active experts, or their "sum". summary_ln: LayerNorm on the summary before the
    cosine gate, as the authors' release has it and the paper does not. gating: False sets every gate to 1,
    absent modalities excepted. lambda_aux and diversity_scope: see losses.
    """

    d: int
    n_note: int = 4
    n_code: int = 4
    k: int = 4
    d_hidden: int = 1024
    dropout: float = 0.1
    temperature: float = 1.0
    aggregate: Literal["mean", "sum"] = "mean"
    summary_ln: bool = False
    gating: bool = True
    lambda_aux: float = 0.01
    diversity_scope: Literal["all", "dynamic"] = "all"
    ln_eps: float = 1e-5

    def __post_init__(self):
        for name, least in (("d", 1), ("n_note", 1), ("n_code", 0), ("k", 1), ("d_hidden", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout: got {self.dropout}, expected in [0, 1)")
        for name in ("temperature", "ln_eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a positive number")
        if self.lambda_aux < 0:
            raise ValueError(f"lambda_aux: got {self.lambda_aux}, expected at least 0")
        for name, choices in (("aggregate", ("mean", "sum")), ("diversity_scope", ("all", "dynamic"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected one of {choices}")

    @property
    def n(self) -> int:
        """Number of queries, N."""
        return self.n_note + self.n_code


# ---- parameters -----------------------------------------------------------------------------------------------

def spec(config: EviGenConfig) -> Params:
    """The parameter tree as ParamSpecs: shapes, logical axes, initialisers (A.1.2).

    Queries are drawn from N(0, 1/d), so their length is about 1; thresholds and biases are 0; matrices have the
    variance of torch.nn.Linear's default, 1 / (3 fan_in), which the authors' release inherits.
    """
    n, d, h = config.n, config.d, config.d_hidden
    q, e = A.QUERIES, A.EMBED

    def linear(fan_in):
        return ("normal", 1.0 / math.sqrt(3.0 * fan_in))

    tree = {
        "query": ParamSpec((n, d), (q, e), ("normal", 1.0 / math.sqrt(d))),
        "eta": ParamSpec((n - 1,), (q,), "zeros"),
        "expert": {
            "ln_scale": ParamSpec((n, d), (q, e), "ones"),
            "ln_bias": ParamSpec((n, d), (q, e), "zeros"),
            "w1": ParamSpec((n, d, h), (q, e, A.HIDDEN), linear(d)),
            "b1": ParamSpec((n, h), (q, A.HIDDEN), "zeros"),
            "w2": ParamSpec((n, h, d), (q, A.HIDDEN, e), linear(h)),
            "b2": ParamSpec((n, d), (q, e), "zeros"),
        },
        "final_ln": {"scale": ParamSpec((d,), (e,), "ones"), "bias": ParamSpec((d,), (e,), "zeros")},
        "head": {"w": ParamSpec((d,), (e,), linear(d)), "b": ParamSpec((), (), "zeros")},
    }
    if config.summary_ln:
        m = len(_modalities(config))
        tree["summary_ln"] = {"scale": ParamSpec((m, d), (None, e), "ones"),
                              "bias": ParamSpec((m, d), (None, e), "zeros")}
    return tree


def count(config: EviGenConfig) -> int:
    """Number of trained scalars: N (2 d h + h + d + 2 d) + 2 d + d + 1 + N d + N - 1; 2 M d more with
    summary_ln."""
    return specs.count(spec(config))


def init(config: EviGenConfig, key: jax.Array, *, query_init: Literal["normal", "orthogonal"] = "normal") -> Params:
    """Parameters in float32. Raises: ValueError for an unknown query_init, or orthogonal with more queries than d."""
    params = specs.init(spec(config), key)
    if query_init == "orthogonal":
        if config.n > config.d:
            raise ValueError(f"query_init orthogonal: got {config.n} queries in {config.d} dimensions")
        params["query"] = jnp.linalg.qr(params["query"].T)[0].T
    elif query_init != "normal":
        raise ValueError(f"query_init: got {query_init!r}, expected normal or orthogonal")
    return params


def init_queries_from(x_rows: jax.Array, key: jax.Array, *, n: int, steps: int = 10) -> jax.Array:
    """Queries that start where text is: spherical k-means with k-means++ seeding over rows of one modality.

    Not in the paper, and off unless called: a random direction is nearly orthogonal to every text, so random queries
    start by retrieving the few rows nearest to nothing in particular. Concatenate the note and the code queries and put
    them into params["query"].

    Args: x_rows: [S, d] unit rows (a sample of the training rows). n: queries wanted. steps: rounds of k-means.
    Returns: float32 [n, d], unit length. Raises: ValueError where there are fewer rows than queries.
    """
    x = x_rows.astype(jnp.float32)
    if not 1 <= n <= x.shape[0]:
        raise ValueError(f"n: got {n} queries, expected 1 to {x.shape[0]}, the number of rows")
    first, rest = jax.random.split(key)

    def seed(i, state):
        centres, nearest = state
        distance = jnp.maximum(1.0 - nearest, 0.0)  # on the sphere, half the squared distance
        pick = jax.random.categorical(jax.random.fold_in(rest, i), jnp.log(jnp.maximum(distance, 1e-30)))
        centres = centres.at[i].set(x[pick])
        return centres, jnp.maximum(nearest, jnp.matmul(x, x[pick], precision=_HIGHEST))

    start = x[jax.random.randint(first, (), 0, x.shape[0])]
    centres = jnp.zeros((n, x.shape[1]), jnp.float32).at[0].set(start)
    centres, _ = jax.lax.fori_loop(1, n, seed, (centres, jnp.matmul(x, start, precision=_HIGHEST)))

    def move(_, centres):
        owner = jnp.argmax(jnp.matmul(x, centres.T, precision=_HIGHEST), axis=1)
        total = jax.ops.segment_sum(x, owner, num_segments=n)
        return jnp.where(jnp.any(total != 0.0, axis=1, keepdims=True), unit(total)[0], centres)

    return jax.lax.fori_loop(0, steps, move, centres)


# ---- the pieces that can be replaced (docs/extending_the_retriever.md) ------------------------------------------

def straight_through_gate(cosine: jax.Array, eta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Hard gates with the gradient of the gating score (equation 1, A.1.2).

    Args: cosine: [P, N-1] of summary and query. eta: [N-1] thresholds.
    Returns: gate [P, N-1], exactly 0 or 1, 1 where cosine > eta; score s = sigmoid(cosine) - sigmoid(eta). The gate is
        g + (s - stop_gradient(s)): s - s is 0 in any precision, so the forward value is g bit for bit, while
        (g + s) - s is not. sigmoid(cosine) > sigmoid(eta) is decided on its arguments, where rounding cannot tie them,
        and on the cosine clipped to [-1, 1], so that eta >= 1 never fires and eta < -1 always does.
    """
    score = jax.nn.sigmoid(cosine) - jax.nn.sigmoid(eta)[None]
    hard = (jnp.clip(jax.lax.stop_gradient(cosine), -1.0, 1.0) > eta[None]).astype(score.dtype)
    return hard + (score - jax.lax.stop_gradient(score)), score


def mean_of_active(expert: jax.Array, gate: jax.Array) -> jax.Array:
    """[P, d]: sum_i g_i h_i / max(1, sum_i g_i), the count without gradient. expert [P, N, d], gate [P, N]."""
    active = jnp.maximum(jax.lax.stop_gradient(gate).sum(axis=1, keepdims=True), 1.0)
    return sum_of_active(expert, gate) / active


def sum_of_active(expert: jax.Array, gate: jax.Array) -> jax.Array:
    """[P, d]: sum_i g_i h_i. expert [P, N, d], gate [P, N]."""
    return jnp.einsum("pnd,pn->pd", expert, gate, precision=_HIGHEST)


AGGREGATORS = {"mean": mean_of_active, "sum": sum_of_active}


def layer_norm(v: jax.Array, scale: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    """LayerNorm over the last axis in float32, biased variance; scale and bias as broadcast to v."""
    centred = v - v.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps) * scale + bias


def experts(context: jax.Array, expert: Mapping[str, jax.Array], *, eps: float, dropout: float = 0.0,
            rng: jax.Array | None = None) -> jax.Array:
    """Every query's own pre-LayerNorm MLP with a residual (A.1.2), dense over patients and queries.

    h_i = c_i + drop(W2 drop(gelu(W1 LN(c_i) + b1)) + b2), gelu exact. Dense, because the straight-through gradient of a
    closed gate needs the h_i of its query.

    Args: context: [P, N, d]. expert: params["expert"]. dropout is applied where rng is given.
    Returns: [P, N, d] float32.
    """
    keys = (None, None) if rng is None or dropout == 0.0 else jax.random.split(rng)
    c = context.transpose(1, 0, 2)  # [N, P, d]: batched products over N, the layout that XLA:CPU runs fastest
    hidden = layer_norm(c, expert["ln_scale"][:, None], expert["ln_bias"][:, None], eps)
    hidden = expert_matmul(hidden, expert["w1"]) + expert["b1"][:, None]
    hidden = _drop(jax.nn.gelu(hidden, approximate=False), dropout, keys[0])
    out = expert_matmul(hidden, expert["w2"]) + expert["b2"][:, None]
    return (c + _drop(out, dropout, keys[1])).transpose(1, 0, 2)


def _drop(v, rate, key):
    if key is None:
        return v
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, v.shape), v / (1.0 - rate), 0.0)


# ---- the model ------------------------------------------------------------------------------------------------

def apply(params: Params, batch: Mapping[str, jax.Array], *, config: EviGenConfig,
          max_segment: tuple[int, int] | Mapping[str, int], rng: jax.Array | None = None, train: bool = False,
          gate: Callable = straight_through_gate, selector: Callable = segment_topk, pooling: Callable = gather_pool,
          aggregator: Callable | None = None, mesh: Mesh | None = None,
          implementation: str | None = None) -> dict[str, jax.Array]:
    """Predictions of a packed batch with every intermediate.

    Args:
        params, batch: see the module. Over a mesh, off_m is [D, P/D + 1] and x_m holds D blocks of rows (see
            `select_pool_sharded`).
        max_segment: static bounds on a patient's rows, (note, code).
        rng: key of the dropout masks; train: dropout on. Without train nothing is random.
        gate: (cosine [P, N-1], eta [N-1]) -> (gate, score), both [P, N-1]. Query 0 is put before it, and absent
            modalities are closed after it, whatever it returns.
        selector: as `segment_topk` (unit queries of one modality, x, offsets; k, max_segment) -> scores, rows, valid.
        pooling: as `gather_pool` (x, rows, scores, valid; temperature) -> context, alpha. The default pair runs as
            one fused operation, `select_pool`, with equal results.
        aggregator: (expert [P, N, d], gate [P, N]) -> [P, d]; default by config.aggregate.
        mesh: devices over whose axis "data" the patients are sharded. implementation: of the kernels.
    Returns:
        logit, prob [P]; gate, gate_score, cosine [P, N]; scores, alpha [P, N, K]; rows int32 [P, N, K] (row of the
        batch's x of the query's modality, -1 where there is none); valid bool [P, N, K]; context, expert [P, N, d];
        pooled [P, d] (before the last LayerNorm). Query 0 has no threshold: its gate_score is sigmoid(cosine).
    Raises: ValueError: train with dropout but no rng; replaced selector or pooling together with a mesh.
    """
    if train and config.dropout > 0.0 and rng is None:
        raise ValueError("train=True with dropout needs rng, a jax.random.key")
    fused = selector is segment_topk and pooling is gather_pool
    if mesh is not None and not fused:
        raise ValueError("a replaced selector or pooling runs on one device; shard it inside the function instead")
    bounds = tuple(max_segment[m] for m in MODALITIES) if isinstance(max_segment, Mapping) else max_segment
    direction = unit(params["query"])[0]
    parts = []
    for i, (name, mine) in enumerate(_modalities(config)):
        x, offsets, mean = batch[f"x_{name}"], batch[f"off_{name}"], batch[f"mean_{name}"].astype(jnp.float32)
        fixed = {"k": config.k, "max_segment": bounds[i]}
        if not fused:
            scores, rows, valid = selector(direction[mine], x, offsets, **fixed)
            context, alpha = pooling(x, rows, scores, valid, temperature=config.temperature)
        else:
            fixed |= {"temperature": config.temperature, "implementation": implementation}
            run = select_pool if mesh is None else select_pool_sharded
            fixed |= {} if mesh is None else {"mesh": mesh}
            context, alpha, scores, rows, valid = run(params["query"][mine], x, offsets, **fixed)
        present = (jnp.diff(offsets, axis=-1) > 0).reshape(-1, 1)  # [P, 1]
        if config.summary_ln:
            ln = params["summary_ln"]
            mean = layer_norm(mean, ln["scale"][i][None], ln["bias"][i][None], config.ln_eps)
        summary = unit(jnp.where(present, mean, 0.0))[0]
        cosine = jnp.matmul(summary, direction[mine].T, precision=_HIGHEST)
        parts.append((cosine, jnp.broadcast_to(present, cosine.shape), context, alpha, scores, rows, valid))
    cosine, present, context, alpha, scores, rows, valid = (jnp.concatenate(p, axis=1) for p in zip(*parts))

    g, s = _gates(cosine, params["eta"], present, gate, config.gating)
    h = experts(context, params["expert"], eps=config.ln_eps, dropout=config.dropout, rng=rng if train else None)
    pooled = (aggregator or AGGREGATORS[config.aggregate])(h, g)
    last = layer_norm(pooled, params["final_ln"]["scale"][None], params["final_ln"]["bias"][None], config.ln_eps)
    logit = jnp.matmul(last, params["head"]["w"], precision=_HIGHEST) + params["head"]["b"]
    return {"logit": logit, "prob": jax.nn.sigmoid(logit), "gate": g, "gate_score": s, "cosine": cosine,
            "scores": scores, "rows": rows, "valid": valid, "alpha": alpha, "context": context, "expert": h,
            "pooled": pooled}


def _modalities(config: EviGenConfig) -> list[tuple[str, slice]]:
    """(name, its queries); codes are left out where no query reads them."""
    both = [("note", slice(0, config.n_note)), ("code", slice(config.n_note, config.n))]
    return both if config.n_code else both[:1]


def _gates(cosine, eta, present, gate, gating):
    """Gates and scores [P, N]: query 0 always on, absent modalities closed without gradient."""
    if gating:
        g, s = gate(cosine[:, 1:], eta)
    else:
        g, s = jnp.ones_like(cosine[:, 1:]), straight_through_gate(cosine[:, 1:], eta)[1]
    g, s = jnp.where(present[:, 1:], g, 0.0), jnp.where(present[:, 1:], s, 0.0)
    always = jnp.ones_like(cosine[:, :1])
    return (jnp.concatenate([always, g], axis=1),
            jnp.concatenate([jax.lax.stop_gradient(jax.nn.sigmoid(cosine[:, :1])), s], axis=1))


# ---- the same as a module ---------------------------------------------------------------------------------------

class EvidenceSelector(nnx.Module):
    """The parameters as nnx.Param under the same names; calling it is `apply`.

    It builds and names. Hot loops should take `selector.params()` (a plain tree) and call `apply` under jax.jit with
    the tree as an argument. Args: config; rngs: nnx.Rngs whose `params` stream draws the parameters.
    """

    def __init__(self, config: EviGenConfig, *, rngs: nnx.Rngs, query_init: Literal["normal", "orthogonal"] = "normal"):
        self.config = config
        for name, value in init(config, rngs.params(), query_init=query_init).items():
            inner = isinstance(value, dict)
            setattr(self, name, nnx.Dict({k: nnx.Param(v) for k, v in value.items()}) if inner else nnx.Param(value))

    def params(self) -> Params:
        """The parameter tree that `apply` takes."""
        return nnx.to_pure_dict(nnx.state(self, nnx.Param))

    def __call__(self, batch: Mapping[str, jax.Array], **options: Any) -> dict[str, jax.Array]:
        """`apply` on these parameters; options are its keyword arguments but config."""
        return apply(self.params(), batch, config=self.config, **options)
