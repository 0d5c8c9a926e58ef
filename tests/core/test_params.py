import jax
import numpy as np
import pytest

from core_jax import axes as A
from core_jax import params
from core_jax.mesh import MeshSpec, Rules
from core_jax.params import ParamSpec

SPEC = {"w": ParamSpec((8, 4), (A.PATIENTS, A.EMBED)), "ln": {"scale": ParamSpec((4,), (A.EMBED,), "ones")}}


def test_one_spec_gives_init_shapes_shardings_golden():
    p = params.init(SPEC, jax.random.key(0))
    assert params.count(SPEC) == 36 == sum(x.size for x in jax.tree.leaves(p))
    assert jax.tree.map(lambda s: s.shape, params.abstract(SPEC)) == jax.tree.map(lambda x: x.shape, p)
    mesh = MeshSpec().build()
    placed = jax.device_put(p, params.shardings(SPEC, mesh, Rules()))
    assert len(placed["w"].addressable_shards) == 8 and placed["w"].addressable_shards[0].data.shape == (1, 4)
    assert params.golden(SPEC)["ln/scale"] == {"shape": [4], "dtype": "float32", "axes": ["embed"]}


def test_a_new_leaf_changes_no_other():
    more = SPEC | {"b": ParamSpec((3,), (None,))}
    a, b = params.init(SPEC, jax.random.key(1)), params.init(more, jax.random.key(1))
    np.testing.assert_array_equal(a["w"], b["w"])


def test_check_lists_everything_at_once():
    p = params.init(SPEC, jax.random.key(0))
    bad = {"w": p["w"][:2], "extra": p["w"]}
    with pytest.raises(ValueError, match="missing ln/scale; unexpected extra; w: got"):
        params.check(SPEC, bad)


@pytest.mark.parametrize("shape, axes, init", [((2,), (), "zeros"), ((2,), ("nope",), "zeros"), ((2,), (None,), "magic")])
def test_bad_specs(shape, axes, init):
    with pytest.raises(ValueError):
        ParamSpec(shape, axes, init)


def test_mesh_errors():
    with pytest.raises(ValueError, match="does not fit 8 devices"):
        MeshSpec(data=3, tensor=3).build()
    assert MeshSpec(tensor=2).build().shape == {"data": 4, "tensor": 2}
