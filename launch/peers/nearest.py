"""Suite `nearest`: the ten memories nearest to a question, d = 384, unit vectors, against FAISS's flat index and NumPy.

`search_*`: one index over all memories (10,000 or 1,000,000), 1, 16 or 256 questions at once. `impact_*`: what a wave of
ingestion asks, four new memories of each of 64 patients against the 150 or 15,000 memories of their own patient (10,000
and 1,000,000 in all): one call for the wave against an index a patient. The result are the scores.
"""
from __future__ import annotations

import numpy as np

D, K = 384, 10
CASES = {f"search_{name}_{b}": {"memories": n, "batch": b, "per_round": f"{b} questions, {n:,} memories"}
         for name, n in (("1e4", 10_000), ("1e6", 1_000_000)) for b in (1, 16, 256) if n * b <= 16_000_000}
CASES |= {f"impact_{name}": {"memories": n // 64, "patients": 64, "batch": 4, "per_round": f"64 patients, {n // 64:,} memories each"}
          for name, n in (("1e4", 10_000), ("1e6", 1_000_000))}
for _case in CASES.values():
    _case["contenders"] = ["ours", "faiss", "numpy"]


def drawn(case: dict) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(memories, questions) of each patient."""
    rng = np.random.default_rng(0)

    def unit(n: int) -> np.ndarray:
        x = rng.standard_normal((n, D), np.float32)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    patients = case.get("patients", 1)
    return [unit(case["memories"]) for _ in range(patients)], [unit(case["batch"]) for _ in range(patients)]


def ours(case: dict):
    memories, questions = drawn(case)
    if "patients" not in case:
        from core_jax.index import ExactIndex

        index = ExactIndex(memories[0])
        return lambda: index.search(questions[0], K)[0].ravel()
    from stam_jax.write.nearest import Search, nearest, whole

    rows = [whole(m) for m in memories]
    zeros = [np.zeros(len(m), np.int32) for m in memories]

    def run():
        found = nearest([Search(whole(q), np.zeros(len(q), np.int32), r, z) for q, r, z in zip(questions, rows, zeros)], K)
        return np.array([cosine for own in found for best in own for _, cosine in best])

    return run


def faiss(case: dict):
    from core_jax.index import FaissIndex

    memories, questions = drawn(case)
    indices = [FaissIndex(m) for m in memories]
    return lambda: np.concatenate([i.search(q, K)[0].ravel() for i, q in zip(indices, questions)])


def numpy_(case: dict):
    memories, questions = drawn(case)

    def run():
        out = []
        for m, q in zip(memories, questions):
            scores = q @ m.T
            best = np.take_along_axis(scores, np.argpartition(-scores, K, axis=1)[:, :K], 1)
            out.append(-np.sort(-best, axis=1).ravel())
        return np.concatenate(out)

    return run


CONTENDERS = {"ours": ours, "faiss": faiss, "numpy": numpy_}
