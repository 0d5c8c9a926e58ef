"""Suite `ingest`: planted timelines into a memory with the rules writer, by the size of the wave, against calls one by one.

Every round fills an empty store. `one_by_one` is what a user would write without waves: one `ingest` call an entry. The
encoder hashes words (384 numbers), so that what is timed is the write path and not MiniLM, whose share `minilm` shows
(fewer patients). The result are the first digits of each patient's state hash (`max_difference` 0: the same memories).
"""
from __future__ import annotations

import functools
import os
import tempfile

import numpy as np

CASES = {
    "hash_20": {"patients": 20, "entries": 50, "encoder": "hash:384", "per_round": "20 patients, 50 entries each",
                 "contenders": ["wave_64", "wave_8", "wave_1", "one_by_one"], "warmup": 1},
    "minilm_20": {"patients": 20, "entries": 50, "encoder": "minilm", "per_round": "20 patients, 50 entries each",
                  "contenders": ["wave_64", "wave_1", "one_by_one"], "warmup": 1},
    "hash_1000": {"patients": 1000, "entries": 50, "encoder": "hash:384", "per_round": "1,000 patients, 50 entries each",
                  "contenders": ["wave_64"], "warmup": 0, "rounds": 1},
}


def filled(case: dict, wave: int, alone: bool = False):
    from core_jax.embed import load_encoder
    from core_jax.synth.timelines import TimelineConfig, generate
    from stam_jax.readers.planted import entries
    from stam_jax.rules import RulesWriter
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    config = TimelineConfig(case["patients"], entries=(case["entries"], case["entries"]))
    timelines, encoder, writer = list(generate(config)), load_encoder(case["encoder"]), RulesWriter()
    asked = [e for t in timelines for e in entries(t)]

    def run():
        with tempfile.TemporaryDirectory() as folder, Store.open(os.path.join(folder, "store"), encoder=header_of(encoder)) as store:
            if alone:
                for entry in asked:
                    ingest(store, [entry], writer, encoder, wave=1)
            else:
                ingest(store, asked, writer, encoder, wave=wave)
            return np.array([int(store.state(p).sha256[:8], 16) for p in store.patients()], np.float64)

    return run


def summary(rows: list[dict]) -> list[str]:
    """Entries a second."""
    return [f"{r['case']:10} {r['contender']:11} {CASES[r['case']]['patients'] * CASES[r['case']]['entries'] / r['wall_ms']['median'] * 1e3:8.0f} entries/s"
            for r in rows]


CONTENDERS = {"wave_64": functools.partial(filled, wave=64), "wave_8": functools.partial(filled, wave=8),
              "wave_1": functools.partial(filled, wave=1), "one_by_one": functools.partial(filled, wave=1, alone=True)}
