"""Which text goes with a deleted memory, and what an entry looks like without it.

A deleted memory leaves no words: its statement, its slot, the spans it cites and other places in those entries that
repeat its statement. What the gate deletes spares characters that a remaining memory cites; what a user erases does
not. An erased patient leaves empty entries under their keys, so that the same entry cannot come back unnoticed.
Standard library only.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.update import Erased, Redaction, Update

if TYPE_CHECKING:
    from stam_jax.graph.state import State

BLOCK = "\u2588"
GONE = "erased"
Span = tuple[int, int]


def blank(entry: Entry, spans: Iterable[Span], *, whole: bool = False) -> Entry:
    """The entry with blocks in place of `spans`; whole: with nothing but its key and status."""
    if whole:
        return Entry(entry.entry_key, entry.patient_id, GONE, GONE, "", None, GONE, (), entry.status)
    text = list(entry.text)
    for start, end in spans:
        text[start:end] = BLOCK * (min(end, len(text)) - start)
    redacted = merged((*entry.redacted, *(s for s in spans if s[1] <= len(text))))
    return dataclasses.replace(entry, text="".join(text), redacted=redacted)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, apart, none empty."""
    out: list[Span] = []
    for start, end in sorted(s for s in spans if s[0] < s[1]):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return tuple(out)


def remains(entry: Entry) -> dict[str, Any]:
    """What the journal keeps of a redacted entry, without its keys."""
    return {k: v for k, v in canonical.to_dict(entry).items() if k not in ("entry_key", "patient_id")}


def fingerprint(entry: Entry) -> str:
    """sha256 of what is left of an entry, whatever its status."""
    return canonical.digest({k: v for k, v in remains(entry).items() if k != "status"})


def plan(state: State, deleted: Mapping[str, bool]) -> list[Redaction]:
    """What to redact when memories go. deleted: mid -> whether what remaining memories cite is spared."""
    wanted: dict[str, tuple[list[Span], list[Span]]] = {}  # entry key -> spans that go, spans that may be spared
    for mid, sparing in deleted.items():
        m = state.memories[mid]
        for key in {p.entry_key for p in m.provenance}:
            spans = wanted.setdefault(key, ([], []))[sparing]
            spans += [(p.start, p.end) for p in m.provenance if p.entry_key == key]
            spans += _repeats(state.entries[key].text, m)
    kept: dict[str, list[Span]] = {key: [] for key in wanted}
    for m in state.memories.values():
        for p in m.provenance:
            if m.mid not in deleted and p.entry_key in wanted:
                kept[p.entry_key].append((p.start, p.end))
    out = []
    for key, (gone, spare) in sorted(wanted.items()):
        entry = state.entries[key]
        spans = merged((*gone, *_without(merged(spare), merged(kept[key]))))
        if spans := tuple(s for s in spans if entry.text[slice(*s)].strip(BLOCK)):
            out.append(Redaction(key, fingerprint(blank(entry, spans)), spans))
    return out


def plan_whole(state: State) -> list[Redaction]:
    """Everything of every entry."""
    return [Redaction(key, fingerprint(blank(entry, (), whole=True)), whole=True)
            for key, entry in sorted(state.entries.items())]


def _repeats(text: str, m: Memory) -> list[Span]:
    words = r"\s+".join(re.escape(w) for w in m.text.split())
    return [found.span() for found in re.finditer(words, text, re.IGNORECASE)]


def _without(spans: Iterable[Span], kept: Iterable[Span]) -> list[Span]:
    out = []
    for start, end in spans:
        for a, b in kept:
            if a < end and start < b:
                if start < a:
                    out.append((start, a))
                start = max(start, b)
        if start < end:
            out.append((start, end))
    return out


def without(update: Update, mids: Collection[str], redactions: Mapping[str, Redaction]) -> Update:
    """A past update as its redacted journal record tells it."""
    return dataclasses.replace(
        update,
        entries=tuple(blank(e, r.spans, whole=r.whole) if (r := redactions.get(e.entry_key)) else e
                      for e in update.entries),
        memories=tuple(Erased(m.mid, m.store, m.experiencer, update.seq)
                       if m.mid in mids and isinstance(m, Memory) else m for m in update.memories),
        confirmations=tuple(c for c in update.confirmations if c.mid not in mids),
        retractions=tuple(c for c in update.retractions if c.mid not in mids),
    )
