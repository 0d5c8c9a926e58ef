"""Examples of ragged length -> rows of a fixed length, several to a row, each blind to its neighbours.

Plain NumPy. B rows, T their length. An example has, for each token that is read, the token that is to be predicted
there and the weight of that prediction in the loss; the two need not be one text shifted (a verifier reads a
placeholder where it is to predict a label).
"""
from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Example:
    """ids, targets: int32 [n]; weights: float32 [n], 0 = no loss there."""

    ids: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def __post_init__(self):
        for name, kind in (("ids", np.int32), ("targets", np.int32), ("weights", np.float32)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        if self.ids.ndim != 1 or not self.ids.size or not self.ids.shape == self.targets.shape == self.weights.shape:
            raise ValueError(f"example: got shapes {self.ids.shape}, {self.targets.shape}, {self.weights.shape}, "
                             f"expected one length above 0")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise ValueError("example: weights: expected finite numbers, none below 0")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def causal(cls, prompt: Sequence[int], completion: Sequence[int]) -> Example:
        """Each token predicts the next; only those of the completion count. The last one is never read."""
        text = np.array([*prompt, *completion], np.int32)
        if not completion or len(text) < 2:
            raise ValueError(f"example: got {len(prompt)} prompt and {len(completion)} completion tokens, expected a "
                             f"completion, and two tokens in all")
        weights = np.arange(1, len(text)) >= len(prompt)
        return cls(text[:-1], text[1:], weights)


@dataclasses.dataclass(frozen=True)
class Packed:
    """Rows of a batch, all [B, T]: ids, targets, segments (from 1 within a row; 0 = padding) int32, weights float32."""

    ids: np.ndarray
    targets: np.ndarray
    segments: np.ndarray
    weights: np.ndarray

    @property
    def tokens(self) -> int:
        """Those that are no padding."""
        return int((self.segments > 0).sum())

    def blocks(self, rows: int) -> Iterator[dict[str, np.ndarray]]:
        """Batches of exactly `rows` rows; the last one is filled up with padding."""
        for start in range(0, len(self.ids), rows):
            out = {f.name: getattr(self, f.name)[start: start + rows] for f in dataclasses.fields(self)}
            short = rows - len(out["ids"])
            yield {name: np.pad(x, ((0, short), (0, 0))) for name, x in out.items()}


def plan(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Which examples share a row: the longest first, each into the fullest row that still has room.

    Deterministic: equal lengths go in their order, and so do rows that are equally full.

    Returns: a list of example indices per row.
    Raises: ValueError: an example longer than a row; nothing is ever cut here.
    """
    if too_long := [i for i, n in enumerate(lengths) if n > length]:
        raise ValueError(f"example {too_long[0]}: got {lengths[too_long[0]]} tokens, expected at most {length}")
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (room, row), ascending
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = bisect.bisect_left(free, (lengths[i], 0))
        if at == len(free):
            rows.append([])
            room, row = length, len(rows) - 1
        else:
            room, row = free.pop(at)
        rows[row].append(i)
        bisect.insort(free, (room - lengths[i], row))
    return rows


def pack(examples: Sequence[Example], length: int) -> Packed:
    """The rows of `plan`, filled. Raises: ValueError as `plan`."""
    rows = plan([len(e) for e in examples], length)
    out = Packed(*(np.zeros((len(rows), length), kind) for kind in (np.int32, np.int32, np.int32, np.float32)))
    for r, members in enumerate(rows):
        start = 0
        for segment, i in enumerate(members, 1):
            e, span = examples[i], slice(start, start + len(examples[i]))
            out.ids[r, span], out.targets[r, span], out.weights[r, span] = e.ids, e.targets, e.weights
            out.segments[r, span] = segment
            start = span.stop
    return out


def order(count: int, batch: int, epochs: int, seed: int) -> Sequence[np.ndarray]:
    """Example indices of each update, by grain: shuffled anew in each epoch, the last batch of an epoch may be short.

    The sequence is indexed by the update, so resuming needs the number of updates made and nothing else.

    Raises: ImportError: grain is not installed.
    """
    try:
        import grain
    except ImportError:
        raise ImportError("the order of training data comes from grain: pip install 'grain>=0.2.18,<0.3'") from None
    return grain.MapDataset.range(count).seed(seed).shuffle().batch(batch).repeat(epochs)
