"""K1 and K2 fused: retrieval and attention pooling of the evidence selector, with its closed-form gradient."""
from jax_kernels.select_pool.api import select_pool
from jax_kernels.select_pool.sharded import select_pool_sharded

__all__ = ["select_pool", "select_pool_sharded"]
