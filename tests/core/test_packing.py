"""core_jax/packing.py: nothing lost, nothing cut, rows well filled, neighbours unseen, an order that can be resumed."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weights import random_weights

from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.packing import Example, order, pack, plan
from core_jax.rope import Default


def example(n: int, seed: int) -> Example:
    rng = np.random.default_rng(seed)
    return Example(rng.integers(1, 40, n), rng.integers(1, 40, n), rng.random(n) < 0.5)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 16), max_size=40))
def test_every_token_once_and_whole(lengths):
    examples = [example(n, i) for i, n in enumerate(lengths)]
    packed = pack(examples, 16)
    found = []
    for r, members in enumerate(plan(lengths, 16)):
        for segment, i in enumerate(members, 1):
            at = np.flatnonzero(packed.segments[r] == segment)
            assert (np.diff(at) == 1).all()
            for name in ("ids", "targets", "weights"):
                np.testing.assert_array_equal(getattr(packed, name)[r, at], getattr(examples[i], name))
            found.append(i)
    assert sorted(found) == list(range(len(lengths))) and packed.tokens == sum(lengths)
    assert not packed.weights[packed.segments == 0].any()
    assert plan(lengths, 16) == plan(list(lengths), 16)
    for a, b in zip(plan(lengths, 16), plan(lengths, 16)[1:]):  # no two rows would fit into one
        assert sum(lengths[i] for i in a + b) > 16


def test_rows_are_full():
    """At most one row more than hold the tokens where examples are short beside a row, else few more than any need."""
    rng = np.random.default_rng(0)
    for low, high, slack in ((50, 700, 1), (200, 900, 1), (300, 2049, 3)):
        for _ in range(10):
            lengths = rng.integers(low, high, 64)
            needed = max(np.ceil(lengths.sum() / 2048), (lengths > 1024).sum())
            assert len(plan(lengths.tolist(), 2048)) <= needed + slack


def test_nothing_is_cut():
    with pytest.raises(ValueError, match="example 1: got 17 tokens, expected at most 16"):
        pack([example(3, 0), example(17, 1)], 16)
    assert pack([], 16).ids.shape == (0, 16)


def test_blocks_are_padded():
    packed = pack([example(16, i) for i in range(5)], 16)
    blocks = list(packed.blocks(2))
    assert [b["ids"].shape for b in blocks] == [(2, 16)] * 3
    assert not blocks[-1]["segments"][1].any() and blocks[-1]["segments"][0].all()


def test_causal_example():
    e = Example.causal([5, 6], [7, 8])
    assert (e.ids.tolist(), e.targets.tolist(), e.weights.tolist()) == ([5, 6, 7], [6, 7, 8], [0, 1, 1])
    assert Example.causal([], [7, 8]).weights.tolist() == [1]
    for prompt, completion in (([5], []), ([], [7])):
        with pytest.raises(ValueError, match="expected a completion"):
            Example.causal(prompt, completion)
    with pytest.raises(ValueError, match="expected one length"):
        Example([1, 2], [1], [0.0])
    with pytest.raises(ValueError, match="weights"):
        Example([1], [1], [np.nan])


def test_neighbours_are_not_seen():
    """Hidden states of a packed example are those it has alone."""
    config = DecoderConfig(
        family="llama", vocab_size=40, hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8,
        intermediate_size=24, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=False, rope=Default(1e4),
        max_positions=64)
    params = random_weights(decoder.spec(config))
    run = jax.jit(functools.partial(decoder.forward, config), compiler_options={"xla_backend_optimization_level": 0})
    examples = [example(n, n) for n in (3, 9, 4)]
    packed, alone = pack(examples, 16), np.zeros((3, 16), np.int32)
    for row, e in zip(alone, examples):
        row[:len(e)] = e.ids
    lengths = np.array([len(e) for e in examples])
    real = (np.arange(16)[None] < lengths[:, None]).astype(np.int32)
    expected = run(params, jnp.asarray(alone), segments=jnp.asarray(real))
    got = run(params, jnp.asarray(packed.ids), segments=jnp.asarray(packed.segments))
    for segment, i in enumerate(plan(lengths.tolist(), 16)[0], 1):
        np.testing.assert_allclose(got[0][packed.segments[0] == segment], expected[i, :lengths[i]], atol=1e-5)


def test_order():
    batches = order(10, 4, 3, seed=5)
    epochs = [np.concatenate([batches[i] for i in range(e, e + 3)]) for e in (0, 3, 6)]
    assert len(batches) == 9 and all(sorted(e) == list(range(10)) for e in epochs)
    assert [len(batches[i]) for i in range(3)] == [4, 4, 2]
    assert not (epochs[0] == epochs[1]).all() and not (epochs[1] == epochs[2]).all()
    again, other = order(10, 4, 3, seed=5), order(10, 4, 3, seed=6)
    np.testing.assert_array_equal(batches[7], again[7])  # read out of turn, as a resumed run does
    assert any((batches[i] != other[i]).any() for i in range(9))
    # a run that was begun under another version of grain must find the order it left
    assert [b.tolist() for b in (batches[0], batches[1], batches[2])] == [[3, 9, 4, 8], [1, 0, 6, 5], [7, 2]]
