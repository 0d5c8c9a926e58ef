"""Adapters against `peft` on torch, and quantised matrices against bitsandbytes, both on CPU."""
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `parity`")
peft = pytest.importorskip("peft", reason="needs the extra `parity`")
import transformers  # noqa: E402

from core_jax import lora, quant  # noqa: E402
from core_jax import params as P  # noqa: E402
from core_jax.ckpt import hf  # noqa: E402
from core_jax.models import decoder  # noqa: E402
from core_jax.models.config import DecoderConfig  # noqa: E402

pytestmark = pytest.mark.parity
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 40, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
ALL = tuple(f"layers/{n}" for n in ("wq", "wk", "wv", "wo", "w_gate", "w_up", "w_down"))
ROWS = (5, 60)
IDS = np.random.default_rng(0).integers(0, 64, (2, 11))
IDS[0, 3], IDS[1, 7] = ROWS


@pytest.fixture(scope="module", params=[("llama", False), ("qwen3", True)], ids=["llama", "qwen3-tied"])
def base(request, tmp_path_factory):
    """(torch model, our config, our parameters) of one tiny random model, through a checkpoint folder."""
    family, tied = request.param
    torch.manual_seed(0)
    cls = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[family]
    model = transformers.AutoModelForCausalLM.from_config(cls(**SIZES, tie_word_embeddings=tied)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn_like(p)
    folder = tmp_path_factory.mktemp(family)
    model.save_pretrained(folder)
    config = DecoderConfig.from_hf(json.loads((folder / "config.json").read_text()))
    params = hf.read(folder, decoder.spec(config), decoder.hf_sources(config), ignorable=decoder.IGNORABLE,
                     prefixes=decoder.PREFIXES)
    return folder, config, params


def fresh(base):
    return transformers.AutoModelForCausalLM.from_pretrained(base[0]).eval()


def torch_logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(IDS)).logits.numpy()


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options={"xla_backend_optimization_level": 0})
def _logits(model, config, params, tree, ids):
    dense, overlay = lora.bind(config, tree, decoder.dense)
    hidden = decoder.forward(model, lora.with_tables(config, params, tree), ids, dense=dense, overlay=overlay)
    merged = lora.merge(config, params, {"lora": {}, "tables": tree["tables"]})
    return decoder.logits(model, merged, hidden)


def our_logits(base, config, tree) -> np.ndarray:
    return np.asarray(_logits(base[1], config, base[2], tree, jnp.asarray(IDS, jnp.int32)))


def kinds(config: DecoderConfig):
    """Our settings and peft's, of the same adapters."""
    tables = ("embed/token",) if config.tie_embeddings else ("embed/token", "head")
    modules = ["embed_tokens"] if config.tie_embeddings else ["embed_tokens", "lm_head"]
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    yield {"rank": 4, "alpha": 8.0, "targets": ALL}, {"r": 4, "lora_alpha": 8, "target_modules": names}
    yield ({"rank": 3, "alpha": 5.0, "rs_lora": True, "targets": ALL[:4], "tables": tables, "rows": ROWS},
           {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": names[:4],
            "trainable_token_indices": {m: list(ROWS) for m in modules}})
    if not config.tie_embeddings:  # peft takes no tied table into modules_to_save
        yield ({"rank": 4, "alpha": 8.0, "targets": ALL[:4], "tables": tables},
               {"r": 4, "lora_alpha": 8, "target_modules": names[:4], "modules_to_save": modules})


def test_folders_of_peft(base, tmp_path):
    for n, (ours, theirs) in enumerate(kinds(base[1])):
        theirs = peft.LoraConfig(**theirs, init_lora_weights=False, task_type="CAUSAL_LM")
        model = peft.get_peft_model(fresh(base), theirs)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.requires_grad and "lora_" not in name:
                    p += 0.3 * torch.randn_like(p)
        folder = tmp_path / str(n)
        model.eval().save_pretrained(folder)
        config, tree = lora.read_peft(folder, decoder.spec(base[1]), decoder.hf_sources(base[1]))
        assert config == lora.LoraConfig(**ours)
        np.testing.assert_allclose(our_logits(base, config, tree), torch_logits(model), atol=1e-4)


