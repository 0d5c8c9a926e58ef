"""The engine against a plain loop over whole sequences: same tokens whatever runs beside; errors alone; no compile."""
import threading

import engine_cases as E
import jax
import numpy as np
import pytest

from core_jax.engine.backend import Backend, Streaming
from core_jax.engine.request import Grammar, Request, Sampling
from core_jax.models import cost


class Spelled:
    """A matcher of one string: its tokens with choices where `choices` names several for a place."""

    def __init__(self, tokens, free, words, end):
        self.tokens, self.free, self.words, self.end, self.at = tokens, free, words, end, 0

    def mask(self):
        bits = np.zeros(self.words, np.uint32)
        for token in self.free[self.at] if self.at < len(self.tokens) else (self.end,):
            bits[token // 32] |= np.uint32(1) << np.uint32(token % 32)
        return bits

    def advance(self, token):
        allowed = self.free.get(self.at, (self.tokens[self.at],))
        if token not in allowed:
            raise ValueError(f"token {token} is not allowed at {self.at}")
        self.at += 1

    def forced(self):
        stop = self.at
        while stop < len(self.tokens) and stop not in self.free:
            stop += 1
        return self.tokens[self.at:stop]

    @property
    def done(self):
        return self.at == len(self.tokens)


class Failing(Spelled):
    """Cannot go on in its method `fault`: `forced` at once, `mask` at the first choice, `advance` at the end."""

    fault = ""

    def mask(self):
        if self.fault == "mask":
            raise ValueError("grammar: fails in mask")
        return super().mask()

    def advance(self, token):
        super().advance(token)
        if self.fault == "advance" and self.done:
            raise ValueError("grammar: fails in advance")

    def forced(self):
        if self.fault == "forced":
            raise ValueError("grammar: fails in forced")
        return super().forced()


class Spelling:
    """Grammar text "yes,no": `{"a": `, then one of the words' first tokens, then `}`; "fails mask": as `Failing`."""

    def matcher(self, grammar):
        if grammar.text == "broken":
            raise ValueError("grammar: cannot be read")
        fault = grammar.text.removeprefix("fails ") if grammar.text.startswith("fails ") else ""
        kind = Failing if fault else Spelled
        t = E.tokenizer()
        head, tail = t.tokenize('{"a": '), t.tokenize("}")
        words = [t.tokenize(w)[0] for w in grammar.text.split(",")]
        tokens = [*head, words[0], *tail]
        matcher = kind(tokens, {len(head): tuple(words)}, -(-E.config().vocab_size // 32), t.eos_ids[0])
        matcher.fault = fault
        return matcher


SEEN = []


@pytest.fixture(scope="module", autouse=True)
def quick():
    with E.quick_compiles():
        yield


@pytest.fixture(scope="module")
def engine():
    return E.engine(grammars=Spelling(), on_step=SEEN.append)


def test_it_is_a_backend(engine):
    assert isinstance(engine, Backend) and isinstance(engine, Streaming)


def test_a_ragged_batch_gives_the_tokens_of_the_plain_loop(engine, monkeypatch):
    scheduler, full = engine._scheduler, []
    plan = scheduler.plan

    def watched(horizon):
        step = plan(horizon)
        full.append(len(scheduler.running) == 4 or not scheduler.waiting)
        return step

    monkeypatch.setattr(scheduler, "plan", watched)
    counts = [3, 24, 9, 1, 17, 12, 20, 11]
    done = []
    out = engine.submit([Request(p, Sampling(max_tokens=n)) for p, n in zip(E.PROMPTS, counts)],
                        on_done=lambda i, c: done.append((i, c)))
    for prompt, n, c in zip(E.PROMPTS, counts, out):
        assert c.tokens == E.greedy(prompt, n)
        assert c.finish == ("length" if len(c.tokens) == n else "stop")
        assert (c.prompt_tokens, c.error) == (len(prompt), None)
        assert c.completion_tokens == len(c.tokens) + (c.finish == "stop")
        assert c.text == E.tokenizer().decode(c.tokens) and c.prompt_sha256 == Request(prompt).prompt_sha256()
        assert c.seconds_to_first_token > 0 and c.model == "tiny" and c.sampling.max_tokens == n
    assert [c.cached_tokens for c in out[:4]] == [0, 37, 37, 37], "the shared beginning is computed once, to the token"
    assert sorted(i for i, _ in done) == list(range(8)) and all(out[i] is c for i, c in done)
    assert all(full[12:]) and sum(full) > 12, "once the first prompts are in, a free place is taken at once"
    assert engine.pool.leased == 0 and engine.progress().running == 0
    again = engine.submit([Request(p, Sampling(max_tokens=n)) for p, n in zip(E.PROMPTS, counts)])
    assert [c.tokens for c in again] == [c.tokens for c in out], "with the cache and without"
    assert [c.cached_tokens for c in again] == [len(p) - 1 for p in E.PROMPTS]


def test_a_seed_gives_the_same_tokens_beside_anything(engine):
    alone = engine.submit([Request(E.PROMPTS[4], E.HOT)])[0]
    assert alone.tokens == E.drawn(E.PROMPTS[4], E.HOT)
    others = [Request(p, Sampling(max_tokens=9, temperature=t)) for p, t in zip(E.PROMPTS[:4], (0.0, 1.5, 0.7, 0.0))]
    assert engine.submit([*others, Request(E.PROMPTS[4], E.HOT)])[-1].tokens == alone.tokens
    other = engine.submit([Request(E.PROMPTS[4], Sampling(**{**vars(E.HOT), "seed": 6}))])[0]
    assert other.tokens != alone.tokens
    rows = E.logits([*E.PROMPTS[4], *alone.tokens])[len(E.PROMPTS[4]) - 1:-1]
    want = [row[t] - np.logaddexp.reduce(row.astype(np.float64)) for row, t in zip(rows, alone.tokens)]
    np.testing.assert_allclose(alone.logprobs, want, rtol=1e-4, atol=1e-3)


def test_stop_strings_cut_the_text_across_tokens_and_stop_tokens_end_it(engine):
    whole = engine.submit([Request(E.PROMPTS[1], Sampling(max_tokens=24))])[0]
    pieces = [E.tokenizer().decode([t]) for t in whole.tokens]
    at = next(i for i in range(4, 20) if all(p and p.isascii() for p in pieces[i:i + 2]))
    stop = pieces[at][-1] + pieces[at + 1][0]
    at = whole.text.index(stop)
    cut = engine.submit([Request(E.PROMPTS[1], Sampling(max_tokens=24, stop=(stop, "never there")))])[0]
    assert cut.text == whole.text[:at] and cut.finish == "stop" and stop in E.tokenizer().decode(cut.tokens)
    token = next(t for i, t in enumerate(whole.tokens) if i > 2 and t not in whole.tokens[:i])
    ended = engine.submit([Request(E.PROMPTS[1], Sampling(max_tokens=24, stop_tokens=(token, *range(400, 420))))])[0]
    assert ended.tokens == whole.tokens[:whole.tokens.index(token)] and ended.finish == "stop"
    assert ended.completion_tokens == len(ended.tokens) + 1
    assert engine.pool.leased == 0


def test_labels_are_scored_as_the_whole_sequences_say(engine):
    t = E.tokenizer()
    labels = [" yes", " no", " the patient has pain", " the", " no", "x"]
    prompts = [Request("has chest pain"), Request(E.PROMPTS[0])]
    engine.pool.forget()
    before = engine.progress().computed
    out = engine.score_labels(prompts, [labels, labels[:2]])
    for request, scores, names in zip(prompts, out, (labels, labels[:2])):
        prompt = t.tokenize(request.prompt) if isinstance(request.prompt, str) else list(request.prompt)
        for name, got in zip(names, scores.log_probs):
            label = t.tokenize(name)
            rows = E.logits([*prompt, *label]).astype(np.float64)[len(prompt) - 1:-1]
            want = sum(row[k] - np.logaddexp.reduce(row) for row, k in zip(rows, label))
            assert got == pytest.approx(want, rel=1e-4, abs=1e-3)
        np.testing.assert_allclose(scores.probs.sum(), 1, rtol=1e-5)
        assert scores.prompt_tokens == len(prompt) and scores.error is None
    longer = [len(t.tokenize(name)) for names in (labels, labels[:2]) for name in {*names} if len(t.tokenize(name)) > 1]
    computed = engine.progress().computed - before
    assert computed == sum(s.prompt_tokens for s in out) + sum(longer), "a prompt once, and each longer label"
    one = engine.score_labels(prompts[:1], [labels[:2]])[0]
    assert one.cached_tokens == one.prompt_tokens - 1
    np.testing.assert_allclose(one.log_probs, out[0].log_probs[:2], rtol=1e-5)
    bad = engine.score_labels([Request(""), Request("a"), Request("a", adapter="none"), Request("a"), Request("a")],
                              [["b"], [], ["b"], ["b", "\ud800"], ["b"]])
    assert [bool(b.error) for b in bad] == [True, True, True, True, False] and engine.pool.leased == 0


def test_a_grammar_masks_and_forces(engine):
    hot = Sampling(max_tokens=30, temperature=1.0, seed=1, logprobs=True)
    asked = Request(E.PROMPTS[1], hot, grammar=Grammar("lark", "y,n"))
    free = Request(E.PROMPTS[2], Sampling(max_tokens=15))
    steps = engine.progress().steps
    out, beside = engine.submit([asked, free])
    assert out.text in ('{"a": y}', '{"a": n}') and out.finish == "stop" and beside.tokens == E.greedy(E.PROMPTS[2], 15)
    assert engine.progress().steps - steps < 15, "what is forced is not sampled token by token"
    assert len(out.logprobs) == len(out.tokens) and sum(x != 0.0 for x in out.logprobs) == 1
    prompt = [*E.PROMPTS[1], *E.tokenizer().tokenize('{"a": ')]
    y, n = (E.tokenizer().tokenize(w)[0] for w in "yn")
    likelier = "y" if E.logits(prompt)[-1][y] > E.logits(prompt)[-1][n] else "n"
    greedy = engine.submit([Request(E.PROMPTS[1], grammar=Grammar("lark", "y,n"))])[0]
    assert greedy.text == f'{{"a": {likelier}}}'
    short = engine.submit([Request(E.PROMPTS[1], Sampling(max_tokens=2), grammar=Grammar("lark", "y,n"))])[0]
    assert (short.finish, len(short.tokens)) == ("length", 2)


def test_requests_that_cannot_be_served_leave_the_others_alone(engine):
    good = Request(E.PROMPTS[5], Sampling(max_tokens=6))
    bad = {
        "expected at most 191": Request((5,) * E.LENGTH), "got none": Request(""), "got no": Request(()),
        "'none'": Request((5,), adapter="none"),
        "ids below": Request((100_000,)), "cannot be read": Request((5,), grammar=Grammar("lark", "broken")),
        "half a surrogate pair": Request("a\ud800")}
    out = engine.submit([good, *bad.values(), good])
    for (says, request), c in zip(bad.items(), out[1:-1]):
        assert c.finish == "error" and says in c.error and c.text == "" and c.tokens == ()
        assert c.prompt_sha256 == request.prompt_sha256()
    assert out[0].tokens == out[-1].tokens == E.greedy(E.PROMPTS[5], 6)
    longest = engine.submit([Request((5,) * (E.LENGTH - 2), Sampling(max_tokens=50))])[0]
    assert longest.finish == "length" and longest.completion_tokens == 2


@pytest.mark.parametrize("fault", ["forced", "mask", "advance"])
def test_a_grammar_that_cannot_go_on_ends_its_request_alone(engine, fault):
    good = Request(E.PROMPTS[5], Sampling(max_tokens=6))
    out = engine.submit([good, Request(E.PROMPTS[1], grammar=Grammar("lark", f"fails {fault}")), good])
    assert (out[1].finish, out[1].error, out[1].text) == ("error", f"grammar: fails in {fault}", "")
    assert out[1].prompt_tokens == len(E.PROMPTS[1])
    assert out[0].tokens == out[2].tokens == E.greedy(E.PROMPTS[5], 6) and engine.pool.leased == 0 and not engine._jobs


def test_a_fault_of_ours_in_one_request_is_raised_once_the_others_are_through(engine, monkeypatch):
    tokens, done = engine._tokens, []

    def broken(request):
        if request.prompt == (9, 9):
            raise TypeError("no such thing")
        return tokens(request)

    monkeypatch.setattr(engine, "_tokens", broken)
    good = Request(E.PROMPTS[5], Sampling(max_tokens=6))
    with pytest.raises(TypeError, match="no such thing"):
        engine.submit([good, Request((9, 9)), good], on_done=lambda i, c: done.append((i, c.tokens)))
    assert sorted(done) == [(0, E.greedy(E.PROMPTS[5], 6)), (2, E.greedy(E.PROMPTS[5], 6))]
    assert engine.pool.leased == 0 and not engine._jobs


def test_threads_share_the_batch_and_streams_give_the_text_piece_by_piece(engine):
    out, pieces = {}, {}

    def one(i):
        pieces[i] = []
        request = Request(E.PROMPTS[i], Sampling(max_tokens=18))
        out[i] = engine.stream(request, pieces[i].append) if i % 2 else engine.submit([request])[0]

    SEEN.clear()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(out[i].tokens == E.greedy(E.PROMPTS[i], 18) for i in range(6))
    assert max(p.running for p in SEEN) > 1, "they ran side by side"
    assert all("".join(pieces[i]) == out[i].text and sum(map(bool, pieces[i])) > 1 for i in (1, 3, 5))


def test_what_a_listener_raises_ends_its_request_alone(engine):
    caught = []

    def hang_up(piece):
        if piece:
            raise ConnectionError("gone")

    def listen():
        try:
            engine.stream(Request(E.PROMPTS[0], Sampling(max_tokens=30)), hang_up)
        except ConnectionError as e:
            caught.append(e)

    thread = threading.Thread(target=listen)
    thread.start()
    out = engine.submit([Request(E.PROMPTS[1], Sampling(max_tokens=20))])[0]
    thread.join()
    assert len(caught) == 1 and out.tokens == E.greedy(E.PROMPTS[1], 20) and engine.pool.leased == 0


def test_nothing_is_computed_for_who_has_gone_already(engine):
    def gone(piece):
        raise ConnectionError("gone")

    before = engine.progress().computed
    with pytest.raises(ConnectionError):
        engine.stream(Request(E.PROMPTS[0], Sampling(max_tokens=30)), gone)
    assert engine.progress().computed == before and engine.pool.leased == 0


def test_a_step_that_breaks_is_raised_and_the_engine_goes_on(engine, monkeypatch):
    def broken(*args):
        raise MemoryError("no room")

    with monkeypatch.context() as m:
        m.setattr(engine._compute, "decode", broken)
        with pytest.raises(MemoryError, match="no room"):
            engine.submit([Request(E.PROMPTS[0], Sampling(max_tokens=20))])
    assert engine.pool.leased == 0 and not engine._jobs
    out = engine.submit([Request(E.PROMPTS[0], Sampling(max_tokens=20))])[0]
    assert out.tokens == E.greedy(E.PROMPTS[0], 20) and out.cached_tokens == 0, "what the pages held is not trusted"


def test_nothing_is_compiled_after_the_warm_up_and_each_shape_once(engine):
    engine.warmup()
    assert set(engine.traces.values()) == {1}
    before, compiled = dict(engine.traces), []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **kw: compiled.append(name) if "backend_compile" in name else None)
    try:
        for seed in (8, 9):
            requests = [Request(p, Sampling(max_tokens=7, temperature=t, top_k=k), grammar=g) for p, t, k, g in zip(
                E.prompts(7, seed=seed, shared=20), (0, 1, 0, 2, 0, 0, 1), (0, 5, 0, 0, 0, 9, 0),
                (None, None, Grammar("lark", "y,n"), None, None, None, None))]
            engine.submit(requests)
            engine.score_labels(requests[:2], [["yes", "no"]] * 2)
    finally:
        jax.monitoring.clear_event_listeners()
    assert dict(engine.traces) == before and not compiled


def test_pages_are_donated_and_occupied_as_the_formula_says(engine):
    old, config = engine._kv, E.config()
    leased = []  # (pages, [(pages, tokens whose keys and values they are for)] of each row)
    engine._on_step = lambda p: leased.append((p.pages, [
        (len(r.pages), max(r.computed, r.owner)) for r in engine._scheduler.running]))
    try:
        engine.pool.forget()
        engine.submit([Request(p, Sampling(max_tokens=25)) for p in E.prompts(4, seed=11)])
    finally:
        engine._on_step = SEEN.append
    assert old.k.is_deleted() and old.v.is_deleted()
    token = cost.kv_bytes_per_token(config, 4)
    page = engine.pool.size * token
    assert engine._kv.k.nbytes + engine._kv.v.nbytes == (engine.pool.count + 1) * page
    assert max(len(rows) for _, rows in leased) == 4
    for pages, rows in leased:
        assert pages == sum(n for n, _ in rows)
        for n, tokens in rows:
            assert 0 <= n * page - tokens * token <= page, "within a block of the formula"


def test_parameters_are_arguments(engine):
    step = engine._compute.extend.trace(*_extend_arguments(engine)).jaxpr
    assert sum(c.size for c in step.consts if hasattr(c, "size")) < 1000


def _extend_arguments(engine):
    from core_jax.engine.scheduler import Plan

    caught = []

    class Caught(Exception):
        pass

    def catch(*args):
        caught.append(args)
        raise Caught

    compute, engine._compute.extend = engine._compute.extend, catch
    try:
        engine._extend(Plan((), (), 8, 0))
    except Caught:
        pass
    finally:
        engine._compute.extend = compute
    return caught[0]
