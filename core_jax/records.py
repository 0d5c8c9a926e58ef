"""The neutral patient record: Patient / Encounter / Note / Code / Event, validated, JSON Lines in and out.

Standard library only. One patient a line. Times are local and naive, normalised to `YYYY-MM-DDTHH:MM:SS`, so that
string order is time order; `None` means static (no time known). Identifiers are strings from end to end.

Labels live in a file of their own (`Label`: patient_id, prediction_time, label, split), so one record serves many
tasks; `visible(patient, prediction_time)` is the only door from a record to a model, and shows nothing later.
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from core_jax import staging

SCHEMA = "patient/1"


class RecordError(ValueError):
    """Bad input, with the place it was found: `file:line: field: message`; the four parts are attributes too.

    In a table `line` is the row: the header is row 1, and a quoted value over several lines is one row.
    """

    def __init__(self, message: str, *, file: str | os.PathLike | None = None, line: int | None = None,
                 field: str | None = None):
        self.message, self.line, self.field = message, line, field
        self.file = None if file is None else os.fspath(file)
        where = "" if file is None else os.fspath(file) + ("" if line is None else f":{line}") + ": "
        super().__init__(where + ("" if field is None else f"{field}: ") + message)


@dataclasses.dataclass(frozen=True, slots=True)
class Encounter:
    encounter_id: str
    type: str | None = None
    start: str | None = None
    end: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    note_id: str
    text: str
    time: str | None = None
    age_years: float | None = None
    type: str | None = None
    encounter_id: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """`version` is the vocabulary, "9" or "10" for ICD-9-CM and ICD-10-CM; `title` is never empty."""

    code: str
    version: str
    title: str
    time: str | None = None
    age_years: float | None = None
    encounter_id: str | None = None

    @property
    def obs_id(self) -> str:
        return f"{self.code}-{self.version}"


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A structured row (prescription, lab, vital, ...): `fields` maps column to string."""

    event_id: str
    kind: str
    time: str | None = None
    fields: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Patient:
    patient_id: str
    sex: str | None = None
    birth_date: str | None = None  # YYYY-MM-DD; where only a year is known, birth_year
    birth_year: int | None = None
    death_date: str | None = None
    encounters: tuple[Encounter, ...] = ()
    notes: tuple[Note, ...] = ()
    codes: tuple[Code, ...] = ()
    events: tuple[Event, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """One cohort row: what is predicted for whom, from which moment, and in which split (None: not split yet)."""

    patient_id: str
    prediction_time: str
    label: int
    split: str | None = None


def parse_time(value: str | None, *, what: str = "time") -> str | None:
    """Any ISO-8601 date or date-time -> `YYYY-MM-DDTHH:MM:SS`; None and "" -> None. An offset is converted to UTC.

    Raises: ValueError naming `what`.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError(f"{what}: got {type(value).__name__} {value!r}, expected an ISO-8601 string")
    try:
        t = dt.datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError(f"{what}: got {value!r}, expected an ISO-8601 date or date-time") from None
    if t.tzinfo is not None:
        try:
            t = t.astimezone(dt.UTC).replace(tzinfo=None)
        except OverflowError:
            raise ValueError(f"{what}: got {value!r}, outside the years 1 to 9999 in UTC") from None
    return t.isoformat(timespec="seconds")


def age_years(birth_date: str | None, birth_year: int | None, time: str | None) -> float | None:
    """Age at `time` in years (365.25 days); from a bare birth year it is the difference of years. None if unknown."""
    if time is None:
        return None
    t = dt.datetime.fromisoformat(time)
    if birth_date is not None:
        return (t - dt.datetime.fromisoformat(birth_date)).total_seconds() / (365.25 * 86400)
    return None if birth_year is None else float(t.year - birth_year)


def visible(patient: Patient, prediction_time: str, *, include_static: bool = False) -> Patient:
    """What is known at `prediction_time` (inclusive): everything dated later is dropped, and so is death_date.

    An encounter that has begun but not ended by then is kept without its end. Items without a time are static; they
    are dropped too unless `include_static`.

    Raises: ValueError where prediction_time is empty or no time.
    """
    cut = parse_time(prediction_time, what="prediction_time")
    if cut is None:
        raise ValueError(f"prediction_time: got {prediction_time!r}, expected an ISO-8601 date or date-time")

    def keep(t: str | None) -> bool:
        return include_static if t is None else t <= cut

    def begun(e: Encounter) -> Encounter:
        return e if e.end is None or e.end <= cut else dataclasses.replace(e, end=None)

    return dataclasses.replace(
        patient,
        death_date=None,
        encounters=tuple(begun(e) for e in patient.encounters if keep(e.start)),
        notes=tuple(n for n in patient.notes if keep(n.time)),
        codes=tuple(c for c in patient.codes if keep(c.time)),
        events=tuple(e for e in patient.events if keep(e.time)),
    )


# ---- validation -----------------------------------------------------------------------------------------------

_PARTS = {"encounters": Encounter, "notes": Note, "codes": Code, "events": Event}
_REQUIRED = {
    Encounter: ("encounter_id",), Note: ("note_id", "text"), Code: ("code", "version", "title"),
    Event: ("event_id", "kind"),
}
_FIELDS = {cls: frozenset(f.name for f in dataclasses.fields(cls)) for cls in (Patient, *_PARTS.values())}
_TIMES = {Encounter: ("start", "end"), Note: ("time",), Code: ("time",), Event: ("time",)}


def _text(value: Any, field: str, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise RecordError(f"got {type(value).__name__} {value!r}, expected a string", field=field)
    if not empty and not value.strip():
        raise RecordError("got an empty string", field=field)
    if "\x00" in value:
        raise RecordError("contains a NUL byte", field=field)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError("contains a lone surrogate (not valid UTF-8)", field=field) from None
    return value


def _part(cls, raw: Any, where: str, birth_date: str | None, birth_year: int | None):
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object", field=where)
    if unknown := sorted(raw.keys() - _FIELDS[cls]):
        raise RecordError(f"unknown field; expected one of {sorted(_FIELDS[cls])}", field=f"{where}.{unknown[0]}")
    out = dict(raw)
    for name in _REQUIRED[cls]:
        if name not in raw:
            raise RecordError("missing", field=f"{where}.{name}")
        out[name] = _text(raw[name], f"{where}.{name}", empty=name == "text")
    for name in ("type", "encounter_id"):
        if raw.get(name) is not None and name not in _REQUIRED[cls]:
            _text(raw[name], f"{where}.{name}", empty=True)
    for name in _TIMES[cls]:
        try:
            out[name] = parse_time(raw.get(name), what=name)
        except ValueError as e:
            raise RecordError(str(e).split(": ", 1)[1], field=f"{where}.{name}") from None
    age = raw.get("age_years")
    if age is not None and (isinstance(age, bool) or not isinstance(age, (int, float)) or not -1e-9 <= age < 150):
        raise RecordError(f"got {age!r}, expected a number of years in [0, 150)", field=f"{where}.age_years")
    if age is None and "age_years" in _FIELDS[cls]:
        age = age_years(birth_date, birth_year, out["time"])
        if age is not None and age >= 150:
            raise RecordError(f"{out['time']} is {age:.0f} years after birth, expected less than 150",
                              field=f"{where}.time")
        out["age_years"] = None if age is None else round(max(age, 0.0), 4)
    if cls is Event:
        fields = raw.get("fields", {})
        if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
            raise RecordError("expected an object of strings", field=f"{where}.fields")
        for name, value in fields.items():
            _text(name, f"{where}.fields")
            _text(value, f"{where}.fields.{name}", empty=True)
    if cls is Encounter and out["start"] and out["end"] and out["end"] < out["start"]:
        raise RecordError(f"end {out['end']} is before start {out['start']}", field=f"{where}.end")
    return cls(**out)


def patient_from_dict(raw: Any) -> Patient:
    """One parsed JSON object -> Patient, every field checked.

    Ages missing from notes and codes are filled from the birth date (or year). Encounters are ordered by (start, id),
    notes and events by (time, id), codes by (time, obs_id), static items first; numbers inside an id count as numbers,
    so that MIMIC's `10000032-DS-9` comes before `10000032-DS-21` (its order: date, note_seq, note_id).
    Note, encounter and event ids are unique within a patient; two patients may share one (the stores key by patient).

    Raises: RecordError naming the field (e.g. `notes[3].time`): a wrong type, an unknown or missing field, a duplicate
        note, encounter or event id, NUL bytes, a date before birth, birth_date and birth_year apart.
    """
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object")
    raw = dict(raw)
    schema = raw.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise RecordError(f"got {schema!r}, expected {SCHEMA!r}", field="schema")
    if unknown := sorted(raw.keys() - _FIELDS[Patient]):
        raise RecordError(f"unknown field; expected one of {sorted(_FIELDS[Patient])}", field=unknown[0])
    if "patient_id" not in raw:
        raise RecordError("missing", field="patient_id")
    out: dict[str, Any] = {"patient_id": _text(raw["patient_id"], "patient_id")}
    if raw.get("sex") is not None:
        out["sex"] = _text(raw["sex"], "sex")
    for name in ("birth_date", "death_date"):
        try:
            t = parse_time(raw.get(name), what=name)
        except ValueError as e:
            raise RecordError(str(e).split(": ", 1)[1], field=name) from None
        out[name] = None if t is None else (t[:10] if name == "birth_date" or t.endswith("T00:00:00") else t)
    year = raw.get("birth_year")
    if year is not None and (isinstance(year, bool) or not isinstance(year, int) or not 1800 <= year <= 2300):
        raise RecordError(f"got {year!r}, expected a year", field="birth_year")
    out["birth_year"] = year
    for name, cls in _PARTS.items():
        items = [] if raw.get(name) is None else raw[name]
        if not isinstance(items, (list, tuple)):
            raise RecordError(f"got {type(items).__name__}, expected a list", field=name)
        out[name] = tuple(_part(cls, item, f"{name}[{i}]", out["birth_date"], year) for i, item in enumerate(items))

    if out["birth_date"] and year is not None and int(out["birth_date"][:4]) != year:
        raise RecordError(f"got {year}, but birth_date is {out['birth_date']}", field="birth_year")
    birth = out["birth_date"] or (None if year is None else f"{year:04d}-01-01")
    if birth and out["death_date"] and out["death_date"][:10] < birth:
        raise RecordError(f"{out['death_date']} is before birth {birth}", field="death_date")
    for name, cls in _PARTS.items():
        for i, item in enumerate(out[name]):
            for f in _TIMES[cls]:
                t = getattr(item, f)
                if birth and t and t[:10] < birth:
                    raise RecordError(f"{t} is before birth {birth}", field=f"{name}[{i}].{f}")
    for name, key in (("notes", "note_id"), ("encounters", "encounter_id"), ("events", "event_id")):
        seen: set[str] = set()
        for i, item in enumerate(out[name]):
            v = getattr(item, key)
            if v in seen:
                raise RecordError(f"duplicate id {v!r}", field=f"{name}[{i}].{key}")
            seen.add(v)

    out["encounters"] = tuple(sorted(out["encounters"], key=lambda e: (e.start or "", _natural(e.encounter_id))))
    out["notes"] = tuple(sorted(out["notes"], key=lambda n: (n.time or "", _natural(n.note_id))))
    out["codes"] = tuple(sorted(out["codes"], key=lambda c: (c.time or "", c.obs_id)))
    out["events"] = tuple(sorted(out["events"], key=lambda e: (e.time or "", _natural(e.event_id))))
    return Patient(**out)


def _natural(identifier: str) -> tuple:
    """Sort key of an id: its runs of ASCII digits by value, the rest by character; the id itself breaks ties."""
    def value(digits: str) -> tuple[int, str]:
        digits = digits.lstrip("0")
        return len(digits), digits

    pieces = re.split("([0-9]+)", identifier)
    return tuple(value(p) if i % 2 else p for i, p in enumerate(pieces)), identifier


def patient_to_dict(patient: Patient) -> dict[str, Any]:
    """Patient -> JSON object; fields that are None or empty are left out."""
    def clean(d: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in d.items() if v is not None and v != [] and v != {}}

    d = dataclasses.asdict(patient)
    for name in _PARTS:
        d[name] = [clean(x) for x in d[name]]
    return {"schema": SCHEMA} | clean(d)


def label_from_dict(raw: Any) -> Label:
    """Raises: RecordError naming the field."""
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object")
    if unknown := sorted(set(raw) - {"patient_id", "prediction_time", "label", "split"}):
        raise RecordError("unknown field", field=unknown[0])
    for name in ("patient_id", "prediction_time", "label"):
        if name not in raw:
            raise RecordError("missing", field=name)
    try:
        time = parse_time(raw["prediction_time"], what="prediction_time")
    except ValueError as e:
        raise RecordError(str(e).split(": ", 1)[1], field="prediction_time") from None
    if time is None:
        raise RecordError("got null", field="prediction_time")
    if isinstance(raw["label"], bool) or raw["label"] not in (0, 1):
        raise RecordError(f"got {raw['label']!r}, expected 0 or 1", field="label")
    split = raw.get("split")
    if split not in (None, "train", "val", "test"):
        raise RecordError(f"got {split!r}, expected train, val or test", field="split")
    return Label(_text(raw["patient_id"], "patient_id"), time, int(raw["label"]), split)


# ---- JSON Lines -----------------------------------------------------------------------------------------------

def read_jsonl(path: str | os.PathLike) -> Iterator[tuple[int, Any]]:
    """(line number, parsed object) of each non-blank line of a .jsonl or .jsonl.gz file, streaming.

    Raises: RecordError with file and line: no such file, empty file, not UTF-8, not JSON, truncated gzip.
    """
    path = os.fspath(path)
    number = objects = 0
    try:
        with (gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")) as f:
            for number, line in enumerate(f, 1):
                if not line.strip():
                    continue
                try:
                    item = strict_json(line.decode("utf-8"))
                except UnicodeDecodeError as e:
                    raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path, line=number) from None
                except json.JSONDecodeError as e:
                    raise RecordError(f"not valid JSON: {e.msg} at column {e.colno}", file=path, line=number) from None
                except RecursionError:
                    raise RecordError("nested too deep", file=path, line=number) from None
                except ValueError as e:
                    raise RecordError(str(e), file=path, line=number) from None
                objects += 1
                yield number, item
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise RecordError(f"truncated or corrupt gzip ({e})", file=path, line=number + 1) from None
    except OSError as e:
        raise RecordError(e.strerror or str(e), file=path) from None
    if objects == 0:
        raise RecordError("empty file", file=path)


def strict_json(text: str) -> Any:
    """Raises: ValueError: not JSON (json.JSONDecodeError), NaN or infinity, a field twice in one object, an integer of
    more digits than Python reads; RecursionError: nested too deep."""
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twin)


def _no_constant(name: str):
    raise ValueError(f"{name} is not valid JSON")


def _no_twin(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)}: stands twice in one object")
    return out


def _read(path, parse, key):
    seen: dict[str, int] = {}
    for number, raw in read_jsonl(path):
        try:
            item = parse(raw)
        except RecordError as e:
            raise RecordError(e.message, file=path, line=number, field=e.field) from None
        k = key(item)
        if k in seen:
            raise RecordError(f"{k!r} stands on line {seen[k]} already", file=path, line=number, field="patient_id")
        seen[k] = number
        yield item


def read_patients(path: str | os.PathLike) -> Iterator[Patient]:
    """Patients of a JSON Lines file, streaming.

    Raises: RecordError with file, line and field; a patient_id that stands twice is one.
    """
    yield from _read(path, patient_from_dict, lambda p: p.patient_id)


def read_labels(path: str | os.PathLike) -> list[Label]:
    """Labels of a cohort file. Raises: RecordError; a patient twice (contradictory or not) is an error."""
    return list(_read(path, label_from_dict, lambda label: label.patient_id))


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wt"):
    """Open an unfinished neighbour of `path` that takes its place at the end (`core_jax.staging.file`).

    A name ending in .gz is compressed (mtime 0, so that equal content gives equal bytes).
    """
    path = os.fspath(path)
    with staging.file(path) as raw:
        if path.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as z:
                yield from _as_mode(z, mode)
        else:
            yield from _as_mode(raw, mode)


def _as_mode(raw, mode: str):
    if "b" in mode:
        yield raw
        return
    import io

    text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    yield text
    text.flush()
    text.detach()


def write_jsonl(path: str | os.PathLike, items: Iterable[Any]) -> int:
    """Write objects (dict, Patient, Label or any dataclass) one a line, atomically. Returns the number of lines."""
    count = 0
    with atomic_write(path) as f:
        for item in items:
            if isinstance(item, Patient):
                item = patient_to_dict(item)
            elif dataclasses.is_dataclass(item):
                item = dataclasses.asdict(item)
            f.write(json.dumps(item, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count
