"""core_jax/mesh.py: meshes, rules, and what of a decoder divides on a mesh."""
import dataclasses

import jax
import jax.numpy as jnp
import pytest
import sharded_cases as C
from jax.sharding import PartitionSpec

from core_jax import axes as A
from core_jax import params as P
from core_jax.mesh import FSDP, TENSOR, MeshSpec, Rules, mesh_of, tokens_over
from core_jax.models import decoder, presets


def test_sizes_of_a_mesh():
    assert dict(MeshSpec().build().shape) == {"data": 8, "tensor": 1}
    assert dict(MeshSpec(-1, 4).build().shape) == {"data": 2, "tensor": 4}
    assert MeshSpec(2, 2).build().size == 4
    for spec in (MeshSpec(4, 4), MeshSpec(-1, 3), MeshSpec(0, 1)):
        with pytest.raises(ValueError, match="does not fit 8 devices"):
            spec.build()


def test_rules():
    assert FSDP.spec(A.LAYERS, A.HEADS, A.EMBED) == PartitionSpec(None, "tensor", "data")
    assert TENSOR.spec(A.LAYERS, A.HEADS, A.EMBED) == PartitionSpec(None, "tensor", None)
    assert TENSOR.without(A.HEADS).spec(A.HEADS, A.FFN) == PartitionSpec(None, "tensor")


@pytest.mark.parametrize("name", sorted(presets.DECODERS))
def test_every_preset_lies_evenly_on_8_by_8(name):
    """A device of 64 holds a 64th, norms apart; refused where 8 devices cannot share the heads."""
    config = presets.DECODERS[name]
    mesh = jax.sharding.AbstractMesh((8, 8), ("data", "tensor"))
    if config.num_heads % 8:
        with pytest.raises(ValueError, match="num_heads: got .*, expected a multiple of the 8 devices of mesh axis"):
            decoder.rules(config, mesh, FSDP)
        return
    spec, rules = decoder.spec(config), decoder.rules(config, mesh, FSDP)
    shardings = P.shardings(spec, mesh, rules)
    assert (A.KV_HEADS in dict(rules.table)) == (config.num_kv_heads % 8 == 0)
    held = sum(jax.tree.leaves(jax.tree.map(
        lambda s, where: jnp.prod(jnp.array(where.shard_shape(s.shape), jnp.float32)), P.abstract(spec), shardings)))
    assert float(held) == pytest.approx(P.count(spec) / 64, rel=0.02)


def test_what_does_not_divide():
    mesh, config = MeshSpec(2, 4).build(), C.config(kv_heads=2)
    whole = decoder.rules(dataclasses.replace(config, vocab_size=330), mesh, FSDP)
    assert whole.spec(A.KV_HEADS, A.EMBED) == PartitionSpec(None, "data")
    assert whole.spec(A.VOCAB, A.EMBED) == PartitionSpec(None, "data")
    assert whole.spec(A.HEADS, A.FFN) == PartitionSpec("tensor", "tensor")
    assert decoder.rules(C.config(kv_heads=4), mesh, FSDP) == FSDP
    for change, message in (({"intermediate_size": 50}, "intermediate_size: got 50, expected a multiple of the 4"),
                            ({"hidden_size": 33}, "hidden_size: got 33, expected a multiple of the 2 devices"),
                            ({"num_heads": 6}, "num_heads: got 6, expected a multiple of the 4 devices")):
        with pytest.raises(ValueError, match=message):
            decoder.rules(dataclasses.replace(config, **change), mesh, FSDP)


def test_tokens_over():
    mesh = MeshSpec(4, 2).build()
    lay = jax.jit(tokens_over(mesh))
    assert lay(jnp.ones((8, 3))).sharding.is_equivalent_to(jax.sharding.NamedSharding(mesh, PartitionSpec("data")), 2)
    assert lay(jnp.ones((6, 3))).sharding.is_fully_replicated
    x = jnp.ones(3)
    assert tokens_over(None)(x) is x and tokens_over(mesh, Rules(()))(x) is x


def test_mesh_of():
    mesh = MeshSpec(4, 2).build()
    assert mesh_of({"a": jnp.ones(3), "b": jax.device_put(jnp.ones(8), TENSOR.sharding(mesh, A.FFN))}) == mesh
    assert mesh_of({"a": jnp.ones(3)}) is None
    one = MeshSpec(1, 1).build(jax.devices()[:1])
    assert mesh_of(jax.device_put(jnp.ones(8), TENSOR.sharding(one, A.FFN))) is None
