"""The rationale parser: JSON first, bracket sections accepted, nothing but ValueError (Table 19)."""
import copy
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_cases import pack

from evigen_jax.rationale import failed_rationale, parse_rationale, validate_rationale

PACK = pack()
QUOTES = ["CHF (EF 25%) and no history\r\nof cancer", "Lost 9 kg over four months", "Heart failure, unspecified", "Cholera due to vibrio cholerae", "Fair."]


def stated(i):
    return f"{i['attribution']:+.4f}"


def as_json(**changes):
    factors = [
        {
            "rank": i["rank"], "summary": f"Summary {i['rank']}", "reasoning": "It pushes the risk up.", "attribution": stated(i),
            "evidence": [{"quote": q, "citation": {"kind": i["kind"], "id": i["source_id"]}, "date": "2014-06-01"}],
        }
        for i, q in zip(PACK["items"], QUOTES)
    ]
    return {
        "prediction_explanation": "A prediction of death within one year.", "factors": factors, "reasoning_lens": "Together they matter.",
        "recommendations": ["A talk may help.", "Review could be relevant."],
    } | changes


def as_text(bold=False, bullets=False, numbers=False, brackets=True, spaced=True):
    def label(n, name):
        mark = f"**{name}:**" if bold else f"{name}:"
        return ("- " if bullets else "") + (f"{n}. " if numbers else "") + mark

    def section(name):
        return f"[{name}]" if brackets else f"## **{name}**"

    lines = [section("Prediction + Explanation"), "A prediction of death within one year.", "", section("Evidence Reasoning")]
    for n, (i, q) in enumerate(zip(PACK["items"], QUOTES), 1):
        cited = f"(note_id: {i['source_id']})" if i["kind"] == "note" else f"(ICD code: {i['source_id']})"
        q = q.replace("\r\n", " ")
        lines += [f"Factor {n}"] if bold else []
        lines += [
            f"{label(n, 'Factor summary')} Summary {n}", f"{label(n, 'Supporting evidence')} \"{q}\", 2014-06-01 {cited}",
            f"{label(n, 'Reasoning')} It pushes the risk up.", f"{label(n, 'Attribution score')} {stated(i)}", *([""] if spaced else []),
        ]
    lines += [section("Reasoning Lens"), "Together they matter.", "", section("Recommendations"), "- A talk may help.", "- Review could be relevant."]
    return "\n".join(lines)


def check(found, quotes=QUOTES):
    validate_rationale(found)
    assert found["prediction_explanation"] == "A prediction of death within one year." and found["reasoning_lens"] == "Together they matter."
    assert found["recommendations"] == ["A talk may help.", "Review could be relevant."]
    assert found["probability"] == PACK["prob"] and found["patient_id"] == "p#1" and found["parse_notes"] == []
    for n, (f, i, q) in enumerate(zip(found["factors"], PACK["items"], quotes, strict=True), 1):
        assert (f["rank"], f["obs_id"], f["attribution"]) == (n, i["obs_id"], i["attribution"])
        assert (f["summary"], f["reasoning"], f["stated_attribution"]) == (f"Summary {n}", "It pushes the risk up.", pytest.approx(i["attribution"], abs=1e-4))
        assert [e["quote"] for e in f["evidence"]] == [q]
        assert f["evidence"][0]["citation"] == {"kind": i["kind"], "id": i["source_id"]} and f["evidence"][0]["date"] == "2014-06-01"


@pytest.mark.parametrize("wrap", [
    "{}", "```json\n{}\n```", "<think>\n{{\"factors\": []}} hmm [Evidence Reasoning]\n</think>\n{}", "thinking without its tag</think>{}",
    "Here is the rationale {{as asked}}:\n{}\nI hope this helps.", "\n\n{}\n\n",
])
def test_json(wrap):
    check(parse_rationale(wrap.format(json.dumps(as_json())), PACK))


def test_json_with_other_names_and_shapes():
    raw = as_json()
    for f in raw["factors"]:
        f["Factor Summary"], f["attribution_score"] = f.pop("summary"), float(f.pop("attribution"))
        e = f.pop("evidence")[0]
        kind = "note_id" if e["citation"]["kind"] == "note" else "ICD code"
        f["supporting_evidence"] = f"\"{e['quote']}\" Date: 2014-06-01 ({kind}: {e['citation']['id']})".replace("\r\n", " ")
    raw["Evidence Reasoning"] = raw.pop("factors")
    raw["Recommendations"] = "- A talk may help.\n- Review could be relevant."
    del raw["recommendations"]
    check(parse_rationale(json.dumps(raw), PACK), [q.replace("\r\n", " ") for q in QUOTES])
    nested = as_json()
    for f in nested["factors"]:
        e = f["evidence"][0]
        cited = e.pop("citation")
        e["note_id" if cited["kind"] == "note" else "icd_code"] = cited["id"]
    check(parse_rationale(json.dumps(nested), PACK))


