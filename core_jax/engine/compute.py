"""What an engine runs on the device, each function compiled once a shape of the ladder.

`extend` computes a bucket of tokens of any rows, `decode` several next tokens of rows that are past their prompts
without coming back to the host, `pick` chooses tokens from the outputs of `extend`, `score` reads log probabilities of
given tokens from them, `copy` copies a page. The pages are donated to each; parameters are arguments, never constants.

On a mesh, groups of devices along `data` share out the tokens of a step, and those along `tensor` the heads, with the
pages of their key and value heads. What a host reads lies whole on every device, so that each of several processes has
it.
"""
from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from core_jax import params as P
from core_jax.engine import cache, sample
from core_jax.mesh import TENSOR, tokens_over
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig

BASE = -1  # the adapter slot of the base model


class Adapters(Protocol):
    """Adapters over one base, each token with its own. names: slot i holds names[i]; arrays: pytree, a jit argument."""

    names: tuple[str, ...]
    arrays: Any

    def bind(self, arrays: Any, slot: jax.Array, base: decoder.Dense) -> tuple[decoder.Dense, P.Tree]:
        """(dense, overlay) of `decoder.run_layers`; slot: [M] int32, BASE = no adapter."""
        ...


class Rows(NamedTuple):
    """Rows that decode. token: int32 [R] last known token, not computed yet; position: int32 [R] its place; left: int32
    [R] tokens that may still come (0 = no row there); slot: int32 [R] adapters; stop: int32 [R, E] tokens that end it,
    filled with -1; table: int32 [R + 1, W]."""

    token: jax.Array
    position: jax.Array
    left: jax.Array
    slot: jax.Array
    stop: jax.Array
    table: jax.Array


