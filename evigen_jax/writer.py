"""Rationales written by a language model over evidence packs (paper 3.3, Table 19). Imports without JAX.

The prompt carries the pack's chunks verbatim, so that quotes can be exact. The answer is one JSON object of a schema made
for the pack (a factor an item); citation, date and attribution are filled from the pack, since what can be copied need not
be generated. What the model stated of its own accord stays where it stated it, for the verifier.
"""
from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from core_jax.engine.backend import Backend
from core_jax.engine.request import Completion, Grammar, Request, Sampling
from core_jax.records import read_jsonl
from evigen_jax.evidence import validate_pack
from evigen_jax.partial import Partial
from evigen_jax.rationale import failed_rationale, parse_rationale, validate_rationale

if TYPE_CHECKING:
    from evigen_jax.config import GenerateConfig  # it stands beside JAX

Form = Literal["schema", "free"]
NAME = "language model"
SYSTEM = (importlib.resources.files("evigen_jax") / "prompts" / "rationale_system.txt").read_text("utf-8").strip()
LONGEST = {"prediction_explanation": 900, "summary": 300, "quote": 400, "reasoning": 400, "reasoning_lens": 900, "advice": 300}  # characters


def messages(pack: dict[str, Any]) -> tuple[dict[str, str], ...]:
    """Chat messages over one pack: the rules (the same for every patient, so their prefill is shared), then the evidence.

    Each text stands between two lines with a mark that does not occur in any text of the pack, so that no text can end
    itself and pass for instructions.
    """
    mark = _mark(pack)
    lines = [f"Outcome: {pack['task']['sentence']}", f"Estimated probability: {pack['prob']:.3f}",
             f"Pieces of evidence: {len(pack['items'])}. The text of each stands between two lines {mark}."]
    for item in pack["items"]:
        effect = "raises" if item["attribution"] > 0 else "lowers"
        named = " ".join(item["source_id"].split())[:100]  # an id is data too: one line, and short
        head = [f"note {named}" if item["kind"] == "note" else f"diagnosis code {named}"]
        head += [f"dated {item['time'][:10]}"] if item["time"] else []
        head += [f"patient aged {item['age_years']:.0f}"] if item["age_years"] is not None else []
        lines += ["", f"Evidence {item['rank']}: {', '.join(head)}. It {effect} the predicted risk.", mark, item["text"], mark]
    lines += ["", f"Write the rationale with {len(pack['items'])} factors, in this order."]
    return {"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n".join(lines)}


def _mark(pack: dict[str, Any]) -> str:
    texts = [pack["task"]["sentence"], *(v for item in pack["items"] for v in (item["text"], item["source_id"]))]
    seed = pack["patient_id"]
    while True:
        mark = "=====" + hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()[:6]
        if not any(mark in text for text in texts):
            return mark
        seed = mark


