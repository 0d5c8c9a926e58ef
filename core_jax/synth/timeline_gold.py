"""Gold of a timeline: entries, facts, what became of each, and questions. Standard library only, JSON Lines in and out.

A *fact* is one statement of an entry about one slot; its key is (patient, experiencer, concept, attribute). Attributes:

    dose         of a drug; value "850 mg bid" (amount, unit, frequency code); a stop is NEGATED without a value
    status       of a problem or symptom; no value; resolution, denial and ruling out are NEGATED
    value        of a laboratory test or vital sign; value "8.1", unit "%"
    allergy      concept = the allergen; value = the reaction
    plan         monitoring (value "every 2 weeks") or an appointment (no value, planned end)
    preference   value = the choice
    procedure    surgery or implant; no value

Times are days (`YYYY-MM-DD`), intervals half open: `end` is the first day on which the fact no longer holds.
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterable, Iterator
from typing import Any

from core_jax.records import RecordError, read_jsonl, write_jsonl

SCHEMA = "timeline/1"
ENTRY_KINDS = ("clinic", "discharge", "phone", "dialogue", "medication list", "scanned")
ATTRIBUTES = ("dose", "status", "value", "allergy", "plan", "preference", "procedure")
POLARITIES = ("AFFIRMED", "NEGATED", "UNCERTAIN", "CONDITIONAL")
EXPERIENCERS = ("PATIENT", "FAMILY")
KINDS = ("STATE", "EVENT", "PLAN", "PREFERENCE", "BACKGROUND")
PRECISIONS = ("day", "month", "year", "unknown")
SOURCES = ("explicit", "relative", "entry_default", "unknown")
STATUSES = ("current", "past", "open")  # open: a condition whose case no longer arises; no metric counts it
ENDURANCE = ("safe-to-forget", "never-forget", "uncertain")
REASONS = ("SUPERSEDED", "RESOLVED", "CORRECTED", "RESTATED", "EXPIRED", "PRIOR_STATE")
RELATION_TYPES = ("restatement", "same_condition_thread", "drug_interaction", "systemic_link", "causal",
                  "treatment_for", "monitoring_for")
DIRECTED = frozenset({"causal", "treatment_for", "monitoring_for"})
QUESTION_TYPES = ("current_state", "past_state", "change", "temporal_order", "absence", "multi_hop")


@dataclasses.dataclass(frozen=True, slots=True)
class When:
    """Clinical time [start, end); None = unknown or open. A coarse start is the first day of its month or year."""

    start: str | None
    end: str | None = None
    precision: str = "day"
    source: str = "entry_default"
    end_planned: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One dated piece of text; `date` None = the entry bears no date. Entries stand in order of arrival."""

    session: str
    kind: str
    date: str | None
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """`text[start:end]` of the entry `session` is the evidence. `restates`: the fact that said the same of this slot.

    `status` is the state at the end of the record; `late` = reported after a newer value was known.
    """

    fact_id: str
    session: str
    start: int
    end: int
    concept: str
    attribute: str
    value: str | None
    unit: str | None
    polarity: str
    experiencer: str
    kind: str
    when: When
    endurance: str
    status: str
    restates: str | None = None
    late: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.experiencer, self.concept, self.attribute


@dataclasses.dataclass(frozen=True, slots=True)
class SupersessionPair:
    """Consecutive affirmed facts of one key with different values; `late`: `old` arrived when `new` already held."""

    old: str
    new: str
    session: str
    late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class GoldTransition:
    """`fact` goes to HISTORY when `session` arrives. `accept` lists the reasons that count as right, the first best.

    `cascade`: it falls with another fact although its entry does not name it; `successor` is then that other fact.
    """

    fact: str
    session: str
    accept: tuple[str, ...]
    successor: str | None
    cascade: bool = False

    @property
    def reason(self) -> str:
        return self.accept[0]


