"""Safetensors folders: strict both ways with one report, shards, prefixes, dtypes."""
from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from weights import random_weights

from core_jax.ckpt import hf
from core_jax.models import encoder
from core_jax.models.config import BertConfig

CONFIG = BertConfig(11, 8, 2, 2, 12, 6, 2, 1e-12, "gelu", 0)
SPEC, SOURCES = encoder.spec(CONFIG), encoder.hf_sources(CONFIG)


def _read(folder):
    return hf.read(folder, SPEC, SOURCES, ignorable=encoder.IGNORABLE, prefixes=encoder.PREFIXES)


@pytest.fixture
def params():
    return random_weights(SPEC)


@pytest.fixture
def tensors(params, tmp_path):
    from safetensors.numpy import load_file

    hf.write(tmp_path / "source", params, SOURCES, CONFIG.to_hf())
    return load_file(tmp_path / "source" / "model.safetensors")


def _same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


def test_round_trip(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, CONFIG.to_hf())
    _same(_read(tmp_path), params)
    assert BertConfig.from_hf(json.loads((tmp_path / "config.json").read_text())) == CONFIG


def test_matrices_are_stored_out_in(params, tensors):
    key = "encoder.layer.1.intermediate.dense.weight"
    np.testing.assert_array_equal(tensors[key], np.asarray(params["layers"]["w1"][1]).T)


def test_one_report_of_everything_wrong(tensors, tmp_path):
    del tensors["encoder.layer.0.output.dense.bias"]
    tensors["encoder.layer.7.output.dense.bias"] = np.zeros(8, np.float32)
    tensors["embeddings.LayerNorm.weight"] = np.zeros(9, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError) as e:
        _read(tmp_path)
    message = str(e.value)
    assert "3 problem(s)" in message
    assert "missing encoder.layer.0.output.dense.bias" in message
    assert "unexpected encoder.layer.7.output.dense.bias" in message
    assert "shape of embeddings.LayerNorm.weight: got (9,), expected (8,)" in message


def test_known_buffers_and_heads_are_ignored_under_a_prefix(params, tensors, tmp_path):
    wrapped = {f"bert.{k}": v for k, v in tensors.items()}
    wrapped["bert.embeddings.position_ids"] = np.arange(6)[None]
    wrapped["bert.pooler.dense.weight"] = np.zeros((8, 8), np.float32)
    wrapped["cls.predictions.bias"] = np.zeros(11, np.float32)
    save_file(wrapped, tmp_path / "model.safetensors")
    _same(_read(tmp_path), params)
    wrapped["bert.surprise"] = np.zeros(1, np.float32)
    save_file(wrapped, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="unexpected bert.surprise"):
        _read(tmp_path)


def test_shards_and_a_missing_one(params, tensors, tmp_path):
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for name, keys in halves.items():
        save_file({k: tensors[k] for k in keys}, tmp_path / name)
    index = {"weight_map": {k: name for name, keys in halves.items() for k in keys}}
    (tmp_path / hf.INDEX).write_text(json.dumps(index))
    _same(_read(tmp_path), params)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"1 absent shard\(s\): b.safetensors"):
        _read(tmp_path)
    (tmp_path / hf.INDEX).write_text("[]")
    with pytest.raises(ValueError, match="weight_map"):
        _read(tmp_path)


def test_bfloat16_is_widened(params, tensors, tmp_path):
    save_file({k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}, tmp_path / "model.safetensors")
    got = _read(tmp_path)
    _same(got, jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), params))
    assert got["embed"]["token"].dtype == jnp.float32


def test_truncated_or_absent_file(tensors, tmp_path):
    with pytest.raises(ValueError, match="has neither"):
        _read(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        _read(tmp_path)
