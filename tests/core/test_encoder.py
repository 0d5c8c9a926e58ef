"""Text encoders without their references: pooling, packing, batch mates, the trees, the configs."""
from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from weights import random_weights

from core_jax import params as P
from core_jax import rope as R
from core_jax.models import decoder, encoder, modernbert, pooled
from core_jax.models.config import BertConfig, DecoderConfig, ModernBertConfig
from core_jax.models.presets import MINILM, MODERNBERT_BASE

CONFIG = BertConfig(vocab_size=50, hidden_size=16, num_layers=3, num_heads=4, intermediate_size=24, max_positions=40,
                    type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", position_offset=0)
MODERN = ModernBertConfig(
    vocab_size=50, hidden_size=16, num_heads=4, intermediate_size=24, max_length=40, norm_eps=1e-5, activation="gelu",
    global_layers=(True, False, False, True), reach=3, global_rope=R.Default(100.0), local_rope=R.Default(10.0))
QWEN3 = DecoderConfig(
    family="qwen3", vocab_size=50, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=24, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=True, rope=R.Default(100.0), max_positions=40)
ENCODERS = {"bert": (encoder, CONFIG), "modernbert": (modernbert, MODERN)}
MODELS = ENCODERS | {"qwen3": (decoder, QWEN3)}
encoders = pytest.mark.parametrize("model, config", ENCODERS.values(), ids=ENCODERS)
models = pytest.mark.parametrize("model, config", MODELS.values(), ids=MODELS)


def _weights(model, config):
    return random_weights(model.spec(config))


def _batch(lengths, width, seed=0):
    ids = np.random.default_rng(seed).integers(1, 50, (len(lengths), width)).astype(np.int32)
    mask = np.arange(width)[None] < np.asarray(lengths)[:, None]
    return np.where(mask, ids, 0), mask


padded = jax.jit(pooled.padded, static_argnums=(0, 1))


@models
def test_padding_changes_nothing(model, config):
    (ids, mask), params = _batch([7, 3, 1], 7), _weights(model, config)
    short = padded(model.hidden, config, params, ids, mask)
    wide = padded(model.hidden, config, params, np.pad(ids, ((0, 0), (0, 9)), constant_values=41),
                  np.pad(mask, ((0, 0), (0, 9))))
    np.testing.assert_allclose(np.where(mask[..., None], wide[:, :7], 0), np.where(mask[..., None], short, 0), atol=3e-6)


@models
def test_a_row_of_padding_is_finite(model, config):
    ids, mask = _batch([0, 4, 7], 7)
    assert np.isfinite(padded(model.hidden, config, _weights(model, config), ids, mask)).all()


def test_a_decoder_computes_alike_as_an_embedder():
    (ids, mask), params = _batch([7, 3, 1], 7), _weights(decoder, QWEN3)
    ours = padded(decoder.hidden, QWEN3, params, ids, mask)
    whole = jax.jit(lambda p: decoder.forward(QWEN3, p, ids, mask=mask))(params)
    np.testing.assert_allclose(np.asarray(ours)[mask], np.asarray(whole)[mask], atol=2e-6)


def _packed(model, config, params, texts, filler=0, pooling=None):
    """Vectors of id lists laid end to end; one shape for all tests, wider than a position table."""
    pooling = pooling or ("last" if model is decoder else "mean")
    flat, lengths = np.full(100, filler, np.int32), np.zeros(10, np.int32)
    lengths[: len(texts)] = [len(t) for t in texts]
    flat[: lengths.sum()] = np.concatenate(texts)
    out = pooled.vectors(model.hidden, config, params, flat, lengths, width=48, pooling=pooling, normalized=True)
    assert out.shape == (10, 16) and out.dtype == jnp.float32 and np.isfinite(out).all()
    return np.asarray(out)[: len(texts)]


@pytest.mark.parametrize("name, pooling", [
    ("bert", "mean"), ("bert", "cls"), ("bert", "last"), ("modernbert", "mean"), ("qwen3", "last")])
def test_packed_equals_padded(name, pooling):
    model, config = MODELS[name]
    (ids, mask), params = _batch([9, 1, 40, 9, 2], 40), _weights(model, config)
    hidden, wanted = np.asarray(padded(model.hidden, config, params, ids, mask)), []
    for row, length in zip(hidden, mask.sum(1)):
        wanted.append({"mean": row[:length].mean(0), "cls": row[0], "last": row[length - 1]}[pooling])
    wanted = np.stack(wanted) / np.linalg.norm(wanted, axis=1, keepdims=True)
    got = _packed(model, config, params, [i[m] for i, m in zip(ids, mask)], pooling=pooling)
    np.testing.assert_allclose(got, wanted, atol=2e-6)


@models
def test_packed_vectors_do_not_depend_on_neighbours(model, config):
    rng, params = np.random.default_rng(1), _weights(model, config)

    def text(n):
        return rng.integers(1, 50, n).astype(np.int32)

    mine = text(6)
    alone = _packed(model, config, params, [mine])[0]
    for before, after in (([16, 3], [1]), ([1, 1, 1, 1, 1], [40]), ([7] * 8, [])):
        together = _packed(model, config, params, [*map(text, before), mine, *map(text, after)], filler=49)
        np.testing.assert_allclose(together[len(before)], alone, atol=1e-6)


def test_another_pooling_is_refused():
    with pytest.raises(ValueError, match="pooling 'max', expected one of"):
        _packed(encoder, CONFIG, _weights(encoder, CONFIG), [np.ones(3, np.int32)], pooling="max")


@models
def test_the_form_for_accelerators_computes_the_same(model, config, monkeypatch):
    rng, params = np.random.default_rng(2), _weights(model, config)
    texts = [rng.integers(1, 50, n).astype(np.int32) for n in (5, 40, 1, 12)]
    by_text = _packed(model, config, params, texts)
    taken = []
    plain = pooled.vectors.__wrapped__
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: taken.append(1) or default(*args))
    monkeypatch.setattr(pooled, "vectors", lambda hidden, config, *args, **kwargs: jax.jit(
        lambda *args: plain(hidden, config, *args, **kwargs))(*args))  # jit traces a function once
    np.testing.assert_allclose(_packed(model, config, params, texts), by_text, atol=1e-6)
    assert taken


