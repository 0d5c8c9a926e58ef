"""Fine-tuning a decoder by adapters over a frozen base: one run, from examples to an adapter folder.

A run folder holds config.json (settings, hashes of base and data, versions), metrics.jsonl (a row an update),
checkpoints/{last,best}/ and, once training has ended, adapter/ (PEFT) and result.json. An update is that of the mean
over its examples' weighted tokens, however these are packed. All that is random follows from the seed, the update and
the batch within it, so a run that was killed and started again ends with the same bytes as one that was not (on CPU).

optax has no 8-bit Adam moments (the paper's runs had bitsandbytes' paged 8-bit AdamW): moments are float32, the first
one bfloat16 by choice.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from core_jax import lora, quant, settings
from core_jax import params as P
from core_jax.ckpt.state import Checkpoints, _checksums
from core_jax.cross_entropy import cross_entropy
from core_jax.lora import LoraConfig
from core_jax.mesh import tokens_over
from core_jax.models import cost, decoder
from core_jax.models.config import DecoderConfig
from core_jax.packing import Example, order, pack
from core_jax.records import atomic_write
from core_jax.train import AccumulatedStep, MetricsLog, adamw, fetch, new_state, warmup_cosine

MACHINE_FIELDS = ("seconds", "tokens_per_s", "mfu", "peak_bytes")  # of a metrics row: not reproducible


@dataclasses.dataclass(frozen=True)
class TuneConfig:
    """How a run is trained.

    Attributes:
        batch: examples of an update; they are packed into rows of `length` tokens.
        rows: rows that go through the model at once; an update takes as many such batches as its examples need.
        warmup_steps: updates of linear rise before the cosine.
        clip: largest gradient norm; None: any.
        eval_every: updates between looks at the validation loss; None: once an epoch.
        patience: looks without a better validation loss that end the run.
        save_every: updates between checkpoints.
        remat: what the backward pass computes again (core_jax/models/decoder.py, REMAT); None: nothing.
        first_moment: dtype of Adam's first moment.
        peak_flops: operations per second that MFU is taken of; None: the matmul rate of this machine, measured.
    """

    lr: float
    batch: int = 64
    length: int = 2048
    rows: int = 8
    epochs: int = 1
    warmup_steps: int = 100
    weight_decay: float = 0.0
    clip: float | None = 1.0
    eval_every: int | None = None
    patience: int = 3
    save_every: int = 50
    seed: int = 0
    remat: Literal["full", "projections"] | None = None
    first_moment: Literal["float32", "bfloat16"] = "float32"
    peak_flops: float | None = None

    def __post_init__(self):
        for name in ("batch", "length", "rows", "epochs", "patience", "save_every", "eval_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least 1")
        for name in ("lr", "clip", "peak_flops"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a positive number")
        if self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError(f"got weight_decay {self.weight_decay}, warmup_steps {self.warmup_steps}, expected >= 0")


@dataclasses.dataclass(frozen=True)
class TuneResult:
    """trained: host arrays of the update with the lowest validation loss, of the last one where nothing validates.

    interrupted: a SIGTERM ended the call; the same call goes on from there.
    """

    trained: P.Tree
    updates: int
    best_update: int
    val_loss: float | None
    stopped_early: bool
    interrupted: bool
    out_dir: str


# ---- the loss of a batch --------------------------------------------------------------------------------------

def loss_sum(
    trained: P.Tree, base: P.Tree, batch: Mapping[str, jax.Array], key: jax.Array | None, *, model: DecoderConfig,
    config: LoraConfig, remat: str | None = None, mesh: Mesh | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted cross-entropy of a batch of packed rows, summed.

    Args:
        trained: tree of `lora.spec`; base: the decoder's parameters, quantised or not.
        batch: ids, targets, segments [B, T] int32, weights [B, T] float32, as `packing.Packed` has them.
        key: of the dropout; None: none is applied.
        mesh: each group of devices along its axis "data" computes its own rows, whatever the base is sharded over.

    Returns: (float32[], {"weight": sum of the weights, "tokens", "loss_tokens"}), all summed over the batch.
    """
    dense, overlay = lora.bind(config, trained, quant.dense(decoder.dense), key=key)
    params = lora.with_tables(config, base, trained)
    hidden = decoder.forward(model, params, batch["ids"], segments=batch["segments"], dense=dense, overlay=overlay,
                             remat=remat, spread=tokens_over(mesh))
    path = "embed/token" if model.tie_embeddings else "head"
    head = lora.leaf(params, path)
    new = {"rows": head.rows, "ids": head.ids} if isinstance(head, lora.Table) else {}
    loss = cross_entropy(hidden, head.table if new else head, batch["targets"], batch["weights"],
                         train_head=path in config.tables and not new, **new)
    return loss, {
        "weight": jnp.sum(batch["weights"]),
        "tokens": jnp.sum(batch["segments"] > 0, dtype=jnp.float32),
        "loss_tokens": jnp.sum(batch["weights"] > 0, dtype=jnp.float32),
    }


