"""Run by test_attack.py in a process of its own: ingest, revert, erase and compaction killed at random SQL statements.

A child opens the store and goes on with a plan of its own dice; it is killed before its n-th SQL statement. The parent
reopens, verifies, and looks for the words of what was said to be erased in the bytes of every file. Prints one JSON
object.

Usage: attack_kills.py FOLDER KILLS
"""
from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import sqlite3
import sys

import numpy as np
from memory_cases import HEADER, entry
from writer_cases import SlotWriter

from stam_jax.graph.undo import UndoRefused
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest


class Encoder:
    """Of no model: a row of eight numbers that follows from the text."""

    id, dim, normalized = HEADER.model, HEADER.dim, True

    def encode(self, texts):
        rows = np.array([[1 + (len(t) * (i + 3) + sum(t.encode())) % 97 for i in range(self.dim)] for t in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def story(patient: str, rng: random.Random) -> list:
    """Three entries: a dose in a slot that others share, and a word that stands nowhere else."""
    out = []
    for _ in range(3):
        word, dose = "".join(rng.choices("bcdf", k=12)), f"{rng.randrange(1, 9) * 5} mg"
        text = f"drug {rng.choice('abc')} dose {dose}\nsecret{word} status"
        out.append(entry(text, patient=patient, date=f"20{rng.randrange(10, 30)}-01-02"))
    return out


def work(path: str, seed: int, said: int, statement: int) -> None:
    """Some operations; each that returned is said through the pipe, an erasure with the words that are gone."""
    rng, seen, connect = random.Random(seed), 0, sqlite3.connect

    def traced(_):
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(traced)
        return connection

    sqlite3.connect = connected
    with Store.open(path, encoder=header_of(Encoder()), shards=2) as store:
        for _ in range(6):
            patient, what = rng.choice("pqr"), rng.random()
            state = store.state(patient)
            if what < 0.5 or not state.memories:
                entries = story(patient, rng)
                ingest(store, entries, SlotWriter(), Encoder())
                line = {"in": [patient, *(e.entry_key for e in entries)]}
            elif what < 0.7:
                try:
                    store.revert(patient, rng.randrange(1, state.version + 1), cascade=True)
                except UndoRefused:
                    pass
                line = {}
            else:
                mids = None if what > 0.9 else rng.sample(sorted(state.memories), 1)
                words = [m.text.split()[0] for m in state.memories.values()
                         if (mids is None or m.mid in mids) and m.text.startswith("secret")]
                store.erase(patient, mids)
                line = {"gone": words}
            os.write(said, (json.dumps(line) + "\n").encode())


def main(root: str, kills: int) -> None:
    path, rng, report = os.path.join(root, "store"), random.Random(1), {"killed": 0, "wrong": []}
    erased: set[str] = set()
    known: set[tuple[str, str]] = set()
    for seed in range(kills):
        said, saying = os.pipe()
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.close(said)
                work(path, seed, saying, rng.randrange(1, rng.choice((250, 1000))))
                code = 0
            finally:
                os._exit(code)
        os.close(saying)
        status = os.waitpid(child, 0)[1]
        with os.fdopen(said) as pipe:
            for line in map(json.loads, pipe):
                erased |= set(line.get("gone", ()))
                known |= {(line["in"][0], key) for key in line.get("in", ())[1:]}
        report["killed"] += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
            report["wrong"].append(f"{seed}: the writer failed")
        if not os.path.isdir(path):
            continue
        with Store.open(path, encoder=header_of(Encoder()), shards=2) as store:
            report["wrong"] += [f"{seed}: {v}" for v in store.verify()]
            report["wrong"] += [f"{seed}: {k} is lost" for p, k in known if k not in store.state(p).entries]
            raw = b"".join(f.read_bytes() for f in pathlib.Path(path).iterdir())
            report["wrong"] += [f"{seed}: {w} is still on disk" for w in erased if w.encode() in raw]
    print(json.dumps(report | {"erased": len(erased)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
