"""The store on disk: waves, versions, two writers, isolation, headers, erasure, undo, and a verify that sees damage."""
import dataclasses
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
from memory_cases import HEADER, commit, doses, entry, memory, vector

from core_jax.records import RecordError
from stam_jax.graph.invariants import Violation
from stam_jax.graph.memory import Provenance
from stam_jax.graph.relations import Relation, RelationTable, RelationType
from stam_jax.graph.state import State, StateError
from stam_jax.graph.transitions import IllegalTransition, archive, delete
from stam_jax.graph.undo import UndoRefused
from stam_jax.graph.update import Confirmation, Status, Update
from stam_jax.storage import journal, rows
from stam_jax.storage.store import Header, InvariantError, StaleVersion, Store, StoreBusy, StoreError


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with Store.open(path, encoder=HEADER, check=True) as opened:
        yield opened


def fold(commits, patient="p1") -> State:
    state = State(patient)
    for c in commits:
        state = state.apply(Update.of(c))
    return state


def on_disk(path, word: str) -> list[str]:
    return [f.name for f in pathlib.Path(path).rglob("*") if f.is_file() and word.encode() in f.read_bytes()]


# ---- commits --------------------------------------------------------------------------------------------------

def test_what_was_committed_is_there_in_another_process(store, path):
    for c in doses(4):
        store.commit([c])
    assert store.version("p1") == 4 and store.patients() == ["p1"]
    with Store.open(path) as again:
        assert again.state("p1").canonical() == store.state("p1").canonical() == fold(doses(4)).canonical()
        assert again.verify() == []
        mids, rows = again.vectors("p1")
        assert mids == list(again.state("p1").memories) and rows.dtype == np.float32
        np.testing.assert_array_equal(rows, [vector(m) for m in mids])
        assert again.header == HEADER


def test_replay_of_the_journal_is_the_state_byte_for_byte(store):
    for c in doses(5):
        store.commit([c])
    store.revert("p1", 5)
    updates = [r.update() for r in store.records("p1")]
    assert State.replay("p1", updates).canonical() == store.state("p1").canonical()
    assert store.state("p1").as_of_seq(3).canonical() == fold(doses(3)).canonical()


def test_a_wave_is_the_same_as_its_patients_one_by_one(tmp_path):
    plans = {p: doses(3, patient=p) for p in ("a", "b", "c", "d")}
    with (Store.open(tmp_path / "wave", encoder=HEADER, shards=3) as wave,
          Store.open(tmp_path / "one", encoder=HEADER) as one):
        for i in range(3):
            assert wave.commit(plan[i] for plan in plans.values()) == dict.fromkeys(plans, i + 1)
        for plan in plans.values():
            for c in plan:
                one.commit([c])
        for p in plans:
            assert wave.state(p).canonical() == one.state(p).canonical()
            assert [r.hash for r in wave.records(p)] == [r.hash for r in one.records(p)]
        assert wave.verify() == one.verify() == [] and wave.patients() == one.patients() == sorted(plans)


def test_a_known_entry_is_taken_in_once(store):
    first, second = doses(2)
    store.commit([first])
    before = store.state("p1").canonical()
    assert store.commit([first]) == {"p1": 1}
    assert store.commit([dataclasses.replace(first, expected_version=1)]) == {"p1": 1}
    assert store.state("p1").canonical() == before and len(store.records("p1")) == 1
    both = dataclasses.replace(second, entries=(*first.entries, *second.entries))
    with pytest.raises(StoreError, match="committed before"):
        store.commit([both])
    assert store.version("p1") == 1


def test_a_partial_entry_is_finished_by_a_later_commit(store):
    e = entry("took aspirin", status="partial")
    m = memory(e, flags={"needs_review"})
    store.commit([commit(0, [e], [m])])
    more = memory(e, "aspirin", ordinal=1)
    store.commit([commit(1, [], [more], statuses=[Status(e.entry_key, "complete")])])
    assert store.state("p1").entries[e.entry_key].status == "complete" and store.verify() == []


