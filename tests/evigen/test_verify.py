"""verify_rationale: ten booleans, what fails a rationale, provenance, direction and numbers; verify_many and summary."""
import copy
import json
import math

import pytest

from core_jax.records import patient_from_dict, visible
from core_jax.stats import wilson
from evigen_jax.evidence import validate_pack
from evigen_jax.generate import TemplateGenerator
from evigen_jax.rationale import failed_rationale, parse_rationale, rationale_sha256
from evigen_jax.verify import stated_direction, summary, validate_verification, verify_many, verify_rationale

TEXTS = {
    "n1": "Mr. ___ was admitted with acute decompensated heart failure. He denies chest pain at rest or on exertion.",
    "n2": "Creatinine rose to 2.4 during the stay. Furosemide was continued at 40 mg daily by mouth.",
    "n3": "He lives alone and walks with a cane, and needs help with bathing and with dressing.",
    "n4": "Oxygen at home was started for severe chronic obstructive pulmonary disease last winter.",
    "later": "The patient died of septic shock in the intensive care unit after three days.",
}
TIMES = {"n1": "2150-01-05", "n2": "2150-03-01", "n3": "2150-06-02", "n4": "2150-09-09", "later": "2151-07-01"}
TITLE = "Chronic systolic (congestive) heart failure"
CUT = "2151-01-01T00:00:00"


def record():
    return patient_from_dict({
        "patient_id": "P1", "birth_year": 2085,
        "notes": [{"note_id": k, "text": t, "time": TIMES[k]} for k, t in TEXTS.items()],
        "codes": [{"code": "I50.22", "version": "10", "title": TITLE, "time": "2150-01-05"},
                  {"code": "E11.9", "version": "10", "title": "Type 2 diabetes mellitus without complications", "time": "2150-01-05"}],
    })


def item(rank, source, attribution, kind="note"):
    text = TEXTS[source] if kind == "note" else TITLE
    start, end = (0, len(text)) if kind == "note" else (None, None)
    return {
        "obs_id": f"{source}#{start}-{end}" if kind == "note" else source, "kind": kind, "source_id": source, "rank": rank,
        "attribution": attribution, "similarity": 0.5, "queries": [0], "text": text, "start": start, "end": end,
        "time": TIMES.get(source, "2150-01-05") + "T00:00:00", "age_years": 65.0,
    }


ITEMS = (("n1", 0.5123), ("n2", 0.2), ("n3", -0.1), ("n4", 0.05), ("I50.22-10", 0.01))
QUOTES = {
    "n1": "acute decompensated heart failure", "n2": "Creatinine rose to 2.4 during the stay", "n3": "He lives alone and walks with a cane",
    "n4": "severe chronic obstructive pulmonary disease", "I50.22-10": TITLE,
}


def pack(items=ITEMS):
    made = [item(n, s, a, "code" if s.startswith("I50") else "note") for n, (s, a) in enumerate(items, 1)]
    logit = math.fsum(a for _, a in items)
    out = {
        "schema": "evidence_pack/1", "patient_id": "P1", "prediction_time": CUT, "label": 1, "prob": 1 / (1 + math.exp(-logit)), "logit": logit,
        "base_logit": 0.0, "target": "logit", "quadrature": "graded", "n_nodes": 32, "completeness_gap": 0.0, "converged": True,
        "active_queries": [0], "items": made, "other_note_attribution": 0.0, "other_code_attribution": 0.0, "residual": 0.0, "run_id": "r",
        "encoder_id": "e", "notes_rendered": False, "task": {"name": "mortality", "sentence": "death within one year"},
        "note": None if len(made) == 5 else f"{len(made)} of the 5 items asked for",
    }
    validate_pack(out)
    return out


