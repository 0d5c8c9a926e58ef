"""Evidence packs: the observations that moved one prediction, with text, provenance and signed attribution (paper 3.2).

Plain Python. Provenance is carried by key from end to end: an attribution names an observation id, and text, offsets,
time and age are looked up under that id in the record, never by a position in a table (a defect of the authors' release).
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Collection, Iterable
from typing import Any, Literal

from core_jax.observations import resolve
from core_jax.records import Patient

SCHEMA = "evidence_pack/1"
Ranking = Literal["absolute", "signed"]

_ITEM = {
    "obs_id": str, "kind": str, "source_id": str, "rank": int, "attribution": float, "similarity": float, "queries": list,
    "text": str, "start": (int, None), "end": (int, None), "time": (str, None), "age_years": (float, None),
}
_PACK = {
    "schema": str, "patient_id": str, "prediction_time": str, "label": (int, None), "prob": float, "logit": float,
    "base_logit": float, "target": str, "quadrature": str, "n_nodes": int, "completeness_gap": float, "converged": bool,
    "active_queries": list, "items": list, "other_note_attribution": float, "other_code_attribution": float,
    "residual": float, "run_id": str, "encoder_id": str, "notes_rendered": bool, "task": dict, "note": (str, None),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Attributed:
    """One retrieved observation: its id, its signed attribution, the queries that retrieved it and the best cosine."""

    obs_id: str
    kind: Literal["note", "code"]
    attribution: float
    similarity: float
    queries: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a pack says about the prediction and about the integral. completeness_gap is relative."""

    prob: float
    logit: float
    base_logit: float
    target: Literal["logit", "prob"]
    quadrature: str
    n_nodes: int
    completeness_gap: float
    converged: bool
    active_queries: tuple[int, ...]


