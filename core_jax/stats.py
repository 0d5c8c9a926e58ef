"""Figures of merit with their uncertainty: AUC, calibration, accuracy, intervals. NumPy and SciPy only, no jax.

Everywhere `y` is int[n] of 0/1 outcomes, `p` is float[n] of scores or P(y = 1), one row per patient. Bad input (shapes
that differ, labels other than 0/1, NaN, a single class where both are needed) is a ValueError that says which.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats as _scipy

_BLOCK = 1 << 22  # resample counts held at once: elements of an int32 [block, n] matrix


class Interval(NamedTuple):
    """An estimate with its percentile-bootstrap interval; `skipped` resamples held one class and were left out."""

    estimate: float
    low: float
    high: float
    resamples: int
    skipped: int
    level: float = 0.95


class DeLong(NamedTuple):
    """Two correlated AUCs compared by their asymptotic covariance (DeLong, DeLong & Clarke-Pearson 1988)."""

    auc1: float
    auc2: float
    difference: float
    se: float
    low: float
    high: float
    p_value: float


class Reliability(NamedTuple):
    """A reliability diagram, one row per bin: bin b is (lo[b], hi[b]], 0 lies in the first bin and 1 in the last.

    count int[bins]; mean_p, mean_y float[bins] are NaN where a bin is empty; `ece` is their count-weighted gap.
    """

    lo: np.ndarray
    hi: np.ndarray
    count: np.ndarray
    mean_p: np.ndarray
    mean_y: np.ndarray
    ece: float

    def rows(self) -> list[dict[str, float | int | None]]:
        """The bins as JSON objects; an empty bin has null means, others carry the Wilson interval of mean_y."""
        out = []
        for lo, hi, n, p, y in zip(self.lo, self.hi, self.count, self.mean_p, self.mean_y):
            low, high = wilson(round(float(y) * int(n)), int(n)) if n else (None, None)
            out.append({"lo": float(lo), "hi": float(hi), "n": int(n), "mean_p": float(p) if n else None,
                        "mean_y": float(y) if n else None, "low": low, "high": high})
        return out


class Mean(NamedTuple):
    """Mean over runs with its two-sided Student t interval; sd, low and high are None for a single run."""

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    n: int


def _outcomes(y) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y: got shape {y.shape}, expected [n] with n >= 1")
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"y: got values {np.unique(y)[:5].tolist()}, expected 0 and 1")
    return y.astype(bool)


def _scores(p, n: int, name: str = "p", *, unit: bool = False) -> np.ndarray:
    p = np.asarray(p, np.float64)
    if p.shape != (n,):
        raise ValueError(f"{name}: got shape {p.shape}, expected ({n},) as y")
    if not np.isfinite(p).all():
        raise ValueError(f"{name}: row {int(np.flatnonzero(~np.isfinite(p))[0])} is not finite")
    if unit and ((p < 0) | (p > 1)).any():
        raise ValueError(f"{name}: got {p[(p < 0) | (p > 1)][0]}, expected probabilities in [0, 1]")
    return p


def _both(y) -> np.ndarray:
    y = _outcomes(y)
    if y.all() or not y.any():
        raise ValueError(f"y: all {y.size} rows are class {int(y[0])}; AUC needs both classes")
    return y


def auc(y, p) -> float:
    """Area under the ROC curve by midranks: P(p of a positive > p of a negative) + half the ties."""
    y = _both(y)
    p = _scores(p, y.size)
    pos = int(y.sum())
    rank_sum = _scipy.rankdata(p)[y].sum()
    return float((rank_sum - pos * (pos + 1) / 2) / (pos * (y.size - pos)))


def roc(y, p) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(fpr, tpr, threshold), one point per distinct score plus (0, 0); a row is called positive when p >= threshold.

    The trapezoid under the curve is `auc(y, p)`.
    """
    y = _both(y)
    p = _scores(p, y.size)
    order = np.argsort(-p, kind="stable")
    last = np.flatnonzero(np.r_[p[order][1:] != p[order][:-1], True])
    tp = np.cumsum(y[order])[last]
    fp = last + 1 - tp
    return np.r_[0.0, fp / fp[-1]], np.r_[0.0, tp / tp[-1]], np.r_[np.inf, p[order][last]]


