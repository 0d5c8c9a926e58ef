from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from core_jax.ckpt import state
from core_jax.ckpt.state import CheckpointError, Checkpoints


class Moments(NamedTuple):
    mu: dict
    count: jax.Array


def _state(scale=1.0):
    return {"params": {"w": jnp.arange(12, dtype=jnp.float32).reshape(3, 4) * scale, "b": jnp.zeros(3, jnp.bfloat16)},
            "opt": (Moments({"w": jnp.full((3, 4), 0.5 * scale)}, jnp.int32(7)), None), "step": jnp.int32(3),
            "rng": jax.random.key(5)}


def _equal(a, b):
    def one(x, y):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))

    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(one, a, b)


def test_round_trip_keeps_structure_dtype_and_side(tmp_path):
    with Checkpoints(tmp_path / "c") as ckpts:
        assert ckpts.steps() == [] and ckpts.latest() is None
        ckpts.save(3, _state(), {"config": {"lr": 1e-3}, "split": "abc"})
        got, side = ckpts.restore(jax.eval_shape(_state))
    _equal(got, _state())
    assert side == {"config": {"lr": 1e-3}, "split": "abc"}
    assert isinstance(got["opt"][0], Moments)
    with Checkpoints(tmp_path / "c") as again:  # and from a fresh manager
        _equal(again.restore(_state(9.0))[0], _state())
        assert again.side() == side


def test_newest_are_kept_and_a_step_can_be_replaced(tmp_path):
    with Checkpoints(tmp_path, keep=2) as ckpts:
        for step in (1, 2, 3):
            ckpts.save(step, _state(step), {"at": step})
        ckpts.wait()
        assert ckpts.steps() == [2, 3]
        ckpts.save(3, _state(30.0), {"at": 30}, wait=True)
        _equal(ckpts.restore(_state())[0], _state(30.0))
        _equal(ckpts.restore(_state(), step=2)[0], _state(2))
        assert ckpts.side(3) == {"at": 30}


def test_state_may_be_donated_right_after_an_async_save(tmp_path):
    bump = jax.jit(lambda s: jax.tree.map(lambda x: x + jnp.ones_like(x), s), donate_argnums=0)
    tree = {"w": jnp.ones((512, 1024), jnp.float32)}
    with Checkpoints(tmp_path) as ckpts:
        ckpts.save(1, tree, {})
        for _ in range(5):
            tree = bump(tree)
        jax.block_until_ready(tree)
        got, _ = ckpts.restore({"w": jax.ShapeDtypeStruct((512, 1024), jnp.float32)}, step=1)
    assert float(got["w"].min()) == float(got["w"].max()) == 1.0


def test_saved_on_eight_devices_restored_on_two(tmp_path):
    devices = jax.devices()
    assert len(devices) == 8
    eight = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    two = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=devices[:2])
    w = jnp.arange(64, dtype=jnp.float32).reshape(16, 4)
    with Checkpoints(tmp_path) as ckpts:
        ckpts.save(0, {"w": jax.device_put(w, NamedSharding(eight, P("data")))}, {})
        target = NamedSharding(two, P(None, "data"))
        got, _ = ckpts.restore({"w": jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=target)})
    assert got["w"].sharding == target
    np.testing.assert_array_equal(np.asarray(got["w"]), np.asarray(w))


@pytest.mark.parametrize("like, words", [
    ({"w": jax.ShapeDtypeStruct((2,), jnp.float32)}, "w: got [[3], 'float32'], expected [[2], 'float32']"),
    ({"w": jax.ShapeDtypeStruct((3,), jnp.bfloat16)}, "expected [[3], 'bfloat16']"),
    ({"w": jax.ShapeDtypeStruct((3,), jnp.float32), "v": jax.ShapeDtypeStruct((), jnp.int32)}, "v: got nothing"),
    ({}, "w: got [[3], 'float32'], expected nothing"),
])
def test_another_form_is_refused_with_the_path(tmp_path, like, words):
    with Checkpoints(tmp_path) as ckpts:
        ckpts.save(0, {"w": jnp.ones(3)}, {}, wait=True)
        with pytest.raises(CheckpointError) as e:
            ckpts.restore(like)
    assert words in str(e.value)