def test_a_stale_wave_writes_nothing_and_names_its_patients(store):
    store.commit([doses(2)[0]])
    fresh, stale = doses(1, patient="p2")[0], commit(0, [entry("a late writer")])
    with pytest.raises(StaleVersion) as e:
        store.commit([fresh, stale])
    assert e.value.patients == {"p1": (0, 1)} and store.patients() == ["p1"]
    with pytest.raises(StoreError, match="twice"):
        store.commit([fresh, fresh])


@pytest.mark.parametrize("fault, kind", [
    (lambda: commit(1, transitions=[archive("mnobody", "RESOLVED")]), StateError),
    (lambda: commit(1, [entry("x", date="2024-02-01")], [memory(entry("elsewhere"))]), StateError),
    (lambda: commit(1, [], [], embeddings={"m": vector("m")}), RecordError),
    (lambda: commit(1, [e := entry("x")], [memory(e)], embeddings={}), RecordError),
    (lambda: commit(1, [e := entry("x")], [m := memory(e)], embeddings={m.mid: np.ones(7) / 7 ** 0.5}), RecordError),
    (lambda: commit(1, [e := entry("x")], [m := memory(e)], embeddings={m.mid: np.full(8, np.nan)}), RecordError),
    (lambda: commit(1, [e := entry("x")], [m := memory(e)], embeddings={m.mid: np.ones(8)}), RecordError),
    (lambda: commit(1, [e := entry("x")], [m := memory(e)], embeddings={m.mid: ["a"] * 8}), RecordError),
])
def test_a_refused_commit_takes_the_whole_wave_back(store, fault, kind):
    store.commit([doses(1)[0]])
    before = store.state("p1").canonical()
    with pytest.raises(kind):
        store.commit([doses(1, patient="a")[0], fault(), doses(1, patient="z")[0]])
    assert store.patients() == ["p1"] and store.state("p1").canonical() == before and store.verify() == []


def test_an_update_that_breaks_an_invariant_is_not_written(store, monkeypatch):
    monkeypatch.setattr(State, "check", lambda self, embedded: [Violation("I4", "p1", "made up")])
    with pytest.raises(InvariantError, match="I4: patient 'p1': made up"):
        store.commit([doses(1)[0]])
    assert store.version("p1") == 0


def test_a_wave_over_shards_is_checked_before_any_is_written(path):
    ids = [f"p{i}" for i in range(12)]
    with Store.open(path, encoder=HEADER, shards=4) as store:
        store.commit(doses(1, patient=p)[0] for p in ids)
        wave = [commit(1, [entry("more", patient=p)], patient=p) for p in ids]
        wave[-1] = dataclasses.replace(wave[-1], expected_version=0)
        with pytest.raises(StaleVersion):
            store.commit(wave)
        assert {store.version(p) for p in ids} == {1}


# ---- several processes and threads ----------------------------------------------------------------------------

