"""The history gate: its features, the exact threshold, what it learns, replay files, and that it changes no packet."""
import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import commit, doses, entry, memory, vector

from core_jax import stats
from core_jax.records import RecordError
from stam_jax.config import ReadConfig
from stam_jax.deletion.plan import Calibration
from stam_jax.deletion.scorer import Scorer
from stam_jax.graph.state import State
from stam_jax.graph.update import Update
from stam_jax.history import gate, replay
from stam_jax.history.gate import CUES, FEATURES, Gate
from stam_jax.history.logistic import Logistic
from stam_jax.history.replay import Asked, Replay, Served
from stam_jax.history.threshold import best, macro_weights
from stam_jax.read import search as read
from stam_jax.read.answer import Answer

CONFIG = ReadConfig()


# ---- threshold ----------------------------------------------------------------------------------------------------

P, RA, RB = [.1, .2, .4, .6, .9], [1, 1, 0, 1, 0], [1, 0, 1, 1, 1]
CA, CB = [400, 500, 450, 300, 600], [1000] * 5


@pytest.mark.parametrize("lam, threshold, value, both", [(0, .4, 1.0, 3), (.1, .4, .922, 3), (2, .9, -.26, 1)])
def test_golden_toy(lam, threshold, value, both):
    cut = best(P, RA, RB, CA, CB, lam=lam)
    assert cut.threshold == threshold and cut.both == both
    assert cut.value == pytest.approx(value, abs=1e-12)


def brute(p, ra, rb, ca, cb, lam, weights):
    """(every threshold's J, by the definition)."""
    out = {}
    for t in (-math.inf, *p, math.inf):
        out[t] = math.fsum(w * ((b if q >= t else a) - lam * (y if q >= t else x) / y)
                           for q, a, b, x, y, w in zip(p, ra, rb, ca, cb, weights))
    return out


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_prefix_sums_find_what_brute_force_finds(data):
    n = data.draw(st.integers(1, 12))
    grid = data.draw(st.sampled_from([2, 5, 1000]))

    def draw(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    p, ra, rb = ([x / grid for x in draw(0, grid)] for _ in range(3))
    ca, cb = draw(1, 50), draw(50, 99)
    lam = data.draw(st.sampled_from([0.0, 0.02, 0.5, 3.0]))
    weights = data.draw(st.sampled_from([None, macro_weights([str(i % 3) for i in range(n)])]))
    cut = best(p, ra, rb, ca, cb, lam=lam, weights=weights)
    every = brute(p, ra, rb, ca, cb, lam, np.full(n, 1 / n) if weights is None else weights)
    top = max(every.values())
    assert cut.value == pytest.approx(top, abs=1e-9)
    assert cut.threshold == max(t for t, j in every.items() if j >= top - 1e-11)  # of equal ones the largest
    assert cut.both == sum(q >= cut.threshold for q in p)


def test_equal_arms_serve_the_fewest_tokens():
    assert best([.2, .8], [1, 0], [1, 0], [5, 5], [9, 9]).threshold == math.inf
    assert best([.2, .8], [0, 0], [1, 1], [5, 5], [9, 9]).threshold == .2


def test_macro_weights_are_the_mean_of_means():
    types, x = ["a", "a", "a", "b"], np.array([1.0, 0, 0, 1])
    assert macro_weights(types) @ x == pytest.approx(stats.macro_mean(x, types))


@pytest.mark.parametrize("change", [dict(p=[]), dict(cost_both=[0, 1]), dict(lam=-1), dict(p=[.5, math.nan]),
                                    dict(score_both=[1])])
def test_bad_columns_are_refused(change):
    columns = dict(p=[.1, .2], score_active=[0, 1], score_both=[1, 1], cost_active=[1, 1], cost_both=[2, 2]) | change
    with pytest.raises(ValueError, match="expected"):
        best(**columns)


# ---- logistic -----------------------------------------------------------------------------------------------------

def test_logistic_is_scikit_learns():
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) * [1, 10, 0.1, 1, 0] + [0, 5, 0, 0, 3]
    y = (rng.random(200) < 1 / (1 + np.exp(-(x[:, 0] - 0.1 * x[:, 1])))).astype(int)
    ours = Logistic.fit(x, y, l2=0.5)
    z = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    theirs = linear.LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(z, y)
    np.testing.assert_allclose(ours.predict(x), theirs.predict_proba(z)[:, 1], atol=1e-6)
    assert ours.weights[4] == 0.0
    assert Logistic.from_dict(json.loads(json.dumps(ours.to_dict()))) == ours


