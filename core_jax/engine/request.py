"""What goes into an engine and what comes out: requests, sampling, grammars, completions. Imports without JAX."""
from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

GRAMMARS = ("json_schema", "lark", "regex", "choice")
FINISHES = ("stop", "length", "error")
ROLES = ("system", "user", "assistant", "tool")
Prompt = str | tuple[int, ...] | tuple[Mapping[str, Any], ...]


def _integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        range_ = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name}: got {value!r}, expected an integer {range_}")


def _number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"{name}: got {value!r}, expected a number in [{low}, {high}]")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when a completion ends.

    max_tokens: most tokens generated, the stop token included.
    temperature: 0 = greedy; else logits are divided by it before the softmax.
    top_p: smallest set of likeliest tokens whose probability reaches it (1 = all). top_k: likeliest k (0 = all).
    seed: token i of a completion depends on (seed, i) and its logits alone, whatever runs beside it.
    stop: strings that end the completion, across token boundaries too: the text is cut before the one that is complete
        first (`core_jax.engine.answer.cut`).
    stop_tokens: token ids that end it, beside the model's own end-of-turn tokens.
    logprobs: keep the log probability of each generated token (before temperature, top-k and top-p).

    Raises: ValueError naming the field.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    logprobs: bool = False

    def __post_init__(self):
        for name in ("stop", "stop_tokens"):
            value = getattr(self, name)
            if isinstance(value, (str, int)):
                raise ValueError(f"{name}: got {value!r}, expected a tuple")
            object.__setattr__(self, name, tuple(value))
        _integer("max_tokens", self.max_tokens, 1)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise ValueError("top_p: got 0, expected a number in (0, 1]")
        _integer("top_k", self.top_k, 0, 2**31 - 1)
        _integer("seed", self.seed, 0, 2**32 - 1)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ValueError(f"stop: got {text!r}, expected non-empty strings")
        for token in self.stop_tokens:
            _integer("stop_tokens", token, 0, 2**31 - 1)
        if not isinstance(self.logprobs, bool):
            raise ValueError(f"logprobs: got {self.logprobs!r}, expected True or False")


@dataclasses.dataclass(frozen=True)
class Grammar:
    """A language the completion must be in.

    kind "json_schema": text is the schema as JSON; "lark": a Lark grammar; "regex": an expression for the whole text;
    "choice": a JSON list of the strings allowed.

    Raises: ValueError naming the field.
    """

    kind: str
    text: str

    def __post_init__(self):
        if self.kind not in GRAMMARS:
            raise ValueError(f"grammar kind: got {self.kind!r}, expected one of {GRAMMARS}")
        if not isinstance(self.text, str) or not self.text:
            raise ValueError(f"grammar text: got {self.text!r}, expected a non-empty string")


