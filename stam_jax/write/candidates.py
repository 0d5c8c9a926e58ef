"""W4: which memories is a new one compared with? And W5: which relations come of it.

What holds of the same slot comes first, then what is most alike, one matmul for all patients of the wave; then the
memories of the same entry that stand before it, so that each pair is asked about once. Likeness does not bound a stop
of no drug that the record has, which may be one of a whole class: it is compared with every dose that holds.
"""
from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from stam_jax.config import WriteConfig
from stam_jax.graph.memory import EXPERIENCERS, Entry, Memory
from stam_jax.graph.relations import Relation, RelationTable
from stam_jax.graph.state import State
from stam_jax.write.nearest import Search, Vectors, cosines, nearest
from stam_jax.write.writer import LinkAnswer, LinkTask

SIBLINGS = 64  # memories of the entry, next before it, among which the most similar are taken


@dataclasses.dataclass(frozen=True, eq=False)
class Arrival:
    """One patient's part of a wave: an entry, its memories, and the state that they arrive at.

    news: in the order of the text, rows: int16 [len(news), E] their vectors. known: the vectors of the state.
    """

    state: State
    entry: Entry
    news: tuple[Memory, ...]
    rows: np.ndarray
    known: Vectors

    def search(self, places: Collection[str]) -> Search:
        """For memories of the same experiencer in these places, save the new ones themselves."""
        mids, label = {m.mid for m in self.news}, {name: i for i, name in enumerate(EXPERIENCERS)}
        memories = self.state.memories
        labels = [label[m.experiencer] if (m := memories[mid]).store in places and mid not in mids else -1
                  for mid in self.known.mids]
        wanted = [label[m.experiencer] for m in self.news]
        return Search(self.rows, np.array(wanted, np.int32), self.known.rows, np.array(labels, np.int32))


def link_candidates(arrivals: Sequence[Arrival], config: WriteConfig) -> list[list[LinkTask]]:
    """The tasks of each arrival: one for each new memory, in their order (without candidates it needs no answer), then
    further ones of the stops that `reaches_all`, each with at most `config.link_candidates` (or 1) candidates."""
    found = nearest([a.search(("ACTIVE",)) for a in arrivals], config.link_candidates)
    out = []
    for arrival, alike in zip(arrivals, found):
        slots: dict[tuple, list[str]] = {(m.experiencer, *m.slot): [] for m in arrival.news if None not in m.slot}
        mids = {m.mid for m in arrival.news}
        for m in arrival.state.active():
            same = slots.get((m.experiencer, m.concept, m.attribute))
            if same is not None and m.mid not in mids:
                same.append(m.mid)
        doses = [m for m in arrival.state.active() if m.attribute == "dose" and m.polarity == "AFFIRMED"
                 and m.mid not in mids] if any(map(reaches_all, arrival.news)) else []
        tasks, further = [], []
        for i, new in enumerate(arrival.news):
            same = _by_likeness(arrival, i, slots.get((new.experiencer, *new.slot), ()))
            near = [arrival.known.mids[row] for row, _ in alike[i]]
            chosen = [arrival.state.memories[mid] for mid in dict.fromkeys((*same, *near))][:config.link_candidates]
            tasks.append(LinkTask(arrival.entry, new, (*chosen, *_siblings(arrival, i, config.link_candidates))))
            if reaches_all(new) and not any(m.slot == new.slot and m.experiencer == new.experiencer for m in doses):
                rest = tuple(m for m in doses if m.experiencer == new.experiencer and m not in chosen)
                most = max(1, config.link_candidates)
                further += [LinkTask(arrival.entry, new, rest[at:at + most]) for at in range(0, len(rest), most)]
        out.append(tasks + further)
    return out


def reaches_all(m: Memory) -> bool:
    """Whether it ends something that is taken, which may be more than its own slot: "stop all NSAIDs"."""
    return m.polarity == "NEGATED" and m.attribute in ("dose", "background")


def _by_likeness(arrival: Arrival, new: int, mids: Sequence[str]) -> list[str]:
    if not mids:
        return []
    score = cosines(arrival.rows[[new]], arrival.known.rows[[arrival.known.place[m] for m in mids]])[0]
    return [mid for _, mid in sorted(zip(-score, mids))]


def _siblings(arrival: Arrival, new: int, most: int) -> list[Memory]:
    first = max(0, new - SIBLINGS)
    before = [i for i in range(first, new) if arrival.news[i].experiencer == arrival.news[new].experiencer]
    if len(before) > most:
        score = cosines(arrival.rows[[new]], arrival.rows[before])[0]
        before = sorted(i for _, i in sorted(zip(-score, before))[:most])
    return [arrival.news[i] for i in before]


def relations(task: LinkTask, answer: LinkAnswer, config: WriteConfig, table: RelationTable, origin: str,
              counters: Counter[str]) -> list[Relation]:
    """The relations of an answer that are certain enough, each once with its highest confidence.

    Counted: `unknown_alias`, `unknown_type`, `bad_confidence`, `link_uncertain`.
    """
    names, best = {t.name for t in table.types}, {}
    for link in answer.links:
        if not 0 <= link.candidate < len(task.candidates):
            counters["unknown_alias"] += 1
        elif link.type not in names:
            counters["unknown_type"] += 1
        elif not (math.isfinite(link.confidence) and 0 <= link.confidence <= 1):
            counters["bad_confidence"] += 1
        elif link.confidence < config.least_link:
            counters["link_uncertain"] += 1
        else:
            ends = task.memory.mid, task.candidates[link.candidate].mid
            r = Relation.of(*(ends if link.forward else ends[::-1]), link.type, table=table,
                            confidence=link.confidence, origin=origin)
            if r.rid not in best or best[r.rid].confidence < r.confidence:
                best[r.rid] = r
    return list(best.values())
