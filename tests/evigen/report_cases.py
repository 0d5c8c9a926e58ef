"""Hand-made inputs of the report: an ordinary patient, a hostile one, one with no evidence, one whose rationale fails."""

from __future__ import annotations

import random

from core_jax.records import Code, Encounter, Note, Patient

TASK = {"name": "mortality-1y", "sentence": "Death from any cause within one year of the last discharge"}
PWN = '<script>window.__pwned=1</script><img src=x onerror="window.__pwned=1">'
HOSTILE_ID = "../../x\"'><script>window.__pwned=1</script>"

_FILLER = (
    "Vital signs were stable on the ward.",
    "The family was updated by phone.",
    "Diet was advanced as tolerated.",
    "He walked in the corridor with physical therapy.",
    "Electrolytes were repleted as needed.",
    "No acute events overnight.",
    "Home medications were reviewed with the pharmacist.",
    "Social work met with the patient and his wife.",
)


def filler(seed: int, sentences: int) -> str:
    r = random.Random(seed)
    return " ".join(r.choice(_FILLER) + ("\n\n" if r.random() < 0.12 else "") for _ in range(sentences))


DISCHARGE = "".join(
    (
        "Name:  ___                    Unit No:   ___\n \nAdmission Date:  [**]              Discharge Date:   [**]\n\n",
        "HISTORY OF PRESENT ILLNESS:\n" + filler(1, 60) + "\n\n",
        "Mr. ___ is a 74 year old man with CHF (EF 25%) and no history\r\nof cancer, who was admitted with shortness of ",
        "breath at rest and a 7 kg weight gain.  On arrival he was hypoxic to 84% on room air; he denies chest\u00a0pain. ",
        "Chest film showed bilateral effusions.\n\n" + filler(2, 12),
        "\nCreatinine rose from 1.2 on admission to 2.9 on day three, and the renal team felt this was cardiorenal in ",
        "origin.\n" + filler(3, 70) + "\n\nDISCHARGE CONDITION:\n",
        "He is oxygen dependent, at 3 liters by nasal cannula, and needs help with all transfers.\n"
        + filler(4, 30),
    )
)
CLINIC = (
    "CLINIC NOTE\n\nSeen for follow-up after hospital stay. Lost 9 kg over four months without trying. Appetite is poor.\n"
    "He stopped smoking twelve years ago and walks with a stick.\n\n"
    + filler(5, 8)
    + "\nPlan: continue furosemide 40 mg twice daily, weigh daily, see again in six weeks.\n"
)


def span(text: str, piece: str) -> tuple[int, int]:
    start = text.index(piece)
    return start, start + len(piece)


def item(rank, note, lo, hi, attribution, queries=(0,), similarity=0.41):
    return {
        "obs_id": f"{note.note_id}#{lo}-{hi}",
        "kind": "note",
        "source_id": note.note_id,
        "rank": rank,
        "attribution": attribution,
        "similarity": similarity,
        "queries": list(queries),
        "text": note.text[lo:hi],
        "start": lo,
        "end": hi,
        "time": note.time,
        "age_years": note.age_years,
    }


def code_item(rank, code, attribution, queries=(3,)):
    return {
        "obs_id": code.obs_id,
        "kind": "code",
        "source_id": code.obs_id,
        "rank": rank,
        "attribution": attribution,
        "similarity": 0.3721,
        "queries": list(queries),
        "text": code.title,
        "start": None,
        "end": None,
        "time": code.time,
        "age_years": code.age_years,
    }


def pack(
    patient, items, *, base=-0.6931, others=(0.1172, -0.0561), prob=None, time="2151-03-09T00:00:00", **changes
):
    import math

    logit = base + sum(i["attribution"] for i in items) + sum(others)
    return {
        "schema": "evidence_pack/1",
        "patient_id": patient.patient_id,
        "prediction_time": time,
        "label": None,
        "prob": 1 / (1 + math.exp(-logit)) if prob is None else prob,
        "logit": logit,
        "base_logit": base,
        "target": "logit",
        "quadrature": "Gauss-Legendre, graded u^4",
        "n_nodes": 32,
        "completeness_gap": 2.4e-6,
        "converged": True,
        "active_queries": sorted({q for i in items for q in i["queries"]} | {0}),
        "items": items,
        "other_note_attribution": others[0],
        "other_code_attribution": others[1],
        "residual": 0.0,
        "run_id": "run-7f3a",
        "encoder_id": "minilm-l6-v2/mean",
        "notes_rendered": False,
        "task": TASK,
        "note": None,
    } | changes


