#!/usr/bin/env python3
"""Does a decoder fit a TPU? The engine's steps, compiled by the TPU's own compiler for devices that are not here.

    python launch/aot.py --model=llama-3.1-8b --topology=v5e:2x2
    python launch/aot.py --model=llama-3.1-70b --topology=v5p:4x4x4 --model=qwen3-32b --topology=v5p:4x4x4 --out=it.md

Needs the extra `tpu` (libtpu) and no TPU; nothing is executed and no weight is read. Per model: `extend` (one chunk of
prompts) and `decode` (up to `--horizon` tokens of every row) in bfloat16, with pages for `--rows` sequences of
`--length` tokens, parameters and pages over a mesh as `core_jax.models.decoder.rules` has them. Exit code 3 where one
does not fit.
"""
from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
import time
from collections.abc import Sequence

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",  # nobody is asked what this machine is
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # compiling holds no device
    "TPU_LOG_DIR": "disabled",
}
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")

import jax  # noqa: E402
import numpy as np  # noqa: E402
from absl import app, flags  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from core_jax import params as P  # noqa: E402
from core_jax.engine import cache, sample  # noqa: E402
from core_jax.engine.compute import Compute, Rows  # noqa: E402
from core_jax.engine.engine import SINGLE, STOP_WIDTH, Limits  # noqa: E402
from core_jax.mesh import MeshSpec  # noqa: E402
from core_jax.models import cost, decoder  # noqa: E402
from core_jax.models.config import DecoderConfig  # noqa: E402
from core_jax.models.presets import DECODERS  # noqa: E402
from core_jax.records import atomic_write  # noqa: E402

MARKS = "<!-- aot -->", "<!-- /aot -->"
FLAGS = flags.FLAGS
flags.DEFINE_multi_enum("model", None, sorted(DECODERS), "architecture; may be given several times", required=True)
flags.DEFINE_multi_string("topology", None, "devices of each model, as v5e:2x2 or v5p:4x4x4", required=True)
flags.DEFINE_integer("tensor", None, "devices that share the heads; default: as many as there are key and value heads")
flags.DEFINE_integer("rows", 64, "sequences side by side")
flags.DEFINE_integer("length", 4096, "tokens of a sequence, prompt and answer")
flags.DEFINE_integer("chunk", 4096, "tokens of a prompt step")
flags.DEFINE_integer("horizon", 8, "tokens of a row in one decode call")
flags.DEFINE_integer("page", 128, "tokens of a page")
flags.DEFINE_string("out", None, f"Markdown file; where it has the lines {MARKS[0]} and {MARKS[1]}, only what stands "
                    "between them is replaced; default: printed alone")

