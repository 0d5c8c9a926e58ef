"""LoCoMo-shaped benchmarks (MedLoCoMo among them): F1 by category, and whether the served spans hold the evidence.

Nothing is said here about MedLoCoMo's own figures: its notes are credentialed, and its questions are not public.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from stam_jax.graph.memory import Entry, Memory
from stam_jax.metrics import TypeScores, locomo_f1, token_f1, type_scores
from stam_jax.readers.locomo import Question, turns

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclasses.dataclass(frozen=True)
class Scores:
    """f1: LoCoMo's; plain: SQuAD's token F1 of the same answers, categories 1 to 4. recall: mean share of evidence
    turns among those served, over questions with evidence; None where there is none."""

    f1: TypeScores
    plain: TypeScores | None
    recall: float | None
    with_evidence: int


def served(entries: Mapping[str, Entry], memories: Iterable[Memory]) -> set[str]:
    """Turn ids that the cited spans of served memories touch. entries: by key."""
    return {turn for m in memories for p in m.provenance if p.entry_key in entries
            for turn in turns(entries[p.entry_key].text, p.start, p.end)}


def recall(question: Question, found: set[str]) -> float | None:
    """Share of the question's evidence turns among those found; None where it names none."""
    return sum(t in found for t in question.evidence) / len(question.evidence) if question.evidence else None


def score(questions: Sequence[Question], answers: Sequence[str], found: Sequence[set[str]] | None = None) -> Scores:
    """found: turn ids that each question was served (`served`). Raises: ValueError: not as many of each."""
    if len(answers) != len(questions) or (found is not None and len(found) != len(questions)):
        raise ValueError(f"got {len(questions)} questions and {len(answers)} answers, expected as many of each")
    kinds = [CATEGORIES[q.category] for q in questions]
    f1 = type_scores([locomo_f1(a, q.answer, q.category) for q, a in zip(questions, answers)], kinds)
    plain = [(token_f1(a, [q.answer]), k) for q, a, k in zip(questions, answers, kinds) if q.category != 5]
    shares = [r for q, f in zip(questions, found or []) if (r := recall(q, f)) is not None]
    mean = sum(shares) / len(shares) if shares else None
    return Scores(f1, type_scores(*zip(*plain)) if plain else None, mean, len(shares))
