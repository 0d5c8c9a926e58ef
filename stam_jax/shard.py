"""One SQLite file of a store: its tables, its header row, and the transactions on it.

Every row is keyed by the patient's id, compared byte by byte; foreign keys carry it too, so that no row can point to
another patient's. Standard library only.
"""
from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

SCHEMA = "stam-store/1"
_TABLES = """
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
  patient_id TEXT NOT NULL, mid TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (patient_id, mid),
  FOREIGN KEY (patient_id, mid) REFERENCES memory (patient_id, mid));
"""


class StoreError(ValueError):
    """A store that cannot be used as it was asked to be."""


class StoreBusy(StoreError):
    """Another process holds the shard; waiting did not help."""


class Shard:
    """A connection to one shard, of one thread.

    path: a missing file is made. timeout: seconds that a writer waits for another one.
    Raises: StoreError: no SQLite file; StoreBusy.
    """

    def __init__(self, path: str, timeout: float):
        self.path, self.timeout = path, timeout
        self.connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        with self._errors():
            for pragma in ("foreign_keys = ON", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
                self.connection.execute(f"PRAGMA {pragma}")
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def close(self) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        name = os.path.basename(self.path)
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
        """Tables and header, all of it or nothing; a header that stands there stays."""
        with self._errors():
            self.connection.execute("PRAGMA journal_mode = WAL")
        with self.transaction(write=True):
            for statement in _TABLES.split(";"):
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

        Raises: StoreBusy: somebody reads an old snapshot, or writes.
        """
        with self._errors():
            self._empty_log()
            self.connection.execute("VACUUM")
            self._empty_log()
            self.connection.execute("DELETE FROM meta WHERE name = 'compaction_due'")

    def _empty_log(self) -> None:
        if self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreBusy(f"{os.path.basename(self.path)}: an old snapshot is still being read, so that deleted text "
                            "may stand in the write-ahead log; compact again")
