"""Answers to slot questions out of a packet, without a model: the memory that says it, or that none does.

What a question names is found by `names` (canonical concepts of a text) and by the packet's own concepts; what it asks
for by its wording (`stam_jax.read.intent`). Only served memories and the relations between them are looked at.
Standard library only.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stam_jax.graph.clinical_time import bounds, later
from stam_jax.porter import stem
from stam_jax.read.intent import Intent, has, parse
from stam_jax.read.packet import Item, Packet
from stam_jax.read.render import amount, in_order, one_line

NOT_IN_MEMORY = "not in memory"
NOT_MENTIONED = "not mentioned"  # of what is asked for with yes or no
_SPOKEN = {"daily": "once daily", "bid": "twice daily", "tid": "three times daily", "qid": "four times daily",
           "nightly": "at bedtime", "weekly": "once weekly"}
_COUNTS = frozenset(("once", "twice", "times"))
_SMALL = frozenset("a an and any at does for had has her his how in is many much of on or our patient s the their to "
                   "was what when where which who with".split())
Names = Callable[[str], Iterable[str]]


class Finding(NamedTuple):
    """An answer and the memories on which it rests; none where the packet does not say."""

    text: str
    items: tuple[Item, ...] = ()


def no_names(text: str) -> list[str]:
    """For readers without a vocabulary: what the packet calls its concepts is all that is known."""
    return []


def spoken(item: Item) -> str | None:
    """A value in plain words: "850 mg twice daily", "8.1 %"; None where there is none."""
    value = amount(item.memory)
    if value is None or item.memory.attribute != "dose":
        return value
    words = value.split()
    return " ".join(word if before.lower() in _COUNTS else _SPOKEN.get(word.lower(), word)  # "twice weekly"
                    for before, word in zip(["", *words], words))


def find(question: str, packet: Packet, names: Names = no_names) -> Finding:
    """The answer that the packet gives to a question."""
    view = _View(packet, names)
    named = view.named(question)
    intent = parse(question, named)
    if not named and intent.lists is not None and intent.kind in ("current", "check", "past"):
        return _list(view, intent)
    if named and view.lacks_subject(question):
        return Finding(NOT_MENTIONED if intent.kind == "check" else NOT_IN_MEMORY)
    if intent.kind in ("check", "family") or not named:
        return _check(view, question, intent, named)
    return _ANSWERS[intent.kind](view, question, intent, named) or Finding(NOT_IN_MEMORY)


class _View:
    """A packet by concept: `items` in the order of time, what is only a condition left out."""

    def __init__(self, packet: Packet, names: Names):
        self.items = [i for i in in_order(packet.items) if i.memory.polarity != "CONDITIONAL"]
        self.own = [i for i in self.items if i.memory.experiencer == "PATIENT"]
        self.by_mid = {i.mid: i for i in self.items}
        self.concepts = sorted({_concept(i) for i in self.items if i.memory.concept}, key=lambda c: (-len(c), c))
        self.edges = [(self.by_mid[e.src], self.by_mid[e.dst], e.type) for e in packet.edges
                      if e.src in self.by_mid and e.dst in self.by_mid]
        self._names = names

    def named(self, text: str) -> list[str]:
        """Concepts of the packet that a text names, in its order; a name inside a longer name is not counted."""
        low, taken, found = " ".join(text.lower().split()), [], []
        for concept in self.concepts:
            for m in re.finditer(rf"(?<!\w){re.escape(concept)}(?:s|es)?(?!\w)", low):
                if not any(a <= m.start() and m.end() <= b for a, b in taken):
                    taken.append(m.span())
                    found.append((m.start(), concept))
        out = [c for _, c in sorted(found)]
        more = [c.lower() for c in self._names(text)]
        out += [c for c in more if c in self.concepts and not any(c != o and c in o.split() for o in (*out, *more))]
        return list(dict.fromkeys(out)) or self._alike(low)

    def lacks_subject(self, text: str) -> bool:
        """Whether the first thing that a text names is unknown here: "the dose of digoxin for heart failure"."""
        low = " ".join(text.lower().split())
        name = next((c.lower() for c in self._names(text)), None)
        if name is None or any(name in c for c in self.concepts):
            return False
        known = [low.find(c) for c in self.concepts if c in low]
        return 0 <= low.find(name) < min(known, default=-1)

    def _alike(self, low: str) -> list[str]:
        """Preferences of which a word is named ("contacted" for "contact method"), where no concept is."""
        said = {stem(w) for w in re.findall(r"[a-z]+", low)} - _SMALL
        wanted = {_concept(i) for i in self.own if i.memory.attribute == "preference" and i.memory.concept}
        return sorted(c for c in wanted if said & {stem(w) for w in c.split()})

    def slot(self, concepts: Iterable[str], attributes: Iterable[str] = ()) -> list[Item]:
        """The patient's own memories of the first attribute that has any; of all where none is asked for."""
        about = [i for i in self.own if _concept(i) in concepts]
        if not (attributes := tuple(attributes)):
            return about
        return next((found for a in attributes if (found := [i for i in about if i.memory.attribute == a])), [])

    def ends(self, concepts: Iterable[str], type_: str, *, at: str) -> list[Item]:
        """Items at one end (`src`, `dst` or `any`) of relations whose other end is one of the concepts."""
        out = [s for s, d, t in self.edges if t == type_ and at in ("src", "any") and _concept(d) in concepts]
        out += [d for s, d, t in self.edges if t == type_ and at in ("dst", "any") and _concept(s) in concepts]
        return [i for i in out if _concept(i) not in concepts]

    def drugs_for(self, concepts: Iterable[str]) -> list[str]:
        """Drugs that treat something: by a relation, or else by what their memory says."""
        drugs = [_concept(i) for i in self.ends(concepts, "treatment_for", at="src")]
        if not drugs:
            drugs = [_concept(i) for i in self.own if i.memory.attribute == "dose" and _concept(i) not in concepts
                     and set(concepts) & set(self.named(i.memory.text))]
        return list(dict.fromkeys(drugs))

    def others(self, item: Item, cue: str) -> list[str]:
        """Concepts that a memory names after certain words, its own left out."""
        found = re.search(cue, item.memory.text.lower())
        rest = item.memory.text[found.end():] if found else ""
        unknown = [c.lower() for c in self._names(rest)]
        return [c for c in (*self.named(rest), *unknown) if c != _concept(item)]


