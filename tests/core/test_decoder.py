"""The decoder without its reference: padding, packing, caches in the carry, remat, dtypes, the tree, the config."""
from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from weights import random_weights

from core_jax import params as P
from core_jax.models import decoder
from core_jax.models.config import BertConfig, DecoderConfig
from core_jax.rope import Default, Llama3, Yarn

CONFIG = DecoderConfig(
    family="qwen3", vocab_size=50, hidden_size=16, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=24, rms_norm_eps=1e-6, tie_embeddings=False, qk_norm=True, rope=Default(1e4), max_positions=64)
LLAMA = dataclasses.replace(CONFIG, family="llama", qk_norm=False, tie_embeddings=True)
QWEN2 = dataclasses.replace(LLAMA, family="qwen2")


@pytest.fixture(scope="module")
def params():
    return random_weights(decoder.spec(CONFIG))


jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # half the compile time


@functools.partial(jit, static_argnums=0)
def run(config, params, ids, **kwargs):
    return decoder.logits(config, params, decoder.forward(config, params, ids, **kwargs))


def _ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 50, shape).astype(np.int32)


@pytest.fixture(scope="module")
def base(params):
    """Logits of the ids that most tests start from."""
    return np.asarray(run(CONFIG, params, _ids(2, 9)))


def test_a_token_sees_no_later_one(params, base):
    changed = _ids(2, 9)
    changed[:, 5] = (changed[:, 5] + 1) % 50
    changed = np.asarray(run(CONFIG, params, changed))
    np.testing.assert_allclose(base[:, :5], changed[:, :5], atol=1e-6)
    assert (np.abs(base - changed)[:, 5:].max(axis=(0, 2)) > 1e-4).all()


@pytest.mark.parametrize("left, right", [(0, 4), (4, 0), (3, 1)])
def test_padding_on_either_side_changes_nothing(params, base, left, right):
    pad = ((0, 0), (left, right))
    mask = np.pad(np.ones((2, 9), bool), pad)
    padded = np.asarray(run(CONFIG, params, np.pad(_ids(2, 9), pad, constant_values=41), mask=mask))
    np.testing.assert_allclose(padded[:, left:left + 9], base, atol=2e-5)
    assert np.isfinite(padded).all()


def test_packed_texts_equal_separate_ones(params):
    """The filler bears the last text's number, and is told from it by the mask."""
    texts = [_ids(n, seed=n) for n in (4, 1, 6)]
    lengths = [len(t) for t in texts]
    alone = np.stack([np.pad(t, (0, 13 - len(t))) for t in texts])
    alone = run(CONFIG, params, alone, mask=np.arange(13)[None] < np.array(lengths)[:, None])
    segments, mask = np.repeat(np.array([[7, 3, 5]], np.int32), [4, 1, 8], axis=1), np.arange(13)[None] < 11
    packed = run(CONFIG, params, np.pad(np.concatenate(texts), (0, 2))[None], segments=segments, mask=mask)
    np.testing.assert_allclose(packed[0, :11], np.concatenate([a[:n] for a, n in zip(alone, lengths)]), atol=2e-5)


def test_default_positions_count_within_each_text(params, base):
    segments = jnp.array([[4, 4, 4, 1, 1, 1, 1, 7], [-1, -1, 0, 0, 0, 0, 0, 0]], jnp.int32)
    np.testing.assert_array_equal(decoder._positions(segments), [[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 0, 1, 2, 3, 4, 5]])
    shifted = run(CONFIG, params, _ids(2, 9), positions=np.arange(9, dtype=np.int32)[None].repeat(2, axis=0) * 3)
    assert np.abs(shifted - base).max() > 1e-3


