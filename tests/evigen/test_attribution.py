"""Integrated Gradients against a plain float64 reference, and its completeness."""
import functools

import jax
import numpy as np
import pytest
from ig_reference import make_batch, make_params, reference, select

from evigen_jax import retriever
from evigen_jax.attribution import Quadrature, _integrate, attribute
from evigen_jax.quadrature import rule
from evigen_jax.retriever import EviGenConfig

CONFIGS = {
    "paper": EviGenConfig(16, 3, 2, 4, 12),
    "options": EviGenConfig(64, 2, 2, 3, 32, aggregate="sum", temperature=0.05),
    "no gating": EviGenConfig(16, 2, 2, 4, 12, gating=False),
    "notes only": EviGenConfig(16, 3, 0, 4, 12),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("state", ["init", "trained"])
def test_agrees_with_float64_reference(name, state):
    config = CONFIGS[name]
    params, batch = make_params(config, state), make_batch(config.d)
    out = select(params, batch, config)
    for p, got in enumerate(attribute(params, out, batch, config, quadrature=Quadrature(nodes=64))):
        ig, end, base = reference(params, out, batch, config, p)
        assert {(c.modality, c.row) for c in got.chunks} == set(ig)
        assert got.value == pytest.approx(end, abs=2e-5) and got.base == pytest.approx(base, abs=2e-5)
        assert max((abs(c.attribution - ig[c.modality, c.row]) for c in got.chunks), default=0) < 1e-4
        assert got.converged and got.gap <= 1e-4, (p, got.nodes, got.gap)


def test_takes_what_the_retriever_returns():
    config = EviGenConfig(16, 3, 2, 4, 12, summary_ln=True)
    params, batch = make_params(config, "trained"), make_batch(16)
    out = jax.jit(functools.partial(retriever.apply, config=config, max_segment=(8, 8)))(params, batch)
    for p, got in enumerate(attribute(params, out, batch, config, quadrature=Quadrature(nodes=64))):
        ig, end, _ = reference(params, out, batch, config, p)
        assert got.value == pytest.approx(float(out["logit"][p]), abs=2e-5) == pytest.approx(end, abs=2e-5)
        assert all(abs(c.attribution - ig[c.modality, c.row]) < 1e-4 for c in got.chunks) and len(got.chunks) == len(ig)
        assert got.active == tuple(np.flatnonzero(np.asarray(out["gate"][p]) > 0.5))


def test_probability_target():
    config = CONFIGS["paper"]
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    for p, got in enumerate(attribute(params, out, batch, config, target="prob", quadrature=Quadrature(nodes=64))):
        ig, end, base = reference(params, out, batch, config, p, target="prob")
        assert got.value == pytest.approx(end, abs=1e-5) and got.base == pytest.approx(base, abs=1e-5)
        assert got.total == pytest.approx(end - base, abs=2e-5) and got.base == pytest.approx(1 / (1 + np.exp(-got.base_logit)))
        assert all(abs(c.attribution - ig[c.modality, c.row]) < 1e-4 for c in got.chunks)


@pytest.mark.parametrize("d", [16, 64, 1024])
def test_complete(d):
    config = EviGenConfig(d, 2, 2, 4, 64)
    batch = make_batch(d)
    for state in ("init", "trained"):
        params = make_params(config, state)
        for got in attribute(params, select(params, batch, config), batch, config, quadrature=Quadrature(nodes=32 if d == 1024 else 64)):
            assert got.converged and got.gap <= 1e-4
            assert got.total == pytest.approx(got.value - got.base, abs=1e-4 * max(abs(got.value - got.base), 0.1) + 1e-9)


def test_plain_rules_are_not_complete_where_graded_is():
    """The reason for the graded rule: the released 50-node trapezoid misses by a large part of the change."""
    config = EviGenConfig(16, 2, 2, 4, 64)
    params, batch = make_params(config, "init"), make_batch(16)
    out = select(params, batch, config)
    got = {name: attribute(params, out, batch, config, quadrature=Quadrature(name, 50, 50)) for name in ("trapezoid", "gauss_legendre", "graded")}
    worst = {name: max(a.gap for a in found) for name, found in got.items()}
    assert worst["graded"] < 1e-4 < 0.05 < worst["trapezoid"] and worst["graded"] < worst["gauss_legendre"]
    assert not any(a.converged for a in got["trapezoid"]) and all(a.nodes == 50 for a in got["trapezoid"])


def test_doubles_only_where_needed():
    config = CONFIGS["paper"]
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    gaps = [a.gap for a in attribute(params, out, batch, config, quadrature=Quadrature(nodes=32, max_nodes=32))]
    tolerance = sorted(gaps)[2]
    got = attribute(params, out, batch, config, quadrature=Quadrature(nodes=32, max_nodes=64, tolerance=tolerance))
    assert [a.nodes for a in got] == [32 if gap <= tolerance else 64 for gap in gaps] and {a.nodes for a in got} == {32, 64}
    assert all(a.converged == (a.gap <= tolerance) for a in got)


def test_chunked_equals_unchunked():
    config = CONFIGS["paper"]
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    whole = attribute(params, out, batch, config, quadrature=Quadrature(nodes=64))
    for a, b in zip(whole, attribute(params, out, batch, config, quadrature=Quadrature(nodes=64), ig_batch=4)):
        assert a.nodes == b.nodes and [c.row for c in a.chunks] == [c.row for c in b.chunks]
        np.testing.assert_allclose([c.attribution for c in a.chunks], [c.attribution for c in b.chunks], atol=2e-6)
    with pytest.raises(ValueError, match="ig_batch"):
        attribute(params, out, batch, config, ig_batch=0)


def test_shared_chunk_is_one_chunk_and_closed_gates_give_nothing():
    config = CONFIGS["no gating"]
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    got = attribute(params, out, batch, config, quadrature=Quadrature(nodes=64))[1]  # 3 notes, 4 slots a query
    notes = [c for c in got.chunks if c.modality == "note"]
    assert len(notes) == 3 and all(c.queries == (0, 1) for c in notes)
    for c in notes:
        assert c.similarity == pytest.approx(out["scores"][1][:2][out["rows"][1][:2] == c.row].max())
    out["gate"][:, 1] = 0
    out["logit"] = np.array([reference(params, out, batch, config, p, nodes=1)[1] for p in range(5)], np.float32)
    for p, got in enumerate(attribute(params, out, batch, config, quadrature=Quadrature(nodes=64))):
        assert all(1 not in c.queries for c in got.chunks) and 1 not in got.active
        ig = reference(params, out, batch, config, p)[0]
        assert all(abs(c.attribution - ig[c.modality, c.row]) < 1e-4 for c in got.chunks) and len(got.chunks) == len(ig)


def test_selection_and_gates_do_not_change_on_the_path():
    """Holding them fixed is exact: the shrunk record selects the same rows."""
    config = CONFIGS["paper"]
    params, batch = make_params(config, "trained"), make_batch(16)
    out = select(params, batch, config)
    shrunk = select(params, batch | {k: batch[k] * 0.01 for k in ("x_note", "x_code", "mean_note", "mean_code")}, config)
    np.testing.assert_array_equal(out["gate"], shrunk["gate"])
    np.testing.assert_array_equal(out["rows"], shrunk["rows"])


def test_padding_patients_and_wrong_head():
    config = CONFIGS["paper"]
    params, batch = make_params(config, "trained"), make_batch(16)
    batch["real"] = batch["real"].at[2].set(False)
    out = select(params, batch, config)
    quadrature = Quadrature(nodes=64)
    assert [a is None for a in attribute(params, out, batch, config, quadrature=quadrature, ig_batch=4)] == [False, False, True, False, False]
    with pytest.raises(ValueError, match="the path ends at logit"):
        attribute(params, out | {"logit": out["logit"] + 0.5}, batch, config, quadrature=quadrature, ig_batch=4)
    with pytest.raises(ValueError, match="target"):
        attribute(params, out, batch, config, target="odds")


@pytest.mark.parametrize("name", ["graded", "gauss_legendre", "trapezoid"])
def test_rules(name):
    for n in (32, 50, 256):
        node, weight = rule(name, n)
        assert len(node) == n and (np.diff(node) > 0).all() and node[0] >= 0 and node[-1] <= 1
        assert weight.sum() == pytest.approx(1, abs=1e-6)
        assert (weight * node).sum() == pytest.approx(1 / 2, abs=1e-9)
        assert (weight * node**2).sum() == pytest.approx(1 / 3, abs=2e-4 if name == "trapezoid" else 1e-9)
    with pytest.raises(ValueError):
        rule("simpson", 8)
    with pytest.raises(ValueError):
        Quadrature(nodes=64, max_nodes=32)


def test_parameters_are_arguments_compiled_once():
    config = CONFIGS["paper"]
    batch = make_batch(16)
    for seed in (3, 4):
        params = make_params(config, "trained", seed)
        attribute(params, select(params, batch, config), batch, config, quadrature=Quadrature(nodes=64))
        size = _integrate._cache_size() if seed == 3 else size
    assert _integrate._cache_size() == size
