"""Answers before one reader: all arms of one set of questions, at approximately the same median rendered context.

Matched context (paper 5.1, C.2), depth (C.3), the share of the evidence that was served (C.1), the ACTIVE arm that is
filled up (D.2), allocation and labels (D.3), and how far a model's answers to the same packets differ (A.2). A suite
makes its `Answers` once and picks the tables.
"""
from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from core_jax.embed import Encoder
from stam_jax.baselines.serving import FlatRag, FromMemory, FullContext, Piece, Raw, pieces
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.harness import (
    Ask,
    Length,
    Memories,
    Score,
    at_depth,
    evaluate,
    evidence_served,
    is_model,
    length_of,
    median_words,
    sample,
    serve,
)
from stam_jax.benchmarks.write_paths import APPENDED, STAM
from stam_jax.config import ReadConfig
from stam_jax.graph.memory import Entry
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.read.packet import Item, Packet
from stam_jax.read.search import encode_query, packet, search

CHUNK = 40  # words of a chunk of the flat retrieval
ALL = 1_000_000
PASSES = 3  # over the same packets, where a model reads


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """One arm's packets and scores. setting: what its context was matched by. answers: what was said."""

    name: str
    setting: str
    packets: Sequence[Packet]
    scores: Sequence[Score]
    answers: Sequence[str]


