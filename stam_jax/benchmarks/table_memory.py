"""What a memory of rendered tables says, row by row: the words that its memories cite, read back as fields.

Only what the store holds is looked at. A row that a memory confirmed (a restatement) is cited by it too; a row that was
dropped, blanked or never told is not there.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from stam_jax.graph.memory import Memory
from stam_jax.graph.state import State
from stam_jax.readers.rendered import Rendered, row_of
from stam_jax.readers.table_sentences import parse


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """kind, fields: of `table_sentences`. row: its name in the source. memory: what cites it, None in the record
    itself."""

    kind: str
    fields: dict[str, str]
    row: str
    memory: Memory | None = None


def cited(state: State) -> dict[str, list[Row]]:
    """mid -> the rows that the memory cites, of all memories of a state."""
    out: dict[str, list[Row]] = {}
    for m in state.memories.values():
        of = out[m.mid] = []
        for p in m.provenance:
            entry = state.entries[p.entry_key]
            said, name = parse(entry.text[p.start:p.end]), row_of(entry, p.end)
            if said is not None and name is not None:
                of.append(Row(*said, name, m))
    return out


def joined(found: Mapping[str, Sequence[Row]], mids: Iterable[str] | None = None) -> list[Row]:
    """Rows that memories cite (mids: only these), by the name of the row; each once."""
    once: dict[tuple[str, str], Row] = {}
    for mid in found if mids is None else mids:
        for r in found[mid]:
            once.setdefault((r.row, r.kind), r)
    return [once[key] for key in sorted(once)]


def rows(state: State) -> list[Row]:
    """Rows that the memories of a state cite, ACTIVE and HISTORY."""
    return joined(cited(state))


def told(record: Iterable[Rendered]) -> list[Row]:
    """Rows of rendered entries themselves, whatever became of them."""
    found: dict[tuple[str, str], Row] = {}
    for item in record:
        for _, row in told_at(item):
            found.setdefault((row.row, row.kind), row)
    return [found[key] for key in sorted(found)]


def told_at(item: Rendered) -> list[tuple[tuple[int, int], Row]]:
    """The rows of one entry, each with the [start, end) of its sentence."""
    return [(draft.span, Row(*parse(draft.quote), row_of(item.entry, draft.span[1])))
            for draft in item.extraction.drafts]


@dataclasses.dataclass(frozen=True, slots=True)
class Stay:
    """One hospital stay: admission and discharge as they stand, "" where the discharge is not known."""

    hadm_id: str
    start: str
    end: str
    admission: Row
    discharge: Row | None


def stays(found: Iterable[Row]) -> list[Stay]:
    """Stays in the order of their admissions."""
    ends = {r.fields["hadm_id"]: r for r in found if r.kind == "discharge"}
    begun = [r for r in found if r.kind == "admission"]
    out = [Stay(r.fields["hadm_id"], r.fields["admittime"], d.fields["dischtime"] if d else "", r, d)
           for r in begun for d in [ends.get(r.fields["hadm_id"])]]
    return sorted(out, key=lambda s: (s.start, s.hadm_id))