def rationale(p):
    factors = []
    for i in p["items"]:
        way = "raises" if i["attribution"] > 0 else "lowers"
        factors.append({
            "rank": i["rank"], "obs_id": i["obs_id"], "summary": "As stated.",
            "evidence": [{"quote": QUOTES[i["source_id"]], "citation": {"kind": i["kind"], "id": i["source_id"]}, "date": i["time"], "age_years": 65.0}],
            "reasoning": f"Stated \u2192 reserve \u2192 {way} 1-year mortality risk.", "attribution": i["attribution"],
            "stated_attribution": round(i["attribution"], 4),
        })
    return {"schema": "rationale/1", "patient_id": "P1", "prediction_time": CUT, "task": "mortality", "probability": p["prob"],
            "generator": {"name": "x", "model": None, "is_llm": False}, "prediction_explanation": "", "factors": factors, "reasoning_lens": "",
            "recommendations": [], "raw": None}


def check(change=None, items=ITEMS, **options):
    p = pack(items)
    r = rationale(p)
    if change is not None:
        r = change(r) or r
    got = verify_rationale(r, visible(record(), CUT), p, **options)
    validate_verification(got)
    return got


def failing(got):
    return [(c["rank"], c["check"]) for c in got["s1"] if not c["ok"]]


def quote(rank, text):
    def change(r):
        r["factors"][rank - 1]["evidence"][0]["quote"] = text
    return change


def cite(rank, id, kind="note"):
    def change(r):
        r["factors"][rank - 1]["evidence"][0]["citation"] = {"kind": kind, "id": id}
    return change


def field(rank, **values):
    return lambda r: r["factors"][rank - 1].update(values)


def test_a_faithful_rationale_passes_all_ten():
    got = check()
    assert [(c["rank"], c["check"]) for c in got["s1"]] == [(r, c) for r in range(1, 6) for c in ("citation", "quote")]
    assert got["s1_pass"] and got["s1_pass_rapidfuzz"] and got["failed_reason"] is None and got["flags"] == []
    assert all(f["citation_known_record"] and f["citation_known_pack"] and f["direction_ok"] and f["attribution_matches"] for f in got["factors"])
    assert [q["note_id"] for f in got["factors"] for q in f["quotes"]] == ["n1", "n2", "n3", "n4", "I50.22-10"]
    span = got["factors"][1]["quotes"][0]["spans"][0]
    assert TEXTS["n2"][slice(*span)] == QUOTES["n2"]


def test_the_template_writer_passes():
    p = pack()
    got = verify_rationale(TemplateGenerator().generate([p])[0], visible(record(), CUT), p)
    assert got["s1_pass"] and got["flags"] == []


@pytest.mark.parametrize(("change", "failed", "flags"), [
    (cite(2, "nowhere"), [(2, "citation"), (2, "quote")], ["factor 2: citation_unknown", "factor 2: quote_in_other_source"]),
    (cite(2, "later"), [(2, "citation"), (2, "quote")], ["factor 2: citation_unknown", "factor 2: quote_in_other_source"]),
    (cite(2, "n3"), [(2, "quote")], ["factor 2: citation_of_other_factor", "factor 2: quote_in_other_source", "factor 2: date"]),
    (cite(5, "E11.9-10", "code"), [(5, "quote")], ["factor 5: citation_outside_pack", "factor 5: quote_in_other_source"]),
    (cite(5, "I50.22-10", "note"), [(5, "citation"), (5, "quote")], ["factor 5: citation_unknown", "factor 5: quote_in_other_source"]),
    (quote(1, QUOTES["n2"]), [(1, "quote")], ["factor 1: quote_in_other_source"]),
    (quote(1, "The patient died of septic shock in the intensive care unit"), [(1, "quote")], []),
    (quote(2, "Creatinine rose to 7.4 during the stay"), [], ["factor 2: number_mismatch"]),
    (quote(1, "chest pain at rest or on exertion"), [], ["factor 1: negation_outside"]),
    (quote(5, "systolic (congestive) heart failure"), [], []),
    (quote(5, "heart failure due to amyloidosis with an EF of 10% in this patient"), [(5, "quote")], []),
    (field(3, evidence=[]), [(3, "citation"), (3, "quote")], ["factor 3: no_evidence"]),
    (field(3, evidence=[{"quote": None, "citation": "n3"}]), [(3, "citation"), (3, "quote")], ["factor 3: malformed_evidence"]),
    (field(3, obs_id="n9#0-10"), [], ["factor 3: unknown_observation"]),
    (field(3, reasoning="It increases the 1-year mortality risk."), [], ["factor 3: direction"]),
    (field(1, stated_attribution=-0.5123), [], ["factor 1: attribution"]),
    (field(1, stated_attribution=0.5125), [], ["factor 1: attribution"]),
    (field(1, stated_attribution=float("nan")), [], ["factor 1: attribution"]),
    (field(1, attribution=0.7), [], ["factor 1: attribution_not_from_pack"]),
    (field(4, obs_id="n3#0-84"), [], ["factor 4: citation_of_other_factor", "factor 4: attribution", "factor 4: direction", "factor 4: attribution_not_from_pack",
                                      "factor 4: repeated_observation"]),
])
def test_single_faults(change, failed, flags):
    got = check(change)
    assert failing(got) == failed
    assert sorted(got["flags"]) == sorted(flags)
    assert got["s1_pass"] == (failed == []) and got["failed_reason"] is None


