"""float64 NumPy oracles of the kernels, written from the equations and sharing no code with them."""
import numpy as np


def segment_topk(q, x, offsets, k):
    """Rows by (-score, row) within each segment."""
    p, n = len(offsets) - 1, len(q)
    scores, rows = np.full((p, n, k), -np.inf), np.full((p, n, k), -1)
    for i in range(p):
        mine = np.arange(offsets[i], offsets[i + 1])
        s = x[mine].astype(np.float64) @ q.astype(np.float64).T  # [L, N]
        for j in range(n):
            best = np.lexsort((mine, -s[:, j]))[:k]
            scores[i, j, : len(best)], rows[i, j, : len(best)] = s[best, j], mine[best]
    return scores, rows, rows >= 0


def select_pool(q, x, offsets, k, temperature=1.0):
    """(c, alpha, scores, rows, valid)."""
    q = q.astype(np.float64)
    norm = np.linalg.norm(q, axis=1, keepdims=True)
    scores, rows, valid = segment_topk(np.where(norm > 1e-12, q / np.maximum(norm, 1e-300), 0.0), x, offsets, k)
    c, alpha = np.zeros((*rows.shape[:2], x.shape[1])), np.zeros(rows.shape)
    for i, j in np.ndindex(*rows.shape[:2]):
        live = valid[i, j]
        if live.any():
            e = np.exp((scores[i, j, live] - scores[i, j, live].max()) / temperature)
            alpha[i, j, live] = e / e.sum()
            c[i, j] = alpha[i, j, live] @ x[rows[i, j, live]].astype(np.float64)
    return c, alpha, scores, rows, valid


def select_pool_grad(q, x, offsets, k, dc, temperature=1.0):
    """dL/dq by equation 3 and the normalisation's Jacobian."""
    c, alpha, _, rows, valid = select_pool(q, x, offsets, k, temperature)
    q = q.astype(np.float64)
    dq = np.zeros_like(q)
    for i, j in np.ndindex(*rows.shape[:2]):
        for t in np.flatnonzero(valid[i, j]):
            row = x[rows[i, j, t]].astype(np.float64)
            dq[j] += alpha[i, j, t] * (dc[i, j] @ row) * (row - c[i, j]) / temperature
    for j, v in enumerate(q):
        norm = np.linalg.norm(v)
        u = v / norm
        dq[j] = (dq[j] - u * (u @ dq[j])) / norm
    return dq
