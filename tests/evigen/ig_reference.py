"""A float64 reference of Integrated Gradients, and small batches to hold it against."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf

from evigen_jax import retriever
from evigen_jax.quadrature import rule

L = 7


def unit_rows(rng, n, d):
    x = rng.normal(size=(n, d)) + 0.3
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def make_batch(d, seed=0, lengths_note=(L, 3, 1, 0, L), lengths_code=(L, 2, 0, 4, 0)):
    rng = np.random.default_rng(seed)
    batch = {"real": np.ones(len(lengths_note), bool), "label": np.zeros(len(lengths_note), np.float32)}
    for m, lengths in (("note", lengths_note), ("code", lengths_code)):
        x, off = unit_rows(rng, sum(lengths), d), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        batch[f"x_{m}"], batch[f"off_{m}"] = np.concatenate([x, np.zeros((5, d), np.float32)]), off  # padding rows behind
        batch[f"mean_{m}"] = np.stack([x[a:b].mean(0) if b > a else np.zeros(d, np.float32) for a, b in zip(off, off[1:])])
    return jax.tree.map(jnp.asarray, batch)


def make_params(config, state, seed=3):
    """init: as the retriever draws them, biases 0; trained: every leaf moved away from there, biases and scales too."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(functools.partial(retriever.init, config), jax.random.key(0))

    def draw(path, leaf):
        name = path[-1].key
        if name in ("w1", "w2", "query"):
            v = rng.normal(size=leaf.shape) / np.sqrt(config.d if name == "query" else 3 * leaf.shape[-2])
        elif name == "w":
            v = rng.normal(size=leaf.shape) / np.sqrt(3 * config.d)
        else:
            v = np.full(leaf.shape, 1.0 if name in ("scale", "ln_scale") else 0.0)
        if state == "trained":
            v = v + rng.normal(size=leaf.shape) * 0.7 * (v.std() or 0.3)
        return jnp.asarray(v, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def select(params, batch, config):
    """What retriever.apply gives attribute(), in NumPy, so that a test compiles one thing only."""
    q = np.asarray(params["query"], np.float64)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    count = len(np.asarray(batch["real"]))
    out = {"gate": np.zeros((count, config.n), np.float32), "rows": np.full((count, config.n, config.k), -1, np.int32)}
    out |= {"scores": np.zeros((count, config.n, config.k), np.float32), "valid": np.zeros((count, config.n, config.k), bool)}
    for p, i in np.ndindex(count, config.n):
        m = "note" if i < config.n_note else "code"
        off, mean = np.asarray(batch[f"off_{m}"]), np.asarray(batch[f"mean_{m}"], np.float64)[p]
        s = np.asarray(batch[f"x_{m}"], np.float64)[off[p]:off[p + 1]] @ q[i]
        best = np.argsort(-s, kind="stable")[:config.k]
        out["rows"][p, i, :len(best)], out["scores"][p, i, :len(best)], out["valid"][p, i, :len(best)] = best + off[p], s[best], True
        cosine = mean @ q[i] / max(np.linalg.norm(mean), 1e-12)
        out["gate"][p, i] = i == 0 or (len(s) > 0 and (not config.gating or cosine > np.asarray(params["eta"])[i - 1]))
    out["logit"] = np.array([reference(params, out, batch, config, p, nodes=1)[1] for p in range(count)], np.float32)
    return out


def reference(params, out, batch, config, p, *, nodes=400, target="logit"):
    """F(x), F(0) and IG of one patient in float64 NumPy: the head written out plainly, gather inside, no span trick.

    The derivative of F along one chunk is a central difference, good to 1e-8 in float64.
    Returns: ({(modality, row): attribution}, F(x), F(0)).
    """
    gate, valid, rows = (np.asarray(out[k][p]) for k in ("gate", "valid", "rows"))
    w = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    active = np.flatnonzero(gate > 0.5)
    held = {i: [("note" if i < config.n_note else "code", int(r)) for r in rows[i][valid[i]]] for i in active}
    keys = sorted({key for mine in held.values() for key in mine})
    x = np.array([np.asarray(batch[f"x_{m}"], np.float64)[r] for m, r in keys]).reshape(-1, config.d)

    def norm(v, scale, bias):
        v = v - v.mean(-1, keepdims=True)
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + config.ln_eps) * scale + bias

    def head(x):  # [n, U, D] -> [n]
        total = np.zeros((len(x), config.d))
        for i in active:
            mine = x[:, [keys.index(key) for key in held[i]]]
            e = {k: v[i] for k, v in w["expert"].items()}
            z = np.exp(mine @ (w["query"][i] / np.linalg.norm(w["query"][i])) / config.temperature)
            c = np.einsum("nu,nud->nd", z / z.sum(-1, keepdims=True), mine) if held[i] else np.zeros_like(total)
            u = norm(c, e["ln_scale"], e["ln_bias"]) @ e["w1"] + e["b1"]
            total += c + (0.5 * u * (1 + erf(u / np.sqrt(2)))) @ e["w2"] + e["b2"]
        pooled = total / max(1.0, gate.sum()) if config.aggregate == "mean" else total
        f = norm(pooled, w["final_ln"]["scale"], w["final_ln"]["bias"]) @ w["head"]["w"] + w["head"]["b"]
        return f if target == "logit" else 1 / (1 + np.exp(-f))

    alpha, weight = rule("graded", nodes)
    found = {}
    for u, key in enumerate(keys):
        step = np.zeros_like(x)
        step[u] = 1e-6 * x[u]
        path = alpha[:, None, None] * x[None]
        found[key] = float(weight @ (head(path + step) - head(path - step)) / 2e-6)
    return found, float(head(x[None])[0]), float(head(0 * x[None])[0])
