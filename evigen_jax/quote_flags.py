"""What a similarity of 90 can hide: numbers, negations, blanks and edges of a quote, compared with its source.

Every check reads the note around the matched span and answers with flag names.
Negation cues are English (after NegEx); a clause ends at . ; ! ?, a blank line, a new list item,
or but/however/although.
"""
from __future__ import annotations

import re
import unicodedata

from rapidfuzz.distance import Indel, LCSseq

from evigen_jax.normal_text import NormalizedSource, normalise

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_THAI = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Myanmar, Khmer
_UNSPACED = re.compile(f"([{_CJK}])|([{_THAI}])")
_ALNUM = re.compile(r"[^\W_]")
_TOKEN = re.compile(rf"_{{2,}}|[{_CJK}{_THAI}]|(?:[^\W_{_CJK}{_THAI}]|(?<=\w)[.,'\u2019/\-](?=\w))+")
_NUMBER = re.compile(r"(?:(?:[<>]=?|[\u2264\u2265])\s?)?(?:\d+(?:[.,]\d+)*|(?<![\w.])\.\d+)(?:\^[-+]?\d+)?")
_RAISED = re.compile(r"(?<=\d)[\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u207a\u207b]+")
_LOWERED = re.compile(r"(?<=\d)[\u2080-\u2089]+")
_FRACTION = re.compile(r"(?<=\d)(?=[\u00bc-\u00be\u2150-\u215e\u2189])")
_NUMBER_HEAD = re.compile(r"\d|[.,]\d")
_NUMBER_BEFORE = re.compile(r"(?:\d[\d.,]*|(?<!\w)\.|[<>]=?\s?|[\u2264\u2265]\s?)$")
_NUMBER_TAIL = re.compile(r"\d[.,]?$")
_NUMBER_AFTER = re.compile(r"\d*(?:[.,]\d+)*[\u00b2\u00b3\u00b9\u2070\u2074-\u2079]*")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")

_CUES = frozenset(
    "no not nor neither never none nil without w/o deny denies denied denying negative neg absent absence lack lacks "
    "lacked lacking cannot".split())
_LOOSE = re.compile(r"[^\s,.;:()\[\]\"]+")  # words, good enough to find cues in
_CONTRACTED = ("n't", "n\u2019t")
_PREFIXES = ("a", "an", "non", "non-", "un", "in", "im", "ir", "il", "dis", "anti", "anti-")
_NOT_NEGATIONS = re.compile(r"\bgram[- ]neg(?:ative)?\b|\bnot only\b|\bno\. ?(?=\d)")
_STOP = re.compile(r"[.;!?](?!\S)")
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|pt|vs)\.$")
_TURN = re.compile(r"\b(?:but|however|although|though|except|besides)\b")
_BULLET = re.compile(r"[-*\u2022#]|\d+[.)]\s")
_DENIED_AFTER = re.compile(
    r"[ \t]?(?:[:=]|[ \t][-\u2013][ \t])\s?(?:no|none|nil|denies|denied|negative|neg|absent)\b"
    r"|\s{0,3}(?:(?:was|were|is|are|has|have|had|been)\s+){1,3}"
    r"(?:not|never|denied|absent|negative|excluded|ruled\s+out)\b"
    r"|[ \t]?(?:denied|absent|excluded|ruled\s+out|negative"
    r"|not\s+(?:present|seen|found|noted|identified|detected|demonstrated|visuali[sz]ed|appreciated|evident))\b", re.I)
_CONTEXT = 160  # raw characters read before a span
_WRAPPED = 50  # a line at least this long goes on in the next one even if that begins with a capital
_SCOPE = 12  # words in which a cue before the span still acts


def words(text: str, enough: int = 5) -> int:
    """Number of words of a canonical text, counted up to `enough`.

    Runs between blanks that hold a letter or digit count one. Scripts that write no blanks are counted by length: two
    Han or Kana characters, or four Thai, Lao, Tibetan, Myanmar or Khmer ones, make a word (rounded up).
    """
    han = thai = count = 0
    for run in text.split():
        if not run.isascii() and (groups := [m.lastindex for m in _UNSPACED.finditer(run)]):
            han += groups.count(1)
            thai += groups.count(2)
            count += sum(1 for r in _UNSPACED.sub(" ", run).split() if _ALNUM.search(r))
        elif _ALNUM.search(run):
            count += 1
        if count + (han + 1) // 2 + (thai + 3) // 4 >= enough:
            return enough
    return count + (han + 1) // 2 + (thai + 3) // 4


def bounded(text: str, start: int, end: int) -> bool:
    """Whether text[start:end], not empty, begins and ends at word boundaries (anywhere in scripts without blanks)."""
    return not (start > 0 and within_word(text[start - 1], text[start])) and not (
        end < len(text) and within_word(text[end - 1], text[end]))


def word_pattern(text: str) -> re.Pattern[str]:
    """Finds `text` where no letter or digit of a script with blanks touches an end of it that is one itself."""
    letter = f"[^\\W_{_CJK}{_THAI}]"
    left = f"(?<!{letter})" if re.match(letter, text) else ""
    right = f"(?!{letter})" if re.match(letter, text[-1]) else ""
    return re.compile(left + re.escape(text) + right)


def within_word(left: str, right: str) -> bool:
    """Whether two neighbouring characters belong to one word (a combining mark belongs to what precedes it)."""
    if unicodedata.combining(right):
        return True
    return left.isalnum() and right.isalnum() and not (_UNSPACED.match(left) or _UNSPACED.match(right))


