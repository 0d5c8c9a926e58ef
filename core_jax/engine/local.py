"""An engine from what is on disk: a Hugging Face folder or a GGUF file, and LoRA adapters beside it."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from core_jax import lora
from core_jax import params as P
from core_jax.ckpt import model as checkpoint
from core_jax.engine.compute import Adapters
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.load import model_name
from core_jax.models import decoder


class Slots:
    """LoRA adapters in fixed slots of one room (`lora.slots`): every token pays for all of them, and none is compiled."""

    def __init__(self, names: Sequence[str], room: P.Tree, scales: jax.Array):
        """room: of `lora.slots`; scales: [n] float32."""
        self.names = tuple(names)
        self.arrays = {"room": room, "scales": scales}

    def bind(self, arrays: Any, slot: jax.Array, base: decoder.Dense) -> tuple[decoder.Dense, P.Tree]:
        return lora.bind_slots(arrays["room"], slot, arrays["scales"], base)

    @classmethod
    def of(cls, adapters: Mapping[str, tuple[lora.LoraConfig, P.Tree]], base: P.Tree) -> Slots:
        """adapters: name -> (config, trained tree). Raises: ValueError: one that trained tables, which a batch cannot
        have by row."""
        for name, (config, _) in adapters.items():
            if config.tables:
                raise ValueError(f"adapter {name!r}: trained {', '.join(config.tables)}, which a batch has once. Merge it "
                                 "into its base and serve that: python launch/merge.py --adapter=FOLDER --out=MODEL")
        targets = sorted({path for config, _ in adapters.values() for path in config.targets})
        rank, count = max(config.rank for config, _ in adapters.values()), len(adapters)
        room = P.init(lora.slots(base, targets, rank=rank, count=count), jax.random.key(0))
        for i, (_, trained) in enumerate(adapters.values()):
            room = lora.put(room, i, trained["lora"], count=count)
        return cls(tuple(adapters), room, jnp.asarray([c.scale for c, _ in adapters.values()], jnp.float32))


def load(
    path: str | os.PathLike, *, model: str | None = None, adapters: Mapping[str, str] | None = None,
    dtype: str = "float32", mesh: jax.sharding.Mesh | None = None, limits: Limits | None = None,
    **options: Any,
) -> Engine:
    """An engine for a model on disk.

    Args:
        model: its name; None = that of the folder or file.
        adapters: name -> PEFT folder.
        dtype: of the matrices.
        mesh: devices that share the model, by `decoder.rules`: heads over `tensor`, a step's tokens over `data`.
        options: of `Engine`.

    Raises:
        ValueError: whatever the folder, the file, an adapter or the limits lack; a tokenizer that does not fit.
    """
    config, tokenizer = checkpoint.describe(path)
    params = checkpoint.read(path, config, dtype=dtype, mesh=mesh)
    slots: Adapters | None = None
    if adapters:
        spec, sources = decoder.spec(config, dtype), decoder.hf_sources(config)
        slots = Slots.of({name: lora.read_peft(folder, spec, sources) for name, folder in adapters.items()}, spec)
    return Engine(config, params, tokenizer, model=model or model_name(path), limits=limits, adapters=slots, **options)


class Local:
    """The engine, by the name that other backends' loaders have."""

    load = staticmethod(load)
