"""The one selection loop: every operation keeps a table of implementations, best first, and asks `call` to run one.

Two error kinds steer it. `NotImplementedError` means "not on this device or for this shape": the next implementation
is tried. `ValueError` means that the caller is wrong: it is raised at once.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One way to compute an operation. `platforms` None means every platform ("cpu", "gpu", "tpu")."""

    name: str
    function: Callable[..., Any]
    platforms: tuple[str, ...] | None = None


def platform() -> str:
    """Platform of the mesh in scope where one is set, else of the default device."""
    device = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    if device is not None and getattr(device, "platform", None):
        return device.platform
    if (device := jax.config.jax_default_device) is not None:
        return device if isinstance(device, str) else device.platform
    return jax.default_backend()


def call(op: str, table: Sequence[Implementation], implementation: str | None, /, *args, **kwargs):
    """Runs `op` by the named implementation, or by the first of the table that fits the platform and the shapes.

    Raises: ValueError for a name that is not in the table; NotImplementedError with the reason where a named
        implementation cannot run here (it is never replaced silently), or with all reasons where none can.
    """
    if implementation is not None:
        for entry in table:
            if entry.name == implementation:
                _require(op, entry)
                return entry.function(*args, **kwargs)
        raise ValueError(f"{op}: got implementation={implementation!r}, expected None or one of "
                         f"{[entry.name for entry in table]}")
    reasons = []
    for entry in table:
        try:
            _require(op, entry)
            return entry.function(*args, **kwargs)
        except NotImplementedError as reason:
            reasons.append(f"{entry.name}: {reason}")
            log.debug("%s falls back from %s: %s", op, entry.name, reason)
    raise NotImplementedError(f"{op}: no implementation runs here; " + "; ".join(reasons))


def _require(op: str, entry: Implementation) -> None:
    if entry.platforms is not None and (here := platform()) not in entry.platforms:
        raise NotImplementedError(f"{op}/{entry.name} runs on {', '.join(entry.platforms)}; this is {here}")
