"""The engine: requests in, completions out, many at a time over one set of pages.

Nobody owns a thread here. Whoever waits for a completion runs the steps, for all requests that are under way; requests
from other threads join the running batch, and when the one that ran the steps has what it wanted the next takes over.
"""
from __future__ import annotations

import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from core_jax import params as P
from core_jax.chat import encode_chat
from core_jax.engine import cache, sample
from core_jax.engine.answer import OPENING, Answer
from core_jax.engine.backend import OnDone, OnText
from core_jax.engine.compute import BASE, Adapters, Compute, Rows, ladder
from core_jax.engine.pages import SINK, PagePool
from core_jax.engine.request import Completion, Grammar, LabelScores, Request
from core_jax.engine.scheduler import Plan, Row, Scheduler
from core_jax.mesh import mesh_of
from core_jax.models import decoder
from core_jax.models.config import DecoderConfig
from core_jax.text import Tokenizer

SINGLE = 8  # chunks of up to so many tokens attend query by query
STOP_WIDTH = 8  # stop tokens that are looked for on the device; others are seen when the host has the tokens


class Matcher(Protocol):
    """Where a completion stands in its grammar (core_jax/engine/grammar.py)."""

    def mask(self) -> np.ndarray: ...
    def advance(self, token: int) -> None: ...
    def forced(self) -> Sequence[int]: ...
    @property
    def done(self) -> bool: ...


class Grammars(Protocol):
    def matcher(self, grammar: Grammar) -> Matcher: ...