def test_blocks_of_queries_compute_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((46, n, 8)).astype(np.float32) for n in (4, 2, 2))
    segments = np.repeat(np.array([[1, 2]], np.int32), [9, 14], axis=1).repeat(2, axis=0)

    def value(*qkv):
        mixed = decoder._attend_grid(jnp.int32(0), *qkv, (), segments=segments)[0]
        return jnp.sum(jnp.sin(mixed)), mixed

    def both():
        return jit(lambda *qkv: jax.value_and_grad(value, argnums=(0, 1, 2), has_aux=True)(*qkv))(q, k, v)

    (_, whole), gradient = both()
    monkeypatch.setattr(decoder, "QUERY_BLOCK", 12)
    (_, blocks), by_blocks = both()
    for a, b in zip((blocks, *by_blocks), (whole, *gradient)):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_unstacked_layers_compute_the_same(params, base):
    apart = jit(decoder.unstack)(params)
    assert isinstance(apart["layers"], tuple) and len(apart["layers"]) == 3
    np.testing.assert_allclose(run(CONFIG, apart, _ids(2, 9)), base, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 8, decoder.FEW_ROWS + 1])
def test_few_rows_are_multiplied_alike(rows):
    """On either side of FEW_ROWS: values and gradients; accelerators get the plain product."""
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 16)).astype(np.float32), rng.standard_normal((24, 16)).astype(np.float32)
    np.testing.assert_allclose(decoder.dense(x, {"w": w}, "w"), x @ w.T, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda x, w: jnp.sum(jnp.sin(decoder.dense(x, {"w": w}, "w"))), argnums=(0, 1)))(x, w)
    slope = np.cos(x @ w.T)
    np.testing.assert_allclose(gradient[0], slope @ w, atol=1e-4)
    np.testing.assert_allclose(gradient[1], slope.T @ x, atol=1e-4)
    traced = jax.jit(decoder.dense, static_argnums=2).trace(x, {"w": w}, "w")
    barrier = {p: "optimization_barrier" in traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "tpu")}
    assert barrier == {"cpu": rows == 8, "tpu": False}


