"""The deterministic writer: no model, no clock, the same answer for the same words."""
from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from stam_jax.graph.memory import Entry
from stam_jax.rules.extract import extract
from stam_jax.rules.lexicon import mentions
from stam_jax.rules.link import link
from stam_jax.rules.update import update
from stam_jax.write.writer import Extraction, LinkAnswer, LinkTask, UpdateAnswer, UpdateTask


class RulesWriter:
    """A `stam_jax.write.writer.Writer` of rules. hashes: of the source of the rules, so that a journal names what decided."""

    decider = "rule"

    def __init__(self):
        digest = hashlib.sha256()
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.name.encode() + b"\n" + path.read_bytes())
        self.hashes: Mapping[str, str] = {"rules": digest.hexdigest()}

    def extract(self, entries: Sequence[Entry]) -> list[Extraction]:
        return [extract(entry) for entry in entries]

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]:
        return [link(task) for task in tasks]

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        return [update(task) for task in tasks]


def names(text: str) -> list[str]:
    """Canonical concepts that a text mentions, in its order, each once."""
    return list(dict.fromkeys(m.concept for m in mentions(text)))
