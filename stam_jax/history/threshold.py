"""The threshold of the history gate: the exact optimum of score less cost over every cut of the probabilities."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
_TIE = 1e-12  # sums that differ by less differ by rounding


class Cut(NamedTuple):
    """HISTORY is served where p >= threshold. value: J of the threshold. both: how many questions it serves BOTH."""

    threshold: float
    value: float
    both: int


def macro_weights(types: Sequence[str]) -> np.ndarray:
    """Weights under which a sum is the mean over types of the mean in the type: float [n]."""
    names, which, counts = np.unique(np.asarray(types), return_inverse=True, return_counts=True)
    return 1.0 / (len(names) * counts[which])


def best(p, score_active, score_both, cost_active, cost_both, *, lam: float = 0.0, weights=None) -> Cut:
    """The t in {-inf} u p u {+inf} that maximises

        J(t) = sum_q w_q [ r_q(a) - lam c_q(a) / c_q(BOTH) ],   a = BOTH where p_q >= t, else ACTIVE

    by one sort and prefix sums; of equal optima the largest t, which serves the fewest tokens.

    All arguments: float [n]; costs above 0. weights: 1/n each unless given.
    Raises: ValueError: other shapes, no question, numbers that are not finite, a cost of 0, lam below 0.
    """
    p = np.asarray(p, np.float64)
    weights = np.full(p.shape, 1.0 / max(p.size, 1)) if weights is None else weights
    columns = {"p": p, "score_active": score_active, "score_both": score_both, "cost_active": cost_active,
               "cost_both": cost_both, "weights": weights}
    columns = {name: np.asarray(c, np.float64) for name, c in columns.items()}
    for name, c in columns.items():
        if c.shape != (p.size,) or not p.size or not np.isfinite(c).all():
            raise ValueError(f"{name}: got shape {c.shape}, expected [{p.size}] finite numbers, one a question")
    cheapest = min(columns["cost_active"].min(), columns["cost_both"].min())
    if not cheapest > 0 or not lam >= 0:
        raise ValueError(f"got costs from {cheapest} and lam {lam}, expected costs above 0 and lam >= 0")
    w, share = columns["weights"], columns["cost_active"] / columns["cost_both"]
    active = w * (columns["score_active"] - lam * share)
    gain = w * (columns["score_both"] - lam) - active
    order = np.argsort(-p, kind="stable")
    last = np.flatnonzero(np.append(p[order][1:] != p[order][:-1], True))  # of each run of equal p, from the largest
    thresholds = np.concatenate([[np.inf], p[order][last], [-np.inf]])
    served = np.concatenate([[0], last + 1, [p.size]])
    values = active.sum() + np.concatenate([[0.0], np.cumsum(gain[order])[last], [gain[order].sum()]])
    at = int(np.flatnonzero(values >= values.max() - _TIE)[0])
    return Cut(float(thresholds[at]), float(values[at]), int(served[at]))
