"""core_jax/lora.py over the real decoder: the start, merging, slots, new token rows, PEFT folders, exact gradients."""
import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from weights import random_weights

from core_jax import lora
from core_jax import params as P
from core_jax.lora import LoraConfig
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.rope import Default

MODEL = DecoderConfig(
    family="qwen3", vocab_size=48, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=40, rms_norm_eps=1e-6, tie_embeddings=False, qk_norm=True, rope=Default(1e4), max_positions=64)
SPEC = decoder.spec(MODEL)
ALL = tuple(f"layers/{name}" for name in ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"))
ATTENTION = ALL[:4]
IDS = jnp.asarray(np.random.default_rng(0).integers(0, 48, (2, 9)), jnp.int32)


@pytest.fixture(scope="module")
def params() -> P.Tree:
    return jax.tree.map(jnp.asarray, random_weights(SPEC))


def trained(config: LoraConfig, seed: int = 1) -> P.Tree:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: jnp.asarray(0.2 * rng.normal(size=s.shape), jnp.float32), lora.spec(config, SPEC),
                        is_leaf=lambda x: isinstance(x, P.ParamSpec))


quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # half the compile time


def _apply(params, config, tree, key, ids):
    dense, overlay = lora.bind(config, tree, decoder.dense, key=key)
    return decoder.forward(MODEL, lora.with_tables(config, params, tree), ids, dense=dense, overlay=overlay)


_hidden = quick(_apply, static_argnames="config")


def hidden(params: P.Tree, config: LoraConfig, tree: P.Tree, key=None, ids=IDS) -> jax.Array:
    return _hidden(params, config, tree, key, ids)


@quick
def plain(params, ids=IDS):
    return decoder.forward(MODEL, params, ids)


def test_start_is_the_base_bit_for_bit(params):
    config = LoraConfig(ALL, rank=4, tables=("embed/token", "head"))
    tree = lora.init(config, SPEC, params, jax.random.key(0))
    np.testing.assert_array_equal(hidden(params, config, tree), plain(params))
    assert all(float(jnp.abs(ab["a"]).max()) > 0 for ab in tree["lora"].values())
    widths = {path: ab["a"].std() * np.sqrt(3 * ab["a"].shape[2]) for path, ab in tree["lora"].items()}
    assert all(0.75 < float(w) < 1.25 for w in widths.values()), widths


@pytest.mark.parametrize("rs_lora", [False, True])
def test_merged_is_unmerged(params, rs_lora):
    config = LoraConfig(ALL, rank=4, alpha=3.0, rs_lora=rs_lora, tables=("embed/token", "head"), rows=(3, 41))
    tree = trained(config)
    apart = hidden(params, config, tree)
    merged = lora.merge(config, params, tree)
    np.testing.assert_allclose(plain(merged), apart, atol=1e-5)
    assert float(jnp.abs(apart - plain(params)).max()) > 0.1
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    np.testing.assert_array_equal(merged["head"][np.array([3, 41])], tree["tables"]["head"])
    assert config.scale == pytest.approx(1.5 if rs_lora else 0.75)


def test_unstacked_layers_and_bfloat16(params):
    config = LoraConfig(ALL, rank=4)
    tree = trained(config)
    np.testing.assert_allclose(hidden(decoder.unstack(params), config, tree), hidden(params, config, tree), atol=1e-5)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.ndim > 1 else x, params)
    got = hidden(half, config, tree)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), hidden(params, config, tree), atol=0.3)


def test_each_target_is_live(params):
    config = LoraConfig(ALL, rank=4)
    tree, base = trained(config), plain(params)
    for path in ALL:
        alone = {p: jax.tree.map(lambda x, on=float(p == path): x * on, ab) for p, ab in tree["lora"].items()}
        assert float(jnp.abs(hidden(params, config, tree | {"lora": alone}) - base).max()) > 1e-3, path


