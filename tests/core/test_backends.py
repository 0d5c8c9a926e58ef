"""Backends without weights: an OpenAI-compatible endpoint, against a server that misbehaves, and the scripted one."""

import http.server
import json
import logging
import threading
import time

import numpy as np
import pytest

from core_jax.engine.backend import Backend, Streaming
from core_jax.engine.openai import Endpoint
from core_jax.engine.request import Grammar, Request, Sampling
from core_jax.engine.scripted import Scripted

KEY = "sk-planted-secret-0123456789"


def chat(text: str, **more) -> Request:
    return Request(({"role": "system", "content": "Be short."}, {"role": "user", "content": text}), **more)


class Handler(http.server.BaseHTTPRequestHandler):
    """What the last message (or the prompt) says is what happens."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = body["messages"][-1]["content"] if "messages" in body else str(body["prompt"])
        with server.lock:
            server.seen.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
            tries = server.tries[said] = server.tries.get(said, 0) + 1
            server.inside += 1
            server.most = max(server.most, server.inside)
        try:
            self.act(said, tries, body)
        finally:
            with server.lock:
                server.inside -= 1

    def act(self, said, tries, body):
        if said == "limited" and tries < 3:
            return self.reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.3"})
        if said == "flaky" and tries < 2:
            return self.reply(503, {"error": {"message": "later"}}, {"retry-after-ms": "10"})
        if said == "down":
            return self.reply(500, {"error": {"message": "broken"}}, {"retry-after-ms": "10"})
        if said == "hang":
            self.server.release.wait(5)
        if said == "drop":
            self.close_connection = True
            return self.connection.close()
        if said == "cut":
            self.send_response(200)
            self.send_header("content-length", "500")
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
            return self.connection.close()
        if said == "broken":
            return self.reply(200, b'{"choices": [{"mess')
        if said == "page":
            return self.reply(200, b"<html>login</html>", {"content-type": "text/html"})
        if said == "unauthorised":
            return self.reply(401, {"error": {"message": "no such key: " + self.headers["authorization"]}})
        if said.startswith("json:"):
            return self.reply(200, json.loads(said[5:]))
        if "max_tokens" in body and body["model"] == "o9":
            return self.reply(
                400, {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}}
            )
        if said.startswith("wait "):
            time.sleep(float(said.split()[1]))
        if body.get("echo"):
            return self.echo(said)
        if "messages" not in body:
            choice = {
                "text": f"-> {said}",
                "logprobs": {"token_logprobs": [-0.5, -0.25]} if "logprobs" in body else None,
            }
        else:
            choice = {"message": {"role": "assistant", "content": f"<think>hm</think>\n-> {said}"}}
            if body.get("top_logprobs"):
                top = [{"token": t, "logprob": p} for t, p in (("yes", -0.1), ("no", -2.5), ("yes", -9.0))]
                choice["logprobs"] = {"content": [top[0] | {"top_logprobs": top}]}
        self.reply(
            200,
            {
                "id": "1",
                "object": "x",
                "created": 0,
                "model": body["model"] + "-0101",
                "choices": [choice | {"index": 0, "finish_reason": "length" if said == "long" else "stop"}],
                "usage": {
                    "prompt_tokens": 7,
                    "completion_tokens": 3,
                    "total_tokens": 10,
                    "prompt_tokens_details": {"cached_tokens": 4},
                },
            },
        )

    def echo(self, said):
        """A token is a character, each of log probability -0.1; one generated token follows."""
        offsets = list(range(len(said) + 1)) if "€" not in said else list(range(0, len(said) + 1, 2))
        self.reply(
            200,
            {
                "model": "m",
                "usage": {"prompt_tokens": 5},
                "choices": [
                    {
                        "text": said + "!",
                        "finish_reason": "length",
                        "logprobs": {"text_offset": offsets, "token_logprobs": [None] + [-0.1] * (len(offsets) - 1)},
                    }
                ],
            },
        )

    def reply(self, status, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (
            {"content-type": "application/json"} | (headers or {}) | {"content-length": str(len(data))}
        ).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.seen, s.tries, s.inside, s.most = [], {}, 0, 0
    s.lock, s.release, s.daemon_threads = threading.Lock(), threading.Event(), True
    threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True).start()
    s.url = f"http://127.0.0.1:{s.server_port}/v1"
    yield s
    s.release.set()
    s.shutdown()
    s.server_close()


@pytest.fixture
def connect(server):
    made = []

    def make(model="m", **more):
        made.append(
            Endpoint.connect(model, **({"environ": {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}} | more))
        )
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()


def test_protocols(connect):
    assert isinstance(connect(), Backend) and isinstance(Scripted([]), Backend)
    assert isinstance(Scripted([]), Streaming) and not isinstance(connect(), Streaming)


def test_a_chat_request_on_the_wire_and_back(server, connect):
    request = chat(
        "hello",
        sampling=Sampling(max_tokens=9, temperature=0.5, top_p=0.9, top_k=3, seed=5, stop=("END",), stop_tokens=(7,)),
        thinking=False,
    )
    done = connect().submit([request])[0]
    path, body, headers = server.seen[0]
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m",
        "messages": [dict(m) for m in request.prompt],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "seed": 5,
        "stop": ["END"],
        "stop_token_ids": [7],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert (done.text, done.thinking, done.finish, done.error) == ("-> hello", "hm", "stop", None)
    assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens) == (7, 4, 3)
    assert (
        done.prompt_sha256 == request.prompt_sha256() and done.model == "m-0101" and done.sampling == request.sampling
    )


def test_what_an_answer_quotes_ends_no_thinking_block(connect):
    said = '- STATE | "he wrote </think> and <think>" | Wrote.'
    done, = connect().submit([chat(said)])
    assert (done.text, done.thinking) == (f"-> {said}", "hm")
    own = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}
    done, = connect().submit([chat("json:" + json.dumps(own))])
    assert (done.text, done.thinking) == (said, "")


def test_text_and_token_prompts(server, connect):
    text, ids = connect().submit([Request("long", Sampling(logprobs=True)), Request((1, 2))])
    assert [path for path, _, _ in server.seen] == ["/v1/completions"] * 2
    assert sorted((b["prompt"] for _, b, _ in server.seen), key=str) == [[1, 2], "long"]
    assert text.text == "-> long" and text.finish == "length" and text.logprobs == (-0.5, -0.25)
    assert ids.text == "-> [1, 2]" and ids.logprobs is None


def test_order_is_kept_and_each_end_is_told_once(server, connect):
    requests = [chat(f"wait {0.3 - 0.05 * i:.2f}") for i in range(6)]
    told = []
    done = connect(concurrency=6).submit(requests, lambda i, c: told.append((i, c)))
    assert [c.text for c in done] == [f"-> {r.prompt[-1]['content']}" for r in requests]
    assert sorted(i for i, _ in told) == list(range(6)) and all(done[i] is c for i, c in told)
    assert [i for i, _ in told] != list(range(6))  # the later ones were faster


def test_no_more_requests_at_once_than_allowed_over_all_threads(server, connect):
    endpoint = connect(concurrency=3)
    threads = [
        threading.Thread(target=endpoint.submit, args=([chat(f"wait 0.05 {i} {j}") for j in range(6)],))
        for i in range(3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert server.most == 3 and len(server.seen) == 18


def test_rate_limits_and_failures_are_retried_as_the_server_says(server, connect):
    begin = time.monotonic()
    done = connect(retries=3).submit([chat("limited"), chat("flaky")])
    assert [c.text for c in done] == ["-> limited", "-> flaky"]
    assert server.tries == {"limited": 3, "flaky": 2} and time.monotonic() - begin >= 0.6


def test_what_finally_fails_is_an_error_and_the_others_are_served(server, connect):
    names = ["down", "fine", "drop", "cut", "broken", "page", "unauthorised", "other"]
    done = dict(zip(names, connect(retries=1).submit([chat(n) for n in names])))
    assert [n for n in names if done[n].finish != "error"] == ["fine", "other"]
    assert server.tries["down"] == 2 and server.tries["drop"] == 2 and server.tries["unauthorised"] == 1
    assert done["down"].error == "endpoint: status 500: broken"
    assert "no connection" in done["drop"].error and "no connection" in done["cut"].error
    assert "unusable answer" in done["broken"].error and "no choices" in done["page"].error
    assert done["down"].text == "" and done["down"].prompt_sha256 == chat("down").prompt_sha256()


def test_a_server_that_hangs(server, connect):
    begin = time.monotonic()
    hang, fine = connect(retries=0, timeout=0.4).submit([chat("hang"), chat("fine")])
    assert hang.error == "endpoint: no answer within the time limit" and fine.text == "-> fine"
    assert time.monotonic() - begin < 3


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": 5},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": 5, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]},
        {"choices": [{"message": {"content": "x"}}]},
        {"choices": [{"message": {"content": None, "refusal": "I will not"}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": None, "tool_calls": [{}]}, "finish_reason": "stop"}]},
        [],
        "x",
        None,
    ],
)
def test_answers_that_are_no_completions(connect, answer):
    done, fine = connect().submit([chat("json:" + json.dumps(answer)), chat("fine")])
    assert done.finish == "error" and done.error.startswith("endpoint: ") and fine.text == "-> fine"


def test_odd_counts_do_not_fail_an_answer(connect):
    done = connect().submit(
        [
            chat(
                "json:"
                + json.dumps(
                    {
                        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": "many"},
                        "model": 3,
                    }
                )
            )
        ]
    )[0]
    assert done.text == "x" and done.prompt_tokens == 0 and done.model == "m"


def test_the_key_stands_in_no_message_or_log(server, connect, caplog):
    caplog.set_level(logging.DEBUG)
    endpoint = connect(retries=1)
    done = endpoint.submit([chat("unauthorised"), chat("flaky"), chat("down"), chat("hello")])
    assert "***" in done[0].error
    seen = [caplog.text, repr(endpoint), str(vars(endpoint))] + [str(c) for c in done]
    assert "HTTP" in caplog.text and not any(KEY in s for s in seen)


def test_a_key_in_a_url_is_refused_and_not_shown():
    for url in (f"http://user:{KEY}@host/v1", f"https://host/v1?key={KEY}", f"{KEY}", "ftp://host", "http://[bad"):
        for env in (
            {"OPENAI_BASE_URL": url},
            {"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_KEY": "k", "OPENAI_API_VERSION": "1"},
        ):
            with pytest.raises(ValueError, match=next(iter(env))) as caught:
                Endpoint.connect("m", environ=env)
            assert KEY not in str(caught.value)


def test_what_the_environment_must_hold(server):
    with pytest.raises(ValueError, match="OPENAI_API_KEY: not set"):
        Endpoint.connect("m", environ={})
    with pytest.raises(ValueError, match="OPENAI_API_VERSION: not set"):
        Endpoint.connect("m", environ={"AZURE_OPENAI_ENDPOINT": "https://x.azure.com", "AZURE_OPENAI_API_KEY": "k"})
    assert "api.openai.com" in repr(Endpoint.connect("m", environ={"OPENAI_API_KEY": KEY}))
    own = Endpoint.connect("m", environ={"OPENAI_BASE_URL": server.url})  # a server of one's own needs no key
    assert own.submit([chat("hello")])[0].text == "-> hello"
    for wrong in ({"concurrency": 0}, {"retries": -1}, {"timeout": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Endpoint.connect("m", base_url=server.url, environ={}, **wrong)


def test_azures_form(server, connect):
    azure = connect(
        "gpt-deployment",
        environ={
            "AZURE_OPENAI_ENDPOINT": server.url.removesuffix("/v1"),
            "AZURE_OPENAI_API_KEY": KEY,
            "OPENAI_API_VERSION": "2026-01-01",
        },
    )
    assert azure.submit([chat("hello")])[0].text == "-> hello"
    path, _, headers = server.seen[0]
    assert path == "/openai/deployments/gpt-deployment/chat/completions?api-version=2026-01-01"
    assert headers["api-key"] == KEY and "bearer" not in headers.get("authorization", "").lower()


def test_models_that_call_the_limit_otherwise(server, connect):
    done = connect("o9", concurrency=1).submit([chat("a", sampling=Sampling(max_tokens=3)), chat("b")])
    assert [c.text for c in done] == ["-> a", "-> b"]
    assert [set(b) & {"max_tokens", "max_completion_tokens"} for _, b, _ in server.seen] == [
        {"max_tokens"},
        {"max_completion_tokens"},
        {"max_completion_tokens"},
    ]
    assert server.seen[1][1]["max_completion_tokens"] == 3


def test_adapters_are_models_of_that_name(server, connect):
    assert connect().submit([chat("hello", adapter="link")])[0].model == "link-0101"


def test_grammars_on_the_wire(server, connect):
    closed = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    open_ = {"type": "object", "properties": {"a": {"type": "integer"}}}
    grammars = [
        Grammar("json_schema", json.dumps(closed)),
        Grammar("json_schema", json.dumps(open_)),
        Grammar("regex", "a+"),
        Grammar("choice", '["x", "y"]'),
        Grammar("lark", 'start: "x"'),
    ]
    connect(concurrency=1).submit([chat("hello", grammar=g) for g in grammars])
    bodies = [b for _, b, _ in server.seen]
    assert [b["response_format"]["json_schema"] for b in bodies[:2]] == [
        {"name": "answer", "schema": closed, "strict": True},
        {"name": "answer", "schema": open_, "strict": False},
    ]
    assert [b["structured_outputs"] for b in bodies[2:]] == [
        {"regex": "a+"},
        {"choice": ["x", "y"]},
        {"grammar": 'start: "x"'},
    ]


def test_what_cannot_be_sent_is_an_error(server, connect):
    done = connect().submit([Request(""), Request(()), chat("a", grammar=Grammar("json_schema", "{")), chat("fine")])
    assert [c.finish for c in done] == ["error"] * 3 + ["stop"]
    assert done[0].error == "endpoint: empty prompt" and "not JSON" in done[2].error and len(server.seen) == 1


def test_labels_of_a_text_prompt_come_from_the_echo(connect):
    scores = connect().score_labels(
        [Request("ab"), Request("ab"), Request("a"), Request("")], [["x", "yyy"], ["x"], ["€€"], ["x"]]
    )
    np.testing.assert_allclose(scores[0].log_probs, [-0.1, -0.3], rtol=1e-6)
    np.testing.assert_allclose(scores[0].probs, np.exp([-0.1, -0.3]) / np.exp([-0.1, -0.3]).sum(), rtol=1e-6)
    assert "run across" in scores[2].error and scores[3].error and scores[1].probs.tolist() == [1.0]


def test_labels_of_a_chat_prompt_come_from_its_first_token(connect):
    scores = connect().score_labels(
        [chat("q"), chat("q"), chat("broken")], [["no", "yes"], ["yes", "perhaps"], ["yes"]]
    )
    np.testing.assert_allclose(scores[0].log_probs, [-2.5, -0.1], rtol=1e-6)
    assert "'perhaps'" in scores[1].error and scores[1].probs.size == 0 and "unusable" in scores[2].error
    with pytest.raises(ValueError, match="labels: got 1"):
        connect().score_labels([chat("a"), chat("b")], [["x"]])


def test_scripts():
    requests = [Request("a b c"), Request("x"), Request("")]
    done = Scripted(["one two three", "four"]).submit(requests + [Request("y")])
    assert [c.text for c in done] == ["one two three", "four", "", ""]
    assert [c.error for c in done] == [
        None,
        None,
        "empty prompt",
        "the script has 2 answers, and all of them were given",
    ]
    assert done[0].prompt_tokens == 3 and done[0].completion_tokens == 3
    assert Scripted({"q": "a"}).submit([chat("q"), chat("other")])[0].text == "a"
    assert "no answer" in Scripted({"q": "a"}).submit([chat("other")])[0].error
    with pytest.raises(ValueError, match="script"):
        Scripted("text")


def test_a_scripted_answer_is_cut_as_a_model_would():
    backend = Scripted(lambda r: "alpha beta gamma\n")
    short, stopped, whole = backend.submit(
        [Request("p", Sampling(max_tokens=2)), Request("p", Sampling(stop=("ga", "eta"))), Request("p")]
    )
    assert (short.text, short.finish) == ("alpha beta", "length") and (stopped.text, stopped.finish) == (
        "alpha b",
        "stop",
    )
    assert (whole.text, whole.finish, whole.completion_tokens) == ("alpha beta gamma\n", "stop", 3)
    pieces = []
    assert backend.stream(Request("p"), pieces.append).text == "".join(pieces) and pieces == [
        "alpha",
        " beta",
        " gamma\n",
    ]
    assert backend.submit([Request("p", Sampling(stop=(" beta", "eta", "bet")))])[0].text == "alpha "
    assert len(backend.requests) == 5


def test_scripted_scores():
    backend = Scripted([], scores=lambda request, labels: [-float(len(label)) for label in labels])
    first, empty = backend.score_labels([Request("p"), Request("")], [["a", "bb"], ["a"]])
    np.testing.assert_allclose(first.probs, [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=1e-6)
    assert empty.error
    assert Scripted([]).score_labels([Request("p")], [["a", "b"]])[0].probs.tolist() == [0.5, 0.5]