def test_where_the_quote_really_stands():
    got = check(quote(1, QUOTES["n2"]))
    result = got["factors"][0]["quotes"][0]
    assert not result["ok"] and result["note_id"] == "n1" and result["found_in"] == "n2"
    assert check()["factors"][0]["quotes"][0]["found_in"] is None


def test_every_quote_of_a_factor_counts():
    def change(r):
        more = copy.deepcopy(r["factors"][0]["evidence"][0])
        r["factors"][0]["evidence"].append(more | {"quote": "words that stand nowhere in this note at all"})
    got = check(change)
    assert failing(got) == [(1, "quote")] and [q["ok"] for q in got["factors"][0]["quotes"]] == [True, False]


def test_the_papers_form_stands_beside():
    hanging = "Severe ARDS. Mr. ___ was admitted with acute decompensated heart failure. He denies chest pain"
    got = check(quote(1, hanging))
    assert not got["s1_pass"] and got["s1_pass_rapidfuzz"]
    assert [c["ok_rapidfuzz"] for c in got["s1"]] == [True] * 10 and failing(got) == [(1, "quote")]
    assert check(quote(5, TITLE + " due to amyloidosis and more"))["s1_pass_rapidfuzz"], "roles swapped, the paper's ratio is 100"


def test_threshold_is_passed_on():
    typo = quote(3, "He lifes alone and walks with a kane")
    assert check(typo)["s1_pass"] and not check(typo, threshold=97.0)["s1_pass"]


def test_a_number_other_than_five_fails_and_stays():
    for change, reason in (
        (lambda r: r | {"factors": r["factors"][:4]}, "4 factors, expected 5"),
        (lambda r: r["factors"].append(dict(r["factors"][0], rank=6)), "6 factors, expected 5"),
        (lambda r: r | {"factors": []}, "0 factors, expected 5"),
        (lambda r: r | {"factors": "none"}, "unparsable: no list of factors"),
        (lambda r: r | {"factors": [1, 2, 3, 4, 5]}, "unparsable: no list of factors"),
        (lambda r: "no JSON at all", "unparsable: got str, expected an object"),
        (lambda r: failed_rationale(pack(), r["generator"], "text", "no factors found"), "no factors found"),
    ):
        got = check(change)
        assert got["failed_reason"] == reason and not got["s1_pass"] and not got["s1_pass_rapidfuzz"]
        assert len(got["s1"]) == 10
    got = verify_rationale(None, visible(record(), CUT), pack())
    assert got["failed_reason"].startswith("unparsable") and got["patient_id"] == "P1" and failing(got) == [(c["rank"], c["check"]) for c in got["s1"]]


def test_a_missing_rank_fails_its_own_checks():
    got = check(lambda r: r["factors"].pop(2) and None)
    assert failing(got) == [(3, "citation"), (3, "quote")]


