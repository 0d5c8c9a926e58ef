"""Packed cohorts out of a store: order, means, and what is refused."""
import numpy as np
import pytest

from core_jax.records import RecordError
from evigen_jax.packed import PackedCohort, join_shards


class Store:
    """The three calls of a vector store that are used, over a dict."""

    def __init__(self, patients, dim=6, seed=0):
        rng = np.random.default_rng(seed)
        self.dim, self._rows, self._index = dim, {}, {}
        x = []
        for patient_id, entries in patients.items():
            self._rows[patient_id] = (len(x), len(x) + len(entries))
            self._index[patient_id] = [{"obs_id": o, "kind": k, "text_sha256": ""} for o, k in entries]
            for _ in entries:
                v = rng.standard_normal(dim)
                x.append(v / np.linalg.norm(v))
        self.x = np.array(x, np.float32)

    def rows(self, patient_id):
        return self._rows[patient_id]

    def index(self, patient_id):
        return self._index[patient_id]

    def read(self, start, stop):
        return self.x[start:stop]


@pytest.fixture
def store():
    return Store({"b": [("n1#0-9", "note"), ("n1#9-20", "note"), ("n2#0-5", "note"), ("I10-10", "code"),
                        ("E11.9-10", "code")],
                  "a": [("m1#0-4", "note")], "c": [("N18-10", "code")]})


WANTED = [("a", ["m1#0-4"]), ("b", ["n2#0-5", "n1#0-9", "E11.9-10"]), ("c", ["N18-10"])]
LABELS = {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_stand_in_the_order_asked_for(store, tmp_path, mapped):
    got = PackedCohort.from_store(store, WANTED, LABELS, scratch=tmp_path / "rows" if mapped else None)
    assert got.patient_ids == ["a", "b", "c"] and got.label.dtype == np.int32 and list(got.label) == [0, 1, 0]
    np.testing.assert_array_equal(got.off_note, [0, 1, 3, 3])
    np.testing.assert_array_equal(got.off_code, [0, 0, 1, 2])
    assert got.obs_note == ["m1#0-4", "n2#0-5", "n1#0-9"] and got.obs_code == ["E11.9-10", "N18-10"]
    np.testing.assert_array_equal(got.x_note, store.x[[5, 2, 0]])
    np.testing.assert_array_equal(got.x_code, store.x[[4, 6]])
    assert isinstance(got.x_note, np.memmap) == mapped and got.off_note.dtype == np.int64
    assert got.observations(1, "note") == ["n2#0-5", "n1#0-9"] and got.observations(2, "note") == []


def test_patients_that_follow_each_other_in_the_store_are_read_together(store, monkeypatch):
    reads = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda start, stop: (reads.append((start, stop)), read(start, stop))[1])
    in_order = [WANTED[1], WANTED[0], WANTED[2]]
    got = PackedCohort.from_store(store, in_order, LABELS)
    assert reads == [(0, 7)]
    np.testing.assert_array_equal(got.x_note, store.x[[2, 0, 5]])
    np.testing.assert_array_equal(got.x_code, store.x[[4, 6]])
    monkeypatch.setattr("evigen_jax.packed.READ_ROWS", 5)
    again = PackedCohort.from_store(store, in_order, LABELS)
    assert reads[1:] == [(0, 5), (5, 7)]
    np.testing.assert_array_equal(again.x_note, got.x_note)


def test_means_are_of_the_wanted_rows_in_float64(store):
    got = PackedCohort.from_store(store, WANTED, LABELS)
    np.testing.assert_array_equal(got.mean_note[1], store.x[[2, 0]].astype(np.float64).mean(0).astype(np.float32))
    assert got.mean_note.dtype == np.float32 and not got.mean_note[2].any() and not got.mean_code[0].any()


def test_works_with_the_real_store(tmp_path):
    from core_jax.vector_store import VectorStore

    fake = Store({"p": [("n#0-3", "note"), ("I10-10", "code")], "q": [("m#0-3", "note")]})
    writer = VectorStore.create(tmp_path / "store", "none", 6, True)
    for patient_id in ("p", "q"):
        entries = [(e["obs_id"], e["kind"], "0" * 64) for e in fake.index(patient_id)]
        writer.add(patient_id, entries, fake.read(*fake.rows(patient_id)))
    got = PackedCohort.from_store(writer.commit(), [("q", ["m#0-3"]), ("p", ["n#0-3", "I10-10"])], {"p": 1, "q": 0})
    np.testing.assert_array_equal(got.x_note, fake.x[[2, 0]])
    np.testing.assert_array_equal(got.x_code, fake.x[[1]])


@pytest.mark.parametrize("row, value, message", [
    (2, np.nan, "patient b: the vector of observation n2#0-5 holds NaN or infinity"),
    (4, np.inf, "patient b: the vector of observation E11.9-10 holds NaN or infinity"),
    (6, 0.0, "patient c: the vector of observation N18-10 is zero"),
    (5, "long", "patient a: the vector of observation m1#0-4 has length 1.002, expected 1"),
])
def test_bad_vectors_are_named(store, row, value, message):
    if value == "long":
        store.x[row] *= np.float32(1.002)
    elif value == 0.0:
        store.x[row] = 0.0
    else:
        store.x[row, 1] = value
    with pytest.raises(RecordError, match=message):
        PackedCohort.from_store(store, WANTED, LABELS)


def test_a_vector_nobody_asked_for_may_be_bad(store):
    store.x[1] = np.nan
    got = PackedCohort.from_store(store, WANTED, LABELS)
    assert np.isfinite(got.x_note).all() and np.isfinite(got.x_code).all()


def test_length_within_a_thousandth_is_let_through(store):
    store.x[5] *= np.float32(1.0009)
    got = PackedCohort.from_store(store, WANTED, LABELS)
    assert np.abs(np.linalg.norm(got.x_note, axis=1) - 1.0).max() == pytest.approx(9e-4, rel=1e-2)  # and it is not changed


@pytest.mark.parametrize("wanted, labels, message", [
    ([("a", [])], LABELS, "patient a: no note and no code"),
    ([], LABELS, "no patients"),
    ([("a", ["m1#0-5"])], LABELS, "patient a: observation m1#0-5 is not in the vector store"),
    ([("a", ["m1#0-4", "m1#0-4"])], LABELS, "patient a: observation m1#0-4 is asked for twice"),
    ([WANTED[0], WANTED[0]], LABELS, "patient a: asked for twice"),
    (WANTED, {"a": 0, "b": 1}, "patient c: label is None"),
    (WANTED, LABELS | {"b": 2}, "patient b: label is 2"),
])
def test_bad_requests_are_named(store, wanted, labels, message):
    with pytest.raises(RecordError, match=message):
        PackedCohort.from_store(store, wanted, labels)


def test_an_unknown_kind_is_named():
    store = Store({"a": [("x", "image")]})
    with pytest.raises(RecordError, match="observation x is of kind 'image'"):
        PackedCohort.from_store(store, [("a", ["x"])], {"a": 0})


def test_shards_must_have_one_shape():
    one = {"x_note": np.zeros((4, 2)), "off_note": np.array([0, 1, 3], np.int32), "real": np.ones(2, bool)}
    got = join_shards([one, one | {"off_note": np.array([0, 0, 4], np.int32)}])
    assert got["x_note"].shape == (8, 2) and got["real"].shape == (4,)
    np.testing.assert_array_equal(got["off_note"], [[0, 1, 3], [0, 0, 4]])
    with pytest.raises(ValueError, match="batch 1: got shapes"):
        join_shards([one, one | {"x_note": np.zeros((5, 2))}])