def test_dropout(params):
    config = LoraConfig(ATTENTION, rank=4, dropout=0.5)
    tree = trained(config)

    def run(key):
        return hidden(params, config, tree, key)

    quiet = run(None)
    np.testing.assert_array_equal(run(jax.random.key(1)), run(jax.random.key(1)))
    assert float(jnp.abs(run(jax.random.key(1)) - run(jax.random.key(2))).max()) > 1e-3
    zero = dataclasses.replace(config, dropout=0.0)
    np.testing.assert_array_equal(hidden(params, zero, tree, jax.random.key(1)), quiet)
    # what a mask keeps is scaled up: on average over masks, the update is that without dropout
    x = jnp.ones((4096, 32))
    layer = {"wq": jnp.zeros((32, 32)), "lora": {"wq": jax.tree.map(lambda y: y[0], tree["lora"]["layers/wq"])}}
    dense, overlay = lora.bind(config, tree, decoder.dense, key=jax.random.key(3))
    mean = dense(x, layer | {"lora_key": overlay["lora_key"][0]}, "wq").mean(0)
    exact = lora.bind(config, tree, decoder.dense)[0](x[:1], layer, "wq")[0]
    np.testing.assert_allclose(mean, exact, atol=0.15)


# ---- several adapters by token --------------------------------------------------------------------------------

def test_slots_equal_single_adapters(params):
    configs = [LoraConfig(ATTENTION, rank=4, alpha=6.0), LoraConfig(ALL, rank=2, alpha=2.0),
               LoraConfig(("layers/w_up",), rank=3)]
    trees = [trained(c, seed) for seed, c in enumerate(configs)]
    room = P.init(lora.slots(SPEC, ALL, rank=4, count=4), jax.random.key(0))
    place = jax.jit(lora.put, static_argnames="count")
    for slot, tree in enumerate(trees):
        room = place(room, slot, tree["lora"], count=4)
    scales = jnp.asarray([c.scale for c in configs] + [1.0], jnp.float32)
    ids = jnp.tile(IDS[:1], (4, 1))
    slot = jnp.repeat(jnp.asarray([0, 1, 2, -1], jnp.int32), ids.shape[1])

    @quick
    def run(room):
        dense, overlay = lora.bind_slots(room, slot, scales, decoder.dense)
        return decoder.forward(MODEL, params, ids, dense=dense, overlay=overlay)

    got = run(room)
    for row, (config, tree) in enumerate(zip(configs, trees)):
        np.testing.assert_allclose(got[row], hidden(params, config, tree, ids=ids)[row], atol=1e-5)
    np.testing.assert_array_equal(got[3], plain(params, ids)[3])

    again = run(place(room, 0, trees[1]["lora"], count=4))  # another tenant, of lower rank: no trace of the first
    scaled = dataclasses.replace(configs[1], alpha=configs[0].scale * configs[1].rank)
    np.testing.assert_allclose(again[0], hidden(params, scaled, trees[1], ids=ids)[0], atol=1e-5)
    np.testing.assert_array_equal(again[1:], got[1:])


def test_slots_refuse():
    room = P.init(lora.slots(SPEC, ATTENTION, rank=2, count=2), jax.random.key(0))
    with pytest.raises(ValueError, match="layers/wk: got rank 4, expected at most 2"):
        lora.put(room, 0, trained(LoraConfig(("layers/wk",), rank=4))["lora"], count=2)
    with pytest.raises(ValueError, match="changes layers/w_up"):
        lora.put(room, 0, trained(LoraConfig(("layers/w_up",), rank=2))["lora"], count=2)


# ---- new token rows -------------------------------------------------------------------------------------------

def test_rows_start_at_the_mean_of_the_others(params):
    config = LoraConfig(ATTENTION, rank=2, tables=("embed/token", "head"), rows=(7, 40))
    tree = lora.init(config, SPEC, params, jax.random.key(0))
    others = np.delete(np.asarray(params["head"]), [7, 40], axis=0).mean(0)
    np.testing.assert_allclose(tree["tables"]["head"], np.tile(others, (2, 1)), atol=1e-6)


