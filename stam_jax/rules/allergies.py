"""Allergies and intolerances: the allergen and what it does."""

from __future__ import annotations

import re

from stam_jax.rules import cues, vocabulary
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

_NONE = re.compile(
    r"\bnkd?a\b|\bno (?:known )?(?:(?:drug|medication|food|environmental|medicine) )?(?:or (?:food"
    r"|drug) )?allerg(?:y|ies)\b|\bden(?:ies|ied) (?:any )?(?:known )?(?:(?:drug|medication"
    r"|food) )?allergies\b|\bno known allergies\b|"
    r"\bnot allergic to any\w*|\bno (?:history of )?(?:drug|medication) allergies"
    r"|\ballergies: ?(?:none|nil|nkda)|(?:do not|don't) have any (?:known )?(?:drug )?allergies"
)
_OTHERWISE = re.compile(r"\b(?:otherwise|other than|except|apart from|aside from|besides|else)\b")  # "NKDA otherwise"
_ALLERGY = re.compile(
    r"\b(?:avoid\w*|contraindicat\w+|steer clear|(?:do not|don't|never|must not|should not|shouldn't|not to)"
    r" (?:be )?(?:give|given|receive|prescribe|administer|use|have))\b(?=.{0,80}\b(?:anaphyla|hives|angioedema|rash"
    r"|urticaria|swelling|allerg))|\ballerg\w*|\bintoleran\w*|\banaphyla\w+|\badverse (?:drug )?reaction\b"
    r"|\breact(?:s|ed|ion|ions|ing)? (?:to|with|badly|was|from)\b|\breactions?\b"
    r"|\b(?:hyper)?sensitiv(?:e|ity)(?: to)?\b"
    r"|\bside effect from\b|\bdoes(?:n't| not) agree with"
    r" (?:me|him|her)\b|\bbad with\b|\bexposure to\b|\bcannot go near\b|\bcan(?:'t"
    r"|not) (?:take|tolerate|have)\b|\bde-?label\w*"
)
_NOT_THIS = re.compile(r"(?:\b(?:not|nor|rather than|instead of|except|excluding)|n't)(?: (?:to|with|an?|the|any))* $")
_NO_SUCH = re.compile(r"\b(?:no|not|without|denies)(?: (?:an?|any|known|documented|true|previous|history of))* $")
_STANDS_YET = re.compile(
    r"(?:\b(?:cannot|can not|could not|not|never|to|may|might|could|if|for|consider(?:ing)?|pending|await(?:ing)?)|n't)"
    r" (?:(?:yet|be|been|formal|formally|have|get|it|allergy) ){0,3}(?:de-?label\w*|removed|removal|ruled out"
    r"|excluded|lifted|cleared|withdrawn|dropped|resolved|challeng\w+)"
)
_CAUSES = re.compile(
    r"\b(?:causes?|caused|gives?|gave|giving|makes?|made|triggers?|triggered|produces?|brings? on"
    r"|brought on|led to|leads? to|sets? off|results? in|resulted in|broke out|breaks? (?:me|him"
    r"|her)? ?out|break out|breaking out|gets?|got|develop\w*|had|have|swell\w*|came out in"
    r"|come out in|comes out in|"
    r"experienced?|turned|from|with|w(?=/)|after|when|on (?:exposure|contact|ingestion)|exposed|documented|recorded)\b"
)
_DENIED = re.compile(
    r"\b(?:not|no longer|never) (?:truly |actually |really )?allergic\b|\bno (?:known )?(?:allergy"
    r"|allergies|reaction) to\b|\bden(?:ies|ied) (?:any )?(?:allergy|allergies|reaction) to\b"
    r"|(?<!not )(?<!poorly )(?<!badly )(?<!never )\btolerat(?:es|ed|ing)\b(?! (?:poorly|badly))"
    r"|\bde-?labell?ed\b|\bremov\w+ (?:\w+ ){0,5}?allerg\w+|\bremove (?:it|from)\b"
    r"|\btak(?:e|en|ing)\b[^.;]{0,40}\boff (?:\w+ ){0,2}allerg|\btook\b[^.;]{0,40}\boff (?:\w+ ){0,2}allerg"
    r"|\ballerg(?:y|ies|ic|en)\b[^.;]{0,40}\b(?:ruled out|excluded|removed|disproved|disproven|refuted|struck|deleted"
    r"|taken off|lifted|crossed (?:off|out)|dropped|cleared|no longer|outgrow\w*|not (?:been )?confirmed|resolved|gone"
    r"|retired|inactivated|negated|withdrawn|unfounded|expunged|discarded|not (?:real|true|genuine)|never"
    r" (?:real|true))\b|\bno longer (?:has |considered |an? |reacts |listed |to be |has an? )*"
    r"(?:react\w*|allerg\w*|sensitive|intoler\w*)|\boutgr[eo]w\w*|\bpassed (?:an? |the |his |her )?(?:\w+ )?challenge"
    r"|\bchallenge (?:was )?(?:passed|negative)\b|\b(?:can|could) (?:now )?(?:safely |again )?(?:take|have|eat|tolerate"
    r"|be given|receive|use)\b[^.;]{0,40}\b(?:safely|fine|again|without|no problems?|no issues?|no trouble)\b"
    r"|\b(?:without|no) (?:any )?(?:reaction|allergic reaction|adverse reaction)\b(?! (?:recorded|documented"
    r"|listed))|\bisn't allergic\b|\b(?:allergy|allergies)[^.;]{0,40}(?:entered|listed"
    r"|recorded)[^.;]{0,20}(?:in error|by mistake)"
)
_REACTION = re.compile(
    r"(?<![a-z])(?:(?:severe|mild|itchy|bad|diffuse|generali[sz]ed|full-body|local|marked|acute"
    r"|maculopapular|red) )?(?P<r>"
    + "|".join(sorted((re.escape(r) for r in vocabulary.REACTIONS), key=len, reverse=True))
    + r"|swell up|swelled up|sw[oe]ll(?:ed|en)? (?:my|his|her) (?:lips|face|tongue)|(?:(?:my|his|her|the) )?"
    r"(?:lips|face|tongue|throat|eyes) (?:puff\w*|swell\w*|swoll?en|clos\w*|tighten\w*|itch\w*)(?: up| shut)?"
    r"|(?:could|can)(?:n't| not|not) breathe|itchy|itched|itches|broke out|breaks out|breaking out|threw up|throws up"
    r"|throwing up|vomited|vomits|wheezed|wheezy|collapsed?|passed out|faint(?:ed|s)?|puffed up|swelled|swells"
    r"|sick to (?:my|his|her) stomach|itch|break out|throat clos\w+|throat swell\w*|lips swell\w*"
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
    "broke out": "rash",
    "breaks out": "rash",
    "breaking out": "rash",
    "itchy": "itching",
    "itched": "itching",
    "itches": "itching",
    "threw up": "vomiting",
    "throws up": "vomiting",
    "throwing up": "vomiting",
    "vomited": "vomiting",
    "vomits": "vomiting",
    "wheezed": "wheezing",
    "wheezy": "wheezing",
    "collapse": "collapse",
    "collapsed": "collapse",
    "passed out": "syncope",
    "faint": "fainting",
    "fainted": "fainting",
    "faints": "fainting",
    "puffed up": "swelling",
    "swelled": "swelling",
    "swells": "swelling",
}
_PART = re.compile(r"\b(lips|face|tongue|throat|eyes)\b")
_BROKE_OUT = frozenset({"break out", "broke out", "breaks out", "breaking out"})
_BESIDE = re.compile(
    r"[a-z][a-z -]{1,30}? ?(?::|-|–|—|\(|,|=|->|→)[ ]*(?:"
    + _REACTION.pattern.replace("?P<r>", "?:")
    + r")[a-z ,]{0,25}\)?"
)
_LABEL = re.compile(
    r"\b(?:reactions?(?: is| was)?[:=]?|reacts with|manifest\w* (?:as|by)"
    r"|reaction type:?|consist\w* of|in the form of) ?(?P<r>[a-z][a-z ]{2,40})"
)
_SHAPE = re.compile(
    r"(?:\(|: | [-–—] | = |, (?=[a-z -]{3,25}$)|\b(?:causes?|caused|causing|gives? (?:me|him|her)|gave (?:me|him|her)"
    r"|triggers?|triggered|produces?|produced|brings? on|brought on|leads? to|led to|results? in|resulted in"
    r"|develop(?:s|ed)?|experienced?|suffer(?:s|ed)?|resulting in|leading to|i get|he gets|she gets)\b ?)"
    r"(?:(?:an?|the|some|severe|mild|moderate|bad|marked|only|documented|recorded|reported) )*"
    r"(?P<r>[a-z][a-z'-]{2,20}(?: (?!and|but|since|when|in|as|on|with|after|for)[a-z'-]{2,15}){0,2})"
)
_NOT_REACTION = re.compile(
    r"\b(?:unknown|allerg\w*|intoleran\w*|severe|mild|moderate|high|low|date|patient|reactions?|avoid|list\w*|confirmed"
    r"|noted|updated|reviewed|none|nil|see|per|reported|verified|unclear|unspecified|added|removed|active|drug|food"
    r"|medications?|entered|record|chart|please|she|he|i|her|his|my|it|this|which|that|childhood|corrected|changed"
    r"|correction|attribut\w*|due|caus\w*|relat\w*|thought|felt|likely|prob\w*|blam\w*|antibiotics?|class|not|no|now"
    r"|also|is|was|are|documented|known|issues?|problems?|problem|trouble)\b"
)


