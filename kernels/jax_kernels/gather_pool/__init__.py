"""K2: softmax-weighted mean of gathered rows."""
from jax_kernels.gather_pool.api import gather_pool

__all__ = ["gather_pool"]
