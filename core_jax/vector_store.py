"""Vectors on disk, keyed by (patient id, observation id): zarr3 through tensorstore, with a JSON Lines index.

    <path>/header.json   schema, encoder id, dim, normalized, dtype, rows, chunking; written last: it is the commit
    <path>/index.jsonl   one line a row, in row order: patient_id, obs_id, kind, text_sha256
    <path>/vectors/      zarr3 [rows, dim], uncompressed, shards of 8,192 rows with inner chunks of 256
    <path>/building/     exists only while a store is being made

Everything is made inside `building` and renamed into place, rows before index before header, so that a store either
opens whole or says that it is unfinished, and equal input gives equal bytes however often the making was killed.
`text_sha256` is the hash of what the encoder read (`Observation.embed_text`), so a changed age or header shows too.
"""
from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorstore as ts

SCHEMA = "vector_store/1"
SHARD_ROWS, CHUNK_ROWS = 8192, 256
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def text_sha256(text: str) -> str:
    """Hex SHA-256 of the UTF-8 text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def disk_error(path: str, error: Exception) -> OSError:
    """The OSError to raise for a failed write below `path`: says that the disk is full and the run resumable."""
    code = getattr(error, "errno", None)
    full = code in _FULL or any(os.strerror(c) in str(error) for c in _FULL)
    reason = "no space left for it; free some and run the same command again, it resumes" if full else str(error)
    return OSError(code or (errno.ENOSPC if full else errno.EIO), f"writing {path}: {reason}")


def _spec(path: str) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": os.path.abspath(path)}}  # it refuses ".." in paths


class VectorStoreWriter:
    """Rows in patient order -> a store. `add` each patient once, then `commit`; until then nothing can be opened."""

    def __init__(self, path: str, header: dict[str, Any]):
        self.path, self.building = path, os.path.join(path, "building")
        self._header = header
        self._dtype = DTYPES[header["dtype"]]
        self._vectors = os.path.join(self.building, "vectors")
        self._index = os.path.join(self.building, "index.jsonl")
        self._seen: set[str] = set()
        self._empty: list[str] = []
        self._pending: list[np.ndarray] = []
        self._rows = self._written = 0
        try:
            os.makedirs(self.building, exist_ok=True)
            shutil.rmtree(self._vectors, ignore_errors=True)
            self._array = ts.open(
                _spec(self._vectors), create=True, delete_existing=True,
                dtype=self._dtype, shape=[0, header["dim"]],
                chunk_layout=ts.ChunkLayout(
                    write_chunk_shape=[SHARD_ROWS, header["dim"]], read_chunk_shape=[CHUNK_ROWS, header["dim"]]
                ),
                codec=ts.CodecSpec({"driver": "zarr3", "codecs": [
                    {"name": "sharding_indexed", "configuration": {"codecs": [{"name": "bytes"}]}}
                ]}),
                fill_value=0,
            ).result()
            self._lines = open(self._index, "w", encoding="utf-8", newline="\n")
        except (OSError, ValueError) as e:
            raise disk_error(path, e) from e

    def add(self, patient_id: str, entries: Sequence[tuple[str, str, str]], vectors: np.ndarray) -> None:
        """One patient's rows.

        Args:
            entries: (obs_id, kind, text_sha256) in `observations()` order.
            vectors: [len(entries), dim] float.

        Raises: ValueError: a patient or observation twice, another shape, NaN, infinity or a zero row (named).
            OSError: the disk is full.
        """
        if patient_id in self._seen:
            raise ValueError(f"patient {patient_id!r}: added already")
        if vectors.shape != (len(entries), self._header["dim"]):
            raise ValueError(
                f"patient {patient_id!r}: got vectors {vectors.shape}, expected {(len(entries), self._header['dim'])}")
        if len({e[0] for e in entries}) != len(entries):
            raise ValueError(f"patient {patient_id!r}: an obs_id twice")
        if bad := bad_rows(vectors, self._header["normalized"]):
            row, reason = bad[0]
            raise ValueError(f"patient {patient_id!r}, observation {entries[row][0]!r}: {reason}")
        self._seen.add(patient_id)
        if not entries:
            self._empty.append(patient_id)
            return
        try:
            for obs_id, kind, sha in entries:
                line = {"patient_id": patient_id, "obs_id": obs_id, "kind": kind, "text_sha256": sha}
                self._lines.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._pending.append(np.asarray(vectors, np.float32).astype(self._dtype))
            self._rows += len(entries)
            while self._rows - self._written >= SHARD_ROWS:
                self._flush(SHARD_ROWS)
        except (OSError, ValueError) as e:
            raise disk_error(self.path, e) from e

    def _flush(self, count: int) -> None:
        rows = np.concatenate(self._pending)
        stop = self._written + count
        self._array = self._array.resize(exclusive_max=[stop, self._header["dim"]], expand_only=True).result()
        self._array[self._written:stop].write(rows[:count]).result()
        self._pending = [rows[count:]]
        self._written = stop

    def commit(self) -> VectorStore:
        """Publish: rows, then index, then header. Returns the opened store."""
        try:
            if self._rows > self._written:
                self._flush(self._rows - self._written)
            self._lines.flush()
            os.fsync(self._lines.fileno())
            self._lines.close()
            header = self._header | {"rows": self._rows, "patients_without_rows": self._empty}
            temporary = os.path.join(self.building, "header.json")
            with open(temporary, "w", encoding="utf-8", newline="\n") as f:
                json.dump(header, f, ensure_ascii=False, allow_nan=False, indent=1)
                f.flush()
                os.fsync(f.fileno())
            final = os.path.join(self.path, "vectors")
            shutil.rmtree(final, ignore_errors=True)
            os.rename(self._vectors, final)
            os.replace(self._index, os.path.join(self.path, "index.jsonl"))
            os.replace(temporary, os.path.join(self.path, "header.json"))
        except (OSError, ValueError) as e:
            raise disk_error(self.path, e) from e
        shutil.rmtree(self.building)
        return VectorStore.open(self.path)

    def close(self) -> None:
        """Give up without publishing; after `commit` it does nothing."""
        with contextlib.suppress(OSError):  # a full disk has been reported by `add` or `commit`
            self._lines.close()


def bad_rows(vectors: np.ndarray, normalized: bool) -> list[tuple[int, str]]:
    """(row, reason) of rows that hold NaN or infinity, are zero, or are not of unit length although they should be."""
    length = np.sqrt(np.einsum("ne,ne->n", vectors, vectors, dtype=np.float64))
    out = [(int(i), "the vector holds NaN or infinity") for i in np.flatnonzero(~np.isfinite(length))]
    out += [(int(i), "the vector is zero") for i in np.flatnonzero(length == 0.0)]
    if normalized:
        off = np.isfinite(length) & (length > 0) & (np.abs(length - 1.0) >= 1e-3)
        out += [(int(i), f"the vector has length {length[i]:.4g}, expected 1") for i in np.flatnonzero(off)]
    return sorted(out)


def _entry(line: bytes, path: str, number: int) -> dict[str, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path}:{number}: not JSON: {e}") from None
    names = ("patient_id", "obs_id", "kind", "text_sha256")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in names):
        raise ValueError(f"{path}:{number}: expected an object with the strings {', '.join(names)}")
    return entry


class VectorStore:
    """A finished store, for reading. Make one with `create(...)`, then `add` and `commit` on the writer it returns."""

    def __init__(self, path: str, header: dict[str, Any]):
        self.path, self.header = path, header
        self.encoder_id: str = header["encoder_id"]
        self.dim: int = header["dim"]
        self.normalized: bool = header["normalized"]
        self.dtype: str = header["dtype"]
        index = os.path.join(path, "index.jsonl")
        with open(index, "rb") as f:
            self._lines = f.read().splitlines(keepends=False)
        self._ranges: dict[str, tuple[int, int]] = {}
        last = None
        for row, line in enumerate(self._lines):
            patient_id = _entry(line, index, row + 1)["patient_id"]
            if patient_id != last and patient_id in self._ranges:
                raise ValueError(f"{index}:{row + 1}: patient {patient_id!r} is not contiguous")
            self._ranges[patient_id] = (self._ranges.get(patient_id, (row, row))[0], row + 1)
            last = patient_id
        try:
            self._array = ts.open(
                _spec(os.path.join(path, "vectors")), read=True, open=True,
                context=ts.Context({"cache_pool": {"total_bytes_limit": 256 << 20}}),
            ).result()
        except ValueError as e:
            raise ValueError(f"{path}: the vectors cannot be opened: {e}") from None
        shape = tuple(self._array.shape)
        if not shape == (len(self._lines), self.dim) == (header["rows"], self.dim):
            raise ValueError(
                f"{path}: vectors {shape}, index {len(self._lines)} lines, header ({header['rows']}, {self.dim}); "
                "expected one size")

    @staticmethod
    def create(
        path: str | os.PathLike, encoder_id: str, dim: int, normalized: bool, dtype: str = "float32", *,
        chunking: dict[str, Any] | None = None,
    ) -> VectorStoreWriter:
        """A writer for a new store at `path`; what a killed writer left in `building/` is made anew.

        Raises: ValueError: another dtype, or a finished store is there already.
        """
        path = os.fspath(path)
        if dtype not in DTYPES:
            raise ValueError(f"got dtype {dtype!r}, expected one of {sorted(DTYPES)}")
        if os.path.exists(os.path.join(path, "header.json")):
            raise ValueError(f"{path}: a finished store is there already; remove it or name another path")
        return VectorStoreWriter(path, {
            "schema": SCHEMA, "encoder_id": encoder_id, "dim": int(dim), "normalized": bool(normalized),
            "dtype": dtype, "chunking": chunking,
        })

    @classmethod
    def open(
        cls, path: str | os.PathLike, expect_encoder: str | None = None, expect_dim: int | None = None, *,
        expect_normalized: bool | None = None,
    ) -> VectorStore:
        """Raises: ValueError: no store, an unfinished one, another schema, or one made by another encoder, with
        another dim or normalised flag than expected (got / expected in the message)."""
        path = os.fspath(path)
        header_path = os.path.join(path, "header.json")
        if not os.path.isfile(header_path):
            unfinished = os.path.isdir(os.path.join(path, "building"))
            raise ValueError(f"{path}: " + (
                "the store is unfinished; run `embed` again, it resumes" if unfinished else "no vector store here; `evigen embed --cohort ... --out` makes one"))
        with open(header_path, encoding="utf-8") as f:
            try:
                header = json.load(f)
            except (ValueError, RecursionError) as e:
                raise ValueError(f"{header_path}: not JSON: {e}") from None
        required = {"schema", "encoder_id", "dim", "normalized", "dtype", "rows", "chunking", "patients_without_rows"}
        if not isinstance(header, dict) or header.get("schema") != SCHEMA or set(header) != required:
            raise ValueError(f"{header_path}: expected schema {SCHEMA!r} with the fields {sorted(required)}")
        for name, kind in (("encoder_id", str), ("dim", int), ("normalized", bool), ("dtype", str), ("rows", int),
                           ("chunking", (dict, type(None))), ("patients_without_rows", list)):
            if not isinstance(header[name], kind):
                raise ValueError(f"{header_path}: {name}: got {header[name]!r:.80}")
        for name, expected in (("encoder_id", expect_encoder), ("dim", expect_dim), ("normalized", expect_normalized)):
            if expected is not None and header[name] != expected:
                raise ValueError(f"{header_path}: {name}: got {header[name]!r}, expected {expected!r}")
        return cls(path, header)

    def __len__(self) -> int:
        return len(self._lines)

    def patients(self) -> list[str]:
        """Patient ids in row order; those without any row are not among them."""
        return list(self._ranges)

    def rows(self, patient_id: str) -> tuple[int, int]:
        """(start, stop) of a patient's rows; (0, 0) for one that was embedded with nothing to embed.

        Raises: ValueError for a patient the store was not made from.
        """
        if patient_id in self._ranges:
            return self._ranges[patient_id]
        if patient_id in self.header["patients_without_rows"]:
            return 0, 0
        raise ValueError(f"{self.path}: no patient {patient_id!r} in this store; name the store of this cohort, or run `evigen embed` into a new folder")

    def index(self, patient_id: str) -> list[dict[str, str]]:
        """Per row of the patient, in row order: obs_id, kind ("note" | "code"), text_sha256."""
        start, stop = self.rows(patient_id)
        out = [json.loads(line) for line in self._lines[start:stop]]
        for entry in out:
            del entry["patient_id"]
        return out

    def check(self, patient_id: str, entries: Iterable[tuple[str, str, str]]) -> None:
        """Raises: ValueError naming the first observation whose (obs_id, kind, text_sha256) is not what is stored."""
        have = [(e["obs_id"], e["kind"], e["text_sha256"]) for e in self.index(patient_id)]
        want = list(entries)
        for i in range(max(len(have), len(want))):
            h, w = (have[i] if i < len(have) else None), (want[i] if i < len(want) else None)
            if h != w:
                raise ValueError(f"{self.path}: patient {patient_id!r}, row {i}: stored {h}, the record gives {w}; the records "
                                 "have changed since they were embedded: name another folder, or remove this one")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) as float32 [stop - start, dim]."""
        return self.read_many([(start, stop)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Several row ranges at once, each float32 [n, dim]; all reads are in flight together.

        Raises: ValueError for a range outside the store.
        """
        for start, stop in ranges:
            if not 0 <= start <= stop <= len(self):
                raise ValueError(f"{self.path}: got rows [{start}, {stop}), expected within [0, {len(self)}]")
        futures = [self._array[start:stop].read() for start, stop in ranges]
        return [np.asarray(f.result()).astype(np.float32, copy=False) for f in futures]

    def read_all(self) -> np.ndarray:
        """Every row, float32 [rows, dim]."""
        return self.read(0, len(self))
