"""LoRA steps on a Llama of SmolLM2's widths (4 of its 30 layers, whole vocabulary), float32: ours against `peft`.

Rank 16 on q, k, v, o, AdamW, no dropout, the same weights, tokens and loss. `full`: every token counts. `prompt`: a
quarter counts, as where prompts are masked. `ragged`: 8 texts of 24 to 192 tokens, a quarter of each counts; peft's
batches are padded to the longest text, as its default collator does, ours are packed. The result is the losses.
"""
from __future__ import annotations

import numpy as np

STEPS, LR, RANK, ALPHA, LENGTH = 2, 1e-3, 16, 32.0, 192
CASES = {
    "full": {"lengths": [LENGTH] * 3, "part": 1.0, "per_round": f"{STEPS} steps of 576 tokens"},
    "prompt": {"lengths": [LENGTH] * 3, "part": 0.25, "per_round": f"{STEPS} steps of 576 tokens"},
    "ragged": {"lengths": [24 + 24 * i for i in range(8)], "part": 0.25, "per_round": f"{STEPS} steps of 8 texts"},
}


def model():
    import dataclasses

    from core_jax.models.presets import SMOLLM2_135M
    return dataclasses.replace(SMOLLM2_135M, num_layers=4)


def weights():
    """The base's tree as NumPy arrays."""
    from core_jax import params as P
    from core_jax.models import decoder

    rng, out = np.random.default_rng(0), {}
    for path, s in P.leaves(decoder.spec(model())):
        *parents, name = path.split("/")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        draw = np.float32(0.02) * rng.standard_normal(s.shape, np.float32)
        node[name] = np.ones(s.shape, np.float32) if s.init == "ones" else draw
    return out


def starts(config):
    """Adapters' A, drawn by NumPy; B is zero."""
    from core_jax import lora
    from core_jax.models import decoder

    rng = np.random.default_rng(1)
    return {path: {"a": rng.uniform(-1, 1, ab["a"].shape).astype(np.float32) / np.sqrt(ab["a"].shape[2]),
                   "b": np.zeros(ab["b"].shape, np.float32)}
            for path, ab in lora.spec(config, decoder.spec(model()))["lora"].items()}


def texts(case: dict) -> list[list[tuple[np.ndarray, int]]]:
    """For each step (ids, first token that counts) of each text."""
    rng = np.random.default_rng(2)
    return [[(rng.integers(0, 49152, n).astype(np.int32), n - max(1, int(n * case["part"])) if case["part"] < 1 else 0)
             for n in case["lengths"]] for _ in range(STEPS)]


def settings():
    from core_jax.lora import LoraConfig
    from core_jax.recipe import ATTENTION
    return LoraConfig(ATTENTION, rank=RANK, alpha=ALPHA)


def ours(case: dict):
    import functools
    import math

    import jax
    import jax.numpy as jnp

    from core_jax.finetune import loss_sum
    from core_jax.packing import Example, pack
    from core_jax.train import AccumulatedStep, adamw, new_state

    config, base = settings(), jax.tree.map(jnp.asarray, weights())
    optimizer = adamw(LR, weight_decay=0.0, decays=lambda path: True)
    step = AccumulatedStep(functools.partial(loss_sum, model=model(), config=config), optimizer)
    trained = jax.tree.map(jnp.asarray, {"lora": starts(config), "tables": {}})
    batches = [[Example.causal(ids[:first].tolist(), ids[first:].tolist()) for ids, first in batch]
               for batch in texts(case)]
    rows = math.ceil(sum(case["lengths"]) / LENGTH)
    key = jax.random.key(0)

    def run():
        state, losses = new_state(trained, optimizer), []
        for batch in batches:
            state, out = step(state, base, key, pack(batch, LENGTH).blocks(rows))
            losses.append(float(out["loss"]))
        return np.asarray(losses)

    return run


def peft(case: dict):
    import tempfile

    import peft as P
    import torch
    import transformers

    from core_jax.ckpt import hf
    from core_jax.models import decoder

    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        hf.write(folder, weights(), decoder.hf_sources(model()), model().to_hf())
        base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wrapped = P.get_peft_model(base, P.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"))
    names = {"wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj"}
    layer = "base_model.model.model.layers.{}.self_attn.{}.lora_{}.default.weight"
    start = {layer.format(i, names[path[-2:]], x.upper()): torch.tensor(ab[x][i])
             for path, ab in starts(settings()).items() for x in "ab" for i in range(model().num_layers)}
    batches = []
    for batch in texts(case):
        longest = max(len(ids) for ids, _ in batch)
        ids, labels, mask = (np.full((len(batch), longest), fill, np.int64) for fill in (0, -100, 0))
        for row, (text, first) in enumerate(batch):
            ids[row, :len(text)], mask[row, :len(text)], labels[row, first:len(text)] = text, 1, text[first:]
        arrays = {"input_ids": ids, "labels": labels, "attention_mask": mask}
        batches.append({name: torch.tensor(x) for name, x in arrays.items()})
    assert sorted(start) == sorted(name for name, p in wrapped.named_parameters() if p.requires_grad)

    def run():
        wrapped.load_state_dict(start, strict=False)
        trained = [p for p in wrapped.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0, fused=True)
        losses = []
        for batch in batches:
            loss = wrapped(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return np.asarray(losses)

    wrapped.train()
    return run


CONTENDERS = {"ours": ours, "peft": peft}
