"""Hugging Face safetensors folders <-> parameter trees: one tensor in memory at a time, strict both ways.

A model family says where each parameter comes from (`Source`); this module knows no model.
"""
from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core_jax import params as P
from core_jax.records import atomic_write

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclasses.dataclass(frozen=True)
class Source:
    """Checkpoint tensors of one parameter. stacked: one a layer, in order; transposed: `[out, in]` there."""

    keys: tuple[str, ...]
    stacked: bool = False
    transposed: bool = False


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
    ignorable: Sequence[str] = (), prefixes: Sequence[str] = ("",),
) -> P.Tree:
    """Arrays of `spec` from a folder's safetensors.

    Args:
        sources: parameter path -> tensors, for every path of `spec`.
        ignorable: regular expressions of keys that may be there unread.
        prefixes: what may stand before every key (a wrapping model's attribute); the first that fits is used.

    Raises:
        ValueError: one report of all missing, unexpected and misshaped tensors; a file that is no safetensors.
    """
    where: dict[str, str] = {}
    for path in files(folder):
        try:
            with safe_open(path, framework="flax") as f:
                where |= {key: path for key in f.keys()}
        except (SafetensorError, OSError) as e:
            raise ValueError(f"{path}: not a readable safetensors file: {e}") from None
    wanted = {key for s in sources.values() for key in s.keys}
    prefix = next((p for p in prefixes if any(p + key in where for key in wanted)), prefixes[0])
    ignore = re.compile("|".join(f"(?:{pattern})" for pattern in ignorable) or r"(?!)")
    missing = sorted(prefix + key for key in wanted if prefix + key not in where)
    unexpected = sorted(
        key for key in where
        if key.removeprefix(prefix) not in wanted and not ignore.fullmatch(key.removeprefix(prefix))
    )
    flat = dict(P.leaves(spec))
    if set(flat) != set(sources):
        raise ValueError(f"sources and spec differ in {sorted(set(flat) ^ set(sources))}")
    problems = [f"missing {k}" for k in missing] + [f"unexpected {k}" for k in unexpected]
    handles = {path: safe_open(path, framework="flax") for path in set(where.values())}
    for path, s in flat.items():
        expected = s.shape[1:] if sources[path].stacked else s.shape
        expected = expected[::-1] if sources[path].transposed else expected
        for key in sources[path].keys:
            if prefix + key in where:
                got = tuple(handles[where[prefix + key]].get_slice(prefix + key).get_shape())
                if got != expected:
                    problems.append(f"shape of {prefix + key}: got {got}, expected {expected}")
    if problems:
        raise ValueError(f"{os.fspath(folder)}: {len(problems)} problem(s): " + "; ".join(problems))

    def tensor(key: str, transposed: bool) -> np.ndarray:
        x = np.asarray(handles[where[prefix + key]].get_tensor(prefix + key))
        return x.T if transposed else x

    out: dict[str, Any] = {}
    for path, s in flat.items():
        source = sources[path]
        buffer = np.empty(s.shape, jnp.dtype(s.dtype))
        for i, key in enumerate(source.keys):
            buffer[i if source.stacked else ...] = tensor(key, source.transposed)
        *parents, name = path.split("/")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = jnp.asarray(buffer)
    return out


def write(folder: str | os.PathLike, params: P.Tree, sources: Mapping[str, Source], config: Mapping[str, Any]) -> None:
    """Write `params` as `model.safetensors` with Hugging Face names, and `config.json` beside it."""
    tensors: dict[str, np.ndarray] = {}
    for path, source in sources.items():
        node: Any = params
        for name in path.split("/"):
            node = node[name]
        x = np.asarray(node)
        for i, key in enumerate(source.keys):
            y = x[i] if source.stacked else x
            tensors[key] = np.ascontiguousarray(y.T if source.transposed else y)
    with atomic_write(os.path.join(os.fspath(folder), SINGLE), "wb") as f:
        f.write(save(tensors, metadata={"format": "pt"}))
    with atomic_write(os.path.join(os.fspath(folder), "config.json")) as f:
        json.dump(dict(config), f, indent=2)
