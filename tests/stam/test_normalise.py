import dataclasses
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import entry

from stam_jax.config import WriteConfig
from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.graph.memory import Entry
from stam_jax.write.chunks import chunks
from stam_jax.write.normalise import normalise, stated, verified
from stam_jax.write.writer import Draft, Extraction

CONFIG = WriteConfig()
RAISED = "Metformin  was increased to 850 mg\ttwice daily"
TEXT = f"Seen today.\n{RAISED}. Potassium 4.0 mmol/L. Denies chest pain at rest."


def one(draft, text=TEXT, config=CONFIG, **fields):
    e = entry(text, **fields)
    found, counters = normalise(e, Extraction((draft,)), config)
    return e, found[0], counters


@pytest.mark.parametrize("quote, how, cited", [
    ("Potassium 4.0 mmol/L", None, "Potassium 4.0 mmol/L"),
    ("metformin was increased to 850 mg twice daily", "quote_folded", RAISED),
    ("  Denies CHEST pain\nat rest ", "quote_folded", "Denies chest pain at rest"),
    ("Metformin was increased to 850mg twice daily", "quote_similar", RAISED),
    ("Metformin was incresed to 850 mg twice daily", "quote_similar", RAISED),
    ("Metformin was increased to 500 mg twice daily", "quote_not_found", TEXT),
    ("Potassium 40 mmol/L", "quote_not_found", TEXT), ("Potassium 14.0 mmol/L", "quote_not_found", TEXT),
    ("has chest pain at rest", "quote_not_found", TEXT), ("insulin glargine 10 units", "quote_not_found", TEXT),
    ("", "quote_not_found", TEXT)])
def test_quotes_are_found_or_said_to_be_unverified(quote, how, cited):
    e, m, counters = one(Draft("a statement", quote))
    p, = m.provenance
    assert e.text[p.start:p.end] == cited and p.verified == (how != "quote_not_found") and p.holds(e)
    assert counters == ({how: 1} if how else {})


def test_a_similar_quote_does_not_drop_a_denial():
    text = "The patient has no chest pain at rest or during exercise in the evening."
    _, m, _ = one(Draft("chest pain", text.replace("no ", "")), text)
    assert not m.provenance[0].verified


def test_a_span_is_taken_where_it_holds_the_quote():
    text = "BP 120/80. Later BP 120/80."
    at = text.rindex("BP")
    assert one(Draft("bp", "BP 120/80", span=(at, at + 9)), text)[1].provenance[0].start == at
    for span in ((0, 4), (3, 2), (-5, 4), (0, 10 ** 9)):
        assert one(Draft("bp", "BP 120/80", span=span), text)[1].provenance[0].start == 0


@pytest.mark.parametrize("value, quote, found", [
    ("4.0", "K 4.0", True), ("4", "K 4.0", True), ("40", "K 4.0", False), ("4.0", "K 40", False), ("4", "K 14", False),
    ("0", "K 4.0", False), ("1000 mg", "1,000 mg", True), ("120/80", "BP 120/80 mmHg", True),
    ("120/85", "BP 120/80", False),
    ("every 2 weeks", "every two weeks", True), ("every 3 weeks", "every two weeks", False), (None, "x", True),
    ("bid", "twice daily", True), (".5", "0.5", True), ("850 mg bid", "850 mg twice daily", True)])
def test_numbers_of_a_value_stand_in_the_quote(value, quote, found):
    assert stated(value, quote) is found
    _, m, counters = one(Draft("s", quote, value=value), quote)
    assert ("value_unverified" in m.flags) is not found and verified(m) is found
    assert counters["value_unverified"] == (not found)


def test_the_value_is_looked_for_in_the_entrys_words_not_in_the_writers():
    _, m, _ = one(Draft("potassium", "Potassium was 9.9 on Monday", value="9.9"))
    assert "value_unverified" in m.flags and not m.provenance[0].verified


def test_times_are_resolved_against_the_entry_alone():
    assert one(Draft("s", "Seen", time="two weeks ago"), date="2024-03-15")[1].clinical_time == ClinicalTime(
        "2024-03-01", source="relative")
    assert one(Draft("s", "Seen"), date="2024-03-15T10:00:00")[1].clinical_time == ClinicalTime(
        "2024-03-15", source="entry_default")
    assert one(Draft("s", "Seen", time="two weeks ago"), date=None)[1].clinical_time == ClinicalTime()
    assert one(Draft("s", "Seen"), date="2999-01-01")[1].clinical_time.start == "2999-01-01"


def test_slots_are_one_line_and_lower_case():
    _, m, _ = one(Draft("s", "Seen", concept=" Type 2\n Diabetes ", attribute="Status", value=" 850  mg ", unit=""))
    assert (m.concept, m.attribute, m.value, m.unit) == ("type 2 diabetes", "status", "850 mg", None)


