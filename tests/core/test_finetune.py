"""core_jax/finetune.py: an update is that of its examples, runs resume to the bit, the best is kept."""
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys

import finetune_cases as C
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from core_jax import lora, quant
from core_jax import params as P
from core_jax.finetune import MACHINE_FIELDS, fit, loss_sum, useful_flops
from core_jax.mesh import FSDP, MeshSpec, Rules
from core_jax.models import decoder
from core_jax.packing import Example, pack
from core_jax.train import AccumulatedStep, MetricsLog, TrainingStopped, new_state, warmup_cosine

pytestmark = pytest.mark.usefixtures("quick_compiles")


def rows(folder) -> list[dict]:
    log = MetricsLog(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in MACHINE_FIELDS} for row in log.rows()]


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(result, folder) of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    return C.run(folder), folder


# ---- one update -----------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def params():
    return C.base()


def draw_trained(config=C.CONFIG):
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda s: jnp.asarray(0.1 * rng.normal(size=s.shape), jnp.float32), lora.spec(config, C.SPEC),
                        is_leaf=lambda x: not isinstance(x, dict))


QUIET = dataclasses.replace(C.CONFIG, dropout=0.0)


def one_update(params, packed, rows_at_once, *, mesh=None, rules=Rules(())):
    loss = functools.partial(loss_sum, model=C.MODEL, config=QUIET, mesh=mesh)
    state, blocks, whole = new_state(draw_trained(), optax.sgd(1.0)), list(packed.blocks(rows_at_once)), None
    if mesh is not None:
        spread, whole = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*x)) for x in (("data",), ()))
        blocks, state = jax.device_put(blocks, spread), jax.device_put(state, whole)
        params = jax.device_put(params, P.shardings(C.SPEC, mesh, decoder.rules(C.MODEL, mesh, rules)))
    step = AccumulatedStep(loss, optax.sgd(1.0), sharding=whole)
    state, out = step(state, params, jax.random.key(0), blocks)
    got = jax.device_get((state.params, out))
    step(state, params, jax.random.key(0), blocks)
    assert step.traces == 1
    return got


def test_update_does_not_depend_on_packing_and_batches(params):
    examples = C.examples(7, 5)
    alone = pack([*examples], 24)
    spread = [pack([e], 24) for e in examples]
    spread = dataclasses.replace(alone, **{f.name: np.concatenate([getattr(p, f.name) for p in spread])
                                           for f in dataclasses.fields(alone)})
    assert len(alone.ids) < 7
    expected, out = one_update(params, alone, 4)
    for packed, at_once in ((alone, 1), (spread, 4)):
        got, other = one_update(params, packed, at_once)
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-6), got, expected)
        np.testing.assert_allclose(other["loss"], out["loss"], rtol=1e-5)
        np.testing.assert_allclose(other["grad_norm"], out["grad_norm"], rtol=1e-4)


@pytest.fixture(scope="module")
def packed():
    return pack(C.examples(60, 5), 24)


@pytest.fixture(scope="module")
def update(params, packed):
    return one_update(params, packed, 16)


@pytest.mark.parametrize("data, tensor, rules", [
    pytest.param(8, 1, Rules(()), id="8x1 base on every device"), pytest.param(4, 2, FSDP, id="4x2 base over all"),
    pytest.param(8, 1, FSDP, id="8x1 base over all", marks=pytest.mark.slow),
    pytest.param(2, 4, FSDP, id="2x4 base over all", marks=pytest.mark.slow)])
def test_sharded_update_is_the_update(params, packed, update, data, tensor, rules):
    expected, out = update
    got, other = one_update(params, packed, 16, mesh=MeshSpec(data, tensor).build(), rules=rules)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-6), got, expected)
    np.testing.assert_allclose(other["loss"], out["loss"], rtol=1e-5)


def test_embedding_gradient_under_sharding_is_add_at(params):
    """The scatter of a gather's gradient, which XLA has miscompiled under sharding."""
    config = lora.LoraConfig((), tables=("embed/token",))
    trained = {"lora": {}, "tables": {"embed/token": jnp.asarray(params["embed"]["token"])}}
    block = next(pack(C.examples(60, 5), 24).blocks(16))
    mesh = MeshSpec(4, 2).build()

    def place(tree, *spec):
        return jax.device_put(tree, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))

    def loss(trained, base, block):
        return loss_sum(trained, base, block, None, model=C.MODEL, config=config)[0]

    got = jax.jit(jax.grad(loss))(place(trained, None, "tensor"), place(params), place(block, "data"))
    got = got["tables"]["embed/token"]

    def of_hidden(x):
        segments = jnp.asarray(block["segments"])
        attend, positions = functools.partial(decoder._attend_grid, segments=segments), decoder._positions(segments)
        y, _ = decoder.run_layers(C.MODEL, params, x, positions.reshape(-1), attend, ())
        y = decoder.rms_norm(y, params["norm"], C.MODEL.rms_norm_eps)
        logp = jax.nn.log_softmax(decoder.logits(C.MODEL, params, y))
        picked = jnp.take_along_axis(logp, block["targets"].reshape(-1, 1), axis=1)[:, 0]
        return -jnp.sum(picked * block["weights"].reshape(-1))

    pull = jax.jit(jax.grad(of_hidden))(params["embed"]["token"][block["ids"].reshape(-1)])
    expected = np.zeros((C.MODEL.vocab_size, C.MODEL.hidden_size))
    np.add.at(expected, block["ids"].reshape(-1), np.asarray(pull, np.float64))
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert np.abs(expected).max() > 0.05


