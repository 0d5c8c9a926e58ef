"""Presets: published sizes, the committed trees, what they cost. Shapes only."""
from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from core_jax import params as P
from core_jax.models import cost, decoder, presets
from core_jax.models.config import DecoderConfig
from core_jax.rope import Default, Yarn

PUBLISHED = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-4b-instruct-2507": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-32b-yarn": 32_762_123_264,
    "qwen2.5-0.5b-instruct": 494_032_768,
    "qwen2.5-1.5b-instruct": 1_543_714_304,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "smollm2-135m": 134_515_008,
    "qwen3-embedding-0.6b": 595_776_512,
    "qwen3-embedding-8b": 7_567_295_488,
}
ALL = presets.DECODERS | presets.EMBEDDERS


def _spec(name: str) -> P.Tree:
    return decoder.spec(ALL[name], "bfloat16", head=name in presets.DECODERS)


@pytest.mark.parametrize("name", ALL)
def test_parameter_counts_are_the_published_ones(name):
    assert P.count(_spec(name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", ALL)
def test_trees_are_the_committed_ones(name, repository):
    """One checkpoint layout for ever: a change here breaks what people have saved."""
    golden = json.loads((repository / "tests" / "golden" / f"{name}.json").read_text(encoding="utf-8"))
    assert P.golden(_spec(name)) == golden


@pytest.mark.parametrize("name", ALL)
def test_full_size_forward_without_memory(name):
    config, shapes = ALL[name], P.abstract(_spec(name))
    ids = jax.ShapeDtypeStruct((2, 64), jnp.int32)
    hidden = jax.eval_shape(lambda p, i: decoder.forward(config, p, i), shapes, ids)
    assert hidden.shape == (2, 64, config.hidden_size) and hidden.dtype == jnp.bfloat16
    if name in presets.DECODERS:
        out = jax.eval_shape(lambda p, h: decoder.logits(config, p, h), shapes, hidden)
        assert out.shape == (2, 64, config.vocab_size) and out.dtype == jnp.float32


@pytest.mark.parametrize("name", ALL)
def test_config_files_round_trip(name):
    assert DecoderConfig.from_hf(json.loads(json.dumps(ALL[name].to_hf()))) == ALL[name]


def test_what_differs_between_siblings():
    a, b = presets.QWEN3_4B, presets.QWEN3_4B_INSTRUCT_2507
    assert dataclasses.replace(a, rope=b.rope, max_positions=b.max_positions) == b
    assert (a.rope, b.rope, b.max_positions) == (Default(1e6), Default(5e6), 262144)
    assert presets.QWEN3_32B_YARN.rope == Yarn(1e6, 4.0, 40960)
    assert [n for n, c in ALL.items() if c.num_heads * c.head_dim != c.hidden_size] == [
        "qwen3-0.6b", "qwen3-4b", "qwen3-4b-instruct-2507", "qwen3-32b", "qwen3-32b-yarn", "qwen3-embedding-0.6b"]


def test_golden_operations():
    """A Qwen3-4B prompt of 4,482 and of 1,876 tokens, and the reduction between them."""
    long, short = (cost.prefill_flops(presets.QWEN3_4B, n) for n in (4482, 1876))
    assert round(long / 1e12, 3) == 38.495 and round(short / 1e12, 3) == 14.671
    assert round(100 * (1 - short / long), 2) == 61.89
    longer = cost.prefill_flops(presets.QWEN3_4B, 4483)
    assert cost.decode_flops(presets.QWEN3_4B, 4483) == longer - long + 2 * 2560 * 151936


@pytest.mark.parametrize("name, weights, per_token, kv", [
    ("qwen3-0.6b", 0.440, 0.88, 114_688), ("qwen3-1.7b", 1.409, 2.82, 114_688), ("qwen3-4b", 3.633, 7.27, 147_456),
    ("qwen3-8b", 6.946, 13.89, 147_456), ("qwen3-32b", 31.206, 62.41, 262_144), ("llama-3.1-8b", 6.979, 13.96, 131_072),
    ("llama-3.1-70b", 68.451, 136.90, 327_680), ("qwen2.5-7b-instruct", 6.525, 13.05, 57_344),
])
def test_costs_of_the_table(name, weights, per_token, kv):
    config = presets.DECODERS[name]
    assert round(cost.matmul_weights(config) / 1e9, 3) == weights
    assert round(2 * cost.matmul_weights(config) / 1e9, 2) == per_token
    assert cost.kv_bytes_per_token(config, 2) == kv
    shapes = [s.shape for s in decoder.spec(config)["layers"].values() if len(s.shape) == 3]
    assert cost.matmul_weights(config) == sum(a * b * c for a, b, c in shapes)


def test_cache_of_a_request():
    kv = cost.kv_bytes_per_token(presets.QWEN3_4B, 2)
    assert round(4482 * kv / 2**20) == 630 and round(1876 * kv / 2**20) == 264
