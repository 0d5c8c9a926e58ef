"""Commands that write a store, and those that look at one without a question."""
from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from core_jax import settings
from core_jax.embed import load_encoder
from core_jax.records import RecordError
from stam_jax.commands.openers import bar, known, opened, say, writer_of
from stam_jax.config import Config
from stam_jax.graph import canonical, undo
from stam_jax.page.page import write_index, write_page
from stam_jax.read import export, listing
from stam_jax.read.census import census
from stam_jax.storage.store import Store


def _read(args: argparse.Namespace, left_out: Counter[str]) -> Iterator[Any]:
    """The entries of --input. left_out: counts turns of a transcript that are no record."""
    from stam_jax.readers import chat, locomo, memory_bench, neutral, planted, tables, text

    if os.path.isdir(args.input) and args.format not in ("text", "mimic_iv", "memory_bench"):
        raise RecordError(f"is a folder; --format {args.format} reads a file (--format text reads folders of notes)", file=args.input)
    if args.format == "chat":
        return chat.read(args.input, left_out)
    return iter({"text": text, "patients": neutral, "mimic_iv": tables, "memory_bench": memory_bench,
                 "locomo": locomo, "planted": planted}[args.format].read(args.input))


def ingest(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    from stam_jax.write import ingest as path

    left_out: Counter[str] = Counter()
    entries = _read(args, left_out)
    first = list(itertools.islice(entries, 1))  # what cannot be read says so before a store is made
    if not first:
        raise RecordError("has no entries", file=args.input)
    entries = itertools.chain(first, entries)
    if args.patient is not None:
        entries = (e for e in entries if getattr(e, "entry", e).patient_id == args.patient)
    encoder, writer = load_encoder(config.encoder), writer_of(args, config)
    refused: list[str] = []

    def refuse(item: Any, why: str) -> None:
        entry = getattr(item, "entry", item)
        refused.append(f"{listing.clean(getattr(entry, 'patient_id', '?'))}, {listing.clean(getattr(entry, 'source_id', '?'))}: {why}")

    with opened(args, encoder, shards=args.shards) as store, bar(args, "entry") as done:
        report = path.ingest(store, entries, writer, encoder, config.write, wave=args.wave, progress=done.update, on_refused=refuse)
    report.problems.update(left_out)
    for line in refused[:20]:
        print(f"refused: {line}", file=sys.stderr)
    if len(refused) > 20:
        print(f"refused: {len(refused) - 20} more", file=sys.stderr)
    return report.to_dict() | {"store": args.store, "writer": args.writer, "settings": settings.to_dict(config)}


def reprocess(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    from stam_jax.write import ingest as path

    encoder = load_encoder(config.encoder)
    with opened(args, encoder) as store:
        state = known(store, args.patient)
        if args.entry not in state.entries:
            raise LookupError(f"--entry {args.entry!r}: the patient has no such entry")
        return path.reprocess(store, args.patient, args.entry, writer_of(args, config), encoder, config.write).to_dict()


def show(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        if args.patient is None:
            if args.as_of_seq is not None or args.as_of_date is not None:
                raise ValueError("--as-of-seq and --as-of-date look at one patient, name it by --patient")
            rows = [{"patient_id": p, "version": s.version, "active": len(s.active()), "history": len(s.history())}
                    for p in store.patients() for s in [store.state(p)]]
            return rows if args.json else say(f"{listing.clean(r['patient_id'])}: version {r['version']}, {r['active']} hold, {r['history']} past"
                                              for r in rows)
        found = known(store, args.patient)
    if args.as_of_date is not None:
        view = found.as_of_date(args.as_of_date)
        return canonical.to_dict(view) if args.json else say(listing.date_view(args.patient, view))
    if args.as_of_seq is not None:
        found = found.as_of_seq(args.as_of_seq)
    return json.loads(found.canonical()) if args.json else say(listing.state(found))


def diff(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        found = known(store, args.patient)
        if not 0 <= args.from_ <= args.to <= found.version:
            raise ValueError(f"--from {args.from_} --to {args.to}: expected 0 <= from <= to <= {found.version}")
        say(listing.changes(found.updates()[args.from_:args.to], found))


def why(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        found = known(store, args.patient)
        say(listing.why(found.why(args.memory), found))


def verify(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        if args.patient is not None:
            known(store, args.patient)
        patients = 1 if args.patient is not None else len(store.patients())
        violations = store.verify(args.patient)
    say(str(v) for v in violations)
    say([f"{patients} patients checked, {len(violations)} violations"])
    return 1 if violations else None


def revert(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        known(store, args.patient)
        version = store.revert(args.patient, args.seq, cascade=args.cascade)
        say(listing.changes(store.state(args.patient).updates()[-1:], store.state(args.patient)))
    return {"patient_id": args.patient, "version": version}


def reinstate(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        commit = undo.reinstatement(known(store, args.patient), args.memory, args.why)
        version = store.commit([commit])[args.patient]
        found = store.state(args.patient)
    say(listing.changes(found.updates()[-1:], found))
    back = found.memories[args.memory]
    beside = [m for m in found.active() if m.mid != back.mid and None not in back.slot
              and (m.slot, m.experiencer) == (back.slot, back.experiencer)]
    say(f"  beside it holds {listing.summary(m)}" for m in beside)
    return {"patient_id": args.patient, "version": version, "beside": [m.mid for m in beside]}


def metrics(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    with Store.open(args.store) as store:
        patients = store.patients() if args.patient is None else [known(store, args.patient).patient_id]
        files = [entry.stat().st_size for entry in os.scandir(args.store) if entry.is_file()]
        return census(map(store.state, patients)) | {"files": {"shards": store.shards, "bytes": sum(files)}}


def erase(args: argparse.Namespace, config: Config) -> Any:
    with Store.open(args.store) as store:
        found = known(store, args.patient)
        gone = [found.memory(mid) for mid in args.memory] if args.memory else list(found.memories.values())
        if not args.yes:
            say([f"would erase {len(gone)} memories" + ("" if args.memory else f" and {len(found.entries)} entries, the whole patient") + ":"])
            say(f"  {listing.summary(m)}" for m in gone)
            raise ValueError("nothing was erased; add --yes to do it")
        version = store.erase(args.patient, args.memory)
    return {"patient_id": args.patient, "version": version, "erased": len(gone)}


def timeline(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    with Store.open(args.store) as store:
        if args.patient is not None:
            return {"page": str(write_page(known(store, args.patient), args.out))}
        return {"pages": len(store.patients()), "index": str(write_index(store, args.out))}


def export_(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    with Store.open(args.store) as store:
        found = known(store, args.patient)
        export.write(found, args.out, args.form)
    return {"patient_id": args.patient, "version": found.version, "out": args.out}
