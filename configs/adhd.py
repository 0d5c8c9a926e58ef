"""ADHD early-risk prediction as the paper trains it: 6 + 6 queries, AdamW 1e-4; input before 36 months of age (F.2).

    evigen cohort meds --input meds/ --spec adhd --out runs/adhd/cohort
    evigen embed --cohort runs/adhd/cohort --out runs/adhd/store --set encoder.name=path/to/encoder --set encoder.dtype=bfloat16
    evigen train --config configs/adhd.py --cohort runs/adhd/cohort --store runs/adhd/store --out runs/adhd/run

Hardware: one accelerator. Paper: AUC 0.704 [0.680, 0.728] over three runs on an institutional cohort that cannot be shared.
"""
from evigen_jax.config import Config
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def get_config() -> Config:
    return Config(model=EviGenConfig(d=4096, n_note=6, n_code=6), train=TrainConfig(lr=1e-4))
