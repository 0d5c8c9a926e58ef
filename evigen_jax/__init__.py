"""EviGen: evidence that predicts an outcome, and a rationale whose every quote is checked against its source."""
import core_jax  # noqa: F401  (appends the XLA flag before the backend starts)
