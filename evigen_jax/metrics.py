"""What is reported of a trained selector: scores overall and per subgroup, activation rates, the planted-evidence test.

Plain Python and NumPy over ids and arrays; no jax. All results are JSON-ready (a figure that cannot be given is null).
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax import records, stats
from core_jax.records import Patient

ADULT_BANDS = ((0, 45, "<45"), (45, 65, "45-64"), (65, 80, "65-79"), (80, 1000, "80+"))
PEDIATRIC_BANDS = ((0, 1, "<1"), (1, 3, "1-2"), (3, 6, "3-5"), (6, 12, "6-11"), (12, 18, "12-17"), (18, 1000, "18+"))
MIN_PATIENTS = 20
SHARES = ("auc", "ece", "accuracy", "recall", "precision")  # last word of figures that lie in [0, 1]


def scores(y, p, *, bins: int = 15, resamples: int = 1000, seed: int = 0) -> dict[str, Any]:
    """n, positives, AUC with its bootstrap interval, ECE with its bins, accuracy at 0.5 (S13). AUC is null for one class."""
    y = np.asarray(y, np.int32)
    out: dict[str, Any] = {"n": int(y.size), "positive": int(y.sum()), "auc": None, "auc_low": None, "auc_high": None,
                           "ece": stats.ece(y, p, bins), "ece_bins": bins, "accuracy": stats.accuracy(y, p)}
    if 0 < y.sum() < y.size:
        ci = stats.auc_ci(y, p, resamples, seed)
        out |= {"auc": ci.estimate, "auc_low": ci.low, "auc_high": ci.high, "resamples_skipped": ci.skipped}
    return out


def scores_or_none(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`scores` of the prediction rows that carry a label; every figure null where none does."""
    known = [r for r in predictions if r.get("label") is not None]
    if not known:
        return {"n": 0, "positive": 0, "auc": None, "auc_low": None, "auc_high": None, "ece": None, "ece_bins": None, "accuracy": None}
    return scores([r["label"] for r in known], [r["prob"] for r in known])


# ---- subgroups ------------------------------------------------------------------------------------------------

def _age(patient: Patient, time: str) -> float | None:
    age = records.age_years(patient.birth_date, patient.birth_year, time)
    if age is None:  # no birth date: the age written on the last item before the prediction
        ages = [x.age_years for x in (*patient.notes, *patient.codes) if x.age_years is not None]
        age = max(ages, default=None)
    return age


def subgroups(predictions: Iterable[Mapping[str, Any]], patients: Iterable[Patient], *,
              min_patients: int = MIN_PATIENTS, seed: int = 0) -> list[dict[str, Any]]:
    """AUC and ECE per sex, age band and tertile of history length (the paper's ethics section asks to monitor them).

    Args:
      predictions: rows with patient_id, prediction_time, label and prob, one a patient.
      patients: full records; each is cut at its prediction time here. Others than the predicted are passed over.
      min_patients: a cell with fewer patients, or with one class, is `suppressed` and says why; its counts stay.

    History length is the number of characters of the visible notes and code titles. Pediatric age bands are used where
    the median age is below 18 years.

    Raises: ValueError naming the first predicted patient without a record.
    """
    rows = {str(r["patient_id"]): r for r in predictions}
    seen: dict[str, tuple[str, float | None, int]] = {}
    for patient in patients:
        row = rows.get(patient.patient_id)
        if row is not None:
            past = records.visible(patient, row["prediction_time"])
            length = sum(len(n.text) for n in past.notes) + sum(len(c.title) for c in past.codes)
            seen[patient.patient_id] = (past.sex or "unknown", _age(past, row["prediction_time"]), length)
    if missing := sorted(set(rows) - set(seen)):
        raise ValueError(f"patient {missing[0]}: predicted, but not among the records ({len(missing)} such)")
    if not rows:
        raise ValueError("predictions: got none")

    ids = sorted(rows)
    ages = [a for _, a, _ in seen.values() if a is not None]
    bands = PEDIATRIC_BANDS if ages and float(np.median(ages)) < 18 else ADULT_BANDS
    lengths = np.array([seen[i][2] for i in ids])
    cuts = np.quantile(lengths, (1 / 3, 2 / 3))
    tertiles = [f"shortest third (up to {cuts[0]:.0f} characters)", "middle third", f"longest third (over {cuts[1]:.0f} characters)"]

    def band(age: float | None) -> str:
        return "unknown" if age is None else next(name for lo, hi, name in bands if lo <= age < hi)

    kinds = {
        "sex": ([seen[i][0] for i in ids], sorted({seen[i][0] for i in ids})),
        "age": ([band(seen[i][1]) for i in ids], [name for _, _, name in bands] + ["unknown"]),
        "history": ([tertiles[int(np.searchsorted(cuts, n, side="left"))] for n in lengths], tertiles),
    }
    y = np.array([rows[i]["label"] for i in ids], np.int32)
    p = np.array([rows[i]["prob"] for i in ids], np.float64)
    out = []
    for group, (member, values) in kinds.items():
        for value in values:
            inside = np.array([m == value for m in member])
            if not inside.any():
                continue
            cell: dict[str, Any] = {"group": group, "value": value, "n": int(inside.sum()), "positive": int(y[inside].sum())}
            why = (f"fewer than {min_patients} patients" if cell["n"] < min_patients
                   else "one class only" if cell["positive"] in (0, cell["n"]) else None)
            cell |= {"suppressed": why is not None, "reason": why}
            if why is None:
                cell |= scores(y[inside], p[inside], seed=seed)
            else:
                cell |= {"auc": None, "auc_low": None, "auc_high": None, "ece": None, "ece_bins": None, "accuracy": None}
            out.append(cell)
    return out


