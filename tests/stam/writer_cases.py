"""Writers for the tests of the write path: one that reads a small language of its own, one that answers at random."""
from __future__ import annotations

import random
import re
import zlib

from stam_jax.graph.memory import Entry
from stam_jax.graph.relations import DEFAULT
from stam_jax.write.arbitrate import restates, same_slot
from stam_jax.write.writer import (
    PLACEMENTS,
    VERDICTS,
    Draft,
    Extraction,
    Link,
    LinkAnswer,
    Placement,
    UpdateAnswer,
    Verdict,
)

LINE = re.compile(
    r"(?P<who>family )?(?P<concept>[a-z ]+?) (?P<attribute>dose|status|value|allergy|plan|preference|procedure)"
    r"(?: (?P<value>[^@!?\n]+?))?(?P<polarity> !| \?)?(?: @(?P<time>[^\n]+))?")
KINDS = {"value": "EVENT", "procedure": "EVENT", "plan": "PLAN", "preference": "PREFERENCE", "allergy": "BACKGROUND"}
RELATED = ({"warfarin", "inr"},)  # concepts of which the second is monitored for the first


class SlotWriter:
    """Reads lines `metformin dose 850 mg bid @since 2024-01-01`; ` !` = NEGATED, ` ?` = UNCERTAIN, `family ` before it.

    Links what has the same slot, and a monitoring plan with its drug; says of each candidate of a slot that the new
    one supersedes it, and of a plan that it ends with its drug. calls: how many tasks each method was given.
    """

    decider = "rule"
    hashes = {"slots": "1"}

    def __init__(self):
        self.calls = {"extract": [], "link": [], "update": []}

    def extract(self, entries):
        self.calls["extract"].append(len(entries))
        return [Extraction(tuple(self.drafts(e))) for e in entries]

    def drafts(self, entry: Entry):
        for index, (start, end) in enumerate(entry.chunks):
            for line in re.finditer(r"[^\n]+", entry.text[start:end]):
                if (m := LINE.fullmatch(line[0])) is None:
                    continue
                polarity = {" !": "NEGATED", " ?": "UNCERTAIN"}.get(m["polarity"], "AFFIRMED")
                yield Draft(line[0], line[0], index, (start + line.start(), start + line.end()),
                            KINDS.get(m["attribute"], "STATE"), m["concept"], m["attribute"], m["value"],
                            polarity=polarity, experiencer="FAMILY" if m["who"] else "PATIENT", time=m["time"])

    def link(self, tasks):
        self.calls["link"].append(len(tasks))
        out = []
        for task in tasks:
            links = []
            for i, c in enumerate(task.candidates):
                if same_slot(task.memory, c):
                    links.append(Link(i, "restatement" if restates(task.memory, c) else "same_condition_thread"))
                elif {task.memory.concept, c.concept} in RELATED:
                    links.append(Link(i, "monitoring_for", forward=task.memory.concept == "inr"))
            out.append(LinkAnswer(tuple(links)))
        return out

    def update(self, tasks):
        self.calls["update"].append(len(tasks))
        out = []
        for task in tasks:
            verdicts = []
            for i, c in enumerate(task.candidates):
                for j, n in enumerate(task.news):
                    if same_slot(n, c.memory):
                        verdicts.append(Verdict(i, "SUPERSEDED", j))
                    elif {n.concept, c.memory.concept} in RELATED and n.polarity == "NEGATED" and c.path:
                        verdicts.append(Verdict(i, "RESOLVED", j))
            out.append(UpdateAnswer((), tuple(verdicts)))
        return out


class RandomWriter(SlotWriter):
    """Extracts like the other one; its links, placements and verdicts are drawn, some of them nonsense."""

    decider = "model"

    def __init__(self, seed: int, failing: float = 0.0):
        super().__init__()
        self.seed, self.failing = seed, failing

    def dice(self, task, news) -> random.Random:
        names = " ".join([task.entry.entry_key, *(m.mid for m in news)])
        return random.Random(zlib.crc32(f"{self.seed} {names}".encode()))

    def link(self, tasks):
        self.calls["link"].append(len(tasks))
        out = []
        for task in tasks:
            dice, n = self.dice(task, [task.memory]), len(task.candidates)
            if dice.random() < self.failing:
                out.append(LinkAnswer(error="no answer"))
                continue
            names = [t.name for t in DEFAULT.types] + ["rumour"]
            out.append(LinkAnswer(tuple(
                Link(dice.randrange(-1, n + 1), dice.choice(names), dice.random() < 0.5, dice.choice([0.1, 0.6, 1.0]))
                for _ in range(dice.randrange(2 * n + 1)))))
        return out

    def update(self, tasks):
        self.calls["update"].append(len(tasks))
        out = []
        for task in tasks:
            dice, n, c = self.dice(task, task.news), len(task.news), len(task.candidates)
            if dice.random() < self.failing:
                out.append(UpdateAnswer(error="no answer"))
                continue
            placements = tuple(
                Placement(dice.randrange(-1, n + 1), dice.choice(PLACEMENTS), dice.choice([None, *range(-1, c + 1)]))
                for _ in range(dice.randrange(n + 1)))
            verdicts = tuple(
                Verdict(dice.randrange(-1, c + 1), dice.choice((*VERDICTS, "EATEN")),
                        dice.choice([None, *range(-1, n + 1)]), dice.random() < 0.2)
                for _ in range(dice.randrange(2 * c + 1)))
            out.append(UpdateAnswer(placements, verdicts))
        return out


def held(state) -> set[tuple]:
    """What holds of the single-valued slots: (experiencer, concept, attribute, polarity, value)."""
    return {(m.experiencer, *m.slot, m.polarity, m.value) for m in state.active()
            if m.attribute in ("dose", "status", "value", "plan", "preference")}
