"""The encoder against transformers' torch models, both ways: their weights here, our weights there (house.md)."""
from __future__ import annotations

import importlib.util
import json
import os

import jax
import numpy as np
import pytest

from core_jax.ckpt import hf
from core_jax.models import encoder
from core_jax.models.config import BertConfig
from weights import random_weights

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="extra `parity` is not installed")

forward = jax.jit(encoder.forward, static_argnums=0)
LENGTHS = (13, 1, 7, 12, 2)


def _tiny(family: str, activation: str):
    from transformers import BertConfig as HFBert
    from transformers import BertModel, RobertaModel
    from transformers import RobertaConfig as HFRoberta

    torch.manual_seed(0)
    sizes = dict(vocab_size=61, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=56,
                 max_position_embeddings=20, hidden_act=activation, layer_norm_eps=1e-5, initializer_range=0.4)
    if family == "bert":
        model = BertModel(HFBert(type_vocab_size=2, **sizes))
    else:
        model = RobertaModel(HFRoberta(type_vocab_size=1, pad_token_id=1, **sizes))
    for p in model.parameters():  # biases and norms away from 0 and 1
        p.data += 0.1 * torch.randn_like(p)
    return model.eval()


def _ids(vocab: int, pad: int):
    ids = np.random.default_rng(0).integers(5, vocab, (len(LENGTHS), max(LENGTHS))).astype(np.int32)
    mask = np.arange(ids.shape[1])[None] < np.array(LENGTHS)[:, None]
    return np.where(mask, ids, pad).astype(np.int32), mask


def _difference(model, config, params, ids, mask) -> float:
    with torch.no_grad():
        theirs = model(torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long()).last_hidden_state.numpy()
    return float(np.abs(np.where(mask[..., None], np.asarray(forward(config, params, ids, mask)) - theirs, 0)).max())


def _load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = BertConfig.from_hf(json.load(f))
    params = hf.read(folder, encoder.spec(config), encoder.hf_sources(config), ignorable=encoder.IGNORABLE,
                     prefixes=encoder.PREFIXES)
    return config, params


@pytest.mark.parametrize("family, activation", [
    ("bert", "gelu"), ("bert", "gelu_new"), ("bert", "gelu_pytorch_tanh"), ("bert", "relu"), ("roberta", "gelu"),
])
def test_tiny_random_models(family, activation, tmp_path):
    model = _tiny(family, activation)
    model.save_pretrained(tmp_path)
    config, params = _load(tmp_path)
    assert _difference(model, config, params, *_ids(61, 0 if family == "bert" else 1)) < 1e-5


@pytest.mark.parametrize("offset", [0, 2])
def test_our_weights_there(offset, tmp_path):
    from transformers import AutoModel

    config = BertConfig(61, 32, 2, 4, 48, 20, 1, 1e-5, "gelu", offset)
    params = random_weights(encoder.spec(config))
    hf.write(tmp_path, params, encoder.hf_sources(config), config.to_hf())
    model, info = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert _difference(model.eval(), config, params, *_ids(61, max(offset - 1, 0))) < 1e-5


@pytest.fixture(scope="module")
def minilm():
    from core_jax.embed import MINILM_PACKAGE, minilm_folder

    if importlib.util.find_spec(MINILM_PACKAGE) is None:
        pytest.skip("the MiniLM weights are not installed")
    return minilm_folder()


def test_real_weights(minilm):
    from transformers import BertModel

    config, params = _load(minilm)
    assert _difference(BertModel.from_pretrained(minilm).eval(), config, params, *_ids(config.vocab_size, 0)) < 1e-5


def test_sentence_vectors_as_sentence_transformers(minilm):
    """End to end: tokenizer, packing, mean pooling, normalisation, the 256-token limit."""
    from transformers import AutoTokenizer, BertModel

    from core_jax.embed import load_encoder

    texts = ["Chest pain.", "No acute distress; \u00e9lan, 5\u00b5g/mL \u2026", "word " * 400, "a", "Discharged home\n\nin good condition " * 9]
    batch = AutoTokenizer.from_pretrained(minilm)(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = BertModel.from_pretrained(minilm).eval()(**batch).last_hidden_state
    weight = batch["attention_mask"][..., None].float()
    theirs = torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1).numpy()
    ours = load_encoder("minilm")
    np.testing.assert_allclose(ours.encode(texts), theirs, atol=1e-5)
    assert ours.truncated == 1
