"""LoCoMo-shaped files (MedLoCoMo among them) -> samples with sessions and questions.

A sample is a patient, a session an entry of lines `Speaker: text`, each followed by its turn id in brackets, so that
what a packet cites can be compared with the evidence of a question (`D3:7` is turn 7 of session 3). A picture's caption
stands beside what was said. A category is LoCoMo's number, or the name of a type (`longitudinal_progression`).
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
from collections.abc import Iterator

from stam_jax.graph.clinical_time import entry_date
from stam_jax.graph.memory import Entry
from stam_jax.readers.json_document import Document

_TURN_ID = re.compile(r"\[(D\d+:\d+)\]$", re.MULTILINE)
ADVERSARIAL = (5, "adversarial")  # categories of questions that the talk does not answer
_CLOCKS = ("%I:%M %p on %d %B, %Y", "%d %B, %Y", "%B %d, %Y", "%d %B %Y")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """answer: of an adversarial one, what the adversary expects, where the file has it. category: 1 to 5, or a type's
    name. evidence: turn ids; what is none stays as it stands, and is never found."""

    question_id: str
    text: str
    answer: str
    category: int | str
    evidence: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    patient_id: str
    entries: tuple[Entry, ...]
    questions: tuple[Question, ...]


def samples(path: str | os.PathLike) -> Iterator[Sample]:
    """Samples of a file, in its order. Raises: RecordError with file and field: a missing or mistyped field, a session
    without a date of its own, a date in no known form, two samples or turns of one id, a category that is neither 1 to
    5 nor a name."""
    document = Document(path)
    seen: set[str] = set()
    for i, raw in enumerate(document.check(document.root, list, "the document")):
        where = f"[{i}]"
        patient = document.text(raw, "sample_id", where)
        if patient in seen:
            document.fail(f"{patient!r} stands twice", f"{where}.sample_id")
        seen.add(patient)
        talk = document.get(raw, "conversation", dict, where)
        numbers = sorted(int(m[1]) for name in talk if (m := re.fullmatch(r"session_([0-9]{1,9})", name)))
        if not numbers:
            document.fail("no session_<number>", f"{where}.conversation")
        turns: set[str] = set()
        entries = tuple(_entry(document, talk, n, patient, f"{where}.conversation", turns) for n in numbers)
        yield Sample(patient, entries, tuple(_questions(document, raw, where, patient)))


def read(path: str | os.PathLike) -> Iterator[Entry]:
    """The entries of all samples. Raises: as `samples`."""
    for sample in samples(path):
        yield from sample.entries


def turns(text: str, start: int = 0, end: int | None = None) -> tuple[str, ...]:
    """Ids of the turns that [start, end) of an entry's text touches."""
    end = len(text) if end is None else end
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", max(start, end - 1))
    return tuple(_TURN_ID.findall(text[first:len(text) if last < 0 else last]))


def _entry(document: Document, talk: dict, number: int, patient: str, where: str, seen: set[str]) -> Entry:
    lines = []
    for j, turn in enumerate(document.get(talk, f"session_{number}", list, where)):
        at = f"{where}.session_{number}[{j}]"
        speaker, said, name = (document.get(turn, n, str, at) for n in ("speaker", "text", "dia_id"))
        if name in seen:
            document.fail(f"{name!r} stands twice", f"{at}.dia_id")
        seen.add(name)
        caption = document.get(turn, "blip_caption", str, at, optional=True)
        shown = f" (shows {' '.join(caption.split())})" if caption else ""
        lines.append(f"{speaker}: {' '.join(said.split())}{shown} [{name}]\n")
    field = f"session_{number}_date_time"
    date = _date(document, document.get(talk, field, str, where), f"{where}.{field}")
    return Entry.of(patient, f"session_{number}", "dialogue", "".join(lines), date=date, author_role="dialogue")


def _date(document: Document, text: str, field: str) -> str:
    for clock in _CLOCKS:
        try:
            return dt.datetime.strptime(" ".join(text.split()), clock).date().isoformat()
        except ValueError:
            continue
    try:
        return entry_date(text) or document.fail("got an empty string", field)
    except ValueError:
        document.fail(f"got {text!r:.60}, expected a date such as 1:56 pm on 8 May, 2023, or an ISO date", field)


def _questions(document: Document, raw: dict, where: str, patient: str) -> Iterator[Question]:
    for j, item in enumerate(document.get(raw, "qa", list, where)):
        at = f"{where}.qa[{j}]"
        category = document.check(item, dict, at).get("category")
        if not (category.strip() if isinstance(category, str) else type(category) is int and 1 <= category <= 5):
            document.fail(f"got {category!r:.60}, expected 1 to 5, or the name of a type", f"{at}.category")
        if isinstance(category, str):
            document.text(item, "category", at)
        answer = item.get("answer")
        if category in ADVERSARIAL and item.get("adversarial_answer") is not None:
            answer = item["adversarial_answer"]
        if not isinstance(answer, (str, int, float)) or isinstance(answer, bool):
            document.fail(f"got {type(answer).__name__}, expected a string or a number", f"{at}.answer")
        document.text({"answer": str(answer)}, "answer", at)
        evidence = document.get(item, "evidence", list, at, optional=True) or []
        for k, name in enumerate(evidence):
            document.check(name, str, f"{at}.evidence[{k}]")
        said = tuple(dict.fromkeys(n for e in evidence for n in re.findall(r"D\d+:\d+", e) or [e]))
        yield Question(f"{patient}/{j}", document.text(item, "question", at), str(answer), category, said)
