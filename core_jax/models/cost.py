"""What a decoder costs: operations and cache bytes, counted from the shapes.

A multiplication and an addition are two operations; norms, rotations and softmax are left out. Grouped queries change
cache bytes, not operations.
"""
from __future__ import annotations

from core_jax.models.config import DecoderConfig


def matmul_weights(config: DecoderConfig) -> int:
    """Weights of the layers' matrices, each used once a token."""
    d, h = config.hidden_size, config.head_dim
    return config.num_layers * (2 * d * h * (config.num_heads + config.num_kv_heads) + 3 * d * config.intermediate_size)


def prefill_flops(config: DecoderConfig, n: int) -> int:
    """Operations of a prompt of n tokens, with logits of the last one."""
    attention = 2 * config.num_layers * config.num_heads * config.head_dim * n * (n + 1)
    return 2 * matmul_weights(config) * n + attention + 2 * config.hidden_size * config.vocab_size


def decode_flops(config: DecoderConfig, t: int) -> int:
    """Operations of one token that attends to t tokens, itself among them."""
    attention = 4 * config.num_layers * config.num_heads * config.head_dim * t
    return 2 * matmul_weights(config) + attention + 2 * config.hidden_size * config.vocab_size


def kv_bytes_per_token(config: DecoderConfig, itemsize: int) -> int:
    """Bytes of keys and values of one token in all layers; itemsize: bytes of one number (2 in bfloat16)."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * itemsize
