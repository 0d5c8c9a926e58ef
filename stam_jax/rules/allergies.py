"""Allergies and intolerances: the allergen and what it does."""

from __future__ import annotations

import re

from stam_jax.rules import cues, vocabulary
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.scene import Scene
from stam_jax.writer import Draft

_NONE = re.compile(
    r"\bnkd?a\b|\bno (?:known )?(?:(?:drug|medication|food|environmental|medicine) )?(?:or (?:food"
    r"|drug) )?allerg(?:y|ies)\b|\bden(?:ies|ied) (?:any )?(?:known )?(?:(?:drug|medication"
    r"|food) )?allergies\b|\bno known allergies\b|"
    r"\bnot allergic to any\w*|\bno (?:history of )?(?:drug|medication) allergies"
    r"|\ballergies: ?(?:none|nil|nkda)|(?:do not|don't) have any (?:known )?(?:drug )?allergies"
)
_ALLERGY = re.compile(
    r"\ballerg\w*|\bintoleran\w*|\banaphyla\w+|\badverse (?:drug )?reaction\b|\breact(?:s|ed|ion"
    r"|ions|ing)? (?:to|with|badly|was|from)\b|\breaction\b|\bsensitiv(?:e|ity) to\b|\bcan(?:'t"
    r"|not) (?:take|tolerate|have)\b"
)
_CAUSES = re.compile(
    r"\b(?:causes?|caused|gives?|gave|giving|makes?|made|triggers?|triggered|produces?|brings? on"
    r"|brought on|led to|leads? to|sets? off|results? in|resulted in|broke out|breaks? (?:me|him"
    r"|her)? ?out|break out|breaking out|gets?|got|develop\w*|had|have|swell\w*|came out in"
    r"|come out in|comes out in|"
    r"experienced?|turned|from|with|after|when)\b"
)
_DENIED = re.compile(
    r"\b(?:not|no longer|never) (?:truly |actually |really )?allergic\b|\bno (?:known )?(?:allergy"
    r"|allergies|reaction) to\b|\bden(?:ies|ied) (?:any )?(?:allergy|allergies|reaction) to\b"
    r"|\btolerat(?:es|ed)\b|\bde-?labell?ed\b|\ballergy (?:was )?(?:ruled out|excluded|removed"
    r"|disproved|disproven)\b|\bisn't allergic\b|\b(?:allergy|allergies)[^.;]{0,40}(?:entered|listed"
    r"|recorded)[^.;]{0,20}(?:in error|by mistake)"
)
_REACTION = re.compile(
    r"(?<![a-z])(?:(?:severe|mild|itchy|bad|diffuse|generali[sz]ed|full-body|local|marked|acute"
    r"|maculopapular|red) )?(?P<r>"
    + "|".join(sorted((re.escape(r) for r in vocabulary.REACTIONS), key=len, reverse=True))
    + r"|swell up|swelled up|itch|break out|throat clos\w+|throat swell\w*|lips swell\w*"
    r"|face swell\w*|tongue swell\w*|lips swelled|face swelled|can't breathe|vomit|throw up"
    r"|hive|rashes|wheeze|nauseous|nauseated)(?![a-z])"
)
_SAID = {
    "hive": "hives",
    "rashes": "rash",
    "itch": "itching",
    "vomit": "vomiting",
    "throw up": "vomiting",
    "wheeze": "wheezing",
    "nauseous": "nausea",
    "nauseated": "nausea",
    "can't breathe": "difficulty breathing",
    "swell up": "swelling",
    "swelled up": "swelling",
    "lips swell": "swelling of the lips",
    "lips swelled": "swelling of the lips",
    "face swell": "swelling of the face",
    "face swelled": "swelling of the face",
    "tongue swell": "swelling of the tongue",
    "throat closing up": "throat closing",
    "break out": "rash",
    "lip swelling": "swelling of the lips",
    "swollen lips": "swelling of the lips",
    "facial swelling": "swelling of the face",
    "tongue swelling": "swelling of the tongue",
}
_BESIDE = re.compile(
    r"[a-z][a-z -]{1,30}? ?(?::|-|–|—|\(|,|=)[ ]*(?:" + _REACTION.pattern.replace("?P<r>", "?:") + r")[a-z ,]{0,25}\)?"
)
_LABEL = re.compile(
    r"\b(?:reactions?(?: is| was)?[:=]?|reacts with|manifest\w* (?:as|by)"
    r"|reaction type:?) ?(?P<r>[a-z][a-z ]{2,40})"
)


