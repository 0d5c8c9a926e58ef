"""MIMIC-IV tables (`hosp/*.csv[.gz]`) -> rendered entries, patient by patient, in bounded memory, in any row order.

One entry holds what one table says of one day of one patient, so that the memory learns the record in the order in
which it came about; an entry a stay would hide which order came first, an entry a row would be tens of thousands of
updates. A row is a sentence (`table_sentences`) and a draft; the row's name stands in brackets behind the sentence, so
that a memory leads back to its row (`rendered.row_of`). Choices:

* an admission is told on the day of admittime, its discharge on the day of dischtime, its diagnoses at the discharge;
* an order is told on the day it starts, a culture on the day its result was stored, and dated by when it was taken;
* orders of main drugs and additives are doses; carrier solutions (drug_type BASE) are background;
* sex and age are undated. No dod, deathtime or DRG is read; a discharge location is told as it stands.
"""
from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from core_jax.icd import VERSIONS, Titles, normalize
from core_jax.readers.spill import Spill, grouped
from core_jax.readers.table import blocks, find
from core_jax.records import RecordError, parse_time
from stam_jax.readers.rendered import Line, Rendered, render
from stam_jax.readers.table_sentences import copy, write
from stam_jax.write.writer import Draft

# table -> (columns besides subject_id, those that name a row)
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "patients": (("gender", "anchor_age", "anchor_year"), ()),
    "admissions": (("hadm_id", "admittime", "dischtime", "admission_type", "admission_location", "discharge_location",
                    "insurance"), ("hadm_id",)),
    "transfers": (("hadm_id", "transfer_id", "eventtype", "careunit", "intime", "outtime"), ("transfer_id",)),
    "services": (("hadm_id", "transfertime", "prev_service", "curr_service"), ("hadm_id", "transfertime")),
    "prescriptions": (("hadm_id", "pharmacy_id", "starttime", "stoptime", "drug_type", "drug", "dose_val_rx",
                       "dose_unit_rx", "doses_per_24_hrs", "route"), ("pharmacy_id",)),
    "omr": (("chartdate", "seq_num", "result_name", "result_value"), ("chartdate", "result_name", "seq_num")),
    "microbiologyevents": (("microevent_id", "hadm_id", "chartdate", "charttime", "storetime", "spec_type_desc",
                            "test_name", "org_name", "ab_name", "interpretation", "dilution_text", "comments"),
                           ("microevent_id",)),
    "labevents": (("labevent_id", "hadm_id", "itemid", "charttime", "storetime", "value", "valueuom", "ref_range_lower",
                   "ref_range_upper", "flag"), ("labevent_id",)),
    "diagnoses_icd": (("hadm_id", "seq_num", "icd_code", "icd_version"), ("hadm_id", "seq_num")),
}
_REQUIRED = ("patients", "admissions")
_FREQUENCIES = {"1": "daily", "2": "bid", "3": "tid", "4": "qid"}
MEASURES = {"Weight (Lbs)": ("weight", "lb"), "Height (Inches)": ("height", "in"), "BMI (kg/m2)": ("bmi", "kg/m2"),
          "eGFR": ("egfr", "ml/min/1.73m2")}  # of omr: what is measured, and its unit
_SUSCEPTIBLE = {"S": "sensitive", "R": "resistant", "I": "intermediate"}

_Told = tuple[str, str | None, Line]  # kind of entry, day, line


