"""A memory over HTTP: a Starlette application over a `Service`, one POST path an operation, all in one table.

    listener = bind("127.0.0.1", 8010, key=None)
    serve(service, listener)

    POST /v1/<operation>  JSON in, JSON out (/v1/page: HTML)     GET /docs  /openapi.json  /health  /metrics
    /mcp                  the tools of `stam_jax.serve.mcp` over streamable HTTP, where `agents` asks for them

Ids of patients stand in bodies, never in addresses that proxies log. It listens on this machine only; any other address
needs a key, which every request then brings as a bearer token (/docs, /openapi.json and /health excepted, which hold
nothing of a patient). There is no encryption here: put a TLS proxy in front. Writes happen one after another, in order;
reads go on beside them. No text of a record is logged.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import json
import socket
import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core_jax.engine import server
from core_jax.engine.http import Limits, bounded, report
from core_jax.records import strict_json
from stam_jax.graph.undo import UndoRefused
from stam_jax.page.page import render
from stam_jax.serve.service import ASKED_ARMS, Service
from stam_jax.storage.shard import StoreBusy
from stam_jax.storage.store import StaleVersion

OPEN = ("/", "/docs", "/openapi.json", "/health")  # nothing of a patient is there

FIELDS: dict[str, dict[str, Any]] = {
    "patient_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "compared exactly"},
    "text": {"type": "string", "minLength": 1, "description": "the entry: a note, a dialogue"},
    "date": {"type": "string", "description": "of the entry, YYYY to YYYY-MM-DDTHH:MM:SS; left out = undated"},
    "kind": {"type": "string", "minLength": 1, "maxLength": 80, "description": "of entry, such as note"},
    "author_role": {"type": "string", "minLength": 1, "maxLength": 80, "description": "such as clinician or patient"},
    "source_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "where the entry comes from"},
    "memory_id": {"type": "string", "minLength": 1, "maxLength": 40, "description": "of one memory"},
    "memory_ids": {"type": "array", "items": {"type": "string"}, "description": "memories to erase"},
    "everything": {"type": "boolean", "description": "erase the whole patient"},
    "concept": {"type": "string", "minLength": 1, "description": "only this concept, such as metformin"},
    "query": {"type": "string", "minLength": 1, "maxLength": 20000, "description": "what to look for"},
    "question": {"type": "string", "minLength": 1, "maxLength": 20000, "description": "what to answer"},
    "most": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "memories returned"},
    "arm": {"type": "string", "enum": list(ASKED_ARMS), "description":
            "ACTIVE: serve only what still holds; GATE: as the server's gate decides, the default where it has one"},
    "as_of_seq": {"type": "integer", "minimum": 0, "description": "what the memory knew after this update"},
    "as_of_date": {"type": "string", "description": "what was true on this date, by all that is known now"},
    "seq": {"type": "integer", "minimum": 1, "description": "number of the update"},
    "cascade": {"type": "boolean", "description": "take back later updates that build on it too"},
}


@dataclasses.dataclass(frozen=True)
class Operation:
    """POST /v1/<name>, a method of `Service` of that name. writes: it waits for its turn among those that write."""

    name: str
    summary: str
    required: tuple[str, ...] = ("patient_id",)
    optional: tuple[str, ...] = ()
    writes: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the body."""
        return {"type": "object", "additionalProperties": False, "required": list(self.required),
                "properties": {name: FIELDS[name] for name in (*self.required, *self.optional)}}


