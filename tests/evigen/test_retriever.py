"""The evidence selector (3.2, A.1): gates, retrieval, experts and aggregation, each by its property."""
import dataclasses
import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType
from selector_cases import CODES, MAX_SEGMENT, NOTES, D, batch, means, patients_of

from core_jax.params import ParamSpec
from evigen_jax import losses, retriever
from evigen_jax.packed import join_shards
from evigen_jax.retriever import EvidenceSelector, EviGenConfig, straight_through_gate

CONFIG = EviGenConfig(d=D, n_note=3, n_code=2, k=4, d_hidden=8)
N = CONFIG.n


@partial(jax.jit, static_argnames=("config", "max_segment"))
def run(params, b, config=CONFIG, max_segment=MAX_SEGMENT):
    return retriever.apply(params, b, config=config, max_segment=max_segment)


@partial(jax.jit, static_argnames=("config", "max_segment"))
def learn(params, b, config=CONFIG, max_segment=MAX_SEGMENT):
    """(cross-entropy, outputs), gradients."""
    def loss(params):
        out = retriever.apply(params, b, config=config, max_segment=max_segment)
        return losses.bce(out["logit"], b["label"], b["real"]), out
    return jax.value_and_grad(loss, has_aux=True)(params)


def random_params(config, seed=0):
    """Every parameter off its initial value, drawn by NumPy (nothing to compile)."""
    rng = np.random.default_rng(seed)

    def draw(s):
        scale, shift = (s.init[1], 0.0) if isinstance(s.init, tuple) else (0.1, float(s.init == "ones"))
        return (shift + scale * rng.standard_normal(s.shape)).astype(np.float32)

    return jax.tree.map(draw, retriever.spec(config), is_leaf=lambda s: isinstance(s, ParamSpec))


@pytest.fixture(scope="module")
def params():
    """Some gates are open, some closed."""
    return random_params(CONFIG) | {"eta": np.array([-0.1, 0.1, 0.0, -0.2], np.float32)}


@pytest.fixture(scope="module")
def b():
    return batch()


def host(out):
    return {k: np.asarray(v) for k, v in out.items()}


# ---- gates -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_straight_through_value_is_the_gate_bit_for_bit(dtype):
    rng = np.random.default_rng(0)
    cosine = jnp.asarray(rng.uniform(-1, 1, (5000, 7)), dtype)
    eta = jnp.asarray(rng.normal(0, 0.5, 7), dtype)
    gate, score = jax.jit(straight_through_gate)(cosine, eta)
    assert gate.dtype == dtype and score.dtype == dtype
    np.testing.assert_array_equal(np.asarray(gate), np.asarray(cosine) > np.asarray(eta)[None])


def test_straight_through_gradient_is_that_of_the_score():
    rng = np.random.default_rng(1)
    cosine, eta = rng.uniform(-1, 1, (50, 7)).astype(np.float32), rng.normal(0, 0.5, 7).astype(np.float32)
    w = rng.standard_normal((50, 7)).astype(np.float32)
    got = jax.jit(jax.grad(lambda c, e: (straight_through_gate(c, e)[0] * w).sum(), argnums=(0, 1)))(cosine, eta)
    slope = lambda v: (s := 1 / (1 + np.exp(-v.astype(np.float64)))) * (1 - s)  # noqa: E731
    np.testing.assert_allclose(got[0], w * slope(cosine), rtol=1e-5)
    np.testing.assert_allclose(got[1], -(w * slope(eta)[None]).sum(0), rtol=1e-4, atol=1e-5)


def test_thresholds_out_of_reach():
    """eta >= 1 never fires, even where rounding puts a cosine above 1; eta < -1 always does; equality does not fire."""
    above = np.nextafter(np.float32(1), np.float32(2))
    cosine = np.array([[above] * 4, [-above] * 4, [0.25] * 4], np.float32)
    eta = np.array([1.0, 3.0, np.nextafter(np.float32(-1), np.float32(-2)), 0.25], np.float32)
    gate, _ = straight_through_gate(jnp.asarray(cosine), jnp.asarray(eta))
    np.testing.assert_array_equal(gate, [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 1, 0]])


