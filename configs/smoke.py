"""Any recipe made small enough for two CPU cores: narrow experts, two epochs. Expected: finishes within a minute, AUC about chance.

    evigen cohort planted --out runs/smoke/cohort --set cohort.planted_patients=60
    evigen embed --config configs/smoke.py --cohort runs/smoke/cohort --out runs/smoke/store
    evigen train --config configs/smoke.py --cohort runs/smoke/cohort --store runs/smoke/store --out runs/smoke/run --runs 1
"""
from evigen_jax.config import Config, EncoderConfig
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def get_config() -> Config:
    return Config(encoder=EncoderConfig(name="hash:64"), model=EviGenConfig(d=64, n_note=3, n_code=2, d_hidden=16),
                  train=TrainConfig(epochs=2, warmup_steps=5))
