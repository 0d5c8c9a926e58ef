"""The write path W0 to W9: entries of many patients in, one commit a wave.

    report = ingest(store, entries, writer, encoder, WriteConfig(), wave=64)

A patient's entries follow one another in the order of arrival; patients are independent, and a wave takes the next
entry of each. What does not depend on a state (extraction, normalising, embedding) is done ahead, for windows of
entries whose bounds do not depend on the wave: a wave of 1 and a wave of 64 give the same states.
"""
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from stam_jax.config import WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry, Memory, canonical_text, entry_key
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.update import Commit
from stam_jax.storage.header import Header
from stam_jax.storage.store import StaleVersion, Store
from stam_jax.write.arbitrate import arbitrate
from stam_jax.write.candidates import Arrival, link_candidates, relations
from stam_jax.write.chunks import chunks
from stam_jax.write.impact import impact
from stam_jax.write.nearest import Vectors, whole
from stam_jax.write.normalise import normalise
from stam_jax.write.turns import Heard, served
from stam_jax.write.writer import Extraction, LinkAnswer, UpdateAnswer, UpdateTask, Writer

TEMPLATE = "{text}"  # of a memory's embedded text; its hash stands in the store's header
WINDOW, WINDOW_TEXT = 4096, 1 << 25  # entries and characters that are read, extracted and embedded together
ROWS = 200_000  # embedding rows kept in memory between waves
STAGES = ("extract", "normalise", "embed", "candidates", "link", "impact", "update", "arbitrate", "commit")


def embedded_text(memory: Memory) -> str:
    return TEMPLATE.format(text=memory.text)


def header_of(encoder: Encoder) -> Header:
    """The header of a store that this encoder fills. An encoder's id names its weights by their hash."""
    return Header(encoder.id, "1", encoder.dim, normalised=encoder.normalized,
                  template_sha256=canonical.sha256(TEMPLATE))


