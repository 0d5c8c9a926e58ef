"""Rows and figures between the model and the pages: predictions, activations, what each query detects."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_jax import stats
from core_jax.index import ExactIndex
from evigen_jax import metrics, train
from evigen_jax.inputs import Inputs
from evigen_jax.retriever import MODALITIES, EviGenConfig

EXAMPLES = 8  # top observations shown per query


def members(data: Inputs, split: str | None) -> np.ndarray:
    """Indices of a split's patients; "all" or None: everyone. Raises: ValueError where the split is empty."""
    index = np.array([i for i, x in enumerate(data.labels) if split in (None, "all", x.split)], np.int64)
    if not len(index):
        raise ValueError(f"split {split}: no patients in {data.cohort.path}/labels.jsonl")
    return index


def predictions(data: Inputs, params: Any, model: EviGenConfig, split: str) -> list[dict[str, Any]]:
    """A row a patient: patient_id, prediction_time, label, split, prob, logit, gate (0 or 1 a query)."""
    index = members(data, split)
    out = train.predict(params, data.packed, model, patients=index)
    return [{"patient_id": data.labels[i].patient_id, "prediction_time": data.labels[i].prediction_time, "label": data.labels[i].label,
             "split": data.labels[i].split, "prob": float(p), "logit": float(z), "gate": [int(v) for v in g]}
            for i, p, z, g in zip(index, out["prob"], out["logit"], out["gate"])]


def check_prediction(row: Any) -> None:
    """Raises: ValueError naming the field of a predictions file's row."""
    if not isinstance(row, dict):
        raise ValueError(f"got {type(row).__name__}, expected an object")
    for name, kind in (("patient_id", str), ("prob", (int, float)), ("logit", (int, float)), ("gate", list)):
        if not isinstance(row.get(name), kind) or isinstance(row.get(name), bool):
            raise ValueError(f"{name}: got {row.get(name)!r}, expected {kind}")
    if not 0 <= row["prob"] <= 1 or not math.isfinite(row["logit"]):
        raise ValueError(f"prob {row['prob']!r}, logit {row['logit']!r}: expected a probability and a finite logit")
    if isinstance(row.get("label"), bool) or row.get("label") not in (0, 1, None):
        raise ValueError(f"label: got {row['label']!r}, expected 0, 1 or null")


def scored(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    """The labelled rows that figures are computed on, and the name of their split: test wherever it is among several.

    Training patients never enter a figure beside held-out ones.
    """
    labelled = [r for r in rows if r.get("label") is not None]
    splits = {r.get("split") for r in labelled}
    name = "test" if "test" in splits else "val" if "val" in splits else "train" if "train" in splits else "unsplit"
    return name, labelled if len(splits) < 2 else [r for r in labelled if r.get("split") == name]


def check_joined(rows: Sequence[Mapping[str, Any]], data: Inputs, model: EviGenConfig) -> None:
    """Raises: ValueError naming the patient of a predictions row that this cohort and this model cannot have given."""
    labels = {x.patient_id: x for x in data.labels}
    for r in rows:
        who, gate = f"predictions: patient {r['patient_id']!r}", r["gate"]
        if (label := labels.get(r["patient_id"])) is None:
            raise ValueError(f"{who} is not in the cohort {data.cohort.path}")
        if len(gate) != model.n or any(isinstance(g, bool) or g not in (0, 1) for g in gate):
            raise ValueError(f"{who}: gate: got {gate!r:.80}, expected {model.n} values 0 or 1, one a query")
        for name in ("label", "split", "prediction_time"):
            if r.get(name) is not None and r[name] != getattr(label, name):
                raise ValueError(f"{who}: {name}: got {r[name]!r}, the cohort has {getattr(label, name)!r}")


def activation(rows: Sequence[Mapping[str, Any]], model: EviGenConfig) -> dict[str, Any]:
    """Table 4 over prediction rows."""
    return metrics.activation_table(np.array([r["gate"] for r in rows]), model.n_note)


def query_examples(data: Inputs, params: Any, model: EviGenConfig) -> list[dict[str, Any]]:
    """For each query the observations closest to it over all patients, one a distinct text: what the query detects."""
    out = []
    for i, modality in enumerate(MODALITIES):
        mine = range(model.n_note) if i == 0 else range(model.n_note, model.n)
        x = getattr(data.packed, f"x_{modality}")
        if not len(mine) or not len(x):
            out += [{"query": q, "modality": modality, "items": []} for q in mine]
            continue
        unit = np.asarray(params["query"], np.float32)[list(mine)]
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        scores, rows = ExactIndex(x).search(unit, min(len(x), EXAMPLES * 16))
        offsets, ids = getattr(data.packed, f"off_{modality}"), getattr(data.packed, f"obs_{modality}")
        for q, near, at in zip(mine, scores, rows):
            items: list[dict[str, Any]] = []
            for score, row in zip(near, at):
                patient_id = data.packed.patient_ids[int(np.searchsorted(offsets, row, side="right")) - 1]
                text = data.observations[patient_id][ids[row]].text
                if all(text != item["text"] for item in items):
                    items.append({"patient_id": patient_id, "obs_id": ids[row], "score": float(score), "text": text})
                if len(items) == EXAMPLES:
                    break
            out.append({"query": q, "modality": modality, "items": items})
    return out


def run_info(data: Inputs, params: Any, model: EviGenConfig, record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]],
             *, run_id: str) -> dict[str, Any]:
    """What the pages say about the run; the metrics are those of the predictions handed in."""
    import json
    import pathlib

    check_joined(rows, data, model)
    split, held = scored(rows)
    y, p = np.array([r["label"] for r in held], np.int32), np.array([r["prob"] for r in held], np.float64)
    found: dict[str, Any] = {}
    if len(held):
        got = metrics.scores(y, p)
        found = {"auc": got["auc"], "auc_ci": None if got["auc"] is None else [got["auc_low"], got["auc_high"]],
                 "ece": got["ece"], "ece_bins": got["ece_bins"], "reliability": stats.reliability(y, p).rows(),
                 "roc": [] if got["auc"] is None else [[float(a), float(b)] for a, b in zip(*stats.roc(y, p)[:2])],
                 "base_rate": float(np.mean([x.label for x in data.labels if x.split == "train"] or y)),
                 "subgroups": metrics.subgroups(held, [data.patients[r["patient_id"]] for r in held])}
    table = activation(rows, model)["rows"]
    found |= {"threshold": 0.5, "query_examples": query_examples(data, params, model),
              "calibration": f"Probabilities are the selector's own, not recalibrated; figures are of the {split} split ({len(held)} patients).",
              "activation": [{"query": r["query"], "modality": r["modality"], "gate_type": r["gate"],
                              "activation": r["activation_percent"] / 100} for r in table]}
    attrition = json.loads((pathlib.Path(data.cohort.path) / "attrition.json").read_text(encoding="utf-8"))
    return {"task": data.cohort.info["task"], "run_id": run_id, "encoder_id": data.store.encoder_id,
            "config": {"model": record["model"], "train": record["train"]},
            "cohort": {"counts": data.cohort.info["counts"], "attrition": attrition},
            "notes_rendered": data.cohort.info["notes_rendered"], "metrics": found}
