"""Every recipe loads, names its own command, and holds the paper's numbers where it says so; the smoke recipe runs."""
import ast
import dataclasses
import pathlib

import pytest

from core_jax import params, settings
from evigen_jax import retriever
from evigen_jax.cli import main
from evigen_jax.config import Config

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "configs"
PAPER = {"mortality": (8, 1e-3), "autism": (12, 3e-4), "adhd": (12, 1e-4)}


@pytest.mark.parametrize("path", [p for p in sorted(FOLDER.glob("*.py")) if "evigen_jax.config" in p.read_text("utf-8")], ids=lambda p: p.stem)
def test_recipe_loads(path):
    config = settings.load(str(path), Config)
    assert settings.from_dict(Config, settings.to_dict(config)) == config
    assert f"configs/{path.name}" in path.read_text() or path.stem == "planted"
    assert params.count(retriever.spec(config.model)) > 0


@pytest.mark.parametrize("name", PAPER)
def test_paper_settings(name):
    config = settings.load(str(FOLDER / f"{name}.py"), Config)
    assert (config.model.n, config.train.lr) == PAPER[name]
    assert (config.model.k, config.model.d_hidden, config.model.dropout, config.model.lambda_aux) == (4, 1024, 0.1, 0.01)
    assert (config.train.epochs, config.train.patience, config.train.batch_patients) == (20, 3, 16)


def test_smoke_recipe_runs(tmp_path, capsys, quick_compiles):
    common = ["--quiet", "--config", str(FOLDER / "smoke.py")]
    data = ["--cohort", str(tmp_path / "c"), "--store", str(tmp_path / "s")]
    assert main(["cohort", "planted", "--out", str(tmp_path / "c"), "--set=cohort.planted_patients=60", *common]) == 0
    assert main(["embed", "--cohort", str(tmp_path / "c"), "--out", str(tmp_path / "s"), *common]) == 0
    assert main(["train", *data, "--out", str(tmp_path / "r"), "--runs", "1", *common]) == 0
    assert (tmp_path / "r" / "runs.json").exists() and "test_auc" in capsys.readouterr().out


def _reads() -> set[tuple[str, str]]:
    """(settings class, field) of every read in the package: `x.field` where x is a parameter annotated with the class, or
    `config.section.field`."""
    sections = {f.name: type(f.default).__name__ for f in dataclasses.fields(Config)}
    found = set()
    for path in (FOLDER.parent / "evigen_jax").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            every = [*function.args.args, *function.args.kwonlyargs]
            kinds = {a.arg: ast.unparse(a.annotation) for a in every if a.annotation is not None}
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    if isinstance(node.value, ast.Name):
                        found.add((kinds.get(node.value.id, ""), node.attr))
                    elif isinstance(node.value, ast.Attribute) and ast.unparse(node.value.value) == "config":
                        found.add((sections.get(node.value.attr, ""), node.attr))
    return found


def test_every_setting_is_read_somewhere():
    """A stored field that nothing reads is a defect."""
    reads = _reads()
    assert ("TrainConfig", "lr") in reads and ("TrainConfig", "no such field") not in reads
    unread = [f"{section.name}.{field.name}" for section in dataclasses.fields(Config) for field in dataclasses.fields(section.default)
              if (type(section.default).__name__, field.name) not in reads]
    assert unread == []
