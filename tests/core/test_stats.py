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
