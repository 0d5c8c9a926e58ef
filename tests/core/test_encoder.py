"""The BERT-family encoder without its reference: pooling, packing, batch mates, the tree, the config."""
from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from core_jax import params as P
from core_jax.models import encoder
from core_jax.models.config import BertConfig
from core_jax.models.presets import MINILM
from weights import random_weights

CONFIG = BertConfig(vocab_size=50, hidden_size=16, num_layers=3, num_heads=4, intermediate_size=24, max_positions=40,
                    type_vocab_size=2, layer_norm_eps=1e-12, activation="gelu", position_offset=0)


@pytest.fixture(scope="module")
def params():
    return random_weights(encoder.spec(CONFIG))


def _batch(lengths, width, seed=0):
    ids = np.random.default_rng(seed).integers(1, 50, (len(lengths), width)).astype(np.int32)
    mask = np.arange(width)[None] < np.asarray(lengths)[:, None]
    return np.where(mask, ids, 0), mask


forward = jax.jit(encoder.forward, static_argnums=0)


def test_padding_changes_nothing(params):
    ids, mask = _batch([7, 3, 1], 7)
    short = forward(CONFIG, params, ids, mask)
    wide = forward(CONFIG, params, np.pad(ids, ((0, 0), (0, 9)), constant_values=41), np.pad(mask, ((0, 0), (0, 9))))
    np.testing.assert_allclose(np.where(mask[..., None], wide[:, :7], 0), np.where(mask[..., None], short, 0), atol=2e-6)


def test_a_row_of_padding_is_finite(params):
    ids, mask = _batch([0, 4], 4)
    assert np.isfinite(forward(CONFIG, params, ids, mask)).all()


def _packed(params, texts, filler=0, pooling="mean"):
    """Vectors of id lists laid end to end; one shape for all tests, wider than the position table."""
    flat, lengths = np.full(100, filler, np.int32), np.zeros(10, np.int32)
    lengths[: len(texts)] = [len(t) for t in texts]
    flat[: lengths.sum()] = np.concatenate(texts)
    out = encoder.embed_packed(CONFIG, params, flat, lengths, width=48, pooling=pooling, normalized=True)
    assert out.shape == (10, 16) and np.isfinite(out).all()
    return np.asarray(out)[: len(texts)]


@pytest.mark.parametrize("pooling", encoder.POOLINGS)
def test_packed_equals_padded(params, pooling):
    ids, mask = _batch([9, 1, 40, 9, 2], 40)
    hidden, padded = np.asarray(forward(CONFIG, params, ids, mask)), []
    for row, length in zip(hidden, mask.sum(1)):
        padded.append({"mean": row[:length].mean(0), "cls": row[0], "last": row[length - 1]}[pooling])
    padded = np.stack(padded) / np.linalg.norm(padded, axis=1, keepdims=True)
    np.testing.assert_allclose(_packed(params, [i[m] for i, m in zip(ids, mask)], pooling=pooling), padded, atol=2e-6)


def test_packed_vectors_do_not_depend_on_neighbours(params):
    rng = np.random.default_rng(1)

    def text(n):
        return rng.integers(1, 50, n).astype(np.int32)

    mine = text(6)
    alone = _packed(params, [mine])[0]
    for before, after in (([16, 3], [1]), ([1, 1, 1, 1, 1], [40]), ([7] * 8, [])):
        together = _packed(params, [*map(text, before), mine, *map(text, after)], filler=49)
        np.testing.assert_allclose(together[len(before)], alone, atol=1e-6)


def test_another_pooling_is_refused(params):
    with pytest.raises(ValueError, match="pooling 'max', expected one of"):
        _packed(params, [np.ones(3, np.int32)], pooling="max")


def test_the_form_for_accelerators_computes_the_same(params, monkeypatch):
    rng = np.random.default_rng(2)
    texts = [rng.integers(1, 50, n).astype(np.int32) for n in (5, 40, 1, 12)]
    by_text = _packed(params, texts)
    taken, plain = [], encoder.embed_packed.__wrapped__

    def fresh(config, params, ids, lengths, *, width, pooling, normalized):  # jit traces a function once
        return plain(config, params, ids, lengths, width=width, pooling=pooling, normalized=normalized)

    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: taken.append(1) or default(*args))
    monkeypatch.setattr(encoder, "embed_packed", jax.jit(
        fresh, static_argnames=("config", "width", "pooling", "normalized")))
    np.testing.assert_allclose(_packed(params, texts), by_text, atol=1e-6)
    assert taken


