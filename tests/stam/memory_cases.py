"""Small patients for the tests of the state layer: entries, memories and commits that are quick to write down."""
from __future__ import annotations

import zlib

import numpy as np

from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.relations import Relation
from stam_jax.graph.transitions import archive
from stam_jax.graph.update import Commit
from stam_jax.storage.store import Header

HEADER = Header("toy-encoder", "1", 8)


def entry(text: str, *, patient: str = "p1", date: str | None = "2024-03-01", source: str = "note", **fields) -> Entry:
    return Entry.of(patient, source, "note", text, date=date, author_role="clinician", **fields)


def memory(e: Entry, quote: str | None = None, *, text: str | None = None, start: str | None = None,
           end: str | None = None, end_planned: bool = False, ordinal: int = 0, **fields) -> Memory:
    """A memory that cites `quote` (the whole entry unless given); it says "Patient: <quote>" unless told otherwise."""
    at = 0 if quote is None else e.text.index(quote)
    span = Provenance.of(e, at, len(e.text) if quote is None else at + len(quote))
    if start or end:
        fields["clinical_time"] = ClinicalTime(start, end, end_planned, "explicit")
    text = f"Patient: {e.text[span.start:span.end]}" if text is None else text
    return Memory.of(e.patient_id, text, [span], ordinal=ordinal, **fields)


def vector(mid: str) -> np.ndarray:
    """[8] float32 of length one, the same for the same id."""
    row = np.random.default_rng(zlib.crc32(mid.encode())).normal(size=HEADER.dim).astype(np.float32)
    return row / np.linalg.norm(row)


def commit(version: int, entries=(), memories=(), *, patient: str = "p1", **fields) -> Commit:
    """A commit with an embedding row for each of its memories."""
    fields.setdefault("embeddings", {m.mid: vector(m.mid) for m in memories})
    return Commit(patient, version, tuple(entries), tuple(memories), **fields)


def doses(n: int, *, patient: str = "p1") -> list[Commit]:
    """n entries on following days, each a new dose that supersedes the last one."""
    out, last = [], None
    for i in range(n):
        day = f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}"
        e = entry(f"visit {i}: lisinopril {5 + i} mg daily", patient=patient, date=day)
        slot = dict(concept="lisinopril", attribute="dose", value=str(5 + i), unit="mg")
        m = memory(e, f"lisinopril {5 + i} mg daily", start=day, **slot)
        thread = "same_condition_thread"
        relation = [] if last is None else [Relation.of(last.mid, m.mid, thread, confidence=0.9)]
        moves = [] if last is None else [
            archive(last.mid, "SUPERSEDED", successor=m.mid, decided_by="rule:R4", evidence_rid=relation[0].rid)]
        out.append(commit(i, [e], [m], patient=patient, relations=relation, transitions=moves))
        last = m
    return out
