"""A memory system of others, in the interpreter in which it is installed: their packages and ours want different
versions of the same things. Run as a script by `external.Installed`; needs no package but the system's own.

    PYTHON installed.py NAME SITE

NAME is one of `SYSTEMS`, or MODULE:FACTORY of an adapter of one's own, found from the folder in which the command was
given; SITE is a `Site` as JSON. A factory takes the Site and gives an object like this one, which keeps whole entries:

    class Notes:
        name = "notes 1.0"  # with its version

        def __init__(self, site):
            self.kept = {}

        def add(self, entry):  # a dict of patient_id, entry_key, date (None = undated) and text
            self.kept.setdefault(entry["patient_id"], []).append(entry)
            return 1  # memories that came of it

        def search(self, patient_id, question, most):  # the best first: dicts of text and, where known, date, entry_key
            words = set(question.lower().split())
            own = self.kept.get(patient_id, [])
            return sorted(own, key=lambda e: -len(words & set(e["text"].lower().split())))[:most]

        def close(self):
            pass

Whatever `add` and `search` raise is counted as a loss by who asked. One JSON object a line goes in, one comes out;
what a system prints goes to standard error.
"""
from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@dataclasses.dataclass(frozen=True)
class Site:
    """What a system runs with.

    base_url: an OpenAI-compatible endpoint for its language model `model` and its embeddings `embedding_model`, of
    `dim` numbers. encoder: folder of the same encoder, for systems that load their own; None = it has none. folder: for
    its files.
    """

    base_url: str
    model: str
    embedding_model: str
    dim: int
    folder: str
    encoder: str | None = None
    key: str = "none"


class Unusable(Exception):
    """A system that cannot be opened; the message is for the person who asked for it."""


class Mem0:
    """Mem0 2 (package `mem0ai`): one user a patient in one vector store. It only adds: what a later entry contradicts
    stays beside it."""

    def __init__(self, site: Site):
        os.environ.pop("OPENROUTER_API_KEY", None)  # Mem0 would send the entries there
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=site.folder)
        from mem0 import Memory

        self.name = f"mem0 {version('mem0ai')}"
        where = {"openai_base_url": site.base_url, "api_key": site.key}
        self._memory = Memory.from_config({
            "llm": {"provider": "openai", "config": {
                "model": site.model, "temperature": 0.0, "max_tokens": 4096, **where}},
            "embedder": {"provider": "openai", "config": {
                "model": site.embedding_model, "embedding_dims": site.dim, **where}},
            "vector_store": {"provider": "qdrant", "config": {
                "path": os.path.join(site.folder, "qdrant"), "embedding_model_dims": site.dim,
                "collection_name": "stam", "on_disk": True}},
            "history_db_path": os.path.join(site.folder, "history.sqlite"),
        })

    def add(self, entry: dict) -> int:
        about = {"entry_key": entry["entry_key"]} | ({"date": entry["date"]} if entry["date"] else {})
        said = [{"role": "user", "content": entry["text"]}]
        return len(self._memory.add(said, user_id=entry["patient_id"], metadata=about)["results"])

    def search(self, patient_id: str, question: str, most: int) -> list[dict]:
        got = self._memory.search(question, top_k=most, filters={"user_id": patient_id}, threshold=0.0)
        about = [r.get("metadata") or {} for r in got["results"]]
        return [{"text": r["memory"], "date": a.get("date"), "entry_key": a.get("entry_key")}
                for r, a in zip(got["results"], about)]

    def close(self) -> None:
        self._memory.close()


class Apart:
    """One memory a patient, each with a folder of its own, so that nothing can leak between them.

    make: folder for its files -> a memory.
    """

    def __init__(self, folder: str, make: Callable[[str], Any]):
        self._folder, self._make = folder, make
        self._own: dict[str, Any] = {}
        self._about: dict[str, dict] = {}  # id of a memory -> the entry of which it came
        self.of("")  # no patient's: what it lacks is told now, not at the first entry

    def of(self, patient_id: str) -> Any:
        if patient_id not in self._own:
            folder = os.path.join(self._folder, str(len(self._own)))
            os.makedirs(folder, exist_ok=True)
            self._own[patient_id] = self._make(folder)
        return self._own[patient_id]

    def line(self, memory_id: str, text: str) -> dict:
        entry = self._about[memory_id]
        return {"text": text, "date": entry["date"], "entry_key": entry["entry_key"]}

    def close(self) -> None:
        self._own.clear()