HBM = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}  # GiB a device
GIB = 2**30
WIDTH = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}  # bytes
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One compiled function.

    Sizes: bytes on one device. collectives: name -> (how many stand in the program, bytes of their results on a
    device); one in the loop over layers counts once. flops: what the answer needs, by the formulas of `core_jax.models.cost`, of
    all devices; counted: operations of one device by the compiler's count, each loop once. error: the compiler's, where
    it found no room; the sizes are then 0.
    """

    name: str
    seconds: float
    arguments: int = 0
    outputs: int = 0
    aliased: int = 0
    temporary: int = 0
    collectives: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    flops: int = 0
    counted: float = 0.0
    error: str | None = None

    @property
    def total(self) -> int:
        """Bytes on a device at once: arguments, results that are not donated arguments, temporaries."""
        return self.arguments + self.outputs - self.aliased + self.temporary

    def fits(self, hbm: int) -> bool:
        return self.error is None and self.total <= hbm


def mesh_for(config: DecoderConfig, topology: str, tensor: int | None) -> Mesh:
    """Raises: ValueError: a topology the compiler does not know, or devices that do not divide."""
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    except Exception as e:  # the plugin's own kinds
        raise ValueError(f"topology {topology!r}: {str(e).splitlines()[0]}") from None
    return MeshSpec(-1, tensor or min(config.num_kv_heads, len(devices))).build(devices)


def inputs(
    config: DecoderConfig, limits: Limits, mesh: Mesh, compute: Compute, dtype: str = "bfloat16"
) -> dict[str, tuple]:
    """Abstract arguments of `Compute.extend` and `Compute.decode`, as an engine with these limits calls them."""
    spec = decoder.spec(config, dtype)
    shardings = P.shardings(spec, mesh, decoder.rules(config, mesh))
    params = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), P.abstract(spec), shardings)
    rows, chunk, width = limits.rows, limits.chunk, -(-limits.length // limits.page)
    pages = jax.eval_shape(lambda: cache.new(config, -(-limits.tokens // limits.page), limits.page, dtype))
    kv = cache.KV(*(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=f) for x, f in zip(pages, compute.pages)))
    whole = NamedSharding(mesh, PartitionSpec())

    def array(*shape: int, dtype=np.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=whole)

    def tiles(room: int) -> cache.Tiles:
        return cache.Tiles(*(array(room) for _ in range(4)), array())

    table = array(rows + 1, width)
    step = cache.Step(array(chunk), array(chunk), array(), table,
                      tiles(min(chunk // cache.TILE + rows, chunk // SINGLE)), tiles(min(chunk, SINGLE * rows)))
    choice = sample.Choice(array(rows, dtype=np.float32), array(rows, dtype=np.float32), array(rows),
                           array(rows, dtype=np.uint32), array(rows))
    decoding = Rows(array(rows), array(rows), array(rows), array(rows), array(rows, STOP_WIDTH), table)
    return {"extend": (params, (), kv, array(chunk), array(chunk), step, array(rows)),
            "decode": (params, (), kv, decoding, choice, array(), array(dtype=np.bool_))}


def collectives(text: str) -> dict[str, tuple[int, int]]:
    """Of a compiled program's text: name -> (count, bytes of the results on a device)."""
    found: dict[str, dict[str, int]] = {}
    for result, name, start, channel in re.findall(
            rf"= (.+?) ({'|'.join(COLLECTIVES)})(-start)?\(.*?channel_id=(\d+)", text):
        sizes = [WIDTH[kind] * math.prod(int(n) for n in shape.split(",") if n)
                 for kind, shape in re.findall(r"([a-z]+\d+|pred)\[([\d,]*)\]", result)]
        found.setdefault(name, {})[channel] = max(sizes) if start else sum(sizes)  # a started one names its operand too
    return {name: (len(by), sum(by.values())) for name, by in found.items()}


def compile_steps(
    config: DecoderConfig, limits: Limits, mesh: Mesh, names: Sequence[str] = ("extend", "decode"),
    options: dict[str, float] | None = None,
) -> list[Compiled]:
    """These functions for the devices of a mesh; options: of the compiler."""
    compute = Compute(config, None, limits.horizon, mesh)
    last = limits.length - limits.horizon
    flops = {"extend": sum(cost.prefill_flops(config, n) for n in _prompts(limits)),
             "decode": limits.rows * sum(cost.decode_flops(config, last + i + 1) for i in range(limits.horizon))}
    out = []
    arguments = inputs(config, limits, mesh, compute)
    for name in names:
        lowered = getattr(compute, name).lower(*arguments[name])
        began = time.perf_counter()
        try:
            compiled = lowered.compile(options)
        except jax.errors.JaxRuntimeError as e:
            if "RESOURCE_EXHAUSTED" not in str(e):
                raise
            out.append(Compiled(name, time.perf_counter() - began, error=str(e).splitlines()[0][:300]))
            continue
        seconds, memory = time.perf_counter() - began, compiled.memory_analysis()
        out.append(Compiled(
            name, seconds, memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.alias_size_in_bytes,
            memory.temp_size_in_bytes, collectives(compiled.as_text()), flops[name], compiled.cost_analysis()["flops"]))
    return out


