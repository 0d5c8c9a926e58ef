"""Settings of the write path and the read path, each a frozen dataclass; `stam --set write.budget=24` changes one."""
from __future__ import annotations

import dataclasses

from core_jax.records import RecordError

RESTATEMENTS = ("attach", "keep_both", "archive_older")


@dataclasses.dataclass(frozen=True)
class WriteConfig:
    """Write path (the paper names the budget B only, all values are choices).

    chunk_tokens: most words of a chunk, counted at blanks whatever the writer, as an estimate of tokens. per_chunk:
    most memories kept of one. link_candidates: ACTIVE memories that a new one is compared with. similar: nearest
    memories in an impact set. related: graph neighbours in it. budget: most memories in it (B). group: most new
    memories of one update call (G). retries: of a failed call. answer_tokens: most tokens that a language model
    extracts from a chunk with. least_link: least confidence of a stored relation. least_cosine: of a memory that
    likeness alone brings in. relations: False = the ablation without a graph. restatement: what the same value
    again does.
    """

    chunk_tokens: int = 2048
    per_chunk: int = 32
    link_candidates: int = 12
    similar: int = 8
    related: int = 8
    budget: int = 12
    group: int = 16
    retries: int = 1
    answer_tokens: int = 2048
    least_link: float = 0.5
    least_cosine: float = 0.3
    relations: bool = True
    restatement: str = "attach"

    def __post_init__(self):
        for name in ("chunk_tokens", "per_chunk", "budget", "group", "answer_tokens"):
            if getattr(self, name) < 1:
                raise RecordError(f"got {getattr(self, name)}, expected at least 1", field=f"write.{name}")
        for name in ("link_candidates", "similar", "related", "retries"):
            if getattr(self, name) < 0:
                raise RecordError(f"got {getattr(self, name)}, expected at least 0", field=f"write.{name}")
        for name, low in (("least_link", 0.0), ("least_cosine", -1.0)):
            if not low <= getattr(self, name) <= 1.0:
                raise RecordError(f"got {getattr(self, name)}, expected a number in [{low}, 1]", field=f"write.{name}")
        if self.restatement not in RESTATEMENTS:
            raise RecordError(f"got {self.restatement!r}, expected one of {RESTATEMENTS}", field="write.restatement")


@dataclasses.dataclass(frozen=True)
class ReadConfig:
    """Read path. active, history: memories searched for in each store. most: items of a packet. words:
    most words of a rendered packet, None = no limit; tokens: the same in the reader's tokens. labels: say beside a past
    memory what followed it. spans: add the source's words. refill: ACTIVE packets are filled up to `most` (a control).
    instruction: put before a question that is searched for, None = the prompt named "query" in the encoder's files, if
    there is one. BGE's files name none; it was trained with "Represent this sentence for searching relevant passages: ".
    """

    active: int = 60
    history: int = 60
    most: int = 60
    words: int | None = None
    tokens: int | None = None
    labels: bool = True
    spans: bool = False
    refill: bool = False
    instruction: str | None = None

    def __post_init__(self):
        for name in ("active", "history", "most", "words", "tokens"):
            value = getattr(self, name)
            if value is not None and value < (0 if name == "history" else 1):
                raise RecordError(f"got {value}, expected at least {0 if name == 'history' else 1}", field=f"read.{name}")


@dataclasses.dataclass(frozen=True)
class Config:
    """What `stam` runs with. encoder: `minilm`, a Hugging Face folder, or `hash:<dim>`."""

    encoder: str = "minilm"
    write: WriteConfig = WriteConfig()
    read: ReadConfig = ReadConfig()
