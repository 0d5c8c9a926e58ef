"""Suite `train`: steps of the evidence selector on a cohort of the paper's mortality shape, against PyTorch.

Shape: chunks a patient log-normal with the median and mean of Table 17 at 160 new tokens a chunk (62 and 92), 1 to 1,700;
40 codes; N = 4 + 4 queries, K = 4, hidden 1,024, batches of 16, float32, dropout 0 so that losses can be compared.
A run is `steps` AdamW steps from the same parameters on the same batches; the result is the list of losses.
`mortality_d1024`: d = 1,024 (an epoch of 10,700 patients is 669 such steps). `mortality_d4096`: a slice at d = 4,096.
"""
from __future__ import annotations

import numpy as np

CASES = {
    "mortality_d1024": {"d": 1024, "patients": 320, "per_round": "20 steps of 16 patients; an epoch of 10,700 is 669 steps",
                        "contenders": ["evigen", "torch packed", "torch natural"]},
    "mortality_d4096": {"d": 4096, "patients": 64, "per_round": "4 steps of 16 patients",
                        "contenders": ["evigen", "torch packed", "torch natural"]},
}
N_NOTE, N_CODE, K, HIDDEN, BATCH, LR, DECAY, LAMBDA = 4, 4, 4, 1024, 16, 1e-3, 0.01, 0.01


def cohort(case: dict):
    """A PackedCohort of random unit rows, and the batches of patient indices."""
    from evigen_jax.packed import PackedCohort

    rng, p, d = np.random.default_rng(0), case["patients"], case["d"]
    sizes = {"note": np.clip(rng.lognormal(np.log(62), 0.9, p).astype(int), 1, 1700), "code": np.clip(rng.poisson(40, p), 1, None)}
    fields = {}
    for m, n in sizes.items():
        x = rng.standard_normal((int(n.sum()), d), np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        off = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
        mean = np.stack([x[a:b].mean(0) for a, b in zip(off, off[1:])])
        fields |= {f"x_{m}": x, f"off_{m}": off, f"obs_{m}": [str(i) for i in range(len(x))], f"mean_{m}": mean}
    packed = PackedCohort(patient_ids=[str(i) for i in range(p)], label=rng.integers(0, 2, p).astype(np.int32), **fields)
    return packed, [np.arange(i, i + BATCH) for i in range(0, p, BATCH)]


def start(case: dict) -> dict:
    """The same random parameters for every contender, as NumPy arrays in the tree of evigen_jax.retriever."""
    rng, d, n = np.random.default_rng(1), case["d"], N_NOTE + N_CODE

    def draw(*shape, scale):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    zeros = lambda *shape: np.zeros(shape, np.float32)  # noqa: E731
    return {"query": draw(n, d, scale=d ** -0.5), "eta": zeros(n - 1),
            "expert": {"ln_scale": np.ones((n, d), np.float32), "ln_bias": zeros(n, d), "w1": draw(n, d, HIDDEN, scale=(3 * d) ** -0.5),
                       "b1": zeros(n, HIDDEN), "w2": draw(n, HIDDEN, d, scale=(3 * HIDDEN) ** -0.5), "b2": zeros(n, d)},
            "final_ln": {"scale": np.ones(d, np.float32), "bias": zeros(d)}, "head": {"w": draw(d, scale=(3 * d) ** -0.5), "b": zeros()}}


def evigen(case: dict):
    import jax
    import jax.numpy as jnp

    from core_jax.train import adamw, make_step, new_state
    from evigen_jax.batches import Feed, assemble, plan
    from evigen_jax.retriever import EviGenConfig
    from evigen_jax.train import DECAYED, FETCH, selector_loss

    packed, groups = cohort(case)
    config = EviGenConfig(d=case["d"], n_note=N_NOTE, n_code=N_CODE, k=K, d_hidden=HIDDEN, dropout=0.0, lambda_aux=LAMBDA)
    optimizer = adamw(LR, weight_decay=DECAY, decays=lambda path: path in DECAYED)
    feed, shapes = Feed(packed, resident=False), plan(packed, groups, BATCH)

    def loss(params, data, key, *, max_segment):
        return selector_loss(params, assemble(*data), key, config=config, max_segment=max_segment, pos_weight=1.0)

    step, params, key = make_step(loss, optimizer), jax.tree.map(jnp.asarray, start(case)), jax.random.key(0)

    def run():
        state, losses, waiting = new_state(params, optimizer), [], []
        for batch, shape in feed.batches(groups, shapes):
            state, out = step(state, key, ({}, batch), max_segment=shape.segments)
            waiting.append(out["loss"])
            if len(waiting) == FETCH or len(losses) + len(waiting) == len(groups):  # as `fit` does
                losses, waiting = losses + jax.device_get(waiting), []
        return np.asarray(losses)

    return run


def _torch(case: dict, kind: str):
    import sys

    import torch

    sys.path.insert(0, __file__.rsplit("/", 1)[0])
    from torch_selector import Natural, Packed, auxiliary

    torch.set_num_threads(2)
    packed, groups = cohort(case)
    make = Packed if kind == "packed" else Natural
    t = torch.from_numpy

    def batches():
        """Assembled anew in each run, as ours are."""
        for g in groups:
            label, out = t(packed.label[g].astype(np.float32)), {}
            for m in ("note", "code"):
                x, off = getattr(packed, f"x_{m}"), getattr(packed, f"off_{m}")
                parts = [x[off[i]: off[i + 1]] for i in g]
                if kind == "packed":
                    out |= {f"x_{m}": t(np.concatenate(parts)), f"mean_{m}": t(getattr(packed, f"mean_{m}")[g]),
                            f"off_{m}": t(np.concatenate([[0], np.cumsum([len(p) for p in parts])]))}
                else:
                    padded = torch.nn.utils.rnn.pad_sequence([t(p) for p in parts], batch_first=True)
                    mask = torch.arange(padded.shape[1])[None] < torch.tensor([len(p) for p in parts])[:, None]
                    out[m] = (padded, mask)
            yield label, out

    def run():
        model = make(case["d"], N_NOTE, N_CODE, K, HIDDEN, 0.0)
        model.load(start_params)
        decayed, plain = [], []
        for name, p in model.named_parameters():
            weight = name.endswith(("w1", "w2", "up.weight", "down.weight", "head.weight"))
            (decayed if weight else plain).append(p)
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}], lr=LR,
                                      fused=kind == "packed")
        losses = []
        for label, data in batches():
            logit = model(data) if kind == "packed" else model({m: v[0] for m, v in data.items()}, {m: v[1] for m, v in data.items()})
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, label) + LAMBDA * auxiliary(model.query)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return np.asarray(losses)

    start_params = start(case)
    return run


CONTENDERS = {"evigen": evigen, "torch packed": lambda c: _torch(c, "packed"), "torch natural": lambda c: _torch(c, "natural")}
