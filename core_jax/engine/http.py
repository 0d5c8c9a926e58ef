"""An OpenAI-compatible HTTP face over a backend: a Starlette application. Imports without JAX.

    application(backend)  ->  /v1/chat/completions  /v1/completions  /v1/embeddings  /v1/models  /health  /metrics

Each choice runs in a thread of its own through `Streaming.stream` where the backend has it, else through `submit`; when
the client goes away, the next piece of text raises in there and so ends the request. Prompts and answers are never
logged.
"""
from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import h11
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from core_jax.engine import wire
from core_jax.engine.backend import Backend, Streaming
from core_jax.engine.request import Completion, Request
from core_jax.engine.server import Door, too_large

LOG = logging.getLogger(__name__)
CHOICE = "choice"  # name of the threads that wait for a choice
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/health", "/metrics")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one server holds at most; beyond it a client is told so (413, 408, 429) or, for connections, cut off.

    choices: running or waiting in the backend. connections: open ones, idle ones included. header_seconds,
    body_seconds: time to send the head and the body of a request. drain_seconds: for running requests after SIGTERM.
    """

    body_bytes: int = 8 << 20
    choices: int = 256
    connections: int = 512
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    drain_seconds: float = 30.0


class Gone(Exception):
    """Raised inside the backend when nobody waits for the answer any more."""


class Metrics:
    def __init__(self):
        self.registry = CollectorRegistry()

        def make(kind: type, name: str, text: str, labels: Sequence[str] = (), **more: Any) -> Any:
            return kind(name, text, labels, namespace="serve", registry=self.registry, **more)

        seconds = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
        self.requests = make(Counter, "http_requests", "HTTP requests by route and status", ("route", "status"))
        self.seconds = make(Histogram, "http_request_seconds", "Time to the answer's end", ("route",), buckets=seconds)
        self.first_token = make(Histogram, "first_token_seconds", "Time to the first token", buckets=seconds)
        self.prompt_tokens = make(Counter, "prompt_tokens", "Tokens of prompts")
        self.cached_tokens = make(Counter, "cached_prompt_tokens", "Tokens of prompts that came from the prefix cache")
        self.made_tokens = make(Counter, "generated_tokens", "Tokens generated")
        self.failed = make(Counter, "failed_choices", "Choices that ended in an error")
        self.cancelled = make(Counter, "cancelled_choices", "Choices whose client went away")
        self.choices = make(Gauge, "choices", "Choices running or waiting")
        self.engine = make(Gauge, "engine", "What the engine says of itself", ("what",))

    def count(self, completion: Completion) -> None:
        self.prompt_tokens.inc(completion.prompt_tokens)
        self.cached_tokens.inc(completion.cached_tokens)
        self.made_tokens.inc(completion.completion_tokens)
        if completion.finish == "error":
            self.failed.inc()
        if completion.seconds_to_first_token is not None:
            self.first_token.observe(completion.seconds_to_first_token)


class Job:
    """The choices of one HTTP request, each in a daemon thread; what they say arrives in `events`, in order.

    An event is (index, str piece), (index, Completion) at the end, or (index, Exception).
    """

    def __init__(self, face: Face, requests: Sequence[Request]):
        self.face, self.requests = face, requests
        self.events: asyncio.Queue[tuple[int, str | Completion | Exception]] = asyncio.Queue()
        self.gone = threading.Event()
        self._loop = asyncio.get_running_loop()
        for i, request in enumerate(requests):
            face.metrics.choices.inc()
            face.open += 1
            threading.Thread(target=self._serve, args=(i, request), name=CHOICE, daemon=True).start()

    def _serve(self, index: int, request: Request) -> None:
        backend, outcome = self.face.backend, None

        def on_text(piece: str) -> None:
            if self.gone.is_set() or self.face.ending.is_set():
                raise Gone
            if piece:
                self._tell(index, piece)

        try:
            if isinstance(backend, Streaming):
                outcome = backend.stream(request, on_text)
            else:
                outcome = backend.submit([request])[0]
                if outcome.text and outcome.finish != "error":
                    on_text(outcome.text)
        except Gone:
            self.face.metrics.cancelled.inc()
            outcome = Gone()
        except Exception as e:
            outcome = e
        if isinstance(outcome, Completion):
            self.face.metrics.count(outcome)
        self._tell(index, outcome)

    def _tell(self, index: int, what: Any) -> None:
        def put() -> None:
            if not isinstance(what, str):
                self.face.metrics.choices.dec()
                self.face.open -= 1
            self.events.put_nowait((index, what))

        try:
            self._loop.call_soon_threadsafe(put)
        except RuntimeError:  # the loop ended while a choice was under way
            self.gone.set()

    async def next(self) -> tuple[int, str | Completion]:
        """Raises: WireError for a request that the backend refused, or that broke it."""
        index, what = await self.events.get()
        if isinstance(what, Completion) and what.finish == "error":
            raise wire.WireError(what.error or "refused", code="refused_by_model")
        if isinstance(what, Exception):
            report(what)
            raise wire.WireError("the model failed on this request", status=500, code="model_failed")
        return index, what

    async def completions(self) -> list[Completion]:
        done: dict[int, Completion] = {}
        while len(done) < len(self.requests):
            index, what = await self.next()
            if isinstance(what, Completion):
                done[index] = what
        return [done[i] for i in range(len(self.requests))]


def report(error: BaseException) -> None:
    """Where an exception came from; its message may hold a patient's text and is left out."""
    trace, last = error.__traceback__, "unknown"
    while trace is not None:
        last, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    LOG.error("%s at %s", type(error).__name__, last)


