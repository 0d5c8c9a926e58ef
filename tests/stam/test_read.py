"""Search and packets: the stores apart, arms, budgets, ties, views of the past, and that nothing leaks."""
import dataclasses
import hashlib
import threading

import numpy as np
import pytest
from gold_states import gold_commits, gold_state
from memory_cases import HEADER, commit, doses, entry, memory, vector

from core_jax.records import RecordError
from core_jax.synth.timelines import TimelineConfig, generate
from stam_jax.config import ReadConfig
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import archive, delete, prior
from stam_jax.graph.update import Confirmation, Update
from stam_jax.read import search as read
from stam_jax.storage.store import Store

CONFIG = ReadConfig()


def fold(commits, patient="p1") -> State:
    state = State(patient)
    for c in commits:
        state = state.apply(Update.of(c))
    return state


def vectors(state: State) -> read.Vectors:
    mids = list(state.memories)
    return mids, np.stack([vector(m) for m in mids])


def found(state: State, config=CONFIG, query=None, **view) -> read.Found:
    return read.search(state, vectors(state), np.ones(HEADER.dim) if query is None else query, config, **view)


@pytest.fixture(scope="module")
def state() -> State:
    return fold(doses(40))


# ---- search -------------------------------------------------------------------------------------------------------

def test_stores_are_searched_apart_and_ranked_by_cosine(state):
    hits = found(state, ReadConfig(active=3, history=10))
    query = np.ones(HEADER.dim)
    want = {m.mid: vector(m.mid) @ query / np.linalg.norm(query) for m in state.history()}
    order = sorted(want, key=lambda m: -want[m])[:10]
    assert [i.mid for i in hits.history] == order and hits.stored == (1, 39)
    assert [i.place for i in hits.active] == ["ACTIVE"] and all(i.place == "HISTORY" for i in hits.history)
    np.testing.assert_allclose([i.cosine for i in hits.history], [want[m] for m in order], rtol=1e-6)


def test_equal_cosines_go_by_mid(state):
    mids = list(state.memories)
    same = np.tile(vector("x"), (len(mids), 1))
    hits = read.search(state, (mids, same), np.arange(8.0), ReadConfig(history=7))
    assert [i.mid for i in hits.history] == sorted(m.mid for m in state.history())[:7]
    assert len({i.cosine for i in hits.history}) == 1
    assert [i.mid for i in hits.ranked()] == sorted(i.mid for i in (*hits.active, *hits.history))


def test_vectors_may_be_of_any_length_and_in_any_order(state):
    mids, rows = vectors(state)
    shuffled = np.random.default_rng(1).permutation(len(mids))
    stretched = (np.array(mids)[shuffled].tolist() + ["m-foreign"], np.vstack([rows[shuffled] * 3.7, rows[:1]]))
    a, b = found(state), read.search(state, stretched, 5 * np.ones(8), CONFIG)
    assert [i.mid for i in a.ranked()] == [i.mid for i in b.ranked()]


def test_bad_vectors_are_refused(state):
    mids, rows = vectors(state)
    for bad, query in (((mids[1:], rows[1:]), np.ones(8)), ((mids, rows[:, :4]), np.ones(8)),
                       ((mids, rows), np.full(8, np.nan)), ((mids[1:], rows), np.ones(8))):
        with pytest.raises(ValueError, match="no vector|expected|finite"):
            read.search(state, bad, query, CONFIG)


def test_query_instruction_of_the_encoder():
    class Encoder:
        prompts: dict = {}

        def encode(self, texts, prompt=None):
            return [(prompt, t) for t in texts]

    e = Encoder()
    assert read.encode_query(e, ["q"]) == [(None, "q")]
    assert read.encode_query(e, ["q"], "Find: ") == [(None, "Find: q")]
    e.prompts = {"document": "d: ", "query": "q: "}
    assert read.encode_query(e, ["q"]) == [("query", "q")]


# ---- packets ------------------------------------------------------------------------------------------------------

def test_active_is_both_without_history_and_not_filled_up(state):
    small = ReadConfig(most=5, labels=True)
    more = fold([*doses(30), commit(30, [e := entry("x " * 9 + "bed")], [memory(e, text=f"note {i}", ordinal=i)
                                                                        for i in range(12)])])
    hits = found(more, small)
    both, active = (read.packet(hits, arm, small) for arm in ("BOTH", "ACTIVE"))
    assert [i.mid for i in both.items] == [i.mid for i in hits.ranked()[:5]]
    assert active.items == tuple(i for i in both.items if i.place == "ACTIVE") and 0 < len(active.items) < 5
    assert set(active.text.splitlines()) <= set(both.text.splitlines()) and "(past" not in active.text
    refilled = read.packet(hits, "REFILLED", small)
    assert len(refilled.items) == 5 and all(i.place == "ACTIVE" for i in refilled.items)
    assert read.packet(hits, "ACTIVE", dataclasses.replace(small, refill=True)) == refilled
    with pytest.raises(RecordError, match="arm"):
        read.packet(hits, "HISTORY", small)


