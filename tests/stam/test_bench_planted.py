"""The planted suite, with a writer that reads the gold: what it must find, and that it finds the same again."""
import json

import bench_cases as cases
import numpy as np
import pytest

from core_jax.embed import HashEncoder
from stam_jax import metrics
from stam_jax.baselines.external import Line
from stam_jax.baselines.serving import FlatRag, FullContext, pieces
from stam_jax.benchmarks import answers, harness, planted
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.write_paths import ORDER
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph.state import State
from stam_jax.read.answer import Answer, ExtractiveReader
from stam_jax.read.packet import Item, Packet
from stam_jax.write.writer import Extraction

ENCODER = HashEncoder(64)


@pytest.fixture(scope="module")
def timelines():
    return cases.cohort(3, late=True)


@pytest.fixture(scope="module")
def memories(timelines):
    entries = [e for t in timelines for e in planted.entries_of(t)]
    return planted.memories_of(entries, harness.OnceWriter(cases.Gold(timelines)), harness.OnceEncoder(ENCODER),
                               write=WriteConfig())


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)


class Counting(HashEncoder):
    def __init__(self):
        super().__init__(8)
        self.texts = []

    def encode(self, texts):
        self.texts += texts
        return super().encode(texts)


def test_texts_are_encoded_once():
    inner = Counting()
    once = harness.OnceEncoder(inner)
    assert np.array_equal(once.encode(["a", "b", "a"]), HashEncoder(8).encode(["a", "b", "a"]))
    once.encode(["b", "c"])
    assert inner.texts == ["a", "b", "c"] and once.encode([]).shape == (0, 8)


def test_entries_are_extracted_once(timelines):
    class Once(cases.Gold):
        asked = 0

        def extract(self, entries):
            Once.asked += len(entries)
            return super().extract(entries)

    writer, own = harness.OnceWriter(Once(timelines)), planted.entries_of(timelines[0])
    assert writer.extract(own) == writer.extract(own)
    assert Once.asked == len(own)


def test_gold_extraction_is_whole(timelines, memories):
    total = sum(planted.counts_of(timelines, memories[planted.STAM]), metrics.StateCounts())
    assert total.facts_covered == total.facts and total.pairs == sum(len(t.pairs) for t in timelines)


def test_controls_stand_where_they_must(timelines, memories):
    got = {n: sum(planted.counts_of(timelines, m), metrics.StateCounts()) for n, m in memories.items()}
    assert list(got) == list(ORDER)
    stam, bare, append = got[planted.STAM], got["same slot"], got["append only"]
    assert append.loose == append.falsely_archived == append.history == 0
    assert got["doses and measurements"].loose < bare.loose
    assert stam.supersession_recall > 0.9 and stam.false_archival < bare.false_archival
    assert got["same slot"].false_archival > 0  # the bare rule looks at no date: a late report ends what holds
    assert memories["append only"].states.keys() == {t.patient_id for t in timelines}


def test_evidence_is_where_the_gold_says(timelines):
    t = timelines[0]
    keys = {e.entry_key: e for e in planted.entries_of(t)}
    by_text = {a.text: a for a in planted.asks_of(t)}
    facts = {f.fact_id: f for f in t.facts}
    for q in t.questions:
        ask = by_text[q.text]
        assert len(ask.evidence) == len(q.facts) and ask.history_needed == q.history_needed
        for fact_id, places in zip(q.facts, ask.evidence):
            words = [keys[k].text[a:b] for k, a, b in places]
            assert t.evidence(facts[fact_id]) in words


@pytest.mark.parametrize("answer,answers,right", [
    ("850 mg twice daily", ("850 mg twice daily",), True),
    ("metformin 850 mg twice daily", ("850 mg twice daily",), True),
    ("metformin 850 mg once daily", ("850 mg twice daily",), False),
    ("82 mmol/L", ("8.2 mmol/L",), False),
    ("from 8.1 % to 7.4 %", ("from 7.4 % to 8.1 %",), True),  # words, not their order: token F1's own weakness
    ("850 mg twice daily, before 500 mg", ("850 mg twice daily",), False),  # names a number that the gold has not
    ("no", ("no, a relative does", "no"), True),
    ("4.1", ("4.1 mmol/L",), True),
    ("4.1 mg/dL", ("4.1 mmol/L",), False),
    ("134/82", ("134/82 mmHg",), True),
    ("from 4.1 to 3.8", ("from 4.1 mmol/L to 3.8 mmol/L",), True),
    ("from 4.1 to 3.8 mmol/L", ("from 4.1 mmol/L to 3.8 mmol/L",), True),
    ("850 twice daily", ("850 mg twice daily",), False),  # a dose's unit is part of it
    ("yes", ("no",), False),
    ("not in memory", ("not mentioned",), False),
    ("", ("no",), False),
    ("no " + "word " * 7, ("no",), False),
])
def test_is_right(answer, answers, right):
    assert harness.is_right(answer, answers) is right


