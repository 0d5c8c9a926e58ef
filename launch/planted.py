#!/usr/bin/env python3
"""The planted cohort's table: does a selector find *predictive* text? Arms by seeds, one Markdown table and one JSON.

    evigen cohort planted --out runs/planted/cohort
    evigen embed --cohort runs/planted/cohort --out runs/planted/store
    python launch/planted.py --cohort=runs/planted/cohort --store=runs/planted/store --out=runs/planted/table --seeds=5

Arms: `evigen` (configs/planted.py), `paper` (4 + 4 queries, temperature 1, random queries, as the paper has it),
`gates off` and `gates off, lambda 0` (the two ablations), `similarity` (the paper's RAG arm: fixed queries from the
literature retrieve, the same experts are trained on what they find; its top five are the most similar chunks),
`oracle queries` (the factors' own definitions as fixed queries, attribution ranks). Each arm: mean over seeds and t interval.
A finished seed is not trained again.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from typing import Any

import jax
import numpy as np
from absl import app, flags

from core_jax import settings
from core_jax.embed import load_encoder
from core_jax.records import atomic_write, read_jsonl
from core_jax.synth.queries import ORACLE_QUERIES, RAG_QUERIES_CODE, RAG_QUERIES_NOTE
from evigen_jax import explain, metrics, retriever, summaries, train
from evigen_jax.arms import FROZEN, fixed_queries, similarity_evidence
from evigen_jax.config import Config
from evigen_jax.inputs import Inputs, load

FLAGS = flags.FLAGS
flags.DEFINE_string("cohort", None, "cohort folder of `evigen cohort planted`", required=True)
flags.DEFINE_string("store", None, "its embeddings", required=True)
flags.DEFINE_string("out", None, "folder for runs, table.md and table.json", required=True)
flags.DEFINE_integer("seeds", 5, "training seeds per arm")
flags.DEFINE_list("arms", [], "only these arms")
flags.DEFINE_string("config", str(pathlib.Path(__file__).resolve().parents[1] / "configs/planted.py"), "settings of the evigen arm")
flags.DEFINE_multi_string("set", [], "change one setting of the evigen arm, e.g. --set=train.lr=3e-4")


@dataclasses.dataclass(frozen=True)
class Arm:
    """queries: fixed (note, code) directions, or None where they are learned. ranking: of the five items that count."""

    config: Config
    queries: tuple[np.ndarray, np.ndarray] | None = None
    ranking: str = "attribution"


def arms(base: Config, dim: int) -> dict[str, Arm]:
    """Every arm's settings. Fixed queries are embedded by the store's encoder."""
    encoder = load_encoder(base.encoder.name, base.encoder.pooling, dtype=base.encoder.weights)
    if "query" in getattr(encoder, "prompts", ()):
        encoder.prompt = "query"
    rag = encoder.encode(RAG_QUERIES_NOTE), encoder.encode(RAG_QUERIES_CODE)
    oracle_queries = (encoder.encode(list(ORACLE_QUERIES.values())),) * 2

    def changed(**model) -> Config:
        return dataclasses.replace(base, model=dataclasses.replace(base.model, d=dim, **model))

    paper = dataclasses.replace(
        base, model=retriever.EviGenConfig(d=dim, n_note=4, n_code=4),
        train=dataclasses.replace(base.train, lr=1e-3, warmup_steps=500, epochs=20, query_init="normal"))
    similarity, oracle = (dataclasses.replace(base, model=fixed_queries(changed().model, *q)[0]) for q in (rag, oracle_queries))
    return {
        "evigen": Arm(changed()),
        "paper": Arm(paper),
        "gates off": Arm(changed(gating=False)),
        "gates off, lambda 0": Arm(changed(gating=False, lambda_aux=0.0)),
        "similarity": Arm(similarity, rag, "similarity"),
        "oracle queries": Arm(oracle, oracle_queries),
    }


def one_seed(data: Inputs, arm: Arm, seed: int, gold: list[dict[str, Any]], folder: pathlib.Path) -> dict[str, Any]:
    """Train, predict the test split, rank five observations a patient, compare with the gold."""
    config = dataclasses.replace(arm.config.train, seed=seed)
    options: dict[str, Any] = {}
    if arm.queries is not None:
        _, init = fixed_queries(arm.config.model, *arm.queries)
        options = {"params": init(jax.random.key(seed)), "frozen": FROZEN}
    done = train.fit(data.packed, data.labels, arm.config.model, config, folder, info=data.info(), progress=sys.stderr.isatty(), **options)
    rows = summaries.predictions(data, done.best_params, arm.config.model, "test")
    packs = explain.packs(data, done.best_params, arm.config.model, arm.config.explain, split="test", run_id=folder.name, progress=False)
    evidence = {p["patient_id"]: p["items"] for p in packs}
    if arm.ranking == "similarity":
        evidence = similarity_evidence(data.packed, *arm.queries, patients=summaries.members(data, "test"))
    observed = {i: list(data.observations[i]) for i in evidence}
    report = metrics.planted_report(evidence, gold, observed, rows)
    return report | {"seed": seed, "epochs": done.epochs, "active": float(np.mean([sum(r["gate"]) for r in rows]))}


COLUMNS = (("auc", "AUC"), ("bayes_gap", "gap to Bayes"), ("ece", "ECE"), ("recall", "recall@5"), ("precision", "precision@5"),
           ("sign_accuracy", "sign accuracy"), ("active", "active queries"))


def markdown(table: dict[str, dict[str, Any]]) -> str:
    lines = ["| arm | " + " | ".join(name for _, name in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for arm, got in table.items():
        cells = []
        for key, _ in COLUMNS:
            m = got["mean"].get(key)
            cells.append("-" if m is None else f"{m['mean']:.3f} [{m['low']:.3f}, {m['high']:.3f}]" if m["low"] is not None else f"{m['mean']:.3f}")
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv) -> None:
    del argv
    base = settings.override(settings.load(FLAGS.config, Config), FLAGS.set)
    data = load(FLAGS.cohort, FLAGS.store, progress=False)
    gold = [row for _, row in read_jsonl(pathlib.Path(FLAGS.cohort) / "gold.jsonl.gz")]
    out, table = pathlib.Path(FLAGS.out), {}
    for name, arm in arms(base, data.store.dim).items():
        if FLAGS.arms and name not in FLAGS.arms:
            continue
        reports = []
        for seed in range(FLAGS.seeds):
            reports.append(one_seed(data, arm, seed, gold, out / name.replace(", ", "_").replace(" ", "_") / f"seed_{seed}"))
            r = reports[-1]
            print(f"{name} seed {seed}: AUC {r['auc']:.4f} (Bayes {r['bayes_auc']:.4f}) recall {r['recall']:.3f} epochs {r['epochs']}", file=sys.stderr, flush=True)
        table[name] = {"seeds": reports, "mean": metrics.over_seeds(reports)}
    with atomic_write(out / "table.json") as f:
        json.dump(table, f, indent=1, allow_nan=False)
    with atomic_write(out / "table.md") as f:
        f.write(markdown(table) + "\n")
    print(markdown(table))


if __name__ == "__main__":
    app.run(main)