def test_drafts_that_no_memory_can_be_made_of_are_counted():
    bad = [Draft("  ", "Seen"), Draft("s", "Seen", chunk=1), Draft("s", "Seen", chunk=-2),
           Draft("s", "Seen", kind="SONG"), Draft("s", "Seen", polarity="MAYBE"), Draft("s", "Seen", experiencer="DOG")]
    found, counters = normalise(entry(TEXT), Extraction((*bad, Draft("fine", "Seen")), {"bad_line": 2}), CONFIG)
    assert [m.text for m in found] == ["fine"] and counters == {"bad_draft": 6, "bad_line": 2}


def test_exact_duplicates_are_dropped_and_variants_are_not():
    base = Draft("Takes metformin", "Metformin", concept="metformin", attribute="dose", value="850")
    variants = [dataclasses.replace(base, **f) for f in (
        {"value": "8.50"}, {"polarity": "NEGATED"}, {"experiencer": "FAMILY"}, {"time": "yesterday"},
        {"statement": "Takes metformin 850"}, {"kind": "EVENT"})]
    again = dataclasses.replace(base, statement="takes  METFORMIN")
    found, counters = normalise(entry(TEXT), Extraction((base, again, *variants, base)), CONFIG)
    assert len(found) == 7 and counters["duplicate_draft"] == 2
    assert [m.ordinal for m in found] == list(range(7)) and len({m.mid for m in found}) == 7


def test_a_chunk_keeps_so_many_and_counts_the_others():
    e = Entry.of("p1", "s", "note", "aaa bbb", chunks=[(0, 4), (4, 7)])
    drafts = [Draft(f"s{i}", "aaa", 0) for i in range(4)] + [Draft("t", "bbb", 1)]
    found, counters = normalise(e, Extraction(tuple(drafts)), WriteConfig(per_chunk=3))
    assert [m.text for m in found] == ["s0", "s1", "s2", "t"] and counters == {"draft_over_limit": 1}


def test_a_quote_is_looked_for_in_its_chunk_alone():
    e = Entry.of("p1", "s", "note", "aaa bbb", chunks=[(0, 4), (4, 7)])
    found, _ = normalise(e, Extraction((Draft("s", "bbb", 0), Draft("s2", "bbb", 1), Draft("s3", "bbb", -1))), CONFIG)
    assert [(m.provenance[0].start, m.provenance[0].end, m.provenance[0].verified) for m in found] == [
        (0, 4, False), (4, 7, True), (4, 7, True)]


def test_the_same_extraction_gives_the_same_ids():
    drafts = Extraction((Draft("a", "Seen"), Draft("b", "nowhere")))
    assert normalise(entry(TEXT), drafts, CONFIG) == normalise(entry(TEXT), drafts, CONFIG)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=120), quote=st.text(max_size=40), value=st.text(max_size=10), where=st.integers(-3, 3),
       statement=st.text(max_size=20), span=st.none() | st.tuples(st.integers(-5, 130), st.integers(-5, 130)))
def test_anything_may_be_drafted(text, quote, value, where, statement, span):
    if not text.strip():
        return
    e = Entry.of("p1", "s", "note", text)
    drafts = tuple(Draft(s, q, where, span, value=value, concept=value, time=quote)
                   for s in (statement, "s") for q in (quote, e.text[3:30], e.text[3:30].upper()))
    found, counters = normalise(e, Extraction(drafts), CONFIG)
    assert len(found) + counters["bad_draft"] + counters["duplicate_draft"] == len(drafts)
    for m in found:
        assert m.provenance[0].holds(e)


def test_letters_that_fold_to_two_keep_their_places():
    e, m, _ = one(Draft("s", "STRASSE und", concept=None), "Die Straße und İstanbul, ﬁrst.")
    assert e.text[m.provenance[0].start:m.provenance[0].end] == "Straße und"


@pytest.mark.slow
def test_a_large_entry_is_no_matter_of_minutes():
    line = "Potassium was 4.{} mmol/L on day {}.\n"
    text = "".join(line.format(i % 10, i) for i in range(250_000))
    e = Entry.of("p1", "s", "note", text, chunks=chunks(text, 2048))
    last = len(e.chunks) - 1
    drafts = tuple(Draft(f"K on {i}", f"potassium was 4.1  mmol/l on day {i * 400 + 1}.", min(i, last))
                   for i in range(500))
    start = time.perf_counter()
    found, counters = normalise(e, Extraction(drafts), CONFIG)
    assert time.perf_counter() - start < 60 and len(found) == 500 and counters["quote_not_found"] > 100
