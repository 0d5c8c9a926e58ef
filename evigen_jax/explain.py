"""From trained parameters to evidence packs (paper 3.2): predict a batch, attribute it, name every row by its observation id."""
from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from evigen_jax import retriever
from evigen_jax.attribution import Quadrature, attribute
from evigen_jax.batches import Feed, plan
from evigen_jax.config import ExplainConfig
from evigen_jax.evidence import Attributed, Prediction, build_pack
from evigen_jax.inputs import Inputs
from evigen_jax.retriever import EviGenConfig
from evigen_jax.summaries import members


def run_id(record: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a run: settings, data, split and first parameters, but not versions or machine."""
    named = {k: v for k, v in record.items() if k != "versions"}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]


@functools.partial(jax.jit, static_argnames=("config", "max_segment"))
def _forward(params, batch, config: EviGenConfig, max_segment: tuple[int, int]):
    out = retriever.apply(params, batch, config=config, max_segment=max_segment)
    return {k: out[k] for k in ("logit", "prob", "gate", "scores", "rows", "valid")}


def packs(data: Inputs, params: Any, model: EviGenConfig, config: ExplainConfig, *, split: str | None = None, run_id: str,
          batch_patients: int = 64, progress: bool | None = None) -> Iterator[dict[str, Any]]:
    """Evidence packs of a split (None: of every loaded patient), in the cohort's order.

    Raises: ValueError: an empty split; what `build_pack` raises.
    """
    index = members(data, split)
    length = sum(np.diff(getattr(data.packed, f"off_{m}")) for m in retriever.MODALITIES)[index]
    order = index[np.argsort(length, kind="stable")]  # neighbours of like length: few shapes, little padding
    groups = [order[i: i + batch_patients] for i in range(0, len(order), batch_patients)]
    shapes = plan(data.packed, groups, min(batch_patients, len(order)))
    feed, quadrature = Feed(data.packed, resident=False), Quadrature(tolerance=config.tolerance)
    done: dict[int, dict[str, Any]] = {}
    shown = sys.stderr.isatty() if progress is None else progress
    with tqdm(total=len(order), desc="explain", unit="patient", disable=not shown, file=sys.stderr) as bar:
        for group, (batch, shape) in zip(groups, feed.batches(groups, shapes)):
            out = jax.device_get(_forward(params, batch, model, shape.segments))
            found = attribute(params, out, batch, model, target=config.target, quadrature=quadrature, ig_batch=config.ig_batch)
            starts = {m: np.asarray(batch[f"off_{m}"]) for m in retriever.MODALITIES}
            for n, i in enumerate(group):
                done[int(i)] = _pack(data, int(i), n, found[n], out, starts, config, run_id)
            bar.update(len(group))
    yield from (done[int(i)] for i in index)


def _pack(data: Inputs, i: int, n: int, found, out, starts, config: ExplainConfig, run_id: str) -> dict[str, Any]:
    label = data.labels[i]
    ids = {m: data.packed.observations(i, m) for m in starts}
    attributed = [Attributed(ids[c.modality][c.row - int(starts[c.modality][n])], c.modality, c.attribution, c.similarity, c.queries)
                  for c in found.chunks]
    prediction = Prediction(float(out["prob"][n]), float(out["logit"][n]), found.base_logit, found.target, found.rule, found.nodes,
                            found.gap, found.converged, found.active)
    return build_pack(data.patients[label.patient_id], label.prediction_time, prediction, attributed, task=data.cohort.info["task"],
                      run_id=run_id, encoder_id=data.store.encoder_id, label=label.label,
                      notes_rendered=data.cohort.info["notes_rendered"], k=config.k, ranking=config.ranking,
                      notes_only=config.notes_only)