def _decode(config, params, ids, *, dtype=np.float32):
    """Token by token through `run_layers`, keys and values in a donated cache [L, 2, B, S, K, H] that is the state."""
    (b, s), h = ids.shape, config.head_dim

    def attend(layer, q, k, v, state):
        cache, t = state
        cache = jax.lax.dynamic_update_slice(
            cache, jnp.stack([k, v])[None, :, :, None], (layer, np.int32(0), np.int32(0), t, np.int32(0), np.int32(0)))
        k, v = jnp.repeat(cache[layer], config.num_heads // config.num_kv_heads, axis=3)
        scores = jnp.einsum("bnh,bsnh->bns", q, k) / np.float32(math.sqrt(h))
        scores = jnp.where((jnp.arange(s, dtype=jnp.int32) <= t)[None, None], scores, -jnp.inf)
        return jnp.einsum("bns,bsnh->bnh", jax.nn.softmax(scores), v), (cache, t)

    @functools.partial(jax.jit, donate_argnums=2)
    def step(params, token, cache, t):
        x, (cache, _) = decoder.run_layers(
            config, params, decoder.embed(params, token), jnp.full(b, t), attend, (cache, t))
        return decoder.logits(config, params, decoder.rms_norm(x, params["norm"], config.rms_norm_eps)), cache

    cache = jnp.zeros((config.num_layers, 2, b, s, config.num_kv_heads, h), dtype)
    compiled = step.lower(params, ids[:, 0], cache, jnp.int32(0)).compile()
    out = []
    for t in range(s):
        y, cache = compiled(params, ids[:, t], cache, jnp.int32(t))
        out.append(y)
    return np.stack(out, axis=1), compiled, cache


@pytest.mark.parametrize("config, apart", [(CONFIG, False), (CONFIG, True), (LLAMA, True), (QWEN2, False)])
def test_decoding_with_a_cache_in_the_carry_equals_the_whole(config, apart):
    params = random_weights(decoder.spec(config))
    ids = _ids(2, 9)
    tokens, compiled, cache = _decode(config, decoder.unstack(params) if apart else params, ids)
    np.testing.assert_allclose(tokens, run(config, params, ids), atol=2e-5)
    assert compiled.memory_analysis().alias_size_in_bytes >= cache.nbytes  # the donated cache is the result


@pytest.mark.parametrize("apart", [False, True], ids=["stacked", "unstacked"])
def test_dense_sees_parameters_and_overlay_of_its_layer(params, base, apart):
    """A LoRA-like change through `dense` and `overlay` equals the same change of the weights."""
    rng = np.random.default_rng(3)
    overlay = {"a": rng.standard_normal((3, 2, 16)).astype(np.float32)}
    overlay["b"] = rng.standard_normal((3, 32, 2)).astype(np.float32)

    def dense(x, layer, name):
        y = decoder.dense(x, layer, name)
        return y + x @ layer["a"].T @ layer["b"].T if name == "wq" else y

    changed = {"wq": params["layers"]["wq"] + np.einsum("lor,lri->loi", overlay["b"], overlay["a"])}
    merged = run(CONFIG, params | {"layers": params["layers"] | changed}, _ids(2, 9))
    tree = decoder.unstack(params) if apart else params
    got = jit(lambda p, o: decoder.logits(
        CONFIG, p, decoder.forward(CONFIG, p, _ids(2, 9), dense=dense, overlay=o)))(tree, overlay)
    np.testing.assert_allclose(got, merged, atol=5e-5)
    assert np.abs(got - base).max() > 1e-3
    np.testing.assert_allclose(run(CONFIG, tree, _ids(2, 9), overlay=changed), merged, atol=1e-5)


@pytest.fixture(scope="module")
def gradient(params):
    @functools.cache
    def of(remat):
        def loss(p):
            return jnp.mean(jnp.sin(decoder.logits(CONFIG, p, decoder.forward(CONFIG, p, _ids(2, 9), remat=remat))))
        return jit(jax.grad(loss))(params)
    return of


def _dead(gradient):
    """Names of the parameters that change nothing."""
    return {"/".join(k.key for k in path) for path, g in jax.tree_util.tree_leaves_with_path(gradient)
            if np.abs(g).max() < 1e-6}


def test_every_parameter_changes_the_output(gradient):
    assert _dead(gradient(None)) == set()


def test_biases_are_added_before_the_rotation_beside_any_projection():
    """A key bias too is seen: the rotation turns it by the distance. `dense` never sees a bias."""
    params = random_weights(decoder.spec(QWEN2))
    assert _dead(jit(jax.grad(lambda p: jnp.mean(jnp.sin(decoder.forward(QWEN2, p, _ids(2, 9))))))(params)) == set()
    seen = []

    def dense(x, layer, name):
        seen.append(name)
        return decoder.dense(x, layer, name)

    jax.eval_shape(lambda p: decoder.forward(QWEN2, p, _ids(2, 9), dense=dense), params)
    assert set(seen) == {"wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"}
    half = jax.eval_shape(lambda p: decoder.forward(QWEN2, p, _ids(2, 9)), P.abstract(decoder.spec(QWEN2, "bfloat16")))
    assert half.dtype == jnp.bfloat16


@pytest.mark.parametrize("remat", decoder.REMAT)
def test_remat_gives_the_same_gradients(gradient, remat):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient(remat), gradient(None))


def test_remat_saves_less(params):
    saved = {}
    for remat in (None, *decoder.REMAT):
        _, vjp = jax.eval_shape(lambda p, remat=remat: jax.vjp(
            lambda p: decoder.forward(CONFIG, p, _ids(2, 9), remat=remat), p), params)
        saved[remat] = sum(x.size for x in jax.tree.leaves(vjp))
    assert saved["full"] < saved["projections"] < saved[None]
    with pytest.raises(ValueError, match="remat 'some', expected None or one of"):
        decoder.forward(CONFIG, params, _ids(2, 9), remat="some")


def test_bfloat16_weights_give_float32_logits(params, base):
    tree = decoder.spec(CONFIG, "bfloat16")
    kinds = {path: s.dtype for path, s in P.leaves(tree)}
    assert {kind for path, kind in kinds.items() if "norm" in path} == {"float32"}
    assert {kind for path, kind in kinds.items() if "norm" not in path} == {"bfloat16"}
    cast = jax.tree_util.tree_map_with_path(lambda p, x: jnp.asarray(x, kinds["/".join(k.key for k in p)]), params)
    out = run(CONFIG, cast, _ids(2, 9))
    assert out.dtype == jnp.float32
    assert 0 < np.abs(out - base).max() < 0.15 * np.abs(base).max()
    assert jax.eval_shape(lambda p: decoder.forward(CONFIG, p, _ids(2, 9)), cast).dtype == jnp.bfloat16


