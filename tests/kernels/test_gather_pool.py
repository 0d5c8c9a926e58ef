"""gather_pool: masked softmax, absent rows, gradient to the scores."""
from functools import partial

import jax
import jax.numpy as jnp
import lowering
import numpy as np
import pytest
from jax_kernels.gather_pool import gather_pool, reference
from jax_kernels.gather_pool.api import masked_softmax

P, N, K, S, D = 3, 2, 4, 11, 5


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((S, D)).astype(np.float32)
    valid = np.arange(K)[None, None] < np.array([[4, 2], [0, 1], [3, 4]])[..., None]
    rows = np.where(valid, rng.integers(1, S, (P, N, K)), -1).astype(np.int32)
    scores = np.where(valid, rng.standard_normal((P, N, K)) * 3, -np.inf).astype(np.float32)
    x[0] = np.nan  # no valid rank names row 0: it must not be seen, although row -1 is read there
    return x, rows, scores, valid


@pytest.mark.parametrize("implementation, temperature", [("xla", 0.05), ("reference", 1.0)])
def test_against_float64(implementation, temperature):
    x, rows, scores, valid = inputs()
    run = jax.jit(partial(gather_pool, temperature=temperature, implementation=implementation))
    c, alpha = run(x, rows, scores, valid)
    for p, n in np.ndindex(P, N):
        live = valid[p, n]
        s = scores[p, n, live].astype(np.float64) / temperature
        a = np.exp(s - s.max(initial=-np.inf)) if live.any() else s
        a = a / a.sum() if live.any() else a
        np.testing.assert_allclose(np.asarray(alpha)[p, n, live], a, atol=1e-6)
        want = a @ x[rows[p, n, live]].astype(np.float64) if live.any() else 0
        np.testing.assert_allclose(np.asarray(c)[p, n], want, atol=1e-6)
    assert not np.asarray(alpha)[~valid].any()
    np.testing.assert_allclose(np.asarray(alpha).sum(-1), valid.any(-1), atol=1e-6)
    assert not np.asarray(c)[1, 0].any() and np.isfinite(c).all()


def test_softmax_stands_large_scores_and_nothing():
    scores = jnp.array([[1e30, -1e30, 0.0], [-3e38, -3e38, 5.0]])
    valid = jnp.array([[True, True, False], [False, False, False]])
    np.testing.assert_array_equal(masked_softmax(scores, valid, 1.0), [[1, 0, 0], [0, 0, 0]])


def test_gradient_is_that_of_plain_autodiff():
    x, rows, scores, valid = inputs(1)
    x = np.nan_to_num(x)
    w = np.random.default_rng(2).standard_normal((P, N, D)).astype(np.float32)

    def loss(scores, x):
        c, alpha = gather_pool(x, rows, scores, valid, temperature=0.7)
        return (c * w).sum() + (alpha[..., 0] ** 2).sum()

    def plain(scores):
        alpha = masked_softmax(scores, valid, 0.7)
        c = reference.gather_pool(jnp.asarray(x), jnp.asarray(rows), alpha, valid)
        return (c * w).sum() + (alpha[..., 0] ** 2).sum()

    ds, dx = jax.jit(jax.grad(loss, argnums=(0, 1)))(scores, x)
    np.testing.assert_allclose(ds, jax.jit(jax.grad(plain))(jnp.where(valid, scores, 0.0)), atol=1e-6)
    assert np.isfinite(ds).all() and not np.asarray(ds)[~valid].any() and np.abs(ds).max() > 0.01
    assert not np.asarray(dx).any()


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_lowers_for_absent_devices(platform):
    s = jax.ShapeDtypeStruct
    text = lowering.lower(partial(gather_pool, implementation="xla"), s((S, D), jnp.bfloat16), s((P, N, K), jnp.int32),
                          s((P, N, K), jnp.float32), s((P, N, K), jnp.bool_), platform=platform)
    assert text.count("gather") >= K


def test_bad_arguments():
    x, rows, scores, valid = inputs()
    with pytest.raises(ValueError, match="three of"):
        gather_pool(x, rows, scores[:2], valid)
    with pytest.raises(ValueError, match="temperature"):
        gather_pool(x, rows, scores, valid, temperature=0.0)
