"""An engine from a folder: what is read, what it is called, and what is refused."""
import json

import engine_cases as E
import jax
import numpy as np
import pytest
from chat_cases import write_tokenizer
from safetensors.numpy import load_file, save_file

from core_jax import lora
from core_jax import params as P
from core_jax.ckpt import hf
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.load import load_backend, model_name
from core_jax.engine.request import Request, Sampling
from core_jax.mesh import MeshSpec
from core_jax.models import decoder


def write(folder, family="llama", **more):
    folder.mkdir(exist_ok=True)
    config = E.config(family)
    hf.write(folder, E.params(family), decoder.hf_sources(config), config.to_hf(), **more)
    write_tokenizer(folder)
    return folder


def same(engine, family):
    want, got = (jax.tree_util.tree_leaves_with_path(t) for t in (E.params(family), engine._params))
    return [p for p, _ in want] == [p for p, _ in got] and all(
        np.array_equal(a, b) for (_, a), (_, b) in zip(want, got))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_folder_keeps_its_whole_name(tmp_path, family):
    engine = Engine.load(write(tmp_path / "Tiny3-1.7B", family))
    assert engine.model == "Tiny3-1.7B" and engine.config == E.config(family) and same(engine, family)


@pytest.mark.parametrize("path, name", [
    ("models/Qwen3-1.7B", "Qwen3-1.7B"), ("models/Qwen3-1.7B/", "Qwen3-1.7B"), ("a/b.Q8_0.gguf", "b.Q8_0"),
    ("x.bin", "x.bin")])
def test_only_gguf_is_cut_from_a_name(path, name):
    assert model_name(path) == name


def test_a_tied_head_that_was_saved_too(tmp_path):
    file = write(tmp_path) / "model.safetensors"
    tensors = load_file(file)
    head = tensors["model.embed_tokens.weight"]
    save_file(tensors | {"lm_head.weight": head}, file)
    engine = Engine.load(tmp_path)
    assert same(engine, "llama") and "head" not in engine._params
    save_file(tensors | {"lm_head.weight": head + 1}, file)
    with pytest.raises(ValueError, match="lm_head.weight: differs from model.embed_tokens.weight"):
        Engine.load(tmp_path)


def test_a_missing_shard(tmp_path):
    write(tmp_path, max_shard_bytes=20_000)
    gone = sorted(tmp_path.glob("model-0*"))[1]
    gone.unlink()
    with pytest.raises(ValueError, match=f"names 1 absent shard.*{gone.name}"):
        Engine.load(tmp_path)


def test_more_tokens_than_the_model_knows(tmp_path):
    write(tmp_path)
    tokens = E.tokenizer().vocab_size
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"vocab_size": tokens - 1}))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"model.embed_tokens.weight": tensors["model.embed_tokens.weight"][:tokens - 1]}, file)
    with pytest.raises(ValueError, match=f"vocabulary of {tokens} tokens, expected at most the model's {tokens - 1}"):
        Engine.load(tmp_path)


def test_a_folder_without_a_model(tmp_path):
    write_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="no config.json"):
        Engine.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json: not JSON"):
        Engine.load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json: got list, expected an object"):
        Engine.load(tmp_path)


def test_a_backend_by_name_with_an_adapter(tmp_path):
    config, spec = E.config(), decoder.spec(E.config())
    adapter = lora.LoraConfig(("layers/wq", "layers/w_up"), rank=2)
    trained = jax.tree.map(lambda x: x + 1.0, P.init(lora.spec(adapter, spec), jax.random.key(0)))
    lora.write_peft(tmp_path / "a", adapter, trained, decoder.hf_sources(config))
    backend = load_backend(str(write(tmp_path / "tiny")), rows=2, length=E.LENGTH, adapters={"a": str(tmp_path / "a")})
    sampling = Sampling(max_tokens=8)
    own, plain = backend.submit([Request(E.PROMPTS[0], sampling, adapter=name) for name in ("a", None)])
    assert plain.tokens == E.greedy(E.PROMPTS[0], 8)
    merged = lora.merge(adapter, E.params(), trained)
    assert own.tokens == E.greedy(E.PROMPTS[0], 8, tree=merged) != plain.tokens
    with pytest.raises(ValueError, match="adapters: got .'a'. for the endpoint 'openai:m'"):
        load_backend("openai:m", adapters={"a": "b"})


@pytest.mark.slow
def test_a_folder_onto_a_mesh(tmp_path):
    folder, mesh = write(tmp_path / "tiny"), MeshSpec(2, 2).build(jax.devices()[:4])
    engine = Engine.load(folder, mesh=mesh, limits=Limits(rows=1, page=16, length=E.LENGTH, chunk=16))
    wq, norm = engine._params["layers"]["wq"], engine._params["norm"]
    assert wq.sharding.spec == jax.sharding.PartitionSpec(None, "tensor", None) and wq.sharding.mesh == mesh
    assert norm.sharding.is_fully_replicated
    assert engine.submit([Request(E.PROMPTS[0], Sampling(max_tokens=8))])[0].tokens == E.greedy(E.PROMPTS[0], 8)
