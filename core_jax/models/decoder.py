"""Causal decoder, Qwen3, Qwen2.5 and Llama: token ids -> hidden states -> logits.

Top to bottom: the parameter tree (declared once), its Hugging Face names, the NNX module, projections and norms, the
layers, a whole batch, logits. Who keeps keys and values is the caller's business: `run_layers` hands each layer's
queries, keys and values to `attend`, and carries its state. Letters: B batch, T query length, S key length, M tokens
laid end to end, D model width, N heads, K kv heads, G = N / K, H head dim, F feed-forward width, V vocabulary,
L layers.

Matrices are `[out, in]`, as checkpoints hold them. Layers are stacked `[L, ...]`: that is the one checkpoint layout,
and `unstack` makes of it what a CPU decodes from. Norms, rotations, softmax and logits are float32 whatever the weights
are.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from core_jax import axes as A
from core_jax import params as P
from core_jax import rope as R
from core_jax.ckpt.hf import Source
from core_jax.mesh import TENSOR, Rules
from core_jax.models import pooled
from core_jax.models.config import DecoderConfig

FEW_ROWS = 256  # up to here the weights go on the left of the product on a CPU
QUERY_BLOCK = 512  # rows of scores in memory at a time, per sequence and head
REMAT = {  # what the backward pass finds saved of a layer, beside its input
    "full": jax.checkpoint_policies.nothing_saveable,
    "projections": jax.checkpoint_policies.save_only_these_names("wq", "wk", "wv", "wo", "w_gate", "w_up"),
}


def spec(config: DecoderConfig, dtype: str = "float32", *, head: bool = True) -> P.Tree:
    """Every parameter once: shape, logical axes, initialiser.

    Args:
        dtype: of the matrices; norm scales and biases are float32 always.
        head: False leaves the language-model head out (an embedding model); with tied embeddings there is none anyway.
    """
    d, f, n, h = config.hidden_size, config.intermediate_size, config.num_layers, config.head_dim
    q, kv = config.num_heads * h, config.num_kv_heads * h

    def table() -> P.ParamSpec:
        return P.ParamSpec((config.vocab_size, d), (A.VOCAB, A.EMBED), dtype=dtype)

    def matrix(out: int, in_: int, *axes: str) -> P.ParamSpec:
        return P.ParamSpec((n, out, in_), (A.LAYERS, *axes), dtype=dtype)

    def vector(width: int, axis: str, init: str) -> P.ParamSpec:
        return P.ParamSpec((n, width), (A.LAYERS, axis), init)

    def scale(width: int, axis: str) -> P.ParamSpec:
        return vector(width, axis, "ones")

    tree: P.Tree = {
        "embed": {"token": table()},
        "layers": {
            "norm1": scale(d, A.EMBED),
            "wq": matrix(q, d, A.HEADS, A.EMBED),
            "wk": matrix(kv, d, A.KV_HEADS, A.EMBED),
            "wv": matrix(kv, d, A.KV_HEADS, A.EMBED),
            "wo": matrix(d, q, A.EMBED, A.HEADS),
            "norm2": scale(d, A.EMBED),
            "w_gate": matrix(f, d, A.FFN, A.EMBED),
            "w_up": matrix(f, d, A.FFN, A.EMBED),
            "w_down": matrix(d, f, A.EMBED, A.FFN),
        },
        "norm": P.ParamSpec((d,), (A.EMBED,), "ones"),
    }
    if config.qk_norm:
        tree["layers"] |= {"q_norm": scale(h, A.HEAD_DIM), "k_norm": scale(h, A.HEAD_DIM)}
    if config.qkv_bias:
        tree["layers"] |= {"bq": vector(q, A.HEADS, "zeros"), "bk": vector(kv, A.KV_HEADS, "zeros"),
                           "bv": vector(kv, A.KV_HEADS, "zeros")}
    if head and not config.tie_embeddings:
        tree["head"] = table()
    return tree


def rules(config: DecoderConfig, mesh: jax.sharding.Mesh, wanted: Rules = TENSOR) -> Rules:
    """`wanted` as this decoder divides on this mesh.

    Key and value heads, or a vocabulary, that their mesh axis does not divide are whole on every device: with more
    devices on the axis than there are key and value heads, each holds the pages of all of them.

    Raises:
        ValueError: heads, feed-forward or width that their mesh axis does not divide; the message names the sizes.
    """
    must = {A.HEADS: "num_heads", A.FFN: "intermediate_size", A.EMBED: "hidden_size"}
    may = {A.KV_HEADS: "num_kv_heads", A.VOCAB: "vocab_size"}
    whole = []
    for name, axis in wanted.table:
        field = must.get(name) or may.get(name)
        if field is None or axis is None or getattr(config, field) % mesh.shape[axis] == 0:
            continue
        if name in must:
            raise ValueError(f"{field}: got {getattr(config, field)}, expected a multiple of the {mesh.shape[axis]} "
                             f"devices of mesh axis {axis!r}")
        whole.append(name)
    return wanted.without(*whole)


_LAYER_KEYS = {
    "norm1": "input_layernorm.weight", "norm2": "post_attention_layernorm.weight",
    "wq": "self_attn.q_proj.weight", "wk": "self_attn.k_proj.weight", "wv": "self_attn.v_proj.weight",
    "bq": "self_attn.q_proj.bias", "bk": "self_attn.k_proj.bias", "bv": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight", "wo": "self_attn.o_proj.weight",
    "w_gate": "mlp.gate_proj.weight", "w_up": "mlp.up_proj.weight", "w_down": "mlp.down_proj.weight",
}
IGNORABLE = (r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)  # a buffer in old files
HEAD = r"lm_head\.weight"  # ignorable too where a model is read without head
PREFIXES = ("", "model.")


def hf_sources(config: DecoderConfig, *, head: bool = True) -> dict[str, Source]:
    """Parameter path -> its tensors in a Hugging Face checkpoint, for `spec(config, head=head)`.

    Names are those of the causal language model; with head=False those of the bare backbone, as embedding models are
    saved, which `PREFIXES` finds in a causal language model's checkpoint too.
    """
    stem = "model." if head else ""
    out = {"embed/token": Source((f"{stem}embed_tokens.weight",)), "norm": Source((f"{stem}norm.weight",))}
    for name in spec(config)["layers"]:
        keys = tuple(f"{stem}layers.{i}.{_LAYER_KEYS[name]}" for i in range(config.num_layers))
        out[f"layers/{name}"] = Source(keys, stacked=True)
    if head and not config.tie_embeddings:
        out["head"] = Source(("lm_head.weight",))
    return out


def hf_copies(config: DecoderConfig) -> dict[str, str]:
    """Key of a tied head that was saved all the same -> path of the parameter that it must equal (`ckpt.hf.load`)."""
    return {"lm_head.weight": "embed/token"} if config.tie_embeddings else {}


class Decoder(nnx.Module):
    """Builds and names the parameters: `nnx.split(Decoder(config, rngs=nnx.Rngs(0)))` gives (graphdef, state)."""

    def __init__(self, config: DecoderConfig, dtype: str = "float32", *, rngs: nnx.Rngs):
        self.config = config
        tree = P.init(spec(config, dtype), rngs.params())
        self.embed = nnx.Dict({"token": nnx.Param(tree["embed"]["token"])})
        self.layers = nnx.Dict({name: nnx.Param(x) for name, x in tree["layers"].items()})
        self.norm = nnx.Param(tree["norm"])
        if "head" in tree:
            self.head = nnx.Param(tree["head"])

    def __call__(self, ids: jax.Array, **kwargs: Any) -> jax.Array:
        """ids: [B, T] -> logits [B, T, V]; keywords of `forward`."""
        params = nnx.to_pure_dict(nnx.state(self, nnx.Param))
        return logits(self.config, params, forward(self.config, params, ids, **kwargs))


# x [M, in], the layer's parameters, name of the matrix -> x W^T [M, out] in the dtype of x
Dense = Callable[[jax.Array, P.Tree, str], jax.Array]
# layer (int32 scalar), q [M, N, H] not yet scaled by 1/sqrt(H), k and v [M, K, H], state -> [M, N, H], state
Attend = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, Any], tuple[jax.Array, Any]]
# x [M, D] between layers -> x, laid over a mesh (`core_jax.mesh.tokens_over`)
Spread = Callable[[jax.Array], jax.Array]


def dense(x: jax.Array, layer: P.Tree, name: str) -> jax.Array:
    """x [M, in] times `layer[name]` [out, in], accumulated in float32 -> [M, out] in the dtype of x."""
    return _matmul(x, layer[name]).astype(x.dtype)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a: [M, in], b: [O, in] -> float32 [M, O]."""
    return jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    """x: [..., in], w: [out, in] -> float32 [..., out].

    With few rows the weights' traffic is all the time there is, and XLA:CPU spends it on packing them: two to eight
    times less with the weights as left operand. The barrier keeps XLA from swapping the operands back.
    """
    y = x.reshape(-1, x.shape[-1]).astype(w.dtype)
    if 1 < y.shape[0] <= FEW_ROWS:
        y = jax.lax.platform_dependent(
            y, w, cpu=lambda y, w: jax.lax.optimization_barrier(_product(w, y)).T, default=_product)
    else:
        y = _product(y, w)
    return y.reshape(*x.shape[:-1], w.shape[0])


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """x: [..., D], scale: [D] -> [..., D] in the dtype of x; float32 within."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + eps)
    return (y * jnp.expand_dims(scale.astype(jnp.float32), range(x.ndim - 1))).astype(x.dtype)


def _shift(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x: [M, out], bias: [out] -> [M, out] in the dtype of x; added in float32."""
    return (x.astype(jnp.float32) + bias.astype(jnp.float32)[None]).astype(x.dtype)


