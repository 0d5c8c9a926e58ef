"""BERT-family text encoder: token ids -> hidden states -> one vector a text (Devlin et al., 2019).

Top to bottom: the parameter tree (declared once), its Hugging Face names, the NNX module, the pure forward pass.
Layers are stacked `[L, ...]` and scanned; `pooled.vectors(encoder.hidden, ...)` makes vectors. Letters: B batch,
T tokens of a text, M = tokens of a batch laid end to end, D model width, N heads, H head dim, F feed-forward width,
V vocabulary, L layers.
"""
from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from core_jax import axes as A
from core_jax import params as P
from core_jax.ckpt.hf import Source
from core_jax.models import pooled
from core_jax.models.config import BertConfig

ACTIVATION = {
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


def hidden(
    config: BertConfig, params: P.Tree, ids: jax.Array, positions: jax.Array, attend: pooled.Attend
) -> jax.Array:
    """ids, positions: [M] int32 -> last hidden states, float32 [M, D] (`pooled.Hidden`)."""
    e, eps, m = params["embed"], config.layer_norm_eps, ids.shape[0]
    row = jnp.minimum(positions, config.max_length - 1) + config.position_offset
    x = _layer_norm(e["token"][ids] + e["position"][row] + e["type"][0][None], e["ln_scale"], e["ln_bias"], eps)
    activation = ACTIVATION[config.activation]

    def layer(x: jax.Array, p: P.Tree) -> tuple[jax.Array, None]:
        q, k, v = ((x @ p[f"w{name}"] + p[f"b{name}"][None]).reshape(m, config.num_heads, -1) for name in "qkv")
        mixed = attend(pooled.mix, q, k, v).reshape(m, -1)
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
    return pooled.padded(hidden, config, params, ids, mask)
