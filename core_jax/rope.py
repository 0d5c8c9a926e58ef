"""Rotary position embeddings (Su et al., 2021): the plain one, Llama 3.1's bands, YaRN (Peng et al., 2023).

No variant has a default theta: a wrong one gives fluent nonsense on long prompts. Inverse frequencies are computed as
Hugging Face does, in float32 power, since an angle at position 70,000 multiplies the last bit by 70,000.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _positive(rope: Any, *names: str) -> None:
    for name in names:
        value = getattr(rope, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"{_HF_NAMES[name]}: got {value!r}, expected a positive number")


def _powers(theta: float, head_dim: int) -> np.ndarray:
    """theta^(2i/H), float32 [H/2]."""
    if head_dim % 2:
        raise ValueError(f"head_dim: got {head_dim}, expected an even number")
    return np.power(np.float32(theta), np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim))


@dataclasses.dataclass(frozen=True)
class Default:
    """Angles position * theta^(-2i/H)."""

    theta: float

    def __post_init__(self):
        _positive(self, "theta")

    @property
    def attention_scale(self) -> float:
        """Factor of cosine and sine; its square multiplies the attention scores."""
        return 1.0

    def inverse_frequencies(self, head_dim: int) -> np.ndarray:
        """float32 [H/2], radians per position. Raises: ValueError: an odd head_dim."""
        return np.float32(1) / _powers(self.theta, head_dim)


@dataclasses.dataclass(frozen=True)
class Llama3:
    """Llama 3.1: wavelengths beyond original / low_freq_factor are stretched by `factor`, those below
    original / high_freq_factor stay, and between the two the frequency is interpolated."""

    theta: float
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    def __post_init__(self):
        _positive(self, "theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_positions")
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(f"high_freq_factor: got {self.high_freq_factor}, expected more than low_freq_factor "
                             f"{self.low_freq_factor}")

    @property
    def attention_scale(self) -> float:
        return 1.0

    def inverse_frequencies(self, head_dim: int) -> np.ndarray:
        """float32 [H/2]."""
        plain = Default(self.theta).inverse_frequencies(head_dim)
        turns = np.float32(self.original_max_positions) / (np.float32(2 * math.pi) / plain)  # in the original length
        keep = (turns - np.float32(self.low_freq_factor)) / np.float32(self.high_freq_factor - self.low_freq_factor)
        keep = np.clip(keep, np.float32(0), np.float32(1))
        return (np.float32(1) - keep) * plain / np.float32(self.factor) + keep * plain


@dataclasses.dataclass(frozen=True)
class Yarn:
    """YaRN: dimensions that turn fewer than beta_slow times in the original length are stretched by `factor`, those
    that turn more than beta_fast times stay, with a linear ramp over the dimensions between.

    attention_factor: None = 0.1 ln(factor) + 1, or the quotient of two such terms where both mscale are given.
    truncate: the ramp's ends are whole dimensions.
    """

    theta: float
    factor: float
    original_max_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self):
        optional = [n for n in ("attention_factor", "mscale", "mscale_all_dim") if getattr(self, n) is not None]
        _positive(self, "theta", "factor", "original_max_positions", "beta_fast", "beta_slow", *optional)
        if not isinstance(self.truncate, bool):
            raise ValueError(f"truncate: got {self.truncate!r}, expected true or false")
        if self.factor < 1:
            raise ValueError(f"factor: got {self.factor}, expected at least 1")
        if self.theta == 1:
            raise ValueError("rope_theta: got 1, expected another number: all dimensions would turn alike")
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast: got {self.beta_fast}, expected at least beta_slow {self.beta_slow}")
        if (self.mscale is None) != (self.mscale_all_dim is None):
            raise ValueError("mscale: got one of mscale and mscale_all_dim, expected both or neither")

    @property
    def attention_scale(self) -> float:
        def term(mscale: float) -> float:
            return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0

        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale is not None and self.mscale_all_dim is not None:
            return term(self.mscale) / term(self.mscale_all_dim)
        return term(1.0)

    def inverse_frequencies(self, head_dim: int) -> np.ndarray:
        """float32 [H/2]."""
        powers = _powers(self.theta, head_dim)

        def dimension(turns: float) -> float:
            """Which dimension turns this many times in the original length."""
            return head_dim * math.log(self.original_max_positions / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = dimension(self.beta_fast), dimension(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        width = 0.001 if low == high else high - low
        ramp = np.clip((np.arange(head_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(width), 0, 1)
        keep = np.float32(1) - ramp
        stretched = np.float32(1) / (np.float32(self.factor) * powers)
        return stretched * (np.float32(1) - keep) + keep / powers


Rope = Default | Llama3 | Yarn
_TYPES: dict[str, type] = {"default": Default, "llama3": Llama3, "yarn": Yarn}
_HF_NAMES = {f.name: f.name for kind in _TYPES.values() for f in dataclasses.fields(kind)} | {
    "theta": "rope_theta", "original_max_positions": "original_max_position_embeddings"}


def from_hf(raw: Mapping[str, Any], *, where: str = "config.json") -> Rope:
    """The rotary embedding of a config.json, in either spelling.

    `rope_parameters` holds all; or `rope_theta` stands beside `rope_scaling`, which is null where nothing is scaled.
    The type is called `rope_type`, in old files `type`. Where both spellings stand, they must agree.

    Raises:
        ValueError: naming `where` and the field: an unknown type, a missing, mistyped or unknown field, no theta.
    """
    spellings = [name for name in ("rope_parameters", "rope_scaling") if raw.get(name) is not None] or [None]
    found = [_one(raw, name, where) for name in spellings]
    if len(found) > 1 and found[0] != found[1]:
        raise ValueError(f"{where}: {spellings[1]}: got {found[1]}, expected the same as {spellings[0]}, {found[0]}")
    return found[0]


def _one(raw: Mapping[str, Any], spelling: str | None, where: str) -> Rope:
    inside = {} if spelling is None else raw[spelling]
    prefix = "" if spelling is None else f"{spelling}."
    if not isinstance(inside, Mapping):
        raise ValueError(f"{where}: {spelling}: got {inside!r}, expected an object")
    given = {name: value for name, value in inside.items() if value is not None}
    kind = given.pop("rope_type", given.get("type", "default"))
    if given.pop("type", kind) != kind:
        raise ValueError(f"{where}: {prefix}type: got {inside['type']!r}, expected the same as rope_type, {kind!r}")
    if kind not in _TYPES:
        raise ValueError(f"{where}: {prefix}rope_type: got {kind!r}, expected one of {tuple(_TYPES)}")
    outside = raw.get("rope_theta")
    if given.setdefault("rope_theta", outside) is None:
        raise ValueError(f"{where}: rope_theta: missing")
    if outside is not None and outside != given["rope_theta"]:
        raise ValueError(f"{where}: rope_theta: got {outside!r}, expected the same as {prefix}rope_theta, "
                         f"{given['rope_theta']!r}")
    fields = {_HF_NAMES[f.name]: f for f in dataclasses.fields(_TYPES[kind])}
    if unknown := sorted(set(given) - set(fields)):
        raise ValueError(f"{where}: {prefix}{unknown[0]}: unknown in a rope of type {kind!r}, expected {tuple(fields)}")
    missing = [name for name, f in fields.items() if name not in given and f.default is dataclasses.MISSING]
    if missing:
        raise ValueError(f"{where}: {prefix}{missing[0]}: missing")
    try:
        return _TYPES[kind](**{fields[name].name: value for name, value in given.items()})
    except ValueError as e:
        raise ValueError(f"{where}: {prefix}{e}") from None


def to_hf(rope: Rope) -> dict[str, Any]:
    """`rope_parameters` of config.json; fields that are None are left out."""
    name = next(name for name, kind in _TYPES.items() if kind is type(rope))
    fields = {_HF_NAMES[f.name]: getattr(rope, f.name) for f in dataclasses.fields(rope)}
    return {"rope_type": name} | {name: value for name, value in fields.items() if value is not None}


def tables(rope: Rope, head_dim: int, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """positions: [M] int32 -> cosine and sine of every angle, float32 [M, H/2] each, times the attention scale."""
    angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(rope.inverse_frequencies(head_dim))[None]
    scale = jnp.float32(rope.attention_scale)
    return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate dimension i with dimension i + H/2, as Hugging Face lays heads out; computed in float32.

    Args:
        x: [M, n, H] queries or keys of n heads.
        cos, sin: [M, H/2] of `tables`.

    Returns:
        [M, n, H] in the dtype of x.
    """
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)
