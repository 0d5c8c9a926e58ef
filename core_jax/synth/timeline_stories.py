"""What happens to a timeline's patient: scripted slot histories as acts, before any wording.

A story is a list of groups; the acts of one group stand in one entry, and each group comes in a later entry than the
one before. Every prefix of a story is a story, so it may be cut where a record ends.
"""
from __future__ import annotations

import dataclasses

from core_jax.synth.stream import Stream
from core_jax.synth.timeline_phrases import Course, Drug, Measure, Phrases

Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Act:
    """One statement to be written. `op` is what it does to its slot:

    state    a new value: what held is SUPERSEDED           negate   it no longer holds: RESOLVED
    correct  the value was wrong: CORRECTED                 restate  the same again
    late     an older value, reported now: PRIOR_STATE      aside    says nothing about what holds
    retract  it was never so: CORRECTED

    `named` maps placeholders to concepts (worded by the phrase set), `text` to words as they are. `links` are
    (type, the other slot, whether this fact is the source). `dated`: "maybe", "month" or "year"; `days` = planned
    length, `shows_end` = the words are to name the last day.
    """

    say: str
    op: str
    concept: str
    attribute: str
    value: str | None = None
    unit: str | None = None
    polarity: str = "AFFIRMED"
    experiencer: str = "PATIENT"
    kind: str = "STATE"
    endurance: str = "uncertain"
    named: dict[str, str] = dataclasses.field(default_factory=dict)
    text: dict[str, str] = dataclasses.field(default_factory=dict)
    links: tuple[tuple[str, Key, bool], ...] = ()
    dated: str | None = None
    days: int | None = None

    @property
    def key(self) -> Key:
        return self.experiencer, self.concept, self.attribute


Story = list[list[Act]]


def dose(amount: str, unit: str, frequency: str) -> str:
    """The canonical value of a dose fact."""
    return f"{amount} {unit} {frequency}"


def take(say: str, op: str, drug: Drug, amount: str, frequency: str, **more) -> Act:
    """A dose act; {old}, {oldfreq} and {wrong} are given by `more["text"]`."""
    text = {"amount": amount, "unit": drug.unit, "freq": frequency} | more.pop("text", {})
    return Act(f"drug.{say}", op, drug.name, "dose", dose(amount, drug.unit, frequency), drug.unit,
               named={"drug": drug.name} | more.pop("named", {}), text=text, **more)


def stop(say: str, drug: Drug, because: str | None = None) -> Act:
    never = because is not None
    return Act(f"drug.{say}", "negate", drug.name, "dose", polarity="NEGATED", kind="EVENT",
               endurance="never-forget" if never else "uncertain", dated="maybe",
               named={"drug": drug.name} | ({"because": because} if because else {}))


def problem(say: str, op: str, name: str, **more) -> Act:
    return Act(f"problem.{say}", op, name, "status", **({"named": {"problem": name}} | more))


def _slot(concept: str, attribute: str) -> Key:
    return "PATIENT", concept, attribute


def begin(drug: Drug, amount: str, say: str = "start", extra: tuple = ()) -> list[Act]:
    """The start of a drug with its monitoring plan."""
    link = ("treatment_for", _slot(drug.treats, "status"), True)
    acts = [take(say, "state", drug, amount, drug.frequency, named={"problem": drug.treats}, dated="maybe",
                 links=(link, *extra))]
    if drug.monitor:
        plan, every = drug.monitor
        acts.append(Act("plan.monitor", "state", plan, "plan", every, kind="PLAN", endurance="safe-to-forget",
                        named={"plan": plan, "drug": drug.name}, text={"every": every},
                        links=(("monitoring_for", _slot(drug.name, "dose"), True),)))
    return acts


def diagnosis(name: str) -> Act:
    return problem("onset", "state", name, endurance="never-forget", dated="maybe")