def test_rows_gradient_is_that_of_the_whole_table(params):
    rows = (7, 40, 11)
    part = LoraConfig(("layers/wq",), rank=2, tables=("embed/token",), rows=rows)
    whole = LoraConfig(("layers/wq",), rank=2, tables=("embed/token",))
    ids = IDS.at[0, 3].set(7).at[1, 2].set(40).at[1, 5].set(7)
    tree = lora.init(whole, SPEC, params, jax.random.key(0))
    some = tree | {"tables": {"embed/token": tree["tables"]["embed/token"][np.array(rows)]}}
    pull = jnp.asarray(np.random.default_rng(1).normal(size=(2, 9, 32)), jnp.float32)

    def loss(config):
        return quick(jax.grad(lambda tree: jnp.vdot(_apply(params, config, tree, None, ids), pull)))

    full, got = loss(whole)(tree)["tables"]["embed/token"], loss(part)(some)["tables"]["embed/token"]
    np.testing.assert_allclose(got, full[np.array(rows)], atol=1e-4)
    assert float(jnp.abs(got[0]).max()) > 0.1 and float(jnp.abs(got[2]).max()) == 0  # 11 does not occur


# ---- XLA:CPU and LoRA with B zero -----------------------------------------------------------------------------

@pytest.mark.parametrize("width", [32, 384])
def test_zero_start_gradients_are_those_of_float64(width):
    rng, rank, rows = np.random.default_rng(width), 8, 24
    x, w, a = (rng.normal(size=s).astype(np.float32) for s in ((rows, width), (width, width), (rank, width)))
    b = np.zeros((width, rank), np.float32)
    config = LoraConfig(("layers/w",), rank=rank, alpha=16.0)
    layer = {"w": w, "lora": {"w": {"a": a, "b": b}}}
    dense, _ = lora.bind(config, {"lora": {}, "tables": {}}, decoder.dense)
    alphas = jnp.linspace(0, 1, 9, dtype=jnp.float32)

    def total(x, layer):
        return jnp.sum(jnp.tanh(dense(x, layer, "w")).mean(0))

    path = jax.jit(lambda x, layer: jax.vmap(lambda t: jax.grad(total)(t * x, layer))(alphas).mean(0))
    got_x, got = jax.jit(jax.grad(lambda x, layer: dense(x, layer, "w").sum(), argnums=(0, 1)))(x, layer)
    x64, w64, a64 = (y.astype(np.float64) for y in (x, w, a))
    np.testing.assert_allclose(got_x, np.tile(w64.sum(0), (rows, 1)), rtol=1e-5, atol=1e-4)
    expected_b = config.scale * np.tile((x64 @ a64.T).sum(0), (width, 1))
    np.testing.assert_allclose(got["lora"]["w"]["b"], expected_b, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(got["lora"]["w"]["a"], np.zeros_like(a))
    steps = [(1 - np.tanh(t * x64 @ w64.T) ** 2) @ w64 / rows for t in np.linspace(0, 1, 9)]
    np.testing.assert_allclose(path(x, layer), np.mean(steps, 0), rtol=1e-4, atol=1e-5)


# ---- settings and folders -------------------------------------------------------------------------------------

@pytest.mark.parametrize("change, message", [
    ({"rank": 0}, "rank: got 0"), ({"alpha": 0.0}, "alpha: got 0.0"), ({"dropout": 1.0}, "dropout: got 1.0"),
    ({"targets": ("layers/wq", "layers/wq")}, "each once"), ({"rows": (1,)}, "rows: got"),
    ({"targets": ()}, "targets: got none"),
])
def test_settings_refuse(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LoraConfig(ATTENTION), **change)


@pytest.mark.parametrize("change, message", [
    ({"targets": ("layers/wz",)}, "has no 'layers/wz'"), ({"targets": ("layers/norm1",)}, "expected a stacked matrix"),
    ({"tables": ("norm",)}, r"expected a table \[V, D\]"), ({"tables": ("head",), "rows": (48,)}, "rows: got 48"),
])
def test_spec_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        lora.spec(dataclasses.replace(LoraConfig(ATTENTION), **change), SPEC)


@pytest.mark.parametrize("tables", [{}, {"tables": ("embed/token", "head")},
                                    {"tables": ("embed/token", "head"), "rows": (5, 6)}])
def test_folder_round_trip(tmp_path, tables):
    config = LoraConfig(("layers/wq", "layers/w_down"), rank=3, alpha=5.0, dropout=0.1, rs_lora=True, **tables)
    tree, sources = trained(config), decoder.hf_sources(MODEL)
    lora.write_peft(tmp_path, config, tree, sources, base="base")
    again, got = lora.read_peft(tmp_path, SPEC, sources)
    assert again == config
    assert jax.tree.structure(got) == jax.tree.structure(tree)
    jax.tree.map(np.testing.assert_array_equal, got, tree)


@pytest.mark.parametrize("change, message", [
    ({"use_dora": True}, "use_dora: got True"), ({"peft_type": "IA3"}, "peft_type: got 'IA3'"),
    ({"rank_pattern": {"q_proj": 4}}, "rank_pattern: got"), ({"bias": "all"}, "bias: got 'all'"),
    ({"layers_to_transform": [0]}, "layers_to_transform: got"), ({"r": "3"}, "r: got '3', expected int"),
    ({"target_modules": ["c_attn"]}, "target_modules: got 'c_attn'"),
    ({"target_modules": "all-linear"}, "target_modules: got"),
    ({"target_modules": ["q_proj"]}, "unexpected base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"),
    ({"target_modules": ["q_proj", "down_proj", "k_proj"]},
     "missing base_model.model.model.layers.0.self_attn.k_proj.lora_A"),
    ({"r": 4}, "shape of base_model"), ({"lora_alpha": -1}, "alpha: got -1"),
])
def test_folder_is_read_strictly(tmp_path, change, message):
    config, sources = LoraConfig(("layers/wq", "layers/w_down"), rank=3), decoder.hf_sources(MODEL)
    lora.write_peft(tmp_path, config, trained(config), sources)
    file = tmp_path / lora.SETTINGS
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message) as e:
        lora.read_peft(tmp_path, SPEC, sources)
    assert str(tmp_path) in str(e.value)