def test_logistic_of_one_class_is_its_share():
    flat = Logistic.fit(np.ones((9, 2)), np.ones(9))
    assert flat.predict(np.zeros((1, 2))) == pytest.approx(9.5 / 10)
    assert flat.weights == (0.0, 0.0)


@pytest.mark.parametrize("x, y", [(np.ones((0, 2)), []), (np.ones((2, 1)), [0, 2]), ([[np.nan]], [0]),
                                  (np.ones(3), [0] * 3)])
def test_logistic_refuses(x, y):
    with pytest.raises(ValueError):
        Logistic.fit(x, np.array(y))


# ---- features -----------------------------------------------------------------------------------------------------

def searched(active, history) -> read.Found:
    """A search whose cosines are given."""
    def items(cosines, place):
        e = entry("x")
        return tuple(read.Item(memory(e, text=f"{place} {i}", ordinal=i), place, c)
                     for i, c in enumerate(sorted(cosines, reverse=True)))

    return read.Found(State("p1"), items(active, "ACTIVE"), items(history, "HISTORY"), (len(active), len(history)))


def test_features_are_the_listed_ones():
    f = gate.features(searched([.8, .6, .5, .4, .3, .1], [.82, .76, .7]), ReadConfig(most=4))
    assert tuple(f) == FEATURES
    want = dict(a1=.8, h1=.82, h1_less_a1=.02, a_top5=.52, h_top5=.76, h_top5_less_a_top5=.24, h_share=.75, h_near_a1=2,
                a1_less_a5=.5, log_size_ratio=math.log(4) / math.log(7))
    assert f == pytest.approx(want, abs=1e-12)


def test_features_of_empty_stores_are_finite():
    for found in (searched([], []), searched([.5], []), searched([], [.5])):
        f = gate.features(found, CONFIG, "When did it last change?")
        assert all(math.isfinite(v) for v in f.values()) and tuple(f) == FEATURES + CUES
    assert f["cue_order"] == f["cue_change"] == 1 and f["cue_now"] == 0


# ---- replay files and learning ------------------------------------------------------------------------------------

