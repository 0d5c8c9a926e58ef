"""A tiny decoder for meshes; `python sharded_cases.py PORT PROCESS DATA TENSOR` serves it as one of two processes."""
from __future__ import annotations

import dataclasses
import functools
import json
import sys

import engine_cases as E
import jax
import numpy as np

from core_jax import params as P
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.request import Request, Sampling
from core_jax.mesh import TENSOR, MeshSpec, Rules
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig

# 116 tokens, so that one step can take all prompts; the last answer is drawn
REQUESTS = [*(Request(E.PROMPTS[i], Sampling(max_tokens=10)) for i in (0, 4, 7)),
            Request(E.PROMPTS[5], dataclasses.replace(E.HOT, max_tokens=10))]


@functools.cache
def config(family: str = "llama", kv_heads: int = 4) -> DecoderConfig:
    """8 heads and a vocabulary that 2, 4 and 8 divide."""
    return dataclasses.replace(E.config(family), num_heads=8, num_kv_heads=kv_heads, vocab_size=328)


@functools.cache
def params(family: str = "llama", kv_heads: int = 4) -> P.Tree:
    """Host arrays, larger than the usual start, so that answers differ and do not repeat."""
    tree = P.init(decoder.spec(config(family, kv_heads)), jax.random.key(0))
    return jax.tree.map(lambda x: np.asarray(x) * (12 if x.ndim > 1 and x.shape[-1] > 8 else 1), tree)


def placed(mesh: jax.sharding.Mesh, rules: Rules = TENSOR, family: str = "llama", kv_heads: int = 4) -> P.Tree:
    c = config(family, kv_heads)
    return jax.device_put(params(family, kv_heads), P.shardings(decoder.spec(c), mesh, decoder.rules(c, mesh, rules)))


def engine(tree: P.Tree, family: str = "llama", kv_heads: int = 4, *, chunk: int = 128) -> Engine:
    limits = Limits(rows=4, page=16, tokens=4 * E.LENGTH, length=E.LENGTH, chunk=chunk, horizon=4)
    return Engine(config(family, kv_heads), tree, E.tokenizer(), model="tiny", limits=limits)


def answers(served: Engine) -> list[list[int]]:
    return [list(c.tokens) for c in served.submit(REQUESTS)]


if __name__ == "__main__":
    port, process, data, tensor = map(int, sys.argv[1:])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, initialization_timeout=60)
    mesh = MeshSpec(data, tensor).build()
    with E.quick_compiles():
        tokens = answers(engine(placed(mesh)))
    print(json.dumps({"devices": [d.process_index for d in mesh.devices.flat], "tokens": tokens}), flush=True)
