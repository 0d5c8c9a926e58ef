"""Quadrature rules on [0, 1] for path integrals. NumPy, float64."""
from __future__ import annotations

from typing import Literal

import numpy as np

Rule = Literal["graded", "gauss_legendre", "trapezoid"]


def rule(name: Rule, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an n-point rule: `sum(weight * f(node))` stands for the integral of f over [0, 1].

    graded: Gauss-Legendre in u under alpha = u^4, weights 4 u^3 w. LayerNorm is scale invariant, so along a straight
    path from zero nearly all the change happens close to alpha = 0, where a uniform rule has too few nodes.
    gauss_legendre: the plain rule. trapezoid: n equidistant nodes, both ends included; n = 50 is what the authors released, and it misses most of that change.

    Returns: (node float64[n] ascending, weight float64[n]); the weights sum to 1.
    Raises: ValueError for an unknown name, n < 1, or a trapezoid of one node.
    """
    if n < (2 if name == "trapezoid" else 1):
        raise ValueError(f"quadrature {name!r}: got {n} nodes, expected at least {2 if name == 'trapezoid' else 1}")
    if name == "trapezoid":
        weight = np.full(n, 1.0 / (n - 1))
        weight[[0, -1]] /= 2
        return np.linspace(0.0, 1.0, n), weight
    if name not in ("graded", "gauss_legendre"):
        raise ValueError(f"quadrature: got {name!r}, expected graded, gauss_legendre or trapezoid")
    node, weight = np.polynomial.legendre.leggauss(n)
    node, weight = (node + 1) / 2, weight / 2
    return (node, weight) if name == "gauss_legendre" else (node**4, 4 * node**3 * weight)
