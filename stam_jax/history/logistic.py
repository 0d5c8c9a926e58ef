"""L2-regularised logistic regression on standardised features, fitted to its optimum. NumPy and SciPy."""
from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from core_jax.records import RecordError
from stam_jax.graph import canonical


@dataclasses.dataclass(frozen=True)
class Logistic:
    """p(x) = sigmoid(bias + weights . (x - mean) / scale). mean, scale, weights: as many floats as features."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, *, l2: float = 1.0) -> Logistic:
        """Minimises sum log loss + l2/2 |weights|^2; the bias is free.

        x: float [n, features]; y: [n] of 0 and 1. A feature that does not vary gets weight 0. Where all y are alike the
        answer is their share, drawn towards 1/2 by half a case of each.

        Raises: ValueError: other shapes, no rows, numbers that are not finite, other labels, l2 not above 0.
        """
        x, y = np.asarray(x, np.float64), np.asarray(y)
        if x.ndim != 2 or y.shape != (len(x),) or not len(x):
            raise ValueError(f"got x {list(x.shape)} and y {list(y.shape)}, expected [n, features] and [n], n >= 1")
        if not np.isfinite(x).all():
            raise ValueError(f"x: row {int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])} is not finite")
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y: got {np.unique(y)[:5].tolist()}, expected 0 and 1")
        if not l2 > 0:
            raise ValueError(f"l2: got {l2}, expected a number above 0")
        y = y.astype(np.float64)
        mean, scale = x.mean(axis=0), x.std(axis=0)
        still = scale <= 1e-12 * np.maximum(1.0, np.abs(mean))
        scale[still] = 1.0
        z = np.where(still, 0.0, (x - mean) / scale)
        yes = float(y.sum())
        start = np.zeros(z.shape[1] + 1)
        start[-1] = np.log((yes + 0.5) / (len(y) - yes + 0.5))
        if not 0 < yes < len(y):
            return cls._of(mean, scale, start)

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            logits = z @ theta[:-1] + theta[-1]
            over = expit(logits) - y
            value = float(np.logaddexp(0.0, logits).sum() - y @ logits + l2 / 2 * theta[:-1] @ theta[:-1])
            return value, np.append(z.T @ over + l2 * theta[:-1], over.sum())

        return cls._of(mean, scale, minimize(loss, start, jac=True, method="L-BFGS-B",
                                             options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000}).x)

    @classmethod
    def _of(cls, mean: np.ndarray, scale: np.ndarray, theta: np.ndarray) -> Logistic:
        return cls(tuple(mean.tolist()), tuple(scale.tolist()), tuple(theta[:-1].tolist()), float(theta[-1]))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """x: [n, features] -> P(y = 1): float64 [n]. Raises: ValueError: another number of features."""
        x = np.asarray(x, np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.weights):
            raise ValueError(f"x: got {list(x.shape)}, expected [n, {len(self.weights)}]")
        return expit((x - np.asarray(self.mean)) / np.asarray(self.scale) @ np.asarray(self.weights) + self.bias)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "scale": list(self.scale), "weights": list(self.weights), "bias": self.bias}

    @classmethod
    def from_dict(cls, raw: Any, where: str = "logistic") -> Logistic:
        """Raises: RecordError."""
        out = canonical.from_dict(cls, raw, where)
        parts = {name: numbers(getattr(out, name), f"{where}.{name}") for name in ("mean", "scale", "weights")}
        if not len(parts["mean"]) == len(parts["scale"]) == len(parts["weights"]):
            raise RecordError("got vectors of different lengths", field=where)
        if not all(s > 0 for s in parts["scale"]):
            raise RecordError("got a scale that is not above 0", field=f"{where}.scale")
        return cls(**parts, bias=numbers([out.bias], f"{where}.bias")[0])


def numbers(raw: Any, field: str) -> tuple[float, ...]:
    """A list of finite numbers as floats. Raises: RecordError."""
    if not isinstance(raw, list):
        raise RecordError(f"got {type(raw).__name__}, expected a list of numbers", field=field)
    for i, value in enumerate(raw):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
            raise RecordError(f"got {value!r:.80}, expected a finite number", field=f"{field}[{i}]")
    return tuple(map(float, raw))
