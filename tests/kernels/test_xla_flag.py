"""XLA:CPU miscomputes LoRA and IG code from jaxlib 0.10.2 on, unless the flag that our package sets is there.

The patterns are those that failed: gradients through X@W + (X@A)@B with B all zero, and a mean of such gradients along
a path, with the parameters closed over. Everything is compared with float64 NumPy.
"""
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax_kernels
import numpy as np
import pytest

FLAG = "--xla_cpu_experimental_ynn_fusion_type="


def _layer(d, r, seed=0):
    rng = np.random.default_rng(seed)
    w, a, x = (rng.standard_normal(s).astype(np.float32) for s in ((d, d), (d, r), (6, d)))
    return x, w / np.float32(np.sqrt(d)), a, np.zeros((r, d), np.float32)


@pytest.mark.parametrize("d, r", [(32, 4), (96, 8)])
def test_lora_gradients_with_zero_b(d, r):
    x, w, a, b = _layer(d, r)
    y = lambda x: x @ w + (x @ a) @ b  # noqa: E731  (constants on purpose)
    got = jax.jit(jax.grad(lambda x: y(x).sum()))(x)
    want = np.ones((6, d)) @ w.T.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    square = jax.jit(jax.grad(lambda x: (y(x) ** 2).mean()))(x)
    x64, w64 = x.astype(np.float64), w.astype(np.float64)
    np.testing.assert_allclose(square, 2 * (x64 @ w64) @ w64.T / (6 * d), rtol=1e-5, atol=1e-6)
    trained = jax.jit(jax.grad(lambda a, b, x: ((x @ w + (x @ a) @ b) ** 2).mean(), argnums=(0, 1)))(a, b, x)
    np.testing.assert_array_equal(trained[0], 0)
    want = 2 * (x64 @ a.astype(np.float64)).T @ (x64 @ w64) / (6 * d)
    np.testing.assert_allclose(trained[1], want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("d, r", [(32, 4), (96, 8)])
def test_mean_of_gradients_along_a_path(d, r):
    x, w, a, b = _layer(d, r, seed=1)
    alphas = np.linspace(0.02, 1.0, 16).astype(np.float32)
    value = lambda x: jnp.tanh(x @ w + (x @ a) @ b).sum()  # noqa: E731
    got = jax.jit(lambda x: jax.vmap(lambda t: jax.grad(value)(t * x))(alphas).mean(axis=0))(x)
    x64, w64 = x.astype(np.float64), w.astype(np.float64)
    want = np.mean([(1 - np.tanh(t * x64 @ w64) ** 2) @ w64.T for t in alphas.astype(np.float64)], axis=0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_the_package_sets_the_flag_once_and_keeps_others():
    assert os.environ["XLA_FLAGS"].count(FLAG) == 1
    code = "import os, jax_kernels, importlib; importlib.reload(jax_kernels); print(os.environ['XLA_FLAGS'])"
    folder = os.path.dirname(os.path.dirname(jax_kernels.__file__))
    for before in ("", "--xla_dump_to=/nowhere"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              env={**os.environ, "XLA_FLAGS": before, "PYTHONPATH": folder})
        assert done.stdout.split() == [*before.split(), FLAG]
