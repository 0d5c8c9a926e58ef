"""Calibrated deletion: calibrate, plan, apply. Only what stands in HISTORY is ever deleted.

    part = parts([e for state, vectors in patients for e in examples(state, vectors, rule, labels)])
    scorer = Scorer.fit(part["train"], store.table)
    calibration = calibrate(scorer, rule, part["calibration"], Control(), date)
    judged = criteria(calibration, scorer, part["test"])            # what each criterion does to types not seen
    proposal = plan(patients, scorer, rule, calibration)            # changes nothing
    apply(store, proposal, scorer, rule, calibration, calibration_id=calibration.id)

A calibration is bound to its scorer, its candidate rule and its data by their hashes; with another of them it is stale,
and refused.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from core_jax.records import RecordError, atomic_write
from stam_jax.deletion import conformal as crc
from stam_jax.deletion.conformal import WARNING, Control, Level, Scored
from stam_jax.deletion.endurance import CandidateRule
from stam_jax.deletion.scorer import Example, Scorer, examples
from stam_jax.graph import canonical
from stam_jax.graph.state import State
from stam_jax.graph.transitions import delete
from stam_jax.graph.update import Commit
from stam_jax.read.search import Vectors
from stam_jax.readers.json_document import Document
from stam_jax.storage.store import Store

SCHEMA = "deletion calibration/2"
DECIDED_BY = "rule:deletion gate"


class StaleCalibration(ValueError):
    """A calibration that does not belong to this scorer, candidate rule, data or plan: calibrate again."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """control: what is held. rule: what is a candidate. rows: what it was calibrated on, without ids and texts. date:
    for the record only.

    id, levels and data_sha256 follow from the other fields, so a file whose rows were changed is another calibration.
    """

    control: Control
    scorer_sha256: str
    rule: CandidateRule
    rows: tuple[Scored, ...]
    date: str

    def __post_init__(self):
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=lambda r: dataclasses.astuple(r))))
        object.__setattr__(self, "_levels", crc.levels(self.rows, self.control))

    @property
    def levels(self) -> dict[str, Level]:
        """Group -> threshold; one group "all" unless `control.groups`."""
        return self._levels

    @property
    def data_sha256(self) -> str:
        return canonical.digest([list(dataclasses.astuple(r)) for r in self.rows])

    @property
    def id(self) -> str:
        return canonical.identifier("c", self.control.to_dict(), self.scorer_sha256, self.rule.sha256, self.data_sha256)

    def tau(self, group: str) -> float:
        """The threshold of a group; inf for one that calibration never saw."""
        level = self.levels.get(group if self.control.groups else "all")
        return math.inf if level is None else level.tau

    def check(self, scorer: Scorer, rule: CandidateRule) -> None:
        """Raises: StaleCalibration: made with another scorer or candidate rule."""
        for what, mine, given in (("scorer", self.scorer_sha256, scorer.sha256),
                                  ("candidate rule", self.rule.sha256, rule.sha256)):
            if mine != given:
                raise StaleCalibration(f"calibration {self.id}: made with {what} {mine[:16]}, now it is {given[:16]}")

    def report(self) -> dict[str, Any]:
        """Thresholds with what they rest on, those of other criteria, and the warning."""
        return {"id": self.id, "date": self.date, **self.control.to_dict(), "memories": len(self.rows),
                "candidates": {"age": self.rule.age, "floors": list(self.rule.floors)},
                "scorer_sha256": self.scorer_sha256, "rule_sha256": self.rule.sha256, "data_sha256": self.data_sha256,
                "levels": _told(self.levels),
                **_told(self.others()), "warning": WARNING}

    def others(self) -> dict[str, Level]:
        """The threshold of other criteria on the same rows, without groups: name -> threshold."""
        base = dataclasses.replace(self.control, groups=False)
        return {"if_nonempty_types_only": crc.calibrate(self.rows, dataclasses.replace(base, nonempty=True)),
                "if_never_forget_only": crc.calibrate(self.rows, dataclasses.replace(base, protect=("never-forget",))),
                "with_probability_0.9": crc.learn_then_test(self.rows, base, Fraction(1, 10)),
                "with_probability_0.95": crc.learn_then_test(self.rows, base, Fraction(1, 20))}

    def save(self, path: str | os.PathLike) -> None:
        raw = {"schema": SCHEMA, "id": self.id, "data_sha256": self.data_sha256, "date": self.date,
               "control": self.control.to_dict(), "scorer_sha256": self.scorer_sha256, "rule_sha256": self.rule.sha256,
               "rule": dataclasses.asdict(self.rule), "warning": WARNING,
               "levels": {g: _number(level.tau) for g, level in self.levels.items()},
               "rows": [canonical.to_dict(r) for r in self.rows]}
        with atomic_write(path) as f:
            f.write(json.dumps(raw, ensure_ascii=False, allow_nan=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> Calibration:
        """Raises: RecordError naming file and field; StaleCalibration: its rows are not those it was made from."""
        try:
            raw = Document(path).root
            if not isinstance(raw, dict):
                raise RecordError(f"got {type(raw).__name__}, expected an object")
            canonical.choice(raw.get("schema"), "schema", (SCHEMA,))
            for name in ("id", "date", "data_sha256", "scorer_sha256", "rule_sha256"):
                canonical.text(raw.get(name), name)
            control = canonical.from_dict(Control, raw.get("control"), "control")
            rule = canonical.from_dict(CandidateRule, raw.get("rule"), "rule")
            rows = canonical.sequence(raw.get("rows"), "rows", dict)
            rows = tuple(canonical.from_dict(Scored, r, f"rows[{i}]") for i, r in enumerate(rows))
        except RecordError as e:
            raise RecordError(e.message, file=path, field=e.field) from None
        except ValueError as e:
            raise RecordError(f"is no calibration: {e!r:.120}", file=path) from None
        if rule.sha256 != raw["rule_sha256"]:
            raise StaleCalibration(f"{os.fspath(path)}: what is a candidate was changed since it was made; "
                                   "calibrate again")
        out = cls(control, raw["scorer_sha256"], rule, rows, raw["date"])
        taus = {g: _number(level.tau) for g, level in out.levels.items()}
        if (out.id, out.data_sha256, taus) != (raw["id"], raw["data_sha256"], raw.get("levels")):
            raise StaleCalibration(f"{os.fspath(path)}: its rows or settings were changed since it was made; "
                                   "calibrate again")
        return out


def _number(tau: float) -> float | str:
    return tau if math.isfinite(tau) else str(tau)


def calibrate(scorer: Scorer, rule: CandidateRule, rows: Sequence[Example], control: Control, date: str) -> Calibration:
    """On labelled memories of units that the scorer has not seen, ACTIVE ones among them.

    date: put down, not used. Raises: ValueError: a unit that the scorer was trained on, an example without a label.
    """
    if seen := sorted({e.concept_type for e in rows} & set(scorer.types)):
        raise ValueError(f"{len(seen)} concept types were seen in training, {seen[0]!r} among them: the bound would "
                         "not hold")
    return Calibration(control, scorer.sha256, rule, scored(scorer, rows), date)


def scored(scorer: Scorer, rows: Sequence[Example]) -> tuple[Scored, ...]:
    """Raises: ValueError: an example without a label."""
    if bare := [e.mid for e in rows if e.label is None]:
        raise ValueError(f"{bare[0]} has no label")
    return tuple(Scored(e.concept_type, e.label, s, e.deletable, e.group) for e, s in zip(rows, scorer.score(rows)))


def _told(found: Mapping[str, Level]) -> dict[str, dict[str, Any]]:
    return {name: {"tau": _number(x.tau), "types": x.types, "total_loss": float(x.total), "slack": float(x.slack)}
            for name, x in found.items()}


# ---- plan and apply -----------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, slots=True)
class Proposed:
    """One memory that would go: score >= tau."""

    patient_id: str
    mid: str
    concept_type: str
    group: str
    score: float
    tau: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What would be deleted, by which calibration, from which versions of the patients. memories: how many exist."""

    calibration_id: str
    versions: Mapping[str, int]
    memories: int
    candidates: int
    proposed: tuple[Proposed, ...]

    def report(self) -> dict[str, Any]:
        return {"calibration_id": self.calibration_id, "patients": len(self.versions), "memories": self.memories,
                "candidates": self.candidates, "proposed": len(self.proposed),
                "removed_share": len(self.proposed) / self.memories if self.memories else 0.0,
                "warning": WARNING}


