"""The text of an answer: stop strings, the thinking block, and pieces that nothing takes back."""
import engine_cases as E
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.engine.answer import Answer, cut


def run(text, stop=(), thinks=False, control=True):
    """The answer to a text fed token by token, and its pieces."""
    answer, pieces = Answer(E.tokenizer(), stop, thinks=thinks), []
    for token in E.tokenizer().tokenize(text, control=control):
        ended = answer.push(token)
        pieces.append(answer.certain())
        if ended:
            break
    answer.finish()
    pieces.append(answer.certain(last=True))
    assert "".join(pieces) == answer.text
    return answer, pieces


@pytest.mark.parametrize("text, stop, want", [
    ("one two three", ("two",), "one "), ("one two three", ("wo th",), "one t"), ("one two", ("two",), "one "),
    ("aaab", ("ab",), "aa"), ("one two three", ("three", "o t"), "one tw"), ("one two", ("x",), "one two"),
    ("été froid", ("é f",), "ét"), ("one", ("one",), ""), ("a<<", ("<", "a<<"), "a"), ("xa<", ("<", "a<"), "x"),
    ("abcd", ("abcd", "bc"), "a"), ("aaaa", ("aaa", "aa"), "")])
def test_the_text_is_cut_before_the_stop_string_that_is_complete_first(text, stop, want):
    answer, _ = run(text, stop)
    assert answer.text == want and answer.stopped == (want != text)
    assert cut(text, stop) == (len(want) if answer.stopped else None), "in one piece too"


@settings(max_examples=60, deadline=None)
@given(text=st.text("ab<é \n", max_size=25), stop=st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3),
       thinks=st.booleans())
def test_pieces_are_the_text_and_stop_strings_are_the_plain_ones(text, stop, thinks):
    answer, _ = run(text, stop, thinks=thinks)
    complete = ((i, [i - len(s) for s in stop if text[:i].endswith(s)]) for i in range(len(text) + 1))
    at = next((min(begins) for _, begins in complete if begins), len(text))
    assert cut(text, stop) == (at if answer.stopped else None)
    assert (answer.thinking, answer.text) == ((text[:at].strip(), "") if thinks else ("", text[:at]))


@pytest.mark.parametrize("text, thinks, thinking, want", [
    ("<think>\nhm\n</think>\n\nyes ", False, "hm", "yes"), ("hm</think>yes", True, "hm", "yes"),
    ("<think>hm", False, "hm", ""), ("yes </think> no", False, "", "yes </think> no"),
    ("<think></think>yes<think>no", False, "", "yes<think>no"), ("<thin", False, "", "<thin"),
    ("yes <think>no</think>", False, "", "yes <think>no</think>"), ("\n<think>a</think>b", False, "a", "b")])
@pytest.mark.parametrize("control", [True, False])
def test_the_thinking_block_is_set_apart(text, thinks, thinking, want, control):
    answer, pieces = run(text, thinks=thinks, control=control)
    assert (answer.thinking, answer.text) == (thinking, want)


def test_pieces_come_early_and_hold_only_what_may_go():
    _, pieces = run("one two three four", stop=("our!",))
    assert sum(bool(p) for p in pieces) > 4 and pieces[-1] in ("our", "r")
    _, pieces = run("<think>one two</think>three four five")
    assert "".join(pieces[:4]) == "" and sum(bool(p) for p in pieces) > 2


def test_a_character_cut_in_two_is_not_shown_by_half():
    answer = Answer(E.tokenizer(), (), thinks=False)
    first, *_ = E.tokenizer().tokenize("é")
    answer.push(first)
    assert answer.certain() == ""
    answer.finish()
    assert answer.certain(last=True) == answer.text == "\ufffd"