def test_evidence_served_asks_for_half_of_the_words(timelines, memories):
    state = memories["append only"].states[timelines[0].patient_id]
    m = next(iter(state.memories.values()))
    p = m.provenance[0]
    one = Packet("BOTH", (Item(m, "ACTIVE", 0.0),), "")
    wide, here = (p.entry_key, p.start, p.end + 3 * (p.end - p.start)), (p.entry_key, p.start, p.end)
    assert harness.evidence_served(one, [(here,)]) == 1.0
    assert harness.evidence_served(one, [(wide,)]) == 0.0
    assert harness.evidence_served(one, [(wide, here), (wide,)]) == 0.5
    assert harness.evidence_served(one, []) is None


def test_evidence_of_raw_arms_is_what_their_words_say_extracted_or_not(timelines):
    """The whole record serves all evidence, whatever the writer found in it; so do its chunks together."""
    t = timelines[0]
    entries, asks = planted.entries_of(t), [a for a in planted.asks_of(t) if a.evidence]
    nothing = {t.patient_id: State(t.patient_id)}
    own = pieces(entries, 5)
    rows = ENCODER.encode([c.text for c in own])
    whole = FullContext({t.patient_id: entries}, nothing)
    chunks = FlatRag({t.patient_id: own}, {t.patient_id: rows}, nothing, len(own))
    few = FlatRag({t.patient_id: own}, {t.patient_id: rows}, nothing, 1)
    vectors = {a.text: ENCODER.encode([a.text])[0] for a in asks}
    for arm in (whole, chunks):
        packets = harness.serve(arm, asks, vectors)
        assert not any(p.items for p in packets)  # the writer found nothing
        assert [harness.evidence_served(p, a.evidence) for p, a in zip(packets, asks)] == [1.0] * len(asks)
    served = [harness.evidence_served(p, a.evidence) for p, a in zip(harness.serve(few, asks, vectors), asks)]
    assert 0 < sum(served) < len(asks)


class Says:
    def __init__(self, n):
        self.n = n

    def serve(self, patient_id, question, vector):
        return Packet("raw", (), "w " * self.n)


ASKS = [harness.Ask(str(i), "p", "t", "?", ("a",)) for i in range(999)]


def test_matched_takes_the_nearest_length():
    setting, packets = harness.matched([(str(n), Says(n)) for n in (2, 9, 14)], ASKS[:1], {"?": np.zeros(1)}, 11.5)
    assert setting == "9" and packets[0].words == 9  # as near as 14, and first
    assert len(harness.matched([("2", Says(2))], ASKS, {"?": np.zeros(1)}, 1)[1]) == 999
    with pytest.raises(ValueError, match="no arm"):
        harness.matched([], ASKS, {}, 1)


@pytest.mark.parametrize("aim,depth", [(0, 1), (3, 1), (4.5, 1), (4.6, 2), (30, 10), (300, 40)])
def test_depth_is_that_of_the_nearest_length(aim, depth):
    tried = []

    def make(k):
        tried.append(k)
        return Says(3 * k)

    got, packets = harness.at_depth(make, range(1, 41), ASKS[:2], {"?": np.zeros(1)}, aim)
    assert got == depth and packets[0].words == 3 * depth and len(tried) < 10


def test_a_memory_is_served_as_deep_as_another_is_long(timelines, memories):
    a = planted.answers_of(timelines, memories, ENCODER, ExtractiveReader(), 0)
    medians = {k: harness.median_words(a.arm("x", k, memories="append only").packets)
               for k in range(1, 2 * planted.REFERENCE + 1)}
    for aim in (0.0, medians[3], medians[7] + 0.4, 1e9):
        nearest = min(medians, key=lambda k: (abs(medians[k] - aim), k))
        assert len(a.asks) < 120 and a.like("x", aim, memories="append only").setting == f"k {nearest}"


class Letters:
    """A reader that is no extractive one: a token is a letter, and each pass answers otherwise."""

    name, passes = "letters", 0

    def count(self, text):
        return len(text)

    def answer(self, questions, packets):
        Letters.passes += 1
        return [Answer(f"{p.text[:1]}{Letters.passes % 2}", p.arm, p.sha256, p.mids, 0, 0, self.name) for p in packets]