def test_the_second_writer_waits_and_then_says_so(store, path):
    store.commit([doses(1)[0]])
    holder = sqlite3.connect(path / "shard-00000-of-00001.sqlite", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with Store.open(path, encoder=HEADER, timeout=0.2) as second:
        with pytest.raises(StoreBusy, match="another writer held the shard for 0.2 s"):
            second.commit([doses(2)[1]])
        assert second.state("p1").version == 1  # readers are not held up
        timer = threading.Timer(0.3, lambda: holder.execute("COMMIT"))
        timer.start()
        with Store.open(path, encoder=HEADER, timeout=20) as third:
            assert third.commit([doses(2)[1]]) == {"p1": 2}
        timer.join()
        assert second.version("p1") == 2
    holder.close()


def test_two_writers_that_read_the_same_state_do_not_overwrite_each_other(store, path):
    store.commit([doses(1)[0]])
    with Store.open(path, encoder=HEADER) as other:
        a, b = store.state("p1"), other.state("p1")
        store.commit([commit(a.version, [entry("first")])])
        with pytest.raises(StaleVersion):
            other.commit([commit(b.version, [entry("second")])])
        other.commit([commit(other.state("p1").version, [entry("second")])])
        assert len(store.state("p1").entries) == 3 and store.verify() == []


def test_readers_see_committed_states_only(store, path):
    reader = Store.open(path)
    store.commit([doses(1)[0]])
    seen = reader.state("p1")
    with store._writing(["p1"]) as written:
        written.append(store._write(store._state(store._of("p1"), "p1"), Update.of(doses(2)[1]),
                                    HEADER.rows(doses(2)[1])))
        assert reader.state("p1").canonical() == seen.canonical() and reader.version("p1") == 1
    assert reader.version("p1") == 2 and len(reader.state("p1").history()) == 1
    assert seen.version == 1 and len(seen.active()) == 1  # the state read before is a value
    reader.close()


def test_a_state_is_of_one_moment(store, path, monkeypatch):
    first, second = doses(2)
    store.commit([first])
    head = rows.head

    def interrupted(shard, patient_id):
        found = head(shard, patient_id)
        monkeypatch.setattr(rows, "head", head)
        store.commit([second])
        return found

    with Store.open(path) as reader:
        monkeypatch.setattr(rows, "head", interrupted)
        state = reader.state("p1")
        assert store.version("p1") == 2 and state.canonical() == fold([first]).canonical() and state.check() == []


def test_threads_share_a_store(store):
    errors = []

    def work(name):
        try:
            for c in doses(4, patient=name):
                store.commit([c])
                assert store.state(name).version == c.expected_version + 1
        except Exception as e:  # noqa: BLE001  (reported below)
            errors.append(e)

    threads = [threading.Thread(target=work, args=(f"p{i}",)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == [] and store.verify() == [] and len(store.patients()) == 4


# ---- isolation ------------------------------------------------------------------------------------------------

IDS = ["1", "10", "1%", "1_", "a' OR 1=1", "a", "A", "1 ", "', '1'); DROP TABLE memory; --", "\u00e9", "e\u0301",
       "../1"]


def test_ids_that_resemble_each_other_never_mix(path):
    with Store.open(path, encoder=HEADER, shards=2, check=True) as store:
        for i, p in enumerate(IDS):
            e = entry(f"secret {i}", patient=p)
            store.commit([commit(0, [e], [memory(e)], patient=p)])
        assert store.patients() == sorted(IDS)
        for i, p in enumerate(IDS):
            state = store.state(p)
            assert [m.text for m in state.active()] == [f"Patient: secret {i}"] and store.vectors(p)[1].shape == (1, 8)
            other = store.state(IDS[i - 1]).active()[0].mid
            with pytest.raises(LookupError):
                state.memory(other)
            with pytest.raises((StateError, IllegalTransition)):
                store.commit([commit(1, transitions=[archive(other, "RESOLVED")], patient=p)])
            with pytest.raises(StateError):
                store.commit([commit(1, relations=[Relation.of(state.active()[0].mid, other, "causal")], patient=p)])
        store.erase("1%")
        assert [len(store.state(p).active()) for p in IDS] == [0 if p == "1%" else 1 for p in IDS]
        assert store.verify() == [] and store.version("2") == 0 and store.state("2").active() == []


def test_ids_that_are_none_are_refused(store):
    for bad in ("", " ", "a\x00b", None, 1, "\ud800"):
        with pytest.raises(RecordError):
            store.state(bad)


# ---- opening --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("changes", [dict(model="other"), dict(revision="2"), dict(dim=9), dict(dtype="float16"),
                                     dict(normalised=False), dict(template_sha256="other")])
def test_another_encoder_refuses(store, path, changes):
    (field, value), = changes.items()
    with pytest.raises(StoreError, match=f"another encoder .{field}: the store has .*, expected {value!r}.;"):
        Store.open(path, encoder=dataclasses.replace(HEADER, **changes))


def test_another_relation_table_or_number_of_shards_refuses(store, path):
    with pytest.raises(StoreError, match="relations"):
        Store.open(path, encoder=HEADER, relations=RelationTable((RelationType("near"),)))
    with pytest.raises(StoreError, match="1 shards, expected 2"):
        Store.open(path, encoder=HEADER, shards=2)


def test_what_is_no_store_refuses(tmp_path):
    with pytest.raises(StoreError, match="no store"):
        Store.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="no folder"):
        Store.open(tmp_path / "file", encoder=HEADER)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "shard-00000-of-00001.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(tmp_path / "odd", encoder=HEADER)
    with pytest.raises(RecordError):
        Store.open(tmp_path / "none", encoder=HEADER, shards=0)
    with pytest.raises(RecordError):
        Header("m", "1", 0)


