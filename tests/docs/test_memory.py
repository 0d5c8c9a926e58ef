"""docs/memory.md: its example runs and prints what the page says; its tables name what there is."""
import re

from stam_jax.cli import FORMATS
from stam_jax.graph.transitions import LEGAL


def test_example(repository, tmp_path, monkeypatch, capsys):
    page = (repository / "docs" / "memory.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(re.search(r"^```python\n(.*?)^```", page, re.M | re.S)[1], "memory.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["holds type 2 diabetes ", "holds metformin 1000 mg bid", "held metformin 500 mg daily SUPERSEDED"]


def test_tables(repository):
    page = (repository / "docs" / "memory.md").read_text(encoding="utf-8")
    formats = re.search(r"## What goes in\n(.*?)\n\n[A-Z]", page, re.S)[1]
    assert set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in formats.splitlines()[3:]))) == set(FORMATS)
    reasons = set(re.findall(r"^\| ([A-Z_]+) \|", page, re.M))
    assert reasons == LEGAL["ACTIVE", "HISTORY"] | LEGAL[None, "HISTORY"]
