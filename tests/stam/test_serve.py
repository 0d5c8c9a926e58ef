"""The HTTP face as a process on a free port, asked by httpx: isolation, the key, refusals, hostile bodies, concurrency."""
import asyncio
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx2
import jsonschema
import numpy as np
import pytest
from service_cases import ENCODER, service

from stam_jax.history.gate import FEATURES, Gate
from stam_jax.history.logistic import Logistic
from stam_jax.serve import http as serve
from stam_jax.storage.store import Store

HERE = pathlib.Path(__file__).resolve().parent
KEY = "planted-key-0123456789"
FIRST = "metformin dose 850 mg bid\nwarfarin dose 5 mg daily\ninr plan every 2 weeks"


class Server:
    def __init__(self, store, **options):
        env = {**os.environ, "JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen([sys.executable, str(HERE / "memory_server.py"), str(store), json.dumps(options)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/docs", line := self.process.stdout.readline())
        assert found, line + self.process.stderr.read()
        self.port = int(found[1])
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def post(self, operation, **more):
        headers = more.pop("headers", None)
        return self.http.post(f"/v1/{operation}", json=more, headers=headers)

    def ok(self, operation, **more):
        answer = self.post(operation, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self):
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            said = self.process.communicate(timeout=30)[1]
        finally:
            self.process.kill()
        return self.process.returncode, said


