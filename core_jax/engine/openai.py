"""Any OpenAI-compatible endpoint behind the `Backend` protocol, Azure's form too. Imports without JAX.

The official client does the wire: it retries with jittered back-off on 408, 409, 429, 5xx, dropped connections and
timeouts, and waits as long as a Retry-After says (up to two minutes; a longer one ends the request). Keys come from the
environment only and stand in no message.

What plain OpenAI has no field for goes where vLLM (and launch/serve.py) reads it: `top_k`, `stop_token_ids`,
`chat_template_kwargs.enable_thinking`, and `structured_outputs` for grammars other than a JSON schema. An adapter is
the endpoint's model of that name.
"""
from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from core_jax.chat import strip_thinking
from core_jax.engine.backend import OnDone
from core_jax.engine.grammar import check
from core_jax.engine.request import Completion, LabelScores, Request

FINISH = {"stop": "stop", "eos_token": "stop", "length": "length"}
TOP = 20  # alternatives a chat endpoint lists for a token, at most
WIRE = {"regex": "regex", "lark": "grammar", "choice": "choice"}  # grammar kind -> key of structured_outputs


class Refused(Exception):
    """An answer that is no completion."""


class Endpoint:
    """A model behind HTTP.

    Chat requests go to /chat/completions, text and token ids to /completions. At most `concurrency` requests are under
    way, over all threads that call. Token ids of the answer are not known here: `Completion.tokens` is empty.
    """

    def __init__(self, model: str, client: Any, *, concurrency: int = 8):
        """client: an `openai.OpenAI` or `openai.AzureOpenAI`; `connect` makes one."""
        if not model:
            raise ValueError("model: got none, expected the endpoint's name of the model")
        if concurrency < 1:
            raise ValueError(f"concurrency: got {concurrency}, expected at least 1")
        self.model, self._client = model, client
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="endpoint")
        self._limit_field = "max_tokens"  # newer OpenAI models refuse it, older servers know nothing else

    @classmethod
    def connect(cls, model: str, *, base_url: str | None = None, concurrency: int = 8, retries: int = 5,
                timeout: float = 120.0, environ: Mapping[str, str] | None = None) -> Endpoint:
        """
        Args:
            base_url: instead of OPENAI_BASE_URL. With neither, AZURE_OPENAI_ENDPOINT selects Azure's form
                (AZURE_OPENAI_API_KEY, OPENAI_API_VERSION; `model` is the deployment), else it is api.openai.com.
                The key is OPENAI_API_KEY; an endpoint of your own may need none.
            retries: after the first try. timeout: seconds without an answer (or without more of it), each try.
            environ: instead of os.environ.

        Raises:
            ValueError: the openai package is not installed; a variable is missing; a URL that carries a key.
        """
        try:
            import openai
        except ImportError:
            raise ValueError("an endpoint needs the openai package; run: pip install 'openai>=2,<4'") from None
        env = os.environ if environ is None else environ
        if retries < 0 or not timeout > 0:
            raise ValueError(f"retries, timeout: got {retries}, {timeout}, expected at least 0 and above 0")
        common = {"max_retries": retries, "timeout": timeout}
        url = base_url or env.get("OPENAI_BASE_URL")
        if not url and env.get("AZURE_OPENAI_ENDPOINT"):
            _check_url(env["AZURE_OPENAI_ENDPOINT"], "AZURE_OPENAI_ENDPOINT")
            for name in ("AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION"):
                if not env.get(name):
                    raise ValueError(f"{name}: not set; AZURE_OPENAI_ENDPOINT needs it")
            return cls(model, openai.AzureOpenAI(
                azure_endpoint=env["AZURE_OPENAI_ENDPOINT"], api_key=env["AZURE_OPENAI_API_KEY"],
                api_version=env["OPENAI_API_VERSION"], **common), concurrency=concurrency)
        if not url and not env.get("OPENAI_API_KEY"):
            raise ValueError("OPENAI_API_KEY: not set; set it, or OPENAI_BASE_URL for an endpoint of your own")
        if url:
            _check_url(url, "base_url" if base_url else "OPENAI_BASE_URL")
        return cls(model, openai.OpenAI(
            base_url=url or "https://api.openai.com/v1", api_key=env.get("OPENAI_API_KEY") or "none", **common),
            concurrency=concurrency)

    def __repr__(self) -> str:
        return f"Endpoint(model={self.model!r}, host={urlsplit(str(self._client.base_url)).hostname!r})"

    def close(self) -> None:
        """Waits for the requests that are under way."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def submit(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Completion]:
        """As `Backend.submit`; `on_done` is called from the workers' threads, one call at a time."""
        turn = threading.Lock()

        def serve(i: int, request: Request) -> Completion:
            completion = self._attempt(lambda: self._complete(request), lambda error: Completion.failed(
                request, request.adapter or self.model, error))
            if on_done is not None:
                with turn:
                    on_done(i, completion)
            return completion

        return self._all(serve, requests)

    def score_labels(self, prompts: Sequence[Request], labels: Sequence[Sequence[str]]) -> list[LabelScores]:
        """As `Backend.score_labels`.

        Text prompts: from the endpoint's echo of the prompt's log probabilities, one call a label (vLLM and llama.cpp
        have it). Chat prompts: from the alternatives of the first token, so that every label must be one token and
        among the likeliest 20; where one is not, the prompt's scores say so in `error`.
        """
        if len(prompts) != len(labels):
            raise ValueError(f"labels: got {len(labels)}, expected one list for each of {len(prompts)} prompts")
        def score(i: int, request: Request) -> LabelScores:
            return self._attempt(lambda: self._score(request, list(labels[i])), LabelScores.failed)

        return self._all(score, prompts)

    def _all(self, work: Callable[[int, Request], Any], requests: Sequence[Request]) -> list[Any]:
        futures = [self._pool.submit(work, i, r) for i, r in enumerate(requests)]
        try:
            return [f.result() for f in futures]
        except BaseException:
            for f in futures:
                f.cancel()
            raise

    def _attempt(self, work: Callable[[], Any], failed: Callable[[str], Any]) -> Any:
        """What `work` gives, or failed(why). Only what an endpoint can cause is caught."""
        import openai

        try:
            return work()
        except openai.APIStatusError as e:
            inner = e.body.get("message") if isinstance(e.body, Mapping) else None
            why = f"status {e.status_code}: {inner or e.message}"
        except openai.APITimeoutError:
            why = "no answer within the time limit"
        except openai.APIConnectionError as e:
            why = f"no connection: {e.__cause__ or e.message}"
        except Refused as e:
            why = str(e)
        except (openai.OpenAIError, json.JSONDecodeError) as e:
            why = f"unusable answer: {e}"
        return failed(self._clean(f"endpoint: {why}"))

    def _clean(self, message: str) -> str:
        """One line, cut, without the key."""
        key = self._client.api_key
        if key:
            message = message.replace(key, "***")
        return " ".join(message.split())[:400]

    def _complete(self, request: Request) -> Completion:
        if not request.prompt:
            raise Refused("empty prompt")
        if request.grammar is not None:
            try:
                check(request.grammar)
            except ValueError as e:
                raise Refused(str(e)) from None
        sampling, extra = request.sampling, _extra(request)
        fields: dict[str, Any] = {
            "model": request.adapter or self.model, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "seed": sampling.seed, "extra_body": extra or None}
        if sampling.stop:
            fields["stop"] = list(sampling.stop)
        if request.is_chat:
            if sampling.logprobs:
                fields["logprobs"] = True
            answer, choice = self._chat(request, fields)
            message = getattr(choice, "message", None)
            text = getattr(message, "content", 0)
            thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""
            if getattr(message, "refusal", None) or (text is None and getattr(message, "tool_calls", None)):
                raise Refused(f"no text in the answer: {getattr(message, 'refusal', None) or 'a tool call'}")
            text = "" if text is None else text
            rows = getattr(getattr(choice, "logprobs", None), "content", None)
            logprobs = [getattr(row, "logprob", None) for row in rows] if rows else None
        else:
            if sampling.logprobs:
                fields["logprobs"] = 1
            prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
            answer = self._client.completions.create(prompt=prompt, max_tokens=sampling.max_tokens, **fields)
            choice, thinking = _choice(answer), ""
            text = getattr(choice, "text", None)
            logprobs = getattr(getattr(choice, "logprobs", None), "token_logprobs", None)
        if not isinstance(text, str) or not isinstance(thinking, str):
            raise Refused("no text in the answer")
        finish = getattr(choice, "finish_reason", None)
        if finish not in FINISH:
            raise Refused(f"the answer ended by {finish!r}, expected one of {sorted(FINISH)}")
        if not thinking:
            thinking, text = strip_thinking(text)
        usage = getattr(answer, "usage", None)
        return Completion(
            text=text, tokens=(), finish=FINISH[finish], error=None, prompt_tokens=_count(usage, "prompt_tokens"),
            cached_tokens=_count(getattr(usage, "prompt_tokens_details", None), "cached_tokens"),
            completion_tokens=_count(usage, "completion_tokens"), prompt_sha256=request.prompt_sha256(),
            model=named if isinstance(named := getattr(answer, "model", None), str) and named else fields["model"],
            sampling=sampling, thinking=thinking,
            logprobs=tuple(float(x) for x in logprobs) if sampling.logprobs and _numbers(logprobs) else None)

    def _chat(self, request: Request, fields: dict[str, Any]) -> tuple[Any, Any]:
        import openai

        messages = [dict(m) for m in request.prompt]
        while True:
            name = self._limit_field
            try:
                answer = self._client.chat.completions.create(
                    messages=messages, **{name: request.sampling.max_tokens}, **fields)
                return answer, _choice(answer)
            except openai.BadRequestError as e:
                if name != "max_tokens" or "max_completion_tokens" not in str(e):
                    raise
                self._limit_field = "max_completion_tokens"

    def _score(self, request: Request, labels: list[str]) -> LabelScores:
        if not request.prompt or not labels or not all(labels):
            raise Refused("empty prompt or label")
        model = request.adapter or self.model
        if request.is_chat:
            single = {"logprobs": True, "top_logprobs": TOP, "temperature": 0.0, "model": model}
            if extra := _thinking_switch(request):
                single["extra_body"] = extra
            short = Request(request.prompt, sampling=type(request.sampling)(max_tokens=1))
            answer, choice = self._chat(short, single)
            rows = getattr(getattr(choice, "logprobs", None), "content", None)
            if not rows:
                raise Refused("the endpoint gives no log probabilities")
            listed = getattr(rows[0], "top_logprobs", None) or []
            seen = {getattr(row, "token", None): getattr(row, "logprob", None) for row in reversed(listed)}
            if not _numbers(list(seen.values())):
                raise Refused("the endpoint gives no log probabilities")
            if missing := [label for label in labels if label not in seen]:
                raise Refused(f"label {missing[0]!r} is not among the {len(seen)} likeliest first tokens; "
                              "give text prompts to an endpoint that echoes log probabilities")
            scores, usage = [seen[label] for label in labels], getattr(answer, "usage", None)
        elif isinstance(request.prompt, str):
            scores = []
            for label in labels:
                whole = request.prompt + label
                answer = self._client.completions.create(
                    model=model, prompt=whole, max_tokens=1, temperature=0.0, echo=True, logprobs=1)
                table, usage = getattr(_choice(answer), "logprobs", None), getattr(answer, "usage", None)
                offsets, values = getattr(table, "text_offset", None), getattr(table, "token_logprobs", None)
                if not _numbers(offsets) or not isinstance(values, list):
                    raise Refused("the endpoint does not echo log probabilities of the prompt")
                if len(request.prompt) not in offsets:
                    raise Refused(f"the endpoint's tokens run across the end of the prompt into label {label!r}")
                own = [v for o, v in zip(offsets, values) if len(request.prompt) <= o < len(whole)]
                if not own or not _numbers(own):
                    raise Refused(f"the endpoint gives no log probabilities of label {label!r}")
                scores.append(sum(own))
        else:
            raise Refused("labels of token ids cannot be scored; give a text or chat prompt")
        return LabelScores.of(np.array(scores, np.float32), prompt_tokens=_count(usage, "prompt_tokens"))


