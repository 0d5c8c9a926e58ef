"""The steps behind the `stam` command: each opens what it needs, calls one library function, prints or returns a result."""
from __future__ import annotations

import argparse
from typing import Any

from core_jax import settings
from stam_jax.commands import deletion, gate, memory, questions, suites, surfaces
from stam_jax.config import Config

STEPS = {
    "demo": suites.demo, "ingest": memory.ingest, "reprocess": memory.reprocess, "revert": memory.revert,
    "reinstate": memory.reinstate, "metrics": memory.metrics, "erase": memory.erase,
    "show": memory.show, "timeline": memory.timeline, "diff": memory.diff, "why": memory.why, "verify": memory.verify,
    "export": memory.export_, "search": questions.search, "answer": questions.answer, "gate": gate.run,
    "delete": deletion.run, "planted": suites.planted, "lessons": suites.lessons, "bench": suites.bench, "serve": surfaces.serve, "mcp": surfaces.mcp,
}


def run(args: argparse.Namespace) -> Any:
    """One command. Raises: ValueError, LookupError, OSError on bad input; nothing is half-written then."""
    config = settings.load(args.config, Config) if args.config else Config()
    return STEPS[args.command](args, settings.override(config, args.set))