# ---- gates ----------------------------------------------------------------------------------------------------

def activation_table(gate, n_note: int) -> dict[str, Any]:
    """Table 4: how often each query fires.

    Args: gate: [P, N] of 0/1, query 0 always on; n_note: queries below it read notes, the others codes.

    Returns: {"patients", "mean_active", "rows": [{query, modality, gate, activation_percent}]}; mean_active is the sum
        of the rates.
    """
    gate = np.asarray(gate)
    if gate.ndim != 2 or not gate.size or not np.isin(gate, (0, 1)).all():
        raise ValueError(f"gate: got shape {gate.shape}, expected a non-empty [P, N] of 0 and 1")
    rate = gate.mean(axis=0, dtype=np.float64)
    return {
        "patients": gate.shape[0], "mean_active": float(rate.sum()),
        "rows": [{"query": i, "modality": "note" if i < n_note else "code",
                  "gate": "shared, always on" if i == 0 else "dynamic", "activation_percent": 100 * float(r)}
                 for i, r in enumerate(rate)],
    }


# ---- planted evidence -----------------------------------------------------------------------------------------

def note_span(obs_id: str) -> tuple[str, int, int]:
    """(note_id, start, end) of a note chunk's observation id `<note_id>#<start>-<end>`."""
    note_id, _, span = obs_id.rpartition("#")
    start, _, end = span.partition("-")
    if not note_id or not start.isdigit() or not end.isdigit():
        raise ValueError(f"observation {obs_id!r}: expected <note_id>#<start>-<end>")
    return note_id, int(start), int(end)


def gold_items(gold: Mapping[str, Any], observations: Sequence[str]) -> tuple[dict[str, set[str]], dict[str, float], int]:
    """What there is to find for one patient, and where.

    An item is a gold code, or a note chunk that is the home (largest overlap, the earlier on a tie) of gold spans;
    spans at home in one chunk are one item. An observation finds an item when it covers at least half of one of the
    item's spans, or is its code.

    Args:
      gold: a row of the planted cohort ({"patient_id", "factors": [{factor, weight, spans, codes}], ...}).
      observations: the patient's observation ids.

    Returns: (finder observation id -> ids of the items it finds; observation id -> sum of the weights of the factors it
        shows; gold spans and codes that no observation holds).
    """
    by_note: dict[str, list[tuple[int, int, str]]] = {}
    known = set(observations)
    for obs in observations:
        if "#" in obs:
            note_id, start, end = note_span(obs)
            by_note.setdefault(note_id, []).append((start, end, obs))
    finds: dict[str, set[str]] = {}
    factors: dict[str, dict[str, float]] = {}
    lost = 0
    for factor in gold["factors"]:
        name, weight = factor["factor"], float(factor["weight"])
        if weight == 0:
            continue
        shown = []
        for span in factor.get("spans", ()):
            start, end = span["start"], span["end"]
            overlaps = [(min(end, b) - max(start, a), obs) for a, b, obs in by_note.get(span["note_id"], ())]
            half = [(o, obs) for o, obs in overlaps if o > 0 and 2 * o >= end - start]
            if not half:
                lost += 1
                continue
            home = max(half, key=lambda x: x[0])[1]  # max keeps the first of equals: the earlier chunk
            for _, obs in half:
                finds.setdefault(obs, set()).add(home)
                shown.append(obs)
        for code in factor.get("codes", ()):
            if code in known:
                finds.setdefault(code, set()).add(code)
                shown.append(code)
            else:
                lost += 1
        for obs in shown:
            factors.setdefault(obs, {})[name] = weight
    return finds, {obs: sum(w.values()) for obs, w in factors.items()}, lost


