"""Small packed batches for tests of the evidence selector."""
import numpy as np

D, S_NOTE, S_CODE = 16, 48, 24
MAX_SEGMENT = (12, 8)
NOTES, CODES = (3, 0, 12, 1, 7, 4), (2, 5, 0, 8, 1, 4)  # rows of six patients: one without notes, one without codes


def unit_rows(rng, n, d=D):
    x = rng.standard_normal((n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def batch(notes=NOTES, codes=CODES, *, seed=0, d=D, rungs=(S_NOTE, S_CODE), padding=np.nan):
    """A batch as `retriever.apply` takes it; rows after the last patient hold `padding`."""
    rng = np.random.default_rng(seed)
    out = {"label": (np.arange(len(notes)) % 2).astype(np.float32), "real": np.ones(len(notes), bool)}
    for m, lengths, rung in (("note", notes, rungs[0]), ("code", codes, rungs[1])):
        off = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        x = np.full((rung, d), padding, np.float32)
        x[: off[-1]] = unit_rows(rng, off[-1], d)
        out |= {f"x_{m}": x, f"off_{m}": off, f"mean_{m}": means(x, off)}
    return out


def means(x, off):
    return np.stack([x[a:b].mean(axis=0, dtype=np.float64) if b > a else np.zeros(x.shape[1])
                     for a, b in zip(off[:-1], off[1:])]).astype(np.float32)


def patients_of(b, order, *, rungs=(S_NOTE, S_CODE), shuffle=None, room=0):
    """The patients `order` of a batch as a new batch; `shuffle` permutes each one's rows; `room` padding patients."""
    rng = np.random.default_rng(shuffle)
    real = np.arange(len(order) + room) < len(order)
    out = {"label": np.concatenate([b["label"][list(order)], np.zeros(room, np.float32)]), "real": real}
    moved = {}
    for m, rung in zip(("note", "code"), rungs):
        off = b[f"off_{m}"]
        index = [np.arange(off[p], off[p + 1]) for p in order]
        if shuffle is not None:
            index = [rng.permutation(i) for i in index]
        ends = np.cumsum([0] + [len(i) for i in index] + [0] * room).astype(np.int32)
        moved[m] = np.concatenate(index) if index else np.zeros(0, int)
        x = np.full((rung, b[f"x_{m}"].shape[1]), np.nan, np.float32)
        x[: ends[-1]] = b[f"x_{m}"][moved[m]]
        mean = np.concatenate([b[f"mean_{m}"][list(order)], np.zeros((room, x.shape[1]), np.float32)])
        out |= {f"x_{m}": x, f"off_{m}": ends, f"mean_{m}": mean}
    return out, moved
