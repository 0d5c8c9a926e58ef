"""`evigen cohort`: one function a source, from its files to a cohort folder."""
from __future__ import annotations

import argparse
import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from core_jax import settings
from core_jax.readers import clinosim, jsonl, meds, mimic_iv
from core_jax.records import Label, Patient, RecordError, read_labels
from core_jax.synth.cohort import TASK as PLANTED_TASK
from core_jax.synth.cohort import PlantedConfig, generate
from evigen_jax import cohorts
from evigen_jax.config import CohortConfig

MORTALITY = {"name": "mortality_1y", "sentence": "death from any cause within one year after the last hospital discharge"}
CLINOSIM = {"name": "mortality_1y", "sentence": "death from any cause within one year after the prediction time"}


def build(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    """Read the source named by the arguments and write its cohort folder; returns the summary that is printed.

    Raises: ValueError, OSError: a flag that the source needs or does not take; what readers and builders raise.
    """
    needs = {"planted": (), "meds": ("input", "labels"), "jsonl": ("input",)}.get(args.source, ("input",))
    for flag in needs:
        if getattr(args, flag) is None and not (args.source in ("jsonl", "meds") and flag == "labels" and args.spec):
            raise ValueError(f"{args.source} needs --{flag}")
    if args.source == "jsonl" and (args.labels is None) == (args.spec is None):
        raise ValueError("jsonl needs either --labels (they exist) or --spec (an age-cutoff cohort is built)")
    if args.source == "planted" and args.input is not None:
        raise ValueError("planted is generated; it takes no --input")
    if args.task is not None and (args.source not in ("jsonl", "meds") or args.spec is not None):
        raise ValueError("--task words the labels of jsonl or meds; the other cohorts have their own sentence")
    if args.spec is not None and args.source not in ("jsonl", "meds"):
        raise ValueError(f"--spec builds an age-cutoff cohort from jsonl or meds, not from {args.source}")
    make = {"mimic_iv": _mimic, "meds": _meds, "clinosim": _clinosim, "jsonl": _jsonl, "planted": _planted}[args.source]
    try:
        return make(args, config)
    except RecordError as e:
        if e.file is not None:
            raise
        raise RecordError(e.message, file=args.labels or args.input, field=e.field) from None  # found while joining the two


def _mimic(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    counts = Counter()
    notes = pathlib.Path(args.input) / "note"
    if config.notes == "discharge" and not any((notes / f"discharge.csv{end}").exists() for end in (".gz", "")):
        raise RecordError("no discharge.csv.gz here; --notes rendered writes notes from the tables, --notes none goes without",
                          file=notes)
    stays = mimic_iv.read_index_stays(args.input)

    def patients(subjects=None) -> Iterator[Patient]:
        return mimic_iv.read(args.input, subjects, config.notes, counts=counts)

    labels, attrition = cohorts.mimic_mortality(patients(), stays, config.criteria, config.keep_in_hospital_deaths)
    counts.clear()
    return _write(args, config, lambda: patients({x.patient_id for x in labels}), labels, attrition, counts, source="mimic_iv",
                  task=MORTALITY, criteria=config.criteria, notes_rendered=config.notes == "rendered")


def _meds(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    counts = Counter()

    def patients() -> Iterator[Patient]:
        return meds.read(args.input, counts=counts)

    if args.spec is not None:
        return _age_cutoff(args, config, patients, counts, "meds")
    labels = meds.read_labels(args.labels)
    return _write(args, config, patients, labels, _given(labels), counts, source="meds", task=_task(args), criteria="labels given")


def _jsonl(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    def patients() -> Iterator[Patient]:
        return jsonl.read(args.input)

    if args.spec is not None:
        return _age_cutoff(args, config, patients, Counter(), "jsonl")
    labels = read_labels(args.labels)
    return _write(args, config, patients, labels, _given(labels), Counter(), source="jsonl", task=_task(args), criteria="labels given")


def _age_cutoff(args, config, patients: Callable[[], Iterator[Patient]], counts: Counter, source: str) -> dict[str, Any]:
    named = {"autism": cohorts.AUTISM, "adhd": cohorts.ADHD}
    if args.spec in named:
        spec = named[args.spec]
    else:
        try:
            raw = json.loads(pathlib.Path(args.spec).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as e:
            raise RecordError(f"not valid JSON: {e}", file=args.spec) from None
        spec = settings.from_dict(cohorts.AgeCutoff, _tuples(raw), args.spec)
    labels, attrition = cohorts.age_cutoff(patients(), spec)
    counts.clear()
    task = {"name": spec.name, "sentence": f"a diagnosis of {spec.name} at any time after the age of {spec.cutoff_months} months"}
    return _write(args, config, patients, labels, attrition, counts, source=source, task=task, criteria=f"age cutoff: {spec.name}")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else (
        {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value)


def _clinosim(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    counts = Counter()

    def patients() -> Iterator[Patient]:
        return clinosim.read(args.input, counts=counts)

    labels, attrition = cohorts.clinosim_mortality(patients(), age_matched=config.age_matched, seed=config.seed)
    counts.clear()
    return _write(args, config, patients, labels, attrition, counts, source="clinosim", task=CLINOSIM,
                  criteria="index encounter" + (f", {config.age_matched} survivors matched on age" if config.age_matched else ""))


def _planted(args: argparse.Namespace, config: CohortConfig) -> dict[str, Any]:
    planted = PlantedConfig(n=config.planted_patients, seed=config.seed)
    rows = list(generate(planted))
    labels = [r.label for r in rows]
    summary = _write(args, config, lambda: (r.patient for r in rows), labels, _given(labels), Counter(), source="planted",
                     task=PLANTED_TASK, criteria="none", gold=(r.gold for r in rows))
    return summary | {"gold": os.path.join(args.out, "gold.jsonl.gz")}


def _task(args: argparse.Namespace) -> dict[str, str]:
    return {"name": "outcome", "sentence": args.task or "the outcome that the labels record"}


def _given(labels: list[Label]) -> cohorts.Attrition:
    return [{"criterion": "labels given", "patients": len(labels), "positive": sum(x.label for x in labels), "applied": True}]


def _write(args, config: CohortConfig, patients: Callable[[], Iterator[Patient]], labels: list[Label], attrition, counts: Counter,
           **about: Any) -> dict[str, Any]:
    """Split where the labels bring no split of their own, write, and log the two tables."""
    import logging

    if not any(x.split for x in labels):
        labels = cohorts.split(labels, config.seed, config.fractions)
    elif any(x.split is None for x in labels):
        raise RecordError("some labels have a split and some have none; give all of them one, or none", file=args.labels, field="split")
    info = cohorts.write_cohort(args.out, patients(), labels, attrition, warnings=counts, overwrite=args.overwrite, **about)
    lengths = json.loads((pathlib.Path(args.out) / "lengths.json").read_text(encoding="utf-8"))
    log = logging.getLogger("evigen")
    if len(labels) < 200:
        log.warning("%d patients: a test split this small says little; `evigen eval` reports out-of-fold AUC instead", len(labels))
    log.info("%s\n\n%s", cohorts.attrition_table(attrition), cohorts.lengths_table(lengths["all"], f"in {lengths['unit']}"))
    return {"cohort": os.fspath(args.out), "task": info["task"], "criteria": info["criteria"], "counts": info["counts"],
            "attrition": attrition, "history_length": lengths, "warnings": info["warnings"],
            **({"note": "the notes are rendered from the structured rows, so they restate the codes"} if info["notes_rendered"] else {})}