def planted_report(evidence: Mapping[str, Sequence[Mapping[str, Any]]], gold: Iterable[Mapping[str, Any]],
                   observations: Mapping[str, Sequence[str]], predictions: Iterable[Mapping[str, Any]] | None = None,
                   *, k: int = 5) -> dict[str, Any]:
    """How well ranked evidence finds what was planted, and how far the predictions are from the Bayes classifier.

    Args:
      evidence: patient_id -> items in rank order, each with obs_id and, where there is one, attribution (an evidence
        pack's "items" as they stand); the first k count.
      gold: rows of the planted cohort.
      observations: patient_id -> all observation ids of the patient before its prediction time.
      predictions: rows with patient_id, label and prob, of the same patients.

    Returns: recall (mean over patients with gold of found items / min(k, items), found capped there), precision (share
        of ranked items that find gold), sign accuracy (attribution has the sign of the summed weights of the factors in
        the retrieved gold item; items without attribution or with weights that cancel are left out) with its Wilson
        interval, and auc, bayes_auc, bayes_gap on the predicted patients. Figures without a denominator are null.

    Raises: ValueError naming a patient of `evidence` without gold or observations, or an observation not the patient's.
    """
    rows = {str(g["patient_id"]): g for g in gold}
    recalls, found_any, ranked, on_gold, agree, signed, lost_total, empty = [], 0, 0, 0, 0, 0, 0, 0
    for patient_id, items in evidence.items():
        if patient_id not in rows or patient_id not in observations:
            raise ValueError(f"patient {patient_id}: no {'gold row' if patient_id not in rows else 'observations'}")
        known = set(observations[patient_id])
        finds, weight, lost = gold_items(rows[patient_id], observations[patient_id])
        lost_total += lost
        hit: set[str] = set()
        for item in list(items)[:k]:
            obs = item["obs_id"]
            if obs not in known:
                raise ValueError(f"patient {patient_id}: observation {obs!r} is not the patient's")
            ranked += 1
            if obs not in finds:
                continue
            on_gold += 1
            hit |= finds[obs]
            attribution = item.get("attribution")
            if attribution is not None and weight[obs] != 0:
                signed += 1
                agree += (attribution > 0) == (weight[obs] > 0) and attribution != 0
        total = len(set().union(*finds.values())) if finds else 0
        if total == 0:
            empty += 1
            continue
        recalls.append(min(len(hit), k, total) / min(k, total))
        found_any += bool(hit)
    low, high = stats.wilson(agree, signed) if signed else (None, None)
    out: dict[str, Any] = {
        "k": k, "patients": len(evidence), "patients_without_gold": empty, "gold_not_in_any_observation": lost_total,
        "recall": float(np.mean(recalls)) if recalls else None, "patients_with_a_hit": found_any,
        "precision": on_gold / ranked if ranked else None,
        "sign_accuracy": agree / signed if signed else None, "sign_low": low, "sign_high": high, "signed_items": signed,
    }
    if predictions is not None:
        out |= bayes_gap(predictions, rows)
    return out


def bayes_gap(predictions: Iterable[Mapping[str, Any]], gold: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """auc, bayes_auc and bayes_gap = bayes_auc - auc with its paired bootstrap interval, on the same patients."""
    predictions = list(predictions)
    if missing := [r["patient_id"] for r in predictions if r["patient_id"] not in gold]:
        raise ValueError(f"patient {missing[0]}: predicted, but without a gold row")
    y = np.array([r["label"] for r in predictions], np.int32)
    p = np.array([r["prob"] for r in predictions], np.float64)
    bayes = np.array([gold[r["patient_id"]]["bayes_prob"] for r in predictions], np.float64)
    gap = stats.paired_auc_difference(y, bayes, p)
    return {"n": int(y.size), "auc": stats.auc(y, p), "bayes_auc": stats.auc(y, bayes), "bayes_gap": gap.estimate,
            "bayes_gap_low": gap.low, "bayes_gap_high": gap.high, "ece": stats.ece(y, p), "ece_bins": 15}


def over_seeds(reports: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Mean and t interval over seeds of each figure (default: every number that all reports give).

    Limits of a share stay in [0, 1].
    """
    if not reports:
        raise ValueError("reports: got none")
    if names is None:
        counts = Counter(k for r in reports for k, v in r.items() if isinstance(v, (int, float)) and not isinstance(v, bool))
        names = [k for k in reports[0] if counts[k] == len(reports)]
    out = {name: stats.mean_ci([r[name] for r in reports])._asdict() for name in names}
    for name in (n for n in out if n.rpartition("_")[2] in SHARES):
        for limit, bound in (("low", max), ("high", min)):
            if out[name][limit] is not None:
                out[name][limit] = bound(out[name][limit], float(limit == "high"))
    return out
