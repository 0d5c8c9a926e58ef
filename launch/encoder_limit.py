#!/usr/bin/env python3
"""What the planted cohort leaves to any selector with this encoder: a probe that is told the gold, the weights and the profiles.

    python launch/encoder_limit.py --cohort=runs/planted/cohort --store=runs/planted/store

An MLP (384 -> 256 -> 25) is trained on the *gold* labels of every training chunk and code, which no selector sees; a patient's
score is the sum over factors of known weight, known profile and the largest probability among its observations. Its AUC on
the test split, whose phrasings never occur in training, is a practical ceiling for selectors that learn from outcomes alone;
what lies between it and Bayes is wording that the encoder does not carry over from one phrasing to another.
"""
from __future__ import annotations

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from core_jax import stats
from core_jax.records import read_jsonl
from core_jax.synth.factors import FACTORS
from evigen_jax.inputs import Inputs, load
from evigen_jax.metrics import gold_items

FLAGS = flags.FLAGS
flags.DEFINE_string("cohort", None, "cohort folder of `evigen cohort planted`", required=True)
flags.DEFINE_string("store", None, "its embeddings", required=True)
flags.DEFINE_integer("epochs", 8, "passes over the training observations")
flags.DEFINE_integer("seed", 0, "seed of the probe")

NAMES = [f.name for f in FACTORS]


def told(data: Inputs, modality: str, gold: dict[str, dict]) -> np.ndarray:
    """[S, factors] 1 where an observation shows a factor, acting or not."""
    off = getattr(data.packed, f"off_{modality}")
    y = np.zeros((off[-1], len(NAMES)), np.float32)
    for i, patient_id in enumerate(data.packed.patient_ids):
        ids = data.packed.observations(i, modality)
        place = {o: off[i] + n for n, o in enumerate(ids)}
        for factor in gold[patient_id]["factors"] + gold[patient_id]["neutral"]:
            finds, _, _ = gold_items({"factors": [factor | {"weight": 1.0}]}, ids)
            for obs in finds:
                y[place[obs], NAMES.index(factor["factor"])] = 1.0
    return y


def probe(x: np.ndarray, y: np.ndarray, rows: np.ndarray, key: jax.Array, epochs: int, seed: int) -> np.ndarray:
    """Probabilities [S, factors] of an MLP trained on `rows`."""
    a, b, c = jax.random.split(key, 3)
    d, h, n = x.shape[1], 256, y.shape[1]
    params = {"w1": jax.random.normal(a, (d, h)) * d ** -0.5, "b1": jnp.zeros(h), "w2": jax.random.normal(b, (h, n)) * h ** -0.5, "b2": jnp.zeros(n)}
    optimizer = optax.adamw(3e-3, weight_decay=1e-2)

    def forward(p, x, key=None):
        hidden = jax.nn.gelu(x @ p["w1"] + p["b1"][None])
        if key is not None:
            hidden = jnp.where(jax.random.bernoulli(key, 0.7, hidden.shape), hidden / 0.7, 0.0)
        return hidden @ p["w2"] + p["b2"][None]

    @jax.jit
    def step(p, state, x, y, key):
        grads = jax.grad(lambda p: optax.sigmoid_binary_cross_entropy(forward(p, x, key), y).mean())(p)
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state

    state, rng, i = optimizer.init(params), np.random.default_rng(seed), 0
    for _ in range(epochs):
        order = rng.permutation(rows)
        for part in np.array_split(order, max(1, len(order) // 512)):
            part = np.resize(part, 512 + 64)  # one shape; a few rows twice
            params, state = step(params, state, x[part], y[part], jax.random.fold_in(c, i))
            i += 1
    return np.asarray(jax.nn.sigmoid(jax.jit(forward)(params, x)))


def main(argv) -> None:
    del argv
    data = load(FLAGS.cohort, FLAGS.store, progress=False)
    gold = {row["patient_id"]: row for _, row in read_jsonl(pathlib.Path(FLAGS.cohort) / "gold.jsonl.gz")}
    split = np.array([x.split for x in data.labels])
    shown = np.zeros((len(data.labels), len(NAMES)))
    out = {"observation_auc": {}}
    for n, modality in enumerate(("note", "code")):
        off, x, y = getattr(data.packed, f"off_{modality}"), getattr(data.packed, f"x_{modality}"), told(data, modality, gold)
        patient = np.repeat(np.arange(len(data.labels)), np.diff(off))
        p = probe(x, y, np.flatnonzero(split[patient] == "train"), jax.random.key(FLAGS.seed + n), FLAGS.epochs, FLAGS.seed)
        np.maximum.at(shown, patient, p)
        test = split[patient] == "test"
        aucs = [stats.auc(y[test, k].astype(int), p[test, k]) for k in range(len(NAMES)) if 0 < y[test, k].sum()]
        out["observation_auc"][modality] = {"mean": float(np.mean(aucs)), "min": float(np.min(aucs))}
    weight = np.array([f.weight for f in FACTORS])
    acts = np.array([[f.profile in (None, gold[x.patient_id]["profile"]) for f in FACTORS] for x in data.labels])
    score = 1 / (1 + np.exp(-(shown * acts) @ weight))
    label = np.array([x.label for x in data.labels])
    bayes = np.array([gold[x.patient_id]["bayes_prob"] for x in data.labels])
    for name in ("train", "val", "test"):
        at = split == name
        out[name] = {"patients": int(at.sum()), "auc": stats.auc(label[at], score[at]), "bayes_auc": stats.auc(label[at], bayes[at])}
    ci = stats.auc_ci(label[split == "test"], score[split == "test"])
    out["test"] |= {"auc_low": ci.low, "auc_high": ci.high}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    app.run(main)
