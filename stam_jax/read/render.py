"""Items -> text: one line a memory, in the order of clinical time, the same bytes for the same items.

    [2024-03-01] Lisinopril 5 mg daily. (past: superseded by 10 mg daily on 2024-04-02)
    [date unknown] Allergic to penicillin (hives). | source: "Penicillin - hives"

Whatever a memory says, it stays on its line. Standard library only.
"""
from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from stam_jax.graph.clinical_time import bounds
from stam_jax.graph.memory import Memory
from stam_jax.read.packet import Item, Past

_LABELS = {"SUPERSEDED": "superseded by", "CORRECTED": "corrected to", "RESTATED": "restated by",
           "PRIOR_STATE": "followed by", "RESOLVED": "resolved by", "EXPIRED": "ended by", "ENDED": "ended by"}
_NEGATED = {"dose": "stopped", "status": "not present", "allergy": "no allergy", "plan": "called off"}
_PLAIN = {"status": "present", "plan": "planned", "procedure": "done", "allergy": "allergic", "dose": "taken"}


def one_line(text: str) -> str:
    """Every run of blanks, line ends and control characters as one blank."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def amount(m: Memory) -> str | None:
    """Value with its unit, named once: "850 mg bid", "8.1 %"."""
    if m.value is None:
        return None
    return m.value if m.unit is None or m.unit.casefold() in m.value.casefold() else f"{m.value} {m.unit}"


def claim(m: Memory) -> str:
    """What a memory says of its concept, in a few words: "850 mg bid", "stopped", "present (uncertain)"."""
    if m.polarity == "NEGATED":
        return _NEGATED.get(m.attribute or "", f"not: {m.value}" if m.value else "denied")
    value = amount(m) or (_PLAIN.get(m.attribute or "") if m.concept else None) or _short(m.text)
    return f"{value} ({m.polarity.lower()})" if m.polarity in ("UNCERTAIN", "CONDITIONAL") else value


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 48 else text[:47].rstrip() + "…"


def said(m: Memory, of: Memory) -> str:
    """What `m` says instead of `of`: its value where both are about one slot, else its statement."""
    value = amount(m) if m.slot == of.slot else None
    return one_line(value or m.text).rstrip(".")


def label(past: Past) -> str:
    """"(past: superseded by 10 mg daily on 2024-04-02)", without what is not known."""
    words = _LABELS[past.reason]
    words = f"{words} {past.by}" if past.by else words.rsplit(" ", 1)[0]
    return f"(past: {words}{f' on {past.on}' if past.on else ''})"


def head(m: Memory) -> str:
    """What every line of a memory begins with: its date and what it says."""
    return f"[{m.clinical_time.start or 'date unknown'}] {one_line(m.text)}"


def line(item: Item, *, labels: bool = True, spans: bool = False) -> str:
    """One item. labels: say beside a past memory what followed it. spans: add the words of its source."""
    out = head(item.memory)
    if labels and item.past is not None:
        out += " " + label(item.past)
    if spans and item.source:
        out += f' | source: "{one_line(item.source)}"'
    return out


def in_order(items: Iterable[Item]) -> list[Item]:
    """Undated ones first, then by clinical time; what starts together stands in the order in which it was learned."""
    def key(item: Item):
        start = item.memory.clinical_time.start
        first = dt.date.min if start is None else bounds(start)[0]
        return start is not None, first, item.memory.update_seq, item.memory.ordinal, item.mid

    return sorted(items, key=key)


def render(items: Iterable[Item], *, labels: bool = True, spans: bool = False) -> str:
    """The text of a packet; nothing for no items."""
    return "".join(line(item, labels=labels, spans=spans) + "\n" for item in in_order(items))
