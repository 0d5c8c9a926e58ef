"""Memory systems of others as small stand-ins on disk, with the signatures of the real packages: mem0ai 2.2.1,
a-mem 0.2.6, MemoryOS 2.0.33. Each finds by shared words, prints on standard output, and fails on entries that say FAIL.
"""
import pathlib

FOUND = '''
import json


def best(texts, query, most):
    """Keys of the texts, those with the most words of the query first."""
    words = set(query.lower().split())
    return sorted(texts, key=lambda k: -len(words & set(texts[k].lower().split())))[:most]


def taken(text):
    print("a line that is no answer")
    if "FAIL" in text:
        raise KeyError("memory list")
    return text
'''
MEM0 = '''
import os
import uuid
from typing import Any, Dict, Optional

from found import best, taken


class Memory:
    def __init__(self, config):
        self.kept, self.about = {}, {}

    @classmethod
    def from_config(cls, config_dict: Dict[str, Any]):
        assert "OPENROUTER_API_KEY" not in os.environ and os.environ["MEM0_TELEMETRY"] == "False"
        assert set(config_dict) == {"llm", "embedder", "vector_store", "history_db_path"}
        assert config_dict["llm"]["config"]["openai_base_url"] == config_dict["embedder"]["config"]["openai_base_url"]
        return cls(config_dict)

    def add(self, messages, *, user_id: Optional[str] = None, agent_id: Optional[str] = None,
            run_id: Optional[str] = None, metadata: Optional[Dict[str, Any]] = None, timestamp: Optional[Any] = None,
            expiration_date: Optional[Any] = None, infer: bool = True, memory_type: Optional[str] = None,
            prompt: Optional[str] = None):
        made = []
        for said in filter(None, taken(messages[0]["content"]).rstrip(".").split(". ")):
            made.append({"id": str(uuid.uuid4()), "memory": said, "event": "ADD"})
            self.kept[made[-1]["id"]], self.about[made[-1]["id"]] = said, (user_id, metadata)
        return {"results": made}

    def search(self, query: str, *, top_k: int = 20, filters: Optional[Dict[str, Any]] = None, threshold: float = 0.1,
               rerank: bool = False, explain: bool = False, reference_date: Optional[Any] = None,
               show_expired: bool = False, **kwargs):
        assert not kwargs and threshold == 0.0
        own = {k: t for k, t in self.kept.items() if self.about[k][0] == filters["user_id"]}
        return {"results": [{"id": k, "memory": own[k], "score": 0.5, "metadata": self.about[k][1]}
                            for k in best(own, query, top_k)]}

    def close(self):
        pass
'''
AMEM = '''
import os
import types
import uuid
from typing import Any, Dict, List, Optional

from found import best, taken

opened = set()


class AgenticMemorySystem:
    def __init__(self, model_name: str = "all-MiniLM-L6-v2", llm_backend: str = "openai",
                 llm_model: str = "gpt-4o-mini", evo_threshold: int = 100, api_key: Optional[str] = None,
                 sglang_host: str = "http://localhost", sglang_port: int = 30000, storage_path: str = "./chroma_db",
                 cache_size: int = 1000, enable_cache: bool = True):
        assert os.environ["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1" and os.path.isdir(storage_path)
        assert storage_path not in opened
        opened.add(storage_path)
        self.notes, self.times = {}, {}

    def add_note(self, content: str, time: str = None, **kwargs) -> str:
        assert time is None or len(time) == 12 and time.isdigit()
        self.notes[key := str(uuid.uuid4())] = taken(content)
        return key

    def search_agentic(self, query: str, k: int = 5) -> List[Dict[str, Any]]:
        return [{"id": i, "context": "", "keywords": [], "tags": [], "timestamp": 202401010000, "is_neighbor": False}
                for i in best(self.notes, query, k)]

    def read(self, memory_id: str):
        return types.SimpleNamespace(id=memory_id, content=self.notes[memory_id])
'''
MEMOS_CONFIGS = '''
class MemoryConfigFactory:
    def __init__(self, *, backend: str = "uninitialized", config: dict = {}):
        assert backend == "general_text" and set(config) == {"extractor_llm", "embedder", "vector_db"}
        self.backend, self.config = backend, config
'''
MEMOS_FACTORY = '''
import types
import uuid

from found import best, taken

opened = set()


class GeneralTextMemory:
    def __init__(self, config):
        assert (path := config["vector_db"]["config"]["path"]) not in opened
        opened.add(path)
        self.kept = {}

    def extract(self, messages):
        said = filter(None, taken(messages[0]["content"]).rstrip(".").split(". "))
        return [types.SimpleNamespace(id=str(uuid.uuid4()), memory=s) for s in said]

    def add(self, memories) -> None:
        assert memories
        self.kept |= {m.id: m for m in memories}

    def search(self, query: str, top_k: int, info=None, **kwargs):
        return [self.kept[k] for k in best({k: m.memory for k, m in self.kept.items()}, query, top_k)]


class MemoryFactory:
    @classmethod
    def from_config(cls, config_factory):
        return GeneralTextMemory(config_factory.config)
'''
FILES = {
    "found.py": FOUND,
    "mem0/__init__.py": MEM0,
    "mem0ai-2.2.1.dist-info/METADATA": "Name: mem0ai\nVersion: 2.2.1\n",
    "agentic_memory/__init__.py": "",
    "agentic_memory/memory_system.py": AMEM,
    "a_mem-0.2.6.dist-info/METADATA": "Name: a-mem\nVersion: 0.2.6\n",
    "memos/__init__.py": "",
    "memos/configs/__init__.py": "",
    "memos/configs/memory.py": MEMOS_CONFIGS,
    "memos/memories/__init__.py": "",
    "memos/memories/factory.py": MEMOS_FACTORY,
    "MemoryOS-2.0.33.dist-info/METADATA": "Name: MemoryOS\nVersion: 2.0.33\n",
}


def install(folder: pathlib.Path) -> None:
    """The stand-ins, importable from `folder`."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
