"""Low-rank adapters (Hu et al., 2021) beside frozen weights: y = x W^T + s (x A^T) B^T. Knows no model.

What is trained is a tree of its own, float32, keyed by the paths of the parameters that it changes:

    {"lora":   {"layers/wq": {"a": [L, R, in], "b": [L, out, R]}, ...},
     "tables": {"embed/token": [V, D] whole, or [n, D] the rows of n new tokens}}

A model takes it through two hooks: `dense`, which does one projection from a layer's parameters, and `overlay`, more
parameters for the layers. `bind` gives both. PEFT folders are read and written. Letters as in core_jax/axes.py; M
tokens laid end to end, n adapters or new tokens.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core_jax import axes as A
from core_jax import params as P
from core_jax.ckpt import hf
from core_jax.records import atomic_write

# x [M, in], the layer's parameters, name of the matrix -> x W^T [M, out]
Dense = Callable[[jax.Array, P.Tree, str], jax.Array]
ADAPTER, SETTINGS = "adapter_model.safetensors", "adapter_config.json"


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """What is trained beside the base.

    Attributes:
        targets: paths of the adapted matrices, stacked `[L, out, in]`.
        alpha: the update is scaled by alpha / rank, with rs_lora by alpha / sqrt(rank) (Kalajdzievski, 2023).
        dropout: of an adapter's input, in training.
        tables: paths of `[V, D]` tables that are trained as well.
        rows: ids of new tokens; only these rows of the tables are trained, unless train_full_embeddings.
        train_full_embeddings: the tables are trained whole; `rows` then says no more than which start anew.
    """

    targets: tuple[str, ...]
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    rs_lora: bool = False
    tables: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    train_full_embeddings: bool = False

    def __post_init__(self):
        if self.rank < 1:
            raise ValueError(f"rank: got {self.rank}, expected at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: got {self.dropout}, expected at least 0 and below 1")
        if not math.isfinite(self.alpha) or self.alpha <= 0:
            raise ValueError(f"alpha: got {self.alpha}, expected a positive number")
        for name in ("targets", "tables", "rows"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name}: got {getattr(self, name)}, expected each once")
        if self.rows and not self.tables:
            raise ValueError(f"rows: got {self.rows}, expected tables that have them")
        if self.train_full_embeddings and not self.tables:
            raise ValueError("train_full_embeddings: got no tables to train")
        if not self.targets and not self.tables:
            raise ValueError("targets: got none, and no tables; expected something to train")

    @property
    def rows_only(self) -> bool:
        """Whether the trained tables are [n, D], the rows of the new tokens."""
        return bool(self.rows) and not self.train_full_embeddings

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rs_lora else self.rank)


# ---- the trained tree -----------------------------------------------------------------------------------------

def spec(config: LoraConfig, base: P.Tree) -> P.Tree:
    """The trained tree, declared; axes follow the base's, so its sharding rules hold here too.

    Raises: ValueError: a path that the base lacks or whose shape does not serve, a row outside a table.
    """
    flat = dict(P.leaves(base))

    def of(path: str, field: str, dims: int) -> P.ParamSpec:
        if path not in flat:
            raise ValueError(f"{field}: the model has no {path!r}; it has {', '.join(flat)}")
        if len(flat[path].shape) != dims or (dims == 3) != (flat[path].axes[0] == A.LAYERS):
            what = "stacked matrix [L, out, in]" if dims == 3 else "table [V, D]"
            raise ValueError(f"{field}: {path!r} has shape {flat[path].shape}, expected a {what}")
        return flat[path]

    lora, tables, r = {}, {}, config.rank
    for path in config.targets:
        s = of(path, "targets", 3)
        n, out, in_ = s.shape
        lora[path] = {  # A as wide as PEFT's uniform start, which has variance 1 / (3 in)
            "a": P.ParamSpec((n, r, in_), (s.axes[0], None, s.axes[2]), ("normal", (3 * in_) ** -0.5)),
            "b": P.ParamSpec((n, out, r), (s.axes[0], s.axes[1], None), "zeros"),
        }
    for path in config.tables:
        s = of(path, "tables", 2)
        if bad := [i for i in config.rows if not 0 <= i < s.shape[0]]:
            raise ValueError(f"rows: got {bad[0]}, expected one of the {s.shape[0]} rows of {path}")
        axes = (None, s.axes[1]) if config.rows_only else s.axes
        tables[path] = P.ParamSpec((len(config.rows) if config.rows_only else s.shape[0], s.shape[1]), axes, "zeros")
    return {"lora": lora, "tables": tables}


def init(config: LoraConfig, base: P.Tree, params: P.Tree, key: jax.Array) -> P.Tree:
    """A start that computes what the base does: B is zero, tables are the base's.

    The rows of new tokens start at the mean of all other rows: untrained rows are near zero in some checkpoints, and
    models trained from those did not learn them.
    """
    tree = P.init(spec(config, base), key)
    ids = np.asarray(config.rows, np.int32)
    for path in config.tables:
        table = jnp.asarray(leaf(params, path), jnp.float32)
        mean = (table.sum(0) - table[ids].sum(0)) / (table.shape[0] - len(ids))
        fresh = jnp.tile(mean[None], (len(ids), 1))
        tree["tables"][path] = fresh if config.rows_only else table.at[ids].set(fresh)
    return tree


# ---- applying it ----------------------------------------------------------------------------------------------

@functools.partial(jax.tree_util.register_dataclass, data_fields=("table", "ids", "rows"), meta_fields=())
@dataclasses.dataclass(frozen=True)
class Table:
    """A frozen table [V, D] whose rows `ids` [n] are `rows` [n, D]; indexing by token ids sees the new rows.

    The gradient reaches `rows` through a one-hot product: no [V, D] gradient, and no scatter, which XLA has miscompiled
    under sharding.
    """

    table: jax.Array
    ids: jax.Array
    rows: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.shape

    @property
    def dtype(self) -> np.dtype:
        return self.table.dtype

    def __getitem__(self, tokens: jax.Array) -> jax.Array:
        """tokens: int32 [...] -> [..., D] in the dtype of the table."""
        hot = tokens[..., None] == jnp.expand_dims(self.ids, range(tokens.ndim))
        new = jnp.matmul(hot.astype(jnp.float32), self.rows, precision=jax.lax.Precision.HIGHEST)
        old = jax.lax.stop_gradient(self.table)[tokens]
        return jnp.where(hot.any(-1, keepdims=True), new.astype(old.dtype), old)

    def whole(self) -> jax.Array:
        """[V, D] in the dtype of the table."""
        return self.table.at[self.ids].set(self.rows.astype(self.table.dtype))


def leaf(params: P.Tree, path: str) -> Any:
    """The parameter at "a/b"."""
    node: Any = params
    for name in path.split("/"):
        node = node[name]
    return node


def replaced(params: P.Tree, path: str, value: Any) -> P.Tree:
    """params with another value at "a/b"; the rest is shared."""
    first, _, rest = path.partition("/")
    return params | {first: replaced(params[first], rest, value) if rest else value}


def with_tables(config: LoraConfig, params: P.Tree, trained: P.Tree) -> P.Tree:
    """params that read the trained tables, in the base's dtype; a `Table` where only rows are trained."""
    for path, x in trained["tables"].items():
        old = leaf(params, path)
        new = Table(old, jnp.asarray(config.rows, jnp.int32), x) if config.rows_only else x.astype(old.dtype)
        params = replaced(params, path, new)
    return params


