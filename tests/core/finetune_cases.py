"""A decoder of a few thousand parameters and examples that it learns; `python finetune_cases.py OUT` trains it."""
from __future__ import annotations

import numpy as np

from core_jax import params as P
from core_jax.finetune import TuneConfig, fit
from core_jax.lora import LoraConfig
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.packing import Example
from core_jax.rope import Default

MODEL = DecoderConfig(
    family="llama", vocab_size=40, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=48, rms_norm_eps=1e-6, tie_embeddings=False, qk_norm=False, rope=Default(1e4), max_positions=64)
SPEC = decoder.spec(MODEL)
CONFIG = LoraConfig(tuple(f"layers/{n}" for n in ("wq", "wk", "wv", "wo")), rank=4, dropout=0.1,
                    tables=("embed/token", "head"), rows=(38, 39))
TUNE = TuneConfig(lr=2e-2, batch=6, length=24, rows=2, epochs=3, warmup_steps=2, eval_every=3, save_every=2,
                  remat="full", peak_flops=1e9)


def base() -> P.Tree:
    import jax
    return P.init(SPEC, jax.random.key(0))


def examples(count: int, seed: int) -> list[Example]:
    """Counting upwards from a random number; a new token tells whether it was even."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        first, n = int(rng.integers(0, 20)), int(rng.integers(3, 9))
        out.append(Example.causal(list(range(first, first + n)), [38 + first % 2]))
    return out


def run(out, **options):
    return fit(MODEL, base(), CONFIG, examples(26, 0), examples(8, 1), TUNE, out, progress=False, **options)


if __name__ == "__main__":
    import sys

    run(sys.argv[1], on_update=lambda row: print(row["update"], flush=True))
