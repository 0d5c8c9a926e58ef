"""BERT-family text encoder: token ids -> hidden states -> one vector a text (Devlin et al., 2019).

Top to bottom: the parameter tree (declared once), its Hugging Face names, the NNX module, the pure forward pass,
pooling. Layers are stacked `[L, ...]` and scanned. Letters: B batch, T tokens of a text, M = tokens of a batch laid end
to end, D model width, N heads, H head dim, F feed-forward width, V vocabulary, L layers.

Attention is a plain batched matmul on `[.., T, H]`, with the exponential not normalised and the division done on the
product with the values: on XLA:CPU several times faster than the einsum over four axes (perf.md A).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from core_jax import axes as A
from core_jax import params as P
from core_jax.ckpt.hf import Source
from core_jax.models.config import BertConfig

POOLINGS = ("mean", "cls", "last")
_ACTIVATION = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}


def spec(config: BertConfig) -> P.Tree:
    """Every parameter once: shape, logical axes, initialiser. All float32."""
    d, f, n = config.hidden_size, config.intermediate_size, config.num_layers

    def table(rows: int, axis: str | None) -> P.ParamSpec:
        return P.ParamSpec((rows, d), (axis, A.EMBED))

    def matrix(rows: int, columns: int, *axes: str) -> P.ParamSpec:
        return P.ParamSpec((n, rows, columns), (A.LAYERS, *axes))

    def vector(width: int, axis: str, init: str = "zeros") -> P.ParamSpec:
        return P.ParamSpec((n, width), (A.LAYERS, axis), init)

    return {
        "embed": {
            "token": table(config.vocab_size, A.VOCAB),
            "position": table(config.max_positions, A.POSITIONS),
            "type": table(config.type_vocab_size, None),
            "ln_scale": P.ParamSpec((d,), (A.EMBED,), "ones"),
            "ln_bias": P.ParamSpec((d,), (A.EMBED,), "zeros"),
        },
        "layers": {
            "wq": matrix(d, d, A.EMBED, A.HEADS), "bq": vector(d, A.HEADS),
            "wk": matrix(d, d, A.EMBED, A.HEADS), "bk": vector(d, A.HEADS),
            "wv": matrix(d, d, A.EMBED, A.HEADS), "bv": vector(d, A.HEADS),
            "wo": matrix(d, d, A.HEADS, A.EMBED), "bo": vector(d, A.EMBED),
            "ln1_scale": vector(d, A.EMBED, "ones"), "ln1_bias": vector(d, A.EMBED),
            "w1": matrix(d, f, A.EMBED, A.FFN), "b1": vector(f, A.FFN),
            "w2": matrix(f, d, A.FFN, A.EMBED), "b2": vector(d, A.EMBED),
            "ln2_scale": vector(d, A.EMBED, "ones"), "ln2_bias": vector(d, A.EMBED),
        },
    }


_EMBED_KEYS = {
    "token": "word_embeddings.weight", "position": "position_embeddings.weight",
    "type": "token_type_embeddings.weight", "ln_scale": "LayerNorm.weight", "ln_bias": "LayerNorm.bias",
}
_LAYER_KEYS = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "o": "attention.output.dense", "1": "intermediate.dense", "2": "output.dense",
}
IGNORABLE = (
    r"embeddings\.(position_ids|token_type_ids)",  # buffers
    r"pooler\.dense\.(weight|bias)",  # the next-sentence head's pooler: no sentence vector reads it
    r"(cls|lm_head|classifier)\..*",  # task heads of checkpoints saved with one
)
PREFIXES = ("", "bert.", "roberta.")


def hf_sources(config: BertConfig) -> dict[str, Source]:
    """Parameter path -> its tensors in a Hugging Face checkpoint; matrices are stored `[out, in]` there."""
    def layers(key: str) -> tuple[str, ...]:
        return tuple(f"encoder.layer.{i}.{key}" for i in range(config.num_layers))

    out = {f"embed/{name}": Source((f"embeddings.{key}",)) for name, key in _EMBED_KEYS.items()}
    for name, key in _LAYER_KEYS.items():
        out[f"layers/w{name}"] = Source(layers(f"{key}.weight"), stacked=True, transposed=True)
        out[f"layers/b{name}"] = Source(layers(f"{key}.bias"), stacked=True)
    for name, key in {"ln1": "attention.output.LayerNorm", "ln2": "output.LayerNorm"}.items():
        out[f"layers/{name}_scale"] = Source(layers(f"{key}.weight"), stacked=True)
        out[f"layers/{name}_bias"] = Source(layers(f"{key}.bias"), stacked=True)
    return out


class Bert(nnx.Module):
    """Builds and names the parameters: `nnx.split(Bert(config, rngs=nnx.Rngs(0)))` gives (graphdef, state)."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        tree = P.init(spec(config), rngs.params())
        self.embed = nnx.Dict({name: nnx.Param(x) for name, x in tree["embed"].items()})
        self.layers = nnx.Dict({name: nnx.Param(x) for name, x in tree["layers"].items()})

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return forward(self.config, nnx.to_pure_dict(nnx.state(self, nnx.Param)), ids, mask)


