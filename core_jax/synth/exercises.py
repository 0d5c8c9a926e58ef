"""Small made-up training rows of three kinds, for smoke runs: examples.py reads them, a tiny model learns them.

They show that a recipe runs and lowers its loss, nothing more; real rows come from patients' records.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_FINDINGS = ("ejection fraction", "creatinine", "haemoglobin", "sodium", "lactate", "albumin")
_GRAVE = ("metastatic cancer", "home hospice", "septic shock", "ventilator dependence")
_MILD = ("seasonal allergies", "a sprained ankle", "a routine check-up", "a cataract operation")
_DRUGS = ("lisinopril", "metformin", "warfarin", "furosemide", "atorvastatin")
_EVENTS = {"start": "was started", "stop": "was stopped", "increase": "was increased"}


def verify(rng: random.Random, tokens: Sequence[str]) -> dict[str, Any]:
    """A statement about evidence, its number right or not, and the label of that. The placeholder is read, the label
    predicted. tokens: context end, step, placeholder, correct, wrong."""
    end, step, placeholder, correct, wrong = tokens
    name, value = rng.choice(_FINDINGS), rng.randint(10, 99)
    right = rng.random() < 0.5
    said = value if right else (value + rng.randint(1, 80)) % 90 + 10
    right = said == value
    return {"pieces": [
        {"text": f"Note {rng.randint(1, 9)}: {name} {value}."}, {"token": end},
        {"text": f" The {name} is {said}.", "loss": True}, {"token": step, "loss": True},
        {"token": placeholder, "target": correct if right else wrong, "loss": True}]}


def predict(rng: random.Random, tokens: Sequence[str]) -> dict[str, Any]:
    """A short record and whether its patient dies within a year."""
    grave = rng.random() < 0.5
    lines = [rng.choice(_MILD) for _ in range(2)] + ([rng.choice(_GRAVE)] if grave else [])
    rng.shuffle(lines)
    record = "".join(f"- {line}\n" for line in lines)
    return {"prompt": f"Record:\n{record}Death within one year, Yes or No?", "completion": " Yes" if grave else " No"}


def write(rng: random.Random, tokens: Sequence[str]) -> dict[str, Any]:
    """A sentence of a note and the memory made of it."""
    drug, event, dose = rng.choice(_DRUGS), rng.choice(list(_EVENTS)), 5 * rng.randint(1, 20)
    return {"prompt": f"Note: {drug} {dose} mg daily {_EVENTS[event]}.\nMemory:",
            "completion": f' {{"drug": "{drug}", "dose": "{dose} mg", "event": "{event}"}}'}


KINDS: dict[str, Callable[[random.Random, Sequence[str]], dict[str, Any]]] = {
    "verify": verify, "predict": predict, "write": write}


def rows(kind: str, count: int, seed: int, tokens: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """`count` rows. Raises: ValueError: another kind, another number of tokens than it uses."""
    if kind not in KINDS:
        raise ValueError(f"exercise: got {kind!r}, expected one of {tuple(KINDS)}")
    if kind == "verify" and len(tokens) != 5:
        raise ValueError(f"exercise verify: got {len(tokens)} tokens, expected 5")
    rng = random.Random(f"{kind} {seed}")
    for _ in range(count):
        yield KINDS[kind](rng, tokens)
