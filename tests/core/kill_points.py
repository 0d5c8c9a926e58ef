"""Run by test_embed.py in a process of its own: kills the making of a store at every point that matters, and compares.

Prints one JSON object: point -> "same" or what differs. Children are forked before any array library has threads.
"""
from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time

import numpy as np

from core_jax import embed, vector_store
from core_jax.records import Code, Note, Patient

embed.WINDOW, vector_store.SHARD_ROWS, vector_store.CHUNK_ROWS = 16, 64, 16


def cohort() -> list[Patient]:
    rng = random.Random(0)
    words = [f"w{i}" for i in range(300)]
    out = []
    for i in range(30):
        notes = tuple(Note(f"n{i}-{j}", " ".join(rng.choices(words, k=rng.randint(1, 60))), "2020-01-01T00:00:00", 50.0)
                      for j in range(rng.randint(0, 4)))
        codes = tuple(Code(f"C{c}", "10", f"title {c}", "2020-01-01T00:00:00", 50.0) for c in rng.sample(range(20), 5))
        out.append(Patient(f"p{i}", notes=notes, codes=codes))
    return [*out, Patient("none")]


def die_at(module, name: str, call: int, after: bool):
    original, calls = getattr(module, name), [0]

    def wrapped(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        out = original(*args, **kwargs)
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return out

    setattr(module, name, wrapped)


def run(path: str, prepare=lambda: None, delay: float | None = None) -> int:
    """Wait status of a child that embeds the cohort; killed after `delay` seconds where given."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            prepare()
            embed.embed_cohort(cohort(), embed.HashEncoder(24), path, size=20, overlap=4, progress=False)
            code = 0
        except OSError as e:
            print(e, file=sys.stderr)
            code = 3
        finally:
            os._exit(code)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def contents(path: str) -> dict[str, str]:
    out = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            with open(full, "rb") as f:
                out[os.path.relpath(full, path)] = hashlib.sha256(f.read()).hexdigest()
    return out


def small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))


def store_only(path: str):
    """Writes a shard that is longer than a file may be."""
    small_files()
    writer = vector_store.VectorStore.create(path, "e", 512, False)
    writer.add("p", [(f"o{i}", "note", "0") for i in range(64)], np.ones((64, 512), np.float32))
    raise SystemExit("was not stopped")


def main(root: str) -> None:
    base = os.path.join(root, "whole")
    started = time.monotonic()
    assert run(base) == 0
    took = time.monotonic() - started
    expected, report = contents(base), {}

    def compare(point: str, path: str):
        status = run(path)
        got = contents(path)
        wrong = sorted(k for k in set(got) | set(expected) if got.get(k) != expected.get(k))
        report[point] = "same" if status == 0 and not wrong else f"status {status}, differs in {wrong}"
        shutil.rmtree(path)

    points = [(embed.HashEncoder, "encode", n, a) for n in (1, 3, 5) for a in (False, True)]
    points += [(os, "fsync", n, a) for n in (1, 2, 4, 5, 6) for a in (False, True)]
    points += [(vector_store.VectorStoreWriter, "add", n, True) for n in (1, 20, 31)]
    points += [(os, "rename", 1, a) for a in (False, True)]
    points += [(os, "replace", n, a) for n in (1, 2, 3) for a in (False, True)]
    points += [(shutil, "rmtree", n, a) for n in (1, 2, 3) for a in (False, True)]
    for module, name, call, after in points:
        path = os.path.join(root, "killed")
        status = run(path, lambda: die_at(module, name, call, after))
        point = f"{name} {call} {'after' if after else 'before'}"
        if not os.WIFSIGNALED(status):
            report[point] = f"was not killed (status {status})"
            shutil.rmtree(path)
            continue
        compare(point, path)

    path, rng = os.path.join(root, "hammered"), random.Random(1)
    for _ in range(8):
        run(path, delay=rng.uniform(0.0, took))
    compare("random moments", path)

    path = os.path.join(root, "full")
    status = run(path, small_files)
    report["a full disk is an OSError"] = "same" if os.WEXITSTATUS(status) == 3 else f"status {status}"
    compare("after a full disk", path)
    path = os.path.join(root, "store only")
    status = run(path, lambda: store_only(path))
    report["a full disk under the rows is an OSError"] = "same" if os.WEXITSTATUS(status) == 3 else f"status {status}"
    report["and nothing can be opened"] = "same" if not os.path.exists(os.path.join(path, "header.json")) else "header"
    report["rows"] = len(vector_store.VectorStore.open(base))
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