@pytest.mark.parametrize("reach", [None, 0, 5])
def test_blocks_of_queries_compute_the_same(reach, monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 33, 4, 8)).astype(np.float32) for _ in range(3))
    real = np.arange(33)[None] < np.array([[33], [17]])

    def mixed():
        return np.asarray(jax.jit(lambda *args: pooled.mix(*args, reach=reach))(q, k, v, real))

    whole = mixed()
    monkeypatch.setattr(pooled, "QUERY_BLOCK", 8)
    np.testing.assert_allclose(mixed()[real], whole[real], atol=1e-6)
    near = np.abs(np.arange(33)[:, None] - np.arange(33)[None]) <= (33 if reach is None else reach)
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(8)
    weights = np.where(near[None, None] & real[:, None, None], np.exp(scores), 0)
    with np.errstate(invalid="ignore"):  # padding far from any token
        wanted = np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(whole[real], wanted[real], atol=1e-5)


def test_local_layers_see_no_further_than_their_reach():
    """Two local layers: a token sees 6 away, and the two global ones everything."""
    ids, mask = _batch([30], 30)
    other = ids.copy()
    other[0, 20] = (other[0, 20] + 1) % 50
    for layers, far in (((False, False), 7), ((True, False), 30)):
        config = dataclasses.replace(MODERN, global_layers=layers)
        params = _weights(modernbert, config)
        a, b = (np.asarray(padded(modernbert.hidden, config, params, i, mask))[0] for i in (ids, other))
        changed = np.abs(a - b).max(-1) > 1e-6
        assert (changed == (np.abs(np.arange(30) - 20) < far)).all()


@pytest.mark.parametrize("model, config, module", [
    (encoder, CONFIG, encoder.Bert), (modernbert, MODERN, modernbert.ModernBert)], ids=ENCODERS)
