"""The evidence selector against a plain PyTorch model written from the paper: forward and every gradient to 1e-5."""
from functools import partial

import jax
import numpy as np
import pytest

from evigen_jax import losses, retriever
from evigen_jax.retriever import EviGenConfig

torch = pytest.importorskip("torch", reason="extra `parity` is not installed")
pytestmark = pytest.mark.parity

CONFIG = EviGenConfig(d=24, n_note=3, n_code=2, k=4, d_hidden=12, lambda_aux=0.05, temperature=0.5)


class Selector(torch.nn.Module):
    """One patient at a time, one query at a time, as A.1.2 reads."""

    def __init__(self, params, config):
        super().__init__()
        self.config = config
        flat = {f"{a}.{b}" if b else a: v for a, b, v in _leaves(params)}
        self.p = {k: torch.nn.Parameter(torch.tensor(np.asarray(v))) for k, v in flat.items()}

    def patient(self, x):
        """x: {"note": [L, d], "code": [L, d]} -> logit."""
        c, p = self.config, self.p
        total, active = 0.0, 0.0
        for i in range(c.n_note + c.n_code):
            rows = x["note"] if i < c.n_note else x["code"]
            if len(rows) == 0 and i > 0:
                continue
            q = torch.nn.functional.normalize(p["query"][i], dim=0)
            if i == 0:
                gate = torch.ones(())
            else:
                cosine = torch.nn.functional.normalize(rows.mean(0), dim=0) @ q
                s = torch.sigmoid(cosine) - torch.sigmoid(p["eta"][i - 1])
                gate = ((s > 0).float() - s).detach() + s
            if len(rows):
                score = rows @ q
                best, index = torch.topk(score, min(c.k, len(rows)))
                context = torch.softmax(best / c.temperature, 0) @ rows[index]
            else:
                context = torch.zeros(c.d)
            scale, bias = p["expert.ln_scale"][i], p["expert.ln_bias"][i]
            v = torch.nn.functional.layer_norm(context, (c.d,), scale, bias, c.ln_eps)
            v = torch.nn.functional.gelu(v @ p["expert.w1"][i] + p["expert.b1"][i])
            total = total + gate * (context + v @ p["expert.w2"][i] + p["expert.b2"][i])
            active += float(gate.detach())
        h = torch.nn.functional.layer_norm(total / active, (c.d,), p["final_ln.scale"], p["final_ln.bias"], c.ln_eps)
        return h @ p["head.w"] + p["head.b"]

    def loss(self, patients, label):
        logit = torch.stack([self.patient(x) for x in patients])
        ce = torch.nn.functional.binary_cross_entropy_with_logits(logit, label)
        u = torch.nn.functional.normalize(self.p["query"], dim=1)
        gram = u @ u.T - torch.eye(len(u))
        return logit, ce + self.config.lambda_aux * ((gram ** 2).sum() + (self.p["query"][1:] ** 2).sum(1).mean())


def _leaves(params):
    for a, v in params.items():
        if isinstance(v, dict):
            yield from ((a, b, w) for b, w in v.items())
        else:
            yield a, "", v


def test_forward_and_gradients():
    rng = np.random.default_rng(0)
    notes, codes = (5, 1, 0, 20, 3, 2, 9), (3, 6, 4, 0, 1, 10, 2)
    params = jax.jit(partial(retriever.init, CONFIG))(jax.random.key(0))
    params = jax.tree.map(lambda a: (np.asarray(a) + 0.2 * rng.standard_normal(a.shape)).astype(np.float32), params)
    patients = [{} for _ in notes]
    batch = {"label": rng.integers(0, 2, len(notes)).astype(np.float32), "real": np.ones(len(notes), bool)}
    for m, lengths in (("note", notes), ("code", codes)):
        off = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        x = rng.standard_normal((off[-1], CONFIG.d))
        x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
        mean = np.stack([x[a:b].mean(0) if b > a else np.zeros(CONFIG.d, np.float32) for a, b in zip(off, off[1:])])
        batch |= {f"x_{m}": x, f"off_{m}": off, f"mean_{m}": mean}
        for p, (a, b) in enumerate(zip(off, off[1:])):
            patients[p][m] = torch.tensor(x[a:b])

    theirs = Selector(params, CONFIG)
    logit, loss = theirs.loss(patients, torch.tensor(batch["label"]))
    loss.backward()

    def ours(params):
        out = retriever.apply(params, batch, config=CONFIG, max_segment=(24, 12))
        return losses.total(params, out, batch, config=CONFIG)[0], out

    (value, out), grads = jax.jit(jax.value_and_grad(ours, has_aux=True))(params)
    np.testing.assert_allclose(out["logit"], logit.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(value, loss.item(), atol=1e-5)
    assert 0 < np.asarray(out["gate"])[:, 1:].mean() < 1
    for a, b, g in _leaves(grads):
        name = f"{a}.{b}" if b else a
        np.testing.assert_allclose(g, theirs.p[name].grad.numpy(), atol=1e-5, err_msg=name)
        assert np.abs(g).max() > 1e-4, name
