"""`stam gate`: replay both arms, fit the gate, report what it does."""
from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from core_jax.embed import load_encoder
from core_jax.records import RecordError, read_jsonl
from stam_jax.commands.openers import bar, needed, opened, reader_of
from stam_jax.config import Config
from stam_jax.graph import canonical
from stam_jax.history import gate as gates
from stam_jax.history import replay
from stam_jax.history.gate import CUES, FEATURES
from stam_jax.history.replay import Asked
from stam_jax.read import search as read


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    return {"replay": _replay, "fit": _fit, "report": _report}[args.action](args, config)


def asked(path: str | os.PathLike) -> list[Asked]:
    """Rows of {"patient_id", "question", "answers": [...]}; "type" and "question_id" may be there.

    Raises: RecordError with file, line and field: no row, a missing or mistyped field, a question id twice.
    """
    out: dict[str, Asked] = {}
    for line, raw in read_jsonl(path):
        try:
            if not isinstance(raw, dict):
                raise RecordError(f"got {type(raw).__name__}, expected an object")
            for name in ("patient_id", "question"):
                canonical.text(raw.get(name), name)
            answers = canonical.sequence(raw.get("answers"), "answers", str)
            if not answers:
                raise RecordError("got none, expected at least one", field="answers")
            name, kind = raw.get("question_id", f"q{line}"), raw.get("type", "question")
            canonical.text(name, "question_id")
            canonical.text(kind, "type")
            if name in out:
                raise RecordError(f"{name!r} stands twice", field="question_id")
        except RecordError as e:
            raise RecordError(e.message, file=path, line=line, field=e.field) from None
        out[name] = Asked(name, raw["patient_id"], kind, raw["question"], answers)
    if not out:
        raise RecordError("has no questions", file=path)
    return list(out.values())


def _replay(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    needed(args, "store", "questions", "out")
    questions, encoder, reader = asked(args.questions), load_encoder(config.encoder), reader_of(args.reader)
    judge = None
    if args.judged:
        from stam_jax.benchmarks.harness import is_right as judge
    with opened(args, encoder) as store:
        unknown = sorted({q.patient_id for q in questions} - set(store.patients()))
        if unknown:
            raise RecordError(f"{unknown[0]!r} is not in the store", file=args.questions, field="patient_id")
        vectors = read.encode_query(encoder, [q.text for q in questions], config.read.instruction)
        snapshot = functools.lru_cache(maxsize=1)(lambda patient_id: read.snapshot(store, patient_id))
        with bar(args, "question") as done:
            def searches() -> Iterator[read.Found]:
                for q, vector in zip(questions, vectors):
                    yield read.search(*snapshot(q.patient_id), vector, config.read)
                    done.update(1)

            rows = list(gates.rehearse(questions, searches(), reader, config.read, encoder.id, judge=judge))
    replay.write(args.out, rows)
    return {"questions": len(rows), "needs_history": sum(r.needs_history for r in rows), "out": args.out}


def _flops(name: str | None) -> Callable[[int], float] | None:
    """Prompt tokens -> operations of the model of that name; None for no name.

    Raises: ValueError: not a known model.
    """
    if name is None:
        return None
    from core_jax.models.cost import prefill_flops
    from core_jax.models.presets import DECODERS

    if name not in DECODERS:
        raise ValueError(f"--model {name!r}: expected one of {', '.join(DECODERS)}")
    return lambda n: float(prefill_flops(DECODERS[name], n))


def _fit(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    needed(args, "replay", "out")
    if not 0 <= args.lambda_ < float("inf"):
        raise ValueError(f"--lambda {args.lambda_}: expected a number of at least 0")
    flops = _flops(args.model)
    rows = replay.read(args.replay)
    gate = gates.Gate.fit(rows, lam=args.lambda_, names=FEATURES + CUES if args.cues else FEATURES, macro=args.macro,
                          cost=flops or float, price=args.model or "tokens")
    gate.save(args.out)
    return {"questions": len(rows), "threshold": str(gate.threshold), "lambda": gate.lam, "features": list(gate.names),
            "macro": gate.macro, "price": gate.price, "out": args.out}


def _report(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Of a gate: as it stands, on this replay. Without one: fitted and judged on this replay, patient-disjoint."""
    needed(args, "replay")
    if args.gate is None:
        flops, rows = _flops(args.model), replay.read(args.replay)
        out = gates.report(rows, macro=args.macro, flops=flops)
        if args.cues:
            out["with_cue_words"] = gates.report(rows, macro=args.macro, flops=flops, names=FEATURES + CUES)["rows"]
        return out
    if args.cues or args.macro:
        raise ValueError("--cues and --macro: settled when the gate was fitted; leave them out beside --gate")
    gate = gates.Gate.load(args.gate)
    model = args.model or (None if gate.price == "tokens" else gate.price)
    return gate.report(replay.read(args.replay), flops=_flops(model))
