"""When a fact holds: half-open intervals of dates that know their precision, and time words resolved against an entry.

A date is an ISO-8601 string of reduced precision: `2020`, `2020-03` or `2020-03-04`. Dates carry no zone: a moment with
an offset was converted to UTC where it came in. Nothing here reads a clock: what an undated entry says stays undated.
Standard library only.
"""
from __future__ import annotations

import calendar
import dataclasses
import datetime as dt
import functools
import re
from collections.abc import Callable
from typing import Literal

from core_jax.records import RecordError, parse_time
from stam_jax.graph import canonical

Order = Literal["yes", "no", "unknown"]
SOURCES = ("explicit", "relative", "entry_default", "unknown")
_PRECISION = {4: "year", 7: "month", 10: "day"}
_DAY = dt.timedelta(days=1)


def bounds(date: str, field: str = "date") -> tuple[dt.date, dt.date]:
    """(first day, last day) that a date of reduced precision may mean. A time of day after it is not looked at.

    Raises: RecordError naming `field`.
    """
    try:
        if not isinstance(date, str):
            raise ValueError
        return _bounds(date)
    except ValueError:
        raise RecordError(f"got {date!r:.80}, expected YYYY, YYYY-MM or YYYY-MM-DD", field=field) from None


@functools.lru_cache(maxsize=1 << 14)
def _bounds(date: str) -> tuple[dt.date, dt.date]:
    """Raises: ValueError."""
    if not re.fullmatch(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9:]{8})?)?)?", date):
        raise ValueError
    year, month, day = (int(p) if p else 0 for p in (date[:4], date[5:7], date[8:10]))
    if len(date) >= 10:
        return (exact := dt.date(year, month, day)), exact
    if len(date) == 7:
        return dt.date(year, month, 1), dt.date(year, month, calendar.monthrange(year, month)[1])
    return dt.date(year, 1, 1), dt.date(year, 12, 31)


def entry_date(value: str | None, field: str = "date") -> str | None:
    """The date of an entry in canonical form: reduced precision stays, an offset is converted to UTC; "" -> None.

    `2020`, `2020-03`, `2020-03-04` or `2020-03-04T23:30:00`. Raises: RecordError naming `field`.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str) and len(value) in _PRECISION:
        bounds(value, field)
        return value
    try:
        return parse_time(value, what=field)
    except ValueError as e:
        raise RecordError(str(e).split(": ", 1)[1], field=field) from None


@dataclasses.dataclass(frozen=True, slots=True)
class ClinicalTime:
    """[start, end) in which a fact holds; None = unknown start, or no end known.

    end_planned: the end was announced, not observed. source: where the dates come from.
    Raises: RecordError naming the field: no date, an end that is not after the start, source "unknown" with dates.
    """

    start: str | None = None
    end: str | None = None
    end_planned: bool = False
    source: str = "unknown"

    def __post_init__(self):
        canonical.choice(self.source, "source", SOURCES)
        canonical.truth(self.end_planned, "end_planned")
        for name in ("start", "end"):
            date = getattr(self, name)
            if date is not None:
                bounds(date, name)
                if len(date) not in _PRECISION:
                    raise RecordError(f"got {date!r}, expected a date without a time of day", field=name)
        if self.start is not None and self.end is not None and bounds(self.end)[1] <= bounds(self.start)[0]:
            raise RecordError(f"got {self.end}, expected a date after start {self.start}", field="end")
        if (self.source == "unknown") != (self.start is None and self.end is None):
            raise RecordError(f"got {self.source!r} with start {self.start} and end {self.end}", field="source")
        if self.end_planned and self.end is None:
            raise RecordError("got true without an end", field="end_planned")

    @property
    def precision(self) -> str:
        """Of the start: day, month, year or unknown."""
        return "unknown" if self.start is None else _PRECISION[len(self.start)]

    def ended_before(self, date: str) -> bool:
        """Whether it certainly ended before the first day that `date` may mean."""
        return self.end is not None and bounds(self.end)[1] < bounds(date)[0]


UNKNOWN = ClinicalTime()


def later(a: ClinicalTime, b: ClinicalTime) -> Order:
    """Does `a` start after `b`? yes or no only where the precision of both decides it; the same day is unknown."""
    if a.start is None or b.start is None:
        return "unknown"
    (a_first, a_last), (b_first, b_last) = bounds(a.start), bounds(b.start)
    if a_first > b_last:
        return "yes"
    return "no" if a_last < b_first else "unknown"


# ---- time words -----------------------------------------------------------------------------------------------
# A point in time is the range (first day, last day) that the words may mean; `_name` names the range, or None.

_Range = tuple[dt.date, dt.date]
_MONTHS = {name.lower(): i for i, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name[:3]: i for name, i in _MONTHS.items()} | {"sept": 9}
_WEEKDAYS = {name.lower(): i for i, name in enumerate(calendar.day_name)}
_NUMBERS = {n: i for i, n in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve".split())} | {"a": 1, "an": 1}
_COUNT = rf"(?P<n>[0-9]{{1,4}}|{'|'.join(_NUMBERS)}) (?P<unit>day|week|month|year)s?"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_DAY_OF_MONTH = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[0-9]{4})"
_TODAY = {"today", "now", "currently", "this morning", "this afternoon", "this evening", "tonight"}
_SHIFTS = {"yesterday": -1, "last night": -1, "the day before yesterday": -2, "day before yesterday": -2,
           "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2}


def default(date: str | None) -> ClinicalTime:
    """What an entry says without naming a time: it starts on the entry's date, or is unknown where there is none."""
    return UNKNOWN if date is None else ClinicalTime(start=date[:10], source="entry_default")


