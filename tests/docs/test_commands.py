"""docs/commands.md names every command and flag, and every launch script's flags; --help shows an example each."""
import argparse
import dataclasses
import pathlib
import re

import pytest
from evigen_jax.cli import EXAMPLES, parser
from evigen_jax.config import Config

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
COMMANDS = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices


def section(title: str) -> str:
    found = re.search(rf"^## `{re.escape(title)}`\n(.*?)(?=^## |\Z)", DOC, re.M | re.S)
    assert found, f"docs/commands.md has no section `{title}`"
    return found.group(1)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_documented(name):
    text = section(f"evigen {name}")
    common = section("flags of every command")
    for action in COMMANDS[name]._actions:
        for flag in action.option_strings:
            if flag.startswith("--"):
                assert f"`{flag}" in text or f"`{flag}" in common, f"evigen {name} {flag} is not in docs/commands.md"
    assert EXAMPLES[name].split("\n")[1].strip().split("  ")[0].split(" #")[0].rstrip(" \\") in COMMANDS[name].format_help()


def test_no_documented_flag_is_gone():
    known = {f for p in COMMANDS.values() for a in p._actions for f in a.option_strings}
    for name in COMMANDS:
        for flag in re.findall(r"^\| `(--[a-z-]+)", section(f"evigen {name}"), re.M):
            assert flag in known, f"docs/commands.md documents {flag} of evigen {name}, which does not exist"


@pytest.mark.parametrize("script", sorted(p.name for p in (ROOT / "launch").glob("*.py")))
def test_launch_script_is_documented(script):
    text = section(f"launch/{script}")
    for flag in re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', (ROOT / "launch" / script).read_text(encoding="utf-8")):
        assert f"`--{flag}" in text, f"launch/{script} --{flag} is not in docs/commands.md"


@pytest.mark.parametrize("script", ["demo.sh", "test.sh"])
def test_shell_script_is_documented(script):
    assert f"launch/{script}" in DOC


@pytest.mark.parametrize("group", [f.name for f in dataclasses.fields(Config)])
def test_every_setting_is_documented_with_its_default(group):
    values = getattr(Config(), group)
    wanted = {f"`{group}.{f.name}` | `{getattr(values, f.name)!r}`" for f in dataclasses.fields(values)}
    assert wanted == set(re.findall(rf"^\| (`{group}\.\w+` \| `.*`) \|$", DOC, re.M))