def unstack(params: P.Tree) -> P.Tree:
    """The same parameters with one tree a layer in place of stacked ones, for `run_layers`; never saved like this.

    XLA:CPU copies each layer's slice of a stacked matrix before it multiplies: a decode step of 8 rows takes twice as
    long. The price is compile time, as each layer is compiled. `params["layers"]` becomes a tuple of new arrays, so
    drop the stacked ones.
    """
    layers = params["layers"]
    count = jax.tree.leaves(layers)[0].shape[0]
    return params | {"layers": tuple(jax.tree.map(lambda x, i=i: x[i], layers) for i in range(count))}


def embed(params: P.Tree, ids: jax.Array) -> jax.Array:
    """ids: int32 [...] -> [..., D] in the dtype of the table."""
    return params["embed"]["token"][ids]


def run_layers(
    config: DecoderConfig, params: P.Tree, x: jax.Array, positions: jax.Array, attend: Attend, state: Any, *,
    dense: Dense = dense, overlay: P.Tree | None = None, remat: str | None = None, spread: Spread = lambda x: x,
) -> tuple[jax.Array, Any]:
    """All layers, without the final norm.

    Args:
        params: of `spec`, stacked (one compiled layer, scanned) or from `unstack` (layers compiled one by one).
        x: [M, D] embedded tokens.
        positions: [M] int32, of the rotation.
        attend: attention of one layer over what `state` holds and the new keys and values, which it may write there.
        state: any pytree; it is the carry of the scan, so a donated cache is written in place.
        dense: one projection; it sees the layer's parameters and overlay in one dict.
        overlay: more parameters of the layers, stacked `[L, ...]`: adapters, or names that replace the base's.
        remat: None keeps every activation for the backward pass, else a key of `REMAT`.
        spread: where the parameters lie on a mesh, says where the tokens lie; without it the compiler lays out tokens
            as the parameters are, and devices along `data` may all compute the same.

    Returns:
        ([M, D], state).

    Raises:
        ValueError: another remat.
    """
    if remat is not None and remat not in REMAT:
        raise ValueError(f"got remat {remat!r}, expected None or one of {tuple(REMAT)}")
    m, h, eps = x.shape[0], config.head_dim, config.rms_norm_eps
    cos, sin = R.tables(config.rope, h, positions)

    def project(y: jax.Array, p: P.Tree, name: str) -> jax.Array:
        return checkpoint_name(dense(y, p, name), name)

    def layer(carry: tuple[jax.Array, Any], p: P.Tree, extra: P.Tree, index: jax.Array) -> tuple[jax.Array, Any]:
        x, state = spread(carry[0]), carry[1]
        p = p | extra
        y = rms_norm(x, p["norm1"], eps)
        q, k, v = (project(y, p, name) for name in ("wq", "wk", "wv"))
        if config.qkv_bias:
            q, k, v = _shift(q, p["bq"]), _shift(k, p["bk"]), _shift(v, p["bv"])
        q = q.reshape(m, config.num_heads, h)
        k, v = (y.reshape(m, config.num_kv_heads, h) for y in (k, v))
        if config.qk_norm:
            q, k = rms_norm(q, p["q_norm"], eps), rms_norm(k, p["k_norm"], eps)
        mixed, state = attend(index, R.rotate(q, cos, sin), R.rotate(k, cos, sin), v, state)
        x = x + project(mixed.astype(x.dtype).reshape(m, config.num_heads * h), p, "wo")
        y = rms_norm(x, p["norm2"], eps)
        y = jax.nn.silu(project(y, p, "w_gate")) * project(y, p, "w_up")
        return spread(x + project(y, p, "w_down")), state

    if remat is not None:
        layer = jax.checkpoint(layer, policy=REMAT[remat])
    layers, extra = params["layers"], overlay or {}
    if isinstance(layers, tuple):
        carry = (x, state)
        for i, p in enumerate(layers):
            carry = layer(carry, p, jax.tree.map(lambda y, i=i: y[i], extra), jnp.int32(i))
        return carry
    indices = jnp.arange(config.num_layers, dtype=jnp.int32)
    return jax.lax.scan(lambda carry, of: (layer(carry, *of), None), (x, state), (layers, extra, indices))[0]