def allergies(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]], frozenset[int]]:
    """Drafts, the places whose names are reactions or allergens, and the starts of drug names that are allergens."""
    text = scene.text
    if (none := _NONE.search(text)) and not (_OTHERWISE.search(text) and _agents(scene)):
        start, end = _item(scene, none.start(), none.end())
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
            [(start, end)],
            frozenset(m.start for m in scene.of_kind("drug") if start <= m.start < end),
        )
    listed = scene.sentence.section == "allergy"
    word = _ALLERGY.search(text)
    if word is not None and word.group() in ("reaction", "reactions"):  # the stronger word may follow
        word = next((m for m in _ALLERGY.finditer(text) if m.group() in ("allergy", "allergic", "allergies")), word)
    agents = _agents(scene)
    reactions = [
        r
        for r in _REACTION.finditer(text)
        if not (r["r"] in ("faint", "collapse", "collapsed", "passed out", "fainted") and not word)
    ]
    if not agents or scene.sentence.question or not (listed or word or reactions):
        if word and "allerg" in word.group() and not agents and not scene.sentence.question:
            return _unknown(scene)
        return [], [], frozenset()
    strong = (
        listed
        or word is not None
        and word.group() != "react"
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
            or not (
                _CAUSES.search(text)
                or _BESIDE.search(text)
                or re.search(r"\b(?:was|is)\b.*\b(?:not|never|rather than)\b", text)
            )
            or cues.conditional(text.replace("whenever", "when    "), 0, len(text))
        ):
            return [], [], frozenset()
    elif not listed and word is not None and word.group() in ("reaction",) and not reactions:
        return [], [], frozenset()
    elif (
        not listed
        and word is not None
        and not word.group().startswith(("allerg", "anaph", "intoler", "sensit", "hypersens", "react", "de"))
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
        if _NOT_THIS.search(text[:agent.start]) and not re.match(r" allerg", text[agent.end:]):
            continue  # "to plasters, not latex"
        stop = agents[i + 1].start if i + 1 < len(agents) else len(text)
        begin = 0 if i == 0 else agent.start
        denied, reaction = _told(scene, reactions, begin, stop, agent, len(agents) == 1)
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
    places += [(m.start, m.end) for m in scene.of_kind("problem") if any(text[m.start:m.end] == d.value for d in out)]
    stopped = cues.STOP.search(text) is not None and word is not None and "intoler" in word.group()
    return out, places, frozenset() if stopped else frozenset(a.start for a in agents)


def _item(scene: Scene, start: int, end: int) -> tuple[int, int]:
    """The item of a list around [start, end): "HTN, NKDA, ASA 81"; the whole sentence where it has no other drug or
    problem that is not about allergies."""
    text = scene.text
    first = max(text.rfind(",", 0, start), text.rfind(";", 0, start)) + 1
    stop = min((at for c in ",;" if (at := text.find(c, end)) >= 0), default=len(text))
    others = [m for m in scene.of_kind("drug", "problem", "measure", "procedure") if not start <= m.start < end]
    if any(first <= m.start < stop for m in others) or not others or _ALLERGY.search(text[:start] + text[end:]):
        return 0, len(text)
    return first, stop


def _told(scene: Scene, reactions: list[re.Match], begin: int, stop: int, agent: Mention, alone: bool):
    """(whether the allergy is denied, its reaction). What was entered by mistake is denied unless a reaction stands."""
    text = scene.text
    if _DENIED.search(text) and not _STANDS_YET.search(text):
        return True, None
    if re.match(r" allerg", text[agent.end:]) and _NO_SUCH.search(text[:agent.start]):
        return True, None
    reaction = _reaction(scene, reactions, begin, stop, agent, alone)
    return reaction is None and cues.RETRACTED.search(scene.text) is not None, reaction


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
            r"(?:\b(?:not|rather than|instead of|no)|n't) (?:a |an |just |simple )?$", left
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
        names = list(dict.fromkeys(_noun(r["r"]) for r in holding if r["r"] not in _BROKE_OUT or len(holding) == 1))
        pick = [names[-1]] if cues.ERROR.search(text) and len(names) > 1 else names
        return " and ".join(pick) if len(pick) < 3 else ", ".join(pick)
    for m in scene.mentions:
        if m.kind == "problem" and begin <= agent.end <= m.start < stop and "allerg" not in m.concept:
            between = text[agent.end:m.start]
            if len(between) < 60 and not re.search(r"[;.]|\b(?:has|history|also|for|no|not|denies|other)\b", between):
                return text[m.start:m.end]
    label = _LABEL.search(text, begin, stop)
    if label and not _NOT_REACTION.search(label["r"]):
        return re.sub(r"^(?:to|of|with|is|was|a|an) ", "", label["r"].strip()) or None
    shape = _SHAPE.search(text, agent.end, stop)
    if shape and not _NOT_REACTION.search(shape["r"]) and not any(
        a.start < shape.end("r") and shape.start("r") < a.end for a in scene.mentions
    ):
        return shape["r"].strip()
    return None


def _noun(words: str) -> str:
    """A reaction told by a verb as the noun for it."""
    if words in _SAID:
        return _SAID[words]
    if words in vocabulary.REACTIONS or (part := _PART.search(words)) is None:
        return "difficulty breathing" if words.endswith("breathe") else words
    if "clos" in words or "tight" in words:
        return "throat tightness" if "tight" in words else "throat closing"
    return "itchy " + part[1] if "itch" in words else f"swelling of the {part[1]}"


def _unknown(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]], frozenset[int]]:
    """An allergen that no list has: "allergic to hazelnuts (hives)"."""
    text = scene.text
    m = re.search(
        r"\b(?:allergic|hypersensitive|allergy|hypersensitivity|anaphylaxis|anaphylactic reaction) to"
        r" (?P<a>[a-z][a-z -]{2,30}?)(?=$|[,;:.(]| with| which| and (?:get|develop|break)"
        r"| causing| - )",
        text,
    ) or re.search(r"(?:^|[ ,;])(?P<a>[a-z][a-z-]{3,20}(?: [a-z]{3,12})?) allergy\b", text)
    if m is None or re.search(
        r"\b(?:the|any|his|her|my|drug|food|seasonal|known|of|no|for|list|severe|history"
        r"|medication|anything|nothing|environmental|skin)\b",
        m["a"],
    ):
        return [], [], frozenset()
    reactions = list(_REACTION.finditer(text))
    agent = Mention("allergen", m["a"].strip(), m.start("a"), m.end("a"), False)
    denied, reaction = _told(scene, reactions, 0, len(text), agent, True)
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
