"""The one harness of all suites: memories are built once a writer, every arm serves one set of questions to one reader.

    memory = build("rules", entries, writer, encoder, WriteConfig())
    scores = evaluate(FromMemory(memory.states, memory.vectors, ReadConfig()), asks, vectors, reader)

Texts are encoded once and entries extracted once, however many arms read them.
"""
from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from core_jax.embed import Encoder
from stam_jax.baselines.serving import Arm, Place, places, words
from stam_jax.config import WriteConfig
from stam_jax.graph.memory import Entry
from stam_jax.graph.state import State
from stam_jax.metrics import MemoryRow, clinical, squad, token_f1
from stam_jax.read.answer import ExtractiveReader, Reader
from stam_jax.read.packet import Packet
from stam_jax.read.search import Vectors, snapshot
from stam_jax.storage.store import Store
from stam_jax.write.ingest import Report, header_of, ingest
from stam_jax.write.writer import Extraction, LinkAnswer, LinkTask, UpdateAnswer, UpdateTask, Writer


class OnceEncoder:
    """An encoder that encodes each text once a prompt. prompts: the inner encoder's, by name."""

    def __init__(self, encoder: Encoder):
        self.encoder, self.id, self.dim, self.normalized = encoder, encoder.id, encoder.dim, encoder.normalized
        self.prompts: Mapping[str, str] = getattr(encoder, "prompts", {})
        self._known: dict[tuple[str | None, str], np.ndarray] = {}

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """float32 [len(texts), dim]. prompt: name of one of `prompts`; None: as the inner encoder does without one."""
        new = [t for t in dict.fromkeys(texts) if (prompt, t) not in self._known]
        if new:
            rows = self.encoder.encode(new) if prompt is None else self.encoder.encode(new, prompt)
            self._known.update(zip([(prompt, t) for t in new], np.asarray(rows, np.float32)))
        return np.stack([self._known[prompt, t] for t in texts]) if texts else np.empty((0, self.dim), np.float32)


class OnceWriter:
    """A writer that extracts from each entry once; its other answers are not kept."""

    def __init__(self, writer: Writer):
        self.writer, self.decider, self.hashes = writer, writer.decider, writer.hashes
        self._known: dict[tuple[str, tuple], Extraction] = {}

    def extract(self, entries: Sequence[Entry]) -> list[Extraction]:
        keys = [(e.entry_key, e.chunks) for e in entries]
        new = {k: e for k, e in zip(keys, entries) if k not in self._known}
        if new:
            self._known.update(zip(new, self.writer.extract(list(new.values()))))
        return [self._known[k] for k in keys]

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]:
        return self.writer.link(tasks)

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        return self.writer.update(tasks)


@dataclasses.dataclass(frozen=True, eq=False)
class Memories:
    """What one writer made of all patients. vectors: of each state's memories."""

    name: str
    states: Mapping[str, State]
    vectors: Mapping[str, Vectors]
    report: Report

    def changed(self, name: str, change: Callable[[State], State]) -> Memories:
        """The same memories moved by other rules; `change` keeps their mids."""
        return dataclasses.replace(self, name=name, states={p: change(s) for p, s in self.states.items()})


def build(name: str, entries: Iterable[Entry], writer: Writer, encoder: Encoder, config: WriteConfig, *,
          wave: int = 256, updates: bool = False) -> Memories:
    """Ingest into a store that is gone afterwards. updates: keep what the states were made of (`State.updates`).

    Raises: ValueError: an entry was refused, which in a benchmark would be a silent loss.
    """
    with tempfile.TemporaryDirectory(prefix="stam-bench-") as folder:
        with Store.open(folder, encoder=header_of(encoder)) as store:
            report = ingest(store, entries, writer, encoder, config, wave=wave)
            if report.refused:
                raise ValueError(f"{name}: refused {dict(report.refused)}")
            found = {p: snapshot(store, p) for p in store.patients()}
            for state, _ in found.values() if updates else ():
                state.updates()  # read while the store is there
    return Memories(name, {p: s for p, (s, _) in found.items()}, {p: v for p, (_, v) in found.items()}, report)


def memory_rows(state: State) -> list[MemoryRow]:
    """Memories as the metrics see them; the session of an entry is its source id."""
    out = []
    for m in state.memories.values():
        moved = state.standing(m.mid)
        sessions = dict.fromkeys(state.entries[p.entry_key].source_id for p in m.provenance)
        out.append(MemoryRow(m.mid, m.store, tuple(sessions), m.concept, m.attribute, m.value, m.unit, m.polarity,
                             m.experiencer, None if moved is None else moved.reason,
                             None if moved is None else moved.successor))
    return out


def relation_rows(state: State) -> list[tuple[str, str, str]]:
    """(src, dst, type) of all relations."""
    return sorted((r.src, r.dst, r.type) for r in state.relations.values())


