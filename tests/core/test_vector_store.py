"""The store: round trip, layout on disk, mismatches, bad rows. Kills and full disks: test_embed.py."""
from __future__ import annotations

import json

import numpy as np
import pytest

from core_jax import vector_store
from core_jax.vector_store import VectorStore, bad_rows, text_sha256

DIM = 6


def _unit(n: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _entries(n: int, tag: str):
    return [(f"{tag}{i}", "note" if i else "code", text_sha256(f"{tag} {i}")) for i in range(n)]


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(vector_store, "SHARD_ROWS", 32)
    monkeypatch.setattr(vector_store, "CHUNK_ROWS", 8)


def _make(path, sizes=(5, 0, 40, 3), dtype="float32"):
    writer = VectorStore.create(path, "enc", DIM, True, dtype)
    x, first = _unit(sum(sizes)), 0
    for i, n in enumerate(sizes):
        writer.add(f"p{i}", _entries(n, f"p{i}o"), x[first:first + n])
        first += n
    return writer.commit(), x


@pytest.mark.parametrize("dtype, tolerance", [("float32", 0.0), ("bfloat16", 2 ** -8)])
def test_round_trip(tmp_path, small_shards, dtype, tolerance):
    store, x = _make(tmp_path / "s", dtype=dtype)
    for store in (store, VectorStore.open(tmp_path / "s", "enc", DIM, expect_normalized=True)):
        assert len(store) == 48 and store.patients() == ["p0", "p2", "p3"]
        assert [store.rows(p) for p in ("p0", "p1", "p2", "p3")] == [(0, 5), (0, 0), (5, 45), (45, 48)]
        np.testing.assert_allclose(store.read_all(), x, rtol=tolerance, atol=0)
        assert store.read(7, 7).shape == (0, DIM) and store.read(3, 40).dtype == np.float32
        ranges = [(47, 48), (0, 5), (30, 34)]
        for got, (a, b) in zip(store.read_many(ranges), ranges):
            np.testing.assert_allclose(got, x[a:b], rtol=tolerance, atol=0)
        assert store.index("p3") == [dict(zip(("obs_id", "kind", "text_sha256"), e)) for e in _entries(3, "p3o")]
        assert store.index("p1") == []


def test_layout_on_disk(tmp_path):
    """Uncompressed zarr3, shards of 8,192 rows with inner chunks of 256; a change breaks the stores people have."""
    _make(tmp_path / "s", dtype="bfloat16")
    raw = json.loads((tmp_path / "s" / "vectors" / "zarr.json").read_text())
    assert raw["zarr_format"] == 3 and raw["shape"] == [48, DIM] and raw["data_type"] == "bfloat16"
    assert raw["chunk_grid"]["configuration"]["chunk_shape"] == [8192, DIM]
    (codec,) = raw["codecs"]
    assert codec["name"] == "sharding_indexed" and codec["configuration"]["chunk_shape"] == [256, DIM]
    assert [c["name"] for c in codec["configuration"]["codecs"]] == ["bytes"]
    header = json.loads((tmp_path / "s" / "header.json").read_text())
    assert header == {"schema": "vector_store/1", "encoder_id": "enc", "dim": DIM, "normalized": True,
                      "dtype": "bfloat16", "chunking": None, "rows": 48, "patients_without_rows": ["p1"]}
    line = json.loads((tmp_path / "s" / "index.jsonl").read_text().splitlines()[0])
    assert list(line) == ["patient_id", "obs_id", "kind", "text_sha256"]
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["header.json", "index.jsonl", "vectors"]


@pytest.mark.parametrize("expected, message", [
    ({"expect_encoder": "other"}, "encoder_id: got 'enc', expected 'other'"),
    ({"expect_dim": 7}, "dim: got 6, expected 7"),
    ({"expect_normalized": False}, "normalized: got True, expected False"),
])
def test_a_store_of_another_encoder_is_refused(tmp_path, expected, message):
    _make(tmp_path / "s")
    with pytest.raises(ValueError, match=message):
        VectorStore.open(tmp_path / "s", **expected)


def test_absent_unfinished_and_foreign_folders(tmp_path):
    with pytest.raises(ValueError, match="no vector store here"):
        VectorStore.open(tmp_path)
    writer = VectorStore.create(tmp_path / "s", "enc", DIM, True)
    writer.add("p", _entries(2, "o"), _unit(2))
    with pytest.raises(ValueError, match="unfinished"):
        VectorStore.open(tmp_path / "s")
    writer.commit()
    with pytest.raises(ValueError, match="finished store is there already"):
        VectorStore.create(tmp_path / "s", "enc", DIM, True)
    (tmp_path / "s" / "header.json").write_text('{"schema": "vector_store/0"}')
    with pytest.raises(ValueError, match="expected schema 'vector_store/1'"):
        VectorStore.open(tmp_path / "s")


def test_a_shortened_index_is_noticed(tmp_path):
    _make(tmp_path / "s")
    index = tmp_path / "s" / "index.jsonl"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="index 47 lines"):
        VectorStore.open(tmp_path / "s")


def test_changed_text_is_found_on_demand(tmp_path):
    store, _ = _make(tmp_path / "s")
    good = _entries(5, "p0o")
    store.check("p0", good)
    changed = [*good[:3], (good[3][0], good[3][1], text_sha256("edited")), good[4]]
    with pytest.raises(ValueError, match="'p0', row 3: stored"):
        store.check("p0", changed)
    with pytest.raises(ValueError, match="row 4"):
        store.check("p0", good[:4])
    with pytest.raises(ValueError, match="no patient 'stranger'"):
        store.rows("stranger")


@pytest.mark.parametrize("fill, message", [
    (np.nan, "holds NaN"), (np.inf, "holds NaN or infinity"), (0.0, "is zero"), (2.0, "has length 4.899, expected 1")])
def test_a_bad_row_is_named(tmp_path, fill, message):
    writer = VectorStore.create(tmp_path / "s", "enc", DIM, True)
    x = _unit(3)
    x[1] = fill
    with pytest.raises(ValueError, match=message) as e:
        writer.add("p", _entries(3, "o"), x)
    assert "patient 'p', observation 'o1'" in str(e.value)


def test_length_is_free_where_not_normalized():
    assert bad_rows(np.full((1, 4), 3.0, np.float32), False) == []
    assert bad_rows(np.zeros((1, 4), np.float32), False) == [(0, "the vector is zero")]


def test_callers_mistakes(tmp_path):
    with pytest.raises(ValueError, match="dtype 'int8'"):
        VectorStore.create(tmp_path / "s", "enc", DIM, True, "int8")
    writer = VectorStore.create(tmp_path / "s", "enc", DIM, True)
    writer.add("p", _entries(2, "o"), _unit(2))
    with pytest.raises(ValueError, match="added already"):
        writer.add("p", [], _unit(0))
    with pytest.raises(ValueError, match=r"expected \(1, 6\)"):
        writer.add("q", _entries(1, "o"), _unit(2))
    with pytest.raises(ValueError, match="obs_id twice"):
        writer.add("q", _entries(1, "o") * 2, _unit(2))
    store = writer.commit()
    for bad in ((-1, 1), (1, 0), (0, 3)):
        with pytest.raises(ValueError, match="expected within"):
            store.read(*bad)


def test_an_empty_store(tmp_path):
    writer = VectorStore.create(tmp_path / "s", "enc", DIM, True)
    writer.add("p", [], _unit(0))
    store = writer.commit()
    assert len(store) == 0 and store.rows("p") == (0, 0) and store.read_all().shape == (0, DIM)
