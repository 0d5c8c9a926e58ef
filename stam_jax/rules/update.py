"""What new memories do to those that stand: the same again, older, or a state that ends another."""

from __future__ import annotations

import re

from stam_jax.graph.clinical_time import bounds, later
from stam_jax.graph.memory import Entry, Memory
from stam_jax.rules import classes, cues, vocabulary
from stam_jax.rules.lexicon import named
from stam_jax.rules.slots import SINGLE, agree, belies, denies_class, narrows, same_slot
from stam_jax.write.writer import Affected, Placement, UpdateAnswer, UpdateTask, Verdict

_CAUSED = re.compile(
    r"\breactions? (?:(?:was|is|were|been|has|had|now|then|instead) )*(?:attributed|ascribed|put down|due) to"
    r" (?:the )?(?P<what>[a-z][a-z-]+)"
)
_NEAR = 120  # characters within which the cause is told


def update(task: UpdateTask) -> UpdateAnswer:
    placements, verdicts = [], {}
    for n, new in enumerate(task.news):
        placed = None
        for c, affected in enumerate(task.candidates):
            old = affected.memory
            if old.store != "ACTIVE" or new.experiencer != old.experiencer:
                continue
            if same_slot(new, old):
                kind = _against(new, old, task.entry)
                if kind in ("SAME", "PRIOR"):
                    placed = placed or Placement(n, kind, c)
                elif kind is not None:
                    verdicts.setdefault(c, Verdict(c, kind, n))
            elif _classed(old, new, task) and later(old.clinical_time, new.clinical_time) != "yes":
                verdicts.setdefault(c, Verdict(c, "RESOLVED", n))
            elif _of_another(old, new, task.entry) and later(old.clinical_time, new.clinical_time) != "yes":
                verdicts.setdefault(c, Verdict(c, "RESOLVED", n))
            elif belies(new, old) and later(old.clinical_time, new.clinical_time) != "yes":
                verdicts.setdefault(c, Verdict(c, "RESOLVED", n))
            elif belies(old, new) and later(old.clinical_time, new.clinical_time) == "yes":
                placed = placed or Placement(n, "PRIOR", c)
            elif narrows(old, new) and later(old.clinical_time, new.clinical_time) != "yes" and _alone(old, new, task):
                verdicts.setdefault(c, Verdict(c, "RESOLVED", n))
            elif _falls(old, new, affected, task):
                verdicts.setdefault(c, Verdict(c, "RESOLVED", n))
            elif _falls(new, old, affected, task) and later(old.clinical_time, new.clinical_time) == "yes":
                placed = placed or Placement(n, "PRIOR", c)  # the stop was told first
        if placed is not None:
            placements.append(placed)
    return UpdateAnswer(tuple(placements), tuple(verdicts[c] for c in sorted(verdicts)))


def _against(new: Memory, old: Memory, entry: Entry) -> str | None:
    """SAME, PRIOR, a verdict on `old`, or None: both stand."""
    if "CONDITIONAL" in (new.polarity, old.polarity):
        return "SAME" if new.polarity == old.polarity and new.value == old.value else None
    if agree(new, old):
        return "SAME"
    wrong = cues.corrects(new.text, new.attribute)
    if new.attribute == "allergy":
        if new.polarity == "NEGATED" and old.polarity == "AFFIRMED":
            return "CORRECTED" if wrong else "RESOLVED"
        return "CORRECTED" if wrong and new.value is not None else None
    if new.attribute not in SINGLE:
        return None
    if later(old.clinical_time, new.clinical_time) == "yes" or _within(old, new, entry):
        return "PRIOR"
    if new.clinical_time.start is None and old.clinical_time.start is not None:
        return None
    if new.polarity == "UNCERTAIN" and old.polarity == "AFFIRMED":
        return None
    if new.polarity == "NEGATED":
        return "CORRECTED" if _retracts(new) else "RESOLVED"
    if wrong and old.polarity == "AFFIRMED" and new.attribute in ("dose", "value", "plan", "preference"):
        return "CORRECTED"
    return "SUPERSEDED"


