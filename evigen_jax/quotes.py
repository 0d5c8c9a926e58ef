"""Is this quote in this note? A verdict, a score, raw offsets and the flags that a similarity of 90 hides (paper G.1).

The score is the paper's formula (appendix G.1), 100 * max over windows w of the source with |w| = |quote| of
LCS(quote, w) / |quote|, with the quote always the needle. `rapidfuzz.fuzz.partial_ratio` is a different number: it also
scores windows cut at the source's two ends and takes the shorter string as needle. It never scores
lower, so it serves as a filter; and padded with a character that the quote lacks, the source has no cut windows
that score, so that the same routine then gives the formula exactly.

    note = prepare(text)                     # once per note
    verify_quote("CHF (EF 25%)", note)["ok"]
"""
from __future__ import annotations

import dataclasses
import re
from typing import Any

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from evigen_jax.normal_text import NormalizedSource, fold, normalise, prepare
from evigen_jax.quote_flags import bounded, span_flags, within_word, word_pattern, words
from evigen_jax.quote_sieve import Sieve

__all__ = ["NormalizedSource", "prepare", "verify_quote", "REASONS", "UNTRUSTED", "normalise"]

THRESHOLD = 90.0
SHORT_WORDS = 5  # quotes with fewer words must match exactly: foreign text passes at 90 with 0.5 % at 4 words, 0 % at 5
LONGEST = 2000  # normalised characters
LONGEST_FUZZY = 500
MOST_SEGMENTS = 8
NEAREST = 60.0  # similarity below which no passage is reported as the nearest
SMALL = 20_000  # characters of a source that is compared whole
# Machine words that comparing a quote with every window may touch, |quote| ceil(|quote| / 64) |source|: 500 characters
# against 62,500, some 0.5 s in the worst case (periodic text, where no window can be skipped).
WORK = 2.5e8

REASONS = {
    "empty": "nothing is quoted",
    "too_long": "over 2,000 characters, or over 500 and not verbatim",
    "too_short": "fewer than two words or eight characters",
    "too_many_segments": "more than eight pieces between ellipses",
    "segment_short": "a piece between ellipses has fewer than three words and twelve characters",
    "too_costly": "not found where the source is most like it; the source is too repetitive and long to compare whole",
    "below_threshold": "not found in the source",
    "short_inexact": "fewer than five words and not verbatim at word boundaries",
    "segment_order": "the pieces between ellipses do not stand in this order in the source",
}
UNTRUSTED = ("number_mismatch", "negation_changed", "negation_outside", "filled_blank", "edge_overhang")
_FLAGS = (*REASONS, *UNTRUSTED, "short", "punctuation_only")

# Dots in brackets, or three and more (NFKC made U+2026 three), with blanks between them or not; dots between two digits
# belong to a number.
_ELLIPSIS = re.compile(
    r"[\[(] ?\.(?: ?\.)+ ?[\])]|(?<![\d.])(?<!\. )\.(?: ?\.){2,}|\.(?: ?\.){2,}(?! ?\.|\d)")
_ALNUM = re.compile(r"[^\W_]")


@dataclasses.dataclass(slots=True)
class _Piece:
    """One contiguous part of a quote and where it was found: `at` in the source's canonical text, `span` in the raw."""

    raw: str
    text: str
    exact: bool = False
    score: float = 0.0
    rapidfuzz: float = 0.0
    at: tuple[int, int] | None = None
    span: tuple[int, int] | None = None


