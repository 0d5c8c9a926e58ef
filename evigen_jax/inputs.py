"""A cohort folder and a vector store, joined: what the model may see of each patient, and where every row came from.

The store holds vectors under (patient, observation id). Before a row is used, its text is rebuilt from the record as it
stood at the prediction time and hashed: a store made from other notes, another encoder's headers or a later moment is
refused, so nothing that lies after the prediction time can reach the model through a stale store.
"""
from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from core_jax.observations import Observation, resolve
from core_jax.records import Label, Patient, RecordError
from core_jax.vector_store import VectorStore, text_sha256
from evigen_jax.cohorts import Cohort, read_cohort
from evigen_jax.packed import PackedCohort


@dataclasses.dataclass(frozen=True)
class Inputs:
    """packed: the vectors; patients: visible records by id; observations: by patient, then by observation id."""

    cohort: Cohort
    store: VectorStore
    packed: PackedCohort
    labels: list[Label]
    patients: dict[str, Patient]
    observations: dict[str, dict[str, Observation]]

    def info(self) -> dict[str, object]:
        """What a run records of its data: hashes and the encoder."""
        return {"cohort_sha256": self.cohort.info["sha256"], "encoder_id": self.store.encoder_id, "dim": self.store.dim,
                "store_rows": len(self.store), "chunking": self.store.header["chunking"], "task": self.cohort.info["task"],
                "notes_rendered": self.cohort.info["notes_rendered"]}


def load(cohort_dir: str | os.PathLike, store_dir: str | os.PathLike, *, only: Sequence[str] | None = None,
         progress: bool | None = None) -> Inputs:
    """Open both and check each row against the record.

    Args:
        only: these patients (default: every labelled one).
    Raises: ValueError: a patient, a note or a code that the store lacks; a row whose text is not what the record gives
        at the prediction time; an unknown patient in `only`.
    """
    cohort = read_cohort(cohort_dir)
    store = VectorStore.open(store_dir)
    by_id = {x.patient_id: x for x in cohort.labels}
    if only is not None and (unknown := [i for i in only if i not in by_id]):
        raise ValueError(f"{os.fspath(cohort_dir)}: no patient {unknown[0]!r} in this cohort")
    chosen = by_id.keys() if only is None else set(only)
    patients: dict[str, Patient] = {}
    observed: dict[str, dict[str, Observation]] = {}
    wanted: list[tuple[str, list[str]]] = []
    shown = sys.stderr.isatty() if progress is None else progress
    for patient in tqdm(cohort.visible_patients(), "read", len(by_id), unit="patient", disable=not shown, file=sys.stderr):
        if patient.patient_id not in chosen:
            continue
        rows = store.index(patient.patient_id)
        observed[patient.patient_id] = _observed(patient, rows, store.path)
        wanted.append((patient.patient_id, [r["obs_id"] for r in rows]))
        patients[patient.patient_id] = patient
    try:
        packed = PackedCohort.from_store(store, wanted, {i: x.label for i, x in by_id.items()})
    except RecordError as e:
        raise ValueError(f"{store.path}: {e}") from None
    return Inputs(cohort, store, packed, [by_id[i] for i in packed.patient_ids], patients, observed)


def _observed(patient: Patient, rows: Sequence[Mapping[str, str]], where: str) -> dict[str, Observation]:
    """The stored rows of one patient as observations of its visible record."""
    out: dict[str, Observation] = {}
    stale = f"{where}: patient {patient.patient_id!r}"
    try:
        found = resolve(patient, ((row["obs_id"], row["kind"]) for row in rows))
    except RecordError as e:
        raise ValueError(f"{stale}: {e}; embed this cohort again, into another store") from None
    for o, row in zip(found, rows, strict=True):
        if text_sha256(o.embed_text) != row["text_sha256"]:
            raise ValueError(f"{stale}: the text of observation {o.obs_id!r} is not the one that was embedded; embed this cohort again, into another store")
        out[o.obs_id] = o
    sources = {(o.kind, o.source_id) for o in out.values()}
    for note in patient.notes:
        if note.text.strip() and ("note", note.note_id) not in sources:
            raise ValueError(f"{stale}: note {note.note_id!r} is not in the store; embed this cohort again, into another store")
    for code in patient.codes:
        if ("code", code.obs_id) not in sources:
            raise ValueError(f"{stale}: code {code.obs_id!r} is not in the store; embed this cohort again, into another store")
    return out
