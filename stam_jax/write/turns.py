"""Whose words an entry holds: what a machine says is no part of a patient's record.

A transcript may hold the turns of an AI assistant, of tools, and a system prompt, and all three may repeat what a
memory served. Were that extracted, a memory would confirm itself. So, for every writer alike:

    system, developer; tool, function   never shown to a writer
    assistant (AI, chatbot, model)      its questions are shown, since an answer needs its question; its statements
                                        are not, and no memory is made of words that it alone said
    everyone else, clinicians too       record

A turn is known by its label (`Assistant: ...` at the beginning of a line; in dialogues behind a bullet or a time of day
too), or by the author of the whole entry. A note has headings of the same words: `System:` and `Tool:` are labels in
dialogues only, and `Assistant: B. Jones, PA` is who helped in an operation. What the memory itself wrote (a line of a
packet, a statement beside its id) is left out wherever it stands. Standard library only.
"""
from __future__ import annotations

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence

from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.state import State
from stam_jax.read.render import head, one_line

MACHINES = {  # a role, as programs and people write it -> what speaks
    "assistant": "assistant", "ai assistant": "assistant", "ai": "assistant", "agent": "assistant",
    "chatbot": "assistant", "bot": "assistant", "model": "assistant", "llm": "assistant", "gpt": "assistant",
    "chatgpt": "assistant", "system": "system", "system prompt": "system", "developer": "system", "tool": "tool",
    "tool call": "tool", "tool result": "tool", "function": "tool", "function call": "tool", "ipython": "tool"}
_LEAD = r"(?P<lead>(?:[^\w\n]|[\d_]|(?<=\d)[TZ]|(?<=[\d ])(?i:[ap]m)\b){0,40})"  # bullets, markup, a time
_COLON = r"[^\w\n:\uff1a(\[]{0,8}(?:[(\[][^()\[\]\n]{1,40}[)\]][^\w\n:\uff1a]{0,4})?[:\uff1a]"
_TIME = r"[\[(]?(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d)?Z?(?: ?[ap]m)?[\])]?"
_CLOCK = rf"[ \t*_\xa0\u200b\ufeff]{{0,40}}(?:{_TIME}[ \t*_]{{0,9}})?"
_LABEL = re.compile(rf"{_LEAD}(?i:(?P<name>ai assistant|assistant|chatbot|chatgpt|system|developer|tool)){_COLON}")
_PERSON = re.compile(
    rf"{_CLOCK}(?P<name>(?i:patient|pt|user|human|client|caller|mother|father|daughter|son|wife|husband|partner|carer"
    r"|caregiver|relative|interpreter|physician|clinician|provider|md|gp|rn|np|pa|pharmacist|therapist|resident"
    rf"|consultant|specialist|midwife|dietitian)|(?i:doctor|dr|nurse)\b\.?(?: [A-Z][\w'.-]*){{0,2}}){_COLON}")