def _check_url(url: str, name: str) -> None:
    try:
        parts = urlsplit(url)
        secrets = parts.username or parts.password or parts.query
        usable = parts.scheme in ("http", "https") and parts.hostname and not secrets
    except ValueError:
        usable = False
    if not usable:  # not shown: it may hold a key
        raise ValueError(f"{name}: expected http(s)://host/path, without user, password or query")


def _extra(request: Request) -> dict[str, Any]:
    """Fields beyond OpenAI's own, and the response format (which /completions of other servers takes too)."""
    extra = _thinking_switch(request)
    if request.sampling.top_k:
        extra["top_k"] = request.sampling.top_k
    if request.sampling.stop_tokens:
        extra["stop_token_ids"] = list(request.sampling.stop_tokens)
    if request.grammar is not None:
        kind, text = request.grammar.kind, request.grammar.text
        if kind == "json_schema":
            schema = json.loads(text)
            extra["response_format"] = {"type": "json_schema", "json_schema": {
                "name": "answer", "schema": schema, "strict": _closed(schema)}}
        else:
            extra["structured_outputs"] = {WIRE[kind]: json.loads(text) if kind == "choice" else text}
    return extra


def _thinking_switch(request: Request) -> dict[str, Any]:
    if request.thinking is None or not request.is_chat:
        return {}
    return {"chat_template_kwargs": {"enable_thinking": request.thinking}}


def _closed(schema: Any) -> bool:
    """OpenAI's strict mode takes a schema whose objects name all their keys, require them and allow no other."""
    rest = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, Mapping):
            if "properties" in part or part.get("type") == "object":
                keys = part.get("properties") or {}
                if part.get("additionalProperties") is not False or set(part.get("required") or ()) != set(keys):
                    return False
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return True


def _choice(answer: Any) -> Any:
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise Refused("no choices in the answer")
    return choices[0]


def _count(usage: Any, name: str) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) else 0


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, (int, float)) for v in values)
