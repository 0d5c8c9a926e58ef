"""Which tokens of which sequences run in the next step. Imports without JAX.

Continuous batching: a sequence that ends frees its place for the next step. Prompts are computed in chunks, beside the
next tokens of the sequences that are past theirs; the chunk fills a bucket of a fixed ladder of sizes, so that every
step has one of a few shapes. When pages run out the youngest sequence gives its pages back and waits; later it is
computed anew from its prompt and the tokens it already has, which the cache shortens.
"""
from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any

from core_jax.engine.pages import OutOfPages, PagePool

STEP_COST = 24  # what a step costs besides its tokens, in tokens (reading the weights; SmolLM2 on two cores)


@dataclasses.dataclass(eq=False)
class Row:
    """A sequence under way.

    tokens: all that are known, the prompt's first; the last one's keys and values are never computed yet when a token
    is to follow it. want: place of the first token whose output (what follows it) is needed. limit: most tokens it may
    ever have. host: what follows is not for the device alone to choose (a grammar, given continuations).
    computed: tokens whose keys and values are on `pages`. cached: tokens of the prompt that the cache had at first.
    """

    number: int
    adapter: Hashable
    tokens: list[int]
    limit: int
    want: int
    owner: Any = None
    host: bool = False
    computed: int = 0
    cached: int | None = None
    pages: list[int] = dataclasses.field(default_factory=list)
    preempted: int = 0

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.computed


@dataclasses.dataclass(frozen=True)
class Chunk:
    """tokens[start:start + count] of a row; its outputs are those of the places from `output` on."""

    row: Row
    start: int
    count: int
    output: int

    @property
    def stop(self) -> int:
        return self.start + self.count

    @property
    def outputs(self) -> int:
        return max(0, self.stop - max(self.start, self.output))


@dataclasses.dataclass(frozen=True)
class Plan:
    """One step. copies: (from, to) pages, done first and in order. steps 0: the chunks, in a bucket of `bucket` tokens;
    else each chunk is one row's last token and `steps` tokens may follow it on the device."""

    chunks: tuple[Chunk, ...]
    copies: tuple[tuple[int, int], ...]
    bucket: int
    steps: int


