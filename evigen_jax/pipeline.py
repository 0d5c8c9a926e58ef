"""The steps behind the `evigen` command: each reads files, calls one library function, writes one result, returns a summary."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from core_jax import settings
from core_jax.embed import embed_cohort, load_encoder
from core_jax.engine.load import load_backend
from core_jax.records import read_jsonl, write_jsonl
from evigen_jax import cohorts, crossval, demo, explain, metrics, sources, summaries, train, verify, writer
from evigen_jax.config import Config
from evigen_jax.evidence import check_sources, validate_pack
from evigen_jax.generate import TemplateGenerator
from evigen_jax.inputs import load
from evigen_jax.partial import Partial
from evigen_jax.rationale import rationale_sha256, validate_rationale
from evigen_jax.report import write_report
from evigen_jax.retriever import EviGenConfig


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One command. Raises: ValueError, OSError on bad input; nothing is half-written then."""
    config = settings.load(args.config, Config) if args.config else Config()
    config = _flags(settings.override(config, args.set), args)
    _check_out(args)
    try:
        return STEPS[args.command](args, config)
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full and e.filename is None and e.strerror == os.strerror(e.errno):  # as it comes from write(), without the file
            raise OSError(e.errno, e.strerror, args.out) from e
        raise


_INPUTS = ("input", "labels", "cohort", "store", "run", "packs", "rationales", "verifications", "predictions")
_RUN_FILES = ("runs.json", "config.json", "result.json", "metrics.jsonl", "curves.png", "checkpoints")


def _check_out(args: argparse.Namespace) -> None:
    """No result over what it is made from, nor over a device; a link named by --out keeps pointing at the result.

    Raises: ValueError: --out is an input, lies in a cohort, a store or among a run's files, or holds an input; it is
        neither a file nor a folder.
    """
    if args.command == "demo":
        return
    if not args.out:
        raise ValueError("--out: got an empty path")
    out = os.path.realpath(args.out)
    if os.path.islink(args.out):
        args.out = out
    if os.path.exists(out) and not (os.path.isfile(out) or os.path.isdir(out)):
        raise ValueError(f"{args.out}: neither a file nor a folder; results are renamed into place, name another path")
    for name in _INPUTS:
        if (given := getattr(args, name, None)) is None:
            continue
        path = os.path.realpath(given)
        inside = os.path.relpath(out, path).split(os.sep)
        sealed = name in ("cohort", "store") and inside[0] != os.pardir
        owned = name == "run" and (inside[0] in _RUN_FILES or inside[0].startswith("seed_"))
        holds = args.command in ("cohort", "report") and os.path.relpath(path, out).split(os.sep)[0] != os.pardir
        if out == path or sealed or owned or (holds and os.path.isdir(out)):
            raise ValueError(f"--out {args.out} would write over --{name} {given}; name another path")


def _flags(config: Config, args: argparse.Namespace) -> Config:
    """Flags that stand for settings: they win over --set and --config."""
    change = dataclasses.replace
    if args.seed is not None:
        config = change(config, cohort=change(config.cohort, seed=args.seed), train=change(config.train, seed=args.seed))
    cohort = {k: getattr(args, k, None) for k in ("criteria", "notes")}
    cohort = {k: v for k, v in cohort.items() if v is not None}
    if getattr(args, "keep_in_hospital_deaths", False):
        cohort["keep_in_hospital_deaths"] = True
    explained = {"k": args.k} if getattr(args, "k", None) is not None else {}
    if getattr(args, "notes_only", False):
        explained["notes_only"] = True
    return change(config, cohort=change(config.cohort, **cohort), explain=change(config.explain, **explained))


def _progress(args: argparse.Namespace) -> bool:
    """Bars where somebody looks: stderr is a terminal and --quiet was not given."""
    return not args.quiet and sys.stderr.isatty()


