"""Suite `ig`: Integrated Gradients of trained-like selectors, against captum on the same network.

Patients are independent; N = 8 queries, all active, K = 4 chunks each, hidden 1,024, float32. captum integrates the pooled
head over all slots of all patients at once, in one internal batch, as its documentation advises where memory allows.
`equal_nodes`: 50 Gauss-Legendre nodes for both. `equal_gap`: the completeness error is brought to 1e-2 by each in its own
way (ours: graded nodes; captum: more Gauss-Legendre nodes). `cohort_1000`: 1,000 patients at d = 384, ours at its default
tolerance of 1e-4, captum at its default of 50 nodes. The result is the vector of slot attributions.
"""
from __future__ import annotations

import numpy as np

CASES = {
    "equal_nodes": {"d": 4096, "patients": 4, "per_round": "4 patients", "ours": {"rule": "gauss_legendre", "nodes": 50}, "captum": 50},
    "equal_gap": {"d": 4096, "patients": 4, "per_round": "4 patients", "ours": {"rule": "graded", "nodes": 16, "tolerance": 1e-2}, "captum": 100},
    "cohort_1000": {"d": 384, "patients": 1000, "per_round": "1,000 patients", "ours": {"rule": "graded", "nodes": 32}, "captum": 50},
}
N, K, HIDDEN = 8, 4, 1024


def problem(case: dict):
    """x [P, N, K, d] unit rows, scores [P, N, K], and the parameters, all float32 NumPy."""
    rng, d, p = np.random.default_rng(0), case["d"], case["patients"]

    def draw(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    x = draw(p, N, K, d)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    q = draw(N, d)
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    params = {"query": q, "eta": np.zeros(N - 1, np.float32),
              "expert": {"ln_scale": 1 + draw(N, d, scale=0.1), "ln_bias": draw(N, d, scale=0.02), "w1": draw(N, d, HIDDEN, scale=d ** -0.5),
                         "b1": draw(N, HIDDEN, scale=0.02), "w2": draw(N, HIDDEN, d, scale=HIDDEN ** -0.5), "b2": draw(N, d, scale=0.02)},
              "final_ln": {"scale": np.ones(d, np.float32), "bias": draw(d, scale=0.02)},
              "head": {"w": draw(d, scale=d ** -0.5), "b": np.float32(0)}}
    return x, np.einsum("pnkd,nd->pnk", x, q).astype(np.float32), params


def evigen(case: dict):
    import jax
    import jax.numpy as jnp

    from evigen_jax.attribution import Quadrature, attribute
    from evigen_jax.retriever import EviGenConfig

    x, scores, params = problem(case)
    p, d = case["patients"], case["d"]
    params = jax.tree.map(jnp.asarray, params)
    config = EviGenConfig(d=d, n_note=N, n_code=0, k=K, d_hidden=HIDDEN)
    rows = np.arange(p * N * K, dtype=np.int32).reshape(p, N, K)
    batch = {"x_note": jnp.asarray(x.reshape(-1, d)), "x_code": jnp.zeros((0, d), jnp.float32), "real": np.ones(p, bool)}
    out = {"gate": np.ones((p, N), np.float32), "scores": scores, "rows": rows, "valid": np.ones((p, N, K), bool)}
    out["logit"] = _logits(x, scores, params)
    ours = dict(case["ours"])
    quadrature = Quadrature(**({"max_nodes": ours["nodes"]} | ours if ours["rule"] == "gauss_legendre" else ours))

    def run():
        found = attribute(params, out, batch, config, quadrature=quadrature)
        values = np.empty(p * N * K)
        for a in found:
            for c in a.chunks:
                values[c.row] = c.attribution
        return values

    return run


def _logits(x, scores, params) -> np.ndarray:
    """F(x) of each patient by the plain formula."""
    import jax
    import jax.numpy as jnp

    from evigen_jax.retriever import experts, layer_norm, mean_of_active

    @jax.jit
    def f(params, x, scores):
        context = jnp.einsum("pnk,pnkd->pnd", jax.nn.softmax(scores, axis=-1), x)
        h = mean_of_active(experts(context, params["expert"], eps=1e-5), jnp.ones(scores.shape[:2], jnp.float32))
        return layer_norm(h, params["final_ln"]["scale"], params["final_ln"]["bias"], 1e-5) @ params["head"]["w"] + params["head"]["b"]

    return np.asarray(f(params, x, scores))


def captum(case: dict):
    import torch
    import torch.nn.functional as F
    from captum.attr import IntegratedGradients

    torch.set_num_threads(2)
    x, _, p = problem(case)
    t = lambda a: torch.from_numpy(np.asarray(a))  # noqa: E731
    e, q = {k: t(v) for k, v in p["expert"].items()}, t(p["query"])
    scale, bias, w = t(p["final_ln"]["scale"]), t(p["final_ln"]["bias"]), t(p["head"]["w"])

    def head(rows):
        """rows [B, N, K, d] -> logits [B]; the softmax sees the scaled rows, as ours does."""
        alpha = torch.softmax(torch.einsum("bnkd,nd->bnk", rows, q), -1)
        c = torch.einsum("bnk,bnkd->nbd", alpha, rows)
        normal = F.layer_norm(c, c.shape[-1:], eps=1e-5) * e["ln_scale"][:, None] + e["ln_bias"][:, None]
        h = c + torch.baddbmm(e["b2"][:, None], F.gelu(torch.baddbmm(e["b1"][:, None], normal, e["w1"])), e["w2"])
        return F.layer_norm(h.mean(0), scale.shape, scale, bias, 1e-5) @ w

    method, inputs, chunk = IntegratedGradients(head), t(x), 32  # patients per call: memory, not speed, bounds it

    def run():
        values = []
        for part in inputs.split(chunk):
            found = method.attribute(part, baselines=torch.zeros_like(part), n_steps=case["captum"], method="gausslegendre")
            values.append(found.sum(-1).detach().reshape(-1))
        return torch.cat(values).numpy()

    return run


CONTENDERS = {"evigen": evigen, "captum": captum}