def _mix(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array, first: int, scale: float) -> jax.Array:
    """Causal attention of a block of queries.

    Args:
        q: [B, K, G, T, H]: the G query heads of each kv head; k, v: [B, K, S, H]. B and K stay apart, as a mesh has
            them over two of its axes.
        segments: [B, S] int32 of the keys; the queries are the T columns from `first` on.
        first: column of the first query, static.
    """
    (b, kv, g, t, h), s = q.shape, k.shape[2]
    mine = segments[:, first:first + t]
    allowed = (mine[:, :, None] == segments[:, None]) & (
        first + jnp.arange(t, dtype=jnp.int32)[:, None] >= jnp.arange(s, dtype=jnp.int32)[None])[None]
    scores = jnp.matmul(q.reshape(b, kv, g * t, h), k.swapaxes(2, 3), preferred_element_type=jnp.float32) * scale
    scores = scores.reshape(b, kv * g, t, s)
    scores = jnp.where(allowed[:, None], scores, jnp.finfo(jnp.float32).min).reshape(b, kv, g * t, s)
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    mixed = jnp.matmul(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return (mixed / jnp.sum(weights, axis=-1, keepdims=True)).reshape(b, kv, g, t, h)


def _attend_grid(
    layer: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, state: Any, *, segments: jax.Array
) -> tuple[jax.Array, Any]:
    """Attention within a batch of rows, keys and values not kept. segments: [B, T], M = B * T.

    Queries go block by block, each against the keys up to its end; beyond one block the scores are computed anew in the
    backward pass, so memory grows with T, not with its square.
    """
    (b, t), (_, n, h), kv = segments.shape, q.shape, k.shape[1]

    def heads(y: jax.Array) -> jax.Array:
        return y.reshape(b, t, kv, -1, h).transpose(0, 2, 3, 1, 4)

    q, k, v = heads(q), heads(k)[:, :, 0], heads(v)[:, :, 0]
    mix = functools.partial(_mix, scale=1.0 / math.sqrt(h))
    if t > QUERY_BLOCK:
        mix = jax.checkpoint(mix, static_argnums=4)
    blocks = []
    for first in range(0, t, QUERY_BLOCK):
        stop = min(first + QUERY_BLOCK, t)
        blocks.append(mix(q[:, :, :, first:stop], k[:, :, :stop], v[:, :, :stop], segments[:, :stop], first))
    mixed = jnp.concatenate(blocks, axis=3).reshape(b, n, t, h).transpose(0, 2, 1, 3)
    return mixed.reshape(b * t, n, h), state


def _positions(segments: jax.Array) -> jax.Array:
    """segments: [B, T] -> position of each token within its run of equal segments, int32 [B, T]."""
    column = jnp.broadcast_to(jnp.arange(segments.shape[1], dtype=jnp.int32)[None], segments.shape)
    starts = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)))
    return column - jax.lax.cummax(jnp.where(starts, column, 0), axis=1)