@pytest.mark.parametrize("style", [
    {}, {"bold": True}, {"bullets": True}, {"numbers": True}, {"bold": True, "bullets": True, "numbers": True}, {"brackets": False}, {"spaced": False},
])
def test_bracket_sections(style):
    check(parse_rationale(as_text(**style), PACK), [q.replace("\r\n", " ") for q in QUOTES])


def test_other_labels():
    text = as_text().replace("Factor summary:", "Factor 3 - Summary:").replace("Supporting evidence:", "*Supporting  Evidence* :")
    check(parse_rationale(text.replace("Attribution score:", "(iv) **Attribution Score:**"), PACK), [q.replace("\r\n", " ") for q in QUOTES])
    text = as_text().replace("[Prediction + Explanation]", "1. [Prediction and Explanation]:").replace("[Reasoning Lens]\n", "**[Reasoning Lens]** ")
    check(parse_rationale(text, PACK), [q.replace("\r\n", " ") for q in QUOTES])


def test_sections_in_a_thinking_answer_and_with_curly_quotes():
    text = "<think>[Evidence Reasoning] ...</think>" + as_text().replace('"CHF', "\u201cCHF").replace('cancer"', "cancer\u201d")
    check(parse_rationale(text, PACK), [q.replace("\r\n", " ") for q in QUOTES])


def factor_text(evidence):
    return f"[Evidence Reasoning]\nFactor summary: s\nSupporting evidence: {evidence}\nReasoning: r\nAttribution score: \u22120.0786 (lowers)"


@pytest.mark.parametrize("evidence, expected", [
    ('"one two" and "three four" (note_id: nb)', [("one two", "nb"), ("three four", "nb")]),
    ('\n- "one two" (note_id: nb)\n- "three" (ICD code: I50.9-10)', [("one two", "nb"), ("three", "I50.9-10")]),
    ('"he said "I am tired" today" (note_id: nb)', [('he said "I am tired" today', "nb")]),
    ("no quote marks at all, 2014-06-01 (note_id: nb)", [("no quote marks at all", "nb")]),
    ('"uncited"', [("uncited", "")]),
    ('"no such chunk" (note_id: nb#0-7)', [("no such chunk", "nb#0-7")]),
    ('"x y z" [Note ID: **nb**]', [("x y z", "nb")]),
    ('"title" (ICD-10-CM code: I50.9-10)', [("title", "I50.9-10")]),
])
def test_evidence_lines(evidence, expected):
    factor = parse_rationale(factor_text(evidence), PACK)["factors"][0]
    assert [(e["quote"], e["citation"]["id"]) for e in factor["evidence"]] == expected
    assert factor["stated_attribution"] == pytest.approx(-0.0786)


def test_chunk_ids_cite_their_note_and_stated_values_are_kept():
    raw = as_json()
    raw["factors"][0]["evidence"][0]["citation"]["id"] = PACK["items"][0]["obs_id"]
    raw["factors"][1]["evidence"][0]["citation"]["id"] = "another"
    raw["factors"][1]["attribution"] = "+9.9"
    found = parse_rationale(json.dumps(raw), PACK)["factors"]
    assert found[0]["evidence"][0]["citation"] == {"kind": "note", "id": "n#a"}
    assert found[1]["evidence"][0]["citation"]["id"] == "another", "a wrong citation is for the verifier to find"
    assert found[1]["stated_attribution"] == 9.9 and found[1]["attribution"] == PACK["items"][1]["attribution"]


def test_factors_in_another_order_follow_their_citations_only_where_all_do():
    raw = as_json()
    raw["factors"] = raw["factors"][::-1]
    found = parse_rationale(json.dumps(raw), PACK)["factors"]
    assert [f["rank"] for f in found] == [1, 2, 3, 4, 5]
    assert [f["summary"] for f in found] == [f"Summary {n}" for n in range(1, 6)], "two chunks of one note are told apart by their quotes"
    raw["factors"][0]["evidence"][0]["citation"]["id"] = "another"
    found = parse_rationale(json.dumps(raw), PACK)["factors"]
    assert [f["summary"] for f in found] == [f"Summary {n}" for n in (5, 4, 3, 2, 1)]


def test_too_few_and_too_many_factors_are_kept():
    raw = as_json()
    found = parse_rationale(json.dumps(raw | {"factors": raw["factors"][:3]}), PACK)
    assert [f["rank"] for f in found["factors"]] == [1, 2, 3]
    found = parse_rationale(json.dumps(raw | {"factors": raw["factors"] + raw["factors"][:1]}), PACK)
    assert (found["factors"][5]["rank"], found["factors"][5]["obs_id"], found["factors"][5]["attribution"]) == (6, "n#a", 0.0)


