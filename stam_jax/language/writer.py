"""A writer over any language model: prompts out, `stam_jax.language.lines` back.

The system message of a stage is the same in every call, so that its prefill is shared. All that comes from the record
stands in the user's message: a piece of an entry between two lines with a mark that does not occur in it, a memory on
one line behind its alias; `core_jax.chat` sees to it that no text ends its turn. Where a stage has an adapter, which
has learnt the form, the system message is the first paragraph of its prompt.

Links are scored, not written: each candidate is the last line of a prompt of its own, all before it is prefilled once
for a new memory, and the letters of `lines.LABELS` are compared. What a candidate gets hangs neither on the others nor
on their order. Imports without JAX.
"""
from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_jax.engine.backend import Backend
from core_jax.engine.request import Completion, Grammar, LabelScores, Request, Sampling
from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.relations import DEFAULT
from stam_jax.language import lines
from stam_jax.write.writer import Affected, Extraction, Link, LinkAnswer, LinkTask, UpdateAnswer, UpdateTask

STAGES = ("extract", "link", "update")
PROMPTS = {stage: (importlib.resources.files("stam_jax.language") / "prompts" / f"{stage}.txt").read_text("utf-8").strip()
           for stage in STAGES}
AGAIN = 0.7  # temperature of another try at an answer that was no use: greedily it would come out the same
LINE_TOKENS = 16  # of a linker's or updater's line, at most
SHOWN = 400  # characters of a memory in a prompt

Messages = tuple[dict[str, str], ...]


# ---- prompts -----------------------------------------------------------------------------------------------------

def system(stage: str, tuned: bool = False) -> dict[str, str]:
    """tuned: for an adapter of this stage."""
    return {"role": "system", "content": PROMPTS[stage].split("\n\n")[0] if tuned else PROMPTS[stage]}


def extract_messages(entry: Entry, chunk: int, *, tuned: bool = False) -> Messages:
    """About one chunk of an entry."""
    start, end = entry.chunks[chunk]
    text = entry.text[start:end]
    mark = _mark(text)
    head = [f"Date of the record: {_date(entry)}", f"Kind: {_short(entry.kind)}, by: {_short(entry.author_role)}"]
    return system("extract", tuned), _user([*head, mark, text, mark])


def link_messages(task: LinkTask, candidate: int | None, *, tuned: bool = False) -> Messages:
    """About one candidate, by its place, as if there were no other; None = about all of them, for an answer in lines."""
    shown = [f"Date of the record: {_date(task.entry)}",
             f"N1 {_described(task.memory)}{_said(task.memory, task.entry)}"]
    if candidate is not None:
        shown.append(f"C1 {_described(task.candidates[candidate])}")
    else:
        shown += [f"C{i} {_described(m)}" for i, m in enumerate(task.candidates, 1)]
        shown.append(f"A line for each of C1 to C{len(task.candidates)}:")
    return system("link", tuned), _user(shown)


def update_messages(task: UpdateTask, *, tuned: bool = False) -> Messages:
    names = {m.mid: f"N{i}" for i, m in enumerate(task.news, 1)}
    for i, c in enumerate(task.candidates, 1):
        names.setdefault(c.memory.mid, f"C{i}")
    shown = [f"Date of the record: {_date(task.entry)}"]
    shown += [f"N{i} {_described(m)}{_said(m, task.entry)}" for i, m in enumerate(task.news, 1)]
    shown += [f"C{i} {_described(c.memory, _found(c, names))}" for i, c in enumerate(task.candidates, 1)]
    return system("update", tuned), _user(shown)


def _user(parts: Sequence[str]) -> dict[str, str]:
    return {"role": "user", "content": "\n".join(parts)}


def _mark(text: str) -> str:
    """A line that does not occur in the text."""
    mark, number = "=====", 0
    while mark in text:
        number += 1
        mark = "=====" + hashlib.sha256(f"{number} {text}".encode("utf-8", "replace")).hexdigest()[:8]
    return mark


