"""What language models write: lines of the extractor, the linker and the updater, rendered and read.

    extractor   - kind | concept | attribute | value unit | polarity | experiencer | time | "verbatim quote" | statement
    linker      C1 B                                         (a letter of LABELS)
    updater     N1 CURRENT   N1 PRIOR C2   N1 SAME C1   C1 KEEP   C1 SUPERSEDED N1   C1 RESOLVED [N1]   C1 CORRECTED N1
                and " DEL" after a C line

`-` stands for an empty field, the line NONE for "nothing to extract". Reading takes any text and raises for none: what
is no line of these (prose, fences, a thinking block, a line cut off) is left out and, where it looks like one, counted.
Nothing is filled in that the text does not say. JSON is read in the same spirit: what is whole in it counts.
"""
from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from core_jax.chat import strip_thinking
from core_jax.engine.request import Grammar
from stam_jax.graph.memory import EXPERIENCERS, KINDS, POLARITIES, canonical_text
from stam_jax.graph.relations import DEFAULT
from stam_jax.write.writer import Draft, Extraction, Link, LinkAnswer, Placement, UpdateAnswer, Verdict

ATTRIBUTES = ("dose", "status", "value", "allergy", "plan", "preference", "procedure", "background")
EMPTY, NOTHING = "-", "NONE"
LONGEST = {"concept": 80, "value": 80, "time": 60, "statement": 300}  # characters, in constrained decoding
MOST = 32  # lines of an extraction, in constrained decoding
_ATTEMPTS = 1000  # places at which JSON is looked for in vain
_OPENING = re.compile(r"[\[{]")
UNUSABLE = "no usable line in the answer"


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """A letter and the relation it stands for; type None = none. forward: from the new memory to the candidate."""

    letter: str
    type: str | None
    forward: bool = True


def _labels() -> tuple[Label, ...]:
    ways = [(t.name, way) for t in DEFAULT.types for way in (True, False) if way or t.directed]
    return tuple(Label(chr(ord("A") + i), *pair) for i, pair in enumerate([(None, True), *ways]))


LABELS = _labels()  # single letters: one token each, and no two begin alike
LETTERS = tuple(label.letter for label in LABELS)


# ---- extractor ---------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"\s*(?:[-*•]\s+|[0-9]{1,3}[.)]\s+)?\|?\s*(?P<rest>.*)", re.DOTALL)
_TAIL = re.compile(r'\s*["“](?P<quote>.*)["”]\s*\|(?P<statement>[^|]*)\|?\s*', re.DOTALL)
_DOSE = re.compile(r"[0-9][0-9.,/-]*\s*(?P<unit>[^\W\d_][\w/%]*|%)(?:\s.*)?", re.DOTALL)
_MEASURED = re.compile(r"(?P<value>[<>≤≥=~]{0,2}\s?[0-9][0-9.,/:-]*)\s*(?P<unit>\S.*)?", re.DOTALL)


def render_drafts(drafts: Iterable[Draft]) -> str:
    """The extractor's answer. What a line cannot hold (a line break, a bar outside the quote) becomes a blank or a
    slash."""
    lines = []
    for d in drafts:
        measured = d.value is not None and d.unit is not None and d.unit not in d.value
        fields = [d.kind, d.concept, d.attribute, f"{d.value} {d.unit}" if measured else d.value, d.polarity,
                  d.experiencer, d.time]
        lines.append(f'- {" | ".join(map(_field, fields))} | "{_one_line(d.quote)}" | {_field(d.statement)}')
    return "\n".join(lines) or NOTHING


def parse_drafts(text: str, *, chunk: int = 0, cut: bool = False) -> Extraction:
    """Drafts of an answer, in its order. A line that says the same as one before is dropped; lines that contradict
    each other stay, since one sentence may speak of two values.

    Args:
        cut: the answer ended for its length: an unfinished last line does not count.

    Returns: an extraction with `error` where neither a line nor NONE was found.
    """
    lines, problems = _lines(text, cut)
    drafts: list[Draft] = []
    nothing = False
    for line in lines:
        if line.strip(" .*`") == NOTHING:
            nothing = True
        elif line.count("|") >= 2:
            draft = _draft(line, chunk)
            if draft is None:
                problems["bad_line"] += 1
            else:
                drafts.append(draft)
    if not drafts:
        found, empty = _json_drafts(text, chunk, problems)
        drafts, nothing = found, nothing or empty and not problems["bad_json"]
    kept = list(dict.fromkeys(drafts))
    problems["duplicate_line"] += len(drafts) - len(kept)
    return Extraction(tuple(kept), _counted(problems), None if kept or nothing else UNUSABLE)


