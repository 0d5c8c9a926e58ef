"""A decoder as it stands on disk, a Hugging Face folder or a GGUF file: described, read, written as a folder."""
from __future__ import annotations

import json
import os

import jax

from core_jax import params as P
from core_jax import staging
from core_jax.ckpt import gguf, hf
from core_jax.mesh import TENSOR, Rules
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.packaged import model_path
from core_jax.text import Tokenizer

CONFIG = "config.json"


def describe(path: str | os.PathLike) -> tuple[DecoderConfig, Tokenizer]:
    """Architecture and tokenizer of a folder, a GGUF file or `smollm2`; no weights are read.

    Raises: ValueError naming the file and field: nothing usable there, a model that the decoder does not compute.
    """
    path = model_path(os.fspath(path))
    if os.path.isfile(path):
        return gguf.read_config(gguf.GGUFFile(path)), Tokenizer.load(path)
    where = os.path.join(path, CONFIG)
    try:
        with open(where, encoding="utf-8") as f:
            raw = json.load(f)
    except FileNotFoundError:
        raise ValueError(f"{path}: no {CONFIG} in it; expected a Hugging Face folder, or a .gguf file") from None
    except ValueError as e:
        raise ValueError(f"{where}: not JSON ({e})") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: got {type(raw).__name__}, expected an object")
    return DecoderConfig.from_hf(raw, where=where), Tokenizer.load(path)


def read(
    path: str | os.PathLike, config: DecoderConfig, *, dtype: str = "float32", mesh: jax.sharding.Mesh | None = None,
    rules: Rules = TENSOR,
) -> P.Tree:
    """Parameters of what `describe` found at `path`, as `decoder.spec` declares them.

    Args:
        dtype: of the matrices.
        mesh: the devices that hold them, by `rules` as `decoder.rules` fits them; None: the default device.

    Raises: ValueError: one report of all missing, unexpected and misshaped tensors.
    """
    def place(spec: P.Tree) -> P.Tree | None:
        return None if mesh is None else P.shardings(spec, mesh, decoder.rules(config, mesh, rules))

    path = model_path(os.fspath(path))
    if os.path.isfile(path):
        return gguf.open_gguf(path, dtype=dtype, shardings=place)[1]
    spec = decoder.spec(config, dtype)
    return hf.read(path, spec, decoder.hf_sources(config), ignorable=decoder.IGNORABLE, prefixes=decoder.PREFIXES,
                   copies=decoder.hf_copies(config), shardings=place(spec))


def write(folder: str | os.PathLike, config: DecoderConfig, params: P.Tree, tokenizer: Tokenizer) -> None:
    """A folder that `read` and transformers load: weights, config, tokenizer, its chat template and stop tokens.

    It appears whole and replaces a folder that is there. The template's named variants and sampling defaults that the
    source's generation_config.json may have had are not carried over.
    """
    staging.clear(folder)
    with staging.folder(folder) as unfinished:
        hf.write(unfinished, params, decoder.hf_sources(config), config.to_hf())
        tokenizer.write(unfinished)