def test_sigmoids_that_round_together_do_not_tie():
    """Sigmoid's slope is under 1/4: neighbouring float32 arguments share a value, the gate still tells them apart."""
    eta = np.float32(0.9)
    cosine = np.nextafter(eta, np.float32(1))
    gate, score = straight_through_gate(jnp.array([[cosine]]), jnp.array([eta]))
    assert gate[0, 0] == 1.0 and score[0, 0] == 0.0


def test_gates_follow_their_definition(params, b):
    out = host(run(params, b))
    for p, n in np.ndindex(len(NOTES), N):
        m = "note" if n < CONFIG.n_note else "code"
        s, q = b[f"mean_{m}"][p].astype(np.float64), params["query"][n].astype(np.float64)
        cosine = s @ q / (np.linalg.norm(s) * np.linalg.norm(q)) if s.any() else 0.0
        assert abs(out["cosine"][p, n] - cosine) < 1e-6
        present = (NOTES if m == "note" else CODES)[p] > 0
        assert out["gate"][p, n] == (1.0 if n == 0 else float(present and cosine > params["eta"][n - 1]))
    assert 0 < out["gate"][:, 1:].mean() < 1


def test_query_zero_is_always_on(params, b):
    """Trap 4: no threshold of its own, and the mean number of active queries is the sum of the activation rates."""
    out = host(run(params | {"eta": np.full(N - 1, 5.0, np.float32)}, b))
    np.testing.assert_array_equal(out["gate"], np.eye(N)[[0] * len(NOTES)])
    gate = host(run(params, b))["gate"]
    assert params["eta"].shape == (N - 1,)
    np.testing.assert_allclose(gate.sum(1).mean(), gate.mean(0).sum())


def test_closed_gate_trains_its_threshold_and_nothing_of_its_expert(params, b):
    """Trap 3: dL/deta_i = - sigmoid'(eta_i) <dL/dh, h_i> / n, although g_i = 0."""
    closed = 2
    p = params | {"eta": np.array([-0.1, 2.0, 0.0, -0.2], np.float32)}
    (_, out), grads = learn(p, b)
    out = host(out)
    assert not out["gate"][:, closed].any()
    for name, g in grads["expert"].items():
        assert not np.asarray(g)[closed].any(), name
        assert np.asarray(g)[0].any(), name

    def tail(pooled):
        v = retriever.layer_norm(pooled, p["final_ln"]["scale"][None], p["final_ln"]["bias"][None], CONFIG.ln_eps)
        return losses.bce(jnp.matmul(v, p["head"]["w"]) + p["head"]["b"], b["label"], b["real"])

    dh = np.asarray(jax.jit(jax.grad(tail))(out["pooled"]), np.float64)
    n = out["gate"].sum(1)
    s = 1 / (1 + np.exp(-p["eta"].astype(np.float64)))
    present = np.array(NOTES) > 0
    for i in range(1, N):
        there = present if i < CONFIG.n_note else np.array(CODES) > 0
        want = -(s * (1 - s))[i - 1] * ((dh * out["expert"][:, i]).sum(1) / n)[there].sum()
        np.testing.assert_allclose(grads["eta"][i - 1], want, rtol=1e-3, atol=1e-7)
        assert abs(want) > 1e-5


def test_absent_modality(params, b):
    """Trap 5: closed gates without gradient, q0 on with an empty context, no item, finite everywhere."""
    low = params | {"eta": np.full(N - 1, -5.0, np.float32)}
    (loss, out), grads = learn(low, b)
    out = host(out)
    no_notes, no_codes = NOTES.index(0), CODES.index(0)
    np.testing.assert_array_equal(out["gate"][no_notes], [1, 0, 0, 1, 1])
    np.testing.assert_array_equal(out["gate"][no_codes], [1, 1, 1, 0, 0])
    assert not out["context"][no_notes, :3].any() and not out["valid"][no_notes, :3].any()
    assert (out["rows"][no_notes, :3] == -1).all() and not out["alpha"][no_notes, :3].any()
    assert np.isfinite(out["logit"]).all() and np.isfinite(loss)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
    only, _ = patients_of(b, [no_codes], room=5)
    _, alone = learn(low, only)
    assert not np.asarray(alone["eta"])[2:].any() and np.asarray(alone["eta"])[:2].all()
    assert not np.asarray(alone["query"])[3:].any() and not np.asarray(alone["expert"]["w1"])[3:].any()


