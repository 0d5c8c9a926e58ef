"""Outside gold for the extractor: notes of the synthetic cohort of the package clinosim, each with the kinds of fact from
which its generator wrote it. Nobody here chose their wording.

A note's facts are names of what went into it (`ctx.vitals.today`), not sentences. So what is counted is a note: of those
written from a kind, the share in which the writer found a statement of that kind, and of those written without it, the
share in which it found one all the same. A note may leave out what it could say, so the first share has a ceiling.
"""
from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from core_jax.records import RecordError, read_jsonl
from stam_jax.benchmarks import tables as T
from stam_jax.graph.memory import Entry
from stam_jax.write.writer import Draft, Writer

_VITALS = frozenset({"blood pressure", "systolic blood pressure", "diastolic blood pressure", "heart rate", "temperature",
                     "oxygen saturation", "respiratory rate", "weight", "height", "bmi"})


def _vital(d: Draft) -> bool:
    return d.attribute == "value" and d.concept in _VITALS


def _laboratory(d: Draft) -> bool:
    return d.attribute == "value" and d.concept not in _VITALS


KINDS: dict[str, tuple[str, Callable[[Draft], bool]]] = {  # kind -> (facts that go by it, statements of it)
    "vital signs": (r"ctx\.vitals", _vital),
    "laboratory values": (r"ctx\.lab_results", _laboratory),
    "medicines": (r"ctx\.(patient\.current_|discharge_)?medications", lambda d: d.attribute == "dose"),
    "problems": (r"ctx\.(patient\.chronic_conditions|diagnoses)",
                 lambda d: d.attribute == "status" and d.polarity == "AFFIRMED" and d.experiencer == "PATIENT"),
    "allergies": (r"ctx\.allergies", lambda d: d.attribute == "allergy"),
    "family history": (r"ctx\.family_history", lambda d: d.experiencer == "FAMILY"),
    "next visit": (r"encounter_protocol\.next_visit", lambda d: d.attribute == "plan"),
}


def notes(path: str | os.PathLike, most: int) -> Iterator[tuple[Entry, frozenset[str]]]:
    """(entry, facts) of `most` notes, drawn by the hash of their ids. Raises: RecordError with file, line and field."""
    drawn: list[tuple[str, Entry, frozenset[str]]] = []
    for line, raw in read_jsonl(path):
        try:
            for note in raw["notes"]:
                place = hashlib.sha256(f"{raw['patient_id']} {note['id']}".encode()).hexdigest()
                if note.get("facts") and note["text"].strip():
                    drawn.append((place, _entry(raw["patient_id"], note), frozenset(note["facts"])))
        except (KeyError, TypeError, AttributeError) as e:
            raise RecordError(f"is no clinosim patient: {e!r:.80}", file=path, line=line) from None
    for _, entry, facts in sorted(drawn, key=lambda x: x[0])[:most]:
        yield entry, facts


def _entry(patient_id: str, note: dict[str, Any]) -> Entry:
    return Entry.of(patient_id, str(note["id"]), "note", note["text"], date=note["time"])


def run(path: str | os.PathLike, writer: Writer, *, most: int = 3000,
        command: str = "stam_jax.benchmarks.clinosim.run(...)") -> T.Report:
    """The suite. most: notes read."""
    found = list(notes(path, most))
    if not found:
        raise RecordError("has no notes with facts", file=path)
    seen: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for (_, facts), extraction in zip(found, writer.extract([e for e, _ in found])):
        for kind, (pattern, of_kind) in KINDS.items():
            there = any(re.match(pattern, f) for f in facts)
            seen[kind][("with" if there else "without")] += 1
            seen[kind][("with" if there else "without") + " found"] += any(map(of_kind, extraction.drafts))
    rows = tuple((kind, c["with"], T.share(c["with found"], c["with"]), c["without"], T.share(c["without found"], c["without"]))
                 for kind, c in seen.items())
    table = T.Table("kinds", "Notes in which a statement of a kind was found",
                    ("kind", "notes written from it", "found", "notes written without it", "found all the same"), rows,
                    "A note may leave out what it could say (no value measured, no problem known), and may name a kind in passing.")
    digest = hashlib.sha256("\n".join(e.entry_key for e, _ in found).encode()).hexdigest()
    return T.Report("clinosim", "Outside gold: clinosim's notes", command, {"notes": len(found), "writer": dict(writer.hashes)}, {},
                    {"notes": digest}, (table,))