def test_bytes_are_the_same_again_and_named_by_their_hash(state):
    one, two = (read.packet(found(fold(doses(40))), "BOTH", CONFIG) for _ in range(2))
    assert one == two and one.sha256 == hashlib.sha256(one.text.encode()).hexdigest()
    assert len(one.text.splitlines()) == 40 and one.words == len(one.text.split())


@pytest.mark.parametrize("words", [1, 30, 77, 200, 10_000])
def test_budget_in_words_takes_the_longest_prefix(state, words):
    hits = found(state)
    cut = read.packet(hits, "BOTH", ReadConfig(words=words))
    ranked, n = hits.ranked(), len(cut.items)
    assert list(cut.items) == ranked[:n] and cut.words <= words
    longer = read.packet(hits, "BOTH", ReadConfig(most=n + 1))
    assert n == len(ranked) or longer.words > words


def test_a_budget_may_be_used_up(state):
    hits = found(state)
    seven = read.packet(hits, "BOTH", ReadConfig(most=7))
    assert read.packet(hits, "BOTH", ReadConfig(words=seven.words)) == seven
    assert len(read.packet(hits, "BOTH", ReadConfig(words=seven.words - 1)).items) == 6
    assert read.packet(hits, "BOTH", ReadConfig(tokens=len(seven.text)), count=len) == seven


def test_budget_in_tokens_counts_as_the_reader_does(state):
    hits = found(state)
    cut = read.packet(hits, "BOTH", ReadConfig(tokens=400), count=len)
    assert len(cut.text) <= 400 < len(read.packet(hits, "BOTH", ReadConfig(most=len(cut.items) + 1)).text)
    with pytest.raises(RecordError, match="read.tokens"):
        read.packet(hits, "BOTH", ReadConfig(tokens=400))


def test_labels_and_source_spans(state):
    hits = found(state)
    text = read.packet(hits, "BOTH", ReadConfig(spans=True)).text
    assert "[2024-01-01] Patient: lisinopril 5 mg daily (past: superseded by 6 mg on 2024-01-02)" in text
    assert '| source: "lisinopril 5 mg daily"' in text
    assert "(past" not in read.packet(hits, "BOTH", ReadConfig(labels=False)).text


def test_a_memory_that_was_not_verified_shows_no_source():
    e = entry("takes aspirin")
    m = memory(e, text="Takes aspirin.")
    place = dataclasses.replace(m.provenance[0], verified=False)
    bare = dataclasses.replace(m, provenance=(place,))
    hits = found(fold([commit(0, [e], [bare])]))
    assert hits.active[0].source is None


# ---- what no longer holds never comes as what holds ---------------------------------------------------------------

def test_merged_archived_and_deleted_memories_stay_out_of_active(tmp_path):
    texts = ("dose one", "dose two", "pain", "again", "older")
    entries = [entry(t, date=f"2024-0{i + 1}-01") for i, t in enumerate(texts)]
    one, two, pain = (memory(e) for e in entries[:3])
    older = memory(entries[4], store="HISTORY")
    with Store.open(tmp_path / "s", encoder=HEADER, check=True) as store:
        store.commit([commit(0, entries[:1], [one])])
        store.commit([commit(1, entries[1:3], [two, pain], transitions=[
            archive(one.mid, "SUPERSEDED", successor=two.mid)])])
        again = Confirmation(two.mid, (dataclasses.replace(memory(entries[3]).provenance[0]),))
        store.commit([commit(2, entries[3:4], confirmations=[again])])  # a restatement: merged, no memory of its own
        store.commit([commit(3, entries[4:], [older], transitions=[archive(pain.mid, "RESOLVED"),
                                                                   prior(older.mid, successor=two.mid)])])
        state, rows = read.snapshot(store, "p1")
        both = read.packet(read.search(state, rows, np.ones(8), CONFIG), "BOTH", CONFIG)
        assert {i.mid: i.place for i in both.items} == {one.mid: "HISTORY", two.mid: "ACTIVE", pain.mid: "HISTORY",
                                                        older.mid: "HISTORY"}
        assert "again" not in both.text
        store.commit([commit(4, transitions=[delete(pain.mid, 0.99, 0.9, "c1")])])
        state, rows = read.snapshot(store, "p1")
        both = read.packet(read.search(state, rows, np.ones(8), CONFIG), "BOTH", ReadConfig(spans=True))
        assert pain.mid not in both.mids and "pain" not in both.text
        served = read.packet(read.search(state, rows, np.ones(8), CONFIG), "ACTIVE", CONFIG)
        assert served.mids == (two.mid,)
        for config in (CONFIG, ReadConfig(refill=True)):
            served = read.packet(read.search(state, rows, np.ones(8), config), "ACTIVE", config)
            assert all(state.places[m] == "ACTIVE" for m in served.mids)


