"""When two memories speak of the same thing, and whether they say the same of it."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from stam_jax.graph.memory import Memory
from stam_jax.rules import vocabulary

SINGLE = frozenset({"dose", "value", "preference", "plan", "status"})
_DOSE = re.compile(r"(?P<n>[0-9]+(?:\.[0-9]+)?) (?P<unit>mg|mcg|g|units|[A-Za-z]+)(?: (?P<rest>.+))?")
_QUALITIES = frozenset(
    {"dry", "productive", "persistent", "chronic", "mild", "severe", "intermittent", "itchy", "acute", "nocturnal"}
)
_FAMILIES = {"penicillin": "penicillin antibiotic", "cephalosporins": "cephalosporin"}  # of a class of allergens
_SCALE = {"g": ("mg", Decimal(1000)), "mcg": ("mg", Decimal("0.001"))}


def same_slot(a: Memory, b: Memory) -> bool:
    return (
        a.concept is not None
        and a.attribute not in (None, "background")
        and a.slot == b.slot
        and a.experiencer == b.experiencer
    )


def belies(a: Memory, b: Memory) -> bool:
    """Whether an allergy `a` makes an end of `b`, that there is none."""
    return (
        a.attribute == b.attribute == "allergy"
        and (a.polarity, b.polarity) == ("AFFIRMED", "NEGATED")
        and b.concept == "drug allergies"
        and a.experiencer == b.experiencer
    )


def narrows(old: Memory, gone: Memory) -> bool:
    """Whether `old` affirms a kind of the symptom that `gone` says has resolved: a dry cough, of the cough."""
    return (
        old.attribute == gone.attribute == "status"
        and (old.polarity, gone.polarity, gone.kind) == ("AFFIRMED", "NEGATED", "EVENT")
        and old.concept is not None
        and gone.concept is not None
        and old.concept.removesuffix(f" {gone.concept}") in _QUALITIES
        and old.experiencer == gone.experiencer
    )


def denies_class(denied: Memory, old: Memory) -> bool:
    """Whether `denied` says that there is no allergy to the class of the drug to which `old` is an allergy."""
    facts = vocabulary.DRUGS.get(old.concept)
    return (
        denied.attribute == old.attribute == "allergy"
        and (denied.polarity, old.polarity) == ("NEGATED", "AFFIRMED")
        and denied.concept in _FAMILIES
        and facts is not None
        and facts.family == _FAMILIES[denied.concept]
        and denied.experiencer == old.experiencer
    )


def agree(a: Memory, b: Memory) -> bool:
    """Whether two memories of one slot say the same. A dose whose words leave out how often agrees with any that has
    the amount, a value that is not there with any."""
    if a.polarity != b.polarity:
        return False
    if a.attribute == "plan" and a.value is None and b.value is None:
        return a.clinical_time.end == b.clinical_time.end or None in (a.clinical_time.end, b.clinical_time.end)
    if a.value is None or b.value is None:
        return a.value == b.value or a.attribute in ("dose", "allergy") and a.polarity == "AFFIRMED"
    if a.attribute == "dose":
        return _doses_agree(a.value, b.value)
    if a.attribute == "value":
        return _number(a.value) == _number(b.value)
    if a.attribute == "allergy":
        return _signs(a.value) == _signs(b.value)
    return _plain(a.value) == _plain(b.value)


def _doses_agree(a: str, b: str) -> bool:
    one, two = _dose(a), _dose(b)
    return all(x is None or y is None or x == y for x, y in zip(one, two))


def _dose(value: str) -> tuple[tuple[str, Decimal] | str | None, str | None]:
    """(amount, frequency), None where the words leave it out."""
    if "," in value or (m := _DOSE.fullmatch(value)) is None:
        return (None, value) if not value[:1].isdigit() else (value, None)
    unit, scale = _SCALE.get(m["unit"], (m["unit"], Decimal(1)))
    return (unit, Decimal(m["n"]) * scale), m["rest"]


def _number(value: str) -> object:
    try:
        return Decimal(value)
    except InvalidOperation:
        return value


def _signs(value: str) -> frozenset[str]:
    """A reaction without the order of its words: "lip swelling", "swelling of the lips"."""
    words = re.findall("[a-z]+", value.lower())
    return frozenset(word.rstrip("s") for word in words if word not in ("of", "the", "and"))


def _plain(value: str) -> str:
    return " ".join(word for word in value.lower().split() if word not in ("a", "an", "the"))