def test_absent_modality_stands_debug_nans(params, b):
    with jax.debug_nans(True):
        b = {k: np.nan_to_num(v) if k.startswith("x_") else v for k, v in b.items()}  # unpoison the padding
        (loss, out), grads = learn(params, b)
        assert np.isfinite(jax.block_until_ready((loss, out["logit"], grads))[0])


@pytest.mark.parametrize("present", [False, True])
def test_absent_is_not_the_same_as_a_mean_of_zero(params, b, present):
    """Two opposite rows: the modality is there, its mean is exactly 0, its cosine 0, and the sign of eta decides."""
    x, off = b["x_code"].copy(), np.array([0, 2, 2, 2, 2, 2, 2] if present else [0] * 7, np.int32)
    x[1] = -x[0]
    changed = b | {"x_code": x, "off_code": off, "mean_code": means(x, off)}
    eta = np.array([0.0, 0.0, -0.01, 0.01], np.float32)
    out = host(run(params | {"eta": eta}, changed))
    assert not out["cosine"][0, 3:].any()
    np.testing.assert_array_equal(out["gate"][0, 3:], [float(present), 0.0])


def test_without_gating_every_present_query_counts(params, b):
    """The ablation arms: all gates 1 but those of absent modalities; thresholds have no effect; lambda kept, or 0."""
    config = dataclasses.replace(CONFIG, gating=False)
    (_, out), grads = learn(params, b, config=config)
    want = np.ones((len(NOTES), N))
    want[NOTES.index(0), 1:3] = 0
    want[CODES.index(0), 3:] = 0
    np.testing.assert_array_equal(out["gate"], want)
    assert not np.asarray(grads["eta"]).any()
    for weight in (0.01, 0.0):
        total, terms = losses.total(params, out, b, config=dataclasses.replace(config, lambda_aux=weight))
        np.testing.assert_allclose(total - terms["ce"], weight * (terms["diversity"] + terms["simplicity"]), atol=1e-6)


# ---- retrieval ---------------------------------------------------------------------------------------------------

def test_top_k_by_dot_is_top_k_by_cosine(params, b):
    out = host(run(params, b))
    for p, n in np.ndindex(len(NOTES), N):
        m = "note" if n < CONFIG.n_note else "code"
        off, q = b[f"off_{m}"], params["query"][n].astype(np.float64)
        x = b[f"x_{m}"][off[p]: off[p + 1]].astype(np.float64)
        cosine = x @ q / np.linalg.norm(q) / np.linalg.norm(x, axis=1)
        best = np.argsort(-cosine, kind="stable")[: CONFIG.k]
        np.testing.assert_array_equal(out["rows"][p, n][out["valid"][p, n]], off[p] + best)
        np.testing.assert_allclose(out["scores"][p, n][: len(best)], cosine[best], atol=1e-6)
    np.testing.assert_allclose(out["alpha"].sum(-1), out["valid"].any(-1), atol=1e-6)
    assert not out["alpha"][~out["valid"]].any()


def test_fewer_rows_than_k_is_a_smaller_k(params):
    small = batch((2,) * 6, (2,) * 6, seed=4)
    two = run(params, small, config=dataclasses.replace(CONFIG, k=2))
    np.testing.assert_allclose(run(params, small)["logit"], two["logit"], atol=1e-6)


def test_order_of_rows_and_patients_padding_and_bucket_do_not_matter(params, b):
    """Traps 8 and 9. Permuted rows give permuted row numbers and the same logits."""
    want = host(run(params, b))
    order = [4, 0, 5, 2, 1, 3]
    moved, rows = patients_of(b, order, shuffle=5)
    got = host(run(params, moved))
    np.testing.assert_allclose(got["logit"], want["logit"][order], atol=1e-6)
    np.testing.assert_array_equal(got["gate"], want["gate"][order])
    for m, mine in (("note", slice(0, 3)), ("code", slice(3, 5))):
        there = np.where(got["valid"][:, mine], rows[m][np.maximum(got["rows"][:, mine], 0)], -1)
        np.testing.assert_array_equal(there, want["rows"][order][:, mine])
    bigger, _ = patients_of(b, [2, 5], room=7, rungs=(96, 64))
    other = host(run(params, bigger, max_segment=(64, 48)))
    np.testing.assert_allclose(other["logit"][:2], want["logit"][[2, 5]], atol=1e-6)
    assert np.isfinite(other["logit"]).all()


