"""The process verifier of the EviGen paper (appendix B): Llama-3.1-8B-Instruct, rank 16, alpha 32, 1.2e-4, batch 64.

    python launch/run.py --config=configs/verifier.py --set=base.path=path/to/Llama-3.1-8B-Instruct \
        --set=data.train=train.jsonl --set=data.val=val.jsonl --out=runs/verifier

Hardware: one accelerator with 80 GB, or several (the paper: four H200). Time and loss: unmeasured. Paper: 167,400
samples, at most 2 epochs with early stopping (the best was always the first), step F1 0.947 at 0.5 after calibration.
Rows are examples.py's "pieces": notes_only loss, so everything after the context end counts.

The paper trains embeddings and head whole (--set=lora.train_full_embeddings=true); here the rows of the 13 new tokens
alone. The paper has an NF4 base (--set=base.quantise=nf4) and 8-bit paged AdamW; here bfloat16, since a base of 16 GB
leaves room on such a device, and AdamW with float32 moments, since optax has no 8-bit ones. Weight decay and clipping
are not in the paper.
"""
from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.recipe import ATTENTION, BaseConfig, DataConfig, Recipe

# step, completeness, end_of_note, context_end, section; seven labels; the placeholder
NEW_TOKENS = tuple(f"<|reserved_special_token_{i}|>" for i in range(100, 113))


def get_config() -> Recipe:
    return Recipe(
        base=BaseConfig(path="Llama-3.1-8B-Instruct", new_tokens=NEW_TOKENS),
        data=DataConfig(train="train.jsonl", val="val.jsonl", too_long="skip"),
        lora=LoraConfig(ATTENTION, rank=16, alpha=32.0, dropout=0.05, tables=("embed/token", "head")),
        train=TuneConfig(lr=1.2e-4, batch=64, length=2048, rows=8, epochs=2, warmup_steps=100, eval_every=500,
                         patience=3, remat="projections"))