def bind(config: LoraConfig, trained: P.Tree, base: Dense, *, key: jax.Array | None = None) -> tuple[Dense, P.Tree]:
    """(dense, overlay) for a model whose own projection is `base`.

    Args:
        key: of the dropout, in training; None applies none.
    """
    lora = {_name(path): ab for path, ab in trained["lora"].items()}
    overlay: P.Tree = {"lora": lora}
    drops = key is not None and config.dropout > 0
    if drops and lora:
        overlay["lora_key"] = jax.random.split(key, next(iter(lora.values()))["a"].shape[0])

    def dense(x: jax.Array, layer: P.Tree, name: str) -> jax.Array:
        y = base(x, layer, name)
        if name not in layer["lora"]:
            return y
        if drops:
            own = jax.random.fold_in(layer["lora_key"], zlib.crc32(name.encode()))
            keep = jax.random.bernoulli(own, 1 - config.dropout, x.shape)
            x = jnp.where(keep, x / (1 - config.dropout), jnp.zeros((), x.dtype))
        return _add(y, x, layer["lora"][name], lambda h: h * config.scale)

    return dense, overlay


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _add(y: jax.Array, x: jax.Array, ab: P.Tree, scaled: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """y [M, out] + scaled(x A^T) B^T; products in the dtype of x, sums in float32."""
    h = scaled(_product(x, ab["a"])).astype(x.dtype)
    return (y.astype(jnp.float32) + _product(h, ab["b"])).astype(y.dtype)


def _product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x [M, in], w [out, in] -> float32 [M, out]."""
    return jax.lax.dot_general(x, w.astype(x.dtype), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def merge(config: LoraConfig, params: P.Tree, trained: P.Tree) -> P.Tree:
    """params with the adapters added in and the tables replaced: the base's tree and dtypes, nothing else to apply.

    Raises: ValueError: a target that is no array (a quantised one: dequantise it first).
    """
    for path, ab in trained["lora"].items():
        w = leaf(params, path)
        if not isinstance(w, (jax.Array, np.ndarray)):
            raise ValueError(f"{path}: got {type(w).__name__}, expected an array; a quantised base is not merged into")
        params = replaced(params, path, _merged(w, ab["a"], ab["b"], config.scale))
    params = with_tables(config, params, trained)
    return jax.tree.map(lambda x: x.whole() if isinstance(x, Table) else x, params,
                        is_leaf=lambda x: isinstance(x, Table))


@functools.partial(jax.jit, static_argnames="scale")
def _merged(w: jax.Array, a: jax.Array, b: jax.Array, scale: float) -> jax.Array:
    """[L, out, in]; layer by layer, so that no second stack stands in memory."""
    def one(of):
        w, a, b = of
        update = jnp.matmul(b, a, precision=jax.lax.Precision.HIGHEST)
        return (w.astype(jnp.float32) + scale * update).astype(w.dtype)

    return jax.lax.map(one, (w, a, b))


# ---- several adapters over one base, by token -----------------------------------------------------------------

def slots(base: P.Tree, targets: Sequence[str], *, rank: int, count: int) -> P.Tree:
    """Declares room for `count` adapters of rank up to `rank`, ranks end to end: a [L, n R, in], b [L, out, n R].

    Its shapes never change, so nothing is compiled again when an adapter is put in. All zero is all empty.
    """
    tree = spec(LoraConfig(tuple(targets), rank=rank * count), base)["lora"]
    return {path: {name: dataclasses.replace(s, init="zeros") for name, s in ab.items()} for path, ab in tree.items()}


def put(room: P.Tree, slot: jax.Array | int, adapter: P.Tree, *, count: int) -> P.Tree:
    """`room` with the adapter (`trained["lora"]`) in a slot, what was there cleared; jit-compatible.

    Raises: ValueError: a target without room, a rank above the room's.
    """
    if unknown := sorted(set(adapter) - set(room)):
        raise ValueError(f"adapter: changes {unknown[0]}, expected no more than {', '.join(room)}")
    out = {}
    for path, into in room.items():
        rank = into["a"].shape[1] // count
        own = adapter.get(path)
        parts = {}
        for name, axis in (("a", 1), ("b", 2)):
            shape = list(into[name].shape)
            shape[axis] = rank
            part = jnp.zeros(shape, into[name].dtype) if own is None else own[name].astype(into[name].dtype)
            if part.shape[axis] > rank:
                raise ValueError(f"adapter: {path}: got rank {part.shape[axis]}, expected at most {rank}")
            part = jnp.pad(part, [(0, n - have) for n, have in zip(shape, part.shape)])
            start = jnp.asarray(slot, jnp.int32) * rank
            parts[name] = jax.lax.dynamic_update_slice_in_dim(into[name], part, start, axis)
        out[path] = parts
    return out


def bind_slots(room: P.Tree, slot: jax.Array, scales: jax.Array, base: Dense) -> tuple[Dense, P.Tree]:
    """(dense, overlay) where each token has the adapter of its own.

    Two products over all ranks with a mask between them: a token pays for every slot, and n R is small.

    Args:
        room: of `slots`.
        slot: [M] int32, -1 for the base alone, bit for bit.
        scales: [n] float32, `LoraConfig.scale` of each.
    """
    rank = next(iter(room.values()))["a"].shape[1] // scales.shape[0]
    own = slot[:, None] == jnp.arange(scales.shape[0], dtype=jnp.int32)[None]
    mask = jnp.repeat(jnp.where(own, scales[None], jnp.float32(0)), rank, axis=1)

    def dense(x: jax.Array, layer: P.Tree, name: str) -> jax.Array:
        y = base(x, layer, name)
        return y if name not in layer["lora"] else _add(y, x, layer["lora"][name], lambda h: h * mask)

    return dense, {"lora": {_name(path): ab for path, ab in room.items()}}


# ---- PEFT folders ---------------------------------------------------------------------------------------------

_PREFIX = "base_model.model."
# fields of adapter_config.json that say nothing about what is computed, or only in company of one that is refused
_DESCRIPTIVE = frozenset({
    "auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights", "layers_pattern",
    "megatron_core", "peft_version", "qalora_group_size", "revision", "task_type", "ensure_weight_tying",
    "loftq_config",
})
_READ = frozenset({
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "modules_to_save",
    "trainable_token_indices", "bias",
})


def _module(key: str) -> str:
    """"model.layers.0.self_attn.q_proj.weight" -> "model.layers.0.self_attn.q_proj"."""
    return key.removesuffix(".weight")


def _sources(config: LoraConfig, sources: Mapping[str, hf.Source]) -> dict[str, hf.Source]:
    """Path within the trained tree -> its tensors in PEFT's file."""
    out = {}
    for path in config.targets:
        for name in ("a", "b"):
            keys = tuple(f"{_PREFIX}{_module(k)}.lora_{name.upper()}.weight" for k in sources[path].keys)
            out[f"lora/{path}/{name}"] = hf.Source(keys, stacked=True)
    end = "token_adapter.trainable_tokens_delta" if config.rows_only else "weight"
    for path in config.tables:
        out[f"tables/{path}"] = hf.Source((f"{_PREFIX}{_module(sources[path].keys[0])}.{end}",))
    return out


def write_peft(
    folder: str | os.PathLike, config: LoraConfig, trained: P.Tree, sources: Mapping[str, hf.Source], *,
    base: str | None = None,
) -> None:
    """A folder that `peft.PeftModel.from_pretrained` reads.

    Args:
        sources: of the base model, as its file declares them.
        base: where the base model came from, recorded as `base_model_name_or_path`.
    """
    def last(path: str) -> str:
        return _module(sources[path].keys[0]).rpartition(".")[2]

    modules = [last(path) for path in config.tables]
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": True,
        "r": config.rank, "lora_alpha": config.alpha, "lora_dropout": config.dropout, "use_rslora": config.rs_lora,
        "target_modules": sorted(map(last, config.targets)), "bias": "none", "fan_in_fan_out": False,
        "modules_to_save": None if config.rows_only or not modules else modules,
        "trainable_token_indices": {m: list(config.rows) for m in modules} if config.rows_only else None,
    }
    tensors = {}
    for path, source in _sources(config, sources).items():
        group, _, rest = path.partition("/")
        if group == "lora":
            target, _, name = rest.rpartition("/")
            x = np.asarray(trained["lora"][target][name])
            tensors |= {key: np.ascontiguousarray(x[i]) for i, key in enumerate(source.keys)}
        else:
            tensors[source.keys[0]] = np.asarray(trained["tables"][rest])
    folder = os.fspath(folder)
    with atomic_write(os.path.join(folder, ADAPTER), "wb") as f:
        f.write(save(tensors, metadata={"format": "pt"}))
    with atomic_write(os.path.join(folder, SETTINGS)) as f:
        json.dump(settings, f, indent=2)


