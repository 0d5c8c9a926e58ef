"""How safe a memory in HISTORY is to forget: a logistic model of its embedding and of what the state knows of
it. NumPy and SciPy, no JAX.
"""
from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from core_jax.records import RecordError, atomic_write
from stam_jax.deletion.conformal import LABELS
from stam_jax.deletion.endurance import CandidateRule, concept_type, updates_since_archived
from stam_jax.graph import canonical
from stam_jax.graph.memory import KINDS, POLARITIES, Memory
from stam_jax.graph.relations import RelationTable
from stam_jax.graph.state import State
from stam_jax.graph.transitions import LEGAL
from stam_jax.history.logistic import Logistic, numbers
from stam_jax.read.search import Vectors
from stam_jax.readers.json_document import Document

SCHEMA = "deletion scorer/1"
COMPONENTS = 32
_REASONS = tuple(sorted(r for (_, to), reasons in LEGAL.items() if to == "HISTORY" for r in reasons))
_ATTRIBUTES = ("dose", "status", "value", "allergy", "plan", "preference", "procedure", "background")


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """One memory as the scorer sees it. concept_type: or another unit of the bound (`parts`). vector: its embedding
    [dim]. numbers: by `feature_names`. label: if known."""

    patient_id: str
    mid: str
    concept_type: str
    group: str
    deletable: bool
    in_history: bool
    vector: np.ndarray
    numbers: tuple[float, ...]
    label: str | None = None


def feature_names(table: RelationTable) -> tuple[str, ...]:
    """Of `Example.numbers`, in order."""
    return (*(f"kind {k}" for k in KINDS), *(f"polarity {p}" for p in POLARITIES), *(f"reason {r}" for r in _REASONS),
            *(f"slot {a}" for a in _ATTRIBUTES), "has unit", *(f"{t.name} to ACTIVE" for t in table.types),
            "restatements", "log updates since archived", "log length")


def _describe(state: State, m: Memory, since: int, degrees: Mapping[tuple[str, str], int]) -> tuple[float, ...]:
    standing = state.standing(m.mid)
    return tuple(map(float, (
        *(m.kind == k for k in KINDS), *(m.polarity == p for p in POLARITIES),
        *(standing is not None and standing.reason == r for r in _REASONS), *(m.attribute == a for a in _ATTRIBUTES),
        m.unit is not None, *(degrees.get((m.mid, t.name), 0) for t in state.table.types), len(m.provenance) - 1,
        math.log1p(since), math.log1p(len(m.text)))))


def examples(state: State, vectors: Vectors, rule: CandidateRule, labels: Mapping[tuple[str, str], str] | None = None
             ) -> list[Example]:
    """Every memory of a patient, or with `labels` ((patient_id, mid) -> label) those that have one.

    Raises: ValueError: a memory without a vector.
    """
    rows, verdicts, ages = dict(zip(vectors[0], vectors[1])), rule.verdicts(state), updates_since_archived(state)
    degrees: dict[tuple[str, str], int] = {}
    for r in state.relations.values():
        for mid in (r.src, r.dst):
            if state.places[r.other(mid)] == "ACTIVE":
                degrees[mid, r.type] = degrees.get((mid, r.type), 0) + 1
    out = []
    for m in state.memories.values():
        label = None if labels is None else labels.get((m.patient_id, m.mid))
        if labels is not None and label is None:
            continue
        if m.mid not in rows:
            raise ValueError(f"patient {m.patient_id!r}: {m.mid} has no vector; read the state and the vectors again")
        out.append(Example(m.patient_id, m.mid, concept_type(m), m.attribute or "none", verdicts[m.mid] is None,
                           m.store == "HISTORY", np.asarray(rows[m.mid], np.float64),
                           _describe(state, m, ages.get(m.mid, 0), degrees), label))
    return out


def split(types: Iterable[str], shares: Sequence[float] = (0.5, 0.3, 0.2), seed: int = 0) -> dict[str, str]:
    """Concept type -> train, calibration or test: whole types, drawn by a hash of their name."""
    order = sorted(set(types), key=lambda t: canonical.digest([seed, t]))
    first, second = (round(len(order) * sum(shares[:i]) / sum(shares)) for i in (1, 2))
    return {t: "train" if i < first else "calibration" if i < second else "test" for i, t in enumerate(order)}


