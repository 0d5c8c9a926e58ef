"""The memories of many patients on disk: SQLite shards, one transaction a wave, a journal that everything follows from.

    with Store.open(path, encoder=Header("bge-small-en-v1.5", "1", 384)) as store:
        version = store.version(patient_id)
        store.commit([Commit(patient_id, version, entries, memories, relations, transitions, embeddings)])
        store.state(patient_id).active()

A killed writer loses nothing that was committed and leaves nothing half-written. Imports without JAX.
"""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stam_jax.graph import canonical, redaction, undo
from stam_jax.graph.invariants import Violation
from stam_jax.graph.relations import DEFAULT, RelationTable
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition
from stam_jax.graph.update import Commit, Update
from stam_jax.storage import journal, rows, verify
from stam_jax.storage.header import Header, seal
from stam_jax.storage.journal import Record
from stam_jax.storage.shard import SCHEMA, Shard, StoreBusy, StoreError
from stam_jax.storage.verify import shard_of

__all__ = ["Header", "InvariantError", "StaleVersion", "Store", "StoreBusy", "StoreError"]
_CACHED = 4096  # states kept in memory


class StaleVersion(StoreError):
    """Patients whose state went on since it was read; nothing was written.

    patients: id -> (expected, found) version.
    """

    def __init__(self, patients: dict[str, tuple[int, int]]):
        self.patients = patients
        shown = ", ".join(f"{p!r} (expected version {a}, found {b})" for p, (a, b) in list(patients.items())[:5])
        super().__init__(f"{len(patients)} of the wave's patients changed meanwhile: {shown}; decide again on their "
                         "state")


class InvariantError(StoreError):
    """An update that would break an invariant; nothing was written. violations: which."""

    def __init__(self, violations: Sequence[Violation]):
        self.violations = tuple(violations)
        super().__init__("; ".join(map(str, violations)))


def _file(shard: int, shards: int) -> str:
    return f"shard-{shard:05d}-of-{shards:05d}.sqlite"