def read(folder: str | os.PathLike, subjects: Collection[str] | None = None, *, counts: Counter[str] | None = None,
         titles: Titles | None = None, spill_dir: str | None = None) -> Iterator[Rendered]:
    """Entries of a MIMIC-IV folder, patients in the order of their ids, a patient's entries in the order of their days.

    Args: subjects: read these patient ids only (None: all). counts: receives the number of each oddity that was
        tolerated, by name. titles: replaces the look-up of ICD titles. spill_dir: folder of the temporary files.

    Raises: RecordError with file, row and column: see `core_jax.readers.table.blocks`; a time that is none, a diagnosis
        of another ICD version, a laboratory item without a label.
    """
    counts = Counter() if counts is None else counts
    source, wanted = find(folder, "hosp", "patients"), None if subjects is None else frozenset(subjects)
    known = {s for _, (subjects,) in blocks(source, ("subject_id",)) for s in subjects}
    order = sorted(known if wanted is None else known & wanted)
    if wanted is not None and (missing := sorted(wanted - known)):
        raise RecordError(f"no such subject: {', '.join(missing[:5])}", file=source, field="subject_id")
    key = {subject: i for i, subject in enumerate(order)}
    paths = {name: path for name in TABLES if (path := find(folder, "hosp", name, required=name in _REQUIRED))}
    labels = _labels(find(folder, "hosp", "d_labitems")) if "labevents" in paths else {}
    spills = {name: Spill(len(order), spill_dir) for name in paths}
    try:
        for name, spill in spills.items():
            for first, (subject, *cells) in blocks(paths[name], ("subject_id", *TABLES[name][0])):
                keys = [key.get(s) for s in subject]
                if wanted is None and (strangers := keys.count(None)):
                    counts["rows_of_unknown_subject"] += strangers
                for k, rows in grouped(keys, zip(range(first, first + len(keys)), *cells, strict=True)).items():
                    spill.add(k, rows)
        titles = titles or icd_titles(folder)
        for subject in order:
            tables = {name: _Table(name, paths[name], spill.rows(key[subject])) for name, spill in spills.items()}
            yield from _patient(subject, tables, titles, labels, counts)
    finally:
        for spill in spills.values():
            spill.close()


def names(table: str, rows: Iterable[dict[str, str]]) -> list[str]:
    """The name of each row of one patient's table: its table and key; rows of one key are numbered by their content."""
    columns, keys = TABLES[table]
    rows = list(rows)
    out, seen = [""] * len(rows), Counter()
    for i in sorted(range(len(rows)), key=lambda i: [rows[i][c].strip() for c in columns]):
        base = "/".join((table, *(rows[i][c].strip() for c in keys)))
        seen[base] += 1
        out[i] = base if seen[base] == 1 else f"{base}/{seen[base]}"
    return out


class _Table:
    """One patient's rows of one table, in an order that does not depend on the file's, with names and places."""

    def __init__(self, name: str, path: str, cells: list[tuple]):
        columns = TABLES[name][0]
        rows = [(row, {c: v.strip() for c, v in zip(columns, values, strict=True)}) for row, *values in cells]
        named = zip(names(name, [fields for _, fields in rows]), rows, strict=True)
        self.path = path
        self.rows = [(name, *row) for name, row in sorted(named, key=lambda r: ([r[1][1][c] for c in columns], r[0]))]

    def time(self, row: int, fields: dict[str, str], *columns: str) -> str:
        """The first of `columns` that is not empty, as `YYYY-MM-DD HH:MM[:SS]` or a bare date; "" where all are."""
        for column in columns:
            if text := fields[column]:
                try:
                    moment = parse_time(text, what=column)
                except ValueError as e:
                    raise RecordError(str(e).split(": ", 1)[1], file=self.path, line=row, field=column) from None
                return text if len(text) == 10 else moment.replace("T", " ").removesuffix(":00")
        return ""


def icd_titles(folder: str | os.PathLike) -> Titles:
    """Titles of diagnoses: the folder's own d_icd_diagnoses where it has one, then the ICD packages."""
    path = find(folder, "hosp", "d_icd_diagnoses", required=False)
    return Titles({} if path is None else {
        (normalize(code), version): text.strip() for _, cells in blocks(path, ("icd_code", "icd_version", "long_title"))
        for code, version, text in zip(*cells, strict=True) if text.strip()})


def _labels(path: str) -> dict[str, tuple[str, str]]:
    return {item: (label.strip(), fluid.strip()) for _, cells in blocks(path, ("itemid", "label", "fluid"))
            for item, label, fluid in zip(*cells, strict=True)}


# ---- one patient ----------------------------------------------------------------------------------------------