def parts(rows: Sequence[Example], unit: str = "type", shares: Sequence[float] = (0.5, 0.3, 0.2), seed: int = 0
          ) -> dict[str, list[Example]]:
    """train, calibration and test -> examples whose `concept_type` names the unit of the bound.

    "type": types are whole in one part, across patients. "patient": patients are, and a unit is one patient's type,
    named by a hash.
    """
    if unit == "patient":
        of = split((e.patient_id for e in rows), shares, seed)
        named = [dataclasses.replace(e, concept_type=canonical.identifier("u", e.patient_id, e.concept_type))
                 for e in rows]
        where = [of[e.patient_id] for e in rows]
    else:
        of = split((e.concept_type for e in rows), shares, seed)
        named, where = list(rows), [of[e.concept_type] for e in rows]
    return {part: [e for e, w in zip(named, where) if w == part] for part in ("train", "calibration", "test")}


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Principal components of the embedding and the other features -> P(safe to forget).

    mean: [dim]; components: [c][dim]. names: of the other features. types: the units it was trained on.
    """

    names: tuple[str, ...]
    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    model: Logistic
    types: tuple[str, ...]

    @classmethod
    def fit(cls, train: Sequence[Example], table: RelationTable, *, components: int = COMPONENTS, l2: float = 1.0
            ) -> Scorer:
        """From labelled memories of HISTORY; what is uncertain counts as not safe.

        Raises: ValueError: fewer than two of them, an example without a label.
        """
        rows = [e for e in train if e.in_history]
        if len(rows) < 2:
            raise ValueError(f"got {len(rows)} labelled memories of HISTORY to learn from, expected at least 2")
        if bare := [e.mid for e in rows if e.label not in LABELS]:
            raise ValueError(f"{bare[0]} has no label")
        vectors = np.stack([e.vector for e in rows])
        mean = vectors.mean(axis=0)
        basis = np.linalg.svd(vectors - mean, full_matrices=False)[2][:min(components, len(rows) - 1)]
        peaks = np.take_along_axis(basis, np.abs(basis).argmax(axis=1)[:, None], axis=1)
        basis = basis * np.where(peaks < 0, -1.0, 1.0)  # an axis has no direction of its own
        x = _inputs(rows, mean, basis)
        model = Logistic.fit(x, np.array([e.label == LABELS[0] for e in rows]), l2=l2)
        return cls(feature_names(table), tuple(mean.tolist()), tuple(map(tuple, basis.tolist())), model,
                   tuple(sorted({e.concept_type for e in train})))

    def score(self, rows: Sequence[Example]) -> list[float]:
        """P(safe to forget) of each. Raises: ValueError: another dimension, other features."""
        if not rows:
            return []
        if any(len(e.vector) != len(self.mean) or len(e.numbers) != len(self.names) for e in rows):
            raise ValueError(f"got a vector of {len(rows[0].vector)} and {len(rows[0].numbers)} features, expected "
                             f"{len(self.mean)} and {len(self.names)}")
        x = _inputs(rows, np.asarray(self.mean), np.asarray(self.components).reshape(-1, len(self.mean)))
        return self.model.predict(x).tolist()

    @property
    def sha256(self) -> str:
        """Of all its numbers; a calibration of another scorer is stale."""
        return canonical.digest(self.to_dict())

    def to_dict(self) -> dict:
        return {"schema": SCHEMA, "names": list(self.names), "mean": list(self.mean), "types": list(self.types),
                "components": [list(c) for c in self.components], "model": self.model.to_dict()}

    def save(self, path: str | os.PathLike) -> None:
        with atomic_write(path) as f:
            f.write(canonical.dumps(self.to_dict()) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> Scorer:
        """Raises: RecordError naming file and field."""
        try:
            raw = Document(path).root
            if not isinstance(raw, dict):
                raise RecordError(f"got {type(raw).__name__}, expected an object")
            canonical.choice(raw.get("schema"), "schema", (SCHEMA,))
            mean = numbers(raw.get("mean"), "mean")
            basis = canonical.sequence(raw.get("components"), "components", list)
            basis = tuple(numbers(c, f"components[{i}]") for i, c in enumerate(basis))
            names, types = (canonical.sequence(raw.get(n), n, str) for n in ("names", "types"))
            model = Logistic.from_dict(raw.get("model"), "model")
            if any(len(c) != len(mean) for c in basis) or len(model.weights) != len(basis) + len(names):
                raise RecordError("got matrices whose sizes do not fit together", field="components")
            return cls(names, mean, basis, model, types)
        except RecordError as e:
            raise RecordError(e.message, file=path, field=e.field) from None
        except ValueError as e:
            raise RecordError(f"is no scorer: {e!r:.120}", file=path) from None


def _inputs(rows: Sequence[Example], mean: np.ndarray, basis: np.ndarray) -> np.ndarray:
    vectors = np.stack([e.vector for e in rows]) - mean
    return np.concatenate([vectors @ basis.T, np.array([e.numbers for e in rows])], axis=1)
