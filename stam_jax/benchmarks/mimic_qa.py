"""MIMIC-QA rebuilt: template questions on MIMIC-IV tables, every answer recomputed from its rows.

Up to 20 questions a patient: one of each template in turn that the patient's record can answer, then second ones, and
so on. Which drug, measurement or stay a template asks about is drawn by a hash of patient and template. A template is
asked only where the record has one answer to it. Each question names the rows that are its evidence.

Answers are computed from the rendered record (`answer`), and again by SQL over the tables themselves: over all rows of
the patient, and over the evidence alone (`verify`). The same `answer` over what a memory or a packet cites is the
reader without a model that these questions allow; it says "" where the rows do not hold an answer.

Licence: the questions are derived from MIMIC-IV (demo: ODbL 1.0); the generator is shipped, its output is not.
"""
from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from core_jax.readers.table import blocks, find
from stam_jax.baselines.serving import places, words
from stam_jax.benchmarks.table_memory import Row, Stay, stays, told, told_at
from stam_jax.graph.clinical_time import bounds
from stam_jax.metrics import TypeScores, clinical, token_f1, type_scores
from stam_jax.read.answer import Answer
from stam_jax.read.packet import Packet
from stam_jax.readers.rendered import Rendered
from stam_jax.readers.tables import MEASURES, TABLES, icd_titles, names, read

PER_PATIENT, PATIENTS = 20, 100

Form = tuple[str, ...]  # template, then its arguments
Solved = tuple[str, tuple[str, ...]]  # the answer, the names of its rows


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """type: state (what holds at the end of the record) or temporal. rows: the evidence, by name. form: how to compute
    it."""

    question_id: str
    patient_id: str
    split: str
    type: str
    text: str
    answer: str
    rows: tuple[str, ...]
    form: Form


@dataclasses.dataclass(frozen=True)
class Template:
    """text: of the question, with its arguments. forms: arguments that this record offers. solve: the answer; None
    where there is none, or more than one. sql: the same from the tables of one patient, rows (answer, row name)."""

    name: str
    type: str
    text: str
    forms: Callable[[_Record], Iterable[tuple[str, ...]]]
    solve: Callable[..., Solved | None]
    sql: str


class _Record:
    """Rows of one patient, by kind, with the stays that they belong to."""

    def __init__(self, rows: Iterable[Row]):
        self.by: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            self.by[row.kind].append(row)
        self.stays: list[Stay] = stays([*self.by["admission"], *self.by["discharge"]])

    def values(self, name: str) -> list[Row]:
        """Measurements of a name, oldest first; where a day has several, the day is left out."""
        days: dict[str, list[Row]] = defaultdict(list)
        for r in self.by["measurement"]:
            if r.fields["result_name"] == name and r.fields["result_value"]:
                days[r.fields["chartdate"]].append(r)
        return [days[d][0] for d in sorted(days) if len({r.fields["result_value"] for r in days[d]}) == 1]

    def orders(self, drug: str | None = None) -> list[Row]:
        """Orders of main drugs, oldest first."""
        found = [r for r in self.by["order"] if r.fields["drug_type"] == "MAIN"
                 and (drug is None or _same(r.fields["drug"], drug))]
        return sorted(found, key=lambda r: (r.fields["starttime"], r.row))

    def drugs(self) -> list[str]:
        return sorted({_name(r.fields["drug"]) for r in self.orders()})

    def stay(self, day: str) -> Stay | None:
        """The stay that began on a day, where one did."""
        found = [s for s in self.stays if s.start[:10] == day]
        return found[0] if len(found) == 1 else None

    def days(self) -> list[tuple[str]]:
        return [(s.start[:10],) for s in self.stays]

    def of(self, kind: str, stay: Stay | None) -> list[Row]:
        return [r for r in self.by[kind] if stay is not None and r.fields["hadm_id"] == stay.hadm_id]


def _name(text: str) -> str:
    return " ".join(text.lower().split())


def _same(a: str, b: str) -> bool:
    return _name(a) == _name(b)


def _one(rows: Sequence[Row], field: str) -> Solved | None:
    """The one value that the rows agree on, with all of them as evidence."""
    values = {_name(r.fields[field]) for r in rows}
    if len(values) != 1 or "" in values:
        return None
    return rows[0].fields[field], tuple(sorted(r.row for r in rows))


