"""A state as what its page shows: lanes, memories with their moves, sources cut around their quotes. Plain JSON values.

Days are `datetime.date.toordinal` numbers, offsets are in UTF-16 code units, which is how a browser counts.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stam_jax.graph import views
from stam_jax.graph.clinical_time import bounds
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition
from stam_jax.graph.undo import effective
from stam_jax.page import wording
from stam_jax.read.render import claim

WHOLE, AROUND = 20_000, 1_500  # characters: longest entry that a page holds whole; kept around a quote of a longer one


def content(state: State) -> dict[str, Any]:
    """Everything a patient's page needs."""
    keys = {key: i for i, key in enumerate(state.entries)}
    mids = {mid: i for i, mid in enumerate([*state.memories, *state.tombstones])}
    lanes, lane_of = _lanes(state)
    cited: dict[str, list[tuple[int, int]]] = {key: [] for key in keys}
    for m in state.memories.values():
        for p in m.provenance:
            cited[p.entry_key].append((p.start, p.end))
    texts = {key: _Text(e, cited[key]) for key, e in state.entries.items()}
    types = {t.name: i for i, t in enumerate(state.table.types)}
    out = {
        "patient": state.patient_id, "version": state.version,
        "entries": [_entry(state, e, texts[key]) for key, e in state.entries.items()],
        "memories": [_memory(state, m, keys, mids, lane_of[m.mid], texts) for m in state.memories.values()]
        + [_tombstone(state, mid, mids) for mid in state.tombstones],
        "relations": [[mids[r.src], mids[r.dst], types[r.type], r.update_seq, round(r.confidence, 3),
                       {"LINKER": "the linker", "RULE": "a rule", "USER": "a user"}[r.origin]]
                      for r in state.relations.values()],
        "types": [{"name": t.name, "words": list(wording.relation(t.name)), "directed": t.directed}
                  for t in state.table.types],
        "lanes": lanes, "updates": _updates(state),
    }
    return out | {"days": _days(out)}


def _days(out: dict[str, Any]) -> list[int] | None:
    """(first, last) day of everything dated, None where nothing is."""
    days = [d for e in out["entries"] if e["day"] for d in e["day"]]
    days += [d for m in out["memories"] for span in (m["begun"], *m["ends"]) if span for d in span]
    return [min(days), max(days)] if days else None


def _span(date: str | None) -> list[int] | None:
    return None if date is None else [d.toordinal() for d in bounds(date)]


def _updates(state: State) -> list[dict[str, Any]]:
    """One row an update: what it was, in words, and whether it was taken back."""
    out, standing = [], effective(state.updates())
    for u in state.updates():
        dates = [e.date for e in u.entries if e.date]
        if u.reverts is not None:
            words = f"update {u.reverts} is taken back"
        elif u.entries:
            kinds = ", ".join(dict.fromkeys(e.kind for e in u.entries))
            words = f"{kinds}, {wording.date(max(dates)) if dates else 'no date'}"
        elif u.tombstones:
            words = f"{len(u.tombstones)} deleted"
        else:
            words = "changes without a new entry"
        out.append({"seq": u.seq, "words": words, "undone": u.seq not in standing})
    return out


# ---- entries ----------------------------------------------------------------------------------------------------

class _Text:
    """An entry's text in pieces, and where a code point stands in UTF-16."""

    def __init__(self, entry: Entry, spans: Iterable[tuple[int, int]]):
        self.text, self._wide = entry.text, [i for i, c in enumerate(entry.text) if ord(c) > 0xFFFF]
        keep = [(0, len(self.text))] if len(self.text) <= WHOLE else _merged(
            [(0, AROUND)] + [(a - AROUND, b + AROUND) for a, b in spans], len(self.text))
        self.pieces = [[self.unit(a), self.text[a:b]] for a, b in keep]

    def unit(self, offset: int) -> int:
        low, high = 0, len(self._wide)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._wide[middle] < offset else (low, middle)
        return offset + low


