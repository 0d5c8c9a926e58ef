"""Attacks on the store and the write path, each of which once broke it."""
import dataclasses
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from memory_cases import HEADER, commit, doses, entry, memory
from writer_cases import SlotWriter

from core_jax.embed import HashEncoder
from core_jax.records import RecordError
from stam_jax.config import WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.transitions import delete
from stam_jax.graph.undo import UndoRefused
from stam_jax.rules import RulesWriter
from stam_jax.storage.store import Store, StoreError
from stam_jax.storage.verify import shard_of
from stam_jax.write.ingest import header_of, ingest, reprocess
from stam_jax.write.normalise import normalise, numbers
from stam_jax.write.writer import Draft, Extraction

HERE = pathlib.Path(__file__).resolve().parent
ONE = "shard-00000-of-00001.sqlite"
ENCODER = HashEncoder(16)


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with Store.open(path, encoder=HEADER, check=True) as opened:
        yield opened


def opened(path) -> Store:
    return Store.open(path, encoder=header_of(ENCODER), check=True)


def sql(path, *statements: str) -> None:
    raw = sqlite3.connect(path / ONE, isolation_level=None)
    for statement in statements:
        raw.execute(statement)
    raw.close()


# ---- files that are lost, exchanged or damaged ----------------------------------------------------------------

def test_a_lost_shard_is_missed_even_if_no_other_one_has_a_patient(path):
    patient = next(p for p in map(str, range(9)) if shard_of(p, 2) == 1)
    with Store.open(path, encoder=HEADER, shards=2) as store:
        store.commit(doses(1, patient=patient))
    (path / "shard-00001-of-00002.sqlite").unlink()
    for encoder in (None, HEADER):
        with pytest.raises(StoreError, match="shard-00001-of-00002.sqlite is missing"):
            Store.open(path, encoder=encoder)


def test_a_shard_of_another_store_is_refused(path, tmp_path):
    for folder in (path, tmp_path / "other"):
        Store.open(folder, encoder=HEADER, shards=2).close()
    shutil.copy(tmp_path / "other" / "shard-00001-of-00002.sqlite", path)
    with pytest.raises(StoreError, match="00001-of-00002.sqlite: store: the store has"):
        Store.open(path)


