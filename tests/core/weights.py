"""Random parameters drawn by NumPy: nothing at zero or one, and nothing to compile."""
from __future__ import annotations

from typing import Any

import numpy as np

from core_jax import params as P


def random_weights(spec: P.Tree, seed: int = 0, scale: float = 0.2) -> P.Tree:
    """float32 arrays of a spec tree; norm scales are around 1, everything else around 0."""
    rng, out = np.random.default_rng(seed), {}
    for path, s in P.leaves(spec):
        node: dict[str, Any] = out
        *parents, name = path.split("/")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = (scale * rng.normal(size=s.shape) + (1.0 if s.init == "ones" else 0.0)).astype(np.float32)
    return out