@contextlib.contextmanager
def running(store, **options):
    server = Server(store, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("served") / "store"


@pytest.fixture(scope="module")
def server(store):
    with running(store, limits={"body_bytes": 200_000}, agents=True) as s:
        s.ok("ingest", patient_id="P1", text=FIRST, date="2024-01-02", kind="clinic", source_id="n1")
        s.ok("ingest", patient_id="P1", text="metformin dose 1000 mg bid", date="2024-03-01", kind="clinic")
        s.ok("ingest", patient_id="P", text="lisinopril dose 10 mg daily", date="2024-02-01")
        yield s


def error(answer, status, words, field=None):
    assert answer.status_code == status, answer.text
    found = answer.json()["error"]
    assert words in found["message"] and found["status"] == status and found["field"] == field


def test_what_holds_what_held_and_why(server):
    shown = server.ok("show", patient_id="P1")
    assert sorted(m["concept"] for m in shown["active"]) == ["inr", "metformin", "warfarin"]
    (past,) = shown["history"]
    assert (past["value"], past["reason"], past["sources"][0]["quote"]) == ("850 mg bid", "SUPERSEDED", "metformin dose 850 mg bid")
    why = server.ok("why", patient_id="P1", memory_id=past["memory_id"])
    (move,) = why["moves"]
    assert move["successor"]["value"] == "1000 mg bid" and move["along"]["type"] == "same_condition_thread"
    assert [link["memory_id"] for link in why["chain"]] == [past["memory_id"], past["successor"]]
    one = server.ok("show", patient_id="P1", memory_id=past["memory_id"])
    assert [m["value"] for m in one["chain"]] == ["850 mg bid", "1000 mg bid"]


def test_the_past_by_update_and_by_date(server):
    assert [m["value"] for m in server.ok("show", patient_id="P1", as_of_seq=1)["active"]][0] == "850 mg bid"
    view = server.ok("show", patient_id="P1", as_of_date="2024-02-01")
    assert "850 mg bid" in [m["value"] for m in view["held"]] and [m["value"] for m in view["ahead"]] == ["1000 mg bid"]
    slots = server.ok("timeline", patient_id="P1", concept="Metformin", as_of_date="2024-02-01")["slots"]
    assert [(m["value"], m["then"]) for m in slots[0]["memories"]] == [("850 mg bid", "held"), ("1000 mg bid", "ahead")]


def test_search_and_answer(server):
    found = server.ok("search", patient_id="P1", query="metformin dose", most=2)["memories"]
    assert len(found) == 2 and found[0]["cosine"] >= found[1]["cosine"]
    said = server.ok("answer", patient_id="P1", question="What is the current dose of metformin?")
    assert said["answer"].startswith("1000 mg") and [m["value"] for m in said["grounds"]] == ["1000 mg bid"]
    assert len(said["packet_sha256"]) == 64 and "past: superseded" in said["packet"]
    assert said["hold_served"] == said["hold"] == len(server.ok("show", patient_id="P1")["active"])
    assert "850" not in server.ok("answer", patient_id="P1", question="metformin?", arm="ACTIVE")["packet"]


def test_a_gate_of_another_encoder_is_refused(tmp_path):
    flat = Logistic((0.0,) * len(FEATURES), (1.0,) * len(FEATURES), (0.0,) * len(FEATURES), 0.0)
    with pytest.raises(ValueError, match="fitted on searches of the encoder hash:64"):
        service(tmp_path / "store", gate=Gate(FEATURES, flat, 0.5, 0.05, "rows", encoder="hash:64"))


def test_a_gate_decides_where_no_arm_is_named(tmp_path):
    flat = Logistic.fit(np.random.default_rng(0).normal(size=(20, len(FEATURES))), np.arange(20) % 2)
    served = {}
    for threshold in (math.inf, 0.0):
        Gate(FEATURES, flat, threshold, 0.05, "rows", encoder=ENCODER).save(tmp_path / "gate.json")
        with running(tmp_path / f"store{threshold}", gate=str(tmp_path / "gate.json")) as gated:
            gated.ok("ingest", patient_id="P1", text="metformin dose 850 mg bid", date="2024-01-02")
            ask = {"patient_id": "P1", "question": "What is the current dose of metformin?"}
            alone = gated.ok("answer", **ask)
            assert alone["arm"] == "ACTIVE" and alone["gate"]["history_needed"] == 0  # HISTORY has nothing: not asked
            gated.ok("ingest", patient_id="P1", text="metformin dose 1000 mg bid", date="2024-03-01")
            served[threshold] = gated.ok("answer", **ask)
            assert gated.ok("answer", **ask, arm="GATE") == served[threshold]
            both = gated.ok("answer", **ask, arm="BOTH")
            assert both["arm"] == "BOTH" and both["gate"] is None and "850 mg" in both["packet"]
    skipped, kept = served[math.inf], served[0.0]
    assert skipped["arm"] == "ACTIVE" and "850 mg" not in skipped["packet"] and skipped["gate"]["threshold"] == "inf"
    assert kept["arm"] == "BOTH" and kept["packet_sha256"] == both["packet_sha256"]
    assert 0 < kept["gate"]["history_needed"] < 1 and kept["gate"]["lambda"] == 0.05
    assert kept["gate"]["fitted_on"] == "rows"


def test_no_gate_no_arm_of_that_name(server):
    error(server.post("answer", patient_id="P1", question="metformin?", arm="GATE"), 400, "has no gate")
    assert server.ok("answer", patient_id="P1", question="metformin?")["gate"] is None


def test_the_same_entry_again_changes_nothing(server):
    again = server.ok("ingest", patient_id="P1", text=FIRST, date="2024-01-02", kind="clinic", source_id="elsewhere")
    assert again["known_before"] and again["version"] == server.ok("show", patient_id="P1")["version"]


def test_two_patients_never_see_each_other(server):
    mine, other = (server.ok("show", patient_id=p)["active"] for p in ("P1", "P"))
    assert {m["patient_id"] for m in mine} == {"P1"} and [m["concept"] for m in other] == ["lisinopril"]
    error(server.post("why", patient_id="P", memory_id=mine[0]["memory_id"]), 404, "is not a memory of this patient")
    error(server.post("show", patient_id="P", memory_id=mine[0]["memory_id"]), 404, "not a memory of this patient")
    error(server.post("erase", patient_id="P", memory_ids=[mine[0]["memory_id"]]), 404, "not a memory")
    found = server.ok("search", patient_id="P", query="metformin warfarin", most=100)["memories"]
    assert [m["concept"] for m in found] == ["lisinopril"]
    assert "metformin" not in server.ok("answer", patient_id="P", question="What is the dose of metformin?")["packet"]
    for odd in ("p1", "P1 ", "P%", "P_", "P1' OR '1'='1", "../P1", "P1\u200b"):
        error(server.post("show", patient_id=odd), 404, "the store does not know it")
    error(server.post("patients"), 403, "does not list patients")


def test_refusals_name_the_field(server):
    error(server.post("show"), 400, "patient_id: missing", "patient_id")
    error(server.post("show", patient_id=7), 400, "patient_id: expected a string", "patient_id")
    error(server.post("show", patient_id=""), 400, "at least 1 characters", "patient_id")
    error(server.post("show", patient_id="P1", secret=1), 400, "secret: unknown field", "secret")
    error(server.post("search", patient_id="P1", query="x", most=0), 400, "most: expected at least 1", "most")
    error(server.post("search", patient_id="P1", query="x", most=True), 400, "expected an integer", "most")
    error(server.post("answer", patient_id="P1", question="x", arm="HISTORY"), 400, "arm: expected one of", "arm")
    error(server.post("show", patient_id="P1", as_of_seq=99), 400, "expected 0 to 2")
    error(server.post("show", patient_id="P1", as_of_date="yesterday"), 400, "expected YYYY", "date")
    error(server.post("ingest", patient_id="P9", text="x", date="32 May"), 400, "date", "date")
    error(server.post("ingest", patient_id="P9", text=" \n"), 400, "got no text")
    error(server.post("erase", patient_id="P1"), 400, "memory_ids: name them")
    error(server.post("erase", patient_id="P1", memory_ids=["m1", 2]), 400, "expected a string", "memory_ids")
    error(server.post("show", patient_id="P9"), 404, "the store does not know it")
    error(server.http.get("/v1/show"), 405, "method not allowed")
    error(server.http.get("/v1/nothing"), 404, "no such path")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"patient_id": NaN}', b"[" * 100_000, b'"\\ud800"', b"null",
                                  b'{"patient_id": "P1", "patient_id": "P2"}'])
