"""Import directions (one AST walk) and the modules that must import with jax blocked (subprocess)."""
import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = {"jax_kernels": ROOT / "kernels/jax_kernels", "core_jax": ROOT / "core_jax", "evigen_jax": ROOT / "evigen_jax",
            "stam_jax": ROOT / "stam_jax"}
OURS = set(PACKAGES) | {"configs", "launch", "tests"}
MAY = {
    "jax_kernels": {"jax_kernels"},
    "core_jax": {"core_jax", "jax_kernels"},
    "evigen_jax": {"evigen_jax", "core_jax", "jax_kernels"},
    "stam_jax": {"stam_jax", "core_jax", "jax_kernels"},
}
ONLY_IN = {  # third-party package -> the only files (or folders) that may import it
    "transformers": {"core_jax/text.py"},
    "tokenizers": {"core_jax/text.py"},
    "sentencepiece": {"core_jax/text.py"},
    "faiss": {"core_jax/index.py"},
    "orbax": {"core_jax/ckpt/"},
    "tensorstore": {"core_jax/ckpt/", "core_jax/vector_store.py"},
    "torch": set(),
    "sklearn": set(),
    "captum": set(),
}
JAX_FREE = [
    "core_jax.records", "core_jax.text", "core_jax.observations", "core_jax.icd", "core_jax.stats", "core_jax.settings",
    "core_jax.readers.mimic_iv", "core_jax.readers.meds", "core_jax.readers.clinosim", "core_jax.readers.jsonl",
    "core_jax.synth.cohort", "core_jax.vector_store", "evigen_jax.cohorts", "evigen_jax.evidence", "evigen_jax.quotes",
    "evigen_jax.rationale", "evigen_jax.verify", "evigen_jax.report", "evigen_jax.writer", "evigen_jax.partial",
    "core_jax.chat", "core_jax.tokenizer_files", "core_jax.byte_alphabet", "core_jax.ckpt.gguf_file", "core_jax.staging",
    "core_jax.engine.request", "core_jax.engine.backend", "core_jax.engine.pages", "core_jax.engine.scheduler",
    "core_jax.engine.grammar", "core_jax.engine.openai", "core_jax.engine.scripted", "core_jax.engine.load",
    "core_jax.engine.answer", "core_jax.engine.wire", "core_jax.engine.http", "core_jax.packaged",
    "core_jax.synth.timelines", "stam_jax.metrics", "stam_jax.storage.store", "stam_jax.graph.undo", "stam_jax.graph.invariants", "stam_jax.storage.verify",
    "stam_jax.write.normalise", "stam_jax.write.chunks", "stam_jax.write.arbitrate", "stam_jax.rules", "stam_jax.language.lines", "stam_jax.language.writer",
    "stam_jax.language.lessons", "stam_jax.read.search", "stam_jax.read.answer", "stam_jax.history.gate", "stam_jax.deletion.conformal", "stam_jax.deletion.plan", "stam_jax.page.page",
    "stam_jax.read.export", "stam_jax.serve.service", "stam_jax.serve.http", "stam_jax.read.listing", "stam_jax.cli", "stam_jax.readers.tables",
    "stam_jax.readers.neutral", "stam_jax.readers.chat", "stam_jax.readers.locomo", "stam_jax.readers.memory_bench", "core_jax.command", "stam_jax.write.turns", "stam_jax.read.census",
]


def imported(path: pathlib.Path) -> list[tuple[int, str]]:
    out = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out += [(node.lineno, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; name the package"
            out.append((node.lineno, node.module))
    return out


def faults(package: str, path: pathlib.Path, where: str) -> list[str]:
    out = []
    for line, module in imported(path):
        top = module.split(".")[0]
        if top in OURS and top not in MAY[package]:
            out.append(f"{where}:{line} imports {module}")
        if top in ONLY_IN and not any(where == a or (a.endswith("/") and where.startswith(a)) for a in ONLY_IN[top]):
            out.append(f"{where}:{line} imports {top}, which only {sorted(ONLY_IN[top]) or 'tests and launch/peers'} may")
        if package == "jax_kernels" and top not in OURS | {"jax", "numpy", "__future__"} and top not in sys.stdlib_module_names:
            out.append(f"{where}:{line} imports {top}; kernels import jax and numpy only")
    return out


def test_import_directions():
    bad = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            bad += faults(package, path, path.relative_to(ROOT).as_posix())
    assert not bad, "\n".join(bad)


def test_the_walk_sees_a_fault(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("import evigen_jax.cli\ndef f():\n    import torch\n")
    assert len(faults("core_jax", file, "core_jax/x.py")) == 2


@pytest.mark.parametrize("name", ["kernels", "configs", "launch"])
def test_folder_is_no_package(name):
    assert not (ROOT / name / "__init__.py").exists(), f"{name}/ shares its name with a package on PyPI"


def test_modules_that_import_with_jax_blocked():
    script = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('jax', 'jaxlib', 'flax', 'transformers', 'torch'):\n"
        "            raise ImportError('blocked: ' + name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import importlib\n"
        f"for m in {JAX_FREE!r}: importlib.import_module(m)\n"
    )
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'kernels')!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_transformers_imports_beside_our_kernels_folder():
    """`kernels` is also the name of a Hugging Face package that transformers probes for."""
    script = "import transformers; from transformers import BertConfig, BertTokenizerFast; import jax_kernels; print('ok')"
    path = [str(p) for p in (ROOT, ROOT / "tests", ROOT / "kernels")]  # tests/ has a folder of that name too
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0]={path!r}\n{script}"],
                          capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "ok", done.stderr
