"""W2: a writer's drafts, checked against their entry, become memories. No JAX.

A quote is looked for as it stands, then without regard to case and blanks, then as the most similar words. What is not
found is kept all the same: its memory cites the whole chunk, unverified, and archives nothing. Where a machine speaks
in an entry (`stam_jax.write.turns`), a quote must be people's words, or reach from its question into their answer;
what is found nowhere in such a chunk is left out.
"""
from __future__ import annotations

import decimal
import re
from collections import Counter
from decimal import Decimal

from rapidfuzz import fuzz

from core_jax.records import RecordError
from stam_jax.config import WriteConfig
from stam_jax.graph.clinical_time import resolve
from stam_jax.graph.memory import Entry, Memory, Provenance, canonical_text, quote_sha
from stam_jax.write.turns import Heard
from stam_jax.write.writer import Draft, Extraction

LEAST_RATIO = 92.0
LONGEST_SIMILAR = 1024  # characters of a quote that is looked for by likeness, whose cost grows with their square
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\d)\.\d+")
_EXACT = decimal.Context(decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)  # however many digits
_NUMBER_WORD = {w: Decimal(i) for i, w in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve".split())}
_NEGATION = re.compile(r"\b(?:no|not|never|none|without|denie[sd]|deny|denying|negative|cannot)\b|n['\u2019]t\b", re.I)


def numbers(text: str | None) -> Counter[Decimal]:
    """Every number that is written in digits, by its value: `1,000` is 1000, `4.0` is 4 and not 40."""
    return Counter(_EXACT.normalize(Decimal(n.replace(",", ""))) for n in _NUMBER.findall(text or ""))


def stated(value: str | None, quote: str) -> bool:
    """Whether every number of a value stands in the quote, in digits or as a small number's word."""
    if not (wanted := numbers(value).keys()):
        return True
    words = {_NUMBER_WORD[w].normalize() for w in re.findall(r"[a-z]+", quote.lower()) if w in _NUMBER_WORD}
    return wanted <= numbers(quote).keys() | words


def normalise(entry: Entry, extraction: Extraction, config: WriteConfig, heard: Heard | None = None
              ) -> tuple[list[Memory], Counter[str]]:
    """Memories in the order of the drafts, and what was counted on the way.

    Counted, beside the extraction's own problems: `quote_folded`, `quote_similar`, `quote_not_found`,
    `value_unverified`, `duplicate_draft`, `draft_over_limit`, `bad_draft` and `machine_draft`, whose words a machine
    said (the last four leave no memory).

    Args:
        heard: the entry as the writer was shown it, where machines speak in it.
    """
    counters: Counter[str] = Counter(extraction.problems)
    finder = _Finder(entry.text, entry.chunks) if heard is None or not heard.machines else _Listener(heard)
    out, seen, places = [], set(), Counter()
    for draft in extraction.drafts:
        bounds = finder.chunk(draft.chunk)
        text = canonical_text(draft.statement).strip()
        if bounds is None or not text:
            counters["bad_draft"] += 1
            continue
        fields = dict(
            kind=draft.kind, concept=_name(draft.concept), attribute=_name(draft.attribute), value=_plain(draft.value),
            unit=_plain(draft.unit), polarity=draft.polarity, experiencer=draft.experiencer,
            clinical_time=resolve(draft.time, entry.date))
        key = (" ".join(text.split()).casefold(), *fields.values())
        if key in seen:
            counters["duplicate_draft"] += 1
            continue
        if places[draft.chunk] == config.per_chunk:
            counters["draft_over_limit"] += 1
            continue
        (start, end), how = finder.find(draft, bounds)
        if how == "machine_draft":
            counters[how] += 1
            continue
        if not stated(fields["value"], finder.text[start:end]):
            fields["flags"] = frozenset({"value_unverified"})
        where = Provenance.of(entry, start, end, chunk=draft.chunk, verified=how != "quote_not_found")
        try:
            memory = Memory.of(entry.patient_id, text, [where], ordinal=places[draft.chunk], **fields)
        except RecordError:
            counters["bad_draft"] += 1
            continue
        seen.add(key)
        places[draft.chunk] += 1
        counters[how] += how != "quote"
        counters["value_unverified"] += "flags" in fields
        out.append(memory)
    return out, +counters


def verified(memory: Memory) -> bool:
    """Whether the entry says it: its quote was found there, and the numbers of its value in the quote."""
    return memory.provenance[0].verified and "value_unverified" not in memory.flags


def _name(text: str | None) -> str | None:
    return None if (plain := _plain(text)) is None else plain.lower()


def _plain(text: str | None) -> str | None:
    return None if text is None else " ".join(canonical_text(text).split()) or None


class _Finder:
    """Where quotes stand in the chunks of a text."""

    def __init__(self, text: str, chunks: tuple[tuple[int, int], ...]):
        self.text, self.chunks = text, chunks
        self._folded: dict[tuple[int, int], tuple[str, list[int]]] = {}

    def chunk(self, index: int) -> tuple[int, int] | None:
        """Bounds of a chunk; of -1, which is a rendered row's, the whole text; None where there is no such chunk."""
        if index == -1:
            return 0, len(self.text)
        return self.chunks[index] if 0 <= index < len(self.chunks) else None

    def find(self, draft: Draft, bounds: tuple[int, int]) -> tuple[tuple[int, int], str]:
        """((start, end), how): `quote`, `quote_folded`, `quote_similar`, or the whole chunk and `quote_not_found`."""
        quote = canonical_text(draft.quote).strip()
        if not quote:
            return bounds, "quote_not_found"
        if draft.span is not None:
            start, end = draft.span
            if 0 <= start < end <= len(self.text):
                said = self.text[start:end]
                if said == quote or quote_sha(said) == quote_sha(quote):
                    return (start, end), "quote"
        if (at := self.text.find(quote, *bounds)) >= 0:
            return (at, at + len(quote)), "quote"
        folded, where = self._fold(bounds)
        needle = " ".join(quote.split()).casefold()
        if (at := folded.find(needle)) >= 0:
            return (where[at], where[at + len(needle) - 1] + 1), "quote_folded"
        if len(needle) > LONGEST_SIMILAR:
            return bounds, "quote_not_found"
        found = fuzz.partial_ratio_alignment(needle, folded, score_cutoff=LEAST_RATIO)
        if found is None or len(needle) > len(folded) or found.dest_start == found.dest_end:
            return bounds, "quote_not_found"
        start, end = where[found.dest_start], where[found.dest_end - 1] + 1
        start, end = _whole_words(self.text, start, end, bounds)
        window = " ".join(self.text[start:end].split()).casefold()
        same = numbers(needle) == numbers(window) and _negations(needle) == _negations(window)
        if same and fuzz.ratio(needle, window) >= LEAST_RATIO:
            return (start, end), "quote_similar"
        return bounds, "quote_not_found"

    def _fold(self, bounds: tuple[int, int]) -> tuple[str, list[int]]:
        """A chunk without case, each run of blanks as one; and where each of its characters stands in the text."""
        if bounds not in self._folded:
            letters, where, blank = [], [], True
            for i in range(*bounds):
                c = self.text[i]
                if c.isspace():
                    if not blank:
                        letters.append(" ")
                        where.append(i)
                else:
                    for folded in c.casefold():
                        letters.append(folded)
                        where.append(i)
                blank = c.isspace()
            self._folded[bounds] = "".join(letters), where
        return self._folded[bounds]


class _Listener(_Finder):
    """Where quotes stand in an entry in which machines speak: among people's words first."""

    def __init__(self, heard: Heard):
        super().__init__(heard.entry.text, heard.entry.chunks)
        self.heard, self.people = heard, _Finder(heard.record, heard.entry.chunks)

    def find(self, draft: Draft, bounds: tuple[int, int]) -> tuple[tuple[int, int], str]:
        """As `_Finder.find`; `machine_draft` where no person says it."""
        span, how = self.people.find(draft, bounds)
        if how != "quote_not_found" or not self.heard.machine_within(*bounds):
            return span, how
        span, how = super().find(draft, bounds)
        return (span, how) if how != "quote_not_found" and self.heard.answered(*span) else (bounds, "machine_draft")


def _negations(text: str) -> int:
    return len(_NEGATION.findall(text))


def _whole_words(text: str, start: int, end: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """A window grown to the borders of the words and numbers that it cuts, and shrunk by blanks at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1

    def inside(i: int) -> bool:
        """Whether characters i - 1 and i belong to one word or number."""
        a, b = text[i - 1], text[i]
        if a.isalnum() and b.isalnum():
            return True
        digits = (i >= 2 and text[i - 2].isdigit(), i + 1 < len(text) and text[i + 1].isdigit())
        return (a in ".," and b.isdigit() and digits[0]) or (a.isdigit() and b in ".," and digits[1])

    while bounds[0] < start and inside(start):
        start -= 1
    while end < bounds[1] and inside(end):
        end += 1
    return start, end
