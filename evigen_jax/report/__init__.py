"""The rationale report: one offline HTML page a patient and a cohort index, each with its JSON beside it."""

from evigen_jax.report.write import write_report

__all__ = ["write_report"]