def test_the_module_names_the_same_tree_and_computes_the_same(model, config, module):
    params = _weights(model, config)
    module = nnx.eval_shape(lambda: module(config, rngs=nnx.Rngs(0)))
    state = nnx.state(module)
    P.check(model.spec(config), nnx.to_pure_dict(state))  # and so no rng or cache leaves
    nnx.replace_by_pure_dict(state, params)
    nnx.update(module, state)
    ids, mask = _batch([7, 3, 1], 7)
    graphdef, state = nnx.split(module)
    out = jax.jit(lambda state, ids, mask: nnx.merge(graphdef, state)(ids, mask))(state, ids, mask)
    np.testing.assert_allclose(out, padded(model.hidden, config, params, ids, mask), atol=1e-6)


@encoders
def test_every_parameter_changes_the_output(model, config):
    (ids, mask), params = _batch([6, 4], 6), _weights(model, config)
    gradient = jax.jit(jax.grad(
        lambda p: jnp.sum(jnp.sin(jnp.where(mask[..., None], model.forward(config, p, ids, mask), 0.0)))))(params)
    norms = {"/".join(k.key for k in path): float(np.abs(g).max()) for path, g in jax.tree_util.tree_leaves_with_path(gradient)}
    dead = {name for name, norm in norms.items() if norm < 1e-6}
    # a key bias without rotation shifts all of a query's scores alike: softmax does not see it
    assert dead == ({"layers/bk"} if config is CONFIG else set())


LIVE = [(encoder, CONFIG, change) for change in (
    {"num_heads": 2}, {"layer_norm_eps": 1e-2}, {"activation": "relu"}, {"activation": "gelu_new"}, {"position_offset": 2})]
LIVE += [(modernbert, MODERN, change) for change in (
    {"num_heads": 2}, {"norm_eps": 1e-2}, {"activation": "relu"}, {"reach": 2}, {"global_layers": (True, False, True, True)},
    {"global_rope": R.Default(20.0)}, {"local_rope": R.Default(20.0)})]


@pytest.mark.parametrize("model, config, change", LIVE)
def test_every_architecture_field_that_keeps_the_shapes_is_read(model, config, change):
    (ids, mask), params = _batch([7, 3, 1], 7), _weights(model, config)
    a, b = (padded(model.hidden, c, params, ids, mask) for c in (config, dataclasses.replace(config, **change)))
    assert not np.allclose(a, b, atol=1e-6)


SHAPES = [(encoder, CONFIG, change) for change in (
    {"vocab_size": 51}, {"hidden_size": 20}, {"num_layers": 2}, {"intermediate_size": 25}, {"max_positions": 41},
    {"type_vocab_size": 1})]
SHAPES += [(modernbert, MODERN, change) for change in (
    {"vocab_size": 51}, {"hidden_size": 24}, {"global_layers": (True, False)}, {"intermediate_size": 25})]


@pytest.mark.parametrize("model, config, change", SHAPES)
def test_every_other_field_changes_the_tree(model, config, change):
    assert P.golden(model.spec(dataclasses.replace(config, **change))) != P.golden(model.spec(config))


HF, MODERN_HF = CONFIG.to_hf(), MODERN.to_hf()
OLD_HF = {k: v for k, v in MODERN_HF.items() if k not in ("layer_types", "rope_parameters")} | {
    "global_attn_every_n_layers": 3, "global_rope_theta": 100.0, "local_rope_theta": 10.0}


def test_config_round_trip():
    assert BertConfig.from_hf(HF) == CONFIG
    offset = dataclasses.replace(CONFIG, position_offset=2)
    assert BertConfig.from_hf(offset.to_hf()) == offset and offset.max_length == 38
    uneven = dataclasses.replace(MODERN, global_layers=(False, True, True), local_rope=R.Yarn(10.0, 4.0, 16))
    for config in (MODERN, uneven, MODERNBERT_BASE):
        assert ModernBertConfig.from_hf(json.loads(json.dumps(config.to_hf()))) == config
    assert ModernBertConfig.from_hf(OLD_HF) == MODERN