def _ends(rows: Sequence[Row], field: str, last: bool) -> list[Row]:
    """The rows with the first or last value of a time."""
    if not rows:
        return []
    edge = (max if last else min)(r.fields[field] for r in rows)
    return [r for r in rows if r.fields[field] == edge]


# ---- templates ----------------------------------------------------------------------------------------------------

def _measured(least: int) -> Callable[[_Record], Iterable[tuple[str, ...]]]:
    def forms(record: _Record) -> Iterator[tuple[str, ...]]:
        for name in sorted({r.fields["result_name"] for r in record.by["measurement"]}):
            if len(record.values(name)) >= least:
                yield (name,)

    return forms


def _last_value(record: _Record, name: str) -> Solved | None:
    return _one(_ends([r for r in record.by["measurement"] if r.fields["result_name"] == name], "chartdate", True),
                "result_value")


def _first_value(record: _Record, name: str) -> Solved | None:
    return _one(_ends([r for r in record.by["measurement"] if r.fields["result_name"] == name], "chartdate", False),
                "result_value")


def _highest(record: _Record, name: str) -> Solved | None:
    rows = [r for r in record.by["measurement"] if r.fields["result_name"] == name]
    numbers = {r.row: float(v) for r in rows if re.fullmatch(r"\d+(\.\d+)?", v := r.fields["result_value"])}
    if not rows or len(numbers) != len(rows):
        return None
    top = max(numbers.values())
    return _one([r for r in rows if numbers[r.row] == top], "result_value")


def _around_forms(record: _Record) -> Iterator[tuple[str, ...]]:
    for name in sorted({r.fields["result_name"] for r in record.by["measurement"]}):
        for stay in record.stays:
            yield name, stay.start[:10]


def _around(record: _Record, name: str, day: str) -> Solved | None:
    rows = [r for r in record.by["measurement"] if r.fields["result_name"] == name]
    before = _one(_ends([r for r in rows if r.fields["chartdate"] < day], "chartdate", True), "result_value")
    after = _one(_ends([r for r in rows if r.fields["chartdate"] > day], "chartdate", False), "result_value")
    if before is None or after is None or before[0] == after[0]:
        return None
    return f"{before[0]} before, {after[0]} after", tuple(sorted({*before[1], *after[1]}))


def _drug_forms(record: _Record) -> list[tuple[str]]:
    return [(d,) for d in record.drugs()]


def _drug_stay_forms(record: _Record) -> Iterator[tuple[str, ...]]:
    for stay in record.stays:
        for drug in sorted({_name(r.fields["drug"]) for r in record.orders() if r.fields["hadm_id"] == stay.hadm_id}):
            yield drug, stay.start[:10]


def _last_dose(record: _Record, drug: str) -> Solved | None:
    return _one(_ends(record.orders(drug), "starttime", True), "dose")


def _stay_dose(record: _Record, drug: str, day: str) -> Solved | None:
    stay = record.stay(day)
    if stay is None:
        return None
    rows = [r for r in record.orders(drug) if r.fields["hadm_id"] == stay.hadm_id]
    return _one(_ends(rows, "starttime", False), "dose")


def _dose_before(record: _Record, drug: str) -> Solved | None:
    """The dose that was ordered last before the dose of today came in."""
    last = _last_dose(record, drug)
    if last is None:
        return None
    earlier = [r for r in record.orders(drug) if not _same(r.fields["dose"], last[0])]
    found = _one(_ends(earlier, "starttime", True), "dose")
    return None if found is None else (found[0], tuple(sorted({*found[1], *last[1]})))


def _first_ordered(record: _Record, drug: str) -> Solved | None:
    rows = _ends(record.orders(drug), "starttime", False)
    return (rows[0].fields["starttime"][:10], tuple(sorted(r.row for r in rows))) if rows else None


def _route(record: _Record, drug: str) -> Solved | None:
    return _one(_ends(record.orders(drug), "starttime", True), "route")


def _started_after(record: _Record, day: str) -> Solved | None:
    rows = [r for r in record.orders() if r.fields["starttime"][:10] > day]
    return _one(_ends(rows, "starttime", False), "drug")


