"""Whatever a model writes, what is read from it stands in it, and reading never fails."""
import dataclasses
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.engine.grammar import Grammars
from core_jax.recipe import BaseConfig, describe_base
from stam_jax.graph.memory import EXPERIENCERS, KINDS, POLARITIES
from stam_jax.language import lines
from stam_jax.write.writer import Draft, Placement, UpdateAnswer, Verdict

CHANGE = Draft("Takes metformin.", 'now "850 mg" | twice daily', kind="STATE", concept="metformin",
               attribute="dose", value="850 mg bid", unit="mg")
READING = Draft("HbA1c was 8.1 %.", "HbA1c 8.1 % a week ago", kind="EVENT", concept="hba1c",
                attribute="value", value="8.1", unit="%", time="a week ago")
DENIED = Draft("No chest pain.", "denies chest pain", concept="chest pain", attribute="status", polarity="NEGATED",
               experiencer="FAMILY")
NOTE = Draft("Speaks Portuguese.", "speaks Portuguese", kind="BACKGROUND", attribute="background")
DRAFTS = (CHANGE, READING, DENIED, NOTE)
ANSWER = """\
- STATE | metformin | dose | 850 mg bid | AFFIRMED | PATIENT | - | "now "850 mg" | twice daily" | Takes metformin.
- EVENT | hba1c | value | 8.1 % | AFFIRMED | PATIENT | a week ago | "HbA1c 8.1 % a week ago" | HbA1c was 8.1 %.
- STATE | chest pain | status | - | NEGATED | FAMILY | - | "denies chest pain" | No chest pain.
- BACKGROUND | - | background | - | AFFIRMED | PATIENT | - | "speaks Portuguese" | Speaks Portuguese."""
NOTES = "HbA1c 8.1 %\na week  ago. She denies chest pain;\nspeaks Portuguese {and} \\."

words = st.text(st.characters(codec="utf-8", exclude_characters='|"“”', exclude_categories=("Cc", "Z", "Cs", "Cn")),
                min_size=1, max_size=12).filter(lambda w: lines.canonical_text(w) == w and w != "-")
names = words.map(str.lower).filter(lambda w: w.lower() == w)
scraps = st.one_of(
    st.sampled_from([*ANSWER.split("\n"), "N1 CURRENT", "N1 PRIOR C2", "C1 SUPERSEDED N1 DEL", "C1 RESOLVED", "C2 B",
                     "```", "```json", "<think>", "</think>", "Sure, here you are:", "NONE", "[{", "}]",
                     '{"N1": "SAME C1"}', "| kind | concept |", "- STATE | a | dose |",
                     json.dumps([dataclasses.asdict(READING)])]),
    st.text(max_size=30))


def folded(text: str) -> str:
    return " ".join(lines.canonical_text(text).split()).lower()


# ---- extractor ---------------------------------------------------------------------------------------------------

def test_drafts_are_written_and_read():
    assert lines.render_drafts(DRAFTS) == ANSWER
    read = lines.parse_drafts(ANSWER, chunk=3)
    assert read.drafts == tuple(dataclasses.replace(d, chunk=3) for d in DRAFTS)
    assert (read.problems, read.error) == ({}, None)


@given(st.lists(st.builds(
    Draft, words, words, kind=st.sampled_from(KINDS), concept=names, polarity=st.sampled_from(POLARITIES),
    attribute=st.sampled_from([a for a in lines.ATTRIBUTES if a not in ("dose", "value")]), value=st.none() | words,
    experiencer=st.sampled_from(EXPERIENCERS), time=st.none() | words), unique=True, max_size=6))
def test_what_is_rendered_reads_back(drafts):
    read = lines.parse_drafts(lines.render_drafts(drafts))
    assert (read.drafts, read.problems, read.error) == (tuple(drafts), {}, None)


@pytest.mark.parametrize("attribute,written,value,unit", [
    ("dose", "850 mg bid", "850 mg bid", "mg"), ("dose", "5mg daily", "5mg daily", "mg"),
    ("dose", "daily", "daily", None), ("dose", "12 units nightly", "12 units nightly", "units"),
    ("dose", "-", None, None),
    ("value", "8.1 %", "8.1", "%"), ("value", "<0.01 ng/mL", "<0.01", "ng/mL"), ("value", "7", "7", None),
    ("value", "132/77 mmHg", "132/77", "mmHg"), ("value", "weakly positive", "weakly positive", None),
    ("plan", "every 2 weeks", "every 2 weeks", None), ("allergy", "hives", "hives", None)])
