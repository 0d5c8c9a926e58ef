"""Frozen matrices in 4 or 8 bits, dequantised a layer at a time where they are used. Knows no model.

NF4 with double quantisation is the format of QLoRA (Dettmers et al., 2023) to the bit of bitsandbytes: blocks of 64
numbers along a row, nearest of 16 levels, block maxima less their mean in 8-bit floats of a dynamic map, groups of 256.
4.127 bits a number. Int8 has one scale a row, as bitsandbytes' vector-wise form.

qwix 0.1.8 was looked at and not taken: its NF4 has no double quantisation, holds one code a byte, and quantises by a
vmapped search and dequantises by a scalar gather.

A quantised matrix stands in the parameter tree where the array stood; `dense` multiplies by either. Letters: L layers,
`[out, in]` a matrix, S = out * in / 64 blocks of it, C = ceil(S / 256) groups.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from core_jax import params as P

BLOCK, GROUP = 64, 256
# quantiles of a normal distribution, scaled to [-1, 1], with an exact zero (QLoRA, appendix E)
NF4_LEVELS = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)


def _linspace(count: int) -> np.ndarray:
    """float32 [count + 1] from 0.1 to 1: counted from the nearer end, rounded once, as torch made the published map."""
    first, last = np.float32(0.1), np.float32(1)
    step, i = float((last - first) / np.float32(count)), np.arange(count + 1)
    return np.where(i < (count + 1) // 2, first + step * i, last - step * (count - i)).astype(np.float32)


def _dynamic_map() -> np.ndarray:
    """float32 [256], ascending: signed 8-bit floats whose exponent takes as many bits as it needs (Dettmers, 2016).

    Each decade from 1e-7 to 1 holds the midpoints of an even division of [0.1, 1], twice as many as the one below it.
    """
    values = [0.0, 1.0]
    for decade in range(7):
        edges = _linspace(2**decade)
        middle = (edges[:-1] + edges[1:]) / np.float32(2)
        for sign in (1.0, -1.0):
            values += (np.float32(sign * 10.0 ** (decade - 6)) * middle).tolist()
    return np.sort(np.array(values, np.float32))


DYNAMIC_MAP = _dynamic_map()


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("codes", "maxima", "group_maxima", "offset"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class NF4:
    """Stacked matrices; a slice along L, as a scan takes it, is one matrix.

    Attributes:
        codes: uint8 [L, out, in / 2], the even element in the high half.
        maxima: uint8 [L, out, in / 64], places in `DYNAMIC_MAP`.
        group_maxima: float32 [L, C].
        offset: float32 [L], mean of the block maxima.
    """

    codes: jax.Array
    maxima: jax.Array
    group_maxima: jax.Array
    offset: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.codes.shape[:-1], 2 * self.codes.shape[-1])


@functools.partial(jax.tree_util.register_dataclass, data_fields=("codes", "scales"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class Int8:
    """codes: int8 [L, out, in]; scales: float32 [L, out], the largest size in each row."""

    codes: jax.Array
    scales: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape


Quantised = NF4 | Int8


# ---- one matrix -----------------------------------------------------------------------------------------------

def _nearest(x: jax.Array, levels: np.ndarray) -> jax.Array:
    """uint8 index of the nearest level, the lower of two equally near."""
    middles = (levels[1:] + levels[:-1]) / np.float32(2)
    return jnp.searchsorted(jnp.asarray(middles), x, side="left").astype(jnp.uint8)


def _unit(rows: jax.Array, largest: jax.Array) -> jax.Array:
    """Each row over its largest size, by the reciprocal; zeros stay."""
    return rows * (1 / jnp.where(largest > 0, largest, 1))[:, None]


def _nf4(w: jax.Array) -> NF4:
    """w: [out, in]."""
    out, in_ = w.shape
    blocks = w.astype(jnp.float32).reshape(-1, BLOCK)
    maxima = jnp.max(jnp.abs(blocks), axis=1)
    codes = _nearest(_unit(blocks, maxima), NF4_LEVELS).reshape(out, in_ // 2, 2)
    offset = jnp.mean(maxima)
    groups = jnp.pad(maxima - offset, (0, -maxima.size % GROUP)).reshape(-1, GROUP)
    largest = jnp.max(jnp.abs(groups), axis=1)
    places = _nearest(_unit(groups, largest), DYNAMIC_MAP).reshape(-1)[:maxima.size]
    return NF4(codes[..., 0] * np.uint8(16) + codes[..., 1], places.reshape(out, in_ // BLOCK), largest, offset)


def _int8(w: jax.Array) -> Int8:
    """w: [out, in]."""
    w = w.astype(jnp.float32)
    scales = jnp.max(jnp.abs(w), axis=1)
    codes = jnp.round(_unit(w, scales) * 127)
    return Int8(codes.astype(jnp.int8), scales)


FORMS: dict[str, Callable[[jax.Array], Quantised]] = {"nf4": _nf4, "int8": _int8}


def dequantise(q: Quantised, dtype: Any = "float32") -> jax.Array:
    """[out, in] of one matrix (no leading L)."""
    if isinstance(q, Int8):
        return (q.codes.astype(jnp.float32) * (q.scales * np.float32(1 / 127))[:, None]).astype(dtype)
    out, blocks = q.maxima.shape
    places = jnp.pad(q.maxima.reshape(-1), (0, -q.maxima.size % GROUP)).reshape(-1, GROUP)
    maxima = jnp.asarray(DYNAMIC_MAP)[places] * q.group_maxima[:, None]
    maxima = maxima.reshape(-1)[:q.maxima.size].reshape(out, blocks) + q.offset
    pairs = jnp.stack([q.codes >> np.uint8(4), q.codes & np.uint8(15)], axis=-1).reshape(out, blocks, BLOCK)
    return (jnp.asarray(NF4_LEVELS)[pairs] * maxima[..., None]).reshape(out, -1).astype(dtype)


# ---- a model's matrices ---------------------------------------------------------------------------------------

def quantise(params: P.Tree, form: str, names: Sequence[str], *, stack: str = "layers") -> P.Tree:
    """params with `params[stack][name]` quantised for each name; the rest is shared.

    Layer by layer, so the working memory is that of one matrix. bitsandbytes treats each layer's matrix alone too.

    Raises: ValueError: an unknown form, a matrix whose rows are no multiple of 64 (nf4).
    """
    if form not in FORMS:
        raise ValueError(f"quantise: got {form!r}, expected one of {tuple(FORMS)}")
    layers = dict(params[stack])
    for name in names:
        if form == "nf4" and layers[name].shape[-1] % BLOCK:
            raise ValueError(f"{stack}/{name}: rows of {layers[name].shape[-1]}, expected a multiple of {BLOCK}")
        layers[name] = _quantise(layers[name], form)
    return params | {stack: layers}


@functools.partial(jax.jit, static_argnums=1)
def _quantise(w: jax.Array, form: str) -> Quantised:
    return jax.lax.map(FORMS[form], w)


def dequantised(params: P.Tree, dtype: Any = "float32", *, stack: str = "layers") -> P.Tree:
    """params with arrays in place of quantised matrices: for merging and export, as it takes the whole memory."""
    one = jax.jit(lambda q: jax.lax.map(lambda of: dequantise(of, dtype), q))
    layers = {name: one(x) if isinstance(x, Quantised) else x for name, x in params[stack].items()}
    return params | {stack: layers}


def nbytes(params: P.Tree) -> int:
    """Bytes of all arrays, abstract ones included."""
    return sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(params))


def dense(base: Callable[[jax.Array, P.Tree, str], jax.Array]) -> Callable[[jax.Array, P.Tree, str], jax.Array]:
    """A projection that also takes quantised matrices: x [M, in], layer, name -> [M, out] in the dtype of x."""
    def project(x: jax.Array, layer: P.Tree, name: str) -> jax.Array:
        if not isinstance(layer[name], Quantised):
            return base(x, layer, name)
        return matmul(x, layer[name])

    return project


@jax.custom_vjp
def matmul(x: jax.Array, q: Quantised) -> jax.Array:
    """x [M, in] times a quantised [out, in], dequantised to the dtype of x, summed in float32 -> [M, out] as x.

    The gradient goes to x alone and dequantises anew: what the backward pass keeps is the codes, never the matrix.
    """
    return _times(x, q, 1)


def _times(x: jax.Array, q: Quantised, axis: int) -> jax.Array:
    """x times the matrix, contracting its `axis`."""
    w = dequantise(q, x.dtype)
    return jax.lax.dot_general(x, w, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32).astype(x.dtype)


def _forward(x: jax.Array, q: Quantised) -> tuple[jax.Array, Quantised]:
    return _times(x, q, 1), q


def _no_gradient(x: jax.Array) -> Any:
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)


def _backward(q: Quantised, dy: jax.Array) -> tuple[jax.Array, Quantised]:
    return _times(dy, q, 0), jax.tree.map(_no_gradient, q)


matmul.defvjp(_forward, _backward)
