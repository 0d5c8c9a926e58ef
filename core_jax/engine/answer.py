"""The text of one answer while its tokens come: stop strings, the thinking block, what may be shown already.

Imports without JAX.
"""
from __future__ import annotations

from collections.abc import Sequence

from core_jax.text import Tokenizer

OPENING, CLOSING = "<think>", "</think>"


def cut(text: str, stop: Sequence[str], begin: int = 0) -> int | None:
    """Where stop strings cut a text that is read from left to right: before the match that is complete first, the
    longest of those that are complete at once; None where there is none. How the text came apart into tokens plays no
    part: "a<<" is cut by ("<", "a<<") after its "a".

    begin: no match begins before.
    """
    ends = [(at + len(s), at) for s in stop if (at := text.find(s, begin)) >= 0]
    return min(ends)[1] if ends else None


class Answer:
    """Tokens in, text out.

    stop: strings that end the answer, which is cut as `cut` says. thinks: the prompt has opened a
    thinking block; else the answer may open one with its first word. A block that is never closed is all there is: then
    `text` is empty. Blanks around an answer that has a block are dropped; an answer without one is left as it is.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], *, thinks: bool):
        self._stream, self._stop, self._thinks = tokenizer.stream(), tuple(stop), thinks
        self._raw = ""
        self._shown = 0
        self._searched = 0  # no stop string begins before
        self.stopped = False

    def push(self, token: int) -> bool:
        """Takes a token; True once a stop string has ended the answer."""
        return self._take(self._stream.push(token))

    def finish(self) -> None:
        """No token will follow: a character that is not whole becomes U+FFFD."""
        self._take(self._stream.flush())

    def _take(self, piece: str) -> bool:
        if self.stopped or not piece:
            return self.stopped
        self._raw += piece
        at = cut(self._raw, self._stop, max(0, self._searched))
        if at is not None:
            self._raw, self.stopped = self._raw[:at], True
        self._searched = len(self._raw) - max(map(len, self._stop), default=1) + 1
        return self.stopped

    def _split(self) -> tuple[str | None, int]:
        """(thinking or None where there is no block, where the answer begins; -1 while it has not)."""
        if self._thinks:
            begin = 0
        elif self._raw.lstrip().startswith(OPENING):
            begin = self._raw.index(OPENING) + len(OPENING)
        else:
            return None, 0
        end = self._raw.find(CLOSING, begin)
        if end < 0:
            return self._raw[begin:].strip(), -1
        after = end + len(CLOSING)
        return self._raw[begin:end].strip(), after + len(self._raw[after:]) - len(self._raw[after:].lstrip())

    @property
    def thinking(self) -> str:
        return self._split()[0] or ""

    @property
    def text(self) -> str:
        thinking, begin = self._split()
        if begin < 0:
            return ""
        return self._raw if thinking is None else self._raw[begin:].rstrip()

    def certain(self, *, last: bool = False) -> str:
        """The next piece of `text` that nothing to come can take back; all pieces joined are `text`.

        last: nothing is to come any more.
        """
        text = self.text
        end = len(text)
        if not last and not self.stopped:
            thinking, begin = self._split()
            start = self._raw.lstrip()
            if begin < 0 or (thinking is None and len(start) < len(OPENING) and OPENING.startswith(start)):
                return ""
            end = min(end, len(self._raw) - begin - self._held())
        piece = text[self._shown:end]
        self._shown = max(self._shown, end)
        return piece

    def _held(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        most = 0
        for s in self._stop:
            for n in range(min(len(s) - 1, len(self._raw)), most, -1):
                if self._raw.endswith(s[:n]):
                    most = n
                    break
        return most
