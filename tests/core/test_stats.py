"""Traps 23 and 24 of the specification as properties, with scikit-learn as a second opinion."""
from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from core_jax import stats

LEVELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6)), min_size=2, max_size=40).filter(
    lambda rows: len({y for y, _ in rows}) == 2)


def _cohort(n=400, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return y, 1 / (1 + np.exp(-(signal * (y - 0.5) + rng.normal(size=n))))


@settings(max_examples=60, deadline=None)
@given(LEVELS)
def test_auc_is_the_mann_whitney_share_with_half_ties(rows):
    y, p = np.array(rows).T
    wins = [float(a > b) + 0.5 * float(a == b) for a in p[y == 1] for b in p[y == 0]]
    assert stats.auc(y, p) == pytest.approx(np.mean(wins), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(LEVELS)
def test_roc_encloses_auc_and_agrees_with_sklearn(rows):
    from sklearn.metrics import roc_auc_score

    y, p = np.array(rows).T
    fpr, tpr, threshold = stats.roc(y, p)
    assert np.trapezoid(tpr, fpr) == pytest.approx(stats.auc(y, p), abs=1e-12)
    assert stats.auc(y, p) == pytest.approx(roc_auc_score(y, p), abs=1e-12)
    for f, t, cut in list(zip(fpr, tpr, threshold))[1:]:
        assert f == np.mean(p[y == 0] >= cut) and t == np.mean(p[y == 1] >= cut)


def test_weighted_ranker_equals_auc_of_the_drawn_rows():
    y, p = _cohort(57)
    p = np.round(p, 1)
    rng = np.random.default_rng(7)
    for _ in range(5):
        rows = rng.integers(0, 57, 57)
        counts = np.bincount(rows, minlength=57)[None]
        assert stats._Ranker(y.astype(bool), p)(counts)[0] == pytest.approx(stats.auc(y[rows], p[rows]), abs=1e-12)


def test_bootstrap_indices_do_not_depend_on_the_block_size(monkeypatch):
    y, p = _cohort(101)
    whole = stats.auc_ci(y, p, n=50)
    monkeypatch.setattr(stats, "_BLOCK", 101 * 7)
    assert stats.auc_ci(y, p, n=50) == whole
    assert stats.auc_ci(y, p, n=50, seed=1) != whole


def test_difference_with_itself_is_exactly_zero_and_indices_are_shared():
    y, p = _cohort()
    same = stats.paired_auc_difference(y, p, p.copy())
    assert (same.estimate, same.low, same.high) == (0.0, 0.0, 0.0)
    # a monotone map ranks alike, so sharing the resamples leaves nothing either
    mapped = stats.paired_auc_difference(y, p, p**3)
    assert (mapped.low, mapped.high) == (0.0, 0.0)


def test_one_class_resamples_are_counted_not_scored():
    y, p = np.array([1, 0, 0, 0, 0, 0]), np.array([0.9, 0.1, 0.2, 0.3, 0.4, 0.95])
    ci = stats.auc_ci(y, p, n=1000)
    assert ci.resamples + ci.skipped == 1000
    # P(no positive drawn) = (5/6)^6, P(no negative) is negligible
    assert ci.skipped == pytest.approx(1000 * (5 / 6) ** 6, abs=60)
    assert 0 <= ci.low <= ci.estimate <= ci.high <= 1


def test_bootstrap_and_delong_agree():
    y, p = _cohort(800, seed=3)
    q = 0.6 * p + 0.4 * np.random.default_rng(4).random(800)
    boot, closed = stats.paired_auc_difference(y, p, q), stats.delong(y, p, q)
    assert closed.difference == pytest.approx(boot.estimate, abs=1e-12)
    assert closed.low == pytest.approx(boot.low, abs=0.012) and closed.high == pytest.approx(boot.high, abs=0.012)
    assert (closed.p_value < 0.05) == (closed.low > 0 or closed.high < 0)


def test_delong_matches_the_quadratic_definition():
    y, p = _cohort(60, seed=5)
    q = np.round(np.random.default_rng(6).random(60) + 0.3 * y, 1)
    y = y.astype(bool)

    def placements(s):
        kernel = (s[y][:, None] > s[~y][None]) + 0.5 * (s[y][:, None] == s[~y][None])
        return kernel.mean(1), kernel.mean(0)

    (a1, b1), (a2, b2) = placements(p), placements(q)
    cov = np.cov(np.stack([a1, a2])) / y.sum() + np.cov(np.stack([b1, b2])) / (~y).sum()
    contrast = np.array([1, -1])
    assert stats.delong(y.astype(int), p, q).se == pytest.approx(math.sqrt(contrast @ cov @ contrast), rel=1e-10)
    same = stats.delong(y.astype(int), p, p)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_ece_by_hand_with_edges_and_empty_bins():
    assert stats.ece([0, 0], [1.0, 1.0]) == 1.0
    assert stats.ece([1, 0], [1.0, 0.0]) == 0.0
    r = stats.reliability([1, 0, 1, 0], [0.0, 0.2, 0.2000001, 1.0], bins=5)
    assert r.count.tolist() == [2, 1, 0, 0, 1]  # 0 in the first, 0.2 closes the first, 1 in the last
    assert r.ece == pytest.approx((2 * abs(0.1 - 0.5) + abs(0.2000001 - 1) + 1) / 4)
    assert r.rows()[2] == {"lo": 0.4, "hi": 0.6, "n": 0, "mean_p": None, "mean_y": None, "low": None, "high": None}
    for bins in (3, 7, 15):  # every inner edge closes the bin on its left
        edges = np.arange(1, bins + 1) / bins
        assert stats.reliability(np.ones(bins, int), edges, bins).count.tolist() == [1] * bins


def test_ece_agrees_with_sklearn_bins_and_with_the_measured_noise_floor():
    from sklearn.calibration import calibration_curve

    y, p = _cohort(3000, seed=8)
    r = stats.reliability(y, p)
    mean_y, mean_p = calibration_curve(y, p, n_bins=15)
    assert np.allclose(r.mean_y[r.count > 0], mean_y) and np.allclose(r.mean_p[r.count > 0], mean_p)
    # a perfectly calibrated model at n = 1,340 scores about 0.027 / 0.033 / 0.038 for 10 / 15 / 20 bins
    rng = np.random.default_rng(0)
    got = {b: [] for b in (10, 15, 20)}
    for _ in range(60):
        q = rng.random(1340)
        z = (rng.random(1340) < q).astype(int)
        for b, values in got.items():
            values.append(stats.ece(z, q, b))
    assert [np.mean(v) for v in got.values()] == pytest.approx([0.027, 0.033, 0.038], abs=0.003)


def test_accuracy_counts_the_threshold_as_positive():
    assert stats.accuracy([1, 0], [0.5, 0.4999]) == 1.0
    assert stats.accuracy([1, 1, 0, 0], [0.4, 0.6, 0.4, 0.6]) == 0.5


def test_wilson_and_t_interval_against_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (57, 85)):
        ref = scipy_stats.binomtest(k, n).proportion_ci(method="wilson")
        assert stats.wilson(k, n) == pytest.approx((ref.low, ref.high), abs=1e-12)
    values = [0.81, 0.83, 0.82]
    ref = scipy_stats.t.interval(0.95, 2, loc=np.mean(values), scale=scipy_stats.sem(values))
    got = stats.mean_ci(values)
    assert (got.low, got.high) == pytest.approx(ref, abs=1e-12) and got.n == 3
    assert stats.mean_ci([0.8]) == stats.Mean(0.8, None, None, None, 1)


@pytest.mark.parametrize("call, words", [
    (lambda: stats.auc([1, 1], [0.1, 0.2]), "both classes"),
    (lambda: stats.auc([0, 2], [0.1, 0.2]), "expected 0 and 1"),
    (lambda: stats.auc([0, 1], [0.1, float("nan")]), "row 1 is not finite"),
    (lambda: stats.auc([0, 1], [0.1]), "expected (2,)"),
    (lambda: stats.auc([], []), "n >= 1"),
    (lambda: stats.ece([0, 1], [0.1, 1.2]), "probabilities"),
    (lambda: stats.ece([0, 1], [0.1, 0.2], bins=0), "at least 1"),
    (lambda: stats.delong([0, 1, 1], [1, 2, 3], [1, 2, 3]), "at least 2 of each"),
    (lambda: stats.wilson(3, 2), "0 <= k <= n"),
    (lambda: stats.mean_ci([]), "non-empty"),
])
def test_bad_input_names_what_is_wrong(call, words):
    with pytest.raises(ValueError) as e:
        call()
    assert words in str(e.value)


# ---- paired comparisons ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("b, c, p", [(20, 14, 0.391528), (1, 9, 0.021484), (10, 2, 0.038574), (5, 0, 0.0625), (8, 8, 1.0),
                                     (0, 0, 1.0)])
