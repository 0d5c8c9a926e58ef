"""WORKSPACE.md is the map: each source file has its line, and no line names a file that is gone."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAP = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
FOLDERS = ("kernels/jax_kernels", "core_jax", "evigen_jax", "stam_jax", "launch", "configs")


def listed(folder: str) -> set[str]:
    found = re.search(rf"^### {re.escape(folder)}/\n(.*?)(?=^### |^<!-- /files)", MAP, re.M | re.S)
    assert found, f"WORKSPACE.md has no section for {folder}/"
    return set(re.findall(r"^\| ([\w./-]+\.(?:py|sh)) \| \S", found.group(1), re.M))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_has_its_line(folder):
    have = {p.relative_to(ROOT / folder).as_posix() for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".sh")}
    named = {f for f in have if not f.endswith("__init__.py")}
    assert named <= listed(folder), f"not in WORKSPACE.md: {sorted(named - listed(folder))}"
    assert listed(folder) <= have, f"in WORKSPACE.md, but gone: {sorted(listed(folder) - have)}"


def test_readme_and_docs_links_resolve():
    for page in [ROOT / "README.md", ROOT / "WORKSPACE.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