def test_a_lost_shard_is_not_made_anew(path):
    with Store.open(path, encoder=HEADER, shards=3) as store:
        store.commit(doses(1, patient=f"p{i}")[0] for i in range(9))
    (path / "shard-00001-of-00003.sqlite").unlink()
    with pytest.raises(StoreError, match="shard-00001-of-00003.sqlite is missing"):
        Store.open(path, encoder=HEADER)


def test_a_store_whose_making_was_killed_is_finished(path):
    path.mkdir()
    (path / "shard-00000-of-00002.sqlite").touch()
    with pytest.raises(StoreError, match="missing or empty"):
        Store.open(path)
    with Store.open(path, encoder=HEADER) as store:
        assert store.shards == 2 and store.verify() == []


# ---- undo -----------------------------------------------------------------------------------------------------

def test_undo_is_a_compensating_record(store):
    for c in doses(3):
        store.commit([c])
    with pytest.raises(UndoRefused) as e:
        store.revert("p1", 1)
    assert e.value.dependents == (2, 3) and store.version("p1") == 3
    assert store.revert("p1", 3) == 4
    assert [m.value for m in store.state("p1").active()] == ["6"]
    assert json.loads(store.records("p1")[3].body)["reverts"] == 3 and len(store.records("p1")) == 4
    assert store.commit([doses(3)[2]]) == {"p1": 4}  # the entry is known, though taken back
    assert store.revert("p1", 4) == 5 and [m.value for m in store.state("p1").active()] == ["7"]
    assert store.revert("p1", 2, cascade=True) == 7  # 5 undid an undo: 3 is in effect, and goes first
    assert [m.value for m in store.state("p1").active()] == ["5"] and store.verify() == []
    with pytest.raises(ValueError):
        store.revert("p1", 99)


# ---- erasure --------------------------------------------------------------------------------------------------

def _ward(store) -> tuple:
    e = entry("Xanthippe lives alone. Takes quetiapine 25 mg at night.", source="ward-Xylophone")
    a, b = memory(e, "Xanthippe lives alone", concept="Zusammenleben"), memory(e, "quetiapine 25 mg at night")
    store.commit([commit(0, [e], [a, b], relations=[Relation.of(a.mid, b.mid, "systemic_link")])])
    later = entry("still: Xanthippe lives alone", date="2024-03-02")
    store.commit([commit(1, [later], [], confirmations=[Confirmation(a.mid, [Provenance.of(later, 7, 28)])])])
    for c in doses(30, patient="neighbour"):
        store.commit([c])
    return e, a, b


