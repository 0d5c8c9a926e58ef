"""The cohort index: figures of the run, its pictures' geometry, and one row a patient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_jax.stats import wilson
from evigen_jax.quotes import THRESHOLD, UNTRUSTED
from evigen_jax.report.wording import percent, plain

_ROC_POINTS = 400
_FEW = 20  # patients of either outcome under which AUC and ECE say little


def roc_picture(points: Any) -> dict[str, Any] | None:
    """Polyline of an ROC curve in a 0..100 square, y down.

    points: [(fpr, tpr), ...] or {"fpr": [...], "tpr": [...]}; at most 400 are drawn.
    """
    if not points:
        return None
    pairs = list(zip(points["fpr"], points["tpr"])) if isinstance(points, Mapping) else [tuple(p) for p in points]
    if len(pairs) > _ROC_POINTS:
        step = (len(pairs) - 1) / (_ROC_POINTS - 1)
        pairs = [pairs[round(i * step)] for i in range(_ROC_POINTS)]
    return {"line": " ".join(f"{100 * x:.2f},{100 - 100 * y:.2f}" for x, y in pairs)}


def reliability_picture(bins: Sequence[Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Points, their intervals and a histogram, in a 0..100 square. bins: rows of `core_jax.stats.Reliability`."""
    filled = [b for b in bins or [] if b["n"]]
    if not filled:
        return None
    most = max(b["n"] for b in filled)
    points = [
        {
            "x": 100 * b["mean_p"],
            "y": 100 - 100 * b["mean_y"],
            "r": 1.2 + 2.2 * (b["n"] / most) ** 0.5,
            "low": None if b.get("low") is None else 100 - 100 * b["low"],
            "high": None if b.get("high") is None else 100 - 100 * b["high"],
            "left": 100 * b["lo"],
            "width": 100 * (b["hi"] - b["lo"]),
            "height": 18 * b["n"] / most,
            "words": f"{b['n']} patients, mean prediction {plain(b['mean_p'], 3)}, observed {plain(b['mean_y'], 3)}",
        }
        for b in filled
    ]
    rows = [
        {
            "range": f"{plain(b['lo'], 3)} to {plain(b['hi'], 3)}",
            "n": f"{b['n']:,}",
            "mean_p": "" if not b["n"] else plain(b["mean_p"], 3),
            "mean_y": "" if not b["n"] else plain(b["mean_y"], 3),
            "gap": "" if not b["n"] else plain(abs(b["mean_p"] - b["mean_y"]), 3),
        }
        for b in bins
    ]
    return {"points": points, "rows": rows, "empty": len(bins) - len(filled)}


def few(bins: Sequence[Mapping[str, Any]] | None) -> dict[str, str] | None:
    """Counts of scored patients and outcomes where they are too few for figures: under 20 of either outcome."""
    n = sum(b["n"] for b in bins or [])
    positive = round(sum(b["n"] * b["mean_y"] for b in bins or [] if b["n"]))
    return None if not n or min(positive, n - positive) >= _FEW else {"patients": f"{n:,}", "positive": f"{positive:,}"}


