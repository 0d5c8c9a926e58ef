"""An entry's text in pieces that a writer can read at once. Standard library only."""
from __future__ import annotations

import re

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORD = re.compile(r"\S+")
OVERLAP = 8  # the last line of a chunk opens the next one too, unless it is longer than a chunk's 1/8


def chunks(text: str, words: int) -> tuple[tuple[int, int], ...]:
    """(start, end) of each chunk, in order; together they cover the text.

    Cut between lines (turns of a dialogue), so that none is torn; a line that is longer than a chunk is cut between
    words, and a word of more than 64 characters for each that a chunk may have is cut where it must be. The last line
    of a chunk stands at the beginning of the next one too where it is short: an answer needs its question.

    Args:
        words: most words of a chunk, as an estimate of tokens.

    Raises: ValueError: words < 1.
    """
    if words < 1:
        raise ValueError(f"got {words} words, expected at least 1")
    out: list[tuple[int, int]] = []
    start = fresh = None  # of the chunk that is open: its first character, and the first that no other chunk has
    count = 0
    last = (0, 0, 0)  # the line before: its start and end, its words
    for first, end, size in _pieces(text, words):
        if start is None:
            start = fresh = first
        elif count + size > words or end - start > words * 64:
            out.append((start, first))
            again = 0 < last[2] * OVERLAP <= words and last[0] > start and last[2] + size <= words
            start, fresh, count = (last[0], first, last[2]) if again else (first, first, 0)
        count += size
        last = first, end, size
    if start is not None and fresh < len(text):
        out.append((start, len(text)))
    return tuple(out)


def _pieces(text: str, words: int):
    """(start, end, words) of the lines; of one that is longer than a chunk, its parts."""
    for line in _LINE.finditer(text):
        size = len(line[0].split())
        if size <= words and line.end() - line.start() <= words * 64:
            yield line.start(), line.end(), size
            continue
        at, count = line.start(), 0
        for first, end in (m.span() for m in _WORD.finditer(text, *line.span())):
            while end - at > words * 64:
                if count:
                    yield at, first, count
                    at, count = first, 0
                else:
                    yield at, at + words * 64, 1
                    at += words * 64
                    first = max(first, at)
            if count == words:
                yield at, first, count
                at, count = first, 0
            count += 1
        yield at, line.end(), count