_VIEW = ("as_of_seq", "as_of_date")
OPERATIONS = (
    Operation("ingest", "Take one entry in; the same entry again changes nothing", ("patient_id", "text"),
              ("date", "kind", "author_role", "source_id"), writes=True),
    Operation("show", "What holds and what held before, or one memory with what followed it",
              optional=("memory_id", *_VIEW)),
    Operation("timeline", "Slots with their memories by date", optional=("concept", *_VIEW)),
    Operation("search", "The memories nearest to a query", ("patient_id", "query"), ("most", *_VIEW)),
    Operation("answer", "Answer a question, with the packet that was read and its hash", ("patient_id", "question"),
              ("arm", *_VIEW)),
    Operation("why", "Where a memory came from, and each move it made", ("patient_id", "memory_id")),
    Operation("page", "The patient's timeline as an offline HTML page"),
    Operation("verify", "Check every invariant of the patient from the rows on disk"),
    Operation("revert", "Take back one update by a compensating one", ("patient_id", "seq"), ("cascade",), writes=True),
    Operation("erase", "Delete memories for good, or the whole patient; no text of them stays on disk",
              optional=("memory_ids", "everything"), writes=True),
    Operation("patients", "Ids of all patients, where the server lists them", required=()),
)
_PATHS = {f"/v1/{o.name}" for o in OPERATIONS} | {*OPEN, "/metrics", "/mcp"}


class Refused(Exception):
    """A request that is answered with an error: HTTP status, message, the field's name."""

    def __init__(self, message: str, status: int = 400, field: str | None = None):
        super().__init__(message)
        self.status, self.field = status, field

    def response(self) -> JSONResponse:
        headers = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}, 503: {"retry-after": "5"}}
        field = None if self.field is None else server.sendable(self.field)
        body = {"error": {"message": server.sendable(str(self)), "status": self.status, "field": field}}
        return JSONResponse(body, self.status, headers.get(self.status))


def checked(operation: Operation, body: Any) -> dict[str, Any]:
    """The body's fields; null is as good as left out. Raises: Refused naming the field."""
    if not isinstance(body, dict):
        raise Refused("body: expected a JSON object")
    body = {name: value for name, value in body.items() if value is not None}
    properties = operation.schema["properties"]
    if unknown := sorted(body.keys() - properties.keys()):
        raise Refused(f"{unknown[0][:80]}: unknown field; expected {sorted(properties)}", field=unknown[0][:80])
    if missing := [name for name in operation.required if name not in body]:
        raise Refused(f"{missing[0]}: missing", field=missing[0])
    for name, value in body.items():
        if (why := _fault(value, properties[name])) is not None:
            raise Refused(f"{name}: {why}", field=name)
    return body


def _fault(value: Any, schema: dict[str, Any]) -> str | None:
    kinds = {"string": str, "integer": int, "boolean": bool, "array": list}
    kind = schema["type"]
    if not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool)):
        return f"expected {'an' if kind[0] in 'aio' else 'a'} {kind}"
    if kind == "array":
        return next((why for item in value if (why := _fault(item, schema["items"])) is not None), None)
    if "enum" in schema and value not in schema["enum"]:
        return f"expected one of {schema['enum']}"
    size = len(value) if kind == "string" else value if kind == "integer" else 0
    low, high = schema.get("minLength", schema.get("minimum")), schema.get("maxLength", schema.get("maximum"))
    what = "characters" if kind == "string" else ""
    if low is not None and size < low:
        return f"expected at least {low} {what}".strip()
    if high is not None and size > high:
        return f"expected at most {high} {what}".strip()
    return None