def read_peft(
    folder: str | os.PathLike, base: P.Tree, sources: Mapping[str, hf.Source], *, shardings: Callable | None = None
) -> tuple[LoraConfig, P.Tree]:
    """(config, trained tree) of an adapter folder.

    Args:
        base, sources: of the base model, as its file declares them.
        shardings: spec tree -> tree of shardings; None: the default device.

    Raises:
        ValueError: naming the file and field: absent files, a kind of adapter that is not computed here (DoRA, biases,
            ranks by pattern, some layers alone), modules that the model lacks; one report of all missing, unexpected
            and misshaped tensors.
    """
    folder = os.fspath(folder)
    config = _read_settings(_settings(folder), base, sources, os.path.join(folder, SETTINGS))
    tree = spec(config, base)
    flat = {path: s for path, s in P.leaves(tree)}
    nested = hf.load(_File(os.path.join(folder, ADAPTER)), _nest(flat), _sources(config, sources),
                     shardings=None if shardings is None else _nest(dict(_paths(shardings(tree)))))
    lora = {path: leaf(nested["lora"], path) for path in config.targets}
    return config, {"lora": lora, "tables": {path: leaf(nested["tables"], path) for path in config.tables}}


def base_of(folder: str | os.PathLike) -> str | None:
    """Where an adapter folder says that its base model came from. Raises: ValueError: no adapter there."""
    return _settings(os.fspath(folder)).get("base_model_name_or_path")


