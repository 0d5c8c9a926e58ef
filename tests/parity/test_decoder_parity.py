"""The decoder against transformers' torch models, both ways, for each family and rope variant."""
from __future__ import annotations

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from weights import random_weights

from core_jax import params as P
from core_jax import rope as R
from core_jax.ckpt import hf
from core_jax.models import decoder, presets
from core_jax.models.config import DecoderConfig

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch", reason="extra `parity` is not installed")

VARIANTS = {
    "default": R.Default(1e4),
    "llama3": R.Llama3(5e5, 8.0, 1.0, 4.0, 8192),
    "yarn": R.Yarn(1e6, 4.0, 40960),
    "yarn-told": R.Yarn(1e4, 2.0, 64, 16.0, 2.0, 1.25, truncate=False),
    "yarn-mscale": R.Yarn(1e4, 40.0, 4096, mscale=0.7, mscale_all_dim=1.0),
}
CONFIG = DecoderConfig(
    family="qwen3", vocab_size=61, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=56, rms_norm_eps=1e-5, tie_embeddings=True, qk_norm=True, rope=R.Default(1e4),
    max_positions=163840)
LLAMA = dataclasses.replace(CONFIG, family="llama", qk_norm=False, num_heads=2, num_kv_heads=1)
QWEN2 = dataclasses.replace(CONFIG, family="qwen2", qk_norm=False, head_dim=8)
CASES = {
    "qwen3-tied": CONFIG,
    "qwen3-untied": dataclasses.replace(CONFIG, tie_embeddings=False, num_kv_heads=4),
    "qwen3-yarn": dataclasses.replace(CONFIG, rope=VARIANTS["yarn"]),
    "qwen2-tied": QWEN2,
    "qwen2-untied": dataclasses.replace(QWEN2, tie_embeddings=False, num_kv_heads=1),
    "qwen2-yarn": dataclasses.replace(QWEN2, rope=VARIANTS["yarn"]),
    "llama": dataclasses.replace(LLAMA, tie_embeddings=False),
    "llama-llama3": dataclasses.replace(LLAMA, rope=VARIANTS["llama3"]),
    "llama-yarn-told": dataclasses.replace(LLAMA, rope=VARIANTS["yarn-told"]),
}
LENGTHS = (13, 1, 7, 12)




def _config(case: DecoderConfig):
    from transformers import AutoConfig

    raw = {k: v for k, v in case.to_hf().items() if k not in ("rope_theta", "rope_scaling")}
    return AutoConfig.for_model(raw.pop("model_type"), attn_implementation="eager", **raw)