def test_a_value_and_its_unit_share_a_field(attribute, written, value, unit):
    line = f'- EVENT | X  Y | {attribute} | {written} | - |  | - | "said" | Stated'
    assert lines.parse_drafts(line).drafts == (
        Draft("Stated", "said", kind="EVENT", concept="x y", attribute=attribute, value=value, unit=unit),)


@pytest.mark.parametrize("text", [
    f"```\n{ANSWER}\n```", f"<think>- STATE | no | dose |</think>{ANSWER}", f"The memories are:\n\n{ANSWER}\n\nDone.",
    "\n".join("*" + line[1:] for line in ANSWER.split("\n")), f"some thought\n{ANSWER}\n</think>\n{ANSWER}",
    ANSWER.replace("\n", "\r\n"), ANSWER.replace("- STATE", "1. STATE"), f"{ANSWER}\nNONE",
    "\n".join(line.replace("- ", "| ", 1) + " |" for line in ANSWER.split("\n"))])
def test_what_stands_around_the_lines_does_not_matter(text):
    read = lines.parse_drafts(text)
    assert (read.drafts, read.error) == (DRAFTS, None)


def test_a_record_that_is_quoted_opens_and_closes_no_thinking_block():
    for tag in ("<think>", "</think>"):
        line = f'- STATE | cough | status | - | AFFIRMED | PATIENT | - | "{tag} cough {tag}" | Coughs.'
        read = lines.parse_drafts(f"{ANSWER}\n{line}\n{ANSWER}")
        assert [d.quote for d in read.drafts] == [*(d.quote for d in DRAFTS), f"{tag} cough {tag}"]


def test_a_bad_line_is_lost_alone_and_counted():
    kind, attribute, quote, whole, short = (
        ANSWER.replace("- EVENT", "- FACT"), ANSWER.replace("| value |", "| mood |"),
        ANSWER.replace('"HbA1c 8.1 % a week ago"', '""'), ANSWER.replace("| HbA1c was 8.1 %.", "|"),
        ANSWER.replace("| a week ago ", ""))
    for text in (kind, attribute, quote, whole, short):
        assert text != ANSWER
        read = lines.parse_drafts(text)
        assert read.drafts == (CHANGE, DENIED, NOTE) and read.problems == {"bad_line": 1} and read.error is None


def test_the_same_line_again_counts_once_and_another_value_stays():
    read = lines.parse_drafts(f"{ANSWER}\n{ANSWER}\n" + ANSWER.split("\n")[1].replace("8.1 % |", "9.4 % |"))
    assert read.drafts == (*DRAFTS, dataclasses.replace(READING, value="9.4"))
    assert read.problems == {"duplicate_line": 4}


@given(st.integers(0, len(ANSWER)))
def test_a_truncated_answer_keeps_its_whole_lines(end):
    read = lines.parse_drafts(ANSWER[:end], cut=True)
    assert read.drafts == DRAFTS[:ANSWER[:end].count("\n")]
    assert read.problems["cut_off"] == 1 and (read.error is None) == bool(read.drafts)


def test_nothing_said_is_not_nothing_found():
    assert lines.parse_drafts("NONE.") == lines.parse_drafts("<think>x</think>NONE") == lines.Extraction()
    assert lines.parse_drafts("[]") == lines.parse_drafts('{"memories": []}') == lines.Extraction()
    for text in ("", "<think>" + ANSWER, "I cannot help.", '{"tags": [], "memories": [{"kind": "ST', "```\n```"):
        assert lines.parse_drafts(text).error == lines.UNUSABLE, text


