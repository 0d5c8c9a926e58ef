"""Plain text: a folder with a folder a patient, `<patient>/<date>_<kind>.txt`, or one file with dated sections.

In a folder, the file's name says when and what: `2020-01-03_clinic.txt`, `2020-01_letter.md`, `2020.txt`; a name that
begins with no date is an undated entry of that kind (`discharge.txt`). Names that begin with a dot are passed over. In
a single file, a line that is a date (`2020-01-03`), or a marked date and a kind (`[2020-01-03] clinic`, `## 2020-01`),
begins a section; what stands before the first one is undated. The patient of a single file is the file's name without
its ending.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterator

from core_jax.records import RecordError
from stam_jax.graph.clinical_time import entry_date
from stam_jax.graph.memory import Entry

ENDINGS = (".txt", ".md")
_DATE = r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2}(?:T[0-9:]{5,8})?)?)?"
_NAME = re.compile(rf"(?:(?P<date>{_DATE})(?:[_ -]+|$))?(?P<kind>.*)")
_HEADING = re.compile(rf"(?P<mark>#+[ \t]*|\[)?(?P<date>{_DATE})\]?:?"
                      r"(?(mark)(?:[ \t]+(?P<kind>[\w -]{1,40}))?)[ \t]*")


def read(path: str | os.PathLike) -> Iterator[Entry]:
    """Entries of a folder or a file; patients in the order of their names, a patient's entries by date, undated first.

    Raises: RecordError with file and line: no such path, nothing to read, an ending other than .txt or .md, bytes that are
        not UTF-8, a date that is none, a single file that is blank.
    """
    path = os.fspath(path)
    if os.path.isfile(path):
        stem, ending = os.path.splitext(os.path.basename(path))
        if ending not in ENDINGS:
            raise RecordError(f"expected a file that ends in {' or '.join(ENDINGS)}, or a folder", file=path)
        yield from sections(load(path), stem, path)
        return
    if not os.path.isdir(path):
        raise RecordError("no such file or folder", file=path)
    patients = sorted(p for p in os.listdir(path) if not p.startswith("."))
    if not patients:
        raise RecordError("nothing to read: expected a folder for each patient, or files of their names", file=path)
    for patient in patients:
        place = os.path.join(path, patient)
        if os.path.isfile(place):
            stem, ending = os.path.splitext(patient)
            if ending not in ENDINGS:
                raise RecordError(f"expected a folder, or a file that ends in {' or '.join(ENDINGS)}", file=place)
            yield from sections(load(place), stem, place)
        else:
            yield from _folder(place, patient)


def _folder(place: str, patient: str) -> Iterator[Entry]:
    found = []
    for name in sorted(n for n in os.listdir(place) if not n.startswith(".")):
        file = os.path.join(place, name)
        stem, ending = os.path.splitext(name)
        if ending not in ENDINGS or not os.path.isfile(file):
            raise RecordError(f"expected a file that ends in {' or '.join(ENDINGS)}", file=file)
        named = _NAME.fullmatch(stem)
        date = _date(named["date"], file, None)
        text = load(file, blank=True)  # a blank note is an entry, which ingestion refuses and counts
        found.append((date or "", name, Entry.of(patient, f"{patient}/{name}", named["kind"] or "note", text, date=date)))
    if not found:
        raise RecordError("no files of this patient", file=place)
    for *_, entry in sorted(found, key=lambda f: f[:2]):
        yield entry


def sections(text: str, patient: str, path: str) -> Iterator[Entry]:
    """Entries of one text with dated headings, in their order. Raises: RecordError."""
    date, kind, begun, lines = None, "note", 1, []

    def entry() -> Iterator[Entry]:
        if "".join(lines).strip():
            source = f"{os.path.basename(path)}:{begun}"
            yield Entry.of(patient, source, kind, "\n".join(lines).strip("\n") + "\n", date=date)

    for number, line in enumerate(text.splitlines(), 1):
        if not (heading := _HEADING.fullmatch(line)):
            lines.append(line)
            continue
        yield from entry()
        date, kind = _date(heading["date"], path, number), (heading["kind"] or "").strip() or "note"
        begun, lines = number, []
    yield from entry()


def load(path: str, *, blank: bool = False) -> str:
    """The text of a file. Raises: RecordError: unreadable, not UTF-8, and unless `blank` a blank one."""
    try:
        with open(path, "rb") as f:
            text = f.read().decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RecordError(f"not valid UTF-8 at byte {e.start}; convert the file or take it away", file=path) from None
    except OSError as e:
        raise RecordError(e.strerror or str(e), file=path) from None
    if not text.strip() and not blank:
        raise RecordError("blank file", file=path)
    return text


def _date(text: str | None, path: str, line: int | None) -> str | None:
    try:
        return entry_date(text)
    except RecordError as e:
        raise RecordError(e.message, file=path, line=line, field="date") from None