def _discharge_forms(record: _Record) -> list[tuple[str]]:
    return [(s.end[:10],) for s in record.stays if s.end]


def _in_stay(record: _Record, drug: str, day: str) -> Solved | None:
    stay = record.stay(day)
    if stay is None:
        return None
    rows = [r for r in record.orders(drug) if r.fields["hadm_id"] == stay.hadm_id]
    return ("yes" if rows else "no"), tuple(sorted(r.row for r in rows))


def _asked_stay_forms(record: _Record) -> Iterator[tuple[str, ...]]:
    for drug in record.drugs():
        for stay in record.stays:
            yield drug, stay.start[:10]


def _which_stays(record: _Record, drug: str) -> Solved | None:
    if len(record.stays) < 2 or len({s.start for s in record.stays}) < len(record.stays):
        return None
    rows, last = record.orders(drug), record.stays[-1]
    late = [r for r in rows if r.fields["hadm_id"] == last.hadm_id]
    early = [r for r in rows if r.fields["hadm_id"] != last.hadm_id]
    if not rows:
        return None
    said = "in both" if late and early else "in the last stay only" if late else "in earlier stays only"
    return said, tuple(sorted({*(r.row for r in rows), last.admission.row}))


def _principal(record: _Record, day: str) -> Solved | None:
    return _one([r for r in record.of("diagnosis", record.stay(day)) if r.fields["seq_num"] == "1"], "title")


def _last_principal(record: _Record) -> Solved | None:
    if not record.stays or [s.start for s in record.stays].count(record.stays[-1].start) > 1:
        return None
    found = _one([r for r in record.of("diagnosis", record.stays[-1]) if r.fields["seq_num"] == "1"], "title")
    return None if found is None else (found[0], tuple(sorted({*found[1], record.stays[-1].admission.row})))


def _titles(record: _Record) -> list[tuple[str]]:
    return [(t,) for t in sorted({r.fields["title"] for r in record.by["diagnosis"]})]


def _first_recorded(record: _Record, title: str) -> Solved | None:
    rows = [r for r in record.by["diagnosis"] if r.fields["title"] == title and r.fields["known"]]
    rows = _ends(rows, "known", False)
    if not rows:
        return None
    of = {r.fields["hadm_id"] for r in rows}
    return rows[0].fields["known"][:10], tuple(sorted({*(r.row for r in rows),
                                                       *(s.admission.row for s in record.stays if s.hadm_id in of)}))


def _stay_count(record: _Record) -> Solved | None:
    return (str(len(record.stays)), tuple(sorted(s.admission.row for s in record.stays))) if record.stays else None


def _span(first: str, last: str) -> str:
    days = (bounds(last[:10])[0] - bounds(first[:10])[0]).days
    return f"{days} day" + ("" if days == 1 else "s")


def _stay_days(record: _Record, day: str) -> Solved | None:
    stay = record.stay(day)
    return None if stay is None or not stay.end else (_span(stay.start, stay.end), (stay.admission.row,))


def _gap(record: _Record, day: str) -> Solved | None:
    stay = record.stay(day)
    later = [s for s in record.stays if stay is not None and s.start > stay.start]
    if stay is None or not later or not stay.end or later[0].start < stay.end:
        return None
    return _span(stay.end, later[0].start), tuple(sorted({stay.admission.row, later[0].admission.row}))


def _service(record: _Record, day: str) -> Solved | None:
    return _one(_ends(record.of("service", record.stay(day)), "transfertime", False), "curr_service")


def _last_service(record: _Record) -> Solved | None:
    return _one(_ends(record.by["service"], "transfertime", True), "curr_service")


def _destination(record: _Record, day: str) -> Solved | None:
    stay = record.stay(day)
    return None if stay is None or stay.discharge is None else _one([stay.discharge], "discharge_location")


def _admission_type(record: _Record, day: str) -> Solved | None:
    stay = record.stay(day)
    return None if stay is None else _one([stay.admission], "admission_type")


def _insurance(record: _Record) -> Solved | None:
    return _one(_ends(record.by["insurance"], "admittime", True), "insurance")


def _first_unit(record: _Record, day: str) -> Solved | None:
    rows = [r for r in record.of("unit", record.stay(day)) if r.fields["eventtype"] == "transfer"]
    return _one(_ends(rows, "intime", False), "careunit")


