"""What a memory is made of: entries, memories with the places that prove them, and what is left of a deleted one.

Frozen dataclasses, checked when made, with one canonical form each. A memory's text never changes: its id is a hash of
the text and of where it came from. Standard library only.
"""
from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from core_jax.records import RecordError
from stam_jax.graph import canonical
from stam_jax.graph.clinical_time import UNKNOWN, ClinicalTime, entry_date

PLACES = ("ACTIVE", "HISTORY", "DELETED")
KINDS = ("STATE", "EVENT", "PLAN", "PREFERENCE", "BACKGROUND")
POLARITIES = ("AFFIRMED", "NEGATED", "UNCERTAIN", "CONDITIONAL")
EXPERIENCERS = ("PATIENT", "FAMILY", "OTHER")
FLAGS = ("needs_review", "deletion_proposed", "value_unverified")
STATUSES = ("complete", "partial", "reverted")  # partial: a writer failed on it, its memories wait for another try


def canonical_text(text: str) -> str:
    """The form in which an entry's text is stored, hashed and counted: NFC, \\n line ends, no NUL or lone surrogate."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def quote_sha(span: str) -> str:
    """sha256 of the words of a source span: whitespace runs are one blank, case is folded."""
    return canonical.sha256(" ".join(span.split()).casefold())


def entry_key(patient_id: str, kind: str, date: str | None, author_role: str, text: str) -> str:
    """The key of an entry's content: the same content again, under whatever source id, is the same entry."""
    return canonical.identifier("e", patient_id, kind, date, author_role, canonical_text(text))


def memory_id(patient_id: str, entry_key: str, chunk: int, ordinal: int, text: str) -> str:
    """`m` + 16 base32 characters; the same extraction of the same entry gives the same id."""
    return canonical.identifier("m", patient_id, entry_key, chunk, ordinal, text)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One dated piece of the record: a note, a dialogue, a rendered row.

    date: `clinical_time.entry_date` form, None = undated. chunks: (start, end) offsets into text.
    redacted: (start, end) spans of which the text was erased; they read as blocks of the same length.
    Raises: RecordError naming the field.
    """

    entry_key: str
    patient_id: str
    source_id: str
    kind: str
    text: str
    date: str | None = None
    author_role: str = "unknown"
    chunks: tuple[tuple[int, int], ...] = ()
    status: str = "complete"
    redacted: tuple[tuple[int, int], ...] = ()

    def __post_init__(self):
        for name in ("entry_key", "patient_id", "source_id", "kind", "author_role"):
            canonical.text(getattr(self, name), name)
        canonical.text(self.text, "text", empty=True)
        canonical.choice(self.status, "status", STATUSES)
        if entry_date(self.date) != self.date:
            raise RecordError(f"got {self.date!r}, expected {entry_date(self.date)!r}", field="date")
        for name in ("chunks", "redacted"):
            object.__setattr__(self, name, _spans(getattr(self, name), name, len(self.text)))

    @classmethod
    def of(cls, patient_id: str, source_id: str, kind: str, text: str, *, date: str | None = None,
           author_role: str = "unknown", chunks: Iterable[tuple[int, int]] | None = None, status: str = "complete"):
        """An entry from raw parts: text made canonical, date parsed, keyed by content, one chunk unless given."""
        canonical.text(patient_id, "patient_id")
        if not isinstance(text, str):
            raise RecordError(f"got {type(text).__name__}, expected a string", field="text")
        text, date = canonical_text(text), entry_date(date)
        chunks = ((0, len(text)),) if chunks is None else tuple(chunks)
        return cls(entry_key(patient_id, kind, date, author_role, text), patient_id, source_id, kind, text, date,
                   author_role, chunks if text else (), status)

    @classmethod
    def from_dict(cls, raw: Any, where: str = "entry") -> Entry:
        """Raises: RecordError."""
        return canonical.from_dict(cls, raw, where)


@dataclasses.dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory stands in an entry. chunk -1 = none (a rendered row).

    quote_sha: `quote_sha` of the span. verified: the writer's quote was found there.
    """

    entry_key: str
    chunk: int
    start: int
    end: int
    quote_sha: str
    verified: bool = True

    def __post_init__(self):
        canonical.text(self.entry_key, "entry_key")
        canonical.integer(self.chunk, "chunk", -1)
        canonical.integer(self.start, "start", 0)
        canonical.integer(self.end, "end", self.start)
        canonical.truth(self.verified, "verified")
        if not isinstance(self.quote_sha, str) or not re.fullmatch("[0-9a-f]{64}", self.quote_sha):
            raise RecordError(f"got {self.quote_sha!r:.80}, expected 64 hexadecimal digits", field="quote_sha")

    @classmethod
    def of(cls, entry: Entry, start: int, end: int, *, chunk: int = 0, verified: bool = True) -> Provenance:
        """The span [start, end) of an entry's text. Raises: RecordError: outside of it."""
        if not 0 <= start <= end <= len(entry.text):
            raise RecordError(f"got [{start}, {end}), expected within [0, {len(entry.text)})", field="start")
        return cls(entry.entry_key, chunk, start, end, quote_sha(entry.text[start:end]), verified)

    def holds(self, entry: Entry) -> bool:
        """Whether the span says what it said: where a part of it was erased, there is nothing left to compare."""
        if any(a < self.end and self.start < b for a, b in entry.redacted):
            return True
        return self.end <= len(entry.text) and quote_sha(entry.text[self.start:self.end]) == self.quote_sha


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """One atomic statement. Its first provenance is the extraction it came from, and part of its id.

    concept, attribute, value, unit: the normalised slot; None where there is none. store: where it stands.
    update_seq: the update that inserted it; 0 until it is committed. ordinal: its place among the chunk's memories.
    Raises: RecordError naming the field; a mid that is not the hash of what it names.
    """

    mid: str
    patient_id: str
    text: str
    provenance: tuple[Provenance, ...]
    ordinal: int = 0
    kind: str = "STATE"
    concept: str | None = None
    attribute: str | None = None
    value: str | None = None
    unit: str | None = None
    polarity: str = "AFFIRMED"
    experiencer: str = "PATIENT"
    clinical_time: ClinicalTime = UNKNOWN
    store: str = "ACTIVE"
    update_seq: int = 0
    flags: frozenset[str] = frozenset()

    def __post_init__(self):
        canonical.text(self.patient_id, "patient_id")
        canonical.text(self.text, "text")
        for name in ("concept", "attribute", "value", "unit"):
            canonical.text(getattr(self, name), name, optional=True)
        canonical.choice(self.kind, "kind", KINDS)
        canonical.choice(self.polarity, "polarity", POLARITIES)
        canonical.choice(self.experiencer, "experiencer", EXPERIENCERS)
        canonical.choice(self.store, "store", PLACES[:2])
        canonical.integer(self.ordinal, "ordinal", 0)
        canonical.integer(self.update_seq, "update_seq", 0)
        object.__setattr__(self, "provenance", canonical.sequence(self.provenance, "provenance", Provenance))
        object.__setattr__(self, "flags", flag_set(self.flags))
        if not self.provenance:
            raise RecordError("got none, expected at least one", field="provenance")
        if not isinstance(self.clinical_time, ClinicalTime):
            raise RecordError(f"got {type(self.clinical_time).__name__}, expected a ClinicalTime",
                              field="clinical_time")
        first = self.provenance[0]
        if (expected := memory_id(self.patient_id, first.entry_key, first.chunk, self.ordinal, self.text)) != self.mid:
            raise RecordError(f"got {self.mid!r}, expected {expected!r} for this text and origin", field="mid")

    @classmethod
    def of(cls, patient_id: str, text: str, provenance: Iterable[Provenance], *, ordinal: int = 0, **fields) -> Memory:
        """A memory with its id made."""
        provenance = tuple(provenance)
        if not provenance:
            raise RecordError("got none, expected at least one", field="provenance")
        mid = memory_id(patient_id, provenance[0].entry_key, provenance[0].chunk, ordinal, text)
        return cls(mid, patient_id, text, provenance, ordinal, **fields)

    @classmethod
    def from_dict(cls, raw: Any, where: str = "memory") -> Memory:
        """Raises: RecordError."""
        parts: dict[str, Any] = {}
        if isinstance(raw, dict):
            if isinstance(raw.get("provenance"), list):
                parts["provenance"] = provenances(raw["provenance"], f"{where}.provenance")
            if "clinical_time" in raw:
                time = raw["clinical_time"]
                parts["clinical_time"] = canonical.from_dict(ClinicalTime, time, f"{where}.clinical_time")
        return canonical.from_dict(cls, raw, where, **parts)

    @property
    def slot(self) -> tuple[str | None, str | None]:
        return self.concept, self.attribute


