"""Seeded random draws that every Python version repeats."""
from __future__ import annotations

import random
from collections.abc import Sequence


class Stream:
    """Draws made from random.random() alone, whose sequence Python guarantees across versions."""

    def __init__(self, key: str):
        self._next = random.Random(key).random

    def chance(self, p: float) -> bool:
        return self._next() < p

    def uniform(self) -> float:
        return self._next()

    def integer(self, low: int, high: int) -> int:
        """Uniform on low..high, both included."""
        return low + int(self._next() * (high - low + 1))

    def pick(self, items: Sequence):
        return items[int(self._next() * len(items))]

    def sample(self, items: Sequence, k: int) -> list:
        """k items in random order without repetition; where items run out they come round again."""
        out: list = []
        while len(out) < k:
            pool = list(items)
            while pool and len(out) < k:
                out.append(pool.pop(int(self._next() * len(pool))))
        return out

    def weighted(self, weights: Sequence[float]) -> int:
        u = self._next() * sum(weights)
        for i, w in enumerate(weights):
            u -= w
            if u < 0:
                return i
        return len(weights) - 1
