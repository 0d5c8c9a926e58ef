from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from core_jax import train


def _params():
    return {"dense": {"w": jnp.full((3, 2), 0.5), "b": jnp.ones(2)}, "query": jnp.ones((2, 3))}


def _loss(params, batch, key, *, power=2):
    noise = 0.1 * jax.random.normal(key, batch["x"].shape)
    out = (batch["x"] + noise) @ params["dense"]["w"] + params["dense"]["b"][None]
    value = jnp.mean(jnp.abs(out - batch["y"]) ** power) + jnp.mean(params["query"] ** 2)
    return value, {"size": jnp.float32(batch["x"].shape[0])}


def _batch(n=4, seed=0):
    rng = np.random.default_rng(seed)
    return jax.device_put({"x": rng.normal(size=(n, 3)).astype(np.float32), "y": np.ones((n, 2), np.float32)})


def test_step_learns_counts_donates_and_compiles_once_per_shape():
    step = train.make_step(_loss, train.adamw(1e-2, weight_decay=0.0, decays=lambda p: False))
    state, key = train.new_state(_params(), step._optimizer), jax.random.key(0)
    first, batch = None, _batch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an unused donation is a warning
        for _ in range(30):
            old = state
            with jax.transfer_guard("disallow"):
                state, metrics = step(state, key, batch)
            first = first or float(metrics["loss"])
            assert old.params["query"].is_deleted()
    assert float(metrics["loss"]) < 0.8 * first and int(state.step) == 30
    assert set(metrics) == {"loss", "grad_norm", "size"}
    assert step.traces == 1
    state, _ = step(state, key, _batch(n=5))
    state, _ = step(state, key, _batch(), power=1)
    assert step.traces == 3
    state, _ = step(state, key, _batch(), power=2)  # the default spelled out is a new static set
    state, _ = step(state, key, _batch(seed=3), power=1)
    assert step.traces == 4


def test_noise_is_a_function_of_key_and_step_number():
    optimizer = optax.set_to_zero()
    step = train.make_step(_loss, optimizer)

    def losses(start, count):
        state = train.TrainState(_params(), optimizer.init(_params()), jnp.int32(start))
        out = []
        for _ in range(count):
            state, m = step(state, jax.random.key(1), _batch())
            out.append(float(m["loss"]))
        return out

    assert losses(0, 4)[2:] == losses(2, 2)
    assert len(set(losses(0, 4))) == 4


def test_adamw_decays_only_where_told_and_freezes_without_moments():
    tx = train.adamw(0.1, weight_decay=0.5, decays=lambda p: p == "dense.w", frozen=lambda p: p.startswith("query"))
    params = _params()
    state = tx.init(params)
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(zero, state, params)
    new = optax.apply_updates(params, updates)
    np.testing.assert_allclose(new["dense"]["w"], 0.5 * (1 - 0.1 * 0.5), rtol=1e-6)
    np.testing.assert_array_equal(new["dense"]["b"], params["dense"]["b"])
    ones = jax.tree.map(jnp.ones_like, params)
    updates, _ = tx.update(ones, state, params)
    assert not np.any(updates["query"]) and np.all(np.asarray(updates["dense"]["b"]) < 0)
    assert (2, 3) not in [x.shape for x in jax.tree.leaves(state)]


def test_adamw_follows_loshchilov_and_hutter():
    ours = train.adamw(0.05, weight_decay=0.01, decays=lambda p: True)
    params = {"w": jnp.full((3, 2), 0.5)}
    state = ours.init(params)
    w, m, v = np.full((3, 2), 0.5), np.zeros((3, 2)), np.zeros((3, 2))
    for i in range(1, 6):
        g = np.random.default_rng(i).normal(size=(3, 2))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.05 * (m / (1 - 0.9**i) / (np.sqrt(v / (1 - 0.999**i)) + 1e-8) + 0.01 * w)
        updates, state = ours.update({"w": jnp.asarray(g, jnp.float32)}, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params["w"], w, atol=5e-6)  # float32: 1 - .999 ** i cancels


def test_warmup_is_linear_from_the_first_update_then_constant():
    lr = train.warmup_constant(1e-3, 4)
    np.testing.assert_allclose([lr(i) for i in range(6)], [2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 1e-3], rtol=1e-6)
    assert float(train.warmup_constant(1e-3, 0)(0)) == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="lr 0"):
        train.warmup_constant(0.0, 4)


def test_early_stopping_is_strict_and_keeps_the_earliest_best():
    stopping = train.EarlyStopping(patience=3)
    seen = []
    for value in (0.7, 0.8, 0.8, 0.79, 0.8, 0.9):
        stopping = stopping.update(value)
        seen.append(stopping.improved)
        if stopping.stop:
            break
    assert (stopping.epoch, stopping.best_epoch, stopping.best) == (5, 2, 0.8)
    assert seen == [True, True, False, False, False]
    with pytest.raises(ValueError, match="epoch 6: .* nan"):
        stopping.update(float("nan"))


def test_log_survives_a_cut_line_and_rewinds(tmp_path):
    log = train.MetricsLog(tmp_path / "metrics.jsonl")
    assert list(log.rows()) == [] and log.rewind(lambda r: True) == []
    for i in range(4):
        log.append({"step": i})
    with open(log.path, "a") as f:
        f.write('{"step": 4, "lo')
    assert [r["step"] for r in log.rows()] == [0, 1, 2, 3]
    assert [r["step"] for r in log.rewind(lambda r: r["step"] < 2)] == [0, 1]
    log.append({"step": 2})
    assert open(log.path).read() == '{"step": 0}\n{"step": 1}\n{"step": 2}\n'
    with pytest.raises(ValueError):
        log.append({"loss": float("nan")})
    with open(log.path, "a") as f:
        f.write("{bad}\n")
    with pytest.raises(ValueError, match="metrics.jsonl:4"):
        list(log.rows())


def test_a_loss_that_is_not_finite_names_its_step():
    rows = [{"loss": jnp.float32(1), "grad_norm": jnp.float32(1)}, {"loss": jnp.float32(1), "grad_norm": jnp.float32("inf")}]
    assert train.fetch(rows[:1], 7) == [{"loss": 1.0, "grad_norm": 1.0}]
    with pytest.raises(train.TrainingStopped, match="step 8: grad_norm is inf"):
        train.fetch(rows, 7)


def test_global_norm_is_the_length_of_all_leaves_together():
    rng = np.random.default_rng(0)
    leaves = [rng.standard_normal(shape).astype(np.float32) for shape in ((), (7,), (3, 5), (2, 3, 1024))]
    exact = np.sqrt(sum(np.square(x, dtype=np.float64).sum() for x in leaves))
    assert float(jax.jit(train.global_norm)(dict(enumerate(leaves)))) == pytest.approx(exact, rel=1e-6)
    assert float(train.global_norm([jnp.full((4,), jnp.bfloat16(1e20)), jnp.float32(0)])) == np.inf  # f32 squares
    assert np.isnan(float(train.global_norm([jnp.float32(jnp.nan), jnp.ones(3)])))
