"""Plain words for what a store says in its own: reasons, deciders, relations, slots. Standard library only."""
from __future__ import annotations

import calendar
import re

from stam_jax.graph.transitions import Transition

REASONS = {  # reason -> (with a successor, without one)
    "SUPERSEDED": ("replaced by", "replaced"),
    "RESOLVED": ("ended by", "resolved"),
    "CORRECTED": ("corrected by", "corrected: it was not so"),
    "RESTATED": ("said again by", "said again"),
    "EXPIRED": ("planned end has passed", "planned end has passed"),
    "PRIOR_STATE": ("held before", "held earlier, reported later"),
    "REINSTATED": ("holds again", "holds again"),
    "UNDO": ("brought back by an undo", "brought back by an undo"),
    "CALIBRATED_GATE": ("deleted by the calibrated gate", "deleted by the calibrated gate"),
    "ERASURE_REQUEST": ("erased on request", "erased on request"),
}
RELATIONS = {  # type -> (src to dst, dst to src)
    "restatement": ("says the same as", "says the same as"),
    "same_condition_thread": ("belongs to the same course as", "belongs to the same course as"),
    "drug_interaction": ("interacts with", "interacts with"),
    "systemic_link": ("is linked with", "is linked with"),
    "causal": ("causes", "is caused by"),
    "treatment_for": ("treats", "is treated by"),
    "monitoring_for": ("monitors", "is monitored by"),
}
RULES = {
    "R4": "a newer statement about the same matter",
    "R5": "the dates say which of the two is older",
    "R6": "a later denial ends what was affirmed",
    "R7": "the same value was said again",
    "R9": "an entry is dated after the planned end",
    "R10": "the best of several later statements",
    "R11": "two values in one entry: the later one counts",
}
DECIDERS = {"rule": "a rule", "model": "the model", "user": "a user", "store": "the store"}
GROUPS = (  # attribute -> heading, in the order of the page
    ("allergy", "Allergies"), ("status", "Problems and symptoms"), ("dose", "Medicines"), ("plan", "Plans"),
    ("value", "Measurements"), ("procedure", "Procedures"), ("preference", "Preferences"), ("", "Other notes"),
)
EXPERIENCERS = {"FAMILY": "Family history", "OTHER": "About other people"}
FLAGS = {"needs_review": "needs review", "deletion_proposed": "proposed for deletion",
         "value_unverified": "the value was not found in the quote"}
POLARITIES = {"NEGATED": "denied", "UNCERTAIN": "uncertain", "CONDITIONAL": "conditional"}


def date(iso: str | None) -> str:
    """`2024-03-01T08:00:00` -> `1 Mar 2024`; a shortened date stays short."""
    if iso is None:
        return "date unknown"
    year, month, day = (*iso[:10].split("-"), "", "")[:3]
    return " ".join(p for p in (day.lstrip("0"), calendar.month_abbr[int(month)] if month else "", year) if p)


def reason(t: Transition) -> str:
    with_successor, alone = REASONS[t.reason]
    return with_successor if t.successor is not None else alone


def decider(decided_by: str) -> str:
    """`rule:R9` -> `a rule: an entry is dated after the planned end`; a detail that is not known stays as it is."""
    who, _, detail = decided_by.partition(":")
    if re.match(r"[CN]\d+ ", detail):  # the line by which a writer proposed it
        return f"{DECIDERS[who]} that proposed it, and the checks that let it pass"
    return f"{DECIDERS[who]}: {RULES.get(detail, detail)}" if detail else DECIDERS[who]


def relation(type_: str) -> tuple[str, str]:
    """Words of a relation read forwards and backwards."""
    plain = type_.replace("_", " ")
    return RELATIONS.get(type_, (plain, plain))


_LETTERS = re.compile(r"\b(inr|tsh|ecg|ekg|bnp|ldl|hdl|bmi|e?gfr|copd|gerd|mri|ct|uti|bun|alt|ast|wbc|psa|hiv|dvt)\b")


def title(text: str) -> str:
    """With a capital, and with abbreviations as they are written."""
    text = _LETTERS.sub(lambda m: m[0].upper(), text)
    return text[:1].upper() + text[1:]
