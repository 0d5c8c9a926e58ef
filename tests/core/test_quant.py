"""core_jax/quant.py: levels, layout, sizes of error, gradients, and that a whole model is never dequantised at once."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from core_jax import lora, quant
from core_jax import params as P
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.rope import Default

MODEL = DecoderConfig(
    family="llama", vocab_size=64, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32,
    intermediate_size=128, rms_norm_eps=1e-6, tie_embeddings=True, qk_norm=False, rope=Default(1e4), max_positions=64)
SPEC = decoder.spec(MODEL)
MATRICES = ("wq", "wk", "w_down")
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module")
def params() -> P.Tree:
    return P.init(SPEC, jax.random.key(0))


@pytest.fixture(scope="module")
def small(params) -> dict[str, P.Tree]:
    return {form: quant.quantise(params, form, MATRICES) for form in quant.FORMS}


def matrix(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, rows, columns)).astype(np.float32)


def by_hand(w: np.ndarray) -> np.ndarray:
    """NF4 with double quantisation, one number at a time, in float64; w: [out, in]."""
    blocks = w.reshape(-1, 64).astype(np.float64)
    maxima = np.abs(blocks).max(1)
    offset = maxima.mean()
    approx = np.empty_like(maxima)
    for start in range(0, len(maxima), 256):
        group = maxima[start: start + 256] - offset
        largest = np.abs(group).max()
        places = np.abs(group[:, None] / (largest or 1) - quant.DYNAMIC_MAP).argmin(1)
        approx[start: start + 256] = quant.DYNAMIC_MAP[places] * largest + offset
    levels = np.abs((blocks / maxima[:, None])[..., None] - quant.NF4_LEVELS).argmin(-1)
    return (quant.NF4_LEVELS[levels] * approx[:, None]).reshape(w.shape)


@pytest.mark.parametrize("rows, columns", [(1, 64), (64, 320), (300, 64), (96, 640)])  # 1, 320, 300, 960 blocks
def test_nf4_is_the_format_by_hand(rows, columns):
    w = matrix(rows, columns)
    w[0, 0, :64] /= 50  # a block far below the mean
    got = quant.dequantised(quant.quantise({"layers": {"w": w}}, "nf4", ["w"]))["layers"]["w"][0]
    # a block maximum halfway between two places of the map may go to either
    apart = np.abs(got - by_hand(w[0])).reshape(-1, 64).max(1) > 1e-5
    assert apart.mean() < 0.01
    assert np.abs(got - w[0]).max() < 0.2 * np.abs(w).max()


def test_layout(small):
    q = small["nf4"]["layers"]["w_down"]
    assert (q.codes.shape, q.codes.dtype) == ((2, 64, 64), jnp.uint8)
    assert (q.maxima.shape, q.maxima.dtype) == ((2, 64, 2), jnp.uint8)
    assert q.group_maxima.shape == (2, 1) and q.offset.shape == (2,) and q.shape == (2, 64, 128)
    w = jnp.asarray([[[-1.0, 1.0] + [0.0] * 62]])
    assert int(quant.quantise({"layers": {"w": w}}, "nf4", ["w"])["layers"]["w"].codes[0, 0, 0]) == 0x0F
    assert quant.NF4_LEVELS.size == 16 and quant.NF4_LEVELS[7] == 0 and (np.diff(quant.NF4_LEVELS) > 0).all()
    assert quant.DYNAMIC_MAP.size == 256 and (np.diff(quant.DYNAMIC_MAP) > 0).all()


@pytest.mark.parametrize("form", quant.FORMS)
def test_zeros_stay_zero(form):
    q = quant.quantise({"layers": {"w": jnp.zeros((2, 4, 64))}}, form, ["w"])
    np.testing.assert_array_equal(quant.dequantised(q)["layers"]["w"], np.zeros((2, 4, 64)))


def test_int8_error_is_half_a_step():
    w = matrix(40, 96)
    q = quant.quantise({"layers": {"w": w}}, "int8", ["w"])
    got = quant.dequantised(q)["layers"]["w"]
    assert (np.abs(got - w) <= 0.5001 * np.abs(w).max(-1, keepdims=True) / 127).all()
    assert q["layers"]["w"].codes.dtype == jnp.int8


def test_bytes_of_llama():
    """4.127 bits a number: 6.98 billion of Llama-3.1-8B's layers take 3.6 GB."""
    from core_jax.models import presets
    spec = P.abstract(decoder.spec(presets.LLAMA31_8B, "bfloat16"))
    layers = {name: spec["layers"][name] for name in ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down")}
    small = jax.eval_shape(lambda t: quant.quantise(t, "nf4", list(layers)), {"layers": layers})
    bits = 8 * quant.nbytes(small) / (quant.nbytes({"layers": layers}) / 2)
    assert bits == pytest.approx(4.127, abs=0.001)


@quick
def run(params, ids):
    return decoder.forward(MODEL, params, ids, dense=quant.dense(decoder.dense))


IDS = jnp.asarray(np.random.default_rng(0).integers(0, 64, (2, 7)), jnp.int32)


@pytest.mark.parametrize("form", quant.FORMS)
def test_forward_is_that_of_the_dequantised_base(small, form):
    np.testing.assert_allclose(run(small[form], IDS), run(quant.dequantised(small[form]), IDS), atol=1e-5)
    one_by_one = decoder.unstack(small[form])
    np.testing.assert_allclose(run(one_by_one, IDS), run(small[form], IDS), atol=1e-5)


@pytest.mark.parametrize("form, remat", [("nf4", None), ("nf4", "full"), ("int8", None)])
def test_qlora_gradient_is_loras_on_the_dequantised_base(small, form, remat):
    config = lora.LoraConfig(tuple(f"layers/{n}" for n in MATRICES), rank=4)
    rng = np.random.default_rng(1)
    tree = jax.tree.map(lambda s: jnp.asarray(0.1 * rng.normal(size=s.shape), jnp.float32), lora.spec(config, SPEC),
                        is_leaf=lambda x: isinstance(x, P.ParamSpec))
    pull = jnp.asarray(rng.normal(size=(2, 7, 64)), jnp.float32)

    @quick
    def gradient(params, tree):
        def loss(tree):
            dense, overlay = lora.bind(config, tree, quant.dense(decoder.dense))
            return jnp.vdot(decoder.forward(MODEL, params, IDS, dense=dense, overlay=overlay, remat=remat), pull)

        return jax.value_and_grad(loss)(tree)

    (got, grads), (expected, exact) = gradient(small[form], tree), gradient(quant.dequantised(small[form]), tree)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), grads, exact)
    assert all(float(jnp.abs(x).max()) > 1e-3 for x in jax.tree.leaves(grads))


