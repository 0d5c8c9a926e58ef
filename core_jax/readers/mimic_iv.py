"""MIMIC-IV folders (`hosp/*.csv[.gz]`, `note/discharge.csv[.gz]`) -> patients, in bounded memory, in any row order.

Every table is read once, in blocks, and spilled to a temporary file by subject (`core_jax.readers.spill`); patients
come out in the order of their ids. Choices (EviGen F.1 and F.3, mimic-code issues 698, 918, 1288, 1346, 1817):

* a diagnosis is known from the discharge of its stay; a stay whose dischtime lies before its admittime counts as
  ended at its admittime (nothing is known earlier than either says), and is counted;
* a discharge note is dated by the day of its charttime; notes of one day go by the number in their note_id, which is
  note_seq; all notes and addenda of a stay are kept;
* birth is known as a year only, anchor_year - anchor_age, so that an age is anchor_age + year - anchor_year;
* a microbiology result is known from its storetime;
* deaths in hospital, discharge locations and DRGs are in no patient record: `read_index_stays` is a door of its own,
  for cohort builders only.
"""
from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Literal

from core_jax.icd import VERSIONS, Titles, normalize
from core_jax.readers.draft import Draft
from core_jax.readers.rendered import Stay, render
from core_jax.readers.spill import Spill, grouped
from core_jax.readers.table import blocks, find
from core_jax.records import Patient, RecordError, parse_time

NOTE_BLOCK = 8 << 20  # bytes; the longest discharge note has to fit

_PATIENTS = ("subject_id", "gender", "anchor_age", "anchor_year", "dod")
_ADMISSIONS = ("subject_id", "hadm_id", "admittime", "dischtime", "admission_type")
_DIAGNOSES = ("subject_id", "hadm_id", "seq_num", "icd_code", "icd_version")
_NOTES = ("subject_id", "note_id", "hadm_id", "note_type", "charttime", "text")
# table -> (kind of event, columns besides subject_id, the column of the time)
_EVENTS = {
    "prescriptions": ("prescription", ("hadm_id", "pharmacy_id", "starttime", "stoptime", "drug_type", "drug",
                                       "prod_strength", "dose_val_rx", "dose_unit_rx", "doses_per_24_hrs", "route"),
                      "starttime"),
    "omr": ("measurement", ("chartdate", "seq_num", "result_name", "result_value"), "chartdate"),
    "microbiologyevents": ("microbiology", ("microevent_id", "hadm_id", "chartdate", "charttime", "spec_type_desc",
                                            "storetime", "test_name", "org_name", "ab_name", "interpretation",
                                            "comments"), "storetime"),
}
# our field -> their column, for messages
_COLUMNS = {
    "patient_id": "subject_id", "sex": "gender", "birth_year": "anchor_year", "death_date": "dod",
    "encounters.encounter_id": "hadm_id", "encounters.start": "admittime", "encounters.end": "dischtime",
    "notes.note_id": "note_id", "notes.time": "charttime", "notes.text": "text", "codes.code": "icd_code",
    "codes.version": "icd_version", "codes.time": "dischtime",
}


@dataclasses.dataclass(frozen=True, slots=True)
class IndexStay:
    """A subject's last stay by discharge time; for cohort builders, never for a model's input."""

    encounter_id: str
    end: str
    in_hospital_death: bool