def test_absent_folders(tmp_path):
    with pytest.raises(ValueError, match="no adapter_config.json in it"):
        lora.read_peft(tmp_path, SPEC, decoder.hf_sources(MODEL))
    config = LoraConfig(ATTENTION, rank=2)
    lora.write_peft(tmp_path, config, trained(config), decoder.hf_sources(MODEL))
    (tmp_path / lora.ADAPTER).write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        lora.read_peft(tmp_path, SPEC, decoder.hf_sources(MODEL))
    (tmp_path / lora.ADAPTER).unlink()
    with pytest.raises(ValueError, match="no adapter_model.safetensors"):
        lora.read_peft(tmp_path, SPEC, decoder.hf_sources(MODEL))


def test_sharded_like_the_base(tmp_path):
    from jax.sharding import PartitionSpec as S

    from core_jax import axes as A
    from core_jax.mesh import MeshSpec, Rules
    mesh, rules = MeshSpec(4, 2).build(), Rules(((A.HEADS, "tensor"), (A.EMBED, "data")))
    config, sources = LoraConfig(ATTENTION, rank=2, tables=("head",)), decoder.hf_sources(MODEL)
    tree = trained(config)
    lora.write_peft(tmp_path, config, tree, sources)
    _, got = lora.read_peft(tmp_path, SPEC, sources, shardings=lambda spec: P.shardings(spec, mesh, rules))
    assert got["lora"]["layers/wq"]["b"].sharding.spec == S(None, "tensor", None)
    assert got["tables"]["head"].sharding.spec == S(None, "data")
    jax.tree.map(np.testing.assert_array_equal, got, tree)