def verify_quote(quote: str, source: str | NormalizedSource, threshold: float = THRESHOLD, mode: str = "window", *,
                 nearest: bool = True, near: tuple[int, int] | None = None) -> dict[str, Any]:
    """Check one quote against the text of the note it cites (or the title of the code).

    Args:
      quote: as written; ellipses ([...], ". . .", U+2026) mark omissions.
      source: the raw text, or better `prepare(text)`, kept for all quotes of that note.
      threshold: least score of every piece, 0 < threshold <= 100.
      mode: "window": this module's verdict. "rapidfuzz": the paper's, score_rapidfuzz >= threshold without further
        gates, but over 2,000 characters only verbatim quotes pass.
      nearest: score rejected quotes too, down to 60, and give the passage that comes nearest (in sources over 20,000
        characters the best of the eight places that share most trigrams). Without it a score below the threshold is 0.
      near: raw (start, end) of the chunk that the quote should come from; of several verbatim occurrences one inside
        is taken, else the first.

    Returns:
      ok: accepted. trusted: accepted and free of the flags in UNTRUSTED.
      score: in `mode`, the least over pieces; 0.0 when no passage comes near. score_rapidfuzz: the paper's
        `partial_ratio` of the same pieces. Both None when not compared (over 2,000 characters). Exact from the
        threshold up, except that the work is bounded: where a source stays over WORK after the sieve, only the places
        likest to the quote are compared; found there, it is accepted, else it is `too_costly`.
      method: "exact" (character by character), "normalised", "fuzzy" or "none".
      spans: raw (start, end) offsets, one per piece found: the match or, in a rejected quote, the nearest passage.
      flags: names out of REASONS, UNTRUSTED, "short", "punctuation_only". reason: the rejecting flag, None when ok.

    Raises: TypeError when quote or source is no string; ValueError for another mode or threshold.
    """
    if mode not in ("window", "rapidfuzz") or not 0 < threshold <= 100:
        raise ValueError(
            f"got mode {mode!r}, threshold {threshold!r}; expected window or rapidfuzz, 0 < threshold <= 100")
    if not isinstance(quote, str):
        raise TypeError(f"quote: got {type(quote).__name__}, expected str")
    src = source if isinstance(source, NormalizedSource) else prepare(source)
    text = normalise(quote)
    flags: set[str] = set()
    pieces = _verbatim(quote, text, src, near) or _split(quote, text)
    if not pieces:
        return _result([], {"empty"}, 0.0, 0.0, threshold, mode, src)
    if len(text) > LONGEST_FUZZY and (len(text) > LONGEST or not pieces[0].exact):
        flags.add("too_long")
        if len(text) > LONGEST and not pieces[0].exact:
            return _result([], flags, None, None, threshold, mode, src)
    steps = len(text) * -(-len(text) // 64)
    _search(pieces, src, threshold, nearest and "too_long" not in flags, steps, flags)
    _gate(pieces, text, src, threshold, steps, flags)
    for p in pieces:
        if p.span:
            flags |= span_flags(p.raw, src, *p.span, p.exact)
    score, rapidfuzz = min(p.score for p in pieces), min(p.rapidfuzz for p in pieces)
    return _result(pieces, flags, score, rapidfuzz, threshold, mode, src)


def _result(pieces, flags, score, rapidfuzz, threshold, mode, src) -> dict[str, Any]:
    gates = tuple(REASONS) if mode == "window" else ("empty", "below_threshold")
    score = score if mode == "window" else rapidfuzz
    if score is None and mode == "rapidfuzz":
        gates = tuple(REASONS)  # the comparison that would decide was not run
    elif score is not None and score < threshold and "empty" not in flags:
        flags = flags | {"below_threshold"}
    reason = next((g for g in gates if g in flags), None)
    method = "none"
    if score is not None and score >= threshold and all(p.span for p in pieces):
        method = "fuzzy"
        if all(p.exact for p in pieces):
            method = "exact" if all(src.raw[slice(*p.span)] == p.raw for p in pieces) else "normalised"
    return {
        "ok": reason is None, "trusted": reason is None and flags.isdisjoint(UNTRUSTED),
        "score": score, "score_rapidfuzz": rapidfuzz, "method": method, "spans": [p.span for p in pieces if p.span],
        "flags": [f for f in _FLAGS if f in flags], "reason": reason,
    }


def _verbatim(quote: str, text: str, src: NormalizedSource, near: tuple[int, int] | None) -> list[_Piece] | None:
    """The whole quote as one exact piece, ellipses and all (a source may hold dots itself); None if it is not there."""
    if not _ALNUM.search(text):
        return None
    raw = quote.strip()
    at = -1 if near is None else src.raw.find(raw, *near)
    at = at if at >= 0 else src.raw.find(raw)
    if at >= 0:
        return [_Piece(raw, text, True, 100.0, 100.0, None, (at, at + len(raw)))]
    at = src.text.find(text)
    if at < 0:
        return None
    return [_Piece(raw, text, True, 100.0, 100.0, (at, at + len(text)), src.raw_span(at, at + len(text)))]


def _split(quote: str, text: str) -> list[_Piece]:
    """The pieces between ellipses; one that holds neither letter nor digit is none."""
    cuts = [(m.start(), m.end()) for m in _ELLIPSIS.finditer(text)] if len(text) <= LONGEST else []
    if not cuts:
        return [_Piece(quote.strip(), text)] if _ALNUM.search(text) else []
    own, pieces = NormalizedSource(quote), []
    for start, end in zip([0, *(b for _, b in cuts)], [*(a for a, _ in cuts), len(text)]):
        start += len(text[start:end]) - len(text[start:end].lstrip())
        end = start + len(text[start:end].rstrip())
        if _ALNUM.search(text, start, end):
            pieces.append(_Piece(quote[slice(*own.raw_span(start, end))], text[start:end]))
    return pieces


def _search(
    pieces: list[_Piece], src: NormalizedSource, threshold: float, nearest: bool, steps: int, flags: set[str],
) -> None:
    """Score and locate every piece that is not located yet."""
    many = len(pieces) > MOST_SEGMENTS
    if many:
        flags.add("too_many_segments")
    for p in pieces:
        if p.span:
            continue
        at = src.text.find(p.text)
        if at >= 0:
            p.exact, p.score, p.rapidfuzz, p.at = True, 100.0, 100.0, (at, at + len(p.text))
        else:
            p.score, p.rapidfuzz, window, whole = _fuzzy(p.text, src, threshold, nearest, steps)
            p.at = window and _tight(p.text, src.text, *window)
            if not whole and p.score < threshold:
                flags.add("too_costly")
            if p.rapidfuzz < threshold and (many or not nearest):
                break
        p.span = p.at and _word_span(src, *p.at, p.exact)


def _gate(
    pieces: list[_Piece], text: str, src: NormalizedSource, threshold: float, steps: int, flags: set[str],
) -> None:
    """The gates beyond the score: adds their flags, and moves pieces to where they hold if there is such a place."""
    count = [words(p.text) for p in pieces]
    if (sum(count) < 2 or sum(len(p.text) for p in pieces) < 8) and text != src.text:
        flags.add("too_short")
    if sum(count) < SHORT_WORDS:
        flags.add("short")
        for p in pieces if flags.isdisjoint(("too_short", "too_long")) else ():
            span = _on_boundaries(p, src)
            p.span = span or p.span
            if span is None:
                flags.add("short_inexact")
    if len(pieces) > 1:
        if any(n < 3 and len(p.text) < 12 for p, n in zip(pieces, count)):
            flags.add("segment_short")
        if all(p.score >= threshold for p in pieces) and len(pieces) <= MOST_SEGMENTS:
            order = [p.at for p in pieces]
            if steps * len(src.text) <= WORK or all(p.exact for p in pieces):
                order = _in_order(pieces, src.text, threshold)
            if order is None or any(a[1] > b[0] for a, b in zip(order, order[1:])):
                flags.add("segment_order")
            else:
                for p, at in zip(pieces, order):
                    if p.at != at:
                        p.at, p.span = at, _word_span(src, *at, p.exact)


def _fuzzy(q: str, src: NormalizedSource, threshold: float, nearest: bool, steps: int,
           ) -> tuple[float, float, tuple[int, int] | None, bool]:
    """(formula, partial_ratio, (start, end) of the window in src.text, whether every window was considered).

    `steps` times the characters compared must stay within WORK. Scores below the threshold are 0 without `nearest`;
    with it they are exact down to NEAREST in sources of up to SMALL characters, and those of the likeliest places in
    larger ones.
    """
    n, s, floor = len(q), src.text, min(threshold, NEAREST) if nearest else threshold
    sieve, places, cutoff = None, None, floor
    if len(s) > SMALL and 20 <= n <= len(s) // 8:
        sieve = Sieve(q, src)
        places, cutoff = sieve.regions(threshold - 0.01), threshold
    if steps * (len(s) if places is None else 2 * n + sum(b - a + n for a, b in places)) > WORK:
        count = max(1, int(WORK / steps / (3 * n)) - 1)
        return *_align_in((sieve or Sieve(q, src)).likeliest(count), q, s, floor, floor), False
    found = _align(q, s, cutoff, floor) if places is None else _align_in(places, q, s, cutoff, floor)
    if found[1] == 0 and cutoff > floor:
        found = _align_in(sieve.likeliest(), q, s, floor, floor)
    return *found, True


def _align(q: str, s: str, cutoff: float, floor: float) -> tuple[float, float, tuple[int, int] | None]:
    """(formula, partial_ratio, (start, end) of the window); a ratio below `cutoff`, a formula below `floor` is 0."""
    if not s:
        return 0.0, 0.0, None
    n, cutoff, floor = len(q), max(cutoff - 0.01, 0.0), max(floor - 0.01, 0.0)
    found = fuzz.partial_ratio_alignment(q, s, processor=None, score_cutoff=cutoff)
    ratio = found.score if found else 0.0
    if n > len(s):
        score = 100 * LCSseq.similarity(q, s, processor=None) / n
        return (score, ratio, (0, len(s))) if score >= floor else (0.0, ratio, None)
    if found is None:
        return 0.0, 0.0, None
    window = found.dest_start, found.dest_end
    if min(found.src_end - found.src_start, window[1] - window[0]) < n:  # a window cut at an end of s, or roles swapped
        hole = _absent(q) * n
        found = fuzz.partial_ratio_alignment(q, hole + s + hole, processor=None, score_cutoff=floor)
        if found is None:
            return 0.0, ratio, window
        window = max(found.dest_start - n, 0), min(found.dest_end - n, len(s))
    return 100 * LCSseq.similarity(q, s[slice(*window)], processor=None) / n, ratio, window


def _align_in(places: list[tuple[int, int]], q: str, s: str, cutoff: float, floor: float):
    """`_align` on the places and both ends of s, set apart by a character that q lacks, so that no window spans two."""
    n = len(q)
    places = [(0, n), *places, (len(s) - n, len(s))]
    score, ratio, window = _align(q, (_absent(q) * n).join(s[a:b] for a, b in places), cutoff, floor)
    if window is None:
        return score, ratio, None
    offset, best = 0, (0, 0)
    for a, b in places:
        low, high = max(window[0] - offset, 0), min(window[1] - offset, b - a)
        if high - low > best[1] - best[0]:
            best = a + low, a + high
        offset += b - a + n
    return score, ratio, best


def _absent(q: str) -> str:
    return next(c for c in map(chr, range(1, 4096)) if c not in q)


def _tight(q: str, s: str, start: int, end: int) -> tuple[int, int]:
    """The span near s[start:end] that is most like q by 2 LCS / (|q| + |span|): a window of |q| characters may cut a
    word off that the match goes on with, or hold one too many."""
    reach = len(q) // 8 + 2

    def likeness(a: int, b: int) -> tuple[float, int]:
        return 2 * LCSseq.similarity(q, s[a:b], processor=None) / (len(q) + b - a), a - b

    for _ in range(2):
        end = max(range(max(start + 1, end - reach), min(len(s), end + reach) + 1), key=lambda b: likeness(start, b))
        start = max(range(max(0, start - reach), min(end, start + reach + 1)), key=lambda a: likeness(a, end))
    return start, end


def _word_span(src: NormalizedSource, start: int, end: int, exact: bool) -> tuple[int, int]:
    """Raw offsets of a span; an inexact one is widened to whole words."""
    s = src.text
    if not exact:
        for _ in range(40):
            start -= start > 0 and within_word(s[start - 1], s[start])
            end += end < len(s) and within_word(s[end - 1], s[end])
        while start < end - 1 and s[start] == " ":
            start += 1
        while end > start + 1 and s[end - 1] == " ":
            end -= 1
    return src.raw_span(start, end)


def _on_boundaries(p: _Piece, src: NormalizedSource) -> tuple[int, int] | None:
    """Raw span of an occurrence of the piece at word boundaries, quotation marks and dashes folded; None if none is."""
    if p.exact and p.span and bounded(src.raw, *p.span):
        return p.span
    needle = fold(p.text)[0].strip()
    if not needle:
        return None
    text, where = src.folded
    for m in word_pattern(needle).finditer(text):
        if bounded(text, *m.span()):
            return src.raw_span(int(where[m.start()]), int(where[m.end() - 1]) + 1)
    return None


def _in_order(pieces: list[_Piece], s: str, threshold: float) -> list[tuple[int, int]] | None:
    """Spans of the pieces in s that follow one another without overlap, each scoring the threshold; None if none exist.

    First each piece where it fits best after the one before; if that fails, each where it first ends, which leaves the
    most room to the rest.
    """
    for earliest in (False, True):
        at, spans = 0, []
        for p in pieces:
            if p.exact:
                start = s.find(p.text, at)
                span = (start, start + len(p.text)) if start >= 0 else None
            elif earliest:
                span = _first(p.text, s, at, threshold)
            elif p.at and p.at[0] >= at:
                span = p.at
            else:
                score, _, window = _align(p.text, s[at:], threshold, threshold)
                span = (at + window[0], at + window[1]) if window and score >= threshold else None
            if span is None:
                break
            spans.append(span)
            at = span[1]
        else:
            return spans
    return None


def _first(q: str, s: str, at: int, threshold: float) -> tuple[int, int] | None:
    """The window of q's length in s[at:] that scores the threshold and ends first (galloping, then bisection)."""
    def window(start: int, end: int) -> tuple[int, int] | None:
        score, _, w = _align(q, s[start:end], threshold, threshold)
        return (start + w[0], start + w[1]) if w and score >= threshold else None

    n = len(q)
    none, some, step = at, min(at + n, len(s)), n  # no window ends at or before `none`
    while (found := window(max(at, none - n), some)) is None:
        if some == len(s):
            return None
        none, some, step = some, min(some + step, len(s)), 2 * step
    while some - none > 1:
        middle = (none + some) // 2
        if middle >= at + n and (w := window(max(at, none - n), middle)):
            some, found = middle, w
        else:
            none = middle
    return found
