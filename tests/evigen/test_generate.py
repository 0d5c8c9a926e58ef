"""Sentences with exact offsets, and the template writer: verbatim, bounded, descriptive, deterministic."""
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_cases import NOTE_A, NOTE_B, pack

from evigen_jax.evidence import Attributed
from evigen_jax.generate import QUOTE_CHARS, TemplateGenerator, quote
from evigen_jax.rationale import validate_rationale
from evigen_jax.sentences import sentences, words


def pieces(text):
    return [text[a:b] for a, b in sentences(text)]


@pytest.mark.parametrize("text, expected", [
    ("Mr. ___ is 65. Cr 1.2 on admission;  he left. Discharged home vs. rehab.", ["Mr. ___ is 65.", "Cr 1.2 on admission;  he left.", "Discharged home vs. rehab."]),
    ("CHF (EF 25%) and no history\r\nof cancer.  Stable", ["CHF (EF 25%) and no history\r\nof cancer.", "Stable"]),
    ("PLAN:\n1. Aspirin 81 mg p.o. q.d.\n2. Lasix 40 mg\n- Colace\nAllergies: NKDA", ["PLAN:", "1. Aspirin 81 mg p.o. q.d.", "2. Lasix 40 mg", "- Colace", "Allergies: NKDA"]),
    ("Dr. A. Smith saw pt. no. 5 at 10 a.m. Then left! Why?", ["Dr. A. Smith saw pt. no. 5 at 10 a.m.", "Then left!", "Why?"]),
    ('He said "no." Then left.', ['He said "no."', "Then left."]),
    ("A line long enough to have been wrapped by an editor goes on here\nWith a capital letter.", ["A line long enough to have been wrapped by an editor goes on here\nWith a capital letter."]),
    ("Short line\nAnother line", ["Short line", "Another line"]), ("", []), (" \n ", []),
    ("WBC 3.5\n\nHgb 9.1", ["WBC 3.5", "Hgb 9.1"]),
])
def test_sentences(text, expected):
    assert pieces(text) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([" ", "\n", "\r\n", ". ", "? ", "Dr.", "1.", "- ", "word", "Word", "3.5", ":", "\u2028", "\x0c", "(", "\u00e9", "___", ".\n"]), max_size=40).map("".join))
def test_sentences_keep_every_character_in_order(text):
    spans = sentences(text)
    assert all(a < b for a, b in spans) and all(b <= c for (_, b), (c, _) in zip(spans, spans[1:]))
    assert "".join("".join(text[a:b].split()) for a, b in spans) == "".join(text.split())


def template(found=None, **options):
    return TemplateGenerator(**options).generate([found or pack()])[0]


def test_quotes_are_verbatim_and_bounded():
    found = pack()
    written = template(found)
    validate_rationale(written)
    assert written["generator"] == {"name": "template", "model": None, "is_llm": False}
    for f, i in zip(written["factors"], found["items"], strict=True):
        (e,) = f["evidence"]
        assert e["quote"] in i["text"] and len(e["quote"]) <= QUOTE_CHARS and e["quote"] == e["quote"].strip()
        assert e["citation"] == {"kind": i["kind"], "id": i["source_id"]} and e["date"] == i["time"]
        assert f["attribution"] == i["attribution"] == f["stated_attribution"] and f["obs_id"] == i["obs_id"]
    by_id = {f["obs_id"]: f["evidence"][0]["quote"] for f in written["factors"]}
    assert by_id["I50.9-10"] == "Heart failure, unspecified"
    assert by_id[f"nb#0-{len(NOTE_B)}"] == "Lost 9 kg over four months without trying."
    assert by_id[f"n#a#0-{NOTE_A.index('DISCHARGE')}"].startswith("Mr. ___ is a 74 year old man with CHF")


