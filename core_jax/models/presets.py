"""Architectures by name, for shapes without weights: golden trees, ahead-of-time compiles, benchmarks."""
from __future__ import annotations

from core_jax.models.config import BertConfig

MINILM = BertConfig(  # all-MiniLM-L6-v2, the default encoder
    vocab_size=30522, hidden_size=384, num_layers=6, num_heads=12, intermediate_size=1536, max_positions=512,
    type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", position_offset=0,
)
