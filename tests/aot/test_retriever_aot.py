"""The evidence selector compiled by the real TPU compiler for a v5e 2x2, patients over `data`; nothing runs.

Shapes are those of the paper's ADHD cohort: 6 + 6 queries of width 4,096, 16 patients a device with 12,288 note rows and
768 code rows between them, the longest of 8,192 rows (the 99th percentile). Notes are so selected by passes of segment
maxima, codes by a padded top-k.
"""
from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax_kernels.select_pool import select_pool_sharded

from core_jax import axes as A
from core_jax import params as specs
from core_jax.mesh import MeshSpec, Rules
from core_jax.train import new_state
from evigen_jax import retriever, train
from evigen_jax.retriever import EviGenConfig

pytestmark = pytest.mark.aot
HBM = 16e9  # bytes of a v5e device
QUICK = {"exec_time_optimization_effort": -1.0}  # 20 s of compilation in place of 29; memory is assigned as ever
CONFIG = EviGenConfig(d=4096, n_note=6, n_code=6)
PATIENTS, ROWS, LONGEST = 16, {"note": 12_288, "code": 768}, {"note": 8_192, "code": 96}  # a device; a patient


@pytest.fixture(scope="module")
def mesh(v5e_2x2):
    return MeshSpec().build(v5e_2x2)


def shaped(mesh, shape, dtype, *names):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=Rules().sharding(mesh, *names))


def abstract_batch(mesh, dtype):
    devices = mesh.shape["data"]
    p = PATIENTS * devices
    out = {"label": shaped(mesh, (p,), jnp.float32, A.PATIENTS), "real": shaped(mesh, (p,), jnp.bool_, A.PATIENTS)}
    for m in retriever.MODALITIES:
        out[f"x_{m}"] = shaped(mesh, (devices * ROWS[m], CONFIG.d), dtype, A.ROWS, None)
        out[f"off_{m}"] = shaped(mesh, (devices, PATIENTS + 1), jnp.int32, A.PATIENTS, None)
        out[f"mean_{m}"] = shaped(mesh, (p, CONFIG.d), jnp.float32, A.PATIENTS, None)
    return out


def bytes_per_device(compiled) -> int:
    """What has to be in a device's memory at once: arguments, results that are not donated arguments, temporaries."""
    m = compiled.memory_analysis()
    return m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_select_pool(mesh, dtype):
    batch = abstract_batch(mesh, dtype)
    q = shaped(mesh, (CONFIG.n_note, CONFIG.d), jnp.float32)

    def loss(q, x, offsets):
        return select_pool_sharded(q, x, offsets, k=CONFIG.k, max_segment=LONGEST["note"], mesh=mesh)[0].sum()

    compiled = jax.jit(jax.grad(loss)).lower(q, batch["x_note"], batch["off_note"]).compile(QUICK)
    rows = ROWS["note"] * CONFIG.d * jnp.dtype(dtype).itemsize
    assert rows < bytes_per_device(compiled) < 2 * rows  # the rows are read where they lie, no copy of them is made
    assert compiled.as_text().count("all-gather") == 0


@pytest.mark.slow
def test_train_step(mesh):
    step, optimizer = train._step(train.selector_loss, functools.partial(retriever.apply, mesh=mesh), CONFIG, (), 1e-3, 500, 0.01, 1.0)
    everywhere = Rules().sharding(mesh)
    state = jax.eval_shape(lambda: new_state(specs.init(retriever.spec(CONFIG), jax.random.key(0)), optimizer))
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), state)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=everywhere)
    lowered = step.jitted(max_segment=(LONGEST["note"], LONGEST["code"])).lower(state, key, ({}, abstract_batch(mesh, jnp.bfloat16)))
    compiled = lowered.compile(QUICK)
    used, held = bytes_per_device(compiled), 3 * 4 * retriever.count(CONFIG)
    assert held < used < HBM
    assert compiled.memory_analysis().alias_size_in_bytes >= held
    text = compiled.as_text()
    assert "all-reduce" in text and "all-gather" not in text
