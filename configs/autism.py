"""Autism early-risk prediction as the paper trains it: 6 + 6 queries, AdamW 3e-4; input before 18 months of age (F.2).

    evigen cohort meds --input meds/ --spec autism --out runs/autism/cohort
    evigen embed --cohort runs/autism/cohort --out runs/autism/store --set encoder.name=path/to/encoder --set encoder.dtype=bfloat16
    evigen train --config configs/autism.py --cohort runs/autism/cohort --store runs/autism/store --out runs/autism/run

Hardware: one accelerator. Paper: AUC 0.730 [0.705, 0.754] over three runs on an institutional cohort that cannot be shared.
"""
from evigen_jax.config import Config
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def get_config() -> Config:
    return Config(model=EviGenConfig(d=4096, n_note=6, n_code=6), train=TrainConfig(lr=3e-4))
