"""The engine on a mesh, and over two processes: token for token what one device gives."""
import functools
import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
import sharded_cases as C
from engine_cases import quick_compiles

from core_jax.engine import cache
from core_jax.mesh import FSDP, TENSOR, MeshSpec


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compiles():
        yield


@functools.cache
def expected(family: str = "llama", kv_heads: int = 4) -> list[list[int]]:
    return C.answers(C.engine(C.params(family, kv_heads), family, kv_heads))


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("data, tensor, rules, family, kv_heads, held, chunk", [
    (4, 2, TENSOR, "llama", 4, 2, 128), slow(8, 1, TENSOR, "llama", 4, 4, 32), slow(2, 4, TENSOR, "qwen3", 4, 1, 32),
    slow(2, 4, TENSOR, "llama", 2, 2, 32), slow(4, 2, FSDP, "qwen3", 4, 2, 32), slow(2, 4, FSDP, "llama", 2, 2, 32),
    slow(8, 1, FSDP, "llama", 4, 4, 32)])
def test_a_mesh_gives_the_tokens_of_one_device(data, tensor, rules, family, kv_heads, held, chunk):
    """held: key and value heads whose pages each device holds; all of them where `tensor` does not divide them."""
    mesh = MeshSpec(data, tensor).build()
    served = C.engine(C.placed(mesh, rules, family, kv_heads), family, kv_heads, chunk=chunk)

    def pages():
        return [s.data.unsafe_buffer_pointer() for x in served._kv for s in x.addressable_shards]

    before = pages()
    assert C.answers(served) == expected(family, kv_heads)
    assert pages() == before, "pages are written where they lie"
    for x in served._kv:
        assert {s.data.shape[2] for s in x.addressable_shards} == {held} and len(x.addressable_shards) == 8
    functions = served._compute.extend, served._compute.decode, served._compute.pick
    assert sum(f._cache_size() for f in functions) == len(served.traces) == served.traces.total(), "compiled once each"


@pytest.mark.slow
@pytest.mark.parametrize("order", [cache.TOKENS_FIRST, cache.ONE_HEAD])
def test_the_order_of_pages_in_memory_changes_no_token(order, monkeypatch):
    """The two forms that TPUs get, on a CPU."""
    from jax.experimental.layout import Format, Layout

    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    monkeypatch.setattr(cache, "placement", lambda *_: cache.KV(*(Format(Layout(o), where) for o in order)))
    served = C.engine(C.params())
    assert C.answers(served) == expected()
    assert tuple(x.format.layout.major_to_minor for x in served._kv) == order


@pytest.mark.parametrize("data, tensor", [(2, 2), slow(1, 4)])
@pytest.mark.slow
def test_two_processes_give_the_tokens_of_one(data, tensor, repository):
    """Two devices each: groups along `data` are the processes, or one group of four spans them both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join(str(repository / folder) for folder in (".", "kernels", "tests/core"))
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=2")
    env = os.environ | {"PYTHONPATH": path, "XLA_FLAGS": flags}
    command = [sys.executable, str(repository / "tests/core/sharded_cases.py"), str(port)]
    processes = [subprocess.Popen([*command, str(i), str(data), str(tensor)], env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(2)]
    try:
        ended = [p.communicate(timeout=600) for p in processes]
    finally:
        for p in processes:
            p.kill()
    for process, (out, err) in zip(processes, ended):
        assert process.returncode == 0, err[-3000:]
        got = json.loads(out.splitlines()[-1])
        assert got["devices"] == [0, 0, 1, 1]
        assert got["tokens"] == expected()


def test_answers_are_long_and_differ():
    """What the comparisons above are worth."""
    out = expected()
    assert sum(map(len, out)) >= 40 and len({tuple(x) for x in out}) == len(out)
    assert np.unique(np.concatenate([np.asarray(x, int) for x in out])).size > 15