def _merged(spans: Iterable[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Spans cut to [0, length), those that touch joined."""
    start = end = 0
    for a, b in sorted((max(0, a), min(length, b)) for a, b in spans):
        if a > end:
            yield start, end
            start = a
        end = max(end, b)
    yield start, end


def _entry(state: State, e: Entry, text: _Text) -> dict[str, Any]:
    return {"key": e.entry_key, "source": e.source_id, "kind": e.kind, "author": e.author_role,
            "date": wording.date(e.date), "day": _span(e.date), "seq": state.entry_seq[e.entry_key],
            "status": {"complete": "", "partial": "a writer failed on it", "reverted": "taken back"}[e.status],
            "length": text.unit(len(e.text)), "pieces": text.pieces}


# ---- memories ---------------------------------------------------------------------------------------------------

def _memory(state: State, m: Memory, keys: dict[str, int], mids: dict[str, int], lane: int,
            texts: dict[str, _Text]) -> dict[str, Any]:
    time = m.clinical_time
    standing = state.standing(m.mid)
    notes = [wording.POLARITIES[m.polarity]] if m.polarity != "AFFIRMED" else []
    return {
        "id": m.mid, "lane": lane, "text": m.text, "label": claim(m), "kind": m.kind,
        "style": m.polarity.lower(), "seq": m.update_seq,
        "notes": notes + [wording.FLAGS[flag] for flag in sorted(m.flags)],
        "since": wording.date(time.start), "until": wording.date(time.end) if time.end else "",
        "planned": time.end_planned, "begun": _span(time.start), "ends": _ends(state, m, standing),
        "sources": [[keys[p.entry_key], texts[p.entry_key].unit(p.start), texts[p.entry_key].unit(p.end), p.verified]
                    for p in m.provenance],
        "moves": [_move(state, t, mids, _ends(state, m, t) if t.to == "HISTORY" else [])
                  for t in state.transitions.get(m.mid, ())],
    }


def _ends(state: State, m: Memory, standing: Transition | None) -> list[list[int] | None]:
    return [_span(end) for end in views.ends(state, m, standing)]


def _tombstone(state: State, mid: str, mids: dict[str, int]) -> dict[str, Any]:
    t = state.tombstones[mid]
    dates = [e.date for key, e in state.entries.items() if state.entry_seq[key] == t.inserted_seq and e.date]
    return {"id": mid, "lane": -1, "text": "", "label": "deleted", "kind": "DELETED", "style": "deleted",
            "seq": t.inserted_seq, "notes": [], "since": wording.date(min(dates) if dates else None), "until": "",
            "planned": False, "begun": _span(min(dates)) if dates else None, "ends": [], "sources": [],
            "moves": [_move(state, move, mids, []) for move in state.transitions[mid]]}


def _move(state: State, t: Transition, mids: dict[str, int], ends: list[list[int] | None]) -> dict[str, Any]:
    """One transition. also: others that would have archived it too; along: the relations from the new memory to it, in
    order; given: what a user said for a reinstatement."""
    dates = [e.date for key, e in state.entries.items() if state.entry_seq[key] == t.update_seq and e.date]
    along = [r for rid in t.way if (r := state.relations.get(rid)) is not None]
    given = [state.entries[p.entry_key].text[p.start:p.end] for p in _provenance(state, t)]
    return {
        "seq": t.update_seq, "to": t.to, "reason": t.reason, "words": wording.reason(t),
        "successor": mids.get(t.successor or ""), "also": [mids[m] for m in t.also_by if m in mids],
        "by": wording.decider(t.decided_by), "line": t.decided_by, "assumed": t.order == "assumed",
        "along": [[mids[r.src], mids[r.dst], wording.relation(r.type)[0]] for r in along], "given": " ".join(given),
        "score": None if t.score is None else f"score {t.score:.4f}, threshold {t.tau:.4f}, {t.calibration_id}",
        "date": wording.date(max(dates)) if dates else "", "ends": ends,
    }


def _provenance(state: State, t: Transition) -> list[Provenance]:
    """Of the words that a user gave for a reinstatement."""
    if t.reason != "REINSTATED" or t.mid not in state.memories:
        return []
    return [p for p in state.memories[t.mid].provenance if state.entry_seq[p.entry_key] == t.update_seq]


# ---- lanes ------------------------------------------------------------------------------------------------------

def _lanes(state: State) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Lanes in the order of the page, and mid -> lane. A lane holds one slot of one person."""
    order = {attribute: i for i, (attribute, _) in enumerate(wording.GROUPS)}
    found: dict[tuple, list[Memory]] = {}
    for m in state.memories.values():
        attribute = m.attribute if m.concept and m.attribute in order else ""
        found.setdefault((m.experiencer, order[attribute], m.concept or "", m.attribute or ""), []).append(m)

    def place(key: tuple) -> tuple:
        who, group, concept, attribute = key
        holds = any(m.store == "ACTIVE" and m.polarity != "NEGATED" for m in found[key])
        return ("PATIENT", "FAMILY", "OTHER").index(who), group, not holds, concept.casefold(), concept, attribute

    lanes, lane_of = [], {}
    for i, key in enumerate(sorted(found, key=place)):
        who, group, concept, attribute = key
        heading = wording.EXPERIENCERS.get(who, wording.GROUPS[group][1])
        said = wording.GROUPS[group][0] == attribute and who == "PATIENT"  # the heading says it
        lanes.append({"group": heading, "concept": concept, "what": "" if said else attribute.replace("_", " "),
                      "name": wording.title(concept) if concept else "Notes"})
        for m in found[key]:
            lane_of[m.mid] = i
    return lanes, lane_of
