"""Answers kept as they come, so that a run over many patients that was stopped goes on where it was. Imports without JAX."""
from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from core_jax.records import RecordError, read_jsonl


class Partial:
    """`PATH.partial`: one JSON line an answer, under a key that names everything the answer depends on.

    A line that a kill cut short is left out and written over. `done()` removes the file; until then it is locked.
    Raises: ValueError where another process writes the same result.
    """

    def __init__(self, out: str | os.PathLike):
        self.path = os.fspath(out) + ".partial"
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        self._file = open(self.path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{self.path}: another process is writing this result") from None
        self._cut()
        self.kept: dict[str, Any] = {}
        try:
            self.kept = {row["key"]: row["value"] for _, row in read_jsonl(self.path)} if os.path.getsize(self.path) else {}
        except (RecordError, KeyError, TypeError) as e:
            self._file.close()
            raise ValueError(f"{self.path}: not what this command keeps there ({e}); remove it to start anew") from None

    def _cut(self) -> None:
        """Drop what stands after the last line end."""
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def add(self, key: str, value: Any) -> None:
        """Keep one answer, on disk before this returns."""
        self._file.write(json.dumps({"key": key, "value": value}, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def done(self) -> None:
        """The whole result is in place: remove the file."""
        os.unlink(self.path)
        self._file.close()

    def close(self) -> None:
        """Let go of the file and keep it."""
        self._file.close()