def test_json_is_read_too():
    objects = [{k: v for k, v in dataclasses.asdict(d).items() if k not in ("chunk", "span")} for d in DRAFTS]
    whole = json.dumps(objects, indent=1)
    for text in (whole, f"Here:\n```json\n{whole}\n```", json.dumps({"memories": objects}),
                 whole.replace('"8.1"', "8.1"), "\n".join(map(json.dumps, objects)), f"I found {{these}}: {whole}"):
        assert lines.parse_drafts(text).drafts == DRAFTS, text
    for end in range(whole.index("}") + 1, whole.rindex("{")):
        read = lines.parse_drafts(whole[:end], cut=True)
        assert read.drafts == DRAFTS[:len(read.drafts)] and read.drafts and read.error is None
    twice = whole.replace('"value": "8.1"', '"value": "8.1", "value": "9.4"')
    assert twice != whole and lines.parse_drafts(twice).drafts == (CHANGE, DENIED, NOTE)
    wrong = json.dumps([objects[0] | {"quote": ["a"]}, objects[0] | {"kind": None}, objects[1], {"quote": True}, 7])
    assert lines.parse_drafts(wrong).drafts == (READING,)
    assert lines.parse_drafts(wrong).problems == {"bad_line": 3}


@settings(max_examples=300, deadline=None)
@given(st.lists(scraps, max_size=8).map("\n".join) | st.text(), st.booleans())
def test_reading_never_fails_and_never_invents(text, cut):
    seen = folded(text.replace("\\u", "")) if "\\u" in text else folded(text)
    read = lines.parse_drafts(text, cut=cut)
    for d in read.drafts:
        assert d.kind in KINDS and d.polarity in POLARITIES and d.attribute in lines.ATTRIBUTES
        for said in (d.statement, d.quote, d.concept, d.value, d.unit, d.time):
            assert said is None or folded(said) in seen or folded(json.dumps(said)[1:-1]) in seen
    update = lines.parse_update(text, 2, 2, cut=cut)
    assert all(0 <= p.new < 2 and f"n{p.new + 1}" in seen for p in update.placements)
    for v in update.verdicts:
        assert 0 <= v.candidate < 2 and f"c{v.candidate + 1}" in seen and v.kind.lower() in seen
    links = lines.parse_links(text, 2, cut=cut)
    assert all(0 <= link.candidate < 2 for link in links.links)
    for answer in (read, update, links):
        assert answer.error in (None, lines.UNUSABLE) and all(n > 0 for n in answer.problems.values())


def test_deep_and_long_answers_are_read_in_time():
    for text in ("[" * 50_000, '{"a":' * 50_000, "- " + "a | " * 50_000, '"' * 50_000, "C1 " * 50_000,
                 "N1 CURRENT " * 9999):
        for read in (lines.parse_drafts(text), lines.parse_update(text, 1, 1), lines.parse_links(text, 1)):
            assert read.error == lines.UNUSABLE


# ---- linker ------------------------------------------------------------------------------------------------------

def test_labels_are_single_letters_for_every_relation_and_way():
    assert len(set(lines.LETTERS)) == len(lines.LETTERS) == 11 and all(len(x) == 1 for x in lines.LETTERS)
    assert lines.LABELS[0].type is None
    assert [(x.type, x.forward) for x in lines.LABELS if x.letter in "BFG"] == [
        ("restatement", True), ("causal", True), ("causal", False)]


def test_links_are_read_by_candidate():
    read = lines.parse_links("C1 G\nC2: A\n- C3 B\nC9 B\nC4 Q\nC4 restatement\nso C5 is", 5)
    assert [(x.candidate, x.type, x.forward) for x in read.links] == [
        (0, "causal", False), (2, "restatement", True), (3, "restatement", True)]
    assert read.problems == {"bad_line": 1, "unknown_alias": 1} and read.error is None
    assert lines.parse_links("C1 causal", 1).error == lines.UNUSABLE  # which way?
    assert lines.parse_links("C1 B\nC1 C\nC2 B\nC2 B", 2).problems == {"contradiction": 2, "duplicate_line": 1}
    assert lines.parse_links("C1 A\nC2 B\nC3 K", 3).links == (
        lines.Link(1, "restatement"), lines.Link(2, "monitoring_for", False))


# ---- updater -----------------------------------------------------------------------------------------------------

DECIDED = UpdateAnswer((Placement(1, "PRIOR", 0), Placement(2, "SAME", 2)),
                       (Verdict(0, "SUPERSEDED", 0, True), Verdict(1, "RESOLVED"), Verdict(3, "CORRECTED", 2)))
