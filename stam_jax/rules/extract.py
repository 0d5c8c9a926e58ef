"""Entries -> drafts: each sentence is looked at once for every kind of statement."""

from __future__ import annotations

import dataclasses
import datetime
import re

from stam_jax.graph.clinical_time import bounds, resolve
from stam_jax.graph.memory import Entry
from stam_jax.rules import cues, vocabulary
from stam_jax.rules.allergies import allergies
from stam_jax.rules.classes import classes, warnings, within
from stam_jax.rules.doses import doses
from stam_jax.rules.habits import habits
from stam_jax.rules.lexicon import Mention
from stam_jax.rules.measures import measures
from stam_jax.rules.plans import appointments, monitoring, procedures, vaccinations
from stam_jax.rules.preferences import preferences
from stam_jax.rules.problems import problems
from stam_jax.rules.scene import Scene
from stam_jax.rules.sentences import Sentence, sentences
from stam_jax.rules.times import order_of, time_words
from stam_jax.rules.visits import VISIT, visits
from stam_jax.write.writer import Draft, Extraction

_DRUG_ALLERGENS = frozenset({
    "penicillin", "sulfa drugs", "cephalosporins", "nsaids", "statins", "ace inhibitors", "macrolides",
    "fluoroquinolones",
})
_LONGEST = 2000  # a sentence is cut there: nothing that speaks of one fact is longer
_SAME = re.compile(
    r"(?:it|this|that|true|correct|actual|actually|should|the (?:true|correct|actual|right|real)|real"
    r"|now|dose|discontinued|stopped|held)\b"
)
_FIGURE = re.compile(
    r"[0-9][0-9.,]{0,8} ?[a-z%/]{0,10}(?= is|[;,]|$| [a-z]+ly| (?:once|twice|every|each|at|one|two"
    r"|three|four|per|in|morning|before))",
    re.I,
)
_BACK = 3  # sentences in which the time is looked for that "at that time" means
_STRENGTH = re.compile(r"[0-9.]+ (?:mg|mcg|g|meq)")  # without how often
_THEN = re.compile(
    r"\b(?:at (?:that|the) (?:time|point|stage)(?! of)|back then|in those days"
    r"|(?:at|on|during|by) that (?:visit|appointment|admission|consultation|occasion|date|day))\b"
)
_QUOTED = re.compile(r"(?<!\w)[\"“](?=\S)[^\"“”]{1,4000}[\"”]")
_WRITTEN = re.compile(
    r"[^.\"\n]{0,30}\b(?:wrote|written|writes|notes?|noted|records?|recorded|stated?|states|says?|said)\b"
)
_CHANGED = re.compile(
    r"(?:(?:so|therefore|hence|then|thus|now|have|has|we|i|he|she|was|were|been|will|this|it) )*"
    r"(?:chang|switch|swap|convert|replac|substitut)\w* (?:(?:it|this|that|him|her|over) )*(?:to|onto|with|by|for) "
)
_ON = re.compile(r"(?<!\bnot )(?<!\bnever )\bon (?:(?:the|his|her|my|a|regular|long-term) )*$")
_YES = re.compile(
    r"(?:yes|yeah|yep|yup|i do|i have|i am|sometimes|a (?:bit|little)|correct|right|definitely" r"|unfortunately)\b"
)
_NO = re.compile(
    r"(?:no|nope|nah|none|not (?:at all|really|that i know|any|lately|recently)|never|negative|i don't"
    r"|i haven't|denies|nothing|(?:all |completely |totally |long )?gone|(?:it'?s |that'?s |they'?re )(?:all )?gone"
    r"|resolved|cleared(?: up)?|absent|nil)\b"
)