def _layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    """x: [M, D]; float32 statistics."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps) * scale[None] + bias[None]


# q, k, v: [M, D] -> softmax(q k^T) v of every token over its own text's tokens, [M, D]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _mix(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    """q, k, v: [G, T, H]; mask: [G, T] True = attended -> softmax(q k^T) v, [G, T, H]."""
    scores = jnp.where(mask[:, None, :], jnp.matmul(q, k.swapaxes(1, 2)), jnp.finfo(jnp.float32).min)
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    return jnp.matmul(weights, v) / jnp.sum(weights, axis=-1, keepdims=True)


def _attend_grid(
    q: jax.Array, k: jax.Array, v: jax.Array, *, spread: Callable[[jax.Array], jax.Array],
    collect: Callable[[jax.Array], jax.Array], mask: jax.Array, heads: int,
) -> jax.Array:
    """All texts at once. spread: [M, D] -> [B, T, D]; collect: back; mask: [B, T] True = token."""
    (b, t), d = mask.shape, q.shape[1]

    def split(y: jax.Array) -> jax.Array:
        return spread(y).reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3).reshape(b * heads, t, d // heads)

    mixed = _mix(split(q), split(k), split(v), jnp.repeat(mask, heads, axis=0))
    return collect(mixed.reshape(b, heads, t, d // heads).transpose(0, 2, 1, 3).reshape(b, t, d))


def _attend_texts(
    q: jax.Array, k: jax.Array, v: jax.Array, *, starts: jax.Array, lengths: jax.Array, width: int, heads: int
) -> jax.Array:
    """One text after another: on a CPU its scores stay in cache, and slices are cheaper than gathers.

    Text i is rows [starts[i], starts[i] + lengths[i]), starts rising. A slice is `width` rows; what a text writes past
    its end is overwritten by the next one.
    """
    (m, d), count = q.shape, jnp.sum(lengths > 0, dtype=jnp.int32)
    q, k, v = (jnp.pad(y, ((0, width), (0, 0))) for y in (q, k, v))
    column = jnp.arange(width, dtype=jnp.int32)

    def one(i: jax.Array, out: jax.Array) -> jax.Array:
        def heads_of(y: jax.Array) -> jax.Array:
            y = jax.lax.dynamic_slice_in_dim(y, starts[i], width)
            return y.reshape(width, heads, d // heads).transpose(1, 0, 2)

        mask = jnp.broadcast_to((column < lengths[i])[None], (heads, width))
        mixed = _mix(heads_of(q), heads_of(k), heads_of(v), mask).transpose(1, 0, 2).reshape(width, d)
        return jax.lax.dynamic_update_slice_in_dim(out, mixed, starts[i], axis=0)

    return jax.lax.fori_loop(0, count, one, jnp.zeros_like(q))[:m]


def _hidden(config: BertConfig, params: P.Tree, ids: jax.Array, positions: jax.Array, attend: Attend) -> jax.Array:
    """ids, positions: [M] int32 -> last hidden states [M, D]."""
    e, eps = params["embed"], config.layer_norm_eps
    x = e["token"][ids] + e["position"][positions + config.position_offset] + e["type"][0][None]
    x = _layer_norm(x, e["ln_scale"], e["ln_bias"], eps)
    activation, scale = _ACTIVATION[config.activation], 1.0 / math.sqrt(config.hidden_size // config.num_heads)

    def layer(x: jax.Array, p: P.Tree) -> tuple[jax.Array, None]:
        q = (x @ p["wq"] + p["bq"][None]) * scale
        mixed = attend(q, x @ p["wk"] + p["bk"][None], x @ p["wv"] + p["bv"][None])
        x = _layer_norm(x + mixed @ p["wo"] + p["bo"][None], p["ln1_scale"], p["ln1_bias"], eps)
        y = activation(x @ p["w1"] + p["b1"][None]) @ p["w2"] + p["b2"][None]
        return _layer_norm(x + y, p["ln2_scale"], p["ln2_bias"], eps), None

    return jax.lax.scan(layer, x, params["layers"])[0]


def forward(config: BertConfig, params: P.Tree, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Last hidden states of a padded batch.

    Args:
        config: static under jit.
        params: arrays of `spec(config)`.
        ids: [B, T] int32 token ids, T at most `config.max_length`; all tokens are of type 0.
        mask: [B, T] bool, True = token, False = padding. A row of padding only is computed like uniform attention.

    Returns:
        [B, T, D] float32; what stands at padding is undefined.
    """
    b, t = ids.shape
    attend = functools.partial(
        _attend_grid, spread=lambda y: y.reshape(b, t, -1), collect=lambda y: y.reshape(b * t, -1), mask=mask,
        heads=config.num_heads)
    positions = jnp.tile(jnp.arange(t, dtype=jnp.int32), b)
    return _hidden(config, params, ids.reshape(b * t), positions, attend).reshape(b, t, -1)