def resolve(words: str | None, date: str | None, *, day_first: bool | None = None) -> ClinicalTime:
    """Time words of an entry -> interval, against the entry's date and nothing else.

    Understood: ISO dates, `4 March 2020`, `Mar 2020`, `3/14/2020`, `2019`, today, yesterday, `two weeks ago`, `in 3
    months`, `last week`, `next year`, `on Monday` and `March 4` (the nearest to the entry), `since X`, `until X`, `from
    X to Y`, `for the past 3 days`, `for the next 2 weeks`. A range that is wider than its words (last week, the year
    of an ambiguous `3/4/2020`) takes the precision that covers it. The last day of `until` still counts; an end after
    the entry is planned. What is not understood, and relative words of an undated entry, are unknown.

    Args:
        words: None or "" = the entry's own date. date: of the entry (`entry_date`), None = undated.
        day_first: how to read 3/4/2020; None = only its year is certain.
    """
    words = re.sub(r"\s+", " ", words or "").strip().strip(".,;:()").lower()
    if not words:
        return default(date)
    here = None if date is None else bounds(date)

    def point(piece: str) -> tuple[str, bool] | None:
        try:
            return _point(piece, here, day_first)
        except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999
            return None

    if span := re.fullmatch(rf"(?:for |over |in )?(?:the )?(?P<way>past|last|next) {_COUNT}", words):
        far = point(f"{span['n']} {span['unit']}s {'from now' if span['way'] == 'next' else 'ago'}")
        if far is None:
            return UNKNOWN
        if span["way"] == "next":
            return _interval(date[:10], far[0], True, here)
        return _interval(far[0], None, True, here)
    if span := re.fullmatch(r"(?:from |between )?(?P<a>.+?) (?:to|until|till|through|and|-|–|—) (?P<b>.+)", words):
        a, b = point(span["a"]), point(span["b"])
        if a and b:
            return _interval(a[0], _after(b[0]), a[1] or b[1], here)
    if span := re.fullmatch(r"(?:since|from|starting|starting on|beginning|as of) (?P<a>.+)", words):
        a = point(span["a"])
        return _interval(a[0], None, a[1], here) if a else UNKNOWN
    if span := re.fullmatch(r"(?:until|till|through|up to) (?P<b>.+)", words):
        b = point(span["b"])
        start = None if here is None or b is None or bounds(b[0])[1] < here[0] else date[:10]
        return _interval(start, _after(b[0]), b[1], here) if b else UNKNOWN
    a = point(words)
    return _interval(a[0], None, a[1], here) if a else UNKNOWN


def _interval(start: str | None, end: str | None, relative: bool, here: _Range | None) -> ClinicalTime:
    planned = end is not None and here is not None and bounds(end)[0] > here[1]
    try:
        return ClinicalTime(start, end, planned, "relative" if relative else "explicit")
    except RecordError:  # the words name an end before its start, or neither
        return UNKNOWN


def _after(date: str) -> str | None:
    """The first date of the same precision after `date`; None past the year 9999, which stands for no end."""
    try:
        following = (bounds(date)[1] + _DAY).isoformat()
    except OverflowError:
        return None
    return following[:len(date)]


def _name(first: dt.date, last: dt.date) -> str | None:
    """The narrowest date that covers a range."""
    a, b = first.isoformat(), last.isoformat()
    return next((a[:n] for n in (10, 7, 4) if a[:n] == b[:n]), None)


def _point(words: str, here: _Range | None, day_first: bool | None) -> tuple[str, bool] | None:
    """(date, whether it depends on the entry's date), or None. Raises: ValueError, OverflowError: no such day."""
    words = re.sub(r"^(?:on|in|during|around|about|at|the) ", "", words)
    if (absolute := _absolute(words, day_first)) is not None:
        return absolute, False
    if here is None or (found := _relative(words, here)) is None:
        return None
    name = _name(*found)
    return None if name is None else (name, True)