UPDATE = "N1 CURRENT\nN2 PRIOR C1\nN3 SAME C3\nC1 SUPERSEDED N1 DEL\nC2 RESOLVED\nC3 KEEP\nC4 CORRECTED N3"


def test_decisions_are_written_and_read():
    assert lines.render_update(DECIDED, 3, 4) == UPDATE
    assert lines.parse_update(UPDATE, 3, 4) == DECIDED
    assert lines.parse_update(f"```\n{UPDATE.lower()}\n```", 3, 4) == DECIDED
    assert lines.parse_update(f"<think>C3 RESOLVED</think>I decide:\n- {UPDATE}".replace("\n", ".\n"), 3, 4) == DECIDED
    assert lines.parse_update(json.dumps(dict(line.split(" ", 1) for line in UPDATE.split("\n"))), 3, 4) == DECIDED
    assert lines.parse_update(json.dumps({"lines": UPDATE.split("\n")}), 3, 4) == DECIDED


def test_two_answers_count_where_they_agree():
    read = lines.parse_update(f"{UPDATE}\n\nFinal answer:\n{UPDATE.replace('C2 RESOLVED', 'C2 KEEP')}", 3, 4)
    assert read.verdicts == (DECIDED.verdicts[0], DECIDED.verdicts[2]) and read.placements == DECIDED.placements
    assert read.problems == {"contradiction": 2, "duplicate_line": 6}


@pytest.mark.parametrize("line,problem", [
    ("N4 CURRENT", "unknown_alias"), ("N0 CURRENT", "unknown_alias"), ("C1 SUPERSEDED N9", "unknown_alias"),
    ("N1 PRIOR C8", "unknown_alias"), ("C1 SUPERSEDED", "bad_line"), ("C1 SUPERSEDED C2", "bad_line"),
    ("N1 PRIOR", "bad_line"), ("N1 KEEP", "bad_line"), ("C1 CURRENT", "bad_line"), ("C1 DELETED N1", "bad_line"),
    ("N1 CURRENT DEL", "bad_line"), ("N1 CURRENT C1", "bad_line"), ("C1 KEEP N1", "bad_line"),
    ("C1 is resolved by N1", "bad_line"), ("C1 RESOLVED N1 N2", "bad_line")])
def test_a_line_that_cannot_be_is_ignored_and_counted(line, problem):
    read = lines.parse_update(f"{line}\nC2 RESOLVED N2", 3, 4)
    assert read == UpdateAnswer((), (Verdict(1, "RESOLVED", 1),), {problem: 1})


@given(st.data())
def test_what_is_decided_reads_back(data):
    news, candidates = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    new, candidate = st.integers(0, news - 1), st.integers(0, candidates - 1)
    placements = st.builds(Placement, new, st.sampled_from(["PRIOR", "SAME"]), candidate)
    kinds = st.sampled_from(["SUPERSEDED", "CORRECTED", "RESOLVED"])
    verdicts = st.builds(Verdict, candidate, kinds, new, st.booleans())
    answer = UpdateAnswer(*(tuple(sorted(data.draw(st.lists(x, max_size=4, unique_by=by)), key=by)) for x, by in (
        (placements, lambda p: p.new), (verdicts, lambda v: v.candidate))))
    text = lines.render_update(answer, news, candidates)
    assert lines.parse_update(text, news, candidates) == answer
    end = data.draw(st.integers(0, len(text)))
    part = lines.parse_update(text[:end], news, candidates, cut=True)
    assert part.placements == answer.placements[:len(part.placements)]
    assert part.verdicts == answer.verdicts[:len(part.verdicts)]


# ---- constrained decoding ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def grammars():
    config, tokenizer = describe_base(BaseConfig("tiny"))
    return Grammars(tokenizer, vocab_size=config.vocab_size, stop_tokens=tokenizer.eos_ids[:1]), tokenizer


def accepted(grammars, grammar, text: str) -> bool:
    matcher = grammars[0].matcher(grammar)
    try:
        for token in grammars[1].tokenize(text):
            matcher.mask()
            matcher.advance(token)
    except ValueError:
        return False
    return matcher.accepting


