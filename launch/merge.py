#!/usr/bin/env python3
"""Merges a trained adapter into its base: one Hugging Face folder that serves as any other model does.

    python launch/merge.py --adapter=runs/verifier/adapter --out=models/verifier
    python launch/serve.py --model=models/verifier

The way to serve an adapter that trained rows of token tables, which all rows of a batch would share (adapters of
projections alone need no merging: launch/serve.py --adapter). Prints what was done as JSON; exit code 2 for bad input.
"""
from __future__ import annotations

import json
import os
import sys

from absl import app, flags

from core_jax.command import leave
from core_jax.interrupt import heard

FLAGS = flags.FLAGS
flags.DEFINE_string("adapter", None, "PEFT folder: adapter/ of a run folder of launch/run.py", required=True)
flags.DEFINE_string("out", None, "the new folder, which must not be there yet", required=True)
flags.DEFINE_string("base", None, "folder or .gguf file of the base; by default the one that the adapter names")
flags.DEFINE_enum("dtype", "bfloat16", ["float32", "bfloat16"], "of the matrices in the new folder")
flags.DEFINE_enum("quantise", None, ["nf4", "int8"], "round the base's matrices first, as training saw them")


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        print(f"got argument {argv[1]!r}, expected flags alone", file=sys.stderr)
        return 2
    from core_jax import lora, recipe
    try:
        base = FLAGS.base or lora.base_of(FLAGS.adapter)
        if not base:
            raise ValueError(f"{FLAGS.adapter}: names no base model; give --base")
        if os.path.lexists(FLAGS.out):
            raise ValueError(f"--out={FLAGS.out}: is there already")
        with heard():
            done = recipe.merge(recipe.BaseConfig(base, FLAGS.dtype, FLAGS.quantise), FLAGS.adapter, FLAGS.out)
    except KeyboardInterrupt:
        print("merge.py: interrupted; nothing was written", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as e:
        print(f"merge.py: {e}", file=sys.stderr)
        return 2
    print(json.dumps(done, indent=2))
    return 0


if __name__ == "__main__":
    app.run(lambda argv: leave(main(argv)))
