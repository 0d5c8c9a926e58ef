"""The book of pages: no page leaks, none is given twice, counts are right, shared contents are never written."""
import collections

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from core_jax.engine.pages import SINK, OutOfPages, PagePool, Prefix

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)  # two tokens: prefixes are often shared


class Sequence:
    """As an engine keeps it, with the pages' contents checked against what was written."""

    def __init__(self, adapter, tokens):
        self.adapter, self.tokens, self.pages, self.computed = adapter, list(tokens), [], 0


class Pages(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    @initialize(count=st.integers(4, 12), size=st.integers(1, 4))
    def make(self, count, size):
        self.pool, self.size, self.count = PagePool(count, size), size, count
        self.alive: list[Sequence] = []
        self.contents: dict[int, list] = collections.defaultdict(list)  # page -> tokens written to it, with adapter

    def _write(self, s, upto):
        for i in range(s.computed, upto):
            page = s.pages[i // self.size]
            assert self.pool.is_writable(page), "a shared page is written"
            del self.contents[page][i % self.size:]
            self.contents[page].append((s.adapter, tuple(s.tokens[:i + 1])))
        s.computed = upto

    def _holds(self, s):
        for i in range(s.computed):
            assert self.contents[s.pages[i // self.size]][i % self.size] == (s.adapter, tuple(s.tokens[:i + 1]))

    @rule(target=sequences, adapter=st.integers(0, 1), tokens=TOKENS)
    def begin(self, adapter, tokens):
        s = Sequence(adapter, tokens)
        prefix = self.pool.lookup(adapter, tokens)
        held = [*prefix.pages, *([] if prefix.copy_from is None else [prefix.copy_from])]
        need = -(-len(tokens) // self.size) - len(prefix.pages)
        before = self.pool.available
        try:
            fresh = self.pool.take(need)
        except OutOfPages:
            assert need > before == self.pool.available
            self.pool.release(held)
            return s
        s.pages, s.computed = [*prefix.pages, *fresh], len(prefix.pages) * self.size
        assert s.computed + prefix.copy_tokens < len(tokens), "the last token is computed always"
        if prefix.copy_from is not None:
            assert prefix.copy_tokens > 0
            self.contents[fresh[0]] = self.contents[prefix.copy_from][:prefix.copy_tokens]
            s.computed += prefix.copy_tokens
            self.pool.release([prefix.copy_from])
        self._holds(s)
        self.alive.append(s)
        return s

    @rule(s=sequences, count=st.integers(1, 6))
    def compute(self, s, count):
        if s in self.alive:
            upto = min(len(s.tokens), s.computed + count)
            self.pool.publish(s.adapter, s.tokens[:upto], s.pages, swap=False)
            before = [p for p in s.pages if self.pool.is_published(p)]
            # what is published before it is written belongs to this step: the write that follows is the one allowed
            for i in range(s.computed, upto):
                page = s.pages[i // self.size]
                assert self.pool.leases(page) == 1
                del self.contents[page][i % self.size:]
                self.contents[page].append((s.adapter, tuple(s.tokens[:i + 1])))
            s.computed = upto
            self.pool.settle()
            s.pages = self.pool.publish(s.adapter, s.tokens[:upto], s.pages)
            assert all(p in s.pages for p in before)
            self._holds(s)

    @rule(s=sequences, token=st.integers(0, 1))
    def grow(self, s, token):
        if s in self.alive and s.computed == len(s.tokens):
            if len(s.tokens) % self.size == 0:
                try:
                    s.pages += self.pool.take(1)
                except OutOfPages:
                    return
            s.tokens.append(token)
            self._write(s, len(s.tokens))

    @rule(s=consumes(sequences), keep=st.booleans())
    def end(self, s, keep):
        if s in self.alive:
            if keep:
                s.pages = self.pool.publish(s.adapter, s.tokens[:s.computed], s.pages, whole=False)
                self.pool.settle()
                self._holds(s)
            self.alive.remove(s)
            self.pool.release(s.pages)

    @rule()
    def forget(self):
        self.pool.forget()
        for s in self.alive:
            self._holds(s)

    @rule(adapter=st.integers(0, 1), tokens=TOKENS)
    def look(self, adapter, tokens):
        prefix = self.pool.lookup(adapter, tokens)
        for i in range(len(prefix.pages) * self.size):
            assert self.contents[prefix.pages[i // self.size]][i % self.size] == (adapter, tuple(tokens[:i + 1]))
        self.pool.release([*prefix.pages, *([] if prefix.copy_from is None else [prefix.copy_from])])

    @invariant()
    def counts(self):
        if not hasattr(self, "pool"):
            return
        held = collections.Counter(page for s in self.alive for page in s.pages)
        assert SINK not in held
        assert all(self.pool.leases(page) == held[page] for page in range(1, self.count + 1))
        assert self.pool.leased == len(held)
        assert self.pool.available + len(held) == self.count, "a page leaked"

    def teardown(self):
        if hasattr(self, "pool"):
            for s in self.alive:
                self.pool.release(s.pages)
            assert len(set(self.pool.take(self.count))) == self.count


Pages.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPages = Pages.TestCase


def test_a_shared_beginning_is_found_and_its_last_page_copied():
    pool = PagePool(8, 4)
    first = pool.take(3)
    pool.publish(0, range(10), first, whole=False)
    assert pool.lookup(0, range(10)).copy_from is None, "not on the device yet"
    pool.release(first[:2])
    pool.settle()
    found = pool.lookup(0, [*range(9), 99, 100])
    assert found == Prefix(tuple(first[:2]), first[2], 1)
    assert pool.lookup(0, list(range(8))) == Prefix((first[0],), first[1], 3), "the last token is left out"
    assert pool.lookup(1, range(10)) == Prefix(()), "another adapter's keys and values"
    assert pool.leases(first[0]) == 3


def test_the_least_recently_used_goes_first_and_never_a_leased_page():
    pool = PagePool(4, 2)
    pages = {}
    for name in (1, 2):
        pages[name] = pool.publish(0, [name] * 4, pool.take(2))
        pool.release(pages[name])
    pool.settle()
    held = pool.lookup(0, [1] * 5)
    assert held.pages == tuple(pages[1])
    assert sorted(pool.take(2)) == sorted(pages[2]) and pool.evicted == 2
    with pytest.raises(OutOfPages, match="1 pages asked for, 0 of 4"):
        pool.take(1)
    assert pool.lookup(0, [2] * 4) == Prefix(())


def test_the_same_tokens_twice_end_on_one_page():
    pool = PagePool(4, 2)
    a, b = pool.take(1), pool.take(1)
    assert pool.publish(0, [5, 6], a) == a
    assert pool.publish(0, [5, 6], b, swap=False) == b, "not written yet: stays its own"
    assert pool.publish(0, [5, 6], b) == a and pool.leases(a[0]) == 2 and pool.available == 3
    pool.release(a)
    pool.release(a)
    with pytest.raises(RuntimeError, match="not leased"):
        pool.release(a)


@pytest.mark.parametrize("count, size", [(0, 4), (4, 0)])
def test_sizes_are_checked(count, size):
    with pytest.raises(ValueError, match="at least one"):
        PagePool(count, size)
