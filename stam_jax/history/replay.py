"""Both arms' answers to the same questions, on file: what the history gate learns from, and what its threshold is
chosen on. A file replays without a model. Standard library only.
"""
from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from core_jax.records import RecordError, read_jsonl, write_jsonl
from stam_jax.graph import canonical
from stam_jax.metrics import token_f1

_MOST = sys.float_info.max
AGREE = 0.9  # token F1 of two answers from which they are one


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A question with answers that are equally right."""

    question_id: str
    patient_id: str
    type: str
    text: str
    answers: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """One arm's answer. score: in [0, 1]. tokens: of its prompt, as the reader counts."""

    packet_sha256: str
    answer: str
    score: float
    tokens: int

    def __post_init__(self):
        canonical.text(self.packet_sha256, "packet_sha256")
        canonical.text(self.answer, "answer", empty=True)
        canonical.share(self.score, "score")
        canonical.integer(self.tokens, "tokens", 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """One question under both arms.

    features: name -> number (`stam_jax.history.gate.features`). judged: the scores are right or wrong (0 or 1), so that
    arms are compared by them, not by their words. history: how many memories of HISTORY are in the BOTH packet.
    refilled: the arm that serves ACTIVE alone, filled up, where it was run. encoder: id of the one that searched; "" =
    not said.
    """

    question_id: str
    patient_id: str
    type: str
    features: Mapping[str, float]
    active: Served
    both: Served
    history: int
    judged: bool = False
    refilled: Served | None = None
    encoder: str = ""

    def __post_init__(self):
        for name in ("question_id", "patient_id", "type"):
            canonical.text(getattr(self, name), name)
        canonical.text(self.encoder, "encoder", empty=True)
        canonical.integer(self.history, "history", 0)
        canonical.truth(self.judged, "judged")
        if not isinstance(self.features, Mapping):
            raise RecordError(f"got {type(self.features).__name__}, expected numbers by name", field="features")
        for name, value in self.features.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MOST:
                raise RecordError(f"got {value!r:.80}, expected a finite number", field=f"features.{name}")
        if self.judged and not {self.active.score, self.both.score} <= {0, 1}:
            raise RecordError(f"got scores {self.active.score} and {self.both.score}, expected 0 or 1", field="judged")
        if not self.history and self.active.packet_sha256 != self.both.packet_sha256:
            raise RecordError("got two packets of a question for which HISTORY serves nothing", field="history")

    @property
    def needs_history(self) -> bool:
        """The gate's target: the arms answer differently. Never where HISTORY serves nothing."""
        if not self.history:
            return False
        if self.judged:
            return self.active.score != self.both.score
        return token_f1(self.active.answer, [self.both.answer]) < AGREE

    @classmethod
    def from_dict(cls, raw: Any, where: str = "replay") -> Replay:
        """Raises: RecordError."""
        parts = {}
        if isinstance(raw, dict):
            arms = [name for name in ("active", "both", "refilled") if raw.get(name) is not None]
            parts = {name: canonical.from_dict(Served, raw[name], f"{where}.{name}") for name in arms}
        return canonical.from_dict(cls, raw, where, **parts)


def write(path: str | os.PathLike, rows: Iterable[Replay]) -> int:
    """JSON Lines, whole or not at all. Returns the number of rows."""
    return write_jsonl(path, ({**dataclasses.asdict(r), "features": dict(r.features)} for r in rows))


def read(path: str | os.PathLike) -> list[Replay]:
    """Raises: RecordError with file, line and field: no such file, no row, a bad row, a question twice."""
    out: dict[str, Replay] = {}
    for line, raw in read_jsonl(path):
        try:
            row = Replay.from_dict(raw)
        except RecordError as e:
            raise RecordError(e.message, file=path, line=line, field=e.field) from None
        if row.question_id in out:
            raise RecordError(f"{row.question_id!r} stands twice", file=path, line=line, field="question_id")
        out[row.question_id] = row
    return list(out.values())


def digest(rows: Iterable[Replay]) -> str:
    """sha256 of the rows, in hexadecimal: names the data on which a gate was fitted."""
    return canonical.digest([{**dataclasses.asdict(r), "features": dict(r.features)} for r in rows])
