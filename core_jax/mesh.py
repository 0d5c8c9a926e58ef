"""Device meshes and the one table that maps logical axis names to mesh axes. The same code path on CPU."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from core_jax import axes as A


@dataclasses.dataclass(frozen=True)
class MeshSpec:
    """Sizes of the mesh axes `data` and `tensor`; data=-1 takes every device that tensor leaves."""

    data: int = -1
    tensor: int = 1

    def build(self, devices=None) -> Mesh:
        """Raises: ValueError where the sizes do not fit the number of devices."""
        devices = jax.devices() if devices is None else devices
        data = len(devices) // self.tensor if self.data == -1 else self.data
        if data * self.tensor > len(devices) or data < 1 or (self.data == -1 and data * self.tensor != len(devices)):
            raise ValueError(f"mesh data={self.data} tensor={self.tensor} does not fit {len(devices)} devices")
        grid = mesh_utils.create_device_mesh(  # of a 4x4x4 torus, 8 x 8 takes half of one of its axes
            (data, self.tensor), devices[: data * self.tensor], allow_split_physical_axes=True)
        return Mesh(grid, ("data", "tensor"), axis_types=(AxisType.Auto, AxisType.Auto))


@dataclasses.dataclass(frozen=True)
class Rules:
    """Logical axis -> mesh axis; an axis that is not listed is replicated. The default: patients over `data`, experts replicated."""

    table: tuple[tuple[str, str | None], ...] = ((A.PATIENTS, "data"), (A.ROWS, "data"))

    def spec(self, *names: str | None) -> PartitionSpec:
        table = dict(self.table)
        return PartitionSpec(*(None if n is None else table.get(n) for n in names))

    def sharding(self, mesh: Mesh, *names: str | None) -> NamedSharding:
        return NamedSharding(mesh, self.spec(*names))

    def without(self, *names: str) -> Rules:
        """The same rules with these axes replicated."""
        return Rules(tuple((name, axis) for name, axis in self.table if name not in names))


# A decoder that is served: matrices by heads and feed-forward over `tensor`, whole on every group of devices along
# `data`, which share out the tokens of a step.
TENSOR = Rules((
    (A.TOKENS, "data"), (A.HEADS, "tensor"), (A.KV_HEADS, "tensor"), (A.FFN, "tensor"), (A.VOCAB, "tensor")))
# A decoder that is trained, or that fits no group of `tensor` devices: widths over `data` as well, and each layer's
# matrices are gathered when it runs.
FSDP = Rules((*TENSOR.table, (A.EMBED, "data")))


def tokens_over(mesh: Mesh | None, rules: Rules = TENSOR) -> Callable[[jax.Array], jax.Array]:
    """x [M, ...] -> x in a jitted function: its rows over the axis of tokens, whole where that does not divide M."""
    axis = dict(rules.table).get(A.TOKENS)
    if mesh is None or axis is None:
        return lambda x: x

    def spread(x: jax.Array) -> jax.Array:
        first = None if x.shape[0] % mesh.shape[axis] else axis
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(first)))

    return spread


def mesh_of(tree: Any) -> Mesh | None:
    """The mesh of several devices that a tree of arrays lies on; None where it lies on one device."""
    for x in jax.tree.leaves(tree):
        sharding = getattr(x, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            return sharding.mesh
    return None