def _resamples(n: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks int32[b, n]: how often each row was drawn. Depends on (n, count, seed) only: every method shares them."""
    rng = np.random.default_rng(seed)
    block = max(1, min(count, _BLOCK // n))
    for start in range(0, count, block):
        yield np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(min(block, count - start))])


class _Ranker:
    """AUC of weighted resamples of fixed scores, all resamples of a block at once."""

    def __init__(self, y: np.ndarray, p: np.ndarray):
        self.order = np.argsort(p, kind="stable")
        s = p[self.order]
        self.starts = np.flatnonzero(np.r_[True, s[1:] != s[:-1]])
        self.pos = y[self.order]

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        """counts int[b, n] -> AUC float[b], NaN where a resample holds one class."""
        w = counts[:, self.order]
        pos = np.add.reduceat(w * self.pos, self.starts, axis=1)
        neg = np.add.reduceat(w * ~self.pos, self.starts, axis=1)
        below = np.cumsum(neg, axis=1) - neg
        wins = (pos * (2 * below + neg)).sum(axis=1)  # twice the Mann-Whitney count: integers, so exact
        pairs = pos.sum(axis=1) * neg.sum(axis=1)
        with np.errstate(invalid="ignore"):
            return wins / (2 * pairs)


def _percentiles(estimate: float, values: np.ndarray, level: float) -> Interval:
    kept = values[~np.isnan(values)]
    if not kept.size:
        raise ValueError(f"bootstrap: all {values.size} resamples held a single class")
    low, high = np.quantile(kept, ((1 - level) / 2, (1 + level) / 2))
    return Interval(estimate, float(low), float(high), kept.size, values.size - kept.size, level)


def auc_ci(y, p, n: int = 1000, seed: int = 0, *, level: float = 0.95) -> Interval:
    """AUC with its percentile interval over `n` patient resamples."""
    y = _both(y)
    p = _scores(p, y.size)
    rank = _Ranker(y, p)
    return _percentiles(auc(y, p), np.concatenate([rank(c) for c in _resamples(y.size, n, seed)]), level)


def paired_auc_difference(y, p1, p2, n: int = 1000, seed: int = 0, *, level: float = 0.95) -> Interval:
    """auc(y, p1) - auc(y, p2) with its interval, both methods scored on the same resamples."""
    y = _both(y)
    p1, p2 = _scores(p1, y.size, "p1"), _scores(p2, y.size, "p2")
    r1, r2 = _Ranker(y, p1), _Ranker(y, p2)
    values = np.concatenate([r1(c) - r2(c) for c in _resamples(y.size, n, seed)])
    return _percentiles(auc(y, p1) - auc(y, p2), values, level)


def delong(y, p1, p2, *, level: float = 0.95) -> DeLong:
    """Normal interval and two-sided p-value of auc(p1) - auc(p2), the closed-form check of the bootstrap.

    Placement values come from midranks (Sun & Xu 2014), O(n log n). Methods that rank alike have se 0 and p-value 1.
    """
    y = _both(y)
    pos, neg = int(y.sum()), int((~y).sum())
    if min(pos, neg) < 2:
        raise ValueError(f"delong: got {pos} positive and {neg} negative rows, expected at least 2 of each")
    aucs, v10, v01 = [], [], []
    for name, p in (("p1", p1), ("p2", p2)):
        p = _scores(p, y.size, name)
        overall = _scipy.rankdata(p)
        v10.append((overall[y] - _scipy.rankdata(p[y])) / neg)  # share of negatives below each positive
        v01.append(1 - (overall[~y] - _scipy.rankdata(p[~y])) / pos)
        aucs.append(float(v10[-1].mean()))
    d10, d01 = v10[0] - v10[1], v01[0] - v01[1]
    se = float(np.sqrt(d10.var(ddof=1) / pos + d01.var(ddof=1) / neg))
    diff = aucs[0] - aucs[1]
    if se == 0:
        return DeLong(*aucs, diff, se, diff, diff, 1.0 if diff == 0 else 0.0)
    half = float(_scipy.norm.ppf((1 + level) / 2)) * se
    return DeLong(*aucs, diff, se, diff - half, diff + half, float(2 * _scipy.norm.sf(abs(diff) / se)))


def reliability(y, p, bins: int = 15) -> Reliability:
    """Bins of equal width on P(y = 1), half open (lo, hi]. Publish `bins` with the ECE: it depends on it."""
    y = _outcomes(y)
    p = _scores(p, y.size, unit=True)
    if bins < 1:
        raise ValueError(f"bins: got {bins}, expected at least 1")
    edges = np.arange(bins + 1) / bins
    which = np.searchsorted(edges[1:], p, side="left")
    count = np.bincount(which, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_p = np.bincount(which, p, bins) / count
        mean_y = np.bincount(which, y, bins) / count
    full = count > 0
    gap = float((count[full] * np.abs(mean_p[full] - mean_y[full])).sum() / y.size)
    return Reliability(edges[:-1], edges[1:], count, mean_p, mean_y, gap)


def ece(y, p, bins: int = 15) -> float:
    """Expected calibration error: sum over bins of share x |mean p - mean y|; `reliability` gives the bins."""
    return reliability(y, p, bins).ece


def accuracy(y, p, threshold: float = 0.5) -> float:
    """Share of rows where (p >= threshold) == y; a probability at the threshold counts as positive (S13)."""
    y = _outcomes(y)
    return float(((_scores(p, y.size) >= threshold) == y).mean())


def wilson(k: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of the share k / n (Wilson 1927)."""
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"wilson: got {k} of {n}, expected 0 <= k <= n and n >= 1")
    z = float(_scipy.norm.ppf((1 + level) / 2))
    share, z2n = k / n, z * z / n
    mid = (share + z2n / 2) / (1 + z2n)
    half = z / (1 + z2n) * float(np.sqrt(share * (1 - share) / n + z2n / (4 * n)))
    return max(0.0, mid - half), min(1.0, mid + half)