@functools.partial(jax.jit, static_argnames=("config", "width", "pooling", "normalized"))
def embed_packed(
    config: BertConfig, params: P.Tree, ids: jax.Array, lengths: jax.Array, *, width: int, pooling: str, normalized: bool
) -> jax.Array:
    """Sentence vectors of texts laid end to end: all but attention runs on tokens alone, whatever their lengths.

    Args:
        ids: [M] int32, the texts' tokens one text after the other, then filler.
        lengths: [B] int32, tokens of each text; 0 in unused slots, whose vectors are undefined (but finite).
        width: T, at least the longest length (it may exceed `config.max_length`); attention is computed on [B, T].
        pooling: "mean" over a text's tokens, "cls" its first token, "last" its last one.

    Returns:
        [B, D] float32.

    Raises:
        ValueError: another pooling.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"got pooling {pooling!r}, expected one of {POOLINGS}")
    m, b = ids.shape[0], lengths.shape[0]
    stops = jnp.cumsum(lengths, dtype=jnp.int32)
    starts = stops - lengths
    place = jnp.arange(m, dtype=jnp.int32)
    row = jnp.minimum(jnp.searchsorted(stops, place, side="right").astype(jnp.int32), b - 1)  # of each token
    position = jnp.clip(place - starts[row], 0, min(width, config.max_length) - 1)  # filler reads real rows too
    column = jnp.arange(width, dtype=jnp.int32)
    token = jnp.minimum(starts[:, None] + column[None], m - 1)  # of each cell of [B, T]
    by_text = functools.partial(
        _attend_texts, starts=starts, lengths=lengths, width=width, heads=config.num_heads)
    at_once = functools.partial(
        _attend_grid, spread=lambda y: y[token], collect=lambda y: y.reshape(b * width, -1)[row * width + position],
        mask=column[None] < lengths[:, None], heads=config.num_heads)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(q, k, v, cpu=by_text, default=at_once)

    hidden = _hidden(config, params, ids, position, attend)
    if pooling == "mean":
        mine = (row[None] == jnp.arange(b, dtype=jnp.int32)[:, None]) & (place < stops[-1])[None]
        x = (mine.astype(jnp.float32) @ hidden) / jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]
    else:
        x = hidden[jnp.minimum(starts if pooling == "cls" else jnp.maximum(stops - 1, 0), m - 1)]
    if not normalized:
        return x
    return x / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True)), 1e-12)