def test_bodies_that_are_none(server, body):
    answer = server.http.post("/v1/show", content=body, headers={"content-type": "application/json"})
    error(answer, 400, "body:")


def test_a_refusal_can_name_what_is_no_utf8(server):
    answer = server.http.post("/v1/show", content=b'{"patient_id": "P1", "\\ud800": 1}', headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422) and "\\ud800" in answer.json()["error"]["message"] + str(answer.json()["error"]["field"])


@pytest.mark.parametrize("body, said, field", [
    (b'{"patient_id": "P1", "patient_id": "P2"}', "body: patient_id: stands twice", None),
    ('{"patient_id": "P1"}'.encode("utf-16"), "body: expected JSON in UTF-8", None),
    (b'{"patient_id": "P1", "\\ud800": 1}', r"\ud800: unknown field", r"\ud800"),
    (b'{"patient_id": "P1", "\\ud800": 1, "\\ud800": 2}', r"body: \ud800: stands twice", None)])
def test_bodies_that_can_be_read_in_two_ways_or_not_written_again(server, body, said, field):
    answer = server.http.post("/v1/show", content=body, headers={"content-type": "application/json"})
    error(answer, 400, said, field)


def test_an_operation_that_outlasts_the_shutdown_is_answered():
    begun, go = threading.Event(), threading.Event()

    class Slow:
        def ingest(self, **given):
            begun.set()
            go.wait(30)

    async def asked():
        body = json.dumps({"patient_id": "P1", "text": "x"}).encode()
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/ingest", "raw_path": b"/v1/ingest", "query_string": b"",
                 "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "http_version": "1.1"}
        task = asyncio.ensure_future(serve.application(Slow())(scope, receive, send))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await task
        return sent

    try:
        sent = asyncio.run(asked())
    finally:
        go.set()
    assert sent[0]["status"] == 503 and b"shutting down" in sent[1]["body"]


