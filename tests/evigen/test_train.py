"""Training (A.1.4): decay, early stopping, collapse; a run that was killed equals one that was not, bit for bit."""
from __future__ import annotations

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from core_jax import stats
from core_jax.ckpt.state import Checkpoints
from core_jax.records import Label
from core_jax.train import TrainingStopped
from evigen_jax import batches, retriever, train
from evigen_jax.packed import PackedCohort
from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig, fit, fit_runs, load_run, predict

pytestmark = pytest.mark.usefixtures("quick_compiles")
D = 16
MODEL = EviGenConfig(d=D, n_note=2, n_code=2, k=2, d_hidden=16)
TRAIN = TrainConfig(lr=5e-3, warmup_steps=4, batch_patients=8, epochs=4, patience=4)


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cohort(patients=72, seed=0) -> tuple[PackedCohort, list[Label]]:
    """Positives have one chunk near a fixed direction; 2 to 30 note chunks each, some patients without codes."""
    rng = np.random.default_rng(seed)
    signal = _unit(rng.normal(size=D))
    label = np.arange(patients) % 2
    parts = {}
    for m, low, high in (("note", 2, 30), ("code", 0, 6)):
        n = rng.integers(low, high, patients)
        x = _unit(rng.normal(size=(n.sum(), D))).astype(np.float32)
        off = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
        if m == "note":
            for i in np.flatnonzero(label):
                x[off[i]] = _unit(signal + 0.1 * rng.normal(size=D))
        mean = np.stack([x[a:b].mean(axis=0) if b > a else np.zeros(D) for a, b in zip(off, off[1:])]).astype(np.float32)
        obs = [f"n{i}#0-9" if m == "note" else f"c{i}-10" for i in range(len(x))]
        parts |= {f"x_{m}": x, f"off_{m}": off, f"obs_{m}": obs, f"mean_{m}": mean}
    ids = [f"p{i:03d}" for i in range(patients)]
    packed = PackedCohort(patient_ids=ids, label=label.astype(np.int32), **parts)
    split = ["train"] * (patients - 32) + ["val"] * 16 + ["test"] * 16
    return packed, [Label(i, "2020-01-01T00:00:00", int(y), s) for i, y, s in zip(ids, label, split)]


@pytest.fixture(scope="module")
def data():
    return cohort()


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    train._step.cache_clear()  # compilations are counted below
    return fit(*data, MODEL, TRAIN, tmp_path_factory.mktemp("whole"), progress=False, info={"encoder_id": "none"})


def _same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def _curve(history):
    return [{k: v for k, v in row.items() if k not in train.MACHINE_FIELDS} for row in history]


def test_a_run_leaves_what_it_says(whole):
    folder = whole.out_dir
    record = json.load(open(f"{folder}/config.json"))
    assert record["model"]["d"] == D and record["train"]["lr"] == 5e-3 and record["info"] == {"encoder_id": "none"}
    assert record["patients"] == {"train": 40, "val": 16, "test": 16} and len(record["split_hash"]) == 64
    assert open(f"{folder}/curves.png", "rb").read(8) == b"\x89PNG\r\n\x1a\n"
    rows = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    assert rows == whole.history and [r["epoch"] for r in rows] == list(range(1, len(rows) + 1))
    for name in ("train_loss", "ce", "diversity", "simplicity", "grad_norm", "log_min_query_norm", "val_auc", "val_ece",
                 "val_active", "rows_per_s", "compiles"):
        assert np.isfinite([r[name] for r in rows]).all(), name
    for r in rows:
        assert r["train_loss"] == pytest.approx(r["ce"] + MODEL.lambda_aux * (r["diversity"] + r["simplicity"]), rel=1e-4)
        assert 1 <= r["val_active"] <= 4 and r["log_min_query_norm"] > np.log(1e-3)
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert whole.best_val_auc == max(r["val_auc"] for r in rows) == rows[whole.best_epoch - 1]["val_auc"]


def test_compiles_stop_once_every_planned_shape_was_seen(whole, data):
    packed, labels = data
    rows = train.split_indices(packed, labels)["train"]
    groups = [g for e in range(4) for g in train.epoch_groups(rows, 8, 0, e + 1)]
    shapes = batches.plan(packed, groups, 8)
    assert [row["compiles"] for row in whole.history] == [1] * 4 and len(set(shapes)) == 1


