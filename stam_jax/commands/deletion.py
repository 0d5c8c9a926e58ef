"""`stam delete`: calibrate, plan, apply."""
from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterator
from typing import Any

from core_jax.records import RecordError
from stam_jax.commands.openers import needed
from stam_jax.config import Config
from stam_jax.deletion import plan as deletion
from stam_jax.deletion.conformal import Control
from stam_jax.deletion.endurance import CandidateRule, read_labels
from stam_jax.deletion.scorer import Scorer, examples, split
from stam_jax.graph.state import State
from stam_jax.read import search as read
from stam_jax.read.search import Vectors
from stam_jax.storage.store import Store


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    with Store.open(args.store) as store:
        return {"calibrate": _calibrate, "plan": _plan, "apply": _apply}[args.action](args, store)


def _patients(store: Store) -> Iterator[tuple[State, Vectors]]:
    return (read.snapshot(store, p) for p in store.patients())


def _scorer_file(calibration: str) -> str:
    return f"{calibration.removesuffix('.json')}.scorer.json"


def _calibrate(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """The labelled concept types fall into three parts: one trains the scorer, one calibrates, one tests."""
    needed(args, "labels", "out")
    labels, rule = read_labels(args.labels), CandidateRule()
    rows = [e for state, vectors in _patients(store) for e in examples(state, vectors, rule, labels)]
    if absent := sorted(set(labels) - {(e.patient_id, e.mid) for e in rows}):
        raise RecordError(f"{len(absent)} labelled memories are not in the store, patient {absent[0][0]!r} {absent[0][1]!r} among them",
                          file=args.labels)
    part = split(e.concept_type for e in rows)
    try:
        scorer = Scorer.fit([e for e in rows if part[e.concept_type] == "train"], store.table)
    except ValueError as e:
        raise ValueError(f"{args.labels}: labels {len(rows)} memories ({sum(e.in_history for e in rows)} in HISTORY) of {len(part)} concept types; "
                         f"half of the types teach, a third calibrate, and alpha 0.01 needs 99 that calibrate: {e}") from None
    made = deletion.calibrate(scorer, rule, [e for e in rows if part[e.concept_type] == "calibration"],
                              Control(alpha=args.alpha, loss=args.loss), dt.date.today().isoformat())
    held = [e for e in rows if part[e.concept_type] == "test"]
    gone = {(e.patient_id, e.mid) for e, s in zip(held, scorer.score(held)) if e.deletable and s >= made.tau(e.group)}
    scorer.save(_scorer_file(args.out))
    made.save(args.out)
    tested = deletion.diagnose({(e.patient_id, e.mid): e.label for e in held}, gone)
    return made.report() | {"test": tested.report(), "files": [args.out, _scorer_file(args.out)]}


def _plan(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    proposal, *_ = _proposal(args, store)
    return proposal.report() | {"would_delete": [[p.patient_id, p.mid, p.concept_type, round(p.score, 4)] for p in proposal.proposed]}


def _apply(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    needed(args, "id")
    proposal, scorer, rule, calibration = _proposal(args, store)
    versions = deletion.apply(store, proposal, scorer, rule, calibration, calibration_id=args.id)
    return proposal.report() | {"deleted": len(proposal.proposed), "versions": versions}


def _proposal(args: argparse.Namespace, store: Store):
    needed(args, "calibration")
    calibration, scorer, rule = deletion.Calibration.load(args.calibration), Scorer.load(_scorer_file(args.calibration)), CandidateRule()
    return deletion.plan(_patients(store), scorer, rule, calibration), scorer, rule, calibration