def _settings(folder: str) -> dict[str, Any]:
    where = os.path.join(folder, SETTINGS)
    try:
        with open(where, encoding="utf-8") as f:
            raw = json.load(f)
    except FileNotFoundError:
        raise ValueError(f"{folder}: no {SETTINGS} in it; expected a PEFT adapter") from None
    except ValueError as e:
        raise ValueError(f"{where}: not JSON ({e})") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: got {type(raw).__name__}, expected an object")
    return raw


def _paths(tree: P.Tree) -> list[tuple[str, Any]]:
    return [("/".join(str(k.key) for k in path), x) for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _nest(flat: Mapping[str, Any]) -> P.Tree:
    out: P.Tree = {}
    for path, x in flat.items():
        *parents, name = path.split("/")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = x
    return out


def _read_settings(raw: dict[str, Any], base: P.Tree, sources: Mapping[str, hf.Source], where: str) -> LoraConfig:
    if (kind := raw.get("peft_type")) != "LORA":
        raise ValueError(f"{where}: peft_type: got {kind!r}, expected 'LORA'")
    if raw.get("bias", "none") != "none":
        raise ValueError(f"{where}: bias: got {raw['bias']!r}, expected 'none'")
    for name, value in raw.items():
        if value and name not in _READ | _DESCRIPTIVE:
            raise ValueError(f"{where}: {name}: got {value!r}, which is not computed here")

    def number(name: str, kinds: tuple[type, ...], default: Any = None) -> Any:
        value = raw.get(name, default)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{where}: {name}: got {value!r}, expected {' or '.join(k.__name__ for k in kinds)}")
        return value

    dims = {path: len(s.shape) for path, s in P.leaves(base)}

    def path_of(module: Any, field: str, want: int) -> str:
        """The one parameter whose modules end in this name."""
        found = [p for p, s in sources.items() if dims[p] == want
                 and all(isinstance(module, str) and f".{_module(k)}".endswith(f".{module}") for k in s.keys)]
        if len(found) != 1:
            raise ValueError(f"{where}: {field}: got {module!r}, expected a module of this model")
        return found[0]

    targets = raw.get("target_modules")
    if not isinstance(targets, list):
        raise ValueError(f"{where}: target_modules: got {targets!r}, expected a list of module names")
    rows = raw.get("trainable_token_indices")
    if isinstance(rows, list):
        rows = {"embed_tokens": rows}
    kinds = {tuple(ids) for ids in (rows or {}).values()}
    if len(kinds) > 1 or (kinds and raw.get("modules_to_save")):
        raise ValueError(f"{where}: trainable_token_indices: got {rows}, expected the same ids for all tables and no "
                         f"modules_to_save")
    tables = list(rows) if rows else raw.get("modules_to_save") or []
    order = {path: i for i, path in enumerate(sources)}
    try:
        return LoraConfig(
            targets=tuple(sorted((path_of(m, "target_modules", 3) for m in targets), key=order.get)),
            rank=number("r", (int,)), alpha=float(number("lora_alpha", (int, float))),
            dropout=float(number("lora_dropout", (int, float), 0.0)), rs_lora=number("use_rslora", (bool,), False),
            tables=tuple(sorted((path_of(m, "modules_to_save", 2) for m in tables), key=order.get)),
            rows=kinds.pop() if kinds else ())
    except ValueError as e:
        raise ValueError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None


class _File:
    """One safetensors file, as `hf.load` reads a store."""

    def __init__(self, path: str):
        self.where = path
        if not os.path.isfile(path):
            raise ValueError(f"{os.path.dirname(path)}: no {ADAPTER} in it")
        try:
            with safe_open(path, framework="np") as f:
                self.shapes = {key: tuple(f.get_slice(key).get_shape()) for key in f.keys()}
                self.types = {key: f.get_slice(key).get_dtype() for key in f.keys()}
        except (SafetensorError, OSError) as e:
            raise ValueError(f"{path}: not a readable safetensors file: {e}") from None

    def read(self, key: str, index: hf.Index) -> np.ndarray:
        with safe_open(self.where, framework="np") as f:
            return f.get_slice(key)[index]