def test_clipping():
    def loss(p, frozen, batch, key):
        return jnp.vdot(p, batch), {"weight": jnp.float32(2)}

    step = AccumulatedStep(loss, optax.sgd(1.0), clip=1.0)
    batches = [jnp.array([6.0, 0]), jnp.array([0, 8.0])]
    state, out = step(new_state(jnp.zeros(2), optax.sgd(1.0)), None, jax.random.key(0), batches)
    np.testing.assert_allclose(out["grad_norm"], 2.5)  # (6, 8) over a weight of 4
    np.testing.assert_allclose(state.params, [-0.6, -0.8], rtol=1e-6)
    with pytest.raises(ValueError, match="no batches"):
        step(new_state(jnp.zeros(2), optax.sgd(1.0)), None, jax.random.key(0), [])


def test_schedule():
    rate = warmup_cosine(2.0, 4, 12)
    np.testing.assert_allclose([rate(i) for i in (0, 3, 4, 8, 12, 20)], [0.5, 2, 2, 1, 0, 0], atol=1e-6)
    assert float(warmup_cosine(2.0, 10, 5)(4)) == 1.0
    with pytest.raises(ValueError, match="total_steps 0"):
        warmup_cosine(1.0, 0, 0)


def test_flops():
    """Without adapters and head, 4 N a token and three times the attention: with them, little more."""
    model, config = C.MODEL, lora.LoraConfig(("layers/wq",), rank=1)
    n = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48)
    attention = 2 * 2 * 4 * 8 * 10 * 11
    adapter = 2 * (32 + 32)
    assert useful_flops(model, config, [10], 0) == (4 * n + 6 * adapter) * 10 + 3 * attention
    without = useful_flops(model, config, [10], 0)
    assert useful_flops(model, config, [10], 2) - without == 2 * 2 * 32 * 40 * 2
    assert useful_flops(model, dataclasses.replace(config, tables=("head",)), [10], 2) - without == 3 * 2 * 32 * 40 * 2


# ---- a run ----------------------------------------------------------------------------------------------------

def test_run_learns_and_writes_its_folder(whole):
    result, folder = whole
    history = rows(folder)
    assert result.updates == len(history) == 15 and not result.interrupted
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert [r["update"] for r in history if "val_loss" in r] == [3, 6, 9, 12, 15]
    assert result.val_loss == min(r["val_loss"] for r in history if "val_loss" in r)
    assert [r["examples"] for r in history[:5]] == [6, 6, 6, 6, 2]
    assert history[0]["tokens"] >= history[0]["loss_tokens"] == 6 and 0 < history[0]["fill"] <= 1
    full = next(MetricsLog(folder / "metrics.jsonl").rows())
    assert full["tokens_per_s"] > 0 and full["mfu"] > 0 and full["peak_bytes"] > 1e6
    config, trained = lora.read_peft(folder / "adapter", C.SPEC, decoder.hf_sources(C.MODEL))
    same(trained, result.trained)
    assert config == C.CONFIG
    record = json.loads((folder / "config.json").read_text())
    assert record["train"]["lr"] == C.TUNE.lr and record["versions"]["grain"]


@pytest.mark.slow
def test_run_on_a_mesh(whole, tmp_path):
    """Base, batches and evaluation over 4 x 2 devices: the run of one device, to rounding."""
    mesh, tune = MeshSpec(4, 2).build(), dataclasses.replace(C.TUNE, rows=4)
    base = jax.device_put(C.base(), P.shardings(C.SPEC, mesh, decoder.rules(C.MODEL, mesh, FSDP)))
    config = dataclasses.replace(C.CONFIG, dropout=0.0)
    sharded, single = (fit(C.MODEL, b, config, C.examples(26, 0), C.examples(8, 1), tune, tmp_path / name, mesh=m,
                           progress=False) for b, m, name in ((base, mesh, "mesh"), (C.base(), None, "single")))
    for a, b in zip(rows(tmp_path / "mesh"), rows(tmp_path / "single")):
        np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-3)
    np.testing.assert_allclose(sharded.val_loss, single.val_loss, rtol=1e-3)
    assert sharded.updates == whole[0].updates