def test_our_folders_in_peft(base, tmp_path):
    plain = torch_logits(fresh(base))
    for n, (ours, _) in enumerate(kinds(base[1])):
        config, rng = lora.LoraConfig(**ours), np.random.default_rng(n)
        tree = jax.tree.map(lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape), jnp.float32),
                            lora.spec(config, decoder.spec(base[1])), is_leaf=lambda x: isinstance(x, P.ParamSpec))
        folder = tmp_path / str(n)
        lora.write_peft(folder, config, tree, decoder.hf_sources(base[1]), base=str(base[0]))
        model = peft.PeftModel.from_pretrained(fresh(base), folder).eval()
        got = torch_logits(model)
        np.testing.assert_allclose(our_logits(base, config, tree), got, atol=1e-4)
        assert np.abs(got - plain).max() > 0.1
        merged = torch_logits(model.merge_and_unload())
        np.testing.assert_allclose(merged, got, atol=1e-3)


# ---- bitsandbytes ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bnb():
    return pytest.importorskip("bitsandbytes", reason="needs the extra `parity`").functional


def test_tables(bnb):
    np.testing.assert_array_equal(bnb.get_4bit_type("nf4", device="cpu").numpy(), quant.NF4_LEVELS)
    np.testing.assert_array_equal(bnb.create_dynamic_map().numpy(), quant.DYNAMIC_MAP)


@pytest.mark.parametrize("rows, columns", [(64, 320), (96, 1536), (576, 576)])
def test_nf4_with_double_quantisation(bnb, rows, columns):
    w = np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32)
    w[0, :64] = 0
    packed, state = bnb.quantize_4bit(torch.tensor(w), blocksize=64, compress_statistics=True, quant_type="nf4")
    ours = quant.quantise({"layers": {"w": jnp.asarray(w)[None]}}, "nf4", ["w"])["layers"]["w"]
    ours = jax.tree.map(lambda x: x[0], ours)
    np.testing.assert_array_equal(packed.numpy().reshape(rows, -1), ours.codes)
    np.testing.assert_allclose(state.state2.absmax.numpy(), ours.group_maxima, rtol=1e-6)
    np.testing.assert_allclose(state.offset.item(), ours.offset, rtol=1e-6)
    # its kernel for CPUs misses the nearest place of the map now and then; ours never is farther
    a, b = state.absmax.numpy().astype(int), np.asarray(ours.maxima).ravel().astype(int)
    exact = np.abs(w.reshape(-1, 64)).max(1) - np.float64(ours.offset)
    unit = exact / np.repeat(np.asarray(ours.group_maxima, np.float64), 256)[:exact.size]
    assert np.abs(a - b).max() <= 1 and (a != b).mean() < 0.015
    assert (np.abs(unit - quant.DYNAMIC_MAP[b]) <= np.abs(unit - quant.DYNAMIC_MAP[a]) + 1e-6).all()
    theirs = quant.NF4(*map(jnp.asarray, (
        packed.numpy().reshape(rows, -1), state.absmax.numpy().reshape(rows, -1), state.state2.absmax.numpy(),
        np.float32(state.offset.item()))))
    np.testing.assert_allclose(quant.dequantise(theirs), bnb.dequantize_4bit(packed, state).numpy(), atol=1e-6)


def test_int8(bnb):
    w = np.random.default_rng(0).normal(size=(96, 320)).astype(np.float16)
    codes, scales, _ = bnb.int8_vectorwise_quant(torch.tensor(w))
    ours = quant.quantise({"layers": {"w": jnp.asarray(w.astype(np.float32))[None]}}, "int8", ["w"])["layers"]["w"]
    np.testing.assert_array_equal(scales.numpy(), ours.scales[0])
    apart = codes.numpy().astype(int) - np.asarray(ours.codes[0]).astype(int)
    assert np.abs(apart).max() <= 1 and (apart != 0).mean() < 1e-3  # theirs rounds in half precision
