"""Controls of the write path as writers: they extract as the writer that they wrap, and decide less. No JAX."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from stam_jax.graph.memory import Entry, Memory
from stam_jax.write.writer import (
    Extraction,
    Link,
    LinkAnswer,
    LinkTask,
    Placement,
    UpdateAnswer,
    UpdateTask,
    Verdict,
    Writer,
)

MEASURED = ("dose", "value")  # the attributes of the doses-and-measurements rule


class AppendOnly:
    """Links nothing and moves nothing: whatever is said is kept beside what was said before."""

    decider = "rule"

    def __init__(self, writer: Writer):
        self.writer = writer
        self.hashes: Mapping[str, str] = {"control": type(self).__name__, **writer.hashes}

    def extract(self, entries: Sequence[Entry]) -> list[Extraction]:
        return self.writer.extract(entries)

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]:
        return [LinkAnswer() for _ in tasks]

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        return [UpdateAnswer() for _ in tasks]


class SameSlot(AppendOnly):
    """What is new of a slot follows what holds of it; nothing else is related or moved.

    attributes: only slots of these; None = all. Arbitration still guards time, polarity and values: the rule without
    that guard is `stam_jax.baselines.slots.same_slot`.
    """

    def __init__(self, writer: Writer, attributes: Sequence[str] | None = None):
        super().__init__(writer)
        self.attributes = None if attributes is None else frozenset(attributes)

    def _follows(self, new: Memory, old: Memory) -> bool:
        return (None not in new.slot and new.slot == old.slot and new.experiencer == old.experiencer
                and (self.attributes is None or new.attribute in self.attributes))

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]:
        return [LinkAnswer(tuple(Link(i, "same_condition_thread") for i, c in enumerate(t.candidates)
                                 if self._follows(t.memory, c))) for t in tasks]

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        return [self._answer(t) for t in tasks]

    def _answer(self, task: UpdateTask) -> UpdateAnswer:
        placements: dict[int, Placement] = {}
        verdicts = []
        for c, affected in enumerate(task.candidates):
            old = affected.memory
            for n, new in enumerate(task.news):
                if old.store != "ACTIVE" or not self._follows(new, old):
                    continue
                if (new.value, new.unit, new.polarity) == (old.value, old.unit, old.polarity):
                    placements.setdefault(n, Placement(n, "SAME", c))
                else:
                    verdicts.append(Verdict(c, "RESOLVED" if new.polarity == "NEGATED" else "SUPERSEDED", n))
        return UpdateAnswer(tuple(placements.values()), tuple(verdicts))