class Scheduler:
    """rows: sequences that run side by side. buckets: sizes of a step, in tokens, rising. outputs: most outputs of a step.

    Raises: ValueError: buckets that do not rise, or whose largest cannot hold a token of every row and one of a prompt.
    """

    def __init__(self, pool: PagePool, *, rows: int, buckets: Sequence[int], outputs: int):
        if list(buckets) != sorted(set(buckets)) or buckets[0] < 1:
            raise ValueError(f"buckets: got {tuple(buckets)}, expected rising sizes")
        if buckets[-1] <= rows or outputs < rows:
            raise ValueError(f"got a largest bucket of {buckets[-1]} and {outputs} outputs for {rows} rows, "
                             "expected room for a token of each and one more")
        self.pool, self.rows, self.buckets, self.outputs = pool, rows, tuple(buckets), outputs
        self.running: list[Row] = []
        self.waiting: list[Row] = []  # by number
        self.preemptions = 0
        self._choose = functools.lru_cache(maxsize=4096)(self._cheapest)

    def add(self, row: Row) -> None:
        bisect.insort(self.waiting, row, key=lambda r: r.number)

    def remove(self, row: Row, *, keep: bool = True) -> None:
        """A row that is done or given up; with keep, its computed pages stay findable."""
        if row in self.running:
            self.running.remove(row)
            self._drop(row, keep)
        else:
            self.waiting.remove(row)

    def restart(self) -> None:
        """The pages' contents are lost: every row waits and begins anew."""
        for row in self.running:
            self.pool.release(row.pages)
            row.pages, row.computed = [], 0
            self.add(row)
        self.running.clear()
        self.pool.forget()

    def plan(self, horizon: int) -> Plan | None:
        """The next step, its pages leased; None where nothing is left to do.

        Rows that run in it count as computed from now on. `horizon`: most tokens a row may get on the device at once.
        """
        copies: list[tuple[int, int]] = []
        steady = not self._admissible() and all(r.pending == 1 and not r.host for r in self.running)
        steps = self._reserve(horizon if steady else 1)
        if steady and self.running:
            return Plan(tuple(Chunk(r, r.computed, 1, r.want) for r in self.running), (), 0, steps)
        decode = [r for r in self.running if r.pending == 1]
        chunks = [Chunk(r, r.computed, 1, r.want) for r in decode]
        room = self._bucket() - len(chunks)
        outputs = self.outputs - len(chunks)
        parts: list[Chunk] = []
        for row in [r for r in self.running if r.pending > 1]:
            room, outputs = self._extend(row, room, outputs, parts)
        while room > 0 and outputs > 0 and len(self.running) < self.rows and self.waiting:
            if not self._admit(self.waiting[0], copies):
                break
            room, outputs = self._extend(self.running[-1], room, outputs, parts)
        chunks = parts + chunks
        if not chunks:
            return None
        for chunk in chunks:
            chunk.row.computed = chunk.stop
        return Plan(tuple(chunks), tuple(copies), self._at_least(sum(c.count for c in chunks)), 0)

    def _admissible(self) -> bool:
        return bool(self.waiting) and len(self.running) < self.rows and self._fits(self.waiting[0])

    def _fits(self, row: Row) -> bool:
        """Without counting on the cache; a row must fit where nothing else runs."""
        return self._pages(len(row.tokens) + 1, row) + len(self.running) <= self.pool.available or not self.running

    def _pages(self, tokens: int, row: Row) -> int:
        return -(-min(tokens, row.limit) // self.pool.size)

    def _reserve(self, horizon: int) -> int:
        """Pages for the next tokens of every row; the youngest gives way. Returns the steps that they last for."""
        while True:
            for steps in sorted({horizon, 1}, reverse=True):
                missing = [self._pages(len(r.tokens) - 1 + steps, r) - len(r.pages) for r in self.running]
                if sum(max(0, n) for n in missing) <= self.pool.available:
                    for row, count in zip(self.running, missing):
                        row.pages += self.pool.take(max(0, count))
                    return steps
            self._preempt(max(self.running, key=lambda r: r.number))

    def _preempt(self, row: Row) -> None:
        self.running.remove(row)
        self._drop(row, True)
        row.preempted += 1
        self.preemptions += 1
        self.add(row)

    def _drop(self, row: Row, keep: bool) -> None:
        if keep:
            row.pages = self.pool.publish(row.adapter, row.tokens[:row.computed], row.pages, whole=False)
            self.pool.settle()  # between steps: all that counts as computed is
        self.pool.release(row.pages)
        row.pages, row.computed = [], 0

    def _admit(self, row: Row, copies: list[tuple[int, int]]) -> bool:
        prefix = self.pool.lookup(row.adapter, row.tokens[:row.want + 1])
        held = [*prefix.pages, *(() if prefix.copy_from is None else (prefix.copy_from,))]
        need = self._pages(len(row.tokens) + 1, row) - len(prefix.pages)
        try:
            if self.running and need + len(self.running) > self.pool.available:
                raise OutOfPages
            fresh = self.pool.take(need)
        except OutOfPages:
            self.pool.release(held)
            if not self.running and prefix.copy_from is not None:  # the copy's source may be the page that is missing
                fresh = self.pool.take(self._pages(len(row.tokens) + 1, row))
                prefix = dataclasses.replace(prefix, pages=(), copy_from=None, copy_tokens=0)
            else:
                return False
        row.pages = [*prefix.pages, *fresh]
        row.computed = len(prefix.pages) * self.pool.size + prefix.copy_tokens
        if prefix.copy_from is not None:
            copies.append((prefix.copy_from, fresh[0]))
            self.pool.release([prefix.copy_from])
        if row.cached is None:
            row.cached = row.computed
        self.waiting.remove(row)
        self.running.append(row)
        return True

    def _extend(self, row: Row, room: int, outputs: int, parts: list[Chunk]) -> tuple[int, int]:
        count = min(row.pending, room)
        if row.computed + count > row.want:  # places with an output, as many as there is room for
            count = min(count, max(row.want - row.computed, 0) + outputs)
        if count <= 0:
            return room, outputs
        chunk = Chunk(row, row.computed, count, row.want)
        row.pages = self.pool.publish(row.adapter, row.tokens[:row.computed], row.pages)
        self.pool.publish(row.adapter, row.tokens[:chunk.stop], row.pages, swap=False)
        parts.append(chunk)
        return room - count, outputs - chunk.outputs

    def _bucket(self) -> int:
        """Size of the next step: what makes all that is pending cheapest."""
        pending = sum(r.pending for r in self.running)
        places = self.rows - len(self.running)
        pending += sum(r.pending for r in self.waiting[:places])
        return self._choose(max(pending, 1))[1]

    def _at_least(self, tokens: int) -> int:
        return next(b for b in self.buckets if b >= tokens)

    def _cheapest(self, tokens: int) -> tuple[int, int]:
        """(cost of `tokens` tokens in steps of the ladder, the first step's size)."""
        largest = self.buckets[-1]
        if tokens > largest:
            whole = (tokens - 1) // largest
            return whole * (largest + STEP_COST) + self._choose(tokens - whole * largest)[0], largest
        enough = self._at_least(tokens)
        options = [(enough + STEP_COST, enough)]
        for size in self.buckets:
            if self.rows < size < tokens:
                options.append((size + STEP_COST + self._choose(tokens - size)[0], size))
        return min(options, key=lambda o: (o[0], -o[1]))
