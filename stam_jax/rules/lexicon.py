"""Names in a text: the longest entry of the vocabulary at each word, then drugs and diseases told by how they look.

Time is linear in the text: one pass over its words, at each a look-up of the first word of a name.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator

from stam_jax.rules import vocabulary

KINDS = ("drug", "problem", "measure", "monitor", "procedure", "appointment", "allergen")
_WORD = re.compile(r"[A-Za-z0-9µ]+(?:['’][A-Za-z]{1,2}\b)?")
_UNIT_AHEAD = re.compile(
    r"[ \t\n]{0,3}[,:|]?[ \t\n]{0,3}\|?[ \t]{0,3}[0-9][0-9.,]{0,8}[ \t\n]?-?"
    r"(?:mg|mcg|µg|ug|milligrams?|micrograms?|units?|iu|g|grams?|puffs?)\b(?! ?/ ?d?l| of\b| (?:rbcs?|prbcs?|packed"
    r"|blood|ffp"
    r"|platelets|plasma|cryo\w*)\b)",
    re.I,
)
NOT_A_DRUG = frozenset("""
    the a an of to at is was are be by in on for from and or not with dose doses dosage daily nightly weekly twice once
    start started starting begin began take takes taking taken took give given increase increased decrease decreased
    raise raised lower lowered reduce reduced change changed resume resumed restart restarted continue continues
    continued stop stopped only about around approximately total max maximum minimum up down now then currently tablet
    tablets capsule capsules tab tabs cap pill pills strength level result value weight protein sodium fluid fluids
    water caffeine calories fat sugar alcohol it this that than just another extra additional his her my your their our
    its regular low high amount current new previous old original evening morning night bedtime noon medication medicine
    drug drugs meds rx day days week weeks month months year years reads says listed entered recorded wrote told
    actually really instead still bottle label cut back half over under between every each per po iv im sc sq subq oral
    orally mouth use used using prescribed ordered added adding add titrate titrated bump bumped drop dropped down
    patient pt she he they we i you as also well home correct correction corrected should could would may might will
    insulin units unit last next today yesterday supplement supplements extended release er xr xl cr sr hcl sulfate
    sodium hydrochloride read written documented uptitrate uptitrated downtitrate received receiving got get getting
    gets equals equal plus no doubled halved doubling halving stay stays staying remain remains remaining keep kept
    keeping been before said chart charted show shows showed from then same list lists listed such like went going had
    has
    have having did does done got him them who which what where when while until since after before because why how all
    any
    both each few more most other some only own same so too very can will don should now ever never always often again
    further once here there our out off above below own via prior records record history historical dosing dosage
    schedule scheduled reported noted confirmed changed chewable delayed sustained release er ir xr tabs order orders
    script prescription refill refills refilled label labels daily approx approximately roughly nearly almost least
    another additional second third half quarter single double triple fourth into onto upto per plus minus times
    infusion bolus loading maintenance standing scheduled inhaler inhalers spacer reliever preventer target goal
    admission discharge turbuhaler evohaler respimat diskus accuhaler ellipta handihaler easyhaler autohaler nebuliser
    nebulizer
""".split())


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """[start, end) of the text names `concept`. known: the vocabulary has it."""

    kind: str
    concept: str
    start: int
    end: int
    known: bool = True


def _normal(word: str) -> str:
    """A word as names are compared: lower case, without a plural s."""
    word = word.lower().replace("’", "'")
    plural = len(word) > 4 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word[:-1] if plural else word


@dataclasses.dataclass(frozen=True, slots=True)
class _Name:
    words: tuple[str, ...]
    exact: tuple[str, ...] | None  # the words as they must be written, for abbreviations
    kind: str
    concept: str


def _name(kind: str, concept: str, name: str) -> _Name:
    words = tuple(_WORD.findall(name))
    abbreviation = len(name) <= 4 and name != name.lower()
    return _Name(tuple(map(_normal, words)), words if abbreviation else None, kind, concept)


def _table() -> dict[str, list[list[_Name]]]:
    """First word -> its names, the longest first; names of equal words together."""
    sources: list[tuple[str, Iterable[tuple[str, tuple[str, ...]]]]] = [
        ("drug", ((c, f.names) for c, f in vocabulary.DRUGS.items())),
        ("problem", vocabulary.PROBLEMS.items()),
        ("measure", ((c, f.names) for c, f in vocabulary.MEASURES.items())),
        ("monitor", vocabulary.MONITORING.items()),
        ("procedure", vocabulary.PROCEDURES.items()),
        ("appointment", vocabulary.APPOINTMENTS.items()),
        ("allergen", vocabulary.ALLERGENS.items()),
    ]
    groups: dict[tuple, list[_Name]] = {}
    for kind, rows in sources:
        for concept, names in rows:
            for text in names:
                name = _name(kind, concept, text)
                group = groups.setdefault((name.words, name.exact), [])
                if all(n.kind != kind for n in group):
                    group.append(name)
    table: dict[str, list[list[_Name]]] = {}
    for (words, _), group in groups.items():
        table.setdefault(words[0], []).append(group)
    for rows in table.values():
        rows.sort(key=lambda g: (-len(g[0].words), g[0].exact is None))
    return table


_TABLE = _table()


def mentions(text: str) -> list[Mention]:
    """All names in the order of the text. Words that name several things (potassium: a measure, and what a plan
    watches) give one mention of each kind."""
    words = [(m.start(), m.end(), m.group()) for m in _WORD.finditer(text)]
    normal = [_normal(w) for _, _, w in words]
    out: list[Mention] = []
    taken = [False] * len(words)
    i = 0
    while i < len(words):
        group, size = _longest(words, normal, i, text)
        for name in group:
            out.append(Mention(name.kind, name.concept, words[i][0], words[i + size - 1][1]))
        if group and size > 1 and group[0].kind == "monitor" and len(group) == 1:
            out += [
                Mention("measure", n.concept, words[i][0], words[i + size - 1][1])
                for n in _shorter(normal, i, size)
                if n.kind == "measure"
            ]
        taken[i:i + size] = [bool(group)] * size
        i += size
    out = _widened(out, words, text)
    out += _built(words, taken, text, {m.end for m in out if m.kind == "drug"})
    return sorted(out, key=lambda m: (m.start, KINDS.index(m.kind)))


@functools.lru_cache(maxsize=1 << 14)
def named(text: str) -> tuple[Mention, ...]:
    """`mentions` of a memory's text, which is looked at again with each memory that it is compared with."""
    return tuple(mentions(text))