class Evaluation:
    """Mean weighted loss over packed rows; compiled once."""

    def __init__(self, model: DecoderConfig, config: LoraConfig, mesh: Mesh | None = None):
        def run(trained, base, batch):
            loss, metrics = loss_sum(trained, base, batch, None, model=model, config=config, mesh=mesh)
            return loss, metrics["weight"]

        self._run = jax.jit(run)

    def __call__(self, trained: P.Tree, base: P.Tree, batches: Sequence[Any]) -> float:
        sums = jax.device_get([self._run(trained, base, batch) for batch in batches])
        return float(np.sum([s[0] for s in sums], dtype=np.float64) / np.sum([s[1] for s in sums], dtype=np.float64))


def useful_flops(model: DecoderConfig, config: LoraConfig, lengths: Sequence[int], loss_tokens: int) -> int:
    """Operations that training on whole examples of these lengths needs, nothing computed twice.

    4 N a token: N weights forward and the same backward to the activations, as the base is frozen; two
    products more for what is trained; attention three times its forward cost.
    """
    head = 2 * model.hidden_size * model.vocab_size
    trained_head = ("embed/token" if model.tie_embeddings else "head") in config.tables and not config.rows_only
    adapters = sum(math.prod(s.shape) for _, s in P.leaves(lora.spec(config, decoder.spec(model))["lora"]))
    tokens = sum(lengths)
    attention = sum(cost.prefill_flops(model, n) - 2 * cost.matmul_weights(model) * n - head for n in lengths)
    layers = (4 * cost.matmul_weights(model) + 6 * adapters) * tokens + 3 * attention
    return layers + (3 if trained_head else 2) * head * loss_tokens


@functools.lru_cache(maxsize=2)
def matmul_rate(dtype: str) -> float:
    """Operations per second of a square product on one device, the best of five."""
    size = 1024 if jax.devices()[0].platform == "cpu" else 8192
    x = jnp.ones((size, size), dtype)
    run = jax.jit(lambda x: jnp.matmul(x, x, preferred_element_type=jnp.float32))
    best = math.inf
    for _ in range(6):
        began = time.perf_counter()
        jax.block_until_ready(run(x))
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def peak_bytes() -> int:
    """Of device memory, the largest so far; on CPU, of the process."""
    stats = jax.devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    return stats.get("peak_bytes_in_use") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# ---- what a run is made of -------------------------------------------------------------------------------------

def updates_in(count: int, config: TuneConfig) -> int:
    """Updates of a whole run over `count` examples."""
    return config.epochs * math.ceil(count / config.batch)


def _digest(examples: Sequence[Example]) -> str:
    found = hashlib.sha256()
    for e in examples:
        for x in (e.ids, e.targets, e.weights):
            found.update(len(x).to_bytes(8, "little") + x.tobytes())
    return found.hexdigest()


def fingerprint(params: P.Tree) -> str:
    """sha256 of the checksums of all arrays, taken on their devices: the same whatever they are sharded over."""
    flat = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_flatten_with_path(params)[0]}
    return hashlib.sha256(json.dumps(_checksums(flat), sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    names = ("jax", "jaxlib", "optax", "orbax-checkpoint", "numpy", "grain")
    device = jax.devices()[0]
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names},
            "device": f"{device.platform} {device.device_kind} x {jax.device_count()}"}