def _concept(item: Item) -> str:
    return (item.memory.concept or "").lower()


def _holds(items: Iterable[Item]) -> Item | None:
    """The latest that stands in ACTIVE."""
    return next((i for i in reversed(list(items)) if i.place == "ACTIVE"), None)


def _affirmed(items: Iterable[Item]) -> list[Item]:
    """What was so: valued and affirmed, not taken back later."""
    return [i for i in items if i.memory.polarity == "AFFIRMED" and i.memory.value is not None
            and not (i.past and i.past.reason == "CORRECTED")]


def _before(items: list[Item], anchor: Item) -> Item | None:
    """What held before `anchor`: what it followed, else the one before it in time that says something else."""
    old = [i for i in _affirmed(items) if i is not anchor and i.memory.value != anchor.memory.value]
    followed = [i for i in old if i.past and i.past.successor == anchor.mid and i.past.reason == "SUPERSEDED"]
    if followed:
        return followed[-1]
    earlier = [i for i in old if items.index(i) < items.index(anchor)]
    return earlier[-1] if earlier else None


def _said_in(question: str, items: Iterable[Item]) -> Item | None:
    """The memory whose value the question names."""
    low = question.lower()
    found = [(len(words), n, i) for n, i in enumerate(items) for words in {spoken(i), amount(i.memory)}
             if words and re.search(rf"(?<![\w.]){re.escape(words.lower())}(?!\w|\.\d)", low)]
    return max(found, default=(0, 0, None), key=lambda f: f[:2])[2]


# ---- one kind of question each -----------------------------------------------------------------------------------

def _slots(view: _View, intent: Intent, named: list[str]) -> tuple[list[Item], str]:
    """The slot that is asked for, and what to put before its value: over a relation where only that leads there."""
    if items := view.slot(named[:1], intent.attributes) or view.slot(named, intent.attributes):
        return [i for i in items if i.memory.slot == items[-1].memory.slot], ""
    if "dose" in intent.attributes:
        drugs = view.drugs_for(named)
        lasting = [d for d in drugs if (i := _holds(view.slot([d], ["dose"]))) and i.memory.polarity == "AFFIRMED"
                   and not i.memory.clinical_time.end_planned]
        for drug in lasting or drugs:
            return view.slot([drug], ["dose"]), f"{drug} "
    if "plan" in intent.attributes:
        for plan in view.ends(named, "monitoring_for", at="src"):
            return view.slot([_concept(plan)], ["plan"]), f"{_concept(plan)} "
    return [], ""


