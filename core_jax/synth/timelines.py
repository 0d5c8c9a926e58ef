"""Seeded patients as dated entries with gold: what each entry says, what it ends, and what may be asked.

A timeline depends on (seed, index, wording) only, never on n. Scripts come from `timeline_stories`, words from
`timeline_phrases` (`train`) or `timeline_heldout` (`heldout`); the gold is kept by a ledger that never reads the text.
"""
from __future__ import annotations

import calendar
import dataclasses
import datetime as dt
import hashlib
import json
import string
from collections.abc import Iterator

from core_jax.synth import timeline_heldout, timeline_phrases
from core_jax.synth.cohort import SPLITS
from core_jax.synth.stream import Stream
from core_jax.synth.timeline_gold import (
    DIRECTED,
    Fact,
    GoldRelation,
    GoldTransition,
    Question,
    SupersessionPair,
    Timeline,
    TimelineEntry,
    When,
    read_timelines,
    timeline_from_dict,
    timeline_to_dict,
    write_timelines,
)
from core_jax.synth.timeline_phrases import Phrases
from core_jax.synth.timeline_questions import questions
from core_jax.synth.timeline_stories import Act, Key, life

__all__ = ["PHRASES", "Fact", "GoldRelation", "GoldTransition", "Question", "SupersessionPair", "Timeline",
           "TimelineConfig", "TimelineEntry", "When", "fingerprint", "generate", "read_timelines", "timeline_from_dict",
           "timeline_to_dict", "write_timelines"]

PHRASES: dict[str, Phrases] = {p.name: p for p in (timeline_phrases.TRAIN, timeline_heldout.HELDOUT)}


@dataclasses.dataclass(frozen=True)
class TimelineConfig:
    """n patients, indices 0..n-1, of the population named by `seed`, in one wording, of `entries` = (least, most)."""

    n: int = 200
    seed: int = 0
    phrases: str = "train"
    entries: tuple[int, int] = (12, 20)


def generate(config: TimelineConfig) -> Iterator[Timeline]:
    """Yields config.n timelines in index order.

    Raises: ValueError where n < 1, seed < 0, the wording is unknown, or entries are not 4 <= least <= most.
    """
    least, most = config.entries
    if config.n < 1 or config.seed < 0 or not 4 <= least <= most:
        raise ValueError(f"timelines: got n={config.n}, seed={config.seed}, entries={config.entries}, expected n >= 1, "
                         "seed >= 0 and 4 <= least <= most entries")
    if config.phrases not in PHRASES:
        raise ValueError(f"timelines: got phrases={config.phrases!r}, expected one of {sorted(PHRASES)}")
    for index in range(config.n):
        yield _timeline(config, index)


