"""Canonical JSON, the hashes and ids made of it, and the strict fields of the records that are stored.

One value has one byte string: sorted keys, no blanks, UTF-8, no NaN. Hash chains, replays and state comparisons rest on
that. Standard library only.
"""
from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection
from typing import Any, TypeVar

from core_jax.records import RecordError

T = TypeVar("T")
_LEAVES = frozenset({str, int, float, bool})  # of a record, as they stand in its JSON
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def dumps(value: Any) -> str:
    """Canonical JSON text of plain JSON values. Raises: ValueError: NaN or infinity; TypeError: no JSON value."""
    return _ENCODER.encode(value)


def sha256(string: str) -> str:
    """Of its UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(string.encode("utf-8")).hexdigest()


def digest(value: Any) -> str:
    """sha256 of the canonical bytes, in hexadecimal."""
    return sha256(dumps(value))


def identifier(prefix: str, *parts: Any) -> str:
    """`prefix` + 16 base32 characters (80 bits) of the sha256 of the parts; where one part ends is part of the hash."""
    raw = hashlib.sha256(dumps(parts).encode("utf-8")).digest()
    return prefix + base64.b32encode(raw)[:16].decode("ascii").lower()


# ---- dataclasses as canonical objects -------------------------------------------------------------------------

@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


@functools.cache
def _required(cls: type) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(f.name for f in dataclasses.fields(cls) if f.default is missing and f.default_factory is missing)


def replaced(record: T, **fields: Any) -> T:
    """`dataclasses.replace` without checking again what was checked: for values that are right by construction."""
    out = object.__new__(type(record))
    for name in _names(type(record)):
        object.__setattr__(out, name, fields[name] if name in fields else getattr(record, name))
    return out


def to_dict(record: Any) -> dict[str, Any]:
    """A frozen dataclass -> JSON object. None and empty collections are left out; sets are sorted."""
    out = {}
    for name in _names(type(record)):
        value = getattr(record, name)
        if type(value) in _LEAVES:
            out[name] = value
        elif value is not None and not (isinstance(value, (tuple, frozenset)) and not value):
            out[name] = _plain(value)
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return to_dict(value)


def from_dict(cls: type[T], raw: Any, where: str, **parts: Any) -> T:
    """JSON object -> `cls`; `parts` are fields that the caller parsed already.

    Raises: RecordError naming `where` and the field: not an object, an unknown or missing field, a bad value.
    """
    if not isinstance(raw, dict):
        raise RecordError(f"got {type(raw).__name__}, expected an object", field=where)
    names = _names(cls)
    if unknown := sorted(raw.keys() - set(names)):
        raise RecordError(f"unknown field; expected one of {sorted(names)}", field=f"{where}.{unknown[0]}")
    if missing := sorted(_required(cls) - raw.keys()):
        raise RecordError("missing", field=f"{where}.{missing[0]}")
    try:
        return cls(**(raw | parts))
    except RecordError as e:
        raise RecordError(e.message, field=f"{where}.{e.field}" if e.field else where) from None


# ---- strict fields --------------------------------------------------------------------------------------------

def text(value: Any, field: str, *, empty: bool = False, optional: bool = False) -> None:
    """Raises: RecordError: no string, empty, a NUL, a lone surrogate."""
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise RecordError(f"got {type(value).__name__} {value!r:.80}, expected a string", field=field)
    if not empty and not value.strip():
        raise RecordError("got an empty string", field=field)
    if "\x00" in value:
        raise RecordError("contains a NUL character", field=field)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError("contains a lone surrogate (not valid UTF-8)", field=field) from None


def choice(value: Any, field: str, options: Collection[str]) -> None:
    """Raises: RecordError: none of the options."""
    if not isinstance(value, str) or value not in options:
        raise RecordError(f"got {value!r:.80}, expected one of {sorted(options)}", field=field)


def integer(value: Any, field: str, low: int, *, optional: bool = False) -> None:
    """Raises: RecordError: no integer, or less than `low`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise RecordError(f"got {value!r:.80}, expected an integer >= {low}", field=field)


def share(value: Any, field: str, *, optional: bool = False) -> None:
    """Raises: RecordError: no number in [0, 1]."""
    if value is None and optional:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise RecordError(f"got {value!r:.80}, expected a number in [0, 1]", field=field)


def truth(value: Any, field: str) -> None:
    """Raises: RecordError: neither true nor false."""
    if not isinstance(value, bool):
        raise RecordError(f"got {value!r:.80}, expected true or false", field=field)


def sequence(value: Any, field: str, kind: type) -> tuple:
    """A tuple of `kind` from a list or tuple of it. Raises: RecordError."""
    if not isinstance(value, (list, tuple)):
        raise RecordError(f"got {type(value).__name__}, expected a list", field=field)
    for i, item in enumerate(value):
        if not isinstance(item, kind) or isinstance(item, bool):
            raise RecordError(f"got {type(item).__name__}, expected {kind.__name__}", field=f"{field}[{i}]")
    return tuple(value)
