"""K3: one matrix product per expert over all patients."""
from jax_kernels.expert_matmul.api import expert_matmul

__all__ = ["expert_matmul"]
