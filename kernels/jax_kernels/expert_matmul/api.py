"""expert_matmul: a stack of products whose gradient to the input is laid out for the platform."""
from __future__ import annotations

from functools import partial

import jax

from jax_kernels import dispatch
from jax_kernels.expert_matmul import reference, xla_cpu

TABLE = (
    dispatch.Implementation("xla_cpu", xla_cpu.to_x, ("cpu",)),
    dispatch.Implementation("reference", reference.to_x),
)


def expert_matmul(x: jax.Array, w: jax.Array, *, implementation: str | None = None) -> jax.Array:
    """y[n] = x[n] @ w[n] for every expert n.

    Args: x: float32 [N, P, a]. w: float32 [N, a, b]. implementation: of the gradient to x; the forward product and the
        gradient to w are the same everywhere.
    Returns: float32 [N, P, b]. Reverse-mode differentiable once.
    Raises: ValueError on shapes that do not fit.
    """
    if x.ndim != 3 or w.ndim != 3 or x.shape[0] != w.shape[0] or x.shape[2] != w.shape[1]:
        raise ValueError(f"got x {tuple(x.shape)} and w {tuple(w.shape)}, expected [N, P, a] and [N, a, b]")
    return _expert_matmul(x, w, implementation)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _expert_matmul(x, w, implementation):
    return reference.forward(x, w)


def _forward(x, w, implementation):
    return reference.forward(x, w), (x, w)


def _backward(implementation, saved, dy):
    x, w = saved
    dx = dispatch.call("expert_matmul", TABLE, implementation, dy, w)
    return dx.astype(x.dtype), reference.to_w(x, dy).astype(w.dtype)


_expert_matmul.defvjp(_forward, _backward)