def test_ended_run_is_returned(whole):
    result, folder = whole
    again = C.run(folder, on_update=lambda row: pytest.fail("trained again"))
    same(again.trained, result.trained)
    assert dataclasses.replace(again, trained=None) == dataclasses.replace(result, trained=None)


@pytest.mark.parametrize("at", [pytest.param(4, marks=pytest.mark.slow), 6])
def test_killed_run_resumes_to_the_bit(whole, tmp_path, at):
    class Killed(BaseException):
        pass

    def die(row):
        if row["update"] == at:
            raise Killed

    with pytest.raises(Killed):
        C.run(tmp_path, on_update=die)
    made = []
    result = C.run(tmp_path, on_update=lambda row: made.append(row["update"]))
    assert 1 < made[0] <= at
    same(result.trained, whole[0].trained)
    assert rows(tmp_path) == rows(whole[1])


def test_sigterm_saves_and_ends(whole, tmp_path):
    def ask(row):
        if row["update"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopped = C.run(tmp_path, on_update=ask)
    assert stopped.interrupted and stopped.updates == 5 and not (tmp_path / "result.json").exists()
    assert signal.getsignal(signal.SIGTERM) == before
    made = []
    result = C.run(tmp_path, on_update=lambda row: made.append(row["update"]))
    assert made[0] == 6
    same(result.trained, whole[0].trained)
    assert rows(tmp_path) == rows(whole[1])


@pytest.mark.slow
def test_sigkill_of_a_process(whole, tmp_path, repository):
    path = os.pathsep.join(str(repository / folder) for folder in (".", "kernels", "tests/core"))
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": path}
    command = [sys.executable, str(repository / "tests/core/finetune_cases.py"), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    for line in process.stdout:
        if line.strip() == "7":
            process.kill()
    process.wait()
    assert not (tmp_path / "result.json").exists()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    _, trained = lora.read_peft(tmp_path / "adapter", C.SPEC, decoder.hf_sources(C.MODEL))
    same(trained, whole[0].trained)
    assert rows(tmp_path) == rows(whole[1])


def test_other_runs_are_not_gone_on_with(whole, tmp_path):
    with pytest.raises(ValueError, match="config.json: train: got .* another run is in this folder"):
        fit(C.MODEL, C.base(), C.CONFIG, C.examples(26, 0), C.examples(8, 1), dataclasses.replace(C.TUNE, lr=1.0),
            whole[1], progress=False)
    other = C.base()
    other["norm"] = other["norm"] * 1.0000002
    with pytest.raises(ValueError, match="base_sha256"):
        fit(C.MODEL, other, C.CONFIG, C.examples(26, 0), C.examples(8, 1), C.TUNE, whole[1], progress=False)
    with pytest.raises(ValueError, match="data_sha256"):
        fit(C.MODEL, C.base(), C.CONFIG, C.examples(26, 2), C.examples(8, 1), C.TUNE, whole[1], progress=False)


def test_patience_and_the_best(tmp_path):
    """Trained on the contrary of what validates, the first look is the best, and patience ends the run."""
    tune = dataclasses.replace(C.TUNE, eval_every=1, patience=2, epochs=10)
    turned = [dataclasses.replace(e, targets=np.where(e.weights > 0, 77 - e.targets, e.targets))
              for e in C.examples(8, 1)]
    result = fit(C.MODEL, C.base(), C.CONFIG, C.examples(26, 0), turned, tune, tmp_path, progress=False)
    losses = [r["val_loss"] for r in rows(tmp_path)]
    assert result.stopped_early and len(losses) == result.best_update + 2
    assert min(losses) == losses[result.best_update - 1]
    _, trained = lora.read_peft(tmp_path / "adapter", C.SPEC, decoder.hf_sources(C.MODEL))
    same(trained, result.trained)


@pytest.mark.slow
def test_quantised_base_and_no_validation(tmp_path):
    model = dataclasses.replace(C.MODEL, hidden_size=64, head_dim=16, intermediate_size=64)
    base = quant.quantise(_init(model), "nf4", ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"))
    tune = dataclasses.replace(C.TUNE, lr=5e-3, first_moment="bfloat16")
    result = fit(model, base, C.CONFIG, C.examples(26, 0), [], tune, tmp_path, progress=False)
    history = rows(tmp_path)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"] and result.val_loss is None and result.best_update == 15


def _init(model):
    return P.init(decoder.spec(model), jax.random.key(1))


def test_bad_loss_is_named(tmp_path):
    base = C.base()
    base["norm"] = base["norm"] * jnp.nan
    with pytest.raises(TrainingStopped, match="step 1: loss is nan"):
        fit(C.MODEL, base, C.CONFIG, C.examples(8, 0), [], C.TUNE, tmp_path, progress=False)
    with pytest.raises(ValueError, match="train: example 1: got 30 tokens, expected at most 24"):
        long = Example.causal(range(30), [3])
        fit(C.MODEL, base, C.CONFIG, [*C.examples(1, 0), long], [], C.TUNE, tmp_path, progress=False)