def sources(patient: Patient, wanted: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """source_id, text, start, end, time and age of each (obs_id, kind), from the record as it was visible.

    Raises: ValueError: the record has no such observation; names patient and id.
    """
    names = "source_id", "text", "start", "end", "time", "age_years"
    return [{name: getattr(o, name) for name in names} for o in resolve(patient, wanted)]


def build_pack(
    patient: Patient, prediction_time: str, prediction: Prediction, attributed: Iterable[Attributed], *,
    task: dict[str, str], run_id: str, encoder_id: str, label: int | None = None, notes_rendered: bool = False,
    k: int = 5, ranking: Ranking = "absolute", notes_only: bool = False,
) -> dict[str, Any]:
    """One evidence pack.

    The k items are the largest by |attribution| (`ranking="signed"`: by attribution, risk-raising first), ties by
    observation id. With notes_only no code becomes an item; codes still count in `other_code_attribution`.
    In units of the target, base + items + others + residual is the prediction.

    Raises:
        ValueError: an id that the record lacks or that comes twice; a number that is not finite; bad options.
    """
    attributed = list(attributed)
    if k < 1:
        raise ValueError(f"k: got {k}, expected at least 1")
    if ranking not in ("absolute", "signed"):
        raise ValueError(f"ranking: got {ranking!r}, expected absolute or signed")
    seen: set[str] = set()
    for a in attributed:
        if a.obs_id in seen:
            raise ValueError(f"patient {patient.patient_id!r}: observation {a.obs_id!r} is attributed twice")
        seen.add(a.obs_id)
        if not (math.isfinite(a.attribution) and math.isfinite(a.similarity)):
            raise ValueError(f"patient {patient.patient_id!r}: observation {a.obs_id!r}: got {a.attribution!r}, expected finite numbers")
    order = sorted(attributed, key=lambda a: (-a.attribution if ranking == "signed" else -abs(a.attribution), a.obs_id))
    chosen = [a for a in order if not (notes_only and a.kind == "code")][:k]
    taken = {a.obs_id for a in chosen}
    rest = [a for a in attributed if a.obs_id not in taken]
    found = sources(patient, [(a.obs_id, a.kind) for a in chosen])
    pack = {
        "schema": SCHEMA, "patient_id": patient.patient_id, "prediction_time": prediction_time, "label": label,
        **dataclasses.asdict(prediction),
        "active_queries": list(prediction.active_queries),
        "items": [
            {
                "obs_id": a.obs_id, "kind": a.kind, "rank": rank, "attribution": float(a.attribution),
                "similarity": float(a.similarity), "queries": list(a.queries), **where,
            }
            for rank, (a, where) in enumerate(zip(chosen, found), 1)
        ],
        "other_note_attribution": math.fsum(a.attribution for a in rest if a.kind == "note"),
        "other_code_attribution": math.fsum(a.attribution for a in rest if a.kind == "code"),
        "residual": 0.0, "run_id": run_id, "encoder_id": encoder_id, "notes_rendered": bool(notes_rendered),
        "task": dict(task), "note": None,
    }
    pack["residual"] = _end(pack) - _explained(pack)
    if len(chosen) < k:
        what = "note chunk" if notes_only else "observation"
        pack["note"] = f"{len(chosen)} of the {k} items asked for: no other {what} was retrieved for this patient."
    validate_pack(pack)
    return pack


def base_value(pack: dict[str, Any]) -> float:
    """F(0) in units of the pack's target."""
    return pack["base_logit"] if pack["target"] == "logit" else sigmoid(pack["base_logit"])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _end(pack) -> float:
    return pack["logit"] if pack["target"] == "logit" else pack["prob"]


def _explained(pack) -> float:
    others = pack["other_note_attribution"], pack["other_code_attribution"]
    return math.fsum([base_value(pack), *others, *(i["attribution"] for i in pack["items"])])


def validate_pack(pack: Any) -> None:
    """Check every field of a pack, and that its contributions add up to the prediction.

    Raises: ValueError naming patient and field.
    """
    who = f"evidence pack of {pack.get('patient_id')!r}" if isinstance(pack, dict) else "evidence pack"
    check_fields(pack, _PACK, who, optional=("note",))
    if pack["schema"] != SCHEMA:
        raise ValueError(f"{who}: schema: got {pack['schema']!r}, expected {SCHEMA!r}")
    check_fields(pack["task"], {"name": str, "sentence": str}, f"{who}: task")
    for name, ok in (
        ("patient_id", pack["patient_id"] != ""), ("label", pack["label"] in (None, 0, 1)), ("prob", 0 <= pack["prob"] <= 1),
        ("target", pack["target"] in ("logit", "prob")), ("n_nodes", pack["n_nodes"] > 0),
        ("completeness_gap", pack["completeness_gap"] >= 0), ("prediction_time", _is_time(pack["prediction_time"])),
        ("active_queries", _is_queries(pack["active_queries"])),
    ):
        if not ok:
            raise ValueError(f"{who}: {name}: got {pack[name]!r}")
    if abs(sigmoid(pack["logit"]) - pack["prob"]) > 1e-4:
        raise ValueError(f"{who}: prob: got {pack['prob']!r}, but logit {pack['logit']!r} is {sigmoid(pack['logit'])!r}")
    seen: set[str] = set()
    for rank, item in enumerate(pack["items"], 1):
        at = f"{who}: items[{rank - 1}]"
        check_fields(item, _ITEM, at)
        if item["rank"] != rank:
            raise ValueError(f"{at}.rank: got {item['rank']}, expected {rank}")
        if item["kind"] not in ("note", "code"):
            raise ValueError(f"{at}.kind: got {item['kind']!r}, expected note or code")
        if item["obs_id"] in seen:
            raise ValueError(f"{at}.obs_id: {item['obs_id']!r} stands above already")
        seen.add(item["obs_id"])
        if not (_is_queries(item["queries"]) and item["queries"]):
            raise ValueError(f"{at}.queries: got {item['queries']!r}, expected query numbers")
        if item["time"] is not None and not _is_time(item["time"]):
            raise ValueError(f"{at}.time: got {item['time']!r}, expected an ISO-8601 date-time")
        if item["kind"] == "code":
            expected, found = (item["source_id"], None, None), (item["obs_id"], item["start"], item["end"])
        else:
            expected = (f"{item['source_id']}#{item['start']}-{item['end']}", len(item["text"]))
            found = (item["obs_id"], (item["end"] or 0) - (item["start"] or 0))
        if expected != found:
            raise ValueError(f"{at}: obs_id, source_id, offsets and text do not belong together: got {found}, expected {expected}")
    off = _end(pack) - _explained(pack) - pack["residual"]
    if abs(off) > 1e-9 * max(1.0, abs(_end(pack))):
        raise ValueError(f"{who}: residual: base, items, others and residual miss the {pack['target']} by {off!r}")


def check_sources(pack: dict[str, Any], patient: Patient, stored: Collection[str] | None = None) -> None:
    """Check that every item stands in the record as the pack has it, and in the store's ids where those are given.

    Args:
        patient: what was visible at the prediction time.
        stored: observation ids of this patient in the vector store.

    Raises:
        ValueError naming patient and observation.
    """
    if pack["patient_id"] != patient.patient_id:
        raise ValueError(f"evidence pack of {pack['patient_id']!r}: checked against the record of {patient.patient_id!r}")
    for item, found in zip(pack["items"], sources(patient, [(i["obs_id"], i["kind"]) for i in pack["items"]])):
        if differs := [name for name, value in found.items() if item[name] != value]:
            raise ValueError(
                f"patient {patient.patient_id!r}: observation {item['obs_id']!r}: {differs[0]}: "
                f"the pack has {item[differs[0]]!r}, the record {found[differs[0]]!r}"
            )
        if stored is not None and item["obs_id"] not in stored:
            raise ValueError(f"patient {patient.patient_id!r}: observation {item['obs_id']!r}: the vector store has no such row")


def check_fields(value: Any, fields: dict[str, Any], where: str, optional: Collection[str] = ()) -> None:
    """Exactly these fields, each of its type; a tuple with None allows null; float takes int, and must be finite.

    Raises: ValueError with `where` and the field.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where}: got {type(value).__name__}, expected an object")
    for name in fields:
        if name not in value and name not in optional:
            raise ValueError(f"{where}: {name}: missing")
    for name, v in value.items():
        if name not in fields:
            raise ValueError(f"{where}: {name}: unknown field")
        kind, null = fields[name] if isinstance(fields[name], tuple) else (fields[name], False)
        if v is None and null is None:
            continue
        good = isinstance(v, (int, float) if kind is float else kind) and (kind is bool or not isinstance(v, bool))
        if not good:
            raise ValueError(f"{where}: {name}: got {type(v).__name__} {v!r:.80}, expected {kind.__name__}")
        if kind is float and not math.isfinite(v):
            raise ValueError(f"{where}: {name}: got {v!r}, expected a finite number")


def _is_time(text: str) -> bool:
    try:
        return dt.datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def _is_queries(values: list) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)