def test_two_processes_that_make_one_store_agree_on_its_name(path):
    made = []
    threads = [threading.Thread(target=lambda: made.append(Store.open(path, encoder=HEADER, shards=4)))
               for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 4 and len({m["store"] for store in made for m in store._metas()}) == 1
    for store in made:
        store.close()


@pytest.mark.parametrize("statement", ["DELETE FROM meta WHERE name = 'encoder'",
                                       "UPDATE meta SET value = '{}' WHERE name = 'encoder'",
                                       "UPDATE meta SET value = 'x' WHERE name = 'encoder'",
                                       "UPDATE meta SET name = 'shale' WHERE name = 'schema'"])
def test_a_damaged_header_is_named(path, statement):
    Store.open(path, encoder=HEADER).close()
    sql(path, statement)
    for encoder in (None, HEADER):
        with pytest.raises(StoreError, match="encoder|schema"):
            Store.open(path, encoder=encoder)


def test_a_shard_that_cannot_be_opened_is_named(path):
    (path / ONE).mkdir(parents=True)
    with pytest.raises(StoreError, match="unable to open"):
        Store.open(path, encoder=HEADER)


def test_a_store_that_was_deleted_while_open_is_not_made_anew(path, store):
    shutil.rmtree(path)
    caught = []

    def late():
        try:
            store.patients()
        except StoreError as e:
            caught.append(e)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert "unable to open" in str(caught[0]) and not path.exists()


@pytest.mark.parametrize("statement, invariant", [
    ("UPDATE embedding SET vector = (SELECT vector FROM embedding WHERE rowid = 2) WHERE rowid = 1", "I7"),
    ("UPDATE entry SET position = 9 WHERE rowid = 2", "I11"),
    ("UPDATE entry SET entry_key = 'e' || entry_key WHERE rowid = 1", "I11"),
    ("UPDATE memory SET position = 9 WHERE rowid = 1", "I11"),
    ("UPDATE transition SET position = 9 WHERE rowid = 1", "I11"),
    ("UPDATE transition SET mid = (SELECT mid FROM memory WHERE rowid = 3) WHERE rowid = 1", "I11"),
    ("UPDATE relation SET seq = 9 WHERE rowid = 1", "I11"),
    ("DROP INDEX relation_dst", "I11"),
    ("CREATE TRIGGER t AFTER INSERT ON memory BEGIN DELETE FROM memory; END", "I11"),
    ("UPDATE patient SET patient_id = CAST('p1' AS BLOB)", "I11"),
])
def test_verify_sees_damage_that_changes_no_content(store, path, statement, invariant):
    for c in doses(3):
        store.commit([c])
    store.close()
    sql(path, statement)
    with Store.open(path) as again:
        assert invariant in {v.invariant for v in again.verify()}


def test_a_vector_of_which_one_bit_flipped_is_seen(store, path):
    store.commit(doses(1))
    raw = sqlite3.connect(path / ONE)
    vector = bytearray(raw.execute("SELECT vector FROM embedding").fetchone()[0])
    vector[0] ^= 1
    raw.execute("UPDATE embedding SET vector = ?", [bytes(vector)])
    raw.commit()
    raw.close()
    assert [v.invariant for v in store.verify()] == ["I7"]


def test_a_content_that_was_taken_out_by_hand_is_missed(store, path):
    """The chain's hashes are those of the contents' hashes, so that they hold without the contents."""
    store.commit([commit(0, [e := entry("seen at night"), entry("second")], [memory(e)])])
    raw = sqlite3.connect(path / ONE)
    body = json.loads(raw.execute("SELECT body FROM journal").fetchone()[0])
    leaf = next(leaf for leaf in body["entries"] if leaf["content"]["text"] == "second")
    content = leaf.pop("content")
    forged = content | {"text": "forged"}
    leaf |= {"content_sha256": canonical.digest(content), "remains": forged | {"chunks": [[0, 6]]}}
    raw.execute("UPDATE journal SET body = ?", [canonical.dumps(body)])
    raw.execute("UPDATE entry SET body = ? WHERE entry_key = ?", [canonical.dumps(
        leaf["remains"] | {"entry_key": leaf["entry_key"], "patient_id": "p1"}), leaf["entry_key"]])
    raw.commit()
    raw.close()
    with Store.open(path) as again:
        assert again.state("p1").entries[leaf["entry_key"]].text == "forged"
        assert [v.invariant for v in again.verify()] == ["I6"]


# ---- processes and threads ------------------------------------------------------------------------------------

def test_a_forked_child_does_not_go_on_with_its_parents_files(path, store):
    """What it committed there could go into a log that the parent removes."""
    store.commit(doses(1))
    child = os.fork()
    if child == 0:
        code = 0
        try:
            for use in (lambda: store.commit(doses(1, patient="child")), lambda: Store.open(path, encoder=HEADER)):
                try:
                    use()
                    code = 1
                except StoreError as e:
                    code |= 2 * ("fork" not in str(e))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.patients() == ["p1"]


def test_threads_that_ended_leave_no_connection(store):
    for _ in range(20):
        thread = threading.Thread(target=store.patients)
        thread.start()
        thread.join()
    assert len(store._all) <= 2


def test_threads_that_read_one_state_see_its_whole_journal(store):
    for c in doses(4):
        store.commit([c])
    store._states.clear()
    state, inside, go = store.state("p1"), threading.Event(), threading.Event()
    updates, load, loaded = state._log

    def slow(version):
        inside.set()
        go.wait(5)
        return load(version)

    state._log = updates, slow, loaded
    found = []
    threads = [threading.Thread(target=lambda: found.append([u.seq for u in state.updates()])) for _ in range(3)]
    for t in threads:
        t.start()
    inside.wait(5)
    go.set()
    for t in threads:
        t.join()
    assert found == [[1, 2, 3, 4]] * 3 and [u.seq for u in state.updates()] == [1, 2, 3, 4]


def test_what_is_deleted_during_a_compaction_stays_due(path):
    with Store.open(path, encoder=HEADER) as store, Store.open(path) as other:
        for p in ("p1", "p2"):
            for c in doses(2, patient=p):
                store.commit([c])
        old = other.state("p2").history()[0]
        done = []

        def meanwhile(statement):
            if statement.startswith("DELETE FROM meta") and not done:
                done.append(other.commit([commit(2, transitions=[delete(old.mid, 0.9, 0.5, "c")], patient="p2")]))

        store._shard(0).connection.set_trace_callback(meanwhile)
        store.erase("p1")
        assert done and store.compaction_due
        store.compact()
        assert not store.compaction_due and store.verify() == []


class Late:
    """A store into which another process commits the same entries just before each commit."""

    def __init__(self, store, other):
        self._store, self._other = store, other

    def __getattr__(self, name):
        return getattr(self._store, name)

    def commit(self, commits, **fields):
        commits = list(commits)
        self._other.commit(commits)
        return self._store.commit(commits, **fields)


def test_an_entry_that_was_taken_in_during_the_commit_is_a_duplicate(path):
    with opened(path) as store, opened(path) as other:
        report = ingest(Late(store, other), [entry("metformin dose 500 mg")], SlotWriter(), ENCODER)
        assert report.entries["duplicate"] == 1 and not report.entries["admitted"] and not report.memories["inserted"]
        assert store.version("p1") == 1 and store.verify() == []


@pytest.mark.parametrize("kills", [3, pytest.param(120, marks=pytest.mark.slow)])
def test_ingest_revert_and_erase_survive_being_killed(tmp_path, kills):
    path = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(HERE / "attack_kills.py"), str(tmp_path), str(kills)], text=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == [] and report["killed"] >= kills / 2
    assert report["erased"] or kills < 20