@pytest.mark.parametrize("raw, change, message", [
    (HF, {"model_type": "modernbert"}, "model_type: got 'modernbert'"),
    (HF, {"position_embedding_type": "relative_key"}, "position_embedding_type: got 'relative_key'"),
    (HF, {"hidden_act": "silu"}, "activation 'silu'"),
    (HF, {"num_attention_heads": 3}, "hidden_size 16"),
    (HF, {"hidden_size": "16"}, "hidden_size: got '16'"),
    (HF, {"num_hidden_layers": 0}, "num_hidden_layers: got 0"),
    (HF, {"is_decoder": True}, "is_decoder"),
    (MODERN_HF, {"model_type": "bert"}, "model_type: got 'bert'"),
    (MODERN_HF, {"norm_bias": True}, "norm_bias: got True"),
    (MODERN_HF, {"attention_bias": True}, "attention_bias: got True"),
    (MODERN_HF, {"mlp_bias": True}, "mlp_bias: got True"),
    (MODERN_HF, {"hidden_activation": "silu"}, "activation 'silu'"),
    (MODERN_HF, {"num_attention_heads": 16}, "hidden_size 16, expected an even multiple of num_heads 16"),
    (MODERN_HF, {"layer_types": ["full_attention"]}, "layer_types: got"),
    (MODERN_HF, {"layer_types": ["full_attention"] * 3 + ["chunked_attention"]}, "layer_types: got"),
    (MODERN_HF, {"local_attention": 7}, "local_attention: got 7, expected an even number"),
    (MODERN_HF, {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention: rope_theta: missing"),
    (OLD_HF, {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers: got 0"),
    (OLD_HF, {"local_rope_theta": None}, "local_rope_theta: got None"),
])
def test_config_errors_name_file_and_field(raw, change, message):
    kind = BertConfig if raw is HF else ModernBertConfig
    with pytest.raises(ValueError, match=message) as e:
        kind.from_hf(raw | change, where="folder/config.json")
    assert str(e.value).startswith("folder/config.json: ")


@pytest.mark.parametrize("kind, raw, optional", [
    (BertConfig, HF, {"architectures", "position_embedding_type"}),
    (ModernBertConfig, OLD_HF, {"architectures", "norm_bias", "attention_bias", "mlp_bias", "pad_token_id"}),
])
def test_a_missing_field_is_an_error_not_a_default(kind, raw, optional):
    for name in set(raw) - optional:
        with pytest.raises(ValueError, match=name):
            kind.from_hf({k: v for k, v in raw.items() if k != name})


def test_the_full_size_tree_without_memory():
    config = BertConfig(250002, 1024, 24, 16, 4096, 514, 1, 1e-5, "gelu", 2)  # the shape of XLM-R large
    assert P.count(encoder.spec(config)) == 558_840_832
    shapes = P.abstract(encoder.spec(config))
    out = jax.eval_shape(
        lambda p, i, m: encoder.forward(config, p, i, m), shapes,
        jax.ShapeDtypeStruct((2, 512), jnp.int32), jax.ShapeDtypeStruct((2, 512), jnp.bool_))
    assert out.shape == (2, 512, 1024)


def test_published_size_of_modernbert():
    assert P.count(modernbert.spec(MODERNBERT_BASE)) == 149_014_272
    shapes = P.abstract(modernbert.spec(MODERNBERT_BASE))
    ids, lengths = jax.ShapeDtypeStruct((8192,), jnp.int32), jax.ShapeDtypeStruct((3,), jnp.int32)
    out = jax.eval_shape(lambda p, i, n: pooled.vectors(
        modernbert.hidden, MODERNBERT_BASE, p, i, n, width=8192, pooling="mean", normalized=True), shapes, ids, lengths)
    assert out.shape == (3, 768)


TREES = {"minilm": (encoder, MINILM), "modernbert-base": (modernbert, MODERNBERT_BASE)}


@pytest.mark.parametrize("name", TREES)
def test_trees_are_the_committed_ones(name, repository):
    """One checkpoint layout for ever: a change here breaks what people have saved."""
    model, config = TREES[name]
    golden = json.loads((repository / "tests" / "golden" / f"{name}.json").read_text(encoding="utf-8"))
    assert P.golden(model.spec(config)) == golden


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("name", TREES)
def test_it_lowers_for_absent_devices(name, platform):
    model, config = TREES[name]
    tree = P.abstract(model.spec(config))
    ids, lengths = jax.ShapeDtypeStruct((2048,), jnp.int32), jax.ShapeDtypeStruct((60,), jnp.int32)
    traced = pooled.vectors.trace(model.hidden, config, tree, ids, lengths, width=48, pooling="mean", normalized=True)
    assert "stablehlo" in traced.lower(lowering_platforms=(platform,)).as_text()
