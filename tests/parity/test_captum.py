"""Integrated Gradients against captum on the same head, at equal rules: unique chunks, gather inside, zero baseline."""
import pathlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
captum = pytest.importorskip("captum.attr")

from evigen_jax.attribution import Quadrature, attribute  # noqa: E402
from evigen_jax.retriever import EviGenConfig  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "evigen"))
from ig_reference import make_batch, make_params, select  # noqa: E402

pytestmark = pytest.mark.parity


def captum_attributions(params, out, batch, config, p, method, nodes):
    """{(modality, row): attribution} of one patient, float64."""
    t = {k: torch.from_numpy(np.asarray(v, np.float64)) for k, v in params["expert"].items()}
    q = torch.from_numpy(np.asarray(params["query"], np.float64))
    q = q / q.norm(dim=1, keepdim=True)
    ln = {k: torch.from_numpy(np.asarray(v, np.float64)) for k, v in params["final_ln"].items()}
    w, b = (torch.from_numpy(np.asarray(params["head"][k], np.float64)) for k in ("w", "b"))
    active = np.flatnonzero(out["gate"][p] > 0.5)
    held = {int(i): [("note" if i < config.n_note else "code", int(r)) for r in out["rows"][p, i][out["valid"][p, i]]] for i in active}
    keys = sorted({key for mine in held.values() for key in mine})
    x = torch.from_numpy(np.array([np.asarray(batch[f"x_{m}"], np.float64)[r] for m, r in keys]))

    def head(chunks):  # [B, U, D] -> [B]
        total = 0
        for i, mine in held.items():
            rows = chunks[:, [keys.index(key) for key in mine]]
            c = (torch.softmax(rows @ q[i] / config.temperature, 1)[..., None] * rows).sum(1)
            normal = torch.nn.functional.layer_norm(c, (config.d,), t["ln_scale"][i], t["ln_bias"][i], config.ln_eps)
            total = total + c + torch.nn.functional.gelu(normal @ t["w1"][i] + t["b1"][i]) @ t["w2"][i] + t["b2"][i]
        return torch.nn.functional.layer_norm(total / len(held), (config.d,), ln["scale"], ln["bias"], config.ln_eps) @ w + b

    found = captum.IntegratedGradients(head).attribute(x[None], baselines=torch.zeros_like(x[None]), n_steps=nodes, method=method)
    return dict(zip(keys, found[0].sum(-1).detach().numpy().tolist()))


@pytest.mark.parametrize("ours, theirs, factor", [
    ("gauss_legendre", "gausslegendre", 1.0),
    ("trapezoid", "riemann_trapezoid", 50 / 49),  # captum's weights sum to (n - 1) / n, ours to 1
])
def test_equal_rule_gives_equal_attributions(ours, theirs, factor):
    config = EviGenConfig(16, 3, 2, 4, 12)
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    for p, got in enumerate(attribute(params, out, batch, config, quadrature=Quadrature(ours, 50, 50))):
        expected = captum_attributions(params, out, batch, config, p, theirs, 50)
        assert {(c.modality, c.row) for c in got.chunks} == set(expected)
        for c in got.chunks:
            assert c.attribution == pytest.approx(factor * expected[c.modality, c.row], abs=1e-5)
