"""Laboratory values and vital signs: the number that holds for each test named."""

from __future__ import annotations

import dataclasses
import re

from stam_jax.rules import cues, vocabulary
from stam_jax.rules.doses import chosen_amount
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.quantities import amounts, frequencies, intervals
from stam_jax.rules.scene import Scene
from stam_jax.write.writer import Draft

_UNIT = (
    r"%|percent|mg/dl|g/dl|mmol/l|meq/l|µmol/l|umol/l|micromol/l|mmol/mol|ng/ml|pg/ml|ng/dl|mcg/dl|µg/dl|ug/l"
    r"|µg/l|ng/l|miu/l|mu/l|uiu/ml|µiu/ml|iu/l|u/l|g/l|mm/hr?|"
    r"mm ?hg|bpm|beats(?:/| per )min(?:ute)?|/min|breaths(?:/| per )min(?:ute)?|kg/m2|kg/m²|kgs?|kilos?"
    r"|kilograms?|lbs?|pounds?|cm|in(?:ches)?\b|°? ?[cf]\b|°|degrees(?: [cf]\w*)?|"
    r"ml/min(?:/1\.73 ?m2)?|k/u?l|k/µl|x10\^?9/l|x ?10\*?9/l|10\*9/l|/µl|/ul|/mm3|cells/\w+|fl|mg/g|mg/l|pmol/l"
    r"|nmol/l|l/min|l\b|mm\b"
)
_NUMBER = re.compile(
    rf"(?<![\w./-])(?P<sign>[<>] ?)?(?P<value>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]{{1,3}})?"
    rf"|[0-9]{{1,7}}(?:\.[0-9]{{1,4}})?|\.[0-9]{{1,3}})"
    rf"(?:(?: ?/ ?| over | on )(?P<second>[0-9]{{2,3}}))?(?![0-9])(?!s\b|\.\d|:\d|(?:st|nd|rd|th)\b"
    rf"| ?[-–] ?[0-9]|/[0-9]| ?(?:days?|weeks?|wks?|months?|mths?|mos?|years?|yrs?|hours?|hrs?|times|minutes|mins?"
    rf"|am|pm|a\.m|p\.m|pillows|feet|o'clock|points|y/?o)\b)"
    rf"(?: ?(?P<unit>{_UNIT})(?![a-z0-9]))?"
)
_CANONICAL = {
    "percent": "%",
    "mg/dl": "mg/dL",
    "g/dl": "g/dL",
    "mmol/l": "mmol/L",
    "meq/l": "mEq/L",
    "mm hg": "mmHg",
    "mmhg": "mmHg",
    "kgs": "kg",
    "kilos": "kg",
    "kilo": "kg",
    "kilogram": "kg",
    "kilograms": "kg",
    "lb": "lb",
    "lbs": "lb",
    "pounds": "lb",
    "pound": "lb",
    "iu/l": "IU/L",
    "u/l": "U/L",
    "g/l": "g/L",
    "ng/ml": "ng/mL",
    "pg/ml": "pg/mL",
    "miu/l": "mIU/L",
    "ng/dl": "ng/dL",
    "µmol/l": "µmol/L",
    "umol/l": "µmol/L",
    "ml/min": "mL/min",
    "mg/l": "mg/L",
    "°c": "°C",
    "°f": "°F",
    "c": "°C",
    "f": "°F",
    "degrees c": "°C",
    "degrees f": "°F",
    "/ul": "/uL",
    "k/ul": "K/uL",
    "mm/hr": "mm/hr",
}
_GAP = re.compile(r"\b(?:every|repeat(?! (?:is|was|came|value|result|of|level|showed|test|at|[0-9]))|recheck|check"
    r"|monitor|follow)\b")
