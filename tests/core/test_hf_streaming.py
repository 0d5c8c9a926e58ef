"""Streaming: target shardings, only the slices a device holds, bounded memory, tied copies, sharded export."""
from __future__ import annotations

import json
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from safetensors.numpy import load_file, save_file
from weights import random_weights

from core_jax import axes as A
from core_jax import params as P
from core_jax.ckpt import hf
from core_jax.mesh import MeshSpec, Rules

LAYERS, D, F, V = 3, 8, 16, 24
SPEC = {
    "embed": {"token": P.ParamSpec((V, D), (A.VOCAB, A.EMBED))},
    "layers": {"w": P.ParamSpec((LAYERS, F, D), (A.LAYERS, A.FFN, A.EMBED)),
               "wt": P.ParamSpec((LAYERS, D, F), (A.LAYERS, A.EMBED, A.FFN)),
               "b": P.ParamSpec((LAYERS, F), (A.LAYERS, A.FFN))},
}
SOURCES = {
    "embed/token": hf.Source(("model.embed.weight",)),
    "layers/w": hf.Source(tuple(f"model.{i}.w.weight" for i in range(LAYERS)), stacked=True),
    "layers/wt": hf.Source(tuple(f"model.{i}.wt.weight" for i in range(LAYERS)), stacked=True, transposed=True),
    "layers/b": hf.Source(tuple(f"model.{i}.b" for i in range(LAYERS)), stacked=True),
}
RULES = Rules(((A.VOCAB, "tensor"), (A.FFN, "tensor"), (A.EMBED, "data")))


@pytest.fixture
def params():
    return random_weights(SPEC)


def _same(got, expected):
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), got, expected)


@pytest.mark.parametrize("mesh", [(8, 1), (4, 2), (2, 4), (1, 2)])
def test_arrays_land_on_their_shardings(params, tmp_path, mesh):
    hf.write(tmp_path, params, SOURCES, {})
    shardings = P.shardings(SPEC, MeshSpec(*mesh).build(jax.devices()), RULES)
    got = hf.read(tmp_path, SPEC, SOURCES, shardings=shardings)
    _same(got, params)
    for path, x in (("embed", got["embed"]["token"]), ("w", got["layers"]["w"]), ("b", got["layers"]["b"])):
        expected = {"embed": shardings["embed"]["token"], "w": shardings["layers"]["w"], "b": shardings["layers"]["b"]}
        assert x.sharding == expected[path]


class _Spy:
    """A store that counts the numbers that are read of each tensor, and keeps what was asked for."""

    def __init__(self, folder):
        self.inner, self.read_of, self.asked = hf.Folder(folder), {}, {}
        self.where, self.shapes, self.types = self.inner.where, self.inner.shapes, self.inner.types

    def read(self, key, index):
        x = self.inner.read(key, index)
        self.asked.setdefault(key, []).append(index)
        self.read_of[key] = self.read_of.get(key, 0) + x.size
        return x


def test_each_number_is_read_once_whatever_the_replicas(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {})
    mesh = MeshSpec(4, 2).build(jax.devices())
    shardings = P.shardings(SPEC, mesh, Rules(()))
    shardings["layers"]["w"] = NamedSharding(mesh, PartitionSpec(None, "tensor", None))  # 4 replicas of each half
    store = _Spy(tmp_path)
    hf.load(store, SPEC, SOURCES, shardings=shardings)
    assert store.read_of == {key: int(np.prod(shape)) for key, shape in store.shapes.items()}


def test_a_device_asks_for_its_slice_alone(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {})
    store = _Spy(tmp_path)
    hf.load(store, SPEC, SOURCES, shardings=P.shardings(SPEC, MeshSpec(1, 8).build(jax.devices()), RULES))
    for key in ("model.1.w.weight", "model.1.wt.weight"):
        rows = [(index[0].start, index[0].stop) for index in store.asked[key]]
        assert sorted(rows) == [(a, a + F // 8) for a in range(0, F, F // 8)]


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_floats_of_any_width_are_cast(params, tmp_path, kind, dtype):
    hf.write(tmp_path, params, SOURCES, {})
    file = tmp_path / "model.safetensors"
    tensors = {k: v.astype(kind) for k, v in load_file(file).items()}
    save_file(tensors, file)
    got = hf.read(tmp_path, SPEC, SOURCES, dtype=dtype)
    assert {x.dtype.name for x in jax.tree.leaves(got)} == {dtype or "float32"}
    np.testing.assert_array_equal(np.asarray(got["layers"]["w"][1]),
                                  tensors["model.1.w.weight"].astype(np.dtype(dtype or "float32")))


def test_integers_are_reported(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {})
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"model.1.b": np.zeros(F, np.int8)}, file)
    with pytest.raises(ValueError, match=r"1 problem\(s\): type of model.1.b: got I8, expected one of F64"):
        hf.read(tmp_path, SPEC, SOURCES)


def test_blocks_of_rows_join_up(params, tmp_path, monkeypatch):
    hf.write(tmp_path, params, SOURCES, {})
    monkeypatch.setattr(hf, "BLOCK_BYTES", 4 * D * 5)  # five rows, which divides neither V nor F
    _same(hf.read(tmp_path, SPEC, SOURCES), params)


def test_a_vocabulary_of_another_size_is_in_the_report(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {})
    wider = SPEC | {"embed": {"token": P.ParamSpec((V + 1, D), (A.VOCAB, A.EMBED))}}
    with pytest.raises(ValueError, match=r"shape of model.embed.weight: got \(24, 8\), expected \(25, 8\)"):
        hf.read(tmp_path, wider, SOURCES)