def allergies(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]], frozenset[int]]:
    """Drafts, the places whose names are reactions or allergens, and the starts of drug names that are allergens."""
    text = scene.text
    if none := _NONE.search(text):
        start, end = (0, len(text))
        return (
            [
                scene.draft(
                    start,
                    end,
                    kind="BACKGROUND",
                    concept="drug allergies",
                    attribute="allergy",
                    polarity="NEGATED",
                    experiencer=scene.experiencer(none.start(), none.end()),
                )
            ],
            [(0, len(text))],
            frozenset(),
        )
    listed = scene.sentence.section == "allergy"
    word = _ALLERGY.search(text)
    agents = _agents(scene)
    reactions = list(_REACTION.finditer(text))
    if not agents or scene.sentence.question or not (listed or word or reactions):
        if word and "allerg" in word.group() and not agents and not scene.sentence.question:
            return _unknown(scene)
        return [], [], frozenset()
    strong = (
        listed
        or word is not None
        and re.search(r"allerg|anaphyl|intoleran|reaction|react|sensitiv|can(?:'t" r"|not)", word.group()) is not None
    )
    if not strong and _BESIDE.fullmatch(text) and agents[0].kind == "allergen" and agents[0].start == 0:
        strong = True
    if not strong:
        agents = [a for a in agents if a.kind == "allergen"]
        fits = [
            r
            for r in reactions
            if r["r"] in vocabulary.ALLERGIC_REACTIONS
            or _SAID.get(r["r"]) in vocabulary.ALLERGIC_REACTIONS
            or _SAID.get(r["r"]) == "rash"
            or any(a.concept in vocabulary.ALLERGENS for a in agents)
            or re.search(r"\b(?:gives? me|causes?|in me)\b", text)
        ]
        if (
            not agents
            or not fits
            or not (_CAUSES.search(text) or re.search(r"\b(?:was|is)\b.*\b(?:not|never|rather than)\b", text))
            or cues.conditional(text, 0, len(text))
        ):
            return [], [], frozenset()
    elif not listed and word is not None and word.group() in ("reaction",) and not reactions:
        return [], [], frozenset()
    elif (
        not listed
        and word is not None
        and not word.group().startswith(("allerg", "anaph", "intoler", "sensit", "react", "reaction"))
        and not reactions
    ):
        return [], [], frozenset()
    if (
        not listed
        and word is not None
        and re.match(
            r"allergic rhinitis|allergist|allergy (?:clinic|shots?|season" r"|test)|seasonal", text[word.start():]
        )
    ):
        return [], [], frozenset()
    out = []
    for i, agent in enumerate(agents):
        stop = agents[i + 1].start if i + 1 < len(agents) else len(text)
        begin = 0 if i == 0 else agent.start
        denied = _DENIED.search(text) is not None
        reaction = None if denied else _reaction(scene, reactions, begin, stop, agent, len(agents) == 1)
        start, end = (0, len(text)) if len(agents) == 1 else (agent.start, stop)
        out.append(
            scene.draft(
                start,
                end,
                kind="BACKGROUND",
                concept=agent.concept,
                attribute="allergy",
                value=reaction,
                polarity="NEGATED" if denied else "AFFIRMED",
                experiencer=scene.experiencer(agent.start, agent.end),
            )
        )
    places = [(r.start(), r.end()) for r in reactions] + [(a.start, a.end) for a in agents]
    stopped = cues.STOP.search(text) is not None and word is not None and "intoler" in word.group()
    return out, places, frozenset() if stopped else frozenset(a.start for a in agents)


