"""Other memory systems behind one protocol, each through its own package.

A system is given whole entries, in the order of arrival, and asked for the lines that it would serve. What it refuses
or loses is counted, never passed over (`lost`). Nothing here is imported by the rest of the project, and no package is
needed to import this module.
"""
from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from stam_jax.graph.memory import Entry


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """What a system serves: its text, the date and the key of the entry from which it came, where it knows them."""

    text: str
    date: str | None = None
    entry_key: str | None = None


class MemorySystem(Protocol):
    """name: with the version of its package. lost: reason -> entries that it did not take in."""

    name: str
    lost: Counter[str]

    def add(self, entry: Entry) -> int:
        """Take an entry in; how many memories it says came of it."""
        ...

    def search(self, patient_id: str, question: str, most: int) -> list[Line]:
        """At most `most` lines of this patient, the best first."""
        ...

    def close(self) -> None: ...


class Mem0:
    """Mem0 (package `mem0ai`, version 2), one user a patient, in a local vector store.

    base_url: an OpenAI-compatible endpoint for its language model and its embeddings, e.g. `launch/serve.py`'s.
    dim: of the embeddings. Its telemetry is switched off before it is imported; it keeps its files in `folder`.

    Mem0 2 only adds: what a later entry contradicts stays beside it.
    Raises: ImportError: the package is not installed; ValueError: OPENROUTER_API_KEY is set, for which Mem0 would send
        the entries to another endpoint than `base_url`.
    """

    def __init__(self, base_url: str, folder: str, *, model: str, embedding_model: str, dim: int, key: str = "none"):
        if os.environ.get("OPENROUTER_API_KEY"):
            raise ValueError("OPENROUTER_API_KEY is set: Mem0 would send the entries there; unset it")
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["MEM0_DIR"] = os.fspath(folder)
        from mem0 import Memory
        from mem0 import __version__ as version

        self.name, self.lost = f"mem0 {version}", Counter()
        where = {"openai_base_url": base_url, "api_key": key}
        self._memory = Memory.from_config({
            "llm": {"provider": "openai", "config": {"model": model, "temperature": 0.0, "max_tokens": 4096, **where}},
            "embedder": {"provider": "openai", "config": {"model": embedding_model, "embedding_dims": dim, **where}},
            "vector_store": {"provider": "qdrant", "config": {
                "path": os.path.join(folder, "qdrant"), "embedding_model_dims": dim, "collection_name": "stam",
                "on_disk": True}},
            "history_db_path": os.path.join(folder, "history.sqlite"),
        })

    def add(self, entry: Entry) -> int:
        said = [{"role": "user", "content": entry.text}]
        about = {"entry_key": entry.entry_key} | ({"date": entry.date} if entry.date else {})
        try:
            got = self._memory.add(said, user_id=entry.patient_id, metadata=about)
        except Exception as e:  # whatever a package of others raises is a lost entry, and counted
            self.lost[type(e).__name__] += 1
            return 0
        return len(got["results"])

    def search(self, patient_id: str, question: str, most: int) -> list[Line]:
        got = self._memory.search(question, top_k=most, filters={"user_id": patient_id}, threshold=0.0)
        return [Line(r["memory"], _about(r).get("date"), _about(r).get("entry_key")) for r in got["results"]]

    def close(self) -> None:
        self._memory.close()


def _about(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return result.get("metadata") or {}


class PerPatient:
    """Any system that keeps one memory: one instance a patient, so that nothing can leak between them.

    make: patient_id -> an instance with files and collections of its own. add: (instance, entry) -> memories made.
    search: (instance, question, most) -> lines.
    """

    def __init__(self, name: str, make: Callable[[str], Any], add: Callable[[Any, Entry], int],
                 search: Callable[[Any, str, int], list[Line]]):
        self.name, self.lost = name, Counter()
        self._make, self._add, self._search = make, add, search
        self._own: dict[str, Any] = {}

    def add(self, entry: Entry) -> int:
        try:
            if entry.patient_id not in self._own:
                self._own[entry.patient_id] = self._make(entry.patient_id)
            return self._add(self._own[entry.patient_id], entry)
        except Exception as e:  # as above
            self.lost[type(e).__name__] += 1
            return 0

    def search(self, patient_id: str, question: str, most: int) -> list[Line]:
        own = self._own.get(patient_id)
        return [] if own is None else self._search(own, question, most)[:most]

    def close(self) -> None:
        for own in self._own.values():
            if callable(close := getattr(own, "close", None)):
                close()
        self._own.clear()


def fill(system: MemorySystem, entries: Sequence[Entry]) -> Counter[str]:
    """Give a system all entries. Counted: `entries`, `memories`, `empty` (entries of which nothing came)."""
    out: Counter[str] = Counter()
    for entry in entries:
        made = system.add(entry)
        out.update(entries=1, memories=made, empty=made == 0)
    return out
