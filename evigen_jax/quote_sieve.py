"""Where in a long note can a quote stand? A sieve that never loses a match, before the fuzzy comparison.

A window that scores t against a quote of n characters leaves at most e = 2 n (1 - t / 100) characters of the two
unmatched. An unmatched character of the quote spoils three of its n - 2 trigrams, one of the window two, so at least
n - 2 - 3 e trigrams of the quote stand unspoiled in the window: 0.4 n - 2 at t = 90, where unrelated English shares a
tenth. The count is taken in blocks of eight characters with hashed trigrams, which can only add places.
"""
from __future__ import annotations

import numpy as np

from evigen_jax.normal_text import NormalizedSource, trigrams

BLOCK = 8


class Sieve:
    """Counts of shared trigrams for one quote (three characters or more) against one source."""

    def __init__(self, quote: str, source: NormalizedSource):
        self._n, self._size = len(quote), len(source.text)
        self._shared = _shared(quote, source)

    def regions(self, threshold: float) -> list[tuple[int, int]] | None:
        """Pieces [start, end) of `source.text` that hold every window of len(quote) scoring `threshold`, or more.

        Windows cut at the two ends of the source are not sought. None: the sieve would keep more than half of the text.
        """
        n, size = self._n, self._size
        least = n - 2 - 3 * int(2 * n * (1 - threshold / 100) + 1e-9)
        if least < 1:
            return None
        starts = BLOCK * np.flatnonzero(self._shared >= least)
        if not starts.size:
            return []
        ends = np.minimum(starts + BLOCK + n, size)
        first = np.flatnonzero(np.diff(starts, prepend=-size - 3 * n) > BLOCK + 2 * n)  # nearer ones are joined
        last = np.append(first[1:] - 1, starts.size - 1)
        if int((ends[last] - starts[first] + n).sum()) > size // 2:
            return None
        return list(zip(starts[first].tolist(), ends[last].tolist()))

    def likeliest(self, count: int = 8) -> list[tuple[int, int]]:
        """The `count` places of `source.text` that share most trigrams with the quote, joined where they touch.

        A place holds the windows that start within half a quote's length of one another.
        """
        width = max(1, self._n // (2 * BLOCK))
        best = np.maximum.reduceat(self._shared, np.arange(0, self._shared.size, width))
        chosen = np.argpartition(-best, count)[:count] if count < best.size else np.arange(best.size)
        out: list[tuple[int, int]] = []
        for start in (BLOCK * width * np.sort(chosen)).tolist():
            end = min(self._size, start + BLOCK * (width + 1) + self._n)
            if out and start <= out[-1][1]:
                out[-1] = (out[-1][0], end)
            else:
                out.append((start, end))
        return out


def _shared(quote: str, source: NormalizedSource) -> np.ndarray:
    """int32[blocks]: at most this many trigrams of a window that starts in the block are trigrams of the quote."""
    known = np.zeros(65537, np.uint8)
    known[trigrams(quote)] = 1
    hits = known.take(source.trigrams, mode="wrap")
    # the sum of the eight bytes of a word ends up in its top byte
    blocks = (hits.view(np.uint64) * np.uint64(0x0101010101010101)) >> np.uint64(56)
    total = np.zeros(blocks.size + 1, np.int32)
    np.cumsum(blocks, dtype=np.int32, out=total[1:])
    reach = -(-(len(quote) - 2 + BLOCK - 1) // BLOCK)
    shared = total[-1] - total[:-1]
    shared[:max(blocks.size - reach, 0)] = (total[reach:-1] - total[:-reach - 1]) if blocks.size > reach else 0
    return shared
