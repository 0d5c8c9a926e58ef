"""The state machine of a memory: which moves exist, for which reasons, and what each needs.

    (new) -> ACTIVE               no transition: the insertion itself
    (new) -> HISTORY              PRIOR_STATE
    ACTIVE -> HISTORY             SUPERSEDED, RESOLVED, CORRECTED, RESTATED, EXPIRED
    HISTORY -> ACTIVE             REINSTATED, UNDO
    HISTORY -> DELETED            CALIBRATED_GATE, ERASURE_REQUEST
    ACTIVE -> DELETED             ERASURE_REQUEST, which only a user makes

Everything else raises `IllegalTransition`. Standard library only.
"""
from __future__ import annotations

import dataclasses
import re
from typing import Any

from core_jax.records import RecordError
from stam_jax.graph import canonical
from stam_jax.graph.memory import PLACES

LEGAL: dict[tuple[str | None, str], frozenset[str]] = {
    (None, "HISTORY"): frozenset({"PRIOR_STATE"}),
    ("ACTIVE", "HISTORY"): frozenset({"SUPERSEDED", "RESOLVED", "CORRECTED", "RESTATED", "EXPIRED"}),
    ("HISTORY", "ACTIVE"): frozenset({"REINSTATED", "UNDO"}),
    ("HISTORY", "DELETED"): frozenset({"CALIBRATED_GATE", "ERASURE_REQUEST"}),
    ("ACTIVE", "DELETED"): frozenset({"ERASURE_REQUEST"}),
}
REASONS = frozenset().union(*LEGAL.values())
SUCCESSOR_REQUIRED = frozenset({"SUPERSEDED", "RESTATED"})
SUCCESSOR_ALLOWED = SUCCESSOR_REQUIRED | {"RESOLVED", "CORRECTED", "PRIOR_STATE"}
CHAIN_ENDS = frozenset({"RESOLVED", "EXPIRED", "PRIOR_STATE", "CORRECTED"})  # may stand in HISTORY without a successor
DECIDERS = ("rule", "model", "user", "store")
_DECIDED_BY = re.compile(rf"({'|'.join(DECIDERS)})(:[\w .,:@+/\[\]-]{{1,120}})?")


class IllegalTransition(ValueError):
    """A move that the state machine does not have, or whose conditions are not met."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transition:
    """One move of one memory. from_ is None where the memory is new.

    successor: the memory that holds instead; also_by: others that would have archived it too.
    order: "known", or "assumed" where clinical time did not decide which of the two is later.
    decided_by: `rule`, `model`, `user` or `store`, with a detail after a colon (`rule:R9`, `model:C2 RESOLVED N1`);
        it outlives an erasure, so no words of the record belong into it.
    evidence_rid: the relation along which it was archived, the last one of the way from the new memory; via: those
        before it on the way, the first one first. score, tau, calibration_id: of the deletion gate.
    tid (`t<update_seq>.<place in the update>`), update_seq: given by the commit.

    Raises: RecordError naming the field; IllegalTransition: no such move, or its reason lacks or forbids a field.
    """

    mid: str
    from_: str | None
    to: str
    reason: str
    successor: str | None = None
    also_by: tuple[str, ...] = ()
    order: str = "known"
    decided_by: str = "rule"
    evidence_rid: str | None = None
    score: float | None = None
    tau: float | None = None
    calibration_id: str | None = None
    tid: str | None = None
    update_seq: int = 0
    via: tuple[str, ...] = ()

    def __post_init__(self):
        canonical.text(self.mid, "mid")
        if self.from_ is not None:
            canonical.choice(self.from_, "from_", PLACES)
        canonical.choice(self.to, "to", PLACES)
        canonical.choice(self.reason, "reason", REASONS)
        canonical.choice(self.order, "order", ("known", "assumed"))
        for name in ("successor", "evidence_rid", "calibration_id", "tid"):
            canonical.text(getattr(self, name), name, optional=True)
        object.__setattr__(self, "also_by", canonical.sequence(self.also_by, "also_by", str))
        object.__setattr__(self, "via", canonical.sequence(self.via, "via", str))
        canonical.integer(self.update_seq, "update_seq", 0)
        for name in ("score", "tau"):
            canonical.share(getattr(self, name), name, optional=True)
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))
        canonical.text(self.decided_by, "decided_by")
        if not _DECIDED_BY.fullmatch(self.decided_by):
            raise RecordError(f"got {self.decided_by!r:.80}, expected one of {DECIDERS}, with or without a short "
                              "detail after a colon", field="decided_by")
        if self.reason not in LEGAL.get((self.from_, self.to), ()):
            raise IllegalTransition(f"{self.mid}: {self.from_ or 'new'} -> {self.to} for {self.reason}: no such move")
        self._needs()

    def _needs(self):
        def refuse(why: str):
            raise IllegalTransition(f"{self.mid}: {self.reason}: {why}")

        if self.reason in SUCCESSOR_REQUIRED and self.successor is None:
            refuse("needs a successor")
        if self.successor is not None and self.reason not in SUCCESSOR_ALLOWED:
            refuse("has no successor")
        if self.mid in (self.successor, *self.also_by):
            refuse("a memory does not follow itself")
        if self.via and self.evidence_rid is None:
            refuse("a way needs its last relation")
        if self.reason == "CALIBRATED_GATE":
            if self.score is None or self.tau is None or self.calibration_id is None:
                refuse("needs score, tau and calibration_id")
            if self.score < self.tau:
                refuse(f"score {self.score} is below tau {self.tau}")
        elif (self.score, self.tau, self.calibration_id) != (None, None, None):
            refuse("score, tau and calibration_id belong to CALIBRATED_GATE")
        if self.reason == "ERASURE_REQUEST" and self.decided_by.split(":")[0] != "user":
            refuse(f"got decided_by {self.decided_by!r}, only a user erases")

    @property
    def way(self) -> tuple[str, ...]:
        """rids of the relations from the new memory to this one; empty where there were none."""
        return () if self.evidence_rid is None else (*self.via, self.evidence_rid)

    @classmethod
    def from_dict(cls, raw: Any, where: str = "transition") -> Transition:
        """Raises: RecordError, IllegalTransition."""
        return canonical.from_dict(cls, {"from_": None} | raw if isinstance(raw, dict) else raw, where)


def archive(mid: str, reason: str, **fields) -> Transition:
    """ACTIVE -> HISTORY."""
    return Transition(mid, "ACTIVE", "HISTORY", reason, **fields)


def prior(mid: str, **fields) -> Transition:
    """(new) -> HISTORY."""
    return Transition(mid, None, "HISTORY", "PRIOR_STATE", **fields)


def reinstate(mid: str, reason: str = "REINSTATED", **fields) -> Transition:
    """HISTORY -> ACTIVE."""
    return Transition(mid, "HISTORY", "ACTIVE", reason, **fields)


def delete(mid: str, score: float, tau: float, calibration_id: str, **fields) -> Transition:
    """HISTORY -> DELETED by the calibrated gate."""
    return Transition(mid, "HISTORY", "DELETED", "CALIBRATED_GATE", score=score, tau=tau,
                      calibration_id=calibration_id, **fields)