def test_a_pack_of_fewer_items_is_judged_on_its_number():
    got = check(items=ITEMS[:3])
    assert got["expected_factors"] == 3 and len(got["s1"]) == 6 and got["s1_pass"]
    assert check(lambda r: r | {"factors": r["factors"][:2]}, items=ITEMS[:3])["failed_reason"] == "2 factors, expected 3"
    empty = pack(())
    got = verify_rationale(failed_rationale(empty, {"name": "x", "model": None, "is_llm": False}, None, ""), visible(record(), CUT), empty)
    assert got["failed_reason"] == "the evidence pack holds no items" and not got["s1_pass"], "no checks are not a pass"


def test_repeated_quotes():
    def change(r):
        r["factors"][3]["evidence"] = copy.deepcopy(r["factors"][0]["evidence"])
        r["factors"][3]["evidence"][0]["quote"] = "Acute  Decompensated heart failure"
    assert "factor 4: repeated_quote" in check(change)["flags"]


def test_the_occurrence_inside_the_chunk_is_taken():
    p = pack()
    text = "No heart failure was seen at that time. Now there is heart failure was seen at that time."
    patient = patient_from_dict({"patient_id": "P1", "birth_year": 2085, "notes": [{"note_id": "n1", "text": text, "time": "2150-01-05"}]})
    p["items"] = [p["items"][0] | {"obs_id": f"n1#40-{len(text)}", "start": 40, "end": len(text), "text": text[40:]}]
    r = rationale(p)
    r["factors"][0]["evidence"][0]["quote"] = "heart failure was seen at that time"
    got = verify_rationale(r, patient, p)
    assert got["factors"][0]["quotes"][0]["spans"] == [(53, 88)] and got["flags"] == []
    r["factors"][0]["evidence"][0]["quote"] = "No heart failure was seen at that time"
    assert verify_rationale(r, patient, p)["flags"] == ["factor 1: quote_outside_chunk"]


def test_wrong_patient():
    p, r = pack(), rationale(pack())
    with pytest.raises(ValueError, match="evidence pack of 'P1' checked against the record of 'P2'"):
        verify_rationale(r, patient_from_dict({"patient_id": "P2"}), p)
    with pytest.raises(ValueError, match="rationale of 'P3'"):
        verify_rationale(r | {"patient_id": "P3"}, visible(record(), CUT), p)


def test_a_parsed_answer():
    lines = [f"{i['rank']}. Factor summary: as stated\nSupporting evidence: \"{QUOTES[i['source_id']]}\" "
             + (f"(note_id: {i['source_id']})" if i["kind"] == "note" else f"(ICD code: {i['source_id']})")
             + "\nReasoning: stated \u2192 reserve \u2192 " + ("higher" if i["attribution"] > 0 else "lower") + " mortality risk." for i in pack()["items"]]
    text = "[Prediction + Explanation]\nRisk is 0.66.\n[Predictive Factors + Evidence-Based Reasoning]\n" + "\n".join(lines) + \
        "\n[Reasoning Lens]\nSo it is.\n[Recommendations]\nTalk."
    got = verify_rationale(parse_rationale(text, pack()), visible(record(), CUT), pack())
    assert got["s1_pass"] and all(f["direction_ok"] for f in got["factors"]) and all(f["attribution_matches"] is None for f in got["factors"])


@pytest.mark.parametrize(("text", "direction"), [
    ("CHF \u2192 reduced cardiac reserve \u2192 increases 1-year mortality risk", 1),
    ("lower ejection fraction, which increases mortality risk", 1),
    ("it raises the predicted risk: its contribution to logit is +0.4", 1),
    ("Mortality risk is increased in such patients.", 1),
    ("low albumin \u2192 frailty \u2192 risk of death within 1 year is raised", 1),
    ("associated with higher risk of death", 1),
    ("reduced survival is expected", 1),
    ("a worse prognosis", 1),
    ("it lowers the predicted risk", -1),
    ("Stable gait \u2192 good function \u2192 may lower the model's predicted 1-year mortality probability", -1),
    ("improved function reduces the likelihood of death", -1),
    ("a protective effect against mortality", -1),
    ("better survival", -1),
    ("does not change the predicted risk", None),
    ("does not increase the risk", None),
    ("increases risk early but lowers risk later", None),
    ("elevated creatinine suggests kidney injury", None),
    ("risk factor: lower EF", None),
    ("", None),
])
def test_stated_direction(text, direction):
    assert stated_direction(text) == direction


