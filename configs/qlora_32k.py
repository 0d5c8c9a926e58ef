"""The fine-tuned baselines of the EviGen paper (5.4): Llama-3.1-8B-Instruct, NF4 base, rank 16, a Yes/No answer.

    python launch/run.py --config=configs/qlora_32k.py --set=base.path=path/to/Llama-3.1-8B-Instruct \
        --set=data.train=train.jsonl --set=data.val=val.jsonl --out=runs/qlora_32k

Full context: the record's most recent 32K tokens (longer rows are cut at the front, and counted). With retrieved
evidence in place of the record: --set=train.length=4096 --set=train.rows=8.

Hardware: the paper: H200, 35 to 80 GPU hours at 32K. Time here: unmeasured. Paper's AUC (mortality, autism, ADHD): 32K
0.881, 0.663, 0.560; retrieved 0.864, 0.689, 0.647.

From the paper: base, NF4, rank 16, length. Alpha, dropout, targets, batch and learning rate are its verifier's, for the
baselines it gives none.
"""
from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.recipe import ATTENTION, BaseConfig, DataConfig, Recipe


def get_config() -> Recipe:
    return Recipe(
        base=BaseConfig(path="Llama-3.1-8B-Instruct", quantise="nf4"),
        data=DataConfig(train="train.jsonl", val="val.jsonl", too_long="cut"),
        lora=LoraConfig(ATTENTION, rank=16, alpha=32.0, dropout=0.05),
        train=TuneConfig(lr=1.2e-4, batch=64, length=32768, rows=1, epochs=2, warmup_steps=100, eval_every=100,
                         remat="full"))