def test_bodies_that_are_too_long_or_of_another_type(server):
    error(server.post("ingest", patient_id="P1", text="x" * 300_000), 413, "longer than 200000 bytes")
    error(server.http.post("/v1/show", content=(b"x" * 50_000 for _ in range(8)), headers={"content-type": "application/json"}),
          413, "longer than")
    error(server.http.post("/v1/show", data={"patient_id": "P1"}), 415, "expected 'application/json'")
    for host in ("evil.example", "[::1]evil.example", "localhost:1@evil.example", "localhost.", "[localhost]x"):
        error(server.post("show", patient_id="P1", headers={"host": host}), 403, "Host:")
    assert server.http.get("/health", headers={"host": "[::1]:80"}).status_code == 200
    error(server.post("show", patient_id="P1", headers={"host": "localhost:80.evil.example"}), 403, "Host:")


def test_injection_is_text(server):
    text = "metformin dose 500 mg'); DROP TABLE memory;-- <script>alert(1)</script>"
    server.ok("ingest", patient_id="x'; DROP TABLE patient;--", text=text, date="2024-01-01")
    shown = server.ok("show", patient_id="x'; DROP TABLE patient;--")
    assert shown["active"][0]["text"] == text
    page = server.post("page", patient_id="x'; DROP TABLE patient;--")
    assert page.headers["content-type"].startswith("text/html") and "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text and page.headers["x-content-type-options"] == "nosniff"
    assert server.ok("verify", patient_id="P1")["violations"] == []


def test_writers_wait_and_readers_read(server):
    def write(i):
        return server.ok("ingest", patient_id=f"C{i % 4}", text=f"lisinopril dose {i + 1} mg daily", date=f"2024-01-{i + 1:02d}")

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        reads = [pool.submit(server.ok, "show", patient_id="P1") for _ in range(12)]
        done = list(pool.map(write, range(16)))
        assert all(r.result()["version"] == 2 for r in reads)
    assert all(not d["known_before"] for d in done)
    for i in range(4):
        shown = server.ok("show", patient_id=f"C{i}")
        assert shown["version"] == shown["entries"] == 4 and len(shown["active"]) + len(shown["history"]) == 4
        assert server.ok("verify", patient_id=f"C{i}")["violations"] == []


