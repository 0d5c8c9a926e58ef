"""The one protocol behind which language models stand: this engine, an HTTP endpoint, a script. Imports without JAX."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from core_jax.engine.request import Completion, LabelScores, Request

OnDone = Callable[[int, Completion], None]  # (index among the submitted requests, its completion), as each one ends
OnText = Callable[[str], None]  # a piece of the answer's text, in order; the pieces joined are the completion's text.
# An empty one, at any time, only asks whether somebody still listens.


@runtime_checkable
class Backend(Protocol):
    """A served model.

    A request that cannot be served (too long, empty, unknown adapter, refused by the endpoint) is an error completion
    and the others are served: neither method raises for one request's sake. Both may be called from several threads.
    """

    model: str  # names the weights; stands on every completion

    def submit(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Completion]:
        """Completions in the order of the requests. `on_done` is called as each ends, from the caller's thread or
        another one, one call at a time."""
        ...

    def score_labels(self, prompts: Sequence[Request], labels: Sequence[Sequence[str]]) -> list[LabelScores]:
        """log p(label | prompt) of each prompt's own labels (`labels[i]` belongs to `prompts[i]`); the prompts'
        sampling and grammar are not read. A prompt that cannot be scored has `error` set and empty arrays."""
        ...


@runtime_checkable
class Streaming(Protocol):
    """A backend that can give an answer's text while it is written."""

    model: str

    def stream(self, request: Request, on_text: OnText) -> Completion:
        """Blocks until the completion is there. `on_text` may be called from another thread. Text that a stop string or
        a thinking block may still take back is held until it is certain. What `on_text` raises ends the request, and
        comes out here."""
        ...
