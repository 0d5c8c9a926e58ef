"""An engine from what is on disk: a Hugging Face folder or a GGUF file, and LoRA adapters beside it."""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from core_jax import lora
from core_jax import params as P
from core_jax.ckpt import gguf, hf
from core_jax.engine.compute import Adapters
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.load import model_name
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.packaged import model_path
from core_jax.text import Tokenizer

CONFIG = "config.json"


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
                raise ValueError(f"adapter {name!r}: trained {', '.join(config.tables)}, which all rows of a batch share; "
                                 "expected projections alone (merge it into the base instead)")
        targets = sorted({path for config, _ in adapters.values() for path in config.targets})
        rank, count = max(config.rank for config, _ in adapters.values()), len(adapters)
        room = P.init(lora.slots(base, targets, rank=rank, count=count), jax.random.key(0))
        for i, (_, trained) in enumerate(adapters.values()):
            room = lora.put(room, i, trained["lora"], count=count)
        return cls(tuple(adapters), room, jnp.asarray([c.scale for c, _ in adapters.values()], jnp.float32))


def open_model(
    path: str | os.PathLike, *, dtype: str = "float32", mesh: jax.sharding.Mesh | None = None
) -> tuple[DecoderConfig, P.Tree, Tokenizer]:
    """Config, parameters and tokenizer of a folder, a GGUF file or `smollm2`; mesh as in `load`, errors as `gguf.open_gguf`."""
    path = model_path(os.fspath(path))
    tokenizer = Tokenizer.load(path)
    if os.path.isfile(path):
        shardings = None if mesh is None else _shardings(gguf.read_config(gguf.GGUFFile(path)), mesh)
        return *gguf.open_gguf(path, dtype=dtype, shardings=shardings), tokenizer
    where = os.path.join(path, CONFIG)
    try:
        with open(where, encoding="utf-8") as f:
            raw = json.load(f)
    except FileNotFoundError:
        raise ValueError(f"{path}: no {CONFIG} in it; expected a Hugging Face folder") from None
    except ValueError as e:
        raise ValueError(f"{where}: not JSON ({e})") from None
    config = DecoderConfig.from_hf(raw, where=where)
    spec = decoder.spec(config, dtype)
    params = hf.read(
        path, spec, decoder.hf_sources(config), ignorable=decoder.IGNORABLE, prefixes=decoder.PREFIXES,
        copies=decoder.hf_copies(config),
        shardings=None if mesh is None else _shardings(config, mesh)(spec))
    return config, params, tokenizer


def _shardings(config: DecoderConfig, mesh: jax.sharding.Mesh) -> Callable[[P.Tree], P.Tree]:
    return lambda spec: P.shardings(spec, mesh, decoder.rules(config, mesh))


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
    config, params, tokenizer = open_model(path, dtype=dtype, mesh=mesh)
    slots: Adapters | None = None
    if adapters:
        spec, sources = decoder.spec(config, dtype), decoder.hf_sources(config)
        slots = Slots.of({name: lora.read_peft(folder, spec, sources) for name, folder in adapters.items()}, spec)
    return Engine(config, params, tokenizer, model=model or model_name(path), limits=limits, adapters=slots, **options)


class Local:
    """The engine, by the name that other backends' loaders have."""

    load = staticmethod(load)
