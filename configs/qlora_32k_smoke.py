"""The fine-tuned baselines' recipe made small: an NF4 base of SmolLM2-135M, or of a random model over bytes.

    python launch/run.py --config=configs/qlora_32k_smoke.py --out=runs/qlora_32k_smoke

Hardware: two CPU cores. Expected: about a minute; the loss falls by more than half (of the random model, by a fifth).
"""
import dataclasses

from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.packaged import has_smollm2
from core_jax.recipe import ATTENTION, BaseConfig, DataConfig, Recipe


def get_config() -> Recipe:
    recipe = Recipe(
        base=BaseConfig(path="tiny", dtype="float32", quantise="nf4"),
        data=DataConfig(train="exercise:predict:256:0", val="exercise:predict:16:1", too_long="cut"),
        lora=LoraConfig(ATTENTION, rank=16, alpha=32.0, dropout=0.05),
        train=TuneConfig(lr=1e-2, batch=32, length=160, rows=8, epochs=3, warmup_steps=3, eval_every=8, remat="full"))
    if not has_smollm2():
        return recipe
    return dataclasses.replace(
        recipe, base=dataclasses.replace(recipe.base, path="smollm2"),
        data=dataclasses.replace(recipe.data, train="exercise:predict:48:0"),
        train=dataclasses.replace(recipe.train, lr=2e-3, batch=8, length=128, rows=2, epochs=1, eval_every=3))