# ---- undo and deletion ----------------------------------------------------------------------------------------

def test_an_erasure_of_entries_without_memories_is_not_undone(store):
    store.commit([commit(0, [entry("nothing to remember")])])
    store.erase("p1")
    with pytest.raises(UndoRefused, match="deleted"):
        store.revert("p1", 2)
    assert store.version("p1") == 2 and store.verify() == []


def test_another_try_does_not_bring_back_what_was_deleted(path):
    class Same(SlotWriter):
        def extract(self, entries):
            return [Extraction((Draft("the first", "first"), Draft("the second", "second"))) for _ in entries]

    class Failing(Same):
        def extract(self, entries):
            return [dataclasses.replace(x, error="no answer") for x in super().extract(entries)]

    with opened(path) as store:
        e = entry("first second")
        ingest(store, [e], Failing(), ENCODER)
        gone, stays = store.state("p1").active()
        store.erase("p1", [gone.mid])
        report = reprocess(store, "p1", e.entry_key, Same(), ENCODER)
        assert report.problems["deleted_draft"] == 1 and store.verify() == []
        assert list(store.state("p1").memories) == [stays.mid]
        assert store.state("p1").entries[e.entry_key].status == "complete"


# ---- what writers and encoders give ---------------------------------------------------------------------------

@pytest.mark.parametrize("fault", [lambda x: x * np.nan, lambda x: x[:, :4], lambda x: x[:-1], lambda x: x[0],
                                   lambda x: np.concatenate([x, x])])
def test_an_encoder_that_gives_something_else_is_named(path, fault):
    class Encoder(HashEncoder):
        def encode(self, texts):
            return fault(np.asarray(super().encode(texts)))

    with opened(path) as store:
        ingest(store, [entry("warfarin dose 5 mg")], SlotWriter(), ENCODER)
        with pytest.raises(ValueError, match="encoder: got"):
            ingest(store, [entry("metformin dose 5 mg\ncough status", date="2024-04-01")], SlotWriter(), Encoder(16))
        assert store.version("p1") == 1 and store.verify() == []


def test_numbers_of_any_length_are_compared_exactly():
    assert numbers("1" * 40) != numbers("1" * 39 + "2") and numbers("4.0") == numbers("4.00") != numbers("40")
    start = time.perf_counter()
    assert len(numbers("1" * 1_000_001)) == 1  # more digits than Decimal's own context has exponents
    assert time.perf_counter() - start < 5


def test_a_number_of_a_million_digits_stops_nobodys_entry():
    e = entry("dose " + "1" * 1_000_001)
    news, counters = normalise(e, Extraction((Draft(e.text, e.text, value=e.text[5:]),)), WriteConfig())
    assert [m.value for m in news] == [e.text[5:]] and not counters


def test_a_quote_of_a_whole_chunk_is_not_looked_for_by_likeness():
    """Some 16,000 characters against 100,000 took minutes."""
    words = [f"word{i * 7919 % 1000}" for i in range(12_000)]
    e, quote = entry(" ".join(words)), " ".join(words[2000:0:-1])
    start = time.perf_counter()
    news, counters = normalise(e, Extraction((Draft("said backwards", quote),)), WriteConfig())
    assert counters["quote_not_found"] == 1 and len(news) == 1 and time.perf_counter() - start < 5


def test_a_line_of_blanks_is_read_in_no_time():
    """Each blank between a name and the end of a line was looked at from every other one."""
    e = entry("Metformin" + " " * 8_000 + "500 mg daily")
    start = time.perf_counter()
    RulesWriter().extract([e])
    assert time.perf_counter() - start < 5


def test_names_of_counters_are_no_words_of_the_record():
    """They stand in the journal after an erasure."""
    assert commit(0, counters={"bad_line": 1}).counters == {"bad_line": 1}
    with pytest.raises(RecordError, match="counters"):
        commit(0, counters={"bad line: Xanthippe": 1})
