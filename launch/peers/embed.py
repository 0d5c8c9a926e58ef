"""Suite `embed`: texts of the shipped clinosim sample through all-MiniLM-L6-v2, against sentence-transformers.

Both read the same weights from the same folder and get the same strings (age line, header, chunk; age line, title),
distinct ones only; tokenisation is inside the timing. The result is the matrix of vectors, flattened.
`chunks`: note chunks. `mixed`: chunks and code titles, where lengths differ most.
"""
from __future__ import annotations

import pathlib

import numpy as np

CASES = {"chunks": {"texts": 512, "codes": False, "per_round": "512 note chunks"},
         "mixed": {"texts": 512, "codes": True, "per_round": "512 texts, notes and code titles as they come"}}
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "evigen_jax/sample/clinosim.jsonl.gz"


def texts(case: dict) -> list[str]:
    from core_jax.embed import load_encoder
    from core_jax.observations import observations
    from core_jax.readers import clinosim

    spans, found = load_encoder("minilm").tokenizer.encode_offsets, {}
    for patient in clinosim.read(SAMPLE):
        for o in observations(patient, spans):
            if case["codes"] or o.kind == "note":
                found[o.embed_text] = None
            if len(found) == case["texts"]:
                return list(found)
    return list(found)


def evigen(case: dict):
    from core_jax.embed import load_encoder

    encoder, rows = load_encoder("minilm"), texts(case)
    return lambda: encoder.encode(rows).ravel()


def sentence_transformers(case: dict):
    import torch
    from sentence_transformers import SentenceTransformer

    from core_jax.packaged import minilm_folder

    torch.set_num_threads(2)
    model, rows = SentenceTransformer(minilm_folder(), device="cpu"), texts(case)
    return lambda: np.asarray(model.encode(rows, batch_size=32, normalize_embeddings=True, show_progress_bar=False)).ravel()


CONTENDERS = {"evigen": evigen, "sentence-transformers": sentence_transformers}