def _longest(words: list, normal: list[str], i: int, text: str) -> tuple[list[_Name], int]:
    for group in _TABLE.get(normal[i], ()):
        name = group[0]
        size = len(name.words)
        if tuple(normal[i:i + size]) != name.words:
            continue
        if name.exact is not None and tuple(w for _, _, w in words[i:i + size]) != name.exact:
            continue
        if (
            name.exact is not None
            and len(name.exact) == 1
            and len(name.exact[0]) < 3
            and name.kind in ("measure", "monitor")
            and (text[words[i][1]:words[i][1] + 1] == "/" or text[max(0, words[i][0] - 1):words[i][0]] == "/")
        ):
            continue  # K/uL
        if all(_joined(text[words[j][1]:words[j + 1][0]]) for j in range(i, i + size - 1)):
            return group, size
    return [], 1


def _shorter(normal: list[str], i: int, size: int) -> list[_Name]:
    """The longest name at i that is shorter: "potassium" in "potassium level"."""
    for group in _TABLE.get(normal[i], ()):
        name = group[0]
        if len(name.words) < size and name.exact is None and tuple(normal[i:i + len(name.words)]) == name.words:
            return group
    return []


def _joined(gap: str) -> bool:
    return len(gap) <= 3 and not gap.strip(" \n\t-/.")


def _widened(found: list[Mention], words: list, text: str) -> list[Mention]:
    """Head words with the modifiers before them: "pain" in "left elbow pain"."""
    at = {start: i for i, (start, _, _) in enumerate(words)}
    out = []
    for m in found:
        if m.kind == "problem" and m.concept in vocabulary.DISEASE_HEADS:
            start = _modified(words, at[m.start], text)
            if start < m.start:
                words_of = text[start:m.start].split()
                m = Mention("problem", " ".join((*(w.lower() for w in words_of), m.concept)), start, m.end, False)
        out.append(m)
    return out


def _modified(words: list, i: int, text: str) -> int:
    """The start of the modifiers (at most four) that stand directly before the word i."""
    first = i
    while (
        first > 0
        and i - first < 4
        and words[first - 1][2].lower() in vocabulary.MODIFIERS
        and _joined(text[words[first - 1][1]:words[first][0]])
    ):
        first -= 1
    return words[first][0]


def _built(words: list, taken: list[bool], text: str, drugs: set[int]) -> Iterator[Mention]:
    """Names that the vocabulary lacks: told by an ending, a head word with modifiers, or a dose that follows.

    drugs: where drugs end; the word after one is its salt or its form ("metoprolol succ 50 mg").
    """
    for i, (start, end, word) in enumerate(words):
        low = word.lower()
        if taken[i] or len(low) < 4 or not low.isalpha():
            continue
        if low.endswith(vocabulary.DISEASE_ENDINGS) and len(low) > 5 and low not in vocabulary.NOT_DISEASES:
            first = _modified(words, i, text)
            yield Mention("problem", " ".join(text[first:end].lower().split()), first, end, False)
        elif low in vocabulary.DISEASE_HEADS:
            if (first := _modified(words, i, text)) < start:
                yield Mention("problem", " ".join(text[first:end].lower().split()), first, end, False)
        elif low not in NOT_A_DRUG and (
            low.endswith(vocabulary.DRUG_ENDINGS)
            and len(low) > 6
            or _UNIT_AHEAD.match(text, end)
            and not low.endswith(("ed", "ing", "ly"))
            and not (start - 1 in drugs and text[start - 1] == " ")
                                         and (i == 0 or words[i - 1][2].lower() not in ("a", "an"))
        ):
            yield Mention("drug", low, start, end, False)