def _specimens(record: _Record) -> list[tuple[str]]:
    return [(s,) for s in sorted({r.fields["spec_type_desc"] for r in record.by["culture"] if r.fields["org_name"]})
            if s != "unknown"]


def _organism(record: _Record, specimen: str) -> Solved | None:
    rows = [r for r in record.by["culture"] if r.fields["spec_type_desc"] == specimen and r.fields["org_name"]]
    return _one(_ends(rows, "taken", True), "org_name")


def _tested(record: _Record) -> list[tuple[str, str]]:
    return sorted({(r.fields["org_name"], r.fields["ab_name"]) for r in record.by["culture"]
                   if r.fields["interpretation"] in _SAID})


_SAID = {"S": "sensitive", "R": "resistant", "I": "intermediate"}


def _susceptible(record: _Record, organism: str, drug: str) -> Solved | None:
    rows = [r for r in record.by["culture"] if r.fields["org_name"] == organism and r.fields["ab_name"] == drug
            and r.fields["interpretation"] in _SAID]
    found = _one(_ends(rows, "taken", True), "interpretation")
    return None if found is None else (_SAID[found[0]], found[1])


def _abnormal_forms(record: _Record) -> list[tuple[str]]:
    return [(d,) for d in sorted({r.fields["charttime"][:10] for r in record.by["lab"] if r.fields["flag"]})]


def _abnormal(record: _Record, day: str) -> Solved | None:
    return _one([r for r in record.by["lab"] if r.fields["charttime"][:10] == day and r.fields["flag"]], "label")


_DRUG = "drug_type = 'MAIN' AND plain(drug) = ?1"
_STAY = "(SELECT hadm_id FROM admissions WHERE substr(admittime, 1, 10) = ?{})"


def _edge(select: str, table: str, where: str, time: str, edge: str) -> str:
    """The rows with the first or last time: edge is min or max."""
    rows = f"FROM {table} WHERE {where}"
    return f"SELECT {select}, row {rows} AND {time} = (SELECT {edge}({time}) {rows})"


_OMR = "result_name = ?1"
_DOSE = "trim(dose_val_rx || ' ' || dose_unit_rx)"
_TAKEN = "coalesce(nullif(charttime, ''), chartdate)"
_PRINCIPAL = "FROM diagnoses_icd d WHERE seq_num = '1' AND hadm_id"

