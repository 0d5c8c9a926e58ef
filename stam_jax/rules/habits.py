"""Tobacco and alcohol (uses, used to, never did), pack years; pregnancies and the last menstrual period."""

from __future__ import annotations

import re

from stam_jax.rules import cues
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

# ---- words that many patterns share -------------------------------------------------------------------------------

_IS = r"(?: (?:use|user|status|history|hx|consumption|intake|abuse))?(?: ?[:=–—-]+ ?| is | )"  # "tobacco use: "
_TOBACCO = r"(?:tob(?:acco)?|smok(?:ing|er)|cigarettes?|cigs|nicotine)"
_ALCOHOL = r"(?:alcohol|etoh|drinking|drinker)"
_PROBLEM = r"(?! (?:use disorder|abuse|dependence|withdrawal|intoxication|level|cessation|hepatitis|cirrhosis|gel))"
_GLASS = (
    r"(?:alcoholic )?(?:beers?|wines?|drinks?|glass(?:es)?|pints?|units|shots?|whiske?y|vodka|spirits|liquor|cans?"
    r"|ciders?)"
)
_DENIED = (  # "denies any use of tobacco, alcohol or illicit drugs", up to the name that is looked for
    r"(?:denie[sd]|denying|no|negative for|without|never (?:used|uses|had))(?: (?:any|use of|history of|current|hx"
    r" of))*"
    r"(?: (?:tobacco|smoking|cigarettes?|alcohol|etoh|illicit|illicits|recreational|drugs?|drug|vaping|substance|use"
    r"|abuse|or|and|nor)\b,?| ?/ ?(?:tobacco|alcohol|etoh|drugs?)|,){0,8}? ?/?"
)
_OFTEN = (  # between "drinks" and what is drunk
    r"(?:(?:about|around|approx\w*|up to|roughly|maybe|an?|one|two|three|four|five|six|some|occasional"
    r"|[0-9]+(?: ?- ?[0-9]+)?|of|red|white|the odd|a few|or|can of|cans of|glass of|glasses of|bottle|bottles) ){0,5}"
)
_PER_DAY = r"(?:(?:a|per|each|every) |/ ?)(?:day|night|week|wk|evening)\b"

# ---- concept -> how it is -> what the pattern reads: the pattern --------------------------------------------------

