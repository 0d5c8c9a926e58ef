"""MIMIC-IV one-year mortality as the paper trains it (A.1.2, A.1.4): 4 + 4 queries, K = 4, hidden 1,024, AdamW 1e-3, batch 16.

    evigen cohort mimic_iv --input mimic-iv-3.1/ --out runs/mortality/cohort
    evigen embed --cohort runs/mortality/cohort --out runs/mortality/store --set encoder.name=path/to/encoder --set encoder.dtype=bfloat16
    evigen train --config configs/mortality.py --cohort runs/mortality/cohort --store runs/mortality/store --out runs/mortality/run

Hardware: one accelerator, or a CPU. Paper: AUC 0.871 [0.860, 0.881] over three runs with Qwen3-Embedding-8B (d = 4,096); not
reproduced here, the notes need PhysioNet credentials. Ablations: --set model.gating=false, and with --set model.lambda_aux=0.
"""
from evigen_jax.config import Config
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


def get_config() -> Config:
    return Config(model=EviGenConfig(d=4096, n_note=4, n_code=4), train=TrainConfig(lr=1e-3))