def test_a_tied_head_may_be_there_if_it_is_the_same(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {})
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    copies = {"lm_head.weight": "embed/token"}
    save_file(tensors | {"lm_head.weight": tensors["model.embed.weight"].copy()}, file)
    with pytest.raises(ValueError, match="unexpected lm_head.weight"):
        hf.read(tmp_path, SPEC, SOURCES)
    _same(hf.read(tmp_path, SPEC, SOURCES, copies=copies), params)
    other = tensors["model.embed.weight"].copy()
    other[-1, -1] += 1e-6
    for wrong in (other, other[:-1]):
        save_file(tensors | {"lm_head.weight": wrong}, file)
        with pytest.raises(ValueError, match="lm_head.weight: differs from model.embed.weight"):
            hf.read(tmp_path, SPEC, SOURCES, copies=copies)


def test_export_in_shards(params, tmp_path):
    hf.write(tmp_path, params, SOURCES, {"model_type": "x"}, max_shard_bytes=1200)
    index = json.loads((tmp_path / hf.INDEX).read_text())
    shards = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert len(shards) > 2 and shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in jax.tree.leaves(params))
    for name in shards:
        tensors = load_file(tmp_path / name)
        assert sum(x.nbytes for x in tensors.values()) <= 1200
        assert all(index["weight_map"][key] == name for key in tensors)
    _same(hf.read(tmp_path, SPEC, SOURCES), params)


def test_a_later_export_hides_the_earlier(params, tmp_path):
    other = jax.tree.map(lambda x: x + np.float32(1), params)
    hf.write(tmp_path, params, SOURCES, {}, max_shard_bytes=1200)
    hf.write(tmp_path, other, SOURCES, {})
    _same(hf.read(tmp_path, SPEC, SOURCES), other)
    hf.write(tmp_path, params, SOURCES, {}, max_shard_bytes=1200)
    assert not (tmp_path / hf.SINGLE).exists()
    _same(hf.read(tmp_path, SPEC, SOURCES), params)


def test_export_of_sharded_bfloat16(params, tmp_path):
    mesh = MeshSpec(4, 2).build(jax.devices())
    half = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16), params)
    placed = jax.device_put(half, P.shardings(SPEC, mesh, RULES))
    hf.write(tmp_path, placed, SOURCES, {}, max_shard_bytes=700)
    _same(hf.read(tmp_path, SPEC, SOURCES, dtype="bfloat16"), half)


PEAK = """
import sys, re
import numpy as np
from core_jax import axes as A, params as P
from core_jax.ckpt import hf
import jax
def kib(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
folder, layers, rows, d, vocab = sys.argv[1], *map(int, sys.argv[2:])
spec = {"embed": P.ParamSpec((vocab, d), (A.VOCAB, A.EMBED), dtype="bfloat16"),
        **{n: P.ParamSpec((layers, rows, d), (A.LAYERS, A.FFN, A.EMBED), dtype="bfloat16") for n in "ab"}}
sources = {"embed": hf.Source(("embed",)),
           **{n: hf.Source(tuple(f"{i}.{n}" for i in range(layers)), stacked=True) for n in "ab"}}
jax.block_until_ready(jax.device_put(np.zeros(8)))
hf._place(hf.Folder(folder), (8, d), np.dtype("float32"), hf.Source(("embed",)), "", None)
before = kib("VmRSS")
params = hf.read(folder, spec, sources)
jax.block_until_ready(params)
print(kib("VmHWM") - before, float(params["a"][layers - 1, rows - 1, 0]), float(params["embed"][vocab - 1, 0]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_peak_memory_is_the_arrays_and_a_little(tmp_path, repository):
    """VmHWM of a process, mapped file pages included: below the arrays and 1.2 times the largest tensor."""
    layers, rows, d, vocab = 6, 8192, 1024, 32768  # 64 MiB of embedding, 12 x 16 MiB of layers, bfloat16
    rng = np.random.default_rng(0)
    block = rng.normal(size=(vocab, d)).astype(np.float32).astype(ml_dtypes.bfloat16)
    shards = {"model-00001-of-00002.safetensors": {"embed": block} | {f"{i}.a": block[:rows] for i in range(layers)},
              "model-00002-of-00002.safetensors": {f"{i}.b": block[rows: 2 * rows] for i in range(layers)}}
    for name, tensors in shards.items():
        save_file(tensors, tmp_path / name)
    (tmp_path / hf.INDEX).write_text(json.dumps({"weight_map": {k: n for n, ts in shards.items() for k in ts}}))
    path = f"import sys; sys.path[:0] = [{str(repository)!r}, {str(repository / 'kernels')!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + PEAK, str(tmp_path), *map(str, (layers, rows, d, vocab))],
                          capture_output=True, text=True, env={"JAX_PLATFORMS": "cpu", "PATH": ""})
    assert done.returncode == 0, done.stderr
    peak, last_a, last_embed = done.stdout.split()
    assert float(last_a) == float(block[rows - 1, 0]) and float(last_embed) == float(block[-1, 0])
    arrays, largest = (vocab + 2 * layers * rows) * d * 2, vocab * d * 2
    print(f"peak {int(peak) / 1024:.0f} MiB over {arrays >> 20} MiB of arrays; largest tensor {largest >> 20} MiB")
    assert int(peak) * 1024 < arrays + 1.2 * largest