TEMPLATES: tuple[Template, ...] = (
    Template("last_value", "state", "What is the most recent {0} on record?", _measured(1), _last_value,
             _edge("result_value", "omr", _OMR, "chartdate", "max")),
    Template("last_dose", "state", "At what dose was {0} last prescribed?", _drug_forms, _last_dose,
             _edge(_DOSE, "prescriptions", _DRUG, "starttime", "max")),
    Template("principal", "temporal", "What was the principal diagnosis of the hospital stay that began on {0}?",
             _Record.days, _principal, f"SELECT title, row {_PRINCIPAL} = {_STAY.format(1)}"),
    Template("first_ordered", "temporal", "When was {0} first prescribed?", _drug_forms, _first_ordered,
             _edge("substr(starttime, 1, 10)", "prescriptions", _DRUG, "starttime", "min")),
    Template("dose_before", "temporal", "What was the dose of {0} before its present dose?", _drug_forms, _dose_before,
             f"WITH mine AS (SELECT *, plain({_DOSE}) AS dose FROM prescriptions WHERE {_DRUG}), "
             "now AS (SELECT dose, row FROM mine WHERE starttime = (SELECT max(starttime) FROM mine)), "
             "old AS (SELECT * FROM mine WHERE dose NOT IN (SELECT dose FROM now)) "
             f"SELECT {_DOSE}, row FROM old WHERE starttime = (SELECT max(starttime) FROM old) "
             "UNION ALL SELECT NULL, row FROM now"),
    Template("stay_dose", "temporal", "At what dose was {0} first prescribed in the hospital stay that began on {1}?",
             _drug_stay_forms, _stay_dose,
             _edge(_DOSE, "prescriptions", f"{_DRUG} AND hadm_id = {_STAY.format(2)}", "starttime", "min")),
    Template("route", "state", "By which route was {0} last given?", _drug_forms, _route,
             _edge("route", "prescriptions", _DRUG, "starttime", "max")),
    Template("which_stays", "state", "Was {0} prescribed in the last hospital stay, in earlier ones, or in both?",
             _drug_forms, _which_stays,
             "WITH last AS (SELECT hadm_id, row FROM admissions ORDER BY admittime DESC LIMIT 1), "
             f"mine AS (SELECT hadm_id = (SELECT hadm_id FROM last) AS late, row FROM prescriptions WHERE {_DRUG}) "
             "SELECT CASE WHEN min(late) THEN 'in the last stay only' WHEN max(late) THEN 'in both' "
             "ELSE 'in earlier stays only' END, NULL FROM mine "
             "UNION ALL SELECT NULL, row FROM mine UNION ALL SELECT NULL, row FROM last"),
    Template("started_after", "temporal", "Which drug was the first to be prescribed after {0}?", _discharge_forms,
             _started_after,
             _edge("drug", "prescriptions", "drug_type = 'MAIN' AND substr(starttime, 1, 10) > ?1", "starttime",
                   "min")),
    Template("organism", "state", "Which organism grew in the most recent positive culture of {0}?", _specimens,
             _organism,
             _edge("org_name", "microbiologyevents", "spec_type_desc = ?1 AND org_name <> ''", _TAKEN, "max")),
    Template("stay_count", "state", "How many hospital stays are on record?", lambda r: [()], _stay_count,
             "SELECT (SELECT count(*) FROM admissions), row FROM admissions"),
    Template("stay_days", "temporal", "How many days did the hospital stay that began on {0} last?", _Record.days,
             _stay_days,
             f"SELECT days(admittime, dischtime), row FROM admissions WHERE hadm_id = {_STAY.format(1)}"),
    Template("last_principal", "state", "What was the principal diagnosis of the last hospital stay?", lambda r: [()],
             _last_principal,
             "WITH last AS (SELECT hadm_id, row FROM admissions ORDER BY admittime DESC LIMIT 1) "
             f"SELECT title, row {_PRINCIPAL} = (SELECT hadm_id FROM last) UNION ALL SELECT NULL, row FROM last"),
    Template("first_recorded", "temporal", "When was {0} first recorded as a diagnosis?", _titles, _first_recorded,
             "WITH mine AS (SELECT max(admittime, dischtime) AS known, d.row AS row, a.row AS stay "
             "FROM diagnoses_icd d JOIN admissions a USING (hadm_id) WHERE title = ?1), "
             "first AS (SELECT * FROM mine WHERE known = (SELECT min(known) FROM mine)) "
             "SELECT substr(known, 1, 10), row FROM first UNION ALL SELECT NULL, stay FROM first"),
    Template("insurance", "state", "Which insurance plan does the patient have now?", lambda r: [()], _insurance,
             _edge("insurance", "admissions", "insurance <> ''", "admittime", "max")),
    Template("gap", "temporal", "How many days lay between the hospital stay that began on {0} and the next one?",
             _Record.days, _gap, f"WITH mine AS (SELECT * FROM admissions WHERE hadm_id = {_STAY.format(1)}), "
             "next AS (SELECT a.* FROM admissions a, mine m WHERE a.admittime > m.admittime "
             "ORDER BY a.admittime LIMIT 1) "
             "SELECT days(m.dischtime, n.admittime), m.row FROM mine m, next n UNION ALL SELECT NULL, row FROM next"),
    Template("service", "temporal", "Which service took the patient at first in the hospital stay that began on {0}?",
             _Record.days, _service,
             _edge("curr_service", "services", f"hadm_id = {_STAY.format(1)}", "transfertime", "min")),
    Template("susceptible", "state", "Was the last {0} sensitive or resistant to {1}?", _tested, _susceptible,
             _edge("CASE interpretation WHEN 'S' THEN 'sensitive' WHEN 'R' THEN 'resistant' ELSE 'intermediate' END",
                   "microbiologyevents", "org_name = ?1 AND ab_name = ?2 AND interpretation IN ('S', 'R', 'I')", _TAKEN,
                   "max")),
    Template("destination", "temporal", "Where did the patient go after the hospital stay that began on {0}?",
             _Record.days, _destination,
             f"SELECT discharge_location, row FROM admissions WHERE hadm_id = {_STAY.format(1)}"),
    Template("around", "temporal", "What was {0} last before and first after the admission on {1}?", _around_forms,
             _around,
             "WITH mine AS (SELECT * FROM omr WHERE result_name = ?1), "
             "a AS (SELECT * FROM mine WHERE chartdate = (SELECT max(chartdate) FROM mine WHERE chartdate < ?2)), "
             "b AS (SELECT * FROM mine WHERE chartdate = "
             "(SELECT min(chartdate) FROM mine WHERE substr(chartdate, 1, 10) > ?2)) "
             "SELECT a.result_value || ' before, ' || b.result_value || ' after', a.row FROM a, b "
             "UNION ALL SELECT NULL, row FROM b"),
    Template("abnormal", "temporal", "Which laboratory test was abnormal on {0}?", _abnormal_forms, _abnormal,
             "SELECT label, row FROM labevents WHERE substr(charttime, 1, 10) = ?1 AND flag <> ''"),
    Template("highest", "temporal", "What was the highest {0} ever recorded?", _measured(2), _highest,
             f"SELECT result_value, row FROM omr WHERE {_OMR} AND CAST(result_value AS REAL) = "
             f"(SELECT max(CAST(result_value AS REAL)) FROM omr WHERE {_OMR})"),
    Template("first_value", "temporal", "What was the first {0} on record?", _measured(2), _first_value,
             _edge("result_value", "omr", _OMR, "chartdate", "min")),
    Template("in_stay", "temporal", "Was {0} prescribed in the hospital stay that began on {1}?", _asked_stay_forms,
             _in_stay,
             f"WITH mine AS (SELECT row FROM prescriptions WHERE {_DRUG} AND hadm_id = {_STAY.format(2)}) "
             "SELECT CASE WHEN count(*) THEN 'yes' ELSE 'no' END, NULL FROM mine UNION ALL SELECT NULL, row FROM mine"),
    Template("first_unit", "temporal",
             "To which care unit was the patient moved first in the hospital stay that began on {0}?", _Record.days,
             _first_unit,
             _edge("careunit", "transfers", f"eventtype = 'transfer' AND hadm_id = {_STAY.format(1)}", "intime",
                   "min")),
    Template("admission_type", "temporal", "What type of admission began the hospital stay of {0}?", _Record.days,
             _admission_type, f"SELECT admission_type, row FROM admissions WHERE hadm_id = {_STAY.format(1)}"),
    Template("last_service", "state", "Which hospital service had the patient last?", lambda r: [()], _last_service,
             _edge("curr_service", "services", "1", "transfertime", "max")),
)
_TEMPLATE = {t.name: t for t in TEMPLATES}