def _patient(subject: str, tables: dict[str, _Table], titles: Titles, labels: dict[str, tuple[str, str]],
             counts: Counter[str]) -> Iterator[Rendered]:
    told: list[_Told] = []
    ends = {}
    for _, row, fields in tables["admissions"].rows:
        start, end = (tables["admissions"].time(row, fields, c) for c in ("admittime", "dischtime"))
        ends[fields["hadm_id"]] = max(start, end)
    for name, table in tables.items():
        write_rows = _WRITERS[name]
        for row_name, row, fields in table.rows:
            for kind, moment, sentence, drafts in write_rows(table, row, fields, ends, titles, labels):
                told.append((kind, moment[:10] or None, Line(sentence, row_name, tuple(drafts))))
                if not moment and name != "patients":
                    counts[f"{name}_without_time"] += 1
    places = {name: i for i, name in enumerate(TABLES)}
    days: dict[tuple[str, int], list[_Told]] = {}
    for item in told:
        days.setdefault((item[1] or "", places[item[0]]), []).append(item)
    for (day, _), items in sorted(days.items()):
        kind = items[0][0]
        lines, seen = [], Counter()
        for _, _, line in items:
            seen[line.sentence] += 1
            lines.append(line if seen[line.sentence] == 1 else _again(line, seen[line.sentence]))
        yield render(subject, f"hosp/{kind}/{day or 'undated'}", kind, lines, date=day or None)


def _again(line: Line, number: int) -> Line:
    sentence = copy(line.sentence, number)
    return Line(sentence, line.row, tuple(dataclasses.replace(d, statement=sentence) for d in line.drafts))


_Rows = Iterator[tuple[str, str, str, list[Draft]]]  # kind of entry, moment it is told, sentence, drafts


def _draft(sentence: str, kind: str, concept: str, attribute: str, value: str = "", unit: str = "", *, time: str = "",
           polarity: str = "AFFIRMED") -> Draft:
    concept = " ".join(concept.lower().split())
    return Draft(sentence, sentence, kind=kind, concept=concept or None, attribute=attribute if concept else None,
                 value=value or None, unit=unit or None, time=time or None, polarity=polarity)


def _patients(table, row, fields, ends, titles, labels) -> _Rows:
    for kind, concept, value in (("sex", "sex", "gender"), ("age", "age", "anchor_age")):
        if fields[value]:
            sentence = write(kind, fields)
            yield "patients", "", sentence, [_draft(sentence, "BACKGROUND", concept, "background", fields[value])]


def _admissions(table, row, fields, ends, titles, labels) -> _Rows:
    start, end = (table.time(row, fields, c) for c in ("admittime", "dischtime"))
    fields = fields | {"admittime": start, "dischtime": end}
    sentence = write("admission", fields)
    stay = f"hospital stay {fields['hadm_id']}"
    yield "admissions", start, sentence, [_draft(sentence, "EVENT", stay, "procedure", time=start[:10])]
    if fields["insurance"]:
        sentence = write("insurance", fields)
        yield "admissions", start, sentence, [_draft(sentence, "EVENT", "insurance", "value", fields["insurance"],
                                                     time=start[:10])]
    if end:
        sentence = write("discharge", fields)
        draft = _draft(sentence, "EVENT", f"discharge of {stay}", "procedure", time=end[:10])
        yield "admissions", end, sentence, [draft]


def _transfers(table, row, fields, ends, titles, labels) -> _Rows:
    start, end = (table.time(row, fields, c) for c in ("intime", "outtime"))
    fields = fields | {"intime": start, "outtime": end, "careunit": fields["careunit"] or "none"}
    sentence = write("unit", fields)
    yield "transfers", start, sentence, [_draft(sentence, "EVENT", "care unit", "value", fields["careunit"],
                                                time=start[:10])]


def _services(table, row, fields, ends, titles, labels) -> _Rows:
    start = table.time(row, fields, "transfertime")
    sentence = write("service", fields | {"transfertime": start})
    draft = _draft(sentence, "EVENT", "hospital service", "value", fields["curr_service"], time=start[:10])
    yield "services", start, sentence, [draft]