def test_the_module_names_the_same_tree_and_computes_the_same(params):
    module = nnx.eval_shape(lambda: encoder.Bert(CONFIG, rngs=nnx.Rngs(0)))
    state = nnx.state(module)
    P.check(encoder.spec(CONFIG), nnx.to_pure_dict(state))  # and so no rng or cache leaves
    nnx.replace_by_pure_dict(state, params)
    nnx.update(module, state)
    ids, mask = _batch([7, 3, 1], 7)
    graphdef, state = nnx.split(module)
    out = jax.jit(lambda state, ids, mask: nnx.merge(graphdef, state)(ids, mask))(state, ids, mask)
    np.testing.assert_allclose(out, forward(CONFIG, params, ids, mask), atol=1e-6)


def test_every_parameter_changes_the_output(params):
    ids, mask = _batch([6, 4], 6)
    gradient = jax.jit(jax.grad(
        lambda p: jnp.sum(jnp.sin(jnp.where(mask[..., None], encoder.forward(CONFIG, p, ids, mask), 0.0)))))(params)
    norms = {"/".join(k.key for k in path): float(np.abs(g).max()) for path, g in jax.tree_util.tree_leaves_with_path(gradient)}
    dead = {name for name, norm in norms.items() if norm < 1e-6}
    assert dead == {"layers/bk"}  # a key bias shifts all of a query's scores alike: softmax does not see it


@pytest.mark.parametrize("change", [
    {"num_heads": 2}, {"layer_norm_eps": 1e-2}, {"activation": "relu"}, {"activation": "gelu_new"}, {"position_offset": 2},
])
def test_every_architecture_field_that_keeps_the_shapes_is_read(params, change):
    ids, mask = _batch([6, 4], 6)
    other = dataclasses.replace(CONFIG, **change)
    assert not np.allclose(forward(other, params, ids, mask), forward(CONFIG, params, ids, mask), atol=1e-6)


@pytest.mark.parametrize("change", [
    {"vocab_size": 51}, {"hidden_size": 20}, {"num_layers": 2}, {"intermediate_size": 25}, {"max_positions": 41}, {"type_vocab_size": 1},
])
def test_every_other_field_changes_the_tree(change):
    assert P.golden(encoder.spec(dataclasses.replace(CONFIG, **change))) != P.golden(encoder.spec(CONFIG))


HF = CONFIG.to_hf()


def test_config_round_trip():
    assert BertConfig.from_hf(HF) == CONFIG
    offset = dataclasses.replace(CONFIG, position_offset=2)
    assert BertConfig.from_hf(offset.to_hf()) == offset and offset.max_length == 38


@pytest.mark.parametrize("change, message", [
    ({"model_type": "modernbert"}, "model_type: got 'modernbert'"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type: got 'relative_key'"),
    ({"hidden_act": "silu"}, "activation 'silu'"),
    ({"num_attention_heads": 3}, "hidden_size 16"),
    ({"hidden_size": "16"}, "hidden_size: got '16'"),
    ({"num_hidden_layers": 0}, "num_hidden_layers: got 0"),
    ({"is_decoder": True}, "is_decoder"),
])
def test_config_errors_name_file_and_field(change, message):
    with pytest.raises(ValueError, match=message) as e:
        BertConfig.from_hf(HF | change, where="folder/config.json")
    assert str(e.value).startswith("folder/config.json: ")


def test_a_missing_field_is_an_error_not_a_default():
    for name in set(HF) - {"architectures", "position_embedding_type"}:
        with pytest.raises(ValueError, match=name):
            BertConfig.from_hf({k: v for k, v in HF.items() if k != name})


def test_the_full_size_tree_without_memory():
    config = BertConfig(250002, 1024, 24, 16, 4096, 514, 1, 1e-5, "gelu", 2)  # the shape of XLM-R large
    assert P.count(encoder.spec(config)) == 558_840_832
    shapes = P.abstract(encoder.spec(config))
    out = jax.eval_shape(
        lambda p, i, m: encoder.forward(config, p, i, m), shapes,
        jax.ShapeDtypeStruct((2, 512), jnp.int32), jax.ShapeDtypeStruct((2, 512), jnp.bool_))
    assert out.shape == (2, 512, 1024)


def test_the_tree_of_the_default_encoder_is_the_committed_one(repository):
    """One checkpoint layout for ever: a change here breaks what people have saved."""
    golden = json.loads((repository / "tests" / "golden" / "minilm.json").read_text(encoding="utf-8"))
    assert P.golden(encoder.spec(MINILM)) == golden


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_it_lowers_for_absent_devices(platform):
    tree = P.abstract(encoder.spec(MINILM))
    ids, lengths = jax.ShapeDtypeStruct((2048,), jnp.int32), jax.ShapeDtypeStruct((60,), jnp.int32)
    traced = encoder.embed_packed.trace(MINILM, tree, ids, lengths, width=48, pooling="mean", normalized=True)
    assert "stablehlo" in traced.lower(lowering_platforms=(platform,)).as_text()