def test_padding_patients_do_not_train(params, b):
    """Whatever stands behind `real` False: nothing, or patients with records and labels."""
    padded, _ = patients_of(b, [2, 5, 0, 3], room=2)
    others, _ = patients_of(b, [2, 5, 0, 3, 4, 1])
    others["real"] = padded["real"]
    (l1, _), g1 = learn(params, padded)
    (l2, _), g2 = learn(params, others)
    (l3, _), _ = learn(params, others | {"real": np.ones(6, bool)})
    np.testing.assert_allclose(l1, l2, rtol=1e-6)
    assert abs(l3 - l1) > 1e-3
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), g1, g2)


def test_length_of_a_query_does_not_matter(params, b):
    """Trap 10: logits stay, q . dL/dq = 0, and the gradient goes as 1 / |q|."""
    scale = np.array([0.1, 3.0, 1.0, 7.0, 0.5], np.float32)[:, None]
    (_, one), g1 = learn(params, b)
    (_, other), g2 = learn(params | {"query": scale * params["query"]}, b)
    np.testing.assert_allclose(one["logit"], other["logit"], atol=1e-5)
    np.testing.assert_array_equal(one["gate"], other["gate"])
    np.testing.assert_allclose(g1["query"], scale * np.asarray(g2["query"]), atol=1e-5)
    q, g = params["query"].astype(np.float64), np.asarray(g1["query"], np.float64)
    assert np.abs((q * g).sum(1)).max() < 1e-6 < np.abs(g).sum(1).min()


def test_summary_scale_does_not_matter(params, b):
    """Trap 16: X -> a X leaves the gates."""
    scaled = b | {m: np.float32(37.0) * b[m] for m in ("mean_note", "mean_code")}
    a, c = host(run(params, b)), host(run(params, scaled))
    np.testing.assert_array_equal(a["gate"], c["gate"])
    np.testing.assert_allclose(a["cosine"], c["cosine"], atol=1e-6)


def test_same_bits_every_time(params, b):
    first, second = learn(params, b), learn(params, b)
    assert len(jax.tree.leaves(first)) == len(jax.tree.leaves(second)) > 1
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_a_batch_of_the_same_shapes_compiles_nothing(params):
    traces = []

    @partial(jax.jit, static_argnames="max_segment")
    def counted(params, b, max_segment):
        traces.append(max_segment)
        return retriever.apply(params, b, config=CONFIG, max_segment=max_segment)["logit"]

    for seed, notes in ((0, NOTES), (1, NOTES[::-1]), (2, (1,) * 6)):
        counted(params, batch(notes, CODES, seed=seed), MAX_SEGMENT)
    assert len(traces) == 1


# ---- parameters, experts, aggregation ------------------------------------------------------------------------------

@pytest.mark.parametrize("n_note, n_code, d, h", [(4, 4, 32, 24), (1, 0, 8, 8), (6, 6, 16, 5)])
def test_number_of_parameters(n_note, n_code, d, h):
    config = EviGenConfig(d=d, n_note=n_note, n_code=n_code, d_hidden=h)
    n = n_note + n_code
    want = n * (2 * d * h + h + d + 2 * d) + 2 * d + d + 1 + n * d + n - 1
    abstract = jax.eval_shape(partial(retriever.init, config), jax.random.key(0))
    assert retriever.count(config) == sum(a.size for a in jax.tree.leaves(abstract)) == want
    assert all(a.dtype == jnp.float32 for a in jax.tree.leaves(abstract))
    paper = EviGenConfig(d=4096, n_note=4, n_code=4)
    assert retriever.count(paper) == 8 * (2 * 4096 * 1024 + 1024 + 3 * 4096) + 3 * 4096 + 1 + 8 * 4096 + 7


