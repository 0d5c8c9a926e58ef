"""Losses (A.1.4, equation 4)."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evigen_jax import losses
from evigen_jax.retriever import EviGenConfig


def test_cross_entropy_against_float64_and_extremes():
    rng = np.random.default_rng(0)
    logit, label = rng.normal(0, 3, 40).astype(np.float32), (rng.random(40) < 0.3).astype(np.float32)
    real = rng.random(40) < 0.8
    p = 1 / (1 + np.exp(-logit.astype(np.float64)))
    for weight in (1.0, 4.0):
        each = -(weight * label * np.log(p) + (1 - label) * np.log1p(-p))
        np.testing.assert_allclose(losses.bce(logit, label, real, pos_weight=weight), each[real].mean(), rtol=1e-5)
    hard = losses.bce(jnp.array([200.0, -200.0]), jnp.array([0.0, 1.0]), jnp.array([True, True]))
    assert float(hard) == 200.0
    assert float(losses.bce(jnp.array([jnp.inf]), jnp.array([0.0]), jnp.array([False]))) == 0.0


def test_gradient_at_the_right_probability_is_zero():
    label = jnp.array([0.25, 0.75])
    grad = jax.grad(lambda z: losses.bce(z, label, jnp.array([True, True])))(jnp.log(label / (1 - label)))
    np.testing.assert_allclose(grad, 0, atol=1e-7)


def test_diversity():
    rng = np.random.default_rng(1)
    q = rng.standard_normal((5, 12)).astype(np.float32)
    u = q.astype(np.float64) / np.linalg.norm(q, axis=1, keepdims=True)
    np.testing.assert_allclose(losses.diversity(q), ((u @ u.T - np.eye(5)) ** 2).sum(), rtol=1e-5)
    dynamic = ((u[1:] @ u[1:].T - np.eye(4)) ** 2).sum()
    np.testing.assert_allclose(losses.diversity(q, scope="dynamic"), dynamic, rtol=1e-5)
    orthonormal = np.linalg.qr(rng.standard_normal((12, 5)))[0].T.astype(np.float32)
    assert float(losses.diversity(orthonormal)) < 1e-10
    grad = np.asarray(jax.grad(losses.diversity)(q))
    np.testing.assert_allclose((grad * q).sum(1), 0, atol=1e-5)  # no pull along a query's length
    assert np.abs(grad).max() > 0.1
    with pytest.raises(ValueError, match="'most'"):
        losses.diversity(q, scope="most")


def test_simplicity():
    q = np.array([[5.0, 0.0], [3.0, 4.0], [0.0, 2.0]], np.float32)
    assert float(losses.simplicity(q)) == (25 + 4) / 2
    assert not np.asarray(jax.grad(losses.simplicity)(q))[0].any()
    assert float(losses.simplicity(q[:1])) == 0.0 and float(losses.diversity(q[:1], scope="dynamic")) == 0.0


def test_total():
    config = EviGenConfig(d=3, n_note=2, n_code=0, lambda_aux=0.5, diversity_scope="dynamic")
    q = np.array([[1.0, 0, 0], [1.0, 1.0, 0]], np.float32)
    out = {"logit": jnp.zeros(2)}
    batch = {"label": jnp.array([0.0, 1.0]), "real": jnp.array([True, True])}
    loss, terms = losses.total({"query": q}, out, batch, config=config, pos_weight=3.0)
    assert set(terms) == {"ce", "diversity", "simplicity"}
    np.testing.assert_allclose(loss, 2 * np.log(2) + 0.5 * (0 + 2), rtol=1e-6)
