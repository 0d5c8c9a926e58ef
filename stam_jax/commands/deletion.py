"""`stam delete`: label, calibrate, plan, apply."""
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
from stam_jax.deletion.endurance import CandidateRule, read_labels, write_labels
from stam_jax.deletion.scorer import Scorer, examples, parts
from stam_jax.graph.state import State
from stam_jax.read import search as read
from stam_jax.read.search import Vectors
from stam_jax.storage.store import Store


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    with Store.open(args.store) as store:
        return {"label": _label, "calibrate": _calibrate, "plan": _plan, "apply": _apply}[args.action](args, store)


def _patients(store: Store, only: list[str] | None = None) -> Iterator[tuple[State, Vectors]]:
    """Raises: LookupError: a patient that the store does not know."""
    known = store.patients()
    if unknown := sorted(set(only or ()) - set(known)):
        raise LookupError(f"--patient {unknown[0]!r}: the store does not know it")
    return (read.snapshot(store, p) for p in known if only is None or p in only)


def _scorer_file(calibration: str) -> str:
    return f"{calibration.removesuffix('.json')}.scorer.json"


def _label(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """What the gold of planted timelines says of the memories that a store made of them."""
    from core_jax.synth.timeline_gold import read_timelines
    from stam_jax.benchmarks.deletion import endurance_of

    needed(args, "timelines", "out")
    known, labels = set(store.patients()), {}
    for timeline in read_timelines(args.timelines):
        if timeline.patient_id in known:
            found = endurance_of(timeline, store.state(timeline.patient_id))
            labels |= {(timeline.patient_id, mid): label for mid, label in found.items()}
    if not labels:
        raise RecordError("has no patient of the store", file=args.timelines)
    write_labels(args.out, labels)
    counts = {label: sum(x == label for x in labels.values()) for label in sorted(set(labels.values()))}
    return {"patients": len({p for p, _ in labels}), "memories": len(labels), "labels": counts, "out": args.out}


def _calibrate(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    """The labelled units fall into three parts: one trains the scorer, one calibrates, one tests."""
    needed(args, "labels", "out")
    control = Control(alpha=args.alpha, loss=args.loss, uncertain=args.uncertain, nonempty=args.nonempty,
                      groups=args.groups, unit=args.unit)
    labels, rule = read_labels(args.labels), CandidateRule(age=args.age)
    rows = [e for state, vectors in _patients(store) for e in examples(state, vectors, rule, labels)]
    if absent := sorted(set(labels) - {(e.patient_id, e.mid) for e in rows}):
        raise RecordError(f"{len(absent)} labelled memories are not in the store, patient {absent[0][0]!r} "
                          f"{absent[0][1]!r} among them", file=args.labels)
    part = parts(rows, args.unit)
    try:
        scorer = Scorer.fit(part["train"], store.table)
    except ValueError as e:
        units = len({e.concept_type for own in part.values() for e in own})
        past = sum(e.in_history for e in rows)
        raise ValueError(f"{args.labels}: labels {len(rows)} memories ({past} in HISTORY) of {units} units; half of "
                         f"them teach, a third calibrate, and alpha 0.01 needs 99 that calibrate: {e}") from None
    made = deletion.calibrate(scorer, rule, part["calibration"], control, dt.date.today().isoformat())
    scorer.save(_scorer_file(args.out))
    made.save(args.out)
    tested = {name: {k: v for k, v in d.report().items() if k != "warning"}
              for name, d in deletion.criteria(made, scorer, part["test"]).items()}
    return made.report() | {"test": tested, "files": [args.out, _scorer_file(args.out)]}


def _plan(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    proposal, *_ = _proposal(args, store)
    return proposal.report() | {"would_delete": [[p.patient_id, p.mid, p.concept_type, round(p.score, 4)]
                                                 for p in proposal.proposed]}


def _apply(args: argparse.Namespace, store: Store) -> dict[str, Any]:
    needed(args, "id")
    proposal, scorer, calibration = _proposal(args, store)
    versions = deletion.apply(store, proposal, scorer, calibration.rule, calibration, calibration_id=args.id)
    return proposal.report() | {"deleted": len(proposal.proposed), "versions": versions}


def _proposal(args: argparse.Namespace, store: Store) -> tuple[deletion.Plan, Scorer, deletion.Calibration]:
    needed(args, "calibration")
    calibration, scorer = deletion.Calibration.load(args.calibration), Scorer.load(_scorer_file(args.calibration))
    return deletion.plan(_patients(store, args.patient), scorer, calibration.rule, calibration), scorer, calibration
