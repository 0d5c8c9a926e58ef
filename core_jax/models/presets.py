"""Architectures by name, for shapes without weights: golden trees, ahead-of-time compiles, benchmarks."""
from __future__ import annotations

import dataclasses

from core_jax.models.config import BertConfig, DecoderConfig
from core_jax.rope import Default, Llama3, Yarn

MINILM = BertConfig(  # all-MiniLM-L6-v2, the default encoder
    vocab_size=30522, hidden_size=384, num_layers=6, num_heads=12, intermediate_size=1536, max_positions=512,
    type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", position_offset=0,
)


def _qwen3(layers: int, width: int, heads: int, ffn: int, *, tied: bool, **changes) -> DecoderConfig:
    config = DecoderConfig(
        family="qwen3", vocab_size=151936, hidden_size=width, num_layers=layers, num_heads=heads, num_kv_heads=8,
        head_dim=128, intermediate_size=ffn, rms_norm_eps=1e-6, tie_embeddings=tied, qk_norm=True, rope=Default(1e6),
        max_positions=40960)
    return dataclasses.replace(config, **changes)


def _llama31(layers: int, width: int, heads: int, ffn: int) -> DecoderConfig:
    return DecoderConfig(
        family="llama", vocab_size=128256, hidden_size=width, num_layers=layers, num_heads=heads, num_kv_heads=8,
        head_dim=128, intermediate_size=ffn, rms_norm_eps=1e-5, tie_embeddings=False, qk_norm=False,
        rope=Llama3(5e5, 8.0, 1.0, 4.0, 8192), max_positions=131072)


QWEN3_0_6B = _qwen3(28, 1024, 16, 3072, tied=True)
QWEN3_1_7B = _qwen3(28, 2048, 16, 6144, tied=True)
QWEN3_4B = _qwen3(36, 2560, 32, 9728, tied=True)
QWEN3_4B_INSTRUCT_2507 = dataclasses.replace(QWEN3_4B, rope=Default(5e6), max_positions=262144)
QWEN3_8B = _qwen3(36, 4096, 32, 12288, tied=False)
QWEN3_32B = _qwen3(64, 5120, 64, 25600, tied=False)
QWEN3_32B_YARN = dataclasses.replace(QWEN3_32B, rope=Yarn(1e6, 4.0, 40960), max_positions=163840)
LLAMA31_8B = _llama31(32, 4096, 32, 14336)
LLAMA31_70B = _llama31(80, 8192, 64, 28672)
SMOLLM2_135M = DecoderConfig(
    family="llama", vocab_size=49152, hidden_size=576, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64,
    intermediate_size=1536, rms_norm_eps=1e-5, tie_embeddings=True, qk_norm=False, rope=Default(1e5),
    max_positions=8192,
)
# text to vector: `spec(config, head=False)`; their vocabularies end where the tokenizer does
QWEN3_EMBEDDING_0_6B = dataclasses.replace(QWEN3_0_6B, vocab_size=151669, max_positions=32768)
QWEN3_EMBEDDING_8B = dataclasses.replace(QWEN3_8B, vocab_size=151665)

DECODERS = {
    "qwen3-0.6b": QWEN3_0_6B,
    "qwen3-1.7b": QWEN3_1_7B,
    "qwen3-4b": QWEN3_4B,
    "qwen3-4b-instruct-2507": QWEN3_4B_INSTRUCT_2507,
    "qwen3-8b": QWEN3_8B,
    "qwen3-32b": QWEN3_32B,
    "qwen3-32b-yarn": QWEN3_32B_YARN,
    "llama-3.1-8b": LLAMA31_8B,
    "llama-3.1-70b": LLAMA31_70B,
    "smollm2-135m": SMOLLM2_135M,
}
EMBEDDERS = {"qwen3-embedding-0.6b": QWEN3_EMBEDDING_0_6B, "qwen3-embedding-8b": QWEN3_EMBEDDING_8B}
