"""A note with its evidence highlighted: overlapping and crossing spans are cut into segments, so tags always nest."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from evigen_jax.report.markup import escape_visible

PAD = 300  # characters of the note visible on either side of a highlight
_DIFF_WORDS = 300


@dataclasses.dataclass(frozen=True)
class Highlight:
    """One span of a source.

    kind is "item" (an observation of the pack), "quote" (verified) or "closest" (nearest to a failed quote);
    anchor is the id of its first segment ("" for further segments of one quote), keys the anchors it answers to,
    back the href of its factor card, label what the small link there says, hint what it is called aloud.
    """

    start: int
    end: int
    kind: str
    anchor: str
    key: str
    back: str
    label: str
    hint: str


def windows(text: str, spans: Sequence[tuple[int, int]], pad: int = PAD) -> list[tuple[int, int]]:
    """What of a note is visible at once: `pad` characters around each span, out to word ends, merged where close."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        lo, hi = max(0, start - pad), min(len(text), end + pad)
        while lo > 0 and start - lo < pad + 40 and not text[lo - 1].isspace():
            lo -= 1
        while hi < len(text) and hi - end < pad + 40 and not text[hi].isspace():
            hi += 1
        if lo < 80:
            lo = 0
        if len(text) - hi < 80:
            hi = len(text)
        if out and lo - out[-1][1] < 80:
            out[-1] = (out[-1][0], max(out[-1][1], hi))
        else:
            out.append((lo, hi))
    return out


def render(text: str, highlights: Sequence[Highlight]) -> tuple[Markup, int]:
    """(HTML of the whole note, number of characters outside the visible windows).

    What lies outside is in the page too, in `.gap` elements that the reader unfolds; a `.cut` stands for it until then.
    """
    shown = windows(text, [(h.start, h.end) for h in highlights]) or [(0, min(len(text), 2 * PAD))]
    edges = {0, len(text)} | {x for w in shown for x in w} | {x for h in highlights for x in (h.start, h.end)}
    out, hidden = [], 0
    for start, end in pairwise(sorted(edges)):
        inner = escape_visible(text, start, end)
        if not any(lo <= start and end <= hi for lo, hi in shown):
            hidden += end - start
            out.append(
                Markup(
                    '<span class="cut">[\u2026 {:,} characters \u2026]</span><span class="gap">{}</span>'
                ).format(end - start, inner)
            )
            continue
        cover = [h for h in highlights if h.start <= start and end <= h.end]
        starting = [h for h in cover if h.start == start and h.anchor]
        quotes = [h for h in cover if h.kind != "item"]
        keys = " ".join(dict.fromkeys(h.key for h in cover))
        if quotes:
            kind = "found" if any(h.kind == "quote" for h in quotes) else "closest"
            inner = Markup('<mark class="{}" data-keys="{}">{}</mark>').format(kind, keys, inner)
        elif cover:
            inner = Markup('<span class="item" data-keys="{}">{}</span>').format(keys, inner)
        tags = Markup("").join(
            Markup('<a class="tag {}" href="{}" title="{}" aria-label="{}">{}</a>').format(
                h.kind, h.back, h.hint, h.hint, h.label
            )
            for h in starting
        )
        for h in reversed(starting):
            inner = Markup('<span class="at" id="{}">{}</span>').format(h.anchor, inner)
        out.append(tags + inner)
    return Markup("").join(out), hidden


def word_diff(quote: str, source: str) -> list[tuple[str, str]]:
    """Word by word: ("same" | "quote" | "source", words); "quote": only in the quote, "source": only in the source.

    The first 300 words of each are compared.
    """
    a, b = re.findall(r"\S+", quote)[:_DIFF_WORDS], re.findall(r"\S+", source)[:_DIFF_WORDS]
    out: list[tuple[str, str]] = []
    for op, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if op == "equal":
            out.append(("same", " ".join(a[a0:a1])))
            continue
        if a1 > a0:
            out.append(("quote", " ".join(a[a0:a1])))
        if b1 > b0:
            out.append(("source", " ".join(b[b0:b1])))
    return out
