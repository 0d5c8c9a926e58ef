"""The canonical form in which quotes meet notes, with a map back to raw character offsets.

Paper, appendix G.1: NFKC, no-break spaces, runs of white space to one blank, trimmed, lower case. Here NFKC is taken
before and after lowering, so that the form is a fixed point, and the final sigma is folded into sigma. The text is cut
into clusters (a character and the marks that may reorder or compose with it); clusters are normalised one by one, which
gives the same string as normalising the whole, and tells where each character came from.
"""
from __future__ import annotations

import bisect
import functools
import re
import unicodedata

import numpy as np

# A cluster longer than this is cut. Unicode's stream-safe format (UAX 15) stops at 30 marks, and sorting an endless run
# of marks takes quadratic time.
LONGEST_CLUSTER = 32
BLOCK = 4096  # characters of a source that are normalised, and when asked for located, at a time
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_CUT = re.compile(r"\s(?=[!-~])")

_DASH = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_DOUBLE = "\"\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033"
_SINGLE = "'\u2018\u2019\u201a\u201b\u2032\u0060\u00b4"
_FOLD = str.maketrans({**dict.fromkeys(_DASH, "-"), **dict.fromkeys(_DOUBLE, '"'), **dict.fromkeys(_SINGLE, "'")})
_MARKS = re.compile(r""" ["'](?= )|"|(?<!\w)'|'(?!\w)|-(?=-)""")


def _form(text: str) -> str:
    lowered = unicodedata.normalize("NFKC", text).lower()
    return unicodedata.normalize("NFKC", lowered).replace("\u03c2", "\u03c3")


@functools.lru_cache(maxsize=65536)
def _character(c: str) -> tuple[str, bool]:
    """(normal form of c alone, whether c may reorder or compose with what stands before it)."""
    form = _form(c)
    heads = [unicodedata.normalize("NFKD", x)[:1] for x in (c, form)]
    joins = any(
        unicodedata.category(h)[0] == "M" or "\u1160" <= h <= "\u11ff" or "\ud7b0" <= h <= "\ud7ff"
        or "\U00016d63" <= h <= "\U00016d67"  # vowel and final jamo; Kirat Rai vowels (Unicode 16)
        for h in heads if h)
    return form, joins


def normalise(text: str) -> str:
    """`text` in canonical form.

    Raises: TypeError unless `text` is a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"got {type(text).__name__}, expected str")
    return _mapped(text)[0] if _clustered(text) else _plain(text)


def _clustered(text: str) -> bool:
    """Whether any character may join the one before, so that there are clusters, which may be long."""
    return not text.isascii() and any(_character(c)[1] for c in set("".join(_FOREIGN.findall(text))))


def _plain(text: str) -> str:
    return " ".join((text.lower() if text.isascii() else _form(text)).split())


def _ascii_starts(text: str) -> np.ndarray:
    """int32[n]: for each character of `normalise(text)`, where in `text` it (or its run of blanks) starts."""
    blank = np.zeros(128, bool)
    blank[[c for c in range(128) if chr(c).isspace()]] = True
    space = blank[np.frombuffer(text.encode("ascii"), np.uint8)]
    return _single_blanks(space).astype(np.int32)


def _offsets(text: str) -> tuple[np.ndarray, np.ndarray]:
    """int32 starts and ends of the characters of `normalise(text)` in `text`."""
    if text.isascii():
        starts = _ascii_starts(text)
        return starts, starts + np.int32(1)
    return _mapped(text)[1:]


def _single_blanks(space: np.ndarray) -> np.ndarray:
    """Positions kept when each run of blanks becomes one, and leading and trailing runs vanish."""
    keep = ~space
    keep[1:] |= ~space[:-1]
    kept = np.flatnonzero(keep)
    if kept.size and space[kept[-1]]:
        kept = kept[:-1]
    return kept[1:] if kept.size and space[kept[0]] else kept


def _mapped(text: str) -> tuple[str, np.ndarray, np.ndarray]:
    """(canonical form, int32 starts, int32 ends): character i of the form comes from text[starts[i]:ends[i]]."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    if not codes.size:
        return "", np.zeros(0, np.int32), np.zeros(0, np.int32)
    alphabet = sorted(set(text))
    forms, joins = map(list, zip(*map(_character, alphabet)))
    number = np.zeros(ord(alphabet[-1]) + 1, np.int32)
    number[[ord(c) for c in alphabet]] = np.arange(len(alphabet), dtype=np.int32)
    ids = number[codes]

    cut = ~np.array(joins)[ids]
    cut[0] = True
    start = np.flatnonzero(cut)
    size = np.diff(start, append=codes.size)
    if size.max() > LONGEST_CLUSTER:
        within = np.arange(codes.size) - np.repeat(start, size)
        start = np.flatnonzero(within % LONGEST_CLUSTER == 0)
        size = np.diff(start, append=codes.size)
    ids = ids[start]
    known: dict[str, int] = {}
    for k in np.flatnonzero(size > 1).tolist():
        cluster = text[start[k]:start[k] + size[k]]
        if cluster not in known:
            known[cluster] = len(forms)
            forms.append(_form(cluster))
        ids[k] = known[cluster]

    flat = np.frombuffer("".join(forms).encode("utf-32-le", "surrogatepass"), "<u4")
    length = np.array([len(f) for f in forms], np.int32)
    first = np.cumsum(length, dtype=np.int32) - length
    out = length[ids]
    source = np.repeat(np.arange(ids.size, dtype=np.int32), out)
    begin = np.cumsum(out, dtype=np.int32) - out
    begin -= first[ids]
    where = np.arange(source.size, dtype=np.int32)
    where -= begin[source]
    blank = np.array([chr(c).isspace() for c in flat.tolist()], bool)
    kept = _single_blanks(blank[where])
    where, source = where[kept], source[kept]
    result = np.where(blank, np.uint32(32), flat)[where].astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    ends = (start + size).astype(np.int32)
    return result, start.astype(np.int32)[source], ends[source]