def test_no_step_compiles_twice_on_a_ladder_of_shapes(data, tmp_path, monkeypatch):
    packed, labels = data
    rows = train.split_indices(packed, labels)["train"]
    monkeypatch.setattr(batches, "_COMPILATION", 0)
    monkeypatch.setattr(train, "plan", functools.partial(batches.plan, most=2, slack=0.0))
    shapes = train.plan(packed, [g for e in range(4) for g in train.epoch_groups(rows, 8, 0, e + 1)], 8)
    train._step.cache_clear()
    got = fit(packed, labels, MODEL, TRAIN, tmp_path, progress=False)
    first = {s: i for i, s in reversed(list(enumerate(shapes)))}
    assert len(first) == 2
    for row in got.history:  # as many as shapes met so far, and none once both were
        assert row["compiles"] == sum(i < row["step"] for i in first.values())


@pytest.mark.parametrize("at", [9, 15])  # 5 training batches and 1 of validation an epoch: in the middle of epochs 2 and 3
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(data, whole, tmp_path, monkeypatch, at):
    class Killed(BaseException):
        pass

    real, calls = batches.Feed.host_batch, []

    def dying(*args):
        calls.append(1)
        if len(calls) == at:
            raise Killed
        return real(*args)

    with monkeypatch.context() as m:
        m.setattr(batches.Feed, "host_batch", dying)
        with pytest.raises(Killed):
            fit(*data, MODEL, TRAIN, tmp_path, progress=False, info={"encoder_id": "none"})
    with Checkpoints(tmp_path / "checkpoints" / "last", keep=1) as last:
        assert last.steps() == [at // 6]
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"epoch": 9, "cut')
    got = fit(*data, MODEL, TRAIN, tmp_path, progress=False, info={"encoder_id": "none"})
    assert _curve(got.history) == _curve(whole.history)
    assert (got.best_epoch, got.best_val_auc) == (whole.best_epoch, whole.best_val_auc)
    _same(got.best_params, whole.best_params)
    final = []
    for run in (got, whole):
        with Checkpoints(f"{run.out_dir}/checkpoints/last", keep=1) as last:
            final.append(last.restore(_state(run.best_params))[0])
    _same(*final)


def _state(params):
    from core_jax.train import adamw, new_state, warmup_constant

    tx = adamw(warmup_constant(1.0, 1), weight_decay=0.1, decays=lambda p: p in train.DECAYED)
    return jax.eval_shape(lambda: new_state(params, tx))


def test_a_finished_run_is_returned_and_another_is_not_continued(data, whole):
    again = fit(*data, MODEL, TRAIN, whole.out_dir, progress=False, info={"encoder_id": "none"})
    assert again.history == whole.history and again.best_epoch == whole.best_epoch
    _same(again.best_params, whole.best_params)
    with pytest.raises(ValueError, match=r"train.lr: got 0.001, the run there has 0.005"):
        fit(*data, MODEL, dataclasses.replace(TRAIN, lr=1e-3), whole.out_dir, progress=False, info={"encoder_id": "none"})
    with pytest.raises(ValueError, match="info.encoder_id"):
        fit(*data, MODEL, TRAIN, whole.out_dir, progress=False, info={"encoder_id": "other"})
    params, config, record = load_run(whole.out_dir)
    assert config == MODEL and record["epoch"] == whole.best_epoch
    _same(params, whole.best_params)


def test_resident_and_streamed_train_alike(data, whole, tmp_path):
    got = fit(*data, MODEL, dataclasses.replace(TRAIN, resident="device", epochs=2), tmp_path, progress=False)
    for a, b in zip(got.history, whole.history):
        assert a["val_auc"] == b["val_auc"] and a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)


def _scripted(monkeypatch, values):
    """Validation AUCs as told, whatever the model does."""
    told = iter(values)
    real = stats.auc
    monkeypatch.setattr(train.stats, "auc", lambda y, p: next(told) if len(y) == 16 else real(y, p))


