"""Drop identifiers and dates from everything a report is made of, before a page is made of it.

Patients become `patient-001`, their notes `note-1` (numbers, never digests: a digest of a short id can be guessed).
Every time and date field goes; ages stay, to a tenth of a year and capped at 90. In text that a generator wrote, known
ids and ISO dates are replaced. Recorded text, and quotes of it, is left as it is: offsets must hold; the page says so.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from core_jax.records import Patient
from evigen_jax.rationale import rationale_sha256
from evigen_jax.report.patient import Case

_DATED = {"time", "date", "prediction_time", "index_time", "start_time", "end_time", "birth_date", "death_date"}
_VERBATIM = {"text", "quote"}
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?")
_NAMED = r"((?i:note_id|patient_id|patient|subject|note)\W{0,3})"


class Aliases:
    """Old id -> new id. Patients are numbered in the order they are first asked for, notes in their record's order."""

    def __init__(self, patients: Iterable[str]):
        self.patients: dict[str, str] = {}
        for patient_id in patients:
            self.patient(patient_id)

    def patient(self, patient_id: str) -> str:
        return self.patients.setdefault(patient_id, f"patient-{len(self.patients) + 1:03d}")

    def ids(self, patient: Patient) -> dict[str, str]:
        """Every identifier of one record, but codes, which identify nobody."""
        out = {note.note_id: f"note-{i}" for i, note in enumerate(patient.notes, 1)}
        out |= {
            e.encounter_id: f"encounter-{i}"
            for i, e in enumerate(patient.encounters, 1)
            if e.encounter_id not in out
        }
        return out | {patient.patient_id: self.patient(patient.patient_id)}

    def observation(self, obs_id: str, ids: Mapping[str, str]) -> str:
        note, mark, span = obs_id.rpartition("#")
        return f"{ids.get(note, 'note')}#{span}" if mark else obs_id


def age(years: float | None) -> float | None:
    return None if years is None else min(round(years, 1), 90.0)


def patient(record: Patient, ids: Mapping[str, str]) -> Patient:
    """The record with ids replaced and dates gone; texts, titles and order stay."""
    notes = tuple(
        dataclasses.replace(n, note_id=ids[n.note_id], time=None, encounter_id=None, age_years=age(n.age_years))
        for n in record.notes
    )
    codes = tuple(
        dataclasses.replace(c, time=None, encounter_id=None, age_years=age(c.age_years)) for c in record.codes
    )
    return Patient(ids[record.patient_id], sex=record.sex, notes=notes, codes=codes)


def scrub(value: Any, ids: Mapping[str, str], key: str = "") -> Any:
    """JSON with ids replaced, dates dropped and ages capped, whatever its shape."""
    if isinstance(value, Mapping):
        return {k: scrub(v, ids, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrub(v, ids, key) for v in value]
    if key in _DATED or key == "raw":
        return None
    if key == "age_years":
        return age(value)
    if not isinstance(value, str) or key in _VERBATIM:
        return value
    if value in ids:
        return ids[value]
    note, mark, span = value.rpartition("#")
    if mark and note in ids:
        return f"{ids[note]}#{span}"
    return _DATE.sub("[date]", _replace(value, ids))


def _replace(text: str, ids: Mapping[str, str]) -> str:
    """Known ids in running text, in one pass; a plain number or word only where the text calls it an id."""
    found = sorted((old for old in ids if old in text), key=len, reverse=True)
    distinct = [
        old for old in found if len(old) >= 5 or (any(c.isalpha() for c in old) and any(c.isdigit() for c in old))
    ]
    plain = [old for old in found if old not in distinct]
    forms = [("", distinct), (_NAMED, plain)]
    pattern = "|".join(
        rf"{lead}(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, group))})(?![A-Za-z0-9])"
        for lead, group in forms
        if group
    )
    if not pattern:
        return text

    def new(match: re.Match) -> str:
        lead = (match[1] or "") if plain else ""
        return lead + ids[match[0][len(lead) :]]

    return re.sub(pattern, new, text)


def case(original: Case, aliases: Aliases) -> Case:
    ids = aliases.ids(original.patient)
    rationale = None if original.rationale is None else scrub(original.rationale, ids)
    checked = None if original.verification is None else scrub(original.verification, ids)
    if checked is not None:  # a hash of the text with ids would tell a guesser that a guess is right
        checked["rationale_sha256"] = rationale_sha256(rationale)
    return dataclasses.replace(
        original,
        patient=patient(original.patient, ids),
        pack=scrub(original.pack, ids),
        rationale=rationale,
        verification=checked,
        age=age(original.age),
    )


def query_examples(
    rows: Iterable[Mapping[str, Any]] | None, aliases: Aliases, records: Mapping[str, Patient]
) -> list[dict[str, Any]]:
    out = []
    for row in rows or []:
        items = []
        for item in row["items"]:
            known = records.get(item["patient_id"])
            ids = aliases.ids(known) if known is not None else {}
            items.append(
                dict(item)
                | {
                    "patient_id": aliases.patient(item["patient_id"]),
                    "obs_id": aliases.observation(item["obs_id"], ids),
                }
            )
        out.append(dict(row) | {"items": items})
    return out
