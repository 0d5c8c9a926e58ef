"""Hugging Face safetensors folders <-> parameter trees: streamed onto target shardings, strict both ways.

A model family says where each parameter comes from (`Source`); this module knows no model. `load` serves any store of
named tensors (`Tensors`): a safetensors folder here, a GGUF file in core_jax/ckpt/gguf.py.

Memory while reading: each device's slice of a parameter is filled layer by layer in the buffer that becomes its array
(on CPU the array is that buffer), so the peak is the local slices and what one block of rows of one tensor takes.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core_jax import params as P
from core_jax.records import atomic_write

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")
BLOCK_BYTES = 1 << 24  # of a tensor in memory at a time, beside the array that it fills
Index = tuple[slice, ...]  # whole bounds, step 1


@dataclasses.dataclass(frozen=True)
class Source:
    """Checkpoint tensors of one parameter. stacked: one a layer, in order; transposed: `[out, in]` there."""

    keys: tuple[str, ...]
    stacked: bool = False
    transposed: bool = False


class Tensors(Protocol):
    """A store of named float tensors."""

    where: str  # names the store in messages
    shapes: Mapping[str, tuple[int, ...]]

    def read(self, key: str, index: Index) -> np.ndarray:
        """The part of a tensor that `index` bounds, as floats of any width."""


class Folder:
    """The safetensors of a folder. Raises: ValueError: an absent shard, a file that is no safetensors."""

    def __init__(self, folder: str | os.PathLike):
        self.where = os.fspath(folder)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, str] = {}
        self.types: dict[str, str] = {}
        for path in files(folder):
            try:
                with safe_open(path, framework="np") as f:
                    for key in f.keys():
                        part = f.get_slice(key)
                        self._files[key], self.shapes[key] = path, tuple(part.get_shape())
                        self.types[key] = part.get_dtype()
            except (SafetensorError, OSError) as e:
                raise ValueError(f"{path}: not a readable safetensors file: {e}") from None

    def read(self, key: str, index: Index) -> np.ndarray:
        # opened anew for each block: what a file maps counts as this process's memory until it is closed
        with safe_open(self._files[key], framework="np") as f:
            return f.get_slice(key)[index] if index else f.get_tensor(key)


def files(folder: str | os.PathLike) -> list[str]:
    """Paths of a folder's safetensors files. Raises: ValueError naming what is absent, a missing shard included."""
    folder = os.fspath(folder)
    index = os.path.join(folder, INDEX)
    if not os.path.isfile(index):
        path = os.path.join(folder, SINGLE)
        if not os.path.isfile(path):
            raise ValueError(f"{folder}: has neither {SINGLE} nor {INDEX}")
        return [path]
    with open(index, encoding="utf-8") as f:
        try:
            names = sorted(set(json.load(f)["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise ValueError(f"{index}: not an index with a weight_map ({type(e).__name__}: {e})") from None
    paths = [os.path.join(folder, os.path.basename(name)) for name in names]
    if missing := [os.path.basename(p) for p in paths if not os.path.isfile(p)]:
        raise ValueError(f"{folder}: {INDEX} names {len(missing)} absent shard(s): {', '.join(missing)}")
    return paths


def read(
    folder: str | os.PathLike, spec: P.Tree, sources: Mapping[str, Source], *,
    ignorable: Sequence[str] = (), prefixes: Sequence[str] = ("",), copies: Mapping[str, str] | None = None,
    shardings: P.Tree | None = None, dtype: str | None = None,
) -> P.Tree:
    """Arrays of `spec` from a folder's safetensors; arguments and errors as `load`."""
    return load(Folder(folder), spec, sources, ignorable=ignorable, prefixes=prefixes, copies=copies,
                shardings=shardings, dtype=dtype)


def load(
    tensors: Tensors, spec: P.Tree, sources: Mapping[str, Source], *,
    ignorable: Sequence[str] = (), prefixes: Sequence[str] = ("",), copies: Mapping[str, str] | None = None,
    shardings: P.Tree | None = None, dtype: str | None = None,
) -> P.Tree:
    """Arrays of `spec` from a store of tensors.

    Args:
        sources: parameter path -> tensors, for every path of `spec`.
        ignorable: regular expressions of keys that may be there unread.
        prefixes: what may stand before every key (a wrapping model's attribute); the first that fits is used.
        copies: key that may be there -> path of the unstacked parameter that it must equal bit for bit (a tied head
            that was saved all the same: `{"lm_head.weight": "embed/token"}`).
        shardings: tree of shardings as `params.shardings` makes it; a process reads what its devices hold and no more.
            None: the default device.
        dtype: of every array, in place of the spec's.

    Raises:
        ValueError: one report of all missing, unexpected and misshaped tensors, tensors that hold no floats, and
            copies that differ; sources that do not fit the spec.
    """
    flat = dict(P.leaves(spec))
    if set(flat) != set(sources):
        raise ValueError(f"sources and spec differ in {sorted(set(flat) ^ set(sources))}")
    wanted = {key for s in sources.values() for key in s.keys}
    prefix = next((p for p in prefixes if any(p + key in tensors.shapes for key in wanted)), prefixes[0])
    ignore = re.compile("|".join(f"(?:{pattern})" for pattern in ignorable) or r"(?!)")
    copied = {k: prefix + sources[path].keys[0]
              for key, path in (copies or {}).items() for k in {key, prefix + key} if k in tensors.shapes}
    missing = sorted(prefix + key for key in wanted if prefix + key not in tensors.shapes)
    unexpected = sorted(
        key for key in tensors.shapes if key not in copied
        and key.removeprefix(prefix) not in wanted and not ignore.fullmatch(key.removeprefix(prefix))
    )
    problems = [f"missing {k}" for k in missing] + [f"unexpected {k}" for k in unexpected]
    for path, s in flat.items():
        expected = s.shape[1:] if sources[path].stacked else s.shape
        expected = expected[::-1] if sources[path].transposed else expected
        for key in (prefix + k for k in sources[path].keys if prefix + k in tensors.shapes):
            if tensors.shapes[key] != expected:
                problems.append(f"shape of {key}: got {tensors.shapes[key]}, expected {expected}")
            if (kind := getattr(tensors, "types", {}).get(key, "F32")) not in FLOATS:
                problems.append(f"type of {key}: got {kind}, expected one of {', '.join(FLOATS)}")
        if sources[path].stacked and len(sources[path].keys) != s.shape[0]:
            problems.append(f"{path}: {len(sources[path].keys)} tensors for {s.shape[0]} layers")
    for key, original in copied.items():
        if original in tensors.shapes and not _equal(tensors, key, original):
            problems.append(f"{key}: differs from {original}, which it is tied to")
    if problems:
        raise ValueError(f"{tensors.where}: {len(problems)} problem(s): " + "; ".join(problems))

    targets = dict.fromkeys(flat) if shardings is None else _paths(shardings)
    out: dict[str, Any] = {}
    for path, s in flat.items():
        array = _place(tensors, s.shape, jnp.dtype(dtype or s.dtype), sources[path], prefix, targets[path])
        *parents, name = path.split("/")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = array
    return out


def _paths(tree: P.Tree) -> dict[str, Any]:
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"/".join(str(k.key) for k in path): x for path, x in flat}


def _place(
    tensors: Tensors, shape: tuple[int, ...], dtype: np.dtype, source: Source, prefix: str,
    sharding: jax.sharding.Sharding | None,
) -> jax.Array:
    """One parameter on its devices. A slice that several devices hold is read once."""
    made: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

    def local(index: Index) -> np.ndarray:
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index, shape))
        if bounds in made:
            return made[bounds]
        out = made[bounds] = _buffer(tuple(b - a for a, b in bounds), dtype)
        inner = tuple(slice(a, b) for a, b in (bounds[1:] if source.stacked else bounds))
        layers = range(*bounds[0]) if source.stacked else (0,)
        for i, layer in enumerate(layers):
            part = out[i] if source.stacked else out
            if source.transposed:
                _fill(part.T, tensors, prefix + source.keys[layer], inner[::-1])
            else:
                _fill(part, tensors, prefix + source.keys[layer], inner)
        return out

    if sharding is None:
        return jax.device_put(local((slice(None),) * len(shape)))
    return jax.make_array_from_callback(shape, sharding, local)


