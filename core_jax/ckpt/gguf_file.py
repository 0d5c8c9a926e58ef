"""A GGUF file without JAX: its metadata, its table of tensors, and rows of a tensor as float32 NumPy.

The header is walked here, since `gguf.GGUFReader` makes one array a string (6 s for a vocabulary of 49,152 and its
merges; this walk takes 0.1 s) and does not see that a file ends early. Types, block sizes and dequantisation are the
`gguf` package's.
"""
from __future__ import annotations

import dataclasses
import math
import mmap
import os
import struct
from typing import Any

import numpy as np

MAGIC, VERSIONS = b"GGUF", (2, 3)
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9
GGUF_PIP = "pip install gguf"


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One row of the table. shape: as PyTorch writes it, the fastest dimension last; kind: gguf.GGMLQuantizationType;
    row_bytes: of one row of the last dimension; offset: in the file."""

    shape: tuple[int, ...]
    kind: Any
    row_bytes: int
    offset: int


class _Walk:
    """A cursor over the header. Raises: ValueError where the file ends before what it promises."""

    def __init__(self, where: str, data: mmap.mmap):
        self.where, self.data, self.at = where, data, 0

    def bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError(f"{self.where}: truncated: ends at byte {len(self.data)}, inside its header")
        self.at += count
        return self.data[self.at - count: self.at]

    def number(self, code: str) -> Any:
        return np.frombuffer(self.bytes(np.dtype(code).itemsize), code)[0].item()

    def string(self, what: str) -> str:
        raw = self.bytes(struct.unpack("<Q", self.bytes(8))[0])
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as e:
            raise ValueError(f"{self.where}: {what}: not UTF-8 ({e})") from None

    def value(self, kind: int, key: str) -> Any:
        """Scalars as Python numbers, arrays of numbers as NumPy, arrays of strings as lists."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string(key)
        if kind != _ARRAY:
            raise ValueError(f"{self.where}: {key}: got value type {kind}, expected 0 to 12")
        element, count = struct.unpack("<IQ", self.bytes(12))
        if element in _SCALARS:
            return np.frombuffer(self.bytes(count * np.dtype(_SCALARS[element]).itemsize), _SCALARS[element])
        if element != _STRING:
            raise ValueError(f"{self.where}: {key}: got an array of value type {element}, expected numbers or strings")
        return [self.string(key) for _ in range(count)]


class GGUFFile:
    """Metadata (`field`) and tensors (`entries`, `rows`) of one file.

    Raises: ValueError naming the file: no GGUF, another version or byte order, a header or a tensor that reaches past
    the file's end, one part of several, a tensor type that the `gguf` package does not know.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise ValueError(f"{self.path}: no such file")
        size = os.path.getsize(self.path)
        with open(self.path, "rb") as f:
            if f.read(4) != MAGIC:
                raise ValueError(f"{self.path}: not a GGUF file (it does not begin with {MAGIC.decode()})")
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._read_header(_Walk(self.path, data), size)

    def _read_header(self, walk: _Walk, size: int) -> None:
        try:
            import gguf
        except ImportError as e:
            raise ValueError(f"{self.path}: reading GGUF needs the gguf package: {GGUF_PIP} ({e})") from None
        walk.at = 4
        version = walk.number("<u4")
        if version not in VERSIONS:
            kind = "a big-endian file" if version & 0xFFFF == 0 else f"version {version}"
            raise ValueError(f"{self.path}: got {kind}, expected a little-endian GGUF of version 2 or 3")
        tensors, fields = struct.unpack("<QQ", walk.bytes(16))
        self.metadata: dict[str, Any] = {}
        for _ in range(fields):
            key = walk.string("a metadata key")
            if key in self.metadata:
                raise ValueError(f"{self.path}: {key}: stands there twice")
            self.metadata[key] = walk.value(walk.number("<u4"), key)
        if self.metadata.get("split.count", 0) > 1:
            raise ValueError(f"{self.path}: split.count: got {self.metadata['split.count']} parts, expected one file "
                             "(llama-gguf-split --merge joins them)")
        table = []
        for _ in range(tensors):
            name = walk.string("a tensor name")
            dims = struct.unpack(f"<{(n := walk.number('<u4'))}Q", walk.bytes(8 * n))
            table.append((name, dims, *struct.unpack("<IQ", walk.bytes(12))))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"{self.path}: general.alignment: got {alignment!r}, expected a positive whole number")
        start = -(-walk.at // alignment) * alignment
        self.entries: dict[str, TensorEntry] = {}
        for name, dims, raw, offset in table:
            try:
                kind = gguf.GGMLQuantizationType(raw)
            except ValueError:
                raise ValueError(f"{self.path}: {name}: unknown tensor type {raw}") from None
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            shape = tuple(reversed(dims)) or (1,)
            if name in self.entries or shape[-1] % block:
                raise ValueError(f"{self.path}: {name}: " + (
                    "stands there twice" if name in self.entries else
                    f"got rows of {shape[-1]}, expected a multiple of {block} for type {kind.name}"))
            entry = TensorEntry(shape, kind, shape[-1] // block * block_bytes, start + offset)
            end = entry.offset + math.prod(shape[:-1]) * entry.row_bytes
            if end > size:
                raise ValueError(f"{self.path}: truncated: {name} ends at byte {end}, the file at {size}")
            self.entries[name] = entry

    def field(self, key: str, kind: type, default: Any = ...) -> Any:
        """One metadata value. Raises: ValueError naming file and key: absent without a default, or of another type."""
        value = self.metadata.get(key, default)
        if value is ...:
            raise ValueError(f"{self.path}: {key}: missing")
        if value is not default and (isinstance(value, bool) != (kind is bool) or not isinstance(
                value, (int, float) if kind is float else kind)):
            shown = f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else repr(value)
            raise ValueError(f"{self.path}: {key}: got {shown}, expected {kind.__name__}")
        return kind(value) if kind is float and value is not default else value

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """float32 [stop - start, last dimension]: dequantised rows of a tensor seen as a matrix.

        Raises: ValueError where the `gguf` package cannot dequantise the tensor's type.
        """
        import gguf

        e = self.entries[name]
        raw = np.fromfile(self.path, np.uint8, (stop - start) * e.row_bytes, offset=e.offset + start * e.row_bytes)
        try:
            x = gguf.quants.dequantize(raw.reshape(stop - start, -1), e.kind)
        except NotImplementedError as error:
            raise ValueError(f"{self.path}: {name}: type {e.kind.name} cannot be dequantised ({error})") from None
        return x.reshape(stop - start, e.shape[-1])
