"""A writer as an OpenAI-compatible endpoint on this machine, so that a memory system that needs a language model can be
run without one: it extracts what the writer extracts, and its embeddings are the encoder's.

Needs the extra `serve`. What is measured then is the system's memory, not its model.
"""
from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

from core_jax.embed import Encoder
from core_jax.engine.request import Request
from core_jax.engine.scripted import Scripted
from stam_jax.graph.memory import Entry
from stam_jax.write.writer import Writer

NAME = "rules"
_NEW = re.compile(r"^## New Messages\n(.*?)\n\n## Observation Date\n", re.DOTALL | re.MULTILINE)
_TURN = re.compile(r"\A(?:user|assistant): ")


def extraction(writer: Writer, prompt: str) -> str:
    """The answer to Mem0's extraction prompt: its new messages' statements, as the JSON that it asks for.

    Raises: ValueError: no such prompt.
    """
    if (found := _NEW.search(prompt)) is None:
        raise ValueError("not Mem0's extraction prompt: it has no section of new messages")
    text = _TURN.sub("", found[1].strip())
    drafts = writer.extract([Entry.of("endpoint", "prompt", "note", text)])[0].drafts
    return json.dumps({"memory": [{"id": str(i), "text": d.statement} for i, d in enumerate(drafts)]})


@contextlib.contextmanager
def serving(writer: Writer, encoder: Encoder) -> Iterator[str]:
    """The base URL of the endpoint, on a free port of the loopback address, for as long as the block runs."""
    import uvicorn

    from core_jax.engine import http

    def answer(request: Request) -> str:
        prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[-1]["content"]
        return extraction(writer, prompt)

    face = http.application(Scripted(answer, model=NAME), encoder=encoder, encoder_name="encoder")
    config = uvicorn.Config(face, log_level="critical", access_log=False, lifespan="off", ws="none")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()
