"""MEDS data sets (`data/**/*.parquet`, `metadata/codes.parquet`, label files) -> patients and labels, shard by shard.

Rows become, by their code: MEDS_BIRTH and MEDS_DEATH the two dates (never events); `DIAGNOSIS//ICD//10//I109`,
`ICD10CM//I10.9` and the like diagnoses; a code under one of `note_codes` a note (its text_value); under one of
`encounter_codes` an encounter; everything else an event. A null time is static. An event at the prediction time itself
is visible (`core_jax.records.visible` is inclusive); times are compared to the second.
"""
from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core_jax.icd import Titles, normalize
from core_jax.readers.draft import Draft
from core_jax.readers.table import texts
from core_jax.records import Label, Patient, RecordError

ROWS = 8192  # rows in memory at a time, besides one patient's

_DIAGNOSIS = re.compile(r"(?:DIAGNOSIS//)?ICD(?:/{1,2})?(9|10)(?:CM)?/{1,2}(.+)", re.IGNORECASE)
_SEX = re.compile(r"(?:GENDER|SEX)/{1,2}(.+)", re.IGNORECASE)
_COLUMNS = {
    "birth_date": "time", "death_date": "time", "encounters.start": "time", "notes.time": "time",
    "notes.text": "text_value", "codes.time": "time", "codes.code": "code", "events.time": "time",
}


def _is_text(t: pa.DataType) -> bool:
    if pa.types.is_dictionary(t):
        return _is_text(t.value_type)
    return pa.types.is_string(t) or pa.types.is_large_string(t)


_DATA_COLUMNS = (
    {"subject_id": pa.types.is_integer, "time": pa.types.is_timestamp, "code": _is_text},
    {"numeric_value": pa.types.is_floating, "text_value": _is_text},
)
_LABEL_COLUMNS = {
    "subject_id": pa.types.is_integer, "prediction_time": pa.types.is_timestamp, "boolean_value": pa.types.is_boolean,
}


def read(
    folder: str | os.PathLike,
    subjects: Collection[str] | None = None,
    *,
    note_codes: Sequence[str] = ("NOTE//",),
    encounter_codes: Sequence[str] = (),
    events: bool = True,
    counts: Counter[str] | None = None,
    titles: Titles | None = None,
) -> Iterator[Patient]:
    """Patients of a MEDS data set in the order of its shards; one batch of rows and one patient are in memory.

    Args:
        subjects: read these patient ids only (None: all).
        note_codes, encounter_codes: code prefixes.
        events: keep the rows that are nothing else as events (kind: the code up to its first "//").
        counts: receives the number of each oddity that was tolerated.
        titles: replaces the look-up of titles; default descriptions of metadata/codes.parquet, then the ICD packages.

    A note's id is made of patient, code, time and a hash of its text; a repeat of all four gets a number.

    Raises: RecordError with file, row and column: no shards, a corrupt shard, a missing or mistyped column, a null
        subject or code, rows of a patient apart from each other or in two shards, two births, a time before birth.
    """
    folder = os.fspath(folder)
    counts = Counter() if counts is None else counts
    wanted = None if subjects is None else frozenset(subjects)
    titles = titles or Titles(_descriptions(os.path.join(folder, "metadata", "codes.parquet")))
    shards = _shards(os.path.join(folder, "data"))
    seen: dict[str, str] = {}
    for path in shards:
        subject, rows = None, []
        for row in _rows(path):
            if row[1] != subject:
                if subject is not None and (wanted is None or subject in wanted):
                    yield _patient(subject, rows, path, titles, note_codes, encounter_codes, events, counts)
                subject, rows = row[1], []
                if subject in seen:
                    raise RecordError(f"{subject!r} has rows in {seen[subject]} before; the rows of a patient stand "
                                      "together, in one shard", file=path, line=row[0], field="subject_id")
                seen[subject] = path
            rows.append(row)
        if subject is not None and (wanted is None or subject in wanted):
            yield _patient(subject, rows, path, titles, note_codes, encounter_codes, events, counts)


def read_labels(path: str | os.PathLike, *, keep: Literal["all", "first", "last"] = "all") -> list[Label]:
    """Binary labels of a MEDS label file (or a folder of them): subject_id, prediction_time, boolean_value.

    `keep` picks one label of a patient by prediction time; "all" leaves repeats, which a cohort refuses.

    Raises: RecordError with file, row and column.
    """
    if keep not in ("all", "first", "last"):
        raise ValueError(f'keep: got {keep!r}, expected "all", "first" or "last"')
    path = os.fspath(path)
    labels: list[Label] = []
    for shard in _shards(path) if os.path.isdir(path) else [path]:
        for first, batch in _batches(shard, _LABEL_COLUMNS, {}):
            columns = [_times(c) if name == "prediction_time" else c.to_pylist() for name, c in batch.items()]
            for row, values in enumerate(zip(*columns, strict=True), first):
                for name, value in zip(batch, values, strict=True):
                    if value is None:
                        raise RecordError("got null", file=shard, line=row, field=name)
                labels.append(Label(str(values[0]), values[1], int(values[2])))
    if keep == "all":
        return labels
    chosen: dict[str, Label] = {}
    for label in labels:
        old = chosen.get(label.patient_id)
        if old is not None and old.prediction_time == label.prediction_time and old.label != label.label:
            raise RecordError(f"patient {label.patient_id!r} is labelled both 0 and 1 at {label.prediction_time}",
                              file=path, field="boolean_value")
        if old is None or (label.prediction_time < old.prediction_time) == (keep == "first"):
            chosen[label.patient_id] = label
    return [chosen[k] for k in sorted(chosen)]