def test_initial_queries_have_length_one_and_half_the_gates_fire():
    config = EviGenConfig(d=256, n_note=20, n_code=20, d_hidden=1)
    def some(key, how):
        return [retriever.init(config, key, query_init=how)[name] for name in ("query", "eta")]

    draw = jax.jit(some, static_argnums=1)
    query, eta = (np.asarray(a) for a in draw(jax.random.key(3), "normal"))
    norm = np.linalg.norm(query, axis=1)
    assert abs(norm.mean() - 1) < 0.05 and norm.std() < 0.1 and not eta.any()
    rng = np.random.default_rng(0)
    summary = rng.standard_normal((40, 256))
    cosine = summary @ query[1:].T / np.linalg.norm(summary, axis=1, keepdims=True) / norm[1:]
    gate, _ = straight_through_gate(jnp.asarray(cosine, jnp.float32), eta)
    assert 0.42 < float(gate.mean()) < 0.58
    q = np.asarray(draw(jax.random.key(3), "orthogonal")[0])
    np.testing.assert_allclose(q @ q.T, np.eye(40), atol=1e-5)
    with pytest.raises(ValueError, match="40 queries in 8"):
        retriever.init(dataclasses.replace(config, d=8), jax.random.key(0), query_init="orthogonal")
    with pytest.raises(ValueError, match="'kmeans'"):
        retriever.init(config, jax.random.key(0), query_init="kmeans")


def test_queries_from_rows_find_the_clusters():
    rng = np.random.default_rng(0)
    centre = np.linalg.qr(rng.standard_normal((32, 5)))[0].T
    x = centre[np.arange(200) % 5] + 0.05 * rng.standard_normal((200, 32))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    find = jax.jit(partial(retriever.init_queries_from, n=5))
    q = np.asarray(find(x, jax.random.key(1)))
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, atol=1e-5)
    match = q @ centre.T
    assert sorted(match.argmax(1)) == [0, 1, 2, 3, 4] and match.max(1).min() > 0.98
    with pytest.raises(ValueError, match="1 to 200"):
        retriever.init_queries_from(x, jax.random.key(0), n=201)


def test_expert_is_the_paper_s(params, b):
    """float64: h = c + W2 gelu(W1 LN(c) + b1) + b2 with exact gelu and eps 1e-5; also where c is 0."""
    from scipy.special import erf

    out = host(run(params, b))
    e = {k: v.astype(np.float64) for k, v in params["expert"].items()}
    for p, n in np.ndindex(len(NOTES), N):
        c = out["context"][p, n].astype(np.float64)
        v = (c - c.mean()) / np.sqrt(c.var() + 1e-5) * e["ln_scale"][n] + e["ln_bias"][n]
        v = v @ e["w1"][n] + e["b1"][n]
        v = v * 0.5 * (1 + erf(v / np.sqrt(2)))
        np.testing.assert_allclose(out["expert"][p, n], c + v @ e["w2"][n] + e["b2"][n], atol=2e-5)


def test_dropout_is_in_two_places_and_only_in_training(params, b):
    config = dataclasses.replace(CONFIG, dropout=0.5)
    fixed = partial(retriever.apply, config=config, max_segment=MAX_SEGMENT)
    train = jax.jit(lambda p, rng: fixed(p, b, rng=rng, train=True)["expert"])
    calm = host(run(params, b))
    a, again, other = (np.asarray(train(params, jax.random.key(s))) for s in (0, 0, 1))
    np.testing.assert_array_equal(a, again)
    assert (a != other).any() and (a != calm["expert"]).any()
    np.testing.assert_array_equal(calm["expert"], run(params, b)["expert"])
    for on in (False, True):
        traced = jax.make_jaxpr(partial(fixed, train=on))(params, b, rng=jax.random.key(0))
        assert ("random_bits" in str(traced)) == on  # a key alone does not switch it on
    expert = jax.tree.map(np.zeros_like, params["expert"])
    biased = params | {"expert": expert | {"b2": np.ones_like(expert["b2"])}}
    outer = np.asarray(train(biased, jax.random.key(2))) - calm["context"]
    assert 0.4 < (np.abs(outer) < 1e-6).mean() < 0.6 and np.abs(outer - 2)[np.abs(outer) > 1e-6].max() < 1e-5
    one = np.zeros_like(expert["w2"])
    one[:, :, 0] = 1.0  # the sum of the hidden layer in coordinate 0: its mask shows inside the outer one
    inner = expert | {"b1": np.ones_like(expert["b1"]), "w2": one}
    seen = np.asarray(train(params | {"expert": inner}, jax.random.key(3)))[..., 0] - calm["context"][..., 0]
    hidden = float(jax.nn.gelu(1.0, approximate=False))
    units = np.round(seen / (4 * hidden), 4)
    assert len(np.unique(units)) > 3 and units.max() <= CONFIG.d_hidden
    np.testing.assert_allclose(units, np.round(units), atol=1e-3)
    with pytest.raises(ValueError, match="needs rng"):
        retriever.apply(params, b, config=config, max_segment=MAX_SEGMENT, train=True)


