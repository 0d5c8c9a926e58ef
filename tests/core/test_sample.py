"""Sampling against NumPy: which tokens may come, how often they do, and that a row's draw is its own."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.engine import sample as S

V = 70
_sample = jax.jit(S.sample)


def choice(rows, **values):
    default = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 0, "index": 0}
    types = (np.float32, np.float32, np.int32, np.uint32, np.int32)
    return S.Choice(*(np.broadcast_to(np.asarray(values.get(name, value), kind), (rows,)).copy()
                      for (name, value), kind in zip(default.items(), types)))


def everything(rows):
    return np.full((rows, S.words(V)), 0xFFFFFFFF, np.uint32)


def pack(allowed):
    """bool [R, V] -> words, by the definition."""
    words = np.zeros((len(allowed), S.words(V)), np.uint32)
    for r, v in zip(*np.nonzero(allowed)):
        words[r, v // 32] |= np.uint32(1) << np.uint32(v % 32)
    return words


def logits(rows, seed=0, scale=3.0):
    return (np.random.default_rng(seed).standard_normal((rows, V)) * scale).astype(np.float32)


def kept(x, top_k, top_p):
    """The tokens that may come, as transformers filters them: top-k first, then top-p of what is left."""
    order = np.argsort(-x.astype(np.float64), kind="stable")
    keep = np.zeros(V, bool)
    order = order[:top_k or V]
    p = np.exp(x[order].astype(np.float64) - x[order[0]])
    before = np.cumsum(p / p.sum()) - p / p.sum()
    keep[order[before < top_p]] = True
    return keep


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), top_k=st.sampled_from([0, 1, 5, V]), top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]))
def test_only_the_likeliest_tokens_come(seed, top_k, top_p):
    x = logits(1, seed)
    keep = kept(x[0], top_k, top_p)
    n = 64
    tokens, scores = _sample(np.repeat(x, n, 0), choice(n, top_k=top_k, top_p=top_p, seed=np.arange(n)), everything(n))
    assert keep[np.asarray(tokens)].all()
    want = x[0, tokens] - np.logaddexp.reduce(x[0].astype(np.float64))
    np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature, top_k, top_p", [(1.0, 0, 1.0), (0.6, 0, 0.9), (1.4, 6, 1.0), (0.9, 9, 0.8)])
def test_they_come_as_often_as_the_softmax_says(temperature, top_k, top_p):
    n, x = 6000, logits(1, seed=3, scale=1.5)
    z = x[0].astype(np.float64) / temperature
    p = np.where(kept(z, top_k, top_p), np.exp(z - z.max()), 0)
    p /= p.sum()
    seeds, index = np.arange(n) % 100, np.arange(n) // 100
    tokens, _ = _sample(np.repeat(x, n, 0), choice(
        n, temperature=temperature, top_k=top_k, top_p=top_p, seed=seeds, index=index), everything(n))
    share = np.bincount(tokens, minlength=V) / n
    assert np.abs(share - p).max() < 4 * np.sqrt(0.25 / n)
    assert np.abs(share - p).sum() < 2 * np.sqrt((p > 0).sum() / n)


def test_a_row_draws_the_same_wherever_it_stands_and_anew_for_each_token():
    x = logits(5, seed=1, scale=0.3)
    c = choice(5, seed=[3, 4, 5, 6, 7], index=[0, 9, 1, 2, 3], temperature=[1, 0.5, 2, 0, 1], top_k=[0, 7, 0, 3, 0])
    tokens, _ = _sample(x, c, everything(5))
    for i in range(5):
        own, _ = _sample(x[i:i + 1], S.Choice(*(a[i:i + 1] for a in c)), everything(1))
        assert own[0] == tokens[i]
    flipped, _ = _sample(x[::-1], S.Choice(*(a[::-1] for a in c)), everything(5))
    assert np.array_equal(flipped[::-1], tokens)
    many = np.repeat(x[:1], 40, 0)
    assert len(set(np.asarray(_sample(many, choice(40, seed=1, index=np.arange(40)), everything(40))[0]))) > 15
    assert len(set(np.asarray(_sample(many, choice(40, seed=np.arange(40)), everything(40))[0]))) > 15


def test_greedy_takes_the_first_of_the_largest_and_a_mask_holds():
    x = logits(3, seed=2)
    x[0, [4, 9]] = 50.0
    tokens, _ = _sample(x, choice(3, temperature=0.0), everything(3))
    assert tokens[0] == 4 and np.array_equal(tokens[1:], x[1:].argmax(-1))
    allowed = np.zeros((3, V), bool)
    allowed[0, 31], allowed[1, [32, 69]], allowed[2, ::2] = True, True, True
    for t in (0.0, 1.0, 50.0):
        tokens, _ = _sample(x, choice(3, temperature=t, top_p=0.9, top_k=3), pack(allowed))
        assert allowed[np.arange(3), tokens].all()
    greedy, _ = _sample(x, choice(3, temperature=0.0), pack(allowed))
    assert np.array_equal(greedy, np.where(allowed, x, -np.inf).argmax(-1))


def test_words_unpack_bit_by_bit():
    allowed = np.random.default_rng(0).random((4, V)) < 0.3
    assert np.array_equal(S.unpack(jnp.asarray(pack(allowed)), V), allowed)


def test_extreme_temperatures_give_tokens():
    x = logits(5, scale=30.0)
    tokens, _ = _sample(x, choice(5, temperature=[1e-30, 2e-38, 1e-38, 1e-45, 100.0]), everything(5))
    assert np.array_equal(tokens[:4], x[:4].argmax(-1)) and 0 <= tokens[4] < V


def test_the_smallest_top_p_keeps_the_likeliest():
    x = logits(6, scale=3.0)
    allowed = np.arange(V)[None] != x.argmax(-1)[:, None]
    for words, best in ((everything(6), x), (pack(allowed), np.where(allowed, x, -np.inf))):
        tokens, _ = _sample(x, choice(6, top_p=[1e-7, 1e-30, 1e-38, 1e-42, 1e-45, 0.0]), words)
        assert np.array_equal(tokens, best.argmax(-1))
