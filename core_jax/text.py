"""Tokenizer adapter, and chunks that keep raw character offsets.

Imports without JAX; `tokenizers` (and `transformers`, for folders that only have a vocabulary) are imported on use.
Offsets are Python string indices into the untouched text, half open, so that `text[start:end]` is what a model saw.
"""
from __future__ import annotations

import os
import re
from collections.abc import Sequence

Span = tuple[int, int]


def word_spans(text: str) -> list[Span]:
    """Spans of the runs of non-blank characters of `text`, in order: the chunking unit `words`."""
    return [m.span() for m in re.finditer(r"\S+", text)]


def chunk(text: str, spans: Sequence[Span], size: int = 200, overlap: int = 40) -> list[Span]:
    """Windows of `size` consecutive units (tokens or words), `overlap` shared with the next (evigen.md S2).

    The windows cover the whole text: the first begins at 0, the last ends at len(text), and no character between two
    units is lost. A rest of at most `overlap` new units joins the window before it, so a window has at most
    `size + overlap` units. A text that is blank or has no unit has no window.

    Args:
        spans: the units' (start, end), in text order.

    Raises:
        ValueError: size < 1, or overlap outside [0, size).
    """
    if size < 1 or not 0 <= overlap < size:
        raise ValueError(f"got size {size}, overlap {overlap}; expected size >= 1 and 0 <= overlap < size")
    if not spans or not text.strip():
        return []
    count, windows, first = len(spans), [], 0
    while True:
        start = spans[first][0] if first else 0
        if count - (first + size) <= overlap:
            windows.append((start, len(text)))
            return windows
        following = first + size - overlap
        windows.append((start, max(spans[first + size - 1][1], spans[following][0])))
        first = following


class Tokenizer:
    """A fast Hugging Face tokenizer read from a local folder; nothing is ever fetched.

    Truncation and padding that the folder's tokenizer.json may carry are switched off.
    """

    def __init__(self, serialized: str):
        from tokenizers import Tokenizer as Fast

        self._whole, self._cut = Fast.from_str(serialized), Fast.from_str(serialized)
        for t in (self._whole, self._cut):
            t.no_truncation()
            t.no_padding()
        self._max_length: int | None = None
        self.serialized = self._whole.to_str()
        self.special_tokens = self._whole.num_special_tokens_to_add(False)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Tokenizer:
        """Raises: ValueError when the folder has no tokenizer files, or only those of a tokenizer without offsets."""
        folder = os.fspath(folder)
        path = os.path.join(folder, "tokenizer.json")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as f:
                return cls(f.read())
        if not os.path.isdir(folder):
            raise ValueError(f"{folder}: no such folder; expected one with a tokenizer.json")
        from transformers import AutoTokenizer

        try:
            slow_or_fast = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, TypeError) as e:
            raise ValueError(f"{folder}: no usable tokenizer (expected tokenizer.json): {e}") from None
        backend = getattr(slow_or_fast, "backend_tokenizer", None)
        if backend is None:
            raise ValueError(f"{folder}: {type(slow_or_fast).__name__} gives no character offsets; expected a fast one")
        return cls(backend.to_str())

    def encode_offsets(self, text: str) -> list[Span]:
        """Character span of each token of `text`, special tokens left out."""
        return [span for span in self._whole.encode(text, add_special_tokens=False).offsets if span[1] > span[0]]

    def encode(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Token ids of each text with special tokens, cut to `max_length` tokens in all (special ones are kept)."""
        return self.encode_counted(texts, max_length)[0]

    def encode_counted(self, texts: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
        """As `encode`, and the number of texts that were cut.

        Raises: ValueError when max_length leaves no room beside the special tokens.
        """
        if max_length <= self.special_tokens:
            raise ValueError(f"got max_length {max_length}, expected more than {self.special_tokens} special tokens")
        if self._max_length != max_length:
            self._cut.enable_truncation(max_length)
            self._max_length = max_length
        rows = self._cut.encode_batch_fast(list(texts))
        return [r.ids for r in rows], sum(bool(r.overflowing) for r in rows)
