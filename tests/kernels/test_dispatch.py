"""The selection loop's contract, safe unit vectors, and the expert product."""
import jax
import jax.numpy as jnp
import lowering
import numpy as np
import pytest
from jax.sharding import use_abstract_mesh
from jax_kernels import dispatch
from jax_kernels.dispatch import Implementation
from jax_kernels.expert_matmul import expert_matmul
from jax_kernels.unit import unit, unit_vjp


def _refuse(v):
    raise NotImplementedError("v is odd")


def _broken(v):
    raise ValueError("v is wrong")


TABLE = (Implementation("tpu_only", lambda v: ("tpu", v), ("tpu",)), Implementation("picky", _refuse),
         Implementation("plain", lambda v: ("plain", v)))


def test_none_takes_the_first_that_runs():
    assert dispatch.call("op", TABLE, None, 3) == ("plain", 3)


def test_the_mesh_decides_the_platform():
    with use_abstract_mesh(lowering.absent("tpu")):
        assert dispatch.platform() == "tpu"
        assert dispatch.call("op", TABLE, None, 3) == ("tpu", 3)
    assert dispatch.platform() == jax.default_backend()


def test_a_named_one_runs_or_says_why():
    with pytest.raises(NotImplementedError, match="runs on tpu; this is cpu"):
        dispatch.call("op", TABLE, "tpu_only", 3)
    with pytest.raises(NotImplementedError, match="v is odd"):
        dispatch.call("op", TABLE, "picky", 3)
    with pytest.raises(ValueError, match=r"'fast', expected None or one of \['tpu_only', 'picky', 'plain'\]"):
        dispatch.call("op", TABLE, "fast", 3)


def test_a_callers_fault_is_not_passed_on():
    with pytest.raises(ValueError, match="v is wrong"):
        dispatch.call("op", (Implementation("first", _broken), *TABLE), None, 3)


def test_all_reasons_are_given_where_none_runs():
    with pytest.raises(NotImplementedError, match="tpu_only: .*; picky: v is odd"):
        dispatch.call("op", TABLE[:2], None, 3)


def test_unit_is_safe_at_zero():
    """Trap 6: f(0) = 0 and grad 0, where v / sqrt(v.v) gives NaN."""
    v = np.array([[3.0, 4.0], [0.0, 0.0], [1e-13, 0.0], [1e-11, 0.0]], np.float32)
    direction, length = unit(v)
    np.testing.assert_allclose(direction, [[0.6, 0.8], [0, 0], [0, 0], [1, 0]], rtol=1e-6)
    np.testing.assert_allclose(length[:, 0], [5, 0, 0, 1e-11], rtol=1e-6)
    grad = jax.jit(jax.grad(lambda v: (unit(v)[0] * jnp.array([[1.0, 2.0]])).sum()))(v)
    assert np.isfinite(grad).all() and not np.asarray(grad)[1:3].any()
    np.testing.assert_allclose(grad[0], unit_vjp(direction, length, jnp.array([[1.0, 2.0]] * 4))[0], rtol=1e-5)
    np.testing.assert_array_equal(unit_vjp(direction, length, jnp.ones((4, 2)))[1], 0)


@pytest.mark.parametrize("shape, implementation", [
    ((3, 5, 7, 11), "xla_cpu"), ((3, 5, 7, 11), "reference"), ((1, 1, 2, 3), None)])
def test_expert_matmul(shape, implementation):
    n, p, a, b = shape
    rng = np.random.default_rng(0)
    x, w, g = (rng.standard_normal(s).astype(np.float32) for s in ((n, p, a), (n, a, b), (n, p, b)))

    @jax.jit
    def both(x, w, g):
        y, pull = jax.vjp(lambda x, w: expert_matmul(x, w, implementation=implementation), x, w)
        return y, *pull(g)

    y, dx, dw = both(x, w, g)
    x64, w64, g64 = (v.astype(np.float64) for v in (x, w, g))
    np.testing.assert_allclose(y, x64 @ w64, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dx, g64 @ w64.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, x64.transpose(0, 2, 1) @ g64, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_expert_matmul_lowers_for_absent_devices(platform):
    s = jax.ShapeDtypeStruct
    text = lowering.lower(jax.grad(lambda x, w: expert_matmul(x, w, implementation="reference").sum(), argnums=(0, 1)),
                          s((2, 3, 8), jnp.float32), s((2, 8, 4), jnp.float32), platform=platform)
    assert text.count("dot_general") == 2


def test_expert_matmul_refuses_other_shapes():
    with pytest.raises(ValueError, match="expected"):
        expert_matmul(jnp.zeros((2, 3, 4)), jnp.zeros((2, 5, 4)))
