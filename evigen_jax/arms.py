"""The arms that the learned queries are compared with: fixed queries, by similarity (the paper's RAG arm) or oracle.

Their evidence is the observations most similar to any of the queries; their predictions come from the same network with
the queries frozen at those embeddings and every gate open, trained on the same splits.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evigen_jax import retriever
from evigen_jax.packed import MODALITIES, PackedCohort
from evigen_jax.retriever import EviGenConfig

FROZEN = ("query", "eta")


def fixed_queries(model_config: EviGenConfig, note: np.ndarray, code: np.ndarray) -> tuple[EviGenConfig, Callable[[jax.Array], Any]]:
    """Settings and initial parameters of an arm, for `train.fit(..., params=init, frozen=arms.FROZEN)`.

    Args: note [n_note, d], code [n_code, d]: embeddings of the queries; code may have no rows.

    Returns: (model_config with as many queries, gating off, no auxiliary loss; key -> parameters).
    """
    note, code = np.asarray(note, np.float32), np.asarray(code, np.float32).reshape(-1, model_config.d)
    if note.ndim != 2 or note.shape[1] != model_config.d or not len(note):
        raise ValueError(f"note queries: got shape {note.shape}, expected [n >= 1, {model_config.d}]")
    config = dataclasses.replace(model_config, n_note=len(note), n_code=len(code), gating=False, lambda_aux=0.0)

    def init(key: jax.Array) -> Any:
        return {**retriever.init(config, key), "query": jnp.concatenate([jnp.asarray(note), jnp.asarray(code)])}

    return config, init


def similarity_evidence(packed: PackedCohort, note: np.ndarray, code: np.ndarray, *, patients: Sequence[int] | None = None,
                        k: int = 5) -> dict[str, list[dict[str, Any]]]:
    """patient_id -> its k observations with the largest cosine to any query of their modality, best first.

    Args: note [a, d], code [b, d]: query embeddings of any length above 0; patients: indices (default: all).

    Returns: items {"obs_id", "kind", "rank", "similarity"}, fewer where a patient has fewer observations; ties by row,
        notes before codes.
    """
    unit = {m: np.asarray(q, np.float32).reshape(-1, packed.x_note.shape[1]) for m, q in zip(MODALITIES, (note, code))}
    unit = {m: q / np.linalg.norm(q, axis=1, keepdims=True) for m, q in unit.items()}
    out = {}
    for i in range(len(packed.patient_ids)) if patients is None else patients:
        found = []
        for m in MODALITIES:
            a, b = (int(v) for v in getattr(packed, f"off_{m}")[i: i + 2])
            if b > a and len(unit[m]):
                best = (getattr(packed, f"x_{m}")[a:b] @ unit[m].T).max(axis=1)
                found += [(float(s), m, obs) for s, obs in zip(best, getattr(packed, f"obs_{m}")[a:b])]
        found.sort(key=lambda item: -item[0])  # stable: the earlier row of equals stays first
        out[packed.patient_ids[i]] = [{"obs_id": obs, "kind": m, "rank": r, "similarity": s}
                                      for r, (s, m, obs) in enumerate(found[:k], 1)]
    return out