def extract_grammar(text: str) -> Grammar:
    """The answers about one chunk: at most MOST lines, each of which `parse_drafts` reads as a draft whose quote is a
    run of the chunk's words without a quotation mark in it. About a chunk without a word there is nothing to say."""
    words = _one_line(text)
    if re.search(r'[^"\s-]', words) is None:
        return Grammar("choice", json.dumps([NOTHING]))
    kinds, attributes, polarities, experiencers = map("|".join, (KINDS, ATTRIBUTES, POLARITIES, EXPERIENCERS))

    def upto(name: str, first: str = "") -> str:
        return rf"{first}[^|\x00-\x1f]{{{0 if first else 1},{LONGEST[name] - bool(first)}}}"

    said = r"[^|\s\x00-\x1f-]"  # a field that may not be empty begins with it
    head = rf"- ({kinds}) \| ({upto('concept', said)} \| ({attributes})|{EMPTY} \| background) \| {upto('value')} \| " \
           rf"({polarities}) \| ({experiencers}) \| {upto('time')} \| "
    return Grammar("lark", f'start: "{NOTHING}" | line ("\\n" line){{0,{MOST - 1}}}\n'
                           'line: HEAD "\\"" QUOTE "\\" | " STATEMENT\n'
                           f"HEAD: /{head}/\n"
                           f"STATEMENT: /{upto('statement', said)}/\n"
                           'QUOTE: RUN & /[^"]*[^"\\s-][^"]*/\n'
                           f'RUN: %regex {{"substring_words": {json.dumps(words)}}}\n')


def _draft(line: str, chunk: int) -> Draft | None:
    fields = _HEAD.fullmatch(line)["rest"].split("|", 7)
    tail = _TAIL.fullmatch(fields[-1]) if len(fields) == 8 else None
    return None if tail is None else _checked(chunk, *fields[:7], tail["quote"], tail["statement"])


def _checked(chunk: int, kind: str, concept: str, attribute: str, value: str, polarity: str, experiencer: str,
             time: str, quote: str, statement: str, unit: str | None = None) -> Draft | None:
    """A draft, or None: an unknown word where one of a few is expected, no quote, no statement."""
    kind, polarity, experiencer = (_one_line(x).upper() for x in (kind, polarity, experiencer))
    attribute, concept, quote, statement = (_one_line(x) for x in (attribute, concept, quote, statement))
    polarity = POLARITIES[0] if polarity in ("", EMPTY) else polarity
    experiencer = EXPERIENCERS[0] if experiencer in ("", EMPTY) else experiencer
    attribute = attribute.lower()
    if kind not in KINDS or attribute not in ATTRIBUTES or polarity not in POLARITIES \
            or experiencer not in EXPERIENCERS or quote in ("", EMPTY) or statement in ("", EMPTY):
        return None
    value, unit = _amount(_optional(value), _optional(unit), attribute)
    concept = _optional(concept)
    if concept is None and attribute != "background":
        return None
    return Draft(statement, quote, chunk, None, kind, concept and concept.lower(), attribute, value, unit, polarity,
                 experiencer, _optional(time))


def _amount(value: str | None, unit: str | None, attribute: str) -> tuple[str | None, str | None]:
    """A dose keeps its unit within the value, a measurement apart from it; other values have none."""
    if value is None or unit is not None or attribute not in ("dose", "value"):
        return value, unit if value is not None else None
    if attribute == "dose":
        found = _DOSE.fullmatch(value)
        return value, found and found["unit"]
    found = _MEASURED.fullmatch(value)
    return (value, None) if found is None else (found["value"].strip(), _optional(found["unit"]))


def _json_drafts(text: str, chunk: int, problems: collections.Counter) -> tuple[list[Draft], bool]:
    """Drafts of the objects in a JSON answer, and whether it says that there are none."""
    drafts, empty, rest = [], False, list(_values(text, problems))
    while rest:
        value = rest.pop(0)
        if isinstance(value, list):
            empty |= not value
            rest[:0] = value
        elif isinstance(value, dict) and {"quote", "statement"} & value.keys():
            names = ("kind", "concept", "attribute", "value", "polarity", "experiencer", "time", "quote", "statement",
                     "unit")
            given = [value.get(name) for name in names]
            draft = None
            if all(x is None or isinstance(x, str) for x in given):
                draft = _checked(chunk, *((x or "") for x in given[:-1]), unit=given[-1])
            problems["bad_line"] += draft is None
            drafts += [] if draft is None else [draft]
        elif isinstance(value, dict):
            rest[:0] = value.values()
    return drafts, empty and not drafts


