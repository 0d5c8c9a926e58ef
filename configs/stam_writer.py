"""One of STAM's write modules (extractor, relation linker, updater): Qwen3-1.7B with an adapter of its own.

    python launch/run.py --config=configs/stam_writer.py --set=base.path=path/to/Qwen3-1.7B \
        --set=data.train=extract.jsonl --set=data.val=extract_val.jsonl --out=runs/stam_extract

Three runs, one a module; the adapter folders serve side by side over one base. Patients of training and validation are
disjoint, for ClinicalBench in five folds: the files decide that.

Hardware: one accelerator with 24 GB. Time and loss: unmeasured; the paper names base and adapters and gives no rank,
rate or length. Those here are choices.
"""
from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.recipe import ALL, BaseConfig, DataConfig, Recipe


def get_config() -> Recipe:
    return Recipe(
        base=BaseConfig(path="Qwen3-1.7B"),
        data=DataConfig(train="extract.jsonl", val="extract_val.jsonl", too_long="skip"),
        lora=LoraConfig(ALL, rank=16, alpha=32.0, dropout=0.05),
        train=TuneConfig(lr=2e-4, batch=32, length=4096, rows=4, epochs=3, warmup_steps=50, remat="projections"))
