"""Whether what a sentence says of a drug begins on a later day, or is paused until one: "restart tomorrow at 5 mg"."""

from __future__ import annotations

import re
from typing import NamedTuple

from stam_jax.graph.clinical_time import bounds, resolve
from stam_jax.rules import cues
from stam_jax.rules.quantities import amounts, frequencies
from stam_jax.rules.scene import Scene
from stam_jax.rules.times import TimeWords

SWITCH = re.compile(
    r"\b(?:switch|chang|convert|transition|rotat|cross-?taper|replac|substitut|swap|exchang|mov(?:e"
    r"|ed|ing)\b|trad(?:e|ed|ing)\b)\w*"
)
_FROM = r"(?:from|starting|beginning|commencing|effective|as of|as from)"
_INTRODUCED = re.compile(rf"\b{_FROM}(?: on)? $|^{_FROM}\b")
_INTRODUCTION = re.compile(rf"^(?:in|since|{_FROM})(?: on)? ", re.I)
_BETWEEN = re.compile(  # what may stand between a dose and the day on which it begins
    rf"(?:[ ]|\b(?:{_FROM}|on|at|dose|tablets?|a day|of|to|it|this|the|his|her|my|your|him|me|back|again|once|by mouth"
    r"|orally|po|with (?:food|meals)|and|mg|mcg|units?)\b|[0-9.]+)*"
)
_FRONT = re.compile(rf"(?:[ ,:(–-]|\b(?:plan|and|but|then|so|{_FROM}|on)\b)*")  # before a day that opens the sentence
_LEADING = re.compile(  # after it
    r"(?:[ ,:–-]|\b(?:we|i|he|she|they|you|patient|pt|will|to|please|plan|can|should|and|then|is|are)\b)*"
)
_TO_DO = re.compile(  # the form of a verb that is still to be done
    r"(?:start|restart|re-start|begin|resume|commence|recommence|initiate|add|increase|raise|reduce|decrease|lower"
    r"|cut|double"
    r"|halve|stop|discontinue|cease|hold|withhold|suspend|pause|switch|change|swap|convert|go|titrate|uptitrate"
    r"|starting"
    r"|beginning|commencing)"
)
_TO_BE = re.compile(r"\b(?:to|will|should|can|must|shall) be $")
_SLASHED = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})")
_PAUSE = re.compile(
    r"\b(?:hold(?:ing)?|held|withh[eo]ld|withholding|suspend\w*|paus(?:e[ds]?|ing)|on hold|omit(?:ted|ting)?|skip\w*)\b"
)


class _Place(NamedTuple):
    start: int
    end: int
    verb: str = ""


def begins(scene: Scene, start: int, end: int, of: tuple[tuple[int, int], ...] = ()) -> str | None:
    """Time words of the later day on which what [start, end) says of a dose begins; None where it is of now.

    The day must stand directly beside the drug, its dose or its verb, or open the sentence: of "start X, review next
    week" it is the review's. of: further places of what begins.
    """
    text = scene.text
    verbs = _verbs(text, start, end)
    named = [*verbs, *(_Place(*place) for place in of), *(_Place(m.start, m.end) for m in scene.of_kind("drug")),
             *(_Place(start + a.start, start + a.end) for a in amounts(text[start:end]))]
    for t in scene.times:
        if not start <= t.start < end:
            continue
        if not verbs and not _INTRODUCED.search(text[:t.start]) and not _INTRODUCED.search(text[t.start:t.end]):
            continue
        if (words := day_ahead(scene, t)) is None:
            continue
        left = max((p.end for p in named if start <= p.start and p.end <= t.start), default=None)
        right = min((p.start for p in named if p.start >= t.end), default=None)
        if left is not None:
            gap = text[left:t.start]
            weekly = words.startswith("next ") and any(w.code.endswith("weekly") for w in frequencies(gap))
            if not weekly and _BETWEEN.fullmatch(_unfrequent(gap)):
                return words
        elif right is not None and _FRONT.fullmatch(text, start, t.start) and _LEADING.fullmatch(text, t.end, right):
            return words
    return None


def _verbs(text: str, start: int, end: int) -> list[_Place]:
    """In the order of the text."""
    found = {(m.start(), m.end(), m.group()) for p in (cues.START, cues.CHANGE, cues.STOP, SWITCH)
             for m in p.finditer(text, start, end)}
    return [_Place(*f) for f in sorted(found)]


def _unfrequent(text: str) -> str:
    for w in reversed(frequencies(text)):
        text = text[:w.start] + text[w.end:]
    return text


def day_ahead(scene: Scene, t: TimeWords) -> str | None:
    """The words of a day after the entry's, None of any other; a weekday of what is to be done is the next one."""
    if t.way not in ("past", "future"):
        return None
    words = _INTRODUCTION.sub("", t.words)
    if weekday := re.fullmatch(r"(?:on )?((?:mon|tues|wednes|thurs|fri|satur|sun)day)", words, re.I):
        if not _to_do(scene.text, t.start):
            return None
        return f"next {weekday[1]}"
    if t.way == "future":
        return words
    if scene.date is None:
        return None
    days = [resolve(words, scene.date).start]
    if _SLASHED.fullmatch(words) and days[0] is not None and len(days[0]) == 4:  # either order of day and month
        days = [resolve(words, scene.date, day_first=order).start for order in (True, False)]
    last = bounds(scene.date[:10])[1]
    return words if all(day is not None and bounds(day)[0] > last for day in days) else None


def _to_do(text: str, at: int) -> bool:
    """Whether the verb next before a place, else after it, is of something to be done; true where there is none."""
    verbs = _verbs(text, 0, len(text))
    before = [v for v in verbs if v.end <= at]
    verb = before[-1] if before else next((v for v in verbs if v.start >= at), None)
    if verb is None:
        return True
    return _TO_DO.fullmatch(verb.verb) is not None or _TO_BE.search(text[:verb.start]) is not None


def paused(scene: Scene, start: int, end: int) -> str | None:
    """Time words of a stop that has an end: "hold until 3 May", "held for 5 days"; None of any other."""
    verb = _PAUSE.search(scene.text, start, end)
    if verb is None:
        return None
    found = [t for t in scene.times if t.way in ("until", "length") and verb.start() < t.start < end
             and ";" not in scene.text[verb.end():t.start]]
    since = scene.time(start, end, "past")
    if not found or found[0].way == "length" and since:
        return None
    until = found[0].words
    return f"from {re.sub('^(?:since|from|on) ', '', since)} to {until[6:]}" if since else until
