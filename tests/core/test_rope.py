"""Rotary embeddings without their reference: both spellings of config.json, errors, the rotation itself."""
from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from core_jax import rope as R

DEFAULT = R.Default(1e6)
LLAMA3 = R.Llama3(5e5, 8.0, 1.0, 4.0, 8192)
YARN = R.Yarn(1e6, 4.0, 40960)
VARIANTS = [DEFAULT, LLAMA3, YARN, R.Yarn(1e4, 2.0, 64, 16.0, 2.0, 1.25, truncate=False),
            R.Yarn(1e4, 40.0, 4096, mscale=0.7, mscale_all_dim=1.0)]


@pytest.mark.parametrize("rope", VARIANTS)
def test_both_spellings_are_read(rope):
    new = {"rope_parameters": R.to_hf(rope)}
    old = {"rope_theta": rope.theta, "rope_scaling": {k: v for k, v in R.to_hf(rope).items() if k != "rope_theta"}}
    older = {"rope_theta": rope.theta, "rope_scaling": {
        "type" if k == "rope_type" else k: v for k, v in R.to_hf(rope).items() if k != "rope_theta"}}
    for raw in (new, old, older, new | old, new | {"rope_scaling": None}):
        assert R.from_hf(raw) == rope
    if rope == DEFAULT:
        assert R.from_hf({"rope_theta": 1e6, "rope_scaling": None}) == rope == R.from_hf({"rope_theta": 1000000})


LLAMA3_HF = R.to_hf(LLAMA3)


@pytest.mark.parametrize("raw, message", [
    ({}, "rope_theta: missing"),
    ({"rope_parameters": {"rope_type": "default"}}, "rope_theta: missing"),
    ({"rope_theta": "1e6"}, "rope_theta: got '1e6', expected a positive number"),
    ({"rope_theta": -1.0}, "rope_theta: got -1.0, expected a positive number"),
    ({"rope_theta": True}, "rope_theta: got True"),
    ({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.rope_type: got 'linear'"),
    ({"rope_theta": 1e4, "rope_scaling": "yarn"}, "rope_scaling: got 'yarn', expected an object"),
    ({"rope_theta": 1e4, "rope_scaling": {"type": "llama3", "rope_type": "yarn"}}, "rope_scaling.type: got 'llama3'"),
    ({"rope_theta": 1e4, "rope_parameters": LLAMA3_HF}, "rope_theta: got 10000.0, expected the same as"),
    ({"rope_parameters": LLAMA3_HF, "rope_scaling": R.to_hf(YARN)}, "rope_scaling: got Yarn"),
    ({"rope_parameters": LLAMA3_HF | {"beta_fast": 32}}, "rope_parameters.beta_fast: unknown in a rope of"),
    ({"rope_parameters": {k: v for k, v in LLAMA3_HF.items() if k != "factor"}}, "rope_parameters.factor: missing"),
    ({"rope_parameters": LLAMA3_HF | {"factor": "8"}}, "rope_parameters.factor: got '8'"),
    ({"rope_parameters": LLAMA3_HF | {"high_freq_factor": 1.0}}, "rope_parameters.high_freq_factor: got 1.0"),
    ({"rope_parameters": LLAMA3_HF | {"original_max_position_embeddings": 0}}, "max_position_embeddings: got 0"),
    ({"rope_parameters": R.to_hf(YARN) | {"factor": 0.5}}, "factor: got 0.5, expected at least 1"),
    ({"rope_parameters": R.to_hf(YARN) | {"beta_fast": 0.5}}, "beta_fast: got 0.5"),
    ({"rope_parameters": R.to_hf(YARN) | {"mscale": 1.0}}, "mscale: got one of"),
    ({"rope_parameters": R.to_hf(YARN) | {"truncate": 1}}, "truncate: got 1"),
    ({"rope_parameters": R.to_hf(YARN) | {"rope_theta": 1.0}}, "rope_theta: got 1"),
])
def test_errors_name_file_and_field(raw, message):
    with pytest.raises(ValueError) as e:
        R.from_hf(raw, where="folder/config.json")
    assert str(e.value).startswith("folder/config.json: ") and message in str(e.value)


def test_an_odd_head_dim_is_refused():
    for rope in (DEFAULT, LLAMA3, YARN):
        with pytest.raises(ValueError, match="head_dim: got 5"):
            rope.inverse_frequencies(5)


def test_bands_of_llama3():
    plain, scaled = R.Default(5e5).inverse_frequencies(128), LLAMA3.inverse_frequencies(128)
    wave = 2 * math.pi / plain
    np.testing.assert_array_equal(scaled[wave < 8192 / 4], plain[wave < 8192 / 4])
    np.testing.assert_allclose(scaled[wave > 8192], plain[wave > 8192] / 8, rtol=1e-6)
    between = (wave > 8192 / 4) & (wave < 8192)
    assert between.any() and np.all((scaled < plain)[between] & (scaled > plain / 8)[between])


def test_bands_and_scale_of_yarn():
    plain, scaled = R.Default(1e6).inverse_frequencies(128), YARN.inverse_frequencies(128)
    np.testing.assert_array_equal(scaled[:20], plain[:20])
    np.testing.assert_allclose(scaled[-20:], plain[-20:] / 4, rtol=1e-6)
    assert YARN.attention_scale == pytest.approx(0.1 * math.log(4) + 1)
    assert VARIANTS[3].attention_scale == 1.25 and VARIANTS[4].attention_scale < 1
    assert dataclasses.replace(YARN, factor=1.0).attention_scale == 1.0


@pytest.mark.parametrize("rope", VARIANTS)
def test_rotation_depends_on_distance_alone_and_keeps_length(rope):
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, 1, 16)).astype(np.float32) for _ in range(2))

    @jax.jit
    def score(i, j):
        return jnp.sum(R.rotate(q, *R.tables(rope, 16, i[None])) * R.rotate(k, *R.tables(rope, 16, j[None])))

    here, there = score(jnp.int32(7), jnp.int32(4)), score(jnp.int32(1007), jnp.int32(1004))
    np.testing.assert_allclose(here, there, atol=2e-3)  # angles are float32
    assert abs(float(score(jnp.int32(7), jnp.int32(5)) - here)) > 1e-2
    turned = R.rotate(q, *R.tables(rope, 16, jnp.array([12345], jnp.int32)))
    np.testing.assert_allclose(np.linalg.norm(turned), np.linalg.norm(q) * rope.attention_scale, rtol=1e-6)


def test_rotation_pairs_the_two_halves():
    cos, sin = jnp.zeros((1, 2)), jnp.ones((1, 2))  # a quarter turn
    x = jnp.arange(4.0)[None, None]
    np.testing.assert_array_equal(R.rotate(x, cos, sin)[0, 0], [-2, -3, 0, 1])
    assert R.rotate(x.astype(jnp.bfloat16), cos, sin).dtype == jnp.bfloat16