# ---- questions ----------------------------------------------------------------------------------------------------

def questions(folder: str | os.PathLike, *, patients: int = PATIENTS, per_patient: int = PER_PATIENT) -> list[Question]:
    """Questions of the first `patients` patients by the hash of their ids, in that order; fewer for a patient whose
    record answers fewer. Raises: RecordError: see `stam_jax.readers.tables.read`."""
    records: dict[str, list] = {}
    for rendered in read(folder):
        records.setdefault(rendered.entry.patient_id, []).append(rendered)
    return [q for patient, split in splits(records, patients).items()
            for q in of_patient(patient, told(records[patient]), split, per_patient)]


def splits(patients: Iterable[str], most: int = PATIENTS) -> dict[str, str]:
    """patient -> train (the first 70 %), validation (the next 10 %) or test, in the order of the hashes of the ids."""
    chosen = sorted(patients, key=lambda p: _hash("patient", p))[:most]
    upto = round(0.7 * len(chosen)), round(0.8 * len(chosen))
    return {p: "train" if i < upto[0] else "validation" if i < upto[1] else "test" for i, p in enumerate(chosen)}


def of_patient(patient: str, rows: Iterable[Row], split: str, most: int = PER_PATIENT) -> list[Question]:
    """At most `most` questions on one patient's rows, in the order of the templates."""
    record = _Record(rows)
    offers = [_offer(t, patient, record) for t in TEMPLATES]
    found: list[tuple[int, int, Question]] = []
    for turn in range(most):
        for place, (template, offer) in enumerate(zip(TEMPLATES, offers)):
            if len(found) == most:
                break
            if (drawn := next(offer, None)) is not None:
                arguments, (answer, evidence) = drawn
                found.append((place, turn, Question(
                    f"{patient}/{template.name}/{turn}", patient, split, template.type,
                    template.text.format(*map(_spoken, arguments)), answer, evidence, (template.name, *arguments))))
    return [q for *_, q in sorted(found, key=lambda f: f[:2])]


