"""The synthetic cohort of the `clinosim` package as one JSON Lines file (a patient a line) -> patients.

Choices: death certificates (LOINC 64297-5) are no input and are dropped; a code is known from the end of its
encounter; whatever the simulator dated before a patient's birth is dropped; what it holds beyond the record (latent
severities in `chronic`, `facts` of notes) is not read. Each is counted.
"""
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from core_jax.icd import normalize
from core_jax.readers.draft import Draft
from core_jax.records import Patient, RecordError, parse_time, read_jsonl

DEATH_CERTIFICATE = "64297-5"

_COLUMNS = {
    "birth_date": "birth", "death_date": "death", "encounters.start": "admission_datetime",
    "encounters.end": "discharge_datetime", "notes.note_id": "notes.id", "notes.encounter_id": "notes.enc",
}


def read(path: str | os.PathLike, *, counts: Counter[str] | None = None) -> Iterator[Patient]:
    """Patients of a clinosim file, streaming, in the order of the file.

    `counts` receives the number of items that were dropped, by reason.

    Raises: RecordError with file, line and field.
    """
    path = os.fspath(path)
    counts = Counter() if counts is None else counts
    seen: dict[str, int] = {}
    for line, raw in read_jsonl(path):
        try:
            draft = _draft(raw, path, line, counts)
        except RecordError as e:
            raise RecordError(e.message, file=path, line=line, field=e.field) from None
        patient = draft.patient()
        if patient.patient_id in seen:
            raise RecordError(f"{patient.patient_id!r} stands on line {seen[patient.patient_id]} already", file=path,
                              line=line, field="patient_id")
        seen[patient.patient_id] = line
        yield patient


def _get(item: Any, where: str, *names: str) -> list[Any]:
    if not isinstance(item, dict):
        raise RecordError(f"got {type(item).__name__}, expected an object", field=where or None)
    for name in names:
        if name not in item:
            raise RecordError("missing", field=f"{where}.{name}" if where else name)
    return [item[name] for name in names]


def _list(item: Any, where: str) -> list[Any]:
    if not isinstance(item, list):
        raise RecordError(f"got {type(item).__name__}, expected a list", field=where)
    return item


def _draft(raw: Any, path: str, line: int, counts: Counter[str]) -> Draft:
    patient_id, sex, birth, death, encounters, codes, notes = _get(
        raw, "", "patient_id", "sex", "birth", "death", "encounters", "codes", "notes")
    person = {"patient_id": patient_id, "sex": sex, "birth_date": birth, "death_date": death}
    draft = Draft(person, path, line, _COLUMNS)
    born = _time(birth, "birth") or ""

    ends: dict[str, str | None] = {}
    unborn: set[str] = set()
    for i, item in enumerate(_list(encounters, "encounters")):
        where = f"encounters[{i}]"
        key, kind, start, end = _get(item, where, "encounter_id", "encounter_type", "admission_datetime",
                                     "discharge_datetime")
        if not isinstance(key, str):
            raise RecordError(f"got {type(key).__name__} {key!r}, expected a string", field=f"{where}.encounter_id")
        start, end = _time(start, f"{where}.admission_datetime"), _time(end, f"{where}.discharge_datetime")
        ends[key] = end or start
        if start and start < born:
            counts["encounter_before_birth"] += 1
            unborn.add(key)
            continue
        draft.add("encounters", {"encounter_id": key, "type": kind, "start": start, "end": end}, path, line)
    for i, item in enumerate(_list(codes, "codes")):
        if not isinstance(item, list) or len(item) != 3 or not all(isinstance(x, str) for x in item):
            raise RecordError("expected [encounter_id, code, title]", field=f"codes[{i}]")
        key, code, title = item
        if key not in ends:
            raise RecordError(f"no such encounter: {key!r}", field=f"codes[{i}]")
        if key in unborn:
            counts["code_before_birth"] += 1
            continue
        code = normalize(code)
        draft.add("codes", {"code": code, "version": "10", "title": title.strip() or f"ICD-10 {code} (no description)",
                            "time": ends[key], "encounter_id": key}, path, line)
    for i, item in enumerate(_list(notes, "notes")):
        key, encounter, kind, time, text = _get(item, f"notes[{i}]", "id", "enc", "type", "time", "text")
        if kind == DEATH_CERTIFICATE:
            counts["death_certificate"] += 1
        elif (time := _time(time, f"notes[{i}].time")) and time < born:
            counts["note_before_birth"] += 1
        else:
            draft.add("notes", {"note_id": key, "text": text, "time": time, "type": kind, "encounter_id": encounter},
                      path, line)
    return draft


def _time(value: Any, where: str) -> str | None:
    try:
        return parse_time(value)
    except ValueError as e:
        raise RecordError(str(e).split(": ", 1)[1], field=where) from None