# ---- parquet --------------------------------------------------------------------------------------------------

def _shards(folder: str) -> list[str]:
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*.parquet"), recursive=True))
    if not found:
        raise RecordError("no parquet files in this folder", file=folder)
    return found


def _batches(path: str, required: dict, optional: dict) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """(number of the first row from 1, column by name). `required`, `optional`: name -> test of the type."""
    first = 1
    try:
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = []
            for name, fits in (required | optional).items():
                at = schema.get_field_index(name)
                if at < 0:
                    if name in required:
                        raise RecordError(f"missing column; the file has {', '.join(schema.names)}", file=path,
                                          field=name)
                    continue
                if not fits(schema.field(at).type):
                    raise RecordError(f"got type {schema.field(at).type}, expected "
                                      f"{fits.__name__.removeprefix('_').removeprefix('is_')}", file=path, field=name)
                names.append(name)
            for batch in file.iter_batches(batch_size=ROWS, columns=names):
                yield first, {name: batch.column(name) for name in names}
                first += batch.num_rows
    except pa.ArrowInvalid as e:
        raise RecordError(f"not a readable parquet file ({e})", file=path, line=first) from None
    except OSError as e:
        raise RecordError(e.strerror or str(e), file=path, line=None if e.errno else first) from None


def _strings(column: pa.Array, path: str, first: int, name: str) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return texts(column.cast(pa.large_binary()), path, first, name)


def _times(column: pa.Array) -> list[str | None]:
    seconds = pc.floor_temporal(column, unit="second").cast(pa.timestamp("s", column.type.tz))
    return pc.strftime(seconds.cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%S").to_pylist()


def _rows(path: str) -> Iterator[tuple[int, str, str | None, str, float | None, str]]:
    """(row, subject, time, code, number, text) of a shard."""
    for first, batch in _batches(path, *_DATA_COLUMNS):
        size = len(batch["subject_id"])
        columns = (
            batch["subject_id"].to_pylist(), _times(batch["time"]), _strings(batch["code"], path, first, "code"),
            batch["numeric_value"].to_pylist() if "numeric_value" in batch else [None] * size,
            _strings(batch["text_value"], path, first, "text_value") if "text_value" in batch else [""] * size,
        )
        for row, (subject, time, code, number, text) in enumerate(zip(*columns, strict=True), first):
            if subject is None:
                raise RecordError("got null", file=path, line=row, field="subject_id")
            if not code.strip():
                raise RecordError("got null or an empty string", file=path, line=row, field="code")
            yield row, str(subject), time, code, number, text


def _descriptions(path: str) -> dict[tuple[str, str], str]:
    out: dict[tuple[str, str], str] = {}
    if not os.path.isfile(path):
        return out
    for first, batch in _batches(path, {"code": _is_text}, {"description": _is_text}):
        if "description" not in batch:
            break
        for code, text in zip(_strings(batch["code"], path, first, "code"),
                              _strings(batch["description"], path, first, "description"), strict=True):
            if (m := _DIAGNOSIS.fullmatch(code.strip())) and text.strip():
                out[normalize(m[2]), m[1]] = text.strip()
    return out


# ---- one patient ----------------------------------------------------------------------------------------------

def _patient(subject: str, rows: list[tuple], path: str, titles: Titles, note_codes: Sequence[str],
             encounter_codes: Sequence[str], events: bool, counts: Counter[str]) -> Patient:
    draft = Draft({"patient_id": subject}, path, rows[0][0], _COLUMNS)
    used: Counter[str] = Counter()

    def unique(base: str) -> str:
        used[base] += 1
        return base if used[base] == 1 else f"{base}-{used[base]}"

    for row, _, time, code, number, text in rows:
        code = code.strip()
        if code in ("MEDS_BIRTH", "MEDS_DEATH"):
            field = "birth_date" if code == "MEDS_BIRTH" else "death_date"
            if time is None:
                raise RecordError(f"{code} without a time", file=path, line=row, field="time")
            if draft.raw.get(field, time) != time:
                raise RecordError(f"{code} at {time}, but also at {draft.raw[field]} (patient {subject!r})", file=path,
                                  line=row, field="time")
            draft.raw[field] = time
        elif m := _DIAGNOSIS.fullmatch(code):
            key = normalize(m[2])
            draft.add("codes", {"code": key, "version": m[1], "title": titles(key, m[1]), "time": time}, path, row)
        elif code.startswith(tuple(note_codes)):
            if not text.strip():
                counts["blank_note"] += 1
                continue
            stamp = re.sub("[-:]", "", time) if time else "static"
            name = "_".join(re.findall(r"\w+", code))
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            draft.add("notes", {"note_id": unique(f"{subject}-{name}-{stamp}-{digest}"), "time": time, "type": code,
                                "text": text}, path, row)
        elif code.startswith(tuple(encounter_codes)):
            draft.add("encounters", {"encounter_id": unique(f"{code}@{time}"), "type": code, "start": time}, path, row)
        else:
            if time is None and (m := _SEX.fullmatch(code)):
                draft.raw["sex"] = m[1]
            if events:
                fields = {"code": code}
                if number is not None and number == number:
                    fields["numeric_value"] = f"{number:.9g}"
                if text:
                    fields["text_value"] = text
                draft.add("events", {"event_id": unique(f"{code}@{time}"), "kind": code.split("//", 1)[0] or code,
                                     "time": time, "fields": fields}, path, row)
    return draft.patient()
