"""Keys and values on the device: pages as a donated pytree, writing them, and attention over them.

Letters: L layers, P pages, S tokens of a page, K kv heads, H head dim, N heads, G = N / K, M = tokens of a step laid
end to end, R rows (sequences), T = `TILE` queries of one row handled together.

Keys lie transposed within a page, so that both products of attention are plain matmuls of what lies contiguous. On a CPU
a loop goes over (tile, page) pairs, as many as there are, with a running softmax: no row is padded to the longest, and
a page is read where it lies (against gathering a row's pages: a third of the time, measured). Elsewhere the pages of a
row are gathered and attended at once.
"""
from __future__ import annotations

import math
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout

from core_jax import axes as A
from core_jax.mesh import Rules
from core_jax.models.config import DecoderConfig
from core_jax.models.cost import kv_bytes_per_token

TILE = 64
_MASKED = float(jnp.finfo(jnp.float32).min)


class KV(NamedTuple):
    """k: [L, P, K, H, S]; v: [L, P, K, S, H]. Page `SINK` takes the writes of padding."""

    k: jax.Array
    v: jax.Array

    @property
    def page_size(self) -> int:
        return self.v.shape[3]


ANYWHERE = KV(None, None)
# the axes of k and of v from the outermost in memory to the innermost; the innermost two are tiled
TOKENS_FIRST = (0, 1, 4, 2, 3), (0, 1, 3, 2, 4)  # [L, P, S, K, H]
ONE_HEAD = (0, 1, 2, 4, 3), (0, 1, 2, 3, 4)  # [L, P, K, S, H]: a tile of one head would be half empty


class Tiles(NamedTuple):
    """Runs of queries of one row at consecutive positions: int32 [W] each.

    start: place of its first query among the step's tokens, rising; length: queries, at most the tile's width;
    position: of its first query; row: of the page table. count: int32 scalar: the first so many tiles are real.
    """

    start: jax.Array
    length: jax.Array
    position: jax.Array
    row: jax.Array
    count: jax.Array


class Step(NamedTuple):
    """Where a step's tokens stand. row, position: int32 [M]; tokens: int32 scalar, how many are real (they come first);
    table: int32 [R + 1, W] pages of each row, the last row all `SINK`, which padding has; prefill, decode: tiles of
    `TILE` and of one query."""

    row: jax.Array
    position: jax.Array
    tokens: jax.Array
    table: jax.Array
    prefill: Tiles
    decode: Tiles


def new(
    config: DecoderConfig, pages: int, size: int, dtype: str = "float32", placement: KV = ANYWHERE
) -> KV:
    """Zeroed pages 0..pages; page 0 is the sink. placement: of `placement`."""
    def zeros() -> KV:
        lead = (config.num_layers, pages + 1, config.num_kv_heads)
        return KV(jnp.zeros((*lead, config.head_dim, size), dtype), jnp.zeros((*lead, size, config.head_dim), dtype))

    return zeros() if placement == ANYWHERE else jax.jit(zeros, out_shardings=placement)()


def check_room(config: DecoderConfig, tokens: int, dtype: str, mesh: jax.sharding.Mesh | None) -> None:
    """Raises: ValueError: keys and values of so many tokens take more than all the memory there is."""
    devices = jax.devices()[:1] if mesh is None else list(mesh.devices.flat)
    if devices[0].platform == "cpu":
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = sum((d.memory_stats() or {}).get("bytes_limit", 0) for d in devices) or None
    wanted = tokens * kv_bytes_per_token(config, jnp.dtype(dtype).itemsize)
    if memory is not None and wanted > memory:
        raise ValueError(f"tokens: got room for {tokens}, whose keys and values take {wanted / 2**30:,.1f} GiB of the "
                         f"{memory / 2**30:,.1f} GiB of memory here")


def dtype_beside(table: jax.Array | np.ndarray) -> str:
    """Of the pages, by that of a parameter: the same, but float32 on a CPU. There XLA converts all pages for each token
    it writes into bfloat16 ones (SmolLM2 with 8,320 tokens of room: a second a token, in place of 0.1 ms)."""
    devices = table.devices() if isinstance(table, jax.Array) else jax.devices()
    return "float32" if next(iter(devices)).platform == "cpu" else table.dtype.name


