"""select_pool over a mesh: every device keeps the rows of its own patients, so no row ever travels."""
from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from jax_kernels.select_pool.api import select_pool


def select_pool_sharded(q: jax.Array, x: jax.Array, offsets: jax.Array, *, k: int, max_segment: int, mesh: Mesh,
                        axis: str = "data", temperature: float = 1.0, implementation: str | None = None):
    """select_pool with patients and rows sharded over a mesh axis of D devices.

    Args:
        q: [N, d], replicated. x: [D*S, d], block i of S rows on device i. offsets: int32 [D, P+1], row i counts inside
        block i. The rest as in `select_pool`.
    Returns: as `select_pool` for D*P patients, sharded over patients; rows count in the whole of x. The gradient of q
        is summed over the devices once.
    Raises: ValueError where the shapes do not fit the mesh axis.
    """
    if axis not in mesh.shape:
        raise ValueError(f"mesh has axes {tuple(mesh.shape)}, expected {axis!r} among them")
    shards = mesh.shape[axis]
    if offsets.ndim != 2 or offsets.shape[0] != shards or x.shape[0] % shards:
        raise ValueError(f"got offsets {tuple(offsets.shape)} and x {tuple(x.shape)}, expected [D, P+1] and [D*S, d] "
                         f"with D={shards}")

    def local(q, x, offsets):
        q = jax.lax.pcast(q, axis, to="varying")  # its transpose is the sum of dq over the devices
        c, alpha, scores, rows, valid = select_pool(q, x, offsets[0], k=k, max_segment=max_segment,
                                                    temperature=temperature, implementation=implementation)
        first = jax.lax.axis_index(axis) * x.shape[0]
        return c, alpha, scores, jnp.where(valid, rows + first, -1), valid

    return jax.shard_map(local, mesh=mesh, in_specs=(Spec(), Spec(axis), Spec(axis)), out_specs=Spec(axis),
                         axis_names={axis})(q, x, offsets)
