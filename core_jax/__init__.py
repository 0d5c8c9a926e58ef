"""What both systems share: records, text, models, embedding, storage, statistics. Imports no system."""
import jax_kernels  # noqa: F401  (appends the XLA flag before the backend starts)