_SAID = {
    "tobacco use": {
        "never": {
            "never smoker": r"\bnever[ -]?(?:a )?(?:smok\w+|vap\w+|used tobacco)",
            "lifelong non-smoker": r"\b(?:life-?long )?non-?smok\w+",
            "does not smoke": r"\b(?:(?:does|do|did|has|have)(?: not|n't)(?: ever)?|never(?: ever)?) (?:smoke[sd]?"
                              r"|use(?:d)? tobacco)\b",
            "denies tobacco": rf"\b{_DENIED}(?:tob(?:acco)?|smoking|cigarettes?)\b{_PROBLEM}",
            "never tob": r"\bnever tob\b",
            "tobacco: never": rf"\b{_TOBACCO}{_IS}(?:(?:has|have) )?(?:never|none|nil|denie[sd]|neg(?:ative)?|no|non)\b"
                              r"(?! longer)",
        },
        "former": {
            "former smoker": r"\b(?:former|ex|past|previous|reformed|prior)[- ]?(?:heavy |light |cigarette )?(?:smok\w+"
                             r"|tobacco use\w*)",
            "quit smoking": rf"\b(?:quit|stopped|gave up|given up|ceased|kicked)(?: (?:all|her|his|my))? {_TOBACCO}\b",
            "used to smoke": r"\bused to smoke\b",
            "no longer smokes": r"\bno longer smok\w+",
            "has not smoked since": r"\b(?:has|have)(?: not|n't) smoked (?:since|for|in)\b",
            "smoked until": r"\bsmoked (?:until|till|up to)\b",
            "tobacco: former": rf"\b{_TOBACCO}{_IS}(?:former|quit|ex\b|past|stopped|previous\w*|remote)",
            "smoked 20 years, quit 2015": r"\bsmok\w*[^.;]{0,40}[ ,(](?:quit|stopped)(?: smoking)?(?= (?:in |since "
                                          r"|about "
                                          r"|around )?[0-9]| [a-z]+ (?:years?|months?) ago|$|[,)])",
        },
        "current": {
            "current smoker": r"\b(?:current(?:ly)?|active|heavy|light|every-?day|daily|social|chronic|ongoing"
                              r"|occasional"
                              r"|is an?|i'm an?|am an?)(?: (?:every ?day|heavy|cigarette|daily|active|current))*[ -]"
                              r"(?:smoker|tobacco user?)\b",
            "smokes": r"\b(?<!never )(?<!not )(?<!n't )smokes\b",
            "I smoke": r"\b(?:i|we|still|continues? to|currently) smoke\b",
            "resumed smoking": r"\b(?:resum\w+|restart\w+|relaps\w+|back to|started|took up)(?: to| into)? smoking\b",
            "still smoking": r"\bstill smoking\b",
            "continues smoking": r"\bcontinu\w+ smoking\b",
            "tobacco: yes": rf"\b{_TOBACCO}{_IS}(?:yes|current\w*|active|every ?day|daily|positive|[0-9./½]+ ?"
                            r"(?:-[0-9] ?)?(?:ppd|packs?|cig))",
            "1 ppd": r"(?<![\w./])[0-9./½]+ ?(?:ppd\b|(?:packs?|cig(?:arette)?s?) ?(?:(?:a|per|each) |/ ?)day\b)",
        },
    },
    "alcohol use": {
        "never": {
            "denies alcohol": rf"\b{_DENIED}(?:alcohol|etoh|drinking)\b{_PROBLEM}(?! (?:since|for|in the))",
            "does not drink": r"\b(?:does|do)(?: not|n't) (?:drink(?: (?:any )?(?:alcohol|etoh))?(?= *$| *[,.;]| at all"
                              r"| or smoke)|use alcohol)",
            "alcohol: none": rf"\b{_ALCOHOL}{_IS}(?:none|never|no|denie[sd]|nil|neg(?:ative)?)\b(?! longer)",
            "teetotal": r"\bteetotal\w*",
            "non-drinker": r"\bnon-?drinker\b",
            "never drinks": r"\bnever (?:drinks?|drank)(?: any)?(?: alcohol)?(?= *$| *[,.;])",
        },
        "former": {
            "quit drinking": r"\b(?:quit|stopped|gave up|given up) (?:drinking|alcohol|etoh)\b",
            "sober since": r"\b(?:been )?sober (?:since|for|x|[0-9])",
            "former drinker": r"\b(?:former|ex)[ -](?:heavy )?drinker\b",
            "no alcohol since": r"\bno (?:alcohol|etoh) since\b",
            "used to drink": r"\bused to drink(?= *$| *[,.;]| heavily| alcohol)",
            "no longer drinks": r"\bno longer drinks(?= *$| *[,.;]| alcohol)",
            "abstinent": r"\babstinent from alcohol\b",
            "alcohol: former": rf"\b{_ALCOHOL}{_IS}(?:former|quit|stopped|in remission|sober)",
        },
        "current": {
            "drinks two glasses of wine": rf"\bdrinks? {_OFTEN}(?:alcohol|etoh|{_GLASS})\b",
            "drinks socially": r"\bdrinks? (?:socially|occasionally|heavily|rarely|daily|on (?:weekends|occasion)"
                               r"|alcohol\w*)\b",
            "alcohol: social": rf"\b(?:alcohol|etoh){_IS}(?:soc(?:ial\w*)?\b|occ(?:asional\w*)?\b|rare\w*|daily"
                               rf"|moderate\w*|heavy|weekends?|yes|current|[0-9]+(?: ?- ?[0-9]+)? ?{_GLASS})",
            "social drinker": r"\b(?:social|occ(?:asional)?|heavy|moderate|daily|current) (?:alcohol(?: use\b)?|drinker"
                              r"|drinking|etoh)\b",
            "2 beers a day": rf"(?<![\w./])[0-9]{{1,3}}(?: ?- ?[0-9]{{1,3}})? {_GLASS}(?: of (?:alcohol|wine|beer))? ?"
                             rf"{_PER_DAY}",
        },
    },
}
_PATTERNS = {
    concept: tuple((how, re.compile("|".join(patterns.values()))) for how, patterns in kinds.items())
    for concept, kinds in _SAID.items()
}

# ---- what turns it round ------------------------------------------------------------------------------------------

