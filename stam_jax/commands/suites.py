"""Commands that make data or tables: planted timelines, training rows, benchmarks."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import glob
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from core_jax.embed import Encoder, load_encoder
from core_jax.packaged import minilm_folder
from core_jax.records import write_jsonl
from core_jax.synth.timelines import TimelineConfig, generate, write_timelines
from stam_jax.commands.openers import bar, needed, reader_of, writer_of
from stam_jax.config import Config, ReadConfig
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

    if args.words < 1 or args.candidates < 1:
        raise ValueError(f"--words {args.words} --candidates {args.candidates}: expected at least 1")
    if args.most is not None and args.most < 1:
        raise ValueError(f"--most {args.most}: expected at least 1")
    timelines, sizes = list(generate(TimelineConfig(args.patients, args.seed))), lessons.LessonConfig(args.words, args.candidates)
    if args.action == "write":
        needed(args, "out")
        return {"files": lessons.write(args.out, timelines, sizes, fold=args.fold, most=args.most), "out": args.out}
    stages = lessons.STAGES if args.stage == "all" else (args.stage,)
    return {"writer": args.writer, "adapters": args.adapters} | lessons.score(
        writer_of(args, config), lessons.split(timelines, fold=args.fold)["test"], sizes, stages=stages, most=args.most)


SUITES = ("planted", "cascade", "gate", "deletion", "clinosim", "mimic_qa", "ehrsql")
# what these suites take of the settings; the others take all of them
TAKES = {"clinosim": ("write.retries", "write.answer_tokens"), "mimic_qa": ("write.", "read."), "ehrsql": ("write.",)}
_PLACES = {"config": "FILE.py", "out": "DIR", "data": "DIR", "adapters": "DIR", "input": "PATH",
           "system_python": "PYTHON"}


def command_of(args: argparse.Namespace) -> str:
    """The `stam bench` that `args` are of: every option that is not its default, places on disk by their kind."""
    from stam_jax.cli import parser

    usual = vars(parser().parse_args(["bench", "--out", ""]))
    words = ["stam", "bench"]
    for name, value in vars(args).items():
        if value != usual.get(name) and name != "quiet":
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{name.replace('_', '-')}", *([] if one is True else [_PLACES.get(name, str(one))])]
    return shlex.join(words)


def _check_settings(suites: Sequence[str], config: Config) -> None:
    """Raises: ValueError: a setting that is not its default counts in none of the suites."""
    usual = Config()
    changed = ["encoder"] if config.encoder != usual.encoder else []
    changed += [f"{part}.{f.name}" for part in ("write", "read") for f in dataclasses.fields(getattr(usual, part))
                if getattr(getattr(config, part), f.name) != getattr(getattr(usual, part), f.name)]
    for name in changed:
        if not any(name.startswith(TAKES.get(suite, ("",))) for suite in suites):
            taken = "; ".join(f"{suite} takes {', '.join(t + '*' * t.endswith('.') for t in TAKES[suite])}"
                              for suite in suites)
            raise ValueError(f"--set {name}: changes nothing here: {taken}")


def _planted_read(args: argparse.Namespace, config: Config, depth: int) -> ReadConfig:
    """The read path of the planted suites: at their own depth where neither --set nor --config names another."""
    sizes, usual = ("active", "history", "most"), ReadConfig()
    named = {f"read.{n}" for n in sizes} & {item.partition("=")[0] for item in args.set}
    if named or any(getattr(config.read, n) != getattr(usual, n) for n in sizes):
        return config.read
    return dataclasses.replace(config.read, **dict.fromkeys(sizes, depth))


@contextlib.contextmanager
def _system(args: argparse.Namespace, config: Config, writer: Writer, encoder: Encoder) -> Iterator[Any]:
    """The memory system that --system names, with the writer and the encoder as its models; None for none.

    Raises: ValueError: it is not installed, or cannot be opened.
    """
    if args.system is None:
        yield None
        return
    from stam_jax.baselines import endpoint, external, installed

    try:
        with endpoint.serving(writer, encoder) as served, tempfile.TemporaryDirectory() as folder:
            own = minilm_folder() if config.encoder == "minilm" else config.encoder
            site = installed.Site(served.url, endpoint.NAME, endpoint.ENCODER, encoder.dim, folder,
                                  own if os.path.isdir(own) else None)
            system = external.Installed(args.system, args.system_python or sys.executable, site, served.asked)
            try:
                yield system
            finally:
                system.close()
    except ModuleNotFoundError as e:
        raise ValueError(f"--system {args.system}: {e.name} is not installed: pip install 'evigen-stam-jax[serve]'") from None


def bench(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Every suite, or those named; what lacks its data or its --input is named and left out, unless it was asked for.

    Settings count in every suite that has a use for them (`TAKES`); one that counts in none is refused.
    """
    from stam_jax.benchmarks import cascade, clinosim, deletion, gate, planted, table_suites
    from stam_jax.benchmarks.harness import OnceEncoder
    from stam_jax.benchmarks.tables import write
    from stam_jax.commands import file_suites

    known = (*SUITES, *file_suites.SUITES)
    asked = known if args.suite == "all" else tuple(args.suite.split(","))
    if unknown := [name for name in asked if name not in known]:
        raise ValueError(f"--suite {unknown[0]!r}: expected all or some of {', '.join(known)}")
    given = file_suites.inputs(args)
    data = args.data or os.environ.get("EHR_DATA_DIR") or ""
    tables, questions = os.path.join(data, "mimic_iv_demo"), os.path.join(data, "ehrsql2024", "train_reproducible.json")
    cohort = next(iter(sorted(glob.glob(os.path.join(glob.escape(data), "clinosim", "*.jsonl*")))), os.path.join(data, "clinosim", "*.jsonl.gz"))
    needs = {"mimic_qa": [tables], "ehrsql": [tables, questions], "clinosim": [cohort]}
    missing = {name: absent[0] for name in asked if (absent := [p for p in needs.get(name, ()) if not os.path.exists(p)])}
    if missing and args.suite != "all":
        raise ValueError(f"--suite {next(iter(missing))}: no {next(iter(missing.values()))}; name its folder with --data or EHR_DATA_DIR")
    missing |= {name: lacks for name, lacks in file_suites.absent(given).items() if name in asked}
    if args.system and "planted" not in asked:
        raise ValueError("--system: only the suite planted asks another memory system")
    _check_settings(asked, config)
    for name, path in missing.items():
        print(f"{name}: left out, no {path}", file=sys.stderr)
    folds, reader = file_suites.fold_writers(args, config), reader_of(args.reader)
    writer = writer_of(args, config) if folds is None else folds[0]
    judge = file_suites.judge_of(args, reader)
    encoder, begun, told, made, command = None, time.perf_counter(), None, {}, command_of(args)

    def tell(what: str) -> None:
        if not args.quiet:
            print(f"{time.perf_counter() - begun:7.1f} s  {name}: {what}", file=sys.stderr, flush=True)

    for name in asked:
        if name in missing:
            continue
        if name in ("planted", "cascade", "gate", "deletion"):
            encoder = encoder or OnceEncoder(load_encoder(config.encoder))
            how = {"seed": args.seed, "wording": args.wording, "write": config.write, "progress": tell,
                   "read": _planted_read(args, config, planted.REFERENCE), "command": command}
            if name == "planted":
                with _system(args, config, writer, encoder) as system:
                    report = planted.run(writer, encoder, reader, patients=args.patients, system=system, **how)
            elif name == "cascade":
                report = cascade.run(writer, encoder, reader, patients=max(1, args.patients // 3), **how)
            else:
                suite = {"gate": gate, "deletion": deletion}[name]
                report = suite.run(writer, encoder, reader, patients=args.patients, **how)
        elif name in given:
            encoder = encoder or OnceEncoder(load_encoder(config.encoder))
            report = file_suites.run(name, given[name], args, config, folds or [writer], encoder, reader, judge, tell,
                                     command)
        elif name == "clinosim":
            report = clinosim.run(cohort, writer, command=command)
        else:
            paths = table_suites.PATHS if "mimic_qa" in asked else (table_suites.STAM,)
            told = told or table_suites.tell(tables, writer, load_encoder(args.table_encoder), paths=paths,
                                             everybody=args.all_questions, write=config.write, progress=tell)
            report = (table_suites.mimic_qa_report(tables, told, reader, read=config.read, window=args.window,
                                                   seed=args.seed, command=command, progress=tell)
                      if name == "mimic_qa" else table_suites.ehrsql_report(questions, told, command=command))
        made[name] = str(write(report, args.out)[1])
        tell(f"written to {made[name]}")
    return {"tables": made, "left_out": missing, "seconds": round(time.perf_counter() - begun, 1)}