def read(
    folder: str | os.PathLike,
    subjects: Collection[str] | None = None,
    notes: Literal["discharge", "rendered", "none"] = "discharge",
    *,
    events: bool = True,
    counts: Counter[str] | None = None,
    titles: Titles | None = None,
    spill_dir: str | None = None,
) -> Iterator[Patient]:
    """Patients of a MIMIC-IV folder in the order of their ids.

    Args:
        subjects: read these patient ids only (None: all).
        notes: "discharge" reads note/discharge; "rendered" writes one note per stay from the structured rows
            (`core_jax.readers.rendered`; note type "rendered"), which restates the codes; "none".
        events: keep prescriptions, omr and microbiologyevents (where the folder has them) as events.
        counts: receives the number of each oddity that was tolerated, by name.
        titles: replaces the look-up of code titles; default the folder's own d_icd_diagnoses, then the ICD packages.
            Its `unknown` counts codes without a title.
        spill_dir: folder of the temporary files, default the system's.

    Raises: RecordError with file, row and column; see `core_jax.readers.table.blocks` and
        `core_jax.records.patient_from_dict`.
    """
    if notes not in ("discharge", "rendered", "none"):
        raise ValueError(f'notes: got {notes!r}, expected "discharge", "rendered" or "none"')
    counts = Counter() if counts is None else counts
    wanted = None if subjects is None else frozenset(subjects)
    source = find(folder, "hosp", "patients")
    people = _people(source, wanted)
    order = sorted(people)
    if wanted is not None and (missing := sorted(wanted - people.keys())):
        raise RecordError(f"no such subject: {', '.join(missing[:5])}", file=source, field="subject_id")
    key = {subject: i for i, subject in enumerate(order)}
    tables: dict[str, tuple[str, Spill]] = {}
    try:
        def load(name: str, columns: tuple[str, ...], *, where: str = "hosp", required: bool = True, **kw) -> None:
            if path := find(folder, where, name, required=required):
                spill = Spill(len(order), spill_dir)
                tables[name] = (path, spill)
                _spill(path, columns, spill, key, wanted, counts, **kw)

        load("admissions", _ADMISSIONS)
        load("diagnoses_icd", _DIAGNOSES)
        if notes == "discharge":
            load("discharge", _NOTES, where="note", block_bytes=NOTE_BLOCK)
        if events or notes == "rendered":
            for name, (_, columns, _) in _EVENTS.items():
                load(name, ("subject_id", *columns), required=False)
        titles = titles or Titles(_descriptions(find(folder, "hosp", "d_icd_diagnoses", required=False)))
        for subject in order:
            rows = {name: (path, spill.rows(key[subject])) for name, (path, spill) in tables.items()}
            row, sex, born, dod = people[subject]
            draft = Draft({"patient_id": subject, "sex": sex or None, "birth_year": born, "death_date": dod}, source,
                          row, _COLUMNS)
            yield _patient(draft, rows, titles, counts, events=events, rendered=notes == "rendered")
    finally:
        for _, spill in tables.values():
            spill.close()


def read_index_stays(folder: str | os.PathLike, subjects: Collection[str] | None = None) -> dict[str, IndexStay]:
    """The last stay of every subject and whether it ended in death, from hosp/admissions alone.

    Stays without a dischtime do not count; where several end at the same moment, a death in any of them counts.

    Raises: RecordError with file, row and column.
    """
    path = find(folder, "hosp", "admissions")
    wanted = None if subjects is None else frozenset(subjects)
    last: dict[str, IndexStay] = {}
    columns = ("subject_id", "hadm_id", "admittime", "dischtime", "hospital_expire_flag")
    for first, cells in blocks(path, columns):
        for row, (subject, hadm, start, end, flag) in enumerate(zip(*cells, strict=True), first):
            if wanted is not None and subject not in wanted:
                continue
            if flag not in ("0", "1"):
                raise RecordError(f"got {flag!r}, expected 0 or 1", file=path, line=row, field="hospital_expire_flag")
            end = _later(_time(start, path, row, "admittime"), _time(end, path, row, "dischtime"))
            if end is None:
                continue
            old, died = last.get(subject), flag == "1"
            if old is not None and old.end == end:
                last[subject] = IndexStay(max(old.encounter_id, hadm), end, died or old.in_hospital_death)
            elif old is None or old.end < end:
                last[subject] = IndexStay(hadm, end, died)
    return last


# ---- tables ---------------------------------------------------------------------------------------------------

def _people(path: str, wanted: frozenset[str] | None) -> dict[str, tuple[int, str, int | None, str]]:
    """subject_id -> (row, sex, birth year, dod)."""
    out: dict[str, tuple[int, str, int | None, str]] = {}
    for first, cells in blocks(path, _PATIENTS):
        for row, (subject, sex, age, year, dod) in enumerate(zip(*cells, strict=True), first):
            if not subject:
                raise RecordError("got an empty string", file=path, line=row, field="subject_id")
            if wanted is not None and subject not in wanted:
                continue
            if subject in out:
                raise RecordError(f"{subject!r} stands in row {out[subject][0]} already", file=path, line=row,
                                  field="subject_id")
            born = None
            if age or year:
                born = _integer(year, path, row, "anchor_year") - _integer(age, path, row, "anchor_age")
            out[subject] = (row, sex, born, dod)
    return out


