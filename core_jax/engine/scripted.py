"""A backend whose answers are given beforehand: for tests and pipelines without weights. Imports without JAX."""
from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from core_jax.engine.answer import cut
from core_jax.engine.backend import OnDone, OnText
from core_jax.engine.request import Completion, LabelScores, Request

Script = Sequence[str] | Mapping[str, str] | Callable[[Request], str]
Scores = Callable[[Request, Sequence[str]], Sequence[float]]


class Scripted:
    """Deterministic answers, shaped as a real backend's: stop strings cut, max_tokens counted in words.

    script: a list, used up one answer a request in the order of submission; a mapping from the prompt's text (chat: its
        last message); or a function of the request. A request without an answer, and one whose function raises
        ValueError, comes back as an error completion.
    scores: log probabilities of labels; without it all labels are equally likely.

    `requests` holds every request it was given. A token is a word with the blanks before it (and, of the last word,
    after it); their ids are not given.
    """

    def __init__(self, script: Script, *, model: str = "scripted", scores: Scores | None = None):
        if isinstance(script, str):
            raise ValueError(f"script: got {script!r}, expected a list, a mapping or a function")
        self.model, self.requests = model, []
        self._script, self._scores, self._next = script, scores, 0
        self._lock = threading.Lock()

    def submit(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Completion]:
        out = []
        for i, request in enumerate(requests):
            out.append(self._complete(request))
            if on_done is not None:
                on_done(i, out[-1])
        return out

    def stream(self, request: Request, on_text: OnText) -> Completion:
        """One piece a token; an exception of `on_text` ends the request and is passed on."""
        completion = self._complete(request)
        for piece in _tokens(completion.text):
            on_text(piece)
        return completion

    def score_labels(self, prompts: Sequence[Request], labels: Sequence[Sequence[str]]) -> list[LabelScores]:
        if len(prompts) != len(labels):
            raise ValueError(f"labels: got {len(labels)}, expected one list for each of {len(prompts)} prompts")
        out = []
        for request, names in zip(prompts, labels):
            with self._lock:
                self.requests.append(request)
            if not request.prompt or not names:
                out.append(LabelScores.failed("empty prompt or no labels"))
                continue
            values = np.zeros(len(names)) if self._scores is None else self._scores(request, names)
            out.append(LabelScores.of(np.asarray(values, np.float32), prompt_tokens=_prompt_tokens(request)))
        return out

    def _complete(self, request: Request) -> Completion:
        with self._lock:  # also around the answer, so that a list is used up in order
            self.requests.append(request)
            count = _prompt_tokens(request)
            if not request.prompt:
                return Completion.failed(request, self.model, "empty prompt")
            try:
                text = self._answer(request)
            except ValueError as e:
                return Completion.failed(request, self.model, str(e), prompt_tokens=count)
        sampling = request.sampling
        tokens = _tokens(text)
        finish = "length" if len(tokens) > sampling.max_tokens else "stop"
        text = "".join(tokens[: sampling.max_tokens])
        if (at := cut(text, sampling.stop)) is not None:
            text, finish = text[:at], "stop"
        used = len(_tokens(text))
        return Completion(
            text=text, tokens=(), finish=finish, error=None, prompt_tokens=count, cached_tokens=0,
            completion_tokens=used, prompt_sha256=request.prompt_sha256(), model=self.model, sampling=sampling,
            seconds_to_first_token=0.0, logprobs=(0.0,) * used if sampling.logprobs else None)

    def _answer(self, request: Request) -> str:
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, Mapping):
            said = _text(request)
            if said not in self._script:
                raise ValueError(f"no answer is scripted for this prompt ({len(said)} characters)")
            return self._script[said]
        if self._next >= len(self._script):
            raise ValueError(f"the script has {len(self._script)} answers, and all of them were given")
        self._next += 1
        return self._script[self._next - 1]


def _text(request: Request) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return request.prompt[-1]["content"] if request.is_chat else json.dumps(request.prompt)


def _prompt_tokens(request: Request) -> int:
    if isinstance(request.prompt, str):
        return len(request.prompt.split())
    return sum(len(m["content"].split()) for m in request.prompt) if request.is_chat else len(request.prompt)


def _tokens(text: str) -> list[str]:
    """The text cut before each run of blanks; joined they are the text."""
    out: list[str] = []
    word = ""
    for char in text:
        if char.isspace() and word and not word[-1].isspace():
            out.append(word)
            word = ""
        word += char
    if word and word.isspace() and out:
        out[-1] += word
    elif word:
        out.append(word)
    return out
