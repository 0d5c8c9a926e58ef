"""Pooling follows retrieval, so its shapes are those of segment_topk."""
from __future__ import annotations

from jax_kernels.segment_topk.cases import CASES, Case, by_name

__all__ = ["CASES", "Case", "by_name"]