def _short(text: str, most: int = 60) -> str:
    """On one line, and no longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 3].rstrip() + "..."


def _date(entry: Entry) -> str:
    return entry.date[:10] if entry.date else "unknown"


def _described(memory: Memory, note: str | None = None) -> str:
    """A memory on one line: [when; whose, where not the patient's; note] statement."""
    marks = [_when(memory.clinical_time)]
    marks += [memory.experiencer.lower()] * (memory.experiencer != "PATIENT")
    marks += [memory.polarity.lower()] * (memory.polarity != "AFFIRMED")
    return f"[{'; '.join(marks + ([note] if note else []))}] {_short(memory.text, SHOWN)}"


def _said(memory: Memory, entry: Entry) -> str:
    """The words of the entry that a new memory was made from; a reason or a correction often stands there alone."""
    here = next((p for p in memory.provenance if p.entry_key == entry.entry_key), None)
    return "" if here is None else f' From: "{_short(entry.text[here.start:here.end], SHOWN)}"'


def _when(time: ClinicalTime) -> str:
    if time.start is None and time.end is None:
        return "date unknown"
    end = "" if time.end is None else f", ends before {time.end}{' as planned' * time.end_planned}"
    return time.start + end if time.start else end.removeprefix(", ")


def _found(candidate: Affected, names: Mapping[str, str]) -> str:
    """active or past, and the relations by which it was found; of those that have no direction the new one first."""
    path = []
    for r in candidate.path:
        src, dst = names.get(r.src, "another"), names.get(r.dst, "another")
        if not DEFAULT[r.type].directed and dst.startswith("N"):
            src, dst = dst, src
        path.append(f"{src} {r.type} {dst}")
    return "; ".join(["active" if candidate.memory.store == "ACTIVE" else "past", ", ".join(path) or "alike"])


# ---- what it cost ------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Usage:
    """What a stage has cost so far. calls: prompts served; failed: of those, without a usable answer. Tokens as the
    backend counts them, cached ones among the prompt's. flops: None where the model's sizes are not known here."""

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    flops: int | None = None


def table(usage: Mapping[str, Usage], source_tokens: int) -> list[dict[str, Any]]:
    """A row a stage and one for their sum, with PFLOP per 1,000 tokens of the record (the paper's Table 29)."""
    rows = []
    for stage in (*STAGES, "total"):
        parts = list(usage.values()) if stage == "total" else [usage[stage]]
        row: dict[str, Any] = {"stage": stage}
        for field in dataclasses.fields(Usage):
            values = [getattr(u, field.name) for u in parts]
            row[field.name] = None if None in values else sum(values)
        known = row["flops"] is not None and source_tokens > 0
        rows.append(row | {"pflop_per_1000_source_tokens": row["flops"] / 1e12 / source_tokens if known else None})
    return rows


# ---- the writer --------------------------------------------------------------------------------------------------

class LanguageWriter:
    """`stam_jax.write.writer.Writer` over a backend.

    A call that fails (the backend refuses, or no line of the answer can be used) is tried again `retries` times and
    then said to have failed: nothing is decided in its place.

    Attributes: usage: `Usage` by stage. source_tokens: of the entries extracted, by the backend's tokenizer where it
    has one, else words.
    """

    decider = "model"

    def __init__(self, backend: Backend, *, adapters: Mapping[str, str] | None = None, retries: int = 1,
                 constrained: bool = True, scored: bool = True, max_tokens: int = 2048):
        """
        Args:
            adapters: stage -> name of a LoRA adapter that the backend holds; a stage without one is the base model's.
            constrained: bind answers to their grammar; False for endpoints that take none.
            scored: score links. Where the backend cannot, the answer is written in lines after all, with confidence
                1; False does not try.
            max_tokens: of an extractor's answer.

        Raises: ValueError: an adapter of another stage, a negative number of retries.
        """
        adapters = dict(adapters or {})
        if unknown := sorted(adapters.keys() - set(STAGES)):
            raise ValueError(f"adapters: got {unknown[0]!r}, expected some of {STAGES}")
        if retries < 0:
            raise ValueError(f"retries: got {retries}, expected at least 0")
        self._backend, self._adapters, self._retries = backend, adapters, retries
        self._constrained, self._scored, self._max_tokens = constrained, scored, max_tokens
        known = getattr(backend, "config", None) is not None
        self.usage = {stage: Usage(flops=0 if known else None) for stage in STAGES}
        self.source_tokens = 0
        self.hashes = {"model": backend.model} | {
            stage: hashlib.sha256(system(stage, stage in adapters)["content"].encode()).hexdigest() for stage in STAGES
        } | {f"{stage}_adapter": adapters[stage] for stage in STAGES if stage in adapters}

    def extract(self, entries: Sequence[Entry]) -> list[Extraction]:
        """A prompt a chunk. An extraction with an error keeps the drafts of the chunks that went well."""
        chunks = [(i, j) for i, entry in enumerate(entries) for j in range(len(entry.chunks))]
        texts = [entries[i].text[slice(*entries[i].chunks[j])] for i, j in chunks]
        self.source_tokens += sum(map(self._count, texts))
        messages = [extract_messages(entries[i], j, tuned="extract" in self._adapters) for i, j in chunks]
        grammars = [lines.extract_grammar(text) if self._constrained else None for text in texts]
        answers = self._write("extract", messages, grammars, [self._max_tokens] * len(chunks),
                              lambda k, text, cut: lines.parse_drafts(text, chunk=chunks[k][1], cut=cut), Extraction)
        parts: list[list[Extraction]] = [[] for _ in entries]
        for (i, _), answer in zip(chunks, answers):
            parts[i].append(answer)
        return [_joined(p) for p in parts]

    def link(self, tasks: Sequence[LinkTask]) -> list[LinkAnswer]:
        """A prompt a task and candidate, alike up to its last line. A task without candidates asks nothing."""
        out: list[LinkAnswer | None] = [None if task.candidates else LinkAnswer() for task in tasks]
        if self._scored:
            pairs = [(i, j) for i, task in enumerate(tasks) for j in range(len(task.candidates))]
            scores = self._score([link_messages(tasks[i], j, tuned="link" in self._adapters) for i, j in pairs])
            for i in range(len(tasks)):
                own = [s for (k, _), s in zip(pairs, scores) if k == i]
                if own and all(s.error is None for s in own):
                    out[i] = LinkAnswer(tuple(link for j, s in enumerate(own) if (link := _best(j, s)) is not None))
        rest = [i for i, answer in enumerate(out) if answer is None]
        counts = [len(tasks[i].candidates) for i in rest]
        written = self._write(
            "link", [link_messages(tasks[i], None, tuned="link" in self._adapters) for i in rest],
            [lines.link_grammar(n) if self._constrained else None for n in counts], [LINE_TOKENS * n for n in counts],
            lambda k, text, cut: lines.parse_links(text, counts[k], cut=cut), LinkAnswer)
        for i, answer in zip(rest, written):
            out[i] = answer
        return out

    def update(self, tasks: Sequence[UpdateTask]) -> list[UpdateAnswer]:
        """A prompt a task; without candidates there is nothing to decide, and nothing is asked."""
        out = [UpdateAnswer() for _ in tasks]
        asked = [i for i, task in enumerate(tasks) if task.news and task.candidates]
        sizes = [(len(tasks[i].news), len(tasks[i].candidates)) for i in asked]
        written = self._write(
            "update", [update_messages(tasks[i], tuned="update" in self._adapters) for i in asked],
            [lines.update_grammar(*size) if self._constrained else None for size in sizes],
            [LINE_TOKENS * sum(size) for size in sizes],
            lambda k, text, cut: lines.parse_update(text, *sizes[k], cut=cut), UpdateAnswer)
        for i, answer in zip(asked, written):
            out[i] = answer
        return out

    def _write(self, stage: str, messages: Sequence[Messages], grammars: Sequence[Grammar | None],
               tokens: Sequence[int], parse: Callable[[int, str, bool], Any], kind: type) -> list[Any]:
        """Answers as `parse(place, text, cut)` reads them; kind(error=...) where no try gave one."""
        out: list[Any] = [None] * len(messages)
        rest = list(range(len(messages)))
        for attempt in range(1 + self._retries):
            if not rest:
                break
            requests = [Request(
                messages[i], Sampling(max_tokens=tokens[i], seed=attempt, temperature=AGAIN if attempt else 0.0),
                adapter=self._adapters.get(stage), grammar=grammars[i], thinking=False) for i in rest]
            for i, completion in zip(rest, self._backend.submit(requests)):
                self._add(stage, completion)
                if completion.finish == "error":
                    out[i] = kind(error=completion.error)
                else:
                    out[i] = parse(i, completion.text, completion.finish == "length")
                self.usage[stage].failed += out[i].error is not None
            rest = [i for i in rest if out[i].error is not None]
        return out

    def _score(self, messages: Sequence[Messages]) -> list[LabelScores]:
        requests = [Request(m, adapter=self._adapters.get("link"), thinking=False) for m in messages]
        scores = self._backend.score_labels(requests, [list(lines.LETTERS)] * len(requests)) if requests else []
        for s in scores:
            self._spend("link", s.prompt_tokens, s.cached_tokens, 0, failed=s.error is not None)
        return scores

    def _add(self, stage: str, c: Completion) -> None:
        self._spend(stage, c.prompt_tokens, c.cached_tokens, c.completion_tokens, failed=False)

    def _spend(self, stage: str, prompt: int, cached: int, generated: int, *, failed: bool) -> None:
        usage = self.usage[stage]
        usage.calls += 1
        usage.failed += failed
        usage.prompt_tokens += prompt
        usage.cached_tokens += cached
        usage.generated_tokens += generated
        if usage.flops is not None:
            usage.flops += flops(self._backend.config, prompt, cached, generated)

    def _count(self, text: str) -> int:
        tokenizer = getattr(self._backend, "tokenizer", None)
        return len(text.split()) if tokenizer is None else len(tokenizer.tokenize(text))


def flops(config: Any, prompt: int, cached: int, generated: int) -> int:
    """Operations of one call; config: a `core_jax.models.config.DecoderConfig`. The first token generated comes with
    the prompt's."""
    from core_jax.models.cost import decode_flops, prefill_flops

    head = 2 * config.hidden_size * config.vocab_size
    spent = prefill_flops(config, prompt) - (prefill_flops(config, cached) - head if cached else 0) if prompt else 0
    return spent + sum(decode_flops(config, prompt + i) for i in range(1, generated))


def _best(candidate: int, scores: LabelScores) -> Link | None:
    """The likeliest label, the first of equals; None where it is that of no relation."""
    place = int(scores.probs.argmax())
    label = lines.LABELS[place]
    if label.type is None:
        return None
    return Link(candidate, label.type, label.forward, min(1.0, float(scores.probs[place])))


def _joined(parts: Sequence[Extraction]) -> Extraction:
    problems: dict[str, int] = {}
    for part in parts:
        for name, count in part.problems.items():
            problems[name] = problems.get(name, 0) + count
    errors = [f"chunk {i}: {p.error}" for i, p in enumerate(parts) if p.error is not None]
    return Extraction(tuple(d for p in parts for d in p.drafts), dict(sorted(problems.items())),
                      "; ".join(errors) or None)
