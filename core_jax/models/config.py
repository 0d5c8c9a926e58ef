"""Model configs: frozen dataclasses that know Hugging Face's config.json, read strictly."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")


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
            if name not in raw:
                raise ValueError(f"{where}: {name}: missing")
            value = raw[name]
            if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
                raise ValueError(f"{where}: {name}: got {value!r}, expected {kind.__name__}")
            if kind is not str and value <= 0 and name != "pad_token_id":
                raise ValueError(f"{where}: {name}: got {value!r}, expected a positive number")
            return kind(value)

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
