"""What a hostile or hurried user met: answers under a starved prefix cache, grammars that allow nothing."""
import random

import engine_cases as E
import pytest

from core_jax.engine.grammar import Grammars
from core_jax.engine.request import Grammar, Request, Sampling


@pytest.fixture(scope="module")
def engine():
    with E.quick_compiles():
        yield E.engine(tokens=E.LENGTH, rows=3, chunk=8)  # room for one long sequence: rows evict each other's pages


def asked(count: int) -> list[Request]:
    """Prompts that begin with one of two beginnings, cut anywhere."""
    rng = random.Random(0)
    heads = [[rng.randrange(3, 300) for _ in range(90)] for _ in range(2)]
    requests = []
    for _ in range(count):
        own = [rng.randrange(3, 300) for _ in range(rng.randrange(1, 20))]
        sampling = Sampling(max_tokens=rng.randrange(1, 12), temperature=rng.choice([0.0, 1.0]), seed=rng.randrange(9))
        requests.append(Request((*rng.choice(heads)[:rng.randrange(90)], *own), sampling))
    return requests


@pytest.mark.slow
def test_answers_are_those_of_an_empty_cache(engine):
    requests, alone = asked(24), []
    for request in requests:
        engine.pool.forget()
        alone.append(engine.submit([request])[0])
        assert alone[-1].cached_tokens == 0
    together = engine.submit(requests)
    assert [c.tokens for c in together] == [c.tokens for c in alone]
    assert sum(c.cached_tokens for c in together) > 300 and engine.pool.evicted > 10 and engine.pool.leased == 0


@pytest.mark.parametrize("kind, text, why", [
    ("json_schema", '{"$ref": "#"}', "allows no text at all"),
    ("lark", "start: a\na: b\nb: a", "allows no text at all"),
    ("regex", "(?=a)b", "look-around, including look-ahead and look-behind, is not supported"),
    ("regex", "(", "unclosed group"),
])
def test_a_grammar_that_fits_nothing_says_so(kind, text, why):
    tokenizer = E.tokenizer()
    grammars = Grammars(tokenizer, vocab_size=tokenizer.vocab_size, stop_tokens=tokenizer.eos_ids)
    with pytest.raises(ValueError, match=rf"grammar \({kind}\): .*{why}"):
        grammars.matcher(Grammar(kind, text))
