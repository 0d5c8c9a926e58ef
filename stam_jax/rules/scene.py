"""One sentence with all that was found in it, and the making of drafts from its parts."""

from __future__ import annotations

import calendar
import dataclasses
import re

from stam_jax.graph.clinical_time import bounds, resolve
from stam_jax.rules import cues
from stam_jax.rules.lexicon import Mention, mentions
from stam_jax.rules.sentences import Sentence
from stam_jax.rules.times import TimeWords, time_words
from stam_jax.write.writer import Draft

_DATED = ("problem", "procedure", "drug")
_DIRECT = re.compile(r" ?(?:(?:in|since|dx'?d?|diagnosed|on|circa|around|approx|~|c\.|from|-|–) ?){0,2}")
_YEAR = re.compile(r"(?:in )?[12][0-9]{3}")
_MONTH = re.compile("|".join(m for m in (*calendar.month_name, *calendar.month_abbr) if m), re.I)
_HAS_BEEN = re.compile(r"\b(?:[a-z]{3,}ed|was|were|had|began|gave|took|went|got|seen|since|last)\b")
_TO_COME = re.compile(r"\b(?:will|to be|plan\w*|due|booked|scheduled|next|appointment|review|follow|until|by)\b")
_ITEM = re.compile(r" ?(?:(?:s/p|h/o|hx|of|status post|history|prior|remote|known|old) ){0,3}")


@dataclasses.dataclass(frozen=True)
class Scene:
    """source: the entry's text; offset: where the sentence starts in it. text: the sentence in lower case, line breaks
    as blanks, of the same length. plain: it as written, line breaks as blanks. date: of the entry."""

    source: str
    offset: int
    plain: str
    text: str
    sentence: Sentence
    mentions: tuple[Mention, ...]
    times: tuple[TimeWords, ...]
    date: str | None

    @classmethod
    def of(cls, source: str, sentence: Sentence, date: str | None, day_first: bool | None) -> Scene:
        plain = re.sub(r"\s", " ", source[sentence.start:sentence.end]).replace("’", "'")
        text = plain.lower()
        text = text if len(text) == len(plain) else plain  # a letter whose lower case is longer
        times = tuple(_past_month(t, text, date) for t in time_words(plain, day_first))
        for t in times:  # "may" of a date is no doubt
            text = text[:t.start] + text[t.start:t.end].replace("may", "mai") + text[t.end:]
        return cls(source, sentence.start, plain, text, sentence, tuple(mentions(plain)), times, date)

    def of_kind(self, *kinds: str) -> list[Mention]:
        return [m for m in self.mentions if m.kind in kinds]

    def experiencer(self, start: int, end: int) -> str:
        return cues.experiencer(self.text, start, end, self.sentence.section)

    def time(self, start: int, end: int, *ways: str, of: int | None = None) -> str | None:
        """The first time words within [start, end) that run one of these ways; "today" only where there is no other.
        of: where a name starts: words directly after it come first, words that belong to another name say nothing."""
        found = [t for t in self.times if start <= t.start < end and t.way in ways]
        if of is not None:
            ends = [m.end for m in self.mentions if m.start == of]
            own = [t for t in found if any(_DIRECT.fullmatch(self.text, e, t.start) for e in ends if e <= t.start)]
            found = own or [t for t in found if self._owner(t, of) in (None, of)]
        found.sort(key=lambda t: t.words.lower().startswith(("today", "this ")))
        return found[0].words if found else None

    def _owner(self, t: TimeWords, of: int) -> int | None:
        """Of time words the start of the name that they belong to: of the one before their bracket, of the item of a
        list that they end ("HTN, s/p CABG '15"); None where they say something of the whole."""
        at = t.start
        opened = self.text.rfind("(", 0, at)
        bracketed = opened >= 0 and ")" not in self.text[opened:at]
        named = [m for m in self.of_kind(*_DATED) if m.end <= (opened if bracketed else at)]
        if bracketed:
            return named[-1].start if named else None
        comma = max(self.text.rfind(c, 0, at) for c in ",;:/")
        if of > t.end and _YEAR.fullmatch(t.words) and re.search("[,;]", self.text[t.end:of]):
            if not _DIRECT.fullmatch(self.text, comma + 1, at):
                return -1  # of an item before it, known by name or not
        if not named or not _DIRECT.fullmatch(self.text, named[-1].end, at):
            apart = of < at and _YEAR.fullmatch(t.words) and len(re.findall("[,;]", self.text[of:at])) > 1
            return -1 if apart and not _DIRECT.fullmatch(self.text, comma + 1, at) else None
        last = named[-1]
        if last.kind == "procedure" and any(m.start == of and m.kind != "procedure" for m in self.mentions):
            return last.start
        if of > at:
            return last.start if re.match(r" ?[,;/]", self.text[t.end:]) else None
        comma = max(self.text.rfind(c, 0, last.start) for c in ",;/")
        item = comma > of and _ITEM.fullmatch(self.text, comma + 1, last.start) is not None
        return last.start if item else None

    def dated(self, start: int, end: int) -> str | None:
        """The date of an older document that the sentence reports from; a correction's own document dates nothing."""
        words = self.time(start, end, "document")
        return None if words is None or cues.ERROR.search(self.text) else words

    def draft(self, start: int, end: int, *, about: str | None = None, **fields) -> Draft:
        """A draft whose quote is [start, end) of the sentence. about: what it speaks of where its words do not say."""
        while start < end and self.plain[start] in " ,;|-:\"'":
            start += 1
        while end > start and self.plain[end - 1] in " ,;|":
            end -= 1
        a, b = self.offset + start, self.offset + end
        quote = self.source[a:b]
        statement = " ".join(quote.split())
        return Draft(f"{about}: {statement}" if about else statement, quote, span=(a, b), **fields)


def _past_month(t: TimeWords, text: str, date: str | None) -> TimeWords:
    """A month without a year of what has been is the last one: in January, "recorded in June" is of last year."""
    if t.way != "past" or date is None or not _MONTH.fullmatch(t.words) or _TO_COME.search(text):
        return t
    when = resolve(t.words, date).start
    if when is None or bounds(when)[0] <= bounds(date[:10])[1] or not _HAS_BEEN.search(text[:t.start]):
        return t
    return dataclasses.replace(t, words=f"{t.words} {int(when[:4]) - 1}")
