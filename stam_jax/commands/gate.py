"""`stam gate`: replay both arms, fit the gate, report what it does."""
from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from core_jax.embed import load_encoder
from core_jax.records import RecordError, read_jsonl
from stam_jax.commands.openers import bar, needed, opened, reader_of
from stam_jax.config import Config
from stam_jax.graph import canonical
from stam_jax.history import gate as gates
from stam_jax.history import replay
from stam_jax.history.replay import Replay, Served
from stam_jax.metrics import token_f1
from stam_jax.read import search as read


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    return {"replay": _replay, "fit": _fit, "report": _report}[args.action](args, config)


def asked(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Rows of {"patient_id", "question", "answers": [...]}; "type" and "question_id" may be there.

    Raises: RecordError with file, line and field: no row, a missing or mistyped field, a question id twice.
    """
    out: dict[str, dict[str, Any]] = {}
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
        out[name] = {"question_id": name, "patient_id": raw["patient_id"], "question": raw["question"], "answers": answers, "type": kind}
    if not out:
        raise RecordError("has no questions", file=path)
    return list(out.values())


def _replay(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    needed(args, "store", "questions", "out")
    questions, encoder, reader = asked(args.questions), load_encoder(config.encoder), reader_of(args.reader)
    with opened(args, encoder) as store:
        unknown = sorted({q["patient_id"] for q in questions} - set(store.patients()))
        if unknown:
            raise RecordError(f"{unknown[0]!r} is not in the store", file=args.questions, field="patient_id")
        vectors = read.encode_query(encoder, [q["question"] for q in questions])
        with bar(args, "question") as done:
            rows = list(_rows(questions, vectors, store, reader, config, done))
    replay.write(args.out, rows)
    return {"questions": len(rows), "needs_history": sum(r.needs_history for r in rows), "out": args.out}


def _rows(questions, vectors, store, reader, config: Config, done) -> Iterator[Replay]:
    for q, vector in zip(questions, vectors):
        state, held = read.snapshot(store, q["patient_id"])
        found = read.search(state, held, vector, config.read)
        packets = [read.packet(found, arm, config.read, reader.count) for arm in ("ACTIVE", "BOTH", "REFILLED")]
        answers = reader.answer([q["question"]] * 3, packets)
        if failed := [a.error for a in answers if a.error]:
            raise ValueError(f"question {q['question_id']!r}: {failed[0]}")
        active, both, refilled = (Served(a.packet_sha256, a.text, token_f1(a.text, q["answers"]), max(a.tokens, 1)) for a in answers)
        yield Replay(q["question_id"], q["patient_id"], q["type"], gates.features(found, config.read, q["question"]), active, both,
                     sum(i.place == "HISTORY" for i in packets[1].items), refilled=refilled)
        done.update(1)


def _fit(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    needed(args, "replay", "out")
    if not 0 <= args.lambda_ < float("inf"):
        raise ValueError(f"--lambda {args.lambda_}: expected a number of at least 0")
    rows = replay.read(args.replay)
    gate = gates.Gate.fit(rows, lam=args.lambda_)
    gate.save(args.out)
    return {"questions": len(rows), "threshold": str(gate.threshold), "lambda": gate.lam, "out": args.out}


def _report(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    needed(args, "replay")
    rows = replay.read(args.replay)
    out = gates.report(rows)
    if args.gate is not None:
        gate = gates.Gate.load(args.gate)
        out["gate"] = {"threshold": str(gate.threshold), "lambda": gate.lam, "fitted_on_these_rows": gate.replay_sha256 == replay.digest(rows)}
    return out
