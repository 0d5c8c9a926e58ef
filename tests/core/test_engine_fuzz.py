"""The engine over pages that hold token ids: the next token is a hash of all that a sequence's pages say.

Whatever arrives when, stops, goes away or breaks: who is served gets the tokens it would get alone.
"""
from __future__ import annotations

import zlib

import engine_cases as E
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.engine.answer import Answer
from core_jax.engine.engine import _Job
from core_jax.engine.pages import SINK
from core_jax.engine.request import Grammar, Request, Sampling

LENGTH = 48
END = E.tokenizer().eos_ids[0]
EVERY = (*range(3, 15), END)  # the tokens that may follow
NAMES = ("first", "second")


def number(*of) -> int:
    return zlib.crc32(repr(of).encode())


def score(slot, tokens, token) -> float:
    return -(number(slot, tokens, token) % 1000) / 64  # exact in float32


def following(slot, tokens, seed, index, allowed=None) -> int:
    """seed None: greedy, for which neither it nor the index counts."""
    key = (slot, tokens) if seed is None else (slot, tokens, seed, index)
    return min((t for t in EVERY if allowed is None or t in allowed), key=lambda t: number(key, t))


class Rule:
    """Grammar "odd N": odd tokens or the end; a 5 is followed by 7, 9; nothing follows N ("fails N": an error)."""

    def __init__(self, text):
        kind, most = text.split()
        self.fails, self.most, self.made = kind == "fails", int(most), []

    def allowed(self):
        if self.fails and len(self.made) >= self.most:
            raise ValueError("rule: cannot go on")
        return {*EVERY[::2], END}

    def mask(self):
        words = np.zeros(-(-E.config().vocab_size // 32), np.uint32)
        for token in self.allowed():
            words[token // 32] |= np.uint32(1) << np.uint32(token % 32)
        return words

    def advance(self, token):
        self.made.append(token)

    def forced(self):
        return (7, 9) if self.made[-1:] == [5] and not self.done else ()

    @property
    def done(self):
        return not self.fails and len(self.made) >= self.most


class Rules:
    def matcher(self, grammar):
        return Rule(grammar.text)


class Names:
    names, arrays = NAMES, ()


class Paper:
    """`Compute` by hand. pages: int [pages + 1, size, 2], the token and the adapter slot of each place."""

    def __init__(self, engine):
        self.engine, self.size, self.fault = engine, engine.pool.size, None

    def new(self):
        return np.full((self.engine.pool.count + 1, self.size, 2), -7)

    def _breaks(self, when):
        if self.fault == when:
            self.fault = None
            raise MemoryError("no room")

    def _write(self, kv, places):
        """places: (page, place) -> (token, slot)."""
        self._breaks("before")
        for (page, place), what in places.items():
            assert page != SINK and self.engine.pool.leases(page) > 0
            kv[page, place] = what
        self._breaks("after")

    def _read(self, kv, table, position, slot):
        held = kv[table[:position // self.size + 1]].reshape(-1, 2)[:position + 1]
        assert (held[:, 1] == slot).all(), "keys of another adapter"
        return int(slot), tuple(int(t) for t in held[:, 0])

    def extend(self, params, arrays, kv, ids, slot, step, outputs):
        n, rows = int(step.tokens), self.engine.limits.rows
        assert len(ids) in self.engine._scheduler.buckets and (step.row[n:] == rows).all()
        tiled = {}
        for tiles in (step.prefill, step.decode):
            for start, length, position, row in list(zip(*tiles[:4]))[:int(tiles.count)]:
                tiled |= {int(start) + i: (int(row), int(position) + i) for i in range(length)}
        assert tiled == {i: (int(step.row[i]), int(step.position[i])) for i in range(n)}
        pages = [int(step.table[step.row[i], step.position[i] // self.size]) for i in range(n)]
        places = {(pages[i], int(step.position[i] % self.size)): (int(ids[i]), int(slot[i])) for i in range(n)}
        assert len(places) == n, "two tokens in one place"
        self._write(kv, places)
        return kv, [self._read(kv, step.table[step.row[i]], int(step.position[i]), slot[i]) for i in outputs]

    def pick(self, params, hidden, places, choice, allowed):
        tokens, scores = np.zeros(len(places), np.int32), np.zeros(len(places), np.float32)
        for i, place in enumerate(places):
            words, (slot, held) = allowed[i], hidden[place]
            free = {t for t in EVERY if words[t // 32] >> np.uint32(t % 32) & np.uint32(1)}
            tokens[i] = following(slot, held, *_draw(choice, i), free)
            scores[i] = score(slot, held, int(tokens[i]))
        return tokens, scores

    def score(self, params, hidden, places, ids):
        return np.array([[score(*hidden[p], int(t)) for t in row] for p, row in zip(places, ids)], np.float32)

    def copy(self, kv, source, target):
        kv[target] = kv[source]
        return kv

    def decode(self, params, arrays, kv, rows, choice, steps, eager):
        count, horizon = len(rows.token), self.engine.limits.horizon
        assert steps <= horizon
        out, made = np.zeros((count, horizon), np.int32), np.zeros(count, np.int32)
        scores, token, live = np.zeros((count, horizon), np.float32), rows.token.copy(), rows.left > 0
        asked = live.copy()
        for i in range(steps):
            if not live.any() or eager and (asked & ~live).any():
                break
            here = np.flatnonzero(live)
            at = {r: divmod(int(rows.position[r] + made[r]), self.size) for r in here}
            places = {(int(rows.table[r, at[r][0]]), at[r][1]): (int(token[r]), int(rows.slot[r])) for r in here}
            assert len(places) == len(here), "two tokens in one place"
            self._write(kv, places)
            for r in here:
                slot, held = self._read(kv, rows.table[r], int(rows.position[r] + made[r]), rows.slot[r])
                seed, index = _draw(choice, r)
                token[r] = out[r, i] = following(slot, held, seed, index + int(made[r]))
                scores[r, i] = score(slot, held, int(token[r]))
                made[r] += 1
                live[r] = token[r] not in rows.stop[r] and made[r] < rows.left[r]
        return kv, out, made, scores


def _draw(choice, i):
    return (int(choice.seed[i]) if choice.temperature[i] else None), int(choice.index[i])


def on_paper(**limits):
    engine = E.engine(adapters=Names(), grammars=Rules(), **{"length": LENGTH} | limits)
    engine._compute = paper = Paper(engine)
    engine._new_kv = paper.new
    engine._kv = paper.new()
    return engine, paper


def alone(request: Request, length: int = LENGTH):
    """(tokens, finish, text, log probabilities), or the error, of a request by itself."""
    sampling, tokens = request.sampling, list(request.prompt)
    slot = -1 if request.adapter is None else NAMES.index(request.adapter)
    matcher = None if request.grammar is None else Rule(request.grammar.text)
    answer, made, scores = Answer(E.tokenizer(), sampling.stop, thinks=False), [], []
    limit, ends = min(length, len(tokens) + sampling.max_tokens), {END, *sampling.stop_tokens}
    forced, finish = [], "stop" if matcher is not None and matcher.done else None
    while finish is None:
        if forced:
            token, value = forced.pop(0), 0.0
        else:
            try:
                allowed = None if matcher is None else matcher.allowed()
            except ValueError as e:
                return str(e)
            held = tuple(tokens)
            token = following(slot, held, sampling.seed if sampling.temperature else None, len(made), allowed)
            value = score(slot, held, token)
        if token in ends:
            finish = "stop"
            break
        made, tokens, scores = [*made, token], [*tokens, token], [*scores, value]
        if answer.push(token):
            finish = "stop"
        elif len(tokens) >= limit:
            finish = "length"
        if matcher is not None:
            matcher.advance(token)
            forced = forced or list(matcher.forced())
            if finish is None and not forced and matcher.done:
                finish = "stop"
    answer.finish()
    return tuple(made), finish, answer.text, tuple(scores)


def got(completion):
    return completion.error or (completion.tokens, completion.finish, completion.text, completion.logprobs)


HEADS = [tuple((3, 4)[i * i % 7 % 2] for i in range(30)), (4,) * 30]
PIECE = st.lists(st.sampled_from([3, 4]), max_size=9)
TEXTS = ["".join(E.tokenizer().decode([t]) for t in ids) for ids in ((5, 6), (7, 9), (4,))]
SAMPLINGS = st.builds(
    Sampling, max_tokens=st.integers(1, 14), temperature=st.sampled_from([0.0, 0.7]), seed=st.integers(0, 2),
    stop=st.lists(st.sampled_from(TEXTS), max_size=2), logprobs=st.just(True),
    stop_tokens=st.sampled_from([(), (), (8,), tuple(range(400, 412)), (6, *range(400, 410))]))
RULES = st.sampled_from(["odd 6", "odd 0", "fails 0", "fails 3"])
GRAMMARS = st.none() | st.builds(Grammar, kind=st.just("lark"), text=RULES)
REQUESTS = st.builds(
    Request, sampling=SAMPLINGS, adapter=st.sampled_from([None, None, *NAMES]), grammar=GRAMMARS,
    prompt=st.builds(lambda head, n, rest: (*head[:n], *rest, 3), st.sampled_from(HEADS), st.integers(0, 30), PIECE))
EVENTS = st.lists(st.one_of(
    *[st.tuples(st.just("arrive"), REQUESTS)] * 2, st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("hang up"), st.integers(0, 9)), st.tuples(st.just("give up"), st.integers(0, 9)),
    st.tuples(st.just("break"), st.sampled_from(["before", "after"]))), min_size=1, max_size=24)
LIMITS = st.fixed_dictionaries({
    "rows": st.integers(1, 4), "page": st.sampled_from([1, 2, 5, 16]), "tokens": st.integers(LENGTH, 3 * LENGTH),
    "chunk": st.sampled_from([1, 8, 40]), "horizon": st.integers(1, 4)})


class Gone(Exception):
    pass


@settings(max_examples=80, deadline=None)
@given(limits=LIMITS, events=EVENTS)
def test_whoever_is_served_gets_its_own_tokens(limits, events):
    engine, paper = on_paper(**limits)
    jobs, away, given_up = [], set(), set()

    def step():
        try:
            engine._step()
        except MemoryError:
            pass

    for what, value in events:
        if what == "arrive":
            at = len(jobs)

            def listen(piece, at=at):
                if at in away:
                    raise Gone

            jobs.append(_Job(value, 0.0, on_text=listen))
            engine._arrived.append(jobs[-1])
        elif what == "break":
            paper.fault = value
        elif what == "hang up":
            away.add(value)
        elif what == "give up" and value < len(jobs) and not jobs[value].over:
            engine._give_up([jobs[value]])
            given_up.add(value)
        step()
    for _ in range(40 * len(jobs) + 2):
        step()
    for i, job in enumerate(jobs):
        if i in given_up:
            assert not job.over
        elif job.failure is not None:
            assert i in away and isinstance(job.failure, Gone)
        else:
            assert got(job.result) == alone(job.request)
            assert job.result.cached_tokens < job.result.prompt_tokens == len(job.request.prompt)
    assert engine.pool.leased == 0 and not engine._jobs
    assert not engine._scheduler.running and not engine._scheduler.waiting
    paper.fault = None
    again = engine.submit([job.request for job in jobs])
    assert [got(c) for c in again] == [alone(job.request) for job in jobs], "what stayed in the cache is what it says"


@settings(max_examples=30, deadline=None)
@given(limits=LIMITS, prompts=st.lists(st.tuples(REQUESTS, st.lists(st.lists(
    st.sampled_from("abc"), min_size=1, max_size=3).map("".join), min_size=1, max_size=4)), min_size=1, max_size=5))
def test_labels_are_scored_as_if_alone(limits, prompts):
    engine, _ = on_paper(**limits)
    out = engine.score_labels([request for request, _ in prompts], [labels for _, labels in prompts])
    for (request, labels), scores in zip(prompts, out):
        slot = -1 if request.adapter is None else NAMES.index(request.adapter)
        for label, value in zip(labels, scores.log_probs):
            tokens, held = E.tokenizer().tokenize(label), request.prompt
            assert value == sum(score(slot, (*held, *tokens[:i]), t) for i, t in enumerate(tokens))
    assert engine.pool.leased == 0 and not engine._jobs


def test_the_cases_meet_what_they_are_meant_to():
    """Preemption, shared pages, copies, an end by each cause."""
    engine, _ = on_paper(rows=4, page=5, tokens=LENGTH + 5, chunk=8, horizon=3)
    requests = [Request((*HEADS[0][:n], 3), Sampling(max_tokens=14, temperature=0.7, seed=n, logprobs=True))
                for n in range(8, 30)]
    out = engine.submit(requests)
    assert [got(c) for c in out] == [alone(r) for r in requests]
    assert engine.progress().preemptions > 0 and engine.progress().cached > 0 and engine.pool.evicted > 0
    assert {c.finish for c in out} == {"stop", "length"}
    with pytest.raises(AssertionError, match="another adapter"):
        kv = engine._kv
        kv[:, :, 1] = 5
        engine.submit(requests[:1])