def fit(
    model: DecoderConfig, base: P.Tree, config: LoraConfig, train: Sequence[Example], val: Sequence[Example],
    tune: TuneConfig, out_dir: str | os.PathLike, *, trained: P.Tree | None = None, mesh: Mesh | None = None,
    resume: bool = True, info: Mapping[str, Any] | None = None, base_name: str | None = None, progress: bool = True,
    on_update: Callable[[dict[str, Any]], None] = lambda row: None,
) -> TuneResult:
    """Train adapters over a base, keep those with the lowest validation loss, write them as a PEFT folder.

    Args:
        base: parameters of the decoder, stacked, perhaps quantised; never changed, never saved.
        val: may be empty: then the last update is kept.
        trained: what to start from (an adapter that goes on to learn); None: `lora.init`.
        mesh: the rows of a batch go over its axis "data"; `base` lies on it already, whole on every device or by
            `core_jax.mesh.FSDP`.
        resume: go on with a run found in out_dir, or return it where it has ended; False replaces it. A run of other
            settings, data or base is never gone on with.
        info: recorded in config.json; base_name: recorded in the adapter's settings.
        on_update: called with each row of metrics.jsonl once it is written.

    Raises:
        ValueError: an example longer than a row, another run in out_dir.
        TrainingStopped: a loss that is not finite; the update is named, the last checkpoint is kept.
    """
    out_dir = os.path.abspath(os.fspath(out_dir))
    if not train:
        raise ValueError("train: got no examples")
    for name, examples in (("train", train), ("val", val)):
        if long := [i for i, e in enumerate(examples) if len(e) > tune.length]:
            raise ValueError(f"{name}: example {long[0]}: got {len(examples[long[0]])} tokens, expected at most "
                             f"{tune.length}")
    spec = decoder.spec(model)
    if trained is None:
        trained = lora.init(config, spec, base, jax.random.key(tune.seed))
    P.check(lora.spec(config, spec), trained, where="trained")
    record = {
        "schema": "finetune_run/1", "model": settings.to_dict(model), "lora": settings.to_dict(config),
        "train": settings.to_dict(tune), "examples": {"train": len(train), "val": len(val)},
        "data_sha256": {"train": _digest(train), "val": _digest(val)}, "base_sha256": fingerprint(base),
        "start_sha256": fingerprint(trained), "info": dict(info or {}), "versions": versions(),
    }
    record = json.loads(json.dumps(record))
    done = _open(out_dir, record, resume, model)
    if done is not None:
        return done

    total = updates_in(len(train), tune)
    batches = order(len(train), tune.batch, tune.epochs, tune.seed)
    optimizer = adamw(warmup_cosine(tune.lr, tune.warmup_steps, total), weight_decay=tune.weight_decay,
                      decays=lambda path: path.startswith("lora."), first_moment=tune.first_moment)
    loss = functools.partial(loss_sum, model=model, config=config, remat=tune.remat, mesh=mesh)
    alike = None if mesh is None else NamedSharding(mesh, PartitionSpec())
    step = AccumulatedStep(loss, optimizer, clip=tune.clip, sharding=alike)
    state = new_state(trained, optimizer)
    if mesh is not None:
        state = jax.device_put(state, alike)
    put = functools.partial(_placed, mesh=mesh)
    noise = jax.random.key(tune.seed, impl="rbg")
    schedule = warmup_cosine(tune.lr, tune.warmup_steps, total)
    per_epoch = math.ceil(len(train) / tune.batch)
    eval_every = tune.eval_every or per_epoch
    evaluate, held_out = Evaluation(model, config, mesh), [put(b) for b in pack(val, tune.length).blocks(tune.rows)]
    peak = tune.peak_flops or matmul_rate(str(base["embed"]["token"].dtype)) * (1 if mesh is None else mesh.size)
    log = MetricsLog(os.path.join(out_dir, "metrics.jsonl"))
    last = Checkpoints(os.path.join(out_dir, "checkpoints", "last"), keep=1)
    best = Checkpoints(os.path.join(out_dir, "checkpoints", "best"), keep=2)
    seen: dict[str, Any] = {"best": None, "best_update": 0, "looks": 0}  # looks since the best
    with last, best, _terminated() as asked:
        if last.latest() is not None:
            state, side = last.restore(state)
            seen = side["seen"]
        first = int(state.step)
        log.rewind(lambda row: row["update"] <= first)
        with _bar(total, first, progress) as bar:
            for update in range(first + 1, total + 1):
                if seen["looks"] >= tune.patience or asked:
                    break
                began = time.perf_counter()
                chosen = [train[i] for i in batches[update - 1]]
                packed = pack(chosen, tune.length)
                slots = tune.length * tune.rows * math.ceil(len(packed.ids) / tune.rows)
                state, out = step(state, base, noise, map(put, packed.blocks(tune.rows)))
                got = fetch([out], update)[0]
                seconds = time.perf_counter() - began
                flops = useful_flops(model, config, [len(e) for e in chosen], int(got["loss_tokens"]))
                row = {
                    "update": update, "epoch": (update - 1) // per_epoch + 1, "loss": got["loss"],
                    "grad_norm": got["grad_norm"], "lr": float(schedule(update - 1)), "examples": len(chosen),
                    "tokens": int(got["tokens"]), "loss_tokens": int(got["loss_tokens"]),
                    "fill": round(packed.tokens / slots, 4),
                    "seconds": round(seconds, 3), "tokens_per_s": round(got["tokens"] / seconds, 1),
                    "mfu": round(flops / seconds / peak, 4), "peak_bytes": peak_bytes(),
                }
                looks = held_out and (update % eval_every == 0 or update == total)
                if looks:
                    row["val_loss"] = evaluate(state.params, base, held_out)
                    better = seen["best"] is None or row["val_loss"] < seen["best"]
                    seen = {"best": row["val_loss"], "best_update": update, "looks": 0} if better else \
                        seen | {"looks": seen["looks"] + 1}
                    if better:  # complete before `last` names it
                        best.save(update, state.params, record | {"update": update}, wait=True)
                log.append(row)
                bar.update()
                bar.set_postfix(loss=f"{row['loss']:.4f}", **({"val": f"{row['val_loss']:.4f}"} if looks else {}))
                on_update(row)
                if asked or looks or update % tune.save_every == 0 or update == total:
                    last.save(update, state, record | {"seen": seen})
        last.wait()
        made = int(state.step)
        stopped = seen["looks"] >= tune.patience
        interrupted = bool(asked) and made < total and not stopped
        kept = state.params
        if seen["best_update"] and not interrupted:
            kept = best.restore(state.params, seen["best_update"])[0]
    host = jax.tree.map(np.asarray, jax.device_get(kept))
    result = TuneResult(host, made, seen["best_update"] or made, seen["best"], stopped, interrupted, out_dir)
    if not interrupted:
        lora.write_peft(os.path.join(out_dir, "adapter"), config, host, decoder.hf_sources(model), base=base_name)
        with atomic_write(os.path.join(out_dir, "result.json")) as f:
            kept_not = ("trained", "out_dir", "interrupted")
            json.dump({k: v for k, v in vars(result).items() if k not in kept_not}, f, indent=2)
    return result