def _theirs(case: DecoderConfig):
    """A random torch model with norm scales and projections away from 1 and 0."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_config(case))
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    return model.eval()


def _batch(left: bool):
    ids = np.random.default_rng(0).integers(0, 61, (len(LENGTHS), max(LENGTHS))).astype(np.int32)
    mask = np.arange(ids.shape[1])[None] < np.array(LENGTHS)[:, None]
    return ids, mask[:, ::-1].copy() if left else mask


@functools.partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})  # compiles faster
def _logits(config, params, ids, mask, positions=None):
    return decoder.logits(config, params, decoder.forward(config, params, ids, mask=mask, positions=positions))


def _their_logits(model, ids, mask, positions):
    with torch.no_grad():
        return model(torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long(),
                     position_ids=torch.tensor(positions).long()).logits.numpy()


def _compare(model, case, params):
    """Ragged batches padded on either side, and positions that go on from far beyond any original length."""
    for left in (False, True):
        ids, mask = _batch(left)
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype(np.int32)
        theirs = _their_logits(model, ids, mask, positions)
        ours = np.asarray(_logits(case, params, ids, mask))  # positions by default
        assert np.abs(theirs).max() > 1
        np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-4, rtol=0)
    ids, mask = _batch(left=False)
    far = np.linspace(0, 70_000, ids.shape[1]).astype(np.int32)[None].repeat(len(ids), axis=0)
    theirs = _their_logits(model, ids, mask, far)
    ours = np.asarray(_logits(case, params, ids, mask, far))
    np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_their_weights_here(name, tmp_path):
    model = _theirs(CASES[name])
    model.save_pretrained(tmp_path)
    config = DecoderConfig.from_hf(json.loads((tmp_path / "config.json").read_text(encoding="utf-8")))
    assert config == CASES[name]
    params = hf.read(tmp_path, decoder.spec(config), decoder.hf_sources(config), ignorable=decoder.IGNORABLE,
                     prefixes=decoder.PREFIXES, copies=decoder.hf_copies(config))
    _compare(model, config, params)


@pytest.mark.parametrize("name", CASES)
def test_our_weights_there(name, tmp_path):
    from transformers import AutoModelForCausalLM

    config = CASES[name]
    params = random_weights(decoder.spec(config))
    hf.write(tmp_path, params, decoder.hf_sources(config), config.to_hf())
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    _compare(model.eval(), config, params)


def test_layer_by_layer(tmp_path):
    """Module level: what the first layers and the final norm put out, to 1e-5 of its largest entry."""
    model = _theirs(dataclasses.replace(CONFIG, rope=VARIANTS["yarn"]))
    model.save_pretrained(tmp_path)
    ids, mask = _batch(left=False)
    with torch.no_grad():
        theirs = model.model(torch.tensor(ids[:1]).long(), output_hidden_states=True)
    for layers in (1, 2, 3):
        config = dataclasses.replace(CONFIG, rope=VARIANTS["yarn"], num_layers=layers)
        params = hf.read(tmp_path, decoder.spec(config), decoder.hf_sources(config), copies=decoder.hf_copies(config),
                         ignorable=[r"model\.layers\.[12]\..*"])

        def attend(layer, q, k, v, state):
            return decoder._attend_grid(layer, q, k, v, state, segments=np.zeros((1, 13), np.int32))

        x, _ = jax.jit(lambda p, c=config: decoder.run_layers(
            c, p, decoder.embed(p, ids[0]), np.arange(13, dtype=np.int32), attend, ()))(params)
        if layers < 3:
            want = theirs.hidden_states[layers][0]
        else:
            x, want = decoder.rms_norm(x, params["norm"], config.rms_norm_eps), theirs.last_hidden_state[0]
        scale = np.abs(want.numpy()).max()
        np.testing.assert_allclose(x / scale, want.numpy() / scale, atol=1e-5)


@pytest.mark.parametrize("left", [False, True])
def test_a_backbone_without_head(left, tmp_path):
    """As embedding models are saved: AutoModel's names, and the same parameters out of a causal model's folder."""
    from transformers import AutoModel

    case = CASES["qwen3-untied"]
    causal = _theirs(case)
    causal.save_pretrained(tmp_path / "causal")
    causal.model.save_pretrained(tmp_path / "bare")
    spec, sources = decoder.spec(case, head=False), decoder.hf_sources(case, head=False)
    read = [hf.read(tmp_path / name, spec, sources, ignorable=(*decoder.IGNORABLE, decoder.HEAD),
                    prefixes=decoder.PREFIXES) for name in ("causal", "bare")]
    jax.tree.map(np.testing.assert_array_equal, *read)
    ids, mask = _batch(left)
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(tmp_path / "bare", attn_implementation="eager")(
            torch.tensor(ids).long(), attention_mask=torch.tensor(mask).long(), position_ids=torch.tensor(positions))
    ours = jax.jit(lambda p: decoder.forward(case, p, ids, mask=mask))(read[0])
    np.testing.assert_allclose(np.asarray(ours)[mask], theirs.last_hidden_state.numpy()[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", ["qwen2"])
def test_a_folder_served_gives_the_tokens_of_generate(family, tmp_path):
    """Config, biases, pages, tokenizer and ends of answers of a folder as transformers saves it, several rows at once."""
    from chat_cases import write_tokenizer
    from engine_cases import quick_compiles

    from core_jax.engine.engine import Engine, Limits
    from core_jax.engine.request import Request, Sampling
    from core_jax.text import Tokenizer

    write_tokenizer(tmp_path)
    ends = list(Tokenizer.load(tmp_path).eos_ids)
    model = _theirs(dataclasses.replace(
        next(c for c in CASES.values() if c.family == family), vocab_size=512, tie_embeddings=False))
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = ends, ends[0]
    model.save_pretrained(tmp_path)
    prompts = [tuple(range(3, 3 + n)) for n in (1, 40, 7)]
    with quick_compiles():
        engine = Engine.load(tmp_path, limits=Limits(rows=4, page=16, tokens=512, length=96, chunk=16, horizon=4))
        out = engine.submit([Request(p, Sampling(max_tokens=20)) for p in prompts])
    for prompt, got in zip(prompts, out):
        with torch.no_grad():
            want = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt):].tolist()
        assert list(got.tokens) == [t for t in want if t not in ends] and len(got.tokens) > 5


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("name", [*VARIANTS, "theta-1e6", "theta-5e6"])
def test_inverse_frequencies(name, head_dim):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    rope = VARIANTS.get(name) or R.Default(float(name.removeprefix("theta-")))
    config = _config(dataclasses.replace(CONFIG, rope=rope, head_dim=head_dim))
    kind = R.to_hf(rope)["rope_type"]
    make = Qwen3RotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    theirs, scale = make(config)
    np.testing.assert_allclose(rope.inverse_frequencies(head_dim), theirs.numpy(), rtol=1e-6, atol=0)
    assert rope.inverse_frequencies(head_dim).dtype == np.float32
    assert rope.attention_scale == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("name", [*presets.DECODERS, *presets.EMBEDDERS])
def test_presets_have_their_shapes(name):
    """Transformers' model of the same config.json, without memory: every name and shape."""
    from transformers import AutoModel, AutoModelForCausalLM

    config = (presets.DECODERS | presets.EMBEDDERS)[name]
    head = name in presets.DECODERS
    with torch.device("meta"):
        model = (AutoModelForCausalLM if head else AutoModel).from_config(_config(config))
    theirs = {key: tuple(p.shape) for key, p in model.named_parameters()}  # tied ones once
    spec, ours = dict(P.leaves(decoder.spec(config, head=head))), {}
    for path, source in decoder.hf_sources(config, head=head).items():
        ours |= dict.fromkeys(source.keys, spec[path].shape[1:] if source.stacked else spec[path].shape)
    assert ours == theirs
    assert P.count(decoder.spec(config, head=head)) == sum(p.numel() for p in model.parameters())