def test_an_erased_memory_stands_in_no_file(store, path):
    e, a, b = _ward(store)
    assert on_disk(path, "Xanthippe") and on_disk(path, "Zusammenleben")
    hashes = [r.hash for r in store.records("p1")]
    assert store.erase("p1", [a.mid]) == 3
    assert on_disk(path, "Xanthippe") == on_disk(path, "Zusammenleben") == []
    assert on_disk(path, "quetiapine 25 mg at night")  # the other memory stays, and its part of the entry
    assert [r.hash for r in store.records("p1")][:2] == hashes and store.verify() == []
    state = store.state("p1")
    assert [m.mid for m in state.active()] == [b.mid] and state.relations == {} and store.vectors("p1")[0] == [b.mid]
    assert "Xanthippe" not in state.as_of_seq(1).canonical()
    with pytest.raises(LookupError, match="deleted"):
        store.erase("p1", [a.mid])
    with Store.open(path) as again:
        assert again.state("p1").canonical() == state.canonical()


def test_an_erased_patient_stands_in_no_file(store, path):
    e, a, b = _ward(store)
    store.erase("p1", by="user:ward")
    for word in ("Xanthippe", "quetiapine", "Xylophone", "clinician", "Zusammenleben", "2024-03-02T"):
        assert word == "clinician" or on_disk(path, word) == []
    assert store.verify() == [] and store.state("p1").memories == {} and len(store.state("neighbour").memories) == 30
    assert store.commit([commit(0, [e], [a, b])]) == {"p1": 3}  # known: it does not come back unnoticed
    assert store.state("p1").memories == {}
    fresh = entry("a new start", date="2025-01-01")
    store.commit([commit(3, [fresh], [memory(fresh)])])
    assert len(store.state("p1").active()) == 1 and store.verify() == []
    with pytest.raises(LookupError):
        store.erase("nobody")


def test_the_gate_deletes_from_history_only_and_leaves_no_text_after_compaction(store, path):
    for c in doses(3):
        store.commit([c])
    old, current = store.state("p1").history()[0], store.state("p1").active()[0]
    with pytest.raises(IllegalTransition):
        store.commit([commit(3, transitions=[delete(current.mid, 0.9, 0.5, "c1")])])
    store.commit([commit(3, transitions=[delete(old.mid, 0.9, 0.5, "c1")])])
    store.compact()
    assert on_disk(path, "lisinopril 5 mg") == [] and on_disk(path, "lisinopril 6 mg")
    stone = store.state("p1").tombstones[old.mid]
    assert (stone.reason, stone.score, stone.tau, stone.calibration_id) == ("CALIBRATED_GATE", 0.9, 0.5, "c1")
    assert stone.content_sha256 == journal.contents(store.records("p1"), {old.mid})[old.mid]
    assert store.verify() == []


def test_a_reader_of_an_old_snapshot_is_told_to_compact_again(path):
    with Store.open(path, encoder=HEADER, timeout=0.2) as store:
        _ward(store)
        reader = sqlite3.connect(path / "shard-00000-of-00001.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memory").fetchone()
        with pytest.raises(StoreBusy, match="compact again"):
            store.erase("p1")
        assert store.state("p1").memories == {}
        assert store.compaction_due and on_disk(path, "Xanthippe")
        reader.close()
        store.compact()
        assert on_disk(path, "Xanthippe") == [] and store.verify() == [] and not store.compaction_due


def test_deleted_rows_are_overwritten_before_any_compaction(store, path):
    for c in doses(3):
        store.commit([c])
    old = store.state("p1").history()[0]
    store.commit([commit(3, transitions=[delete(old.mid, 0.9, 0.5, "c1")])])
    store.close()  # the last connection writes the log into the file
    assert on_disk(path, "lisinopril 5 mg") == []


def test_compaction_clears_what_others_left_in_free_pages(store, path):
    raw = sqlite3.connect(path / "shard-00000-of-00001.sqlite", isolation_level=None)
    raw.execute("PRAGMA secure_delete = OFF")
    raw.execute("CREATE TABLE scratch (x)")
    raw.execute("INSERT INTO scratch VALUES (?)", ["Xenophon " * 2000])
    raw.execute("DROP TABLE scratch")
    raw.close()
    store.commit([doses(1)[0]])
    assert on_disk(path, "Xenophon")
    store.erase("p1")
    assert on_disk(path, "Xenophon") == []