def _placed(block: Mapping[str, np.ndarray], *, mesh: Mesh | None) -> dict[str, jax.Array]:
    return jax.device_put(dict(block), None if mesh is None else NamedSharding(mesh, PartitionSpec("data")))


def _bar(total: int, done: int, progress: bool):
    from tqdm import tqdm

    return tqdm(total=total, initial=done, unit="update", desc="train", disable=not progress, dynamic_ncols=True)


@contextlib.contextmanager
def _terminated() -> Iterator[list[int]]:
    """A list that SIGTERM fills: the update under way ends and is saved. Outside the main thread it stays empty."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _open(out_dir: str, record: dict[str, Any], resume: bool, model: DecoderConfig) -> TuneResult | None:
    """Make the run folder ready; the result where the run in it has ended.

    Raises: ValueError: another run is there (with resume); the message names what differs.
    """
    path = os.path.join(out_dir, "config.json")
    if os.path.exists(path) and resume:
        with open(path, encoding="utf-8") as f:
            there = json.load(f)
        skip = ("versions", "info")
        other = [k for k in sorted(record.keys() | there.keys()) if k not in skip and record.get(k) != there.get(k)]
        begun = os.path.exists(os.path.join(out_dir, "metrics.jsonl"))
        if other and begun:
            raise ValueError(f"{path}: {other[0]}: got {there.get(other[0])}, expected {record.get(other[0])}; another "
                             f"run is in this folder, choose another one or do not resume")
        if not other and os.path.exists(ended := os.path.join(out_dir, "result.json")):
            with open(ended, encoding="utf-8") as f:
                made = json.load(f)
            adapter = os.path.join(out_dir, "adapter")
            trained = lora.read_peft(adapter, decoder.spec(model), decoder.hf_sources(model))[1]
            return TuneResult(jax.tree.map(np.asarray, trained), interrupted=False, out_dir=out_dir, **made)
        if not other:
            return None
    for name in ("metrics.jsonl", "result.json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(out_dir, name))
    for name in ("checkpoints", "adapter"):
        shutil.rmtree(os.path.join(out_dir, name), ignore_errors=True)
    with atomic_write(path) as f:
        json.dump(record, f, indent=2)
    return None
