"""Time words of a sentence, in a spelling that `stam_jax.graph.clinical_time.resolve` reads."""

from __future__ import annotations

import calendar
import dataclasses
import re

_MONTH = (
    "(?:" + "|".join([*(m for m in calendar.month_name if m), *(m for m in calendar.month_abbr if m), "Sept"]) + r")\.?"
)
_DAY = r"[0-3]?[0-9](?:st|nd|rd|th)?"
_COUNT = (
    r"(?:[0-9]{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|a couple(?: of)?|a few)"
    r"[ \n-](?:day|week|wk|month|mth|mo|year|yr)s?"
)
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_SEP = r"[ \n]"
_POINTS = (
    ("iso", r"[12][0-9]{3}-[01][0-9]-[0-3][0-9]"),
    ("slash", r"[0-3]?[0-9][/.][0-3]?[0-9][/.](?:[12][0-9]{3}|[0-9]{2})(?![0-9/.]*[0-9%])"),
    ("dashed", r"[0-3]?[0-9]-[0-3]?[0-9]-[12][0-9]{3}"),
    (
        "dmy",
        rf"{_DAY}{_SEP}?[-/ \n]?(?:of{_SEP})?{_MONTH}(?:,?{_SEP}|[-/ ]|{_SEP}?')(?:[12][0-9]{{3}}"
        rf"|[0-9]{{2}}(?![0-9:]))",
    ),
    ("mdy", rf"{_MONTH}[ \n-]{_DAY},?(?:{_SEP}|-|{_SEP}?')(?:[12][0-9]{{3}}|(?<=')[0-9]{{2}})"),
    ("my", rf"{_MONTH}(?:,?{_SEP}(?:of{_SEP})?|[-/]|{_SEP}?')(?:[12][0-9]{{3}}|(?<=')[0-9]{{2}})"),
    ("numeric month", r"(?:0?[1-9]|1[0-2])/[12][0-9]{3}"),
    ("iso month", r"[12][0-9]{3}-(?:0[1-9]|1[0-2])(?![0-9-])"),
    ("ago", rf"{_COUNT}{_SEP}(?:ago|back|earlier|prior)"),
    (
        "word",
        r"(?:the day before yesterday|yesterday|last night|today|this morning|this afternoon|this evening" r"|tonight)",
    ),
    ("last", rf"(?:last|this|this past|past){_SEP}(?:week|month|year|{_WEEKDAY})"),
    (
        "weekday",
        rf"on{_SEP}{_WEEKDAY}(?!s)|(?:(?<=from )|(?<=starting )|(?<=beginning )|(?<=commencing )"
        rf"|(?<=effective )){_WEEKDAY}"
        r"(?!s)",
    ),
    ("coming weekday", rf"(?:(?<=until )|(?<=till )|(?<=through )|(?<=thru )){_WEEKDAY}(?!s)"),
    ("dm", rf"{_DAY}{_SEP}(?:of{_SEP})?{_MONTH}(?![\w'])"),
    ("md", rf"{_MONTH}{_SEP}{_DAY}(?![\w/])"),
    (
        "year",
        r"(?<=\bin )(?:19|20)[0-9]{2}(?![0-9])|(?<=\bsince )(?:19|20)[0-9]{2}(?![0-9])|(?<=\baround )(?:19"
        r"|20)[0-9]{2}(?![0-9])"
        r"|(?<=\bcirca )(?:19|20)[0-9]{2}(?![0-9])|(?<=[(,] )(?:19|20)[0-9]{2}(?=[),.]|$)|(?<=\()(?:19"
        r"|20)[0-9]{2}(?=\))"
        r"|(?<=[a-zA-Z] )(?:19|20)[0-9]{2}(?=$|[),.])|(?<=year )(?:19|20)[0-9]{2}(?![0-9])",
    ),
    ("short year", r"'[0-9]{2}(?!')"),
    ("bare month", rf"(?<=\bin ){_MONTH}(?![\w.']|{_SEP}[0-9])|(?<=\bsince ){_MONTH}(?![\w.']|{_SEP}[0-9])"),
    (
        "future",
        rf"(?:in{_SEP}{_COUNT}(?:{_SEP}time)?|{_COUNT}{_SEP}from{_SEP}(?:now|today)|tomorrow|next{_SEP}(?:week"
        rf"|month|year|{_WEEKDAY}))",
    ),
)
_POINT = re.compile(
    "|".join(f"(?P<p{i}>(?<![0-9A-Za-z./-]){p}(?![A-Za-z0-9]))" for i, (_, p) in enumerate(_POINTS)), re.I
)
_LENGTH = re.compile(
    rf"(?:for|x|×|over|to{_SEP}(?:complete|finish)|lasting)[ \n]?(?P<near>(?:the{_SEP})?(?P<way>next|past"
    rf"|last|coming)?{_SEP}?)?(?:(?:(?:a|in){_SEP}total{_SEP}of|just|only|exactly|another|an?{_SEP}(?:further"
    rf"|additional)"
    rf"|a{_SEP}full|up{_SEP}to){_SEP})?"
    rf"(?P<count>[0-9]{{1,3}}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    rf"|fourteen|an?(?:{_SEP}(?:further|full|whole|additional))?|another|(?<=the{_SEP}coming{_SEP})"
    rf"|(?<=a{_SEP}further{_SEP})|(?<=another{_SEP})|(?<=a{_SEP}full{_SEP}))[ \n-]?"
    rf"(?:(?:more|further|additional|full|consecutive|whole){_SEP})?"
    rf"(?P<unit>day|week|wk|month|year|yr|d)s?(?![A-Za-z])(?!{_SEP}(?:ago|back))",
    re.I,
)
_COURSE = re.compile(
    rf"(?P<count>[0-9]{{1,3}}|one|two|three|four|five|six|seven|eight|nine|ten"
    rf"|fourteen)[ \n-](?P<unit>day|week)s?"
    rf"(?:{_SEP}|'s?{_SEP})(?:course|supply|treatment|regimen|in{_SEP}(?:all|total)|total|only|of{_SEP}(?:therapy"
    rf"|treatment"
    rf"|antibiotics|it))|(?:course|supply|total){_SEP}of{_SEP}(?P<count2>[0-9]{{1,3}}|one|two|three|five|six|seven"
    rf"|ten|fourteen){_SEP}(?P<unit2>day|week)s?",
    re.I,
)
_SEVENTHS = re.compile(  # 5/7: five days; 2/52: two weeks; 3/12: three months
    r"(?:(?:for|x|×|course of)[ \n]?(?P<n>[0-9]{1,2})/(?P<of>7|52|12)|, (?P<n2>[0-9]{1,2})/(?P<of2>7|52)"
    r"(?=[ .;)]*$))(?![0-9/])",
    re.I,
)
_UNTIL = re.compile(
    r"(?:until|till|through|thru|up to|up until|(?:until|up to|through) and including|through to"
    r"|due to (?:end|finish|stop)(?: on)?|planned (?:end|stop)(?: date)?:?(?: is| on)?|(?:and )?then (?:stop"
    r"|discontinue"
    r"|off)(?: on| after)?|course (?:ends|finishes|completes)(?: on)?|to (?:end|run until|run to)(?: on)?"
    r"|(?:last|final) (?:tablet|pill|capsule|one|day of treatment)(?: is| will be| due)?(?: on)?|last dose(?: is|"
    r" will be| due)?(?: on)?|last day(?: is"
    r"| will be)?(?: on)?|ending(?: on)?|ends(?: on)?"
    r"|end date:?|end(?: on)?|to finish(?: on)?|finish(?:ing|es)?(?: on)?|complete(?:s|d)?(?: on| by)"
    r"|to be completed(?: on| by)|stop(?:ping)?(?: date:?| on)|with the last (?:dose|tablet|pill|day)"
    r"(?: on)?|(?:complete|finish|continue)\b[^.;]{0,70} by|final (?:dose|day)(?: is"
    r"| will be)?(?: on)?|stop date)[ \n]*$",
    re.I,
)
_SINCE = re.compile(r"(?:since|from|starting|starting on|beginning|as of|effective)[ \n]$", re.I)
_DOCUMENT = re.compile(
    r"(?:(?:copied|transcribed|pasted|quoted|taken|carried) (?:over |forward )?from|notes?|list|letter|reports?"
    r"|printout|entry|records?|documentation|summary|prescription"
    r"|bottle|chart|fax|label|refill(?:ed)?"
    r"|results?|paperwork|form|encounter|visit|admission|hospitali[sz]ation|stay)"
    r"(?:[ \n](?:of|on|from|dated|in))?[ \n]*\(?$",
    re.I,
)
_ELSEWHERE = re.compile(
    r"(?:appointment|born|dob|date of birth|next visit|follow[ -]?up|return|recheck|review(?:ed)?|quit(?: smoking)?|lmp"
    r"|last (?:menstrual )?period|sober(?: since)?"
    r"|last seen|seen)"
    r"(?:[ \n](?:of|on|from|dated|in|due))?[ \n]*\(?$",
    re.I,
)
_HINT = re.compile(r"[0-9]|day|night|morning|evening|week|month|year|wk|yr|tomorrow|since|in [A-Z]", re.I)
_UNIT = {"wk": "week", "yr": "year", "mo": "month", "mth": "month", "d": "day"}
_OF = {"7": "day", "52": "week", "12": "month"}
_FEW = {"fourteen": "14", "another": "1", "": "1"}