def test_early_stopping_in_a_run(data, tmp_path, monkeypatch):
    config = dataclasses.replace(TRAIN, epochs=8, patience=3)
    plain = fit(*data, MODEL, dataclasses.replace(config, epochs=2, patience=2), tmp_path / "two", progress=False)
    with Checkpoints(tmp_path / "two" / "checkpoints" / "last", keep=1) as last:
        second = last.restore(_state(plain.best_params), 2)[0].params
    _scripted(monkeypatch, [0.7, 0.8, 0.8, 0.79, 0.8, 0.99, 0.99])
    got = fit(*data, MODEL, config, tmp_path / "run", progress=False)
    assert (got.epochs, got.best_epoch, got.best_val_auc, got.stopped_early) == (5, 2, 0.8, True)
    _same(got.best_params, second)


def test_only_matrices_decay_and_frozen_parts_stay(data, tmp_path):
    packed, labels = data
    start = retriever.init(MODEL, jax.random.key(7))
    start["query"] = start["query"] * 1e-5  # too short to train, but these are not trained
    kept = jax.tree.map(np.array, start)
    got = fit(packed, labels, MODEL, dataclasses.replace(TRAIN, epochs=1), tmp_path, progress=False, params=start,
              frozen=("query", "eta", "head.b"))
    _same(start, kept)  # and the caller's arrays are not donated
    np.testing.assert_array_equal(got.best_params["query"], kept["query"])
    np.testing.assert_array_equal(got.best_params["eta"], kept["eta"])
    np.testing.assert_array_equal(got.best_params["head"]["b"], kept["head"]["b"])
    assert np.any(got.best_params["head"]["w"] != kept["head"]["w"])
    names = [name for name, leaf in train._paths(kept)]
    assert {n for n in names if n in train.DECAYED} == {"expert.w1", "expert.w2", "head.w"} == train.DECAYED
    with pytest.raises(ValueError, match="no parameter 'querry'"):
        fit(packed, labels, MODEL, TRAIN, tmp_path / "x", progress=False, frozen=("querry",))
    assert not (tmp_path / "x").exists()


def test_one_class_or_contradiction_is_an_error_before_training(data, tmp_path):
    packed, labels = data
    for name in ("train", "val"):
        one = [dataclasses.replace(x, split="test") if x.split == name and x.label == 1 else x for x in labels]
        with pytest.raises(ValueError, match=f"split {name}: got .* all of class 0"):
            fit(packed, one, MODEL, TRAIN, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="split val: got no patients"):
        fit(packed, [dataclasses.replace(x, split="test") if x.split == "val" else x for x in labels], MODEL, TRAIN, tmp_path / "run")
    with pytest.raises(ValueError, match="patient p000: label 1 in the labels, 0 in the packed"):
        fit(packed, [dataclasses.replace(labels[0], label=1)] + labels[1:], MODEL, TRAIN, tmp_path / "run")
    with pytest.raises(ValueError, match="patient p071: embedded, but not"):
        fit(packed, labels[:-1], MODEL, TRAIN, tmp_path / "run")
    with pytest.raises(ValueError, match="d: got 8, expected 16"):
        fit(packed, labels, dataclasses.replace(MODEL, d=8), TRAIN, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory):
    """(folder, message) of a run whose loss is NaN in its eighth step, in the second epoch."""
    folder, noise = tmp_path_factory.mktemp("stopped"), jax.random.key(TRAIN.seed, impl="rbg")
    eighth = np.asarray(jax.random.key_data(jax.random.fold_in(noise, 7)))

    def loss(params, batch, key, **settings):
        value, terms = train.selector_loss(params, batch, key, **settings)
        return jnp.where((jax.random.key_data(key) == eighth).all(), jnp.nan, value), terms

    with pytest.raises(TrainingStopped) as stop:
        fit(*data, MODEL, TRAIN, folder, progress=False, loss=loss)
    return folder, str(stop.value)


def test_nan_stops_with_its_step_and_keeps_the_last_good_checkpoint(stopped):
    folder, message = stopped
    assert "step 8: loss is nan" in message
    with Checkpoints(folder / "checkpoints" / "last", keep=1) as last:
        assert last.steps() == [1] and last.side()["step"] == 5
    assert [json.loads(line)["epoch"] for line in open(folder / "metrics.jsonl")] == [1]
    assert not (folder / "result.json").exists()


