"""Visits that lie ahead: "RTC 3 months", "f/u 6/12", "follow up with cardiology in 2 weeks"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from stam_jax.rules import cues
from stam_jax.rules.plans import ahead_of
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

VISIT = "follow-up visit"  # with whoever writes
_VISIT = r"(?:visit|appointment|appt|review|check-?up|consultation|consult|session|clinic|follow[ -]?up|f/u)"
_HEAD = re.compile(
    r"(?<![\w/-])(?:"
    rf"(?P<strong>next (?:(?:clinic|office|routine|scheduled|planned|outpatient|follow[ -]?up) )?{_VISIT}"
    rf"|(?:clinic|office|telephone|phone|video|nurse|outpatient|return) {_VISIT}"
    rf"|(?:follow(?:ing)?[ -]?up|f ?/ ?u|fu|fup)(?: {_VISIT})?|rtc|r/v|rv|opa"
    r"|return to (?:the )?(?:clinic|office|surgery|practice|see (?:me|us))|to return to clinic)"
    r"|(?P<plain>(?:return|come back|review|recall|back|back in (?:the )?clinic)(?: visit)?(?: to (?:me|us|see (?:me"
    r"|us)))?"
    r"|see|(?:will|to) see|be seen(?: again)?))"
    r"(?!\w)"
)
_AT_CLAUSE = re.compile(  # where "return", "review" and "see" are told to someone
    r"(?:^|[.,;:(/–—-] ?|\b(?:to|please|pls|should|will|shall|can|would like to|like to|i'll|we'll|he'll|she'll"
    r"|you'll|pt"
    r"|patient|and|then|or|for|clinic|plan|i|we|you|must|may|like|want|needs?|hope|plans|come|appointment|appt|gp"
    r"|pcp) )$"
)
_SPAN = re.compile(
    r"(?P<lead>(?<!\w)(?:in|within|after)(?: (?:about|approximately|approx|around|roughly|another|the next|a further"
    r"|~))? )?(?<![\w/.])~?(?:(?:(?:[0-9]{1,2} ?(?:-|–|to|or) ?)?(?P<n>[0-9]{1,3}) ?-?(?P<short>d|w|m|y)?"
    r"|(?P<word>an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|a couple(?: of)?|a few)[ -])"
    r"(?P<unit>(?(short)|(?:days?|weeks?|wks?|months?|mths?|mos?|years?|yrs?)))(?:'s?)?(?: time)?"
    r"|(?:[0-9]{1,2} ?- ?)?(?P<of>[0-9]{1,2})/(?P<part>7|52|12)(?![/0-9])|(?P<fortnight>a fortnight))(?![\w/])"
)
_UNITS = {"d": "day", "w": "week", "m": "month", "y": "year"}
_PARTS = {"7": "day", "52": "week", "12": "month"}
_TEST = re.compile(
    r"\b(?:labs?|bloods?|blood ?work|results?|imaging|scans?|x-?rays?|ct|mri|echo|films?|biops\w+|cultures?|tests?"
    r"|testing|ultrasound|bmp|cbc|panel|levels?|urine|ago|since|last|past|prior|previous|showed|no|not|ended|cancel\w*"
    r"|to (?:work|school|sports?|play\w*|duty|driving|gym|normal|baseline)|data|studies|study|period|rate|because|if"
    r"|when|until|loss|lost|was|were|had|who|that|but|medications?|meds)\b|[;?]"
)
_NOT_AHEAD = re.compile(
    r" ?(?:later|after|ago|post|prior|before|since|following|earlier|old|of (?!time)|history|showed|to (?:work|school"
    r"|sports?|play\w*|duty|driving|gym|training|normal|baseline)|was|were|had|s/p)\b"
)
_BEHIND = re.compile(
    r"\b(?:at|on|during|in|since|from|under|despite|last|past|previous|prior|missed|lost to|loss to|was|were|had"
    r"|recent|today's|this|presents?|presented|presenting|here|came|comes|attend\w*|returned|seen|dna|arrived|no|not"
    r"|never|without|n't|declin\w+|refus\w+|defer\w*)(?: (?:for|his|her|the|a|an|my|their|scheduled"
    r"|routine|regular|to|in|further|need|be|want|able))* $|n't(?: \w+)? $"
)
_ARRIVED = re.compile(r"\b(?:presents?|presented|presenting|here (?:today )?for|seen|came|attended|returned|arrived)\b")
_SOONER = re.compile(
    r"[,(]? ?\b(?:or|and)? ?(?:sooner|earlier|before then)\b|\bor (?:if|as|prn)\b|[,(–-] ?(?:or )?prn\b"
)
_CLAUSE = re.compile(r";|(?<!dr)(?<!mr)(?<!ms)(?<!mrs)\.(?=\s|$)")
_WITH = r"(?:with|w/|by|to see|in|at|from|:|\()"
_SPECIALTIES = {
    "cardiology": r"cardiolog(?:y|ist)|cards|(?:hf|chf|heart failure) clinic",
    "primary care": r"pcp|primary care(?: (?:provider|physician|doctor))?|family (?:doctor|physician|medicine)|gp",
    "endocrinology": r"endocrin(?:ology|ologist)|endocrine|endo",
    "nephrology": r"nephrolog(?:y|ist)|renal",
    "neurology": r"neurolog(?:y|ist)|neuro",
    "gastroenterology": r"gastroenterolog(?:y|ist)|gi",
    "pulmonology": r"pulmonolog(?:y|ist)|pulm(?:onary)?|respiratory",
    "rheumatology": r"rheumatolog(?:y|ist)|rheum",
    "dermatology": r"dermatolog(?:y|ist)|derm",
    "urology": r"urolog(?:y|ist)",
    "oncology": r"oncolog(?:y|ist)|heme[/ -]?onc",
    "hematology": r"h(?:a)?ematolog(?:y|ist)|heme",
    "psychiatry": r"psychiatr(?:y|ist)|psych",
    "orthopedic": r"orthop(?:a)?edics?|orthop(?:a)?edic surgeon|ortho",
    "ophthalmology": r"ophthalmolog(?:y|ist)|ophtho",
    "surgery": r"surgery|surgeon|gen surg",
    "gynecology": r"gyn(?:a)?ecolog(?:y|ist)|ob/?gyn|gyn",
    "podiatry": r"podiatr(?:y|ist)",
    "infectious disease": r"infectious diseases?",
    "vascular surgery": r"vascular(?: surg(?:ery|eon))?",
    "wound care": r"wound (?:care|clinic)",
    "nurse": r"nurse(?: practitioner)?|rn",
    "pharmacist": r"pharmacist",
    "dietitian": r"dieti[ct]ian|nutritionist",
}
_WHO = re.compile(
    "|".join(rf"(?P<w{i}>(?<![\w/])(?:{p})(?![\w/]))" for i, p in enumerate(_SPECIALTIES.values()))
)
_SPECIALTY = "|".join(_SPECIALTIES.values())
_SEEN = re.compile(  # between "see", "return" or "back" and the time
    r"(?: (?:me|us|you|him|her|them|pt|patient|the patient|back|again|here|then|visit"
    rf"|(?:in|to) (?:the )?(?:(?:{_SPECIALTY}) )?(?:clinic|office|surgery)"
    rf"|(?:his |her |the |your |a |an )?(?:{_SPECIALTY})|for [^,;]{{2,40}}))*[ ,:-]*"
)
_ELSE = re.compile(  # a profession or a clinic that no list has
    r"\b(?:with|w/|by|to see) ?(?:the |his |her |your |my |a |an )?"
    r"(?P<who>[a-z-]{2,20}(?:ist|ician)|[a-z-]{2,20} (?:clinic|team))\b"
)
_OWN = re.compile(r"\b(?:me|us|myself|this clinic|our clinic|clinic)\b")
_NONE = re.compile(
    rf"\bno (?:further |routine |more |ongoing )?(?:\w+ )?(?:{_VISIT})s?(?: (?:visits?|appointments?))?"
    r"(?: is| are)? (?:needed|required|necessary|indicated|planned|arranged)\b"
    rf"|\b(?:follow[ -]?up|f/u) (?:{_VISIT} )?(?:with \w+ )?(?:has been |was |is |now )*(?:cancel\w*|called off|no"
    rf" longer"
    r" (?:needed|required|necessary))|\bcancel\w* (?:the |his |her |my )?(?:\w+ )?(?:follow[ -]?up|f/u)\b"
    r"|\bdischarged from (?:the )?(?:\w+ )?(?:follow[ -]?up|clinic|outpatients?)\b"
)
_DATED = ("future", "past", "elsewhere", "until")


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    who: str
    time: str | None
    start: int
    end: int


def visits(scene: Scene) -> list[Draft]:
    """Plans of visits with their planned end; a plan that is called off is denied."""
    text = scene.text
    if scene.sentence.question or scene.sentence.speaker is None and text.startswith("q:"):
        return []
    if (none := _NONE.search(text)) and not cues.conditional(text, none.start(), none.end()):
        if scene.experiencer(none.start(), none.end()) != "PATIENT":
            return []
        who = _named(text, none.start(), none.end())
        return [_draft(scene, _concept(who), None, "NEGATED")]
    seen: dict[str, Draft] = {}
    for found in _found(scene):
        seen.setdefault(found.who, _draft(scene, _concept(found.who), found.time, "AFFIRMED"))
    return list(seen.values())


def _draft(scene: Scene, concept: str, time: str | None, polarity: str) -> Draft:
    return scene.draft(
        0, len(scene.text), kind="PLAN", concept=concept, attribute="plan", polarity=polarity, time=time
    )


def _concept(who: str) -> str:
    return f"{who} follow-up" if who else VISIT


def _found(scene: Scene) -> Iterator[_Found]:
    text, at = scene.text, 0
    for head in _HEAD.finditer(text):
        if head.start() < at or not _told(scene, head):
            continue
        stop = min(len(text), head.end() + 120)
        if clause := _CLAUSE.search(text, head.end(), stop):
            stop = clause.start()
        first, begin = True, head.end()
        while (when := _when(scene, begin, stop, head["strong"] is not None or not first)) is not None:
            start, end, words = when
            if first and head["plain"] and not _SEEN.fullmatch(text, begin, start):
                break
            if not first and not re.fullmatch(r"(?:,| and|,? then|/|\+)+ (?:with |w/ )?.{2,40}", text[begin:start]):
                break
            if _bound(text, head.start(), end):
                break
            who = _named(text, begin, start) or (_before(text, head.start()) if first else "")
            after = re.match(rf",? {_WITH} .{{2,40}}", text[end:stop])
            if not who and after and not _OWN.search(text, begin, start):
                until = re.search(r",(?! ?md\b)|\band\b|\bin\b|\bfor\b", after.group()[4:])
                who = _named(text, end, end + (4 + until.start() if until else after.end()))
            if not first and not who:
                break
            yield _Found(who, words, head.start(), end)
            first, begin, at = False, end, end


def _before(text: str, start: int) -> str:
    """The specialty directly before: "cardiology f/u"."""
    for m in _WHO.finditer(text, max(0, start - 30), start):
        if not text[m.end():start].strip(" :"):
            return list(_SPECIALTIES)[int(m.lastgroup[1:])]
    return ""


def _told(scene: Scene, head: re.Match) -> bool:
    """Whether a visit is announced there, and of the patient: not one that is being paid, was missed or lies behind."""
    text = scene.text
    before = text[max(0, head.start() - 60):head.start()]
    if _BEHIND.search(before) or scene.experiencer(head.start(), head.end()) != "PATIENT":
        return False
    if head["plain"] is not None:
        if not _AT_CLAUSE.search(before) or any(m.start < head.start() for m in scene.of_kind("problem", "drug")):
            return False
    return not _ARRIVED.search(text, 0, head.start())


def _bound(text: str, start: int, end: int) -> bool:
    """Whether the visit hangs on a condition; "or sooner if worse" is none."""
    sooner = _SOONER.search(text, end)
    kept = text[:sooner.start()] if sooner else text
    return cues.conditional(kept, start, min(end, len(kept)), min(end, len(kept)))


def _when(scene: Scene, begin: int, stop: int, bare: bool) -> tuple[int, int, str] | None:
    """(start, end, time words) of the first time ahead in [begin, stop). bare: "3 months" needs no "in"."""
    text, out = scene.text, []
    for m in _SPAN.finditer(text, begin, stop):
        if (m["lead"] or m["of"] or bare) and not _NOT_AHEAD.match(text, m.end()):
            out.append((m.start(), m.end(), _words(m)))
        break
    for t in scene.times:
        if begin <= t.start < stop and t.way in _DATED and (words := ahead_of(t, scene.date)) is not None:
            out.append((t.start, t.end, words))
            break
    out = [w for w in out if w[0] - begin <= 60 and not _apart(scene, begin, w[0])]
    return min(out) if out else None


def _apart(scene: Scene, begin: int, start: int) -> bool:
    """Whether what stands between a visit and a time makes it a time of something else, a test or another matter."""
    if _TEST.search(scene.text, begin, start):
        return True
    kinds = ("drug", "measure", "monitor", "procedure")
    return any(begin <= m.start < start and m.kind in kinds for m in scene.mentions) or any(
        begin <= m.start < start and m.kind == "appointment" and not _WHO.match(scene.text, m.start)
        for m in scene.mentions)


def _words(m: re.Match) -> str:
    if m["fortnight"]:
        return "until 2 weeks"
    if m["of"]:
        return f"until {int(m['of'])} {_PARTS[m['part']]}s"
    n = m["n"] or {"a couple": "2", "a couple of": "2", "a few": "3"}.get(m["word"], m["word"])
    return f"until {n} {_UNITS[(m['short'] or m['unit'])[0]]}s"


def _named(text: str, start: int, end: int) -> str:
    """The specialty that is named in [start, end), or "" for none."""
    if m := _WHO.search(text, start, end):
        return list(_SPECIALTIES)[int(m.lastgroup[1:])]
    m = _ELSE.search(text, start, end)
    return m["who"] if m else ""
