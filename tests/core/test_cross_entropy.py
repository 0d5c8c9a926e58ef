"""core_jax/cross_entropy.py against the plain formula on whole logits: values and every gradient."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from core_jax.cross_entropy import cross_entropy

B, T, D, V = 3, 13, 8, 37


def draw(seed=0, some=0.4):
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random((B, T)) < some, rng.random((B, T)), 0).astype(np.float32)
    return (jnp.asarray(rng.normal(size=(B, T, D)), jnp.float32), jnp.asarray(rng.normal(size=(V, D)), jnp.float32),
            jnp.asarray(rng.integers(0, V, (B, T)), jnp.int32), jnp.asarray(weights))


def plain(hidden, head, rows, ids, targets, weights):
    head = head.at[ids].set(rows) if ids is not None else head
    logp = jax.nn.log_softmax(jnp.matmul(hidden, head.T, precision="highest"))
    return -jnp.sum(weights * jnp.take_along_axis(logp, targets[..., None], axis=2)[..., 0])


@pytest.mark.parametrize("block", [3, 12, 1000])
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("train_head", [False, True])
def test_value_and_gradient(block, new, train_head):
    hidden, head, targets, weights = draw()
    ids = jnp.asarray([4, 30, 2], jnp.int32) if new else None
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(3, D)), jnp.float32) if new else None

    def ours(hidden, head, rows):
        return 1.7 * cross_entropy(hidden, head, targets, weights, rows=rows, ids=ids, train_head=train_head,
                                   block_tokens=block)

    def exact(hidden, head, rows):
        return 1.7 * plain(hidden, head, rows, ids, targets, weights)

    which = (0, 1, 2) if new else (0, 1)
    value, got = jax.jit(jax.value_and_grad(ours, which))(hidden, head, rows)
    want, expected = jax.jit(jax.value_and_grad(exact, which))(hidden, head, rows)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(ours(hidden, head, rows), want, rtol=1e-6)  # without a gradient
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
    if new:
        np.testing.assert_allclose(got[2], expected[2], atol=1e-5)
    np.testing.assert_allclose(got[1], expected[1] if train_head else jnp.zeros_like(head), atol=1e-5)


@pytest.mark.parametrize("some", [0.0, 1.0])
def test_no_token_and_every_token(some):
    hidden, head, targets, weights = draw(some=some)
    got = jax.grad(lambda h: cross_entropy(h, head, targets, weights, block_tokens=6))(hidden)
    expected = jax.grad(lambda h: plain(h, head, None, None, targets, weights))(hidden)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_tokens_without_loss_cost_nothing():
    """Their hidden states may hold anything: they are never multiplied."""
    hidden, head, targets, weights = draw()
    weights = weights.at[:, 6:].set(0).at[0, :6].set(1.0)
    poisoned = hidden.at[:, 6:].set(jnp.nan)
    loss = functools.partial(cross_entropy, block_tokens=6 * B)
    np.testing.assert_allclose(loss(poisoned, head, targets, weights), loss(hidden, head, targets, weights), rtol=1e-6)
    assert np.isnan(loss(hidden.at[0, 2].set(jnp.nan), head, targets, weights))


def test_bfloat16_has_float32_logits():
    hidden, head, targets, weights = draw()
    half = hidden.astype(jnp.bfloat16), head.astype(jnp.bfloat16)
    value, got = jax.value_and_grad(lambda h: cross_entropy(h, half[1], targets, weights))(half[0])
    want, expected = jax.value_and_grad(lambda h: plain(h, half[1].astype(jnp.float32), None, None, targets, weights))(
        half[0].astype(jnp.float32))
    np.testing.assert_allclose(value, want, rtol=1e-5)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), expected, atol=0.03)


def test_large_logits_stay_finite():
    hidden, head, targets, weights = draw()
    assert np.isfinite(cross_entropy(1e3 * hidden, head, targets, weights))


def test_sharded_rows():
    from core_jax.mesh import MeshSpec
    mesh = MeshSpec(4, 2).build()
    hidden, head, targets, weights = draw()
    hidden, targets, weights = (jnp.concatenate([x] * 4)[:8] for x in (hidden, targets, weights))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    width = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "tensor"))
    place = jax.device_put
    run = jax.jit(jax.value_and_grad(functools.partial(cross_entropy, block_tokens=16, train_head=True), (0, 1)))
    value, got = run(hidden, head, targets, weights)
    sharded, apart = run(place(hidden, rows), place(head, width), place(targets, rows), place(weights, rows))
    np.testing.assert_allclose(sharded, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), apart, got)
