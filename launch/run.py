#!/usr/bin/env python3
"""Fine-tune by a recipe: adapters over a base, as a file of configs/ says.

    python launch/run.py --config=configs/verifier_smoke.py --out=runs/verifier_smoke
    python launch/run.py --config=configs/verifier.py --set=base.path=Llama-3.1-8B-Instruct \
        --set=data.train=train.jsonl --out=runs/verifier --dry_run

The same command goes on with a run that was killed or terminated. Prints the result as JSON. Exit codes: 2 for bad
input, 130 after Ctrl-C (the last checkpoint is kept), 143 where SIGTERM ended it (what was learnt is saved).
"""
from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile

from absl import app, flags, logging

from core_jax.command import leave
from core_jax.interrupt import heard

FLAGS = flags.FLAGS
flags.DEFINE_string("config", None, "recipe: a file of configs/ whose get_config() gives a Recipe", required=True)
flags.DEFINE_multi_string("set", [], "change one setting, e.g. --set=train.lr=1e-4")
flags.DEFINE_string("out", "", "run folder (default: runs/<name of the recipe>)")
flags.DEFINE_bool("resume", True, "go on with a run in the folder; --noresume replaces it")
flags.DEFINE_bool("dry_run", False, "print what would be done, as JSON, read no weights, write nothing")


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        print(f"got argument {argv[1]!r}, expected flags alone", file=sys.stderr)
        return 2
    logging.set_verbosity(logging.FATAL)  # orbax logs every file, and a failed write many times; it is raised once too
    from core_jax import recipe, settings
    try:
        with heard():
            config = settings.override(settings.load(FLAGS.config, recipe.Recipe), FLAGS.set)
            if FLAGS.dry_run:
                with tempfile.TemporaryDirectory() as folder:
                    print(json.dumps(recipe.plan(config, folder), indent=2, allow_nan=False))
                return 0
            out = FLAGS.out or os.path.join("runs", pathlib.Path(FLAGS.config).stem)
            result = recipe.run(config, out, resume=FLAGS.resume, progress=sys.stderr.isatty(), on_update=_say)
    except KeyboardInterrupt:
        again = "the same command" if FLAGS.resume else "the same command without --noresume"
        print(f"run.py: interrupted; {again} goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as e:
        print(f"run.py: {e}", file=sys.stderr)
        return 2
    print(json.dumps({k: v for k, v in vars(result).items() if k != "trained"}, indent=2))
    if result.interrupted:
        print(f"terminated after update {result.updates}, which is saved; the same command goes on", file=sys.stderr)
        return 143
    return 0


def _say(row: dict) -> None:
    if not sys.stderr.isatty():
        val = f"  val {row['val_loss']:.4f}" if "val_loss" in row else ""
        speed = f"{row['tokens_per_s']:.0f} tokens/s  mfu {row['mfu']:.1%}"
        print(f"update {row['update']}  loss {row['loss']:.4f}{val}  {speed}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    app.run(lambda argv: leave(main(argv)))
