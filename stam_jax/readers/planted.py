"""Planted timelines (`core_jax.synth.timelines`) as entries: the text alone, none of the gold."""
from __future__ import annotations

import os
from collections.abc import Iterator

from core_jax.synth.timeline_gold import Timeline, read_timelines
from stam_jax.graph.memory import Entry


def read(path: str | os.PathLike) -> Iterator[Entry]:
    """The entries of a file of timelines, in the order of arrival. Raises: RecordError with file, line and field."""
    for timeline in read_timelines(path):
        yield from entries(timeline)


def entries(timeline: Timeline) -> Iterator[Entry]:
    """source_id: the session, by which the gold names an entry."""
    for e in timeline.entries:
        yield Entry.of(timeline.patient_id, e.session, e.kind, e.text, date=e.date)