def placement(config: DecoderConfig, mesh: jax.sharding.Mesh | None, rules: Rules) -> KV:
    """Where k and v lie (by their heads), and how; `ANYWHERE` for a device that needs telling neither.

    On a TPU a token of a page is one run of numbers in memory. With the axes in memory as they are named, XLA copies
    all pages into that order before each step, and back.
    """
    where = None if mesh is None else rules.sharding(mesh, A.LAYERS, None, A.KV_HEADS, None, None)
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    if device.platform != "tpu":
        return KV(where, where)
    where = where or jax.sharding.SingleDeviceSharding(device)
    heads = where.shard_shape((1, 1, config.num_kv_heads, 1, 1))[2]
    return KV(*(Format(Layout(order), where) for order in (ONE_HEAD if heads == 1 else TOKENS_FIRST)))


def copy(kv: KV, source: jax.Array, target: jax.Array) -> KV:
    """One page's contents into another page; int32 scalars."""
    def one(x: jax.Array) -> jax.Array:
        page = jax.lax.dynamic_index_in_dim(x, source, axis=1)
        return jax.lax.dynamic_update_slice_in_dim(x, page, target, axis=1)

    return KV(one(kv.k), one(kv.v))


def attention(config: DecoderConfig, step: Step):
    """The `attend` of `decoder.run_layers`: writes the new keys and values to their pages, then attends over pages.

    Its state is a `KV`. What stands at padding is undefined, but finite.
    """
    width = step.table.shape[1]
    scale = 1.0 / math.sqrt(config.head_dim)

    def attend(layer: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, kv: KV) -> tuple[jax.Array, KV]:
        size = kv.page_size
        column = jnp.minimum(step.position // size, width - 1)
        page = step.table[step.row, column]
        place = step.position % size
        k, v, q = k.astype(kv.k.dtype), v.astype(kv.v.dtype), (q * scale).astype(kv.k.dtype)
        kv = jax.lax.platform_dependent(kv, layer, k, v, page, place, step.tokens, cpu=_write_each, default=_write)
        out = jax.lax.platform_dependent(q, layer, kv, step, cpu=_attend_pages, default=_attend_rows)
        return out, kv

    return attend


def _write(kv: KV, layer: jax.Array, k: jax.Array, v: jax.Array, page: jax.Array, place: jax.Array, tokens: jax.Array) -> KV:
    """k, v: [M, K, H] to place[i] of page[i]; int32 [M]."""
    del tokens
    return KV(kv.k.at[layer, page, :, :, place].set(k), kv.v.at[layer, page, :, place].set(v))


def _write_each(
    kv: KV, layer: jax.Array, k: jax.Array, v: jax.Array, page: jax.Array, place: jax.Array, tokens: jax.Array
) -> KV:
    def one(i: jax.Array, kv: KV) -> KV:
        zero = jnp.int32(0)
        key = jax.lax.dynamic_slice_in_dim(k, i, 1)[:, None, :, :, None]
        value = jax.lax.dynamic_slice_in_dim(v, i, 1)[:, None, :, None]
        return KV(jax.lax.dynamic_update_slice(kv.k, key, (layer, page[i], zero, zero, place[i])),
                  jax.lax.dynamic_update_slice(kv.v, value, (layer, page[i], zero, place[i], zero)))

    if k.shape[0] == 1:
        return one(jnp.int32(0), kv)
    return jax.lax.fori_loop(0, tokens, one, kv)


def _attend_pages(q: jax.Array, layer: jax.Array, kv: KV, step: Step) -> jax.Array:
    """q: [M, N, H] scaled -> float32 [M, N, H]. Later tiles overwrite what an earlier one wrote past its end."""
    m, n, h = q.shape
    out = jnp.zeros((m + TILE, n, h), jnp.float32)
    if step.prefill.start.shape[0]:
        padded = jnp.pad(q, ((0, TILE), (0, 0), (0, 0)))
        out = _attend_tiles(padded, out, layer, kv, step.table, step.prefill, TILE)
    return _attend_tiles(q, out, layer, kv, step.table, step.decode, 1)[:m]


def _attend_tiles(
    q: jax.Array, out: jax.Array, layer: jax.Array, kv: KV, table: jax.Array, tiles: Tiles, width: int
) -> jax.Array:
    """One (tile, page) pair after another; a tile's pages follow each other and carry its running softmax."""
    (_, n, h), kvh, size = q.shape, kv.k.shape[2], kv.page_size
    g = n // kvh
    t = width
    real = jnp.arange(tiles.start.shape[0], dtype=jnp.int32) < tiles.count
    pages = jnp.where(real, (tiles.position + tiles.length - 1) // size + 1, 0)  # of each tile
    stops = jnp.cumsum(pages, dtype=jnp.int32)
    query, key = jnp.arange(t, dtype=jnp.int32), jnp.arange(size, dtype=jnp.int32)

    def pair(i: jax.Array, carry):
        tile, j, highest, total, mixed, out = carry
        start, row, first = tiles.start[tile], tiles.row[tile], tiles.position[tile]
        page = table[row, j]
        zero = jnp.int32(0)
        queries = jax.lax.dynamic_slice_in_dim(q, start, t).reshape(t, kvh, g, h).transpose(1, 2, 0, 3)
        keys = jax.lax.dynamic_slice(kv.k, (layer, page, zero, zero, zero), (1, 1, kvh, h, size))[0, 0]
        values = jax.lax.dynamic_slice(kv.v, (layer, page, zero, zero, zero), (1, 1, kvh, size, h))[0, 0]
        scores = jnp.matmul(queries.reshape(kvh, g * t, h), keys, preferred_element_type=jnp.float32)
        seen = j * size + key[None] <= first + query[:, None]
        scores = jnp.where(jnp.broadcast_to(seen[None, None], (kvh, g, t, size)).reshape(kvh, g * t, size), scores, _MASKED)
        top = jnp.max(scores, axis=-1, keepdims=True)
        highest = jnp.where(j == 0, _MASKED, highest)
        now = jnp.maximum(highest, top)
        weights, faded = jnp.exp(scores - now), jnp.where(j == 0, 0.0, jnp.exp(highest - now))
        total = total * faded + jnp.sum(weights, axis=-1, keepdims=True)
        mixed = mixed * faded + jnp.matmul(weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
        result = (mixed / total).reshape(kvh, g, t, h).transpose(2, 0, 1, 3).reshape(t, n, h)
        out = jax.lax.dynamic_update_slice_in_dim(out, result, start, axis=0)
        last = i + 1 == stops[tile]
        return jnp.where(last, tile + 1, tile), jnp.where(last, 0, j + 1), now, total, mixed, out

    carry = (jnp.int32(0), jnp.int32(0), jnp.full((kvh, g * t, 1), _MASKED), jnp.zeros((kvh, g * t, 1)),
             jnp.zeros((kvh, g * t, h)), out)
    return jax.lax.fori_loop(0, stops[-1], pair, carry)[-1]


def _attend_rows(q: jax.Array, layer: jax.Array, kv: KV, step: Step) -> jax.Array:
    """As `_attend_pages`: each tile against all pages of its row, gathered."""
    m, n, h = q.shape
    out = jnp.zeros((m + TILE, n, h), jnp.float32)
    for tiles, width in ((step.prefill, TILE), (step.decode, 1)):
        if tiles.start.shape[0]:
            out = _scatter_tiles(q, out, layer, kv, step.table, tiles, width)
    return out[:m]


def _scatter_tiles(
    q: jax.Array, out: jax.Array, layer: jax.Array, kv: KV, table: jax.Array, tiles: Tiles, width: int
) -> jax.Array:
    (m, n, h), kvh, size = q.shape, kv.k.shape[2], kv.page_size
    g, t, w = n // kvh, width, table.shape[1]
    query = jnp.arange(t, dtype=jnp.int32)
    place = tiles.start[:, None] + query[None]  # [W, T]
    queries = q[jnp.minimum(place, m - 1)].reshape(-1, t, kvh, g, h)
    pages = table[tiles.row]  # [W, w]
    keys, values = kv.k[layer, pages], kv.v[layer, pages]  # [W, w, K, H, S], [W, w, K, S, H]
    scores = jnp.einsum("xtkgh,xwkhs->xkgtws", queries, keys, preferred_element_type=jnp.float32)
    at = (jnp.arange(w, dtype=jnp.int32)[:, None] * size + jnp.arange(size, dtype=jnp.int32)[None])  # [w, S]
    seen = at[None, None] <= (tiles.position[:, None] + query[None])[:, :, None, None]  # [W, T, w, S]
    scores = jnp.where(seen[:, None, None], scores, _MASKED)
    weights = jnp.exp(scores - jnp.max(scores, axis=(-2, -1), keepdims=True))
    mixed = jnp.einsum("xkgtws,xwksh->xtkgh", weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
    mixed = mixed / jnp.sum(weights, axis=(-2, -1)).transpose(0, 3, 1, 2)[..., None]
    tile = jnp.arange(tiles.start.shape[0], dtype=jnp.int32)
    real = (query[None] < tiles.length[:, None]) & (tile < tiles.count)[:, None]
    return out.at[jnp.where(real, place, m).reshape(-1)].set(mixed.reshape(-1, n, h))