def fingerprint(config: TimelineConfig) -> str:
    """SHA-256 over the canonical JSON of all timelines: two libraries that agree on it agree on every byte."""
    digest = hashlib.sha256()
    for timeline in generate(config):
        digest.update(json.dumps(timeline_to_dict(timeline), sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


# ---- wording -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class _Said:
    """A sentence with its speaker ("P", "D" or ""); act None = filler."""

    text: str
    speaker: str = ""
    act: Act | None = None
    when: When | None = None


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


class _Writer:
    """Words acts in one phrase set for one patient."""

    def __init__(self, rng: Stream, phrases: Phrases, male: bool):
        self.rng, self.phrases = rng, phrases
        self.he, self.his = ("he", "his") if male else ("she", "her")

    def name(self, concept: str) -> str:
        return self.rng.pick(self.phrases.names.get(concept, (concept,)))

    def date(self, day: dt.date, patterns: tuple[str, ...]) -> str:
        return self.rng.pick(patterns).format(
            year=day.year, yy=day.year % 100, month=day.month, day=day.day, Month=calendar.month_name[day.month],
            Mon=calendar.month_abbr[day.month])

    def _amount(self, amount: str, unit: str) -> str:
        return amount + ("" if self.phrases.tight else " ") + unit

    def _words(self, act: Act) -> dict[str, str]:
        """The placeholders of an act, except those of time."""
        out = {k: self.name(v) for k, v in act.named.items()}
        text = dict(act.text)
        for k in ("freq", "oldfreq"):
            if k in text:
                out[k] = self.rng.pick(self.phrases.frequencies[text.pop(k)])
        if "every" in text:
            out["every"] = self.rng.pick(self.phrases.intervals[text.pop("every")])
        if act.attribute == "dose" and "amount" in text:
            unit = text.pop("unit")
            out["dose"] = self._amount(text.pop("amount"), unit)
            out.update({k: self._amount(text.pop(k), unit) for k in ("old", "wrong") if k in text})
        relative = self.rng.pick(self.phrases.relatives)
        return out | text | {"he": self.he, "his": self.his, "His": self.his.capitalize(), "relative": relative}

    def _time(self, act: Act, entry: dt.date | None, known: dt.date | None, first: dt.date | None
              ) -> tuple[When, dict[str, str]]:
        """The fact's time and the words for it; {when} and {day} are absent where it bears no time of its own.

        known: the last day for which the slot is already known, which the fact's own day must follow; first: the
        earliest such day, which a late fact must precede.
        """
        rng = self.rng
        if entry is None:
            return When(None, None, "unknown", "unknown"), {}
        if act.dated in ("day", "month", "year"):
            late = act.op == "late"
            day = (min(first, entry) if late else entry) - dt.timedelta(rng.integer(40, 300) if late else
                                                                         rng.integer(400, 7000))
            if act.dated == "day":
                words = self.date(day, self.phrases.dates)
                return When(day.isoformat(), None, "day", "explicit"), {"when": "on " + words, "day": words}
            if act.dated == "month":
                return (When(day.replace(day=1).isoformat(), None, "month", "explicit"),
                        {"when": "in " + self.date(day, self.phrases.months)})
            return (When(day.replace(month=1, day=1).isoformat(), None, "year", "explicit"),
                    {"when": "in " + self.date(day, self.phrases.years)})
        if act.days is not None:
            stop = entry + dt.timedelta(act.days + (act.attribute == "plan"))
            return (When(entry.isoformat(), stop.isoformat(), "day", "entry_default", True),
                    {"end": self.date(stop - dt.timedelta(1), self.phrases.dates)})
        room = 20 if known is None else min(20, (entry - known).days - 1)
        if act.dated == "maybe" and room >= 1 and rng.chance(0.45):
            near = [n for n in self.phrases.relative if n <= room]
            if near and rng.chance(0.5):
                ago = rng.pick(near)
                day = entry - dt.timedelta(ago)
                return (When(day.isoformat(), None, "day", "relative"), {"when": rng.pick(self.phrases.relative[ago])})
            day = entry - dt.timedelta(rng.integer(1, room))
            words = self.date(day, self.phrases.dates)
            return When(day.isoformat(), None, "day", "explicit"), {"when": "on " + words, "day": words}
        return When(entry.isoformat()), {}

    def say(self, act: Act, voice: str, entry: dt.date | None, known: dt.date | None, first: dt.date | None) -> _Said:
        when, time = self._time(act, entry, known, first)
        choices = self.phrases.say[act.say, voice]
        timed = {"when", "day"}
        if timed & time.keys():
            dated = [t for t in choices if _fields(t) & timed and _fields(t) & timed <= time.keys()]
            if not dated and act.dated != "maybe":
                raise ValueError(f"{self.phrases.name}: no template of ({act.say}, {voice}) names {sorted(time)}")
            choices = dated or choices
            if not dated:
                when, time = When(entry.isoformat()), {}
        if not timed & time.keys():
            choices = [t for t in choices if not _fields(t) & timed]
        template = self.rng.pick(choices)
        words = self._words(act) | time
        speaker, _, rest = template.partition(": ") if voice == "speech" else ("", "", template)
        text = rest.format(**words)
        if rest.startswith("{"):
            text = text[0].upper() + text[1:]
        return _Said(text.removesuffix(".") if text.endswith("..") else text, speaker, act, when)

    def compose(self, kind: str, said: list[_Said], day: dt.date | None) -> tuple[str, list[tuple[int, int]]]:
        """The entry's text and, for each of `said`, its span without the full stop."""
        rng, phrases = self.rng, self.phrases
        if kind == "dialogue":
            prefixes = [phrases.speakers["PD".index(s.speaker)] + ": " for s in said]
            joint = "\n"
        else:
            bullet = "" if kind == "medication list" else rng.pick(phrases.bullets)
            joint = "\n" if bullet or kind == "medication list" else rng.pick(phrases.separators)
            prefixes = [bullet] * len(said)
        body, spans = "", []
        for i, s in enumerate(said):
            text = s.text.rstrip(".") if joint == "; " and i < len(said) - 1 else s.text
            at = len(body) + len(prefixes[i])
            spans.append((at, at + len(text.rstrip("."))))
            body += prefixes[i] + text + (joint if i < len(said) - 1 else "")
        if phrases.wrap and kind in ("clinic", "discharge"):
            body = _wrap(body, phrases.wrap)
        layout = rng.pick(phrases.layouts[kind])
        head, tail = layout.split("{body}")
        date = "" if day is None else self.date(day, phrases.dates)
        head = head.format(date=date)
        return head + body + tail.format(date=date), [(a + len(head), b + len(head)) for a, b in spans]


def _wrap(text: str, width: int) -> str:
    """Lines of at most `width` characters where words allow; blanks become line breaks, so offsets stay."""
    out, line = list(text), 0
    last = None
    for i, c in enumerate(text):
        if c == "\n":
            line, last = i + 1, None
        elif c == " ":
            last = i
        if i - line >= width and last is not None:
            out[last] = "\n"
            line, last = last + 1, None
    return "".join(out)


# ---- the ledger ----------------------------------------------------------------------------------------------------

class _Ledger:
    """Keeps the gold. Knows acts and days, never words."""

    def __init__(self):
        self.facts: list[Fact] = []
        self.pairs: list[SupersessionPair] = []
        self.transitions: list[GoldTransition] = []
        self.relations: list[GoldRelation] = []
        self.holds: dict[Key, Fact] = {}
        self.days: dict[Key, list[dt.date]] = {}
        self.conditions: dict[Key, list[str]] = {}
        self.open: set[str] = set()

    def known(self, key: Key) -> tuple[dt.date | None, dt.date | None]:
        """Last and first day for which the slot is known."""
        days = self.days.get(key)
        return (max(days), min(days)) if days else (None, None)

    def arrive(self, session: str, day: dt.date | None) -> None:
        """Planned ends that lie behind the entry's date."""
        for key, fact in list(self.holds.items()):
            if day is not None and fact.when.end_planned and fact.when.end <= day.isoformat():
                self.transitions.append(GoldTransition(fact.fact_id, session, ("EXPIRED", "RESOLVED"), None))
                del self.holds[key]

    def applies(self, act: Act) -> bool:
        return act.op in ("state", "negate", "retract", "aside") or act.key in self.holds

    def add(self, act: Act, session: str, span: tuple[int, int], when: When) -> None:
        old = self.holds.get(act.key)
        fact = Fact(f"f{len(self.facts):03d}", session, *span, act.concept, act.attribute, act.value, act.unit,
                    act.polarity, act.experiencer, act.kind, when, act.endurance, "current",
                    old.fact_id if act.op == "restate" else None, act.op == "late")
        self.facts.append(fact)
        if when.start is not None and act.op != "late" and act.op != "aside":
            self.days.setdefault(act.key, []).append(dt.date.fromisoformat(when.start))
        if act.op == "restate":
            self._relate(old, fact, "restatement")
            return
        if act.op == "aside":
            self.conditions.setdefault(act.key, []).append(fact.fact_id)
            return
        if act.op == "late":
            self._leave(fact, session, ("PRIOR_STATE",), old)
            self._relate(old, fact, "same_condition_thread")
            self.pairs.append(SupersessionPair(fact.fact_id, old.fact_id, session, late=True))
            return
        self.open.update(self.conditions.get(act.key, ()))
        if old is not None:
            self._leave(old, session, self._reasons(act, old), fact)
            self._relate(old, fact, "same_condition_thread")
            if old.polarity == fact.polarity == "AFFIRMED" and old.value != fact.value:
                self.pairs.append(SupersessionPair(old.fact_id, fact.fact_id, session))
        if act.op == "negate":
            self._cascade(act.key, session, fact)
        self.holds[act.key] = fact
        for type_, key, source in act.links:
            other = self.holds.get(key)
            if other is not None and other.polarity == "AFFIRMED":
                self._relate(*((fact, other) if source else (other, fact)), type_)

    def _reasons(self, act: Act, old: Fact) -> tuple[str, ...]:
        if act.op == "correct":
            return ("CORRECTED",)
        if act.op == "retract":
            return ("CORRECTED", "RESOLVED")
        if act.op == "negate":
            return ("RESOLVED",) if old.polarity == "AFFIRMED" else ("RESOLVED", "CORRECTED", "SUPERSEDED")
        return ("SUPERSEDED",) if old.polarity == "AFFIRMED" else ("SUPERSEDED", "RESOLVED", "CORRECTED")

    def _cascade(self, key: Key, session: str, by: Fact) -> None:
        """Monitoring plans fall with their drug."""
        ids = {f.fact_id for f in self.facts if f.key == key}
        for r in self.relations:
            plan = next(f for f in self.facts if f.fact_id == r.src)
            if r.type == "monitoring_for" and r.dst in ids and self.holds.get(plan.key) is plan:
                self._leave(plan, session, ("RESOLVED",), by, cascade=True)
                del self.holds[plan.key]

    def _leave(self, fact: Fact, session: str, accept: tuple[str, ...], successor: Fact, cascade: bool = False) -> None:
        self.transitions.append(GoldTransition(fact.fact_id, session, accept, successor.fact_id, cascade))

    def _relate(self, src: Fact, dst: Fact, type_: str) -> None:
        if type_ not in DIRECTED and dst.fact_id < src.fact_id:
            src, dst = dst, src
        self.relations.append(GoldRelation(src.fact_id, dst.fact_id, type_))

    def finish(self) -> tuple[Fact, ...]:
        gone = {t.fact for t in self.transitions}

        def status(f: Fact) -> str:
            return "open" if f.fact_id in self.open else "past" if (f.restates or f.fact_id) in gone else "current"

        return tuple(dataclasses.replace(f, status=status(f)) for f in self.facts)


# ---- one patient ---------------------------------------------------------------------------------------------------

def _schedule(rng: Stream, stories: list[list[list[Act]]], slots: list[int]) -> dict[int, list[Act]]:
    """Groups into the entries `slots`, each story in order; half of the stories begin with the first entry."""
    out: dict[int, list[Act]] = {i: [] for i in slots}
    placed: list[list[list[Act]]] = [[] for _ in slots]
    for story in stories:
        k = min(len(story), len(slots))
        at = sorted(rng.sample(range(len(slots)), k))
        if rng.chance(0.5):
            at[0] = 0
        for i, group in zip(at, story):
            placed[i].append(group)
    for i, groups in zip(slots, placed):
        for group in rng.sample(groups, len(groups)):
            out[i] += group
    return out


def _timeline(config: TimelineConfig, index: int) -> Timeline:
    phrases = PHRASES[config.phrases]
    rng = Stream(f"timeline/1:{config.phrases}:{config.seed}:{index}")
    writer = _Writer(rng, phrases, rng.chance(0.5))
    stories, scanned = life(rng, phrases)
    count = rng.integer(*config.entries)
    lists = set(rng.sample(range(2, count), rng.integer(1, 2)))
    acts = _schedule(rng, stories, [i for i in range(count) if i not in lists])
    scan_at = rng.integer(1, count - 1) if scanned else None
    day = dt.date(2012, 1, 1) + dt.timedelta(rng.integer(0, 3600))
    ledger, entries = _Ledger(), []

    def write(kind: str, here: dt.date | None, planned: list[Act]) -> None:
        session = f"s{len(entries):03d}"
        ledger.arrive(session, here)
        if kind == "medication list":
            planned = _regimen(ledger)
        kind = "clinic" if kind == "medication list" and not planned else kind
        voice = {"dialogue": "speech", "medication list": "row"}.get(kind, "note")
        said = [writer.say(act, voice, here, *ledger.known(act.key)) for act in planned if ledger.applies(act)]
        if kind not in ("medication list", "scanned"):
            for line in rng.sample(phrases.filler[voice], 1 if said else 2):
                speaker, _, text = line.partition(": ") if voice == "speech" else ("", "", line)
                said.insert(rng.integer(0, len(said)), _Said(text, speaker))
        text, spans = writer.compose(kind, said, here)
        entries.append(TimelineEntry(session, kind, None if here is None else here.isoformat(), text))
        for s, span in zip(said, spans):
            if s.act is not None:
                ledger.add(s.act, session, span, s.when)

    for i in range(count):
        kind = ("clinic", "phone", "dialogue", "discharge")[rng.weighted((0.45, 0.2, 0.25, 0.1))] if i else "clinic"
        write("medication list" if i in lists else kind, day, acts.get(i, []))
        if i == scan_at:
            write("scanned", None, scanned)
        day += dt.timedelta(rng.integer(3, 60))
    facts = ledger.finish()
    timeline = Timeline(f"{config.phrases[0].upper()}{config.seed}-{index:05d}", config.phrases,
                        SPLITS[index % len(SPLITS)], tuple(entries), facts, tuple(ledger.pairs),
                        tuple(ledger.transitions), tuple(ledger.relations), (), _aliases(phrases, facts))
    return dataclasses.replace(timeline, questions=questions(timeline, rng))


def _regimen(ledger: _Ledger) -> list[Act]:
    """Rows for the drugs that the patient takes, in the order of their start."""
    out = []
    for fact in ledger.holds.values():
        if fact.attribute == "dose" and fact.polarity == "AFFIRMED" and fact.experiencer == "PATIENT":
            amount, unit, frequency = fact.value.split()
            out.append(Act("drug.restate", "restate", fact.concept, "dose", fact.value, unit,
                           endurance=fact.endurance, named={"drug": fact.concept},
                           text={"amount": amount, "unit": unit, "freq": frequency}))
    return out


def _aliases(phrases: Phrases, facts: tuple[Fact, ...]) -> dict[str, tuple[str, ...]]:
    used = dict.fromkeys(x for f in facts for x in (f.concept, f.value) if x in phrases.names)
    return {c: tuple(n.lower() for n in phrases.names[c] if n.lower() != c) for c in used}