@dataclasses.dataclass(frozen=True, slots=True)
class TimeWords:
    """words for `resolve`, standing at [start, end). way: past (a day that has been, or may have), future, until (an
    end that is announced), length (for so long from now), lasting (for so long already), document (the date of a note
    or a list), elsewhere (of a visit or a birth)."""

    words: str
    start: int
    end: int
    way: str


def order_of(text: str, date: str | None) -> bool | None:
    """Whether the day stands first in the entry's dates with slashes: told by a day above 12, or by the entry's own
    date among them. None = not told."""
    found = [
        tuple(map(int, m))
        for m in re.findall(
            r"(?<![0-9/.])([0-3]?[0-9])[/.]([0-3]?[0-9])[/.](?:[12][0-9]{3}" r"|[0-9]{2})(?![0-9/])", text
        )
    ]
    for a, b in found:
        if a > 12 >= b:
            return True
        if b > 12 >= a:
            return False
    if date is not None and len(date) >= 10:
        month, day = int(date[5:7]), int(date[8:10])
        if month != day:
            if (day, month) in found and (month, day) not in found:
                return True
            if (month, day) in found and (day, month) not in found:
                return False
    return None


def time_words(text: str, day_first: bool | None = None) -> list[TimeWords]:
    if not _HINT.search(text):
        return []
    out = []
    for m in _POINT.finditer(text):
        kind = _POINTS[int(m.lastgroup[1:])][0]
        words = _spelled(kind, m.group(), day_first)
        before = text[max(0, m.start() - 90):m.start()]
        if until := _UNTIL.search(before):
            start = m.start() - min(len(until.group()), 25)
            out.append(TimeWords(f"until {words}", start, m.end(), "until"))
        elif kind != "future" and _DOCUMENT.search(before):
            out.append(TimeWords(words, m.start(), m.end(), "document"))
        elif _ELSEWHERE.search(before):
            out.append(TimeWords(words, m.start(), m.end(), "elsewhere"))
        elif kind == "future":
            out.append(TimeWords(words, m.start(), m.end(), "future"))
        else:
            since = _SINCE.search(before)
            start = m.start() - len(since.group()) if since else m.start()
            out.append(TimeWords(words, start, m.end(), "past"))
    for m in _LENGTH.finditer(text):
        count, unit = m["count"], m["unit"].lower()
        way = "lasting" if m["way"] and m["way"].lower() in ("past", "last") else "length"
        n = "1" if count[:1].lower() == "a" else _FEW.get(count.lower(), count)
        direction = "past" if way == "lasting" else "next"
        out.append(TimeWords(f"for the {direction} {n} {_UNIT.get(unit, unit)}s", m.start(), m.end(), way))
    for m in _COURSE.finditer(text):
        count, unit = m["count"] or m["count2"], (m["unit"] or m["unit2"]).lower()
        n = _FEW.get(count.lower(), count)
        out.append(TimeWords(f"for the next {n} {unit}s", m.start(), m.end(), "length"))
    for m in _SEVENTHS.finditer(text):
        n, unit = m["n"] or m["n2"], _OF[m["of"] or m["of2"]]
        out.append(TimeWords(f"for the next {int(n)} {unit}s", m.start(), m.end(), "length"))
    return sorted(out, key=lambda t: (t.start, t.end))


