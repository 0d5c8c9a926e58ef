"""W6: which stored memories may a new one change? Those alike and those one relation away, in both stores (paper 3.2).

The graph finds what the words do not: a stopped drug's monitoring plan is a neighbour of the drug. The budget bounds a
task, not what a stop of a whole class reaches: further tasks hold what its first one has no room for.
"""
from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from stam_jax.config import WriteConfig
from stam_jax.graph.relations import Relation
from stam_jax.write.candidates import Arrival, reaches_all
from stam_jax.write.nearest import cosines, nearest
from stam_jax.write.writer import Affected, UpdateTask


def impact(arrivals: Sequence[Arrival], linked: Sequence[Sequence[Sequence[Relation]]],
           config: WriteConfig) -> list[list[UpdateTask]]:
    """The update tasks of each arrival: its memories in groups of at most `config.group`, their impact sets joined;
    then one for each further impact set of a stop that `reaches_all`.

    linked: of each new memory of each arrival, the relations that it was just given.
    """
    found = nearest([a.search(("ACTIVE", "HISTORY")) for a in arrivals], config.similar)
    out = []
    for arrival, relations, alike in zip(arrivals, linked, found):
        graph = _Graph(arrival)
        found_sets = [_impact_sets(arrival, graph, i, relations[i], alike[i], config) for i in range(len(arrival.news))]
        sets = [first for first, *_ in found_sets]
        tasks = []
        for first in range(0, len(sets), config.group):
            joined: dict[str, Affected] = {}
            for ranked in itertools.zip_longest(*sets[first:first + config.group]):
                for affected in filter(None, ranked):
                    known = joined.get(mid := affected.memory.mid)
                    if known is None or (affected.path and not known.path):
                        joined[mid] = affected
            tasks.append(UpdateTask(arrival.entry, arrival.news[first:first + config.group], tuple(joined.values())))
        tasks += [UpdateTask(arrival.entry, (new,), tuple(part))
                  for new, (_, *further) in zip(arrival.news, found_sets) for part in further]
        out.append(tasks)
    return out


class _Graph:
    """The stored relations of an arrival's state that a hop may walk, by their ends."""

    def __init__(self, arrival: Arrival):
        self._state = arrival.state
        self._at: dict[str, list[Relation]] | None = None

    def around(self, mid: str) -> list[Relation]:
        if self._at is None:
            self._at = defaultdict(list)
            walked = {t.name for t in self._state.table.types if t.expand}
            for r in self._state.relations.values():
                if r.type in walked:
                    self._at[r.src].append(r)
                    self._at[r.dst].append(r)
        return self._at.get(mid, [])


def _impact_sets(arrival: Arrival, graph: _Graph, new: int, linked: Sequence[Relation],
                 alike: Sequence[tuple[int, float]], config: WriteConfig) -> list[list[Affected]]:
    """The most important first, at most `config.budget`; of a stop that `reaches_all`, then what else it was linked
    with, in parts of like sizes: what "the water pill" may mean must not stand alone."""
    memory, stored, mids = arrival.news[new], arrival.state.memories, {m.mid for m in arrival.news}

    def may(mid: str) -> bool:
        return mid in stored and mid not in mids and stored[mid].experiencer == memory.experiencer

    order = {t.name: i for i, t in enumerate(arrival.state.table.types)}

    def rank(r: Relation) -> tuple:
        return -r.confidence, order[r.type], r.rid

    direct: dict[str, tuple[Relation, ...]] = {}
    for r in sorted(linked, key=rank):
        if may(mid := r.other(memory.mid)):
            direct.setdefault(mid, (r,))
    hops: dict[str, tuple[Relation, ...]] = {}
    for via, path in direct.items():
        for r in sorted(graph.around(via), key=rank):
            if may(mid := r.other(via)) and mid not in direct:
                if mid not in hops or rank(r) < rank(hops[mid][-1]):
                    hops[mid] = (*path, r)
    near, further = _ranked(arrival, new, direct), []
    if reaches_all(memory):
        near, *further = _parts(near, min(config.related, config.budget))
    near = near[:config.related]
    far = _ranked(arrival, new, hops)[:config.related - len(near)]
    likely = [mid for row, cosine in alike if cosine >= config.least_cosine
              and (mid := arrival.known.mids[row]) not in itertools.chain(*further)]
    mixed = filter(None, itertools.chain.from_iterable(itertools.zip_longest(far, likely)))
    paths = hops | direct
    chosen = itertools.islice(dict.fromkeys((*near, *mixed)), config.budget)
    return [[Affected(stored[mid], paths.get(mid, ())) for mid in part] for part in (chosen, *further)]


def _parts(mids: list[str], most: int) -> list[list[str]]:
    """As few parts as hold at most `most` each, of like sizes; at least one."""
    if not mids or most < 1:
        return [[]]
    size = math.ceil(len(mids) / math.ceil(len(mids) / most))
    return [mids[at:at + size] for at in range(0, len(mids), size)]


def _ranked(arrival: Arrival, new: int, paths: dict[str, tuple[Relation, ...]]) -> list[str]:
    """By the confidence of the last relation, then likeness, then mid."""
    if not paths:
        return []
    known, mids = arrival.known, list(paths)
    likeness = cosines(arrival.rows[[new]], known.rows[[known.place[mid] for mid in mids]])[0]
    return [mid for *_, mid in sorted((-paths[mid][-1].confidence, -c, mid) for mid, c in zip(mids, likeness))]
