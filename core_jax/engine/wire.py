"""OpenAI's JSON, in and out: bodies -> requests, completions -> answers and stream chunks. Imports without JAX.

Every field of a body is read, refused or known to change nothing: a setting that this server lacks (penalties, tools)
is an error and never silently dropped. Beyond OpenAI's own, the fields are vLLM's: `top_k`, `stop_token_ids`,
`chat_template_kwargs.enable_thinking`, `structured_outputs`.
"""
from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.engine.grammar import check
from core_jax.engine.request import Completion, Grammar, Prompt, Request, Sampling
from core_jax.engine.server import sendable

CHAT_TOKENS, TEXT_TOKENS = 1024, 16  # where a body sets no limit (16 is OpenAI's own)
MOST_TOKENS, MOST_PROMPTS, MOST_CHOICES, MOST_STOPS = 1_000_000, 256, 16, 16
LABELS = ("user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier", "parallel_tool_calls")
NEUTRAL = {  # fields taken where they ask for nothing
    "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},), "best_of": (1,), "echo": (False,),
    "suffix": ("",), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],), "modalities": (["text"],),
    "top_logprobs": (0,), "repetition_penalty": (1,), "min_p": (0,),
}
KINDS = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "an object"}
STRUCTURED = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "lark"}


class WireError(ValueError):
    """A request that is answered with an error: HTTP status, message, the field's name, a code."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
            self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": sendable(str(self)), "type": kind,
                          "param": None if self.param is None else sendable(self.param), "code": self.code}}


@dataclasses.dataclass(frozen=True)
class Models:
    """Names a body may give: the served model, its adapters, and the encoder behind /v1/embeddings."""

    served: str
    adapters: tuple[str, ...] = ()
    encoder: str | None = None

    def adapter(self, name: str) -> str | None:
        """The adapter of that name, or None for the base model. Raises: WireError 404."""
        if name == self.served:
            return None
        if name not in self.adapters:
            raise _unknown(name, (self.served, *self.adapters))
        return name

    def listing(self) -> dict[str, Any]:
        names = [self.served, *self.adapters] + ([self.encoder] if self.encoder else [])
        return {"object": "list", "data": [self.entry(n) for n in names]}

    def entry(self, name: str) -> dict[str, Any]:
        names = (self.served, *self.adapters, *([self.encoder] if self.encoder else []))
        if name not in names:
            raise _unknown(name, names)
        parent = {"parent": self.served} if name in self.adapters else {}
        return {"id": name, "object": "model", "created": 0, "owned_by": "core_jax"} | parent


def _unknown(name: str, names: Sequence[str]) -> WireError:
    return WireError(f"model: got {name[:200]!r}, expected one of {list(names)}", status=404, param="model",
                     code="model_not_found")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A body for /chat/completions or /completions: the choices to make, prompt by prompt, and how to answer."""

    chat: bool
    model: str
    requests: tuple[Request, ...]
    choices: int  # of each prompt
    stream: bool
    usage: bool  # a last chunk with the token counts


@dataclasses.dataclass(frozen=True)
class WantedEmbeddings:
    model: str
    texts: tuple[str, ...]
    base64: bool


