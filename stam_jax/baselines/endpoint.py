"""A writer as an OpenAI-compatible endpoint on this machine, so that a memory system that needs a language model can be
run without one: it extracts what the writer extracts, and its embeddings are the encoder's.

Needs the extra `serve`. What is measured then is the system's memory, not its model. It knows the prompts of Mem0,
MemOS and A-MEM; what else it is asked it refuses.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from core_jax.embed import Encoder
from core_jax.engine.request import Request
from core_jax.engine.scripted import Scripted
from stam_jax.graph.memory import Entry
from stam_jax.write.writer import Draft, Writer

NAME, ENCODER = "rules", "encoder"
_TURN = re.compile(r"\A(?:user|assistant): ?")


def _mem0(drafts: Sequence[Draft]) -> Any:
    return {"memory": [{"id": str(i), "text": d.statement} for i, d in enumerate(drafts)]}


def _memos(drafts: Sequence[Draft]) -> Any:
    return {"memory list": [{"key": d.concept or d.kind.lower(), "memory_type": "UserMemory", "value": d.statement,
                             "tags": [d.attribute] if d.attribute else []} for d in drafts],
            "summary": " ".join(d.statement for d in drafts)}


def _amem(drafts: Sequence[Draft]) -> Any:
    def each(values: Iterator[str | None]) -> list[str]:
        return list(dict.fromkeys(filter(None, values)))

    return {"keywords": each(d.concept for d in drafts), "tags": each(d.attribute for d in drafts),
            "context": " ".join(d.statement for d in drafts) or "General"}


def _amem_evolves(drafts: Sequence[Draft]) -> Any:
    return {"should_evolve": False, "actions": [], "suggested_connections": [], "tags_to_update": [],
            "new_context_neighborhood": [], "new_tags_neighborhood": []}


# what the prompt is known by, its group the text to read; what is answered to the text's drafts
PROMPTS: tuple[tuple[re.Pattern[str], Callable[[Sequence[Draft]], Any]], ...] = (
    (re.compile(r"^## New Messages\n(.*?)\n\n## Observation Date\n", re.DOTALL | re.MULTILINE), _mem0),
    (re.compile(r"^Always respond in the same language as the conversation\.\n\nConversation:\n(.*)\n\n"
                r"Your Output:\s*\Z", re.DOTALL | re.MULTILINE), _memos),
    (re.compile(r"\AGenerate a structured analysis of the following content by:\n.*?\n"
                r"\s*Content for analysis:\n\s*(.*)\Z", re.DOTALL), _amem),
    (re.compile(r"\A\s*You are an AI memory evolution agent ()"), _amem_evolves),
)


def answer(writer: Writer, prompt: str) -> str:
    """The answer to a prompt of another system, as the JSON that it asks for.

    Raises: ValueError: a prompt of no system that is known here.
    """
    for known, say in PROMPTS:
        if found := known.search(prompt):
            text = _TURN.sub("", found[1].strip())
            entry = Entry.of("endpoint", "prompt", "note", text)
            return json.dumps(say(writer.extract([entry])[0].drafts if text else ()))
    raise ValueError("a prompt of no memory system that is known here")


@dataclasses.dataclass(frozen=True)
class Served:
    """url: the endpoint's base. asked: `calls` of the model, `words read` in their last messages, `words said`."""

    url: str
    asked: Counter[str]


@contextlib.contextmanager
def serving(writer: Writer, encoder: Encoder) -> Iterator[Served]:
    """The endpoint, on a free port of the loopback address, for as long as the block runs."""
    import uvicorn

    from core_jax.engine import http

    asked: Counter[str] = Counter()

    def say(request: Request) -> str:
        prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[-1]["content"]
        said = answer(writer, prompt)
        asked.update({"calls": 1, "words read": len(prompt.split()), "words said": len(said.split())})
        return said

    face = http.application(Scripted(say, model=NAME), encoder=encoder, encoder_name=ENCODER)
    config = uvicorn.Config(face, log_level="critical", access_log=False, lifespan="off", ws="none")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", asked)
        finally:
            server.should_exit = True
            thread.join()
