"""ModernBERT text encoder (Warner et al., 2024): rotary positions, local attention in most layers, gated feed-forward.

Top to bottom as core_jax/models/encoder.py. Matrices are `[out, in]`, as checkpoints hold them; queries, keys and
values are one matrix, and so are the feed-forward's two inputs, of which the first is activated. Norms come before what
they feed, without bias; the first layer has none before its attention, as the embedding's stands there. Letters:
M tokens laid end to end, D model width, N heads, H head dim, F feed-forward width, V vocabulary, L layers.
"""
from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from core_jax import axes as A
from core_jax import params as P
from core_jax import rope as R
from core_jax.ckpt.hf import Source
from core_jax.models import pooled
from core_jax.models.config import ModernBertConfig
from core_jax.models.encoder import ACTIVATION


def spec(config: ModernBertConfig) -> P.Tree:
    """Every parameter once: shape, logical axes, initialiser. All float32; `norm1` begins with the second layer."""
    d, f, n = config.hidden_size, config.intermediate_size, config.num_layers

    def matrix(out: int, in_: int, *axes: str) -> P.ParamSpec:
        return P.ParamSpec((n, out, in_), (A.LAYERS, *axes))

    def scale(*shape: int) -> P.ParamSpec:
        return P.ParamSpec(shape, (A.LAYERS, A.EMBED)[-len(shape):], "ones")

    return {
        "embed": {"token": P.ParamSpec((config.vocab_size, d), (A.VOCAB, A.EMBED)), "norm": scale(d)},
        "layers": {
            "norm1": scale(n - 1, d), "norm2": scale(n, d),
            "w_qkv": matrix(3 * d, d, A.HEADS, A.EMBED), "wo": matrix(d, d, A.EMBED, A.HEADS),
            "w_in": matrix(2 * f, d, A.FFN, A.EMBED), "w_out": matrix(d, f, A.EMBED, A.FFN),
        },
        "norm": scale(d),
    }


_KEYS = {"embed/token": "embeddings.tok_embeddings.weight", "embed/norm": "embeddings.norm.weight",
         "norm": "final_norm.weight"}
_LAYER_KEYS = {"norm1": "attn_norm", "norm2": "mlp_norm", "w_qkv": "attn.Wqkv", "wo": "attn.Wo", "w_in": "mlp.Wi",
               "w_out": "mlp.Wo"}
IGNORABLE = (r"(head|decoder|classifier)\..*",)  # task heads of checkpoints saved with one
PREFIXES = ("", "model.")


def hf_sources(config: ModernBertConfig) -> dict[str, Source]:
    """Parameter path -> its tensors in a Hugging Face checkpoint."""
    out = {path: Source((key,)) for path, key in _KEYS.items()}
    for name, key in _LAYER_KEYS.items():
        layers = range(1 if name == "norm1" else 0, config.num_layers)
        out[f"layers/{name}"] = Source(tuple(f"layers.{i}.{key}.weight" for i in layers), stacked=True)
    return out


class ModernBert(nnx.Module):
    """Builds and names the parameters, as `encoder.Bert` does."""

    def __init__(self, config: ModernBertConfig, *, rngs: nnx.Rngs):
        self.config = config
        tree = P.init(spec(config), rngs.params())
        self.embed = nnx.Dict({name: nnx.Param(x) for name, x in tree["embed"].items()})
        self.layers = nnx.Dict({name: nnx.Param(x) for name, x in tree["layers"].items()})
        self.norm = nnx.Param(tree["norm"])

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return forward(self.config, nnx.to_pure_dict(nnx.state(self, nnx.Param)), ids, mask)


def _norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """x: [M, D]; layer norm without bias."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + eps) * scale[None]


def _times(x: jax.Array, w: jax.Array) -> jax.Array:
    """x: [M, in], w: [out, in] -> [M, out]."""
    return jax.lax.dot_general(x, w, (((1,), (1,)), ((), ())))


def hidden(
    config: ModernBertConfig, params: P.Tree, ids: jax.Array, positions: jax.Array, attend: pooled.Attend
) -> jax.Array:
    """ids, positions: [M] int32 -> hidden states after the final norm, float32 [M, D] (`pooled.Hidden`)."""
    m, n, eps = ids.shape[0], config.num_heads, config.norm_eps
    h, activation = config.hidden_size // n, ACTIVATION[config.activation]
    everywhere, nearby = (R.tables(rope, h, positions) for rope in (config.global_rope, config.local_rope))
    x = _norm(params["embed"]["token"][ids], params["embed"]["norm"], eps)

    def layer(x: jax.Array, of: tuple[P.Tree, jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        p, first, is_global = of
        y = jnp.where(first, x, _norm(x, p["norm1"], eps))
        q, k, v = jnp.split(_times(y, p["w_qkv"]).reshape(m, 3 * n, h), 3, axis=1)

        def mixed(tables: tuple[jax.Array, jax.Array], reach: int | None) -> jax.Array:
            mix = functools.partial(pooled.mix, reach=reach)
            return attend(mix, R.rotate(q, *tables), R.rotate(k, *tables), v)

        y = jax.lax.cond(is_global, lambda: mixed(everywhere, None), lambda: mixed(nearby, config.reach))
        x = x + _times(y.reshape(m, -1), p["wo"])
        y, gate = jnp.split(_times(_norm(x, p["norm2"], eps), p["w_in"]), 2, axis=1)
        return x + _times(activation(y) * gate, p["w_out"]), None

    layers = params["layers"] | {"norm1": jnp.pad(params["layers"]["norm1"], ((1, 0), (0, 0)))}
    first = np.arange(config.num_layers) == 0
    x, _ = jax.lax.scan(layer, x, (layers, first, np.array(config.global_layers)))
    return _norm(x, params["norm"], eps)


def forward(config: ModernBertConfig, params: P.Tree, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Hidden states of a padded batch, after the final norm; arguments and result as `encoder.forward`."""
    return pooled.padded(hidden, config, params, ids, mask)
