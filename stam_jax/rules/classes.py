"""Stops of a whole class of drugs: "stop all NSAIDs". Which of its drugs a patient takes, only the memories know."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from stam_jax.graph.memory import Memory
from stam_jax.rules import cues, vocabulary
from stam_jax.rules.intent import begins, paused
from stam_jax.rules.lexicon import named
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

# class -> (its words, the families of its drugs)
_CLASSES = {
    "nsaids": (r"nsaids?|non-?steroidals?|anti-?inflammator(?:y|ies)(?: drugs?| meds?)?", ("nsaid",)),
    "ace inhibitors": (r"ace[ -]?inhibitors?|ace-?is?|acei", ("ace inhibitor",)),
    "sartans": (r"arbs?|sartans?|angiotensin receptor blockers?", ("sartan",)),
    "statins": (r"statins?", ("statin", "cyp3a4 statin")),
    "beta blockers": (r"beta[ -]?blockers?|bb", ("beta blocker",)),
    "diuretics": (r"diuretics?|water pills?", ("loop diuretic", "thiazide", "potassium sparing diuretic")),
    "sulfonylureas": (r"sulfonylureas?|sulphonylureas?", ("sulfonylurea",)),
    "proton pump inhibitors": (r"ppis?|proton pump inhibitors?", ("proton pump inhibitor",)),
    "ssris": (r"ssris?", ("ssri",)),
    "opioids": (r"opioids?|opiates?", ("opioid", "serotonergic opioid")),
    "benzodiazepines": (r"benzodiazepines?|benzos?", ("benzodiazepine",)),
    "anticoagulants": (r"anticoagula(?:nts?|tion)|blood thinners?|doacs?|noacs?", ("warfarin", "anticoagulant")),
    "bisphosphonates": (r"bisphosphonates?", ("bisphosphonate",)),
}
_SPARED = frozenset({"aspirin"})  # of its class by name, but given for something else
_NAME = "|".join(rf"(?P<c{i}>{words})" for i, (words, _) in enumerate(_CLASSES.values()))
_QUALIFIED = r"(?:(?:all|any|the|her|his|my|your|other|further|oral|taking|use of|these|both|every) )*"
_BEFORE = re.compile(
    rf"(?<!\w)(?:stop(?:ped|ping|s)?|hold(?:ing)?|held|discontinu\w+|d/?c'?(?:e?d)?|cease[ds]?|withh[eo]ld|suspend\w*"
    rf"|came off|come off|taken off|off|quit|no more)"
    rf" (?:[a-z-]+,? (?:[a-z-]+,? ){{0,2}}?(?:and|or|&|plus) )??{_QUALIFIED}(?:{_NAME})(?!\w)(?! (?:allerg|cough"
    rf"|intoler))"
)
_AND = re.compile(rf"(?:,| and| or|,? &|/) ?{_QUALIFIED}(?:{_NAME})(?!\w)")
CLASS = re.compile(rf" {_QUALIFIED}(?:{_NAME})(?!\w)")
_AFTER = re.compile(
    rf"(?<!\w){_QUALIFIED}(?:{_NAME})(?: (?:was|were|has|have|been|is|are|now|all|to be))* (?:stopped|held|discontinued"
    rf"|d/?c'?e?d|ceased|withheld|suspended|on hold)(?!\w)"
)
_NOT_NOW = re.compile(
    r"\b(?:not|n't|never|without|avoid\w*|consider\w*|could|might|may|if|when|after|since|before|until|unless|would"
    r"|plan\w*"
    r"|discuss\w*|was|used to|going to|wants? to|refus\w+ to|declin\w+ to|able to|has to|had to)"
    r"(?: (?:to|be|yet|ever|on|the|her|his|being|been|just|suddenly|abruptly|we|she|he|they|it|i|you))* $"
)

_WARNED = re.compile(cues.WARNED)
_ANY = re.compile(rf"(?:{_NAME})(?!\w)")
_FOR_A_WHILE = re.compile(
    r"\b(?:until|till|while|whilst|before|during|if|when|unless|for|prior|pre-?op\w*|today|now|tonight|where"
    r"|with|after|possible|tried?|trying|able|long-?term)\b"
)


def warnings(scene: Scene) -> list[Draft]:
    """Drugs and classes that are to be avoided for good: "Avoid NSAIDs", "should not receive penicillins"."""
    text = scene.text
    if scene.sentence.question or cues.conditional(text, 0, len(text)) or scene.times:
        return []
    out = []
    for m in _WARNED.finditer(text):
        named_there = [x for x in scene.of_kind("drug", "allergen") if x.start == m.end()]
        of_class = _ANY.match(text, m.end())
        if not (named_there or of_class) or _FOR_A_WHILE.search(text):
            continue
        concept = list(_CLASSES)[int(of_class.lastgroup[1:])] if of_class else named_there[0].concept
        out.append(scene.draft(
            0, len(text), kind="PLAN", concept=f"avoid {concept}", attribute="plan",
            experiencer=scene.experiencer(m.start(), m.end())))
    return out


def classes(scene: Scene) -> list[Draft]:
    """A stop of each class that the sentence ends, as background: a class is no drug that one takes."""
    text = scene.text
    if scene.sentence.question or scene.sentence.section in ("allergy", "family"):
        return []
    out, seen = [], set()
    for pattern in (_BEFORE, _AFTER):
        for m in pattern.finditer(text):
            if _NOT_NOW.search(text[max(0, m.start() - 40):m.start()]) or _later(text, m.end()):
                continue
            if begins(scene, m.start(), len(text), (m.span(),)) is not None:
                continue
            if cues.conditional(text, m.start(), m.end()):
                continue
            while m is not None:
                concept = list(_CLASSES)[int(m.lastgroup[1:])]
                if concept not in seen:
                    seen.add(concept)
                    pause = paused(scene, 0, len(text))
                    out.append(scene.draft(
                        0, len(text), kind="EVENT" if pause is None else "STATE", concept=concept,
                        attribute="background", polarity="NEGATED", experiencer=scene.experiencer(m.start(), m.end()),
                        time=pause or scene.time(m.start(), len(text), "past")))
                m = _AND.match(text, m.end()) if pattern is _BEFORE else None
    return out


def _later(text: str, end: int) -> bool:
    """A stop for a while or for later: "hold ACE inhibitor the morning of surgery", "stop NSAIDs 1 week before"."""
    return re.match(
        r"[^.;,]{0,30}\b(?:before|prior to|pre-?op\w*|morning of|day of|on the day|in (?:a|one|two|[0-9]+) (?:day"
        r"|week|month)s?"
        r"|tomorrow|next (?:week|visit|month))\b", text[end:]) is not None


def ends(stop: Memory, drug: Memory) -> bool:
    """Whether `stop` is of the class of `drug`, and names it neither as an exception nor for another reason."""
    return (
        stop.polarity == "NEGATED"
        and stop.attribute in ("background", "dose")
        and stop.concept in _CLASSES
        and (drug.attribute, drug.polarity) == ("dose", "AFFIRMED")
        and drug.experiencer == stop.experiencer
        and _of_class(drug.concept, stop.concept, stop.text)
    )


def within(stops: Sequence[Draft], told: Sequence[Draft]) -> list[Draft]:
    """Of stops of classes the drugs that the entry told of before as taken, each with a stop of its own."""
    out = []
    for stop in stops:
        if stop.attribute != "background" or stop.polarity != "NEGATED" or stop.concept not in _CLASSES:
            continue
        last = {d.concept: d for d in told if d.attribute == "dose" and d.experiencer == stop.experiencer}
        ended = [c for c, d in last.items()
                 if d.polarity == "AFFIRMED" and _of_class(c, stop.concept, stop.statement)]
        if len(ended) == 1 or _every(stop.concept, stop.statement):
            out += [dataclasses.replace(stop, statement=f"{c}: {stop.statement}", concept=c, attribute="dose")
                    for c in ended]
    return out


def _of_class(drug: str | None, concept: str, words: str) -> bool:
    """Whether a drug is of the class `concept`, and the words of the stop name it for no other reason."""
    facts = vocabulary.DRUGS.get(drug)
    return (
        facts is not None
        and drug not in _SPARED
        and facts.family in _CLASSES[concept][1]
        and all(m.concept != drug for m in named(words))
    )


def every(stop: Memory) -> bool:
    """Whether the words of `stop` are of every drug of its class: "all NSAIDs", "statins"; not "the water pill"."""
    return _every(stop.concept, stop.text)


def _every(concept: str, words: str) -> bool:
    names = _CLASSES[concept][0]
    return re.search(
        rf"\b(?:all|any|every|both) (?:[a-z]+ ){{0,2}}(?:{names})(?!\w)|(?<!\w)(?:{names})(?<=s)(?!\w)", words.lower()
    ) is not None