# ---- linker ------------------------------------------------------------------------------------------------------

_LINK = re.compile(r"\W*C([0-9]{1,4})\W+([A-Za-z_]+)\W*")


def parse_links(text: str, candidates: int, *, cut: bool = False) -> LinkAnswer:
    """Links of an answer over so many candidates; one without a line has none. Errors as `parse_drafts`."""
    lines, problems = _lines(text, cut)
    said: dict[int, list[Label]] = {}
    for line in lines:
        found = _LINK.fullmatch(line)
        if found is None:
            problems["bad_line"] += bool(re.match(r"\W*C[0-9]", line))
            continue
        candidate, word = int(found[1]) - 1, found[2]
        label = next((x for x in LABELS if x.letter == word or (x.type or NOTHING).lower() == word.lower()
                      and (x.type is None or not DEFAULT[x.type].directed)), None)
        if not 0 <= candidate < candidates:
            problems["unknown_alias"] += 1
        elif label is None:
            problems["bad_line"] += 1
        else:
            said.setdefault(candidate, []).append(label)
    agreed = _agreed(said, problems)
    links = tuple(Link(c, label.type, label.forward) for c, label in sorted(agreed.items()) if label.type is not None)
    return LinkAnswer(links, _counted(problems), None if said or not candidates else UNUSABLE)


def link_grammar(candidates: int) -> Grammar:
    """A line for each candidate, in order."""
    return Grammar("regex", r"\n".join(f"C{i} [{''.join(LETTERS)}]" for i in range(1, candidates + 1)))


# ---- updater -----------------------------------------------------------------------------------------------------

_UPDATE = re.compile(r"\W*(?P<alias>[NC])(?P<number>[0-9]{1,4})[\s:=>-]+(?P<word>[A-Z]+)"
                     r"(?:\s+(?:(?:by|of|to|as)\s+)?(?P<other>[NC])(?P<place>[0-9]{1,4}))?(?P<delete>\s+DEL)?"
                     r"[\s.;,*`\"']*", re.IGNORECASE)
_OTHER = {"CURRENT": "", "PRIOR": "C", "SAME": "C", "KEEP": "", "SUPERSEDED": "N", "RESOLVED": "N?", "CORRECTED": "N"}


def render_update(answer: UpdateAnswer, news: int, candidates: int) -> str:
    """A line for each new memory, then one for each candidate; what the answer does not name is CURRENT or KEEP."""
    placed = {p.new: p for p in answer.placements}
    judged = {v.candidate: v for v in answer.verdicts}
    lines = []
    for i in range(news):
        p = placed.get(i, Placement(i, "CURRENT"))
        lines.append(f"N{i + 1} {p.kind}" + (f" C{p.candidate + 1}" if p.candidate is not None else ""))
    for i in range(candidates):
        v = judged.get(i, Verdict(i, "KEEP"))
        lines.append(f"C{i + 1} {v.kind}" + (f" N{v.new + 1}" if v.new is not None else "") + " DEL" * v.delete)
    return "\n".join(lines)


