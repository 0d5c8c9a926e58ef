"""Transcripts -> entries, one a session: JSON with messages, or lines `Speaker: text` under `[date]` lines.

JSON is one session, a list of sessions, or {"sessions": [...]}. A session has `messages` (each `role` or `speaker`, and
`content` or `text`), and may have `patient_id`, `session_id` and `date` (or `timestamp`). A session without a
patient_id belongs to the patient that the file is named after. JSON Lines hold a session a line.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from core_jax.records import RecordError, read_jsonl
from stam_jax.graph.clinical_time import entry_date
from stam_jax.graph.memory import Entry
from stam_jax.readers.json_document import Document
from stam_jax.readers.text import load

_SPEAKERS = {"user": "Patient", "assistant": "Doctor", "system": "System"}
_DATE_LINE = re.compile(r"\[([^\]]+)\][ \t]*")
_TURN = re.compile(r"(?P<speaker>[^\s:][^:\n]{0,39}):[ \t]+(?P<said>\S.*)")


def read(path: str | os.PathLike) -> Iterator[Entry]:
    """Entries of a .json, .jsonl or .txt transcript, in its order; blank turns are left out with their speaker.

    Raises: RecordError with file, line and field: no messages, a turn without speaker or text, a date that is none.
    """
    path = os.fspath(path)
    stem = os.path.basename(path).split(".")[0]
    if path.endswith((".jsonl", ".jsonl.gz")):
        for line, raw in read_jsonl(path):
            try:
                yield _session(raw, f"session {line}", stem, str(line))
            except RecordError as e:
                raise RecordError(e.message, file=path, line=line, field=e.field) from None
    elif path.endswith(".json"):
        document = Document(path)
        root = document.root
        sessions = root.get("sessions") if isinstance(root, dict) and "sessions" in root else root
        sessions = sessions if isinstance(sessions, list) else [sessions]
        if not sessions:
            document.fail("got none, expected at least one", "sessions")
        for i, raw in enumerate(sessions):
            try:
                yield _session(raw, f"sessions[{i}]", stem, str(i + 1))
            except RecordError as e:
                raise RecordError(e.message, file=path, field=e.field) from None
    else:
        yield from _lines(load(path), stem, path)


def dialogue(turns: list[tuple[str, str]]) -> str:
    """(speaker, what was said) as lines `Speaker: text`; a turn over several lines stays one."""
    return "".join(f"{speaker}: {' '.join(said.split())}\n" for speaker, said in turns)


def _session(raw: Any, where: str, patient: str, number: str) -> Entry:
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object", field=where)
    messages = raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RecordError("expected a list of at least one message", field=f"{where}.messages")
    turns = []
    for i, message in enumerate(messages):
        at = f"{where}.messages[{i}]"
        if not isinstance(message, dict):
            raise RecordError(f"got {type(message).__name__}, expected an object", field=at)
        speaker, said = (next((message[n] for n in names if n in message), None)
                         for names in (("speaker", "role"), ("content", "text")))
        for name, value in (("role", speaker), ("content", said)):
            if not isinstance(value, str):
                raise RecordError(f"got {type(value).__name__}, expected a string", field=f"{at}.{name}")
        if said.strip():
            turns.append((_SPEAKERS.get(speaker, speaker), said))
    for name in ("patient_id", "session_id", "date", "timestamp"):
        value = raw.get(name)
        if value is not None and not isinstance(value, str) and not (name == "session_id" and isinstance(value, int)):
            raise RecordError(f"got {type(value).__name__}, expected a string", field=f"{where}.{name}")
    date = raw.get("date") or raw.get("timestamp")
    try:
        return Entry.of(raw.get("patient_id") or patient, str(raw.get("session_id", number)), "dialogue",
                        dialogue(turns), date=date, author_role="dialogue")
    except RecordError as e:
        raise RecordError(e.message, field=f"{where}.{e.field}") from None


def _lines(text: str, patient: str, path: str) -> Iterator[Entry]:
    date, begun, turns = None, 1, []

    def entry() -> Iterator[Entry]:
        if turns:
            yield Entry.of(patient, f"{os.path.basename(path)}:{begun}", "dialogue", dialogue(turns), date=date,
                           author_role="dialogue")

    for number, line in enumerate(text.splitlines(), 1):
        if heading := _DATE_LINE.fullmatch(line):
            yield from entry()
            begun, turns = number, []
            try:
                date = entry_date(heading[1].strip())
            except RecordError as e:
                raise RecordError(e.message, file=path, line=number, field="date") from None
        elif turn := _TURN.fullmatch(line):
            turns.append((turn["speaker"], turn["said"]))
        elif line.strip() and turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]} {line.strip()}")
        elif line.strip():
            raise RecordError(f"got {line.strip()!r:.60}, expected `Speaker: text` or `[date]`", file=path, line=number)
    yield from entry()