def forward(
    config: DecoderConfig, params: P.Tree, ids: jax.Array, *, positions: jax.Array | None = None,
    segments: jax.Array | None = None, mask: jax.Array | None = None, dense: Dense = dense,
    overlay: P.Tree | None = None, remat: str | None = None, spread: Spread = lambda x: x,
) -> jax.Array:
    """Hidden states of a batch, after the final norm: each token sees itself and the earlier tokens of its segment.

    Args:
        config: static under jit.
        params: arrays of `spec(config)`, stacked or from `unstack`.
        ids: [B, T] int32.
        positions: [B, T] int32 of the rotation; by default counted from 0 in each run of equal segments, so that a
            text has the same positions wherever it stands.
        segments: [B, T] int32, equal within one packed text; texts are contiguous, padding has its own number.
        mask: [B, T] bool, True = token, False = padding on either side.
        dense, overlay, remat, spread: as in `run_layers`.

    Returns:
        [B, T, D] in the dtype of the embedding table; finite but undefined at padding.
    """
    b, t = ids.shape
    if segments is None:
        segments = jnp.zeros((b, t), jnp.int32)
    if mask is not None:
        segments = jnp.where(mask, segments, np.int32(-1))
    if positions is None:
        positions = _positions(segments)
    attend = functools.partial(_attend_grid, segments=segments)
    x, _ = run_layers(config, params, embed(params, ids).reshape(b * t, -1), positions.reshape(b * t), attend, (),
                      dense=dense, overlay=overlay, remat=remat, spread=spread)
    return rms_norm(x, params["norm"], config.rms_norm_eps).reshape(b, t, -1)