def _prompts(limits: Limits) -> list[int]:
    """Lengths of the prompts that fill a chunk."""
    whole, rest = divmod(limits.chunk, limits.length)
    return [limits.length] * whole + [rest] * (rest > 0)


def section(name: str, topology: str, config: DecoderConfig, limits: Limits, mesh: Mesh, steps: list[Compiled]) -> str:
    """What was compiled, and a table: one row a function."""
    hbm = HBM[topology.split(":")[0]] * GIB
    rules = decoder.rules(config, mesh)
    weights = sum(np.prod(s.shape) * np.dtype(s.dtype).itemsize / np.prod(
        [mesh.shape[a] for a in rules.spec(*s.axes) if a]) for _, s in P.leaves(decoder.spec(config, "bfloat16")))
    shared = mesh.shape["tensor"] if dict(rules.table).get("kv_heads") else 1
    pages = cost.kv_bytes_per_token(config, 2) * limits.tokens / shared
    lines = [
        f"## {name} on {topology}", "",
        f"{mesh.size} devices, mesh data {mesh.shape['data']} x tensor {mesh.shape['tensor']}, {hbm // GIB} GiB each. On "
        f"a device: parameters {weights / GIB:.2f} GiB, pages {pages / GIB:.2f} GiB ({limits.rows} sequences of "
        f"{limits.length:,} tokens, {limits.page} a page).", "",
        "| function | arguments | results | donated | temporary | together | of HBM | fits | TFLOP needed "
        "| TFLOP counted | collectives | compile s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    named = {"extend": f"extend, {limits.chunk:,} tokens",
             "decode": f"decode, {limits.rows} rows x {limits.horizon} tokens"}
    for s in steps:
        if s.error:
            lines.append(f"| {named[s.name]} | | | | | | | **no**: {s.error} | | | | {s.seconds:.0f} |")
            continue
        sizes = " | ".join(f"{x / GIB:.2f}" for x in (s.arguments, s.outputs, s.aliased, s.temporary, s.total))
        moved = ", ".join(f"{n} {c} {size / 2**20:.1f} MiB" for c, (n, size) in s.collectives.items()) or "none"
        lines.append(f"| {named[s.name]} | {sizes} | {s.total / hbm:.0%} | {'yes' if s.fits(hbm) else '**no**'} "
                     f"| {s.flops / mesh.size / 1e12:.2f} | {s.counted / 1e12:.3f} | {moved} | {s.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def write(path: str, text: str) -> None:
    """The report as a file, or between the marks of a file that has them."""
    before, after = "", ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            parts = re.split("|".join(map(re.escape, MARKS)), f.read())
        if len(parts) == 3:
            before, after = parts[0] + MARKS[0] + "\n", MARKS[1] + parts[2]
    with atomic_write(path) as f:
        f.write(before + text + after)


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    if len(FLAGS.model) != len(FLAGS.topology):
        raise app.UsageError(f"got {len(FLAGS.model)} models and {len(FLAGS.topology)} topologies, expected as many")
    fits, parts = True, []
    try:
        limits = Limits(rows=FLAGS.rows, page=FLAGS.page, tokens=FLAGS.rows * FLAGS.length, length=FLAGS.length,
                        chunk=FLAGS.chunk, horizon=FLAGS.horizon)
        for name, topology in zip(FLAGS.model, FLAGS.topology):
            if topology.split(":")[0] not in HBM:
                raise ValueError(f"topology {topology!r}: expected one of {', '.join(HBM)}, a colon and the shape")
            config = DECODERS[name]
            mesh = mesh_for(config, topology, FLAGS.tensor)
            steps = compile_steps(config, limits, mesh)
            fits = fits and all(s.fits(HBM[topology.split(":")[0]] * GIB) for s in steps)
            parts.append(section(name, topology, config, limits, mesh, steps))
            print(parts[-1], flush=True)
    except ValueError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    if FLAGS.out:
        write(FLAGS.out, "\n".join(parts))
    return 0 if fits else 3


if __name__ == "__main__":
    app.run(main)