@dataclasses.dataclass(frozen=True)
class Limits:
    """Sizes that are fixed when an engine is made.

    rows: sequences that run side by side. page: tokens of a page. tokens: whose keys and values there is room for,
    prefix cache included; None = 2,048 a row, or one sequence of `length`. length: most tokens of a sequence, prompt
    included; None = the model's, at most 8,192. chunk: most tokens of a step. horizon: most tokens a row gets on the
    device before the host looks.

    Raises: ValueError naming the field.
    """

    rows: int = 8
    page: int = 128
    tokens: int | None = None
    length: int | None = None
    chunk: int = 512
    horizon: int = 8

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name}: got {value!r}, expected a positive integer")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where an engine stands after a step. computed: tokens computed so far, padding left out; generated: tokens of
    completions; cached: prompt tokens that were not computed; pages: leased; preemptions: rows that had to give way."""

    running: int
    waiting: int
    steps: int
    computed: int
    generated: int
    cached: int
    pages: int
    preemptions: int


@dataclasses.dataclass(eq=False)
class _Job:
    """One request, or one prompt with some of its labels, from submission to its result."""

    request: Request
    began: float
    row: Row | None = None
    answer: Answer | None = None
    matcher: Matcher | None = None
    stop: frozenset[int] = frozenset()
    ends: tuple[int, ...] = ()  # of `stop`, those that the device looks for
    made: list[int] = dataclasses.field(default_factory=list)
    scores: list[float] = dataclasses.field(default_factory=list)
    labels: list[list[tuple[int, int]]] | None = None  # of each output of the row: (label, token)
    label_scores: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)  # by (output, label)
    first: float | None = None
    on_text: OnText | None = None
    on_done: Callable[[Completion], None] | None = None
    result: Completion | None = None
    failure: BaseException | None = None  # of a callback: raised where the request was submitted

    @property
    def over(self) -> bool:
        return self.result is not None or self.failure is not None


class Engine:
    """A decoder that serves requests (`core_jax.engine.backend.Backend`, and `Streaming`).

    Attributes:
        model: names the weights, on every completion. traces: Counter of compilations by (function, shape); nothing is
        added to it after `warmup()`.
    """

    def __init__(
        self, config: DecoderConfig, params: P.Tree, tokenizer: Tokenizer, *, model: str = "model",
        limits: Limits | None = None, adapters: Adapters | None = None, grammars: Grammars | None = None,
        kv_dtype: str | None = None, unroll: bool = False, on_step: Callable[[Progress], None] | None = None,
    ):
        """
        Args:
            params: of `decoder.spec(config)`; the engine keeps them. Where they lie on a mesh (placed by
                `decoder.rules`), it computes there.
            adapters: what requests may name; None = the base model alone.
            grammars: compiles grammars; None = `core_jax.engine.grammar.Grammars` on first use.
            kv_dtype: of the cache; None = `cache.dtype_beside` the embedding table.
            unroll: compile layer by layer: on a CPU a quarter faster with 4 to 32 rows, ten times longer to compile.
            on_step: told after every step, from whichever thread runs it.

        Raises:
            ValueError: a tokenizer with more tokens than the model; limits that the model or each other exclude.
        """
        if tokenizer.vocab_size > config.vocab_size:
            raise ValueError(f"{tokenizer.where}: got a vocabulary of {tokenizer.vocab_size} tokens, expected at most "
                             f"the model's {config.vocab_size}")
        limits = limits or Limits()
        length = min(limits.length or min(config.max_positions, 8192), config.max_positions)
        width = -(-length // limits.page)
        pages = max(-(-limits.tokens // limits.page) if limits.tokens else -(-2048 // limits.page) * limits.rows, width)
        if limits.tokens and limits.tokens < length:
            if limits.length:
                raise ValueError(f"tokens: got {limits.tokens}, expected room for one sequence of {length}")
            length = limits.tokens
            pages, width = -(-limits.tokens // limits.page), -(-limits.tokens // limits.page)
        self.config, self.tokenizer, self.model, self.limits, self.length = config, tokenizer, model, limits, length
        self._kv_dtype = kv_dtype or cache.dtype_beside(params["embed"]["token"])
        cache.check_room(config, pages * limits.page, self._kv_dtype, mesh_of(params))
        self.pool = PagePool(pages, limits.page)
        self._sizes = ladder(limits.rows)
        buckets = ladder(max(limits.chunk, limits.rows + 1))
        self._scheduler = Scheduler(self.pool, rows=limits.rows, buckets=buckets, outputs=limits.rows)
        self._adapters, self._grammars, self._on_step = adapters, grammars, on_step
        self._compute = Compute(config, adapters, limits.horizon, mesh_of(params))
        self._width, self._words = width, sample.words(config.vocab_size)
        self._params = decoder.unstack(params) if unroll else params
        self._kv = self._new_kv()
        self._everything = np.full((1, self._words), 0xFFFFFFFF, np.uint32)
        self._turn = threading.Condition()  # guards all below, and who runs the steps
        self._driven = False
        self._jobs: dict[Row, _Job] = {}
        self._arrived: list[_Job] = []
        self._numbers = itertools.count()
        self._steps = self._computed = self._generated = self._cached = 0

    @classmethod
    def load(cls, path: str | os.PathLike, **options: Any) -> Engine:
        """From a Hugging Face folder or a GGUF file; options as `core_jax.engine.local.load`."""
        from core_jax.engine import local

        return local.load(path, **options)

    # ---- the backend's face --------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Completion]:
        """Completions in the order of the requests; see `Backend`. `on_done` is called from whichever thread runs the
        steps; what it raises comes out here, once the other requests are through."""
        began = time.perf_counter()
        jobs = [_Job(r, began, on_done=None if on_done is None else lambda c, i=i: on_done(i, c))
                for i, r in enumerate(requests)]
        self._run(jobs)
        return [job.result for job in jobs]

    def stream(self, request: Request, on_text: OnText) -> Completion:
        """See `Streaming`."""
        job = _Job(request, time.perf_counter(), on_text=on_text)
        self._run([job])
        return job.result

    def score_labels(self, prompts: Sequence[Request], labels: Sequence[Sequence[str]]) -> list[LabelScores]:
        """See `Backend`. A prompt is computed once: labels of one token are read off its last output, longer ones
        continue from its cached pages. A label is the tokens of its text by itself.

        Raises: ValueError: another number of prompts than of lists of labels.
        """
        if len(prompts) != len(labels):
            raise ValueError(f"labels: got {len(labels)} lists, expected one for each of {len(prompts)} prompts")
        began = time.perf_counter()
        parts: list[tuple[list[_Job], list[list[int]]]] = []
        bad: dict[int, str] = {}
        for i, (request, names) in enumerate(zip(prompts, labels)):
            tokens = []
            try:
                tokens = self._label_tokens(names)
            except ValueError as e:
                bad[i] = str(e)
            parts.append(([_Job(request, began, labels=[[(j, t[0]) for j, t in enumerate(tokens)]])], tokens))
        heads = [jobs[0] for i, (jobs, _) in enumerate(parts) if i not in bad]
        self._run(heads)
        for i, (jobs, tokens) in enumerate(parts):
            if i in bad or jobs[0].result.finish == "error":
                continue
            seen: dict[tuple[int, ...], int] = {}
            for j, label in enumerate(tokens):
                if len(label) > 1 and seen.setdefault(tuple(label), j) == j:
                    rest = [[(j, token)] for token in label[1:]]
                    jobs.append(_Job(jobs[0].request, began, labels=[[], *rest], made=label[:-1]))
        self._run([job for i, (jobs, _) in enumerate(parts) if i not in bad for job in jobs[1:]])
        out = []
        for i, (jobs, tokens) in enumerate(parts):
            error = bad.get(i) or next((j.result.error for j in jobs if j.result.error), None)
            if error:
                out.append(LabelScores.failed(error))
                continue
            total, same = np.zeros(len(tokens), np.float64), {}
            for job in jobs:
                for (_, j), value in job.label_scores.items():
                    total[j] += value
            total = [total[same.setdefault(tuple(label), j)] for j, label in enumerate(tokens)]
            result = jobs[0].result
            out.append(LabelScores.of(total, prompt_tokens=result.prompt_tokens, cached_tokens=result.cached_tokens))
        return out

    @property
    def traces(self):
        return self._compute.traces

    def progress(self) -> Progress:
        return Progress(
            running=len(self._scheduler.running), waiting=len(self._scheduler.waiting), steps=self._steps,
            computed=self._computed, generated=self._generated, cached=self._cached, pages=self.pool.leased,
            preemptions=self._scheduler.preemptions)

    def warmup(self) -> None:
        """Compiles every shape of the ladder (two to three seconds each on two cores, ten times that unrolled)."""
        with self._turn:
            while self._driven:
                self._turn.wait()
            for size in self._scheduler.buckets:
                self._extend(Plan((), (), size, 0))
            hidden = np.zeros((self.limits.rows, self.config.hidden_size), self._params["embed"]["token"].dtype)
            hidden = jax.device_put(hidden, self._compute.whole)
            for size in self._sizes:
                self._pick(hidden, [], size)
                self._score(hidden, [], [], size)
                self._decode((), 1, False, size)
            self._kv = self._compute.copy(self._kv, np.int32(SINK), np.int32(SINK))
            jax.block_until_ready(self._kv)

    # ---- whose turn it is ----------------------------------------------------------------------------------------

    def _run(self, jobs: Sequence[_Job]) -> None:
        """Returns when all are over. Raises: what a callback of theirs raised."""
        with self._turn:
            self._arrived += jobs
        try:
            while True:
                with self._turn:
                    while self._driven and not all(job.over for job in jobs):
                        self._turn.wait()
                    if all(job.over for job in jobs):
                        break
                    self._driven = True
                try:
                    while not all(job.over for job in jobs):
                        self._step()
                        with self._turn:
                            self._turn.notify_all()
                finally:
                    with self._turn:
                        self._driven = False
                        self._turn.notify_all()
        finally:
            self._give_up([job for job in jobs if not job.over])
        for job in jobs:
            if job.failure is not None:
                raise job.failure

    def _give_up(self, jobs: Sequence[_Job]) -> None:
        """After an exception: these leave, the others go on in whoever drives next."""
        if not jobs:
            return
        with self._turn:
            while self._driven:
                self._turn.wait()
            for job in jobs:
                if job in self._arrived:
                    self._arrived.remove(job)
                elif job.row in self._jobs:
                    del self._jobs[job.row]
                    self._scheduler.remove(job.row, keep=False)

    def _step(self) -> None:
        """One step, run by the thread whose turn it is."""
        while True:
            with self._turn:
                if not self._arrived:
                    break
                job = self._arrived.pop(0)
            self._admit(job)
        for job in [j for j in self._jobs.values() if j.on_text is not None]:
            self._tell(job, "")
        plan = self._scheduler.plan(self.limits.horizon)
        if plan is None:
            if self._jobs:
                raise RuntimeError(f"{len(self._jobs)} requests are under way and none can run")
            return
        try:
            for source, target in plan.copies:
                self._kv = self._compute.copy(self._kv, np.int32(source), np.int32(target))
            if plan.steps:
                self._decode_rows(plan)
            else:
                self._extend_rows(plan)
        except BaseException:
            self._scheduler.restart()  # the pages were given away and may be lost
            self._kv = self._new_kv()
            raise
        self._steps += 1
        if self._on_step is not None:
            self._on_step(self.progress())

    def _new_kv(self) -> cache.KV:
        return cache.new(self.config, self.pool.count, self.pool.size, self._kv_dtype, self._compute.pages)

    # ---- from a request to a row, and from a row to a completion ---------------------------------------------------

    def _admit(self, job: _Job) -> None:
        """Makes a request a row, or ends it where it stands."""
        try:
            self._prepare(job)
            if job.matcher is not None:
                self._force(job)
        except ValueError as e:
            self._end(job, "error", error=str(e))
        except BaseException as e:  # a fault, not a refusal: its own thread hears of it, the others go on
            job.failure = e
            if not isinstance(e, Exception):
                raise
        if not job.over:
            self._jobs[job.row] = job
            self._scheduler.add(job.row)

    def _prepare(self, job: _Job) -> None:
        """The job's row, and what its answer is read with. Raises: ValueError: a request that cannot be served."""
        tokens, thinks = self._tokens(job.request)
        slot = self._slot(job.request.adapter)
        self._check_length(len(tokens) + len(job.made))
        limit, made = self.length, job.made
        if job.labels is None:
            sampling = job.request.sampling
            limit = min(limit, len(tokens) + sampling.max_tokens)
            job.answer = Answer(self.tokenizer, sampling.stop, thinks=thinks)
            job.stop = frozenset((*self.tokenizer.eos_ids, *sampling.stop_tokens))
            job.ends = tuple(sorted(job.stop)[:STOP_WIDTH])
            if job.request.grammar is not None:
                job.matcher = self._compiler().matcher(job.request.grammar)
        job.made = []
        job.row = Row(next(self._numbers), slot, [*tokens, *made], limit, len(tokens) - 1, owner=len(tokens),
                      host=job.labels is not None or job.matcher is not None)

    def _tokens(self, request: Request) -> tuple[list[int], bool]:
        """(prompt tokens, whether the prompt opens a thinking block). Raises: ValueError."""
        if not request.prompt:
            raise ValueError("prompt: got none, expected text, token ids or messages")
        if isinstance(request.prompt, str):
            _check_text("prompt", request.prompt)
            tokens = self.tokenizer.tokenize(request.prompt, add_special=True)
        elif request.is_chat:
            tokens = encode_chat(request.prompt, self.tokenizer, enable_thinking=request.thinking)
        else:
            tokens = list(request.prompt)
            if bad := [t for t in tokens if t >= self.config.vocab_size]:
                raise ValueError(f"prompt: got token {bad[0]}, expected ids below {self.config.vocab_size}")
        if not tokens:
            raise ValueError("prompt: got no token")
        end = self.tokenizer.decode(tokens[-8:], skip_special=False).rstrip()
        return tokens, end.endswith(OPENING)

    def _label_tokens(self, labels: Sequence[str]) -> list[list[int]]:
        for label in labels:
            _check_text("label", label)
        tokens = [self.tokenizer.tokenize(label, control=False) for label in labels]
        if not tokens or not all(tokens):
            raise ValueError("labels: got none, or an empty one")
        return tokens

    def _slot(self, adapter: str | None) -> int:
        if adapter is None:
            return BASE
        names = () if self._adapters is None else self._adapters.names
        if adapter not in names:
            raise ValueError(f"adapter: got {adapter!r}, expected one of {list(names)}")
        return names.index(adapter)

    def _check_length(self, tokens: int) -> None:
        if tokens + 1 > self.length:
            raise ValueError(f"prompt: got {tokens} tokens, expected at most {self.length - 1}: a sequence has "
                             f"{self.length} with its answer")

    def _compiler(self) -> Grammars:
        if self._grammars is None:
            from core_jax.engine.grammar import Grammars as Compiler

            self._grammars = Compiler(
                self.tokenizer, vocab_size=self.config.vocab_size, stop_tokens=self.tokenizer.eos_ids)
        return self._grammars

    def _force(self, job: _Job) -> None:
        """Tokens that the grammar leaves no choice about, taken without sampling."""
        if job.matcher.done:
            self._end(job, "stop")
            return
        for token in job.matcher.forced():
            if token in job.stop:
                self._end(job, "stop")
                return
            job.matcher.advance(token)
            self._take(job, token, 0.0, forced=True)
            if job.over:
                return
        if job.matcher.done:
            self._end(job, "stop")

    def _take(self, job: _Job, token: int, score: float, *, forced: bool = False) -> None:
        """A new token of a completion: ends it, or makes it the next to compute."""
        self._generated += 1
        if job.first is None:
            job.first = time.perf_counter() - job.began
        row = job.row
        if token in job.stop and not forced:
            self._end(job, "stop", extra=1)
            return
        job.made.append(token)
        job.scores.append(score)
        row.tokens.append(token)
        row.want = len(row.tokens) - 1
        if job.answer.push(token):
            self._end(job, "stop")
        elif len(row.tokens) >= row.limit:
            self._end(job, "length")
        elif job.on_text is not None:
            self._show(job)
        if not job.over and job.matcher is not None and not forced:
            try:
                job.matcher.advance(token)
                self._force(job)
            except ValueError as e:
                self._end(job, "error", error=str(e))

    def _show(self, job: _Job, *, last: bool = False) -> None:
        if piece := job.answer.certain(last=last):
            self._tell(job, piece)

    def _tell(self, job: _Job, piece: str) -> None:
        try:
            job.on_text(piece)
        except BaseException as e:  # whoever listens has gone: its own thread hears of it
            self._leave(job)
            job.failure = e

    def _leave(self, job: _Job) -> None:
        if self._jobs.pop(job.row, None) is not None:
            self._scheduler.remove(job.row)

    def _end(self, job: _Job, finish: str, *, error: str | None = None, extra: int = 0) -> None:
        row, request = job.row, job.request
        prompt, cached = (0, 0) if row is None else (row.owner, min(row.cached or 0, row.owner))
        if row is not None:
            self._leave(job)
            self._cached += cached
        if job.answer is not None and error is None:
            job.answer.finish()
            if job.on_text is not None:
                self._show(job, last=True)
                if job.over:
                    return
        if error is not None:
            job.result = Completion.failed(request, self.model, error, prompt_tokens=prompt)
        else:
            answer = job.answer
            job.result = Completion(
                text="" if answer is None else answer.text, tokens=tuple(job.made), finish=finish, error=None,
                prompt_tokens=prompt, cached_tokens=cached, completion_tokens=len(job.made) + extra,
                prompt_sha256=request.prompt_sha256(), model=self.model, sampling=request.sampling,
                thinking="" if answer is None else answer.thinking, seconds_to_first_token=job.first,
                logprobs=tuple(job.scores) if request.sampling.logprobs else None)
        if job.on_done is not None:
            try:
                job.on_done(job.result)
            except BaseException as e:
                job.failure = e

    # ---- steps ---------------------------------------------------------------------------------------------------

    def _arrays(self) -> Any:
        return () if self._adapters is None else self._adapters.arrays

    def _decode_rows(self, plan: Plan) -> None:
        rows = [chunk.row for chunk in plan.chunks]
        jobs = [self._jobs[row] for row in rows]
        size = next(s for s in self._sizes if s >= len(rows))
        tokens, made, scores = self._decode(jobs, plan.steps, bool(self._scheduler.waiting or self._arrived), size)
        self.pool.settle()
        for i, (row, job) in enumerate(zip(rows, jobs)):
            self._computed += int(made[i])
            for j in range(int(made[i])):
                row.computed += 1
                self._take(job, int(tokens[i, j]), float(scores[i, j]))
                if job.over:
                    break

    def _decode(
        self, jobs: Sequence[_Job], steps: int, eager: bool, size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """tokens [size, horizon], how many are real [size], log probabilities [size, horizon]."""
        token, position, left = np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32)
        slot, stop = np.full(size, BASE, np.int32), np.full((size, STOP_WIDTH), -1, np.int32)
        for i, job in enumerate(jobs):
            row = job.row
            token[i], position[i], left[i] = row.tokens[-1], len(row.tokens) - 1, row.limit - len(row.tokens)
            slot[i] = row.adapter
            stop[i, :len(job.ends)] = job.ends
        rows = Rows(token, position, left, slot, stop, self._table([j.row for j in jobs], size))
        self._kv, tokens, made, scores = self._compute.decode(
            self._params, self._arrays(), self._kv, rows, self._choice(jobs, size), np.int32(steps), np.bool_(eager))
        return jax.device_get((tokens, made, scores))

    def _extend_rows(self, plan: Plan) -> None:
        hidden = self._extend(plan)
        self.pool.settle()
        sampled: list[tuple[int, _Job]] = []
        scored: list[tuple[int, _Job, int]] = []
        ended: list[_Job] = []
        at = 0
        for chunk in plan.chunks:
            job = self._jobs[chunk.row]
            self._computed += chunk.count
            for place in range(max(chunk.start, chunk.output), chunk.stop):
                if job.labels is None:
                    sampled.append((at, job))
                elif job.labels[place - chunk.output]:
                    scored.append((at, job, place - chunk.output))
                at += 1
            if job.labels is not None and chunk.stop == len(chunk.row.tokens):
                ended.append(job)
        if sampled:
            self._sample(hidden, sampled)
        if scored:
            values = self._score(hidden, [at for at, _, _ in scored], [
                [token for _, token in job.labels[place]] for _, job, place in scored], None)
            for row, (_, job, place) in zip(values, scored):
                for (label, _), value in zip(job.labels[place], row):
                    job.label_scores[place, label] = float(value)
        for job in ended:
            self._end(job, "stop")

    def _extend(self, plan: Plan) -> jax.Array:
        """[G, D]: the outputs of the plan's chunks, in their order."""
        size, rows = plan.bucket, self.limits.rows
        ids, position = np.zeros(size, np.int32), np.zeros(size, np.int32)
        slot, row = np.full(size, BASE, np.int32), np.full(size, rows, np.int32)
        outputs = np.zeros(rows, np.int32)
        wide: list[tuple[int, int, int, int]] = []
        single: list[tuple[int, int, int, int]] = []
        at = kept = 0
        for i, chunk in enumerate(plan.chunks):
            here = slice(at, at + chunk.count)
            ids[here] = chunk.row.tokens[chunk.start:chunk.stop]
            position[here] = np.arange(chunk.start, chunk.stop)
            slot[here], row[here] = chunk.row.adapter, i
            step = 1 if chunk.count <= SINGLE else cache.TILE
            for j in range(0, chunk.count, step):
                tile = (at + j, min(step, chunk.count - j), chunk.start + j, i)
                (single if step == 1 else wide).append(tile)
            for place in range(max(chunk.start, chunk.output), chunk.stop):
                outputs[kept] = at + place - chunk.start
                kept += 1
            at += chunk.count
        step = cache.Step(
            row, position, np.int32(at), self._table([c.row for c in plan.chunks], rows),
            _tiles(wide, 0 if size <= SINGLE else min(size // cache.TILE + rows, size // SINGLE)),
            _tiles(single, min(size, SINGLE * rows)))
        self._kv, hidden = self._compute.extend(self._params, self._arrays(), self._kv, ids, slot, step, outputs)
        return hidden

    def _sample(self, hidden: jax.Array, sampled: Sequence[tuple[int, _Job]]) -> None:
        ready: list[tuple[int, _Job, np.ndarray | None]] = []
        for at, job in sampled:
            try:
                ready.append((at, job, None if job.matcher is None else job.matcher.mask()))
            except ValueError as e:
                self._end(job, "error", error=str(e))
        if ready:
            tokens, scores = self._pick(hidden, ready, None)
            for (_, job, _), token, score in zip(ready, tokens, scores):
                self._take(job, int(token), float(score))

    def _pick(
        self, hidden: jax.Array, ready: Sequence[tuple[int, _Job, np.ndarray | None]], size: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """ready: (place of the output, job, words of what its grammar allows) -> tokens, log probabilities [size]."""
        size = size or next(s for s in self._sizes if s >= len(ready))
        places = np.zeros(size, np.int32)
        allowed = np.repeat(self._everything, size, axis=0)
        for i, (at, _, mask) in enumerate(ready):
            places[i] = at
            if mask is not None:
                allowed[i] = mask
        choice = self._choice([job for _, job, _ in ready], size)
        return jax.device_get(self._compute.pick(self._params, hidden, places, choice, allowed))

    def _score(
        self, hidden: jax.Array, places: Sequence[int], ids: Sequence[Sequence[int]], size: int | None
    ) -> np.ndarray:
        """[size, C] log probabilities of ids[i] after the output at places[i]."""
        size = size or next(s for s in self._sizes if s >= len(places))
        width = 8
        while width < max(map(len, ids), default=1):
            width *= 4
        at, wanted = np.zeros(size, np.int32), np.zeros((size, width), np.int32)
        for i, (place, row) in enumerate(zip(places, ids)):
            at[i], wanted[i, :len(row)] = place, row
        return jax.device_get(self._compute.score(self._params, hidden, at, wanted))

    def _table(self, rows: Sequence[Row], size: int) -> np.ndarray:
        table = np.full((size + 1, self._width), SINK, np.int32)
        for i, row in enumerate(rows):
            table[i, :len(row.pages)] = row.pages
        return table

    def _choice(self, jobs: Sequence[_Job], size: int) -> sample.Choice:
        choice = sample.Choice(np.zeros(size, np.float32), np.ones(size, np.float32), np.zeros(size, np.int32),
                               np.zeros(size, np.uint32), np.zeros(size, np.int32))
        for i, job in enumerate(jobs):
            s = job.request.sampling
            for array, value in zip(choice, (s.temperature, s.top_p, s.top_k, s.seed, len(job.made))):
                array[i] = value
        return choice


def _tiles(tiles: Sequence[tuple[int, int, int, int]], room: int) -> cache.Tiles:
    arrays = np.zeros((4, room), np.int32)
    for i, tile in enumerate(tiles):
        arrays[:, i] = tile
    return cache.Tiles(*arrays, np.int32(len(tiles)))


def _check_text(what: str, text: str) -> None:
    """Raises: ValueError: half a surrogate pair, which no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise ValueError(f"{what}: character {e.start} is half a surrogate pair") from None