_MACHINE = re.compile("assistant|chatbot|chatgpt|system|developer|tool", re.IGNORECASE)
_LINE = re.compile(r"[^\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_NOBODY = ("", "none", "nil", "n/a", "na", "not applicable")
_HIDDEN_NAME = re.compile(r"\[\*\*.*?\*\*\]|_{2,}")  # as records without names have it
_DEGREE = re.compile(r"(?i:m\.?d|d\.?o|p\.?a(?:-c)?|r\.?n|n\.?p|cst|rnfa|pgy-?\d|fellow|resident)\.?")
_SENTENCE = re.compile(r"\S.*?(?:[.!?]+[\"')\]*]*(?=\s|$)|$)")
_NAME = re.compile(r"\s*[^\s:][^:\n]{0,39}:")
_SERVED = re.compile(r"\[(?:date unknown|\d{4}(?:-\d\d){0,2})\] ")
_MID = re.compile(r"\bm[a-z2-7]{16}\b")
_BULLET = re.compile(r"^(?:[-*•–>]+|\d+[.)]) *")
_TAIL = re.compile(r' \(past: | \| source: "')  # of a packet's line, behind what the memory says
_LONGEST = 4000  # characters of a line in which a statement is looked for

Span = tuple[int, int]


def machine(role: str) -> str | None:
    """`assistant`, `system` or `tool`; None for people."""
    plain = re.sub(r"[\W_]+", " ", "".join(c for c in unicodedata.normalize("NFKC", role)
                                           if unicodedata.category(c) != "Cf"))
    return MACHINES.get(plain.strip().casefold())


def label(line: str) -> tuple[str, str] | None:
    """(speaker, what is said) of a dialogue's line that begins with a known speaker's label."""
    found = _LABEL.match(line) or _PERSON.match(line)
    return None if found is None else (found["name"], line[found.end():].lstrip("* \t"))


def turns(entry: Entry) -> list[tuple[str, int, int]]:
    """(who, start, end) of each machine's turn, in order.

    A turn goes on over the lines that follow, up to a person's label; in what a reader made of a transcript
    (`author_role` dialogue) a turn is a line.
    """
    who = machine(entry.author_role)
    if who is None and _MACHINE.search(entry.text) is None:
        return []
    lines, going_on = entry.author_role == "dialogue", False
    out: list[tuple[str, int, int]] = []
    for line in _LINE.finditer(entry.text):
        if said := _speaks(entry, line.span()):
            who, going_on = said, False
        elif lines or _PERSON.match(entry.text, *line.span()):
            who = None
        if who is None:
            continue
        if going_on:
            out[-1] = who, out[-1][1], line.end()
        else:
            out.append((who, *line.span()))
        going_on = True
    return out


def _speaks(entry: Entry, line: Span) -> str | None:
    """Which machine's label a line has."""
    if (found := _LABEL.match(entry.text, *line)) is None:
        return None
    said = machine(found["name"])
    if entry.kind == "dialogue":
        return said
    if said != "assistant" or found["lead"].strip("*_ \t\xa0\u200b\ufeff"):
        return None
    behind = entry.text[found.end():line[1]].strip(" \t*")
    if not behind:
        behind = entry.text[line[1]:line[1] + _LONGEST].lstrip().partition("\n")[0].strip(" \t*")
    return None if _named(behind) else said


def _named(said: str) -> bool:
    """Whether what stands behind a heading names people, or nobody: nothing, or the next heading."""
    if len(said) > 200:
        return False
    if said.strip(".-_ ").casefold() in _NOBODY or re.match(r"[A-Z][A-Z /-]+:", said):
        return True
    words = re.findall(r"[^\s,;/&()]+", _HIDDEN_NAME.sub("X", said))
    if not 1 <= len(words) <= 12 or said.endswith(("!", "?")) or (len(words) == 1 and said.endswith(".")):
        return False
    return _DEGREE.fullmatch(words[-1]) is not None or all(w[0].isupper() or w in ("and", "with") for w in words)


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """An entry as writers are shown it: of the same length, the statements of machines blank.

    machines: (start, end) of their turns, questions included. counters: turns by who spoke.
    """

    entry: Entry
    machines: tuple[Span, ...] = ()
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, entry: Entry) -> Heard:
        if not (found := turns(entry)):
            return cls(entry)
        counters: dict[str, int] = {}
        for who, *_ in found:
            counters[f"{who}_turn"] = counters.get(f"{who}_turn", 0) + 1
        shown = _replaced(entry.text, [(a, b, _shown(entry.text[a:b], who)) for who, a, b in found])
        return cls(canonical.replaced(entry, text=shown), tuple((a, b) for _, a, b in found), counters)

    @property
    def record(self) -> str:
        """The text of people alone."""
        text = self.entry.text
        return _replaced(text, [(a, b, blank(text[a:b])) for a, b in self.machines]) if self.machines else text

    def machine_within(self, start: int, end: int) -> bool:
        """Whether a machine speaks between two places."""
        return any(a < end and start < b for a, b in self.machines)

    def answered(self, start: int, end: int) -> bool:
        """Whether a span reaches from a machine's question into what a person says after it."""
        last = max((b for a, b in self.machines if a < end and start < b), default=start)
        named = _NAME.match(self.entry.text, last)
        return any(c.isalnum() for c in self.entry.text[named.end() if named else last:end])


def _replaced(text: str, parts: Sequence[tuple[int, int, str]]) -> str:
    """parts: (start, end, what stands there instead), in order."""
    out, at = [], 0
    for start, end, instead in parts:
        out += [text[at:start], instead]
        at = end
    return "".join((*out, text[at:]))


def _shown(turn: str, who: str) -> str:
    """A turn with blanks in place of all but an assistant's questions."""
    if who != "assistant":
        return blank(turn)
    out = list(blank(turn))
    for line in _LINE.finditer(turn):
        for s in _SENTENCE.finditer(turn, *line.span()):
            if s[0].rstrip("\"')]*").endswith("?"):
                out[s.start():s.end()] = s[0]
    return "".join(out)


def blank(text: str) -> str:
    """As many blanks; lines stay."""
    return re.sub(r"[^\n]", " ", text)


# ---- what the memory wrote ----------------------------------------------------------------------------------------

def served(entry: Entry, news: Sequence[Memory], state: State) -> set[str]:
    """mids of new memories that repeat what the state serves: their words stand in a packet's line among people's words,
    or these name memories by their ids and the words are one's."""
    if not _SERVED.search(entry.text) and not any(mid in state.places for mid in _MID.findall(entry.text)):
        return set()
    text = Heard.of(entry).entry.text
    lines, told = _packet_lines(text, state), []
    if any(mid in state.places for mid in _MID.findall(text)):
        told = [one_line(m.text).casefold() for m in state.memories.values()]
    out = set()
    for m in news:
        p = m.provenance[0]
        words = one_line(text[p.start:p.end]).casefold()
        if any(a < p.end and p.start < b for a, b in lines) or (
                p.verified and any(words in said or said in words for said in told)):
            out.add(m.mid)
    return out


def recited(text: str, state: State) -> bool:
    """Whether every line of a text is a statement of the memory word for word, or a line of a packet."""
    said = {one_line(m.text).casefold() for m in state.memories.values()}
    lines = [_BULLET.sub("", one_line(line)) for line in text.splitlines() if line.strip()]
    return bool(lines) and all(line.casefold() in said or _packet_lines(line, state) for line in lines)


def _packet_lines(text: str, state: State) -> list[Span]:
    """Where a packet's lines stand in a text, whatever stands before them: up to the line's end or the next one."""
    heads = {head(m) for m in state.memories.values()}
    marks = [m.start() for m in _SERVED.finditer(text)]
    out = []
    for start, following in itertools.zip_longest(marks, marks[1:], fillvalue=len(text)):
        end = text.find("\n", start, following)
        end = following if end < 0 else end
        said = one_line(text[start:min(end, start + _LONGEST)])
        if any(said[:i].rstrip() in heads for i in (len(said), *(m.start() for m in _TAIL.finditer(said)))):
            out.append((start, end))
    return out
