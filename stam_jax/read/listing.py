"""States, changes and reasons as lines to read on a terminal. Control characters of a record are shown, never sent.

Standard library only.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition
from stam_jax.graph.update import Update
from stam_jax.graph.views import DateView, Why
from stam_jax.read.render import claim

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_WORDS = {"SUPERSEDED": "replaced by", "RESTATED": "said again by", "CORRECTED": "corrected by", "RESOLVED": "ended by",
          "PRIOR_STATE": "older than", "EXPIRED": "its planned end came", "REINSTATED": "holds again"}


def clean(text: str) -> str:
    """One line without control and direction characters, so that a record cannot write to the terminal."""
    return _CONTROL.sub(" ", text).strip()


def when(memory: Memory) -> str:
    """`2020-03-01`, `2020-03-01 to 2020-03-14`, `date unknown`."""
    time = memory.clinical_time
    if time.start is None and time.end is None:
        return "date unknown"
    end = "" if time.end is None else f" to {time.end}{' (planned)' if time.end_planned else ''}"
    return f"{time.start or '?'}{end}"


def summary(memory: Memory) -> str:
    """Date, statement, what was made of it ("lisinopril: stopped"), what is special about it, and its id."""
    notes = [] if memory.experiencer == "PATIENT" else [memory.experiencer.lower()]
    if memory.concept is not None:  # a statement may name several: which one this is, and what it says of it
        notes.append(clean(f"{memory.concept}: {claim(memory)}"))
    elif memory.polarity != "AFFIRMED":
        notes.append(memory.polarity.lower())
    notes += sorted(flag.replace("_", " ") for flag in memory.flags)
    return "  ".join((when(memory), clean(memory.text) + (f" [{', '.join(notes)}]" if notes else ""), memory.mid))


def state(found: State) -> Iterator[str]:
    """What holds and what held, in the order of arrival."""
    active, history = found.active(), found.history()
    gone = len(found.tombstones)
    yield (f"patient {clean(found.patient_id)}: version {found.version}, {len(found.entries)} entries, {len(active)} hold, {len(history)} past"
           + (f", {gone} deleted" if gone else ""))
    yield from _group("HOLDS", (summary(m) for m in active))
    yield from _group("PAST", (f"{summary(m)}  {_left(found, m)}" for m in history))
    yield from _group("NEEDS ANOTHER TRY", (f"{clean(e.source_id)}  {e.entry_key}" for e in found.entries.values() if e.status == "partial"))


def date_view(patient_id: str, found: DateView) -> Iterator[str]:
    """What was true on a date."""
    yield f"patient {clean(patient_id)} on {found.date}, by all that is known now"
    for title, memories in (("HELD", found.held), ("WAS OVER", found.ended), ("HAD NOT BEGUN", found.ahead), ("NOT CERTAIN", found.uncertain)):
        yield from _group(title, map(summary, memories))


def changes(updates: Iterable[Update], found: State) -> Iterator[str]:
    """What each update did, in words. found: a state that knows its memories."""
    for update in updates:
        sources = ", ".join(clean(e.source_id) for e in update.entries)
        yield f"update {update.seq}" + (f": {sources}" if sources else "") + (f" (takes back {update.reverts})" if update.reverts else "")
        moved = {t.mid: t for t in update.transitions}
        for m in update.memories:
            text = summary(m) if isinstance(m, Memory) else f"deleted since  {m.mid}"
            yield f"  + {text}" + (f"  {_reason(found, moved[m.mid])}" if m.mid in moved else "")
        new = {m.mid for m in update.memories}
        for t in update.transitions:
            if t.mid not in new:
                known = found.memories.get(t.mid)
                yield f"  {'-' if t.to != 'ACTIVE' else '+'} {summary(known) if known else t.mid}  {_reason(found, t)}"
        for c in update.confirmations:
            known = found.memories.get(c.mid)
            yield f"  = {summary(known) if known else c.mid}  said again"


def why(found: Why, state_: State) -> Iterator[str]:
    """Places, moves with reason and grounds, and the chain up to what holds now."""
    yield f"{found.mid}: {found.place}" + (f"  {clean(found.record.text)}" if isinstance(found.record, Memory) else "")
    for entry, span in found.sources:
        yield f"  says: {clean(entry.source_id)} ({entry.date or 'undated'}, {clean(entry.kind)}): {quoted(entry, span)}"
    for t in found.transitions:
        assumed = ", which of the two is later was assumed" if t.order == "assumed" else ""
        yield (f"  update {t.update_seq}: {_reason(state_, t)} (decided by {t.decided_by}{_along(found, t, state_)}{assumed})"
               + "".join(f": {quoted(e, span)}" for e, span in given(found, t, state_)))
    if len(found.chain) > 1:
        yield "  leads to: " + " -> ".join(found.chain[1:])


def given(found: Why, t: Transition, state_: State) -> list[tuple[Entry, Provenance]]:
    """The words that a user gave for a reinstatement."""
    return [(e, p) for e, p in found.sources if t.reason == "REINSTATED" and state_.entry_seq[e.entry_key] == t.update_seq]


def _along(found: Why, t: Transition, state_: State) -> str:
    """The way from the new memory to this one, with what stands between its relations."""
    way = [found.relations[rid] for rid in t.way if rid in found.relations]
    out = f" along {way[0].type}" if way else ""
    for before, after in itertools.pairwise(way):
        out += "".join(f" to {clean(state_.memories[mid].text)} ({mid})" for mid in sorted({before.src, before.dst} & {after.src, after.dst}))
        out += f" and from there {after.type}"
    return out


def quoted(entry: Entry, span: Provenance) -> str:
    """The words of the source, or that they were not found in it."""
    words = clean(entry.text[span.start:span.end])
    return f'"{words if len(words) <= 300 else words[:297] + "..."}"' + ("" if span.verified else " (the writer's quote was not found there)")


def _group(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = list(lines)
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _reason(found: State, t: Transition) -> str:
    words = _WORDS.get(t.reason, t.reason.lower().replace("_", " "))
    if t.successor is None:
        return {"RESOLVED": "ended", "CORRECTED": "was wrong", "PRIOR_STATE": "older"}.get(t.reason, words)
    known = found.memories.get(t.successor)
    return f"{words} {clean(known.text)} ({t.successor})" if known else f"{words} {t.successor}"


def _left(found: State, m: Memory) -> str:
    standing = found.standing(m.mid)
    return "" if standing is None else _reason(found, standing)
