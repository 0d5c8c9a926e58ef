"""STAM's write path and its controls, each made from the same entries: what every suite on memories compares."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core_jax.embed import Encoder
from stam_jax.baselines import slots
from stam_jax.baselines.writers import MEASURED, AppendOnly, SameSlot
from stam_jax.benchmarks.harness import Memories, build
from stam_jax.config import WriteConfig
from stam_jax.graph.state import State
from stam_jax.write.writer import Writer

STAM, APPENDED = "STAM", "append only"
# the write paths that run through ingestion: name -> (wrap the writer, the settings in which it differs from STAM)
INGESTED: dict[str, tuple[Callable[[Writer], Writer], Mapping[str, Any]]] = {
    STAM: (lambda w: w, {}),
    "semantic only, B 12": (lambda w: w, {"similar": 12, "related": 0, "budget": 12}),
    "semantic only, B 24": (lambda w: w, {"similar": 24, "related": 0, "budget": 24}),
    "B 24": (lambda w: w, {"similar": 16, "related": 16, "budget": 24}),
    "no relations": (lambda w: w, {"relations": False}),
    "same slot, arbitrated": (SameSlot, {}),
    APPENDED: (AppendOnly, {"relations": False, "restatement": "keep_both"}),
}
# those that move the memories of "append only" by a bare rule
REPLAYED: dict[str, Callable[[State], State]] = {
    APPENDED: slots.append_only,
    "same slot": slots.same_slot,
    "doses and measurements": lambda state: slots.same_slot(state, MEASURED),
}
ORDER = (STAM, "B 24", "semantic only, B 12", "semantic only, B 24", "no relations", "same slot, arbitrated",
         "same slot", "doses and measurements", APPENDED)


def settings_of(name: str, write: WriteConfig) -> WriteConfig:
    """The settings of an ingested write path. write: STAM's."""
    return dataclasses.replace(write, **INGESTED[name][1])


def told_of(names: Iterable[str], write: WriteConfig) -> dict[str, dict[str, Any]]:
    """What a report says of the settings of write paths."""
    return {name: dataclasses.asdict(settings_of(name, write)) for name in names if name in INGESTED}


def memories_of(entries: Sequence[Any], writer: Writer, encoder: Encoder, names: Iterable[str] = ORDER,
                progress: Callable[[str], Any] | None = None, *, write: WriteConfig) -> dict[str, Memories]:
    """The memories of the named write paths. entries: as `stam_jax.write.ingest.ingest` takes them. write: STAM's
    settings, which the others share but for what makes them controls."""
    out: dict[str, Memories] = {}
    names = set(names)
    for name, (wrap, _) in INGESTED.items():
        if name in names or (name == APPENDED and names & set(REPLAYED)):
            if progress is not None:
                progress(f"writing: {name}")
            out[name] = build(name, entries, wrap(writer), encoder, settings_of(name, write), updates=name in REPLAYED)
    if APPENDED in out:
        said = out[APPENDED]
        out |= {name: said.changed(name, rule) for name, rule in REPLAYED.items() if name in names | {APPENDED}}
    return {name: out[name] for name in ORDER if name in out}
