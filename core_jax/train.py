"""Training without a model: state, one compiled step, AdamW by parameter path, early stopping, a metrics log.

A `loss` is `loss(params, batch, key, **static) -> (scalar, {name: scalar})`; everything else here works for any.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from core_jax.records import RecordError, read_jsonl, write_jsonl

PyTree = Any
Loss = Callable[..., tuple[jax.Array, dict[str, jax.Array]]]


class TrainingStopped(ValueError):
    """Training cannot go on (a loss that is not finite, a vanishing query); the message names the step."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=("params", "opt_state", "step"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class TrainState:
    """params and opt_state: pytrees; step int32[]: updates made so far."""

    params: PyTree
    opt_state: PyTree
    step: jax.Array


def new_state(params: PyTree, optimizer: optax.GradientTransformation) -> TrainState:
    """Step 0. params are copied (a step donates its state) and lose weak types (which would compile a step twice)."""
    params = jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype, copy=True), params)
    opt_state = jax.tree.map(lambda x: jnp.asarray(x, dtype=x.dtype), optimizer.init(params))
    return TrainState(params, opt_state, jnp.zeros((), jnp.int32))


class Step:
    """One optimiser update, compiled once per shape of the batch and value of `static`; the old state is donated.

    `step(state, key, batch, **static) -> (state, metrics)`. The loss gets fold_in(key, state.step), so that the noise
    of step n depends on the run's key and n alone: a resumed run draws what the uninterrupted one drew. `metrics` are
    float32 scalars left on the device: the loss's own, "loss" and "grad_norm". `traces` counts compilations.
    """

    def __init__(self, loss: Loss, optimizer: optax.GradientTransformation):
        self.traces = 0
        self._compiled: dict[tuple, Callable] = {}
        self._loss, self._optimizer = loss, optimizer

    def __call__(self, state: TrainState, key: jax.Array, batch: PyTree, **static) -> tuple[TrainState, dict[str, jax.Array]]:
        return self.jitted(**static)(state, key, batch)

    def jitted(self, **static) -> Callable:
        """The update as one jitted function of (state, key, batch): to lower it for devices that are not here."""
        name = tuple(sorted(static.items()))
        if name not in self._compiled:
            self._compiled[name] = jax.jit(functools.partial(self._update, static=static), donate_argnums=0)
        return self._compiled[name]

    def _update(self, state, key, batch, *, static):
        self.traces += 1  # runs while tracing only
        key = jax.random.fold_in(key, state.step)
        (loss, metrics), grads = jax.value_and_grad(self._loss, has_aux=True)(state.params, batch, key, **static)
        updates, opt_state = self._optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = metrics | {"loss": loss, "grad_norm": global_norm(grads)}
        return TrainState(params, opt_state, state.step + 1), metrics


def global_norm(tree: PyTree) -> jax.Array:
    """float32[] Euclidean length of all leaves together.

    Sums of squares go row by row as dot products, which XLA:CPU vectorises; a reduction over all axes, as in
    optax.tree.norm, runs there at a scalar's pace and took a quarter of a training step.
    """
    rows = [jnp.atleast_1d(x).astype(jnp.float32) for x in jax.tree.leaves(tree)]
    squares = [jnp.vecdot(x, x, precision=jax.lax.Precision.HIGHEST).sum() for x in rows]
    return jnp.sqrt(sum(squares, jnp.zeros((), jnp.float32)))


class AccumulatedStep:
    """One optimiser update over any number of batches of one shape; compiled once, buffers donated.

    `loss(params, frozen, batch, key) -> (sum, {name: sum})` adds up over the batch, and so do its metrics, among which
    "weight" is what the update divides by: however examples are laid out in batches, the update is that of their mean.
    `frozen` is passed through, as parameters are never closed over.

    `step(state, frozen, key, batches) -> (state, metrics)`. The loss of batch i gets fold_in(fold_in(key, step), i).
    metrics: float32 scalars left on the device: the sums, "loss" (the mean) and "grad_norm" (before it is clipped).
    `sharding` is that of all of the state, where it is given, and of the sums.
    """

    def __init__(self, loss: Callable, optimizer: optax.GradientTransformation, *, clip: float | None = None,
                 sharding: jax.sharding.Sharding | None = None):
        self.traces = 0
        self._loss, self._optimizer, self._clip, self._sharding = loss, optimizer, clip, sharding
        self._sums_like: PyTree | None = None
        self._add = jax.jit(self._sums, donate_argnums=0, out_shardings=sharding)
        self._apply = jax.jit(self._update, donate_argnums=0, out_shardings=sharding)

    def __call__(self, state: TrainState, frozen: PyTree, key: jax.Array, batches: Iterable[PyTree]):
        total = None
        for i, batch in enumerate(batches):
            if total is None:
                total = self._zeros(state.params, frozen, batch)
            total = self._add(total, state.params, frozen, batch, key, state.step, jnp.int32(i))
        if total is None:
            raise ValueError("got no batches, expected at least one")
        return self._apply(state, total)

    def _zeros(self, params: PyTree, frozen: PyTree, batch: PyTree) -> PyTree:
        """What the sums start from: (gradient, {"loss" and the loss's own})."""
        if self._sums_like is None:
            key = jax.eval_shape(jax.random.key, 0)
            loss, metrics = jax.eval_shape(self._loss, params, frozen, batch, key)
            self._sums_like = metrics | {"loss": loss}
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (params, self._sums_like))
        return zeros if self._sharding is None else jax.device_put(zeros, self._sharding)

    def _sums(self, total, params, frozen, batch, key, step, i):
        self.traces += 1  # runs while tracing only
        key = jax.random.fold_in(jax.random.fold_in(key, step), i)
        (loss, metrics), grads = jax.value_and_grad(self._loss, has_aux=True)(params, frozen, batch, key)
        return jax.tree.map(jnp.add, total, (grads, metrics | {"loss": loss}))

    def _update(self, state, total):
        grads, metrics = total
        weight = jnp.maximum(metrics["weight"], jnp.finfo(jnp.float32).tiny)
        norm = global_norm(grads) / weight
        scale = 1 / weight
        if self._clip is not None:
            scale = scale * jnp.minimum(1, self._clip / jnp.maximum(norm, jnp.finfo(jnp.float32).tiny))
        updates, opt_state = self._optimizer.update(
            jax.tree.map(lambda g: g * scale, grads), state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = metrics | {"loss": metrics["loss"] / weight, "grad_norm": norm}
        return TrainState(params, opt_state, state.step + 1), metrics


def make_step(loss: Loss, optimizer: optax.GradientTransformation) -> Step:
    """The compiled update of `loss`; see Step."""
    return Step(loss, optimizer)


def warmup_constant(lr: float, warmup_steps: int) -> optax.Schedule:
    """lr (n + 1) / warmup_steps for update n < warmup_steps, then lr: the first update is not lost to a rate of 0."""
    if lr <= 0 or warmup_steps < 0:
        raise ValueError(f"got lr {lr} and warmup_steps {warmup_steps}, expected lr > 0 and warmup_steps >= 0")

    def schedule(count):
        done = (jnp.asarray(count, jnp.float32) + 1) / max(1, warmup_steps)
        return lr * jnp.minimum(done, 1.0)

    return schedule


def warmup_cosine(lr: float, warmup_steps: int, total_steps: int) -> optax.Schedule:
    """warmup_constant's start, then half a cosine from lr down to 0 at update `total_steps`.

    A run that is no longer than the warm-up never leaves it.
    """
    rise = warmup_constant(lr, warmup_steps)
    if total_steps < 1:
        raise ValueError(f"got total_steps {total_steps}, expected at least 1")

    def schedule(count):
        done = jnp.maximum(jnp.asarray(count, jnp.float32) - warmup_steps, 0) / max(1, total_steps - warmup_steps)
        return rise(count) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(done, 1.0)))

    return schedule


