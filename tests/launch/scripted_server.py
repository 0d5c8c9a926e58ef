"""Run by test_serve.py as a process of its own: launch/serve.py's `serve` over a scripted backend, without weights.

usage: python scripted_server.py KEY-or-"-" LIMITS-as-JSON.  What the last message says is what happens.
"""

import importlib.util
import json
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from core_jax.engine import http  # noqa: E402
from core_jax.engine.request import Request  # noqa: E402
from core_jax.engine.scripted import Scripted  # noqa: E402


def answer(request: Request) -> str:
    said = (
        request.prompt
        if isinstance(request.prompt, str)
        else request.prompt[-1]["content"]
        if request.is_chat
        else "ids"
    )
    if said == "refuse":
        raise ValueError("prompt: 9000 tokens, expected at most 8192")
    if said == "boom":
        raise RuntimeError("a patient's text: boom")
    if request.grammar is not None:
        return f"{request.grammar.kind} {request.grammar.text}"
    if request.adapter:
        return f"{request.adapter}: {said}"
    return f"you said: {said}"


class Slow(Scripted):
    """Streams "slow N" as N words, 20 ms each."""

    def stream(self, request, on_text):
        said = request.prompt[-1]["content"] if request.is_chat else request.prompt
        if not isinstance(said, str) or not said.startswith("slow "):
            return super().stream(request, on_text)
        count = int(said.split()[1])
        for i in range(count):
            time.sleep(0.02)
            on_text(f"w{i} ")
        return Scripted(["".join(f"w{i} " for i in range(count))], model=self.model).submit([request])[0]


class Encoder:
    id, dim, normalized = "letters", 3, False

    def encode(self, texts):
        if any(t == "bad" for t in texts):
            raise ValueError("text 0 has no token: 'bad'")
        return np.array([[len(t), t.count("a"), 0.5] for t in texts], np.float32)


spec = importlib.util.spec_from_file_location("serve", ROOT / "launch/serve.py")
serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serve)
key, limits = sys.argv[1], http.Limits(**json.loads(sys.argv[2]))
serve.serve(
    Slow(answer),
    serve.bind("127.0.0.1", 0),
    limits=limits,
    adapters=("link",),
    encoder=Encoder(),
    encoder_name="letters",
    key=None if key == "-" else key,
)