def factor(rank, it, summary, quotes, reasoning, stated=None):
    evidence = [
        {"quote": q, "citation": {"kind": k, "id": i}, "date": d, "age_years": None} for q, k, i, d in quotes
    ]
    return {
        "rank": rank,
        "obs_id": it if isinstance(it, str) else it["obs_id"],
        "summary": summary,
        "evidence": evidence,
        "reasoning": reasoning,
        "attribution": 0.0 if isinstance(it, str) else it["attribution"],
        "stated_attribution": stated,
    }


def checked(ok, method, score, spans=(), flags=(), reason=None, rf=None, id=""):
    return {
        "ok": ok,
        "score": score,
        "score_rapidfuzz": score if rf is None else rf,
        "method": method,
        "spans": [list(s) for s in spans],
        "flags": list(flags),
        "reason": reason,
        "trusted": ok and not flags,
        "note_id": id,
    }


def verification(patient, factors, **changes):
    s1 = [
        {"rank": f["rank"], "check": c, "ok": ok}
        for f in factors
        for c, ok in (
            ("citation", f["citation_known_record"]),
            ("quote", all(q["ok"] for q in f["quotes"]) and bool(f["quotes"])),
        )
    ]
    good = all(c["ok"] for c in s1) and len(s1) == 10
    return {
        "schema": "verification/1",
        "patient_id": patient.patient_id,
        "rationale_sha256": "5" * 64,
        "threshold": 90.0,
        "expected_factors": 5,
        "s1": s1,
        "s1_pass": good,
        "s1_pass_rapidfuzz": good,
        "factors": factors,
        "flags": [],
        "failed_reason": None,
    } | changes


def result(rank, quotes, *, record=True, in_pack=True, direction=True, attribution=True):
    return {
        "rank": rank,
        "quotes": quotes,
        "citation_known_record": record,
        "citation_known_pack": in_pack,
        "direction_ok": direction,
        "attribution_matches": attribution,
    }


def rationale(patient, p, factors, *, llm=False, **changes):
    return {
        "schema": "rationale/1",
        "patient_id": patient.patient_id,
        "prediction_time": p["prediction_time"],
        "task": TASK["name"],
        "probability": p["prob"],
        "generator": (
            {"name": "prompted", "model": "qwen3-8b", "is_llm": True}
            if llm
            else {"name": "template", "model": None, "is_llm": False}
        ),
        "prediction_explanation": "The model predicts death from any cause within one year. The evidence that weighs most is heart failure with dependence on "
        "oxygen and a rising creatinine; a plan for early follow-up counts the other way.",
        "factors": factors,
        "reasoning_lens": "Severe heart failure, renal decline during the stay and dependence on oxygen point the same way. "
        "The follow-up that was arranged lowers the score a little.",
        "recommendations": [
            "A conversation about goals of care could be relevant.",
            "Early review of fluid balance may be considered.",
        ],
        "raw": None,
        "parse_notes": [],
        "failed_reason": None,
    } | changes