@dataclasses.dataclass(frozen=True, slots=True)
class GoldRelation:
    """Undirected types are stored with the earlier fact as `src`; a type outside DIRECTED has no direction."""

    src: str
    dst: str
    type: str


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """Asked after the last entry. `answers` are equally right; `facts` and their `sessions` are the evidence.

    history_needed: some evidence is past by then, so ACTIVE alone does not hold the answer.
    """

    question_id: str
    type: str
    text: str
    answers: tuple[str, ...]
    facts: tuple[str, ...]
    sessions: tuple[str, ...]
    history_needed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """One patient. `aliases[concept]`: other names by which its entries call a concept, lower case."""

    patient_id: str
    phrases: str
    split: str
    entries: tuple[TimelineEntry, ...]
    facts: tuple[Fact, ...]
    pairs: tuple[SupersessionPair, ...]
    transitions: tuple[GoldTransition, ...]
    relations: tuple[GoldRelation, ...]
    questions: tuple[Question, ...]
    aliases: dict[str, tuple[str, ...]]

    def evidence(self, fact: Fact) -> str:
        entry = next(e for e in self.entries if e.session == fact.session)
        return entry.text[fact.start:fact.end]

    def current(self, session: str | None = None) -> tuple[Fact, ...]:
        """The facts that hold once `session` (default: the last entry) has arrived.

        A restatement goes with its original. Conditions stay in until the record ends.

        Raises: KeyError for an unknown session.
        """
        order = {e.session: i for i, e in enumerate(self.entries)}
        at = len(order) - 1 if session is None else order[session]
        gone = {t.fact for t in self.transitions if order[t.session] <= at}
        return tuple(f for f in self.facts if order[f.session] <= at and (f.restates or f.fact_id) not in gone)


# ---- JSON -----------------------------------------------------------------------------------------------------------

_ENUMS = {(TimelineEntry, "kind"): ENTRY_KINDS, (Fact, "attribute"): ATTRIBUTES, (Fact, "polarity"): POLARITIES,
          (Fact, "experiencer"): EXPERIENCERS, (Fact, "kind"): KINDS, (Fact, "endurance"): ENDURANCE,
          (Fact, "status"): STATUSES, (When, "precision"): PRECISIONS, (When, "source"): SOURCES,
          (GoldRelation, "type"): RELATION_TYPES, (Question, "type"): QUESTION_TYPES,
          (Timeline, "split"): ("train", "val", "test")}
_DATES = {(TimelineEntry, "date"), (When, "start"), (When, "end")}
_PARTS = {"entries": TimelineEntry, "facts": Fact, "pairs": SupersessionPair, "transitions": GoldTransition,
          "relations": GoldRelation, "questions": Question}


def timeline_to_dict(timeline: Timeline) -> dict[str, Any]:
    return {"schema": SCHEMA} | dataclasses.asdict(timeline)


def _strings(value: Any, where: str, *, least: int = 0) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value) or len(value) < least:
        raise RecordError(f"got {value!r}, expected a list of {least} or more strings", field=where)
    return tuple(value)


def _value(cls, name: str, kind: str, value: Any, where: str):
    """One field checked against its annotation (`str`, `str | None`, `int`, `bool`, `tuple[str, ...]`)."""
    if kind == "When":
        return _object(When, value, where)
    if kind == "tuple[str, ...]":
        return _strings(value, where, least=1 if name in ("accept", "answers") else 0)
    if value is None and kind.endswith("| None"):
        return None
    base = {"str": str, "int": int, "bool": bool}[kind.removesuffix(" | None")]
    if type(value) is not base:
        raise RecordError(f"got {type(value).__name__} {value!r}, expected {base.__name__}", field=where)
    if base is str and not value.strip():
        raise RecordError("got an empty string", field=where)
    if (cls, name) in _ENUMS and value not in _ENUMS[cls, name]:
        raise RecordError(f"got {value!r}, expected one of {list(_ENUMS[cls, name])}", field=where)
    if (cls, name) in _DATES:
        try:
            exact = dt.date.fromisoformat(value).isoformat() == value
        except ValueError:
            exact = False
        if not exact:
            raise RecordError(f"got {value!r}, expected a day YYYY-MM-DD", field=where)
    return value