def _prescriptions(table, row, fields, ends, titles, labels) -> _Rows:
    start, end = (table.time(row, fields, c) for c in ("starttime", "stoptime"))
    dose = " ".join(x for x in (fields["dose_val_rx"], fields["dose_unit_rx"]) if x)
    sentence = write("order", fields | {"starttime": start, "stoptime": end, "dose": dose})
    span = f"from {start[:10]} to {end[:10]}" if start and start[:10] <= end[:10] else start[:10]
    if fields["drug_type"] == "BASE":
        draft = _draft(sentence, "BACKGROUND", fields["drug"], "background", time=span)
    else:
        often = _FREQUENCIES.get(fields["doses_per_24_hrs"], "")
        value = " ".join(x for x in (dose.lower(), often) if x) if fields["dose_val_rx"] else ""
        unit = fields["dose_unit_rx"].lower() if value else ""
        draft = _draft(sentence, "STATE", fields["drug"], "dose", value, unit, time=span)
    yield "prescriptions", start, sentence, [draft]


def _omr(table, row, fields, ends, titles, labels) -> _Rows:
    day = table.time(row, fields, "chartdate")[:10]
    sentence = write("measurement", fields | {"chartdate": day})
    name = fields["result_name"]
    concept, unit = MEASURES.get(name, (name, "mmhg" if name.startswith("Blood Pressure") else ""))
    yield "omr", day, sentence, [_draft(sentence, "EVENT", concept, "value", fields["result_value"], unit, time=day)]


def _microbiologyevents(table, row, fields, ends, titles, labels) -> _Rows:
    taken = table.time(row, fields, "charttime", "chartdate")
    sentence = write("culture", fields | {"taken": taken})
    specimen = f"{fields['spec_type_desc']} {fields['test_name']}"
    if fields["ab_name"]:
        concept = f"{fields['org_name']} against {fields['ab_name']}"
        value = _SUSCEPTIBLE.get(fields["interpretation"], fields["interpretation"])
    else:
        concept, value = specimen, fields["org_name"] or fields["comments"]
    draft = _draft(sentence, "EVENT", concept, "value", " ".join(value.split()).lower(), time=taken[:10])
    yield "microbiologyevents", table.time(row, fields, "storetime", "charttime", "chartdate"), sentence, [draft]


def _labevents(table, row, fields, ends, titles, labels) -> _Rows:
    if fields["itemid"] not in labels:
        raise RecordError(f"{fields['itemid']!r} is not in d_labitems", file=table.path, line=row, field="itemid")
    label, fluid = labels[fields["itemid"]]
    taken = table.time(row, fields, "charttime")
    limits = [fields["ref_range_lower"], fields["ref_range_upper"]]
    sentence = write("lab", fields | {
        "label": label, "fluid": fluid, "charttime": taken, "range": " to ".join(limits) if all(limits) else "",
        "result": " ".join(x for x in (fields["value"], fields["valueuom"]) if x)})
    draft = _draft(sentence, "EVENT", label, "value", fields["value"], fields["valueuom"].lower(), time=taken[:10])
    yield "labevents", table.time(row, fields, "storetime", "charttime"), sentence, [draft]


def _diagnoses_icd(table, row, fields, ends, titles, labels) -> _Rows:
    if fields["icd_version"] not in VERSIONS:
        raise RecordError(f"got {fields['icd_version']!r}, expected 9 or 10", file=table.path, line=row,
                          field="icd_version")
    known = ends.get(fields["hadm_id"], "")
    title = titles(fields["icd_code"], fields["icd_version"])
    sentence = write("diagnosis", fields | {"title": title, "known": known})
    yield "diagnoses_icd", known, sentence, [_draft(sentence, "STATE", title, "status", time=known[:10])]


_WRITERS: dict[str, Callable[..., _Rows]] = {
    "patients": _patients, "admissions": _admissions, "transfers": _transfers, "services": _services,
    "prescriptions": _prescriptions, "omr": _omr, "microbiologyevents": _microbiologyevents, "labevents": _labevents,
    "diagnoses_icd": _diagnoses_icd}