def cohort(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    return sources.build(args, config.cohort)


def embed(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    found = cohorts.read_cohort(args.cohort)
    encoder = load_encoder(config.encoder.name, config.encoder.pooling, dtype=config.encoder.weights)
    return embed_cohort(found.visible_patients(), encoder, args.out, unit=config.observations.unit, size=config.observations.size,
                        overlap=config.observations.overlap, dtype=config.encoder.dtype, progress=_progress(args),
                        total=len(found.labels))


def train_(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    data = load(args.cohort, args.store, progress=_progress(args))
    model = _model(config, data.store.dim)
    with _alone(args.out):
        steps = config.train.epochs * -(-sum(x.split == "train" for x in data.labels) // config.train.batch_patients)
    if config.train.warmup_steps >= steps:
        logging.getLogger("evigen").warning("%d steps in all never leave the warm-up of %d; lower it with --set train.warmup_steps=%d",
                                            steps, config.train.warmup_steps, max(1, steps // 10))
    done = train.fit_runs(data.packed, data.labels, model, config.train, args.out, runs=args.runs, info=data.info(),
                              resume=not args.no_resume, progress=_progress(args))
    return {"run": args.out} | done.summary


def evaluate(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    data = load(args.cohort, args.store, progress=_progress(args))
    model = _model(config, data.store.dim)
    with _alone(args.out):
        return crossval.evaluate(data, model, config.train, args.out, folds=args.folds, repeats=args.repeats,
                                 resume=not args.no_resume, progress=_progress(args))


def _model(config: Config, dim: int) -> EviGenConfig:
    """Raises: ValueError where the settings ask for another width than the store's."""
    if config.model.d not in (Config().model.d, dim):
        raise ValueError(f"model.d: got {config.model.d}, the store has {dim}; leave it out, it is taken from the store")
    return dataclasses.replace(config.model, d=dim)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """The only process that trains into `folder`; a folder made for it is removed again where nothing was written.

    Raises: ValueError where another process does.
    """
    made = not os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise ValueError(f"{folder}: another process is training into this folder; wait for it, or name another") from None
    try:
        yield
    finally:
        if made and not os.listdir(folder):
            os.rmdir(folder)
        os.close(held)


def predict(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    data, params, model, record = _trained(args)
    rows = summaries.predictions(data, params, model, args.split)
    write_jsonl(args.out, rows)
    split, held = summaries.scored(rows)
    return {"predictions": args.out, "patients": len(rows), "scored_split": split, **metrics.scores_or_none(held),
            "subgroups": metrics.subgroups(held, [data.patients[r["patient_id"]] for r in held]),
            "activation": summaries.activation(rows, model)}


def _trained(args: argparse.Namespace, only: list[str] | None = None):
    """Inputs and the best run's parameters, checked to belong together."""
    params, model, record = train.load_run(args.run)
    data = load(args.cohort, args.store, only=only, progress=_progress(args))
    made = record["info"].get("encoder_id")
    if made != data.store.encoder_id:
        raise ValueError(f"{args.run}: trained on vectors of encoder {made!r}, the store has {data.store.encoder_id!r}; "
                         "embed with that encoder (--set encoder.name=...) into another store, or train on this one")
    return data, params, model, record


def explain_(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    data, params, model, record = _trained(args, args.patient)
    packs = list(explain.packs(data, params, model, config.explain, split=None if args.patient else args.split,
                               run_id=explain.run_id(record), progress=_progress(args)))
    write_jsonl(args.out, packs)
    gaps = sorted(p["completeness_gap"] for p in packs)
    return {"packs": args.out, "patients": len(packs), "items": sum(len(p["items"]) for p in packs),
            "completeness_gap": {"median": gaps[len(gaps) // 2], "max": gaps[-1]} if gaps else None,
            "not_converged": sum(not p["converged"] for p in packs)}


def generate(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    packs = _read(args.packs, validate_pack)
    adapter = config.generate.adapter
    if args.model is None:
        if adapter is not None:
            raise ValueError(f"generate.adapter: got {adapter!r} for the template writer, expected --model with its base")
        generator = TemplateGenerator()
        write_jsonl(args.out, generator.generate(packs))
        return {"rationales": args.out, "patients": len(packs), "generator": generator.name, "is_llm": generator.is_llm}
    backend = load_backend(args.model, rows=config.generate.rows, dtype=config.generate.dtype, length=config.generate.length,
                           adapters=None if adapter is None else {adapter: adapter}, concurrency=config.generate.concurrency)
    rationales, counts = writer.write(packs, backend, config.generate, args.out, progress=_progress(args))
    write_jsonl(args.out, rationales)
    Partial(args.out).done()
    return {"rationales": args.out, "patients": len(packs), "generator": writer.NAME, "is_llm": True, "model": backend.model,
            **({} if adapter is None else {"adapter": adapter})} | counts


def verify_(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    found = cohorts.read_cohort(args.cohort)
    packs = {p["patient_id"]: p for p in _read(args.packs, validate_pack)}
    rationales = _read(args.rationales, validate_rationale)
    if strange := [r["patient_id"] for r in rationales if r["patient_id"] not in packs]:
        raise ValueError(f"{args.rationales}: patient {strange[0]!r} has no evidence pack in {args.packs}; generate again from these packs")
    wanted = {r["patient_id"] for r in rationales}
    _same_moment([packs[i] for i in wanted], found.labels, args.packs)
    patients = {p.patient_id: p for p in found.visible_patients() if p.patient_id in wanted}
    if missing := sorted(wanted - patients.keys()):
        raise ValueError(f"{args.cohort}: no patient {missing[0]!r}, whose rationale is in {args.rationales}; "
                         "name the cohort that the packs were explained with")
    for r in rationales:
        try:
            check_sources(packs[r["patient_id"]], patients[r["patient_id"]])
        except ValueError as e:
            raise ValueError(f"{args.packs}: {e}; {args.cohort} changed since, explain again") from None
    _same_prediction(rationales, packs, args.rationales)
    checked = verify.verify_many([(r, patients[r["patient_id"]], packs[r["patient_id"]]) for r in rationales],
                                 workers=config.verify.workers, threshold=config.verify.threshold)
    write_jsonl(args.out, checked)
    return {"verifications": args.out} | verify.summary(checked)


def report(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    packs = _read(args.packs, validate_pack)
    data, params, model, record = _trained(args)
    rows = _read(args.predictions, summaries.check_prediction)
    rationales = _read(args.rationales, validate_rationale)
    verified = _read(args.verifications, verify.validate_verification)
    predicted = {r["patient_id"]: r for r in rows}
    for pack in packs:  # packs, predictions and parameters of one run, on one cohort
        _same(pack, {"run_id": explain.run_id(record), "encoder_id": data.store.encoder_id, "task": data.cohort.info["task"]}, args.packs)
        row = predicted.get(pack["patient_id"])
        if row is not None and abs(row["prob"] - pack["prob"]) > 1e-4:
            raise ValueError(f"{args.predictions}: patient {pack['patient_id']!r}: prob: got {row['prob']!r}, its evidence pack has "
                             f"{pack['prob']!r}; predict and explain again with one run")
    _same_moment(packs, data.labels, args.packs)
    for path, others in ((args.rationales, rationales), (args.verifications, verified)):
        if strange := [r["patient_id"] for r in others if r["patient_id"] not in {p["patient_id"] for p in packs}]:
            raise ValueError(f"{path}: patient {strange[0]!r} has no evidence pack in {args.packs}; generate and verify again from these packs")
    _same_prediction(rationales, {p["patient_id"]: p for p in packs}, args.rationales)
    _same_rationales(verified, {r["patient_id"]: r for r in rationales}, args.verifications, args.rationales)
    info = summaries.run_info(data, params, model, record, rows, run_id=explain.run_id(record))
    wanted = {p["patient_id"] for p in packs}
    patients = {i: p for i, p in data.patients.items() if i in wanted}
    page = write_report(packs, rationales, verified, patients, rows, info, args.out, deidentify=args.deidentify)
    return {"report": os.fspath(page), "patients": len(packs)}


def _same(pack: dict[str, Any], expected: dict[str, Any], path: str) -> None:
    """Raises: ValueError naming the first field in which a pack is not of this run or this cohort."""
    for name, value in expected.items():
        if pack[name] != value:
            raise ValueError(f"{path}: patient {pack['patient_id']!r}: {name}: got {pack[name]!r}, expected {value!r}; explain again")


def _same_moment(packs: list[dict[str, Any]], labels, path: str) -> None:
    times = {x.patient_id: x.prediction_time for x in labels}
    for pack in packs:
        if pack["patient_id"] in times:
            _same(pack, {"prediction_time": times[pack["patient_id"]]}, path)


def _same_prediction(rationales: list[dict[str, Any]], packs: dict[str, Any], path: str) -> None:
    """Raises: ValueError naming a rationale that was not written over its patient's pack."""
    for r in rationales:
        if (pack := packs.get(r["patient_id"])) is None:
            continue  # whoever joins them refuses it
        for name, value in (("prediction_time", pack["prediction_time"]), ("task", pack["task"]["name"]), ("probability", pack["prob"])):
            if r[name] != value:
                raise ValueError(f"{path}: patient {r['patient_id']!r}: {name}: got {r[name]!r}, its evidence pack has {value!r}; generate again")
        attribution = {item["obs_id"]: item["attribution"] for item in pack["items"]}
        for f in r["factors"]:  # one beyond the pack has attribution 0
            if f["attribution"] != attribution.get(f["obs_id"], 0.0):
                raise ValueError(f"{path}: patient {r['patient_id']!r}: factor {f['rank']} ({f['obs_id']}): attribution: got {f['attribution']!r}, "
                                 f"its evidence pack has {attribution.get(f['obs_id'])!r}; generate again from these packs")


def _same_rationales(verified: list[dict[str, Any]], rationales: dict[str, Any], path: str, other: str) -> None:
    """Raises: ValueError naming a verification of another rationale than the one there is, or with other citations than it."""
    for v in verified:
        if (r := rationales.get(v["patient_id"])) is None:
            raise ValueError(f"{path}: patient {v['patient_id']!r}: {other} has no rationale of this patient; verify again")
        if (found := rationale_sha256(r)) != v["rationale_sha256"]:
            raise ValueError(f"{path}: patient {v['patient_id']!r}: rationale_sha256: got {v['rationale_sha256']:.12}, the rationale in "
                             f"{other} has {found:.12}; verify again")
        cited = [(f["rank"], [e["citation"]["id"] for e in f["evidence"]]) for f in r["factors"]]
        if [(f["rank"], [q["note_id"] for q in f["quotes"]]) for f in v["factors"]] != cited:
            raise ValueError(f"{path}: patient {v['patient_id']!r}: factors: not the citations of its rationale; verify again")


def _read(path: str, check) -> list[dict[str, Any]]:
    """Rows of a JSON Lines file, each checked, one a patient. Raises: ValueError with file and line."""
    rows, seen = [], {}
    for line, row in read_jsonl(path):
        try:
            check(row)
        except (ValueError, OverflowError) as e:  # an int beyond every float
            raise ValueError(f"{path}:{line}: {e}") from None
        if (first := seen.setdefault(row["patient_id"], line)) != line:
            raise ValueError(f"{path}:{line}: patient_id: {row['patient_id']!r} stands on line {first} already")
        rows.append(row)
    return rows


def demo_(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    return demo.run(args, config)


STEPS = {"cohort": cohort, "embed": embed, "train": train_, "eval": evaluate, "predict": predict, "explain": explain_,
         "generate": generate, "verify": verify_, "report": report, "demo": demo_}
