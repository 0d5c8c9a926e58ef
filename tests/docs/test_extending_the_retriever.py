"""docs/extending_the_retriever.md: its worked example runs, top to bottom, and its table names what there is."""
import inspect
import re

import numpy as np

from evigen_jax import retriever, train


def test_worked_example(repository, tmp_path, monkeypatch, capsys):
    page = (repository / "docs" / "extending_the_retriever.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.S | re.M))
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "worked_example"}
    exec(compile(code, "extending_the_retriever.md", "exec"), space)
    out, result = space["out"], space["result"]
    listed = re.search(r"can be looked at: (.*?)\.\n", page, flags=re.S)[1].split(",")
    assert set(out) == {name.strip().strip("`") for name in listed}
    assert "mean_gate" in result.history[-1] and (tmp_path / "run" / "config.json").exists()
    gate = np.asarray(out["gate"])
    assert ((gate > 0) & (gate < 1)).any() and (gate[:, 0] == 1).all()  # the soft gate was used
    valid, scores = np.asarray(out["valid"]), np.asarray(out["scores"])
    assert not valid.all() and scores[valid].min() > 0.1  # and the floor
    alpha = np.asarray(out["alpha"])
    uniform = valid / np.maximum(valid.sum(-1, keepdims=True), 1)
    np.testing.assert_allclose(alpha[valid], uniform[valid])  # and mean pooling
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 3 and "note" in lines[2]


def test_arguments_that_the_page_names(repository):
    page = (repository / "docs" / "extending_the_retriever.md").read_text(encoding="utf-8")
    for name in re.findall(r"^\| \w+ \| `(\w+)` \| `(?:retriever|jax_kernels)", page, flags=re.M):
        assert name in inspect.signature(retriever.apply).parameters
    assert len(re.findall(r"^\| \w+ \| `(\w+)` \| `(?:retriever|jax_kernels)", page, flags=re.M)) == 4
    assert list(inspect.signature(train.fit).parameters).count("loss") == 1
    form = list(inspect.signature(train.selector_loss).parameters)
    assert form[:6] == ["params", "batch", "key", "config", "max_segment", "pos_weight"]