def extract(entry: Entry) -> Extraction:
    day_first = order_of(entry.text, entry.date)
    out: list[Draft] = []
    last_drug: Mention | None = None
    asked: Scene | None = None
    told: list[Scene] = []
    quoted = _quotations(entry, day_first)
    listed = 0  # items of a list of drugs in a row, after which "it" may be any of them
    for sentence in _merged(entry.text, _bounded(entry.text, sentences(entry.text))):
        scene = Scene.of(entry.text, sentence, entry.date, day_first)
        if asked is not None and not sentence.question:
            out += _answered(entry, asked, scene)
            asked = None
        found = _signed(entry, out, _then(scene, _scene(scene, last_drug), told))
        found = _of_its_day(scene, found, quoted)
        if told and (left := _left(entry, told[-1], scene, found)) is not None:
            out = [d for d in out if d.span[0] < left.span[0] or (d.concept, d.attribute) != (left.concept, "dose")]
            out.append(left)
        out += found + within(found, out)
        told.append(scene)
        if sentence.question and scene.of_kind("problem"):
            asked = scene
        drugs = scene.of_kind("drug")
        listed = listed + 1 if drugs and _item(scene) else 0
        if drugs:
            last_drug = _spoken_of(scene, drugs, found) if listed < 2 else None
        elif any(m.kind not in ("measure", "monitor") for m in scene.mentions) and not found:
            last_drug = None
    return Extraction(_ordered(entry, out))


def _item(scene: Scene) -> bool:
    """Whether a sentence is a drug with its dose and nothing else, as in a list."""
    verbs = (cues.START, cues.CHANGE, cues.STOP, cues.TAKES)
    return re.search("[0-9]", scene.text) is not None and not any(verb.search(scene.text) for verb in verbs)


def _spoken_of(scene: Scene, drugs: list[Mention], found: list[Draft]) -> Mention | None:
    """The patient's drug of a sentence that the next one may speak of without its name: its only one, or the one that
    takes the place of another."""
    names = {m.concept for m in drugs}
    if any(scene.experiencer(m.start, m.end) != "PATIENT" for m in drugs):
        return None
    held = {d.concept for d in found if d.attribute == "dose" and d.polarity != "NEGATED"} & names
    stopped = {d.concept for d in found if d.attribute == "dose" and d.polarity == "NEGATED"} & names
    if len(names) == 1:
        return drugs[-1]
    if len(held) == 1 and names == held | stopped:
        return next(m for m in drugs if m.concept in held)
    return None


def _signed(entry: Entry, told: list[Draft], found: list[Draft]) -> list[Draft]:
    """Without the dose of one tablet, whose frequency goes to the strength that stands before it: "metformin 500 mg.
    Sig: 1 tab bid"."""
    out = []
    for d in found:
        given = [i for i, t in enumerate(told) if (t.concept, t.attribute) == (d.concept, "dose") and t.value]
        strength = told[given[-1]] if given else None
        one = re.fullmatch(r"1 (?:tablets|capsules) (?P<often>.+)", d.value or "") if d.attribute == "dose" else None
        if not one or d.polarity != "AFFIRMED" or strength is None or not _STRENGTH.fullmatch(strength.value):
            out.append(d)
            continue
        a, b = strength.span[0], d.span[1]
        told[given[-1]] = dataclasses.replace(
            strength, value=f"{strength.value} {one['often']}", span=(a, b), quote=entry.text[a:b],
            statement=" ".join(entry.text[a:b].split()))
    return out


def _then(scene: Scene, found: list[Draft], told: list[Scene]) -> list[Draft]:
    """What held "at that time" has the date of the sentences before; where they have none, nothing is known of now."""
    if not _THEN.search(scene.text) or scene.time(0, len(scene.text), "past", "document"):
        return found
    spoken = [t for s in told[-_BACK:] for t in s.times if t.way not in ("length", "lasting")]
    when = resolve(spoken[-1].words, scene.date).start if spoken else None
    past = when is not None and (scene.date is None or bounds(when)[1] < bounds(scene.date[:10])[0])
    out = []
    for d in found:
        if d.attribute == "allergy" or d.attribute == "background" or d.polarity == "CONDITIONAL" or d.time is not None:
            out.append(d)
        elif past:
            out.append(dataclasses.replace(d, time=spoken[-1].words))
    return out


def _quotations(entry: Entry, day_first: bool | None) -> list[tuple[int, int, str]]:
    """(start, end, time words) of what the entry quotes from an older document: `Letter of 3 May 2022: "..."`."""
    out = []
    for m in _QUOTED.finditer(entry.text):
        before = entry.text[max(0, m.start() - 120):m.start()].rpartition("\n\n")[2]
        for t in time_words(before, day_first)[-1:]:
            between = before[t.end:]
            named = t.way == "document" and re.fullmatch(r"[^.\"\n]{0,40}\n?", between)
            if not named and not (t.way == "past" and _WRITTEN.match(between) and len(between) < 60):
                continue
            when = resolve(t.words, entry.date).start
            if when and (entry.date is None or bounds(when)[0] < bounds(entry.date[:10])[0]):
                out.append((m.start(), m.end(), t.words))
    return out