class Slow:
    """Stands for a service whose write takes as long as it is let."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def ingest(self, patient_id, text):
        self.begun.set()
        assert self.go.wait(30)
        return {"known_before": True}

    def show(self, patient_id):
        return {"shown": patient_id}


@pytest.mark.parametrize("choices", [1, 2])
def test_a_read_does_not_wait_for_a_write_and_a_full_server_says_so(choices):
    service = Slow()
    app = serve.application(service, limits=serve.Limits(choices=choices))

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost", timeout=30) as http:
            write = asyncio.create_task(http.post("/v1/ingest", json={"patient_id": "P1", "text": "x"}))
            await asyncio.to_thread(service.begun.wait, 30)
            try:
                read = await asyncio.wait_for(http.post("/v1/show", json={"patient_id": "P1"}), 10)
            finally:
                service.go.set()
            return read, await write

    read, write = asyncio.run(ask())
    assert write.status_code == 200
    if choices == 1:
        error(read, 429, "full")
    else:
        assert read.json() == {"shown": "P1"}


def test_revert_and_erase(server, store):
    for i, dose in enumerate((5, 10)):
        server.ok("ingest", patient_id="R", text=f"warfarin dose {dose} mg daily {'secretword' * (i == 0)}".strip(), date=f"2024-0{i + 1}-01")
    error(server.post("revert", patient_id="R", seq=1), 409, "build on it")
    assert server.ok("revert", patient_id="R", seq=2)["version"] == 3
    assert [m["value"] for m in server.ok("show", patient_id="R")["active"]] == ["5 mg daily secretword"]
    error(server.post("revert", patient_id="R", seq=2), 409, "already")
    assert any(b"secretword" in f.read_bytes() for f in store.iterdir())
    assert len(server.ok("erase", patient_id="R", everything=True)["erased"]) == 2
    assert server.ok("show", patient_id="R")["deleted"] == 2
    assert not any(b"secretword" in f.read_bytes() for f in store.iterdir())
    assert server.ok("show", patient_id="P1")["version"] == 2


def test_openapi_describes_what_is_served(server):
    described = server.http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1") and "security" not in described
    for operation in serve.OPERATIONS:
        schema = described["paths"][f"/v1/{operation.name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert jsonschema.Draft202012Validator(schema).is_valid({"patient_id": "P1"}) == (operation.required == ("patient_id",))
    docs = server.http.get("/", follow_redirects=True)
    assert docs.url.path == "/docs" and all(f"/v1/{o.name}" in docs.text for o in serve.OPERATIONS)
    assert not re.search(r"(src|href)=\"(https?:)?//", docs.text) and "default-src" in docs.text


def test_health_and_metrics(server):
    assert server.http.get("/health").json() == {"status": "ok"}
    text = server.http.get("/metrics").text
    assert re.search(r'^stam_http_requests_total\{path="/v1/show",status="200"\} [1-9]', text, re.M)
    assert re.search(r'^stam_memories_moved_total\{reason="SUPERSEDED"\} [1-9]', text, re.M)
    assert "P1" not in text and "metformin" not in text


def test_every_field_of_the_table_is_an_argument_of_the_service():
    import inspect

    from stam_jax.serve.service import Service

    for operation in serve.OPERATIONS:
        given = [p for p in inspect.signature(getattr(Service, operation.name)).parameters if p != "self"]
        assert set(given) == set(operation.required) | set(operation.optional), operation.name


def test_the_key(tmp_path):
    with running(tmp_path / "store", key=KEY, listing=True) as server:
        for headers in (None, {"authorization": "Bearer wrong-key-0123456789"}, {"authorization": KEY}, {"authorization": f"Basic {KEY}"}):
            answer = server.post("patients", headers=headers)
            error(answer, 401, "Authorization")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert server.http.get("/metrics", headers=headers).status_code == 401
        assert server.http.get("/health").status_code == server.http.get("/docs").status_code == 200
        assert server.http.get("/openapi.json").json()["security"] == [{"key": []}]
        mine = {"authorization": f"Bearer {KEY}"}
        server.ok("ingest", patient_id="P1", text="metformin dose 5 mg daily", headers=mine)
        assert server.ok("patients", headers=mine) == {"patients": ["P1"]}
        code, said = server.end()
    assert code == 0 and "metformin" not in said and KEY not in said
    with Store.open(tmp_path / "store") as left:
        assert left.verify() == [] and left.version("P1") == 1


def test_a_server_that_is_bound_to_one_patient(tmp_path):
    with running(tmp_path / "store", patient_id="P1", listing=True) as server:
        server.ok("ingest", patient_id="P1", text="metformin dose 5 mg daily")
        for operation, more in (("ingest", {"text": "x"}), ("show", {}), ("search", {"query": "x"}), ("page", {}), ("verify", {}),
                                ("erase", {"everything": True})):
            error(server.post(operation, patient_id="P2", **more), 403, "bound to another patient")
        error(server.post("patients"), 403, "does not list")


def test_addresses_and_keys_that_are_refused():
    with pytest.raises(ValueError, match="a key is needed"):
        serve.bind("0.0.0.0", 0, None)
    for key in ("short", "with blanks in between", "ключ" * 5):
        with pytest.raises(ValueError, match="at least 16 printable"):
            serve.bind("127.0.0.1", 0, key)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="port"):
            serve.bind("127.0.0.1", taken.getsockname()[1], None)