def chronic(rng: Stream, drug: Drug, second: Drug | None) -> Story:
    """Diagnosis and drug, dose changes with what goes wrong around them, often a stop, now and then what follows it."""
    unused = list(drug.amounts)
    at = rng.integer(0, len(drug.amounts) - 1)
    amount, frequency = drug.amounts[at], drug.frequency
    unused.remove(amount)
    story = [[diagnosis(drug.treats), *begin(drug, amount)]]

    def now(amount: str, frequency: str) -> dict[str, str]:
        return {"old": amount, "oldfreq": frequency, "wrong": amount}

    for _ in range(rng.integer(2, 5)):
        move = rng.pick(("change", "change", "frequency", "restate", "correct", "late", "conditional", "problem"))
        higher = [a for a in unused if drug.amounts.index(a) > drug.amounts.index(amount)]
        if move in ("change", "correct", "late") and not unused or move == "conditional" and not higher:
            move = "restate"
        if move == "frequency" and (drug.frequency2 is None or frequency == drug.frequency2):
            move = "restate"
        if move == "change" or move == "correct":
            new = rng.pick(unused)
            unused.remove(new)
            up = drug.amounts.index(new) > drug.amounts.index(amount)
            say = ("up" if up else "down") if move == "change" else "correct"
            story.append([take(say, "state" if move == "change" else "correct", drug, new, frequency,
                               text=now(amount, frequency), dated="maybe" if move == "change" else None)])
            amount = new
        elif move == "frequency":
            story.append([take("frequency", "state", drug, amount, drug.frequency2, text=now(amount, frequency))])
            frequency = drug.frequency2
        elif move == "restate":
            story.append([take("restate", "restate", drug, amount, frequency)])
        elif move == "late":
            old = rng.pick(unused)
            unused.remove(old)
            story.append([take("late", "late", drug, old, frequency, dated="month")])
        elif move == "conditional":
            aim = rng.pick(higher)
            unused.remove(aim)
            story.append([take("conditional", "aside", drug, aim, frequency, polarity="CONDITIONAL", kind="PLAN",
                               endurance="safe-to-forget", named={"problem": drug.treats})])
        else:
            story.append([problem("restate", "restate", drug.treats, endurance="never-forget")])
    if rng.chance(0.55):
        if drug.adverse and rng.chance(0.6):
            story.append([problem("adverse", "state", drug.adverse, endurance="never-forget",
                                  named={"problem": drug.adverse, "drug": drug.name},
                                  links=(("causal", _slot(drug.name, "dose"), False),)),
                          stop("stop_adverse", drug, drug.adverse)])
            if rng.chance(0.5):
                story.append([problem("resolve", "negate", drug.adverse, polarity="NEGATED", kind="EVENT",
                                      endurance="safe-to-forget", dated="maybe")])
            if second is not None and rng.chance(0.6):
                story.append(begin(second, rng.pick(second.amounts)))
        else:
            story.append([stop("stop", drug)])
            if rng.chance(0.4):
                story.append([take("restart", "state", drug, rng.pick(drug.amounts), drug.frequency, dated="maybe",
                                   links=(("treatment_for", _slot(drug.treats, "status"), True),))])
    return story


def interacting(rng: Stream, first: Drug, other: Drug) -> Story:
    """A drug is added to one with which it interacts; often one of the two is stopped for it."""
    story = [[diagnosis(first.treats), *begin(first, rng.pick(first.amounts))],
             [diagnosis(other.treats), *begin(other, rng.pick(other.amounts),
                                              extra=(("drug_interaction", _slot(first.name, "dose"), True),))]]
    if rng.chance(0.5):
        story.append([stop("stop", rng.pick((first, other)))])
    return story


def acute(rng: Stream, course: Course) -> Story:
    """A short illness, its course of treatment with a planned end, recovery, perhaps a relapse."""
    drug = Drug(course.drug, course.unit, (course.amount,), course.frequency, course.problem)
    story = [[problem("onset", "state", course.problem, endurance="safe-to-forget", dated="maybe"),
              take("course", "state", drug, course.amount, course.frequency, named={"problem": course.problem},
                   text={"days": str(course.days)}, days=course.days, endurance="safe-to-forget",
                   links=(("treatment_for", _slot(course.problem, "status"), True),))]]
    if rng.chance(0.75):
        story.append([problem("resolve", "negate", course.problem, polarity="NEGATED", kind="EVENT",
                              endurance="safe-to-forget", dated="maybe")])
        if rng.chance(0.4):
            story.append([problem("recur", "state", course.problem, endurance="uncertain", dated="maybe")])
    return story