def test_context_is_matched_in_the_readers_unit(timelines, memories):
    assert harness.length_of(ExtractiveReader()) == harness.WORDS
    a = planted.answers_of(timelines[:1], memories, ENCODER, Letters(), 0)
    both = a.arm("STAM, BOTH", planted.REFERENCE)
    aim = harness.median_words(both.packets, a.length)
    assert "median tokens" in a.columns and aim == np.median([len(p.text) for p in both.packets])
    assert a.row(both)[2] == aim
    full = a.full("full context", aim)
    assert 0.9 * aim < a.row(full)[2] <= aim and full.setting == f"{int(aim)} tokens"
    assert a.row(full)[a.columns.index("truncated")] == len(a.asks)
    assert a.row(a.full("full context", None))[a.columns.index("truncated")] == 0
    assert a.row(both)[a.columns.index("truncated")] is None


def test_the_same_packets_are_answered_again(timelines, memories):
    a = planted.answers_of(timelines[:1], memories, ENCODER, Letters(), 0)
    both = a.arm("STAM, BOTH", planted.REFERENCE)
    row = dict(zip((t := answers.repeatability(a, both)).columns, t.rows[0]))
    assert row["passes"] == 3 and row["answers that differ"] == len(a.asks)
    still = planted.answers_of(timelines[:1], memories, ENCODER, ExtractiveReader(), 0)
    assert answers.repeatability(still, both) is None


def test_depths_are_what_each_depth_serves(timelines, memories):
    a = planted.answers_of(timelines[:1], memories, ENCODER, ExtractiveReader(), 0)
    most = len(memories[planted.STAM].states[timelines[0].patient_id].memories)
    settings = [*(ReadConfig(k, k, k) for k in (3, most)), ReadConfig(999, 999, 999, 20),
                ReadConfig(answers.ALL, answers.ALL, answers.ALL)]
    found = answers.depths(a, settings)
    assert [s.setting for s, _ in found["BOTH"]] == ["k 3", f"k {most}", "20 words", "all"]
    assert [whole for _, whole in found["BOTH"]] == [0, len(a.asks), 0, len(a.asks)]
    for arm, own in found.items():
        for (s, _), read in zip(own, settings):
            direct = a.arm("x", read.most, arm=arm, words=read.words)
            assert [p.text for p in s.packets] == [p.text for p in direct.packets], (arm, s.setting)
            assert list(s.scores) == list(direct.scores)


def test_build_refuses_a_silent_loss():
    with pytest.raises(ValueError, match="refused"):
        harness.build("x", ["no entry"], cases.Gold([]), ENCODER, WriteConfig())


def test_line_reader_reads_a_line_once():
    class Counts:
        decider, hashes, asked = "rule", {}, 0

        def extract(self, entries):
            self.asked += 1
            return [Extraction() for _ in entries]

    writer = Counts()
    read = planted.LineReader(writer)
    assert read("p", Line("x", "2024-01-01")) == read("p", Line("x", "2024-01-01")) == []
    assert writer.asked == 1


@pytest.mark.slow
def test_suite(few_draws):
    def report():
        return planted.run(cases.Gold(cases.cohort(3)), ENCODER, ExtractiveReader(), patients=3, wording="train",
                           order_patients=2)

    first = report()
    text = T.to_json(first)
    assert text == T.to_json(report())
    found = json.loads(text)["tables"]
    assert {"state", "state_differences", "slots", "moves", "order", "answers", "answer_differences",
            "arms", "history", "losses", "types", "aspects", "depths"} <= found.keys()
    words = {r["system"]: r["median words"] for r in found["answers"]["rows"]}
    assert all(abs(w - words["STAM, BOTH"]) <= 0.15 * words["STAM, BOTH"] for w in words.values())
    depths = {(r["system"], r["depth"]): r["evidence served"] for r in found["depths"]["rows"]}
    assert depths["STAM, BOTH", "k 6"] <= depths["STAM, BOTH", "all"] == depths["full context", "whole record"] == 1.0
    assert all(r["loose, of covered pairs"]["n"] <= r["pair recall (loose)"]["n"] for r in found["state"]["rows"])
    for row in found["losses"]["rows"]:
        assert row["questions"] == sum(n for c, n in row.items() if c not in ("type", "questions"))
    assert found["order"]["rows"][0]["Jaccard similarity"]["value"] > 0.9