@dataclasses.dataclass
class Report:
    """What came of a run.

    entries: `admitted` (`partial` of them), `duplicate`, `refused`; refused: reason -> count. memories: `inserted`,
    `confirmed` (a memory that was said again), `prior`. transitions: reason -> count. relations: type -> count.
    problems: what writers and rules counted. seconds: by stage. usage: calls and tokens by stage, of writers that count
    them. retried: entries decided again, since another writer was faster.
    """

    entries: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    memories: Counter[str] = dataclasses.field(default_factory=Counter)
    transitions: Counter[str] = dataclasses.field(default_factory=Counter)
    relations: Counter[str] = dataclasses.field(default_factory=Counter)
    problems: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    usage: dict[str, Any] = dataclasses.field(default_factory=dict)
    waves: int = 0
    retried: int = 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; names in alphabetical order."""
        out: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            out[field.name] = dict(sorted(value.items())) if isinstance(value, Counter) else value
        return out | {"seconds": {k: round(v, 4) for k, v in self.seconds.items()}}

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - start


@dataclasses.dataclass(frozen=True, eq=False)
class _Ready:
    """An entry with its memories. rows: float32 [len(news), dim]. failed: its extraction was not whole."""

    entry: Entry
    news: tuple[Memory, ...] = ()
    rows: np.ndarray | None = None
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failed: bool = False


def ingest(store: Store, entries: Iterable[Any], writer: Writer, encoder: Encoder,
           config: WriteConfig = WriteConfig(), *, wave: int = 64, progress: Callable[[int], Any] | None = None,
           on_refused: Callable[[Any, str], Any] | None = None) -> Report:
    """Take entries in; what is committed stays, whatever happens to the rest.

    Args:
        entries: `Entry`, or anything with an `entry` and an `extraction` (rows that need no extractor).
        wave: most patients that are decided together. 1 decides one entry after the other.
        progress: called with the number of entries that are done, wave by wave.
        on_refused: called with an item and the reason for which it was not taken; duplicates are only counted.

    Raises: ValueError: wave < 1, an encoder that is not the store's, a writer with too few answers; whatever writer,
        encoder and store raise.
    """
    if wave < 1:
        raise ValueError(f"got a wave of {wave}, expected at least 1")
    run = _Run(store, writer, encoder, config)
    source = iter(entries)
    while window := list(_window(source)):
        admitted = run.admit(window, on_refused)
        if progress is not None and len(window) > len(admitted):
            progress(len(window) - len(admitted))
        waiting: dict[str, deque[_Ready]] = {}
        for ready in run.prepare(admitted):
            waiting.setdefault(ready.entry.patient_id, deque()).append(ready)
        while waiting:
            patients = sorted(waiting, key=lambda p: -len(waiting[p]))[:wave]  # the longest queues end last
            run.wave([waiting[p].popleft() for p in patients])
            waiting = {p: queue for p, queue in waiting.items() if queue}
            if progress is not None:
                progress(len(patients))
    return run.ended()


def reprocess(store: Store, patient_id: str, key: str, writer: Writer, encoder: Encoder,
              config: WriteConfig = WriteConfig()) -> Report:
    """Try a `partial` entry again: what is new is added, what stands is judged, nothing that stands gets lost.

    Raises: LookupError: no such entry, or one that is not partial; as `ingest`.
    """
    entry = store.state(patient_id).entries.get(key)
    if entry is None or entry.status != "partial":
        raise LookupError(f"patient {patient_id!r}: entry {key!r} is {entry.status if entry else 'not there'}")
    run = _Run(store, writer, encoder, config)
    run.wave(run.prepare([(canonical.replaced(entry, status="complete"), None)]))
    return run.ended()


def _window(source: Iterator[Any]) -> Iterator[Any]:
    size = 0
    for item in itertools.islice(source, WINDOW):
        yield item
        size += len(getattr(getattr(item, "entry", item), "text", ""))
        if size >= WINDOW_TEXT:
            return


class _Run:
    def __init__(self, store: Store, writer: Writer, encoder: Encoder, config: WriteConfig):
        if (got := header_of(encoder)) != dataclasses.replace(store.header, dtype=got.dtype):
            raise ValueError(f"{store.path}: the store was made with {store.header.to_json()}, the encoder is "
                             f"{got.to_json()}")
        self.store, self.writer, self.encoder, self.config = store, writer, encoder, config
        self.report = Report()
        self._vectors: OrderedDict[str, tuple[int, Vectors]] = OrderedDict()
        self._kept = 0

    def ended(self) -> Report:
        for stage, usage in getattr(self.writer, "usage", {}).items():
            self.report.usage[stage] = dataclasses.asdict(usage) if dataclasses.is_dataclass(usage) else dict(usage)
        return self.report

    # ---- W0 to W3: without a state ----------------------------------------------------------------------------

    def admit(self, items: Sequence[Any], on_refused: Callable[[Any, str], Any] | None
              ) -> list[tuple[Entry, Extraction | None]]:
        """W0: what is new and well formed, cut into chunks."""
        out, seen = [], set()
        known: dict[str, Collection[str]] = {}  # patient -> keys of the entries that the store has
        for item in items:
            entry, extraction = getattr(item, "entry", item), getattr(item, "extraction", None)
            if (why := _fault(entry, extraction)) is not None:
                self.report.entries["refused"] += 1
                self.report.refused[why] += 1
                if on_refused is not None:
                    on_refused(item, why)
                continue
            key = entry.patient_id, entry.entry_key
            if entry.patient_id not in known:
                known[entry.patient_id] = self.store.state(entry.patient_id).entries
            if key in seen or entry.entry_key in known[entry.patient_id]:
                self.report.entries["duplicate"] += 1
                continue
            seen.add(key)
            text = canonical_text(entry.text)
            if extraction is None and (text != entry.text or entry.chunks in ((), ((0, len(text)),))):
                entry = canonical.replaced(entry, text=text, chunks=chunks(text, self.config.chunk_tokens))
            out.append((canonical.replaced(entry, status="complete"), extraction))
        return out

    def prepare(self, admitted: Sequence[tuple[Entry, Extraction | None]]) -> list[_Ready]:
        """W1 to W3, each one batch."""
        with self.report.timed("extract"):
            heard = [None if extraction is not None else Heard.of(entry) for entry, extraction in admitted]
            asked = [h.entry for h in heard if h is not None and h.record.strip()]
            given = iter(self._answers("extract", self.writer.extract, asked))
        ready, fresh = [], []
        with self.report.timed("normalise"):
            for (entry, extraction), h in zip(admitted, heard):
                config = self.config
                if h is None:  # rows are all kept
                    config = dataclasses.replace(config, per_chunk=max(1, len(extraction.drafts)))
                else:
                    extraction = next(given) if h.record.strip() else Extraction()
                news, counters = normalise(entry, extraction, config, h)
                counters.update({} if h is None else h.counters)
                ready.append(_Ready(entry, tuple(news), None, counters, extraction.error is not None))
                fresh += news
        with self.report.timed("embed"):
            rows = self._embedded(fresh)
        at = itertools.accumulate((len(r.news) for r in ready), initial=0)
        return [dataclasses.replace(r, rows=rows[first:first + len(r.news)]) for r, first in zip(ready, at)]

    def _embedded(self, memories: Sequence[Memory]) -> np.ndarray:
        """[n, dim] float32 as the store will give them back; each text is encoded once."""
        places: dict[str, int] = {}
        which = [places.setdefault(embedded_text(m), len(places)) for m in memories]
        if not places:
            return np.empty((0, self.encoder.dim), np.float32)
        rows = np.asarray(self.encoder.encode(list(places)), np.float32)
        if rows.shape != (expected := (len(places), self.encoder.dim)) or not np.isfinite(rows).all():
            raise ValueError(f"encoder: got {list(rows.shape)} numbers, expected {list(expected)}, all of them finite")
        return rows.astype(self.store.header.stored).astype(np.float32)[which]

    # ---- W4 to W9: against states -----------------------------------------------------------------------------

    def wave(self, ready: Sequence[_Ready]) -> None:
        """Decide one entry of each patient and commit them together; those whose state went on are decided again."""
        waiting, commits = {r.entry.patient_id: r for r in ready}, {}
        open_ = dict(waiting)
        while waiting:
            commits |= self._decided(open_)
            for patient_id in list(waiting):  # another writer took the same entry in
                if self._known_entry(waiting[patient_id].entry):
                    self.report.entries["duplicate"] += 1
                    commits.pop(patient_id, None)
                    del waiting[patient_id]
            try:
                with self.report.timed("commit"):
                    self.store.commit(commits.values(), fresh=True)
            except StaleVersion as e:
                self.report.retried += len(e.patients)
                open_ = {p: waiting[p] for p in e.patients}
                continue
            for patient_id, commit in commits.items():
                self._count(waiting[patient_id], commit)
            break
        self.report.waves += 1

    def _decided(self, ready: Mapping[str, _Ready]) -> dict[str, Commit]:
        """W4 to W8. An entry that its patient's state knows as complete has no commit; of one that failed at a stage
        the later ones are not asked."""
        config, arrivals, work = self.config, [], []
        for patient_id, r in ready.items():
            if self._known_entry(r.entry):
                continue
            state = self.store.state(patient_id)
            r = _without_known(r, state)
            work.append(r)
            arrivals.append(Arrival(state, r.entry, r.news, whole(r.rows), self._known(state)))
        linked: list[list[list[Relation]]] = [[[] for _ in a.news] for a in arrivals]
        counters, failed = [Counter(r.counters) for r in work], [r.failed for r in work]
        if config.relations:
            with self.report.timed("candidates"):
                tasks = link_candidates(arrivals, config)
            with self.report.timed("link"):
                flat = [(i, t) for i, own in enumerate(tasks) if not failed[i] for t in own if t.candidates]
                answers: list[LinkAnswer] = self._answers("link", self.writer.link, [t for _, t in flat])
            origin = "LINKER" if self.writer.decider == "model" else "RULE"
            for (i, task), answer in zip(flat, answers):
                counters[i].update(answer.problems)
                failed[i] |= answer.error is not None
                own = linked[i][arrivals[i].news.index(task.memory)]
                own += relations(task, answer, config, arrivals[i].state.table, origin, counters[i])
        with self.report.timed("impact"):
            updates = impact(arrivals, linked, config)
        with self.report.timed("update"):
            asked = [(i, t) for i, own in enumerate(updates) if not failed[i] for t in own]
            proposals: list[list[tuple[UpdateTask, UpdateAnswer]]] = [[] for _ in arrivals]
            for (i, task), answer in zip(asked, self._answers("update", self.writer.update, [t for _, t in asked])):
                proposals[i].append((task, answer))
        out = {}
        with self.report.timed("arbitrate"):
            for i, (r, a) in enumerate(zip(work, arrivals)):
                commit = arbitrate(
                    a.state, r.entry, r.news, list(itertools.chain.from_iterable(linked[i])), proposals[i], config,
                    decider=self.writer.decider, hashes=self.writer.hashes, counters=counters[i], failed=failed[i])
                rows = {m.mid: row for m, row in zip(r.news, r.rows)}
                embeddings = {m.mid: rows[m.mid] for m in commit.memories}
                out[a.state.patient_id] = canonical.replaced(commit, embeddings=embeddings)
        return out

    def _known_entry(self, entry: Entry) -> bool:
        """Whether its patient's state has it, and not for another try."""
        known = self.store.state(entry.patient_id).entries.get(entry.entry_key)
        return known is not None and known.status != "partial"

    def _answers(self, what: str, ask: Callable[[Sequence[Any]], list[Any]], tasks: Sequence[Any]) -> list[Any]:
        answers = ask(tasks) if tasks else []
        if len(answers) != len(tasks):
            raise ValueError(f"writer: {what}: got {len(answers)} answers, expected {len(tasks)}")
        return answers

    def _known(self, state: State) -> Vectors:
        """The vectors of a state, from memory where they are of its version."""
        version, vectors = self._vectors.get(state.patient_id, (-1, None))
        if version != state.version or vectors is None or vectors.place.keys() != state.memories.keys():
            mids, rows = self.store.vectors(state.patient_id)
            place = {mid: i for i, mid in enumerate(mids)}
            own = list(state.memories)
            vectors = Vectors.of(own, whole(rows)[[place[mid] for mid in own]] if own
                                 else np.empty((0, self.encoder.dim), np.int16))
            self._keep(state.patient_id, state.version, vectors)
        return vectors

    def _keep(self, patient_id: str, version: int, vectors: Vectors) -> None:
        if patient_id in self._vectors:
            self._kept -= len(self._vectors.pop(patient_id)[1].mids)
        self._vectors[patient_id] = version, vectors
        self._kept += len(vectors.mids)
        while self._kept > ROWS and len(self._vectors) > 1:
            self._kept -= len(self._vectors.popitem(last=False)[1][1].mids)

    def _count(self, ready: _Ready, commit: Commit) -> None:
        report, fresh = self.report, {m.mid: row for m, row in zip(ready.news, ready.rows)}
        known = self._vectors.get(commit.patient_id)
        if known is not None and known[0] == commit.expected_version:
            mids = [m.mid for m in commit.memories]
            rows = whole(np.array([fresh[mid] for mid in mids], np.float32)) if mids else known[1].rows[:0]
            self._keep(commit.patient_id, commit.expected_version + 1, known[1].with_rows(mids, rows))
        report.entries["admitted"] += 1
        report.entries["partial"] += "failed" in commit.counters
        report.memories["inserted"] += len(commit.memories)
        report.memories["prior"] += sum(m.store == "HISTORY" for m in commit.memories)
        report.memories["confirmed"] += sum(len(c.provenance) for c in commit.confirmations)
        report.transitions.update(t.reason for t in commit.transitions)
        report.relations.update(r.type for r in commit.relations)
        report.problems.update(commit.counters)


def _without_known(ready: _Ready, state: State) -> _Ready:
    """Without what another try says again of what was deleted since, which stays deleted (`deleted_draft`), and without
    what repeats the memory's own words (`served_draft`)."""
    gone = {m.mid for m in ready.news if state.places.get(m.mid) == "DELETED"}
    told = served(ready.entry, ready.news, state) - gone
    if not gone and not told:
        return ready
    kept = [i for i, m in enumerate(ready.news) if m.mid not in gone | told]
    counters = Counter(ready.counters) + Counter(deleted_draft=len(gone), served_draft=len(told))
    return dataclasses.replace(ready, news=tuple(ready.news[i] for i in kept), rows=ready.rows[kept], counters=counters)


def _fault(entry: Any, extraction: Extraction | None) -> str | None:
    """Why an entry is not taken."""
    if not isinstance(entry, Entry):
        return "no entry"
    if not entry.text.strip():
        return "no text"
    if entry.redacted or entry.status == "reverted":
        return "erased or reverted"
    if extraction is not None and canonical_text(entry.text) != entry.text:
        return "its spans are not those of its canonical text"
    key = entry_key(entry.patient_id, entry.kind, entry.date, entry.author_role, entry.text)
    return None if key == entry.entry_key else "its key is not that of its content"