def test_a_diverged_run_says_what_to_do_and_can_be_replaced(data, stopped, tmp_path):
    wild, calm = dataclasses.replace(TRAIN, lr=1e30, warmup_steps=0), dataclasses.replace(TRAIN, epochs=1)
    with pytest.raises(TrainingStopped) as stop:  # in the first epoch, before any checkpoint
        fit(*data, MODEL, wild, tmp_path / "early", progress=False)
    assert str(tmp_path / "early") in str(stop.value) and "lower train.lr (now 1e+30)" in str(stop.value)
    assert "--no-resume" not in str(stop.value)
    assert fit(*data, MODEL, calm, tmp_path / "early", progress=False).epochs == 1  # nothing there that was worth keeping

    folder, message = stopped
    assert "lower train.lr (now 0.005) and --no-resume, which replaces the run there" in message
    late = shutil.copytree(folder, tmp_path / "late")
    with pytest.raises(ValueError, match=r"holds another run; .* replace it \(--no-resume\)"):
        fit(*data, MODEL, calm, late, progress=False)
    assert [json.loads(line)["epoch"] for line in open(late / "metrics.jsonl")] == [1]  # it is left alone
    assert fit(*data, MODEL, calm, late, progress=False, resume=False).epochs == 1


def test_a_folder_whose_best_run_is_being_trained_anew_is_not_read(data, tmp_path):
    one = dataclasses.replace(TRAIN, epochs=1)
    with pytest.raises(ValueError, match="no trained run here"):
        load_run(tmp_path)
    fit_runs(*data, MODEL, one, tmp_path, runs=1, progress=False)
    (tmp_path / "seed_0" / "result.json").unlink()  # as --no-resume leaves it until training ends
    with pytest.raises(ValueError, match="seed_0: training anew has not ended"):
        load_run(tmp_path)


def test_vanishing_queries_stop_with_the_step(data, tmp_path):
    start = retriever.init(MODEL, jax.random.key(0))
    start["query"] = start["query"] * 1e-5
    with pytest.raises(TrainingStopped, match=r"step 1: a query's norm is .*e-0[56], below 0.0001"):
        fit(*data, MODEL, TRAIN, tmp_path, progress=False, params=start)


def test_initial_queries(data):
    packed, labels = data
    rows = train.split_indices(packed, labels)["train"]

    def queries(kind, packed=packed):
        params = train.initial_params(packed, rows, MODEL, dataclasses.replace(TRAIN, query_init=kind), jax.random.key(0))
        return np.asarray(params["query"])

    q = queries("orthogonal")
    np.testing.assert_allclose(q @ q.T, np.eye(4), atol=1e-5)
    q = queries("kmeans")
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, atol=1e-5)
    assert (q[:2] @ packed.x_note.T).mean() != pytest.approx((queries("normal")[:2] @ packed.x_note.T).mean())
    many = dataclasses.replace(MODEL, n_code=1000), dataclasses.replace(TRAIN, query_init="kmeans")
    with pytest.raises(ValueError, match="model.n_code: got 1000, expected at most [0-9]+, the code observations"):
        train.initial_params(packed, rows, *many, jax.random.key(0))
    # held-out patients have no say
    hidden = dataclasses.replace(packed, x_note=packed.x_note.copy())
    hidden.x_note[packed.off_note[rows.max() + 1]:] = 7.0
    np.testing.assert_array_equal(queries("kmeans", hidden), q)


def test_predictions_do_not_depend_on_order_or_batch_mates(data, whole):
    packed, _ = data
    everyone = predict(whole.best_params, packed, MODEL)
    assert everyone["logit"].shape == (72,) and everyone["gate"].shape == (72, 4) and (everyone["gate"][:, 0] == 1).all()
    np.testing.assert_allclose(everyone["prob"], 1 / (1 + np.exp(-everyone["logit"].astype(np.float64))), atol=1e-6)
    some = np.array([40, 3, 17])
    got = predict(whole.best_params, packed, MODEL, patients=some, batch_patients=2)
    np.testing.assert_array_equal(got["index"], some)
    np.testing.assert_array_equal(got["label"], packed.label[some])
    np.testing.assert_allclose(got["logit"], everyone["logit"][some], atol=1e-5)
    np.testing.assert_array_equal(got["gate"], everyone["gate"][some])
    with pytest.raises(ValueError, match="no patients"):
        predict(whole.best_params, packed, MODEL, patients=[])


