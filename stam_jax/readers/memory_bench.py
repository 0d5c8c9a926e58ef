"""MedMemoryBench folders (`persona_<n>/eval/generated_{dialogues,queries}.json`) -> personas with sessions and queries.

A persona is a patient. A session becomes one entry whose text is what the benchmark shows a memory: a line with the
date in brackets, then `Patient: ` and `Doctor: ` turns, blank lines between. The date is the only anchor in time. A
distractor session (`noise_id`, `noise_family_id`) has no date; its first line says whose consultation it is.
"""
from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from core_jax.records import RecordError
from stam_jax.graph.memory import Entry
from stam_jax.readers.json_document import Document

TYPES = ("entity_exact_match", "temporal_localization", "state_update", "multiple_choice", "inference_generation",
         "multi_hop_clinical_deduction")
_ROLES = {"en": {"user": "Patient", "assistant": "Doctor"}, "zh": {"user": "患者", "assistant": "医生"}}
_NOISE = {"en": ("[Health consultation about {name} ({relationship})]", "[Health consultation]"),
          "zh": ("[关于{name}({relationship})的健康咨询记录]", "[健康咨询记录]")}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    content: str
    correct: bool
    explanation: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """session: asked once this session has been told. evidence: sessions of the source key points, without repeats."""

    query_id: str
    session: int
    type: str
    question: str
    answers: tuple[Answer, ...]
    evidence: tuple[int, ...] = ()
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def gold(self) -> tuple[str, ...]:
        return tuple(a.content for a in self.answers if a.correct)


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """number: the benchmark's session_id, None for a distractor."""

    number: int | None
    entry: Entry


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """What is told between two checkpoints, and what is asked at the second one."""

    sessions: tuple[Session, ...]
    queries: tuple[Query, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Persona:
    patient_id: str
    sessions: tuple[Session, ...]
    queries: tuple[Query, ...]

    def units(self) -> Iterator[Unit]:
        """The protocol: sessions in order, queries right after the session that they name. No session is lost, and none
        is told twice; the last unit holds what follows the last checkpoint, without queries."""
        asked: dict[int, list[Query]] = {}
        for query in self.queries:
            asked.setdefault(query.session, []).append(query)
        pending: list[Session] = []
        for session in self.sessions:
            pending.append(session)
            if session.number in asked:
                yield Unit(tuple(pending), tuple(asked[session.number]))
                pending = []
        if pending:
            yield Unit(tuple(pending), ())


def personas(folder: str | os.PathLike, *, language: str = "en", noise: bool = False) -> Iterator[Persona]:
    """Personas in the order of their numbers; of a folder that is a persona's own, this one. noise: with the distractor
    sessions, as `generated_dialogues_with_noise.json` has them.

    Raises: RecordError with file and field: no persona, a missing or mistyped field, two sessions of one number, a
        query of an unknown type, one without a right answer, or one whose session is not among the dialogues.
    """
    if language not in _ROLES:
        raise ValueError(f"language: got {language!r}, expected one of {sorted(_ROLES)}")
    folder = os.path.abspath(folder)
    if re.fullmatch(r"persona_\d+", os.path.basename(folder)) and os.path.isdir(os.path.join(folder, "eval")):
        folder, own = os.path.split(folder)
        names = [own]
    else:
        names = os.listdir(folder) if os.path.isdir(folder) else []
    found = sorted((int(m[1]), name) for name in names if (m := re.fullmatch(r"persona_([0-9]{1,9})", name)))
    if not found:
        raise RecordError("no folder persona_<number> in it", file=folder)
    for _, name in found:
        place = os.path.join(folder, name, "eval")
        dialogues = Document(os.path.join(place, f"generated_dialogues{'_with_noise' if noise else ''}.json"))
        sessions = tuple(_sessions(dialogues, name, language))
        asked = Document(os.path.join(place, "generated_queries.json"))
        yield Persona(name, sessions, tuple(_queries(asked, {s.number for s in sessions})))


def read(folder: str | os.PathLike, *, language: str = "en", noise: bool = False) -> Iterator[Entry]:
    """The entries of all personas, in the order of the protocol. Raises: as `personas`."""
    for persona in personas(folder, language=language, noise=noise):
        for session in persona.sessions:
            yield session.entry


def _sessions(document: Document, patient: str, language: str) -> Iterator[Session]:
    seen: set[int] = set()
    roles = _ROLES[language]
    for i, raw in enumerate(document.get(document.root, "sessions", list)):
        where = f"sessions[{i}]"
        document.check(raw, dict, where)
        distractor = "noise_id" in raw or "noise_family_id" in raw
        number = None if distractor else document.get(raw, "session_id", int, where)
        if number in seen:
            document.fail(f"session {number} stands twice", f"{where}.session_id")
        if number is not None:
            seen.add(number)
        info = document.get(raw, "event_info", dict, where, optional=True) or {}
        date = None if distractor else document.get(info, "date", str, f"{where}.event_info", optional=True)
        lines = []
        for j, message in enumerate(document.get(raw, "messages", list, where)):
            at = f"{where}.messages[{j}]"
            role, content = (document.get(message, name, str, at) for name in ("role", "content"))
            if role not in roles:
                document.fail(f"got {role!r}, expected one of {sorted(roles)}", f"{at}.role")
            lines += [f"{roles[role]}: {content}", ""]
        head = f"[{date or 'N/A'}]"
        if distractor:
            relative = document.get(raw, "family_role", dict, where, optional=True)
            named, plain = _NOISE[language]
            head = named.format(**{k: (relative.get(k) or "") for k in ("name", "relationship")}) if relative else plain
        source = f"noise_{i}" if distractor else f"session_{number}"
        try:
            entry = Entry.of(patient, source, "dialogue", "\n".join([head, "", *lines]), date=date,
                             author_role="dialogue")
        except RecordError as e:
            document.fail(e.message, f"{where}.event_info.date")
        yield Session(number, entry)


def _queries(document: Document, known: set[int | None]) -> Iterator[Query]:
    for i, raw in enumerate(document.get(document.root, "queries", list)):
        where = f"queries[{i}]"
        kind, session = (document.get(raw, name, t, where) for name, t in (("query_type", str), ("session_id", int)))
        if kind not in TYPES:
            document.fail(f"got {kind!r:.80}, expected one of {list(TYPES)}", f"{where}.query_type")
        if session not in known:
            document.fail(f"session {session} is not among the dialogues", f"{where}.session_id")
        answers = tuple(
            Answer(document.text(a, "content", f"{where}.answers[{j}]"),
                   document.get(a, "is_correct", bool, f"{where}.answers[{j}]"),
                   document.get(a, "explanation", str, f"{where}.answers[{j}]", optional=True) or "")
            for j, a in enumerate(document.get(raw, "answers", list, where)))
        if not any(a.correct for a in answers):
            document.fail("none is correct", f"{where}.answers")
        points = document.get(raw, "source_key_points", list, where, optional=True) or []
        evidence = dict.fromkeys(
            n for j, p in enumerate(points)
            if (n := document.get(p, "session_id", int, f"{where}.source_key_points[{j}]", optional=True)) is not None)
        metadata = document.get(raw, "metadata", dict, where, optional=True) or {}
        told = json.dumps([metadata, [a.explanation for a in answers]], ensure_ascii=False)
        document.text({"metadata": told}, "metadata", where)
        name, question = (document.text(raw, field, where) for field in ("query_id", "question"))
        yield Query(name, session, kind, question, answers, tuple(evidence), metadata)