def openapi(keyed: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 description of the table. keyed: requests bring a bearer token."""
    error = {"description": "refused; the body says why", "content": {"application/json": {"schema": {
        "type": "object", "properties": {"error": {"type": "object", "properties": {
            "message": {"type": "string"}, "status": {"type": "integer"}, "field": {"type": ["string", "null"]}}}}}}}}
    paths: dict[str, Any] = {}
    for o in OPERATIONS:
        kind = "text/html" if o.name == "page" else "application/json"
        schema = {"type": "string"} if o.name == "page" else {"type": "object"}
        paths[f"/v1/{o.name}"] = {"post": {
            "operationId": o.name, "summary": o.summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": o.schema}}},
            "responses": {"200": {"description": "done", "content": {kind: {"schema": schema}}}, "4XX": error}}}
    for path, said in (("/health", "The server answers"), ("/metrics", "Prometheus metrics")):
        paths[path] = {"get": {"operationId": path[1:], "summary": said, "responses": {"200": {"description": "done"}}}}
    out = {"openapi": "3.1.0", "info": {"title": "STAM: a clinical memory", "version": "1"}, "paths": paths}
    if keyed:
        out["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        out["security"] = [{"key": []}]
    return out


class Metrics:
    def __init__(self):
        self.registry = CollectorRegistry()

        def make(kind: type, name: str, text: str, labels: tuple[str, ...] = (), **more: Any) -> Any:
            return kind(name, text, labels, namespace="stam", registry=self.registry, **more)

        seconds = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
        self.requests = make(Counter, "http_requests", "HTTP requests by path and status", ("path", "status"))
        self.seconds = make(Histogram, "http_request_seconds", "Time to the answer", ("path",), buckets=seconds)
        self.open = make(Gauge, "operations", "Operations running or waiting")
        self.memories = make(Counter, "memories_added", "Memories added by entries that were taken in")
        self.moved = make(Counter, "memories_moved", "Memories that entries archived, by reason", ("reason",))


class Face:
    """The handlers and what they share. Writes have one thread: they wait in order, and no read waits for them."""

    def __init__(self, service: Service, limits: Limits, keyed: bool):
        self.service, self.limits, self.keyed, self.metrics = service, limits, keyed, Metrics()
        self.running = 0
        self._writers = concurrent.futures.ThreadPoolExecutor(1, "write")
        self._readers = concurrent.futures.ThreadPoolExecutor(8, "read")

    def operation(self, operation: Operation) -> Any:
        async def handle(http: Request) -> Response:
            given = checked(operation, await self._body(http))
            if self.running >= self.limits.choices:
                raise Refused("the server is full; try again", 429)
            pool = self._writers if operation.writes else self._readers
            self.running += 1
            self.metrics.open.inc()
            try:
                method = getattr(self.service, operation.name)
                out = await asyncio.get_running_loop().run_in_executor(pool, lambda: _called(method, given))
            finally:
                self.running -= 1
                self.metrics.open.dec()
            if operation.name == "page":
                return HTMLResponse(out)
            if operation.name == "ingest" and not out["known_before"]:
                self.metrics.memories.inc(len(out["added"]))
                for moved in out["moved"]:
                    self.metrics.moved.labels(moved.get("reason", "none")).inc()
            return JSONResponse(out)

        return handle

    async def health(self, http: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def describe(self, http: Request) -> Response:
        return JSONResponse(openapi(self.keyed))

    async def docs(self, http: Request) -> Response:
        return HTMLResponse(render("docs.html.j2", "index.js", operations=OPERATIONS, fields=FIELDS,
                                   keyed=self.keyed))

    async def home(self, http: Request) -> Response:
        return RedirectResponse("/docs")

    async def show_metrics(self, http: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _body(self, http: Request) -> Any:
        raw = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in http.stream():
                    raw += part
                    if len(raw) > self.limits.body_bytes:
                        raise Refused(server.too_large(self.limits.body_bytes), 413)
        except TimeoutError:
            raise Refused("body: did not arrive in time", 408) from None
        try:
            return strict_json(raw.decode("utf-8"))
        except RecursionError:
            raise Refused("body: nested too deeply") from None
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise Refused("body: expected JSON in UTF-8") from None
        except ValueError as e:
            raise Refused(f"body: {e}"[:500]) from None


def _called(method: Any, given: dict[str, Any]) -> Any:
    """Raises: Refused: what the service refuses, with its status."""
    try:
        return method(**given)
    except PermissionError as e:
        raise Refused(str(e), 403) from None
    except StoreBusy:
        raise Refused("the store is held by another process; try again", 503) from None
    except (StaleVersion, UndoRefused) as e:
        raise Refused(str(e), 409) from None
    except ValueError as e:
        raise Refused(str(e)[:500], 400, getattr(e, "field", None)) from None
    except LookupError as e:
        if type(e) is not LookupError:  # a fault of ours
            raise
        raise Refused(str(e), 404) from None


class Guard:
    """Around the application: who may ask, how much may be sent, and the count of what was answered."""

    def __init__(self, app: ASGIApp, face: Face, key: str | None):
        self.app, self.face = app, face
        self.door = server.Door(key, OPEN, face.limits.body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begin, status = time.perf_counter(), 0
        path = scope["path"] if scope["path"] in _PATHS else "other"

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = message | {"headers": [*message["headers"], (b"cache-control", b"no-store"),
                                                 (b"x-content-type-options", b"nosniff")]}
            await send(message)

        try:
            if (refusal := self.door.refusal(scope)) is not None:
                raise Refused(refusal[1], refusal[0])
            await self.app(scope, receive, watched)
        except Refused as e:
            await e.response()(scope, receive, watched)
        except ClientDisconnect:
            status = 499
        except asyncio.CancelledError:  # the time that running operations have after SIGTERM is over
            if not status:
                await Refused("the server is shutting down; what was asked may be done yet, ask again",
                              503).response()(scope, receive, watched)
        except Exception as e:
            report(e)
            if not status:
                await Refused("internal error", 500).response()(scope, receive, watched)
        finally:
            self.face.metrics.requests.labels(path, str(status or 499)).inc()
            self.face.metrics.seconds.labels(path).observe(time.perf_counter() - begin)


async def _on_refused(http: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response()


async def _on_failure(http: Request, error: Exception) -> Response:
    return Refused("internal error", 500).response()  # Guard reports it


async def _on_http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {404: "no such path; see /docs", 405: "method not allowed here"}.get(error.status_code, error.detail)
    response = Refused(message, error.status_code).response()
    response.headers.update(error.headers or {})
    return response


def application(service: Service, *, key: str | None = None, limits: Limits | None = None,
                agents: bool = False) -> ASGIApp:
    """The ASGI application. limits.choices: operations running or waiting.

    Args:
        key: every request but those to OPEN must bring it as a bearer token; None = whoever can connect may ask.
        agents: serve the MCP tools too, at /mcp (needs the package `mcp`, and the application's lifespan).
    """
    face = Face(service, limits or Limits(), key is not None)
    routes = [Route(f"/v1/{o.name}", face.operation(o), methods=["POST"]) for o in OPERATIONS]
    routes += [Route("/", face.home), Route("/docs", face.docs), Route("/openapi.json", face.describe),
               Route("/health", face.health), Route("/metrics", face.show_metrics)]
    lifespan = None
    if agents:
        from mcp.server.transport_security import TransportSecuritySettings

        from stam_jax.serve import mcp as mcp_face

        guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # Guard looks at the Host header
        tools = mcp_face.face(service, stateless_http=True, json_response=True, transport_security=guarded)
        routes += tools.streamable_http_app().routes

        def lifespan(app: Starlette) -> Any:
            return tools.session_manager.run()

    handlers = {Refused: _on_refused, HTTPException: _on_http_error, Exception: _on_failure}
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), face, key)


def bind(host: str, port: int, key: str | None) -> socket.socket:
    """`core_jax.engine.server.bind`, where the key suits the address. Raises: ValueError: it does not; OSError."""
    server.check_key(key, host)
    return server.bind(host, port)


def serve(service: Service, listener: socket.socket, *, key: str | None = None, limits: Limits | None = None,
          agents: bool = False) -> None:
    """Answers on `listener` (of `bind`, with the same key) until SIGTERM or SIGINT. agents: as `application`."""
    limits = limits or Limits()
    server.run(application(service, key=key, limits=limits, agents=agents), listener, protocol=bounded(limits),
               drain_seconds=limits.drain_seconds, lifespan="on",
               say=lambda address: f"serving the memory at http://{address}/docs")