def test_mean_or_sum_of_active_experts_hardly_matters(params, b):
    """Trap 15: the last LayerNorm takes the scale away."""
    mean, total = host(run(params, b)), host(run(params, b, config=dataclasses.replace(CONFIG, aggregate="sum")))
    n = mean["gate"].sum(1, keepdims=True)
    np.testing.assert_allclose(total["pooled"], mean["pooled"] * n, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean["pooled"], (mean["gate"][..., None] * mean["expert"]).sum(1) / n, atol=1e-6)
    assert 0 < np.abs(mean["logit"] - total["logit"]).max() < 1e-3


def test_count_of_active_experts_carries_no_gradient():
    """Trap 3, where the last LayerNorm cannot hide it: d<w, mean>/dg_i = <w, h_i> / n, gate i open or not."""
    rng = np.random.default_rng(0)
    h, w = rng.standard_normal((4, 3, 5)).astype(np.float32), rng.standard_normal((4, 5)).astype(np.float32)
    gate = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]], np.float32)
    dg = jax.jit(jax.grad(lambda g: (retriever.mean_of_active(h, g) * w).sum()))(gate)
    np.testing.assert_allclose(dg, np.einsum("pnd,pd->pn", h, w) / np.maximum(gate.sum(1, keepdims=True), 1), atol=1e-5)


def test_one_query_and_no_codes(b):
    """N = 1, n_code = 0: no threshold at all, codes are not looked at."""
    config = EviGenConfig(d=D, n_note=1, n_code=0, d_hidden=4)
    p = random_params(config)
    assert p["eta"].shape == (0,)
    bare = {k: v for k, v in b.items() if not k.endswith("_code")}
    (loss, out), grads = learn(p, bare, config=config)
    assert out["gate"].shape == (6, 1) and np.asarray(out["gate"]).all() and np.isfinite(out["logit"]).all()
    total, terms = losses.total(p, out, b, config=config)
    assert float(terms["simplicity"]) == 0.0 and np.isfinite(total)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_summary_layer_norm(params, b):
    """Trap 16's option: one LayerNorm a modality before the cosine; an absent modality stays absent."""
    config = dataclasses.replace(CONFIG, summary_ln=True)
    rng = np.random.default_rng(2)
    ln = {"scale": rng.uniform(0.5, 2, (2, D)).astype(np.float32), "bias": rng.normal(0, 1, (2, D)).astype(np.float32)}
    assert retriever.count(config) == retriever.count(CONFIG) + 4 * D
    out = host(run(params | {"summary_ln": ln}, b, config=config))
    p = 4
    s = b["mean_code"][p].astype(np.float64)
    s = (s - s.mean()) / np.sqrt(s.var() + 1e-5) * ln["scale"][1] + ln["bias"][1]
    q = params["query"][4].astype(np.float64)
    np.testing.assert_allclose(out["cosine"][p, 4], s @ q / np.linalg.norm(s) / np.linalg.norm(q), atol=1e-5)
    gone = CODES.index(0)
    assert not out["cosine"][gone, 3:].any() and not out["gate"][gone, 3:].any()


# ---- replaced pieces, the module, eight devices -------------------------------------------------------------------

