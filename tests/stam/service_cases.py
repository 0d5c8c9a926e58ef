"""A service over a small store, without a model: lines of `writer_cases.SlotWriter`, hashed vectors, slot answers."""
from __future__ import annotations

import os

from writer_cases import SlotWriter

from core_jax.embed import load_encoder
from stam_jax.read.answer import ExtractiveReader
from stam_jax.serve.service import Service
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of

ENCODER = "hash:32"
CONCEPTS = ("metformin", "lisinopril", "warfarin", "penicillin", "inr")


def names(text: str) -> list[str]:
    return [c for c in CONCEPTS if c in text.lower()]


def service(path: str | os.PathLike, **options) -> Service:
    encoder = load_encoder(ENCODER)
    store = Store.open(path, encoder=header_of(encoder), check=True)
    return Service(store, encoder, writer=SlotWriter(), reader=ExtractiveReader(names), **options)
