"""What a question asks for, by its wording: the kind of answer and the kind of slot. Standard library only."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from core_jax.records import RecordError
from stam_jax.graph.clinical_time import resolve

# the first kind whose words are found; `pair` kinds need two things that the question names
_KINDS: tuple[tuple[str, str], ...] = (
    ("correction", r"mistake|in error|erroneous|incorrect|wrong|misrecorded|put right"),
    ("needed", r"(still|any ?more|any longer|continue).*(need|necessary|requir|due\b)"
               r"|(need|necessary|requir|due).*(still|any ?more|any longer)|no longer (need|necessary|requir)"),
    ("stopped for", r"(why|what|reason|how come).*(stop|discontinu|\bquit\b|withdr|taken off|came off|come off)"),
    ("interaction", r"interact|(clash|conflict|not be combined).*with"),
    ("monitoring", r"(check|monitor|surveill|blood test|follow-?up)\w*.*(go(es)? with|for the|because of|drug|medic)"
                   r"|(which|what).*(check|monitoring|surveillance|test)s? (is|are|has|have|must|should|does)"),
    ("order", r"\b(first|earlier|sooner|later|last|before|after|more recent(ly)?|preced|follow)"),
    ("course", r"\bcourse\b|short(-term)? (treatment|therapy)"),
    ("change", r"\bchang\w*.*\b(from|to|how)\b|\bhow\b.*\b(chang|develop|evolv|adjust)|what (has |have )?changed"
               r"|from (what|which)\b.*\bto\b"),
    ("past", r"\bbefore\b|previous|\bprior\b|former|used to|original|initial|at first|\bfirst\b|earlier|\bold(er)?\b"
             r"|last time|until"),
    ("when", r"^(and )?(since )?when\b|what (date|day|month|year)|which (date|day|month|year)|how long ago"),
    ("cause", r"\bbehind\b|\bcaus|due to|because|explain|responsible|underl|result of|\bled to|lead to|\bwhy\b"
              r"|secondary to|brought on"),
    ("family", r"\b(family|relatives?|mother|father|sister|brother|parents?|aunt|uncle|grand\w+|siblings?)\b"),
    ("check", r"^(and )?(is|are|does|do|did|has|have|was|were|can|any)\b"),
)
_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    ("allergy", r"allerg|\breact"),
    ("dose", r"\bdos(e|es|ed|age|ages|ing)\b|how much|strength|milligram|\bmg\b|\b(take|takes|taking|prescribed)\b"
             r"|^(and )?(is|are|was|were) (.*\bgiven\b|(\w+ ){1,4}on\b)|^(and )?(does|do|did|has) .*\breceiv"),
    ("plan", r"interval|how often|how frequent|schedule|appointment"),
    ("preference", r"prefer|wish|choice|would like"),
    ("procedure", r"surg|operat|procedure|implant"),
    ("value", r"\bvalues?\b|level|reading|result|measur|\blabs?\b"),
    ("status", r"diagnos|problem|symptom|condition|suffer|illness|disease"),
)
_LISTS: tuple[tuple[str, str], ...] = (
    ("dose", r"medications?|medicines?|drugs|pills"), ("allergy", r"allerg(ies|ic)"),
    ("status", r"problems?|diagnos[ei]s|conditions?|symptoms"), ("procedure", r"surger(y|ies)|operations?|procedures"),
    ("plan", r"plans?|appointments?"), ("preference", r"preferences?"))
_DATE = re.compile(r"\b(?:on|in|at|by|of|during) ((?:[a-z]+\.? )?(?:\d{1,2}(?:st|nd|rd|th)?,? )?(?:[a-z]+\.?,? )?\d{4}"
                   r"(?:-\d{2}(?:-\d{2})?)?)\b")


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """kind: one of those above, or "current". attributes: kinds of slot that the words fit, the best first.

    lists: the slot of which all are asked, where nothing is named. date: the day that the question is about.
    """

    kind: str
    attributes: tuple[str, ...] = ()
    lists: str | None = None
    date: str | None = None


def has(pattern: str, question: str) -> bool:
    return re.search(pattern, question.lower()) is not None


def parse(question: str, named: Sequence[str]) -> Intent:
    """named: the concepts of the record that the question names, lower case; their own words ask for nothing."""
    text = " ".join(question.lower().split())
    for concept in named:
        text = text.replace(concept, "_")
    kinds = [kind for kind, words in _KINDS if re.search(words, text) and (kind != "order" or len(named) > 1)]
    return Intent(kinds[0] if kinds else "current", tuple(a for a, words in _ATTRIBUTES if re.search(words, text)),
                  next((a for a, words in _LISTS if re.search(rf"\b(?:{words})\b", text)), None), _date(text))


def _date(text: str) -> str | None:
    for found in _DATE.finditer(text):
        try:
            if (start := resolve(found[1], None).start) is not None:
                return start
        except RecordError:
            continue
    return None