def hidden(
    config: DecoderConfig, params: P.Tree, ids: jax.Array, positions: jax.Array, attend: pooled.Attend
) -> jax.Array:
    """ids, positions: [M] int32 of texts laid end to end -> hidden states after the final norm, [M, D] in the dtype of
    the embedding table (`pooled.Hidden`); head or not, the parameters serve."""
    def mix(q: jax.Array, k: jax.Array, v: jax.Array, real: jax.Array) -> jax.Array:
        flat = (y.reshape(-1, *y.shape[2:]) for y in (q, k, v))  # padding follows the text, so no token sees it
        mixed, _ = _attend_grid(jnp.int32(0), *flat, (), segments=jnp.zeros(real.shape, jnp.int32))
        return mixed.reshape(q.shape).astype(q.dtype)

    def attend_layer(layer: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        return attend(mix, q, k, v), state

    x, _ = run_layers(config, params, embed(params, ids), positions, attend_layer, ())
    return rms_norm(x, params["norm"], config.rms_norm_eps)


def logits(config: DecoderConfig, params: P.Tree, hidden: jax.Array) -> jax.Array:
    """hidden: [..., D] of `forward`, after the final norm -> float32 [..., V]."""
    return _matmul(hidden, params["embed"]["token"] if config.tie_embeddings else params["head"])