def test_mcnemar_golden_and_the_binomial_test(b, c, p):
    assert stats.mcnemar_p(b, c) == stats.mcnemar_p(c, b) == pytest.approx(p, abs=5e-7)
    if b + c:
        assert stats.mcnemar_p(b, c) == pytest.approx(scipy_stats.binomtest(b, b + c).pvalue, abs=1e-12)


@pytest.mark.parametrize("table, expected", [  # the airway and the Altman examples, and one of Newcombe's own tables
    ((1, 1, 7, 12), (-0.2857, -0.5069, -0.0256)), ((14, 5, 0, 22), (0.1220, 0.0115, 0.2265)),
    ((36, 12, 2, 0), (0.2000, 0.0569, 0.3404))])
def test_newcombe_published_examples(table, expected):
    assert stats.newcombe(*table) == pytest.approx(expected, abs=5e-5)


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.integers(0, 30)] * 4).filter(any))
def test_newcombe_mirrors_and_stays_in_range(table):
    both, b, c, neither = table
    d, low, high = stats.newcombe(both, b, c, neither)
    assert stats.newcombe(both, c, b, neither) == pytest.approx((-d, -high, -low), abs=1e-12)
    assert stats.newcombe(neither, b, c, both) == pytest.approx((d, low, high), abs=1e-12)
    assert -1 - 1e-12 <= low <= d <= high <= 1 + 1e-12