def _buffer(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Uninitialised, aligned so that XLA:CPU takes it as an array without a copy."""
    size, align = math.prod(shape) * dtype.itemsize, 64
    raw = np.empty(size + align, np.uint8)
    start = -raw.ctypes.data % align
    return raw[start: start + size].view(dtype).reshape(shape)


def _fill(out: np.ndarray, tensors: Tensors, key: str, index: Index) -> None:
    """out[...] = the indexed part of a tensor, cast, in blocks of rows."""
    if not index:
        out[...] = tensors.read(key, index)
        return
    for first, last in _blocks(out.shape, index[0].start):
        out[first - index[0].start: last - index[0].start] = tensors.read(key, (slice(first, last), *index[1:]))


def _blocks(shape: tuple[int, ...], start: int = 0) -> list[tuple[int, int]]:
    """Bounds of blocks of rows of at most BLOCK_BYTES in float32."""
    step = max(1, BLOCK_BYTES // (4 * max(1, math.prod(shape[1:]))))
    return [(start + a, start + min(a + step, shape[0])) for a in range(0, shape[0], step)]


def _equal(tensors: Tensors, one: str, other: str) -> bool:
    shape = tensors.shapes[one]
    if shape != tensors.shapes[other]:
        return False
    rest = tuple(slice(0, n) for n in shape[1:])
    return all(np.array_equal(*(tensors.read(k, (slice(a, b), *rest)) for k in (one, other)))
               for a, b in _blocks(shape))


def write(
    folder: str | os.PathLike, params: P.Tree, sources: Mapping[str, Source], config: Mapping[str, Any], *,
    max_shard_bytes: int = 5 << 30,
) -> None:
    """Write `params` with Hugging Face names, and `config.json` beside them.

    One `model.safetensors` where everything fits into `max_shard_bytes`; else shards of at most that size (a larger
    tensor has its own) and their index, written last, so a folder is never taken for whole before it is.
    """
    folder = os.fspath(folder)
    where = [(path, i, key) for path, s in sources.items() for i, key in enumerate(s.keys)]
    sizes = {path: _leaf(params, path).nbytes // (len(s.keys) if s.stacked else 1) for path, s in sources.items()}
    shards: list[list[tuple[str, int, str]]] = [[]]
    held = 0
    for item in where:
        size = sizes[item[0]]
        if shards[-1] and held + size > max_shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append(item)
        held += size
    count = len(shards)
    names = [SINGLE] if count == 1 else [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
    for stale in (SINGLE, INDEX):  # of an earlier export into the same folder
        if os.path.exists(path := os.path.join(folder, stale)) and (stale == INDEX or count > 1):
            os.unlink(path)
    for name, items in zip(names, shards):
        tensors = {key: _tensor(_leaf(params, path), sources[path], i) for path, i, key in items}
        with atomic_write(os.path.join(folder, name), "wb") as f:
            f.write(save(tensors, metadata={"format": "pt"}))
    with atomic_write(os.path.join(folder, "config.json")) as f:
        json.dump(dict(config), f, indent=2)
    if count > 1:
        index = {"metadata": {"total_size": sum(sizes[path] for path, _, _ in where)},
                 "weight_map": {key: name for name, items in zip(names, shards) for _, _, key in items}}
        with atomic_write(os.path.join(folder, INDEX)) as f:
            json.dump(index, f, indent=2)


def _leaf(params: P.Tree, path: str) -> Any:
    node: Any = params
    for name in path.split("/"):
        node = node[name]
    return node


def _tensor(x: Any, source: Source, layer: int) -> np.ndarray:
    y = np.asarray(x[layer] if source.stacked else x)
    return np.ascontiguousarray(y.T if source.transposed else y)