def test_missing_corrupt_and_not_json(tmp_path):
    with Checkpoints(tmp_path / "none") as ckpts, pytest.raises(CheckpointError, match="no complete checkpoint"):
        ckpts.restore(_state())
    assert not (tmp_path / "none").exists()
    with Checkpoints(tmp_path / "c", keep=3) as ckpts:
        with pytest.raises(ValueError, match="not JSON"):
            ckpts.save(0, _state(), {"loss": float("nan")})
        for step in (0, 1, 2):
            ckpts.save(step, {"w": jnp.ones((64, 64))}, {"step": step}, wait=True)
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 9; there are \[0, 1, 2\]"):
            ckpts.restore(_state(), step=9)
    for root, _, files in os.walk(tmp_path / "c" / "2" / "state"):
        for name in files:
            if os.path.basename(root) == "d":
                os.truncate(os.path.join(root, name), os.path.getsize(os.path.join(root, name)) // 2)
    (tmp_path / "c" / "1" / "side" / "metadata").write_text("{")
    with Checkpoints(tmp_path / "c", keep=3) as ckpts:
        like = {"w": jnp.zeros((64, 64))}
        with pytest.raises(CheckpointError, match="step 2: unreadable .* to fall back on step 1"):
            ckpts.restore(like)
        with pytest.raises(CheckpointError, match="step 1: unreadable"):
            ckpts.side(1)
        assert ckpts.restore(like, step=0)[1] == {"step": 0}


def test_a_flipped_bit_is_found(tmp_path):
    w = jax.random.normal(jax.random.key(0), (64, 96))
    with Checkpoints(tmp_path) as ckpts:
        ckpts.save(0, {"w": w, "b": jnp.arange(3, dtype=jnp.bfloat16)}, {}, wait=True)
    data = max((os.path.join(root, f) for root, _, files in os.walk(tmp_path) for f in files), key=os.path.getsize)
    with open(data, "r+b") as f:
        f.seek(os.path.getsize(data) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 1]))
    with Checkpoints(tmp_path) as ckpts, pytest.raises(CheckpointError, match="step 0: unreadable .*checksum of w"):
        ckpts.restore({"w": w, "b": jnp.zeros(3, jnp.bfloat16)})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_checksum_sees_one_word_and_its_place(dtype):
    x = (jnp.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    y = x.at[1, 0, 3].set(jnp.asarray(1 - int(x[1, 0, 3]), dtype))
    swapped = jnp.flip(x, axis=2)
    sums = {int(state._checksum(v)) for v in (x, y, swapped)}
    assert len(sums) == 3
    assert int(state._checksum(jnp.float32(3))) != int(state._checksum(jnp.float32(4)))


def test_a_write_that_fails_says_so(tmp_path):
    with Checkpoints(tmp_path) as ckpts:
        ckpts.save(0, {"w": jnp.ones(3)}, {}, wait=True)

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        ckpts._open.save = full
        with pytest.raises(CheckpointError, match="could not be written .*No space left"):
            ckpts.save(1, {"w": jnp.ones(3)}, {})
        assert ckpts.steps() == [0]


@pytest.mark.slow
def test_kill_in_the_middle_of_a_save_leaves_the_earlier_step(tmp_path):
    script = textwrap.dedent("""
        import os, sys, threading, time
        import jax.numpy as jnp
        from core_jax.ckpt.state import Checkpoints
        c = Checkpoints(sys.argv[1])
        c.save(1, {"w": jnp.ones((64, 64))}, {}, wait=True)
        c.save(2, {"w": jnp.ones((6000, 1000))}, {})
        os.kill(os.getpid(), 9)
    """)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{root}:{root}/kernels"}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "c")], env=env)
    assert done.returncode == -9
    with Checkpoints(tmp_path / "c") as ckpts:
        assert ckpts.steps() == [1]
        assert ckpts.restore({"w": jnp.zeros((64, 64))})[0]["w"].sum() == 64 * 64
        ckpts.save(2, {"w": jnp.ones((64, 64))}, {}, wait=True)  # and the number is free again
        assert ckpts.steps() == [1, 2]