def _descriptions(path: str | None) -> dict[tuple[str, str], str]:
    if path is None:
        return {}
    return {
        (normalize(code), version): text.strip()
        for _, cells in blocks(path, ("icd_code", "icd_version", "long_title"))
        for code, version, text in zip(*cells, strict=True)
        if text.strip()
    }


def _spill(path: str, columns: tuple[str, ...], spill: Spill, key: dict[str, int], wanted: frozenset[str] | None,
           counts: Counter[str], **kw) -> None:
    for first, (subjects, *cells) in blocks(path, columns, **kw):
        keys = [key.get(s) for s in subjects]
        if wanted is None and (strangers := keys.count(None)):
            counts["rows_of_unknown_subject"] += strangers
        for k, rows in grouped(keys, zip(range(first, first + len(keys)), *cells, strict=True)).items():
            spill.add(k, rows)


def _integer(text: str, path: str, row: int, column: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RecordError(f"got {text!r}, expected a whole number", file=path, line=row, field=column) from None


def _time(text: str, path: str, row: int, column: str) -> str | None:
    try:
        return parse_time(text, what=column)
    except ValueError as e:
        raise RecordError(str(e).split(": ", 1)[1], file=path, line=row, field=column) from None


def _later(a: str | None, b: str | None) -> str | None:
    """The end of a stay: dischtime, or admittime where that is later (MIT-LCP/mimic-code#1288)."""
    return b if a is None or b is None else max(a, b)


# ---- one patient ----------------------------------------------------------------------------------------------

def _patient(draft: Draft, rows: dict[str, tuple[str, list[tuple]]], titles: Titles, counts: Counter[str], *,
             events: bool, rendered: bool) -> Patient:
    stays = _stays(rows["admissions"], draft, counts)
    _codes(rows["diagnoses_icd"], stays, draft, titles, counts)
    if "discharge" in rows:
        _notes(rows["discharge"], stays, draft, counts)
    tables = {name: rows[name] for name in _EVENTS if name in rows}
    if rendered:
        subject, sex, born = (draft.raw[name] for name in ("patient_id", "sex", "birth_year"))
        names = {(c["code"], c["version"]): c["title"] for c in draft.raw["codes"]}
        for stay in _rendered_stays(stays, rows["diagnoses_icd"][1], tables, names):
            draft.add("notes", {
                "note_id": f"{subject}-RN-{stay.encounter_id}", "time": stay.end, "type": "rendered",
                "encounter_id": stay.encounter_id,
                "text": render(stay, sex=sex, age=None if born is None else int(stay.end[:4]) - born),
            }, *stays[stay.encounter_id][3:])
    if events:
        for name, (path, found) in tables.items():
            _add_events(name, path, found, draft, counts)
    return draft.patient()


def _stays(table: tuple[str, list[tuple]], draft: Draft, counts: Counter[str]) -> dict[str, tuple]:
    """hadm_id -> (start, end, type, path, row), in the order of the ends."""
    path, rows = table
    out: dict[str, tuple] = {}
    for row, hadm, start, end, kind in rows:
        start, stop = _time(start, path, row, "admittime"), _time(end, path, row, "dischtime")
        end = _later(start, stop)
        if stop is None:
            counts["stay_without_end"] += 1
        elif end != stop:
            counts["stay_ends_before_it_starts"] += 1
        draft.add("encounters", {"encounter_id": hadm, "type": kind or None, "start": start, "end": end}, path, row)
        out[hadm] = (start, end, kind, path, row)
    ended = sorted((s for s in out.values() if s[0] and s[1]), key=lambda s: s[:2])
    if overlaps := sum(b[0] < a[1] for a, b in zip(ended, ended[1:], strict=False)):
        counts["stay_overlaps_the_one_before"] += overlaps
    return dict(sorted(out.items(), key=lambda item: (item[1][1] or "", item[0])))


def _codes(table: tuple[str, list[tuple]], stays: dict[str, tuple], draft: Draft, titles: Titles,
           counts: Counter[str]) -> None:
    path, rows = table
    for row, hadm, _, code, version in rows:
        version, key = version.strip(), normalize(code)
        if version not in VERSIONS:
            raise RecordError(f"got {version!r}, expected 9 or 10", file=path, line=row, field="icd_version")
        if not key:
            raise RecordError("got an empty string", file=path, line=row, field="icd_code")
        if hadm not in stays:
            counts["code_of_unknown_stay"] += 1
        draft.add("codes", {
            "code": key, "version": version, "title": titles(key, version), "encounter_id": hadm or None,
            "time": stays[hadm][1] if hadm in stays else None,
        }, path, row)


def _notes(table: tuple[str, list[tuple]], stays: dict[str, tuple], draft: Draft, counts: Counter[str]) -> None:
    path, rows = table
    for row, note_id, hadm, kind, charted, text in rows:
        time = _time(charted, path, row, "charttime")
        if time is None:
            raise RecordError("got an empty string, expected a date", file=path, line=row, field="charttime")
        if hadm not in stays:
            counts["note_of_unknown_stay"] += 1
        if not text.strip():
            counts["blank_note"] += 1
        draft.add("notes", {"note_id": note_id, "time": time[:10], "type": kind or None, "encounter_id": hadm or None,
                            "text": text}, path, row)


def _add_events(name: str, path: str, rows: list[tuple], draft: Draft, counts: Counter[str]) -> None:
    kind, columns, timed = _EVENTS[name]
    seen: Counter[str] = Counter()
    for row, *cells in sorted(rows, key=lambda r: r[1:]):
        fields = dict(zip(columns, cells, strict=True))
        time = _time(fields[timed], path, row, timed)
        if time is None and name == "microbiologyevents":
            time = _time(fields["charttime"] or fields["chartdate"], path, row, "charttime")
        if time is None:
            counts[f"{kind}_without_time"] += 1
        identity = {
            "prescriptions": ("pharmacy_id",), "omr": ("chartdate", "result_name", "seq_num"),
            "microbiologyevents": ("microevent_id",),
        }[name]
        base = "-".join((kind, *(fields[c].strip() for c in identity)))
        seen[base] += 1
        draft.add("events", {
            "event_id": base if seen[base] == 1 else f"{base}-{seen[base]}", "kind": kind, "time": time,
            "fields": {k: v.strip() for k, v in fields.items() if v.strip()},
        }, path, row)


def _rendered_stays(stays: dict[str, tuple], diagnoses: list[tuple], tables: dict[str, tuple[str, list[tuple]]],
                    names: dict[tuple[str, str], str]) -> Iterator[Stay]:
    """Each stay that has ended, with the rows known by its end. A measurement has a day only: the stay's last day and
    later belong to the next stay."""
    def table(name: str) -> list[dict[str, str]]:
        if name not in tables:
            return []
        columns = _EVENTS[name][1]
        return [{c: v.strip() for c, v in zip(columns, cells, strict=True)}
                for _, *cells in sorted(tables[name][1], key=lambda r: r[1:])]

    drugs, measured, cultures = table("prescriptions"), table("omr"), table("microbiologyevents")
    before = ""
    for hadm, (start, end, kind, _, _) in stays.items():
        if start is None or end is None:
            continue
        known = sorted((int(n) if n.isdigit() else 0, normalize(code), version.strip())
                       for _, h, n, code, version in diagnoses if h == hadm)
        day = end[:10]
        yield Stay(
            encounter_id=hadm, start=start, end=end, type=kind,
            diagnoses=[names[code, version] for _, code, version in known],
            prescriptions=[d for d in drugs if d["hadm_id"] == hadm and _at(d["starttime"]) <= end],
            measurements=[m for m in measured if before <= m["chartdate"] < day],
            cultures=[c for c in cultures
                      if c["hadm_id"] == hadm and _at(c["storetime"] or c["charttime"] or c["chartdate"]) <= end],
        )
        before = max(before, day)


def _at(text: str) -> str:
    return text.replace(" ", "T")
