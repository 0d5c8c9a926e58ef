"""GGUF files -> decoder config and parameter tree (Llama, Qwen2.5 and Qwen3), dequantised, strict both ways.

Tensor names are mapped by the `gguf` package from the Hugging Face names that the decoder knows, and memory is that of
`hf.load`: rows are dequantised as they are placed. llama.cpp stores the query and key rows of `llama` files pair by
pair (rotated neighbours); they are put back into Hugging Face's halves here. Qwen's files keep the halves.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from core_jax import params as P
from core_jax import rope as R
from core_jax.ckpt import hf
from core_jax.ckpt.gguf_file import GGUFFile
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig

PAIRED_ROWS = {"llama": True, "qwen2": False, "qwen3": False}  # by general.architecture, every one that is read
ROPE_FREQS = "rope_freqs.weight"
LLAMA3_BANDS = (1.0, 4.0, 8192)  # low and high frequency factor, original length: of every Llama 3 with rope_freqs


def open_gguf(
    path: str | os.PathLike, *, dtype: str = "float32", shardings: Callable[[P.Tree], P.Tree] | None = None
) -> tuple[DecoderConfig, P.Tree]:
    """Config and parameters of a model file; its tokenizer is `text.Tokenizer.load(path)`.

    Args:
        dtype: of the matrices, as `decoder.spec` takes it.
        shardings: spec tree -> tree of shardings (`params.shardings` for a mesh and rules); None: the default device.

    Raises:
        ValueError: as `GGUFFile` and `read_config`; one report of all missing, unexpected and misshaped tensors.
    """
    file = GGUFFile(path)
    config = read_config(file)
    spec = decoder.spec(config, dtype)
    store = _Store(file, config)
    sources = {name: hf.Source(tuple(store.name(k) for k in s.keys), s.stacked, s.transposed)
               for name, s in decoder.hf_sources(config).items()}
    params = hf.load(store, spec, sources, ignorable=(ROPE_FREQS.replace(".", r"\."),),
                     shardings=None if shardings is None else shardings(spec))
    return config, params


def read_config(file: GGUFFile) -> DecoderConfig:
    """Raises: ValueError naming the file and key: another architecture, a missing or mistyped value, a rope scaling or
    an attention that the decoder does not compute."""
    arch = file.field("general.architecture", str)
    if arch not in PAIRED_ROWS:
        raise ValueError(
            f"{file.path}: general.architecture: got {arch!r}, expected one of {', '.join(map(repr, PAIRED_ROWS))}")
    for name in ("expert_count", "attention.sliding_window"):
        if value := file.metadata.get(f"{arch}.{name}"):
            raise ValueError(f"{file.path}: {arch}.{name}: got {value!r}, which this decoder does not compute")

    def whole(name: str, default: Any = ...) -> int:
        return file.field(f"{arch}.{name}", int, default)

    if "token_embd.weight" not in file.entries:
        raise ValueError(f"{file.path}: missing token_embd.weight")
    width, heads = whole("embedding_length"), whole("attention.head_count")
    head_dim = whole("attention.key_length", width // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if whole(name, head_dim) != head_dim:
            raise ValueError(f"{file.path}: {arch}.{name}: got {whole(name)}, expected the head size {head_dim}")
    return DecoderConfig.from_hf({
        "model_type": arch,
        "vocab_size": whole("vocab_size", file.entries["token_embd.weight"].shape[0]),
        "hidden_size": width,
        "num_hidden_layers": whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": whole("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": whole("feed_forward_length"),
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(file.field(f"{arch}.attention.layer_norm_rms_epsilon", float)),
        "tie_word_embeddings": "output.weight" not in file.entries,
        "max_position_embeddings": whole("context_length"),
        "rope_parameters": _rope(file, arch, head_dim),
    }, where=file.path)


def _shortest(x: float) -> float:
    """The decimal that was meant by a number stored in float32."""
    return float(str(np.float32(x)))


def _rope(file: GGUFFile, arch: str, head_dim: int) -> dict[str, Any]:
    """`rope_parameters` as config.json has them.

    Scaling stands in the metadata, but Llama 3's, whose factor of each frequency is a tensor: the largest is `factor`,
    and the whole must be what the published bands give.
    """
    theta = _shortest(file.field(f"{arch}.rope.freq_base", float))
    key = f"{arch}.rope.scaling"
    kind = file.field(f"{key}.type", str, "none")
    if kind not in ("none", "yarn"):
        raise ValueError(f"{file.path}: {key}.type: got {kind!r}, expected 'none' or 'yarn'")
    if kind == "yarn":
        # llama.cpp multiplies these into its own attention factor, Hugging Face's replace it
        for name in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor"):
            if (value := file.field(f"{key}.{name}", float, 1.0)) != 1:
                raise ValueError(f"{file.path}: {key}.{name}: got {value}, expected 1")
        out = {"rope_type": "yarn", "rope_theta": theta, "factor": _shortest(file.field(f"{key}.factor", float)),
               "original_max_position_embeddings": file.field(f"{key}.original_context_length", int)}
        betas = {n: file.field(f"{key}.yarn_{n}", float, None) for n in ("beta_fast", "beta_slow")}
        return out | {n: _shortest(b) for n, b in betas.items() if b is not None}
    if ROPE_FREQS not in file.entries:
        return {"rope_type": "default", "rope_theta": theta}
    stretched = file.rows(ROPE_FREQS, 0, 1)[0]
    low, high, original = LLAMA3_BANDS
    rope = R.Llama3(theta, _shortest(stretched.max()), low, high, original)
    expected = R.Default(theta).inverse_frequencies(head_dim) / rope.inverse_frequencies(head_dim)
    if stretched.shape != expected.shape or not np.allclose(stretched, expected, rtol=1e-4):
        raise ValueError(
            f"{file.path}: {ROPE_FREQS}: not the frequencies of Llama 3 (low {low}, high {high}, {original})")
    return R.to_hf(rope)


class _Store:
    """The file's tensors under their GGUF names, rows in Hugging Face's order."""

    def __init__(self, file: GGUFFile, config: DecoderConfig):
        import gguf

        self.where, self._file = file.path, file
        self.shapes: Mapping[str, tuple[int, ...]] = {name: e.shape for name, e in file.entries.items()}
        arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == config.family)
        self._names = gguf.get_tensor_name_map(arch, config.num_layers)
        self._half = config.head_dim // 2 if PAIRED_ROWS[config.family] else None

    def name(self, key: str) -> str:
        """GGUF's name of a Hugging Face key."""
        found = self._names.get_name(key, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise ValueError(f"{self.where}: {key}: the gguf package has no name for it")
        return found

    def read(self, key: str, index: hf.Index) -> np.ndarray:
        if len(self.shapes[key]) == 1:
            return self._file.rows(key, 0, 1)[0, index[0]]
        start, stop = index[0].start, index[0].stop
        if self._half is None or not key.endswith((".attn_q.weight", ".attn_k.weight")):
            return self._file.rows(key, start, stop)[:, index[1]]
        head, place = np.divmod(np.arange(start, stop), 2 * self._half)
        stored = 2 * self._half * head + 2 * (place % self._half) + place // self._half
        first = int(stored.min())
        return self._file.rows(key, first, int(stored.max()) + 1)[stored - first][:, index[1]]