def ordinary():
    """Exact, normalised, fuzzy and failed quotes; two overlapping chunks of one long note; a second note; a code."""
    d = Note("10000032-DS-21", DISCHARGE, "2151-03-09T00:00:00", 74.2, "Discharge summary", "e1")
    c = Note("10000032-CL-4", CLINIC, "2150-11-20T10:15:00", 73.9, "Clinic", "e0")
    code = Code("I50.22", "10", "Chronic systolic (congestive) heart failure", "2149-06-01T00:00:00", 72.4, "e0")
    patient = Patient(
        "10000032", "M", "2076-12-27", notes=(c, d), codes=(code,), encounters=(Encounter("e0"), Encounter("e1"))
    )
    a0, a1 = span(d.text, "Mr. ___ is a 74 year old man with CHF (EF 25%) and no history")
    b0 = d.text.index("On arrival he was hypoxic")
    c0, c1 = span(d.text, "Creatinine rose from 1.2 on admission to 2.9 on day three")
    o0, o1 = span(
        d.text, "He is oxygen dependent, at 3 liters by nasal cannula, and needs help with all transfers."
    )
    items = [
        item(1, d, a0, b0 + 140, 0.8312, (0, 1), 0.5127),
        item(2, d, b0, c1 + 120, 0.4127, (1,), 0.4733),
        item(3, c, 0, 230, -0.2210, (0, 2)),
        code_item(4, code, 0.1904),
        item(5, d, o0 - 80, o1 + 30, 0.1266, (2,), 0.3519),
    ]
    p = pack(patient, items)
    q1 = "CHF (EF 25%) and no history of cancer"
    s1 = (d.text.index("CHF (EF 25%)"), d.text.index("of cancer") + len("of cancer"))
    q2 = "Creatinine rose from 1.2 on admission to 7.9 on day three"
    q3 = "He stopped smoking two years ago and walks five miles a day"
    q3b = "see again in six weeks"
    q5 = "He is oxygen-dependent, at 3 liters by nasal cannula, needing help with all transfers"
    factors = [
        factor(
            1,
            items[0],
            "Heart failure with an ejection fraction of 25 %",
            [(q1, "note", d.note_id, "2151-03-09")],
            "The note records heart failure with a low ejection fraction. A weak heart is tied to higher mortality, which raises the predicted risk.",
        ),
        factor(
            2,
            items[1],
            "Creatinine rose during the stay",
            [(q2, "note", d.note_id, "2151-03-09")],
            "Renal function worsened in hospital, which raises the predicted risk.",
            stated=0.9,
        ),
        factor(
            3,
            items[2],
            "Active, with follow-up arranged",
            [(q3, "note", c.note_id, "2150-11-20"), (q3b, "note", c.note_id, "2150-11-20")],
            "Being active is tied to better outcomes, which lowers the predicted risk.",
        ),
        factor(
            4,
            items[3],
            "Chronic systolic heart failure is coded",
            [(code.title, "code", code.obs_id, None)],
            "The code names a chronic heart condition, which raises the predicted risk.",
        ),
        factor(
            5,
            items[4],
            "Depends on oxygen and on help with transfers",
            [(q5, "note", d.note_id, "2151-03-09")],
            "Dependence at discharge is tied to frailty, which raises the predicted risk.",
        ),
    ]
    v = verification(
        patient,
        [
            result(1, [checked(True, "normalised", 100.0, [s1], id=d.note_id)]),
            result(
                2, [checked(True, "fuzzy", 98.2, [(c0, c1)], ["number_mismatch"], id=d.note_id)], attribution=False
            ),
            result(
                3,
                [
                    checked(
                        False,
                        "none",
                        71.2,
                        [span(c.text, "He stopped smoking twelve years ago and walks with a stick")],
                        ["below_threshold"],
                        reason="below_threshold",
                        id=c.note_id,
                    ),
                    checked(True, "exact", 100.0, [span(c.text, q3b)], ["short"], id=c.note_id),
                ],
            ),
            result(4, [checked(True, "exact", 100.0, [(0, len(code.title))], id=code.obs_id)]),
            result(5, [checked(True, "fuzzy", 93.4, [(o0, o1 - 1)], id=d.note_id)]),
        ],
    )
    return patient, p, rationale(patient, p, factors), v