def plan(patients: Iterable[tuple[State, Vectors]], scorer: Scorer, rule: CandidateRule, calibration: Calibration
         ) -> Plan:
    """What the gate would delete; nothing is changed. Raises: StaleCalibration; ValueError: a patient twice."""
    calibration.check(scorer, rule)
    versions: dict[str, int] = {}
    memories = candidates = 0
    proposed: list[Proposed] = []
    for state, vectors in patients:
        if state.patient_id in versions:
            raise ValueError(f"patient {state.patient_id!r} stands twice")
        versions[state.patient_id] = state.version
        memories += len(state.memories)
        rows = [e for e in examples(state, vectors, rule) if e.deletable]
        candidates += len(rows)
        proposed += [Proposed(e.patient_id, e.mid, e.concept_type, e.group, s, tau)
                     for e, s in zip(rows, scorer.score(rows)) if s >= (tau := calibration.tau(e.group))]
    return Plan(calibration.id, versions, memories, candidates, tuple(proposed))


def apply(store: Store, proposal: Plan, scorer: Scorer, rule: CandidateRule, calibration: Calibration, *,
          calibration_id: str) -> dict[str, int]:
    """Delete what was planned, and leave no text of it on disk. Returns patient id -> new version.

    calibration_id: the id that the user names, as a sign that they saw the calibration.
    Raises: StaleCalibration: another calibration, scorer, rule or threshold than planned; StaleVersion: a patient went
        on meanwhile (nothing was deleted: plan again); ValueError: a planned memory is no candidate; StoreBusy: of the
        commit (nothing was deleted) or of the compaction (deleted, but `store.compact()` is due).
    """
    calibration.check(scorer, rule)
    if not calibration_id == calibration.id == proposal.calibration_id:
        raise StaleCalibration(f"got calibration {calibration_id!r}, expected {calibration.id} and a plan made with it "
                               f"(the plan has {proposal.calibration_id})")
    by: dict[str, list[Proposed]] = {}
    for p in proposal.proposed:
        if p.tau != calibration.tau(p.group) or not p.score >= p.tau:
            raise StaleCalibration(f"patient {p.patient_id!r}: {p.mid}: got score {p.score} and tau {p.tau}, expected "
                                   f"tau {calibration.tau(p.group)} and no lower score")
        by.setdefault(p.patient_id, []).append(p)
    commits = []
    for patient_id, going in by.items():
        state = store.state(patient_id)
        if state.version == proposal.versions[patient_id]:
            verdicts = rule.verdicts(state)
            for p in going:
                if why := verdicts.get(p.mid, "is not there"):
                    raise ValueError(f"patient {patient_id!r}: {p.mid} {why}")
        moves = tuple(delete(p.mid, p.score, p.tau, calibration.id, decided_by=DECIDED_BY) for p in going)
        commits.append(Commit(patient_id, proposal.versions[patient_id], transitions=moves,
                              model_hashes={"deletion_scorer": scorer.sha256}))
    versions = store.commit(commits)
    store.compact()  # what an apply that was killed left due, too
    return versions