def _spoken(argument: str) -> str:
    """A measurement is asked for without its unit."""
    return MEASURES[argument][0] if argument in MEASURES else argument


def _offer(template: Template, patient: str, record: _Record) -> Iterator[tuple[tuple[str, ...], Solved]]:
    """The template's arguments that have an answer, in the order of their hashes; with the answer."""
    for arguments in sorted(template.forms(record), key=lambda a: _hash(patient, template.name, *a)):
        if (solved := template.solve(record, *arguments)) is not None:
            yield arguments, solved


def _hash(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


# ---- answers ------------------------------------------------------------------------------------------------------

def answer(question: Question, rows: Iterable[Row]) -> str:
    """The answer that these rows give to a question, "" where they give none or more than one."""
    name, *arguments = question.form
    solved = _TEMPLATE[name].solve(_Record(rows), *arguments)
    return "" if solved is None else solved[0]


class RowReader:
    """Reads the rows whose sentences stand in what was served, whole, and computes (`answer`); a word is a token.

    It reads every arm by the same eyes: the record's own words, or the places that memories cite.
    """

    name = "rows"

    def __init__(self, record: Mapping[str, Sequence[Rendered]], asked: Iterable[Question]):
        """Raises: ValueError: one wording asks for two things."""
        self._rows: dict[str, list[tuple[int, int, Row]]] = defaultdict(list)
        for rendered in (r for own in record.values() for r in own):
            self._rows[rendered.entry.entry_key] = [(*span, row) for span, row in told_at(rendered)]
        self._asked: dict[str, Question] = {}
        for q in asked:
            if self._asked.setdefault(q.text, q).form != q.form:
                raise ValueError(f"got {q.form} and {self._asked[q.text].form} for {q.text!r}, expected one of them")

    def count(self, text: str) -> int:
        return words(text)

    def answer(self, questions: Sequence[str], packets: Sequence[Packet]) -> list[Answer]:
        """Raises: KeyError: a question that it was not made for."""
        return [Answer(answer(self._asked[q], self.rows(p)), p.arm, p.sha256, p.mids, p.words, 0, self.name)
                for q, p in zip(questions, packets, strict=True)]

    def rows(self, packet: Packet) -> list[Row]:
        """What a packet serves, by the name of the row; each once."""
        once: dict[tuple[str, str], Row] = {}
        for key, spans in places(packet).items():
            for start, end, row in self._rows.get(key, ()):
                if any(a <= start and end <= b for a, b in spans):
                    once.setdefault((row.row, row.kind), row)
        return [once[key] for key in sorted(once)]


class Tables:
    """The tables as they are, in SQLite, a patient at a time: where answers are computed a second time."""

    def __init__(self, folder: str | os.PathLike, titles: Callable[[str, str], str] | None = None):
        """titles: replaces the look-up of ICD titles (code, version). Raises: RecordError."""
        titles = titles or icd_titles(folder)
        self._rows: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
        labels = {}
        if path := find(folder, "hosp", "d_labitems", required=False):
            labels = {i: label.strip() for _, cells in blocks(path, ("itemid", "label")) for i, label in zip(*cells)}
        for table, (columns, _) in TABLES.items():
            if path := find(folder, "hosp", table, required=False):
                for _, (subjects, *cells) in blocks(path, ("subject_id", *columns)):
                    for subject, *values in zip(subjects, *cells, strict=True):
                        self._rows[subject][table].append({c: v.strip() for c, v in zip(columns, values)})
        for tables in self._rows.values():
            for table, rows in tables.items():
                for row, name in zip(rows, names(table, rows)):
                    row["row"] = name
                    if table == "diagnoses_icd":
                        row["title"] = titles(row["icd_code"], row["icd_version"])
                    if table == "labevents":
                        row["label"] = labels[row["itemid"]]

    def database(self, patient: str, only: Iterable[str] | None = None) -> sqlite3.Connection:
        """One patient's rows, or `only` those of these names."""
        base = sqlite3.connect(":memory:")
        base.create_function("plain", 1, _name, deterministic=True)
        base.create_function("days", 2, _span, deterministic=True)
        wanted = None if only is None else set(only)
        for table, (columns, _) in TABLES.items():
            extra = {"diagnoses_icd": ("title",), "labevents": ("label",)}.get(table, ())
            fields = (*columns, *extra, "row")
            base.execute(f"CREATE TABLE {table} ({', '.join(fields)})")
            base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(fields))})",
                             [[r[f] for f in fields] for r in self._rows[patient].get(table, ())
                              if wanted is None or r["row"] in wanted])
        return base