def hostile():
    """Markup, scripts, bidi and control characters in every field that a record or a generator fills."""
    text = (
        f"{PWN}\nAllergies: none \u202egnp.exe\u202c \x00\x1b[31m end \u200bof line & <b>bold</b> \u2028 </textarea></script><!-- \n"
        + filler(9, 40)
        + "\nThe patient </mark></span><style>*{display:none}</style> reports fatigue and \ud83d\ude00 \u05e9\u05dc\u05d5\u05dd.\n"
        + filler(10, 40)
    )
    n = Note("n<1>\"'&/../\u202e", text, "2150-01-05T00:00:00", 60.0, PWN)
    code = Code("Z<x>", "10", f"Title {PWN}", "2150-01-05T00:00:00", 60.0)
    patient = Patient(HOSTILE_ID, PWN, notes=(n,), codes=(code,))
    r0, r1 = span(text, "reports fatigue")
    items = [item(1, n, 0, 120, 0.5), item(2, n, 60, r1 + 5, -0.4), code_item(3, code, 0.1)]
    p = pack(patient, items, run_id=f"run{PWN}", encoder_id=PWN, task={"name": PWN, "sentence": f"Task {PWN}"})
    factors = [
        factor(1, items[0], PWN, [(text[:40], "note", n.note_id, PWN)], PWN),
        factor(2, items[1], f"{PWN} \u202e \ud800", [(f"{PWN}\u2028 it is", "note", n.note_id, None)], PWN),
        factor(
            3,
            items[2],
            "javascript:alert(1)",
            [(code.title, "code", code.obs_id, None), (PWN, "note", f"nope{PWN}", None)],
            PWN,
        ),
    ]
    v = verification(
        patient,
        [
            result(1, [checked(True, "exact", 100.0, [(0, 40)])]),
            result(2, [checked(False, PWN, 64.0, [(0, 77)], [PWN], reason=PWN)]),
            result(
                3,
                [
                    checked(True, "exact", 100.0, [(0, len(code.title))]),
                    checked(False, "none", None, [], ["too_long"], reason="too_long"),
                ],
                record=False,
            ),
        ],
        flags=[PWN],
        failed_reason=f"3 factors {PWN}",
    )
    return (
        patient,
        p,
        rationale(
            patient, p, factors, prediction_explanation=PWN, reasoning_lens=PWN, recommendations=[PWN], raw=PWN
        ),
        v,
    )


def nothing_retrieved():
    patient = Patient("P0003", "F", birth_year=2090)
    return (
        patient,
        pack(
            patient,
            [],
            base=-1.2,
            others=(0.0, 0.0),
            note="0 of the 5 items asked for: no other observation was retrieved.",
        ),
        None,
        None,
    )


def failing():
    """A language model's rationale over rendered notes: a factor outside the pack, an item without one, no convergence."""
    text = (
        "Admission 2149-05-01 to 2149-05-04.\nDiagnoses: Type 2 diabetes mellitus; Essential hypertension.\n"
        "Prescriptions: metformin 500 mg, lisinopril 10 mg.\nWeight 91 kg, blood pressure 162/94."
    )
    n = Note("R-1", text, "2149-05-04T00:00:00", 55.0, "rendered")
    m = Note(
        "R-2",
        "Admission 2150-02-11 to 2150-02-12.\nDiagnoses: Chest pain, unspecified.",
        "2150-02-12T00:00:00",
        55.8,
        "rendered",
    )
    patient = Patient("case_12", "F", "2094-05-01", notes=(n, m))
    items = [item(1, n, 0, len(text), -0.31), item(2, m, 0, len(m.text), 0.12)]
    p = pack(
        patient,
        items,
        notes_rendered=True,
        converged=False,
        completeness_gap=3.1e-3,
        base=-0.9,
        time="2150-06-01T00:00:00",
    )
    factors = [
        factor(
            1,
            items[0],
            "Diabetes and hypertension",
            [("Diagnoses: Type 2 diabetes mellitus; Essential hypertension.", "note", "R-1", "2149-05-04")],
            "These conditions raise the predicted risk.",
            stated=-0.31,
        ),
        factor(
            2,
            "R-9#0-40",
            "A fall at home",
            [("fell at home", "note", "R-9", None)],
            "A fall raises the risk.",
            stated=0.5,
        ),
    ]
    v = verification(
        patient,
        [
            result(
                1,
                [
                    checked(
                        True,
                        "exact",
                        100.0,
                        [span(text, "Diagnoses: Type 2 diabetes mellitus; Essential hypertension.")],
                    )
                ],
                direction=False,
            ),
            result(
                2,
                [checked(False, "none", 0.0, [], ["below_threshold"], reason="below_threshold")],
                record=False,
                in_pack=False,
            ),
        ],
        failed_reason="2 factors, expected 5",
        flags=["not_five_factors"],
    )
    return patient, p, rationale(patient, p, factors, llm=True), v


