"""Architectures by name, for shapes without weights: golden trees, ahead-of-time compiles, benchmarks."""
from __future__ import annotations

import dataclasses

from core_jax.models.config import BertConfig, DecoderConfig, ModernBertConfig
from core_jax.rope import Default, Llama3, Yarn

MINILM = BertConfig(  # all-MiniLM-L6-v2, the default encoder
    vocab_size=30522, hidden_size=384, num_layers=6, num_heads=12, intermediate_size=1536, max_positions=512,
    type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", position_offset=0,
)
MODERNBERT_BASE = ModernBertConfig(
    vocab_size=50368, hidden_size=768, num_heads=12, intermediate_size=1152, max_length=8192, norm_eps=1e-5,
    activation="gelu", global_layers=tuple(i % 3 == 0 for i in range(22)), reach=64, global_rope=Default(1.6e5),
    local_rope=Default(1e4),
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


def _qwen25(layers: int, width: int, heads: int, kv_heads: int, ffn: int, *, tied: bool, vocab: int) -> DecoderConfig:
    return DecoderConfig(
        family="qwen2", vocab_size=vocab, hidden_size=width, num_layers=layers, num_heads=heads, num_kv_heads=kv_heads,
        head_dim=width // heads, intermediate_size=ffn, rms_norm_eps=1e-6, tie_embeddings=tied, qk_norm=False,
        rope=Default(1e6), max_positions=32768)


QWEN3_0_6B = _qwen3(28, 1024, 16, 3072, tied=True)
QWEN3_1_7B = _qwen3(28, 2048, 16, 6144, tied=True)
QWEN3_4B = _qwen3(36, 2560, 32, 9728, tied=True)
QWEN3_4B_INSTRUCT_2507 = dataclasses.replace(QWEN3_4B, rope=Default(5e6), max_positions=262144)
QWEN3_8B = _qwen3(36, 4096, 32, 12288, tied=False)
QWEN3_32B = _qwen3(64, 5120, 64, 25600, tied=False)
QWEN3_32B_YARN = dataclasses.replace(QWEN3_32B, rope=Yarn(1e6, 4.0, 40960), max_positions=163840)
QWEN25_0_5B_INSTRUCT = _qwen25(24, 896, 14, 2, 4864, tied=True, vocab=151936)
QWEN25_1_5B_INSTRUCT = _qwen25(28, 1536, 12, 2, 8960, tied=True, vocab=151936)
QWEN25_7B_INSTRUCT = _qwen25(28, 3584, 28, 4, 18944, tied=False, vocab=152064)
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
    "qwen2.5-0.5b-instruct": QWEN25_0_5B_INSTRUCT,
    "qwen2.5-1.5b-instruct": QWEN25_1_5B_INSTRUCT,
    "qwen2.5-7b-instruct": QWEN25_7B_INSTRUCT,
    "llama-3.1-8b": LLAMA31_8B,
    "llama-3.1-70b": LLAMA31_70B,
    "smollm2-135m": SMOLLM2_135M,
}
EMBEDDERS = {"qwen3-embedding-0.6b": QWEN3_EMBEDDING_0_6B, "qwen3-embedding-8b": QWEN3_EMBEDDING_8B}