def _object(cls, raw: Any, where: str):
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object", field=where)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(raw.keys() - fields.keys()):
        raise RecordError(f"unknown field; expected one of {sorted(fields)}", field=f"{where}.{unknown[0]}")
    out = {}
    for name, field in fields.items():
        if name in raw:
            out[name] = _value(cls, name, field.type, raw[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING:
            raise RecordError("missing", field=f"{where}.{name}")
    return cls(**out)


def timeline_from_dict(raw: Any) -> Timeline:
    """One parsed JSON object -> Timeline; every field, span and reference checked.

    Raises: RecordError naming the field (e.g. `facts[3].end`).
    """
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object")
    raw = dict(raw)
    if (schema := raw.pop("schema", None)) != SCHEMA:
        raise RecordError(f"got {schema!r}, expected {SCHEMA!r}", field="schema")
    fields = [f.name for f in dataclasses.fields(Timeline)]
    if unknown := sorted(raw.keys() - set(fields)):
        raise RecordError(f"unknown field; expected one of {sorted(fields)}", field=unknown[0])
    out: dict[str, Any] = {}
    for name in fields:
        if name not in raw:
            raise RecordError("missing", field=name)
        value = raw[name]
        if name in _PARTS:
            if not isinstance(value, (list, tuple)):
                raise RecordError(f"got {type(value).__name__}, expected a list", field=name)
            out[name] = tuple(_object(_PARTS[name], v, f"{name}[{i}]") for i, v in enumerate(value))
        elif name == "aliases":
            if not isinstance(value, dict):
                raise RecordError(f"got {type(value).__name__}, expected an object", field=name)
            out[name] = {k: _strings(v, f"aliases.{k}") for k, v in value.items()}
        else:
            out[name] = _value(Timeline, name, "str", value, name)
    timeline = Timeline(**out)
    _references(timeline)
    return timeline


def _references(timeline: Timeline) -> None:
    texts: dict[str, str] = {}
    for i, e in enumerate(timeline.entries):
        if e.session in texts:
            raise RecordError(f"duplicate id {e.session!r}", field=f"entries[{i}].session")
        texts[e.session] = e.text
    facts: set[str] = set()

    def known(name: str | None, among, where: str) -> None:
        if name is not None and name not in among:
            raise RecordError(f"{name!r} is not in this timeline", field=where)

    for i, f in enumerate(timeline.facts):
        known(f.session, texts, f"facts[{i}].session")
        if f.fact_id in facts:
            raise RecordError(f"duplicate id {f.fact_id!r}", field=f"facts[{i}].fact_id")
        known(f.restates, facts, f"facts[{i}].restates")
        facts.add(f.fact_id)
        if not 0 <= f.start < f.end <= len(texts[f.session]):
            raise RecordError(f"got span {f.start}:{f.end} of {len(texts[f.session])} characters",
                              field=f"facts[{i}].end")
    for i, p in enumerate(timeline.pairs):
        for name in ("old", "new"):
            known(getattr(p, name), facts, f"pairs[{i}].{name}")
        known(p.session, texts, f"pairs[{i}].session")
    for i, t in enumerate(timeline.transitions):
        for name in ("fact", "successor"):
            known(getattr(t, name), facts, f"transitions[{i}].{name}")
        known(t.session, texts, f"transitions[{i}].session")
        if wrong := set(t.accept) - set(REASONS):
            raise RecordError(f"got {sorted(wrong)[0]!r}, expected one of {list(REASONS)}",
                              field=f"transitions[{i}].accept")
    for i, r in enumerate(timeline.relations):
        for name in ("src", "dst"):
            known(getattr(r, name), facts, f"relations[{i}].{name}")
    for i, q in enumerate(timeline.questions):
        for name in q.facts:
            known(name, facts, f"questions[{i}].facts")
        for name in q.sessions:
            known(name, texts, f"questions[{i}].sessions")


def read_timelines(path: str | os.PathLike) -> Iterator[Timeline]:
    """Timelines of a .jsonl or .jsonl.gz file, streaming. Raises: RecordError with file, line and field."""
    seen: dict[str, int] = {}
    for line, raw in read_jsonl(path):
        try:
            timeline = timeline_from_dict(raw)
            if timeline.patient_id in seen:
                raise RecordError(f"{timeline.patient_id!r} stands on line {seen[timeline.patient_id]} already",
                                  field="patient_id")
        except RecordError as e:
            raise RecordError(e.message, file=path, line=line, field=e.field) from None
        seen[timeline.patient_id] = line
        yield timeline


def write_timelines(path: str | os.PathLike, timelines: Iterable[Timeline]) -> int:
    """One timeline a line, atomically. Returns the number of lines."""
    return write_jsonl(path, (timeline_to_dict(t) for t in timelines))
