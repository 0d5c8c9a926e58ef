"""`evigen demo`: every step on the shipped sample, through the same command line a user types."""
from __future__ import annotations

import argparse
import importlib.resources
import json
import logging
import os
import shlex
import time
from typing import Any

from core_jax.synth.cohort import TASK as PLANTED_TASK
from evigen_jax import cli, pipeline
from evigen_jax.config import Config

SAMPLE = importlib.resources.files("evigen_jax") / "sample" / "planted"
SETTINGS = ("model.n_note=12", "model.n_code=6", "model.d_hidden=64", "train.warmup_steps=50")  # a sample this small needs no wide experts


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Cohort to report under args.out; steps that are complete are not repeated.

    Returns the figures that the README shows: AUC, ECE, quote pass rate, completeness, and the path of the page.
    """
    del config  # each step composes its own from the same flags
    log = logging.getLogger("evigen")
    out = args.out
    path = {name: os.path.join(out, name) for name in (
        "cohort", "store", "run", "predictions.jsonl", "packs.jsonl", "rationales.jsonl", "verifications.jsonl", "report")}
    data = ["--cohort", path["cohort"], "--store", path["store"]]
    run_data = ["--run", path["run"], *data]
    steps = [
        ["cohort", "jsonl", "--input", str(SAMPLE / "patients.jsonl.gz"), "--labels", str(SAMPLE / "labels.jsonl"), "--task",
         PLANTED_TASK["sentence"], "--overwrite", "--out", path["cohort"]],
        ["embed", "--cohort", path["cohort"], "--out", path["store"]],
        ["train", *data, "--out", path["run"], "--runs", "1", *(["--no-resume"] if args.no_resume else [])],
        ["predict", *run_data, "--out", path["predictions.jsonl"]],
        ["explain", *run_data, "--notes-only", "--out", path["packs.jsonl"]],
        ["generate", "--packs", path["packs.jsonl"], "--out", path["rationales.jsonl"]],
        ["verify", "--rationales", path["rationales.jsonl"], "--packs", path["packs.jsonl"], "--cohort", path["cohort"],
         "--out", path["verifications.jsonl"]],
        ["report", *run_data, "--predictions", path["predictions.jsonl"], "--packs", path["packs.jsonl"],
         "--rationales", path["rationales.jsonl"], "--verifications", path["verifications.jsonl"], "--out", path["report"]],
    ]
    common = [*(["--config", args.config] if args.config else []), *(["--quiet"] if args.quiet else []),
              *(["--seed", str(args.seed)] if args.seed is not None else [])]
    chosen = [f"--set={s}" for s in ([] if args.config else SETTINGS)] + [f"--set={s}" for s in args.set]
    got: dict[str, dict[str, Any]] = {}
    for words in steps:
        began = time.monotonic()
        log.info("\n$ evigen %s", shlex.join(words + (chosen if words[0] == "train" else [])))
        parsed = cli.parser().parse_args([*words, *common, *chosen])
        got[words[0]] = pipeline.run(parsed)
        log.info("  %.0f s", time.monotonic() - began)
    summary = {
        "patients": got["cohort"]["counts"]["patients"], "observations": got["embed"]["rows"],
        "test_auc": got["predict"]["auc"], "test_auc_interval": [got["predict"]["auc_low"], got["predict"]["auc_high"]],
        "test_ece": got["predict"]["ece"], "ece_bins": got["predict"]["ece_bins"],
        "completeness_gap_max": got["explain"]["completeness_gap"]["max"],
        "quote_pass_rate": got["verify"]["quotes"]["rate"], "rationales_passing_s1": got["verify"]["s1"]["rate"],
        "page": os.path.abspath(got["report"]["report"]),
        "note": "the sample shows the chain: 210 training patients are too few to learn 25 factors, so expect an AUC about chance; "
                "README has the table of the whole planted cohort",
    }
    log.info("\n%s", json.dumps(summary, indent=2))
    return summary
