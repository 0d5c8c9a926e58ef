"""Run by test_store_kills.py in a process of its own: writers killed at many points, the store reopened and compared.

A writer commits a fixed plan, wave after wave, and says through a pipe which wave was acknowledged. It is killed at the
n-th SQL statement (before it runs), inside a commit while the log is being written (a limit on the size of files, whose
signal kills), right after a commit returned, or at a random moment. The parent reopens, verifies, and compares with the
plan's own states: nothing acknowledged is missing, nothing is half there. Prints one JSON object.

Usage: kill_points.py FOLDER KILLS
"""
from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import time

import memory_cases
from memory_cases import HEADER

from stam_jax.graph.state import State
from stam_jax.graph.update import Update
from stam_jax.storage.store import Store

PATIENTS, WAVES = ("1", "10", "b"), 6
PLANS = {p: memory_cases.doses(WAVES, patient=p) for p in PATIENTS}


def states() -> dict[str, list[str]]:
    """patient -> canonical state after 0, 1, ... updates of the plan."""
    out = {}
    for p, plan in PLANS.items():
        state = State(p)
        out[p] = [state.canonical()]
        for c in plan:
            state = state.apply(Update.of(c))
            out[p].append(state.canonical())
    return out


def write(path: str, said: int, statement: int | None = None, wave: int | None = None, size: int | None = None) -> None:
    """Commit what is left of the plan; die before SQL statement number `statement`, after wave `wave` returned, or
    where a file would grow beyond `size` bytes."""
    seen = 0

    def traced(_):
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def connected(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(traced)
        return connection

    sqlite3.connect = connected
    if size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    with Store.open(path, encoder=HEADER, shards=2) as store:
        for i in range(WAVES):
            store.commit(plan[i] for plan in PLANS.values())
            if i == wave:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(said, bytes([i + 1]))


def run(path: str, delay: float | None = None, **point: int) -> tuple[bool, int]:
    """(whether the writer was killed, waves it said were committed)."""
    sys.stdout.flush()
    said, saying = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(said)
            write(path, saying, **point)
            code = 0
        finally:
            os._exit(code)
    os.close(saying)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(said, "rb") as pipe:
        acknowledged = max(pipe.read(), default=0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"the writer failed with status {status}")
    return os.WIFSIGNALED(status), acknowledged


def compare(path: str, acknowledged: int, expected: dict[str, list[str]]) -> str:
    """"same", or what is wrong with the store that a killed writer left."""
    with Store.open(path, encoder=HEADER, shards=2) as store:
        if found := store.verify():
            return "; ".join(map(str, found))
        for p in PATIENTS:
            state = store.state(p)
            if state.version < acknowledged:
                return f"{p}: version {state.version}, but wave {acknowledged} was committed"
            if state.canonical() != expected[p][state.version]:
                return f"{p}: version {state.version} is not what was committed"
            if len(store.vectors(p)[0]) != state.version:
                return f"{p}: version {state.version} has {len(store.vectors(p)[0])} embedding rows"
    return "same"


def main(root: str, kills: int) -> None:
    expected, rng, report = states(), random.Random(0), {"killed": 0, "finished": 0, "wrong": {}, "in_log": 0}
    base = os.path.join(root, "whole")
    started = time.monotonic()
    run(base)
    took = time.monotonic() - started
    counted: list[str] = []
    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: _tracing(connect(*a, **k), counted)
    with Store.open(os.path.join(root, "count"), encoder=HEADER, shards=2) as store:
        for i in range(WAVES):
            store.commit(plan[i] for plan in PLANS.values())
        log = max(os.path.getsize(e) for e in os.scandir(store.path) if e.name.endswith("-wal"))
    sqlite3.connect = connect
    commits = [i for i, sql in enumerate(counted, 1) if sql == "COMMIT"]
    points: list[dict] = [dict(statement=commits[-2]), dict(statement=commits[-1] - 3), dict(statement=commits[-1] + 1),
                          dict(wave=WAVES - 2), dict(size=log - 5000), dict(size=log // 2), dict(delay=took / 2)]
    while len(points) < kills:
        points.append(rng.choice([
            dict(statement=rng.randint(1, len(counted))), dict(statement=rng.choice(commits) + rng.randint(0, 1)),
            dict(size=rng.randint(40_000, log)), dict(wave=rng.randrange(WAVES)), dict(delay=rng.uniform(0, took)),
        ]))
    path = os.path.join(root, "killed")
    for point in points:
        if kills < 20 or rng.random() < 0.5:  # else the next writer goes on where the killed one stopped
            shutil.rmtree(path, ignore_errors=True)
        killed, acknowledged = run(path, **point)
        report["killed" if killed else "finished"] += 1
        report["in_log"] += killed and "size" in point
        if (verdict := compare(path, acknowledged, expected)) != "same":
            report["wrong"][json.dumps(point)] = verdict
    run(path)
    report["end"] = compare(path, WAVES, expected)
    print(json.dumps(report))


def _tracing(connection: sqlite3.Connection, into: list[str]) -> sqlite3.Connection:
    connection.set_trace_callback(into.append)
    return connection


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