def test_an_erasure_that_was_killed_before_its_compaction_is_finished_at_the_next_open(path):
    with Store.open(path, encoder=HEADER) as store:
        _ward(store)
    script = ("import os, sys\nfrom stam_jax.storage.shard import Shard\nfrom stam_jax.storage.store import Store\n"
              "Shard.compact = lambda self: os.kill(os.getpid(), 9)\nStore.open(sys.argv[1]).erase('p1')\n")
    root = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=root,
                          env=os.environ | {"PYTHONPATH": str(root)})
    assert done.returncode == -9
    with Store.open(path) as reader:
        assert reader.compaction_due and reader.state("p1").memories == {}
    with Store.open(path, encoder=HEADER) as store:
        assert store.state("p1").memories == {} and store.verify() == []
        assert on_disk(path, "Xanthippe") == []


# ---- verify ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("statement, invariant", [
    ("UPDATE memory SET body = replace(body, 'lisinopril 5 mg', 'lisinopril 50 mg')", "I2"),
    ("UPDATE memory SET store = 'ACTIVE'", "I1"),
    ("DELETE FROM transition", "I10"),
    ("UPDATE journal SET body = replace(body, 'visit 0', 'visit 9') WHERE seq = 1", "I6"),
    ("UPDATE journal SET body = replace(body, ':', ': ') WHERE seq = 1", "I6"),
    ("UPDATE journal SET hash = prev_hash WHERE seq = 2", "I6"),
    ("DELETE FROM journal WHERE seq = 3", "I6"),
    ("DELETE FROM journal WHERE seq = 2", "I6"),
    ("UPDATE patient SET version = 2", "I6"),
    ("UPDATE patient SET head = 'x'", "I6"),
    ("DELETE FROM embedding WHERE rowid = 1", "I7"),
    ("UPDATE embedding SET vector = x'00'", "I7"),
    ("UPDATE embedding SET vector = zeroblob(32)", "I7"),
    ("UPDATE entry SET body = replace(body, 'mg daily', 'mg weekly')", "I8"),
    ("UPDATE entry SET body = replace(body, 'visit', 'Visit')", "I11"),
    ("UPDATE relation SET body = replace(body, '0.9', '0.8')", "I11"),
    ("UPDATE relation SET type = 'causal'", "I5"),
    ("UPDATE relation SET src = 'mx', dst = 'my' WHERE rowid = 1", "I15"),
    ("UPDATE patient SET patient_id = 'p2'", "I15"),
    ("DELETE FROM entry WHERE seq = 1", "I8"),
    ("UPDATE entry SET body = '{}' WHERE seq = 1", "I11"),
])
def test_verify_sees_damage(store, path, statement, invariant):
    for c in doses(3):
        store.commit([c])
    store.close()
    raw = sqlite3.connect(path / "shard-00000-of-00001.sqlite")
    raw.execute(statement)
    raw.commit()
    raw.close()
    with Store.open(path) as again:
        assert invariant in {v.invariant for v in again.verify()}


def test_verify_sees_text_put_in_place_of_what_was_erased(store, path):
    _, a, _ = _ward(store)
    store.erase("p1", [a.mid])
    block = "\u2588" * len("Xanthippe lives alone")
    for table in ("entry", "journal"):
        store._shard(0).connection.execute(f"UPDATE {table} SET body = replace(body, ?, ?)", (block, "x" * len(block)))
    with Store.open(path) as again:
        assert "I13" in {v.invariant for v in again.verify("p1")}


def test_verify_sees_a_patient_in_the_wrong_shard(path):
    with Store.open(path, encoder=HEADER, shards=2) as store:
        store.commit(doses(1, patient=f"p{i}")[0] for i in range(6))
    names = sorted(path.glob("*.sqlite"))
    names[0].rename(path / "x")
    names[1].rename(names[0])
    (path / "x").rename(names[1])
    with pytest.raises(StoreError, match="shard: the store has"):
        Store.open(path)