def test_what_the_system_knew(state):
    hits = found(state, as_of_seq=3)
    assert hits.stored == (1, 2) and hits.active[0].memory.value == "7"
    assert "superseded by 7 mg" in read.packet(hits, "BOTH", CONFIG).text
    assert found(state, as_of_seq=0).ranked() == []
    assert read.packet(found(state, as_of_seq=0), "BOTH", CONFIG).text == ""
    with pytest.raises(ValueError, match="expected 0 to 40"):
        found(state, as_of_seq=41)


def test_what_was_true(state):
    hits = found(state, as_of_date="2024-01-03")
    assert [i.memory.value for i in hits.active] == ["7"] and hits.stored == (1, 2)
    text = read.packet(hits, "BOTH", CONFIG).text
    assert "superseded by 7 mg on 2024-01-03" in text and "2024-01-04" not in text and " 8 mg" not in text
    early = found(state, as_of_seq=2, as_of_date="2024-01-05")
    assert [i.memory.value for i in early.active] == ["6"]
    assert found(state, as_of_date="2023-12-31").ranked() == []
    with pytest.raises(RecordError, match="date"):
        found(state, as_of_date="yesterday")


def test_where_dates_do_not_decide_a_memory_stands_as_it_stands_now():
    e1, e2 = entry("uses a cane", date=None), entry("pain in March 2024", date="2024-04-01")
    cane, pain, old = memory(e1), memory(e2, start="2024-03"), memory(e1, "cane", text="old cane", store="HISTORY")
    state = fold([commit(0, [e1, e2], [cane, pain, old], transitions=[prior(old.mid)])])
    hits = found(state, as_of_date="2024-03-10")
    assert {i.mid for i in hits.active} == {cane.mid, pain.mid} and [i.mid for i in hits.history] == [old.mid]
    assert "[date unknown] Patient: uses a cane" in read.packet(hits, "ACTIVE", CONFIG).text


def test_a_later_end_is_not_told_before_its_day():
    e1, e2 = entry("amoxicillin 500 mg", date="2024-01-01"), entry("stop amoxicillin", date="2024-02-01")
    course = memory(e1, start="2024-01-01", end="2024-01-08", end_planned=True)
    over = memory(e2, start="2024-02-01", polarity="NEGATED")
    state = fold([commit(0, [e1], [course]), commit(1, [e2], [over], transitions=[
        archive(course.mid, "RESOLVED", successor=over.mid)])])
    on = found(state, as_of_date="2024-01-20")
    assert [(i.mid, i.past.on, i.past.successor) for i in on.history] == [(course.mid, "2024-01-08", None)]
    assert found(state, as_of_date="2024-01-05").active[0].mid == course.mid


def test_relations_between_served_memories_are_told_even_where_a_later_memory_stands_for_an_end():
    e1, e2 = entry("htn, lisinopril 5"), entry("lisinopril 10", date="2024-04-01")
    htn, five, ten = memory(e1, "htn"), memory(e1, "lisinopril 5"), memory(e2)
    state = fold([commit(0, [e1], [htn, five], relations=[Relation.of(five.mid, htn.mid, "treatment_for")]),
                  commit(1, [e2], [ten], transitions=[archive(five.mid, "SUPERSEDED", successor=ten.mid)])])
    hits = found(state)
    assert [(e.src, e.dst) for e in read.packet(hits, "BOTH", CONFIG).edges] == [(five.mid, htn.mid)]
    assert [(e.src, e.dst) for e in read.packet(hits, "ACTIVE", CONFIG).edges] == [(ten.mid, htn.mid)]


# ---- over a store -------------------------------------------------------------------------------------------------

def test_a_snapshot_is_of_one_moment_while_others_write(tmp_path):
    with Store.open(tmp_path / "s", encoder=HEADER) as store:
        plan, stop = doses(25), threading.Event()
        store.commit(plan[:1])

        def write():
            for c in plan[1:]:
                store.commit([c])
            stop.set()

        thread = threading.Thread(target=write)
        thread.start()
        seen = 0
        while not stop.is_set() or not seen:
            state, rows = read.snapshot(store, "p1")
            assert list(state.memories) == rows[0]
            seen += 1
        thread.join()
        assert store.state("nobody").version == 0
        state, rows = read.snapshot(store, "nobody")
        assert read.search(state, rows, np.ones(8), CONFIG).ranked() == []


def test_planted_states_serve_every_fact_once():
    for timeline in generate(TimelineConfig(n=4, seed=11)):
        state, made = gold_state(timeline)
        everything = ReadConfig(active=1000, history=1000, most=2000)
        both = read.packet(found(state, everything), "BOTH", everything)
        assert sorted(both.mids) == sorted(state.memories) == sorted(set(made.values()))
        assert len(both.text.splitlines()) == len(both.items)
        half = len(gold_commits(timeline)[0]) // 2
        assert set(i.mid for i in found(state, everything, as_of_seq=half).ranked()) == set(
            state.as_of_seq(half).memories)
