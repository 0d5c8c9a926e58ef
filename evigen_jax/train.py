"""Training the evidence selector (paper 3.2, A.1.4): fit one run, fit several seeds, predict.

A run folder holds config.json (resolved settings, versions, hashes of data and split), metrics.jsonl (a row an epoch),
curves.png, checkpoints/{last,best}/ and, once training has ended, result.json. Everything random follows from
(seed, epoch) on the host and (seed, step) on the device, so a run that was killed and started again ends with the same
bytes of parameters as one that was not (on CPU).
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from core_jax import settings, stats
from core_jax.ckpt.state import Checkpoints
from core_jax.records import Label, atomic_write
from core_jax.train import (
    EarlyStopping,
    MetricsLog,
    Step,
    TrainingStopped,
    TrainState,
    adamw,
    fetch,
    make_step,
    new_state,
    warmup_constant,
)
from evigen_jax import losses, metrics, retriever
from evigen_jax.batches import Feed, assemble, fits_on_device, plan
from evigen_jax.curves import training_curves
from evigen_jax.packed import MODALITIES, PackedCohort
from evigen_jax.retriever import EviGenConfig

PyTree = Any
DECAYED = frozenset({"expert.w1", "expert.w2", "head.w"})  # not on query, eta, LayerNorm, biases
MIN_QUERY_NORM = 1e-4
_KMEANS_ROWS = 20_000  # sample of training chunks that seeds k-means queries
FETCH = 8  # steps between looks at the device; bounds the batches that wait for it
MACHINE_FIELDS = ("seconds", "rows_per_s", "patients_per_s", "compiles")  # of a metrics row: not reproducible


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a selector is trained (A.1.4). The paper gives lr (1e-3 mortality, 3e-4 autism, 1e-4 ADHD), epochs and
    patience; weight decay, warm-up and batch are the authors' released ones.

    resident: keep the embeddings on the device ("auto": on an accelerator, where they fill at most half of it), or send
        each batch's rows from the host.
    query_init: "normal" N(0, 1/d), "orthogonal", or "kmeans": centres of the training chunks, which is not in
        the paper (see retriever.init_queries_from).
    """

    lr: float = 1e-3
    weight_decay: float = 0.01
    warmup_steps: int = 500
    batch_patients: int = 16
    epochs: int = 20
    patience: int = 3
    seed: int = 0
    pos_weight: float = 1.0
    resident: Literal["auto", "device", "host"] = "auto"
    query_init: Literal["normal", "orthogonal", "kmeans"] = "normal"

    def __post_init__(self):
        for name in ("batch_patients", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")
        for name in ("lr", "pos_weight"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a positive number")
        if self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError(f"got weight_decay {self.weight_decay}, warmup_steps {self.warmup_steps}, expected >= 0")


@dataclasses.dataclass(frozen=True)
class FitResult:
    """best_params: host arrays of the epoch with the (earliest) largest validation AUC; history: a row an epoch."""

    best_params: PyTree
    history: list[dict[str, Any]]
    best_epoch: int
    best_val_auc: float
    epochs: int
    stopped_early: bool
    out_dir: str
    seed: int

    def summary(self) -> dict[str, Any]:
        return {"out": self.out_dir, "seed": self.seed, "epochs": self.epochs, "best_epoch": self.best_epoch,
                "best_val_auc": self.best_val_auc, "stopped_early": self.stopped_early}


# ---- the loss of one batch ------------------------------------------------------------------------------------

def selector_loss(params: PyTree, batch: Mapping[str, jax.Array], key: jax.Array, *, config: EviGenConfig,
                  max_segment: tuple[int, int], pos_weight: float, apply: Callable = retriever.apply,
                  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Cross-entropy plus the auxiliary loss of equation 4; the default of `fit`, and the form a replacement has.

    Returns: (float32[] loss, metrics: float32 scalars ce, diversity, simplicity, active, min_query_norm).
    """
    out = apply(params, batch, config=config, max_segment=max_segment, rng=key, train=True)
    loss, terms = losses.total(params, out, batch, config=config, pos_weight=pos_weight)
    real = batch["real"].astype(jnp.float32)
    active = (jax.lax.stop_gradient(out["gate"]) * real[:, None]).sum() / jnp.maximum(real.sum(), 1.0)
    norm = jnp.linalg.norm(jax.lax.stop_gradient(params["query"]), axis=-1).min()
    return loss, {**terms, "active": active, "min_query_norm": norm}


# ---- prediction -----------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=8)
def _forward(apply: Callable, config: EviGenConfig, keep: tuple[str, ...]) -> Callable:
    @functools.partial(jax.jit, static_argnames="max_segment")
    def forward(params, corpus, batch, max_segment):
        out = apply(params, assemble(corpus, batch), config=config, max_segment=max_segment, train=False)
        return {name: out[name] for name in keep}

    return forward


def predict(params: PyTree, packed: PackedCohort, model_config: EviGenConfig, *, patients: Sequence[int] | None = None,
            batch_patients: int = 64, apply: Callable = retriever.apply, feed: Feed | None = None,
            keep: Sequence[str] = ("prob", "logit", "gate", "gate_score", "cosine")) -> dict[str, np.ndarray]:
    """Predictions without dropout, in the order asked for; a patient's do not depend on its batch mates.

    Args:
      patients: indices into packed.patient_ids (default: all).
      keep: names of per-patient outputs of `apply`. Row indices ("rows") are of a batch, so they are not offered here.

    Returns: {name: array [P, ...]} plus label int32[P] and index int64[P].
    """
    if "rows" in keep:
        raise ValueError("keep: 'rows' counts rows of a batch; use evigen_jax.retriever on a batch of your own")
    index = np.arange(len(packed.patient_ids)) if patients is None else np.asarray(patients, np.int64)
    feed = feed or Feed(packed, resident=False)
    order = index[np.argsort(_rows(packed)[index], kind="stable")]  # neighbours of like length: less padding
    groups = [order[i: i + batch_patients] for i in range(0, len(order), batch_patients)]
    shapes = plan(packed, groups, min(batch_patients, max(1, len(order))))
    forward = _forward(apply, model_config, tuple(keep))
    got = [forward(params, feed.corpus, batch, shape.segments) for batch, shape in feed.batches(groups, shapes)]
    host = [{k: v[: len(g)] for k, v in out.items()} for out, g in zip(jax.device_get(got), groups)]
    if not host:
        raise ValueError("predict: got no patients")
    back = np.empty(len(packed.patient_ids), np.int64)
    back[order] = np.arange(len(order))
    result = {k: np.concatenate([h[k] for h in host])[back[index]] for k in host[0]}
    return result | {"label": np.asarray(packed.label)[index].astype(np.int32), "index": index}


def _rows(packed: PackedCohort) -> np.ndarray:
    return sum(np.diff(getattr(packed, f"off_{m}")) for m in MODALITIES)


# ---- splits and hashes ----------------------------------------------------------------------------------------

def split_indices(packed: PackedCohort, labels: Sequence[Label]) -> dict[str, np.ndarray]:
    """{"train", "val", "test": indices into packed.patient_ids}, matched by patient_id, whatever the order of `labels`.

    Raises: ValueError naming the patient: no label, another outcome than the packed one, no split.
    """
    by_id = {x.patient_id: x for x in labels}
    out: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for i, patient_id in enumerate(packed.patient_ids):
        row = by_id.get(patient_id)
        if row is None:
            raise ValueError(f"patient {patient_id}: embedded, but not among the labels")
        if row.label != int(packed.label[i]):
            raise ValueError(f"patient {patient_id}: label {row.label} in the labels, {int(packed.label[i])} in the packed cohort")
        if row.split is None:
            raise ValueError(f"patient {patient_id}: no split; expected train, val or test")
        out[row.split].append(i)
    return {name: np.array(rows, np.int64) for name, rows in out.items()}


def split_hash(packed: PackedCohort, splits: Mapping[str, np.ndarray]) -> str:
    """sha256 of the sorted "patient_id, split, label" lines: the same for any order of patients."""
    lines = sorted(f"{packed.patient_ids[i]}\t{name}\t{int(packed.label[i])}" for name, rows in splits.items() for i in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _two_classes(packed: PackedCohort, splits: Mapping[str, np.ndarray]) -> None:
    for name in ("train", "val"):
        y = np.asarray(packed.label)[splits[name]]
        if len(np.unique(y)) < 2:
            held = f"{len(y)} patients, all of class {int(y[0])}" if len(y) else "no patients"
            raise ValueError(f"split {name}: got {held}; training and early stopping need both classes in train and in val: split "
                             "otherwise (cohort.fractions, or `split` in the labels), or use `evigen eval`")


def versions() -> dict[str, str]:
    names = ("jax", "jaxlib", "optax", "orbax-checkpoint", "numpy")
    device = jax.devices()[0]
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names},
            "device": f"{device.platform} {device.device_kind}"}


# ---- fitting --------------------------------------------------------------------------------------------------

def initial_params(packed: PackedCohort, patients: np.ndarray, model_config: EviGenConfig, train_config: TrainConfig,
                   key: jax.Array) -> PyTree:
    """Fresh parameters; with query_init "kmeans" the queries are centres of (at most 20,000) rows of these patients.

    Raises: ValueError: more queries of a modality than rows to place them on.
    """
    if train_config.query_init != "kmeans":
        return retriever.init(model_config, key, query_init=train_config.query_init)
    params, rng = retriever.init(model_config, key), np.random.default_rng(train_config.seed)
    centres = []
    for i, (m, n) in enumerate(zip(MODALITIES, (model_config.n_note, model_config.n_code))):
        if n:
            off, x = getattr(packed, f"off_{m}"), getattr(packed, f"x_{m}")
            rows = np.concatenate([np.arange(off[p], off[p + 1]) for p in patients])
            if n > len(rows):
                raise ValueError(f"model.n_{m}: got {n}, expected at most {len(rows)}, the {m} observations of the training "
                                 "patients, with train.query_init=kmeans")
            rows = np.sort(rng.choice(rows, min(len(rows), _KMEANS_ROWS), replace=False))
            place = jax.jit(retriever.init_queries_from, static_argnames="n")
            centres.append(place(jnp.asarray(x[rows]), jax.random.fold_in(key, i + 1), n=n))
    return {**params, "query": jnp.concatenate(centres)}


def epoch_groups(rows: np.ndarray, batch: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of an epoch (from 1): a permutation that depends on (seed, epoch) alone; the last one may be short."""
    order = np.random.default_rng((seed, epoch)).permutation(rows)
    return [order[i: i + batch] for i in range(0, len(order), batch)]


def fit(packed: PackedCohort, labels: Sequence[Label], model_config: EviGenConfig, train_config: TrainConfig,
        out_dir: str | os.PathLike, *, resume: bool = True, loss: Callable = selector_loss,
        apply: Callable = retriever.apply, params: PyTree | Callable[[jax.Array], PyTree] | None = None,
        frozen: Sequence[str] = (), info: Mapping[str, Any] | None = None, progress: bool = True) -> FitResult:
    """Train one selector with early stopping on validation AUC, and keep the best epoch's parameters.

    Args:
      labels: one Label a patient with its split; matched by id.
      out_dir: run folder. With `resume` a run found there is continued (or, if it has ended, returned); without, it is
        replaced. A run of other settings, data or split is never continued; one that left no checkpoint is replaced.
      loss: as `selector_loss`; apply: as `retriever.apply`, used by the default loss and for validation.
      params: initial parameters, or a function of the seed's key that gives them (default: initial_params).
      frozen: parameter paths, or their first parts ("query", "eta"), that are not trained.
      info: recorded in config.json and in every checkpoint (cohort hash, store header, encoder id).

    Raises:
      ValueError: a split with one class, dimensions that differ, another run in out_dir.
      TrainingStopped: a loss that is not finite, a query whose norm falls below 1e-4; the step is named, and
        the last good checkpoint is kept.
    """
    splits = split_indices(packed, labels)
    _two_classes(packed, splits)
    if packed.x_note.shape[1] != model_config.d:
        raise ValueError(f"model d: got {model_config.d}, expected {packed.x_note.shape[1]} as the embeddings have")
    out_dir = os.path.abspath(os.fspath(out_dir))
    init_key = jax.random.key(train_config.seed)
    noise_key = jax.random.key(train_config.seed, impl="rbg")  # dropout: compiles in a fraction of threefry's time
    if params is None:
        params = functools.partial(initial_params, packed, splits["train"], model_config, train_config)
    if callable(params):
        params = params(init_key)
    names = {name for name, _ in _paths(params)}
    if unknown := [f for f in frozen if not any(n == f or n.startswith(f + ".") for n in names)]:
        raise ValueError(f"frozen: no parameter {unknown[0]!r}; expected one of {sorted({n.split('.')[0] for n in names})}")

    record = {
        "schema": "evigen_run/1", "model": dataclasses.asdict(model_config), "train": dataclasses.asdict(train_config),
        "frozen": sorted(frozen), "split_hash": split_hash(packed, splits),
        "patients": {name: len(rows) for name, rows in splits.items()},
        "initial_params_sha256": _digest(params), "info": dict(info or {}), "versions": versions(),
    }
    done = _open_run(out_dir, record, resume)
    if done is not None:
        return done

    frozen = tuple(sorted(frozen))
    step, optimizer = _step(loss, apply, model_config, frozen, train_config.lr, train_config.warmup_steps,
                            train_config.weight_decay, train_config.pos_weight)
    compiled_before = step.traces
    resident = train_config.resident == "device" or (train_config.resident == "auto" and fits_on_device(packed))
    feed = Feed(packed, resident=resident)
    state = new_state(params, optimizer)
    stopping = EarlyStopping(train_config.patience)
    log = MetricsLog(os.path.join(out_dir, "metrics.jsonl"))
    last = Checkpoints(os.path.join(out_dir, "checkpoints", "last"), keep=1)
    best = Checkpoints(os.path.join(out_dir, "checkpoints", "best"), keep=2)
    with _advised(out_dir, train_config), last, best:
        if last.latest() is not None:
            state, side = last.restore(state)
            stopping = EarlyStopping(**side["stopping"])
        history = log.rewind(lambda row: row["epoch"] <= stopping.epoch)
        best_params = best.restore(jax.eval_shape(lambda: params), stopping.best_epoch)[0] if stopping.best_epoch else None

        groups = [epoch_groups(splits["train"], train_config.batch_patients, train_config.seed, e + 1)
                  for e in range(train_config.epochs)]
        shapes = plan(packed, [g for epoch in groups for g in epoch], train_config.batch_patients)
        per_epoch = len(groups[0])
        bar = _bar(train_config.epochs * per_epoch, stopping.epoch * per_epoch, progress)
        with bar:
            for epoch in range(stopping.epoch + 1, train_config.epochs + 1):
                if stopping.stop:
                    break
                began, at = time.perf_counter(), (epoch - 1) * per_epoch
                state, rows = _run_epoch(step, state, noise_key, feed, groups[epoch - 1], shapes[at: at + per_epoch],
                                         first_step=at + 1, guard_queries=not _starts(frozen, "query"), bar=bar)
                seconds = time.perf_counter() - began
                val = predict(state.params, packed, model_config, patients=splits["val"], apply=apply, feed=feed)
                if not np.isfinite(val["logit"]).all():
                    raise TrainingStopped(f"step {at + per_epoch}: a validation logit is not finite after it")
                val_auc = stats.auc(val["label"], val["prob"])
                stopping = stopping.update(val_auc)
                size = [len(g) for g in groups[epoch - 1]]
                row = {
                    "epoch": epoch, "step": at + per_epoch, "train_loss": float(np.average([r["loss"] for r in rows], weights=size)),
                    **{k: float(np.average([r[k] for r in rows], weights=size)) for k in rows[0]
                       if k not in ("loss", "min_query_norm")},
                    "grad_norm_max": max(r["grad_norm"] for r in rows),
                    "log_min_query_norm": float(np.log(np.linalg.norm(np.asarray(state.params["query"]), axis=-1).min())),
                    "val_auc": val_auc, "val_ece": stats.ece(val["label"], val["prob"]),
                    "val_loss": _cross_entropy(val["label"], val["logit"]),
                    "val_active": float(val["gate"].sum(axis=1).mean()), "best_epoch": stopping.best_epoch,
                    "seconds": round(seconds, 3), "rows_per_s": round(float(_rows(packed)[splits["train"]].sum()) / seconds, 1),
                    "patients_per_s": round(len(splits["train"]) / seconds, 1), "compiles": step.traces - compiled_before,
                }
                log.append(row)
                history.append(row)
                bar.set_postfix(epoch=epoch, val_auc=f"{row['val_auc']:.3f}", best=stopping.best_epoch)
                side = record | {"epoch": epoch, "step": row["step"], "val_auc": row["val_auc"],
                                 "stopping": dataclasses.asdict(stopping)}
                if stopping.improved:
                    best_params = jax.tree.map(np.array, jax.device_get(state.params))
                    best.save(epoch, state.params, side, wait=True)  # complete before `last` names it
                last.save(epoch, state, side)
        last.wait()
    best_params = jax.tree.map(np.asarray, best_params)
    result = FitResult(best_params, history, stopping.best_epoch, float(stopping.best), stopping.epoch,
                       stopping.epoch < train_config.epochs, out_dir, train_config.seed)
    training_curves({f"seed {train_config.seed}": history}, os.path.join(out_dir, "curves.png"),
                    best={f"seed {train_config.seed}": stopping.best_epoch})
    _write_json(os.path.join(out_dir, "result.json"), result.summary())
    return result


@contextlib.contextmanager
def _advised(out_dir: str, config: TrainConfig) -> Iterator[None]:
    """Adds what can be done to the reason for which training stopped."""
    try:
        yield
    except TrainingStopped as stop:
        replace = " and --no-resume, which replaces the run there" if _has_checkpoint(out_dir) else ""
        raise TrainingStopped(f"{out_dir}: {stop}; the same settings stop there again, so run it with a lower train.lr "
                              f"(now {config.lr:g}){replace}") from None


def _has_checkpoint(out_dir: str) -> bool:
    with Checkpoints(os.path.join(out_dir, "checkpoints", "last"), keep=1) as last:
        return last.latest() is not None


@functools.lru_cache(maxsize=4)
def _step(loss: Callable, apply: Callable, model_config: EviGenConfig, frozen: tuple[str, ...], lr: float, warmup_steps: int,
          weight_decay: float, pos_weight: float) -> tuple[Step, optax.GradientTransformation]:
    """The compiled update and its optimiser; kept, so that the runs of several seeds compile once."""
    optimizer = adamw(warmup_constant(lr, warmup_steps), weight_decay=weight_decay, decays=lambda path: path in DECAYED,
                      frozen=functools.partial(_starts, frozen))
    if loss is selector_loss:
        loss = functools.partial(selector_loss, apply=apply)

    def batch_loss(params, data, key, *, max_segment):
        corpus, batch = data
        return loss(params, assemble(corpus, batch), key, config=model_config, max_segment=max_segment, pos_weight=pos_weight)

    return make_step(batch_loss, optimizer), optimizer


def _run_epoch(step, state: TrainState, key, feed: Feed, groups, shapes, *, first_step: int, guard_queries: bool, bar):
    """One pass over the groups: (state, metrics of each step as floats), fetched a few steps late."""
    rows: list[dict[str, float]] = []
    waiting: list[dict[str, jax.Array]] = []

    def look(count: int) -> None:
        done = fetch(waiting[:count], first_step + len(rows))
        del waiting[:count]
        for i, row in enumerate(done):
            if guard_queries and row.get("min_query_norm", 1.0) < MIN_QUERY_NORM:
                raise TrainingStopped(f"step {first_step + len(rows) + i}: a query's norm is {row['min_query_norm']:.2e}, "
                                      f"below {MIN_QUERY_NORM:g}; lower lr or lambda_aux")
        rows.extend(done)
        bar.update(len(done))

    for batch, shape in feed.batches(groups, shapes):
        state, out = step(state, key, (feed.corpus, batch), max_segment=shape.segments)
        waiting.append(out)
        if len(waiting) > FETCH:
            look(FETCH)
    look(len(waiting))
    return state, rows


def _bar(total: int, done: int, progress: bool):
    from tqdm import tqdm

    return tqdm(total=total, initial=done, unit="step", desc="train", disable=not progress, dynamic_ncols=True)


def _cross_entropy(y: np.ndarray, logit: np.ndarray) -> float:
    z = np.asarray(logit, np.float64)
    return float(np.mean(np.logaddexp(0.0, z) - y * z))


def _paths(tree: PyTree) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _starts(frozen: tuple[str, ...], path: str) -> bool:
    return any(path == f or path.startswith(f + ".") for f in frozen)


def _digest(params: PyTree) -> str:
    h = hashlib.sha256()
    for name, leaf in _paths(params):
        leaf = np.ascontiguousarray(leaf)
        h.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode() + leaf.tobytes())
    return h.hexdigest()


def _write_json(path: str, value: Any) -> None:
    with atomic_write(path) as f:
        json.dump(value, f, ensure_ascii=False, allow_nan=False, indent=1)
        f.write("\n")


def _read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError, RecursionError) as e:
        raise ValueError(f"{path}: cannot be read ({e}); restore it, or train again (--no-resume)") from None


def _fields(path: str, **kinds: type) -> dict[str, Any]:
    """A JSON object with at least these fields. Raises: ValueError naming file and field."""
    found = _read_json(path)
    for name, kind in kinds.items():
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise ValueError(f"{path}: {name}: expected a field of type {kind.__name__}")
    return found


def _differences(a: Any, b: Any, where: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [line for k in sorted(set(a) | set(b)) for line in _differences(a.get(k), b.get(k), f"{where}.{k}" if where else k)]
    return [] if a == b else [f"{where}: got {b!r}, the run there has {a!r}"]


def _open_run(out_dir: str, record: dict[str, Any], resume: bool) -> FitResult | None:
    """Make the run folder; the finished result where the same run has ended already."""
    config, result = os.path.join(out_dir, "config.json"), os.path.join(out_dir, "result.json")
    record = json.loads(json.dumps(record, allow_nan=False))
    if os.path.exists(config) and resume:
        old = _read_json(config)
        wrong = _differences({k: v for k, v in old.items() if k != "versions"}, {k: v for k, v in record.items() if k != "versions"})
        if wrong and _has_checkpoint(out_dir):
            raise ValueError(f"{out_dir}: holds another run; name another folder, or replace it (--no-resume)\n  " + "\n  ".join(wrong[:10]))
        if not wrong and os.path.exists(result):
            done = _read_json(result)
            params, _, _ = load_run(out_dir)
            history = list(MetricsLog(os.path.join(out_dir, "metrics.jsonl")).rows())
            return FitResult(params, history, done["best_epoch"], done["best_val_auc"], done["epochs"],
                             done["stopped_early"], out_dir, done["seed"])
        if not wrong:
            return None
    for name in ("metrics.jsonl", "result.json", "curves.png"):
        if os.path.exists(os.path.join(out_dir, name)):
            os.unlink(os.path.join(out_dir, name))
    shutil.rmtree(os.path.join(out_dir, "checkpoints"), ignore_errors=True)
    _write_json(config, record)
    return None


def load_run(folder: str | os.PathLike, *, like: PyTree | None = None) -> tuple[PyTree, EviGenConfig, dict[str, Any]]:
    """(best parameters as host arrays, model settings, the run's record) of a run folder.

    Of a folder with several seeds (`fit_runs`) it is the one with the largest validation AUC.

    Args: like: abstract parameters where they are not retriever.init's.
    Raises: ValueError: no run here, or a checkpoint that does not fit.
    """
    folder = os.fspath(folder)
    if os.path.exists(os.path.join(folder, "runs.json")):
        table = os.path.join(folder, "runs.json")
        best = _fields(table, best=str)["best"]
        if os.path.basename(best) != best:
            raise ValueError(f"{table}: best: got {best!r}, expected the name of a folder in it")
        folder = os.path.join(folder, best)
        if not os.path.exists(os.path.join(folder, "result.json")):
            raise ValueError(f"{folder}: training anew has not ended here; run `evigen train` again, without --no-resume, to go on")
    elif not os.path.exists(os.path.join(folder, "config.json")):
        raise ValueError(f"{folder}: no trained run here (runs.json is written when `evigen train` ends; run it again to go on)")
    record = _fields(os.path.join(folder, "config.json"), model=dict, train=dict, info=dict)
    config = settings.from_dict(EviGenConfig, record["model"], f"{folder}/config.json: model")
    if like is None:
        like = jax.eval_shape(functools.partial(retriever.init, config), jax.random.key(0))
    with Checkpoints(os.path.join(folder, "checkpoints", "best"), keep=2) as best:
        params, side = best.restore(like)
    return jax.tree.map(np.asarray, params), config, record | {"epoch": side["epoch"], "val_auc": side["val_auc"]}


# ---- several seeds --------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Runs:
    """results: one FitResult a seed; summary: JSON-ready, as written to runs.json."""

    results: list[FitResult]
    summary: dict[str, Any]

    @property
    def best(self) -> FitResult:
        """The run with the largest validation AUC, the first of equals."""
        return max(self.results, key=lambda r: r.best_val_auc)


def fit_runs(packed: PackedCohort, labels: Sequence[Label], model_config: EviGenConfig, train_config: TrainConfig,
             out_dir: str | os.PathLike, *, runs: int = 3, apply: Callable = retriever.apply, **options: Any) -> Runs:
    """`fit` with seeds seed, seed + 1, ...: each run's scores, their mean and t interval (the paper averages three).

    Each run lives in out_dir/seed_<n>; runs.json holds the table and names the run with the best validation AUC, and
    curves.png shows all of them. Options are fit's.
    """
    if runs < 1:
        raise ValueError(f"runs: got {runs}, expected at least 1")
    out_dir = os.path.abspath(os.fspath(out_dir))
    splits = split_indices(packed, labels)
    results, table = [], []
    for seed in range(train_config.seed, train_config.seed + runs):
        config = dataclasses.replace(train_config, seed=seed)
        result = fit(packed, labels, model_config, config, os.path.join(out_dir, f"seed_{seed}"), apply=apply, **options)
        row: dict[str, Any] = {"seed": seed, "epochs": result.epochs, "best_epoch": result.best_epoch}
        for split in ("val", "test"):
            if len(splits[split]):
                got = predict(result.best_params, packed, model_config, patients=splits[split], apply=apply)
                row |= {f"{split}_{k}": v for k, v in metrics.scores(got["label"], got["prob"]).items()}
                row[f"{split}_active"] = float(got["gate"].sum(axis=1).mean())
        results.append(result)
        table.append(row)
    named = [k for k in (f"{s}_{m}" for s in ("val", "test") for m in ("auc", "ece", "accuracy", "active"))
             if all(isinstance(r.get(k), float) for r in table)]
    done = Runs(results, {})
    summary = {"schema": "evigen_runs/1", "runs": table, "mean": metrics.over_seeds(table, named),
               "best": os.path.basename(done.best.out_dir)}
    _write_json(os.path.join(out_dir, "runs.json"), summary)
    names = {f"seed {r.seed}": r for r in results}
    training_curves({k: r.history for k, r in names.items()}, os.path.join(out_dir, "curves.png"),
                    best={k: r.best_epoch for k, r in names.items()})
    return Runs(results, summary)
