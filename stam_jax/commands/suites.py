"""Commands that make data or tables: planted timelines, training rows, benchmarks."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import glob
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from core_jax.embed import Encoder, load_encoder
from core_jax.records import write_jsonl
from core_jax.synth.timelines import TimelineConfig, generate, write_timelines
from stam_jax.commands.openers import bar, needed, reader_of, writer_of
from stam_jax.config import Config
from stam_jax.write.writer import Writer


def demo(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    from stam_jax import demo

    if args.most < 1:
        raise ValueError(f"--most {args.most}: expected at least 1")
    with bar(args, "entry") as done:
        return demo.run(args.out, args.input, args.most, load_encoder(config.encoder), config, done.update)


def planted(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    timelines = list(generate(TimelineConfig(args.patients, args.seed, args.wording)))
    os.makedirs(args.out, exist_ok=True)
    write_timelines(os.path.join(args.out, "timelines.jsonl"), timelines)
    asked = write_jsonl(os.path.join(args.out, "questions.jsonl"), (
        {"patient_id": t.patient_id, "question": q.text} | {k: v for k, v in dataclasses.asdict(q).items() if k != "text"}
        for t in timelines for q in t.questions))
    return {"patients": len(timelines), "entries": sum(len(t.entries) for t in timelines), "questions": asked, "out": args.out}


def lessons(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    from stam_jax.language import lessons

    timelines = list(generate(TimelineConfig(args.patients, args.seed)))
    if args.action == "write":
        needed(args, "out")
        return {"files": lessons.write(args.out, timelines, fold=args.fold, most=args.most), "out": args.out}
    return {"writer": args.writer} | lessons.score(writer_of(args, config), lessons.split(timelines, fold=args.fold)["test"], most=args.most)


SUITES = ("planted", "cascade", "clinosim", "mimic_qa", "ehrsql")


@contextlib.contextmanager
def _system(name: str | None, writer: Writer, encoder: Encoder) -> Iterator[Any]:
    """The memory system that --system names, with the writer and the encoder as its models; None for none.

    Raises: ValueError: its package is not installed.
    """
    if name is None:
        yield None
        return
    try:
        from stam_jax.baselines import endpoint, external

        with endpoint.serving(writer, encoder) as url, tempfile.TemporaryDirectory() as folder:
            system = external.Mem0(url, folder, model=endpoint.NAME, embedding_model="encoder", dim=encoder.dim)
            try:
                yield system
            finally:
                system.close()
    except ModuleNotFoundError as e:
        raise ValueError(f"--system {name}: {e.name} is not installed: pip install 'evigen-stam-jax[serve,mem0]'") from None


def bench(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Every suite, or those named; what lacks its data is named and left out, unless it was asked for."""
    from stam_jax.benchmarks import cascade, clinosim, planted, table_suites
    from stam_jax.benchmarks.harness import OnceEncoder
    from stam_jax.benchmarks.tables import write

    asked = SUITES if args.suite == "all" else tuple(args.suite.split(","))
    if unknown := [name for name in asked if name not in SUITES]:
        raise ValueError(f"--suite {unknown[0]!r}: expected all or some of {', '.join(SUITES)}")
    data = args.data or os.environ.get("EHR_DATA_DIR") or ""
    tables, questions = os.path.join(data, "mimic_iv_demo"), os.path.join(data, "ehrsql2024", "train_reproducible.json")
    cohort = next(iter(sorted(glob.glob(os.path.join(glob.escape(data), "clinosim", "*.jsonl*")))), os.path.join(data, "clinosim", "*.jsonl.gz"))
    needs = {"mimic_qa": [tables], "ehrsql": [tables, questions], "clinosim": [cohort]}
    missing = {name: absent[0] for name in asked if (absent := [p for p in needs.get(name, ()) if not os.path.exists(p)])}
    if missing and args.suite != "all":
        raise ValueError(f"--suite {next(iter(missing))}: no {next(iter(missing.values()))}; name its folder with --data or EHR_DATA_DIR")
    for name, path in missing.items():
        print(f"{name}: left out, no {path}", file=sys.stderr)
    writer, reader = writer_of(args, config), reader_of(args.reader)
    encoder, begun, told, made = None, time.perf_counter(), None, {}

    def tell(what: str) -> None:
        if not args.quiet:
            print(f"{time.perf_counter() - begun:7.1f} s  {name}: {what}", file=sys.stderr, flush=True)

    for name in asked:
        if name in missing:
            continue
        if name in ("planted", "cascade"):
            encoder = encoder or OnceEncoder(load_encoder(config.encoder))
            how = {"seed": args.seed, "wording": args.wording, "progress": tell}
            if name == "planted":
                with _system(args.system, writer, encoder) as system:
                    report = planted.run(writer, encoder, reader, patients=args.patients, system=system, **how)
            else:
                report = cascade.run(writer, encoder, reader, patients=max(1, args.patients // 3), **how)
        elif name == "clinosim":
            report = clinosim.run(cohort, writer)
        else:
            told = told or table_suites.tell(tables, writer, load_encoder(args.table_encoder), progress=tell)
            report = (table_suites.mimic_qa_report(tables, told, reader, config=config.read, seed=args.seed, progress=tell)
                      if name == "mimic_qa" else table_suites.ehrsql_report(questions, told))
        made[name] = str(write(report, args.out)[1])
        tell(f"written to {made[name]}")
    return {"tables": made, "left_out": missing, "seconds": round(time.perf_counter() - begun, 1)}