def test_default_pieces_can_be_passed_by_hand(params, b):
    """A wrapped default takes the unfused road and gives the same numbers and gradients."""
    from jax_kernels.gather_pool import gather_pool
    from jax_kernels.segment_topk import segment_topk

    def loss(p, **pieces):
        out = retriever.apply(p, b, config=CONFIG, max_segment=MAX_SEGMENT, **pieces)
        return losses.bce(out["logit"], b["label"], b["real"]), out

    split = {"selector": lambda *a, **k: segment_topk(*a, **k), "pooling": lambda *a, **k: gather_pool(*a, **k),
             "gate": lambda c, e: straight_through_gate(c, e),
             "aggregator": lambda h, g: retriever.mean_of_active(h, g)}
    (l1, o1), g1 = jax.jit(jax.value_and_grad(partial(loss, **split), has_aux=True))(params)
    (l2, o2), g2 = learn(params, b)
    np.testing.assert_array_equal(o1["rows"], o2["rows"])
    np.testing.assert_allclose(o1["logit"], o2["logit"], atol=1e-6)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), g1, g2)


def test_a_replaced_gate_cannot_open_what_is_absent(params, b):
    half = partial(retriever.apply, config=CONFIG, max_segment={"note": 12, "code": 8},
                   gate=lambda c, e: (jnp.full_like(c, 0.5), c))
    out = host(jax.jit(half)(params, b))
    want = np.full((len(NOTES), N), 0.5)
    want[:, 0] = 1
    want[NOTES.index(0), 1:3] = 0
    want[CODES.index(0), 3:] = 0
    np.testing.assert_array_equal(out["gate"], want)


def test_module_holds_the_same_parameters(b):
    selector = EvidenceSelector(CONFIG, rngs=nnx.Rngs(7))
    tree = selector.params()
    abstract = jax.eval_shape(partial(retriever.init, CONFIG), jax.random.key(0))
    assert jax.tree.structure(tree) == jax.tree.structure(abstract)
    called = jax.jit(lambda m, b: m(b, max_segment=MAX_SEGMENT)["logit"])(selector, b)
    np.testing.assert_array_equal(called, run(tree, b)["logit"])


def test_sharded_over_eight_devices_equals_one(params):
    if jax.device_count() < 8:
        pytest.skip("needs eight devices")
    rng = np.random.default_rng(0)
    whole = batch(tuple(rng.integers(0, 7, 16)), tuple(rng.integers(1, 5, 16)), seed=9, rungs=(96, 64), padding=0)
    blocks = [patients_of(whole, [2 * i, 2 * i + 1], rungs=(12, 8))[0] for i in range(8)]
    many = join_shards(blocks)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    many = jax.device_put(many, place)

    def loss(p, b, mesh=None):
        out = retriever.apply(p, b, config=CONFIG, max_segment=(6, 4), mesh=mesh)
        return losses.total(p, out, b, config=CONFIG)[0], out

    (l1, o1), g1 = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, whole)
    (l8, o8), g8 = jax.jit(jax.value_and_grad(partial(loss, mesh=mesh), has_aux=True))(params, many)
    np.testing.assert_allclose(l1, l8, rtol=1e-5)
    for name in ("logit", "gate", "alpha", "context"):
        np.testing.assert_allclose(o1[name], o8[name], atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), g1, g8)
    assert len(o8["context"].sharding.device_set) == 8
    with pytest.raises(ValueError, match="replaced selector"):
        retriever.apply(params, many, config=CONFIG, max_segment=(6, 4), mesh=mesh, selector=lambda *a, **k: None)


@pytest.mark.parametrize("field, value", [
    ("d", 0), ("n_note", 0), ("n_code", -1), ("k", 0), ("d_hidden", 0), ("dropout", 1.0), ("temperature", 0.0),
    ("ln_eps", 0.0), ("lambda_aux", -1.0), ("aggregate", "max"), ("diversity_scope", "some")])
def test_settings_are_checked(field, value):
    with pytest.raises(ValueError, match=field):
        EviGenConfig(**{"d": 4} | {field: value})


def test_every_setting_is_read():
    """A stored field that nothing reads is a defect."""
    import evigen_jax.losses as l
    text = inspect.getsource(retriever) + inspect.getsource(l)
    for field in dataclasses.fields(EviGenConfig):
        assert f"config.{field.name}" in text or f"self.{field.name}" in text, field.name
