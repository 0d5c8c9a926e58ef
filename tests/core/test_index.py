"""Exact search against NumPy; FAISS behind the same two methods."""
from __future__ import annotations

import builtins

import numpy as np
import pytest

from core_jax.index import ExactIndex, FaissIndex


def _vectors(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _oracle(vectors, queries, k):
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


@pytest.mark.parametrize("rows, block, k", [(100, 1000, 5), (100, 7, 5), (64, 16, 20), (3, 2, 3), (1, 8, 1)])
def test_exact_search_is_exact_in_any_blocks(rows, block, k):
    x, q = _vectors(rows), _vectors(5, seed=1)
    scores, found = ExactIndex(x, block_rows=block).search(q, k)
    expected_scores, expected = _oracle(x, q, k)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)
    assert scores.dtype == np.float32 and found.dtype == np.int32


@pytest.mark.parametrize("block", [2, 3, 100])
def test_ties_go_to_the_lower_row(block):
    x = np.eye(4, dtype=np.float32)[[1, 0, 1, 0, 1, 0, 2]]
    scores, found = ExactIndex(x, block_rows=block).search(np.eye(4, dtype=np.float32)[:1], 5)
    np.testing.assert_array_equal(found, [[1, 3, 5, 0, 2]])
    np.testing.assert_array_equal(scores, [[1, 1, 1, 0, 0]])


def test_negative_scores_beat_the_padding():
    x = -np.ones((5, 2), np.float32)
    scores, found = ExactIndex(x, block_rows=4).search(np.ones((1, 2), np.float32), 5)
    np.testing.assert_array_equal(found, [[0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(scores, np.full((1, 5), -2.0))


@pytest.mark.parametrize("index", [ExactIndex, FaissIndex])
def test_k_shrinks_to_the_number_of_rows_and_no_row_is_fine(index):
    if index is FaissIndex:
        pytest.importorskip("faiss")
    scores, found = index(_vectors(3)).search(_vectors(2, seed=1), 10)
    assert scores.shape == found.shape == (2, 3) and sorted(found[0]) == [0, 1, 2]
    assert index(np.empty((0, 8), np.float32)).search(_vectors(2), 4)[0].shape == (2, 0)
    assert index(_vectors(3)).search(np.empty((0, 8), np.float32), 2)[1].shape == (0, 2)


def test_more_queries_than_a_block():
    x, q = _vectors(50), _vectors(ExactIndex.QUERY_BLOCK + 3, seed=2)
    np.testing.assert_array_equal(ExactIndex(x).search(q, 4)[1], _oracle(x, q, 4)[1])


def test_faiss_finds_the_same():
    pytest.importorskip("faiss", reason="extra `faiss-cpu` is not installed")
    x, q = _vectors(200), _vectors(9, seed=3)
    scores, found = FaissIndex(x).search(q, 6)
    expected_scores, expected = ExactIndex(x).search(q, 6)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


@pytest.mark.parametrize("index", [ExactIndex, FaissIndex])
def test_bad_input_is_named(index):
    if index is FaissIndex:
        pytest.importorskip("faiss")
    x = _vectors(4)
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="vectors: row 2 holds NaN"):
        index(x)
    good = index(_vectors(4))
    with pytest.raises(ValueError, match=r"queries: got shape \(2, 5\), expected \[n, 8\]"):
        good.search(np.ones((2, 5), np.float32), 1)
    with pytest.raises(ValueError, match="k 0"):
        good.search(_vectors(1), 0)


@pytest.mark.parametrize("error", [ImportError("No module named 'faiss'"), RuntimeError("nvidia-cuda-runtime-cu12 is missing")])
def test_a_faiss_that_cannot_be_imported_names_the_extra(monkeypatch, error):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "faiss":
            raise error
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="faiss-cpu") as e:
        FaissIndex(_vectors(2))
    assert str(error) in str(e.value)
