"""Parameters declared once: a nested dict of ParamSpec gives init, abstract shapes, shardings and the golden JSON."""
from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from core_jax import axes as A
from core_jax.mesh import Rules

Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ParamSpec:
    """Shape, dtype, logical axes (one name or None a dimension) and initialiser of one array.

    init: "zeros", "ones", or ("normal", stddev).
    Raises: ValueError where axes do not fit the shape or name no logical axis.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: str | tuple[str, float] = ("normal", 0.02)
    dtype: str = "float32"

    def __post_init__(self):
        if len(self.axes) != len(self.shape):
            raise ValueError(f"got {len(self.axes)} axes {self.axes} for shape {self.shape}")
        if unknown := [a for a in self.axes if a is not None and a not in A.ALL]:
            raise ValueError(f"unknown logical axis {unknown[0]!r}; expected one of {A.ALL}")
        if not (self.init in ("zeros", "ones") or (isinstance(self.init, tuple) and self.init[0] == "normal")):
            raise ValueError(f"unknown init {self.init!r}")


def _is_spec(x) -> bool:
    return isinstance(x, ParamSpec)


def leaves(spec: Tree) -> list[tuple[str, ParamSpec]]:
    """(path "a/b/c", spec) in sorted order of the tree."""
    flat, _ = jax.tree_util.tree_flatten_with_path(spec, is_leaf=_is_spec)
    return [("/".join(str(k.key) for k in path), s) for path, s in flat]


def init(spec: Tree, key: jax.Array) -> Tree:
    """Arrays for a spec tree. Each leaf's key is folded from its path, so adding a leaf changes no other."""
    def make(path, s: ParamSpec):
        if s.init == "zeros":
            return jnp.zeros(s.shape, s.dtype)
        if s.init == "ones":
            return jnp.ones(s.shape, s.dtype)
        name = "/".join(str(k.key) for k in path)
        k = jax.random.fold_in(key, zlib.crc32(name.encode()))
        return (s.init[1] * jax.random.normal(k, s.shape, jnp.float32)).astype(s.dtype)

    return jax.tree_util.tree_map_with_path(make, spec, is_leaf=_is_spec)


def abstract(spec: Tree) -> Tree:
    """jax.ShapeDtypeStruct tree: the shapes of a model of any size without memory."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, jnp.dtype(s.dtype)), spec, is_leaf=_is_spec)


def shardings(spec: Tree, mesh: jax.sharding.Mesh, rules: Rules) -> Tree:
    """NamedSharding tree for a mesh under the rules."""
    return jax.tree.map(lambda s: NamedSharding(mesh, rules.spec(*s.axes)), spec, is_leaf=_is_spec)


def count(spec: Tree) -> int:
    """Number of scalars."""
    total = 0
    for _, s in leaves(spec):
        size = 1
        for n in s.shape:
            size *= n
        total += size
    return total


def golden(spec: Tree) -> dict[str, dict[str, Any]]:
    """JSON form of a tree: path -> shape, dtype, axes. Tests compare it with a committed file."""
    return {path: {"shape": list(s.shape), "dtype": s.dtype, "axes": list(s.axes)} for path, s in leaves(spec)}


def check(spec: Tree, params: Tree, *, where: str = "parameters") -> None:
    """Raises: ValueError listing every missing, unexpected or misshaped array at once."""
    want = dict(leaves(spec))
    flat, _ = jax.tree_util.tree_flatten_with_path(params)
    have = {"/".join(str(k.key) for k in path): x for path, x in flat}
    bad = [f"missing {p}" for p in want if p not in have] + [f"unexpected {p}" for p in have if p not in want]
    bad += [f"{p}: got {tuple(have[p].shape)}, expected {s.shape}" for p, s in want.items()
            if p in have and tuple(have[p].shape) != s.shape]
    if bad:
        raise ValueError(f"{where}: " + "; ".join(bad))
