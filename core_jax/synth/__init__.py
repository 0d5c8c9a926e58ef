"""Planted cohort: seeded synthetic patients with gold evidence. Standard library and numpy only."""
from __future__ import annotations

from core_jax.synth.cohort import PlantedConfig, PlantedPatient, expected_auc, generate, write
from core_jax.synth.factors import FACTORS, PROFILES, VERSION, Factor
from core_jax.synth.queries import ORACLE_QUERIES, RAG_QUERIES_CODE, RAG_QUERIES_NOTE

__all__ = ["FACTORS", "ORACLE_QUERIES", "PROFILES", "RAG_QUERIES_CODE", "RAG_QUERIES_NOTE", "VERSION", "Factor",
           "PlantedConfig", "PlantedPatient", "expected_auc", "generate", "write"]
