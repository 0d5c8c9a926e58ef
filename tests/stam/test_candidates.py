"""The device's nearest rows against NumPy, and which memories a new one is compared with."""
import dataclasses
from collections import Counter

import numpy as np
import pytest
from arrival_cases import arrival, embedded
from hypothesis import given, settings
from hypothesis import strategies as st

from stam_jax.config import WriteConfig
from stam_jax.graph.relations import DEFAULT
from stam_jax.write import nearest as module
from stam_jax.write.candidates import link_candidates, relations
from stam_jax.write.nearest import SCALE, Search, Vectors, cosines, nearest, whole
from stam_jax.write.writer import Link, LinkAnswer, LinkTask

DIM = 24


def vectors(rng, n, dim=DIM, ties=True):
    x = rng.normal(size=(n, dim))
    if ties and n > 3:
        x[rng.integers(0, n, n // 2)] = x[rng.integers(0, n)]  # many rows alike
    return whole(x)


def search(rng, queries, rows, **fields):
    return Search(vectors(rng, queries, **fields), rng.integers(0, 2, queries).astype(np.int32),
                  vectors(rng, rows, **fields), rng.integers(-1, 2, rows).astype(np.int32))


def by_numpy(s: Search, k):
    """By sorting every integer score."""
    scores = s.queries.astype(np.int64) @ s.rows.astype(np.int64).T
    out = []
    for row, want in zip(scores, s.wanted):
        fits = [i for i in range(len(s.rows)) if s.labels[i] == want]
        out.append([(i, row[i] / SCALE ** 2) for i in sorted(fits, key=lambda i: (-row[i], i))[:k]])
    return out


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10 ** 6), k=st.sampled_from([0, 1, 8, 12, 17, 100]),
       sizes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 200)), min_size=1, max_size=6))
def test_nearest_is_what_numpy_finds_to_the_last_bit(seed, k, sizes):
    rng = np.random.default_rng(seed)
    searches = [search(rng, q, s) for q, s in sizes]
    assert nearest(searches, k) == [by_numpy(s, k) for s in searches]
    # ... whatever stands beside it
    assert nearest(searches[:1], k) == nearest(searches, k)[:1]
    assert nearest(searches[::-1], k) == nearest(searches, k)[::-1]


@pytest.mark.parametrize("dim", [1, 384, 1024])
def test_sums_are_exact_in_any_width(dim):
    rng = np.random.default_rng(dim)
    s = search(rng, 9, 130, dim=dim)
    assert nearest([s], 8) == [by_numpy(s, 8)]
    own = Search(s.rows[:8], np.zeros(8, np.int32), s.rows, np.zeros(130, np.int32))
    assert all(found[0][1] == pytest.approx(1, abs=3e-3) for found in nearest([own], 1)[0])
    assert (cosines(s.queries, s.rows) == s.queries.astype(np.int64) @ s.rows.astype(np.int64).T / SCALE ** 2).all()


@pytest.mark.parametrize("rows", [512, 513, 1500, 2600])
def test_long_records_have_longer_tiles_and_the_same_answer(rows):
    rng = np.random.default_rng(rows)
    long, short = search(rng, 9, rows), search(rng, 3, 70)
    for k in (1, 12, 64, 100):
        assert nearest([short, long, short], k) == [by_numpy(s, k) for s in (short, long, short)]


def test_rounding_moves_a_cosine_by_little():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 384))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.abs(cosines(whole(x), whole(x)) - x @ x.T).max() < 6e-4
    assert (whole(np.zeros((1, 4))) == 0).all() and (whole(x * 1e-9) == whole(x)).all()


def test_few_shapes_are_compiled():
    """Waves of any size use the rungs of one ladder."""
    rng = np.random.default_rng(1)
    module._tiles.clear_cache()
    for patients in (1, 2, 3, 5, 7, 8, 12, 20, 33, 64):
        sizes = rng.integers(1, (20, 150), (patients, 2))
        searches = [search(rng, *map(int, size), ties=False) for size in sizes]
        for k in (8, 12):
            nearest(searches, k)
    assert module._tiles._cache_size() <= len(module.TILES)


def test_more_tiles_than_a_call_takes():
    rng = np.random.default_rng(2)
    s = search(rng, 8 * 30, 64 * 20)
    assert nearest([s], 8) == [by_numpy(s, 8)]