def test_splits_follow_ids_not_rows(data):
    packed, labels = data
    splits = train.split_indices(packed, labels)
    shuffled = [labels[i] for i in np.random.default_rng(0).permutation(len(labels))]
    again = train.split_indices(packed, shuffled)
    for name in splits:
        np.testing.assert_array_equal(splits[name], again[name])
    assert train.split_hash(packed, splits) == train.split_hash(packed, {k: v[::-1] for k, v in splits.items()})
    moved = [dataclasses.replace(labels[0], split="test")] + labels[1:]
    assert train.split_hash(packed, train.split_indices(packed, moved)) != train.split_hash(packed, splits)


@pytest.mark.slow
def test_three_seeds_and_their_mean(data, tmp_path):
    config = dataclasses.replace(TRAIN, epochs=2)
    runs = fit_runs(*data, MODEL, config, tmp_path, runs=3, progress=False)
    table = json.load(open(tmp_path / "runs.json"))
    assert table == runs.summary and [r["seed"] for r in table["runs"]] == [0, 1, 2]
    aucs = [r["test_auc"] for r in table["runs"]]
    assert table["mean"]["test_auc"]["mean"] == pytest.approx(np.mean(aucs)) and table["mean"]["test_auc"]["n"] == 3
    assert len({r.history[0]["train_loss"] for r in runs.results}) == 3
    params, _, record = load_run(tmp_path)
    _same(params, runs.best.best_params)
    assert record["train"]["seed"] == runs.best.seed and (tmp_path / "curves.png").exists()


def test_progress_goes_to_stderr(data, tmp_path, capsys):
    fit(*data, MODEL, dataclasses.replace(TRAIN, epochs=1), tmp_path, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "5/5" in err and "val_auc" in err


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"epochs": 0}, {"patience": 0}, {"batch_patients": 0}, {"weight_decay": -1.0},
                                   {"pos_weight": 0.0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TrainConfig(**wrong)


# ---- shapes ---------------------------------------------------------------------------------------------------

def test_rungs_hold_and_grow_by_half_at_most():
    for n in range(1, 3000):
        size = batches.rung(n)
        assert n <= size and (size == 16 or size <= 1.5 * n)


def test_plan_covers_every_group_with_few_shapes():
    rng = np.random.default_rng(0)
    lengths = np.minimum(60_000, np.exp(rng.normal(4, 1.3, 500)).astype(int) + 1)  # ragged, a few giants
    off = np.concatenate([[0], np.cumsum(lengths)])

    class Ragged:
        off_note, off_code, x_note = off, np.zeros(501, np.int64), np.zeros((0, 4096))

    assert batches.plan(Ragged, [], 16) == []

    groups = [g for e in range(5) for g in train.epoch_groups(np.arange(500), 16, 0, e)]
    shapes = batches.plan(Ragged, groups, 16)
    assert len(set(shapes)) <= 6 and shapes == batches.plan(Ragged, groups, 16)
    for g, s in zip(groups, shapes):
        assert lengths[g].sum() <= s.rows[0] and lengths[g].max() <= s.segments[0] and s.patients == 16
    assert sum(s.rows[0] for s in shapes) < 2.5 * sum(lengths[g].sum() for g in groups)


def test_host_batch_pads_only_its_end(data):
    packed, _ = data
    feed = batches.Feed(packed, resident=False)
    group = np.array([5, 50, 9])
    batch = feed.host_batch(group, batches.Shape(4, (128, 32), (32, 8)))
    assert batch["real"].tolist() == [True, True, True, False] and batch["label"].tolist() == [1, 0, 1, 0]
    for m in batches.MODALITIES:
        x, off = getattr(packed, f"x_{m}"), getattr(packed, f"off_{m}")
        rows = np.concatenate([x[off[i]: off[i + 1]] for i in group])
        assert batch[f"off_{m}"][-2:].tolist() == [len(rows)] * 2
        np.testing.assert_array_equal(batch[f"x_{m}"][: len(rows)], rows)
        assert not batch[f"x_{m}"][len(rows):].any()
        there = batches.Feed(packed, resident=True)
        lean = there.host_batch(group, batches.Shape(4, (128, 32), (32, 8)))
        whole = batches.assemble(there.corpus, jax.device_put(lean))
        np.testing.assert_array_equal(whole[f"x_{m}"][: len(rows)], rows)
        assert set(whole) == set(batch)
