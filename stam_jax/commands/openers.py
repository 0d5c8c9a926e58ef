"""What commands open by what a command line names: stores, patients, writers, readers, progress bars."""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from core_jax.embed import Encoder
from stam_jax.config import Config
from stam_jax.graph.state import State
from stam_jax.read.answer import ExtractiveReader, LanguageReader, Reader
from stam_jax.storage.store import Store, StoreError
from stam_jax.write.writer import Writer


def say(lines: Iterable[str]) -> None:
    """Lines to stdout, whatever its encoding lacks replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "replace").decode(encoding))


def known(store: Store, patient_id: str) -> State:
    """The patient's state. Raises: LookupError: the store does not know the patient."""
    found = store.state(patient_id)
    if not found.version:
        raise LookupError(f"--patient {patient_id!r}: the store does not know it; `stam show` without --patient lists whom it knows")
    return found


def opened(args: argparse.Namespace, encoder: Encoder, **fields: Any) -> Store:
    """The store of --store. Raises: StoreError: another encoder made it."""
    from stam_jax.write.ingest import header_of

    try:
        return Store.open(args.store, encoder=header_of(encoder), **fields)
    except StoreError as e:
        if "made with another encoder" in str(e):
            raise StoreError(f"{e}: --set encoder=NAME") from None
        raise


def writer_of(args: argparse.Namespace, config: Config) -> Writer:
    """The writer that --writer names, with the adapters of --adapters.

    Raises: ValueError: no such model, adapters for a writer that takes none.
    """
    if args.writer == "rules":
        if args.adapters:
            raise ValueError("--adapters: the rules writer has none; name a local model with --writer")
        from stam_jax.rules import RulesWriter

        return RulesWriter()
    from core_jax.engine.load import load_backend
    from stam_jax.language.writer import LanguageWriter

    found = {}
    if args.adapters:
        found = {stage: os.path.join(args.adapters, stage) for stage in ("extract", "link", "update")
                 if os.path.isdir(os.path.join(args.adapters, stage))}
        if not found:
            raise ValueError(f"--adapters {args.adapters}: has none of the folders extract/, link/, update/")
    backend = load_backend(args.writer, adapters=found) if found else load_backend(args.writer)
    return LanguageWriter(backend, adapters={stage: stage for stage in found}, retries=config.write.retries,
                          max_tokens=config.write.answer_tokens)


def reader_of(name: str) -> Reader:
    """The reader that --reader names. Raises: ValueError: no such model."""
    if name == "extractive":
        from stam_jax.rules import names

        return ExtractiveReader(names)
    from core_jax.engine.load import load_backend

    return LanguageReader(load_backend(name))


def bar(args: argparse.Namespace, unit: str) -> Any:
    """A progress bar where somebody looks: stderr is a terminal and --quiet was not given."""
    from tqdm import tqdm

    return tqdm(desc=args.command, unit=unit, disable=args.quiet or not sys.stderr.isatty(), file=sys.stderr)


def needed(args: argparse.Namespace, *names: str) -> None:
    """Raises: ValueError: a flag that this action needs was not given."""
    for name in names:
        if getattr(args, name) is None:
            raise ValueError(f"--{name}: needed for `{args.command} {args.action}`")
