"""One sentence with all that was found in it, and the making of drafts from its parts."""

from __future__ import annotations

import dataclasses
import re

from stam_jax.rules import cues
from stam_jax.rules.lexicon import Mention, mentions
from stam_jax.rules.sentences import Sentence
from stam_jax.rules.times import TimeWords, time_words
from stam_jax.write.writer import Draft


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
        times = tuple(time_words(plain, day_first))
        for t in times:  # "may" of a date is no doubt
            text = text[:t.start] + text[t.start:t.end].replace("may", "mai") + text[t.end:]
        return cls(source, sentence.start, plain, text, sentence, tuple(mentions(plain)), times, date)

    def of_kind(self, *kinds: str) -> list[Mention]:
        return [m for m in self.mentions if m.kind in kinds]

    def experiencer(self, start: int, end: int) -> str:
        return cues.experiencer(self.text, start, end, self.sentence.section)

    def time(self, start: int, end: int, *ways: str, of: int | None = None) -> str | None:
        """The first time words within [start, end) that run one of these ways; "today" only where there is no other.
        of: where a name starts, to which words in brackets after another name do not belong."""
        found = [t for t in self.times if start <= t.start < end and t.way in ways]
        found = [t for t in found if of is None or self._bracketed(t.start) in (None, of)]
        found.sort(key=lambda t: t.words.lower().startswith(("today", "this ")))
        return found[0].words if found else None

    def _bracketed(self, at: int) -> int | None:
        """Of words in brackets at `at` the start of the name before the bracket; None where no bracket holds them."""
        opened = self.text.rfind("(", 0, at)
        if opened < 0 or ")" in self.text[opened:at]:
            return None
        before = [m.start for m in self.mentions if m.end <= opened and m.kind in ("problem", "procedure", "drug")]
        return before[-1] if before else None

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