@pytest.mark.parametrize("text, reason", [
    ("", "empty"), ("   ", "empty"), ("<think>never ends", "thinking"), ("<think>a</think>", "empty"), ("I cannot help with that.", "no factors"),
    ('{"factors": []}', "no complete factor"), ('{"factors": 3}', "expected a list"), ("{" * 5000, "no factors"), ('{"factors":' * 3000, "no factors"),
    (json.dumps({"factors": [{"summary": ""}]}), "empty"), ("[Evidence Reasoning]\nnothing here", "no factors"),
])
def test_unparsable_answers_say_why(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_rationale(text, PACK)


def test_truncated_json_keeps_whole_factors():
    text = json.dumps(as_json())
    kept = []
    for cut in range(len(text.encode())):
        piece = text.encode()[:cut].decode("utf-8", "ignore")
        try:
            found = parse_rationale(piece, PACK)
        except ValueError:
            continue
        assert "the JSON is cut off" in found["parse_notes"]
        for f in found["factors"]:
            assert f["summary"] == f"Summary {f['rank']}" and f["evidence"] and f["reasoning"]
        kept.append(len(found["factors"]))
    assert kept == sorted(kept) and kept[-1] == 5 and set(kept) == {1, 2, 3, 4, 5}


def test_truncated_text_raises_nothing_but_value_error():
    parsed = refused = 0
    for text in (as_text(), as_text(bold=True, bullets=True, numbers=True), "```json\n" + json.dumps(as_json(), ensure_ascii=False) + "\n```"):
        data = text.encode()
        for cut in range(0, len(data), 3):
            for piece in (data[:cut], data[cut:]):
                try:
                    found = parse_rationale(piece.decode("utf-8", "replace"), PACK)
                except ValueError:
                    refused += 1
                    continue
                validate_rationale(found)
                parsed += 1
    assert parsed > 100 and refused > 100


_ALPHABET = st.sampled_from([
    "{", "}", "[", "]", '"', ":", ",", "\\", "\\u", "\\ud800", "\n", " ", "- ", "**", "1. ", '"factors"', '"evidence"', '"quote"', "[Evidence Reasoning]",
    "Factor summary:", "Supporting evidence:", "Reasoning:", "Attribution score:", "+1.2", "1e999", "NaN", "(note_id: n#a)", "(ICD code: I50.9-10)", "\u201c",
    "\u201d", "<think>", "</think>", "null", "true", "[Reasoning Lens]", "[Recommendations]", "Factor 1", "\x00", "\ud800", "2019-02-30", "word",
])


@settings(max_examples=300, deadline=None)
@given(st.lists(_ALPHABET, max_size=60).map("".join))
def test_any_text_gives_a_rationale_or_a_value_error(text):
    try:
        found = parse_rationale(text, PACK)
    except ValueError:
        return
    validate_rationale(found)
    assert json.loads(json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")) == found


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["n#a", "(note_id: nb)"]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["quote", "citation", "summary", "evidence", "attribution", "id", "x"]), v, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["factors", "reasoning_lens", "recommendations", "prediction_explanation"]), _VALUES, st.lists(_VALUES, max_size=3))
def test_any_json_gives_a_rationale_or_a_value_error(name, value, factors):
    raw = as_json() | {"factors": as_json()["factors"][:1] + factors} | {name: value}
    try:
        found = parse_rationale(json.dumps(raw), PACK)
    except ValueError:
        return
    validate_rationale(found)
    assert json.loads(json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")) == found


@pytest.mark.parametrize("piece", [" ", "-", '"', "{", "(note_id:", "a\n", "\u201c", "+ ", "[", "Factor summary: a\n", "age ", "_*", '{"a":"'])
def test_time_is_bounded_on_hostile_text(piece):
    text = "[Evidence Reasoning]\nSupporting evidence: " + piece * (200_000 // len(piece))
    start = time.process_time()
    try:
        parse_rationale(text + "x", PACK)
    except ValueError:
        pass
    assert time.process_time() - start < 10
    with pytest.raises(ValueError, match="at most"):
        parse_rationale(piece * 1_000_001, PACK)


def test_a_failed_answer_stays_in_the_file():
    found = failed_rationale(PACK, {"name": "llm", "model": "m", "is_llm": True}, "raw", "rationale: no factors found")
    validate_rationale(found)
    assert found["factors"] == [] and found["failed_reason"] and found["raw"] == "raw"


@pytest.mark.parametrize("path, value", [
    (("schema",), "rationale/2"), (("factors",), []), (("probability",), 2.0), (("factors", 1, "rank"), 1), (("generator",), {"name": "x"}),
    (("factors", 0, "evidence", 0, "citation"), {"kind": "lab", "id": "x"}), (("factors", 0, "evidence", 0, "citation"), {"kind": "note"}),
    (("factors", 0, "attribution"), None), (("recommendations",), [1]), (("extra",), 1), (("failed_reason",), "said so"),
])
def test_validate_names_the_field(path, value):
    found = copy.deepcopy(parse_rationale(json.dumps(as_json()), PACK))
    at = found
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    with pytest.raises(ValueError, match=str(path[0]) if path[0] != "failed_reason" else "factors"):
        validate_rationale(found)