class Store:
    """A folder of shards. Any number of readers, one writer a shard at a time; threads may share it."""

    header: Header

    def __init__(self, path: str, shards: int, table: RelationTable, timeout: float, check: bool):
        self.path, self.shards, self.table = path, shards, table
        self._timeout, self._check = timeout, check
        self._local, self._lock = threading.local(), threading.Lock()
        self._all: list[tuple[threading.Thread, Shard]] = []
        self._states: collections.OrderedDict[str, State] = collections.OrderedDict()

    @classmethod
    def open(cls, path: str | os.PathLike, *, encoder: Header | None = None, shards: int | None = None,
             relations: RelationTable = DEFAULT, timeout: float = 30.0, check: bool = False) -> Store:
        """Open a store; with an encoder, make it where there is none.

        Args:
            encoder: what makes this program's embeddings; None = do not compare (readers that embed nothing).
            shards: expected number; None = as it is, 1 for a new one.
            relations: the relation table, which is part of the header.
            timeout: seconds that a writer waits for another one on the same shard.
            check: check every invariant before every commit (slow; for tests and for finding faults).

        Raises: StoreError: none there and no encoder given, another encoder, dimension, text template, relation table
            or number of shards, a shard that is missing, is no such file or is another store's; StoreBusy.
        """
        path = os.path.abspath(os.fspath(path))
        canonical.integer(shards, "shards", 1, optional=True)
        found = _shards(path)
        if not found and encoder is None:
            raise StoreError(f"{path}: no store there")
        total = found or shards or 1
        if shards is not None and shards != total:
            raise StoreError(f"{path}: has {total} shards, expected {shards}")
        store = cls(path, total, relations, timeout, check)
        try:
            store._prepare(encoder)
        except BaseException:
            store.close()
            raise
        return store

    def _prepare(self, encoder: Header | None) -> None:
        table = canonical.dumps([canonical.to_dict(t) for t in self.table.types])
        meta = self._metas()
        if not all("made" in m for m in meta):
            missing = [i for i, m in enumerate(self._metas()) if not m]  # read again: its making may just have ended
            if missing and (encoder is None or any("made" in m for m in meta)):
                raise StoreError(f"{self.path}: {_file(missing[0], self.shards)} is missing or empty")
            if encoder is not None:
                self._make({"encoder": encoder.to_json(), "relations": table})
            meta = self._metas()
        for i, m in enumerate(meta):
            at = f"{self.path}: {_file(i, self.shards)}"
            for name, expected in (("schema", SCHEMA), ("shard", f"{i}/{self.shards}"), ("relations", table),
                                   ("encoder", meta[0].get("encoder") if encoder is None else encoder.to_json()),
                                   ("store", meta[0].get("store"))):
                if name == "encoder" and expected is not None and (differs := _differs(m.get(name), expected)):
                    raise StoreError(f"{at}: the store was made with another encoder ({differs}); every command on a store needs the encoder "
                                     "that made it")
                if expected is None or m.get(name) != expected:
                    raise StoreError(f"{at}: {name}: the store has {m.get(name)}, expected {expected or 'one'}")
        try:
            self.header = Header.from_json(meta[0]["encoder"])
        except ValueError as e:
            raise StoreError(f"{self.path}: {_file(0, self.shards)}: encoder: {e}") from None
        if encoder is not None and self.compaction_due:  # a process was killed between an erasure and its compaction,
            with contextlib.suppress(StoreBusy):  # or is about to compact
                self.compact()

    def _metas(self) -> list[dict[str, str]]:
        """The header of each shard; an empty one where it is not there."""
        here = [os.path.isfile(os.path.join(self.path, _file(i, self.shards))) for i in range(self.shards)]
        return [self._shard(i).meta() if found else {} for i, found in enumerate(here)]

    def _make(self, header: dict[str, str]) -> None:
        """Make what is not there. The first shard names the store; "made" says that all of them were there, so that one
        that is lost later is missed even if no other one has a patient."""
        os.makedirs(self.path, exist_ok=True)
        name = uuid.uuid4().hex
        for i in range(self.shards):
            shard = self._shard(i, make=True)
            shard.create({"schema": SCHEMA, "shard": f"{i}/{self.shards}", "store": name} | header)
            name = shard.meta().get("store", name)
        _shards(self.path)  # nobody made it with another number meanwhile
        for i in range(self.shards):
            self._shard(i).write("INSERT OR IGNORE INTO meta VALUES (?, ?)", [("made", "1")])

    def close(self) -> None:
        """Close every thread's connections."""
        with self._lock:
            for _, shard in self._all:
                shard.close()
            self._all.clear()
            self._local = threading.local()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _shard(self, index: int, *, make: bool = False) -> Shard:
        mine = self._local.__dict__.setdefault("shards", {})
        if index not in mine:
            mine[index] = Shard(os.path.join(self.path, _file(index, self.shards)), self._timeout, make=make)
            with self._lock:
                for thread, shard in self._all:
                    if not thread.is_alive():
                        shard.close()
                self._all = [(t, s) for t, s in self._all if t.is_alive()]
                self._all.append((threading.current_thread(), mine[index]))
        return mine[index]

    def _of(self, patient_id: str) -> Shard:
        canonical.text(patient_id, "patient_id")
        return self._shard(shard_of(patient_id, self.shards))

    # ---- reading ----------------------------------------------------------------------------------------------

    def patients(self) -> list[str]:
        """Ids of all patients, sorted."""
        found = [self._shard(i).rows("SELECT patient_id FROM patient") for i in range(self.shards)]
        return sorted(p for part in found for (p,) in part)

    def version(self, patient_id: str) -> int:
        """Number of the patient's last update; 0 for one that the store does not know."""
        return rows.head(self._of(patient_id), patient_id)[0]

    def state(self, patient_id: str) -> State:
        """The committed state, of one moment; an empty one for a patient that the store does not know."""
        shard = self._of(patient_id)
        with shard.transaction(write=False):
            return self._state(shard, patient_id)

    def vectors(self, patient_id: str) -> tuple[list[str], np.ndarray]:
        """(mids, [n, dim] float32) of what is not deleted, in the order of arrival."""
        found = self._of(patient_id).rows(
            "SELECT e.mid, e.vector FROM embedding e JOIN memory m ON m.patient_id = e.patient_id AND m.mid = e.mid "
            "WHERE e.patient_id = ? ORDER BY m.seq, m.position", patient_id)
        return [mid for mid, _ in found], self.header.matrix([blob for _, blob in found])

    def records(self, patient_id: str) -> list[Record]:
        """The patient's journal, oldest first."""
        return rows.records(self._of(patient_id), patient_id)

    def _state(self, shard: Shard, patient_id: str) -> State:
        """Inside a transaction."""
        version = rows.head(shard, patient_id)[0]
        with self._lock:
            if (known := self._states.get(patient_id)) is not None and known.version == version:
                self._states.move_to_end(patient_id)
                return known
        state = rows.state(shard, patient_id, version, self._loader(patient_id), self.table)
        self._keep(state)
        return state

    def _keep(self, state: State) -> None:
        with self._lock:
            self._states[state.patient_id] = state
            self._states.move_to_end(state.patient_id)
            while len(self._states) > _CACHED:
                self._states.popitem(last=False)

    def _loader(self, patient_id: str):
        return lambda version: [r.update() for r in self.records(patient_id)[:version]]

    # ---- writing ----------------------------------------------------------------------------------------------

    def commit(self, commits: Iterable[Commit], *, fresh: bool = False) -> dict[str, int]:
        """Write one wave: each patient's commit as one update, all of a shard's in one transaction.

        A commit whose entries are all known already changes nothing. A wave over several shards is one transaction on
        each: they all wait until every check has passed.

        Args:
            fresh: a commit whose entries are known is stale as well, so that what returns was written by this call.

        Returns: patient id -> version.
        Raises: StaleVersion, IllegalTransition, StateError, RecordError, InvariantError, StoreBusy: nothing was
            written. StoreError: the disk failed; of a wave over several shards, some may be written.
        """
        commits = list(commits)
        if len({c.patient_id for c in commits}) != len(commits):
            raise StoreError("a patient stands twice in one wave; its entries follow one another")
        vectors = {c.patient_id: self.header.rows(c) for c in commits}
        with self._writing(c.patient_id for c in commits) as written:
            stale, versions = {}, {}
            for c in commits:
                before = self._state(self._of(c.patient_id), c.patient_id)
                versions[c.patient_id] = before.version
                known = [e.entry_key for e in c.entries if e.entry_key in before.entries]
                if known and len(known) == len(c.entries) and not fresh:
                    continue
                if known and not fresh:
                    raise StoreError(f"patient {c.patient_id!r}: entry {known[0]} was committed before, others "
                                     "were not")
                if known or before.version != c.expected_version:
                    stale[c.patient_id] = c.expected_version, before.version
                elif not stale:
                    after = self._write(before, Update.of(c), vectors[c.patient_id])
                    written.append(after)
                    versions[c.patient_id] = after.version
            if stale:
                raise StaleVersion(stale)
        return versions

    def revert(self, patient_id: str, seq: int, *, cascade: bool = False, by: str = "user:undo") -> int:
        """Take back update `seq` by a compensating update; the journal keeps both. Returns the new version.

        cascade: take back later updates that build on it too, latest first.
        Raises: UndoRefused, ValueError: no such update, StoreBusy.
        """
        with self._writing([patient_id]) as written:
            state = self._state(self._of(patient_id), patient_id)
            for number in undo.order(state.updates(), seq, cascade=cascade):
                state = self._write(state, undo.compensation(state, number, by=by), {})
            written.append(state)
        return state.version

    def erase(self, patient_id: str, mids: Iterable[str] | None = None, *, by: str = "user") -> int:
        """Delete at a user's request, and leave no text of it on disk: the given memories, or all of a patient.

        The patient's id, the keys of entries and memories and the hashes stay: they say that something was there, keep
        the journal whole, and keep the same entry from coming in again. Returns the new version.

        Raises: LookupError: no such patient or memory; StoreBusy: a writer (nothing was changed), or a reader of an old
            snapshot (it is deleted, but its text may still be on disk: `compact()` again).
        """
        shard = self._of(patient_id)
        with self._writing([patient_id]) as written:
            before = self._state(shard, patient_id)
            if not before.version:
                raise LookupError(f"patient {patient_id!r}: the store does not know it")
            whole = mids is None
            gone = [before.memory(m) for m in (before.memories if whole else dict.fromkeys(mids))]
            update = Update(patient_id, before.version + 1, transitions=tuple(
                Transition(m.mid, m.store, "DELETED", "ERASURE_REQUEST", decided_by=by) for m in gone)).numbered()
            after = self._write(before, update, {}, whole=whole)
            written.append(after)
        shard.compact()
        return after.version

    @property
    def compaction_due(self) -> bool:
        """Whether text that was deleted may still stand in free pages or in a write-ahead log."""
        return any("compaction_due" in self._shard(i).meta() for i in range(self.shards))

    def compact(self) -> None:
        """Rebuild the files in which something was deleted, so that nothing of it is left. Raises: StoreBusy.

        `erase` does it by itself, and so does the next writer that opens the store.
        """
        for i in range(self.shards):
            if "compaction_due" in self._shard(i).meta():
                self._shard(i).compact()

    @contextlib.contextmanager
    def _writing(self, patient_ids: Iterable[str]) -> Iterator[list[State]]:
        """Write transactions on the patients' shards; states that stand in the list at the end are the new ones."""
        written: list[State] = []
        with contextlib.ExitStack() as stack:
            for i in sorted({shard_of(p, self.shards) for p in patient_ids}):
                stack.enter_context(self._shard(i).transaction(write=True))
            yield written
        for state in written:
            self._keep(state.stored(self._loader(state.patient_id)))

    def _write(self, before: State, update: Update, vectors: dict[str, bytes], *, whole: bool = False) -> State:
        """One update of one patient, inside a write transaction."""
        pid, shard = before.patient_id, self._of(before.patient_id)
        deleted = {t.mid: t.reason == "CALIBRATED_GATE" for t in update.transitions
                   if t.to == "DELETED" and t.mid in before.memories}
        past = rows.records(shard, pid) if deleted or whole else []
        if past:
            plan = redaction.plan_whole(before) if whole else redaction.plan(before, deleted)
            shas = journal.contents(past, deleted)
            update = dataclasses.replace(update, redactions=tuple(plan), tombstones=tuple(sorted(shas.items())))
        after = before.apply(update)
        prev = rows.head(shard, pid)[1]
        row = journal.record(update, prev, dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"))
        shard.write("INSERT INTO patient VALUES (?, ?, ?) ON CONFLICT (patient_id) DO UPDATE SET "
                    "version = excluded.version, head = excluded.head", [(pid, update.seq, row.hash)])
        shard.write("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)",
                    [(pid, row.seq, row.prev_hash, row.hash, row.body, row.recorded_at)])
        rows.write(shard, before, after, update)
        shard.write("INSERT INTO embedding VALUES (?, ?, ?, ?)",
                    [(pid, mid, v, seal(pid, mid, v)) for mid, v in vectors.items()])
        if past:
            self._redact(shard, past, update, row.hash, whole)
        if self._check:
            embedded = [mid for (mid,) in shard.rows("SELECT mid FROM embedding WHERE patient_id = ?", pid)]
            if found := after.check(embedded):
                raise InvariantError(found)
        return after

    def _redact(self, shard: Shard, past: list[Record], update: Update, head: str, whole: bool) -> None:
        pid, mids = update.patient_id, {mid for mid, _ in update.tombstones}
        plan = {r.entry_key: r for r in update.redactions}
        for row in past:
            left = {e.entry_key: redaction.remains(redaction.blank(e, plan[e.entry_key].spans, whole=whole))
                    for e in row.update().entries if e.entry_key in plan}
            changed = journal.redact(row, mids, left)
            if changed.body != row.body:
                shard.write("UPDATE journal SET body = ? WHERE patient_id = ? AND seq = ?",
                            [(changed.body, pid, row.seq)])
        shard.write("DELETE FROM embedding WHERE patient_id = ? AND mid = ?", [(pid, mid) for mid in mids])
        shard.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("compaction_due", head)])

    # ---- checking ---------------------------------------------------------------------------------------------

    def verify(self, patient_id: str | None = None) -> list[Violation]:
        """Every violated invariant of one patient or of all, from the rows on disk; empty where all is well."""
        out: list[Violation] = []
        for i in range(self.shards):
            shard = self._shard(i)
            try:
                with shard.transaction(write=False):
                    if patient_id is None:
                        out += verify.file(shard)
                    for (pid,) in shard.rows("SELECT patient_id FROM patient ORDER BY patient_id"):
                        if patient_id in (None, pid):
                            out += verify.patient(shard, (i, self.shards), pid, self.header, self.table,
                                                  self._loader(pid))
            except StoreBusy:
                raise
            except StoreError as e:  # a page that cannot be read; other shards may still be whole
                out.append(Violation("I11", patient_id or "", str(e)))
        return out


def _differs(found: str | None, expected: str) -> str:
    """In which fields two encoder headers differ, in words."""
    try:
        ours, theirs = (canonical.to_dict(Header.from_json(raw or "")) for raw in (expected, found))
    except ValueError:
        return ""
    return ", ".join(f"{name}: the store has {theirs[name]!r}, expected {ours[name]!r}" for name in ours if ours[name] != theirs[name])


def _shards(path: str) -> int:
    """Number of shards of the store at `path`; 0 where there is none. Raises: StoreError: files of two numbers."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return 0
    except NotADirectoryError:
        raise StoreError(f"{path}: is no folder") from None
    totals = {int(m[1]) for n in names if (m := re.fullmatch(r"shard-[0-9]{5}-of-([0-9]{5})\.sqlite", n))}
    if len(totals) > 1:
        raise StoreError(f"{path}: has shards of stores of {' and '.join(map(str, sorted(totals)))} shards")
    return totals.pop() if totals else 0
