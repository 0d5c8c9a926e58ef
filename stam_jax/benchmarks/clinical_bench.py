"""ClinicalBench-shaped questions and scores: nine assertion-sensitive categories, a judge's 0, 0.5 or 1.

Its notes are credentialed and its references were found defective in 56 % of cases by physicians, so figures on it are
soft. Correct means a score of 1 here; the half points are a sensitivity, reported beside.
"""
from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

from core_jax.records import RecordError, read_jsonl
from core_jax.stats import McNemar, mcnemar
from stam_jax.metrics import TypeScores, type_scores

SCORES = (0.0, 0.5, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    question_id: str
    patient_id: str
    category: str
    text: str
    answer: str


def questions(path: str | os.PathLike) -> Iterator[Question]:
    """Questions of a JSON Lines file: question_id, patient_id (or subject_id), category, question, answer (or
    reference).

    Raises: RecordError with file, line and field: a missing or mistyped field, a question twice.
    """
    seen: dict[str, int] = {}
    for line, raw in read_jsonl(path):
        def get(*names: str) -> str:
            value = next((raw[n] for n in names if isinstance(raw, dict) and raw.get(n) is not None), None)
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value.strip():
                raise RecordError(f"got {value!r:.60}, expected a string", file=path, line=line, field=names[0])
            return value

        found = Question(get("question_id"), get("patient_id", "subject_id"), get("category"), get("question"),
                         get("answer", "reference"))
        if found.question_id in seen:
            raise RecordError(f"{found.question_id!r} stands on line {seen[found.question_id]} already", file=path,
                              line=line, field="question_id")
        seen[found.question_id] = line
        yield found


def scores(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """condition -> question_id -> score, of a CSV file with these columns (others are not read).

    Raises: RecordError with file, line and field: a missing column, a score other than 0, 0.5 or 1, a pair twice.
    """
    out: dict[str, dict[str, float]] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            rows = csv.DictReader(f)
            for name in ("question_id", "condition", "score"):
                if name not in (rows.fieldnames or ()):
                    raise RecordError("missing column", file=path, line=1, field=name)
            for row in rows:
                try:
                    value = float(row["score"])
                except (TypeError, ValueError):
                    value = -1.0
                if value not in SCORES:
                    raise RecordError(f"got {row['score']!r:.60}, expected 0, 0.5 or 1", file=path, line=rows.line_num,
                                      field="score")
                of = out.setdefault(row["condition"], {})
                if row["question_id"] in of:
                    raise RecordError(f"question {row['question_id']!r} stands twice for {row['condition']!r}",
                                      file=path, line=rows.line_num, field="question_id")
                of[row["question_id"]] = value
    except UnicodeDecodeError as e:
        raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path) from None
    except OSError as e:
        raise RecordError(e.strerror or str(e), file=path) from None
    return out


def summarise(asked: Sequence[Question], got: Mapping[str, float], *, half: bool = False) -> TypeScores:
    """Accuracy by category, over all questions; half: a half point counts as one half instead of nothing.

    Raises: LookupError: a question without a score.
    """
    if missing := [q.question_id for q in asked if q.question_id not in got]:
        raise LookupError(f"{len(missing)} questions without a score, {missing[0]!r} the first")
    return type_scores([got[q.question_id] if half else float(got[q.question_id] == 1.0) for q in asked],
                       [q.category for q in asked])


def compare(first: Mapping[str, float], second: Mapping[str, float]) -> McNemar:
    """Exact McNemar on the questions of both, in the order of their ids. Raises: ValueError: different questions."""
    if first.keys() != second.keys():
        raise ValueError(f"got scores of {len(first)} and {len(second)} questions, expected the same questions")
    order = sorted(first)
    return mcnemar([int(first[q] == 1.0) for q in order], [int(second[q] == 1.0) for q in order])
