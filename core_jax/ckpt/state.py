"""Training state on disk (orbax): any pytree of arrays plus a JSON side record, one folder per step.

A step's folder appears by a rename once all of it is written, so a kill leaves the earlier steps and no half of a new
one. Arrays are kept under their tree path ("params.expert.w1"), whatever containers held them, and are restored onto
the shardings of the tree that is asked for: saved on 8 devices, restored on 2. Shapes, dtypes and the set of paths
must match both ways; nothing is cast, padded or skipped. Typed PRNG keys are stored as their key data. Each array's
checksum is taken on its device and compared after a restore, since orbax returns flipped bits without a word.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

PyTree = Any


class CheckpointError(ValueError):
    """A checkpoint that is missing, corrupt, or not of the expected form; the message names folder, step and path."""


def _is_key(leaf) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_form(leaf) -> tuple[jax.ShapeDtypeStruct, Any]:
    """(form of its key data, implementation) of a typed key that may be abstract."""
    impl = []

    def data(key):
        impl.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    return jax.eval_shape(data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)), impl[0]


def _flat(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    flat = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    if len(flat) != len(leaves):
        raise ValueError("state: two leaves share one path; a dict key must not contain '.' as a path does")
    return flat


@jax.jit
def _checksum(x: jax.Array) -> jax.Array:
    """uint32[]: sum of the words, each times an odd number of its own, modulo 2^32; any single changed word changes it."""
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    word = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    x = jax.lax.bitcast_convert_type(x, word).astype(jnp.uint32)
    place, stride = jnp.zeros(x.shape, jnp.uint32), 1
    for axis in reversed(range(x.ndim)):
        place = place + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis) * jnp.uint32(stride % 2**32)
        stride *= x.shape[axis]
    return jnp.sum(x * ((place * jnp.uint32(2) + jnp.uint32(1)) * jnp.uint32(2654435761)), dtype=jnp.uint32)


def _checksums(flat: Mapping[str, jax.Array]) -> dict[str, int]:
    return {name: int(v) for name, v in jax.device_get({name: _checksum(x) for name, x in flat.items()}).items()}


def _form(leaf) -> list:
    """[shape, dtype name] as stored in the side record."""
    return [list(leaf.shape), str(leaf.dtype)]


class Checkpoints:
    """The steps under one folder, the newest `keep` of them.

    Args:
      folder: created on the first save.
      keep: older steps are deleted after a newer one is complete; None keeps all.
    """

    def __init__(self, folder: str | os.PathLike, *, keep: int | None = 2):
        self.folder = os.path.abspath(os.fspath(folder))
        self._keep = keep
        self._open: ocp.CheckpointManager | None = None

    @property
    def _manager(self) -> ocp.CheckpointManager:
        if self._open is None:
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self._keep, create=True, cleanup_tmp_directories=True, enable_async_checkpointing=True)
            self._open = ocp.CheckpointManager(self.folder, options=options)
        return self._open

    def steps(self) -> list[int]:
        """Complete steps, ascending; [] where nothing was saved."""
        return sorted(self._manager.all_steps()) if os.path.isdir(self.folder) else []

    def latest(self) -> int | None:
        return max(self.steps(), default=None)

    def save(self, step: int, state: PyTree, side: Mapping[str, Any], *, wait: bool = False) -> None:
        """Write `state` and `side` as `step`; a step of that number is replaced.

        Returns as soon as the arrays are copied off the devices (they may be donated at once); `wait` blocks until the
        folder is complete. A failed background write raises from the next `save` or `wait`.

        Raises: ValueError when `side` is not plain JSON (NaN included); CheckpointError when writing fails.
        """
        flat = _flat(state)
        try:
            record = json.loads(json.dumps(dict(side), allow_nan=False))
        except (TypeError, ValueError) as e:
            raise ValueError(f"side record of step {step} is not JSON: {e}") from None
        forms = {name: _form(leaf) for name, leaf in flat.items()}
        flat = {name: jax.random.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in flat.items()}
        record = {"side": record, "forms": forms, "checksums": _checksums(flat)}
        if step in self.steps():
            self.wait()
            self._manager.delete(step)
        try:
            self._manager.save(step, force=True, args=ocp.args.Composite(
                state=ocp.args.StandardSave(flat), side=ocp.args.JsonSave(record)))
        except Exception as e:
            raise self._unwritten(e) from e
        if wait:
            self.wait()

    def wait(self) -> None:
        """Block until every save is complete. Raises: CheckpointError where one failed (the disk is full, say)."""
        if self._open is not None:
            try:
                self._open.wait_until_finished()
            except Exception as e:
                raise self._unwritten(e) from e

    def _unwritten(self, cause: Exception) -> CheckpointError:
        return CheckpointError(f"{self.folder}: a checkpoint could not be written ({type(cause).__name__}: {str(cause)[:400]})")

    def close(self) -> None:
        """Wait for saves under way and let go of the folder."""
        if self._open is not None:
            manager, self._open = self._open, None
            try:
                manager.close()
            except Exception as e:
                raise self._unwritten(e) from e

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:  # else the error that brought us here is the one to see
                raise

    def _require(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"{self.folder}: no complete checkpoint here")
        if step is None:
            return steps[-1]
        if step not in steps:
            raise CheckpointError(f"{self.folder}: no checkpoint of step {step}; there are {steps}")
        return step

    def side(self, step: int | None = None) -> dict[str, Any]:
        """The side record of `step` (default: the latest). Raises: CheckpointError."""
        return self._record(self._require(step))["side"]

    def _record(self, step: int) -> dict[str, Any]:
        try:
            record = self._manager.restore(step, args=ocp.args.Composite(side=ocp.args.JsonRestore())).side
            return {name: record[name] for name in ("side", "forms", "checksums")}
        except Exception as e:
            raise self._corrupt(step, e) from e

    def restore(self, like: PyTree, step: int | None = None) -> tuple[PyTree, dict[str, Any]]:
        """(state, side) of `step` (default: the latest).

        Args:
          like: tree of arrays or ShapeDtypeStruct; gives the structure, and each leaf's sharding where it has one.

        Raises: CheckpointError: nothing saved, unreadable files, a path, shape or dtype that differs.
        """
        step = self._require(step)
        record = self._record(step)
        want = _flat(like)
        self._compare(step, record["forms"], {name: _form(leaf) for name, leaf in want.items()})

        first = jax.sharding.SingleDeviceSharding(jax.devices()[0])

        def abstract(leaf):
            form, sharding = (_key_form(leaf)[0], first) if _is_key(leaf) else (leaf, getattr(leaf, "sharding", None))
            return jax.ShapeDtypeStruct(form.shape, form.dtype, sharding=sharding or first)

        target = {name: abstract(leaf) for name, leaf in want.items()}
        try:
            got = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(target))).state
        except Exception as e:
            raise self._corrupt(step, e) from e
        sums = _checksums(got)
        if bad := [name for name in sorted(sums) if sums[name] != record["checksums"][name]]:
            raise self._corrupt(step, ValueError(f"the checksum of {bad[0]} is {sums[bad[0]]}, expected {record['checksums'][bad[0]]}"))
        leaves = [jax.random.wrap_key_data(got[name], impl=_key_form(leaf)[1]) if _is_key(leaf) else got[name]
                  for name, leaf in want.items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), record["side"]

    def _compare(self, step: int, stored: dict[str, list], expected: dict[str, list]) -> None:
        lines = [f"  {name}: got {stored.get(name, 'nothing')}, expected {expected.get(name, 'nothing')}"
                 for name in sorted(stored | expected) if stored.get(name) != expected.get(name)]
        if lines:
            more = f"\n  and {len(lines) - 20} more" if len(lines) > 20 else ""
            raise CheckpointError(f"{self.folder}, step {step}: the stored state is of another form\n"
                                  + "\n".join(lines[:20]) + more)

    def _corrupt(self, step: int, cause: Exception) -> CheckpointError:
        others = [s for s in self.steps() if s != step]
        hint = f"; delete {os.path.join(self.folder, str(step))} to fall back on step {others[-1]}" if others else ""
        return CheckpointError(f"{self.folder}, step {step}: unreadable ({type(cause).__name__}: {str(cause)[:300]}){hint}")
