"""`stam bench` on the files that --input names: MedMemoryBench, LoCoMo-shaped, ClinicalBench."""
from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from core_jax.embed import Encoder
from core_jax.engine.backend import Backend
from core_jax.engine.load import load_backend
from core_jax.engine.request import Sampling
from stam_jax.benchmarks import file_suites
from stam_jax.benchmarks.cohorts import FOLDS, SHAPES, SUITES, suite_of
from stam_jax.benchmarks.judge import Judge
from stam_jax.benchmarks.tables import Report
from stam_jax.config import Config
from stam_jax.language.writer import STAGES, LanguageWriter
from stam_jax.read.answer import LanguageReader, Reader
from stam_jax.write.writer import Writer

TOKENS = 256  # of an answer that must name what it rests on


def inputs(args: argparse.Namespace) -> dict[str, str]:
    """Suite -> path of --input: what --suite names, where that is one suite and one path, else by the path's shape.

    Raises: RecordError: a path of no known shape; ValueError: two paths of a suite, a path of a suite that --suite does
        not name, a suite or a flag without a path.
    """
    named = SUITES if args.suite == "all" else tuple(n for n in args.suite.split(",") if n in SUITES)
    found: dict[str, str] = {}
    for path in args.input or ():
        suite = named[0] if len(named) == len(args.input) == 1 else suite_of(path)
        if suite not in named:
            raise ValueError(f"--input {path}: is of the suite {suite}, which --suite {args.suite} does not name")
        if suite in found:
            raise ValueError(f"--input {path}: {found[suite]} is of the suite {suite} already")
        found[suite] = path
    if args.suite != "all" and (absent := [n for n in named if n not in found]):
        raise ValueError(f"--suite {absent[0]}: needs --input, {SHAPES[absent[0]]}")
    flags = {"--judge": args.judge, "--noise": args.noise, "--language": args.language}
    for flag, value in flags.items():
        if value and not (found if flag == "--judge" else "memory_bench" in found):
            suites = f"suites {', '.join(SUITES)}" if flag == "--judge" else "suite memory_bench"
            raise ValueError(f"{flag}: only for the {suites}, with --input")
    return found


def absent(found: dict[str, str]) -> dict[str, str]:
    """What the suites without a path lack."""
    return {name: f"--input ({SHAPES[name]})" for name in SUITES if name not in found}


def fold_writers(args: argparse.Namespace, config: Config) -> list[Writer] | None:
    """A writer for each fold, over one model, where --adapters holds fold_0/ to fold_4/; None where it holds none.

    Raises: ValueError: some of the folders only, a suite without folds.
    """
    folders = [os.path.join(args.adapters or "", f"fold_{k}") for k in range(FOLDS)]
    if not args.adapters or not any(map(os.path.isdir, folders)):
        return None
    if args.suite != "clinical_bench":
        raise ValueError(f"--adapters {args.adapters}: adapters for each fold are for --suite clinical_bench alone")
    held = [{stage: os.path.join(folder, stage) for stage in STAGES if os.path.isdir(os.path.join(folder, stage))}
            for folder in folders]
    if not all(held):
        raise ValueError(f"--adapters {args.adapters}: {os.path.basename(folders[held.index({})])}/ has none of the "
                         f"folders {', '.join(STAGES)}; expected all of fold_0/ to fold_{FOLDS - 1}/, or none")
    backend = load_backend(args.writer, adapters={f"{stage} {k}": path for k, own in enumerate(held)
                                                  for stage, path in own.items()})
    return [LanguageWriter(backend, adapters={stage: f"{stage} {k}" for stage in own}, retries=config.write.retries,
                           max_tokens=config.write.answer_tokens)
            for k, own in enumerate(held)]


def judge_of(args: argparse.Namespace, reader: Reader) -> Backend | None:
    """The model that --judge names; the reader's own where it is the same. Raises: ValueError: no such model."""
    if args.judge is None or (args.judge == args.reader and isinstance(reader, LanguageReader)):
        return None if args.judge is None else reader.backend
    return load_backend(args.judge)


def run(suite: str, path: str, args: argparse.Namespace, config: Config, writers: Sequence[Writer], encoder: Encoder,
        reader: Reader, judged_by: Backend | None, progress: Callable[[str], Any], command: str) -> Report:
    judge = None if judged_by is None else Judge(judged_by, seed=args.seed)
    if suite != "locomo" and isinstance(reader, LanguageReader):
        reader = LanguageReader(reader.backend, sampling=Sampling(max_tokens=TOKENS))
    more = {"language": args.language or "en", "noise": args.noise} if suite == "memory_bench" else {}
    return file_suites.run(suite, path, writers, encoder, reader, judge=judge, write=config.write, read=config.read,
                           window=args.window, seed=args.seed, progress=progress, command=command, **more)
