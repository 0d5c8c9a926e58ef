"""Model configs: frozen dataclasses that know Hugging Face's config.json, read strictly."""
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from core_jax import rope as R

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
# model_type -> architecture
DECODER_FAMILIES = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}


def _field(raw: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    """One field of config.json. Raises: ValueError: missing, another type, a number that is not positive."""
    if name not in raw:
        raise ValueError(f"{where}: {name}: missing")
    value = raw[name]
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise ValueError(f"{where}: {name}: got {value!r}, expected {kind.__name__}")
    if kind in (int, float) and not 0 < value <= sys.float_info.max and name != "pad_token_id":
        raise ValueError(f"{where}: {name}: got {value!r}, expected a positive number")
    return kind(value)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Architecture of a BERT-family encoder (BERT and RoBERTa naming of the same network).

    `position_offset` is the row of the position table that the first token reads: 0 in BERT, pad id + 1 in RoBERTa.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int
    type_vocab_size: int
    layer_norm_eps: float
    activation: str
    position_offset: int

    def __post_init__(self):
        if self.hidden_size % self.num_heads:
            raise ValueError(f"got hidden_size {self.hidden_size}, expected a multiple of num_heads {self.num_heads}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"got activation {self.activation!r}, expected one of {ACTIVATIONS}")

    @property
    def max_length(self) -> int:
        """Longest sequence, in tokens, that the position table serves."""
        return self.max_positions - self.position_offset

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json") -> BertConfig:
        """Raises: ValueError naming `where` and the field: another family, a missing or mistyped field, a position
        embedding or activation that this encoder does not compute."""
        family = raw.get("model_type")
        if family not in FAMILIES:
            raise ValueError(f"{where}: model_type: got {family!r}, expected one of {FAMILIES}")
        kind = raw.get("position_embedding_type", "absolute")
        if kind not in (None, "absolute"):
            raise ValueError(f"{where}: position_embedding_type: got {kind!r}, expected 'absolute'")
        if raw.get("is_decoder") or raw.get("add_cross_attention"):
            raise ValueError(f"{where}: is_decoder: got a decoder, expected an encoder")

        def field(name: str, kind: type):
            return _field(raw, name, kind, where)

        try:
            return cls(
                vocab_size=field("vocab_size", int),
                hidden_size=field("hidden_size", int),
                num_layers=field("num_hidden_layers", int),
                num_heads=field("num_attention_heads", int),
                intermediate_size=field("intermediate_size", int),
                max_positions=field("max_position_embeddings", int),
                type_vocab_size=field("type_vocab_size", int),
                layer_norm_eps=field("layer_norm_eps", float),
                activation=field("hidden_act", str),
                position_offset=0 if family == "bert" else field("pad_token_id", int) + 1,
            )
        except ValueError as e:
            raise ValueError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None

    def to_hf(self) -> dict[str, Any]:
        """config.json of the same network, as Hugging Face reads it."""
        family = {} if self.position_offset == 0 else {"pad_token_id": self.position_offset - 1}
        return {
            "model_type": "bert" if self.position_offset == 0 else "roberta",
            "architectures": ["BertModel" if self.position_offset == 0 else "RobertaModel"],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_positions,
            "type_vocab_size": self.type_vocab_size,
            "layer_norm_eps": self.layer_norm_eps,
            "hidden_act": self.activation,
            "position_embedding_type": "absolute",
        } | family


_SPANS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}  # and their old field


@dataclasses.dataclass(frozen=True)
class ModernBertConfig:
    """Architecture of a ModernBERT encoder, without biases.

    `global_layers`: for each layer, whether a token attends to its whole text; elsewhere to `reach` tokens on either
    side. The two kinds of layers have ropes of their own. `max_length`: longest sequence that it was made for.
    """

    vocab_size: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    max_length: int
    norm_eps: float
    activation: str
    global_layers: tuple[bool, ...]
    reach: int
    global_rope: R.Rope
    local_rope: R.Rope

    def __post_init__(self):
        if self.hidden_size % self.num_heads or self.hidden_size // self.num_heads % 2:
            raise ValueError(f"got hidden_size {self.hidden_size}, expected an even multiple of num_heads "
                             f"{self.num_heads}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"got activation {self.activation!r}, expected one of {ACTIVATIONS}")

    @property
    def num_layers(self) -> int:
        return len(self.global_layers)

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json") -> ModernBertConfig:
        """From either spelling: a rope and a kind for each layer, or two thetas and every how many layers are global.

        Raises: ValueError naming `where` and the field: another family, a missing or mistyped field, biases.
        """
        if (family := raw.get("model_type")) != "modernbert":
            raise ValueError(f"{where}: model_type: got {family!r}, expected 'modernbert'")
        for name in ("norm_bias", "attention_bias", "mlp_bias"):
            if raw.get(name):
                raise ValueError(f"{where}: {name}: got {raw[name]!r}, which this encoder does not compute")

        def field(name: str, kind: type):
            return _field(raw, name, kind, where)

        count = field("num_hidden_layers", int)
        if (kinds := raw.get("layer_types")) is None:
            every = field("global_attn_every_n_layers", int)
            kinds = ["sliding_attention" if i % every else "full_attention" for i in range(count)]
        if not isinstance(kinds, list) or len(kinds) != count or set(kinds) - set(_SPANS):
            raise ValueError(f"{where}: layer_types: got {kinds!r}, expected one of {tuple(_SPANS)} for each of "
                             f"{count} layers")
        ropes, given = [], raw.get("rope_parameters") or {}
        for kind, theta in _SPANS.items():
            if (one := given.get(kind)) is None:
                one = {"rope_theta": field(theta, float)}
            ropes.append(R.from_hf({"rope_parameters": one}, where=f"{where}: {kind}"))
        window = field("local_attention", int)
        if window % 2:
            raise ValueError(f"{where}: local_attention: got {window}, expected an even number")
        try:
            return cls(
                vocab_size=field("vocab_size", int),
                hidden_size=field("hidden_size", int),
                num_heads=field("num_attention_heads", int),
                intermediate_size=field("intermediate_size", int),
                max_length=field("max_position_embeddings", int),
                norm_eps=field("norm_eps", float),
                activation=field("hidden_activation", str),
                global_layers=tuple(kind == "full_attention" for kind in kinds),
                reach=window // 2,
                global_rope=ropes[0],
                local_rope=ropes[1],
            )
        except ValueError as e:
            raise ValueError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None

    def to_hf(self) -> dict[str, Any]:
        """config.json of the same network, as Hugging Face reads it."""
        full, local = _SPANS
        return {
            "model_type": "modernbert",
            "architectures": ["ModernBertModel"],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_length,
            "norm_eps": self.norm_eps,
            "hidden_activation": self.activation,
            "layer_types": [full if is_global else local for is_global in self.global_layers],
            "local_attention": 2 * self.reach,
            "rope_parameters": {full: R.to_hf(self.global_rope), local: R.to_hf(self.local_rope)},
            "norm_bias": False, "attention_bias": False, "mlp_bias": False,
            "pad_token_id": None,  # the tokenizer's affair; the default of 50,283 would not fit every vocabulary
        }


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Architecture of a causal decoder: RMSNorm, rotary positions, grouped queries, gated SiLU feed-forward.

    `qk_norm`: RMSNorm over each query's and key's head dimension, before the rotation (Qwen3). `num_heads * head_dim`
    need not be `hidden_size`. `max_positions`: longest sequence, in tokens, that the checkpoint was made for.
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    tie_embeddings: bool
    qk_norm: bool
    rope: R.Rope
    max_positions: int

    def __post_init__(self):
        if self.family not in DECODER_FAMILIES:
            raise ValueError(f"got family {self.family!r}, expected one of {tuple(DECODER_FAMILIES)}")
        if self.qk_norm != (self.family == "qwen3"):
            raise ValueError(f"got qk_norm {self.qk_norm} for family {self.family!r}, expected the other value")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"got num_heads {self.num_heads}, expected a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"got head_dim {self.head_dim}, expected an even number")

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have a bias (Qwen2 and 2.5); no other projection of any family has one."""
        return self.family == "qwen2"

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], *, where: str = "config.json") -> DecoderConfig:
        """Raises: ValueError naming `where` and the field: another family, a missing or mistyped field, whatever this
        decoder does not compute (biases, sliding windows, another activation or rope, quantised weights)."""
        family = raw.get("model_type")
        if family not in tuple(DECODER_FAMILIES):
            raise ValueError(f"{where}: model_type: got {family!r}, expected one of {tuple(DECODER_FAMILIES)}")
        for name in ("attention_bias", "mlp_bias", "use_sliding_window", "use_bidirectional_attention",
                     "rope_interleaved", "quantization_config"):
            if raw.get(name):
                raise ValueError(f"{where}: {name}: got {raw[name]!r}, which this decoder does not compute")
        if raw.get("is_causal", True) is False:
            raise ValueError(f"{where}: is_causal: got False, which this decoder does not compute")
        layers = raw.get("layer_types") or []
        if other := [k for k in layers if k != "full_attention"] if isinstance(layers, list) else layers:
            raise ValueError(f"{where}: layer_types: got {other!r}, expected 'full_attention' alone")
        if raw.get("partial_rotary_factor", 1) not in (None, 1):
            raise ValueError(f"{where}: partial_rotary_factor: got {raw['partial_rotary_factor']!r}, expected 1")

        def field(name: str, kind: type):
            return _field(raw, name, kind, where)

        if (activation := field("hidden_act", str)) != "silu":
            raise ValueError(f"{where}: hidden_act: got {activation!r}, expected 'silu'")
        if family != "qwen3" and raw.get("head_dim") is None:  # these families' files leave it to be derived
            head_dim, rest = divmod(field("hidden_size", int), field("num_attention_heads", int))
            if rest:
                raise ValueError(f"{where}: head_dim: missing, and hidden_size is no multiple of num_attention_heads")
        else:
            head_dim = field("head_dim", int)
        try:
            return cls(
                family=family,
                vocab_size=field("vocab_size", int),
                hidden_size=field("hidden_size", int),
                num_layers=field("num_hidden_layers", int),
                num_heads=field("num_attention_heads", int),
                num_kv_heads=field("num_key_value_heads", int),
                head_dim=head_dim,
                intermediate_size=field("intermediate_size", int),
                rms_norm_eps=field("rms_norm_eps", float),
                tie_embeddings=field("tie_word_embeddings", bool),
                qk_norm=family == "qwen3",
                rope=R.from_hf(raw, where=where),
                max_positions=field("max_position_embeddings", int),
            )
        except ValueError as e:
            raise ValueError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None

    def to_hf(self) -> dict[str, Any]:
        """config.json of the same network, as Hugging Face reads it; the rope in both spellings."""
        rope = R.to_hf(self.rope)
        old = None if rope["rope_type"] == "default" else {k: v for k, v in rope.items() if k != "rope_theta"}
        return {
            "model_type": self.family,
            "architectures": [DECODER_FAMILIES[self.family]],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_embeddings,
            "max_position_embeddings": self.max_positions,
            "rope_parameters": rope,
            "rope_theta": self.rope.theta,
            "rope_scaling": old,
        } | ({} if self.qkv_bias else {"attention_bias": False})  # Qwen2 has no such field, and its biases always
