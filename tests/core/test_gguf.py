"""GGUF: small files written by the gguf package, read back; what is wrong with a file is said by name."""
from __future__ import annotations

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from weights import random_weights

from core_jax import params as P
from core_jax import rope as R
from core_jax.ckpt.gguf import open_gguf, read_config
from core_jax.ckpt.gguf_file import GGUFFile
from core_jax.mesh import MeshSpec, Rules
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig

QWEN3 = DecoderConfig(
    family="qwen3", vocab_size=96, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32,
    intermediate_size=96, rms_norm_eps=1e-6, tie_embeddings=False, qk_norm=True, rope=R.Default(1e6), max_positions=512)
LLAMA = DecoderConfig(
    family="llama", vocab_size=96, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=96, rms_norm_eps=1e-5, tie_embeddings=True, qk_norm=False,
    rope=R.Llama3(5e5, 8.0, 1.0, 4.0, 8192), max_positions=512)


QWEN2 = DecoderConfig(
    family="qwen2", vocab_size=96, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=96, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=False, rope=R.Default(1e6), max_positions=512)


def pair_rows(w: np.ndarray, head_dim: int) -> np.ndarray:
    """Hugging Face's halves -> llama.cpp's neighbours, as its converter writes it."""
    heads = w.shape[0] // head_dim
    return w.reshape(heads, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path, config, params, *, kinds=None, fields=None, drop=(), extra=None):
    """A model file of `params`. kinds: GGUF tensor name's ending -> quantisation; fields: further or other metadata."""
    arch, rope, h = config.family, config.rope, config.head_dim
    w = gguf.GGUFWriter(path, arch)
    values = {
        "block_count": config.num_layers, "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size, "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads, "attention.key_length": h, "attention.value_length": h,
        "rope.dimension_count": h, "vocab_size": config.vocab_size, "rope.freq_base": rope.theta,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps}
    if isinstance(rope, R.Yarn):
        values |= {"rope.scaling.type": "yarn", "rope.scaling.factor": rope.factor,
                   "rope.scaling.original_context_length": rope.original_max_positions,
                   "rope.scaling.yarn_beta_fast": rope.beta_fast}
    for key, value in (values | (fields or {})).items():
        if value is None:
            continue
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool}[type(value)]
        add(f"{arch}.{key}", value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], config.num_layers)
    tensors = {}
    for name, source in decoder.hf_sources(config).items():
        node = params
        for part in name.split("/"):
            node = node[part]
        for i, key in enumerate(source.keys):
            x = np.asarray(node[i] if source.stacked else node, np.float32)
            x = pair_rows(x, h) if arch == "llama" and name in ("layers/wq", "layers/wk") else x
            tensors[names.get_name(key, try_suffixes=(".weight", ".bias"))] = np.ascontiguousarray(x)
    if isinstance(rope, R.Llama3):
        tensors["rope_freqs.weight"] = R.Default(rope.theta).inverse_frequencies(h) / rope.inverse_frequencies(h)
    for name, x in (tensors | (extra or {})).items():
        if name in drop:
            continue
        kind = next((k for ending, k in (kinds or {}).items() if name.endswith(ending)), None)
        if kind is None:
            w.add_tensor(name, x)
        else:
            w.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def _weights(config):
    return random_weights(decoder.spec(config))


def _same(got, expected):
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), got, expected)


@pytest.mark.parametrize("config", [QWEN3, QWEN2, LLAMA], ids=lambda c: c.family)
def test_round_trip(config, tmp_path):
    params = _weights(config)
    got_config, got = open_gguf(write_gguf(tmp_path / "m.gguf", config, params))
    assert got_config == config
    _same(got, params)


def test_qwen2_as_its_converter_writes_it(tmp_path):
    """No head sizes in the metadata, and biases as tensors of their own."""
    given = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count", "vocab_size"))
    path = write_gguf(tmp_path / "m.gguf", QWEN2, _weights(QWEN2), fields=given)
    assert read_config(GGUFFile(path)) == QWEN2
    path = write_gguf(tmp_path / "n.gguf", QWEN2, _weights(QWEN2), drop=("blk.1.attn_k.bias",))
    with pytest.raises(ValueError, match=r"1 problem\(s\): missing blk.1.attn_k.bias"):
        open_gguf(path)


def test_yarn(tmp_path):
    import dataclasses

    config = dataclasses.replace(QWEN3, rope=R.Yarn(1e6, 4.0, 256, beta_fast=24.0))
    path = write_gguf(tmp_path / "m.gguf", config, _weights(config))
    assert open_gguf(path)[0] == config
    for name in ("attn_factor", "yarn_ext_factor"):
        path = write_gguf(tmp_path / "n.gguf", config, _weights(config), fields={f"rope.scaling.{name}": 0.5})
        with pytest.raises(ValueError, match=rf"n.gguf: qwen3.rope.scaling.{name}: got 0.5, expected 1"):
            read_config(GGUFFile(path))


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F16", "BF16"])
def test_dequantised_to_what_the_library_says_on_any_sharding(kind, tmp_path):
    kind, params = gguf.GGMLQuantizationType[kind], _weights(QWEN3)
    path = write_gguf(tmp_path / "m.gguf", QWEN3, params, kinds={"attn_q.weight": kind, "ffn_down.weight": kind})
    rules = Rules((("heads", "tensor"), ("ffn", "tensor"), ("vocab", "tensor"), ("embed", "data")))
    mesh = MeshSpec(2, 4).build(jax.devices())
    _, got = open_gguf(path, shardings=lambda spec: P.shardings(spec, mesh, rules))
    for name in ("wq", "w_down"):
        expected = np.stack(
            [gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind) for x in params["layers"][name]])
        np.testing.assert_array_equal(np.asarray(got["layers"][name]), expected)
        assert not got["layers"][name].sharding.is_fully_replicated
    np.testing.assert_array_equal(np.asarray(got["head"]), params["head"])


