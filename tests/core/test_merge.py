"""recipe.merge, launch/merge.py: base and adapter in one folder, whose answers are those of the training code."""
import json
import os
import subprocess
import sys

import engine_cases as E
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chat_cases import write_tokenizer

from core_jax import lora, quant, recipe
from core_jax import params as P
from core_jax.ckpt import hf
from core_jax.ckpt import model as checkpoint
from core_jax.engine.engine import Engine, Limits
from core_jax.engine.request import Request, Sampling
from core_jax.models import decoder
from core_jax.text import Tokenizer

MODEL = E.config("qwen3")  # its head is not tied: two tables
NEW = (310, 311)
ADAPTER = lora.LoraConfig(("layers/wq", "layers/wv", "layers/w_down"), rank=4, tables=("embed/token", "head"), rows=NEW)
PROMPT = (5, 310, 17, 311, 60, 7)
COUNT = 12


@pytest.fixture(scope="module", autouse=True)
def quick():
    with E.quick_compiles():
        yield


@pytest.fixture(scope="module")
def trained():
    tree = P.init(lora.spec(ADAPTER, decoder.spec(MODEL)), jax.random.key(3))
    return jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape), tree)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, trained):
    """(base, adapter): a model folder, and a PEFT folder that names it."""
    folder = tmp_path_factory.mktemp("merge")
    base = folder / "base"
    base.mkdir()
    hf.write(base, E.params("qwen3"), decoder.hf_sources(MODEL), MODEL.to_hf())
    write_tokenizer(base)
    lora.write_peft(folder / "adapter", ADAPTER, trained, decoder.hf_sources(MODEL), base=str(base))
    return base, folder / "adapter"


def by_training_code(base: P.Tree, trained: P.Tree) -> tuple[int, ...]:
    """Greedy tokens after PROMPT of base and adapter as core_jax/finetune.py applies them."""
    @jax.jit
    def logits(base, trained, ids):
        dense, overlay = lora.bind(ADAPTER, trained, quant.dense(decoder.dense))
        params = lora.with_tables(ADAPTER, base, trained)
        hidden = decoder.forward(MODEL, params, ids, dense=dense, overlay=overlay)
        return decoder.logits(MODEL, params | {"head": params["head"].whole()}, hidden)

    ids = np.zeros((1, len(PROMPT) + COUNT), np.int32)
    ids[0, :len(PROMPT)] = PROMPT
    for at in range(len(PROMPT), ids.shape[1]):
        ids[0, at] = np.argmax(logits(base, trained, jnp.asarray(ids))[0, at - 1])
    return tuple(ids[0, len(PROMPT):].tolist())


def served(folder) -> tuple[int, ...]:
    engine = Engine.load(folder, limits=Limits(rows=1, page=16, length=64, chunk=16))
    return engine.submit([Request(PROMPT, Sampling(max_tokens=COUNT))])[0].tokens


def test_a_merged_folder_answers_as_base_and_adapter(folders, trained, tmp_path):
    base, adapter = folders
    said = recipe.merge(recipe.BaseConfig(str(base), "float32"), adapter, tmp_path / "merged")
    assert (said["tables"], said["new_tokens"]) == (ADAPTER.tables, 2)
    expected = by_training_code(E.params("qwen3"), trained)
    assert served(tmp_path / "merged") == expected != served(base)
    with pytest.raises(ValueError, match="python launch/merge.py --adapter=FOLDER --out=MODEL"):
        Engine.load(base, adapters={"a": str(adapter)})


def test_a_quantised_base_is_rounded_as_in_training(folders, tmp_path):
    base, adapter = folders
    config = recipe.BaseConfig(str(base), "float32", "int8")
    recipe.merge(config, adapter, tmp_path / "merged")
    merged = checkpoint.read(tmp_path / "merged", MODEL)["layers"]
    rounded = quant.dequantised(recipe.open_base(config))["layers"]
    np.testing.assert_array_equal(merged["wk"], rounded["wk"])
    assert not np.array_equal(merged["wk"], E.params("qwen3")["layers"]["wk"])


def test_tokenizer_and_stop_tokens_come_along(tmp_path):
    write_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 0], "top_p": 0.5}')
    first = Tokenizer.load(tmp_path)
    first.write(tmp_path / "again")
    second = Tokenizer.load(tmp_path / "again")
    for name in ("serialized", "eos_ids", "bos_id", "pad_id", "special_names", "added_tokens", "chat_template"):
        assert getattr(first, name) == getattr(second, name), name
    assert second.eos_ids == (2, 0)


def test_command(folders, tmp_path, repository):
    def run(*flags):
        env = os.environ | {"PYTHONPATH": f"{repository}:{repository}/kernels"}
        return subprocess.run([sys.executable, str(repository / "launch/merge.py"), f"--adapter={folders[1]}", *flags],
                              capture_output=True, text=True, cwd=tmp_path, env=env)

    done = run("--out=merged")
    assert done.returncode == 0 and json.loads(done.stdout)["base"] == str(folders[0]), done.stderr
    assert checkpoint.read(tmp_path / "merged", MODEL, dtype="bfloat16")["head"].dtype == jnp.bfloat16
    again = run("--out=merged")
    assert again.returncode == 2 and again.stderr == "merge.py: --out=merged: is there already\n"