# ---- diagnostics --------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """What went, by endurance label, over all labelled memories of a store (the paper's Appendix F)."""

    memories: int
    removed: int
    safe: int
    removed_safe: int
    never: int
    removed_never: int
    mean_loss: float | None = None  # over the units, by the calibrated loss; None where units were not looked at

    @property
    def removed_share(self) -> float:
        return self.removed / self.memories if self.memories else 0.0

    @property
    def safe_precision(self) -> float | None:
        return self.removed_safe / self.removed if self.removed else None

    @property
    def safe_recall(self) -> float | None:
        return self.removed_safe / self.safe if self.safe else None

    @property
    def never_loss(self) -> float | None:
        return self.removed_never / self.never if self.never else None

    def report(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "removed_share": self.removed_share, "safe_precision": self.safe_precision,
                "safe_recall": self.safe_recall, "never_forget_loss": self.never_loss, "warning": WARNING}


def diagnose(labels: Mapping[tuple[str, str], str], removed: Collection[tuple[str, str]]) -> Diagnostics:
    """labels: (patient_id, mid) -> label of every memory. Raises: ValueError: a removed memory without a label."""
    if bare := sorted(set(removed) - set(labels)):
        raise ValueError(f"{bare[0]} has no label")
    gone = [labels[key] for key in set(removed)]
    total = list(labels.values())
    return Diagnostics(len(total), len(gone), total.count("safe-to-forget"), gone.count("safe-to-forget"),
                       total.count("never-forget"), gone.count("never-forget"))


def judge(rows: Sequence[Scored], gone: Sequence[bool], control: Control) -> Diagnostics:
    """What it means that the rows for which `gone` holds are deleted."""
    labels = {("", str(i)): r.label for i, r in enumerate(rows)}
    found = diagnose(labels, [("", str(i)) for i, g in enumerate(gone) if g])
    losses = crc.type_losses([dataclasses.replace(r, deletable=bool(g)) for r, g in zip(rows, gone)], 0.0, control)
    return dataclasses.replace(found, mean_loss=float(sum(losses.values()) / len(losses)) if losses else None)


def criteria(calibration: Calibration, scorer: Scorer, rows: Sequence[Example]) -> dict[str, Diagnostics]:
    """What each criterion does to labelled memories of units that were not calibrated on (paper F.2, F.4, F.5).

    "calibrated": as it is applied; then those of `Calibration.others`, every candidate, and all that stands in HISTORY.
    Their mean loss is that of the calibrated loss.
    """
    held, control = scored(scorer, rows), calibration.control
    gone = {"calibrated": [r.deletable and r.score >= calibration.tau(r.group) for r in held]}
    gone |= {name: [r.deletable and r.score >= level.tau for r in held] for name, level in calibration.others().items()}
    gone |= {"every_candidate": [e.deletable for e in rows], "all_history": [e.in_history for e in rows]}
    return {name: judge(held, own, control) for name, own in gone.items()}
