import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stam_jax.write.chunks import chunks


def words(text, spans):
    return [len(text[a:b].split()) for a, b in spans]


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("ab .\n\t\u00e9"), max_size=400), size=st.integers(1, 12))
def test_chunks_cover_the_text_in_order_and_are_no_longer_than_asked(text, size):
    spans = chunks(text, size)
    assert bool(spans) == bool(text)
    at = 0
    for start, end in spans:
        assert start <= at < end
        at = end
    assert at == len(text)
    assert all(n <= size for n in words(text, spans))


def test_turns_stay_whole_and_the_last_short_one_is_repeated():
    turns = ["Nurse: any pain?\n", "Patient: " + "no " * 30 + "\n", "Nurse: good.\n", "Patient: " + "yes " * 30 + "\n"]
    text = "".join(turns)
    spans = chunks(text, 40)
    assert [text[a:b] for a, b in spans] == ["".join(turns[:3]), "".join(turns[2:])]


def test_a_line_longer_than_a_chunk_is_cut_between_words():
    text = "word " * 100
    spans = chunks(text, 30)
    assert words(text, spans) == [30, 30, 30, 10] and all(text[a] == "w" for a, _ in spans)


def test_what_fits_is_one_chunk_and_nothing_is_none():
    assert chunks("a note\nof two lines", 2048) == ((0, 19),) and chunks("", 5) == ()
    with pytest.raises(ValueError, match="at least 1"):
        chunks("x", 0)


def test_ten_megabytes_without_a_blank_are_cut():
    text = "x" * 10_000_000
    spans = chunks(text, 2048)
    assert spans[0][0] == 0 and spans[-1][1] == len(text) and max(b - a for a, b in spans) <= 2 * 2048 * 64
    text = "abc de\n" * 300_000
    spans = chunks(text, 2048)
    assert max(words(text, spans)) <= 2048 and spans[-1][1] == len(text)
