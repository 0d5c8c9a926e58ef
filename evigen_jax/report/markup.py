"""Text from records -> safe text for a page: escaped, nothing invisible, nothing executable.

Two doors lead from data to HTML. Jinja escapes every expression, and `finalize` makes hidden characters visible in
each; note texts go through `escape_visible`, which does the same. JSON goes through `json_for_script`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from markupsafe import Markup, escape

# Characters a reader cannot see or that reorder what he sees: C0 (tab, CR and LF apart), DEL, C1, bidi controls,
# zero-width space, word joiner, line and paragraph separators, byte-order mark, tag characters, surrogates,
# non-characters. U+200C and U+200D stay: Persian and emoji need them.
HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def code_point(match: re.Match) -> str:
    return f"\u27e6U+{ord(match[0]):04X}\u27e7"


def finalize(value: Any) -> Any:
    """Jinja's finalize hook: hidden characters of a string become their code point in double square brackets.

    Raises: TypeError for None, so that a page never says "None".
    """
    if value is None:
        raise TypeError("a template expression is None; the page must say what is missing")
    if isinstance(value, str) and not isinstance(value, Markup):
        return HIDDEN.sub(code_point, value)
    return value


def escape_visible(text: str, start: int, end: int) -> Markup:
    """`text[start:end]` escaped, its hidden characters shown; CRLF and CR become one newline, across cuts too."""
    piece = text[start:end]
    if piece.endswith("\r") and text[end : end + 1] == "\n":
        piece = piece[:-1]
    piece = piece.replace("\r\n", "\n").replace("\r", "\n")
    return Markup(HIDDEN.sub(lambda m: f'<span class="hidden-char">{code_point(m)}</span>', str(escape(piece))))


def to_json(value: Any, *, indent: int | None = 1) -> str:
    """JSON text that always encodes as UTF-8 (a lone surrogate becomes its escape). Raises: ValueError on NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def json_for_script(value: Any) -> Markup:
    """JSON for the inside of a `<script type="application/json">`: no `<`, `>`, `&`, U+2028 or U+2029 is left in it."""
    text = to_json(value, indent=None)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def csp_hash(text: str) -> str:
    """The Content-Security-Policy source of an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page_stem(patient_id: str, taken: set[str]) -> str:
    """A file stem for a patient's page: `patient-<id>` where the id is plain, else what is plain of it and a digest.

    Letters, digits, `_` and `-` only, unique in `taken` (compared without case, as some file systems do), which grows.
    """
    stem = f"patient-{patient_id}"
    if not _FILE_NAME.fullmatch(patient_id) or stem.casefold() in taken:
        plain = re.sub(r"[^A-Za-z0-9]+", "-", patient_id).strip("-")[:32]
        stem = "-".join(
            [
                "patient",
                *([plain] if plain else []),
                hashlib.sha256(patient_id.encode("utf-8", "surrogatepass")).hexdigest()[:10],
            ]
        )
    if stem.casefold() in taken:
        raise ValueError(f"got two patients whose page would be {stem}.html (the second is {patient_id!r})")
    taken.add(stem.casefold())
    return stem