def run_info(cases):
    r = random.Random(3)
    rows = [(r.random(), r.random()) for _ in range(240)]
    roc = [(0.0, 0.0)] + [(x, min(1.0, x**0.42)) for x in sorted(a for a, _ in rows)] + [(1.0, 1.0)]
    bins = []
    for i in range(15):
        n = max(0, int(60 * (1 - i / 15)) - (60 if i == 13 else 0))
        mid = (i + 0.5) / 15
        bins.append(
            {
                "lo": i / 15,
                "hi": (i + 1) / 15,
                "n": n,
                "mean_p": mid if n else None,
                "mean_y": min(1.0, mid * 1.12) if n else None,
                "low": max(0.0, mid * 1.12 - 0.12) if n else None,
                "high": min(1.0, mid * 1.12 + 0.12) if n else None,
            }
        )
    p = cases[0][1]
    top = [
        {"patient_id": p["patient_id"], "obs_id": i["obs_id"], "score": i["similarity"], "text": i["text"]}
        for i in p["items"]
        if i["kind"] == "note"
    ]
    top.append(
        {"patient_id": "P9000", "obs_id": "P9000-n1#0-60", "score": 0.31, "text": f"Seen once, no page. {PWN}"}
    )
    gates = [
        (0, "Note", "Shared, always on", 1.0),
        (1, "Note", "Dynamic", 0.96),
        (2, "Note", "Dynamic", 0.239),
        (3, "Code", "Dynamic", 0.346),
        (4, "Code", "Dynamic", 0.0),
    ]
    return {
        "task": TASK,
        "run_id": "run-7f3a",
        "encoder_id": "minilm-l6-v2/mean",
        "config": {"train": {"lr": 0.001}, "note": PWN},
        "notes_rendered": False,
        "cohort": {
            "counts": {
                "patients": 2134,
                "prevalence": 0.3482,
                "split": {"test": {"patients": 240, "positive": 84}},
            },
            "attrition": [
                {"criterion": "all subjects", "patients": 4210, "positive": None, "applied": True},
                {"criterion": "three notes or more", "patients": 2134, "positive": 743, "applied": False},
            ],
        },
        "metrics": {
            "auc": 0.842,
            "auc_ci": [0.811, 0.871],
            "ece": 0.0314,
            "ece_bins": 15,
            "roc": roc,
            "reliability": bins,
            "base_rate": 0.348,
            "threshold": 0.5,
            "calibration": "ECE 0.031 in 15 bins on the test split; probabilities are as the model gives them, not recalibrated",
            "subgroups": [
                {
                    "group": "sex",
                    "value": "F",
                    "n": 110,
                    "positive": 36,
                    "suppressed": False,
                    "reason": None,
                    "auc": 0.851,
                    "auc_low": 0.8,
                    "auc_high": 0.9,
                    "ece": 0.041,
                },
                {
                    "group": "sex",
                    "value": "M",
                    "n": 130,
                    "positive": 48,
                    "suppressed": False,
                    "reason": None,
                    "auc": 0.833,
                    "auc_low": 0.78,
                    "auc_high": 0.88,
                    "ece": 0.037,
                },
                {
                    "group": "age",
                    "value": "under 40",
                    "n": 7,
                    "positive": 0,
                    "suppressed": True,
                    "reason": "fewer than 20 patients",
                    "auc": None,
                },
            ],
            "activation": [{"query": q, "modality": m, "gate_type": g, "activation": a} for q, m, g, a in gates],
            "query_examples": [
                {"query": 0, "modality": "Note", "items": top},
                {"query": 4, "modality": "Code", "items": []},
            ],
        },
    }


def all_cases():
    return [ordinary(), hostile(), nothing_retrieved(), failing()]


def inputs(cases=None) -> dict:
    """Keyword arguments of write_report, out_dir apart."""
    cases = all_cases() if cases is None else cases
    r = random.Random(0)
    predictions = [
        {
            "patient_id": c[1]["patient_id"],
            "prob": c[1]["prob"],
            "logit": c[1]["logit"],
            "label": i % 2,
            "split": "test",
        }
        for i, c in enumerate(cases)
    ]
    predictions += [
        {"patient_id": f"P{9000 + i}", "prob": r.random() ** 2, "logit": 0.0, "label": None, "split": "test"}
        for i in range(36)
    ]
    return {
        "packs": [c[1] for c in cases],
        "rationales": [c[2] for c in cases if c[2]],
        "verifications": [c[3] for c in cases if c[3]],
        "patients": {c[0].patient_id: c[0] for c in cases},
        "predictions": predictions,
        "run_info": run_info(cases),
    }
