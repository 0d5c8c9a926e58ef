"""A tiny random decoder behind an engine, and the plain loop that its answers are checked against."""
from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from chat_cases import write_tokenizer

from core_jax import params as P
from core_jax.engine import sample
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.request import Sampling
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.rope import Default
from core_jax.text import Tokenizer

LENGTH = 192


@contextlib.contextmanager
def quick_compiles():
    """Half the compile time; tests compile much and compute little."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


@functools.cache
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(pathlib.Path(folder))
        return Tokenizer.load(folder)


@functools.cache
def config(family: str = "llama") -> DecoderConfig:
    return DecoderConfig(
        family=family, vocab_size=tokenizer().vocab_size + 5, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2,
        head_dim=8, intermediate_size=48, rms_norm_eps=1e-5, tie_embeddings=family == "llama", qk_norm=family == "qwen3",
        rope=Default(10_000.0), max_positions=512)


@functools.cache
def params(family: str = "llama") -> P.Tree:
    """Larger than the usual start, so that answers differ and do not repeat."""
    tree = P.init(decoder.spec(config(family)), jax.random.key(0))
    return jax.tree.map(lambda x: x * 12 if x.ndim > 1 and x.shape[-1] > 8 else x, tree)


def engine(family: str = "llama", *, unroll: bool = False, adapters=None, grammars=None, on_step=None, **limits) -> Engine:
    limits = {"rows": 4, "page": 16, "tokens": 4 * LENGTH, "length": LENGTH, "chunk": 16, "horizon": 4} | limits
    return Engine(config(family), params(family), tokenizer(), model="tiny", limits=Limits(**limits), unroll=unroll,
                  adapters=adapters, grammars=grammars, on_step=on_step)


@functools.cache
def _forward(family: str):
    return jax.jit(lambda p, ids: decoder.logits(config(family), p, decoder.forward(config(family), p, ids)))


def logits(tokens, family: str = "llama", tree: P.Tree | None = None) -> np.ndarray:
    """[T, V] of a whole sequence."""
    ids = np.zeros((1, LENGTH), np.int32)
    ids[0, :len(tokens)] = tokens
    return np.asarray(_forward(family)(params(family) if tree is None else tree, jnp.asarray(ids)))[0, :len(tokens)]


def greedy(prompt, count: int, family: str = "llama", tree: P.Tree | None = None) -> tuple[int, ...]:
    """The answer by the plain loop: the whole sequence anew for each token, the stop token left out."""
    tokens = list(prompt)
    for _ in range(count):
        token = int(logits(tokens, family, tree)[-1].argmax())
        if token in tokenizer().eos_ids:
            break
        tokens.append(token)
    return tuple(tokens[len(prompt):])


@functools.cache
def _draw():
    return jax.jit(sample.sample)


def drawn(prompt, sampling: Sampling, family: str = "llama") -> tuple[int, ...]:
    """As `greedy`, each token drawn as `sampling` says."""
    tokens = list(prompt)
    everything = np.full((1, sample.words(config(family).vocab_size)), 0xFFFFFFFF, np.uint32)
    for i in range(sampling.max_tokens):
        choice = sample.Choice(*(np.array([x], t) for x, t in (
            (sampling.temperature, np.float32), (sampling.top_p, np.float32), (sampling.top_k, np.int32),
            (sampling.seed, np.uint32), (i, np.int32))))
        token = int(_draw()(logits(tokens, family)[-1:], choice, everything)[0][0])
        if token in tokenizer().eos_ids:
            break
        tokens.append(token)
    return tuple(tokens[len(prompt):])


def prompts(count: int, *, shared: int = 0, seed: int = 0, longest: int = 70) -> list[tuple[int, ...]]:
    """Ragged prompts of token ids, the first `shared` of them alike."""
    rng = np.random.default_rng(seed)
    head = rng.integers(3, 300, shared)
    return [tuple(int(t) for t in (*head, *rng.integers(3, 300, rng.integers(1, longest)))) for _ in range(count)]


PROMPTS = [*prompts(4, shared=37, longest=60), *prompts(3, seed=1), (7,)]
HOT = Sampling(max_tokens=14, temperature=0.9, top_p=0.95, top_k=60, seed=5, logprobs=True)
