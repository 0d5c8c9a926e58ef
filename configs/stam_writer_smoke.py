"""A STAM write module's recipe made small: SmolLM2-135M where its package is installed, else a random model over bytes.

    python launch/run.py --config=configs/stam_writer_smoke.py --out=runs/stam_writer_smoke

Hardware: two CPU cores. Expected: about a minute; the loss falls by more than half (of the random model, by a fifth).
"""
import dataclasses

from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.packaged import has_smollm2
from core_jax.recipe import ALL, BaseConfig, DataConfig, Recipe


def get_config() -> Recipe:
    recipe = Recipe(
        base=BaseConfig(path="tiny", dtype="float32"),
        data=DataConfig(train="exercise:write:256:0", val="exercise:write:16:1", too_long="skip"),
        lora=LoraConfig(ALL, rank=16, alpha=32.0, dropout=0.05),
        train=TuneConfig(lr=1e-2, batch=32, length=128, rows=8, epochs=3, warmup_steps=3, eval_every=8))
    if not has_smollm2():
        return recipe
    return dataclasses.replace(
        recipe, base=dataclasses.replace(recipe.base, path="smollm2"),
        data=dataclasses.replace(recipe.data, train="exercise:write:48:0"),
        train=dataclasses.replace(recipe.train, lr=1e-3, batch=6, rows=2, epochs=1, eval_every=4))
