"""Sentences of clinical text with exact offsets. Plain Python, deterministic, linear in the length of the text."""
from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

# No sentence ends at these, whatever follows; "no." and "nos." only before a number.
_TITLES = frozenset("mr mrs ms dr drs prof st pt pts vs e.g i.e eg ie approx fig figs cf ca dept hx dx rx tx fx sx wt ht temp resp".split())
_END = re.compile(r"[.!?]+[\"')\]\u201d\u2019]*(?=\s)")
_WORD = re.compile(r"[^\W_]+")
_ITEM = re.compile(r"\s*(?:[-*+\u2022\u2013\u2014>]+\s|\(?\d{1,3}[.)]\s|[A-Za-z][.)]\s|#)")
_HEADING = re.compile(r"\s*[A-Z][^\n:.!?]{0,60}:(?:\s|$)")
_WRAPPED = 60  # a line at least this long may have been broken by a text editor rather than by its author
MARKER = re.compile(r"(?:[-*+\u2022\u2013\u2014>]+|\(?\d{1,3}[.)])\s+")


def sentences(text: str) -> list[Span]:
    """(start, end) of each sentence, in order, without surrounding blanks; together they hold every non-blank character.

    A sentence ends at . ! or ?, but not in numbers, after initials or titles (Dr., vs., e.g.) or at a list number. A
    line break ends one where a blank line, a list item, a heading ("PLAN:") or a short line says that the author broke
    the line; otherwise it is taken for wrapping, and the sentence goes on.
    """
    return [span for block in _blocks(text) for span in _split(text, *block)]


def words(text: str) -> list[str]:
    """Lower-case runs of letters and digits."""
    return [w.lower() for w in _WORD.findall(text)]


def _blocks(text: str) -> Iterator[Span]:
    """Runs of lines that belong together."""
    start = at = 0
    before = ""
    for line in text.splitlines(keepends=True):
        body = line.strip()
        if before and not _goes_on(before, line, body) and text[start:at].strip():
            yield start, at
            start = at
        before = line if body else "\n"
        at += len(line)
    if text[start:].strip():
        yield start, len(text)


def _goes_on(before: str, line: str, body: str) -> bool:
    last = before.rstrip()
    if not body or not last or _ITEM.match(line) or _HEADING.match(line) or last.endswith((".", "!", "?", ":")):
        return False
    return body[0].islower() or body[0] in "(,;/%" or len(last) >= _WRAPPED


def _split(text: str, start: int, end: int) -> Iterator[Span]:
    at = start
    for stop in _END.finditer(text, start, end):
        if stop.start() >= at and _ends(text, at, stop, end):
            yield from _trim(text, at, stop.end())
            at = stop.end()
    yield from _trim(text, at, end)


def _ends(text: str, start: int, stop: re.Match, end: int) -> bool:
    after = text[stop.end():min(end, stop.end() + 80)].lstrip()
    if after[:1].islower():
        return False
    if not stop[0].startswith(".") or stop[0].startswith(".."):
        return True
    before = text[max(start, stop.start() - 24):stop.start()]
    word = re.search(r"[^\s(\[\"']*$", before)[0].lower()
    if word in _TITLES or (word in ("no", "nos") and after[:1].isdigit()):
        return False
    if len(word) == 1 and word.isalpha():  # an initial; a lone "I" or a grade closes no sentence that matters
        return False
    return not (word.isdigit() and not text[start:stop.start() - len(word)].strip())  # "1." opens a list item


def _trim(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    if piece.strip():
        yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