def parse(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises: WireError: not UTF-8, not JSON (NaN is not), nested too deep, no object."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise WireError("body: nested too deep") from None
    except ValueError as e:
        raise WireError(f"body: not JSON: {str(e)[:200]}") from None
    if not isinstance(value, dict):
        raise WireError(f"body: got {type(value).__name__}, expected an object")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class Fields:
    """Reads a body's fields once each; what was not read is refused. null is as good as absent."""

    def __init__(self, body: Mapping[str, Any], where: str = ""):
        self._rest, self._where = {k: v for k, v in body.items() if v is not None}, where

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        if name not in self._rest:
            return default
        value, kinds = self._rest.pop(name), kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(KINDS[k] for k in kinds)
            raise WireError(f"{self._where}{name}: got {_shown(value)}, expected {expected}", param=self._where + name)
        return text(self._where + name, value) if isinstance(value, str) else value

    def need(self, name: str, kinds: type | tuple[type, ...]) -> Any:
        value = self.get(name, kinds)
        if value is None:
            raise WireError(f"{self._where}{name}: missing", param=self._where + name)
        return value

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        value = self.get(name, int, default)
        if value is not None and not low <= value <= high:
            raise WireError(f"{self._where}{name}: got {_shown(value)}, expected an integer in [{low}, {high}]",
                            param=self._where + name)
        return value

    def real(self, name: str, default: float) -> float:
        value = self.get(name, (int, float), default)
        try:
            return float(value)
        except OverflowError:
            raise WireError(f"{self._where}{name}: got {_shown(value)}, which no float holds",
                            param=self._where + name) from None

    def close(self) -> None:
        for name in LABELS:
            self._rest.pop(name, None)
        for name, value in self._rest.items():
            if name not in NEUTRAL:
                raise WireError(f"{self._where}{_shown(name)}: unknown field", param=(self._where + name)[:100])
            if value not in NEUTRAL[name]:
                raise WireError(f"{name}: got {_shown(value)}, which this server does not do", param=name)


def text(name: str, value: Any) -> str:
    """Raises: WireError: no string, or one with half a surrogate pair, which no encoding has."""
    if not isinstance(value, str):
        raise WireError(f"{name}: got {_shown(value)}, expected a string", param=name)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as e:
        raise WireError(f"{name}: character {e.start} is half a surrogate pair", param=name) from None
    return value


def _shown(value: Any) -> str:
    """A value in a message: short, and never a container's content."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return ascii(value[:50] if isinstance(value, str) else value)


def read_chat(body: Mapping[str, Any], models: Models) -> Wanted:
    """A body for /v1/chat/completions. Raises: WireError."""
    fields = Fields(body)
    model = fields.need("model", str)
    messages = tuple(_message(i, m) for i, m in enumerate(fields.need("messages", list)))
    if not messages:
        raise WireError("messages: got none, expected at least one", param="messages")
    switch = Fields(fields.get("chat_template_kwargs", dict, {}), "chat_template_kwargs.")
    thinking = switch.get("enable_thinking", bool)
    switch.close()
    limit = fields.number("max_tokens", 1, MOST_TOKENS)
    limit = fields.number("max_completion_tokens", 1, MOST_TOKENS, limit) or CHAT_TOKENS
    logprobs = fields.get("logprobs", bool, False)
    return _wanted(fields, models, model, [messages], limit, logprobs, thinking, chat=True)


def read_text(body: Mapping[str, Any], models: Models) -> Wanted:
    """A body for /v1/completions: a prompt, a list of prompts, token ids, or a list of those. Raises: WireError."""
    fields = Fields(body)
    model, prompt = fields.need("model", str), fields.need("prompt", (str, list))
    prompts: list[Prompt]
    if isinstance(prompt, str):
        prompts = [prompt]
    elif prompt and all(isinstance(p, int) for p in prompt):
        prompts = [_token_ids("prompt", prompt)]
    else:
        prompts = [_token_ids(f"prompt[{i}]", p) if isinstance(p, list) else text(f"prompt[{i}]", p)
                   for i, p in enumerate(prompt)]
    if not 1 <= len(prompts) <= MOST_PROMPTS:
        raise WireError(f"prompt: got {len(prompts)} prompts, expected 1 to {MOST_PROMPTS}", param="prompt")
    limit = fields.number("max_tokens", 1, MOST_TOKENS, TEXT_TOKENS)
    logprobs = fields.number("logprobs", 0, 1) is not None
    return _wanted(fields, models, model, prompts, limit, logprobs, None, chat=False)


def _message(i: int, raw: Any) -> dict[str, str]:
    where = f"messages[{i}]"
    if not isinstance(raw, dict):
        raise WireError(f"{where}: got {_shown(raw)}, expected an object", param=where)
    fields = Fields(raw, where + ".")
    role = fields.need("role", str)
    role = "system" if role == "developer" else role
    content = fields.need("content", (str, list))
    if isinstance(content, list):
        parts = []
        for j, part in enumerate(content):
            if not isinstance(part, dict) or part.get("type") != "text":
                raise WireError(f"{where}.content[{j}]: expected a part of type 'text'", param=f"{where}.content")
            parts.append(text(f"{where}.content[{j}].text", part.get("text")))
        content = "".join(parts)
    fields.get("name", str)
    fields.close()
    return {"role": role, "content": content}


def _token_ids(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**31 for v in values):
        raise WireError(f"{name}: expected a string or token ids", param=name)
    return tuple(values)


def _wanted(fields: Fields, models: Models, model: str, prompts: Sequence[Prompt], limit: int, logprobs: bool,
            thinking: bool | None, *, chat: bool) -> Wanted:
    adapter = models.adapter(model)
    choices = fields.number("n", 1, MOST_CHOICES, 1)
    if len(prompts) * choices > MOST_PROMPTS:
        raise WireError(f"n: got {len(prompts)} prompts of {choices} choices, expected at most {MOST_PROMPTS} in all",
                        param="n")
    stop = fields.get("stop", (str, list), [])
    stop = [stop] if isinstance(stop, str) else stop
    if len(stop) > MOST_STOPS:
        raise WireError(f"stop: got {len(stop)}, expected at most {MOST_STOPS}", param="stop")
    seed = fields.number("seed", -(2**63), 2**63 - 1)
    seed = secrets.randbelow(2**32) if seed is None else seed % 2**32
    stream = fields.get("stream", bool, False)
    options = Fields(fields.get("stream_options", dict, {}), "stream_options.")
    usage = options.get("include_usage", bool, False)
    options.get("include_obfuscation", bool)
    options.close()
    if stream and logprobs:
        raise WireError("logprobs: not given in a stream; ask without stream", param="logprobs")
    grammar = _grammar(fields)
    values = {
        "max_tokens": limit, "temperature": fields.real("temperature", 1.0), "top_p": fields.real("top_p", 1.0),
        "top_k": max(fields.number("top_k", -1, 2**31 - 1, 0), 0),
        "stop": tuple(text(f"stop[{i}]", s) for i, s in enumerate(stop)), "logprobs": logprobs,
        "stop_tokens": _token_ids("stop_token_ids", fields.get("stop_token_ids", list, []))}
    fields.close()
    try:
        requests = tuple(
            Request(prompt, Sampling(seed=(seed + j) % 2**32, **values), adapter, grammar, thinking)
            for prompt in prompts for j in range(choices))
    except ValueError as e:
        raise WireError(str(e)[:300], param=str(e).split(":")[0][:100]) from None
    return Wanted(chat, model, requests, choices, stream, usage)


def _grammar(fields: Fields) -> Grammar | None:
    found = []
    if (format_ := fields.get("response_format", dict)) is not None:
        kind = format_.get("type")
        if kind == "json_schema":
            inner = format_.get("json_schema")
            schema = inner.get("schema") if isinstance(inner, dict) else None
            if not isinstance(schema, dict):
                raise WireError("response_format.json_schema.schema: expected an object", param="response_format")
            found.append(("json_schema", json.dumps(schema)))
        elif kind == "json_object":
            found.append(("json_schema", '{"type": "object"}'))
        elif kind != "text":
            raise WireError(f"response_format.type: got {_shown(kind)}, expected 'text', 'json_object' or "
                            "'json_schema'", param="response_format")
    if (structured := fields.get("structured_outputs", dict)) is not None:
        inner = Fields(structured, "structured_outputs.")
        for name, kind in STRUCTURED.items():
            value = inner.get(name, {"json": (str, dict), "choice": list}.get(name, str))
            if value is not None:
                found.append((kind, value if isinstance(value, str) else json.dumps(value)))
        inner.close()
    if len(found) > 1:
        raise WireError("structured_outputs: got several grammars, expected one", param="structured_outputs")
    if not found:
        return None
    try:
        grammar = Grammar(*found[0])
        check(grammar)
    except ValueError as e:
        raise WireError(str(e)[:300], param="response_format") from None
    return grammar


def read_embeddings(body: Mapping[str, Any], models: Models, dim: int | None) -> WantedEmbeddings:
    """A body for /v1/embeddings. Raises: WireError; 404 where no encoder is served."""
    fields = Fields(body)
    model, given = fields.need("model", str), fields.need("input", (str, list))
    if models.encoder is None:
        raise WireError("this server has no encoder; start it with --encoder", status=404, code="model_not_found")
    if model != models.encoder:
        raise _unknown(model, [models.encoder])
    texts = [given] if isinstance(given, str) else [text(f"input[{i}]", t) for i, t in enumerate(given)]
    if not 1 <= len(texts) <= 2048:
        raise WireError(f"input: got {len(texts)} texts, expected 1 to 2048", param="input")
    form = fields.get("encoding_format", str, "float")
    if form not in ("float", "base64"):
        raise WireError(f"encoding_format: got {_shown(form)}, expected 'float' or 'base64'", param="encoding_format")
    if fields.number("dimensions", 1, 2**31, dim) != dim:
        raise WireError(f"dimensions: this encoder has {dim}", param="dimensions")
    fields.close()
    return WantedEmbeddings(model, tuple(texts), form == "base64")


def embeddings(wanted: WantedEmbeddings, vectors: np.ndarray, tokens: int) -> dict[str, Any]:
    """vectors: float32 [len(texts), E]."""
    rows = [base64.b64encode(np.ascontiguousarray(v, "<f4")).decode() if wanted.base64 else [float(x) for x in v]
            for v in vectors]
    return {"object": "list", "model": wanted.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]}


@dataclasses.dataclass(frozen=True)
class Answer:
    """Writes the answer to one body: whole, or chunk by chunk."""

    wanted: Wanted
    created: int  # seconds since 1970
    id: str

    @classmethod
    def to(cls, wanted: Wanted, created: int) -> Answer:
        return cls(wanted, created, ("chatcmpl-" if wanted.chat else "cmpl-") + secrets.token_hex(12))

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """Each choice also says what it was made from: the prompt's hash and the sampling."""
        choices = []
        for i, c in enumerate(completions):
            if self.wanted.chat:
                thought = {"reasoning_content": c.thinking} if c.thinking else {}
                said: dict[str, Any] = {"message": {"role": "assistant", "content": c.text} | thought}
            else:
                said = {"text": c.text}
            choices.append({"index": i} | said | {
                "finish_reason": c.finish, "logprobs": self._logprobs(c), "prompt_sha256": c.prompt_sha256,
                "sampling": dataclasses.asdict(c.sampling)})
        kind = "chat.completion" if self.wanted.chat else "text_completion"
        return self._head(kind) | {"choices": choices, "usage": self.usage(completions)}

    def first(self, index: int) -> dict[str, Any] | None:
        """The chunk that opens a chat choice."""
        return self._chunk(index, {"role": "assistant", "content": ""}, None) if self.wanted.chat else None

    def piece(self, index: int, said: str) -> dict[str, Any]:
        return self._chunk(index, {"content": said}, None)

    def last(self, index: int, completion: Completion) -> dict[str, Any]:
        thought = {"reasoning_content": completion.thinking} if completion.thinking else {}
        return self._chunk(index, thought, completion.finish)

    def counts(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The chunk with the token counts."""
        kind = "chat.completion.chunk" if self.wanted.chat else "text_completion"
        return self._head(kind) | {"choices": [], "usage": self.usage(completions)}

    def usage(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """A prompt counts once, however many choices were made from it."""
        prompts = list(completions)[:: self.wanted.choices]
        read, made = sum(c.prompt_tokens for c in prompts), sum(c.completion_tokens for c in completions)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made,
                "prompt_tokens_details": {"cached_tokens": sum(c.cached_tokens for c in prompts)}}

    def _chunk(self, index: int, delta: dict[str, str], finish: str | None) -> dict[str, Any]:
        if self.wanted.chat:
            return self._head("chat.completion.chunk") | {
                "choices": [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}]}
        return self._head("text_completion") | {"choices": [
            {"index": index, "text": delta.get("content", ""), "finish_reason": finish, "logprobs": None}]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.wanted.model}

    def _logprobs(self, completion: Completion) -> dict[str, Any] | None:
        """Tokens are named by their ids, `token_id:17`."""
        if completion.logprobs is None:
            return None
        names = [f"token_id:{t}" for t in completion.tokens] or ["token_id:unknown"] * len(completion.logprobs)
        if self.wanted.chat:
            return {"content": [{"token": n, "logprob": p, "bytes": None, "top_logprobs": []}
                                for n, p in zip(names, completion.logprobs)], "refusal": None}
        return {"tokens": names, "token_logprobs": list(completion.logprobs), "top_logprobs": None, "text_offset": None}