def test_parameters_are_arguments(params):
    jaxpr = jax.make_jaxpr(lambda p, i: decoder.logits(CONFIG, p, decoder.forward(CONFIG, p, i)))(params, _ids(2, 9))
    assert sum(np.asarray(c).nbytes for c in jaxpr.consts) < 1 << 20


def test_the_module_names_the_same_tree_and_computes_the_same(params, base):
    for config in (CONFIG, LLAMA, QWEN2):
        module = nnx.eval_shape(lambda config=config: decoder.Decoder(config, rngs=nnx.Rngs(0)))
        state = nnx.state(module)
        P.check(decoder.spec(config), nnx.to_pure_dict(state))  # and so no rng or cache leaves
    module = nnx.eval_shape(lambda: decoder.Decoder(CONFIG, rngs=nnx.Rngs(0)))
    state = nnx.state(module)
    nnx.replace_by_pure_dict(state, params)
    nnx.update(module, state)
    graphdef, state = nnx.split(module)
    out = jax.jit(lambda state, ids: nnx.merge(graphdef, state)(ids))(state, _ids(2, 9))
    np.testing.assert_allclose(out, base, atol=1e-5)


ROPES = [Default(50.0), Llama3(50.0, 8.0, 1.0, 4.0, 64), Yarn(50.0, 4.0, 64, beta_fast=4.0, truncate=False)]
MSCALE, FACTOR = Yarn(50.0, 4.0, 64, mscale=0.7, mscale_all_dim=1.0), Yarn(50.0, 4.0, 64, attention_factor=1.1)
LIVE = [(rope, f.name) for rope in ROPES for f in dataclasses.fields(rope) if getattr(rope, f.name) is not None]
LIVE += [(MSCALE, "mscale"), (MSCALE, "mscale_all_dim"), (FACTOR, "attention_factor")]


def test_every_rope_field_is_read(params, monkeypatch):
    """The tables are all that a rope does to a model, so they are the argument of one compiled function."""
    ids, positions, tables = _ids(2, 9), np.arange(0, 90, 5, dtype=np.int32), decoder.R.tables

    @jax.jit
    def with_tables(params, cos, sin):
        used = []
        monkeypatch.setattr(decoder.R, "tables", lambda *args: used.append(args) or (cos, sin))
        out = decoder.logits(CONFIG, params, decoder.forward(CONFIG, params, ids))
        assert len(used) == 1 and used[0][:2] == (CONFIG.rope, CONFIG.head_dim)
        return out

    for rope, field in LIVE:
        value = getattr(rope, field)
        other = dataclasses.replace(rope, **{field: not value if isinstance(value, bool) else value * 1.5})
        a, b = (with_tables(params, *tables(r, CONFIG.head_dim, positions)) for r in (rope, other))
        assert np.abs(a - b).max() > 1e-5, (rope, field)


def test_every_architecture_field_that_keeps_the_shapes_is_read(params, base):
    for change in ({"rms_norm_eps": 1e-2}, {"tie_embeddings": True}, {"family": "llama", "qk_norm": False},
                   {"rope": ROPES[0]}):
        assert np.abs(run(dataclasses.replace(CONFIG, **change), params, _ids(2, 9)) - base).max() > 1e-4, change


@pytest.mark.parametrize("change", [
    {"vocab_size": 51}, {"hidden_size": 20}, {"num_layers": 2}, {"num_heads": 6}, {"num_kv_heads": 4}, {"head_dim": 10},
    {"intermediate_size": 25}, {"tie_embeddings": True}, {"family": "llama", "qk_norm": False},
    {"family": "qwen2", "qk_norm": False},
])
def test_every_other_field_changes_the_tree_and_misfitting_weights_fail(params, change):
    other = dataclasses.replace(CONFIG, **change)
    with pytest.raises(ValueError):
        P.check(decoder.spec(other), params)
    assert P.golden(decoder.spec(other)) != P.golden(decoder.spec(CONFIG))


