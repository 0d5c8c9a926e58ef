"""The planted cohort (core_jax/synth): 25 factors seen through 24 note and 12 code queries.

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
    return Config(model=EviGenConfig(d=384, n_note=24, n_code=12, d_hidden=64, temperature=0.1),
                  train=TrainConfig(lr=1e-3, warmup_steps=100, epochs=20, patience=3))
