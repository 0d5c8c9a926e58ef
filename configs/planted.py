"""The planted cohort (core_jax/synth): 25 factors with 17 phrasings each, seen through 64 note and 32 code queries.

    evigen cohort planted --out runs/planted/cohort
    evigen embed --cohort runs/planted/cohort --out runs/planted/store
    python launch/planted.py --cohort runs/planted/cohort --store runs/planted/store --out runs/planted/table

Hardware and time: two CPU cores. Expected numbers: the table in README.md.
What differs from the paper's settings, and why: docs/choices.md, "Planted cohort".
"""
from evigen_jax.config import Config
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def get_config() -> Config:
    return Config(model=EviGenConfig(d=384, n_note=64, n_code=32, d_hidden=32, temperature=0.1),
                  train=TrainConfig(lr=1e-3, warmup_steps=100, epochs=8, patience=3, query_init="kmeans"))