def measured(rng: Stream, test: Measure, group: str) -> Story:
    """Two to five readings that wander, each unlike the one before; one laboratory value late or corrected at times."""
    def reading(k: int) -> str:
        value = f"{test.low + k * test.step:.{test.digits}f}"
        return f"{value}/{round(float(value) * 0.45) + 18}" if test.name == "blood pressure" else value

    def act(say: str, op: str, value: str, **more) -> Act:
        return Act(f"{group}.{say}", op, test.name, "value", value, test.unit, kind="EVENT",
                   endurance="uncertain" if test.keeps else "safe-to-forget", named={"test": test.name},
                   text={"value": value, "unit": test.unit} | more.pop("text", {}), **more)

    walk = [rng.integer(0, test.steps - 1)]
    for _ in range(rng.integer(1, 4)):
        near = [k for k in range(walk[-1] - 3, walk[-1] + 4) if 0 <= k < test.steps and k != walk[-1]]
        walk.append(rng.pick(near))
    story = [[act("value", "state", reading(k))] for k in walk]
    if group == "lab" and rng.chance(0.45):
        after = rng.integer(1, len(walk))
        other = rng.pick([k for k in range(test.steps) if k not in walk[after - 1:after + 1]])
        story.insert(after, [act("late", "late", reading(other), dated="day") if rng.chance(0.5) else act(
            "correct", "correct", reading(other), text={"wrong": reading(walk[after - 1])})])
    return story


def allergic(rng: Stream, allergen: str, reactions: tuple[str, ...]) -> Story:
    first, second = rng.sample(reactions, 2)

    def act(say: str, op: str, reaction: str, wrong: str) -> Act:
        return Act(f"allergy.{say}", op, allergen, "allergy", reaction, kind="BACKGROUND", endurance="never-forget",
                   named={"allergen": allergen}, text={"reaction": reaction, "wrong": wrong})

    story = [[act("state", "state", first, second)]]
    return [*story, [act("correct", "correct", second, first)]] if rng.chance(0.25) else story


def preferring(rng: Stream, topic: str, choices: tuple[str, ...]) -> Story:
    picks = rng.sample(choices, rng.integer(1, len(choices)))
    name = "pref." + topic.replace(" ", "_")
    return [[Act(name + (".change" if i else ""), "state", topic, "preference", c, kind="PREFERENCE",
                 endurance="never-forget" if topic == "code status" else "safe-to-forget",
                 named={"choice": c} | ({"old": picks[i - 1]} if i else {}))] for i, c in enumerate(picks)]


def symptomatic(rng: Stream, name: str) -> Story:
    """Denied first, then perhaps there, then perhaps gone."""
    story = [[problem("negate", "state", name, polarity="NEGATED", endurance="safe-to-forget")]]
    if rng.chance(0.6):
        story.append([problem("symptom", "state", name, endurance="safe-to-forget", dated="maybe")])
        if rng.chance(0.6):
            story.append([problem("resolve", "negate", name, polarity="NEGATED", kind="EVENT",
                                  endurance="safe-to-forget", dated="maybe")])
    return story


def suspected(rng: Stream, name: str) -> Story:
    """Suspected, then confirmed or ruled out; or recorded by mistake and taken back."""
    if rng.chance(0.25):
        return [[diagnosis(name)], [problem("retract", "retract", name, polarity="NEGATED", kind="EVENT")]]
    story = [[problem("uncertain", "state", name, polarity="UNCERTAIN")]]
    if rng.chance(0.5):
        story.append([problem("confirm", "state", name, endurance="never-forget")])
    else:
        story.append([problem("rule_out", "negate", name, polarity="NEGATED", kind="EVENT")])
    return story


def relative_has(name: str) -> Story:
    return [[problem("family", "state", name, experiencer="FAMILY", kind="BACKGROUND", endurance="never-forget")]]


def relative_takes(rng: Stream, drug: Drug) -> Story:
    """The trap: a relative's dose of a drug that the patient may take too."""
    return [[take("family", "state", drug, rng.pick(drug.amounts), drug.frequency, experiencer="FAMILY",
                  endurance="safe-to-forget")]]


def complicated(rng: Stream, cause: str, name: str) -> list[Act]:
    say, link, source = rng.pick((("complication", "causal", False), ("associated", "systemic_link", True)))
    return [problem(say, "state", name, endurance="never-forget", named={"problem": name, "cause": cause},
                    links=((link, _slot(cause, "status"), source),))]