def subgroups(rows: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Rows of `evigen_jax.metrics.subgroups`; a suppressed cell shows its counts and why it has no figures."""
    return [
        {
            "group": r["group"],
            "value": r["value"],
            "n": f"{r['n']:,}",
            "positive": f"{r['positive']:,}",
            "reason": r.get("reason") or "",
            "auc": "\u2013" if r.get("auc") is None else plain(r["auc"], 3),
            "interval": (
                "" if r.get("auc_low") is None else f"{plain(r['auc_low'], 3)} to {plain(r['auc_high'], 3)}"
            ),
            "ece": "\u2013" if r.get("ece") is None else plain(r["ece"], 3),
        }
        for r in rows or []
    ]


def attrition(rows: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """How many patients each criterion left; one that was not applied says so."""
    return [
        {
            "criterion": r["criterion"] + ("" if r.get("applied", True) else " (not applied)"),
            "patients": f"{r['patients']:,}",
            "positive": "\u2013" if r.get("positive") is None else f"{r['positive']:,}",
        }
        for r in rows or []
    ]


def counts(tree: Mapping[str, Any], head: str = "") -> list[dict[str, str]]:
    """Counts of the cohort by name, nested ones with the names above them: "split test patients"."""
    out = []
    for name, value in tree.items():
        words = f"{head} {name}".strip().replace("_", " ")
        out += (
            counts(value, words)
            if isinstance(value, Mapping)
            else [{"name": words, "value": f"{value:,}" if isinstance(value, (int, float)) else str(value)}]
        )
    return out


def pass_rates(cases: Sequence[Any]) -> list[dict[str, Any]]:
    """Share of rationales and of quotes that pass, strictly and in the paper's form, each with its Wilson interval.

    The denominator is every rationale written, or every quote in them: what was not checked counts as failed.
    """
    written = [c for c in cases if c.rationale is not None]
    if not written:
        return []
    checks = [c.verification or {} for c in written]
    quotes = [q for v in checks for f in v.get("factors") or [] for q in f["quotes"]]
    asked = max(len(quotes), sum(len(f["evidence"]) for c in written for f in c.rationale["factors"]))
    trusted = [q["ok"] and not set(q.get("flags") or []) & set(UNTRUSTED) for q in quotes]
    least = " or ".join(f"{t:g}" for t in sorted({v["threshold"] for v in checks if v}) or [THRESHOLD])
    by_paper = [
        (q["score_rapidfuzz"] or 0) >= v["threshold"] for v in checks for f in v.get("factors") or [] for q in f["quotes"]
    ]
    rows = [
        ("Rationales, all mechanical checks", sum(bool(v.get("s1_pass")) for v in checks), len(written)),
        (
            f"Rationales, the paper's form (rapidfuzz, threshold {least})",
            sum(bool(v.get("s1_pass_rapidfuzz")) for v in checks),
            len(written),
        ),
        ("Quotes found in the cited source", sum(bool(q["ok"]) for q in quotes), asked),
        ("Quotes found, without a critical flag", sum(trusted), asked),
        (f"Quotes, rapidfuzz score {least} or more", sum(by_paper), asked),
    ]
    out = []
    for name, k, n in rows:
        lo, hi = wilson(k, n) if n else (0.0, 1.0)
        out.append(
            {
                "name": name,
                "k": f"{k:,}",
                "n": f"{n:,}",
                "rate": percent(k / n) if n else "\u2013",
                "interval": f"{percent(lo)} to {percent(hi)}" if n else "",
            }
        )
    return out


def examples(
    rows: Sequence[Mapping[str, Any]] | None, pages: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Per query its top chunks across patients; one that is in its patient's pack links to its place in that page."""
    out = []
    for row in rows or []:
        items = []
        for item in row["items"]:
            anchor = (pages.get(item["patient_id"]) or {}).get("anchors", {}).get(item["obs_id"])
            page = (pages.get(item["patient_id"]) or {}).get("html", "")
            items.append(
                {
                    "patient_id": item["patient_id"],
                    "obs_id": item["obs_id"],
                    "score": plain(item["score"], 3),
                    "text": item["text"],
                    "href": anchor or page,
                }
            )
        out.append({"query": row["query"], "modality": row["modality"], "chunks": items})
    return out


def activation(rows: Sequence[Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Table 4: query, modality, gate type, activation. `activation` is a share in 0..1.

    Raises: ValueError for a share outside 0..1 (a percentage, say).
    """
    if not rows:
        return None
    out = []
    for r in rows:
        if not 0 <= r["activation"] <= 1:
            raise ValueError(f"activation of query {r['query']}: got {r['activation']!r}, expected a share in 0..1")
        out.append(
            {
                "query": r["query"],
                "modality": r["modality"],
                "gate_type": r["gate_type"],
                "percent": f"{100 * r['activation']:.1f}",
            }
        )
    return {"rows": out, "mean": f"{sum(r['activation'] for r in rows):.2f}", "count": len(out)}


def build(
    cases: Sequence[Any],
    pages: Mapping[str, Mapping[str, Any]],
    others: int,
    run_info: Mapping[str, Any],
    *,
    deidentified: bool,
) -> dict[str, Any]:
    """What the index template shows.

    pages: by patient id, where a case's page is and how many flags it has; others: predicted patients without a pack.
    """
    metrics, info = run_info.get("metrics") or {}, run_info.get("cohort") or {}
    rows = []
    for case in cases:
        page = pages[case.patient.patient_id]
        rows.append(
            {
                "patient_id": case.patient.patient_id,
                "href": page["html"],
                "prob": case.pack["prob"],
                "words": percent(case.pack["prob"]),
                "percentile": "\u2013" if case.percentile is None else f"{100 * case.percentile:.0f}",
                "percentile_value": -1 if case.percentile is None else case.percentile,
                "outcome": _outcome(case.label),
                "flags": page["flags"],
                "failures": page["failures"],
                "s1": page["s1"],
                "search": page["search"],
            }
        )
    rows.sort(key=lambda r: (-r["prob"], r["patient_id"]))
    names = dict.fromkeys(
        (
            c.rationale["generator"]["name"],
            c.rationale["generator"]["model"] or "",
            bool(c.rationale["generator"]["is_llm"]),
        )
        for c in cases
        if c.rationale is not None
    )
    auc_ci = metrics.get("auc_ci")
    return {
        "few": few(metrics.get("reliability")),
        "rows": rows,
        "others": others,
        "deidentified": deidentified,
        "notes_rendered": bool(run_info.get("notes_rendered")),
        "task": run_info["task"],
        "run_id": run_info["run_id"],
        "encoder_id": run_info["encoder_id"],
        "generators": [{"name": n, "model": m, "is_llm": llm} for n, m, llm in names],
        "auc": "" if metrics.get("auc") is None else plain(metrics["auc"], 3),
        "auc_ci": "" if not auc_ci or auc_ci[0] == auc_ci[1] else f"{plain(auc_ci[0], 3)} to {plain(auc_ci[1], 3)}",
        "ece": "" if metrics.get("ece") is None else plain(metrics["ece"], 3),
        "ece_bins": str(metrics.get("ece_bins") or "?"),
        "base_rate": "" if metrics.get("base_rate") is None else percent(metrics["base_rate"]),
        "threshold": percent(metrics.get("threshold", 0.5)),
        "calibration": metrics.get("calibration") or "",
        "roc": roc_picture(metrics.get("roc")),
        "reliability": reliability_picture(metrics.get("reliability")),
        "subgroups": subgroups(metrics.get("subgroups")),
        "activation": activation(metrics.get("activation")),
        "examples": examples(metrics.get("query_examples"), pages),
        "pass_rates": pass_rates(cases),
        "attrition": attrition(info.get("attrition")),
        "counts": counts(info.get("counts") or {}),
    }


def _outcome(label: int | None) -> str:
    return "\u2013" if label is None else ("positive" if label else "negative")