@dataclasses.dataclass(frozen=True)
class Request:
    """One prompt to complete.

    prompt: text (the tokenizer adds its own beginning-of-sequence token where the model has one), token ids taken as
        they are, or chat messages `{"role": ..., "content": ...}` that the model's chat template renders.
    adapter: name of a LoRA adapter that the engine holds; None = the base model.
    thinking: chat prompts of models that can think: True or False sets the template's switch, None leaves it alone.

    An empty prompt is not refused here: it comes back as a completion that says so.
    Raises: ValueError naming the field.
    """

    prompt: Prompt
    sampling: Sampling = Sampling()
    adapter: str | None = None
    grammar: Grammar | None = None
    thinking: bool | None = None

    def __post_init__(self):
        if not isinstance(self.prompt, str):
            try:
                prompt = tuple(self.prompt)
            except TypeError:
                raise ValueError(f"prompt: got {self.prompt!r}, expected text, token ids or messages") from None
            if prompt and isinstance(prompt[0], Mapping):
                for i, message in enumerate(prompt):
                    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
                        raise ValueError(f"prompt[{i}]: got {message!r}, expected a message with a role of {ROLES}")
                    if not isinstance(message.get("content"), str):
                        raise ValueError(f"prompt[{i}].content: got {message.get('content')!r}, expected a string")
            else:
                for i, token in enumerate(prompt):
                    if isinstance(token, np.integer):
                        continue
                    _integer(f"prompt[{i}]", token, 0)
                prompt = tuple(int(token) for token in prompt)
            object.__setattr__(self, "prompt", prompt)
        for name, kind in (("sampling", Sampling), ("adapter", str), ("grammar", Grammar), ("thinking", bool)):
            value = getattr(self, name)
            if not (isinstance(value, kind) or value is None and name != "sampling"):
                raise ValueError(f"{name}: got {value!r}, expected {kind.__name__}")

    @property
    def is_chat(self) -> bool:
        return not isinstance(self.prompt, str) and bool(self.prompt) and isinstance(self.prompt[0], Mapping)

    def prompt_sha256(self) -> str:
        """Of the prompt as given (not of its tokens), so that every backend names a prompt alike."""
        if isinstance(self.prompt, str):
            payload = self.prompt.encode("utf-8", "surrogatepass")
        else:
            payload = json.dumps([dict(m) for m in self.prompt] if self.is_chat else list(self.prompt),
                                 ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
        return hashlib.sha256(payload).hexdigest()


@dataclasses.dataclass(frozen=True)
class Completion:
    """What came back for one request.

    text: the answer, cut before a stop string; without its thinking block, which is in `thinking`.
    tokens: token ids as generated, the stop token left out (empty where a remote backend gives none).
    finish: "stop" (stop string, stop token, end of the grammar), "length" (max_tokens or the model's last position),
        "error" (then `error` says why, and there is no text).
    cached_tokens: of prompt_tokens, how many came from the prefix cache. completion_tokens: generated, the stop token
        included. logprobs: one a token of `tokens`, where asked for. seconds_to_first_token: since the submission.
    """

    text: str
    tokens: tuple[int, ...]
    finish: str
    error: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prompt_sha256: str
    model: str
    sampling: Sampling
    thinking: str = ""
    seconds_to_first_token: float | None = None
    logprobs: tuple[float, ...] | None = None

    def __post_init__(self):
        if self.finish not in FINISHES:
            raise ValueError(f"finish: got {self.finish!r}, expected one of {FINISHES}")
        if (self.finish == "error") != (self.error is not None):
            raise ValueError(f"error: got {self.error!r} with finish {self.finish!r}")

    @classmethod
    def failed(cls, request: Request, model: str, error: str, *, prompt_tokens: int = 0) -> Completion:
        """The completion of a request that could not be served."""
        return cls(text="", tokens=(), finish="error", error=error, prompt_tokens=prompt_tokens, cached_tokens=0,
                   completion_tokens=0, prompt_sha256=request.prompt_sha256(), model=model, sampling=request.sampling)


@dataclasses.dataclass(frozen=True)
class LabelScores:
    """Scores of given continuations of one prompt.

    log_probs: [n] float32, log p(label | prompt), summed over a label's tokens. probs: [n] float32, normalised over
    the given labels. error: why there are none (both are then empty).
    """

    log_probs: np.ndarray
    probs: np.ndarray
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None

    @classmethod
    def of(cls, log_probs: Any, **counts: int) -> LabelScores:
        """Normalises log_probs [n]."""
        log_probs = np.asarray(log_probs, np.float32)
        top = float(log_probs.max())
        if math.isinf(top):
            return cls(log_probs, np.full(log_probs.shape, 1.0 / log_probs.size, np.float32), **counts)
        weights = np.exp(log_probs.astype(np.float64) - top)
        return cls(log_probs, (weights / weights.sum()).astype(np.float32), **counts)

    @classmethod
    def failed(cls, error: str) -> LabelScores:
        return cls(np.zeros(0, np.float32), np.zeros(0, np.float32), error=error)