def test_newcombe_covers_the_true_difference():
    rng = np.random.default_rng(0)
    share = np.array([0.55, 0.2, 0.1, 0.15])  # true difference 0.1
    hit = [low <= 0.1 <= high for _, low, high in (stats.newcombe(*map(int, t)) for t in rng.multinomial(60, share, 600))]
    assert 0.93 <= np.mean(hit) <= 0.985


def test_mcnemar_counts_rows():
    a, b = [1, 1, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1]
    got = stats.mcnemar(a, b)
    assert (got.b, got.c, got.n, got.p_value) == (2, 1, 6, 1.0)
    assert got[4:] == stats.newcombe(2, 2, 1, 1)
    with pytest.raises(ValueError, match="second: got 2 rows"):
        stats.mcnemar(a, [1, 0])
    with pytest.raises(ValueError, match="expected 0 and 1"):
        stats.mcnemar(a, [1, 0, 0.5, 1, 0, 1])


GOLDEN_D = [.2, .1, -.05, .3, 0, .15]


def test_sign_flip_golden_is_exact():
    got = stats.sign_flip(GOLDEN_D)
    assert (got.p_value, got.exact, got.units, got.flips) == (0.125, True, 6, 64)
    assert got.estimate == pytest.approx(np.mean(GOLDEN_D))
    assert stats.sign_flip([-x for x in GOLDEN_D]).p_value == 0.125


def test_sign_flip_of_five_patients_cannot_go_below_two_in_thirty_two():
    d = np.full(50, 0.3)
    got = stats.sign_flip(d, clusters=np.repeat(["a", "b", "c", "d", "e"], 10))
    assert (got.p_value, got.units) == (2 / 32, 5)
    assert stats.sign_flip(d).p_value == 1 / 10_001