def mean_ci(values: Sequence[float], *, level: float = 0.95) -> Mean:
    """Mean over independent runs (seeds) with the t interval on n - 1 degrees of freedom."""
    v = np.asarray(values, np.float64)
    if v.ndim != 1 or v.size == 0 or not np.isfinite(v).all():
        raise ValueError(f"values: got {values!r}, expected a non-empty list of finite numbers")
    if v.size == 1:
        return Mean(float(v[0]), None, None, None, 1)
    sd = float(v.std(ddof=1))
    half = float(_scipy.t.ppf((1 + level) / 2, v.size - 1)) * sd / np.sqrt(v.size)
    return Mean(float(v.mean()), float(v.mean() - half), float(v.mean() + half), sd, v.size)


# ---- paired comparisons of two systems on the same questions --------------------------------------------------------

_ENUMERATE = 16  # up to this many units all sign patterns are tried


class McNemar(NamedTuple):
    """Two 0/1 scores on the same rows: `b` rows only the first has right, `c` only the second.

    p_value: two-sided exact; difference = share right of the first minus the second, with Newcombe's interval.
    """

    b: int
    c: int
    n: int
    p_value: float
    difference: float
    low: float
    high: float


class SignFlip(NamedTuple):
    """Two-sided sign-flip test of a mean difference; `exact`: all 2^units patterns, else `flips` random ones."""

    estimate: float
    p_value: float
    units: int
    flips: int
    exact: bool


def mcnemar_p(b: int, c: int) -> float:
    """Exact two-sided McNemar p-value of `b` and `c` discordant pairs: min(1, 2 BinomCDF(min(b, c); b + c, 1/2))."""
    if b < 0 or c < 0:
        raise ValueError(f"mcnemar: got {b} and {c} discordant pairs, expected counts")
    return min(1.0, 2 * float(_scipy.binom.cdf(min(b, c), b + c, 0.5))) if b + c else 1.0


def newcombe(both: int, first: int, second: int, neither: int, *, level: float = 0.95) -> tuple[float, float, float]:
    """(difference, low, high) of two paired shares by Newcombe's tenth method (Stat. Med. 17, 2635-2650, 1998).

    The Wilson intervals of the two shares are combined; phi, corrected for continuity, takes care of their pairing.
    """
    n = both + first + second + neither
    if min(both, first, second, neither) < 0 or n < 1:
        raise ValueError(f"newcombe: got {(both, first, second, neither)}, expected counts with a sum of at least 1")
    right1, right2 = both + first, both + second
    p1, p2 = right1 / n, right2 / n
    (l1, u1), (l2, u2) = wilson(right1, n, level=level), wilson(right2, n, level=level)
    margins = right1 * (n - right1) * right2 * (n - right2)
    cross = both * neither - first * second
    cross = max(cross - n / 2, 0.0) if cross > 0 else float(cross)
    phi = cross / float(np.sqrt(margins)) if margins else 0.0

    def width(a: float, b: float) -> float:
        return float(np.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b)))

    difference = (first - second) / n
    return difference, difference - width(p1 - l1, u2 - p2), difference + width(u1 - p1, p2 - l2)


def mcnemar(first, second, *, level: float = 0.95) -> McNemar:
    """Compares two systems whose scores `first` and `second`, int[n] of 0/1, are right or wrong on the same rows."""
    x, y = _outcomes(first), _outcomes(second)
    if x.shape != y.shape:
        raise ValueError(f"second: got {y.size} rows, expected {x.size} as in first")
    b, c = int((x & ~y).sum()), int((~x & y).sum())
    both = int((x & y).sum())
    return McNemar(b, c, x.size, mcnemar_p(b, c), *newcombe(both, b, c, x.size - both - b - c, level=level))