def _of_its_day(scene: Scene, found: list[Draft], quoted: list[tuple[int, int, str]]) -> list[Draft]:
    """What a quotation tells, told on its day: without a time it has that date, "for 5 days" counts from there."""
    at = scene.sentence.start
    for start, end, words in quoted:
        if scene.sentence.end <= start or at >= end or cues.ERROR.search(scene.text):
            continue
        if any(at + m.start < start for m in scene.mentions):
            continue  # the sentence names something of its own before the quotation
        return [d if d.span[0] >= end else _told_on(d, words, scene.date) for d in found]
    return found


def _told_on(d: Draft, words: str, date: str | None) -> Draft:
    if d.attribute in ("allergy", "background") or d.polarity == "CONDITIONAL":
        return d
    if d.time is None:
        return dataclasses.replace(d, time=words)
    day = resolve(words, date).start
    then = resolve(d.time, day)
    if then == resolve(d.time, date):
        return d
    first = then.start or day
    if then.end is None or len(then.end) < 10:
        return dataclasses.replace(d, time=then.start or words)
    last = (datetime.date.fromisoformat(then.end[:10]) - datetime.timedelta(days=1)).isoformat()
    return dataclasses.replace(d, time=f"from {first} to {last}")


def _left(entry: Entry, before: Scene, scene: Scene, found: list[Draft]) -> Draft | None:
    """The end of the one drug that the sentence before was about: "Oedema on amlodipine. Changed to indapamide"."""
    begun = [d for d in found if d.attribute == "dose" and d.polarity == "AFFIRMED"]
    news = {d.concept for d in begun if d.experiencer == "PATIENT"}
    drugs = {m.concept: m for m in before.of_kind("drug")}
    if (
        not _CHANGED.match(scene.text)
        or {m.concept for m in scene.of_kind("drug")} != news
        or len(news) != 1
        or len(drugs) != 1
        or scene.sentence.turn - before.sentence.turn > 1
        or before.sentence.question
        or cues.conditional(before.text, 0, len(before.text))
    ):
        return None
    (concept, drug), = drugs.items()
    own = before.experiencer(drug.start, drug.end) == "PATIENT"
    if concept in news or not own or not _ON.search(before.text[:drug.start]):
        return None
    a, b = before.sentence.start, scene.sentence.end
    return Draft(
        " ".join(entry.text[a:b].split()),
        entry.text[a:b],
        span=(a, b),
        kind="EVENT",
        concept=concept,
        attribute="dose",
        polarity="NEGATED",
        time=scene.time(0, len(scene.text), "past"),
    )


def _ordered(entry: Entry, drafts: list[Draft]) -> tuple[Draft, ...]:
    """Without what is said twice in the same words, each with its chunk; of allergies the fullest, without "none known"
    beside an allergy to a drug."""
    allergic: dict[tuple, bool] = {}  # whether its reaction is known
    for d in drafts:
        if d.attribute == "allergy" and d.polarity == "AFFIRMED":
            key = d.experiencer, d.concept
            allergic[key] = allergic.get(key, False) or d.value is not None
    to_drug = {who for who, concept in allergic if concept in vocabulary.DRUGS or concept in _DRUG_ALLERGENS}
    seen, out = set(), []
    for d in drafts:
        if d.attribute == "allergy":
            if d.concept == "drug allergies" and d.polarity == "NEGATED" and d.experiencer in to_drug:
                continue
            if d.polarity == "AFFIRMED" and d.value is None and allergic[d.experiencer, d.concept]:
                continue
        key = (d.span, d.concept, d.attribute, d.value, d.polarity, d.experiencer)
        if key not in seen:
            seen.add(key)
            out.append(_placed(entry, d))
    return tuple(out)


def _placed(entry: Entry, draft: Draft) -> Draft:
    """A draft with the first chunk that holds its quote, else the one in which it begins."""
    start, end = draft.span
    whole = (i for i, (a, b) in enumerate(entry.chunks) if a <= start and end <= b)
    begun = (i for i, (a, b) in enumerate(entry.chunks) if a <= start < b)
    chunk = next(whole, next(begun, 0))
    return draft if chunk == draft.chunk else dataclasses.replace(draft, chunk=chunk)


