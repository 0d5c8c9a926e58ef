"""One patient's page: pack + rationale + verification + record -> what the template shows and the JSON beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from core_jax.records import Patient
from evigen_jax.quotes import THRESHOLD
from evigen_jax.report.cards import Flags
from evigen_jax.report.cards import build as cards_of
from evigen_jax.report.panel import Sources
from evigen_jax.report.waterfall import strip
from evigen_jax.report.wording import age, clip, date, percent, plain, pretty


@dataclasses.dataclass(frozen=True)
class Case:
    """Everything known about one patient of the report. `times` and ids are already gone where it is de-identified."""

    patient: Patient
    pack: Mapping[str, Any]
    rationale: Mapping[str, Any] | None
    verification: Mapping[str, Any] | None
    label: int | None
    split: str | None
    percentile: float | None  # share (0..1) of the split's patients with a lower risk, ties half
    population: int  # patients behind the percentile
    age: float | None  # years at the prediction time


def _checks(case: Case) -> dict[str, Any]:
    """The 22 checks of the paper's section 4.3: two of S1 and two of S2 for each factor, two of S2 for the lens.

    Fewer where the pack holds fewer than five items: then as many factors are asked for (`expected_factors`).
    """
    verdict = {(c["rank"], c["check"]): bool(c["ok"]) for c in (case.verification or {}).get("s1") or []}
    asked = (case.verification or {}).get("expected_factors", 5)
    ranks = range(1, max([asked, *(r for r, _ in verdict)]) + 1)

    def cell(rank: int, check: str) -> str:
        if case.verification is None:
            return "not run"
        return {True: "pass", False: "FAIL", None: "FAIL (no factor)"}[verdict.get((rank, check))]

    rows = [{"rank": r, "cells": [cell(r, "citation"), cell(r, "quote"), "not run", "not run"]} for r in ranks]
    passed = sum(c == "pass" for row in rows for c in row["cells"])
    return {
        "rows": rows,
        "passed": passed,
        "mechanical": 2 * len(rows),
        "total": 4 * len(rows) + 2,
        "judge": 2 * len(rows) + 2,
    }


def build(
    case: Case, run_info: Mapping[str, Any], *, stem: str, deidentified: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the template shows, the JSON written beside the page).

    Raises: ValueError naming patient and observation where the pack's text is not what the record holds at that place.
    """
    pack, metrics = case.pack, run_info.get("metrics") or {}
    content = {
        "task": pack["task"],
        "run_id": pack["run_id"],
        "encoder_id": pack["encoder_id"],
        "pack": pack,
        "rationale": case.rationale,
        "verification": case.verification,
    }
    digest = hashlib.sha256(json.dumps([case.patient.patient_id, content], sort_keys=True).encode()).hexdigest()[
        :16
    ]
    p = f"e{digest[:8]}-"
    sources, flags = Sources(case.patient, p, deidentified), Flags(p)

    for number, item in enumerate(pack["items"], 1):
        if item["rank"] != number:
            raise ValueError(
                f"patient {case.patient.patient_id!r}: got rank {item['rank']} at place {number} of the evidence pack"
            )
        where = f"patient {case.patient.patient_id!r}, observation {item['obs_id']!r}"
        key = sources.resolve(item["kind"], item["source_id"])
        if key is None:
            raise ValueError(f"{where}: {item['kind']} {item['source_id']!r} is not in the visible record")
        text = sources.text(key)
        span = (item["start"], item["end"]) if item["kind"] == "note" else (0, len(text))
        if text[span[0] : span[1]] != item["text"] or not item["text"]:
            raise ValueError(
                f"{where}: got text {clip(item['text'], 60)!r}, "
                f"the record has {clip(text[span[0]:span[1]], 60)!r} there"
            )
        rank = item["rank"]
        sources.add(
            key,
            [span],
            "item",
            f"{p}obs-{rank}",
            f"#{p}factor-{rank}",
            str(rank),
            f"evidence item {rank} starts here; back to its factor",
        )

    cards = cards_of(pack, case.rationale, case.verification, sources, flags)
    generator = (case.rationale or {}).get("generator")
    labels = {c["item"]["rank"]: _label(c) for c in cards[: len(pack["items"])]}
    if not pack["converged"]:
        flags.add("Attribution did not converge")
    failure = (case.rationale or {}).get("failed_reason") or (case.verification or {}).get("failed_reason")
    if failure:
        flags.add("The rationale as a whole fails its checks")
    rows = sources.rows()
    modality = {int(r["query"]): r["modality"] for r in metrics.get("activation") or []}
    threshold, base_rate = metrics.get("threshold", 0.5), metrics.get("base_rate")

    page = {
        "p": p,
        "stem": stem,
        "hash": digest,
        "deidentified": deidentified,
        "patient_id": case.patient.patient_id,
        "task": pack["task"],
        "run_id": pack["run_id"],
        "encoder_id": pack["encoder_id"],
        "notes_rendered": bool(pack["notes_rendered"]),
        "index_date": date(pack["prediction_time"], deidentified),
        "age": age(case.age, deidentified),
        "sex": case.patient.sex or "",
        "prob": pack["prob"],
        "prob_words": percent(pack["prob"]),
        "prob4": plain(pack["prob"]),
        "logit": plain(pack["logit"]),
        "base_rate": base_rate,
        "base_rate_words": "not given" if base_rate is None else percent(base_rate),
        "threshold": threshold,
        "threshold_words": percent(threshold),
        "above": pack["prob"] >= threshold,
        "calibration": metrics.get("calibration") or "no calibration figures were given for this run",
        "percentile": "" if case.percentile is None else f"{100 * case.percentile:.0f}",
        "population": f"{case.population:,}",
        "split": case.split or "",
        "outcome": "not given" if case.label is None else ("positive" if case.label else "negative"),
        "generator": generator,
        "explanation": (case.rationale or {}).get("prediction_explanation") or "",
        "strip": strip(pack, labels, p),
        "cards": cards,
        "sources": rows,
        "flags": flags.stops,
        "lens": (case.rationale or {}).get("reasoning_lens") or "",
        "recommendations": list((case.rationale or {}).get("recommendations") or []),
        "has_rationale": case.rationale is not None,
        "has_verification": case.verification is not None,
        "checks": _checks(case),
        "s1_pass": _verdict(case, "s1_pass"),
        "s1_rapidfuzz": _verdict(case, "s1_pass_rapidfuzz"),
        "quote_threshold": f"{(case.verification or {}).get('threshold', THRESHOLD):g}",
        "verification_flags": [pretty(str(f)) for f in (case.verification or {}).get("flags") or []],
        "failure": failure or "",
        "pack_note": pack.get("note") or "",
        "parse_notes": list((case.rationale or {}).get("parse_notes") or []),
        "gap": f"{pack['completeness_gap']:.2e}".replace("-", "\u2212"),
        "converged": bool(pack["converged"]),
        "quadrature": str(pack["quadrature"]),
        "n_nodes": str(pack["n_nodes"]),
        "target": pack["target"],
        "queries": [f"{q}" + (f" ({modality[q]})" if q in modality else "") for q in pack["active_queries"]],
        "code_items": [
            c
            for c in cards
            if c["item"] is not None and c["item"]["kind"] == "code" and c["number"] <= len(pack["items"])
        ],
    }
    record = (
        {"schema": "report/1", "html": f"{stem}.html", "report_hash": digest, "deidentified": deidentified}
        | content
        | {
            "patient": {
                "patient_id": case.patient.patient_id,
                "sex": case.patient.sex,
                "age_years": case.age,
                "index_time": pack["prediction_time"],
            },
            "prediction": {
                "prob": pack["prob"],
                "logit": pack["logit"],
                "label": case.label,
                "split": case.split,
                "percentile": case.percentile,
                "base_rate": base_rate,
                "threshold": threshold,
            },
            "flags": [{"text": f["text"], "anchor": f["anchor"]} for f in flags.stops],
            "anchors": {i["obs_id"]: f"{stem}.html#{p}obs-{i['rank']}" for i in pack["items"]},
            "sources": [
                {k: r[k] for k in ("kind", "id", "type", "time", "age_years", "anchor", "text")} for r in rows
            ],
        }
    )
    return page, record


def _label(card: Mapping[str, Any]) -> str:
    """Name of a row of the strip, always in the record's words: the first quote that was found, else the passage's own."""
    found = [e["quote"] for e in card["evidence"] if e["verified"] and e["quote"].strip()]
    return f"\u201c{clip(found[0] if found else card['item']['text'], 110)}\u201d"


def _verdict(case: Case, name: str) -> str:
    if case.verification is None:
        return "not run"
    return "pass" if case.verification[name] else "FAIL"