def test_a_model_without_head():
    assert set(decoder.spec(CONFIG, head=False)) == {"embed", "layers", "norm"} == set(decoder.spec(LLAMA))
    for config in (CONFIG, LLAMA, QWEN2):
        for head in (True, False):
            sources = decoder.hf_sources(config, head=head)
            assert set(sources) == {path for path, _ in P.leaves(decoder.spec(config, head=head))}
            assert sources["norm"].keys == ("model.norm.weight" if head else "norm.weight",)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_it_lowers_for_absent_devices(platform):
    tree = P.abstract(decoder.spec(CONFIG, "bfloat16"))
    ids = jax.ShapeDtypeStruct((2, 2048), jnp.int32)
    assert "stablehlo" in run.trace(CONFIG, tree, ids).lower(lowering_platforms=(platform,)).as_text()


HF, LLAMA_HF, QWEN2_HF = CONFIG.to_hf(), LLAMA.to_hf(), QWEN2.to_hf()


@pytest.mark.parametrize("rope", [*ROPES, MSCALE, FACTOR])
def test_config_round_trip(rope):
    for config in (CONFIG, LLAMA, QWEN2):
        config = dataclasses.replace(config, rope=rope)
        assert DecoderConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize("config", [LLAMA, QWEN2], ids=lambda c: c.family)
def test_old_llama_and_all_qwen2_files_leave_the_head_dim_out(config):
    whole = config.to_hf()
    for raw in (whole | {"head_dim": None}, {k: v for k, v in whole.items() if k != "head_dim"}):
        assert DecoderConfig.from_hf(raw) == dataclasses.replace(config, head_dim=4)
    with pytest.raises(ValueError, match="head_dim: missing"):
        DecoderConfig.from_hf(LLAMA_HF | {"head_dim": None, "num_attention_heads": 6})


@pytest.mark.parametrize("change, message", [
    ({"model_type": "qwen3_moe"}, "model_type: got 'qwen3_moe', expected one of ('qwen3', 'qwen2', 'llama')"),
    ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', expected 'silu'"),
    ({"attention_bias": True}, "attention_bias: got True"),
    ({"use_sliding_window": True}, "use_sliding_window: got True"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention: got True"),
    ({"is_causal": False}, "is_causal: got False"),
    ({"rope_interleaved": True}, "rope_interleaved: got True"),
    ({"quantization_config": {"quant_method": "awq"}}, "quantization_config: got"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: got ['sliding_attention']"),
    ({"layer_types": 2}, "layer_types: got 2"),
    ({"model_type": []}, "model_type: got []"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps: got nan, expected a positive number"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: got 0.5"),
    ({"num_key_value_heads": 3}, "num_heads 4, expected a multiple of num_kv_heads 3"),
    ({"head_dim": 7}, "head_dim 7, expected an even number"),
    ({"head_dim": None}, "head_dim: got None"),
    ({"hidden_size": "16"}, "hidden_size: got '16', expected int"),
    ({"num_hidden_layers": 0}, "num_hidden_layers: got 0"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings: got 1, expected bool"),
    ({"rms_norm_eps": True}, "rms_norm_eps: got True, expected float"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type: got 'dynamic'"),
])
def test_config_errors_name_file_and_field(change, message):
    with pytest.raises(ValueError) as e:
        DecoderConfig.from_hf(HF | change, where="folder/config.json")
    assert str(e.value).startswith("folder/config.json: ") and message in str(e.value)


def test_a_missing_field_is_an_error_not_a_default():
    optional = {"architectures", "attention_bias", "rope_scaling", "rope_parameters", "rope_theta"}  # the rope: twice
    for name in set(HF) - optional:
        with pytest.raises(ValueError, match=f"folder: {name}: missing|model_type"):
            DecoderConfig.from_hf({k: v for k, v in HF.items() if k != name}, where="folder")
    with pytest.raises(ValueError, match="folder: rope_theta: missing"):
        DecoderConfig.from_hf({k: v for k, v in HF.items() if k not in optional}, where="folder")


def test_families_do_not_mix():
    with pytest.raises(ValueError, match="model_type"):
        BertConfig.from_hf(HF)
    with pytest.raises(ValueError, match="qk_norm False for family 'qwen3'"):
        dataclasses.replace(CONFIG, qk_norm=False)
