"""select_pool: forward and closed-form gradient against float64, autodiff of the reference, and eight devices."""
from functools import partial

import jax
import jax.numpy as jnp
import lowering
import ml_dtypes
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType
from jax_kernels.gather_pool import gather_pool
from jax_kernels.segment_topk import segment_topk
from jax_kernels.segment_topk.cases import by_name
from jax_kernels.select_pool import reference, select_pool, select_pool_sharded
from jax_kernels.select_pool.api import GRADIENTS
from jax_kernels.unit import unit

K, LONGEST = 4, 40


@pytest.fixture(scope="module")
def case():
    a = by_name("small_odd").make(seed=4)
    a["offsets"] = np.array([0, 3, 3, 30, 31, 58], np.int32)  # three rows, none, many, one, many
    a["w"] = np.random.default_rng(7).standard_normal((5, 3, 17)).astype(np.float32)
    return a


def run(q, x, offsets, *, max_segment=LONGEST, **options):
    """select_pool as one compiled call."""
    return jax.jit(partial(select_pool, max_segment=max_segment, **options))(q, x, offsets)


def close(got, want, atol=1e-6):
    for g, w in zip(got, want):
        g = np.asarray(g)
        if g.dtype == np.float32:
            np.testing.assert_allclose(np.where(np.isfinite(g), g, 0), np.where(np.isfinite(w), w, 0), atol=atol)
        else:
            np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("implementation, temperature", [(None, 1.0), ("xla", 0.1), ("reference", 0.1)])
def test_forward(case, implementation, temperature):
    got = run(case["q"], case["x"], case["offsets"], k=K, temperature=temperature, implementation=implementation)
    want = oracle.select_pool(case["q"], case["x"], case["offsets"], K, temperature)
    close(got, want)
    assert not np.asarray(got[0])[1].any()  # an empty segment pools to 0


