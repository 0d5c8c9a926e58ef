"""Suite `serving`: the time to the first token and the rate of decoding of both serving arms, one question at a time.

The memory is one planted patient's, written by the rules; SmolLM2-135M-Instruct in float32 is the reader. A question's
ACTIVE packet has as many of the nearest memories as its prompt has room for, and its BOTH packet those and as many of
HISTORY as there is room for. The paper's prompts have 1,876 and 4,482 tokens (appendix G.2); so that it runs on two
cores, `quarter` has a quarter of both (469 and 1,120) and `half` a half (938 and 2,241, the words of the record beside
each memory: no planted patient has so many ACTIVE ones without them). As in the paper the requests follow one another,
the prefix cache is emptied before each, and the making of the memory, search and packets are not timed. All shapes are
compiled before the first round, and every answer has 33 tokens.

A round's `figures` are medians over its questions; the wall time of a row is that of all its questions. The result are
the prompts' lengths (`max_difference`: what HISTORY adds, in tokens).
"""
from __future__ import annotations

import bisect
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np

NEW, ENTRIES = 33, 300
CASES = {
    "quarter": {"active": 469, "both": 1120, "spans": False, "questions": 4, "warmup": 0},
    "half": {"active": 938, "both": 2241, "spans": True, "questions": 2, "warmup": 0, "rounds": 2},
}
for _case in CASES.values():
    _case["per_round"] = f"{_case['questions']} questions, {NEW} tokens each"


def packets(case: dict, length: Callable[[tuple], int]) -> list[dict]:
    """Of each question: arm -> chat messages. length: tokens of a prompt."""
    from core_jax.embed import load_encoder
    from core_jax.synth.timelines import TimelineConfig, generate
    from stam_jax.config import ReadConfig
    from stam_jax.read.answer import messages
    from stam_jax.read.search import encode_query, packet, search, snapshot
    from stam_jax.readers.planted import entries
    from stam_jax.rules import RulesWriter
    from stam_jax.storage.store import Store
    from stam_jax.write.ingest import header_of, ingest

    (timeline,), encoder = generate(TimelineConfig(1, entries=(ENTRIES, ENTRIES))), load_encoder("hash:384")
    with tempfile.TemporaryDirectory() as folder, \
            Store.open(os.path.join(folder, "store"), encoder=header_of(encoder)) as store:
        ingest(store, entries(timeline), RulesWriter(), encoder)
        state, vectors = snapshot(store, timeline.patient_id)
        out = []
        for question in timeline.questions[:case["questions"]]:
            vector = encode_query(encoder, [question.text])[0]

            def served(arm: str, active: int, history: int) -> tuple:
                config = ReadConfig(active=active, history=history, most=active + history, spans=case["spans"])
                return messages(question.text, packet(search(state, vectors, vector, config), arm, config))

            counts = range(1, len(state.memories) + 1)
            active = bisect.bisect(counts, case["active"], key=lambda n: length(served("ACTIVE", n, 0)))
            history = bisect.bisect(counts, case["both"], key=lambda n: length(served("BOTH", active, n)))
            out.append({arm: served(arm, active, history) for arm in ("ACTIVE", "BOTH")})
    return out


def read(case: dict, arm: str):
    import jax

    from core_jax.chat import encode_chat
    from core_jax.engine.engine import Engine, Limits
    from core_jax.engine.request import Request, Sampling

    jax.config.update("jax_compilation_cache_dir", os.path.dirname(os.environ["BENCH_RESULT"]))  # for the other arm
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    length = case["both"] + NEW
    engine = Engine.load("smollm2", limits=Limits(rows=1, length=length, tokens=length, horizon=16))
    asked = packets(case, lambda messages: len(encode_chat(messages, engine.tokenizer, enable_thinking=False)))
    engine.tokenizer.eos_ids = ()  # no answer ends early
    engine.warmup()
    requests = [Request(prompts[arm], Sampling(max_tokens=NEW), thinking=False) for prompts in asked]

    def run():
        first, rate, lengths = [], [], []
        for request in requests:
            engine.pool.forget()
            start = time.perf_counter()
            (done,) = engine.submit([request])
            took = time.perf_counter() - start
            if done.error is not None:
                raise RuntimeError(done.error)
            first.append(done.seconds_to_first_token)
            rate.append((done.completion_tokens - 1) / (took - first[-1]))
            lengths.append(done.prompt_tokens)
        run.figures = {"prompt_tokens": statistics.median(lengths), "first_token_ms": 1e3 * statistics.median(first),
                       "decode_tokens_s": statistics.median(rate)}
        return np.array(lengths)

    return run


def summary(rows: list[dict]) -> list[str]:
    """Milliseconds to the first token, tokens a second after it, and the operations of the prefill, as
    `core_jax/models/cost.py` counts them; and what BOTH costs of it, in times ACTIVE."""
    from core_jax.models.cost import prefill_flops
    from core_jax.models.presets import SMOLLM2_135M

    lines, seen = [], {}
    for r in [r for r in rows if r.get("figures")]:
        tokens, first, rate = (statistics.median(f[name] for f in r["figures"])
                               for name in ("prompt_tokens", "first_token_ms", "decode_tokens_s"))
        flops = prefill_flops(SMOLLM2_135M, round(tokens))
        seen[r["case"], r["contender"]] = tokens, first, flops, rate
        lines.append(f"{r['case']:8} {r['contender']:7} {tokens:5.0f} tokens, first token after {first:7.0f} ms, "
                     f"decode {rate:5.1f} tokens/s, prefill {flops / 1e9:7.1f} GFLOP")
    for case in CASES:
        if (case, "active") in seen and (case, "both") in seen:
            ratios = [b / a for a, b in zip(seen[case, "active"], seen[case, "both"])]
            lines.append(f"{case:8} both over active: tokens x{ratios[0]:.2f}, first token x{ratios[1]:.2f}, "
                         f"prefill FLOP x{ratios[2]:.2f}, decode rate x{ratios[3]:.2f}")
    return lines


CONTENDERS = {"active": functools.partial(read, arm="ACTIVE"), "both": functools.partial(read, arm="BOTH")}