def verify(asked: Iterable[Question], tables: Tables) -> list[str]:
    """What is wrong with questions: answers or rows that SQL finds otherwise, in all rows of the patient or in the
    evidence alone. [] where every one holds."""
    faults, of = [], defaultdict(list)
    for question in asked:
        of[question.patient_id].append(question)
    for patient, group in of.items():
        with tables.database(patient) as whole:
            for q in group:
                faults += [f"{q.question_id}: {why}" for why in _faults(q, whole, all_rows=True)]
                support = {*q.rows, *_context(q, whole)}
                with tables.database(patient, support) as alone:
                    faults += [f"{q.question_id}: evidence alone: {why}" for why in _faults(q, alone, all_rows=False)]
                alone.close()
        whole.close()
    return faults


def _context(question: Question, base: sqlite3.Connection) -> set[str]:
    """Rows that only say which stay a date in the question means."""
    days = [a for a in question.form[1:] if re.fullmatch(r"\d{4}-\d{2}-\d{2}", a)]
    sql = f"SELECT row FROM admissions WHERE hadm_id = {_STAY.format(1)}"
    return {row for d in days for row, in base.execute(sql, (d,))}


def _faults(question: Question, base: sqlite3.Connection, *, all_rows: bool) -> Iterator[str]:
    name, *arguments = question.form
    found = base.execute(_TEMPLATE[name].sql, arguments).fetchall()
    values = {_name(str(v)) for v, _ in found if v is not None}
    if values != {_name(question.answer)}:
        yield f"got {question.answer!r}, SQL finds {sorted(values)}"
    if all_rows and (rows := {r for _, r in found if r is not None}) != set(question.rows):
        yield f"got rows {list(question.rows)}, SQL finds {sorted(rows)}"


# ---- scores -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Scores:
    """f1: token F1 by type, with its mean over all as `pooled`; each: of every question; clinical: its mean with the
    normaliser that keeps numbers apart. exact: share of answers that are the gold's words. templates: name -> (mean F1,
    n). evidence: mean share of the gold rows among those that were served, None where no rows were given."""

    f1: TypeScores
    each: tuple[float, ...] = dataclasses.field(repr=False)
    clinical: float
    exact: float
    templates: Mapping[str, tuple[float, int]]
    evidence: float | None


def score(asked: Sequence[Question], answers: Sequence[str], served: Sequence[Iterable[str]] | None = None) -> Scores:
    """served: names of the rows that each answer was made from. Raises: ValueError: not as many of each."""
    if len(answers) != len(asked) or (served is not None and len(served) != len(asked)):
        raise ValueError(f"got {len(asked)} questions and {len(answers)} answers, expected as many of each")
    f1 = tuple(token_f1(a, [q.answer]) for q, a in zip(asked, answers))
    kept = [token_f1(a, [q.answer], clinical) for q, a in zip(asked, answers)]
    shares = [len(set(q.rows) & set(s)) / len(q.rows) for q, s in zip(asked, served or []) if q.rows]
    return Scores(type_scores(f1, [q.type for q in asked]), f1, sum(kept) / len(kept),
                  sum(_same(a, q.answer) for q, a in zip(asked, answers)) / len(asked),
                  type_scores(f1, [q.form[0] for q in asked]).types, sum(shares) / len(shares) if shares else None)


def to_dict(question: Question) -> dict[str, Any]:
    """As a row of JSON Lines."""
    return dataclasses.asdict(question)
