"""K1: the K best rows of every segment for every query."""
from jax_kernels.segment_topk.api import segment_topk

__all__ = ["segment_topk"]