def _bounded(text: str, found: list[Sentence]) -> list[Sentence]:
    out = []
    for s in found:
        at = s.start
        while s.end - at > _LONGEST:
            cut = text.rfind(" ", at + _LONGEST // 2, at + _LONGEST)
            cut = at + _LONGEST if cut < 0 else cut
            out.append(dataclasses.replace(s, start=at, end=cut))
            at = cut
        out.append(dataclasses.replace(s, start=at))
    return out


def _merged(text: str, found: list[Sentence]) -> list[Sentence]:
    """A clause after a semicolon that names nothing of its own goes with the one before it."""
    out: list[Sentence] = []
    for s in found:
        if (
            s.joined
            and out
            and out[-1].turn == s.turn
            and s.end - out[-1].start < _LONGEST
            and not s.question
            and (text[s.start:s.start + 1].islower() or _FIGURE.match(text, s.start, s.end))
            and (_SAME.match(text, s.start) or _continues(text[s.start:s.end]))
        ):
            out[-1] = dataclasses.replace(out[-1], end=s.end, question=s.question)
        else:
            out.append(s)
    return out


def _continues(text: str) -> bool:
    scene = Scene.of(text, Sentence(0, len(text)), None, None)
    return not scene.mentions or cues.ERROR.search(scene.text) is not None and not scene.of_kind("drug", "measure")


def _scene(scene: Scene, last_drug: Mention | None) -> list[Draft]:
    found, taken, agents = allergies(scene)
    whole = any(b - a == len(scene.text) for a, b in taken)
    if whole:
        return found
    plans, watched = monitoring(scene)
    booked, places = appointments(scene, watched)
    taken = taken + places
    if not scene.sentence.question:
        found += doses(scene, last_drug if not agents else None, agents)
        found += classes(scene)
        planned = _watched(scene, watched)
        found += [d for d in measures(scene) if d.concept not in planned]
    told = {d.concept for d in found}
    found += plans + booked + [d for d in warnings(scene) if d.concept.removeprefix("avoid ") not in told]
    found += [v for v in visits(scene) if not any(_same_visit(v, b) for b in booked)]
    lived, used = habits(scene)
    found += lived
    taken = taken + used
    found += procedures(scene, places) + vaccinations(scene, places)
    found += preferences(scene)
    found += problems(scene, taken)
    first: dict[str, int] = {}
    for m in scene.mentions:
        first.setdefault(m.concept, m.start)
    return sorted(found, key=lambda d: (d.span[0], first.get(d.concept, 0)))


def _same_visit(visit: Draft, booked: Draft) -> bool:
    """Whether an appointment is the visit: of the same specialty, or at the same time where the visit names none."""
    if visit.concept == VISIT:
        return visit.time == booked.time
    return booked.concept.startswith(visit.concept.removesuffix(" follow-up"))


def _watched(scene: Scene, watched: list[tuple[int, int]]) -> set[str]:
    """Tests that the sentence names for a plan, so that they have no value in it."""
    return {m.concept for m in scene.of_kind("measure") if any(a <= m.start < b for a, b in watched)}


def _answered(entry: Entry, asked: Scene, answer: Scene) -> list[Draft]:
    """Answers: "Any chest pain?" - "No, none." The quote reaches from the question to the answer."""
    if answer.sentence.turn - asked.sentence.turn > 1:
        return []
    yes, no = _YES.match(answer.text), _NO.match(answer.text)
    if not yes and not no or cues.HYPOTHETICAL.search(asked.text):
        return []
    said = {m.concept for m in answer.of_kind("problem")}
    a, b = asked.sentence.start, answer.sentence.end
    named = [m for m in asked.of_kind("problem") if m.concept not in said and m.concept != "pain"]
    if yes and len(named) > 1:
        return []
    return [
        Draft(
            " ".join(entry.text[a:b].split()),
            entry.text[a:b],
            span=(a, b),
            concept=m.concept,
            attribute="status",
            polarity="AFFIRMED" if yes else "NEGATED",
            experiencer=asked.experiencer(m.start, m.end),
        )
        for m in named
    ]
