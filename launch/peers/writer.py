"""Suite `writer`: planted timelines into a memory with a language model, by the size of the wave, against one by one.

`smollm2` is SmolLM2-135M-Instruct in float32; `qwen3_06b` has the shapes of Qwen3-0.6B and random weights. Neither was
trained for this: what they extract is nonsense that does not end by itself, so each extraction runs to `max_tokens`. So
that linker and updater are asked what a trained extractor would make them ask, an entry's memories are those of the
rules writer; the model's extraction is computed and thrown away. Links and updates are the model's own. Each
patient's first three entries are the rules' altogether (they take next to no time), the fourth is the model's. So that
a round ends within a minute on two cores, an entry keeps two memories, each of which is compared with the two nearest
ACTIVE ones, and an update is asked about at most four (`WriteConfig` as shipped: 32, 12, 12).

Greedy, no retries, no adapters; every round starts from an empty store and an empty prefix cache, with all shapes
compiled. `one_by_one` is one `ingest` call an entry; the waves extract all entries in one batch, and link and update
those of so many patients together. The encoder hashes words (384 numbers). The result are digits of a hash of each
patient's memories, where they stand and how they are related (`max_difference` 0: the same ones); confidences are left
out, since their last bits depend on the batch. `figures` of a round: calls, tokens and operations by stage
(`stam_jax.language.writer.table`), and seconds by stage.
"""
from __future__ import annotations

import collections
import functools
import itertools
import os
import tempfile

import numpy as np

from stam_jax.language.lines import LETTERS
from stam_jax.language.writer import LanguageWriter, table
from stam_jax.rules import RulesWriter

GIVEN = 3
CASES = {
    "smollm2": {"model": "smollm2", "patients": 9, "max_tokens": 32, "chunk": 512, "warmup": 0, "rounds": 1},
    "qwen3_06b": {"model": "qwen3-0.6b", "patients": 2, "max_tokens": 16, "chunk": 128, "warmup": 0, "rounds": 1,
                  "contenders": ["wave_64"]},
}
for _case in CASES.values():
    _case["per_round"] = f"an entry of each of {_case['patients']} patients"


class Guided(LanguageWriter):
    """Pays for the model's extraction, and goes on with that of the rules."""

    def extract(self, entries):
        super().extract(entries)
        return RulesWriter().extract(entries)


def backend(case: dict):
    """The engine, all shapes compiled, by one worker for all that come after it."""
    import jax

    from core_jax import params
    from core_jax.engine.engine import Engine, Limits
    from core_jax.engine.request import Request
    from core_jax.models import decoder
    from core_jax.models.presets import DECODERS
    from core_jax.packaged import model_path
    from core_jax.text import Tokenizer

    jax.config.update("jax_compilation_cache_dir", os.path.dirname(os.environ["BENCH_RESULT"]))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    limits = Limits(length=2048, tokens=8192, chunk=case["chunk"])
    if case["model"] == "smollm2":
        engine = Engine.load("smollm2", limits=limits)
    else:
        config = DECODERS[case["model"]]
        weights = params.init(decoder.spec(config), jax.random.key(0))
        engine = Engine(config, weights, Tokenizer.load(model_path("smollm2")), model=case["model"], limits=limits)
    engine.warmup()
    for n in (1, limits.rows):
        engine.score_labels([Request("N1")] * n, [list(LETTERS)] * n)
    return engine


def filled(case: dict, wave: int, alone: bool = False):
    from core_jax.embed import load_encoder
    from core_jax.synth.timelines import TimelineConfig, generate
    from stam_jax.config import WriteConfig
    from stam_jax.graph import canonical
    from stam_jax.readers.planted import entries
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    timelines = list(generate(TimelineConfig(case["patients"])))
    given = [e for t in timelines for e in itertools.islice(entries(t), GIVEN)]
    asked = [next(itertools.islice(entries(t), GIVEN, None)) for t in timelines]
    parts = [[e] for e in asked] if alone else [asked]
    config = WriteConfig(per_chunk=2, link_candidates=2, budget=4)
    engine, encoder = backend(case), load_encoder("hash:384")

    def digits(state) -> int:
        memories = [[m.mid, m.store] for m in state.memories.values()]
        relations = sorted([r.src, r.dst, r.type] for r in state.relations.values())
        return int(canonical.digest([memories, relations])[:8], 16)

    def run():
        engine.pool.forget()
        writer, seconds = Guided(engine, retries=0, max_tokens=case["max_tokens"]), collections.Counter()
        with tempfile.TemporaryDirectory() as folder, \
                Store.open(os.path.join(folder, "store"), encoder=header_of(encoder)) as store:
            ingest(store, given, RulesWriter(), encoder)
            for part in parts:
                seconds.update(ingest(store, part, writer, encoder, config, wave=wave).seconds)
            run.figures = {"source_tokens": writer.source_tokens, "stages": table(writer.usage, writer.source_tokens),
                           "seconds": dict(seconds)}
            return np.array([digits(store.state(p)) for p in store.patients()], np.float64)

    return run


def summary(rows: list[dict]) -> list[str]:
    """Entries a second, and of each stage what the last round asked and what that cost (the paper's Table 29)."""
    lines = []
    for r in rows:
        rate = 1e3 * CASES[r["case"]]["patients"] / r["wall_ms"]["median"]
        lines.append(f"{r['case']:9} {r['contender']:10} {rate:5.2f} entries/s")
        for figures in (r.get("figures") or [])[-1:]:
            lines[-1] += f" ({figures['source_tokens']:,} source tokens)"
            seconds = figures["seconds"] | {"total": sum(figures["seconds"].values())}
            for row in figures["stages"]:
                lines.append(f"  {row['stage']:7} {row['calls']:4} calls, {row['prompt_tokens']:7,} prompt tokens "
                             f"({row['cached_tokens']:7,} cached), {row['generated_tokens']:5,} generated, "
                             f"{row['flops'] / 1e12:6.2f} TFLOP, {row['pflop_per_1000_source_tokens']:.5f} PFLOP per "
                             f"1,000 source tokens, {seconds[row['stage']]:5.1f} s")
    return lines


CONTENDERS = {"wave_64": functools.partial(filled, wave=64), "wave_8": functools.partial(filled, wave=8),
              "wave_1": functools.partial(filled, wave=1), "one_by_one": functools.partial(filled, wave=1, alone=True)}