def by_path(params: PyTree, label: Callable[[str], Any]) -> PyTree:
    """A tree like params with label("a.b.c") at each leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: label(jax.tree_util.keystr(path, simple=True, separator=".")), params)


def adamw(lr: float | optax.Schedule, *, weight_decay: float, decays: Callable[[str], bool],
          frozen: Callable[[str], bool] = lambda path: False, first_moment: str | None = None,
          ) -> optax.GradientTransformation:
    """AdamW (b1 .9, b2 .999, eps 1e-8); decoupled decay on paths where `decays`, no update (nor moments) where `frozen`.

    first_moment: its dtype (default: the parameter's).
    """
    tx = optax.adamw(lr, weight_decay=weight_decay, mask=lambda tree: by_path(tree, decays), mu_dtype=first_moment)
    tx = optax.partition({"train": tx, "frozen": optax.set_to_zero()},
                         lambda tree: by_path(tree, lambda path: "frozen" if frozen(path) else "train"))

    def update(updates, state, params=None):
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to the power of an int32 count
            return tx.update(updates, state, params)

    return optax.GradientTransformation(tx.init, update)


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Epochs counted from 1; only a strictly better value counts, so the earliest best is the one kept."""

    patience: int
    epoch: int = 0
    best_epoch: int = 0
    best: float | None = None

    def update(self, value: float) -> EarlyStopping:
        """After one more epoch. Raises: ValueError where the value is not finite."""
        if not math.isfinite(value):
            raise ValueError(f"epoch {self.epoch + 1}: the monitored value is {value}")
        epoch = self.epoch + 1
        if self.best is None or value > self.best:
            return dataclasses.replace(self, epoch=epoch, best_epoch=epoch, best=float(value))
        return dataclasses.replace(self, epoch=epoch)

    @property
    def improved(self) -> bool:
        return self.epoch > 0 and self.best_epoch == self.epoch

    @property
    def stop(self) -> bool:
        return self.epoch - self.best_epoch >= self.patience


class MetricsLog:
    """Rows of a run as JSON Lines, one flushed write a row, so that a kill loses at most the row being written."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Raises: ValueError where the row holds NaN."""
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        with open(self.path, "a", encoding="utf-8", newline="\n") as f:
            f.write(text + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows so far; a last line that a kill cut short is left out."""
        if not os.path.exists(self.path) or os.path.getsize(self.path) == 0:
            return
        with open(self.path, "rb") as f:
            whole = f.read().endswith(b"\n")
        held = None
        try:
            for _, row in read_jsonl(self.path):
                if held is not None:
                    yield held
                held = row
        except RecordError:
            if whole:
                raise
        if held is not None:
            yield held

    def rewind(self, keep: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Drop the rows a restored run will write again; returns those that stay."""
        rows = [row for row in self.rows() if keep(row)]
        if rows or os.path.exists(self.path):
            write_jsonl(self.path, rows)
        return rows


def fetch(rows: list[dict[str, jax.Array]], first_step: int) -> list[dict[str, float]]:
    """Metrics of consecutive steps from device to floats, in one transfer.

    Raises: TrainingStopped naming the first step (from 1) whose loss or gradient norm is not finite.
    """
    out = [{k: float(v) for k, v in row.items()} for row in jax.device_get(rows)]
    for i, row in enumerate(out):
        bad = [k for k in ("loss", "grad_norm") if not np.isfinite(row[k])]
        if bad:
            raise TrainingStopped(f"step {first_step + i}: {bad[0]} is {row[bad[0]]}")
    return out