# ---- questions -----------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """A question on one patient's whole record. answers: equally right.

    evidence: what is needed for it, each as the places that say it (any of them will do); empty = nothing is.
    """

    ask_id: str
    patient_id: str
    type: str
    text: str
    answers: tuple[str, ...]
    evidence: tuple[tuple[Place, ...], ...] = ()
    history_needed: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """f1, f1_clinical: token F1 by both normalisers. right: 0 or 1. served: share of the evidence that was served, None
    where the question needs none or the arm does not know places."""

    answer: str
    f1: float
    f1_clinical: float
    right: int
    served: float | None


_DIGIT = re.compile(r"\d")
_UNIT = re.compile(r"[a-z]+/[a-z]+|bpm|mmhg|kg")  # of a measurement, in the clinical normalisation
_MORE = 6  # words that a right answer may have beyond the gold's


def is_right(answer: str, answers: Sequence[str]) -> bool:
    """Whether an answer says one of the gold answers: all its words (clinical normalisation), no number that the gold
    has not, at most six words more. The unit of a measurement may be left out, as notes do; another one is wrong."""
    said = clinical(answer).split()
    for gold in answers:
        words = clinical(gold).split()
        units = {w for before, w in zip(words, words[1:]) if _UNIT.fullmatch(w) and _DIGIT.search(before)}
        wanted, left = [w for w in words if w not in units], list(said)
        for word in wanted:
            if word in left:
                left.remove(word)
        other = any(_DIGIT.search(w) or _UNIT.fullmatch(w) and w not in units for w in left)
        if len(said) - len(left) == len(wanted) and len(left) <= _MORE and not other:
            return True
    return False


def evidence_served(packet: Packet, evidence: Sequence[Sequence[Place]]) -> float | None:
    """Share of the evidence of which at least half of the words' span is served: by what stands in a raw packet, by
    what the memories of another one cite (`stam_jax.baselines.serving.places`)."""
    if not evidence:
        return None
    there = places(packet)

    def served(place: Place) -> bool:
        key, start, end = place
        return key in there and 2 * sum(max(0, min(b, end) - max(a, start)) for a, b in there[key]) >= end - start

    return sum(any(map(served, spots)) for spots in evidence) / len(evidence)


def serve(arm: Arm, asks: Sequence[Ask], vectors: Mapping[str, np.ndarray]) -> list[Packet]:
    """One packet a question. vectors: of the questions' texts."""
    return [arm.serve(a.patient_id, a.text, vectors[a.text]) for a in asks]


def evaluate(packets: Sequence[Packet], asks: Sequence[Ask], reader: Reader, *, placed: bool = True) -> list[Score]:
    """placed: whether the packets' memories stand in the asked entries; else `served` is None."""
    answers = reader.answer([a.text for a in asks], packets)
    out = []
    for ask, packet, answer in zip(asks, packets, answers):
        out.append(Score(answer.text, token_f1(answer.text, ask.answers, squad),
                         token_f1(answer.text, ask.answers, clinical), int(is_right(answer.text, ask.answers)),
                         evidence_served(packet, ask.evidence) if placed else None))
    return out


class Length(NamedTuple):
    """How long a text is to a reader. count: in `unit`, "words" or "tokens"."""

    unit: str
    count: Callable[[str], int]


WORDS = Length("words", words)


def length_of(reader: Reader) -> Length:
    """In the reader's own tokens; of the reader without a model, a token is a word."""
    return Length("tokens", reader.count) if is_model(reader) else WORDS


def is_model(reader: Reader) -> bool:
    """Whether a language model answers, so that the same packet may be answered otherwise the next time."""
    return not isinstance(reader, ExtractiveReader)


def median_words(packets: Sequence[Packet], length: Length = WORDS) -> float:
    """The median context of packets, in words unless the reader counts otherwise."""
    known: dict[str, int] = {}  # questions may share a packet
    for p in packets:
        if p.text not in known:
            known[p.text] = length.count(p.text)
    return float(np.median([known[p.text] for p in packets]))


def sample(asks: Sequence[Ask]) -> Sequence[Ask]:
    """About 120 of the questions, evenly spread: those that are served to choose a depth."""
    return asks[::max(1, len(asks) // 120)]


def matched(arms: Sequence[tuple[str, Arm]], asks: Sequence[Ask], vectors: Mapping[str, np.ndarray], aim: float, *,
            length: Length = WORDS) -> tuple[str, list[Packet]]:
    """(setting, packets) of the arm whose median rendered context comes nearest to `aim`; of equals the first.

    Raises: ValueError: no arm.
    """
    if not arms:
        raise ValueError("matched: got no arm, expected at least 1")
    some = sample(asks)
    gaps = [abs(median_words(serve(arm, some, vectors), length) - aim) for _, arm in arms]
    setting, arm = arms[gaps.index(min(gaps))]
    return setting, serve(arm, asks, vectors)


def at_depth(make: Callable[[int], Arm], depths: range, asks: Sequence[Ask], vectors: Mapping[str, np.ndarray],
             aim: float, *, length: Length = WORDS) -> tuple[int, list[Packet]]:
    """As `matched`, over the arms of ascending depths, of which the deeper serves no less: (depth, packets)."""
    some, known = sample(asks), {}

    def median(depth: int) -> float:
        if depth not in known:
            known[depth] = median_words(serve(make(depth), some, vectors), length)
        return known[depth]

    first = bisect.bisect_left(depths, aim, key=median)  # whose packets are not shorter
    depth = min(depths[max(0, first - 1):first + 1], key=lambda d: abs(median(d) - aim))
    return depth, serve(make(depth), asks, vectors)


def sha256_of(entries: Iterable[Entry]) -> str:
    """Over the entries' keys, which are hashes of their contents, in order."""
    digest = hashlib.sha256()
    for e in entries:
        digest.update(e.entry_key.encode() + b"\n")
    return digest.hexdigest()


def once(names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """`names` of each text found once."""
    found = functools.cache(lambda text: tuple(names(text)))
    return lambda text: list(found(text))
