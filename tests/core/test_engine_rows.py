"""Neither family, rows, pages, buckets, horizon nor adapters of others change a sequence's tokens."""
import dataclasses

import engine_cases as E
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from core_jax import params as P
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.request import Request, Sampling
from core_jax.models import decoder


@pytest.fixture(scope="module", autouse=True)
def quick():
    with E.quick_compiles():
        yield


def test_bfloat16_weights_have_float32_pages_on_a_cpu():
    """Rounded weights and activations, the same model: log probabilities of its own tokens by the plain loop."""
    spec = decoder.spec(E.config(), "bfloat16")
    half = jax.tree.map(lambda x, s: x.astype(s.dtype), E.params(), P.abstract(spec))
    engine = Engine(E.config(), half, E.tokenizer(), limits=Limits(rows=1, page=16, length=E.LENGTH, chunk=16, horizon=4))
    assert engine._kv.k.dtype == jnp.float32
    done = engine.submit([Request(E.PROMPTS[0], Sampling(max_tokens=8, logprobs=True))])[0]
    plain = jax.nn.log_softmax(E.logits((*E.PROMPTS[0], *done.tokens), tree=half))
    places = np.arange(len(done.tokens)) + len(E.PROMPTS[0]) - 1
    assert len(done.tokens) > 3
    np.testing.assert_allclose(done.logprobs[:len(places)], plain[places, done.tokens], atol=1e-2)


class Deltas:
    """Full-rank adapters: each adds its own matrix to wq and wv of every layer."""

    names = ("first", "second")

    def __init__(self):
        tree = E.params()["layers"]
        self.arrays = {name: jnp.stack([jax.random.normal(jax.random.key(10 * len(name) + i), tree[name].shape) * 0.4
                                        for i in range(2)], axis=1) for name in ("wq", "wv")}  # [L, n, out, in]

    def bind(self, arrays, slot, base):
        own = (slot[:, None] == jnp.arange(2, dtype=jnp.int32)[None]).astype(jnp.float32)

        def dense(x, layer, name):
            y = base(x, layer, name)
            return y if name not in arrays else y + jnp.einsum("mn,noi,mi->mo", own, layer["delta_" + name], x)

        return dense, {"delta_" + name: x for name, x in arrays.items()}

    def merged(self, i):
        tree = E.params()
        return tree | {"layers": tree["layers"] | {n: tree["layers"][n] + x[:, i] for n, x in self.arrays.items()}}


@pytest.fixture(scope="module")
def engine():
    """Other pages, buckets, rows and horizon than in test_engine.py, and room for little more than one sequence."""
    return E.engine(rows=3, page=8, tokens=E.LENGTH + 8, chunk=8, horizon=3, adapters=Deltas())


def test_when_pages_run_out_the_youngest_waits_and_nothing_is_lost(engine):
    requests = [Request(p, Sampling(max_tokens=40)) for p in E.PROMPTS]
    requests[4] = Request(E.PROMPTS[4], E.HOT)
    out = engine.submit(requests)
    assert [c.tokens for c in out[:4] + out[5:]] == [E.greedy(p, 40) for p in E.PROMPTS[:4] + E.PROMPTS[5:]]
    assert engine.progress().preemptions > 0 and engine.pool.leased == 0
    assert engine.submit([requests[4]])[0].tokens == out[4].tokens == E.drawn(E.PROMPTS[4], E.HOT)
    labels = [" the patient has pain", " has chest pain"]
    scores = engine.score_labels([Request(p) for p in E.PROMPTS[:3]], [labels] * 3)
    alone = [engine.score_labels([Request(p)], [labels])[0] for p in E.PROMPTS[:3]]
    for a, b in zip(scores, alone):
        np.testing.assert_allclose(a.log_probs, b.log_probs, rtol=1e-5)


def test_rows_of_two_adapters_and_the_base_share_a_batch(engine):
    deltas = engine._adapters
    engine.pool.forget()
    prompts = E.prompts(2, shared=20, longest=20)
    names = [None, "first", "second"] * 2
    order = [prompts[0]] * 3 + [prompts[1]] * 3
    out = engine.submit([Request(p, Sampling(max_tokens=10), adapter=a) for p, a in zip(order, names)])
    trees = {None: None, "first": deltas.merged(0), "second": deltas.merged(1)}
    for prompt, name, c in zip(order, names, out):
        assert c.tokens == E.greedy(prompt, 10, tree=trees[name])
    assert len({c.tokens for c in out[:3]}) == 3
    assert [c.cached_tokens for c in out[:3]] == [0, 0, 0], "keys and values are the adapter's own"
    assert all(c.cached_tokens >= 16 for c in out[3:])
    assert "expected one of ['first', 'second']" in engine.submit([Request((5,), adapter="third")])[0].error


@pytest.mark.slow
@pytest.mark.parametrize("family, unroll, limits", [
    ("llama", False, {"rows": 2, "page": 64, "chunk": 8, "horizon": 1}),
    ("qwen3", True, {"rows": 8, "chunk": 64, "horizon": 16}),
    ("qwen3", False, {"rows": 1, "page": 1, "chunk": 128, "horizon": 5}),
    ("llama", True, {"rows": 5, "page": 128, "chunk": 24, "horizon": 2}),
    ("llama", False, {"rows": 6, "page": 5, "chunk": 7, "horizon": 8, "tokens": E.LENGTH})])
def test_the_tokens_are_those_of_the_plain_loop(family, unroll, limits):
    engine = E.engine(family, unroll=unroll, **limits)
    hot = [Sampling(max_tokens=12, temperature=0.8, top_k=k, top_p=p, seed=k)
           for k, p in ((0, 1.0), (9, 1.0), (40, 0.9))]
    requests = [Request(p, s) for p, s in zip(E.PROMPTS, [*[Sampling(max_tokens=12)] * 5, *hot])]
    want = [E.drawn(r.prompt, r.sampling, family) for r in requests]
    assert want[:5] == [E.greedy(p, 12, family) for p in E.PROMPTS[:5]]
    for given in (requests, requests[::-1]):  # the second time from the cache
        out = {c.prompt_sha256: c.tokens for c in engine.submit(given)}
        assert [out[r.prompt_sha256()] for r in requests] == want
    assert set(engine.traces.values()) == {1}


def test_limits_and_a_vocabulary_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="tokens: got 100, expected room for one sequence of 192"):
        E.engine(tokens=100)
    with pytest.raises(ValueError, match=r"tokens: got room for 100000000000, whose keys and values take [\d,.]+ GiB of the"):
        E.engine(tokens=10**11)
    with pytest.raises(ValueError, match="page: got 0"):
        Limits(page=0)
    narrow = dataclasses.replace(E.config(), vocab_size=E.tokenizer().vocab_size - 1)
    with pytest.raises(ValueError, match="got a vocabulary of"):
        Engine(narrow, E.params(), E.tokenizer())
