"""What a model can cite: note chunks with exact offsets, and diagnosis codes (EviGen A.1.1, F.3). Plain Python."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

from core_jax.records import Code, Note, Patient, RecordError
from core_jax.text import Span, chunk


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """One citable item. `text == note.text[start:end]` for a note chunk; a code has its title and no offsets.

    `embed_text` is what the encoder reads: the age line, the header and `text`. Neither line is ever part of `text`.
    """

    obs_id: str
    kind: str  # "note" | "code"
    source_id: str
    text: str
    start: int | None
    end: int | None
    time: str | None
    age_years: float | None
    embed_text: str


def _age_line(age_years: float | None) -> str:
    return "" if age_years is None else f"Patient age: {math.floor(max(age_years, 0.0))} years\n\n"


def _first_codes(codes: Sequence[Code]) -> list[Code]:
    """One row per (code, version): the earliest dated one, a dateless one only where there is no other."""
    first: dict[tuple[str, str], Code] = {}
    for c in sorted(codes, key=lambda c: (c.time is None, c.time or "", c.obs_id)):
        first.setdefault((c.code, c.version), c)
    return sorted(first.values(), key=lambda c: (c.time or "", c.obs_id))


def _chunk(n: Note, start: int, end: int) -> Observation:
    text = n.text[start:end]
    return Observation(f"{n.note_id}#{start}-{end}", "note", n.note_id, text, start, end, n.time, n.age_years,
                       f"{_age_line(n.age_years)}Clinical Note:\n{text}")


def _code(c: Code) -> Observation:
    return Observation(c.obs_id, "code", c.obs_id, c.title, None, None, c.time, c.age_years, _age_line(c.age_years) + c.title)


def observations(
    patient: Patient, spans: Callable[[str], Sequence[Span]], size: int = 200, overlap: int = 40
) -> list[Observation]:
    """Chunks of the patient's notes in time order, then the distinct codes in time order.

    Args:
        patient: what may be seen (`records.visible`).
        spans: text -> unit spans, e.g. `Tokenizer.encode_offsets` or `text.word_spans`.

    Raises:
        RecordError: two observations would have one id.
    """
    out = []
    for n in sorted(patient.notes, key=lambda n: (n.time or "", n.note_id)):
        for start, end in chunk(n.text, spans(n.text), size, overlap):
            out.append(_chunk(n, start, end))
    out += map(_code, _first_codes(patient.codes))
    seen: set[str] = set()
    for o in out:
        if o.obs_id in seen:
            raise RecordError(f"patient {patient.patient_id!r}: two observations have the id {o.obs_id!r}", field="obs_id")
        seen.add(o.obs_id)
    return out


def resolve(patient: Patient, wanted: Iterable[tuple[str, str]]) -> list[Observation]:
    """The observations that (obs_id, kind) pairs name in a patient's (visible) record, without tokenising again.

    Raises: RecordError: no such note or code, or offsets outside the note.
    """
    notes, codes = {n.note_id: n for n in patient.notes}, {c.obs_id: c for c in _first_codes(patient.codes)}
    out = []
    for obs_id, kind in wanted:
        if kind == "code":
            if obs_id not in codes:
                raise RecordError(f"no code {obs_id!r} in the record of patient {patient.patient_id!r}", field="obs_id")
            out.append(_code(codes[obs_id]))
            continue
        note_id, _, span = obs_id.rpartition("#")
        start, _, end = span.partition("-")
        if note_id not in notes or not (start.isdecimal() and end.isdecimal()):
            raise RecordError(f"no note chunk {obs_id!r} in the record of patient {patient.patient_id!r}", field="obs_id")
        note = notes[note_id]
        if not int(start) < int(end) <= len(note.text):
            raise RecordError(f"chunk {obs_id!r} lies outside its note of {len(note.text)} characters", field="obs_id")
        out.append(_chunk(note, int(start), int(end)))
    return out
