"""Our own neutral form: one patient a line, as `core_jax.records` defines it."""
from __future__ import annotations

import os
from collections.abc import Iterator

from core_jax.records import Patient, read_labels, read_patients

__all__ = ["read", "read_labels"]


def read(path: str | os.PathLike) -> Iterator[Patient]:
    """Patients of a .jsonl or .jsonl.gz file, streaming. Codes are taken as written, dots included.

    Raises: RecordError with file, line and field.
    """
    return read_patients(path)