class NormalizedSource:
    """A note (or code title) prepared once for many quotes: `raw`, its canonical `text`, and offsets between them.

    Each form is built when first asked for and kept (some 20 bytes a character in all); make one per note id.
    """

    def __init__(self, raw: str):
        if not isinstance(raw, str):
            raise TypeError(f"source: got {type(raw).__name__}, expected str")
        self.raw = raw
        self._maps: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @functools.cached_property
    def _blocks(self) -> tuple[list[str], list[tuple[int, int]], list[int]]:
        """Form, raw (start, end) and position in `text` of each block; cut at blanks, where forms do not interact."""
        forms, places, begins, at, begin = [], [], [], 0, 0
        form_of = normalise if _clustered(self.raw) else _plain
        while at < len(self.raw):
            cut = _CUT.search(self.raw, at + BLOCK)
            end = cut.end() if cut else len(self.raw)
            if form := form_of(self.raw[at:end]):
                forms.append(form)
                places.append((at, end))
                begins.append(begin)
                begin += len(form) + 1
            at = end
        return forms, places, begins

    @functools.cached_property
    def text(self) -> str:
        """The canonical form of `raw`."""
        return " ".join(self._blocks[0])

    def raw_span(self, start: int, end: int) -> tuple[int, int]:
        """Raw [start, end) offsets of the non-empty piece text[start:end]."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        """Raw (start, end) of the character text[at]."""
        _, places, begins = self._blocks
        block = bisect.bisect_right(begins, at) - 1
        if block not in self._maps:
            low, high = places[block]
            starts, ends = _offsets(self.raw[low:high])
            self._maps[block] = starts + low, ends + low
        starts, ends = self._maps[block]
        at -= begins[block]
        if at == len(starts):  # the blank between two blocks
            return int(ends[-1]), int(ends[-1]) + 1
        return int(starts[at]), int(ends[at])

    @functools.cached_property
    def trigrams(self) -> np.ndarray:
        """intp[n]: `trigrams(text)`, padded with 65536 to a multiple of 8."""
        hashes = trigrams(self.text)
        return np.concatenate([hashes, np.full(-hashes.size % 8, 65536, np.intp)])

    @functools.cached_property
    def folded(self) -> tuple[str, np.ndarray]:
        """(text with dashes made one and quotation marks left out, int32 position in `text` of each character)."""
        return fold(self.text)


def prepare(source: str) -> NormalizedSource:
    """`source` ready for `verify_quote`; keep it for as long as quotes are checked against this text.

    Raises: TypeError unless `source` is a string.
    """
    return NormalizedSource(source)


def fold(text: str) -> tuple[str, np.ndarray]:
    """Canonical text with every dash a single "-", quotation marks left out and apostrophes inside words kept.

    Returns (folded text, int32[len(folded)] position of each of its characters in `text`).
    """
    marked = text.translate(_FOLD)
    keep = np.ones(len(marked), bool)
    pieces, at = [], 0
    for m in _MARKS.finditer(marked):
        keep[m.start():m.end()] = False
        pieces.append(marked[at:m.start()])
        at = m.end()
    return "".join(pieces) + marked[at:], np.flatnonzero(keep).astype(np.int32)


def trigrams(text: str) -> np.ndarray:
    """intp[max(len(text) - 2, 0)]: a 16-bit hash of each three neighbouring characters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    mixed = codes[:-2] * np.uint32(961) + codes[1:-1] * np.uint32(31) + codes[2:]
    return (mixed & np.uint32(0xFFFF)).astype(np.intp)
