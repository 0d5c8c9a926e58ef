"""One JSON object out of a language model's answer: fenced, amid prose, or cut off. Standard library only."""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_TRIES = 40


def loads(text: str, wanted: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], bool]:
    """The first object that is `wanted`, and whether it had to be completed because the text ends inside it.

    Raises: ValueError: there is none; says why the likeliest candidate failed.
    """
    reason = "no object in the text"
    decoder = json.JSONDecoder(strict=False, parse_constant=_constant)
    start = text.find("{")
    first = start
    for _ in range(_TRIES):
        if start < 0:
            break
        try:
            found, end = decoder.raw_decode(text, start)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ValueError as e:
            reason = str(e) if start == first else reason
            start = text.find("{", start + 1)
            continue
        if isinstance(found, dict) and wanted(found):
            return found, False
        reason = "an object without the expected keys"
        start = text.find("{", end)
    start = first
    for _ in range(_TRIES // 4):
        if start < 0:
            break
        whole = completed(text[start:])
        if whole is not None:
            try:
                found = decoder.decode(whole)
            except RecursionError:
                raise ValueError("nested too deeply") from None
            except ValueError:
                found = None
            if isinstance(found, dict) and wanted(found):
                return found, True
        start = text.find("{", start + 1)
    raise ValueError(reason)


def _constant(name: str):
    raise ValueError(f"{name} is not valid JSON")


def completed(text: str) -> str | None:
    """A JSON prefix closed after its last complete member; None where no bracket is left open.

    A member whose value is cut is left out, but for a string, which is closed where it ends.
    """
    stack: list[str] = []
    in_string = escaped = False
    escape_at = string_at = -1
    is_key = False
    safe = 0  # text[:safe] plus the closing brackets is valid
    safe_stack: list[str] = []
    expects_key = False
    scalar_at = -1
    for i, c in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped, escape_at = True, i
            elif c == '"':
                in_string = False
                if not is_key:
                    safe, safe_stack = i + 1, list(stack)
            continue
        if c in " \t\r\n,:]}" and scalar_at >= 0:
            if _scalar(text[scalar_at:i]):
                safe, safe_stack = i, list(stack)
            scalar_at = -1
        if c == '"':
            in_string, string_at, is_key = True, i, expects_key
            expects_key = False
        elif c in "{[":
            stack.append("}" if c == "{" else "]")
            expects_key = c == "{"
            safe, safe_stack = i + 1, list(stack)
            if len(stack) > 200:
                return None
        elif c in "}]":
            if not stack or stack.pop() != c:
                return None
            expects_key = False
            safe, safe_stack = i + 1, list(stack)
            if not stack:
                return None
        elif c == ",":
            expects_key = bool(stack) and stack[-1] == "}"
        elif c not in " \t\r\n:" and scalar_at < 0:
            scalar_at = i
    if not stack:
        return None
    if in_string and not is_key:
        end = len(text)
        if escaped or (text[escape_at:escape_at + 2] == "\\u" and escape_at > string_at and end - escape_at < 6):
            end = escape_at
        return text[:end] + '"' + "".join(reversed(stack))
    return text[:safe] + "".join(reversed(safe_stack))


def _scalar(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
