"""What a request may hold: bad values are refused where it is made, naming the field."""
import pytest

from core_jax.engine.request import Completion, Grammar, LabelScores, Request, Sampling


@pytest.mark.parametrize("values, why", [
    ({"max_tokens": 0}, "max_tokens: got 0"), ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"), ({"temperature": float("nan")}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"top_k": -1}, "top_k"), ({"top_k": 2**31}, "top_k"),
    ({"seed": -1}, "seed"), ({"seed": 2**32}, "seed"), ({"stop": "x"}, "stop: got 'x', expected a tuple"),
    ({"stop": ("",)}, "stop"), ({"stop": (5,)}, "stop"), ({"stop_tokens": 5}, "stop_tokens"),
    ({"stop_tokens": (-1,)}, "stop_tokens"), ({"stop_tokens": (2**31,)}, "stop_tokens"), ({"logprobs": 1}, "logprobs")])
def test_sampling(values, why):
    with pytest.raises(ValueError, match=why):
        Sampling(**values)


@pytest.mark.parametrize("prompt, why", [
    (5, "prompt: got 5"), ((1, -1), r"prompt\[1\]"), ((1, "a"), r"prompt\[1\]"),
    (({"role": "user"},), r"prompt\[0\].content"),
    (({"role": "root", "content": "x"},), r"prompt\[0\]"), (({"role": "user", "content": "x"}, 5), r"prompt\[1\]")])
def test_prompts(prompt, why):
    with pytest.raises(ValueError, match=why):
        Request(prompt)


def test_other_fields():
    for values, why in (({"adapter": 5}, "adapter"), ({"thinking": 1}, "thinking"), ({"sampling": None}, "sampling"),
                        ({"grammar": "x"}, "grammar")):
        with pytest.raises(ValueError, match=why):
            Request("a", **values)
    for kind, text in (("xml", "a"), ("lark", ""), ("regex", None)):
        with pytest.raises(ValueError, match="grammar"):
            Grammar(kind, text)
    with pytest.raises(ValueError, match="finish"):
        Completion.failed(Request("a"), "m", None)


def test_a_prompts_hash_is_of_the_prompt_as_given():
    chat = ({"role": "user", "content": "é"},)
    assert Request(chat).prompt_sha256() == Request([dict(reversed(chat[0].items()))]).prompt_sha256()
    assert len({Request(p).prompt_sha256() for p in ("1", (1,), (1, 2), chat, "")}) == 5
    assert Request([1, 2]) == Request((1, 2)) and not Request(()).is_chat and Request(chat).is_chat


def test_labels_that_are_all_impossible_are_equally_likely():
    scores = LabelScores.of([float("-inf")] * 4)
    assert scores.probs.tolist() == [0.25] * 4 and LabelScores.failed("x").probs.size == 0
