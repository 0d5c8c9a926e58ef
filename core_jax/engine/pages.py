"""The book of KV pages: which are free, who holds which, and which prefixes are cached. Imports without JAX.

A page holds the keys and values of `size` consecutive tokens in every layer. Sequences lease pages; a page that is
full may be published, and is then found by every later sequence of the same adapter that begins with the same tokens.
A published page is never written again: a sequence that shares only the beginning of one gets a copy (copy on write).
Published pages that nobody leases stay until their room is needed, least recently used first.
"""
from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Hashable, Sequence

SINK = 0  # the page that padding writes to; never leased


class OutOfPages(RuntimeError):
    """Fewer free or reclaimable pages than asked for; nothing was taken."""


@dataclasses.dataclass(frozen=True)
class Prefix:
    """What the cache has of a sequence.

    pages: leased, full, to be read only; they hold the first len(pages) * size tokens. copy_from: a page whose first
    `copy_tokens` tokens come next (leased until it is released; None = no such page).
    """

    pages: tuple[int, ...]
    copy_from: int | None = None
    copy_tokens: int = 0


class _Node:
    """A published page: `tokens` are its own (fewer than a page only in a leaf)."""

    __slots__ = ("tokens", "page", "parent", "children", "order", "ready")

    def __init__(self, tokens: tuple[int, ...], page: int, parent: _Node | None):
        self.tokens, self.page, self.parent = tokens, page, parent
        self.children: dict[tuple[int, ...], _Node] = {}
        self.order: list[tuple[int, ...]] = []  # the children's tokens, sorted: neighbours share the longest beginnings
        self.ready = False

    def add(self, node: _Node) -> None:
        self.children[node.tokens] = node
        bisect.insort(self.order, node.tokens)

    def remove(self, node: _Node) -> None:
        del self.children[node.tokens]
        del self.order[bisect.bisect_left(self.order, node.tokens)]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n


class PagePool:
    """`count` pages of `size` tokens, numbered from 1 (page 0 takes the writes of padding).

    Raises: ValueError on sizes below 1; RuntimeError where a caller breaks the rules (releasing what is not leased).
    """

    def __init__(self, count: int, size: int):
        if count < 1 or size < 1:
            raise ValueError(f"got {count} pages of {size} tokens, expected at least one of each")
        self.count, self.size = count, size
        self.evicted = 0
        self._free = list(range(count, 0, -1))
        self._leases = [0] * (count + 1)
        self._roots: dict[Hashable, _Node] = {}
        self._nodes: dict[int, _Node] = {}  # page -> its node, while published
        self._idle: collections.OrderedDict[int, None] = collections.OrderedDict()  # published, not leased; oldest first
        self._unsettled: list[_Node] = []

    @property
    def available(self) -> int:
        """Pages that `take` could give."""
        return len(self._free) + len(self._idle)

    @property
    def leased(self) -> int:
        return self.count - self.available

    @property
    def cached(self) -> int:
        """Published pages, leased or not."""
        return len(self._nodes)

    def leases(self, page: int) -> int:
        return self._leases[page]

    def is_published(self, page: int) -> bool:
        return page in self._nodes

    def is_writable(self, page: int) -> bool:
        """True for a page that one sequence alone holds and nobody else can find."""
        return self._leases[page] == 1 and page not in self._nodes

    def take(self, n: int) -> list[int]:
        """Leases n pages, evicting cached ones that nobody holds. Raises: OutOfPages (and then takes none)."""
        if n > self.available:
            raise OutOfPages(f"{n} pages asked for, {self.available} of {self.count} to be had")
        while len(self._free) < n:
            self._evict()
        pages = [self._free.pop() for _ in range(n)]
        for page in pages:
            self._leases[page] = 1
        return pages

    def release(self, pages: Sequence[int]) -> None:
        """Gives back one lease of each; `pages` in the order of the sequence."""
        for page in reversed(pages):  # the deepest first, so that a parent is never older than its children
            if not 0 < page <= self.count or self._leases[page] < 1:
                raise RuntimeError(f"page {page} is released but not leased")
            self._leases[page] -= 1
            if self._leases[page] == 0:
                if page in self._nodes:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def lookup(self, adapter: Hashable, tokens: Sequence[int]) -> Prefix:
        """The longest cached beginning of `tokens`, its last token left out (it is computed, to know what follows).

        The pages are leased for the caller, who releases them as its own; `copy_from` too, once it is copied.
        """
        node, pages, done = self._roots.get(adapter), [], 0
        if node is None:
            return Prefix(())
        while done + self.size < len(tokens):
            child = node.children.get(tuple(tokens[done:done + self.size]))
            if child is None:
                break
            node, done = child, done + self.size
            pages.append(child.page)
        rest = tuple(tokens[done:min(done + self.size, len(tokens) - 1)])
        best, shared = None, 0
        at = bisect.bisect_left(node.order, rest)
        for key in node.order[max(at - 1, 0):at + 1]:
            if (n := _common(key, rest)) > shared and node.children[key].ready:
                best, shared = node.children[key].page, n
        for page in (*pages, *(() if best is None else (best,))):
            self._lease(page)
        return Prefix(tuple(pages), best, shared)

    def publish(
        self, adapter: Hashable, tokens: Sequence[int], pages: Sequence[int], *, whole: bool = True, swap: bool = True
    ) -> list[int]:
        """Makes the pages of a sequence findable: every full page of `tokens` and, unless `whole`, the started one.

        The caller must not write the started page any more. Where another page with the same tokens is known already,
        the caller's lease moves to that one and its own page is freed; without `swap` (the caller has yet to write its
        page) nothing from there on is published.

        Args:
            pages: all pages of the sequence, in order, leased by the caller.

        Returns:
            The caller's pages from now on, in order.
        """
        node = self._roots.setdefault(adapter, _Node((), SINK, None))
        pages = list(pages)
        for i in range(-(-len(tokens) // self.size)):
            key = tuple(tokens[i * self.size:(i + 1) * self.size])
            if len(key) < self.size and whole:
                break
            child = node.children.get(key)
            if child is None:
                if pages[i] in self._nodes:
                    raise RuntimeError(f"page {pages[i]} is published twice, under other tokens")
                child = _Node(key, pages[i], node)
                node.add(child)
                self._nodes[pages[i]] = child
                self._unsettled.append(child)
            elif child.page != pages[i]:
                if not swap:
                    break
                self._lease(child.page)
                self.release([pages[i]])
                pages[i] = child.page
            node = child
        return pages

    def settle(self) -> None:
        """The published pages' contents are on the device's queue: from now on they may be copied from."""
        for node in self._unsettled:
            node.ready = True
        self._unsettled.clear()

    def forget(self) -> None:
        """Drops the prefix cache; leased pages stay leased, but are found no more."""
        self._free.extend(self._idle)
        self._idle.clear()
        self._nodes.clear()
        self._roots.clear()
        self._unsettled.clear()

    def _lease(self, page: int) -> None:
        self._leases[page] += 1
        self._idle.pop(page, None)

    def _evict(self) -> None:
        page, _ = self._idle.popitem(last=False)
        node = self._nodes.pop(page)
        if node.children:
            raise RuntimeError(f"page {page} is older than a page that follows it")
        node.parent.remove(node)
        if node.parent.parent is None and not node.parent.children:
            self._roots = {adapter: root for adapter, root in self._roots.items() if root is not node.parent}
        self.evicted += 1
        self._free.append(page)