def _absolute(words: str, day_first: bool | None) -> str | None:
    if re.fullmatch(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?", words):
        bounds(words)
        return words
    if m := re.fullmatch(r"([0-9]{1,2})[/.-]([0-9]{1,2})[/.-]([0-9]{4})", words):
        a, b, year = (int(g) for g in m.groups())
        if day_first is None and a <= 12 and b <= 12 and a != b:
            return f"{year:04d}"
        day, month = (a, b) if day_first or (day_first is None and a > 12) else (b, a)
        return dt.date(year, month, day).isoformat()
    for pattern in (rf"{_MONTH} {_DAY_OF_MONTH},? {_YEAR}", rf"{_DAY_OF_MONTH} (?:of )?{_MONTH},? {_YEAR}"):
        if m := re.fullmatch(pattern, words):
            return dt.date(int(m["year"]), _MONTHS[m["month"]], int(m["day"])).isoformat()
    if m := re.fullmatch(rf"{_MONTH},? (?:of )?{_YEAR}", words):
        return dt.date(int(m["year"]), _MONTHS[m["month"]], 1).isoformat()[:7]
    return None


def _relative(words: str, here: _Range) -> _Range | None:
    first, last = here
    if words in _TODAY:
        return here
    if words in _SHIFTS:
        return first + _SHIFTS[words] * _DAY, last + _SHIFTS[words] * _DAY
    if m := re.fullmatch(rf"{_COUNT} (?:ago|earlier|before|prior)", words):
        return _shift(here, m, -1)
    if m := re.fullmatch(rf"{_COUNT}(?: from now| later| after|)", words):  # "in 3 months" lost its "in"
        return _shift(here, m, 1)
    if m := re.fullmatch(r"(?P<way>last|past|previous|this|current|next|coming) (?P<unit>week|month|year)", words):
        step = {"this": 0, "current": 0, "next": 1, "coming": 1}.get(m["way"], -1)
        if m["unit"] == "week":
            monday = (d - d.weekday() * _DAY + 7 * step * _DAY for d in here)
            return next(monday), next(monday) + 6 * _DAY
        return _months(here, step) if m["unit"] == "month" else _years(here, step)
    if m := re.fullmatch(rf"(?P<way>last |this |next )?(?P<weekday>{'|'.join(_WEEKDAYS)})", words):
        offset = {"last ": lambda n: n - 7 if n else -7, "next ": lambda n: n or 7}.get(
            m["way"], lambda n: n if n <= 3 else n - 7)  # the nearest
        return tuple(d + offset((_WEEKDAYS[m["weekday"]] - d.weekday()) % 7) * _DAY for d in here)
    for pattern in (rf"{_MONTH} {_DAY_OF_MONTH}", rf"{_DAY_OF_MONTH} (?:of )?{_MONTH}"):
        if m := re.fullmatch(pattern, words):
            month, day = _MONTHS[m["month"]], int(m["day"])
            return _nearest(here, lambda year, month=month, day=day: (exact := dt.date(year, month, day), exact))
    if m := re.fullmatch(_MONTH, words):
        return _nearest(here, lambda year: bounds(f"{year:04d}-{_MONTHS[m['month']]:02d}"))
    return None


def _shift(here: _Range, found: re.Match, sign: int) -> _Range:
    n = sign * (_NUMBERS[found["n"]] if found["n"] in _NUMBERS else int(found["n"]))
    if found["unit"] in ("day", "week"):
        step = n * (7 if found["unit"] == "week" else 1) * _DAY
        return here[0] + step, here[1] + step
    return _months(here, n) if found["unit"] == "month" else _years(here, n)


def _months(here: _Range, n: int) -> _Range:
    def month(day: dt.date) -> _Range:
        index = day.year * 12 + day.month - 1 + n
        return bounds(f"{index // 12:04d}-{index % 12 + 1:02d}")

    return month(here[0])[0], month(here[1])[1]


def _years(here: _Range, n: int) -> _Range:
    return dt.date(here[0].year + n, 1, 1), dt.date(here[1].year + n, 12, 31)


def _nearest(here: _Range, of_year: Callable[[int], _Range]) -> _Range | None:
    """The year's range that lies nearest to the entry, the earlier of two; None where no year nearby has it."""
    found = []
    for year in range(here[0].year - 1, here[1].year + 2):
        try:
            found.append(of_year(year))
        except ValueError:  # 29 February
            continue
    return min(found, key=lambda r: (abs((r[0] - here[0]).days), r[0]), default=None)
