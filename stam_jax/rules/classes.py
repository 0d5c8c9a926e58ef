"""Stops of a whole class of drugs: "stop all NSAIDs". Which of its drugs a patient takes, only the memories know."""

from __future__ import annotations

import re

from stam_jax.graph.memory import Memory
from stam_jax.rules import cues, vocabulary
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
            if cues.conditional(text, m.start(), m.end()):
                continue
            while m is not None:
                concept = list(_CLASSES)[int(m.lastgroup[1:])]
                if concept not in seen:
                    seen.add(concept)
                    out.append(scene.draft(
                        0, len(text), kind="EVENT", concept=concept, attribute="background", polarity="NEGATED",
                        experiencer=scene.experiencer(m.start(), m.end()),
                        time=scene.time(m.start(), len(text), "past")))
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
    if not (
        stop.attribute == "background"
        and (stop.kind, stop.polarity) == ("EVENT", "NEGATED")
        and stop.concept in _CLASSES
        and (drug.attribute, drug.polarity) == ("dose", "AFFIRMED")
        and drug.concept not in _SPARED
        and drug.experiencer == stop.experiencer
    ):
        return False
    facts = vocabulary.DRUGS.get(drug.concept)
    families = _CLASSES[stop.concept][1]
    return facts is not None and facts.family in families and all(m.concept != drug.concept for m in named(stop.text))


def every(stop: Memory) -> bool:
    """Whether the words of `stop` are of every drug of its class: "all NSAIDs", "statins"; not "the water pill"."""
    words = _CLASSES[stop.concept][0]
    return re.search(
        rf"\b(?:all|any|every|both) (?:[a-z]+ ){{0,2}}(?:{words})(?!\w)|(?<!\w)(?:{words})(?<=s)(?!\w)",
        stop.text.lower(),
    ) is not None
