"""The planted suite, with a writer that reads the gold: what it must find, and that it finds the same again."""
import json

import bench_cases as cases
import numpy as np
import pytest

from core_jax.embed import HashEncoder
from stam_jax import metrics
from stam_jax.baselines.external import Line
from stam_jax.benchmarks import harness, planted
from stam_jax.benchmarks import tables as T
from stam_jax.config import WriteConfig
from stam_jax.read.answer import ExtractiveReader
from stam_jax.read.packet import Packet
from stam_jax.write.writer import Extraction

ENCODER = HashEncoder(64)


@pytest.fixture(scope="module")
def timelines():
    return cases.cohort(3, late=True)


@pytest.fixture(scope="module")
def memories(timelines):
    entries = [e for t in timelines for e in planted.entries_of(t)]
    return planted.memories_of(entries, harness.OnceWriter(cases.Gold(timelines)), harness.OnceEncoder(ENCODER))


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
    assert list(got) == list(planted.ORDER)
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
    items = (planted.FullContext({m.patient_id: list(state.entries.values())}, {m.patient_id: state})
             .serve(m.patient_id, "", np.zeros(1)).items)
    one = Packet("raw", tuple(i for i in items if i.mid == m.mid), "")
    wide, here = (p.entry_key, p.start, p.end + 3 * (p.end - p.start)), (p.entry_key, p.start, p.end)
    assert harness.evidence_served(one, [(here,)]) == 1.0
    assert harness.evidence_served(one, [(wide,)]) == 0.0
    assert harness.evidence_served(one, [(wide, here), (wide,)]) == 0.5
    assert harness.evidence_served(one, []) is None


def test_matched_takes_the_nearest_length():
    class Says:
        def __init__(self, n):
            self.n = n

        def serve(self, patient_id, question, vector):
            return Packet("raw", (), "w " * self.n)

    asks = [harness.Ask("q", "p", "t", "?", ("a",))]
    setting, packets = harness.matched([(str(n), Says(n)) for n in (2, 9, 14)], asks, {"?": np.zeros(1)}, 11.5)
    assert setting == "9" and packets[0].words == 9  # as near as 14, and first
    many = [harness.Ask(str(i), "p", "t", "?", ("a",)) for i in range(999)]
    assert len(harness.matched([("2", Says(2))], many, {"?": np.zeros(1)}, 1)[1]) == 999
    with pytest.raises(ValueError, match="no arm"):
        harness.matched([], asks, {}, 1)


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
    assert {"state", "state_differences", "slots", "moves", "order", "deletion", "answers", "answer_differences",
            "arms", "history", "losses", "types", "aspects", "depths"} <= found.keys()
    words = {r["system"]: r["median words"] for r in found["answers"]["rows"]}
    assert all(abs(w - words["STAM, BOTH"]) <= 0.15 * words["STAM, BOTH"] for w in words.values())
    depths = [r["evidence served"] for r in found["depths"]["rows"] if r["system"] == "STAM, BOTH"]
    assert depths == sorted(depths) and depths[-1] == 1.0
    for row in found["losses"]["rows"]:
        assert row["questions"] == sum(n for c, n in row.items() if c not in ("type", "questions"))
    assert found["order"]["rows"][0]["Jaccard similarity"]["value"] > 0.9
