"""One patient under construction: raw parts with the file and row each came from, so that a fault names its place."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from core_jax.records import Patient, RecordError, patient_from_dict

PARTS = ("encounters", "notes", "codes", "events")

_PART = re.compile(rf"({'|'.join(PARTS)})\[(\d+)\]\.?(.*)")


class Draft:
    """Collects the raw object of `patient_from_dict`; `columns` maps our field names to the source's, for messages.

    Keys of `columns` are "birth_year" or, for a part, "notes.time".
    """

    def __init__(self, patient: dict[str, Any], file: str, row: int | None, columns: Mapping[str, str]):
        self.raw = patient | {part: [] for part in PARTS}
        self._place = (file, row)
        self._places: dict[str, list[tuple[str, int | None]]] = {part: [] for part in PARTS}
        self._columns = columns

    def add(self, part: str, item: dict[str, Any], file: str, row: int | None) -> None:
        self.raw[part].append(item)
        self._places[part].append((file, row))

    def patient(self) -> Patient:
        """Raises: RecordError with file, row and the source's column."""
        try:
            return patient_from_dict(self.raw)
        except RecordError as e:
            m = _PART.fullmatch(e.field or "")
            file, row = self._places[m[1]][int(m[2])] if m else self._place
            name = f"{m[1]}.{m[3]}" if m else (e.field or "")
            message = f"{e.message} (patient {self.raw['patient_id']!r})"
            raise RecordError(message, file=file, line=row, field=self._columns.get(name, name) or None) from None