def numbers(raw: str) -> list[str]:
    """The numbers written in a raw text, in order, with comparison signs; 1,200 and 1200 are the same number.

    A raised digit stays an exponent (10 with a raised 5 is "10^5", not the 105 that NFKC makes of it), 1 before a
    one-half sign stays two numbers.
    """
    if not raw.isascii():
        raw = _RAISED.sub(lambda m: "^" + unicodedata.normalize("NFKC", m.group()).replace("\u2212", "-"), raw)
        raw = _LOWERED.sub(lambda m: "~" + unicodedata.normalize("NFKC", m.group()), raw)
        raw = unicodedata.normalize("NFKC", _FRACTION.sub(" ", raw)).replace("\u2264", "<=").replace("\u2265", ">=")
    raw = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), raw)
    return ["".join(m.group().split()) for m in _NUMBER.finditer(raw)]


def span_flags(quote: str, source: NormalizedSource, start: int, end: int, exact: bool) -> set[str]:
    """Trust flags of one quoted piece against the raw span it was matched to.

    Args: quote: the piece as written (raw). start, end: raw offsets of the span. exact: the canonical forms are equal.
    """
    raw = source.raw
    flags = set()
    if _numbers_differ(quote, raw, start, end, exact):
        flags.add("number_mismatch")
    if _negated_outside(quote, raw, start, end):
        flags.add("negation_outside")
    return flags if exact else flags | _difference_flags(quote, raw, start, end, "number_mismatch" in flags)


def _numbers_differ(quote: str, raw: str, start: int, end: int, exact: bool) -> bool:
    left = right = 0
    if _NUMBER_HEAD.match(raw, start, end) and (m := _NUMBER_BEFORE.search(raw[max(0, start - 40):start])):
        left = len(m.group())
    if _NUMBER_TAIL.search(raw[max(start, end - 2):end]):
        right = _NUMBER_AFTER.match(raw, end, end + 40).end() - end
    if exact and left == right == 0 and quote == raw[start:end]:
        return False
    return numbers(quote) != numbers(raw[start - left:end + right])


def _clause_before(raw: str, start: int) -> str:
    lines = raw[max(0, start - _CONTEXT):start].split("\n")
    clause = lines.pop()
    for line in reversed(lines):
        head = (clause + raw[start:start + 3]).lstrip()
        if not line.strip() or _BULLET.match(head) or len(line.strip()) < _WRAPPED and not head[:1].islower():
            break
        clause = f"{line} {clause}"
    clause = clause.lower()
    stops = [m.end() for m in _STOP.finditer(clause) if not _ABBREVIATION.search(clause, max(0, m.end() - 5), m.end())]
    stops += [m.end() for m in _TURN.finditer(clause)]
    return _NOT_NEGATIONS.sub(" ", clause[max(stops, default=0):])


def _cues(tokens: list[str]) -> list[str]:
    return [
        t for t in tokens if t in _CUES or t.endswith(_CONTRACTED) or "/" in t and not _CUES.isdisjoint(t.split("/"))]


def _negated_outside(quote: str, raw: str, start: int, end: int) -> bool:
    if start > 0 and within_word(raw[start - 1], raw[start]):  # the quote starts inside a word: "febrile" of "afebrile"
        cut = re.search(r"[^\W\d_]+-?$", raw[max(0, start - 8):start])
        if cut and cut.group().lower() in _PREFIXES:
            return True
    before = raw[max(0, start - _CONTEXT):start].lower()
    if _cues(_LOOSE.findall(before)) and not _cues(_LOOSE.findall(quote[:40].lower())[:2]):
        if _cues(_LOOSE.findall(_clause_before(raw, start))[-_SCOPE:]):
            return True
    return raw[end - 1] not in ".;!?" and _DENIED_AFTER.match(raw, end, end + 60) is not None


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(normalise(text))


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def _difference_flags(quote: str, raw: str, start: int, end: int, numbers_differ: bool) -> set[str]:
    mine, theirs = _tokens(quote), _tokens(raw[start:end])
    flags = set()
    if _plain(normalise(quote)) == _plain(normalise(raw[start:end])):
        return set() if numbers_differ else {"punctuation_only"}
    codes = [c for c in LCSseq.opcodes(mine, theirs) if c.tag != "equal"]
    if sorted(_cues(mine)) != sorted(_cues(theirs)):
        flags.add("negation_changed")
    blanks = theirs
    for left, right, _ in _gaps(codes):
        a, b = mine[left[0]:left[1]], theirs[right[0]:right[1]]
        if any(x != y and (_prefixed(x, y) or _prefixed(y, x)) for x in a for y in b):
            flags.add("negation_changed")
        at_start, at_end = left[0] == 0, left[1] == len(mine)
        if a and (at_start or at_end) and not _similar(a, b):
            flags.add("edge_overhang")
            outside = _tokens(raw[max(0, start - 20):start])[-1:] if at_start else []
            outside += _tokens(raw[end:end + 20])[:1] if at_end else []
            blanks = blanks + outside
    if sum(map(_blank, blanks)) > sum(map(_blank, mine)):
        flags.add("filled_blank")
    return flags


def _gaps(codes):
    """Neighbouring delete and insert codes joined: ((quote start, end), (source start, end), tag)."""
    joined = []
    for c in codes:
        if joined and joined[-1][0][1] == c.src_start and joined[-1][1][1] == c.dest_start:
            (a, _), (b, _), _ = joined[-1]
            joined[-1] = ((a, c.src_end), (b, c.dest_end), "replace")
        else:
            joined.append(((c.src_start, c.src_end), (c.dest_start, c.dest_end), c.tag))
    return joined


def _prefixed(longer: str, shorter: str) -> bool:
    return len(shorter) > 3 and longer.endswith(shorter) and longer[:-len(shorter)] in _PREFIXES


def _similar(a: list[str], b: list[str]) -> bool:
    return Indel.normalized_similarity("".join(a), "".join(b)) >= 0.6


def _blank(token: str) -> bool:
    return token.startswith("__")
