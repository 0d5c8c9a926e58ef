"""Rows grouped by patient on disk, for files in any order: what lets a reader stream in bounded memory."""
from __future__ import annotations

import pickle
import struct
import tempfile
from array import array
from collections.abc import Iterable

import pyarrow as pa

_HEAD = struct.Struct("<qqq")  # offset of the key's previous run or -1, stored size, raw size


class Spill:
    """An unnamed temporary file of compressed runs of rows; the runs of one key are chained backwards.

    Memory is 8 bytes a key whatever the number of rows. The file lies in `directory` (default: the system's temporary
    directory, see TMPDIR), takes about a third of the uncompressed size of text, and disappears when closed.
    """

    def __init__(self, keys: int, directory: str | None = None):
        self._last = array("q", [-1]) * keys
        self._codec = pa.Codec("zstd", compression_level=1)
        self._file = tempfile.TemporaryFile(dir=directory)
        self._end = 0

    def add(self, key: int, rows: list[tuple]) -> None:
        """Append rows of key `key`; later `rows(key)` gives them back in the order of the calls."""
        raw = pickle.dumps(rows, protocol=5)
        stored = self._codec.compress(raw, asbytes=True)
        self._file.seek(self._end)
        self._file.write(_HEAD.pack(self._last[key], len(stored), len(raw)))
        self._file.write(stored)
        self._last[key] = self._end
        self._end += _HEAD.size + len(stored)

    def rows(self, key: int) -> list[tuple]:
        """All rows of a key, oldest call first; [] for a key without any."""
        runs: list[list[tuple]] = []
        at = self._last[key]
        while at >= 0:
            self._file.seek(at)
            at, stored, raw = _HEAD.unpack(self._file.read(_HEAD.size))
            runs.append(pickle.loads(self._codec.decompress(self._file.read(stored), raw, asbytes=True)))
        return [row for run in reversed(runs) for row in run]

    def close(self) -> None:
        self._file.close()


def grouped(keys: Iterable[int | None], rows: Iterable[tuple]) -> dict[int, list[tuple]]:
    """Rows of one block by key, in order; rows whose key is None are left out."""
    out: dict[int, list[tuple]] = {}
    for key, row in zip(keys, rows, strict=True):
        if key is not None:
            out.setdefault(key, []).append(row)
    return out