def _within(old: Memory, new: Memory, entry: Entry) -> bool:
    """Whether a dose is told of a past month or year in which its stop lies: "took it in 2023", stopped in May 2023."""
    a, b = old.clinical_time.start, new.clinical_time.start
    if new.attribute != "dose" or (old.polarity, new.polarity) != ("NEGATED", "AFFIRMED"):
        return False
    if a is None or b is None or entry.date is None or len(b) >= len(a) or not a.startswith(b):
        return False
    again = re.search(r"\b(?:re-?start|resum|again|back on|re-?commenc|re-?initiat|reinstat)", new.text.lower())
    return bounds(b)[1] < bounds(entry.date)[0] and not again


def _classed(old: Memory, stop: Memory, task: UpdateTask) -> bool:
    """Whether a stop of a class ends `old`; "the water pill" ends none where two are taken."""
    if not classes.ends(stop, old):
        return False
    held = [a.memory for a in task.candidates if a.memory.store == "ACTIVE"]
    return len({m.concept for m in held if classes.ends(stop, m)}) == 1 or classes.every(stop)


def _of_another(old: Memory, denied: Memory, entry: Entry) -> bool:
    """Whether the allergy to a class is denied and its reaction put down to a drug outside of it, so that the allergy
    to a drug of the class ends as well: "not allergic to penicillin; reaction was attributed to clarithromycin"."""
    if not denies_class(denied, old):
        return False
    at = denied.provenance[0]
    cause = _CAUSED.search(entry.text[at.start:at.end + _NEAR].lower())
    blamed = {m.concept for m in named(cause["what"])} & vocabulary.DRUGS.keys() if cause else ()
    family = vocabulary.DRUGS[old.concept].family
    return any(vocabulary.DRUGS[c].family != family for c in blamed)


def _alone(old: Memory, gone: Memory, task: UpdateTask) -> bool:
    """Whether no other symptom of the head noun of `gone` holds beside `old`."""
    others = [a.memory for a in task.candidates if a.memory.mid != old.mid] + list(task.news)
    return not any(
        m.attribute == "status"
        and m.polarity in ("AFFIRMED", "UNCERTAIN")
        and m.store == "ACTIVE"
        and m.experiencer == gone.experiencer
        and m.concept is not None
        and f" {m.concept}".endswith(f" {gone.concept}")
        for m in others
    )


def _retracts(new: Memory) -> bool:
    return new.attribute == "status" and cues.RETRACTED.search(" ".join(new.text.lower().split())) is not None


def _falls(plan: Memory, stop: Memory, affected: Affected, task: UpdateTask) -> bool:
    """A monitoring plan ends with the drug that it watches, unless another drug of the record calls for it."""
    if not (
        stop.attribute == "dose"
        and stop.polarity == "NEGATED"
        and stop.experiencer == "PATIENT"
        and plan.attribute == "plan"
        and plan.polarity == "AFFIRMED"
        and plan.value is not None
    ):
        return False
    if later(plan.clinical_time, stop.clinical_time) == "yes":
        return False
    drugs = {m.concept for m in named(plan.text) if m.kind == "drug"}
    if drugs:
        return drugs == {stop.concept}
    if not _watches(plan, stop.concept):
        mids = {a.memory.mid for a in task.candidates if a.memory.slot == stop.slot} | {stop.mid}
        if not any(r.type == "monitoring_for" and r.src == plan.mid and r.dst in mids for r in affected.path):
            return False
    others = [a.memory for a in task.candidates] + list(task.news)
    return not any(
        m.attribute == "dose"
        and m.polarity == "AFFIRMED"
        and m.store == "ACTIVE"
        and m.concept != stop.concept
        and m.experiencer == "PATIENT"
        and _watches(plan, m.concept)
        for m in others
    )


def _watches(plan: Memory, drug: str | None) -> bool:
    facts = vocabulary.DRUGS.get(drug)
    return facts is not None and plan.concept in facts.watched
