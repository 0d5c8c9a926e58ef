"""Join what the pipeline made, render the pages, put the folder in place in one step."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from core_jax import staging
from core_jax.records import Patient, age_years
from evigen_jax.report import cohort, markup
from evigen_jax.report import deidentify as anonymous
from evigen_jax.report import patient as page_of
from evigen_jax.report.patient import Case

SCHEMA = "report/1"
HERE = pathlib.Path(__file__).parent


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=markup.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def render(template: str, script: str, **context: Any) -> str:
    """A whole page: style and script inline, allowed by their hashes and by nothing else."""
    css, js = _asset("page.css"), _asset(script)
    policy = (
        f"default-src 'none'; style-src {markup.csp_hash(css)}; script-src {markup.csp_hash(js)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template(template).render(css=Markup(css), js=Markup(js), policy=policy, **context)


def _by_patient(
    name: str, rows: Iterable[Mapping[str, Any]], packs: Mapping[str, Any] | None
) -> dict[str, Mapping[str, Any]]:
    out: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        id = row["patient_id"]
        if id in out:
            raise ValueError(f"{name}: patient {id!r} stands twice")
        if packs is not None and id not in packs:
            raise ValueError(f"{name}: patient {id!r} has no evidence pack")
        out[id] = row
    return out


def _percentiles(predictions: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """(share of the split below, ties half; size of the split) by patient."""
    splits: dict[Any, list[float]] = {}
    for row in predictions.values():
        splits.setdefault(row.get("split"), []).append(row["prob"])
    for values in splits.values():
        values.sort()
    out = {}
    for id, row in predictions.items():
        values = splits[row.get("split")]
        out[id] = (
            (bisect_left(values, row["prob"]) + bisect_right(values, row["prob"])) / (2 * len(values)),
            len(values),
        )
    return out


def write_report(
    packs: Iterable[Mapping[str, Any]],
    rationales: Iterable[Mapping[str, Any]],
    verifications: Iterable[Mapping[str, Any]],
    patients: Mapping[str, Patient],
    predictions: Iterable[Mapping[str, Any]],
    run_info: Mapping[str, Any],
    out_dir: str | os.PathLike,
    deidentify: bool = False,
) -> pathlib.Path:
    """Write `index.html`, `index.json` and, per pack, `patient-<id>.html` and `.json`.

    Args:
      packs, rationales, verifications: "evidence_pack/1", "rationale/1", "verification/1" objects, joined by
        patient_id. A pack without rationale or verification gets a page that says so.
      patients: the *visible* record of each pack's patient, by id.
      predictions: rows {patient_id, prob, label (0, 1 or None), split}; percentiles are taken within the split.
      run_info: {"task": {"name", "sentence"}, "run_id", "encoder_id", "config", "notes_rendered", "cohort", "metrics"}.
        cohort: {"counts", "attrition"} as the cohort folder has them. metrics may hold auc, auc_ci (low, high), ece,
        ece_bins, roc ([(fpr, tpr), ...]), reliability (rows of `core_jax.stats.Reliability`), subgroups (rows of
        `evigen_jax.metrics.subgroups`), activation ([{query, modality, gate_type, activation in 0..1}]),
        query_examples ([{query, modality, items: [{patient_id, obs_id, score, text}]}]), base_rate, threshold,
        calibration (a sentence). What is missing is said to be missing.
      out_dir: replaced whole, and only if it is empty or holds an earlier report.
      deidentify: drop ids and dates from fields, JSON and file names; recorded text stays, and the page says so.

    Returns: the path of index.html.
    Raises: ValueError where the inputs do not fit each other or the records, or out_dir holds something else.
    """
    out_dir = pathlib.Path(out_dir)
    staging.clear(out_dir)
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir()) and not _is_report(out_dir)):
        raise ValueError(f"{out_dir}: exists and is not a report; it is left alone, name another folder")
    by_pack = _by_patient("packs", packs, None)
    by_rationale = _by_patient("rationales", rationales, by_pack)
    by_verification = _by_patient("verifications", verifications, by_pack)
    predicted = _by_patient("predictions", predictions, None)
    percentiles = _percentiles(predicted)

    cases = []
    for id, pack in by_pack.items():
        if pack.get("schema") != "evidence_pack/1":
            raise ValueError(
                f"packs: patient {id!r}: got schema {pack.get('schema')!r}, expected 'evidence_pack/1'"
            )
        if id not in patients:
            raise ValueError(f"packs: patient {id!r} is not among the records")
        record, row = patients[id], predicted.get(id, {})
        percentile, population = percentiles.get(id, (None, 0))
        label = row.get("label") if row.get("label") is not None else pack["label"]
        age = age_years(record.birth_date, record.birth_year, pack["prediction_time"])
        if age is None:  # the age written on the last item before the prediction
            age = max(
                (x.age_years for x in (*record.notes, *record.codes) if x.age_years is not None), default=None
            )
        cases.append(
            Case(
                record,
                pack,
                by_rationale.get(id),
                by_verification.get(id),
                label,
                row.get("split"),
                percentile,
                population,
                age,
            )
        )
    others = [
        {"patient_id": id, "prob": r["prob"], "label": r.get("label"), "percentile": percentiles[id][0]}
        for id, r in predicted.items()
        if id not in by_pack
    ]

    info = dict(run_info)
    info["notes_rendered"] = bool(run_info.get("notes_rendered")) or any(c.pack["notes_rendered"] for c in cases)
    if deidentify:
        cases.sort(key=lambda c: (-c.pack["prob"], c.patient.patient_id))
        aliases = anonymous.Aliases(c.patient.patient_id for c in cases)
        metrics = dict(info.get("metrics") or {})
        metrics["query_examples"] = anonymous.query_examples(metrics.get("query_examples"), aliases, patients)
        cases = [anonymous.case(c, aliases) for c in cases]
        others = [row | {"patient_id": aliases.patient(row["patient_id"])} for row in others]
        info = anonymous.scrub({k: v for k, v in info.items() if k != "metrics"}, {}) | {"metrics": metrics}

    with staging.folder(out_dir) as work:
        _write_pages(pathlib.Path(work), cases, others, info, deidentify)
    return out_dir / "index.html"


def _write_pages(
    folder: pathlib.Path,
    cases: list[Case],
    others: list[Mapping[str, Any]],
    info: Mapping[str, Any],
    deidentified: bool,
) -> None:
    taken: set[str] = set()
    pages: dict[str, dict[str, Any]] = {}
    for case in cases:
        id = case.patient.patient_id
        stem = id if deidentified else markup.page_stem(id, taken)
        page, record = page_of.build(case, info, stem=stem, deidentified=deidentified)
        embedded = record | {"sources": [{k: v for k, v in s.items() if k != "text"} for s in record["sources"]]}
        html = render("patient.html.j2", "patient.js", page=page, data=markup.json_for_script(embedded))
        _write(folder / f"{stem}.html", html)
        _write(folder / f"{stem}.json", markup.to_json(record) + "\n")
        s1 = (case.verification or {}).get("s1") or []
        pages[id] = {
            "html": f"{stem}.html",
            "json": f"{stem}.json",
            "anchors": record["anchors"],
            "flags": len(page["flags"]),
            "failures": sum(not c["ok"] for c in s1),
            "s1": page["s1_pass"],
            "search": " ".join(c["summary"] for c in page["cards"])[:2000],
        }
    index = cohort.build(cases, pages, len(others), info, deidentified=deidentified)
    listed = [
        {k: r[k] for k in ("patient_id", "prob", "outcome", "flags", "failures", "s1")}
        | {"html": r["href"], "json": pages[r["patient_id"]]["json"]}
        for r in index["rows"]
    ]
    record = {
        "schema": SCHEMA,
        "html": "index.html",
        "deidentified": deidentified,
        "run_info": info,
        "pass_rates": index["pass_rates"],
        "patients": listed,
        "predicted_without_page": others,
    }
    _write(folder / "index.json", markup.to_json(record) + "\n")
    config = json.dumps(info.get("config") or {}, indent=2, ensure_ascii=False, default=str)
    _write(folder / "index.html", render("index.html.j2", "index.js", index=index, config=config))


def _write(path: pathlib.Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="strict", newline="\n") as f:
        f.write(text)


def _is_report(folder: pathlib.Path) -> bool:
    try:
        return json.loads((folder / "index.json").read_text(encoding="utf-8")).get("schema") == SCHEMA
    except (OSError, ValueError, AttributeError):
        return False
