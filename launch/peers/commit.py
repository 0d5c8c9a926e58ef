"""Suite `commit`: what it costs to write memories to the store, each transaction synced to disk as it is shipped.

`batch_*`: commits of one entry with 1, 8 or 64 memories (384 numbers each), of 16 patients in turn, a call a commit;
`wave_64`: the commits of 64 patients, 4 memories each, in one call, as `ingest` writes them. `sqlite` inserts the same
entries and memories, as JSON, into two tables of plain sqlite3, with the same write-ahead log and `synchronous = FULL`:
no journal, no checks, no state. `journal` makes the records of the journal alone (canonical JSON and its hashes) and
writes nothing: its share of `ours` is what `summary` says. Every round begins with an empty file. The result is the
number of memories of each patient.
"""
from __future__ import annotations

import collections
import contextlib
import json
import os
import sqlite3
import tempfile

import numpy as np

D = 384
TABLES = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
          "CREATE TABLE entry (patient TEXT, id TEXT, body TEXT, PRIMARY KEY (patient, id))",
          "CREATE TABLE memory (patient TEXT, id TEXT, body TEXT, vector BLOB, PRIMARY KEY (patient, id))")
CASES = {
    "batch_1": {"memories": 1, "patients": 16, "commits": 256, "wave": 1},
    "batch_8": {"memories": 8, "patients": 16, "commits": 128, "wave": 1},
    "batch_64": {"memories": 64, "patients": 16, "commits": 64, "wave": 1},
    "wave_64": {"memories": 4, "patients": 64, "commits": 256, "wave": 64},
}
for _case in CASES.values():
    _case["per_round"] = f"{_case['commits']} commits of {_case['memories']} memories, {_case['wave']} in a transaction"


def waves(case: dict) -> list[list]:
    """Lists of `Commit`, each one transaction."""
    from stam_jax.graph.clinical_time import ClinicalTime
    from stam_jax.graph.memory import Entry, Memory, Provenance
    from stam_jax.graph.update import Commit

    rng, out = np.random.default_rng(0), []
    for i in range(case["commits"]):
        version, patient = divmod(i, case["patients"])
        pid, day = f"p{patient:02d}", f"2024-03-{version + 1:02d}"
        said = [f"Takes drug {version}-{j} {5 * j + 5} mg twice daily since the last visit."
                for j in range(case["memories"])]
        entry = Entry.of(pid, f"visit {version}", "note", " ".join(said), date=day, author_role="clinician")
        memories, at = [], 0
        for j, text in enumerate(said):
            memories.append(Memory.of(pid, text, [Provenance.of(entry, at, at + len(text))], ordinal=j, unit="mg",
                                      concept=f"drug {version}-{j}", attribute="dose", value=f"{5 * j + 5} mg bid",
                                      clinical_time=ClinicalTime(day, None, False, "explicit")))
            at += len(text) + 1
        rows = rng.standard_normal((len(memories), D), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        embeddings = {m.mid: row for m, row in zip(memories, rows)}
        out.append(Commit(pid, version, (entry,), tuple(memories), embeddings=embeddings))
    return [out[i:i + case["wave"]] for i in range(0, len(out), case["wave"])]


def ours(case: dict):
    from stam_jax.storage.store import Header, Store

    asked, header = waves(case), Header("random", "1", D)

    def run():
        with tempfile.TemporaryDirectory() as folder, \
                Store.open(os.path.join(folder, "store"), encoder=header) as store:
            for wave in asked:
                store.commit(wave)
            return np.array([len(store.state(p).memories) for p in store.patients()])

    return run


def sqlite(case: dict):
    from stam_jax.graph.canonical import to_dict

    asked = [[(c.patient_id, to_dict(c.entries[0]), [(m.mid, to_dict(m), c.embeddings[m.mid]) for m in c.memories])
              for c in wave] for wave in waves(case)]

    def run():
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.closing(sqlite3.connect(os.path.join(folder, "memories"), isolation_level=None)) as db:
            for statement in TABLES:
                db.execute(statement)
            for wave in asked:
                db.execute("BEGIN IMMEDIATE")
                for pid, entry, memories in wave:
                    db.execute("INSERT INTO entry VALUES (?, ?, ?)", (pid, entry["entry_key"], json.dumps(entry)))
                    db.executemany("INSERT INTO memory VALUES (?, ?, ?, ?)",
                                   [(pid, mid, json.dumps(m), vector.tobytes()) for mid, m, vector in memories])
                db.execute("COMMIT")
            counts = db.execute("SELECT count(*) FROM memory GROUP BY patient ORDER BY patient").fetchall()
            return np.array(counts)[:, 0]

    return run


def journal(case: dict):
    from stam_jax.graph.update import Update
    from stam_jax.storage.journal import genesis, record

    updates = [Update.of(commit) for wave in waves(case) for commit in wave]

    def run():
        heads, counts = {u.patient_id: genesis(u.patient_id) for u in updates}, collections.Counter()
        for update in updates:
            heads[update.patient_id] = record(update, heads[update.patient_id]).hash
            counts[update.patient_id] += len(update.memories)
        return np.array([counts[p] for p in sorted(counts)])

    return run


def summary(rows: list[dict]) -> list[str]:
    """Commits a second, microseconds a memory, and the others' share of our time, and of our time on the processor."""
    ours = {r["case"]: r for r in rows if r["contender"] == "ours"}
    lines = []
    for r in rows:
        commits, ms = CASES[r["case"]]["commits"], r["wall_ms"]["median"]
        lines.append(f"{r['case']:8} {r['contender']:7} {1e3 * commits / ms:7.0f} commits/s, "
                     f"{1e3 * ms / commits / CASES[r['case']]['memories']:6.0f} us a memory")
        if r["contender"] != "ours" and r["case"] in ours:
            wall, cpu = (r[name]["median"] / ours[r["case"]][name]["median"] for name in ("wall_ms", "cpu_ms"))
            lines[-1] += f", {wall:.0%} of ours ({cpu:.0%} of its cpu)"
    return lines


CONTENDERS = {"ours": ours, "sqlite": sqlite, "journal": journal}