def test_sign_flip_sampled_agrees_with_enumerated(monkeypatch):
    d = np.random.default_rng(3).normal(0.25, 1, 14)
    exact = stats.sign_flip(d).p_value
    monkeypatch.setattr(stats, "_ENUMERATE", 5)
    sampled = stats.sign_flip(d)
    assert not sampled.exact and abs(sampled.p_value - exact) < 4 * math.sqrt(exact * (1 - exact) / 10_000)
    assert stats.sign_flip(d) == sampled and stats.sign_flip(d, seed=1) != sampled


def test_sign_flip_weighs_types_alike():
    d, types = [1.0, 1.0, 1.0, 1.0, -1.0], ["a"] * 4 + ["b"]
    assert stats.macro_mean(d, types) == 0.0 and stats.macro_mean(d) == pytest.approx(0.6)
    got = stats.sign_flip(d, types)
    assert got.estimate == 0.0 and got.p_value == 1.0


def test_bootstrap_of_a_mean_agrees_with_the_normal_interval():
    d = np.random.default_rng(1).normal(0.1, 0.5, 400)
    got = stats.paired_bootstrap(d, n=4000)
    half = 1.96 * d.std() / 20
    assert got.estimate == pytest.approx(d.mean()) and (got.resamples, got.skipped) == (4000, 0)
    assert got.low == pytest.approx(d.mean() - half, abs=0.006) and got.high == pytest.approx(d.mean() + half, abs=0.006)
    assert stats.paired_bootstrap(d, n=4000) == got and stats.paired_bootstrap(d, n=4000, seed=1) != got


def test_bootstrap_is_stratified_by_type():
    """Two types that differ only between each other: inside a type nothing varies, so the macro does not either."""
    d, types = [1.0] * 30 + [-1.0] * 10, ["a"] * 30 + ["b"] * 10
    got = stats.paired_bootstrap(d, types, n=200)
    assert got[:3] == (0.0, 0.0, 0.0)
    plain = stats.paired_bootstrap(d, n=200)
    assert plain.low < 0.5 < plain.high


def test_bootstrap_by_cluster_is_wider_where_questions_of_a_patient_agree():
    d = np.repeat(np.random.default_rng(2).normal(size=12), 20)
    patients = np.repeat([f"p{i}" for i in range(12)], 20)
    each, whole = stats.paired_bootstrap(d, n=2000), stats.paired_bootstrap(d, clusters=patients, n=2000)
    assert whole.high - whole.low > 3 * (each.high - each.low)


def test_bootstrap_by_cluster_skips_draws_that_lack_a_type():
    got = stats.paired_bootstrap([1.0, 2.0, 3.0], ["a", "a", "b"], [1, 2, 3], n=500)
    assert 0 < got.skipped < 500 and got.resamples + got.skipped == 500
    assert 2 <= got.low <= got.high <= 2.5  # half of a type-a mean in [1, 2] and half of b = 3


@pytest.mark.parametrize("call", [lambda: stats.sign_flip([]), lambda: stats.paired_bootstrap([]),
                                  lambda: stats.sign_flip([1.0, float("nan")]), lambda: stats.mcnemar_p(-1, 2),
                                  lambda: stats.paired_bootstrap([1.0, 2.0], types=["a"]), lambda: stats.holm([0.5, 1.5]),
                                  lambda: stats.newcombe(0, 0, 0, 0), lambda: stats.newcombe(1, -1, 2, 3)])
def test_paired_bad_input(call):
    with pytest.raises(ValueError):
        call()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_against_the_definition(p):
    """The adjusted p of a test is the largest over it and all smaller ones of (tests not smaller) x p, at most 1."""
    got = stats.holm(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    for place, i in enumerate(order):
        assert got[i] == min(1.0, max((len(p) - k) * p[order[k]] for k in range(place + 1)))


def test_holm_example():
    assert stats.holm([.01, .04, .03, .005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([]) == []
