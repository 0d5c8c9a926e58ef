"""Run settings: frozen dataclasses composed in a Python file, changed by `--set a.b=c`, written with every run.

A configuration file is a Python file with `get_config()` returning a frozen dataclass. Standard library only.
"""
from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import runpy
import traceback
import types
import typing
from typing import Any, TypeVar

C = TypeVar("C")


def load(path: str, kind: type[C]) -> C:
    """Run a configuration file and return what its get_config() gives.

    Raises: ValueError where the file has no get_config, raises anything, or returns another type than `kind`; OSError
        where it cannot be read.
    """
    with open(path, "rb"):  # runpy would take a folder for a package
        pass
    try:
        space = runpy.run_path(path)
        config = space["get_config"]() if "get_config" in space else None
    except (Exception, SystemExit) as e:
        raise ValueError(f"{path}: {_where(e, path)}{type(e).__name__}: {e}") from e
    if "get_config" not in space:
        raise ValueError(f"{path}: no get_config() in it")
    if not isinstance(config, kind):
        raise ValueError(f"{path}: get_config() gave {type(config).__name__}, expected {kind.__name__}")
    return config


def _where(error: BaseException, path: str) -> str:
    """"line 7: ", the last line of the file that the error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {lines[-1]}: " if lines else ""


def override(config: C, assignments: list[str]) -> C:
    """Apply `a.b=c` assignments to nested frozen dataclasses.

    Values are read as Python literals where they are one, else as strings; the field's annotation decides what is
    accepted (int for a float is fine; "true" and "false" for a bool).
    Raises: ValueError for a malformed assignment, an unknown key at any depth (with the nearest known one), a wrong type.
    """
    for item in assignments:
        key, eq, text = item.partition("=")
        if not eq or not key:
            raise ValueError(f"--set {item!r}: expected key=value")
        config = _set(config, key.split("."), text, key)
    return config


def _set(config, path: list[str], text: str, full: str):
    hints = typing.get_type_hints(type(config))
    name = path[0]
    if name not in hints:
        near = difflib.get_close_matches(name, hints, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; expected one of {sorted(hints)}"
        raise ValueError(f"--set {full}: {type(config).__name__} has no field {name!r}{hint}")
    old = getattr(config, name)
    if len(path) > 1:
        if not dataclasses.is_dataclass(old):
            raise ValueError(f"--set {full}: {name!r} has no fields of its own")
        value = _set(old, path[1:], text, full)
    elif dataclasses.is_dataclass(old):
        fields = [f.name for f in dataclasses.fields(old)]
        raise ValueError(f"--set {full}: {name!r} is a group; set one of its fields {fields}")
    else:
        value = _cast(text, hints[name], full)
    try:
        return dataclasses.replace(config, **{name: value})
    except ValueError as e:
        raise ValueError(f"--set {full}: {e}") from None


def _cast(text: str, kind: Any, full: str) -> Any:
    try:
        value = {"true": True, "false": False, "none": None}.get(text.lower(), ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if not _fits(value, kind):
        if _fits(text, kind):
            return text
        raise ValueError(f"--set {full}: got {text!r}, expected {getattr(kind, '__name__', kind)}")
    return _shape(value, kind)


def _fits(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, k) for k in typing.get_args(kind))
    if origin is typing.Literal:
        return value in typing.get_args(kind)
    if origin is tuple:
        args = typing.get_args(kind)
        inner = args[0] if args else Any
        return isinstance(value, (list, tuple)) and all(_fits(v, inner) for v in value)
    if kind is Any:
        return True
    if kind in (None, type(None)):
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and _finite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return False


def _shape(value: Any, kind: Any) -> Any:
    """Values as their field has them: int to float where a float stands, list to tuple."""
    args = typing.get_args(kind)
    if kind is float or (float in args and int not in args and isinstance(value, int) and not isinstance(value, bool)):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def to_dict(config: Any) -> dict[str, Any]:
    """JSON-ready dictionary of a (nested) configuration."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], raw: dict[str, Any], where: str = "config") -> C:
    """Inverse of to_dict. Raises: ValueError naming an unknown, missing or mistyped key, at any depth."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: got {type(raw).__name__}, expected an object")
    hints = typing.get_type_hints(kind)
    if unknown := sorted(set(raw) - set(hints)):
        raise ValueError(f"{where}: {kind.__name__} has no field {unknown[0]!r}")
    out = {}
    for name, value in raw.items():
        if dataclasses.is_dataclass(hints[name]):
            out[name] = from_dict(hints[name], value, f"{where}.{name}")
        elif not _fits(value, hints[name]):
            raise ValueError(f"{where}.{name}: got {value!r}, expected {hints[name]}")
        else:
            out[name] = _shape(value, hints[name])
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in out]:
        raise ValueError(f"{where}.{missing[0]}: missing")
    return kind(**out)