def test_sentence_scores_replace_the_default():
    def last(item, texts):
        return list(range(len(texts)))

    quotes = {f["obs_id"]: f["evidence"][0]["quote"] for f in template(sentence_scores=last)["factors"]}
    assert quotes[f"nb#0-{len(NOTE_B)}"].endswith("- walks with a stick") and len(words(quotes[f"nb#0-{len(NOTE_B)}"])) >= 5
    with pytest.raises(ValueError, match="got 1 scores for"):
        template(sentence_scores=lambda item, texts: [0.0])


@pytest.mark.parametrize("text, best, expected", [
    ("Fair. Walks with two sticks now.", 0, "Fair. Walks with two sticks now."),
    ("One two three four five. Fair.", 1, "One two three four five. Fair."),
    ("Fair.", 0, "Fair."),
    ("3. He was seen in the clinic today", 0, "He was seen in the clinic today"),
])
def test_short_sentences_take_their_neighbours(text, best, expected):
    assert quote(text, sentences(text), best) == expected


def test_long_sentences_are_cut_at_their_end():
    text = "She denies " + "chest pain, " * 40 + "and fever."
    cut = quote(text, sentences(text), 0)
    assert cut.startswith("She denies chest pain") and text.startswith(cut) and 150 <= len(cut) <= QUOTE_CHARS and not cut.endswith(" ")
    assert quote("x" * 900, [(0, 900)], 0) == "x" * QUOTE_CHARS
    long_code = "Other specified disorder " * 30
    found = pack(of=[Attributed("I50.9-10", "code", 0.1, 0.2, (4,))])
    found["items"][0]["text"] = long_code
    assert long_code.startswith(template(found)["factors"][0]["evidence"][0]["quote"])


UP, DOWN = re.compile(r"\b(rais|increas|higher|elevat)"), re.compile(r"\b(lower|decreas|reduc)")


def test_reasoning_goes_the_way_of_the_sign():
    ends = {(True, False): 0, (False, True): 0}
    for f in template()["factors"]:
        way = bool(UP.search(f["reasoning"])), bool(DOWN.search(f["reasoning"]))
        assert way == (f["attribution"] > 0, f["attribution"] < 0)
        assert f"{f['attribution']:+.4f}" in f["reasoning"]
        ends[way] += 1
    assert all(ends.values())
    none = template(pack(of=[Attributed("I50.9-10", "code", 0.0, 0.2, (4,))]))["factors"][0]["reasoning"]
    assert "does not change" in none and not UP.search(none) and not DOWN.search(none)


def test_sentences_say_what_they_must():
    written = template(percentiles={"p#1": 87.4})
    text = written["prediction_explanation"]
    for piece in ("death within one year after the prediction time", "0.530", "percentile 87", "no language model wrote it", "3 raise and 2 lower", "2012-03-01 to 2014-06-01"):
        assert piece in text, piece
    assert "rendered" not in text and "rendered" in template(pack(notes_rendered=True))["prediction_explanation"]
    assert "not converged" in template(pack(fields={"converged": False, "completeness_gap": 0.2}))["prediction_explanation"]
    assert "3 of the 5 items" in template(pack(notes_only=True))["prediction_explanation"]
    assert "-0.5000" in written["reasoning_lens"] and "Factors 1, 3 and 4 raise" in written["reasoning_lens"]
    assert all(re.search(r"\bmay\b|\bcould\b", r) for r in written["recommendations"]) and len(written["recommendations"]) == 6
    with pytest.raises(ValueError, match="percentile"):
        TemplateGenerator(percentiles={"p": 101.0})


def test_nothing_retrieved_is_said_not_hidden():
    written = template(pack(of=[]))
    assert written["factors"] == [] and "nothing was retrieved" in written["failed_reason"]


def test_deterministic_and_independent_of_the_batch():
    a, b = pack(), pack(logit=-1.0, notes_only=True)
    one = [TemplateGenerator().generate([p])[0] for p in (a, b)]
    assert json.dumps(TemplateGenerator().generate([a, b])) == json.dumps(one) == json.dumps(TemplateGenerator().generate([b, a])[::-1])
    with pytest.raises(ValueError, match="missing"):
        TemplateGenerator().generate([{k: v for k, v in a.items() if k != "items"}])