class Face:
    """The handlers and what they share."""

    def __init__(self, backend: Backend, models: wire.Models, encoder: Any, limits: Limits):
        self.backend, self.models, self.encoder, self.limits = backend, models, encoder, limits
        self.metrics, self.open = Metrics(), 0
        self.ending = threading.Event()
        self._encoding = asyncio.Lock()

    def end(self, seconds: float = 10.0) -> None:
        """Ends the choices still under way, after the event loop; waits for their threads. One that came back from the
        device while the interpreter is taken down would abort the process."""
        self.ending.set()
        until = time.monotonic() + seconds
        for thread in threading.enumerate():
            if thread.name == CHOICE:
                thread.join(max(0.0, until - time.monotonic()))

    async def chat(self, http: HttpRequest) -> Response:
        return await self._generate(http, wire.read_chat)

    async def text(self, http: HttpRequest) -> Response:
        return await self._generate(http, wire.read_text)

    async def embeddings(self, http: HttpRequest) -> Response:
        wanted = wire.read_embeddings(await self._body(http), self.models, getattr(self.encoder, "dim", None))
        self._admit(1)
        self.open += 1
        try:
            async with self._encoding:  # an encoder serves one call at a time
                try:
                    vectors = await asyncio.to_thread(self.encoder.encode, wanted.texts)
                except ValueError as e:
                    raise wire.WireError(str(e)[:300], param="input") from None
        finally:
            self.open -= 1
        return JSONResponse(wire.embeddings(wanted, vectors, _count_tokens(self.encoder, wanted.texts)))

    async def list_models(self, http: HttpRequest) -> Response:
        return JSONResponse(self.models.listing())

    async def one_model(self, http: HttpRequest) -> Response:
        return JSONResponse(self.models.entry(http.path_params["name"]))

    async def health(self, http: HttpRequest) -> Response:
        return JSONResponse({"status": "ok", "model": self.models.served})

    async def show_metrics(self, http: HttpRequest) -> Response:
        if (progress := getattr(self.backend, "progress", None)) is not None:
            for what, value in vars(progress()).items():
                self.metrics.engine.labels(what).set(value)
        return Response(generate_latest(self.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _body(self, http: HttpRequest) -> dict[str, Any]:
        raw = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in http.stream():
                    raw += part
                    if len(raw) > self.limits.body_bytes:
                        raise wire.WireError(too_large(self.limits.body_bytes), status=413)
        except TimeoutError:
            raise wire.WireError("body: did not arrive in time", status=408) from None
        return wire.parse(bytes(raw))

    def _admit(self, choices: int) -> None:
        if self.open + choices > self.limits.choices:
            raise wire.WireError("the server is full; try again", status=429, code="server_full")

    async def _generate(self, http: HttpRequest, read: Callable[..., wire.Wanted]) -> Response:
        wanted = read(await self._body(http), self.models)
        self._admit(len(wanted.requests))
        job, answer = Job(self, wanted.requests), wire.Answer.to(wanted, int(time.time()))
        try:
            if not wanted.stream:
                return JSONResponse(answer.whole(await _or_gone(http, job.completions())))
            opening = await _or_gone(http, job.next())  # a refusal is answered with its status, not in the stream
        except BaseException:
            job.gone.set()
            raise
        return StreamingResponse(
            _events(job, answer, opening), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _or_gone(http: HttpRequest, work: Awaitable[Any]) -> Any:
    """What `work` gives, unless the client goes away first (ClientDisconnect)."""
    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(watch())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def _events(job: Job, answer: wire.Answer, event: tuple[int, str | Completion]) -> AsyncIterator[str]:
    """Server-sent events, `event` being the first of the job's."""
    done: dict[int, Completion] = {}
    try:
        for index in range(len(job.requests)):
            if (chunk := answer.first(index)) is not None:
                yield _sse(chunk)
        while True:
            index, what = event
            if isinstance(what, Completion):
                done[index] = what
                yield _sse(answer.last(index, what))
                if len(done) == len(job.requests):
                    break
            else:
                yield _sse(answer.piece(index, what))
            event = await job.next()
        if answer.wanted.usage:
            yield _sse(answer.counts([done[i] for i in range(len(job.requests))]))
        yield "data: [DONE]\n\n"
    except wire.WireError as e:
        yield _sse(e.body())
    finally:
        job.gone.set()


def _sse(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n"


def _count_tokens(encoder: Any, texts: Sequence[str]) -> int:
    """Tokens the encoder read, or words where it has no tokenizer."""
    tokenizer = getattr(encoder, "tokenizer", None)
    rows = tokenizer.encode(texts, encoder.max_length) if tokenizer is not None else [t.split() for t in texts]
    return sum(map(len, rows))


class Guard:
    """Around the application: who may ask, how much may be sent, and the count of what was answered."""

    def __init__(self, app: ASGIApp, face: Face, key: str | None):
        self.app, self.face = app, face
        self.door = Door(key, ("/health",), face.limits.body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        begin, status, path = time.perf_counter(), 0, scope["path"]
        route = next((r for r in ROUTES if path == r or (r == "/v1/models" and path.startswith(r + "/"))), "other")

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (refusal := self.door.refusal(scope)) is not None:
                status, why = refusal
                raise wire.WireError(why, status=status, code="invalid_api_key" if status == 401 else None)
            await self.app(scope, receive, watched)
        except wire.WireError as e:
            await _error(e)(scope, receive, watched)
        except ClientDisconnect:
            status = 499
        except asyncio.CancelledError:  # the time that running requests have after SIGTERM is over
            if not status:
                await _error(wire.WireError("the server is shutting down", status=503))(scope, receive, watched)
        except Exception as e:
            report(e)
            if not status:
                await _error(wire.WireError("internal error", status=500))(scope, receive, watched)
        finally:
            self.face.metrics.requests.labels(route, str(status or 499)).inc()
            self.face.metrics.seconds.labels(route).observe(time.perf_counter() - begin)


def _error(error: wire.WireError) -> JSONResponse:
    headers = {"retry-after": "1"} if error.status == 429 else {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error.body(), error.status, headers)


async def _on_wire_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, wire.WireError)
    return _error(error)


async def _on_failure(http: HttpRequest, error: Exception) -> Response:
    return _error(wire.WireError("internal error", status=500))  # Guard reports it


async def _on_http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {404: "no such path", 405: "method not allowed here"}.get(error.status_code, error.detail)
    response = _error(wire.WireError(message, status=error.status_code))
    response.headers.update(error.headers or {})
    return response


def application(backend: Backend, *, served_name: str | None = None, adapters: Sequence[str] = (), encoder: Any = None,
                encoder_name: str | None = None, key: str | None = None, limits: Limits | None = None) -> Guard:
    """The ASGI application.

    Args:
        served_name: what clients call the model; backend.model by default. adapters: names of the backend's adapters.
        encoder: a `core_jax.embed.Encoder` for /v1/embeddings, called encoder_name (its id by default).
        key: every request but /health must bring it as a bearer token; None = whoever can connect may ask.
    """
    limits = limits or Limits()
    models = wire.Models(served_name or backend.model, tuple(adapters),
                         None if encoder is None else encoder_name or encoder.id)
    face = Face(backend, models, encoder, limits)
    routes = [
        Route("/v1/chat/completions", face.chat, methods=["POST"]),
        Route("/v1/completions", face.text, methods=["POST"]),
        Route("/v1/embeddings", face.embeddings, methods=["POST"]),
        Route("/v1/models", face.list_models),
        Route("/v1/models/{name:path}", face.one_model),
        Route("/health", face.health),
        Route("/metrics", face.show_metrics),
    ]
    handlers = {wire.WireError: _on_wire_error, HTTPException: _on_http_error, Exception: _on_failure}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, face, key)


class Bounded(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with a bound on open connections, and a clock on what a client has yet to send.

    Subclasses set `limits` (`bounded(limits)` makes one).
    """

    limits = Limits()
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        if len(self.connections) >= self.limits.connections:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._owes():
            self._wait()
        elif self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def _owes(self) -> bool:
        """The client has yet to send the head of its next request, or the rest of a body that was answered already."""
        theirs = self.conn.their_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and self.conn.our_state is h11.DONE)

    def _wait(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self.limits.header_seconds, self._out_of_time)

    def _out_of_time(self) -> None:
        self._clock = None
        if self._owes():
            self.transport.abort()


def bounded(limits: Limits) -> type[Bounded]:
    return type("Bounded", (Bounded,), {"limits": limits})
