"""Repeated stratified out-of-fold prediction, for cohorts too small for one honest split.

Every repeat draws new folds; each patient is predicted by a selector that never saw it, neither in training nor in early
stopping (the fold's validation patients come out of its training part). The AUC is that of a repeat's pooled
out-of-fold probabilities; the interval is a patient bootstrap of the mean over repeats.
"""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np

from core_jax import stats
from core_jax.records import atomic_write, write_jsonl
from evigen_jax import train
from evigen_jax.cohorts import require_two_classes
from evigen_jax.inputs import Inputs
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def fold_of(label: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """int32 [P]: the fold of each patient, classes spread evenly. Raises: ValueError: a class has fewer patients than folds."""
    smallest = min(int((label == y).sum()) for y in (0, 1))
    if folds < 2 or smallest < folds:
        raise ValueError(f"folds: got {folds}, expected 2 to {smallest}, the size of the smaller class")
    if smallest - -(-smallest // folds) < 2:
        raise ValueError(f"folds: got {folds} with {smallest} patients in the smaller class, which leaves fewer than two of them to "
                         "train and to stop on; it takes 3 patients a class, and 3 folds then")
    fold = np.empty(len(label), np.int32)
    rng = np.random.default_rng(seed)
    for y in (0, 1):
        index = rng.permutation(np.flatnonzero(label == y))
        fold[index] = (np.arange(len(index)) + (y * folds) // 2) % folds
    return fold


def evaluate(data: Inputs, model: EviGenConfig, config: TrainConfig, out_dir: str | os.PathLike, *, folds: int = 5,
             repeats: int = 3, validation: float = 0.2, resume: bool = True, progress: bool = True) -> dict[str, Any]:
    """Train folds x repeats selectors; write oof.jsonl (a row a patient and repeat) and oof.json (the summary).

    resume: as in `train.fit`.

    Raises: ValueError: one class only, more folds than patients of a class.
    """
    require_two_classes(data.labels)
    if repeats < 1:
        raise ValueError(f"repeats: got {repeats}, expected at least 1")
    y = np.asarray(data.packed.label)
    prob = np.full((repeats, len(y)), np.nan)
    rows = []
    for repeat in range(repeats):
        fold = fold_of(y, folds, config.seed + repeat)
        for k in range(folds):
            held = fold == k
            inner = np.random.default_rng((config.seed + repeat, k))
            val = np.zeros(len(y), bool)
            for c in (0, 1):
                rest = np.flatnonzero(~held & (y == c))
                val[inner.choice(rest, max(1, round(validation * len(rest))), replace=False)] = True
            labels = [dataclasses.replace(x, split="test" if h else "val" if v else "train") for x, h, v in zip(data.labels, held, val)]
            run = os.path.join(os.fspath(out_dir), f"repeat_{repeat}", f"fold_{k}")
            fitted = train.fit(data.packed, labels, model, dataclasses.replace(config, seed=config.seed + repeat), run,
                               info=data.info(), resume=resume, progress=progress)
            out = train.predict(fitted.best_params, data.packed, model, patients=np.flatnonzero(held))
            prob[repeat, held] = out["prob"]
        rows += [{"repeat": repeat, "patient_id": i, "fold": int(f), "label": int(t), "prob": float(p)}
                 for i, f, t, p in zip(data.packed.patient_ids, fold, y, prob[repeat])]
    write_jsonl(os.path.join(os.fspath(out_dir), "oof.jsonl"), rows)
    each = [stats.auc(y, p) for p in prob]
    low, high, skipped = _interval(y, prob, config.seed)
    summary = {"patients": len(y), "positive": int(y.sum()), "folds": folds, "repeats": repeats, "auc_each": each,
               "auc": float(np.mean(each)), "auc_low": low, "auc_high": high, "one_class_resamples": skipped,
               "ece": stats.ece(y, prob.mean(axis=0)), "ece_bins": 15, "notes_rendered": data.cohort.info["notes_rendered"]}
    with atomic_write(os.path.join(os.fspath(out_dir), "oof.json")) as f:
        json.dump(summary, f, ensure_ascii=False, allow_nan=False, indent=1)
    return {"eval": os.fspath(out_dir)} | summary


def _interval(y: np.ndarray, prob: np.ndarray, seed: int, n: int = 1000) -> tuple[float, float, int]:
    """2.5 and 97.5 percentile over patient resamples of the mean AUC of the repeats; one-class resamples are skipped."""
    rng, values, skipped = np.random.default_rng(seed), [], 0
    for _ in range(n):
        pick = rng.integers(0, len(y), len(y))
        if len(np.unique(y[pick])) < 2:
            skipped += 1
            continue
        values.append(np.mean([stats.auc(y[pick], p[pick]) for p in prob]))
    return float(np.percentile(values, 2.5)), float(np.percentile(values, 97.5)), skipped
