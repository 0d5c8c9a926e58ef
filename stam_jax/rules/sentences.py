"""An entry cut into sentences with exact offsets: soft line breaks joined, bullets and speakers set aside.

A sentence knows who speaks and under which heading it stands, since both change what it means.
"""

from __future__ import annotations

import dataclasses
import re

from stam_jax.rules.cues import RELATIVE
from stam_jax.rules.vocabulary import REACTIONS

_BULLET = re.compile(r"[ \t]*(?:[-*•·‣▪–>]+|\(?[0-9]{1,2}[.)](?![0-9]))[ \t]+|[ \t]+|[ \t]*[-•▪*](?=[A-Za-z])")
_PATIENT = r"patient|pt|p|client|mr|mrs|ms|caller"
_DOCTOR = r"doctor|dr|d|physician|clinician|provider|md|nurse|rn|np|pa|pharmacist|gp|therapist|resident"
_LABEL = re.compile(
    r"(?:\[[^\]\n]{1,60}\]|(?:tele)?phone (?:message|call|note|encounter|contact|visit"
    r"|follow-up)(?: (?:on |of |from "
    r"|dated )?[0-9][-0-9/., A-Za-z]{3,20}?)?[ \t]*[:\-])[ \t]*:?[ \t]*",
    re.I,
)
_SPEAKER = re.compile(rf"(?:(?P<patient>{_PATIENT})|(?P<doctor>{_DOCTOR}))\.?(?: [A-Z][a-z]+)?[ \t]*[:>][ \t]*", re.I)
_HEADINGS = (
    ("family", r"family (?:medical )?(?:history|hx)|fhx?|fam hx|family hx"),
    (
        "allergy",
        r"(?:drug |known |medication |food )?allerg(?:y|ies)(?: list)?(?: and intolerances)?|all|adrs?"
        r"|adverse (?:drug )?reactions|allergies/intolerances",
    ),
    (
        "stopped",
        r"(?:discontinued|stopped|held|ceased|inactive|(?:currently )?on hold|withheld|paused|suspended)"
        r" ?(?:medications?|medicines?|meds|drugs)?"
        r"|(?:medications?|meds|drugs) (?:discontinued|stopped|held|ceased)"
        r"|stop taking(?: these medications)?",
    ),
    ("family end", r"[A-Za-z][A-Za-z /&]{2,40}"),
)
_HEADING = re.compile("|".join(rf"(?P<h{i}>{p})" for i, (_, p) in enumerate(_HEADINGS)), re.I)
_HEADING_LINE = re.compile(r"(?P<name>[A-Za-z][A-Za-z /&()]{1,45}?)[ \t]*(?:(?P<colon>:)[ \t]*)?$")
_INLINE = re.compile(
    rf"(?:(?P<family>{_HEADINGS[0][1]})|(?P<allergy>{_HEADINGS[1][1]})" rf"|(?P<stopped>{_HEADINGS[2][1]}))" r"[ \t]*:",
    re.I,
)
_REACTED = re.compile(  # "Trimethoprim - rash"
    r"[A-Za-z][A-Za-z/ -]{2,30} ?(?:[-–=(]|: ) ?(?:[a-z]+ ){0,2}(?:"
    + "|".join(sorted(map(re.escape, REACTIONS), key=len, reverse=True))
    + r"|urticaria|hypersensitivity|(?:hyper|hypo)(?:kal|natr)a?emia)[a-z ,/]{0,40}\)?",
    re.I,
)
_LABELLED = re.compile(r"[A-Za-z][A-Za-z _/-]{1,24}:[ \t]")
_SIGNS = re.compile(r"-[A-Za-z][^,\n]{0,30}, ?[-+][A-Za-z]")  # "-CP, -SOB": no bullet, a denial
_END = re.compile(r"[.!?]+[\"')\]]*(?=\s|$)|[;\n]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|pt|vs|approx|e\.g|i\.e|no|st|p\.o|dept|temp|resp|wt|ht|hx|dx"
    r"|rx|tx"
    r"|tab|tabs|cap|caps|q|esp|incl|prev|cf|c|h|h/o|jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov"
    r"|dec"
    r"|sig|min|max|hr|hrs|wk|wks|mo|mos|yr|yrs|neg|pos|ext|s)$",
    re.I,
)
_SHORT = re.compile(r"(?:\.[a-z]|(?:^|[\s(])[a-z]{1,3})$", re.I)
_HANGING = re.compile(
    r"(?:\b(?:the|a|an|of|to|for|from|with|and|or|was|were|is|are|be|been|by|on|in|at|her|his|their"
    r"|my"
    r"|your|not|no|has|have|had|due|because|mg|mcg|than|instead|that|since|until|through|as|per"
    r"|will"
    r"|up|down|dose|daily|once|twice|three|four|times)|,)$",
    re.I,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """text[start:end] without bullet, speaker, blanks and full stop. speaker: patient, doctor or None. section: family,
    allergy, stopped or None. turn: number of its line. question: it asks. joined: it goes on after a semicolon."""

    start: int
    end: int
    speaker: str | None = None
    section: str | None = None
    turn: int = 0
    question: bool = False
    joined: bool = False


def sentences(text: str) -> list[Sentence]:
    out: list[Sentence] = []
    section: str | None = None
    speaker: str | None = None
    blank = True
    for turn, (start, end) in enumerate(_blocks(text)):
        line = text[start:end]
        if not line.strip():
            speaker, blank = None, True
            continue
        heading = _HEADING_LINE.match(line.strip())
        if heading and (heading["colon"] or heading["name"].isupper() or blank):
            found = _HEADING.fullmatch(heading["name"].strip())
            name = next((_HEADINGS[i][0] for i in range(3) if found and found[f"h{i}"]), None)
            if name or heading["colon"] or heading["name"].isupper():
                section, blank = name, False
                if heading["colon"] or name:
                    continue
        blank = False
        at = start
        while (bullet := _BULLET.match(text, at, end)) and bullet.end() > at and not _SIGNS.match(text, at, end):
            at = bullet.end()
        if label := _LABEL.match(text, at, end):
            at = label.end()
            while (bullet := _BULLET.match(text, at, end)) and bullet.end() > at:
                at = bullet.end()
        if said := _SPEAKER.match(text, at, end):
            speaker, at = "patient" if said["patient"] else "doctor", said.end()
        inline = _INLINE.match(text, at, end)
        here = section if inline is None else next(k for k, v in inline.groupdict().items() if v)
        if (
            inline is None
            and section is not None
            and re.match(r"[A-Z][A-Za-z /]{2,30}:", text[at:at + 40])
            and start == at
        ):
            section = here = None
        found = _split(text, at, end, speaker, here, turn)
        if inline is not None:  # "FHx: ..." speaks for its own sentence, not for the rest of the line
            over = (i for i, s in enumerate(found) if i and (not s.joined or _LABELLED.match(text, s.start))
                    and not (here == "allergy" and _REACTED.fullmatch(text, s.start, s.end)))
            rest = next(over, len(found))
            found[rest:] = [dataclasses.replace(s, section=section) for s in found[rest:]]
        out += found
    return out


def _blocks(text: str) -> list[tuple[int, int]]:
    """Lines, the wrapped ones joined."""
    lines, at = [], 0
    for line in text.split("\n"):
        lines.append((at, at + len(line)))
        at += len(line) + 1
    width = max((len(text[a:b].rstrip()) for a, b in lines), default=0)
    out: list[tuple[int, int]] = []
    for a, b in lines:
        if out and _soft(text[out[-1][0]:out[-1][1]], text[a:b], width):
            out[-1] = (out[-1][0], b)
        else:
            out.append((a, b))
    return out


def _soft(before: str, after: str, width: int) -> bool:
    """Whether a line goes on in the next: it could not have taken its first word, or ends in the midst of a phrase."""
    before, first = before[-200:].rsplit("\n", 1)[-1].rstrip(), after.split(" ", 1)[0]
    if _LABELLED.match(after):
        return False
    if not before or not first or before[-1] in ".!?:;|" or _BULLET.match(after) or _SPEAKER.match(after):
        return False
    if width >= 50 and len(before) + 1 + len(first) > width:
        return True
    return (
        len(before) > 24
        and (first[:1].islower() or first[:1].isdigit())
        and _HANGING.search(before) is not None
        and not before.isupper()
    )


def _split(text: str, at: int, end: int, speaker: str | None, section: str | None, turn: int) -> list[Sentence]:
    out = []
    joined = False
    first = at
    for stop in _END.finditer(text, at, end):
        if stop.start() < at:
            continue
        mark = stop.group()
        doubt = set(mark) == {"?"} and text[max(first, stop.start() - 1):stop.start()] in ("", " ", ":", "(", "/")
        if mark == "\n" or doubt:  # "impression: ? pneumonia"
            continue
        after = text[stop.end():stop.end() + 12].lstrip()
        if (
            mark.startswith(".")
            and stop.end() < end
            and (
                _ABBREVIATION.search(text, max(first, stop.start() - 8), stop.start())
                or _died(text[max(first, stop.start() - 40):stop.start()], section)
                or (after[:1].islower() and _SHORT.search(text, max(first, stop.start() - 8), stop.start()))
            )
        ):
            continue
        _add(out, text, at, stop.start(), speaker, section, turn, "?" in mark, joined)
        at, joined = stop.end(), mark == ";"
    _add(out, text, at, end, speaker, section, turn, False, joined)
    return out


def _died(before: str, section: str | None) -> bool:
    """"d." (died) and "b." (born) of a relative: "mother d. MI at 62"."""
    if section == "family":
        return re.search(r"\b[db]$", before) is not None
    named = list(RELATIVE.finditer(before.lower()))
    after = before[named[-1].end():] if named else ""
    return re.fullmatch(r"[ ,(:-]*(?:both )?(?:[db]\. ?[0-9]{4}[ ,]*)?[db]", after, re.I) is not None


def _add(out: list[Sentence], text: str, start: int, end: int, speaker, section, turn, question, joined) -> None:
    while start < end and text[start] in " \t\n\"'-*•" and not _SIGNS.match(text, start, end):
        start += 1
    while end > start and text[end - 1] in " \t\n.":
        end -= 1
    if end > start:
        out.append(Sentence(start, end, speaker, section, turn, question, joined))
