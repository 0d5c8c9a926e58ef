"""Device meshes and the one table that maps logical axis names to mesh axes. The same code path on CPU."""
from __future__ import annotations

import dataclasses

import jax
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
        return jax.make_mesh((data, self.tensor), ("data", "tensor"), axis_types=(AxisType.Auto, AxisType.Auto),
                             devices=devices[: data * self.tensor])


@dataclasses.dataclass(frozen=True)
class Rules:
    """Logical axis -> mesh axis; an axis that is not listed is replicated. The default: patients over `data`, experts replicated."""

    table: tuple[tuple[str, str | None], ...] = ((A.PATIENTS, "data"), (A.ROWS, "data"))

    def spec(self, *names: str | None) -> PartitionSpec:
        table = dict(self.table)
        return PartitionSpec(*(None if n is None else table.get(n) for n in names))

    def sharding(self, mesh: Mesh, *names: str | None) -> NamedSharding:
        return NamedSharding(mesh, self.spec(*names))