class Compute:
    """Jitted functions of one model; `traces` counts compilations by (name, shape).

    Attributes:
        pages: `cache.placement` of the pages. whole: sharding of what lies on every device; None without a mesh.
    """

    def __init__(
        self, config: DecoderConfig, adapters: Adapters | None, horizon: int, mesh: jax.sharding.Mesh | None = None
    ):
        self.traces: collections.Counter[tuple] = collections.Counter()
        self._config, self._adapters, self._horizon = config, adapters, horizon
        self._spread = tokens_over(mesh)
        self.pages = cache.placement(config, mesh, TENSOR if mesh is None else decoder.rules(config, mesh))
        self.whole = whole = None if mesh is None else NamedSharding(mesh, PartitionSpec())
        self.extend = jax.jit(self._extend, donate_argnums=2, out_shardings=(self.pages, whole))
        self.decode = jax.jit(self._decode, donate_argnums=2, out_shardings=(self.pages, whole, whole, whole))
        self.pick = jax.jit(self._pick, out_shardings=whole)
        self.score = jax.jit(self._score, out_shardings=whole)
        self.copy = jax.jit(self._copy, donate_argnums=0, out_shardings=self.pages)

    def _layers(
        self, params: P.Tree, arrays: Any, kv: cache.KV, ids: jax.Array, slot: jax.Array, step: cache.Step
    ) -> tuple[jax.Array, cache.KV]:
        """ids, slot: int32 [M] -> [M, D] before the final norm."""
        bind: Callable = _base if self._adapters is None else self._adapters.bind
        dense, overlay = bind(arrays, slot, decoder.dense)
        attend = cache.attention(self._config, jax.tree.map(lambda x: self._spread(x) if x.ndim == 1 else x, step))
        x = decoder.embed(params, ids)
        return decoder.run_layers(
            self._config, params, x, step.position, attend, kv, dense=dense, overlay=overlay, spread=self._spread)

    def _logits(self, params: P.Tree, x: jax.Array) -> jax.Array:
        return decoder.logits(self._config, params, decoder.rms_norm(x, params["norm"], self._config.rms_norm_eps))

    def _extend(
        self, params: P.Tree, arrays: Any, kv: cache.KV, ids: jax.Array, slot: jax.Array, step: cache.Step,
        outputs: jax.Array,
    ) -> tuple[cache.KV, jax.Array]:
        """ids, slot: int32 [M]; outputs: int32 [G] places whose outputs are kept -> pages, [G, D] before the norm."""
        self.traces["extend", ids.shape[0]] += 1  # runs while tracing only
        x, kv = self._layers(params, arrays, kv, ids, slot, step)
        return kv, x[outputs]

    def _pick(
        self, params: P.Tree, x: jax.Array, rows: jax.Array, choice: sample.Choice, allowed: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """x: [G, D] of extend; rows: int32 [R] of it; allowed: uint32 [R, V / 32] -> tokens, log probabilities [R]."""
        self.traces["pick", rows.shape[0]] += 1
        return sample.sample(self._logits(params, x[rows]), choice, allowed)

    def _score(self, params: P.Tree, x: jax.Array, rows: jax.Array, ids: jax.Array) -> jax.Array:
        """rows: int32 [R] of x; ids: int32 [R, C] -> float32 [R, C] log probability of each token as the next."""
        self.traces["score", ids.shape] += 1
        logits = self._logits(params, x[rows])
        return jnp.take_along_axis(logits, ids, axis=-1) - jax.nn.logsumexp(logits, axis=-1, keepdims=True)

    def _copy(self, kv: cache.KV, source: jax.Array, target: jax.Array) -> cache.KV:
        self.traces["copy", ()] += 1
        return cache.copy(kv, source, target)

    def _decode(
        self, params: P.Tree, arrays: Any, kv: cache.KV, rows: Rows, choice: sample.Choice, steps: jax.Array,
        eager: jax.Array,
    ) -> tuple[cache.KV, jax.Array, jax.Array, jax.Array]:
        """Up to `steps` tokens a row.

        Args:
            steps: int32 scalar, at most the horizon. eager: bool scalar: come back once any row has ended, so that its
                place can be taken.

        Returns:
            pages; int32 [R, horizon] tokens; int32 [R] how many of them are real; float32 [R, horizon] log
            probabilities.
        """
        r = rows.token.shape[0]
        self.traces["decode", r] += 1
        place, one = jnp.arange(r, dtype=jnp.int32), jnp.ones(r, jnp.int32)
        everything = jnp.full((r, sample.words(self._config.vocab_size)), np.uint32(0xFFFFFFFF), jnp.uint32)
        no_tiles = cache.Tiles(*(jnp.zeros(0, jnp.int32),) * 4, jnp.int32(0))

        def body(carry):
            i, kv, token, made, live, out, scores = carry
            position = jnp.where(live, rows.position + made, 0)
            row = jnp.where(live, place, r)
            tiles = cache.Tiles(place, one, position, row, jnp.int32(r))
            step = cache.Step(row, position, jnp.int32(r), rows.table, no_tiles, tiles)
            x, kv = self._layers(params, arrays, kv, token, rows.slot, step)
            new, score = sample.sample(self._logits(params, x), choice._replace(index=choice.index + made), everything)
            out = out.at[:, i].set(new)
            scores = scores.at[:, i].set(score)
            made = made + live.astype(jnp.int32)
            ended = jnp.any(new[:, None] == rows.stop, axis=1) | (made >= rows.left)
            return i + 1, kv, jnp.where(live, new, token), made, live & ~ended, out, scores

        def more(carry):
            i, _, _, _, live, _, _ = carry
            ended = jnp.any((rows.left > 0) & ~live)
            return (i < steps) & jnp.any(live) & ~(eager & ended)

        out = jnp.zeros((r, self._horizon), jnp.int32)
        start = (jnp.int32(0), kv, rows.token, jnp.zeros(r, jnp.int32), rows.left > 0, out, out.astype(jnp.float32))
        _, kv, _, made, _, out, scores = jax.lax.while_loop(more, body, start)
        return kv, out, made, scores


def _base(arrays: Any, slot: jax.Array, base: decoder.Dense) -> tuple[decoder.Dense, None]:
    return base, None


def ladder(most: int) -> tuple[int, ...]:
    """1, 8, 16, 32, ... and `most`. Nothing between 1 and 8: on a CPU two rows cost what eight do, measured."""
    sizes = [1, 8]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return (*(s for s in sizes if s < most), most)