class AMem(Apart):
    """A-MEM (package `a-mem`, whose module is `agentic_memory`): an entry is a note, in one store a patient.

    The sources of its authors keep one collection for all instances and empty it with each new one; they are refused.
    """

    def __init__(self, site: Site):
        os.environ.update(OPENAI_BASE_URL=site.base_url, ANONYMIZED_TELEMETRY="False",
                          LITELLM_LOCAL_MODEL_COST_MAP="True")
        from agentic_memory.memory_system import AgenticMemorySystem

        if "storage_path" not in inspect.signature(AgenticMemorySystem).parameters:
            raise Unusable("this A-MEM shares one collection between its instances, so that patients cannot be kept "
                           "apart; a-mem >= 0.2.6 can")
        self.name = f"a-mem {version('a-mem')}"
        super().__init__(site.folder, lambda folder: AgenticMemorySystem(
            model_name=site.encoder or "all-MiniLM-L6-v2", llm_backend="openai", llm_model=site.model, api_key=site.key,
            storage_path=folder))

    def add(self, entry: dict) -> int:
        time = entry["date"] and "".join(filter(str.isdigit, entry["date"])).ljust(12, "0")[:12]
        self._about[self.of(entry["patient_id"]).add_note(entry["text"], time=time)] = entry
        return 1

    def search(self, patient_id: str, question: str, most: int) -> list[dict]:
        if patient_id not in self._own:
            return []
        own = self.of(patient_id)
        if not (found := own.search_agentic(question, k=most)):  # it gives nothing where it failed
            raise LookupError("search_agentic found nothing among the notes")
        return [self.line(note["id"], own.read(note["id"]).content) for note in found]


class MemOS(Apart):
    """MemOS (packages `MemoryOS` and `qdrant-client`): its `general_text` memory, which needs no server; one store a
    patient. Like Mem0 2, this memory only adds."""

    def __init__(self, site: Site):
        os.environ.update(MEMOS_BASE_PATH=site.folder, MOS_EMBEDDER_TIMEOUT="60")
        os.environ.pop("CUSTOM_LOGGER_URL", None)  # MemOS would send its log, and with it the entries, there
        from memos.configs.memory import MemoryConfigFactory
        from memos.memories.factory import MemoryFactory

        def make(folder: str) -> Any:
            return MemoryFactory.from_config(MemoryConfigFactory(backend="general_text", config={
                "extractor_llm": {"backend": "openai", "config": {
                    "model_name_or_path": site.model, "temperature": 0.0, "max_tokens": 4096, "api_key": site.key,
                    "api_base": site.base_url}},
                "embedder": {"backend": "universal_api", "config": {
                    "provider": "openai", "model_name_or_path": site.embedding_model, "api_key": site.key,
                    "base_url": site.base_url}},
                "vector_db": {"backend": "qdrant", "config": {
                    "collection_name": "stam", "vector_dimension": site.dim, "distance_metric": "cosine",
                    "path": folder}},
            }))

        self.name = f"memos {version('MemoryOS')}"
        super().__init__(site.folder, make)

    def add(self, entry: dict) -> int:
        own = self.of(entry["patient_id"])
        if made := own.extract([{"role": "user", "content": entry["text"]}]):
            own.add(made)
        self._about |= {m.id: entry for m in made}
        return len(made)

    def search(self, patient_id: str, question: str, most: int) -> list[dict]:
        if patient_id not in self._own:
            return []
        return [self.line(m.id, m.memory) for m in self.of(patient_id).search(question, most)]


SYSTEMS = {"mem0": (Mem0, "mem0ai>=2.2,<3"), "amem": (AMem, "a-mem>=0.2.6"), "memos": (MemOS, "MemoryOS qdrant-client")}


def opened(name: str, site: Site) -> Any:
    """The system of this name. Raises: Unusable."""
    own, _, factory = name.partition(":")
    try:
        if name in SYSTEMS:
            return SYSTEMS[name][0](site)
        return getattr(importlib.import_module(own), factory)(site)
    except (ImportError, PackageNotFoundError) as e:
        missing = getattr(e, "name", None) or e
        if name in SYSTEMS:
            wanted = " ".join(f"'{p}'" for p in SYSTEMS[name][1].split())
            extra = " (extra mem0)" if name == "mem0" else ""
            raise Unusable(f"{missing} is not installed for {sys.executable}: pip install {wanted} there{extra}, or "
                           "name another interpreter with --system-python") from None
        raise Unusable(f"{missing} cannot be imported by {sys.executable} in {os.getcwd()}: {e}") from None
    except AttributeError as e:
        if name in SYSTEMS or not str(e).startswith(f"module '{own}'"):
            raise
        raise Unusable(f"{own} has no {factory}") from None


def main(name: str, site: str) -> None:
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[0] = os.getcwd()  # not this file's folder, whose modules have common names

    def answer(what: dict) -> None:
        wire.write(json.dumps(what) + "\n")
        wire.flush()

    try:
        system = opened(name, Site(**json.loads(site)))
    except Exception as e:
        return answer({"error": str(e) if isinstance(e, Unusable) else f"{type(e).__name__}: {e}"})
    answer({"name": system.name})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "entry" in asked:
                answer({"made": system.add(asked["entry"])})
            else:
                answer({"lines": system.search(asked["patient_id"], asked["question"], asked["most"])})
        except Exception as e:  # whatever a package of others raises is a loss, and counted by who asked
            answer({"error": type(e).__name__})
            print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
    system.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
