"""ClinicalBench-shaped questions and scores: nine assertion-sensitive categories, a judge's 0, 0.5 or 1.

Its notes are credentialed and its references were found defective in 56 % of cases by physicians, so figures on it are
soft. compat: right means a judge's score of 1; the half points are a sensitivity, reported beside. strict: the judge's
1, unless the answer has another number instead of the reference's, or says yes where it says no. Without a judge compat
has no score, and strict is a rule that also asks for the reference's numbers and most of its words.
"""
from __future__ import annotations

import csv
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core_jax.records import RecordError, read_jsonl
from stam_jax.benchmarks.judge import Judge, Mark, assertion_prompt
from stam_jax.benchmarks.memory_bench import abstains, other_number, rule_state
from stam_jax.graph import canonical

SCORES = (0.0, 0.5, 1.0)
_SIDE = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    question_id: str
    patient_id: str
    category: str
    text: str
    answer: str


_FIELDS = (("question_id",), ("patient_id", "subject_id"), ("category",), ("question",), ("answer", "reference"))


def _text(raw: Any, *names: str) -> str:
    """The first of the fields that is there, a whole number as its digits. Raises: RecordError naming the field."""
    value = next((raw[n] for n in names if isinstance(raw, dict) and raw.get(n) is not None), None)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    canonical.text(value, names[0])
    return value


def questions(path: str | os.PathLike) -> Iterator[Question]:
    """Questions of a JSON Lines file: question_id, patient_id (or subject_id), category, question, answer (or
    reference).

    Raises: RecordError with file, line and field: a missing or mistyped field, a question twice.
    """
    seen: dict[str, int] = {}
    for line, raw in read_jsonl(path):
        try:
            found = Question(*(_text(raw, *names) for names in _FIELDS))
        except RecordError as e:
            raise RecordError(e.message, file=path, line=line, field=e.field) from None
        if found.question_id in seen:
            raise RecordError(f"{found.question_id!r} stands on line {seen[found.question_id]} already", file=path,
                              line=line, field="question_id")
        seen[found.question_id] = line
        yield found


def scores(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """condition -> question_id -> score, of a CSV file with the columns question_id, condition and judge_score (or
    score); others are not read.

    Raises: RecordError with file, line and field: a missing column, a score other than 0, 0.5 or 1, a pair twice.
    """
    out: dict[str, dict[str, float]] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            rows = csv.DictReader(f)
            column = "score" if "score" in (rows.fieldnames or ()) else "judge_score"
            for name in ("question_id", "condition", column):
                if name not in (rows.fieldnames or ()):
                    raise RecordError("missing column", file=path, line=1, field=name)
            for row in rows:
                try:
                    value = float(row[column])
                except (TypeError, ValueError):
                    value = -1.0
                if value not in SCORES:
                    raise RecordError(f"got {row[column]!r:.60}, expected 0, 0.5 or 1", file=path, line=rows.line_num,
                                      field=column)
                of = out.setdefault(row["condition"], {})
                if row["question_id"] in of:
                    raise RecordError(f"question {row['question_id']!r} stands twice for {row['condition']!r}",
                                      file=path, line=rows.line_num, field="question_id")
                of[row["question_id"]] = value
    except UnicodeDecodeError as e:
        raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path) from None
    except csv.Error as e:
        raise RecordError(f"not valid CSV: {e}", file=path, line=rows.line_num) from None
    except OSError as e:
        raise RecordError(e.strerror or str(e), file=path) from None
    return out


def marks(asked: Sequence[Question], answers: Sequence[str], judge: Judge | None = None) -> list[Mark]:
    """Both scores of each answer. A verdict without a score of 0, 0.5 or 1 counts as 0, and so does an empty answer, of
    which no judge is asked."""
    said = [i for i, a in enumerate(answers) if a.strip()] if judge is not None else []
    verdicts = dict(zip(said, judge([assertion_prompt(asked[i].text, asked[i].category, asked[i].answer, answers[i])
                                     for i in said]))) if said else {}
    out = []
    for i, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        if judge is None:
            out.append(Mark("rule", None, float(rule(answer, question.answer))))
        else:
            points = _points(verdicts.get(i, {}))
            right = points == 1.0
            out.append(Mark("judge", float(right), float(right and not contradicts(answer, question.answer)), points))
    return out


def _points(verdict: Mapping[str, Any]) -> float:
    score = verdict.get("score")
    return float(score) if isinstance(score, (int, float)) and not isinstance(score, bool) and score in SCORES else 0.0


def contradicts(answer: str, reference: str) -> bool:
    """Whether an answer cannot be right, whatever a judge says: it has another number instead of the reference's, or
    one begins with yes and the other with no."""
    sides = [m[1].lower() if (m := _SIDE.match(text)) else None for text in (answer, reference)]
    return None not in sides and sides[0] != sides[1] or other_number(answer, reference)


def rule(answer: str, reference: str) -> bool:
    """Without a judge: nothing contradicts, and the reference's numbers and most of its words are stated, or both
    decline. It cannot tell a paraphrase from an error."""
    if abstains(reference):
        return abstains(answer)
    return not contradicts(answer, reference) and rule_state(answer, [reference])