def planted(n=240, patients=24, seed=0) -> list[Replay]:
    """Questions for which a high h1_less_a1 means that HISTORY matters; a fifth has nothing of HISTORY."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        x = rng.normal(size=len(FEATURES))
        past = i % 5 > 0
        needs = past and x[2] + 0.3 * rng.normal() > 0
        both = Served(f"b{i}", "the old value" if needs else "same", 1.0, int(rng.integers(900, 1100)))
        active = Served(f"a{i}", "not in memory" if needs else "same", float(not needs), int(rng.integers(300, 500)))
        refilled = Served(f"r{i}", "x", float(rng.random() < 0.5), 1000)
        out.append(Replay(f"q{i}", f"p{i % patients}", f"t{i % 3}", dict(zip(FEATURES, x.tolist())),
                          active if past else dataclasses.replace(both), both, 3 if past else 0, True, refilled))
    return out


def test_a_replay_file_gives_the_same_gate_again(tmp_path):
    rows = planted()
    assert replay.write(tmp_path / "r.jsonl", rows) == len(rows)
    again = replay.read(tmp_path / "r.jsonl")
    assert again == rows and replay.digest(again) == replay.digest(rows)
    one, two = (Gate.fit(r, lam=0.1) for r in (rows, again))
    assert one == two
    one.save(tmp_path / "g.json")
    assert Gate.load(tmp_path / "g.json") == one
    forever = dataclasses.replace(one, threshold=math.inf)
    forever.save(tmp_path / "g.json")
    assert Gate.load(tmp_path / "g.json") == forever


def test_a_gate_serves_the_encoder_on_whose_searches_it_was_fitted(tmp_path):
    rows = [dataclasses.replace(r, encoder="hash:8") for r in planted()]
    gate = Gate.fit(rows, lam=0.1)
    gate.save(tmp_path / "g.json")
    kept = Gate.load(tmp_path / "g.json")
    assert kept.encoder == "hash:8" and kept.for_searches_of("hash:8") is kept and kept.report(rows)["rows"]
    for wrong in ("hash:9", ""):
        with pytest.raises(ValueError, match="fitted on searches of the encoder hash:8"):
            kept.for_searches_of(wrong)
    with pytest.raises(ValueError, match="'hash:8' and 'hash:9'"):
        Gate.fit([*rows[:-1], dataclasses.replace(rows[-1], encoder="hash:9")], lam=0.1)
    with pytest.raises(ValueError, match="these are of hash:9"):
        kept.report([dataclasses.replace(r, encoder="hash:9") for r in rows])
    with pytest.raises(ValueError, match=r"\(not said\)"):
        Gate.fit(planted(), lam=0.1).for_searches_of("hash:8")


@pytest.mark.parametrize("change, field", [({"history": -1}, "history"), ({"features": {"a1": "x"}}, "features.a1"),
                                           ({"active": {"answer": "x"}}, "active"), ({"judged": 1}, "judged"),
                                           ({"question_id": "q0"}, "question_id"), ({"history": 0}, "history")])
def test_a_bad_replay_row_is_named(tmp_path, change, field):
    replay.write(tmp_path / "r.jsonl", planted(3))
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    raw = json.loads(lines[2]) | change
    (tmp_path / "r.jsonl").write_text("\n".join([*lines[:2], json.dumps(raw)]) + "\n")
    with pytest.raises(RecordError, match=f"r.jsonl:3: .*{field}"):
        replay.read(tmp_path / "r.jsonl")


def test_agreement():
    row = planted(2)[1]
    same = dataclasses.replace(row.both, score=1.0)
    assert not dataclasses.replace(row, active=same).needs_history
    wrong = dataclasses.replace(row.active, score=0.0, answer=row.both.answer)
    assert dataclasses.replace(row, active=wrong).needs_history  # judged: by score
    assert not dataclasses.replace(row, active=wrong, judged=False).needs_history  # else by words
    told = dataclasses.replace(wrong, answer="850 mg twice daily in all")
    assert dataclasses.replace(row, active=told, judged=False).needs_history
    assert not dataclasses.replace(row, active=row.both, history=0).needs_history


def test_folds_keep_patients_whole():
    patients = [f"p{i % 11}" for i in range(100)]
    of = gate.folds(patients, 5)
    assert set(of) == set(range(5)) and len({(p, f) for p, f in zip(patients, of)}) == 11
    assert of == gate.folds(patients, 5) != gate.folds(patients, 5, seed=1)
    with pytest.raises(ValueError, match="folds"):
        gate.folds(["a", "b"], 3)


def test_probabilities_come_from_models_that_did_not_see_the_patient():
    rows = planted(60, patients=6)
    p = gate.crossfit(rows, k=3)
    for victim in ("p0", "p3"):
        flipped = [dataclasses.replace(r, active=dataclasses.replace(r.active, score=1 - r.active.score))
                   if r.patient_id == victim and r.history else r for r in rows]
        q = gate.crossfit(flipped, k=3)
        mine = np.array([r.patient_id == victim for r in rows])
        np.testing.assert_array_equal(p[mine], q[mine])
        assert (p[~mine] != q[~mine]).any()


def test_it_learns_what_was_planted_and_is_judged_on_patients_it_has_not_seen():
    rows = planted()
    r = gate.report(rows, lambdas=(0.0, 0.1, 5.0), flops=lambda n: 2.0 * n)
    free, cheap, dear = r["rows"]
    assert r["questions"] == 240 and r["patients"] == 24 and free["asked"] == 192
    assert free["score"] > free["score_active"] + 0.2 and cheap["score"] > 0.9
    assert 0.3 < cheap["skip_rate"] < 0.7 and dear["skip_rate"] == 1.0 and dear["score"] == dear["score_active"]
    assert dear["change"]["test"] == "mcnemar" and dear["change"]["p_value"] < 1e-6 and dear["change"]["better"] == 0
    assert 0 < cheap["tokens_saved"] < dear["tokens_saved"]
    assert cheap["prefill_flops"] == pytest.approx(2 * cheap["tokens"])
    assert r["refilled"] == 240 and r["history_critical"] == sum(x.refilled.score == 0 for x in rows)
    assert r["history_harmful"] == 0
    by_patient = dear["change"]["by_patient"]  # ACTIVE for all
    d = np.array([x.active.score - x.both.score for x in rows])
    flip, interval = (f(d, None, [x.patient_id for x in rows]) for f in (stats.sign_flip, stats.paired_bootstrap))
    assert by_patient == {"test": "sign_flip", "patients": 24, "p_value": flip.p_value, "low": interval.low,
                          "high": interval.high}
    json.dumps(r, allow_nan=False)
    soft = [dataclasses.replace(x, judged=False, both=dataclasses.replace(x.both, score=0.9)) for x in rows]
    soft = [x if x.history else dataclasses.replace(x, active=x.both) for x in soft]
    assert gate.report(soft, lambdas=(0.1,), macro=True)["rows"][0]["change"]["test"] == "sign_flip"


def others(seed=1, **kw) -> list[Replay]:
    """Replays of patients of whom `planted` has none."""
    return [dataclasses.replace(r, question_id=f"o{r.question_id}", patient_id=f"o{r.patient_id}")
            for r in planted(seed=seed, **kw)]


def test_a_frozen_gate_is_judged_on_a_replay_it_was_not_fitted_on(tmp_path):
    fitted, rows = planted(), others()
    Gate.fit(fitted, lam=0.1, macro=True).save(tmp_path / "g.json")
    gate = Gate.load(tmp_path / "g.json")
    assert gate.macro and gate.price == "tokens" and len(gate.patients) == 24
    found = gate.report(rows, flops=lambda n: 2.0 * n)
    row, = found["rows"]
    assert found["unseen"] and found["questions_of_fitted_patients"] == 0 and found["questions"] == 240
    both = [r.history > 0 and gate.probability(r.features) >= gate.threshold for r in rows]
    used = [r.both if b else r.active for r, b in zip(rows, both)]
    assert row["threshold"] == gate.threshold and row["lambda"] == 0.1 and row["macro"]
    assert row["skip_rate"] == sum(r.history > 0 and not b for r, b in zip(rows, both)) / row["asked"]
    assert row["tokens"] == pytest.approx(np.mean([s.tokens for s in used]))
    assert row["score"] == pytest.approx(stats.macro_mean([s.score for s in used], [r.type for r in rows]))
    assert row["prefill_flops"] == pytest.approx(2 * row["tokens"]) and 0 < row["prefill_flops_saved"] < 1
    assert row["change"]["test"] == "sign_flip" and row["score"] > row["score_active"] + 0.2
    micro = dataclasses.replace(gate, macro=False).report(rows)["rows"][0]["change"]
    worse = sum(s.score < r.both.score for s, r in zip(used, rows))
    assert (micro["test"], micro["worse"], micro["better"]) == ("mcnemar", worse, 0) and worse > 0
    mixed = gate.report([*rows, *fitted[:7]])
    assert not mixed["unseen"] and mixed["questions_of_fitted_patients"] == 7
    assert not gate.report(fitted)["unseen"]
    never = dataclasses.replace(gate, threshold=math.inf).report(rows)["rows"][0]
    assert never["threshold"] == "inf" and never["skip_rate"] == 1 and never["score"] == never["score_active"]
    json.dumps(found, allow_nan=False)
    with pytest.raises(ValueError, match="no question"):
        gate.report([])


def test_the_price_may_be_operations():
    rows = planted()
    dear = Gate.fit(rows, lam=1.3, cost=lambda n: float(n) ** 4, price="some-model")  # ACTIVE saves nearly all of it
    cheap = Gate.fit(rows, lam=1.3)
    assert dear.price == "some-model" and dear.serves(rows).sum() < cheap.serves(rows).sum()


class Parrot:
    """Says what is served; fails on request."""

    name = "parrot"

    def __init__(self):
        self.asked = []

    def count(self, text):
        return len(text.split())

    def answer(self, questions, packets):
        self.asked.append(len(questions))
        return [Answer(p.text.split("]")[-1].strip(), p.arm, p.sha256, p.mids, self.count(p.text), 0, self.name,
                       error="it broke" if q == "break" else None) for q, p in zip(questions, packets)]


def test_rehearsing_asks_both_arms_and_scores_them():
    state = State("p1")
    for c in doses(20):
        state = state.apply(Update.of(c))
    mids = list(state.memories)
    found = read.search(state, (mids, np.stack([vector(m) for m in mids])), np.ones(8), CONFIG)
    questions = [Asked(f"q{i}", "p1", "t", "Dose?", ("x", "y")) for i in range(70)]
    reader = Parrot()
    rows = list(gate.rehearse(questions, iter([found] * 70), reader, CONFIG, "hash:8"))
    assert [r.question_id for r in rows] == [q.question_id for q in questions] and max(reader.asked) == 3 * 64
    both, active = (read.packet(found, arm, CONFIG) for arm in ("BOTH", "ACTIVE"))
    r = rows[-1]
    assert (r.both.packet_sha256, r.active.packet_sha256) == (both.sha256, active.sha256) and not r.judged
    assert r.history == sum(i.place == "HISTORY" for i in both.items) > 0 and r.refilled is not None
    assert r.features == gate.features(found, CONFIG, "Dose?")
    judged = list(gate.rehearse(questions[:1], [found], reader, CONFIG, "hash:8", judge=lambda said, gold: len(gold) == 2))
    assert judged[0].judged and judged[0].both.score == judged[0].active.score == 1.0
    with pytest.raises(ValueError, match="'q0': it broke"):
        list(gate.rehearse([dataclasses.replace(questions[0], text="break")], [found], reader, CONFIG, "hash:8"))


# ---- serving ------------------------------------------------------------------------------------------------------

def test_the_gate_changes_no_bytes():
    state = State("p1")
    for c in doses(20):
        state = state.apply(Update.of(c))
    mids = list(state.memories)
    found = read.search(state, (mids, np.stack([vector(m) for m in mids])), np.ones(8), CONFIG)
    both, active = (read.packet(found, arm, CONFIG) for arm in ("BOTH", "ACTIVE"))
    model = Logistic.fit(np.random.default_rng(0).normal(size=(20, len(FEATURES))), np.arange(20) % 2)
    for threshold, packet in ((-math.inf, both), (math.inf, active), (0.0, both), (1.0, active)):
        served, p = gate.serve(found, Gate(FEATURES, model, threshold, 0.1, "x"), CONFIG, "q")
        assert served == packet and served.sha256 == packet.sha256 and 0 < p < 1
    e = entry("one")
    alone = State("p1").apply(Update.of(commit(0, [e], [m := memory(e)])))
    found = read.search(alone, ([m.mid], vector(m.mid)[None]), np.ones(8), CONFIG)
    served, p = gate.serve(found, Gate(FEATURES, model, -math.inf, 0.1, "x"), CONFIG, "q")
    assert served == read.packet(found, "ACTIVE", CONFIG) and p == 0.0  # HISTORY serves nothing: not asked


@pytest.mark.parametrize("change", [{"schema": "gate/0"}, {"features": ["a1"]}, {"features": ["nonsense"] * 10},
                                    {"model": {"bias": "x"}}, {"threshold": None}, {"replay_sha256": ""},
                                    {"threshold": "nan"}, {"lam": -1}, {"patients": "p1"}, {"macro": 1},
                                    {"price": None}, {"features": ["a1"] * 10}, {"threshold": 10**400},
                                    {"model": {"mean": [0] * 10, "scale": [0] * 10, "weights": [0] * 10, "bias": 0}},
                                    {"model": {"mean": [10**400] * 10, "scale": [1] * 10, "weights": [0] * 10,
                                               "bias": 0}}])
def test_a_bad_gate_file_is_refused(tmp_path, change):
    Gate(FEATURES, Logistic((0.0,) * 10, (1.0,) * 10, (0.0,) * 10, 0.0), 0.5, 0.1, "x").save(tmp_path / "g.json")
    raw = json.loads((tmp_path / "g.json").read_text()) | change
    (tmp_path / "g.json").write_text(json.dumps(raw))
    with pytest.raises(RecordError, match="g.json"):
        Gate.load(tmp_path / "g.json")


@pytest.mark.parametrize("raw", ["", "[]", "3", "[" * 100000, "{", "\udcff", '{"lam": NaN}', "9" * 5000])
def test_what_is_no_gate_is_refused(tmp_path, raw):
    (tmp_path / "g.json").write_bytes(raw.encode("utf-8", "surrogateescape"))
    for kind in (Gate, Scorer, Calibration):
        with pytest.raises(RecordError, match="g.json"):
            kind.load(tmp_path / "g.json")


def test_a_gate_that_gives_no_probability_is_refused():
    one = Gate(("a1", "h1"), Logistic((0.0,) * 2, (5e-324,) * 2, (1.0, -1.0), 0.0), 0.5, 0.1, "x")
    with pytest.raises(ValueError, match="give no probability"), np.errstate(all="ignore"):
        one.probability({"a1": 0.5, "h1": 0.5})


def test_a_feature_that_is_no_float_is_refused():
    with pytest.raises(RecordError, match="features.a1: got 1000.*finite"):
        Replay("q", "p", "t", {"a1": 10**400}, *[Served("s", "a", 1.0, 1)] * 2, 0)
