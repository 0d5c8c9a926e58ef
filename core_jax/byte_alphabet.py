"""The byte alphabet of byte-level vocabularies (Radford et al., 2019): a printable character for each byte."""
from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # stand for themselves
_REST = [b for b in range(256) if b not in set(_PRINTABLE)]
CHARACTER = {b: chr(b) for b in _PRINTABLE} | {b: chr(256 + n) for n, b in enumerate(_REST)}
BYTE = {c: b for b, c in CHARACTER.items()}


def spell(raw: bytes) -> str:
    """A token's bytes as a byte-level vocabulary writes them."""
    return "".join(map(CHARACTER.__getitem__, raw))


def unspell(token: str) -> bytes:
    """The bytes of a vocabulary entry; one with characters outside the alphabet is plain text."""
    return bytes(map(BYTE.__getitem__, token)) if all(c in BYTE for c in token) else token.encode("utf-8")
