"""One SQLite file of a store: its tables, its header row, and the transactions on it.

Every row is keyed by the patient's id, compared byte by byte; foreign keys carry it too, so that no row can point to
another patient's. Standard library only.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

SCHEMA = "stam-store/2"
TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS patient (
  patient_id TEXT PRIMARY KEY, version INTEGER NOT NULL, head TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal (
  patient_id TEXT NOT NULL REFERENCES patient, seq INTEGER NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL,
  body TEXT NOT NULL, recorded_at TEXT NOT NULL, PRIMARY KEY (patient_id, seq));
CREATE TABLE IF NOT EXISTS entry (
  patient_id TEXT NOT NULL REFERENCES patient, entry_key TEXT NOT NULL, seq INTEGER NOT NULL, position INTEGER NOT NULL,
  body TEXT NOT NULL, PRIMARY KEY (patient_id, entry_key));
CREATE TABLE IF NOT EXISTS memory (
  patient_id TEXT NOT NULL REFERENCES patient, mid TEXT NOT NULL, seq INTEGER NOT NULL, position INTEGER NOT NULL,
  store TEXT NOT NULL CHECK (store IN ('ACTIVE', 'HISTORY', 'DELETED')), body TEXT NOT NULL,
  PRIMARY KEY (patient_id, mid));
CREATE TABLE IF NOT EXISTS relation (
  patient_id TEXT NOT NULL, rid TEXT NOT NULL, seq INTEGER NOT NULL, src TEXT NOT NULL, dst TEXT NOT NULL,
  type TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (patient_id, rid), UNIQUE (patient_id, src, dst, type),
  FOREIGN KEY (patient_id, src) REFERENCES memory (patient_id, mid),
  FOREIGN KEY (patient_id, dst) REFERENCES memory (patient_id, mid));
CREATE INDEX IF NOT EXISTS relation_dst ON relation (patient_id, dst);
CREATE TABLE IF NOT EXISTS transition (
  patient_id TEXT NOT NULL, seq INTEGER NOT NULL, position INTEGER NOT NULL, mid TEXT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (patient_id, seq, position), FOREIGN KEY (patient_id, mid) REFERENCES memory (patient_id, mid));
CREATE INDEX IF NOT EXISTS transition_mid ON transition (patient_id, mid);
CREATE TABLE IF NOT EXISTS embedding (
  patient_id TEXT NOT NULL, mid TEXT NOT NULL, vector BLOB NOT NULL, sha256 TEXT NOT NULL,
  PRIMARY KEY (patient_id, mid),
  FOREIGN KEY (patient_id, mid) REFERENCES memory (patient_id, mid));
"""


class StoreError(ValueError):
    """A store that cannot be used as it was asked to be."""


class StoreBusy(StoreError):
    """Another process holds the shard; waiting did not help."""


# SQLite's locks belong to a process, and what it knows of them does not survive a fork: a child that went on with its
# parent's connection, or opened another one beside it, could write into a log that the parent removes.
_open: dict[int, str] = {}  # connection -> its file
_inherited: set[str] = set()  # files that stood open when this process was forked


def _forked() -> None:
    _inherited.update(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_forked)


class Shard:
    """A connection to one shard, of one thread and one process.

    path: absolute. timeout: seconds that a writer waits for another one. make: a missing file is made.
    Raises: StoreError: no SQLite file, or one that was open when this process was forked; StoreBusy.
    """

    def __init__(self, path: str, timeout: float, *, make: bool = False):
        self.path, self.timeout, self._process = path, timeout, os.getpid()
        with self._errors():
            self.connection = sqlite3.connect(
                f"{pathlib.Path(path).as_uri()}?mode={'rwc' if make else 'rw'}", uri=True, timeout=timeout,
                isolation_level=None, check_same_thread=False)
            _open[id(self)] = path
            for pragma in ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
                self.connection.execute(f"PRAGMA {pragma}")
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def close(self) -> None:
        self.connection.close()
        _open.pop(id(self), None)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        name = os.path.basename(self.path)
        if self._process != os.getpid() or self.path in _inherited:
            raise StoreError(f"{name}: was opened before this process was forked; close the store before a fork, and "
                             "open it in each process that uses it")
        try:
            yield
        except sqlite3.OperationalError as e:
            if "locked" in str(e) or "busy" in str(e):
                raise StoreBusy(f"{name}: another writer held the shard for {self.timeout:g} s; try again") from e
            raise StoreError(f"{name}: {e}") from e
        except sqlite3.DatabaseError as e:
            raise StoreError(f"{name}: {e}") from e

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Shard]:
        """One transaction: a snapshot to read from, or the only writer; an exception takes all of it back.

        Raises: StoreBusy: another writer, for longer than the timeout; StoreError: SQLite's own complaint.
        """
        with self._errors():
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield self
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def create(self, meta: dict[str, str]) -> None:
        """Tables and header, all of it or nothing; of a header that stands there, each line stays."""
        with self._errors():
            self.connection.execute("PRAGMA journal_mode = WAL")
        with self.transaction(write=True):
            for statement in TABLES.split(";"):
                self.connection.execute(statement)
            self.write("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta.items())

    def meta(self) -> dict[str, str]:
        """The header; empty where the shard was not made to its end."""
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'meta'"):
            return {}
        return dict(self.rows("SELECT name, value FROM meta"))

    def rows(self, query: str, *values: Any) -> list[tuple]:
        with self._errors():
            return self.connection.execute(query, values).fetchall()

    def write(self, statement: str, rows) -> None:
        with self._errors():
            self.connection.executemany(statement, rows)

    def compact(self) -> None:
        """Leave nothing on disk of what was deleted: rebuild the file, empty the write-ahead log.

        What others delete meanwhile stays due. Raises: StoreBusy: somebody reads an old snapshot, or writes.
        """
        due = self.rows("SELECT name, value FROM meta WHERE name = 'compaction_due'")
        with self._errors():
            self._empty_log()
            self.connection.execute("VACUUM")
            self._empty_log()
        self.write("DELETE FROM meta WHERE name = ? AND value = ?", due)

    def _empty_log(self) -> None:
        if self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreBusy(f"{os.path.basename(self.path)}: an old snapshot is still being read, so that deleted text "
                            "may stand in the write-ahead log; compact again")
