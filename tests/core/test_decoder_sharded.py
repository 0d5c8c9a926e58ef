"""The decoder on meshes of eight devices: what one device computes, and no work done twice along `data`."""
import jax
import numpy as np
import pytest
import sharded_cases as C
from jax.sharding import NamedSharding, PartitionSpec

from core_jax.mesh import FSDP, TENSOR, MeshSpec, tokens_over
from core_jax.models import decoder

IDS = np.random.default_rng(0).integers(0, 328, (8, 24)).astype(np.int32)
SEGMENTS = np.where(np.arange(24)[None] < np.arange(6, 22, 2)[:, None], 1, 2).astype(np.int32)


def compiled(tree, mesh=None, family="llama", kv_heads=4):
    config = C.config(family, kv_heads)

    def run(params, ids, segments):
        hidden = decoder.forward(config, params, ids, segments=segments, spread=tokens_over(mesh))
        return decoder.logits(config, params, hidden)

    rows = jax.devices()[0] if mesh is None else NamedSharding(mesh, PartitionSpec("data"))
    ids, segments = jax.device_put((IDS, SEGMENTS), rows)
    tree = jax.tree.map(lambda x: x / 4 if x.ndim > 1 and x.shape[-1] > 8 else x, tree)
    return jax.jit(run).lower(tree, ids, segments).compile(), (tree, ids, segments)


CASES = [("llama", 4, 8, 1), ("llama", 4, 4, 2), ("llama", 4, 2, 4), ("llama", 2, 2, 4), ("qwen3", 4, 8, 1),
         ("qwen3", 4, 4, 2), ("qwen3", 4, 2, 4), ("qwen3", 2, 2, 4)]
QUICK = {("llama", 4, 4, 2), ("qwen3", 2, 2, 4)}


@pytest.mark.parametrize("family, kv_heads, data, tensor", [
    c if c in QUICK else pytest.param(*c, marks=pytest.mark.slow) for c in CASES])
def test_sharded_is_unsharded(family, kv_heads, data, tensor):
    mesh = MeshSpec(data, tensor).build()
    run, arguments = compiled(C.params(family, kv_heads), None, family, kv_heads)
    expected, whole = np.asarray(run(*arguments)), run.cost_analysis()["flops"]
    assert np.abs(expected).max() > 1
    counted = []
    for rules in (TENSOR, FSDP):
        run, arguments = compiled(C.placed(mesh, rules, family, kv_heads), mesh, family, kv_heads)
        got = run(*arguments)
        np.testing.assert_allclose(got, expected, atol=2e-6 * np.abs(expected).max(), rtol=1e-5)
        assert got.sharding.spec[0] == "data"
        counted.append(run.cost_analysis()["flops"])
    share = whole / 8 if kv_heads % tensor == 0 else whole / 8 * 1.35  # each device projects all keys and values
    assert max(counted) < 1.1 * share, "no device computes what another one does"