class Answers:
    """All arms of one set of questions before one reader.

    entries: of each patient, in the order of arrival. memories: by write path; arms that serve the raw record need
    `append only` among them. read: the settings of STAM's packets, to whose length the others are matched.
    macro: scores are means over types. length: in what contexts are matched, by default as the reader counts.
    """

    def __init__(self, asks: Sequence[Ask], entries: Mapping[str, Sequence[Entry]], memories: Mapping[str, Memories],
                 encoder: Encoder, reader: Reader, *, read: ReadConfig, macro: bool = True,
                 length: Length | None = None, seed: int = 0):
        self.asks, self.entries, self.memories, self.seed = asks, entries, memories, seed
        self.reader, self.read, self.length = reader, read, length or length_of(reader)
        self.types, self.patients = [a.type for a in asks], [a.patient_id for a in asks]
        self.strata = self.types if macro else None
        self.f1 = "type-macro F1" if macro else "token F1"
        texts = list(dict.fromkeys(a.text for a in asks))
        self.vectors = dict(zip(texts, encode_query(encoder, texts, read.instruction)))
        self.encoder = encoder

    @functools.cached_property
    def pieces(self) -> dict[str, list[Piece]]:
        return {p: pieces(own, CHUNK) for p, own in self.entries.items()}

    @functools.cached_property
    def piece_vectors(self) -> dict[str, np.ndarray]:
        rows = self.encoder.encode([c.text for own in self.pieces.values() for c in own])  # one batch: no call is padded
        ends = itertools.accumulate((len(own) for own in self.pieces.values()), initial=0)
        return {p: rows[first:first + len(own)] for (p, own), first in zip(self.pieces.items(), ends)}

    @property
    def said(self) -> Mapping[str, State]:
        """What the words of a raw record say: the memories of a write path that keeps everything."""
        return self.memories[APPENDED].states

    def read_by(self, reader: Reader) -> Answers:
        """The same questions before another reader; contexts are matched in the same unit."""
        other = copy.copy(self)
        other.reader = reader
        return other

    # ---- arms ------------------------------------------------------------------------------------------------------

    def scored(self, name: str, setting: str, packets: Sequence[Packet]) -> Served:
        scores = evaluate(packets, self.asks, self.reader)
        return Served(name, setting, packets, scores, [x.answer for x in scores])

    def again(self, s: Served) -> Served:
        """The same packets before this reader."""
        return self.scored(s.name, s.setting, s.packets)

    def sized(self, most: int, words: int | None = None) -> ReadConfig:
        """The settings with packets of another size: the best `most` of both stores, or so many words."""
        return dataclasses.replace(self.read, active=most, history=most, most=most, words=words, tokens=None)

    def arm(self, name: str, most: int | None = None, *, memories: str = STAM, **how) -> Served:
        """A packet of each question from one of the memories, `most` deep or as the settings say."""
        own = self._from(memories, most, **how)
        return self.scored(name, f"k {own.config.most}", serve(own, self.asks, self.vectors))

    def _from(self, memories: str, most: int | None, *, arm: str = "BOTH", told: bool = True, **config) -> FromMemory:
        m = self.memories[memories]
        read = dataclasses.replace(self.read if most is None else self.sized(most), **config)
        return FromMemory(m.states, m.vectors, read, arm, told, self.length.count)

    def like(self, name: str, aim: float, *, memories: str = STAM) -> Served:
        """The depth, up to twice the reference, at which a memory's packets are about as long as `aim`."""
        most = 2 * self.read.most
        deep, lengths = self._from(memories, most), []
        for ask in sample(self.asks):
            own = deep.lengths(ask.patient_id, self.vectors[ask.text], self.length.count)
            lengths.append(own + [own[-1] if own else 0] * (most - len(own)))
        gaps = np.abs(np.median(lengths, axis=0) - aim)
        return self.arm(name, int(np.argmin(gaps)) + 1, memories=memories)

    def flat(self, name: str, aim: float) -> Served:
        """As many chunks of the record as are about as long as `aim`."""
        most, packets = at_depth(lambda n: FlatRag(self.pieces, self.piece_vectors, self.said, n),
                                 range(1, 3 * int(aim) // CHUNK + 3), self.asks, self.vectors, aim, length=self.length)
        return self.scored(name, f"{most} chunks", packets)

    def full(self, name: str, most: float | None) -> Served:
        """The record itself, of at most so many words or tokens."""
        setting = "whole record" if most is None else f"{int(most)} {self.length.unit}"
        arm = FullContext(self.entries, self.said, None if most is None else int(most), self.length.count)
        return self.scored(name, setting, serve(arm, self.asks, self.vectors))

    # ---- figures ---------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        return ("system", "depth", f"median {self.length.unit}", self.f1, "patients drawn", "clinical F1",
                "macro accuracy" if self.strata else "accuracy", "evidence served", "truncated")

    def row(self, s: Served) -> tuple:
        """The cells of `columns`. truncated: questions before whose reader the record was cut; None of other arms."""
        f1, right = [x.f1 for x in s.scores], [x.right for x in s.scores]
        served = [x.served for x in s.scores if x.served is not None]
        cut = [p.cut for p in s.packets if isinstance(p, Raw) and p.cut is not None]
        return (s.name, s.setting, median_words(s.packets, self.length), self.mean(f1),
                T.mean(f1, self.strata, self.patients, seed=self.seed), self.mean([x.f1_clinical for x in s.scores]),
                self.mean(right), float(np.mean(served)) if served else None,
                sum(cut) if cut else None)

    def mean(self, values: Sequence[float]) -> T.Figure:
        return T.mean(values, self.strata, seed=self.seed)

    def figures(self, s: Served) -> dict[str, T.Figure]:
        """What an arm is judged by, by name."""
        return {self.f1: self.mean([x.f1 for x in s.scores])}

    def table(self, name: str, title: str, rows: Sequence[Served], note: str = "") -> T.Table:
        return T.Table(name, title, self.columns, tuple(map(self.row, rows)), note)

    def compare(self, a: Served, b: Served) -> tuple[T.Difference, T.Difference, T.Difference]:
        """F1, F1 patient by patient, right or wrong."""
        f1 = [x.f1 for x in a.scores], [x.f1 for x in b.scores]
        return (T.compare_scores(*f1, self.strata, seed=self.seed),
                T.compare_scores(*f1, self.strata, self.patients, seed=self.seed),
                T.compare_right([x.right for x in a.scores], [x.right for x in b.scores]))

    def differences(self, name: str, title: str, first: Served, others: Sequence[Served], note: str = "") -> T.Table:
        columns = (T.adjusted(column) for column in zip(*(self.compare(first, o) for o in others)))
        return T.Table(name, title, ("system", self.f1, "the same, patients drawn", "accuracy (pooled)"),
                       tuple(zip([o.name for o in others], *columns)), note)


DRAWN = ("Intervals: questions drawn with replacement (10,000 times, within their type where it is a macro mean); "
         "`patients drawn`: whole patients instead, since what one record does hangs together.")
TESTED = ("Sign flip over questions, then over patients (10,000 flips; all of them up to 16), and exact McNemar; Holm "
          "within the column.")


def dependence(a: Answers, both: Served, refilled: Served) -> T.Table:
    """Questions that need HISTORY, and those that it spoils (paper D.2)."""
    rows = []
    for kind in (*dict.fromkeys(a.types), "all"):
        at = [i for i, t in enumerate(a.types) if kind in (t, "all")]
        critical = sum(both.scores[i].right > refilled.scores[i].right for i in at)
        harmful = sum(both.scores[i].right < refilled.scores[i].right for i in at)
        needed = [n for i in at if (n := a.asks[i].history_needed) is not None]
        rows.append((kind, len(at), float(np.mean(needed)) if needed else None, critical, harmful,
                     T.compare_right([both.scores[i].right for i in at], [refilled.scores[i].right for i in at])))
    return T.Table("history", "Dependence on HISTORY: BOTH against filled-up ACTIVE",
                   ("type", "questions", "gold needs HISTORY", "critical", "harmful", "BOTH minus it"), tuple(rows),
                   "critical: only BOTH is right; harmful: only filled-up ACTIVE is. Exact McNemar, not adjusted.")


def losses(a: Answers, both: Served) -> T.Table:
    """Where STAM's wrong answers were lost: the evidence is not all in its store, or not all served, or was served."""
    stored = {p: Packet("stored", tuple(Item(m, m.store, 0.0) for m in s.memories.values()), "")
              for p, s in a.memories[STAM].states.items()}
    rows = []
    for kind in (*dict.fromkeys(a.types), "all"):
        found = Counter()
        for ask, score in zip(a.asks, both.scores):
            if kind in (ask.type, "all"):
                there = evidence_served(stored[ask.patient_id], ask.evidence)
                found["right" if score.right else "not stored" if there is not None and there < 1 else
                      "not served" if score.served is not None and score.served < 1 else "served"] += 1
        rows.append((kind, found.total(), *(found[w] for w in ("right", "not stored", "not served", "served"))))
    return T.Table("losses", "Where answers are lost (STAM, BOTH)",
                   ("type", "questions", "right", "evidence not stored", "stored, not served",
                    "served, answered wrongly"), tuple(rows))


def by_type(a: Answers, shown: Sequence[Served]) -> T.Table:
    rows = []
    for kind in dict.fromkeys(a.types):
        at = [i for i, t in enumerate(a.types) if t == kind]
        rows.append((kind, len(at), *(T.share(sum(s.scores[i].right for i in at), len(at)) for s in shown)))
    return T.Table("types", "Accuracy by type of question", ("type", "questions", *(s.name for s in shown)),
                   tuple(rows))


def aspects(a: Answers, groups: Mapping[str, Sequence[str]], both: Served, others: Sequence[Served]) -> T.Table:
    """State- and time-oriented questions apart (paper 5.2). groups: aspect -> its types of questions."""
    rows, found = [], []
    for aspect, kinds in groups.items():
        at = [i for i, t in enumerate(a.types) if t in kinds]
        first = [both.scores[i].f1 for i in at]
        for o in others:
            second = [o.scores[i].f1 for i in at]
            rows.append((aspect, len(at), o.name, float(np.mean(first)), float(np.mean(second))))
            found.append([T.compare_scores(first, second, [a.types[i] for i in at], who, seed=a.seed)
                          for who in (None, [a.patients[i] for i in at])])
    return T.Table("aspects", "State and temporal questions apart",
                   ("aspect", "questions", "system", "STAM F1", "its F1", "difference", "the same, patients drawn"),
                   tuple((*row, *d) for row, d in zip(rows, zip(*map(T.adjusted, zip(*found))))),
                   "; ".join(f"{aspect}: {', '.join(kinds)}" for aspect, kinds in groups.items()) + ".")


def depths(a: Answers, settings: Sequence[ReadConfig], *, arms: Sequence[str] = ("BOTH", "ACTIVE")
           ) -> dict[str, list[tuple[Served, int]]]:
    """arm -> STAM's packets and answers under each setting, in the given order, with the number of questions whose
    packet holds all that the arm could serve. Each question is searched once, and a packet that does not change is
    answered once."""
    states, vectors = a.memories[STAM].states, a.memories[STAM].vectors
    packets: list[list[tuple[Packet, ...]]] = [[] for _ in settings]
    for ask in a.asks:
        state = states[ask.patient_id]
        found = search(state, vectors[ask.patient_id], a.vectors[ask.text], ReadConfig(ALL, ALL, ALL))
        known: dict[int, tuple[Packet, ...]] = {}
        for own, read in zip(packets, settings):
            some = dataclasses.replace(found, active=found.active[:read.active], history=found.history[:read.history])
            made = packet(some, "BOTH", read, a.length.count)
            if len(made.items) not in known:
                known[len(made.items)] = tuple(made if arm == "BOTH" else packet(some, arm, read, a.length.count)
                                               for arm in arms)
            own.append(known[len(made.items)])
    out: dict[str, list[tuple[Served, int]]] = {arm: [] for arm in arms}
    for place, arm in enumerate(arms):
        last: Served | None = None
        for own, read in zip(packets, settings):
            mine = [p[place] for p in own]
            setting = f"{read.words} words" if read.words else "all" if read.most == ALL else f"k {read.most}"
            whole = sum(len(p[0].items) == len(states[ask.patient_id].memories) for p, ask in zip(own, a.asks))
            if last is None or any(p is not q for p, q in zip(mine, last.packets)):
                last = a.scored(f"STAM, {arm}", setting, mine)
            out[arm].append((dataclasses.replace(last, setting=setting), whole))
    return out


def repeatability(a: Answers, s: Served) -> T.Table | None:
    """How far the same bytes are answered otherwise (paper A.2); None for a reader without a model."""
    if not is_model(a.reader):
        return None
    passes = [s, *(a.again(s) for _ in range(PASSES - 1))]
    differ = sum(len(set(said)) > 1 for said in zip(*(p.answers for p in passes)))
    rows, found = [], [a.figures(p) for p in passes]
    for name in found[0]:
        values = [f[name].value for f in found]
        rows.append((s.name, name, len(passes), min(values), max(values), 100 * (max(values) - min(values)), differ))
    return T.Table("repeatability", "The same packets answered again",
                   ("system", "figure", "passes", "lowest", "highest", "span in points", "answers that differ"),
                   tuple(rows), "Byte-identical packets, by their SHA-256.")
