"""Chunks keep offsets; the tokenizer adapter keeps them too."""
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.text import Tokenizer, chunk, word_spans

tokenizers = pytest.importorskip("tokenizers")


@st.composite
def texts_with_spans(draw):
    """A text of words and blanks whose units are any ordered, non-overlapping spans."""
    cuts = draw(st.lists(st.integers(0, 3), max_size=120))
    text, spans = draw(st.sampled_from(["", " ", "\n\n"])), []
    for gap in cuts:
        text += " " * gap
        spans.append((len(text), len(text) + 1))
        text += "x"
    return text + draw(st.sampled_from(["", "  ", "\r\n"])), spans


@given(texts_with_spans(), st.integers(1, 30), st.data())
def test_windows_cover_the_text_and_share_exactly_the_overlap(pair, size, data):
    text, spans = pair
    overlap = data.draw(st.integers(0, size - 1))
    windows = chunk(text, spans, size, overlap)
    if not spans:
        assert windows == []
        return
    assert windows[0][0] == 0 and windows[-1][1] == len(text)
    held = [[i for i, (s, e) in enumerate(spans) if a <= s and e <= b] for a, b in windows]
    for (_, b), (a, _) in zip(windows, windows[1:]):
        assert a <= b  # no character is lost between two windows
    for one, two in zip(held, held[1:]):
        assert len(one) == size and one == list(range(one[0], one[0] + size))
        assert len(set(one) & set(two)) == overlap
    assert held[-1][-1] == len(spans) - 1
    assert len(held[-1]) <= size + overlap
    if len(windows) > 1:
        assert len(held[-1]) > 2 * overlap  # the last window brings more than `overlap` new units


@pytest.mark.parametrize("units, expected", [(1, 1), (200, 1), (201, 1), (240, 1), (241, 2), (400, 2), (401, 3)])
def test_a_rest_of_at_most_the_overlap_joins_the_window_before(units, expected):
    text = "w " * units
    windows = chunk(text, word_spans(text))
    assert len(windows) == expected
    assert [len(text[a:b].split()) for a, b in windows[:-1]] == [200] * (expected - 1)


@pytest.mark.parametrize("text", ["", " \n\t ", "\u2003"])
def test_a_blank_note_has_no_chunk(text):
    assert chunk(text, word_spans(text)) == []
    assert chunk(text, [(0, len(text))] if text else []) == []


@pytest.mark.parametrize("size, overlap", [(0, 0), (10, 10), (10, -1)])
def test_sizes_are_checked(size, overlap):
    with pytest.raises(ValueError, match="expected size"):
        chunk("a b", word_spans("a b"), size, overlap)


# ---- tokenizer ------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small WordPiece tokenizer whose file carries truncation and padding, as published ones do."""
    from tokenizers import Tokenizer as Fast
    from tokenizers import models, normalizers, pre_tokenizers, processors

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789.,", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")]
    pieces += ["chest", "pain", "##ing"]
    t = Fast(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.enable_truncation(8)
    t.enable_padding(length=8)
    path = tmp_path_factory.mktemp("tokenizer")
    t.save(str(path / "tokenizer.json"))
    return path


def test_truncation_and_padding_of_the_file_are_off(folder):
    t = Tokenizer.load(folder)
    assert t.encode(["pain"], 64) == [[2, t.encode(["pain"], 64)[0][1], 3]]
    assert len(t.encode_offsets("pain " * 50)) == 50
    assert len(t.encode(["pain " * 50], 64)[0]) == 52


def test_cut_texts_keep_their_special_tokens_and_are_counted(folder):
    t = Tokenizer.load(folder)
    rows, cut = t.encode_counted(["pain " * 50, "pain"], 10)
    assert cut == 1 and len(rows[0]) == 10 and (rows[0][0], rows[0][-1]) == (2, 3) and len(rows[1]) == 3
    with pytest.raises(ValueError, match="special tokens"):
        t.encode(["pain"], 2)


def test_offsets_are_of_the_raw_text(folder):
    t = Tokenizer.load(folder)
    text = "  CHEST\r\n\u00e9pain\u00a0ing\U0001F600."
    assert text[slice(*t.encode_offsets(text)[0])] == "CHEST"


@settings(max_examples=150)
@given(st.text(max_size=400), st.integers(2, 12), st.data())
def test_any_text_is_chunked_at_its_own_offsets(folder, text, size, data):
    t = Tokenizer.load(folder)
    spans = t.encode_offsets(text)
    assert all(0 <= a < b <= len(text) for a, b in spans)
    windows = chunk(text, spans, size, data.draw(st.integers(0, size - 1)))
    assert bool(windows) == bool(spans and text.strip())
    if windows:
        assert windows[0][0] == 0 and windows[-1][1] == len(text)
        assert all(a <= b for (_, b), (a, _) in zip(windows, windows[1:]))
        assert all(a < b for a, b in windows)


def test_a_megabyte_note(folder, recwarn):
    t = Tokenizer.load(folder)
    text = ("Chest pain, 2 days.\n" * 60000)[: 1 << 20]
    windows = chunk(text, t.encode_offsets(text))
    assert windows[0][0] == 0 and windows[-1][1] == len(text) and len(windows) > 1000
    assert not recwarn.list


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        Tokenizer.load(tmp_path / "absent")
    with pytest.raises(ValueError, match="no usable tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_folder_with_a_vocabulary_only(folder, tmp_path):
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    t = Tokenizer.load(tmp_path)
    assert t.encode(["chest paining"], 64) == Tokenizer.load(folder).encode(["chest paining"], 64)