_LIMIT = re.compile(
    r"(?:\b(?:below|under|above|over|less than|greater than|more than|at least|exceeds?|higher than"
    r"|lower than|between|until)|[<>]=|[≥≤])[ ]*(?:a |about )?$"
)
_UNTIL = re.compile(r"\b(?:until|till|unless|once) (?:(?:the|his|her|your|repeat|serum) )*$")
_BY = re.compile(r"\bby (?:about |approximately )?$")  # a difference, no reading
_GAINED = re.compile(r"\b(?:up|down|gain(?:ed)?|loss|lost)(?: of| by)?(?: about| approximately)? $")
_EARLIER = re.compile(r"\((?:was|from|prev\w*|prior|last|baseline|bl|[0-9])[^()]{0,40}\)")  # "8.1 (was 7.4 in March)"
_ADVICE = re.compile(
    r"\b(?:return|call|notify|seek|hold|come back|prn|as needed)\b[^.;]{0,80}\b(?:if|for|with|when" r"|prn|temp)\b"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    value: str
    unit: str | None
    start: int
    end: int


def measures(scene: Scene) -> list[Draft]:
    text = scene.text
    earlier = [(m.start(), m.end()) for m in _EARLIER.finditer(text)]
    times = tuple(t for t in scene.times if not any(a < t.start < b for a, b in earlier))
    scene = dataclasses.replace(scene, times=times) if len(times) < len(scene.times) else scene
    named = scene.of_kind("measure") or _cuff(text)
    if not named or not any(c.isdigit() for c in text) or cues.GOAL.search(text):
        return []
    blocked = [(t.start, t.end) for t in scene.times]
    blocked += [(w.start, w.end) for w in (*frequencies(text), *intervals(text))]
    blocked += [
        (a.start, a.end)
        for a in amounts(text)
        if not re.match(r"\s*/", text[a.end:]) and a.unit not in ("g", "units", "mL")
    ]
    blocked += [(m.start, m.end) for m in scene.mentions]
    bound = min((f.start() for f in (_ADVICE.search(text), cues.IF.search(text)) if f), default=len(text))
    if cues.SHOULD.search(text):
        return []
    out = []
    for i, m in enumerate(named):
        if m.start > bound:  # what follows is a condition or advice
            break
        if _UNTIL.search(text, max(0, m.start - 30), m.start):
            continue
        stop = named[i + 1].start if i + 1 < len(named) else len(text)
        if gap := _GAP.search(text, m.end, stop):
            stop = gap.start()
        near = [(a, b) for a, b in blocked if a < stop and m.end < b]
        found = [r for r in _readings(text, m.end, stop) if not any(a < r.end and r.start < b for a, b in near)]
        found = [r for r in found if _plausible(m, r) and not _LIMIT.search(text, max(m.end, r.start - 25), r.start)]
        found = [r for r in found if not _BY.search(text, m.end, r.start)]
        if m.concept == "weight":
            found = [r for r in found if not _GAINED.search(text, m.end, r.start)]
        reading = (
            chosen_amount(text, m.start, stop, found)
            if found
            else _before(scene, m, blocked, named[i - 1].end if i else 0)
        )
        if reading is None or reading.start - m.end > 70 or _of_drug(scene, m, reading):
            continue
        alone = len(named) == 1
        start, end = (0, len(text)) if alone else (m.start, max(reading.end, m.end))
        after = len(text) if i + 1 == len(named) else named[i + 1].start
        time = scene.time(start, after, "past", of=m.start) or scene.dated(0, len(text))
        out.append(
            scene.draft(
                start,
                end,
                kind="EVENT",
                concept=m.concept,
                attribute="value",
                value=reading.value,
                unit=reading.unit,
                experiencer=scene.experiencer(m.start, m.end),
                time=time or (scene.time(0, len(text), "past", of=m.start) if not alone else None),
            )
        )
    return out


_CUFF = re.compile(r"\b(?:cuff|systolic|home readings?|machine|mm ?hg|monitor)\b")
_PAIR = re.compile(
    r"(?<![0-9/])(?:[6-9][0-9]|[12][0-9]{2})(?: ?/ ?| over )[3-9][0-9](?![0-9/])"
    r"|(?<![0-9/])(?:[12][0-9]{2})(?: ?/ ?| over )1[0-9]{2}(?![0-9/])"
)


def _cuff(text: str) -> list[Mention]:
    """A blood pressure that is not called so: "the cuff read 150 over 95"."""
    pair = _PAIR.search(text)
    if pair is None or not _CUFF.search(text):
        return []
    return [Mention("measure", "blood pressure", pair.start(), pair.start())]


def _readings(text: str, start: int, end: int) -> list[_Reading]:
    out = []
    for n in _NUMBER.finditer(text, start, end):
        value = n["value"].replace(",", "")
        value = "0" + value if value.startswith(".") else value
        if n["second"]:
            value = f"{value}/{n['second']}"
        unit = n["unit"].strip() if n["unit"] else None
        out.append(
            _Reading(
                (n["sign"] or "").strip() + value, _CANONICAL.get(unit, unit) if unit else None, n.start(), n.end()
            )
        )
    return out


def _plausible(m: Mention, r: _Reading) -> bool:
    facts = vocabulary.MEASURES[m.concept]
    number = float(r.value.lstrip("<>").split("/")[0])
    if m.concept == "blood pressure" and "/" not in r.value:
        return False
    if "/" in r.value and m.concept != "blood pressure":
        return False
    return facts.low <= number <= facts.high


def _before(scene: Scene, m: Mention, blocked: list[tuple[int, int]], low: int) -> _Reading | None:
    """A number before its name: "a 7.2% A1c"."""
    found = [
        r
        for r in _readings(scene.text, max(low, m.start - 20), m.start)
        if r.unit
        and scene.text[r.end:m.start].strip(" ") in ("", "for", "on the", "as", "on")
        and not any(a < r.end and r.start < b for a, b in blocked)
    ]
    return found[-1] if found and _plausible(m, found[-1]) else None


def _of_drug(scene: Scene, m: Mention, r: _Reading) -> bool:
    """Another name ("blood pressure: amlodipine 5") stands between the test and the number."""
    return any(m.end <= x.start < r.start and x.kind in ("drug", "appointment", "procedure") for x in scene.mentions)
