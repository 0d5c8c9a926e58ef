"""Relations of a new memory: from slots, from the vocabulary, and from the words of the two sentences."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from stam_jax.graph.memory import Memory
from stam_jax.rules import classes, slots, vocabulary
from stam_jax.rules.lexicon import named
from stam_jax.rules.slots import SINGLE, agree, same_slot
from stam_jax.write.writer import Link, LinkAnswer, LinkTask

_BECAUSE = (
    r"(?:due to|because of|caused by|secondary to|2/2|owing to|side effect of|adverse (?:effect"
    r"|reaction) (?:of|to|from)|attribut\w+ to|induced by|brought on by|result(?:ing|s)? (?:of|from)"
    r"|as a result of|complication of|triggered by|on account of|"
    r"(?:after|since|when|following|ever since|once)(?: \w+){0,3}? (?:start\w*|began|beginning|begun"
    r"|initiat\w+|taking|put on|going on|increas\w+|commenc\w+)|after|since|from|blam\w+ (?:it )?on"
    r"|related to|provoked by|precipitated by|set off by|produced by|driven by|put(?:ting)? (?:it |this |that )?down to"
    r"|pinn(?:ed|ing) (?:it |this )?on|trac(?:ed|ing) (?:it |this )?(?:back )?to|ascrib\w+ (?:it |this )?to"
    r"|aris(?:es?|ing)"
    r" (?:from|out of)|sequela\w* of|manifestation of|attributable to|stems? from|down to|courtesy of|toxicity"
    r" (?:of|from)"
    r"|on the basis of|upon (?:starting|initiation of)|on starting|in response to|result of|consequence of|stemming"
    r" from|thanks to"
    r"|explained by|reaction to|linked to starting|with)"
)
_CAUSES = (
    r"(?:caus\w+|giv(?:es|ing|en)|gave|mak(?:es|ing)|made|led to|leads to|trigger\w*|induc\w+|result(?:s"
    r"|ed|ing) in|leading to|produc\w+|bring(?:s|ing)? on|brought on|responsible for|to blame for|behind|culprit|is why"
    r"|offender|provok\w+|precipitat\w+|set(?:s|ting)? off|contribut\w+ to|account(?:s|ed|ing)? for|explain(?:s|ed"
    r"|ing)?"
    r"|underl(?:ies|ying)|progress\w+ to|complicated by|leaving (?:him|her|me|you|the patient) with|evolv\w+ into"
    r"|(?:reason|trigger|source|cause) (?:of|for))"
)
_BLAMED = re.compile(
    r"[ ](?:is|was|being|seems?|looks?|appears?|may be|might be|to be|as|felt to be)(?: \w+){0,4}? (?:culprit|to blame"
    r"|responsible|cause|offender|behind (?:it|this)|reason|trigger|blamed|implicated|incriminated)\b"
    r"|[ ](?:blamed|implicated|suspected|incriminated|the culprit)\b"
)
_OWING = re.compile(
    r"\b(?:because of|due to|owing to|as a (?:result|consequence) of|on account of|thanks to|secondary to)"
    r"(?: (?:the|his|her|my|your|their|long-?standing|chronic|poorly|controlled|uncontrolled))*[ ]$"
)
_ACCUSED = re.compile(r"\b(?:blam\w+|fault\w*|implicat\w+|accus\w+|hold\w* |held )(?: (?:the|his|her|my|your))*[ ]*$")
_ASCRIBED = re.compile(
    r"\b(?:attribut\w+|ascrib\w+|link\w+|pin\w*|blam\w+|relat\w+|trac\w+|put\w*)(?: (?:the|his|her|my|your|this))*[ ]$"
)
_TOGETHER = re.compile(
    r"\b(?:associated with|in (?:a |the )?(?:patient|setting|context|someone|person|man"
    r"|woman)s? (?:with|of)|in conjunction with|in tandem with|in connection with|hand in hand with|as part of|in"
    r" concert with"
    r"|(?:seen|found|occurr\w+|present\w*|together|common\w*) (?:\w+ ){0,2}(?:in|with)|co-?exist\w*|co-?occur\w* with"
    r"|concomitant with|coincid\w+ with|against (?:a|the) background of|cluster\w* with|in association with|linked"
    r" (?:to|with)|together with|alongside"
    r"|accompan\w*|comorbid with|connected (?:to|with)|goes? (?:along |together )?with"
    r"|coexist\w* with|concurrent with|on (?:a|the) background of|tied to|with (?:known|underlying"
    r"|concomitant|coexisting))\b"
)
_BESIDES = re.compile(
    r"\b(?:along with|together with|besides|in addition to|as well as|on top of)(?: (?:the|your|his"
    r"|her|my|known))? $"
)
_FOR = re.compile(
    r"\b(?:for|to treat|to control|to manage|treat\w*|against|manage\w*|control\w*|because of|to help"
    r"|targets?|prescribed|indication:?)\b"
)
_CLASSES = {d: f.family for d, f in vocabulary.DRUGS.items()}


def link(task: LinkTask) -> LinkAnswer:
    """At most one relation with each candidate."""
    links = []
    for i, old in enumerate(task.candidates):
        found = _relation(task.memory, old, task.candidates)
        if found is not None:
            links.append(Link(i, *found))
    return LinkAnswer(tuple(links))


def _relation(new: Memory, old: Memory, others: Sequence[Memory]) -> tuple[str, bool] | None:
    """(type, whether it goes from the new memory to the old one)."""
    if new.experiencer != old.experiencer or new.concept is None or old.concept is None:
        return None
    if "CONDITIONAL" in (new.polarity, old.polarity):
        return None
    if same_slot(new, old):
        if agree(new, old):
            return "restatement", True
        return ("same_condition_thread", True) if new.attribute in SINGLE or new.attribute == "allergy" else None
    if new.experiencer != "PATIENT":
        return None
    if classes.ends(new, old):
        return "same_condition_thread", True
    if slots.belies(new, old) or slots.belies(old, new) or slots.narrows(old, new):
        return "same_condition_thread", True
    if slots.denies_class(new, old):
        return "same_condition_thread", True
    affirmed = new.polarity == old.polarity == "AFFIRMED"
    for a, b, forward in ((new, old, True), (old, new, False)):
        pair = (a.attribute, b.attribute)
        if pair == ("plan", "dose") and _monitors(a, b):
            return "monitoring_for", forward
        if pair == ("dose", "status") and affirmed and _treats(a, b, others):
            return "treatment_for", forward
    if new.attribute == old.attribute == "dose" and affirmed and interact(new.concept, old.concept):
        return "drug_interaction", True
    for a, b, forward in ((new, old, True), (old, new, False)):
        if b.attribute == "status" and b.polarity == "AFFIRMED" and a.attribute in ("dose", "status") and _causes(a, b):
            return "causal", forward
    if new.attribute == old.attribute == "status" and affirmed and (_together(new, old) or _together(old, new)):
        return "systemic_link", True
    return None


@functools.lru_cache(maxsize=1 << 14)
def _line(text: str) -> str:
    """In lower case, its words one blank apart."""
    return " ".join(text.lower().split())


def _named(text: str, concept: str | None) -> list[tuple[int, int]]:
    return [(m.start, m.end) for m in named(text) if m.concept == concept]


def _monitors(plan: Memory, dose: Memory) -> bool:
    """A plan that names drugs is for these; else for those that call for it."""
    if plan.value is None:
        return False
    drugs = {m.concept for m in named(plan.text) if m.kind == "drug"}
    if drugs:
        return dose.concept in drugs
    facts = vocabulary.DRUGS.get(dose.concept)
    if facts is not None and plan.concept in facts.watched:
        return True
    classes = {c for word, families in vocabulary.CLASS_WORDS.items() if word in plan.text.lower() for c in families}
    return facts is not None and facts.family in classes


def _treats(dose: Memory, problem: Memory, others: Sequence[Memory]) -> bool:
    """A sentence that names what its drug is for is believed, its own first, then an earlier one of the same drug; else
    the most usual indication that is there."""
    facts = vocabulary.DRUGS.get(dose.concept)
    usual = facts.treats if facts is not None else ()
    for one in (dose, *(m for m in others if m.slot == dose.slot and m.experiencer == dose.experiencer)):
        meant = _meant(one)
        if meant:
            return problem.concept in meant
    if problem.concept not in usual:
        return False
    there = {m.concept for m in others if m.attribute == "status" and m.polarity == "AFFIRMED"}
    return not any(p in there for p in usual[:usual.index(problem.concept)])


def _meant(dose: Memory) -> set[str]:
    """What the sentence of a dose says it is for."""
    text = _line(dose.text)
    found = {
        m.concept
        for m in named(text)
        if m.kind == "problem" and (_FOR.search(text[max(0, m.start - 60):m.start]) or text[m.end:m.end + 1] == ":")
    }
    return found if dose.polarity == "AFFIRMED" else set()


def interact(a: str, b: str) -> bool:
    """Whether two drugs call for caution together."""
    one, two = (a, _CLASSES.get(a)), (b, _CLASSES.get(b))
    return a != b and any(frozenset((x, y)) in vocabulary.INTERACTIONS for x in one for y in two if x and y)


def _causes(cause: Memory, effect: Memory) -> bool:
    """The effect's sentence, or a stop's, says that the one brought about the other."""
    for text in dict.fromkeys((effect.text, cause.text if cause.attribute == "dose" else effect.text)):
        low = _line(text)
        spots = named(low if len(low) == len(text) else text)
        effects = [m for m in spots if m.concept == effect.concept]
        if not effects:
            continue
        causes = [m for m in spots if m.concept == cause.concept] or _class_spots(low, cause.concept)
        for c in causes:
            for e in effects:
                first, second = (c, e) if c.start < e.start else (e, c)
                between = low[first.end:second.start]
                if len(between) > 90 or re.search(r"[;.] ", between):
                    continue
                if (
                    first is e
                    and cause.polarity == "AFFIRMED"
                    and re.search(rf"\b{_BECAUSE}\b", between)
                    and (cause.attribute == "dose" or not _TOGETHER.search(between))
                    and not (cause.attribute == "status" and re.search(r"\b(?:after|since|with)\b", between))
                ):
                    return True
                if (
                    first is e
                    and cause.polarity == "AFFIRMED"
                    and _ASCRIBED.search(low[max(0, e.start - 40):e.start])
                    and re.fullmatch(r"[ ](?:back |down )?(?:to|on|upon)(?: (?:the|his|her|my|your))*[ ]", between)
                ):
                    return True
                if first is e and cause.polarity == "AFFIRMED" and _BLAMED.match(low[c.end:c.end + 60]):
                    return True
                if first is c and cause.polarity == "AFFIRMED" and _OWING.search(low[max(0, c.start - 40):c.start]):
                    return True
                if first is c and re.search(r"\bfor\b", between) and _ACCUSED.search(low[max(0, c.start - 40):c.start]):
                    return True
                if first is c and (
                    re.search(rf"\b{_CAUSES}\b", between)
                    or cause.attribute == "dose"
                    and re.search(r"-?induced|-(?:related|associated|provoked|triggered)", between)
                ):
                    return True
                if (
                    first is c
                    and cause.attribute == "dose"
                    and re.match(r"(?:ever )?since|after|when|because", low[max(0, c.start - 40):c.start].lstrip())
                    and text is effect.text
                ):
                    return True
                if (
                    first is c
                    and cause.attribute == "dose"
                    and text is effect.text
                    and re.search(
                        r"\b(?:since|after|when|from|because of)\b[^,;]{0,40}$", low[max(0, c.start - 50):c.start]
                    )
                ):
                    return True
    return False


def _class_spots(text: str, concept: str | None) -> list:
    """Where a sentence names a drug by its class: "the statin"."""
    family = _CLASSES.get(concept)
    out = []
    for word, families in vocabulary.CLASS_WORDS.items():
        if family in families:
            out += [_Spot(m.start(), m.end()) for m in re.finditer(rf"\b{word}s?\b", text)]
    return out


class _Spot:
    __slots__ = ("start", "end")

    def __init__(self, start: int, end: int):
        self.start, self.end = start, end


def _together(a: Memory, b: Memory) -> bool:
    """The sentence of `a` names `b` beside it."""
    low = _line(a.text)
    if not (there := _named(low, b.concept)):
        return False
    here = _named(low, a.concept)
    if any(_TOGETHER.search(low[min(x[1], y[1]):max(x[0], y[0])]) for x in here for y in there if x != y):
        return True
    return bool(here) and any(_BESIDES.search(low[max(0, y[0] - 40):y[0]]) for y in there)
