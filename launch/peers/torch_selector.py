"""The evidence selector in PyTorch, twice: as a reader of the paper would write it, and as well as we can write it.

`Natural` pads each batch to its longest patient and walks over queries and their modules. `Packed` has our algorithm: one
product over packed rows, padding of scores only, pooling unrolled over K, experts as batched products, fused AdamW.
Both have the parameters of `evigen_jax.retriever` and are started from the same arrays, so losses can be compared.
"""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def straight_through(score: torch.Tensor) -> torch.Tensor:
    return (score > 0).to(score.dtype) + (score - score.detach())


class Expert(nn.Module):
    def __init__(self, d: int, hidden: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(d, eps=1e-5)
        self.up, self.down = nn.Linear(d, hidden), nn.Linear(hidden, d)
        self.drop = nn.Dropout(dropout)

    def forward(self, c):
        return c + self.drop(self.down(self.drop(F.gelu(self.up(self.norm(c))))))


class Natural(nn.Module):
    """Padded batches: x [B, L, d] with a mask, a loop over queries, one module an expert."""

    def __init__(self, d: int, n_note: int, n_code: int, k: int, hidden: int, dropout: float):
        super().__init__()
        n = n_note + n_code
        self.n_note, self.k, self.n = n_note, k, n
        self.query, self.eta = nn.Parameter(torch.empty(n, d)), nn.Parameter(torch.zeros(n - 1))
        self.experts = nn.ModuleList(Expert(d, hidden, dropout) for _ in range(n))
        self.norm, self.head = nn.LayerNorm(d, eps=1e-5), nn.Linear(d, 1)

    def load(self, p: dict) -> None:
        """p: the parameter tree of evigen_jax.retriever as NumPy arrays."""
        t = torch.from_numpy
        with torch.no_grad():
            self.query.copy_(t(p["query"]))
            self.eta.copy_(t(p["eta"]))
            for i, e in enumerate(self.experts):
                q = {name: t(a[i]) for name, a in p["expert"].items()}
                e.norm.weight.copy_(q["ln_scale"])
                e.norm.bias.copy_(q["ln_bias"])
                e.up.weight.copy_(q["w1"].T)
                e.up.bias.copy_(q["b1"])
                e.down.weight.copy_(q["w2"].T)
                e.down.bias.copy_(q["b2"])
            self.norm.weight.copy_(t(p["final_ln"]["scale"]))
            self.norm.bias.copy_(t(p["final_ln"]["bias"]))
            self.head.weight.copy_(t(p["head"]["w"])[None])
            self.head.bias.fill_(float(p["head"]["b"]))

    def forward(self, x: dict, mask: dict):
        total, active = 0.0, 0.0
        summary = {m: (x[m] * mask[m][..., None]).sum(1) / mask[m].sum(1, keepdim=True).clamp(min=1) for m in x}
        for i in range(self.n):
            m = "note" if i < self.n_note else "code"
            q = F.normalize(self.query[i], dim=0)
            if i == 0:
                gate = torch.ones(len(x[m]))
            else:
                cosine = F.cosine_similarity(summary[m], self.query[i][None], dim=-1)
                gate = straight_through(torch.sigmoid(cosine) - torch.sigmoid(self.eta[i - 1])) * mask[m].any(1)
            score = (x[m] @ q).masked_fill(~mask[m], torch.finfo(torch.float32).min)
            top, at = score.topk(min(self.k, score.shape[1]), dim=1)
            valid = mask[m].gather(1, at)
            rows = x[m].gather(1, at[..., None].expand(-1, -1, x[m].shape[-1]))
            alpha = torch.softmax((rows @ q).masked_fill(~valid, -torch.inf), dim=1)
            h = self.experts[i]((alpha[..., None] * rows).sum(1))
            total, active = total + gate[:, None] * h, active + gate.detach()
        return self.head(self.norm(total / active.clamp(min=1)[:, None]))[:, 0]


class Packed(nn.Module):
    """x [S, d] packed rows, offsets [B + 1]; every parameter stacked over queries."""

    def __init__(self, d: int, n_note: int, n_code: int, k: int, hidden: int, dropout: float):
        super().__init__()
        n = n_note + n_code
        self.n_note, self.k, self.n, self.dropout = n_note, k, n, dropout
        make = lambda *shape: nn.Parameter(torch.zeros(*shape))  # noqa: E731
        self.query, self.eta = make(n, d), make(n - 1)
        self.ln_scale, self.ln_bias = make(n, d), make(n, d)
        self.w1, self.b1, self.w2, self.b2 = make(n, d, hidden), make(n, hidden), make(n, hidden, d), make(n, d)
        self.norm, self.head = nn.LayerNorm(d, eps=1e-5), nn.Linear(d, 1)

    def load(self, p: dict) -> None:
        t = torch.from_numpy
        with torch.no_grad():
            self.query.copy_(t(p["query"]))
            self.eta.copy_(t(p["eta"]))
            for name, a in p["expert"].items():
                getattr(self, name).copy_(t(a))
            self.norm.weight.copy_(t(p["final_ln"]["scale"]))
            self.norm.bias.copy_(t(p["final_ln"]["bias"]))
            self.head.weight.copy_(t(p["head"]["w"])[None])
            self.head.bias.fill_(float(p["head"]["b"]))

    def select(self, x, offsets, q):
        """Contexts [B, n, d] of the queries q over packed rows; the search itself carries no gradient."""
        unit = F.normalize(q, dim=1)
        with torch.no_grad():
            score = x @ unit.T
            length = offsets[1:] - offsets[:-1]
            place = torch.arange(int(length.max()))[None] + offsets[:-1, None]
            inside = torch.arange(int(length.max()))[None] < length[:, None]
            padded = score[place.clamp(max=len(x) - 1)].masked_fill(~inside[..., None], torch.finfo(torch.float32).min)
            _, at = padded.topk(min(self.k, padded.shape[1]), dim=1)
            valid = at < length[:, None, None]
            rows = (at + offsets[:-1, None, None]).clamp(max=len(x) - 1)
        picked = [x[rows[:, j]] for j in range(rows.shape[1])]
        logits = torch.stack([(r * unit).sum(-1) for r in picked], -1).masked_fill(~valid.transpose(1, 2), -torch.inf)
        alpha = torch.softmax(logits, -1)
        return sum(alpha[..., j, None] * r for j, r in enumerate(picked))

    def forward(self, batch: dict):
        parts, gates = [], []
        for m, q, eta in (("note", self.query[: self.n_note], self.eta[: self.n_note - 1]),
                          ("code", self.query[self.n_note:], self.eta[self.n_note - 1:])):
            if not len(q):
                continue
            parts.append(self.select(batch["x_" + m], batch["off_" + m], q))
            cosine = F.normalize(batch["mean_" + m], dim=1) @ F.normalize(q, dim=1).T
            if m == "note":
                gate = torch.cat([torch.ones(len(cosine), 1), straight_through(torch.sigmoid(cosine[:, 1:]) - torch.sigmoid(eta))], 1)
            else:
                gate = straight_through(torch.sigmoid(cosine) - torch.sigmoid(eta))
            gates.append(gate)
        c, gate = torch.cat(parts, 1).transpose(0, 1), torch.cat(gates, 1)  # c: [n, B, d]
        normal = F.layer_norm(c, c.shape[-1:], eps=1e-5) * self.ln_scale[:, None] + self.ln_bias[:, None]
        hidden = F.dropout(F.gelu(torch.baddbmm(self.b1[:, None], normal, self.w1)), self.dropout, self.training)
        h = c + F.dropout(torch.baddbmm(self.b2[:, None], hidden, self.w2), self.dropout, self.training)
        total = torch.einsum("bn,nbd->bd", gate, h)
        return self.head(self.norm(total / gate.detach().sum(1).clamp(min=1)[:, None]))[:, 0]


def auxiliary(query: torch.Tensor) -> torch.Tensor:
    """Eq. 4: diversity over all queries, simplicity over all but the first."""
    unit = F.normalize(query, dim=1)
    return ((unit @ unit.T - torch.eye(len(query))) ** 2).sum() + (query[1:] ** 2).sum() / (len(query) - 1)