def test_paired_rows_on_a_sharding_that_cuts_heads(tmp_path):
    params = _weights(LLAMA)
    mesh = MeshSpec(1, 8).build(jax.devices())  # wk: 32 rows, 4 a device, a quarter of a head
    _, got = open_gguf(write_gguf(tmp_path / "m.gguf", LLAMA, params),
                       shardings=lambda spec: P.shardings(spec, mesh, Rules((("heads", "tensor"),))))
    _same(got, params)


def test_bfloat16_matrices(tmp_path):
    params = _weights(QWEN3)
    _, got = open_gguf(write_gguf(tmp_path / "m.gguf", QWEN3, params), dtype="bfloat16")
    assert got["layers"]["wq"].dtype == jnp.bfloat16 and got["layers"]["norm1"].dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(got["embed"]["token"]), params["embed"]["token"].astype(jnp.bfloat16))


def test_one_report_of_everything_wrong(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", QWEN3, _weights(QWEN3), fields={"vocab_size": 95},
                      drop=("blk.1.ffn_up.weight",), extra={"blk.0.attn_q.bias": np.zeros(128, np.float32)})
    with pytest.raises(ValueError) as e:
        open_gguf(path)
    message = str(e.value)
    assert "m.gguf: 4 problem(s)" in message
    for part in ("missing blk.1.ffn_up.weight", "unexpected blk.0.attn_q.bias",
                 "shape of token_embd.weight: got (96, 64), expected (95, 64)", "shape of output.weight"):
        assert part in message, message


@pytest.mark.parametrize("fields, what", [
    ({"attention.head_count": None}, "qwen3.attention.head_count: missing"),
    ({"attention.head_count": "four"}, "qwen3.attention.head_count: got str of 4, expected int"),
    ({"attention.head_count": True}, "qwen3.attention.head_count: got True, expected int"),
    ({"rope.freq_base": None}, "qwen3.rope.freq_base: missing"),
    ({"rope.scaling.type": "longrope"}, "qwen3.rope.scaling.type: got 'longrope'"),
    ({"rope.dimension_count": 16}, "qwen3.rope.dimension_count: got 16, expected the head size 32"),
    ({"expert_count": 8}, "qwen3.expert_count: got 8"),
    ({"attention.layer_norm_rms_epsilon": 0.0}, "rms_norm_eps"),
])
def test_metadata_that_is_wrong_is_named(fields, what, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", QWEN3, _weights(QWEN3), fields=fields)
    with pytest.raises(ValueError, match="m.gguf") as e:
        open_gguf(path)
    assert what in str(e.value)


def test_another_architecture(tmp_path):
    w = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    with pytest.raises(ValueError, match="m.gguf: general.architecture: got 'gemma3', expected one of 'llama'"):
        open_gguf(tmp_path / "m.gguf")


def test_frequencies_that_are_not_llama3s(tmp_path):
    wrong = {"rope_freqs.weight": np.full(8, 3, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", LLAMA, _weights(LLAMA), extra=wrong)
    with pytest.raises(ValueError, match="rope_freqs.weight: not the frequencies of Llama 3"):
        open_gguf(path)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "m.gguf"
    with pytest.raises(ValueError, match="no such file"):
        GGUFFile(path)
    for content, what in ((b"", "not a GGUF"), (b"PK\x03\x04 zip", "not a GGUF"), (b"GGUF\x03\0\0\0", "truncated"),
                          (b"GGUF\x01\0\0\0" + bytes(16), "version 1"), (b"GGUF\0\0\0\x03" + bytes(16), "big-endian")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=what) as e:
            GGUFFile(path)
        assert "m.gguf" in str(e.value)


def test_a_file_cut_anywhere_is_an_error(tmp_path):
    whole = write_gguf(tmp_path / "m.gguf", LLAMA, _weights(LLAMA)).read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [*range(4, 2000, 97), len(whole) // 2, len(whole) - 64]:
        cut.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"cut.gguf: truncated: .*{size}"):
            GGUFFile(cut)
    cut.write_bytes(whole)
    GGUFFile(cut)


def test_a_flipped_length_is_an_error(tmp_path):
    """A string said to be 2^60 bytes long must not be read, or allocated."""
    whole = bytearray(write_gguf(tmp_path / "m.gguf", LLAMA, _weights(LLAMA)).read_bytes())
    whole[24 + 7] = 0x10  # the first key's length
    (tmp_path / "m.gguf").write_bytes(whole)
    with pytest.raises(ValueError, match="truncated"):
        GGUFFile(tmp_path / "m.gguf")