def operated(rng: Stream, name: str) -> Story:
    return [[Act("surgery.state", "state", name, "procedure", kind="BACKGROUND", endurance="never-forget",
                 named={"surgery": name}, dated=rng.pick(("month", "year")))]]


def booked(rng: Stream, name: str) -> Story:
    return [[Act("plan.appointment", "state", name, "plan", kind="PLAN", endurance="safe-to-forget",
                 named={"plan": name}, days=rng.integer(10, 90))]]


ALLERGY_BARS = {"penicillin": ("amoxicillin", "penicillin v", "cephalexin")}


def life(rng: Stream, phrases: Phrases) -> tuple[list[Story], list[Act]]:
    """The stories of one patient, no two of them about one slot, and the acts of an undated scanned record, if any."""
    stories: list[Story] = []
    drugs: list[str] = []
    treated: list[str] = []
    slots: list[str] = []  # other concepts that are taken: side effects and monitoring plans

    def free(drug: Drug) -> bool:
        taken = (*slots, *treated)
        return not (drug.name in drugs or drug.treats in taken or drug.adverse in taken
                    or (drug.monitor and drug.monitor[0] in slots))

    def claim(drug: Drug) -> None:
        drugs.append(drug.name)
        treated.append(drug.treats)
        slots.extend(x for x in (drug.adverse, drug.monitor and drug.monitor[0]) if x)

    if rng.chance(0.4):
        pair = rng.pick(phrases.interactions)
        if pair[0].treats != pair[1].treats and pair[0].adverse not in (pair[1].treats, pair[1].adverse):
            for d in pair:
                claim(d)
            stories.append(interacting(rng, *pair))
    for drug in rng.sample(phrases.drugs, rng.integer(2, 4)):
        if not free(drug):
            continue
        claim(drug)
        seconds = [d for d in phrases.drugs if d.treats == drug.treats and d.name not in drugs
                   and d.adverse not in (*slots, *treated) and not d.monitor]
        second = rng.pick(seconds) if seconds else None
        if second:
            drugs.append(second.name)
        stories.append(chronic(rng, drug, second))
    allergy, reactions = rng.pick(phrases.allergies)
    stories.append(allergic(rng, allergy, reactions))
    barred = ALLERGY_BARS.get(allergy, ())
    if rng.chance(0.75):
        courses = [c for c in phrases.courses if c.drug not in barred]
        stories.append(acute(rng, rng.pick(courses)))
    stories += [measured(rng, t, "lab") for t in rng.sample(phrases.labs, rng.integer(1, 2))]
    stories += [measured(rng, t, "vital") for t in rng.sample(phrases.vitals, 1)]
    for topic in rng.sample(list(phrases.preferences), rng.integer(1, 2)):
        stories.append(preferring(rng, topic, phrases.preferences[topic]))
    for name in rng.sample(phrases.symptoms, 2):
        if name not in slots:
            stories.append(symptomatic(rng, name))
    if rng.chance(0.5):
        stories.append(suspected(rng, rng.pick(phrases.suspicions)))
    stories.append(relative_has(rng.pick((*phrases.inherited, *treated))))
    if rng.chance(0.5):
        stories.append(relative_takes(rng, rng.pick(phrases.drugs)))
    for story in stories:
        first = story[0][0]
        follows = [n for c, n in phrases.complications if c == first.concept and first.say == "problem.onset"]
        if follows and rng.chance(0.6):
            story.insert(rng.integer(1, len(story)), complicated(rng, first.concept, rng.pick(follows)))
    if rng.chance(0.6):
        stories.append(booked(rng, rng.pick(phrases.appointments)))
    first, second = rng.sample(phrases.surgeries, 2)
    if rng.chance(0.6):
        stories.append(operated(rng, first))
    scanned = []
    if rng.chance(0.15):
        scanned = [Act("surgery.undated", "state", second, "procedure", kind="BACKGROUND", endurance="never-forget",
                       named={"surgery": second})]
        others = [a for a in phrases.allergies if a[0] != allergy and a[0] not in ("penicillin",)]
        name, reactions = rng.pick(others)
        scanned += allergic(rng, name, reactions)[0]
    return stories, scanned