def test_many_in_order_and_in_processes():
    p, patient = pack(), visible(record(), CUT)
    rows = [(rationale(p), patient, p), (None, patient, p), (cite(2, "n3")(r := rationale(p)) or r, patient, p)]
    alone = verify_many(iter(rows))
    assert [v["s1_pass"] for v in alone] == [True, False, False]
    assert alone == [verify_rationale(*row) for row in rows]
    assert verify_many(rows, workers=2) == alone
    with pytest.raises(ValueError, match="workers: got 0"):
        verify_many(rows, workers=0)


def test_summary():
    p, patient = pack(), visible(record(), CUT)
    changed = rationale(p)
    quote(2, "Creatinine rose to 7.4 during the stay")(changed)
    wrong = rationale(p)
    cite(2, "n3")(wrong)
    got = summary(verify_many([(r, patient, p) for r in (rationale(p), changed, wrong, None)]))
    assert got["rationales"] == 4 and got["failed"] == {"unparsable: got NoneType, expected an object": 1}
    low, high = wilson(2, 4)
    assert got["s1"] == {"k": 2, "n": 4, "rate": 0.5, "low": low, "high": high}
    assert (got["checks"]["k"], got["checks"]["n"]) == (29, 40)
    assert (got["quotes"]["k"], got["quotes"]["n"], got["quotes_trusted"]["k"]) == (14, 15, 13)
    assert got["quotes_rapidfuzz"]["k"] == 14 and got["citations"]["k"] == 15 and got["citations_in_pack"]["k"] == 15
    assert got["flags"] == {"citation_of_other_factor": 1, "date": 1, "number_mismatch": 1, "quote_in_other_source": 1}
    assert summary([])["s1"] == {"k": 0, "n": 0, "rate": None, "low": None, "high": None}


def test_summary_counts_by_the_threshold_that_was_used():
    p, patient = pack(), visible(record(), CUT)
    changed = rationale(p)
    quote(2, "Creatinine rose to 7.4 during the stay")(changed)
    for threshold, found in ((90.0, 5), (100.0, 4)):
        checked = verify_many([(changed, patient, p)], threshold=threshold)
        got = summary(checked)
        assert checked[0]["threshold"] == threshold and got["thresholds"] == [threshold]
        assert (got["quotes"]["k"], got["quotes_rapidfuzz"]["k"]) == (found, found)


def test_a_verification_names_the_rationale_it_is_of():
    p, patient = pack(), visible(record(), CUT)
    one, other = rationale(p), rationale(p)
    other["reasoning_lens"] += " "
    hashes = [v["rationale_sha256"] for v in verify_many([(r, patient, p) for r in (one, dict(reversed(one.items())), other, None)])]
    assert hashes[0] == hashes[1] == rationale_sha256(json.loads(json.dumps(one))) and len(set(hashes)) == 3


@pytest.mark.parametrize(("change", "message"), [
    ({"schema": "verification/2"}, "schema"), ({"s1": [{"rank": 1}]}, r"s1\[0\]"), ({"factors": [{}]}, r"factors\[0\]"), ({"s1_pass": 1}, "s1_pass"),
    ({"rationale_sha256": "abc"}, "rationale_sha256"), ({"threshold": 0.0}, "threshold"),
    ({"s1": [{"rank": 1, "check": "judge", "ok": True, "ok_rapidfuzz": True}]}, "check"),
])
def test_validation_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        validate_verification(check() | change)
