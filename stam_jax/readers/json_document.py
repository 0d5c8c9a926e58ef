"""One JSON file as a whole, and its fields with the place where a fault stands. Standard library only."""
from __future__ import annotations

import json
import os
from typing import Any

from core_jax.records import RecordError, strict_json
from stam_jax.graph import canonical

_NAMES = {str: "a string", int: "an integer", list: "a list", dict: "an object", bool: "true or false"}


class Document:
    """A parsed JSON file. `get` reads fields of the objects in it. Raises: RecordError naming file, line and field."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as f:
                text = f.read().decode("utf-8-sig")
            self.root: Any = strict_json(text)
        except UnicodeDecodeError as e:
            raise RecordError(f"not valid UTF-8 at byte {e.start}", file=self.path) from None
        except json.JSONDecodeError as e:
            raise RecordError(f"not valid JSON: {e.msg} at column {e.colno}", file=self.path, line=e.lineno) from None
        except RecursionError:
            raise RecordError("nested too deep", file=self.path) from None
        except ValueError as e:
            raise RecordError(str(e), file=self.path) from None
        except OSError as e:
            raise RecordError(e.strerror or str(e), file=self.path) from None

    def fail(self, message: str, field: str | None = None):
        raise RecordError(message, file=self.path, field=field)

    def check(self, value: Any, kind: type, where: str) -> Any:
        """`value` itself, where it is a `kind`."""
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(f"got {type(value).__name__}, expected {_NAMES[kind]}", where)
        return value

    def get(self, item: Any, name: str, kind: type, where: str = "", *, optional: bool = False) -> Any:
        """Field `name` of an object that stands at `where`; None where it is optional and absent or null."""
        self.check(item, dict, where or "the document")
        at = f"{where}.{name}" if where else name
        if item.get(name) is None:
            if optional:
                return None
            self.fail("missing", at)
        return self.check(item[name], kind, at)

    def text(self, item: Any, name: str, where: str = "") -> str:
        """Field `name`: a string that says something, and can be hashed and written again."""
        value = self.get(item, name, str, where)
        try:
            canonical.text(value, f"{where}.{name}" if where else name)
        except RecordError as e:
            self.fail(e.message, e.field)
        return value