@pytest.mark.parametrize("backward", [False, True])
def test_the_whole_model_is_never_dequantised(backward):
    """Temporary memory of the compiled step does not grow with a dequantised matrix a layer."""
    def temporary(layers: int) -> int:
        w = jax.ShapeDtypeStruct((layers, 512, 512), jnp.float32)
        q = jax.eval_shape(lambda t: quant.quantise(t, "nf4", ["w"]), {"layers": {"w": w}})["layers"]
        project = quant.dense(decoder.dense)

        def loss(x, q):
            return jax.lax.scan(lambda x, p: (jnp.tanh(project(x, p, "w")), None), x, q)[0].sum()

        of = jax.grad(loss) if backward else loss
        lowered = jax.jit(of).lower(jax.ShapeDtypeStruct((2, 512), jnp.float32), q)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many = temporary(2), temporary(18)
    assert (many - few) / 16 < 0.25 * 512 * 512 * 4, (few, many)


def test_refusals(params):
    with pytest.raises(ValueError, match="quantise: got 'int4'"):
        quant.quantise(params, "int4", ["wq"])
    with pytest.raises(ValueError, match="layers/w: rows of 96, expected a multiple of 64"):
        quant.quantise({"layers": {"w": jnp.zeros((1, 4, 96))}}, "nf4", ["w"])
    config = lora.LoraConfig(("layers/wq",), rank=2)
    tree = lora.init(config, SPEC, params, jax.random.key(0))
    with pytest.raises(ValueError, match="layers/wq: got NF4, expected an array"):
        lora.merge(config, quant.quantise(params, "nf4", ["wq"]), tree)