def _spelled(kind: str, words: str, day_first: bool | None) -> str:
    words = " ".join(words.split())
    if kind in ("slash", "dashed"):
        a, b, year = re.split(r"[/.-]", words)
        year = _year(year)
        if day_first is None or not (1 <= int(a) <= 31 and 1 <= int(b) <= 31):
            return f"{a}/{b}/{year}"
        day, month = (a, b) if day_first else (b, a)
        return f"{year}-{int(month):02d}-{int(day):02d}" if int(month) <= 12 else f"{a}/{b}/{year}"
    if kind in ("dmy", "mdy", "my"):
        head, year = re.match(r"(.*?)[\s,'/-]*([0-9]+)$", words, re.S).groups()
        return " ".join(re.sub(r"[-/]", " ", head).split()).rstrip(",") + " " + _year(year)
    if kind == "numeric month":
        month, year = words.split("/")
        return f"{year}-{int(month):02d}"
    if kind in ("ago", "future"):
        words = re.sub(r"(?i)\ba couple(?: of)?\b", "2", words)
        words = re.sub(r"(?i)\ba few\b", "3", words)
        words = re.sub(r"(?i)\bback$", "ago", words)
        words = re.sub(r"(?i)\b(wk|yr|mo|mth)(s?)\b", lambda m: _UNIT[m[1].lower()] + m[2], words)
        words = re.sub(r"(?i) time$", "", words)
        return re.sub(r"(?i)(?<=\w)-(?=day|week|month|year)", " ", words)
    if kind == "short year":
        return _year(words[1:])
    if kind == "coming weekday":
        return f"next {words}"
    if kind == "last":
        return re.sub(r"(?i)^this past", "last", words)
    return words


def _year(year: str) -> str:
    if len(year) == 4:
        return year
    return ("20" if int(year) < 60 else "19") + year