# ---- candidates -----------------------------------------------------------------------------------------------

def texts(task):
    return [m.text for m in task.candidates]


def test_active_memories_of_the_same_person_the_same_slot_first():
    old = ["metformin dose: aaa bbb", "cough and fever", "cough at night", "mother has a cough", "cough gone"]
    a = arrival(old, ["cough now", "metformin dose: words"], archived=[4])
    first, second = link_candidates([a], WriteConfig(link_candidates=2))[0]
    assert set(texts(first)) == {"cough and fever", "cough at night"}
    assert texts(second)[0] == "metformin dose: aaa bbb" and texts(second)[-1] == "cough now"
    assert len(second.candidates) == 3


def test_what_holds_of_the_slot_is_asked_about_before_what_is_more_alike():
    a = arrival(["words", "metformin dose: aaa bbb ccc", "words here"], ["metformin dose: words words words"])
    (task,), = link_candidates([a], WriteConfig(link_candidates=1))
    assert texts(task) == ["metformin dose: aaa bbb ccc"]
    (task,), = link_candidates([a], WriteConfig(link_candidates=2))
    assert texts(task) == ["metformin dose: aaa bbb ccc", "words"]


def test_each_pair_of_siblings_is_asked_about_once():
    a = arrival([], ["one", "two", "mother three", "four"])
    tasks, = link_candidates([a], WriteConfig())
    assert [texts(t) for t in tasks] == [[], ["one"], [], ["one", "two"]]


def test_the_most_similar_siblings_stand_in_the_order_of_the_text():
    a = arrival([], ["aaa bbb", "eee", "aaa", "ddd", "aaa bbb ccc"])
    assert texts(link_candidates([a], WriteConfig(link_candidates=2))[0][-1]) == ["aaa bbb", "aaa"]


def test_equal_scores_go_by_mid_and_nothing_depends_on_the_wave():
    many = [arrival([f"visit {i}: same words" for i in range(40)], ["same words"], patient="p1"),
            arrival(["other words"], ["same words", "words"], patient="p10"), arrival([], [], patient="p")]
    together = link_candidates(many, WriteConfig(link_candidates=5))
    alone = [link_candidates([a], WriteConfig(link_candidates=5))[0] for a in many]
    assert together == alone
    same = [m.mid for m in together[0][0].candidates]
    assert len(same) == 5 and {m.patient_id for t in together[1] for m in t.candidates} == {"p10"}
    rows = embedded([many[0].state.memories[mid] for mid in same])
    score = cosines(many[0].rows[:1], rows)[0]
    assert [mid for _, mid in sorted(zip(-score, same))] == same


def test_a_state_in_another_order_gives_the_same_candidates():
    a = arrival([f"m{i} words words" for i in range(30)], ["words"])
    mids = list(a.known.mids)[::-1]
    b = dataclasses.replace(a, known=Vectors.of(mids, a.known.rows[::-1]))
    assert link_candidates([a], WriteConfig()) == link_candidates([b], WriteConfig())


def test_relations_of_an_answer():
    a = arrival(["x", "y"], ["z"])
    task = LinkTask(a.entry, a.news[0], tuple(a.state.memories.values()))
    new, (x, y) = a.news[0].mid, a.state.memories
    answer = LinkAnswer((
        Link(0, "causal"), Link(1, "causal", forward=False), Link(0, "restatement", confidence=0.6),
        Link(0, "restatement", forward=False, confidence=0.9), Link(1, "restatement", confidence=0.4),
        Link(2, "causal"), Link(-1, "causal"), Link(0, "rumour"), Link(0, "causal", confidence=float("nan")),
        Link(0, "NONE")))
    counters = Counter()
    found = relations(task, answer, WriteConfig(), DEFAULT, "LINKER", counters)
    assert [(r.type, r.src, r.dst, r.confidence, r.origin) for r in found] == [
        ("causal", new, x, 1.0, "LINKER"), ("causal", y, new, 1.0, "LINKER"),
        ("restatement", *sorted((new, x)), 0.9, "LINKER")]
    assert counters == {"link_uncertain": 1, "unknown_alias": 2, "unknown_type": 2, "bad_confidence": 1}
