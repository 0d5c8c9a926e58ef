"""States and journals as rows of a shard, both ways. Standard library only."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry, Memory, Tombstone
from stam_jax.graph.relations import Relation, RelationTable
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition
from stam_jax.graph.update import Update
from stam_jax.storage import journal
from stam_jax.storage.journal import Record
from stam_jax.storage.shard import Shard


def head(shard: Shard, patient_id: str) -> tuple[int, str]:
    """(version, hash of the last record); 0 and the genesis hash of a patient that is not there."""
    found = shard.rows("SELECT version, head FROM patient WHERE patient_id = ?", patient_id)
    return found[0] if found else (0, journal.genesis(patient_id))


def records(shard: Shard, patient_id: str) -> list[Record]:
    """The journal, oldest first."""
    return [Record(patient_id, *row) for row in shard.rows(
        "SELECT seq, prev_hash, hash, body, recorded_at FROM journal WHERE patient_id = ? ORDER BY seq", patient_id)]


def state(shard: Shard, patient_id: str, version: int, load: Callable[[int], list[Update]],
          table: RelationTable) -> State:
    """A patient's state from its rows, inside a transaction. Raises: RecordError, IllegalTransition: a damaged row."""
    def parsed(query: str) -> list[tuple]:
        return [(json.loads(body), *rest) for body, *rest in shard.rows(query, patient_id)]

    memories, tombstones = [], []
    for raw, place in parsed("SELECT body, store FROM memory WHERE patient_id = ? ORDER BY seq, position"):
        if place == "DELETED":
            tombstones.append(Tombstone.from_dict(raw))
        else:
            memories.append(Memory.from_dict(raw))
    return State.restore(
        patient_id, version,
        [(Entry.from_dict(raw), seq) for raw, seq in
         parsed("SELECT body, seq FROM entry WHERE patient_id = ? ORDER BY seq, position")],
        memories,
        [Relation.from_dict(raw) for (raw,) in
         parsed("SELECT body FROM relation WHERE patient_id = ? ORDER BY seq, rid")],
        [Transition.from_dict(raw) for (raw,) in
         parsed("SELECT body FROM transition WHERE patient_id = ? ORDER BY seq, position")],
        tombstones, load, table=table)


def faults(shard: Shard, state: State) -> list[str]:
    """Which rows of a patient are not those that its updates write, key columns and places included."""
    pid, updates = state.patient_id, state.updates()
    expected: dict[str, set[tuple]] = {
        "entry": {(e.entry_key, u.seq, i, _encoded(state.entries[e.entry_key]))
                  for u in updates for i, e in enumerate(u.entries) if e.entry_key in state.entries},
        "memory": {(m.mid, u.seq, i, state.places[m.mid],
                    _encoded(state.memories.get(m.mid) or state.tombstones[m.mid]))
                   for u in updates for i, m in enumerate(u.memories) if m.mid in state.places},
        "relation": {(r.rid, r.update_seq, r.src, r.dst, r.type, _encoded(r)) for r in state.relations.values()},
        "transition": {(u.seq, i, t.mid, _encoded(t)) for u in updates for i, t in enumerate(u.transitions)},
    }
    columns = {"entry": "entry_key, seq, position, body", "memory": "mid, seq, position, store, body",
               "relation": "rid, seq, src, dst, type, body", "transition": "seq, position, mid, body"}
    out = []
    for table, rows in expected.items():
        found = shard.rows(f"SELECT {columns[table]} FROM {table} WHERE patient_id = ?", pid)
        if len(odd := rows.symmetric_difference(found)) or len(found) != len(rows):
            out.append(f"{len(odd) or 1} rows of {table} differ from what the journal makes")
    return out


def write(shard: Shard, before: State, after: State, update: Update) -> None:
    """Bring the rows of what changed from `before` to `after` up to date."""
    pid = after.patient_id

    def changed(name: str) -> list[str]:
        old, new = getattr(before, name), getattr(after, name)
        return [key for key, value in new.items() if old.get(key) is not value]

    def position(items: Iterable[Any], key: str) -> dict[str, int]:
        return {getattr(item, key): i for i, item in enumerate(items)}

    where = position(update.entries, "entry_key")
    shard.write(
        "INSERT INTO entry VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (patient_id, entry_key) DO UPDATE SET body = excluded.body",
        [(pid, k, after.entry_seq[k], where.get(k, 0), _encoded(after.entries[k])) for k in changed("entries")])
    where = position(update.memories, "mid")
    upsert = ("INSERT INTO memory VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (patient_id, mid) DO UPDATE SET "
              "store = excluded.store, body = excluded.body")
    shard.write(upsert, [(pid, k, m.update_seq, where.get(k, 0), m.store, _encoded(m))
                         for k in changed("memories") for m in [after.memories[k]]])
    shard.write(upsert, [(pid, k, after.tombstones[k].inserted_seq, 0, "DELETED", _encoded(after.tombstones[k]))
                         for k in changed("tombstones")])
    shard.write("DELETE FROM relation WHERE patient_id = ? AND rid = ?",
                [(pid, rid) for rid in before.relations.keys() - after.relations.keys()])
    shard.write("INSERT INTO relation VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(pid, r.rid, r.update_seq, r.src, r.dst, r.type, _encoded(r)) for rid in changed("relations")
                 for r in [after.relations[rid]]])
    shard.write("INSERT INTO transition VALUES (?, ?, ?, ?, ?)",
                [(pid, update.seq, i, t.mid, _encoded(t)) for i, t in enumerate(update.transitions)])


def _encoded(record: Any) -> str:
    return canonical.dumps(canonical.to_dict(record))