@dataclasses.dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a deleted memory: that it was, and why it went. content_sha256: of its record in the journal."""

    mid: str
    experiencer: str
    inserted_seq: int
    update_seq: int
    reason: str
    content_sha256: str
    score: float | None = None
    tau: float | None = None
    calibration_id: str | None = None

    @classmethod
    def from_dict(cls, raw: Any, where: str = "tombstone") -> Tombstone:
        """Raises: RecordError."""
        return canonical.from_dict(cls, raw, where)


def provenances(raw: list, where: str = "provenance") -> tuple[Provenance, ...]:
    """Raises: RecordError."""
    return tuple(canonical.from_dict(Provenance, p, f"{where}[{i}]") for i, p in enumerate(raw))


def flag_set(flags: Iterable[str]) -> frozenset[str]:
    """Raises: RecordError: no set of FLAGS."""
    if isinstance(flags, str) or not isinstance(flags, (list, tuple, set, frozenset)):
        raise RecordError(f"got {type(flags).__name__}, expected a set of strings", field="flags")
    for flag in flags:
        canonical.choice(flag, "flags", FLAGS)
    return frozenset(flags)


def _spans(value: Any, field: str, length: int) -> tuple[tuple[int, int], ...]:
    """Raises: RecordError."""
    out = []
    for i, span in enumerate(value):
        where = f"{field}[{i}]"
        start, end = canonical.sequence(span, where, int) if len(span) == 2 else (None, None)
        canonical.integer(start, where, 0)
        canonical.integer(end, where, start)
        if end > length:
            raise RecordError(f"got an end of {end}, expected at most {length}", field=where)
        out.append((start, end))
    return tuple(out)