def _current(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    items, lead = _slots(view, intent, named)
    if intent.date is not None:
        until = [i for i in _affirmed(items) if i.memory.clinical_time.start
                 and bounds(i.memory.clinical_time.start)[0] <= bounds(intent.date)[1]]
        return Finding(lead + spoken(until[-1]), (until[-1],)) if until else None
    found = _holds(items)
    if found is None:
        return None
    if found.memory.polarity == "NEGATED":
        return Finding("stopped" if found.memory.attribute == "dose" else "no", (found,))
    return Finding(lead + (spoken(found) or one_line(found.memory.text)), (found,))


def _past(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    if intent.date is not None:
        return _current(view, question, intent, named)
    items, lead = _slots(view, intent, named)
    if has(r"original|initial|at first|\bfirst\b", question):
        found = next(iter(_affirmed(items)), None)
    else:
        anchor = _said_in(question, items) or _holds(items)
        if anchor is None:  # nothing of it holds any more: the last that did
            found = next(reversed(_affirmed(items)), None)
        else:
            found = _before(items, anchor)
    return Finding(lead + spoken(found), (found,)) if found else None


def _change(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    items, _ = _slots(view, intent, named)
    new = _said_in(question, items) or _holds(items)
    old = None if new is None else _before(items, new)
    if old is None:
        return None
    return Finding(f"from {spoken(old)} to {spoken(new) or 'stopped'}", (old, new))


def _correction(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    items = view.slot(named, intent.attributes) or view.slot(named)
    wrong = [i for i in items if i.past and i.past.reason == "CORRECTED"]
    if not wrong:
        return None
    old = wrong[-1]
    new = view.by_mid.get(old.past.successor or "")
    right = (spoken(new) or one_line(new.memory.text).rstrip(".")) if new else old.past.by
    told = spoken(old) or _concept(old)
    return Finding(f"{told} was wrong" + (f", {right} is right" if right else ""), (old, *((new,) if new else ())))


def _order(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    starts = [next((i for i in view.slot([c]) if i.memory.polarity == "AFFIRMED"), None) for c in named[:2]]
    a, b = starts
    if a is None or b is None:
        return None
    known = later(a.memory.clinical_time, b.memory.clinical_time)
    a_is_later = known == "yes" or known == "unknown" and a.memory.update_seq > b.memory.update_seq
    first, second = (b, a) if a_is_later else (a, b)
    if has(r"^(is|are|did|was|were|has|have)\b", question):
        asked_after = has(r"\b(after|later|follow)", question)
        return Finding("yes" if (first is a) != asked_after else "no", (a, b))
    chosen = second if has(r"\b(later|last|after|more recent)", question) else first
    return Finding(_concept(chosen), (chosen, first if chosen is second else second))


def _course(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    drugs = view.drugs_for(named) or named
    items = [i for i in _affirmed(view.slot(drugs, ["dose"]))]
    short = [i for i in items if i.memory.clinical_time.end is not None or i.past and i.past.reason == "EXPIRED"]
    return Finding(f"{_concept(short[-1])} {spoken(short[-1])}", (short[-1],)) if short else None


def _stopped_for(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    ended = [i for i in view.slot(named) if i.memory.polarity == "NEGATED"]
    for item in reversed(ended):
        if told := view.others(item, r"because|due to|owing to|after|caus|for\b|given"):
            return Finding(told[0], (item,))
    effects = view.ends(named, "causal", at="dst")
    return Finding(_concept(effects[-1]), (*ended[-1:], effects[-1])) if effects else None


def _cause(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    causes = view.ends(named, "causal", at="src") or view.ends(named, "systemic_link", at="any")
    if causes:
        return Finding(_concept(causes[-1]), (causes[-1],))
    for item in reversed(view.slot(named)):
        if told := view.others(item, r"because of|due to|caused by|secondary to|from|complication of|with"):
            return Finding(told[0], (item,))
    return None


def _interaction(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    others = view.ends(named, "drug_interaction", at="any")
    return Finding(", ".join(dict.fromkeys(map(_concept, others))), tuple(others)) if others else None


def _monitoring(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    watched = [*named, *view.drugs_for(named)]
    plans = view.ends(watched, "monitoring_for", at="src") or [i for i in view.slot(named, ["plan"])]
    held = [i for p in plans if (i := _holds(view.slot([_concept(p)], ["plan"])))]
    for item in held or plans:
        return Finding(" ".join(filter(None, (_concept(item), spoken(item)))), (item,))
    return None


def _needed(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    items = view.slot(named, ["plan", "dose"]) or view.slot(named)
    if (found := _holds(items)) is not None and found.memory.polarity != "NEGATED":
        return Finding("yes", (found,))
    past = [i for i in items if i.past]
    if not past:
        return Finding("no", (found,)) if found else None
    by = view.by_mid.get(past[-1].past.successor or "")
    if by is not None and by.memory.polarity == "NEGATED" and by.memory.attribute == "dose":
        return Finding(f"no, {_concept(by)} was stopped", (past[-1], by))
    because = past[-1].past.by
    return Finding(f"no, {because}" if because else "no", (past[-1],))


def _when(view: _View, question: str, intent: Intent, named: list[str]) -> Finding | None:
    attributes = [a for a in intent.attributes if view.slot(named, [a])]
    items = view.slot(named, attributes)
    over = has(r"stop|discontinu|\bend|resolv|\bquit\b|went away|go away", question)
    if has(r"start|begin|began|first|diagnos|onset|initiat", question):
        found = next((i for i in items if i.memory.polarity == "AFFIRMED" and i.memory.clinical_time.start), None)
    elif over:
        found = next((i for i in reversed(items) if i.memory.polarity == "NEGATED"), None)
        if found is None and (past := next((i for i in reversed(items) if i.past and i.past.on), None)):
            return Finding(past.past.on, (past,))
    else:
        found = _holds(items) or next(reversed(items), None)
    if found is None or found.memory.clinical_time.start is None:
        return None
    return Finding(found.memory.clinical_time.start, (found,))


def _check(view: _View, question: str, intent: Intent, named: list[str]) -> Finding:
    """Yes or no, or what is known of relatives."""
    missing = NOT_MENTIONED if intent.kind == "check" else NOT_IN_MEMORY
    relatives = [i for i in view.items if i.memory.experiencer != "PATIENT" and (not named or _concept(i) in named)]
    if intent.kind == "family" or not named:
        if intent.kind != "family" or not relatives:
            return Finding(missing)
        if has(r"^(is|are|does|do|did|has|have|was|were|any)\b", question):
            return Finding("yes", tuple(relatives))
        return Finding("; ".join(one_line(i.memory.text).rstrip(".") for i in relatives), tuple(relatives))
    items = view.slot(named, intent.attributes) or view.slot(named)
    if "dose" in intent.attributes and "allergy" not in intent.attributes:  # being allergic to a drug is not taking it
        items = [i for i in items if i.memory.attribute != "allergy"]
        relatives = [i for i in relatives if i.memory.attribute != "allergy"]
    if not items:
        return Finding("no, a relative does", tuple(relatives)) if relatives else Finding(missing)
    if has(r"mention|record|document|\bever\b|history of", question) and not has(r"\b(now|current|still)", question):
        so = [i for i in items if i.memory.polarity == "AFFIRMED"] or items
        told = so[-1].memory.polarity == "AFFIRMED" or "mention" in question.lower()
        return Finding("yes" if told else "no", (so[-1],))
    found = _holds(items) or items[-1]
    if found.past is not None or found.memory.polarity == "NEGATED":
        return Finding("no", (found,))
    return Finding("suspected" if found.memory.polarity == "UNCERTAIN" else "yes", (found,))


def _list(view: _View, intent: Intent) -> Finding:
    """All that hold (or no longer do) of one kind of slot."""
    wanted = [i for i in view.own if i.memory.attribute == intent.lists and i.memory.polarity == "AFFIRMED"
              and (i.place == "HISTORY") == (intent.kind == "past")]
    latest = {_concept(i) or i.mid: i for i in wanted}
    if not latest:
        return Finding(NOT_IN_MEMORY)
    told = (" ".join(filter(None, (_concept(i), spoken(i)))) or one_line(i.memory.text) for i in latest.values())
    return Finding("; ".join(told), tuple(latest.values()))


_ANSWERS = {"current": _current, "past": _past, "change": _change, "correction": _correction, "order": _order,
            "course": _course, "stopped for": _stopped_for, "cause": _cause, "interaction": _interaction,
            "monitoring": _monitoring, "needed": _needed, "when": _when}
