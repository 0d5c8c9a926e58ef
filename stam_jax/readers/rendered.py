"""Entries written from structured rows, with the drafts that they were written from: extraction has nothing to do."""
from __future__ import annotations

import dataclasses

from core_jax.records import RecordError
from stam_jax.graph.memory import Entry
from stam_jax.write.writer import Draft, Extraction


@dataclasses.dataclass(frozen=True, slots=True)
class Rendered:
    """An entry and its extraction; every draft has the span of its words. Raises: RecordError: a span that differs."""

    entry: Entry
    extraction: Extraction

    def __post_init__(self):
        for i, draft in enumerate(self.extraction.drafts):
            if draft.span is None or self.entry.text[slice(*draft.span)] != draft.quote:
                raise RecordError(f"got {draft.span!r}, expected the span of {draft.quote!r:.80}",
                                  field=f"drafts[{i}].span")
            if not draft.chunk < len(self.entry.chunks):
                raise RecordError(f"got {draft.chunk}, expected less than {len(self.entry.chunks)}",
                                  field=f"drafts[{i}].chunk")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One row in words. row: which row of the source it is. drafts: without quote, span and chunk."""

    sentence: str
    row: str
    drafts: tuple[Draft, ...]


CHUNK = 32  # lines; as many as a chunk may hold memories by default


def render(patient_id: str, source_id: str, kind: str, lines: list[Line], *, date: str | None) -> Rendered:
    """An entry of one line a row, `sentence [row]`, in chunks of CHUNK lines. The sentence is what its drafts quote."""
    text, spans, chunks = "", [], []
    for i, line in enumerate(lines):
        if i % CHUNK == 0:
            chunks.append([len(text), len(text)])
        spans.append((len(text), len(text) + len(line.sentence)))
        text += f"{line.sentence} [{line.row}]\n"
        chunks[-1][1] = len(text)
    drafts = tuple(
        dataclasses.replace(draft, quote=line.sentence, span=span, chunk=i // CHUNK)
        for i, (line, span) in enumerate(zip(lines, spans, strict=True)) for draft in line.drafts)
    entry = Entry.of(patient_id, source_id, kind, text, date=date, author_role="system",
                     chunks=[(a, b) for a, b in chunks])
    return Rendered(entry, Extraction(drafts))


def row_of(entry: Entry, end: int) -> str | None:
    """The row whose sentence ends at offset `end` of a rendered entry; None where none does."""
    if not entry.text.startswith(" [", end):
        return None
    return entry.text[end + 2:entry.text.index("\n", end)].removesuffix("]")
