"""LoCoMo-shaped benchmarks (MedLoCoMo among them): both scores of an answer.

compat is LoCoMo's F1 by category (`stam_jax.metrics.locomo_f1`), with what is wrong in it: "8.2" and "82" are one word,
another date on the way to the right one earns its share, a list that names everything is right, and to decline counts
in two wordings only. strict is the same F1 over words that keep their numbers whole, nothing where the answer has
another number instead of the gold's, with a list's wrong parts counted against it, and with any wording that declines
right where there is no answer and wrong where there is one.

Nothing is said here about MedLoCoMo's own figures: its notes are credentialed, and its questions are not public.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from stam_jax.benchmarks.judge import Judge, Mark, talk_prompt
from stam_jax.benchmarks.memory_bench import abstains, other_number, strict_contains
from stam_jax.metrics import clinical, locomo_f1, token_f1
from stam_jax.porter import stem
from stam_jax.readers.locomo import ADVERSARIAL, Question

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_PARTS = re.compile(r",(?!\d{3}\b)|\band\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d")


def type_of(question: Question) -> str:
    """The category's name."""
    return question.category if isinstance(question.category, str) else CATEGORIES[question.category]


def marks(questions: Sequence[Question], answers: Sequence[str], judge: Judge | None = None) -> list[Mark]:
    """Both scores of each answer; with a judge, its verdict beside them. An empty answer is wrong without a judge."""
    said = [i for i, a in enumerate(answers) if a.strip()] if judge is not None else []
    verdicts = dict(zip(said, judge([
        talk_prompt(questions[i].text, questions[i].answer, answers[i],
                    answerable=questions[i].category not in ADVERSARIAL) for i in said]))) if said else {}
    return [Mark("F1", compat_f1(q, a), strict_f1(q, a),
                 None if judge is None else float(verdicts.get(i, {}).get("is_correct") is True))
            for i, (q, a) in enumerate(zip(questions, answers, strict=True))]


def compat_f1(question: Question, answer: str) -> float:
    """LoCoMo's own; a type that it has no number for is scored as single-hop."""
    category = 5 if question.category in ADVERSARIAL else question.category
    return locomo_f1(answer, question.answer, 4 if isinstance(category, str) else category)


def strict_f1(question: Question, answer: str) -> float:
    gold = question.answer
    if question.category in ADVERSARIAL:
        return float(abstains(answer) and (abstains(gold) or not strict_contains(answer, [gold])))
    if question.category == 3:
        gold = gold.split(";")[0]
    if abstains(answer) and not abstains(gold):
        return 0.0
    if question.category == 1:
        golds, parts = (_split(text) for text in (gold, answer))
        if not golds or not parts:
            return 0.0
        found = sum(max(_pair(p, g) for p in parts) for g in golds) / len(golds)
        right = sum(max(_pair(p, g) for g in golds) for p in parts) / len(parts)
        return 2 * found * right / (found + right) if found + right else 0.0
    return _pair(answer, gold)


def _split(text: str) -> list[str]:
    return [part for part in _PARTS.split(text) if _words(part)]


def _words(text: str) -> str:
    return " ".join(w if _NUMBER.search(w) else stem(w) for w in clinical(text).split() if w != "and")


def _pair(answer: str, gold: str) -> float:
    """Token F1; 0 where a number of the gold is missing and another stands there."""
    return token_f1(answer, [gold], _words) if _words(gold) and not other_number(answer, gold) else 0.0
