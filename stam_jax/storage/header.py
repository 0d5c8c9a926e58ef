"""What made a store's embedding rows, and the check of every row against it. NumPy, no JAX."""
from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np

from core_jax.records import RecordError
from stam_jax.graph import canonical
from stam_jax.graph.update import Commit


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """Encoder and form of the embedding rows. template_sha256: of the template that turns a memory into embedded text.

    Raises: RecordError naming the field.
    """

    model: str
    revision: str
    dim: int
    dtype: str = "float32"
    normalised: bool = True
    template_sha256: str = canonical.sha256("{text}")

    def __post_init__(self):
        for name in ("model", "revision", "template_sha256"):
            canonical.text(getattr(self, name), name)
        canonical.integer(self.dim, "dim", 1)
        canonical.choice(self.dtype, "dtype", ("float32", "float16"))
        canonical.truth(self.normalised, "normalised")

    @classmethod
    def from_json(cls, raw: str) -> Header:
        """Raises: RecordError."""
        return canonical.from_dict(cls, json.loads(raw), "encoder")

    def to_json(self) -> str:
        return canonical.dumps(canonical.to_dict(self))

    @property
    def stored(self) -> np.dtype:
        """How a number stands on disk."""
        return np.dtype(self.dtype).newbyteorder("<")

    def fault(self, blob: bytes) -> str | None:
        """What is wrong with a stored row: its length, numbers that are not finite, a norm that is not one."""
        if len(blob) != (size := self.dim * self.stored.itemsize):
            return f"got {len(blob)} bytes, expected {size}"
        row = np.frombuffer(blob, self.stored).astype(np.float64)
        if not np.isfinite(row).all():
            return "has numbers that are not finite"
        if self.normalised and abs((norm := float(np.linalg.norm(row))) - 1) > 1e-2:
            return f"has length {norm:.4f}, expected 1"
        return None

    def rows(self, commit: Commit) -> dict[str, bytes]:
        """mid -> stored row of each memory that a commit inserts.

        Raises: RecordError: not one finite row of this dimension for each of them.
        """
        at = f"patient {commit.patient_id!r}: embeddings"
        mids = {m.mid for m in commit.memories}
        if odd := sorted(mids ^ set(commit.embeddings)):
            raise RecordError(f"{odd[0]} {'has no row' if odd[0] in mids else 'is not inserted here'}", field=at)
        out = {}
        for mid, vector in commit.embeddings.items():
            row: Any = np.asarray(vector)
            if row.shape != (self.dim,) or row.dtype.kind not in "fiu":
                raise RecordError(f"{mid}: got {row.dtype}{list(row.shape)}, expected {self.dim} numbers", field=at)
            with np.errstate(over="ignore"):
                out[mid] = row.astype(self.stored).tobytes()
            if why := self.fault(out[mid]):
                raise RecordError(f"{mid}: {why}", field=at)
        return out

    def matrix(self, blobs: list[bytes]) -> np.ndarray:
        """Stored rows -> [n, dim] float32."""
        return np.frombuffer(b"".join(blobs), self.stored).reshape(len(blobs), self.dim).astype(np.float32)


def seal(patient_id: str, mid: str, blob: bytes) -> str:
    """sha256 that stands beside a stored row: of whose it is and of its bytes, in hexadecimal."""
    return hashlib.sha256(canonical.dumps([patient_id, mid]).encode("utf-8") + blob).hexdigest()