def _agents(scene: Scene) -> list[Mention]:
    """Names of what one may be allergic to, each place once, each concept once."""
    out: list[Mention] = []
    for m in scene.of_kind("allergen", "drug"):
        if any(o.start <= m.start < o.end or o.concept == m.concept for o in out):
            continue
        if m.kind == "drug" and not m.known:
            continue
        if m.kind == "drug":
            m = Mention("allergen" if m.concept in _USUAL else "drug", m.concept, m.start, m.end)
        if (
            m.concept
            in (
                "milk",
                "fish",
                "eggs",
                "wheat",
                "soy",
                "cat dander",
                "dog dander",
                "dust mites",
                "adhesive tape",
                "vaccines",
                "opioids",
                "statins",
            )
            and not _ALLERGY.search(scene.text)
            and scene.sentence.section != "allergy"
        ):
            continue
        out.append(m)
    return sorted(out, key=lambda m: m.start)


_USUAL = frozenset(
    {
        "codeine",
        "aspirin",
        "amoxicillin",
        "ibuprofen",
        "naproxen",
        "cephalexin",
        "trimethoprim-sulfamethoxazole",
        "morphine",
        "ampicillin",
        "penicillin v",
        "erythromycin",
        "clindamycin",
        "vancomycin",
        "tetracycline",
        "ciprofloxacin",
        "azithromycin",
        "doxycycline",
        "levofloxacin",
    }
)


def _reaction(
    scene: Scene, reactions: list[re.Match], begin: int, stop: int, agent: Mention, alone: bool
) -> str | None:
    text = scene.text
    here = [r for r in reactions if begin <= r.start() < stop and not (agent.start <= r.start() < agent.end)]
    here = here or ([r for r in reactions] if alone else [])
    holding = []
    for i, r in enumerate(here):
        left = text[max(begin, here[i - 1].end() if i else 0, r.start() - 50):r.start()]
        right = text[r.end():r.end() + 50]
        if cues.OLD_BEFORE.search(left) or re.search(
            r"\b(?:not|rather than|instead of|no) (?:a |an |just |simple )?$", left
        ):
            continue
        if (
            len(here) > 1
            and cues.ERROR.search(text)
            and (
                cues.WRONG_AFTER.match(right)
                or re.search(r"\b(?:listed|recorded|entered|documented|charted|changed|from)\b[^,;]{0,25}$", left)
                and not re.search(r"\bto $|\bto (?:a|an) $", left)
            )
        ):
            continue
        holding.append(r)
    if holding:
        names = list(
            dict.fromkeys(_SAID.get(r["r"], r["r"]) for r in holding if r["r"] != "break out" or len(holding) == 1)
        )
        pick = [names[-1]] if cues.ERROR.search(text) and len(names) > 1 else names
        return " and ".join(pick) if len(pick) < 3 else ", ".join(pick)
    if any(begin <= m.start < stop and m.kind == "problem" for m in scene.mentions) and re.search(r"\bintoler", text):
        return next(m.concept for m in scene.mentions if begin <= m.start < stop and m.kind == "problem")
    label = _LABEL.search(text, begin, stop)
    if label:
        return re.sub(r"^(?:to|of|with|is|was|a|an) ", "", label["r"].strip()) or None
    return None


def _unknown(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]], frozenset[int]]:
    """An allergen that no list has: "allergic to hazelnuts (hives)"."""
    text = scene.text
    m = re.search(
        r"\ballergic to (?P<a>[a-z][a-z -]{2,30}?)(?=$|[,;:.(]| with| which| and (?:get|develop|break)"
        r"| causing| - )",
        text,
    ) or re.search(r"(?:^|[ ,;])(?P<a>[a-z][a-z-]{3,20}(?: [a-z]{3,12})?) allergy\b", text)
    if m is None or re.search(
        r"\b(?:the|any|his|her|my|drug|food|seasonal|known|of|no|for|list|severe|history"
        r"|medication|anything|nothing|environmental|skin)\b",
        m["a"],
    ):
        return [], [], frozenset()
    denied = _DENIED.search(text) is not None
    reactions = list(_REACTION.finditer(text))
    agent = Mention("allergen", m["a"].strip(), m.start("a"), m.end("a"), False)
    reaction = None if denied else _reaction(scene, reactions, 0, len(text), agent, True)
    draft = scene.draft(
        0,
        len(text),
        kind="BACKGROUND",
        concept=agent.concept,
        attribute="allergy",
        value=reaction,
        polarity="NEGATED" if denied else "AFFIRMED",
        experiencer=scene.experiencer(agent.start, agent.end),
    )
    return [draft], [(0, len(text))], frozenset()
