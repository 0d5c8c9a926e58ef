"""The engine's steps compiled by the real TPU compiler: launch/aot.py, its figures and its judgement; nothing runs."""
import dataclasses
import importlib.util
import sys

import engine_cases as E
import jax
import numpy as np
import pytest

from core_jax.engine.engine import Engine, Limits
from core_jax.engine.scheduler import Plan
from core_jax.mesh import MeshSpec
from core_jax.models import cost
from core_jax.models.presets import LLAMA31_8B, LLAMA31_70B, QWEN3_32B

pytestmark = pytest.mark.aot
QUICK = {"exec_time_optimization_effort": -1.0}  # half the compile time; memory is assigned as ever
LIMITS = Limits(rows=64, page=128, tokens=64 * 4096, length=4096, chunk=4096, horizon=8)


@pytest.fixture(scope="module")
def aot(repository):
    spec = importlib.util.spec_from_file_location("launch_aot", repository / "launch/aot.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "launch_aot", module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module


def check(aot, steps, hbm: float, pages: float):
    """pages: bytes of them on a device, which are donated and of which no copy is made."""
    for step in steps:
        assert step.error is None and step.fits(hbm * aot.GIB)
        assert step.aliased == pytest.approx(pages, rel=0.01) and step.temporary < pages / 2
        assert step.collectives["all-reduce"][0] >= 3


def test_decode_of_the_8b_fits_a_v5e_2x2(aot, v5e_2x2):
    mesh = MeshSpec(1, 4).build(v5e_2x2)
    steps = aot.compile_steps(LLAMA31_8B, LIMITS, mesh, ["decode"], QUICK)
    check(aot, steps, 16, cost.kv_bytes_per_token(LLAMA31_8B, 2) * LIMITS.tokens / 4)
    text = aot.section("8B", "v5e:2x2", LLAMA31_8B, LIMITS, mesh, steps)
    assert "parameters 3.74 GiB, pages 8.00 GiB" in text and "| yes |" in text


@pytest.mark.slow
def test_steps_of_the_8b_fit_a_v5e_2x2(aot, v5e_2x2):
    mesh = MeshSpec(1, 4).build(v5e_2x2)
    steps = aot.compile_steps(LLAMA31_8B, LIMITS, mesh)
    check(aot, steps, 16, cost.kv_bytes_per_token(LLAMA31_8B, 2) * LIMITS.tokens / 4)


@pytest.mark.slow
@pytest.mark.parametrize("config", [LLAMA31_70B, QWEN3_32B], ids=["llama-3.1-70b", "qwen3-32b"])
def test_steps_fit_a_v5p_4x4x4(aot, v5e_2x2, config):
    mesh = aot.mesh_for(config, "v5p:4x4x4", None)
    assert dict(mesh.shape) == {"data": 8, "tensor": 8}
    check(aot, aot.compile_steps(config, LIMITS, mesh), 95, cost.kv_bytes_per_token(config, 2) * LIMITS.tokens / 8)


@pytest.mark.slow
def test_what_does_not_fit_is_said(aot, v5e_2x2):
    mesh = MeshSpec(1, 4).build(v5e_2x2)
    limits = dataclasses.replace(LIMITS, rows=128, tokens=128 * 4096)
    steps = aot.compile_steps(LLAMA31_8B, limits, mesh, ["decode"], QUICK)
    assert "RESOURCE_EXHAUSTED" in steps[0].error and not steps[0].fits(16 * aot.GIB)
    assert "**no**: RESOURCE_EXHAUSTED" in aot.section("8B", "v5e:2x2", LLAMA31_8B, limits, mesh, steps)


def test_shapes_are_those_of_an_engine(aot):
    """What is lowered ahead of time is what an engine with these limits calls."""
    limits = Limits(rows=8, page=16, tokens=8 * E.LENGTH, length=E.LENGTH, chunk=128, horizon=4)
    mesh = MeshSpec(4, 2).build()
    engine = Engine(E.config(), E.params(), E.tokenizer(), limits=limits)
    compute = aot.Compute(E.config(), None, limits.horizon, mesh)
    wanted = aot.inputs(E.config(), limits, mesh, compute, "float32")
    called = {}

    def note(name, results):
        def call(*arguments):
            called[name] = arguments
            return (arguments[2], *results)
        return call

    engine._compute.extend = note("extend", [np.zeros(1)])
    engine._compute.decode = note("decode", [np.zeros(1)] * 3)
    engine._extend(Plan((), (), limits.chunk, 0))
    engine._decode((), 1, False, limits.rows)
    for name in ("extend", "decode"):
        got = jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), called[name])
        assert got == jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), wanted[name])


def test_collectives_are_counted_by_channel(aot):
    text = """
      %a = bf16[8,4]{1,0} all-reduce(%x), channel_id=1, to_apply=%add
      %b = (f32[2]{0}, s32[]{:T(128)}) all-reduce(%x, %y), channel_id=2, to_apply=%add
      %c = (bf16[2,4]{1,0}, bf16[8,4]{1,0}) all-gather-start(%x), channel_id=3, dimensions={0}
      %d = bf16[8,4]{1,0} all-gather(%x), channel_id=3, dimensions={0}
    """
    assert aot.collectives(text) == {"all-reduce": (2, 64 + 12), "all-gather": (1, 64)}
    assert aot.collectives("%a = f32[] add(%x, %y)") == {}


def test_report_replaces_what_stands_between_the_marks(aot, tmp_path):
    path = tmp_path / "report.md"
    aot.write(str(path), "table\n")
    assert path.read_text() == "table\n"
    path.write_text(f"before\n{aot.MARKS[0]}\nold\n{aot.MARKS[1]}\nafter\n")
    aot.write(str(path), "new\n")
    assert path.read_text() == f"before\n{aot.MARKS[0]}\nnew\n{aot.MARKS[1]}\nafter\n"
