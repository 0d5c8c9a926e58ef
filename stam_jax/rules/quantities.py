"""Amounts with units, how often, and monitoring intervals, in canonical spelling with their places in the text."""

from __future__ import annotations

import dataclasses
import re

_UNITS = {
    "mg": "mg|mgs|milligrams?|milligrammes?",
    "mcg": "mcg|mcgs|µg|μg|ug|micrograms?|microgrammes?|mikrograms?",
    "g": "g|gm|gms|grams?",
    "units": "units?|u|iu|i\\.u\\.",
    "mL": "ml|mls|milliliters?|millilitres?|cc",
    "meq": "meq",
    "puffs": "puffs?|inhalations?",
    "tablets": "tablets?|tabs?|pills?|comprimes?",
    "capsules": "capsules?|caps?",
    "drops": "drops?|gtts?",
    "sprays": "sprays?",
    "patches": "patch(?:es)?",
}
COUNTED = frozenset({"puffs", "tablets", "capsules", "drops", "sprays", "patches", "mL"})
_WORDS = {
    w: i
    for i, w in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
}
_WORDS |= {w: 10 * i for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
_WORDS |= {"a": 1, "an": 1, "hundred": 100, "thousand": 1000, "half": 0.5}
_SPELLED = (
    r"(?:(?:"
    + "|".join(sorted((w for w in _WORDS if len(w) > 2), key=len, reverse=True))
    + r")(?:[ -](?:and (?:a )?)?|\b)){1,6}"
)
_NUMBER = (
    r"(?:[0-9]{2,4}/[0-9]{2,4}(?= ?mg)|[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{0,7}\.[0-9]{1,4}" r"|[0-9]{1,7}(?:\.[0-9]{1,4})?)"
)
_AMOUNT = re.compile(
    rf"(?<![\w.,/])(?:(?P<number>{_NUMBER})|\b(?P<words>{_SPELLED}))(?:[ \n\t]{{0,2}}-?)"
    rf"(?P<unit>{'|'.join(f'(?:{u})' for u in _UNITS.values())})(?![A-Za-z])(?!\s{{0,2}}(?:/|per)\s{{0,2}}(?:d?l|ml"
    rf"|kg|m2|h)\b)",
    re.I,
)
_UNIT_OF = [(re.compile(p, re.I), name) for name, p in _UNITS.items()]
_GAP = r"(?:[ \n\t-]{1,3})"
_TIMES = r"(?:[ \n]?(?:times|x))"


def _pattern(text: str) -> str:
    return text.replace("_", _GAP)


_FREQUENCIES = [
    (code, _pattern(p))
    for code, p in (
        ("twice weekly", rf"(?:twice|two{_TIMES}|2{_TIMES})_(?:a_week|per_week|weekly|each_week)"),
        ("three times weekly", rf"(?:three{_TIMES}|3{_TIMES}|thrice)_(?:a_week|per_week|weekly)|tiw"),
        (
            "qid",
            rf"(?:four{_TIMES}|4{_TIMES})(?:[ /-]|_)(?:a_day|daily|per_day|each_day|every_day|day|in_the_day)"
            rf"|q\.?i\.?d\b\.?|qds"
            r"|q_?6_?(?:h|hours?|hrs?)\b|every_(?:6|six)_h(?:ou)?rs?|six_hourly|6_hourly|4x/d(?:ay)?|every_6h",
        ),
        (
            "tid",
            rf"(?:three{_TIMES}|3{_TIMES}|thrice)(?:[ /-]|_)(?:a_day|daily|per_day|each_day|every_day|day|in_the_day)"
            rf"|t\.?i\.?d\b\.?"
            r"|tds|q_?8_?(?:h|hours?|hrs?)\b|every_(?:8|eight)_h(?:ou)?rs?|eight_hourly|8_hourly|3x/d(?:ay)?|thrice"
            r"|with_(?:each|every)_meal|with_meals_three_times_(?:daily|a_day)|morning,?_noon,?_and_night"
            r"|before_(?:each|every)_meal",
        ),
        (
            "bid",
            rf"(?:twice|two{_TIMES}|2{_TIMES})(?:[ /-]|_)(?:a_day|daily|per_day|each_day|every_day|day|in_the_day"
            rf"|over_the_day)"
            r"|b\.?i\.?d\b\.?|bd\b|q_?12_?(?:h|hours?|hrs?)\b|every_(?:12|twelve)_h(?:ou)?rs?|twelve_hourly|12_hourly"
            r"|2x/d(?:ay)?"
            r"|(?:in_the_|each_|every_)?mornings?_(?:and|&)_(?:in_the_|each_|at_)?(?:evenings?|nights?|bedtime)"
            r"|am_(?:and|&)_pm"
            r"|(?:with_)?breakfast_and_(?:dinner|supper)|twice",
        ),
        (
            "every other day",
            r"every_(?:other|second)_day|on_alternate_days|alternate_days|q\.?o\.?d\b\.?|q_?48_?h\b" r"|every_48_hours",
        ),
        ("every 4 hours", r"q_?4_?(?:h|hours?|hrs?)\b|every_(?:4|four)_h(?:ou)?rs?"),
        (
            "weekly",
            r"(?:once|one_time|1x|one_dose)_(?:a_week|per_week|weekly|each_week|every_week|in_the_week)|weekly"
            r"|every_week|each_week"
            r"|q_?(?:week|wk|w)\b|(?:every|each|on)_(?:mon|tues|wednes|thurs|fri|satur|sun)days?|once_every_(?:7"
            r"|seven)_days"
            r"|every_(?:7|seven)_days|per_week|a_week(?!_(?:ago|back|later|before|earlier|from|prior|or|and"
            r"|after))\b|one_day_a_week|1x/w(?:ee)?k",
        ),
        (
            "monthly",
            r"(?:once_(?:a|per|every)_month)|monthly|every_month|each_month|once_monthly|every_(?:4|four)_weeks",
        ),
        (
            "nightly",
            r"(?:once_)?(?:nightly|qhs|q\.?h\.?s\b\.?|h\.?s\b\.?|at_bed_?time|at_night(?:_?time)?|every_night"
            r"|each_night"
            r"|before_(?:bed|sleep|sleeping|retiring)(?:_?time)?|nocte|every_evening|each_evening"
            r"|in_the_evenings?|evenings"
            r"|q_?pm|with_the_evening_meal|before_going_to_(?:bed|sleep)|bedtime|when_(?:he|she|you"
            r"|i)_goes?_to_bed|q_?nightly|on"
            r"_going_to_bed|at_hs|nights|at_the_end_of_the_day|right_before_bed|every_bedtime)",
        ),
        (
            "daily",
            r"(?:once|one_time|1x|one)(?:[ /-]|_)(?:a_day|daily|per_day|each_day|every_day|day|in_the_morning"
            r"|every_24_hours)"
            r"|daily|every_day|each_day|q\.?d\b\.?|q_?day|o\.?d\b\.?|q_?24_?(?:h|hours?|hrs?)\b"
            r"|every_24_h(?:ou)?rs?|every_morning"
            r"|each_morning|in_the_mornings?|mornings|q_?am|q_?a\.m\.|per_day|/day|/d\b|a_day\b|everyday"
            r"|once_in_24_hours|mane"
            r"|first_thing_in_the_morning|o\.?m\b|with_breakfast"
            r"|(?:before|ac|after|at)_breakfast|1x/d(?:ay)?|per_diem|every_single_day|day"
            r"(?=_by_day)",
        ),
    )
]
_FREQUENCY = re.compile(
    r"(?<![\w.])(?:" + "|".join(f"(?P<f{i}>{p})" for i, (_, p) in enumerate(_FREQUENCIES)) + r")(?![\w])", re.I
)
_ONCE = re.compile(
    r"(?<!\w)once(?! (?:the|he|she|it|they|his|her|bp|inr|daily|weekly|a\b)\b)(?=\s*(?:$|[,.;)]" r"|from now|now))",
    re.I,
)

_SMALL = "|".join(w for w in _WORDS if w not in ("zero", "half", "hundred", "thousand", "a", "an"))
_PERIOD = r"(?P<unit>days?|weeks?|wks?|months?|mos?|mths?|years?|yrs?|d|w|m|y)"
_INTERVAL = re.compile(
    rf"(?<![\w/])(?:every[ \n](?:(?P<n>[0-9]{{1,3}}|{_SMALL}|other|second|third|few)(?:[ \n]?(?:-|–"
    rf"|to)[ \n]?[0-9]{{1,2}})?[ \n-])?{_PERIOD}\b"
    rf"|(?:once[ \n])?(?:each|per)[ \n](?P<each>day|week|month|quarter|year)\b"
    rf"|(?:once|one[ \n]time)[ \n](?:an?|per|every|each)[ \n](?P<once>day|week|month|quarter|year)\b"
    rf"|(?:twice|two[ \n]times|2[ \n]?x)[ \n](?:an?|per|each|every)[ \n](?P<twice>week|month|year)\b"
    rf"|(?P<often>three|3|four|4)[ \n]?(?:times|x)[ \n](?:an?|per|each|every)[ \n]year"
    rf"|(?:once[ \n])?(?:an?|per|each|every)[ \n](?P<fortnight>fortnight)"
    rf"|(?:on[ \n])?alternate[ \n](?P<alternate>day|week|month)s?"
    rf"|q[ \n]?\.?(?P<q>[0-9]{{1,2}})?(?:[ \n]?-[ \n]?[0-9]{{1,2}})?[ \n]?(?P<qunit>days?|weeks?|wks?|months?|mos?"
    rf"|mths?|years?|yrs?|d|w|m|y)\b"
    rf"|(?P<nly>[0-9]{{1,2}}|{_SMALL})[ \n-](?P<nlyunit>week|month|day|year)ly\b"
    rf"|(?:at[ \n])?(?P<apart>[0-9]{{1,2}}|{_SMALL})[ \n-](?P<apartunit>day|week|month|year)s?[ \n](?:intervals?"
    rf"|apart)\b"
    rf"|at[ \n](?P<adj>weekly|monthly|yearly|quarterly|fortnightly)[ \n]intervals\b"
    rf"|(?P<word>bi-?weekly|fortnightly|every[ \n]fortnight|twice[ \n-]monthly|bi-?monthly|quarterly"
    rf"|every[ \n]quarter|semi-?annually"
    rf"|half-?yearly|six-monthly|twice[ \n-]yearly|annually|yearly|every[ \n]year|once[ \n]yearly|monthly"
    rf"|once[ \n]monthly|weekly"
    rf"|once[ \n]weekly|twice[ \n-]weekly|daily))(?!\w)",
    re.I,
)
_WORD_INTERVALS = {
    "biweekly": "every 2 weeks",
    "fortnightly": "every 2 weeks",
    "everyfortnight": "every 2 weeks",
    "twicemonthly": "every 2 weeks",
    "bimonthly": "every 2 months",
    "quarterly": "every 3 months",
    "everyquarter": "every 3 months",
    "semiannually": "every 6 months",
    "halfyearly": "every 6 months",
    "sixmonthly": "every 6 months",
    "twiceyearly": "every 6 months",
    "annually": "every year",
    "yearly": "every year",
    "everyyear": "every year",
    "onceyearly": "every year",
    "monthly": "every month",
    "oncemonthly": "every month",
    "weekly": "every week",
    "onceweekly": "every week",
    "twiceweekly": "twice a week",
    "daily": "every day",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Amount:
    """number as written without commas, unit in canonical spelling, at [start, end)."""

    number: str
    unit: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.number} {self.unit}"


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A frequency code or an interval at [start, end)."""

    code: str
    start: int
    end: int


def plain(number: str) -> str:
    """1,000 -> 1000; .5 -> 0.5; 20.0 stays as the words have it."""
    number = number.replace(",", "")
    return "0" + number if number.startswith(".") else number


def spelled(words: str) -> str | None:
    """Number words: "twenty five" -> 25, "two and a half" -> 2.5; None where they are no number."""
    total, current = 0.0, 0.0
    found = False
    for word in re.split(r"[\s-]+", words.lower().strip()):
        if word == "and" or word == "a" and found:
            continue
        if word not in _WORDS:
            return None
        found = True
        if word in ("hundred", "thousand"):
            current = max(current, 1.0) * _WORDS[word]
            if word == "thousand":
                total, current = total + current, 0.0
        else:
            current += _WORDS[word]
    return f"{total + current:g}" if found else None


def amounts(text: str) -> list[Amount]:
    out = []
    for m in _AMOUNT.finditer(text):
        unit = next(name for pattern, name in _UNIT_OF if pattern.fullmatch(m["unit"]))
        number = plain(m["number"]) if m["number"] else spelled(m["words"])
        if number is not None:
            out.append(Amount(number, unit, m.start(), m.end()))
    return out


def frequencies(text: str) -> list[Word]:
    """How often, in the order of the text; "once daily at bedtime" is one, nightly."""
    out: list[Word] = []
    for m in _FREQUENCY.finditer(text):
        code = _FREQUENCIES[int(m.lastgroup[1:])][0]
        if (
            out
            and m.start() - out[-1].end <= 2
            and not text[out[-1].end:m.start()].strip(" ,\n")
            and code != out[-1].code
        ):
            before = out[-1]
            if before.code == "daily" and code in ("nightly", "daily", "weekly"):
                out[-1] = Word(code, before.start, m.end())
                continue
            if code == "daily" or code == "nightly" and before.code == "bid":
                out[-1] = Word(before.code, before.start, m.end())
                continue
        out.append(Word(code, m.start(), m.end()))
    out += [Word("daily", m.start(), m.end()) for m in _ONCE.finditer(text)]
    return sorted(out, key=lambda w: w.start)


def intervals(text: str) -> list[Word]:
    """Monitoring intervals as "every 2 weeks", "every month"."""
    out = []
    for m in _INTERVAL.finditer(text):
        code = _interval(m)
        if code is not None:
            out.append(Word(code, m.start(), m.end()))
    return out


def _interval(m: re.Match) -> str | None:
    if m["word"]:
        return _WORD_INTERVALS[re.sub(r"[\s-]", "", m["word"].lower())]
    if m["adj"]:
        return _WORD_INTERVALS[m["adj"].lower()]
    if m["each"] or m["once"]:
        unit = (m["each"] or m["once"]).lower()
        return "every 3 months" if unit == "quarter" else f"every {unit}"
    if m["twice"]:
        return {"week": "twice a week", "month": "every 2 weeks", "year": "every 6 months"}[m["twice"].lower()]
    if m["often"]:
        return "every 4 months" if m["often"].lower() in ("three", "3") else "every 3 months"
    if m["fortnight"]:
        return "every 2 weeks"
    if m["alternate"]:
        return f"every 2 {m['alternate'].lower()}s"
    for number, unit in (("q", "qunit"), ("nly", "nlyunit"), ("apart", "apartunit"), ("n", "unit")):
        if m[unit]:
            return _every(m[number], m[unit])
    return None


def _every(number: str | None, unit: str) -> str | None:
    unit = {"d": "day", "w": "week", "m": "month", "y": "year"}[unit[0].lower()]
    number = (number or "1").lower()
    if number == "few":
        return f"every few {unit}s"
    n = {"other": 2, "second": 2, "third": 3}.get(number) or (int(number) if number.isdigit() else int(_WORDS[number]))
    if unit == "day" and n and n % 7 == 0:
        unit, n = "week", n // 7
    return None if n == 0 else f"every {unit}" if n == 1 else f"every {n} {unit}s"