_ABOUT = re.compile(  # without one of these a sentence speaks of neither
    r"\b(?:smok|tob\b|tobacco|cigar|nicotine|ppd\b|pack|alcohol|etoh|drink|drank|sober|teetotal|beer|wine)"
)
_WANTED = re.compile(  # a stop that is advised, wished or denied, or a use that is only thought of
    r"\b(?:to|should|must|would|will|could|if|not|never|help|about|on|please|can|cannot|can't|n't|for|about|of"
    r"|risks? of"
    r"|ready to|plans?|want\w*|tr(?:y|ies|ied|ying)|advis\w+|counsel\w*|encourag\w+|consider\w*|avoid\w*|discuss\w*"
    r"|importance of|benefits? of|has(?:n't| not)(?: yet)?|have(?:n't| not)(?: yet)?|yet)(?: (?:him|her|me|you"
    r"|patient|pt"
    r"|to|the|from|on|about|completely|all))*[ ]$"
)
_WISH = re.compile(  # "advised to cut down on alcohol"
    r"\b(?:stop(?:ping)?|quit(?:ting)?|giv(?:e|ing) up|ceas\w+|cut(?:ting)? (?:down|back)(?: on)?|avoid\w*|limit\w*)"
    r" (?:\w+ )?"
    r"(?P<what>smoking|tobacco|cigarettes|drinking|alcohol|etoh)\b"
)
_WHEN = re.compile(r"[0-9]|\b(?:ago|last|since|when|yesterday|after)\b")  # "quit smoking" alone is advice
_GOES_ON = re.compile(  # "quit in 2015 but started again"
    r"\b(?:quit|stopped|gave up)[^.;]{0,60}\b(?:but|then|and)\b[^.;]{0,30}\b(?:resum|restart|relaps|smoking again"
    r"|drinking again|back to|started again)"
)
_PACK_YEARS = re.compile(  # "20 pack-years", "30 py"
    r"(?<![\w./-])(?P<n>[0-9]{1,3}(?:\.[0-9])?)\+?[ -]?(?:(?:pack|pk)[ -]?(?:years?|yrs?|y)\b|py\b|p-y\b)"
)
_PREGNANCIES = re.compile(  # "G2P1", "gravida 2, para 1"
    r"(?<!\w)(?:G ?(?P<g>[0-9]{1,2})[ ,]{0,2}P ?(?P<p>[0-9]{4}|[0-9]{1,2})|(?:[Gg]ravida|GRAVIDA) (?P<g2>[0-9]{1,2})"
    r"[ ,]{0,2}(?:[Pp]ara|PARA) (?P<p2>[0-9]{4}|[0-9]{1,2}))(?![\w./%])"
)
_PERIOD = re.compile(  # "LMP: ", before its date
    r"\b(?:lmp|last (?:menstrual )?period)\b(?: (?:was|is|on|began|started|about|approximately))*[ :=~-]{0,3}$"
)


def habits(scene: Scene) -> tuple[list[Draft], list[tuple[int, int]]]:
    """Drafts, and the places whose names they, or a wish to stop, have used up.

    "Quit 2015" holds as of its entry: dated 2015 it would stand before what an earlier entry said of 2020.
    """
    text = scene.text
    if scene.sentence.question:
        return [], []
    out, places = _womb(scene), []
    if not _ABOUT.search(text):
        return out, places
    bound = cues.IF.search(text) is not None or cues.SHOULD.search(text) is not None
    for concept in _PATTERNS:
        told = _told(text, concept)
        if told is None:
            continue
        places += [(m.start, m.end) for m in scene.of_kind("problem") if m.concept == concept]
        how, m = told
        if how == "wanted" or bound:
            continue
        out.append(scene.draft(
            0, len(text), kind="EVENT" if how == "former" else "STATE", concept=concept, attribute="status",
            polarity="AFFIRMED" if how == "current" else "NEGATED", experiencer=scene.experiencer(m.start(), m.end())))
    if (m := _PACK_YEARS.search(text)) and not bound:
        out.append(scene.draft(
            0, len(text), kind="EVENT", concept="pack years", attribute="value", value=m["n"], unit="pack years",
            experiencer=scene.experiencer(m.start(), m.end())))
    return out, places


def _told(text: str, concept: str) -> tuple[str, re.Match] | None:
    """(never, former, current or wanted, the words that say so). "wanted" too where words contradict one another."""
    found = {}
    for how, pattern in _PATTERNS[concept]:
        for m in pattern.finditer(text):
            before = text[max(0, m.start() - 40):m.start()]
            told = m.start() == 0 and m.group().startswith("quit") and not _WHEN.search(text)
            found.setdefault("wanted" if told or how != "never" and _WANTED.search(before) else how, m)
    if not found and (m := _WISH.search(text)) and (m["what"] in ("smoking", "tobacco", "cigarettes")) == (
        concept == "tobacco use"):
        return "wanted", m
    if "current" in found and _GOES_ON.search(text):
        found.pop("former", None)
    if {"never", "current"} <= found.keys():
        return "wanted", found["never"]
    return next(((how, found[how]) for how in ("former", "never", "current", "wanted") if how in found), None)


def _womb(scene: Scene) -> list[Draft]:
    """G2P1: gravidity and parity; LMP: the day on which the last period began."""
    out = []
    if m := _PREGNANCIES.search(scene.plain):
        who = scene.experiencer(m.start(), m.end())
        for concept, value in (("gravidity", m["g"] or m["g2"]), ("parity", m["p"] or m["p2"])):
            out.append(scene.draft(0, len(scene.text), kind="EVENT", concept=concept, attribute="value", value=value,
                                   experiencer=who))
    for t in scene.times:
        m = _PERIOD.search(scene.text, max(0, t.start - 60), t.start)
        if m is not None and t.way in ("past", "elsewhere", "document"):
            out.append(scene.draft(
                0, len(scene.text), kind="EVENT", concept="last menstrual period", attribute="value",
                value=scene.plain[t.start:t.end], experiencer=scene.experiencer(m.start(), t.end), time=t.words))
            break
    return out
