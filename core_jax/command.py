"""The frame of a console command: logging, exit codes, the summary as JSON on stdout. Imports no jax.

Exit codes: 0 done; 2 bad input (one line on stderr says which file, line and field); 130 interrupted.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Collection
from typing import Any

import absl.logging

from core_jax.interrupt import heard


def execute(program: str, args: argparse.Namespace, step: Callable[[argparse.Namespace], Any],
            resumed: Collection[str] = ()) -> int:
    """Run one subcommand (`args.command`) and print what it returns. Returns the exit code.

    step: -> the summary, None for nothing to print, or an int, which is the exit code.
    resumed: subcommands that go on from where they were stopped.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if args.quiet else logging.INFO, format="%(message)s", force=True)
    for noisy in ("jax", "matplotlib", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # orbax's threads: the one failure that counts is raised
    absl.logging.set_verbosity(absl.logging.FATAL)  # orbax logs every step of every checkpoint; what fails there is raised too
    try:
        with heard():
            summary = step(args)
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, LookupError, OSError, MemoryError, OverflowError, RecursionError) as error:
        if isinstance(error, (KeyError, IndexError)):  # faults of the program, not of its input
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if isinstance(error, (ValueError, LookupError, OSError)) else f"{type(error).__name__}: {reason}"
        print(f"{program} {args.command}: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = "again without --no-resume" if getattr(args, "no_resume", False) else "the same command again"
        kept = f"what was finished is kept, run {again} to go on" if args.command in resumed else "nothing was written"
        print(f"{program} {args.command}: interrupted; {kept}", file=sys.stderr)
        return 130
    if summary is None or isinstance(summary, int):
        return summary or 0
    try:
        text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        print(text, flush=True)
    except UnicodeEncodeError:  # a path that is not UTF-8, or a terminal that is not
        print(json.dumps(summary, indent=2, allow_nan=False))
    except BrokenPipeError:  # the reader of the summary has gone; the results are written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def leave(code: int) -> None:
    """End the process. An interrupted one leaves without taking libraries down in mid-work, which can crash them."""
    if code == 130:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
