"""docs/commands.md names every command and flag, and every launch script's flags; --help shows an example each."""
import argparse
import dataclasses
import pathlib
import re
import shlex

import pytest

import evigen_jax.cli
import stam_jax.cli
import stam_jax.config
from evigen_jax.config import Config

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
PROGRAMS = {"evigen": evigen_jax.cli, "stam": stam_jax.cli}
COMMANDS = {(program, name): p for program, module in PROGRAMS.items() for a in module.parser()._actions
            if isinstance(a, argparse._SubParsersAction) for name, p in a.choices.items()}
COMMON = {"evigen": "flags of every command", "stam": "flags of every stam command"}


def section(title: str) -> str:
    found = re.search(rf"^## `{re.escape(title)}`\n(.*?)(?=^## |\Z)", DOC, re.M | re.S)
    assert found, f"docs/commands.md has no section `{title}`"
    return found.group(1)


@pytest.mark.parametrize(("program", "name"), sorted(COMMANDS))
def test_command_is_documented(program, name):
    text, common = section(f"{program} {name}"), section(COMMON[program])
    for action in COMMANDS[program, name]._actions:
        for flag in action.option_strings:
            if flag.startswith("--"):
                assert f"`{flag}" in text or f"`{flag}" in common, f"{program} {name} {flag} is not in docs/commands.md"
    example = PROGRAMS[program].EXAMPLES[name].split("\n")[1].strip().split("  ")[0].split(" #")[0].rstrip(" \\")
    assert example.startswith(f"{program} {name}") and example in COMMANDS[program, name].format_help()


@pytest.mark.parametrize(("program", "name"), sorted(COMMANDS))
def test_no_documented_flag_is_gone(program, name):
    known = {f for a in COMMANDS[program, name]._actions for f in a.option_strings}
    for flag in re.findall(r"^\| `(--[a-z-]+)", section(f"{program} {name}"), re.M):
        assert flag in known, f"docs/commands.md documents {flag} of {program} {name}, which does not exist"


@pytest.mark.parametrize(("program", "name"), sorted(COMMANDS))
def test_examples_are_read_by_the_parser(program, name):
    text = PROGRAMS[program].EXAMPLES[name].replace("\\\n", " ")
    for line in re.findall(rf"^ +({program} {name} .*)$", text, re.M):
        words = shlex.split(line, comments=True)[1:]
        if "..." not in words and "<id" not in line:
            PROGRAMS[program].parser().parse_args(words)


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


@pytest.mark.parametrize("group", [f.name for f in dataclasses.fields(stam_jax.config.Config)])
def test_every_setting_of_stam_is_documented_with_its_default(group):
    values = getattr(stam_jax.config.Config(), group)
    wanted = {f"`{group}.{f.name}` | `{getattr(values, f.name)!r}`" for f in dataclasses.fields(values)} \
        if dataclasses.is_dataclass(values) else {f"`{group}` | `{values!r}`"}
    text = section("Settings of stam") if "## `Settings of stam`" in DOC else DOC[DOC.index("\n## Settings of stam\n"):]
    assert wanted == set(re.findall(rf"^\| (`{group}(?:\.\w+)?` \| `.*`) \|$", text.split("\n## ")[1], re.M))
