"""The append-only journal of one patient: a hash chain over updates, and how text leaves it without breaking it.

A record's hash covers its predecessor's hash, its number and its body, in which every content stands as its own sha256.
So an erased content, of which the record keeps that hash, leaves all hashes as they were. Standard library only.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from stam_jax.graph import canonical
from stam_jax.graph.update import Update, from_body, to_body

_CONTENTS = ("entries", "memories", "confirmations", "retractions")


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One journal row. body: canonical JSON text. recorded_at: UTC wall clock, for audits, part of no hash."""

    patient_id: str
    seq: int
    prev_hash: str
    hash: str
    body: str
    recorded_at: str = ""

    def update(self) -> Update:
        """Raises: RecordError, IllegalTransition."""
        return from_body(self.patient_id, self.seq, json.loads(self.body))


def genesis(patient_id: str) -> str:
    """What the first record of a patient is chained to; no other patient's records fit."""
    return canonical.digest(["stam-journal/1", patient_id])


def reduced(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with each content as its sha256: the same before and after a redaction."""
    out = dict(body)
    for name in _CONTENTS:
        if name in body:
            out[name] = [_reduced_leaf(leaf) for leaf in body[name]]
    return out


def _reduced_leaf(leaf: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in leaf.items() if k not in ("content", "remains")}
    return out | {"content_sha256": canonical.digest(leaf["content"])} if "content" in leaf else out


def record(update: Update, prev_hash: str, recorded_at: str = "") -> Record:
    """The record that carries `update` after the record with `prev_hash`."""
    body = to_body(update)
    return Record(update.patient_id, update.seq, prev_hash, _hash(prev_hash, update.seq, body), canonical.dumps(body),
                  recorded_at)


def _hash(prev_hash: str, seq: int, body: Mapping[str, Any]) -> str:
    return canonical.digest({"prev": prev_hash, "seq": seq, "body": reduced(body)})


def faults(patient_id: str, records: Iterable[Record]) -> list[str]:
    """What is wrong with a chain; empty where it holds from the first record on."""
    out, prev = [], genesis(patient_id)
    for seq, row in enumerate(records, 1):
        at = f"record {row.seq} of {patient_id!r}"
        if row.seq != seq:
            return [*out, f"{at}: expected number {seq}"]
        if row.prev_hash != prev:
            out.append(f"{at}: does not follow its predecessor")
        try:
            body = json.loads(row.body)
            if canonical.dumps(body) != row.body:
                out.append(f"{at}: the body is not in canonical form")
            if _hash(row.prev_hash, row.seq, body) != row.hash:
                out.append(f"{at}: the body does not have the hash of the record")
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            out.append(f"{at}: the body cannot be read: {e}")
        prev = row.hash
    return out


def bare(records: Iterable[Record]) -> list[str]:
    """Entries and memories without a content that no later record deleted: the chain holds without it as well.

    Raises: ValueError, LookupError, TypeError, AttributeError: a body that cannot be read.
    """
    found: dict[str, None] = {}
    for row in records:
        body = json.loads(row.body)
        gone = [*(r["entry_key"] for r in body.get("redactions", ())), *(mid for mid, _ in body.get("tombstones", ()))]
        for name in gone:
            found.pop(name, None)
        for leaf in (leaf for name in _CONTENTS for leaf in body.get(name, ()) if "content" not in leaf):
            found[leaf.get("entry_key") or leaf["mid"]] = None
    return list(found)


def contents(records: Iterable[Record], mids: Collection[str]) -> dict[str, str]:
    """mid -> sha256 of its content, from the records that inserted them."""
    found = {}
    for row in records:
        for leaf in json.loads(row.body).get("memories", ()):
            if leaf["mid"] in mids:
                found[leaf["mid"]] = _reduced_leaf(leaf)["content_sha256"]
    return found


def redact(row: Record, mids: Collection[str], remains: Mapping[str, Mapping[str, Any]]) -> Record:
    """The record without the contents of `mids`, and with entries cut down to their `remains`; its hash stays.

    Args:
        remains: entry_key -> what is left of the entry, as JSON object without its keys.
    """
    body = json.loads(row.body)
    for name in _CONTENTS:
        leaves = body.get(name, [])
        for i, leaf in enumerate(leaves):
            if name == "entries" and leaf["entry_key"] in remains:
                leaves[i] = _reduced_leaf(leaf) | {"remains": remains[leaf["entry_key"]]}
            elif name != "entries" and leaf["mid"] in mids:
                leaves[i] = _reduced_leaf(leaf)
    return dataclasses.replace(row, body=canonical.dumps(body))