def test_the_extractor_is_bound_to_lines_whose_quotes_stand_in_the_text(grammars):
    grammar = lines.extract_grammar(NOTES)
    read, denied, note = ANSWER.split("\n")[1:]
    for text in ("NONE", read, denied, f"{read}\n{denied}\n{note}"):
        assert accepted(grammars, grammar, text), text
    for text in ("", "NONE\n", f"{read}\n", denied.replace("denies chest", "has chest"), read.replace("EVENT", "FACT"),
                 read.replace(" | a week ago", ""), f"Sure:\n{read}", read.replace("8.1 %", "-\n-", 1)):
        assert not accepted(grammars, grammar, text), text
    assert accepted(grammars, lines.extract_grammar(""), "NONE")


def test_what_could_not_be_read_is_not_written(grammars):
    grammar = lines.extract_grammar('Says "no pain" - today.\r\n| \u00b2')
    line = '- STATE | pain | status | - | NEGATED | PATIENT | - | "no pain" | No pain.'
    for text in (line, line.replace("no pain", "today. | \u00b2"), line.replace("pain | status", "- | background")):
        assert accepted(grammars, grammar, text) and len(lines.parse_drafts(text).drafts) == 1, text
    for old, new in (('"no pain"', '""'), ('"no pain"', '"-"'), ('"no pain"', '"Says "no pain"'), ("| pain", "| -"),
                     ("| pain", "|  "), ("No pain.", "-"), ("No pain.", " "), ("No pain.", "No\rpain."),
                     ("| - | NEGATED", "| a\x00 | NEGATED")):
        assert line.count(old) == 1 and not accepted(grammars, grammar, line.replace(old, new)), new
    for text in ("", ' "-" -\n'):
        assert accepted(grammars, lines.extract_grammar(text), "NONE")
        assert not accepted(grammars, lines.extract_grammar(text), "- ")


def written(grammars, grammar, rng: random.Random) -> str:
    """A text of the grammar at random, where what ends a field or the text is often taken."""
    matcher, ids = grammars[0].matcher(grammar), []
    stop, ends = grammars[1].eos_ids[0], set(grammars[1].tokenize('| "\n'))
    while not matcher.done:
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        soon = [t for t in allowed if t in ends or t == stop]
        token = rng.choice(soon if soon and rng.random() < 0.4 else allowed)
        if token == stop:
            break
        ids.append(token)
        matcher.advance(token)
    return grammars[1].decode(ids)


def test_whatever_the_grammars_admit_is_read_whole(grammars):
    rng, several = random.Random(5), 0
    for chunk in (NOTES, '"a" - b', "| x |\t<think>\n</think> \u00e9\u0301 “q” \u2028 NONE", "7"):
        grammar, words = lines.extract_grammar(chunk), " ".join(lines.canonical_text(chunk).split())
        for _ in range(12):
            text = written(grammars, grammar, rng)
            read = lines.parse_drafts(text)
            assert read.error is None and read.problems.keys() <= {"duplicate_line"}, text
            count = 0 if text == "NONE" else text.count("\n") + 1
            assert len(read.drafts) + read.problems.get("duplicate_line", 0) == count, text
            assert all(d.quote in words and '"' not in d.quote for d in read.drafts), text
            several += count > 1
    assert several > 4
    for _ in range(20):
        read = lines.parse_update(written(grammars, lines.update_grammar(2, 3), rng), 2, 3)
        assert (read.problems, read.error) == ({}, None)
        read = lines.parse_links(written(grammars, lines.link_grammar(3), rng), 3)
        assert (read.problems, read.error) == ({}, None)


def test_linker_and_updater_are_bound_to_a_line_for_each(grammars):
    grammar = lines.update_grammar(3, 4)
    assert accepted(grammars, grammar, UPDATE)
    for text in ("", UPDATE.rpartition("\n")[0], UPDATE.replace("C2 RESOLVED", "C2 SUPERSEDED"), UPDATE + "\n",
                 UPDATE.replace("PRIOR C1", "PRIOR C5"), UPDATE.replace("N1 DEL", "N4"),
                 UPDATE.replace("N1 C", "N2 C")):
        assert not accepted(grammars, grammar, text), text
    assert accepted(grammars, lines.link_grammar(2), "C1 A\nC2 K")
    assert not accepted(grammars, lines.link_grammar(2), "C1 A\nC2 L")
    assert not accepted(grammars, lines.link_grammar(2), "C1 A")