def _labels(labels, n: int, name: str) -> np.ndarray:
    """Group numbers int[n], 0.. in the order of the sorted labels; None = one group for all."""
    if labels is None:
        return np.zeros(n, np.int64)
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(f"{name}: got shape {labels.shape}, expected ({n},) as d")
    return np.unique(labels, return_inverse=True)[1]


def _macro(weights: np.ndarray, d: np.ndarray, types: np.ndarray) -> np.ndarray:
    """Mean over types of the weighted mean of d in the type: weights [r, n] -> [r], NaN where a type has none."""
    out = np.zeros(len(weights))
    with np.errstate(invalid="ignore"):
        for t in range(int(types.max()) + 1):
            rows = types == t
            out += (weights[:, rows] @ d[rows]) / weights[:, rows].sum(axis=1)
    return out / (int(types.max()) + 1)


def macro_mean(d, types=None) -> float:
    """Mean over types of the mean of d float[n] in the type; without `types`, the mean."""
    d = _scores(d, np.size(d), "d")
    return float(_macro(np.ones((1, d.size)), d, _labels(types, d.size, "types"))[0])


def paired_bootstrap(d, types=None, clusters=None, n: int = 10_000, seed: int = 0, *, level: float = 0.95) -> Interval:
    """Percentile interval of `macro_mean(d, types)`, d float[q] the paired differences of one evaluation pass.

    Questions are drawn with replacement inside each type; with `clusters` (patients) whole clusters are drawn instead,
    and a draw that lacks a type is skipped.
    """
    d = _scores(d, np.size(d), "d")
    if d.size == 0:
        raise ValueError("d: got no rows, expected at least 1")
    kinds = _labels(types, d.size, "types")
    if clusters is None:
        within = [d[kinds == t] for t in range(int(kinds.max()) + 1)]
        values = np.mean([np.concatenate([c @ x / x.size for c in _resamples(x.size, n, seed + t)])
                          for t, x in enumerate(within)], axis=0)
    else:
        groups = _labels(clusters, d.size, "clusters")
        sums, sizes = np.zeros((2, int(groups.max()) + 1, int(kinds.max()) + 1))  # by cluster and type, not by question
        np.add.at(sums, (groups, kinds), d)
        np.add.at(sizes, (groups, kinds), 1)
        with np.errstate(invalid="ignore"):
            values = np.concatenate([((c @ sums) / (c @ sizes)).mean(axis=1) for c in _resamples(len(sums), n, seed)])
    return _percentiles(macro_mean(d, types), values, level)


def sign_flip(d, types=None, clusters=None, n: int = 10_000, seed: int = 0) -> SignFlip:
    """Two-sided permutation test of `macro_mean(d, types)` = 0: the sign of each difference is flipped at random.

    With `clusters` all differences of a cluster flip together. Up to 16 units all patterns are enumerated and p is
    their share that reaches the observed value; above, p = (1 + hits) / (n + 1) over n random patterns.
    """
    d = _scores(d, np.size(d), "d")
    if d.size == 0:
        raise ValueError("d: got no rows, expected at least 1")
    kinds = _labels(types, d.size, "types")
    share = np.zeros(d.size)  # each row's part of the macro mean
    for t in range(int(kinds.max()) + 1):
        share[kinds == t] = 1 / ((kinds == t).sum() * (int(kinds.max()) + 1))
    groups = np.arange(d.size) if clusters is None else _labels(clusters, d.size, "clusters")
    part = np.bincount(groups, d * share)
    observed = float(part.sum())
    least = abs(observed) - 1e-12  # equal sums in another order of addition count as reached
    if part.size <= _ENUMERATE:
        signs = 1 - 2 * (np.arange(2 ** part.size)[:, None] >> np.arange(part.size) & 1)
        hits = int((np.abs(signs @ part) >= least).sum())
        return SignFlip(observed, hits / len(signs), part.size, len(signs), True)
    rng, hits, block = np.random.default_rng(seed), 0, max(1, _BLOCK // part.size)
    for start in range(0, n, block):
        signs = 1 - 2 * rng.integers(0, 2, (min(block, n - start), part.size))
        hits += int((np.abs(signs @ part) >= least).sum())
    return SignFlip(observed, (1 + hits) / (n + 1), part.size, n, False)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given."""
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values: got {p_values!r}, expected a list of numbers in [0, 1]")
    order = np.argsort(p, kind="stable")
    out = np.empty_like(p)
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return out.tolist()
