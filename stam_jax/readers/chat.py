"""Transcripts -> entries, one a session: JSON with messages, or lines `Speaker: text` under `[date]` lines.

JSON is one session, a list of sessions, or {"sessions": [...]}. A session has `messages` (each `role` or `speaker`, and
`content` or `text`), and may have `patient_id`, `session_id` and `date` (or `timestamp`). A session without a
patient_id belongs to the patient that the file is named after. JSON Lines hold a session a line.

Who speaks: `user` and `human` are the patient; `assistant` and its like (`stam_jax.write.turns.MACHINES`) an AI, whose
words are context and no ground of a memory; turns of `system`, `developer`, `tool` and `function` are left out and
counted. A role of these stands before a speaker's name. Everyone else is called by name: a doctor's turn has the
speaker `Doctor`, not the role `assistant`.
"""
from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from core_jax.records import RecordError, read_jsonl
from stam_jax.graph.clinical_time import entry_date
from stam_jax.graph.memory import Entry
from stam_jax.readers.json_document import Document
from stam_jax.readers.text import load
from stam_jax.write.turns import label, machine

_DATE_LINE = re.compile(r"\[([^\]]+)\][ \t]*")
_TURN = re.compile(r"(?![-*•–>] |\d+[.)] )(?P<speaker>[^\s:][^:\n]{0,39}):[ \t]+(?P<said>\S.*)")


def read(path: str | os.PathLike, left_out: Counter[str] | None = None) -> Iterator[Entry]:
    """Entries of a .json, .jsonl or .txt transcript, in its order; blank turns are left out with their speaker.

    left_out: counts `system_turn` and `tool_turn` as they are left out.
    Raises: RecordError with file, line and field: no messages, a turn without speaker or text, a date that is none.
    """
    path = os.fspath(path)
    stem = os.path.basename(path).split(".")[0]
    left_out = Counter() if left_out is None else left_out
    if path.endswith((".jsonl", ".jsonl.gz")):
        for line, raw in read_jsonl(path):
            try:
                yield _session(raw, f"session {line}", stem, str(line), left_out)
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
                yield _session(raw, f"sessions[{i}]", stem, str(i + 1), left_out)
            except RecordError as e:
                raise RecordError(e.message, file=path, field=e.field) from None
    else:
        yield from _lines(load(path), stem, path, left_out)


def dialogue(turns: list[tuple[str, str]]) -> str:
    """(speaker, what was said) as lines `Speaker: text`; a turn over several lines stays one."""
    return "".join(f"{speaker}: {' '.join(said.split())}\n" for speaker, said in turns)


def _named(speaker: str) -> str:
    if machine(speaker) == "assistant":
        return "Assistant"
    return "Patient" if speaker.casefold() in ("user", "human") else speaker


def _session(raw: Any, where: str, patient: str, number: str, left_out: Counter[str]) -> Entry:
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
        if isinstance(role := message.get("role"), str) and machine(role):
            speaker = role
        if not isinstance(speaker, str):
            raise RecordError(f"got {type(speaker).__name__}, expected a string", field=f"{at}.role")
        if not (speaker := " ".join(speaker.split())):
            raise RecordError("got an empty string", field=f"{at}.role")
        if (who := machine(speaker)) in ("system", "tool") or (said is None and "tool_calls" in message):
            left_out[f"{'system' if who == 'system' else 'tool'}_turn"] += 1
            continue
        if not isinstance(said, str):
            raise RecordError(f"got {type(said).__name__}, expected a string", field=f"{at}.content")
        if said.strip():
            turns.append((_named(speaker), said))
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


def _lines(text: str, patient: str, path: str, left_out: Counter[str]) -> Iterator[Entry]:
    date, begun, turns = None, 1, []

    def entry() -> Iterator[Entry]:
        if turns:
            left_out.update(f"{who}_turn" for s, _ in turns if (who := machine(s)) in ("system", "tool"))
            kept = [(_named(s), said) for s, said in turns if said and machine(s) not in ("system", "tool")]
            yield Entry.of(patient, f"{os.path.basename(path)}:{begun}", "dialogue", dialogue(kept), date=date,
                           author_role="dialogue")

    for number, line in enumerate(text.splitlines(), 1):
        if heading := _DATE_LINE.fullmatch(line):
            yield from entry()
            begun, turns = number, []
            try:
                date = entry_date(heading[1].strip())
            except RecordError as e:
                raise RecordError(e.message, file=path, line=number, field="date") from None
        elif turn := label(line):
            turns.append(turn)
        elif turn := _TURN.fullmatch(line):
            turns.append((turn["speaker"], turn["said"]))
        elif line.strip() and turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]} {line.strip()}")
        elif line.strip():
            raise RecordError(f"got {line.strip()!r:.60}, expected `Speaker: text` or `[date]`", file=path, line=number)
    yield from entry()
