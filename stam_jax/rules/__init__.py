"""The writer that needs no model: deterministic rules over a clinical vocabulary. Imports without jax."""
from stam_jax.rules.writer import RulesWriter, names

__all__ = ["RulesWriter", "names"]