def schema(pack: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of the answer: as many factors as the pack has items; strings have lengths, so that an answer ends."""
    def text(name: str) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": LONGEST[name]}

    def several(item: dict[str, Any], low: int, high: int) -> dict[str, Any]:
        return {"type": "array", "items": item, "minItems": low, "maxItems": high}

    def record(**fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}

    n = len(pack["items"])
    factor = record(summary=text("summary"), evidence=several(record(quote=text("quote")), 1, 2), reasoning=text("reasoning"))
    return record(prediction_explanation=text("prediction_explanation"), factors=several(factor, n, n),
                  reasoning_lens=text("reasoning_lens"), recommendations=several(text("advice"), 1, n + 2))


class Writer:
    """A `generate.Generator` over any engine backend.

    Args:
        backend: serves the requests; all packs of a call are submitted together.
        name: of the generator, as pages show it.
        sampling: greedy and 4,096 new tokens by default (Table 6).
        form: "schema" binds the answer to `schema(pack)`; "free" leaves it to the prompt.
        thinking: switch of models that think; None leaves the template's default.
        adapter: a LoRA adapter that the backend holds.
        on_done: called with (pack index, rationale) as each ends, on the backend's thread.
    """

    is_llm = True

    def __init__(self, backend: Backend, *, name: str = NAME, sampling: Sampling = Sampling(max_tokens=4096),
                 form: Form = "schema", thinking: bool | None = None, adapter: str | None = None,
                 on_done: Callable[[int, dict[str, Any]], None] | None = None):
        if form not in ("schema", "free"):
            raise ValueError(f"form: got {form!r}, expected schema or free")
        self.name, self.model = name, backend.model if adapter is None else f"{backend.model} with {adapter}"
        self._backend, self._sampling, self._form = backend, sampling, form
        self.on_done = on_done
        self._thinking, self._adapter = thinking, adapter

    def request(self, pack: dict[str, Any]) -> Request:
        """What is asked of the backend for one pack. Raises: ValueError for a pack that is not valid."""
        validate_pack(pack)
        grammar = Grammar("json_schema", json.dumps(schema(pack))) if self._form == "schema" else None
        return Request(messages(pack), sampling=self._sampling, adapter=self._adapter, grammar=grammar, thinking=self._thinking)

    def generate(self, packs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """One rationale a pack, in order; what cannot be parsed is a failed rationale with the answer kept in `raw`.

        Raises: ValueError for a pack that is not valid, before anything is asked.
        """
        requests = [self.request(pack) for pack in packs]
        asked = [i for i, pack in enumerate(packs) if pack["items"]]
        out = [failed_rationale(p, self._generator(), None, "nothing was retrieved for this patient, so there is nothing to quote")
               for p in packs]

        def done(k: int, completion: Completion) -> None:
            i = asked[k]
            out[i] = self._rationale(packs[i], completion)
            if self.on_done is not None:
                self.on_done(i, out[i])

        self._backend.submit([requests[i] for i in asked], on_done=done)
        if self.on_done is not None:
            for i in set(range(len(packs))) - set(asked):
                self.on_done(i, out[i])
        return out

    def _generator(self) -> dict[str, Any]:
        return {"name": self.name, "model": self.model, "is_llm": True}

    def _rationale(self, pack: dict[str, Any], completion: Completion) -> dict[str, Any]:
        if completion.finish == "error":
            return failed_rationale(pack, self._generator(), None, f"{completion.model}: {completion.error}")
        try:
            rationale = parse_rationale(completion.text, pack, self._generator())
        except ValueError as e:
            cut = f" (cut off at {completion.completion_tokens} tokens)" if completion.finish == "length" else ""
            return failed_rationale(pack, self._generator(), completion.text, f"{e}{cut}")
        return _cited(rationale, pack)


def _cited(rationale: dict[str, Any], pack: dict[str, Any]) -> dict[str, Any]:
    """Quotes without a citation get their factor's: source, date and age of the pack item."""
    items = {item["obs_id"]: item for item in pack["items"]}
    for factor in rationale["factors"]:
        item = items.get(factor["obs_id"])
        for evidence in factor["evidence"] if item else ():
            if not evidence["citation"]["id"]:
                evidence["citation"] = {"kind": item["kind"], "id": item["source_id"]}
                evidence["date"] = evidence["date"] or (item["time"][:10] if item["time"] else None)
                evidence["age_years"] = item["age_years"] if evidence["age_years"] is None else evidence["age_years"]
    return rationale


def write(packs: Sequence[dict[str, Any]], backend: Backend, settings: GenerateConfig, out: str | os.PathLike, *,
          progress: bool = False) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rationales of all packs; what an earlier call for the same `out` had finished, interrupted or not, is taken over.

    A rationale is taken over where pack, prompt, model, adapter and every setting are the same, which its
    `request_sha256` says. What the backend refused is asked again. The caller puts the result in place and then calls
    `Partial(out).done()`.

    Returns: rationales in the packs' order; counts: written now, taken over, failed among all.
    """
    from tqdm import tqdm

    thinking = {"on": True, "off": False, "default": None}[settings.thinking]
    sampling = Sampling(max_tokens=settings.max_tokens, temperature=settings.temperature, seed=settings.seed)
    partial = Partial(out)
    try:
        writer = Writer(backend, sampling=sampling, form=settings.form, thinking=thinking, adapter=settings.adapter)
        keys = [_request_sha256(writer.request(pack), pack, f"{backend.model}, {settings.dtype}") for pack in packs]
        kept = _finished(out) | partial.kept
        rationales: list[Any] = [kept.get(key) for key in keys]
        todo = [i for i, r in enumerate(rationales) if r is None]
        with tqdm(total=len(packs), initial=len(packs) - len(todo), desc="generate", unit="patient", file=sys.stderr,
                  disable=not progress) as bar:
            def done(k: int, rationale: dict[str, Any]) -> None:
                i = todo[k]
                if rationale["raw"] is not None or not packs[i]["items"]:
                    rationale["request_sha256"] = keys[i]
                    partial.add(keys[i], rationale)
                bar.update()

            writer.on_done = done
            for i, rationale in zip(todo, writer.generate([packs[i] for i in todo])):
                rationales[i] = rationale
    finally:
        partial.close()
    counts = {"written": len(todo), "taken_over": len(packs) - len(todo),
              "failed": sum(r["failed_reason"] is not None for r in rationales)}
    return rationales, counts


def _finished(path: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Rationales of a finished file by `request_sha256`; nothing where the file is not one of rationales."""
    try:
        rows = [row for _, row in read_jsonl(path)]
        for row in rows:
            validate_rationale(row)
    except (OSError, ValueError):
        return {}
    return {row["request_sha256"]: row for row in rows if "request_sha256" in row}


def _request_sha256(request: Request, pack: dict[str, Any], model: str) -> str:
    given = [request.prompt_sha256(), model, request.adapter, request.thinking, repr(request.sampling), repr(request.grammar), pack]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode("utf-8")).hexdigest()
