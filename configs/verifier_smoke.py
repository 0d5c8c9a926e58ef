"""The verifier's recipe made small: SmolLM2-135M where its package is installed, else a random model over bytes.

    python launch/run.py --config=configs/verifier_smoke.py --out=runs/verifier_smoke

Hardware: two CPU cores. Expected: about a minute; the loss falls by more than half (of the random model, by a fifth).
"""
import dataclasses

from core_jax.finetune import TuneConfig
from core_jax.lora import LoraConfig
from core_jax.packaged import has_smollm2
from core_jax.recipe import ATTENTION, BaseConfig, DataConfig, Recipe

NEW_TOKENS = ("<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>", "<jupyter_script>")


def get_config() -> Recipe:
    recipe = Recipe(
        base=BaseConfig(path="tiny", dtype="float32", new_tokens=NEW_TOKENS),
        data=DataConfig(train="exercise:verify:256:0", val="exercise:verify:16:1", too_long="skip"),
        lora=LoraConfig(ATTENTION, rank=16, alpha=32.0, dropout=0.05, tables=("embed/token",)),
        train=TuneConfig(lr=1e-2, batch=32, length=96, rows=8, epochs=4, warmup_steps=3, eval_every=8))
    if not has_smollm2():
        return recipe
    return dataclasses.replace(
        recipe, base=dataclasses.replace(recipe.base, path="smollm2"),
        data=dataclasses.replace(recipe.data, train="exercise:verify:64:0"),
        train=dataclasses.replace(recipe.train, lr=2e-3, batch=8, length=88, rows=2, epochs=1, eval_every=4))