def parse_update(text: str, news: int, candidates: int, *, cut: bool = False) -> UpdateAnswer:
    """Decisions of an answer about N1..N<news> and C1..C<candidates>, the default ones left out.

    Where lines about one alias differ, none of them counts. Errors as `parse_drafts`.
    """
    lines, problems = _lines(text, cut)
    if not any(map(_UPDATE.fullmatch, lines)):
        lines = _json_lines(text, problems) or lines
    said: dict[tuple[str, int], list[Placement | Verdict]] = {}
    for line in lines:
        found = _UPDATE.fullmatch(line)
        if found is None:
            problems["bad_line"] += bool(re.match(r"\W*[NC][0-9]+\W", line))
            continue
        alias, word = found["alias"].upper(), found["word"].upper()
        place = int(found["number"]) - 1
        other = (found["other"] or "").upper()
        second = int(found["place"]) - 1 if other else None
        fits = word in _OTHER and (word in ("CURRENT", "PRIOR", "SAME")) == (alias == "N") \
            and (other == _OTHER[word].rstrip("?") or not other and _OTHER[word].endswith("?")) \
            and not (alias == "N" and found["delete"])
        sizes = {"N": news, "C": candidates}
        if not fits:
            problems["bad_line"] += 1
        elif not 0 <= place < sizes[alias] or second is not None and not 0 <= second < sizes[other]:
            problems["unknown_alias"] += 1
        elif alias == "N":
            said.setdefault((alias, place), []).append(Placement(place, word, second))
        else:
            said.setdefault((alias, place), []).append(Verdict(place, word, second, bool(found["delete"])))
    agreed = _agreed(said, problems)
    placements = tuple(p for (alias, _), p in sorted(agreed.items()) if alias == "N" and p.kind != "CURRENT")
    verdicts = tuple(v for (alias, _), v in sorted(agreed.items())
                     if alias == "C" and (v.kind != "KEEP" or v.delete))
    return UpdateAnswer(placements, verdicts, _counted(problems), None if said or not news + candidates else UNUSABLE)


def update_grammar(news: int, candidates: int) -> Grammar:
    """A line for each new memory, then one for each candidate, in order."""
    def of(alias: str, count: int) -> str:
        return "(" + "|".join(f"{alias}{i}" for i in range(1, count + 1)) + ")"

    placed = ["CURRENT"] + ([f"(PRIOR|SAME) {of('C', candidates)}"] if candidates else [])
    judged = ["KEEP", "RESOLVED"] + ([f"(SUPERSEDED|RESOLVED|CORRECTED) {of('N', news)}"] if news else [])
    lines = [f"N{i} ({'|'.join(placed)})" for i in range(1, news + 1)]
    lines += [f"C{i} ({'|'.join(judged)})( DEL)?" for i in range(1, candidates + 1)]
    return Grammar("regex", r"\n".join(lines))


# ---- common ------------------------------------------------------------------------------------------------------

def _lines(text: str, cut: bool) -> tuple[list[str], collections.Counter]:
    """Lines of the answer itself, and a counter of problems that knows whether it was cut."""
    answer = _answer(text)
    lines = (answer.rpartition("\n")[0] if cut else answer).split("\n")
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("```")]
    return kept, collections.Counter({"cut_off": int(cut)})


def _answer(text: str) -> str:
    return strip_thinking(canonical_text(text))[1]


def _agreed(said: dict[Any, list[Any]], problems: collections.Counter) -> dict[Any, Any]:
    """What every line about an alias says alike."""
    out = {}
    for alias, lines in said.items():
        if any(line != lines[0] for line in lines):
            problems["contradiction"] += len(lines)
        else:
            out[alias] = lines[0]
            problems["duplicate_line"] += len(lines) - 1
    return out


def _counted(problems: collections.Counter) -> dict[str, int]:
    return {name: problems[name] for name in sorted(problems) if problems[name]}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _field(value: str | None) -> str:
    return _one_line((value or "").replace("|", "/")) or EMPTY


def _optional(field: str | None) -> str | None:
    field = _one_line(field or "")
    return None if field in ("", EMPTY) else field


def _json_lines(text: str, problems: collections.Counter) -> list[str]:
    """Lines that stand as strings in a JSON answer: {"N1": "CURRENT"} or ["N1 CURRENT"]."""
    lines, rest = [], list(_values(text, problems))
    while rest:
        value = rest.pop(0)
        if isinstance(value, dict):
            lines += [f"{k} {v}" for k, v in value.items() if isinstance(v, str)]
            rest[:0] = [v for v in value.values() if not isinstance(v, str)]
        elif isinstance(value, list):
            rest[:0] = value
        elif isinstance(value, str):
            lines.append(value)
    return [_one_line(line) for line in lines]


def _values(text: str, problems: collections.Counter) -> Iterator[Any]:
    """JSON objects and lists in a text, the outermost that are whole; numbers as they are written. One that says two
    things under one key does not count."""
    answer = _answer(text)
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_distinct)
    at, failed = 0, 0
    while failed < _ATTEMPTS and (found := _OPENING.search(answer, at)):
        try:
            value, at = decoder.raw_decode(answer, found.start())
            yield value
        except (ValueError, RecursionError):
            failed += 1
            at = found.start() + 1
    problems["bad_json"] += bool(failed)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises: ValueError: a key twice."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice")
    return out