def test_is_topk_then_pool(case):
    @jax.jit
    def two_steps(q, x, offsets):
        scores, rows, valid = segment_topk(unit(q)[0], x, offsets, k=K, max_segment=LONGEST)
        return *gather_pool(x, rows, scores, valid), scores, rows, valid

    arguments = case["q"], case["x"], case["offsets"]
    for a, b in zip(run(*arguments, k=K), two_steps(*arguments)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("temperature", [0.3])
def test_gradient_is_equation_3_with_the_jacobian(case, temperature):
    grad = jax.jit(jax.grad(lambda q: (select_pool(q, case["x"], case["offsets"], k=K, max_segment=LONGEST,
                                                   temperature=temperature)[0] * case["w"]).sum()))
    want = oracle.select_pool_grad(case["q"], case["x"], case["offsets"], K, case["w"].astype(np.float64), temperature)
    got = np.asarray(grad(case["q"]))
    np.testing.assert_allclose(got, want, atol=2e-6)
    np.testing.assert_allclose((case["q"] * got).sum(1), 0, atol=1e-6)  # |q| does not matter to the loss
    for scale in (1e-3, 0.1, 10.0):  # gradient goes as 1/|q|
        np.testing.assert_allclose(grad(np.float32(scale) * case["q"]) * scale, want, atol=5e-6)


def test_gradient_agrees_with_finite_differences(case):
    """Independent of equation 3: the float64 oracle's loss, moved along a direction."""
    move = np.random.default_rng(0).standard_normal(case["q"].shape)
    loss = lambda q: (oracle.select_pool(q, case["x"], case["offsets"], K)[0] * case["w"]).sum()  # noqa: E731
    slope = (loss(case["q"] + 1e-5 * move) - loss(case["q"] - 1e-5 * move)) / 2e-5
    grad = jax.jit(jax.grad(lambda q: (run(q, case["x"], case["offsets"], k=K)[0] * case["w"]).sum()))
    got = grad(case["q"])
    assert abs((np.asarray(got, np.float64) * move).sum() - slope) < 1e-5 * max(1.0, abs(slope))


def _every_output(run, w, q, x):
    c, alpha, scores, _, valid = run(q, x)
    bounded = jnp.where(valid, jnp.cos(jnp.where(valid, scores, 0.0)), 0.0)
    return (c * w).sum() + (alpha[..., 1] ** 2).sum() + bounded.sum()


@pytest.mark.parametrize("longest", [27, 4000])
def test_gradient_of_every_output_is_autodiff_of_the_reference(case, longest):
    options = {"k": K, "max_segment": longest, "temperature": 0.5}
    fast = lambda q, x: select_pool(q, x, case["offsets"], **options)  # noqa: E731
    plain = lambda q, x: reference.select_pool(q, x, jnp.asarray(case["offsets"]), **options)  # noqa: E731
    got = jax.jit(jax.grad(partial(_every_output, fast, case["w"])))(case["q"], case["x"])
    want = jax.jit(jax.grad(partial(_every_output, plain, case["w"])))(case["q"], case["x"])
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_every_platform_s_gradient_agrees(case):
    rng = np.random.default_rng(1)
    c, alpha, scores, rows, valid = (jnp.asarray(a) for a in run(case["q"], case["x"], case["offsets"], k=K))
    cotangents = [jnp.asarray(rng.standard_normal(a.shape), jnp.float32) for a in (c, alpha, scores)]
    many = [jax.jit(partial(entry.function, temperature=0.5))(jnp.asarray(case["x"]), rows, valid, alpha, *cotangents)
            for entry in GRADIENTS]
    assert [entry.name for entry in GRADIENTS] == ["xla_cpu", "xla"]
    np.testing.assert_allclose(many[0], many[1], atol=1e-5)
    assert np.isfinite(many[0]).all() and np.abs(many[0]).max() > 0.1


def test_rows_get_no_gradient_and_cost_none(case):
    """x is data: its cotangent is zero, and the backward pass of q touches nothing of its size."""
    loss = partial(_every_output, lambda q, x: select_pool(q, x, case["offsets"], k=K, max_segment=LONGEST), case["w"])
    dx = jax.jit(jax.grad(loss, argnums=1))(case["q"], np.nan_to_num(case["x"]))
    assert dx.shape == case["x"].shape and not np.asarray(dx).any()
    text = str(jax.make_jaxpr(jax.grad(loss))(case["q"], case["x"]))
    assert "scatter" not in text


def test_zero_query_is_silent(case):
    q = case["q"].copy()
    q[1] = 0.0
    value, grad = jax.jit(jax.value_and_grad(
        lambda q: (select_pool(q, case["x"], case["offsets"], k=K, max_segment=LONGEST)[0] * case["w"]).sum()))(q)
    assert np.isfinite(value) and np.isfinite(grad).all() and not np.asarray(grad)[1].any()
    alpha, rows = run(q, case["x"], case["offsets"], k=K)[1:4:2]
    np.testing.assert_array_equal(np.asarray(rows)[2, 1], [3, 4, 5, 6])  # all scores 0: the first rows, equally
    np.testing.assert_allclose(np.asarray(alpha)[2, 1], 0.25)


def test_longer_k_than_any_segment(case):
    offsets = np.array([0, 1, 3, 3, 5, 7], np.int32)
    short = run(case["q"], case["x"], offsets, k=2, max_segment=2)
    long = run(case["q"], case["x"], offsets, k=6, max_segment=2)
    np.testing.assert_allclose(short[0], long[0], atol=1e-7)
    np.testing.assert_array_equal(short[3], np.asarray(long[3])[..., :2])


def test_bfloat16_rows(case):
    x = case["x"].astype(ml_dtypes.bfloat16)
    got = run(case["q"], x, case["offsets"], k=K)
    close(got, oracle.select_pool(case["q"], x.astype(np.float32), case["offsets"], K), atol=5e-6)
    assert all(a.dtype in (jnp.float32, jnp.int32, jnp.bool_) for a in got)


def test_same_bits_every_time(case):
    both = jax.jit(jax.value_and_grad(lambda q: run(q, case["x"], case["offsets"], k=K)[0].sum()))
    first, second = both(case["q"]), both(case["q"])
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


# ---- eight devices --------------------------------------------------------------------------------------------

def _sharded(x, offsets, shards):
    """Patients dealt to devices in order: x [D*S, d] with NaN in the gaps, offsets int32 [D, P/D + 1]."""
    per = (len(offsets) - 1) // shards
    local = [offsets[i * per: (i + 1) * per + 1] for i in range(shards)]
    rows = max(int(o[-1] - o[0]) for o in local) + 2
    out = np.full((shards, rows, x.shape[1]), np.nan, np.float32)
    for i, o in enumerate(local):
        out[i, : o[-1] - o[0]] = x[o[0]: o[-1]]
    return out.reshape(-1, x.shape[1]), np.stack([o - o[0] for o in local]).astype(np.int32), rows


@pytest.mark.parametrize("max_segment", [8, 64], ids=["padded", "passes"])  # of 3 patients a device
def test_sharded_equals_unsharded(max_segment):
    per_device = 3
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 9, 8 * per_device)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x = rng.standard_normal((offsets[-1], 16)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    q = rng.standard_normal((3, 16)).astype(np.float32)
    w = rng.standard_normal((8 * per_device, 3, 16)).astype(np.float32)
    mesh = jax.make_mesh((8, 1), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)  # one axis is not sharded over
    blocks, local, rows = _sharded(x, offsets, 8)

    one = lambda q, x: select_pool(q, x, offsets, k=K, max_segment=max_segment)  # noqa: E731
    many = lambda q, x: select_pool_sharded(q, x, local, k=K, max_segment=max_segment, mesh=mesh)  # noqa: E731
    want, got = jax.jit(one)(q, x), jax.jit(many)(q, blocks)
    for a, b in zip((got[0], got[1], got[2], got[4]), (want[0], want[1], want[2], want[4])):
        np.testing.assert_allclose(a, b, atol=1e-6)
    owner = np.arange(8 * per_device)[:, None, None] // per_device
    there = np.where(np.asarray(want[3]) >= 0, np.asarray(want[3]) - offsets[owner * per_device] + owner * rows, -1)
    np.testing.assert_array_equal(got[3], there)
    assert len(got[0].sharding.device_set) == 8
    gone = jax.jit(jax.grad(partial(_every_output, one, w)))(q, x)
    gmany = jax.jit(jax.grad(partial(_every_output, many, w)))(q, blocks)
    np.testing.assert_allclose(gmany, gone, atol=2e-6)


def test_sharded_refuses_what_does_not_fit():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    q, x = np.zeros((1, 4), np.float32), np.zeros((6, 4), np.float32)
    with pytest.raises(ValueError, match="D=2"):
        select_pool_sharded(q, x, np.zeros((3, 2), np.int32), k=1, max_segment=1, mesh=mesh)
    with pytest.raises(ValueError, match="'rows'"):
        select_pool_sharded(q, x, np.zeros((2, 2), np.int32), k=1, max_segment=1, mesh=mesh, axis="rows")


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_value_and_gradient_lower_for_absent_devices(platform):
    s = jax.ShapeDtypeStruct

    def loss(q, x, offsets):
        return select_pool(q, x, offsets, k=K, max_segment=8)[0].sum()

    text = lowering.lower(jax.value_and_grad(loss), s((8, 64), jnp.float32), s((128, 64), jnp.bfloat16),
                          s((17,), jnp.int32), platform=platform)
    assert "dot_general" in text
