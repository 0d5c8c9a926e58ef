"""A benchmark's files as a cohort: who is told what, what is asked when, and how an answer is marked.

MedMemoryBench, LoCoMo-shaped talks and ClinicalBench-shaped notes, each from a path that a user names.
"""
from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_jax.records import RecordError
from stam_jax.benchmarks import clinical_bench, locomo, memory_bench
from stam_jax.benchmarks.judge import Judge, Mark
from stam_jax.graph.memory import Entry
from stam_jax.language.lessons import fold_of
from stam_jax.readers import locomo as talks
from stam_jax.readers import memory_bench as personas
from stam_jax.readers import neutral, text
from stam_jax.readers.rendered import Rendered

SUITES = ("memory_bench", "locomo", "clinical_bench")
TITLES = {"memory_bench": "MedMemoryBench", "locomo": "LoCoMo-shaped conversations", "clinical_bench": "ClinicalBench"}
SHAPES = {"memory_bench": "a folder of persona_<number>/eval/", "locomo": "a .json file of samples",
          "clinical_bench": "a folder with questions.jsonl, and patients.jsonl[.gz] or records/"}
FOLDS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One question. moment: which of `Cohort.told` its memory is. text: what is searched for. prompt: what the reader
    is asked. evidence: sessions or turns that it needs. source: the benchmark's own record of it."""

    question_id: str
    patient_id: str
    moment: str
    type: str
    text: str
    prompt: str
    evidence: tuple[str, ...]
    source: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Cohort:
    """entries: by patient, in the order of telling. told: moment -> (patient, how many of its entries were told by
    then). marks: both scores of answers to `source`s. macro: whether the headline is a mean over types. folds: patient
    -> fold, where the benchmark is run in folds. published: condition -> question -> score of others' answers."""

    entries: Mapping[str, Sequence[Entry | Rendered]]
    told: Mapping[str, tuple[str, int]]
    asked: Sequence[Asked]
    marks: Callable[[Sequence[Any], Sequence[str], Judge | None], list[Mark]]
    macro: bool = True
    folds: Mapping[str, int] | None = None
    published: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


def suite_of(path: str | os.PathLike) -> str:
    """The suite that a path is of, by its shape. Raises: RecordError: no such path, none of the shapes."""
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise RecordError("no such file or folder", file=path)
    if os.path.isfile(path):
        if path.endswith(".json"):
            return "locomo"
    elif os.path.exists(os.path.join(path, "questions.jsonl")):
        return "clinical_bench"
    elif any(name.startswith("persona_") for name in (os.path.basename(path), *os.listdir(path))):
        return "memory_bench"
    raise RecordError("expected one of: " + "; ".join(f"{shape} ({name})" for name, shape in SHAPES.items()), file=path)


def read(suite: str, path: str | os.PathLike, *, language: str = "en", noise: bool = False) -> Cohort:
    """language, noise: of memory_bench. Raises: RecordError with file and field."""
    found = {"memory_bench": lambda: _memory_bench(path, language, noise), "locomo": lambda: _locomo(path),
             "clinical_bench": lambda: _clinical_bench(path)}[suite]()
    if not found.asked:
        raise RecordError("has no questions", file=path)
    return found


def _memory_bench(path: str | os.PathLike, language: str, noise: bool) -> Cohort:
    """A moment is a checkpoint: what was told up to the session that a query names."""
    entries, told, asked = {}, {}, []
    for persona in personas.personas(path, language=language, noise=noise):
        who, count = persona.patient_id, 0
        entries[who] = [s.entry for s in persona.sessions]
        for unit in persona.units():
            count += len(unit.sessions)
            for q in unit.queries:
                moment = f"{who}@{q.session}"
                told[moment] = who, count
                asked.append(Asked(f"{who}/{q.query_id}", who, moment, q.type, q.question,
                                   memory_bench.asked(q, language), tuple(f"session_{n}" for n in q.evidence), q))
    return Cohort(entries, told, asked, memory_bench.marks)


def _locomo(path: str | os.PathLike) -> Cohort:
    entries, asked = {}, []
    for sample in talks.samples(path):
        who = sample.patient_id
        if not (told := [e for e in sample.entries if e.text.strip()]):
            raise RecordError(f"{who!r} has no turn in any session", file=path, field="conversation")
        entries[who] = told
        asked += [Asked(q.question_id, who, who, locomo.type_of(q), q.text, q.text, q.evidence, q)
                  for q in sample.questions]
    return Cohort(entries, {p: (p, len(own)) for p, own in entries.items()}, asked, locomo.marks)


def _clinical_bench(path: str | os.PathLike) -> Cohort:
    """A folder: questions.jsonl; patients.jsonl, patients.jsonl.gz or records/; scores.csv where others' scores are to
    be compared with."""
    place, file = os.fspath(path), os.path.join(path, "questions.jsonl")
    questions = list(clinical_bench.questions(file))
    records = [(read, name) for read, name in ((neutral.read, "patients.jsonl"), (neutral.read, "patients.jsonl.gz"),
                                               (text.read, "records")) if os.path.exists(os.path.join(place, name))]
    if not records:
        raise RecordError("has neither patients.jsonl[.gz] nor records/", file=path)
    wanted = {q.patient_id for q in questions}
    entries: dict[str, list[Entry | Rendered]] = defaultdict(list)
    for e in records[0][0](os.path.join(place, records[0][1])):
        who = getattr(e, "entry", e).patient_id
        if who in wanted and getattr(e, "entry", e).text.strip():
            entries[who].append(e)
    for q in questions:
        if q.patient_id not in entries:
            raise RecordError(f"question {q.question_id!r} is about {q.patient_id!r}, who has no record", file=file,
                              field="patient_id")
    published, scores = {}, os.path.join(place, "scores.csv")
    if os.path.exists(scores):
        published = clinical_bench.scores(scores)
    return Cohort(entries, {p: (p, len(own)) for p, own in entries.items()},
                  [Asked(q.question_id, q.patient_id, q.patient_id, q.category, q.text, q.text, (), q)
                   for q in questions], clinical_bench.marks, False, fold_of(entries, FOLDS), published)
