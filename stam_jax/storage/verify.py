"""What is wrong with one shard: SQLite's own checks, and of each patient the journal, the rows and every invariant."""
from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator

from stam_jax.graph.invariants import Violation
from stam_jax.graph.relations import RelationTable
from stam_jax.graph.update import Update
from stam_jax.storage import journal, rows
from stam_jax.storage.header import Header, seal
from stam_jax.storage.shard import TABLES, Shard, StoreBusy


def shard_of(patient_id: str, shards: int) -> int:
    """Which shard holds a patient."""
    return int.from_bytes(hashlib.sha256(patient_id.encode("utf-8")).digest(), "big") % shards


def file(shard: Shard) -> Iterator[Violation]:
    """Faults that belong to no patient."""
    name = os.path.basename(shard.path)
    for (fault,) in shard.rows("PRAGMA integrity_check"):
        if fault != "ok":
            yield Violation("I11", "", f"{name}: {fault}")
    for table, *_ in shard.rows("PRAGMA foreign_key_check"):
        yield Violation("I15", "", f"{name}: a row of {table} belongs to nothing")
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.executescript(TABLES)
        for _, odd, *_ in set(shard.rows(schema)).symmetric_difference(made.execute(schema)):
            yield Violation("I11", "", f"{name}: {odd} is not the table, index or constraint that a store has")


def patient(shard: Shard, place: tuple[int, int], pid: str, header: Header, table: RelationTable,
            load: Callable[[int], list[Update]]) -> Iterator[Violation]:
    """Faults of one patient, inside a transaction. place: (this shard, number of shards)."""
    try:
        yield from _patient(shard, place, pid, header, table, load)
    except StoreBusy:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        name = "I2" if "mid" in str(getattr(e, "field", "")) else "I11"
        yield Violation(name, str(pid), f"a row cannot be read: {e}")


def _patient(shard: Shard, place: tuple[int, int], pid: str, header: Header, table: RelationTable,
             load: Callable[[int], list[Update]]) -> Iterator[Violation]:
    if shard_of(pid, place[1]) != place[0]:
        yield Violation("I15", pid, f"stands in shard {place[0]}, belongs into {shard_of(pid, place[1])}")
    records, (version, head) = rows.records(shard, pid), rows.head(shard, pid)
    for fault in journal.faults(pid, records):
        yield Violation("I6", pid, fault)
    if (len(records), records[-1].hash if records else journal.genesis(pid)) != (version, head):
        yield Violation("I6", pid, f"the journal ends with record {len(records)}, the patient's version is {version}")
    for name in journal.bare(records):
        yield Violation("I6", pid, f"{name} has lost its content, but no later record deleted it")
    embedded = shard.rows("SELECT mid, vector, sha256 FROM embedding WHERE patient_id = ?", pid)
    for mid, blob, sha in embedded:
        if why := header.fault(blob):
            yield Violation("I7", pid, f"{mid}: {why}")
        elif seal(pid, mid, blob) != sha:
            yield Violation("I7", pid, f"{mid}: its embedding row is not the one that was written for it")
    state = rows.state(shard, pid, version, load, table)
    for mid, seq, store in shard.rows("SELECT mid, seq, store FROM memory WHERE patient_id = ?", pid):
        record = state.memories.get(mid) or state.tombstones.get(mid)
        found = record and (getattr(record, "inserted_seq", record.update_seq), state.places[mid])
        if found != (seq, store):
            yield Violation("I1", pid, f"{mid}: its row says update {seq}, {store}; its body {found}")
    for rid, *ends in shard.rows("SELECT rid, src, dst, type FROM relation WHERE patient_id = ?", pid):
        r = state.relations.get(rid)
        if r is None or [r.src, r.dst, r.type] != ends:
            yield Violation("I5", pid, f"relation {rid}: its row and its body differ")
    yield from state.check([mid for mid, *_ in embedded])
    for fault in rows.faults(shard, state):
        yield Violation("I11", pid, fault)
