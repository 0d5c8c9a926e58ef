"""Rationale writers: the protocol, and the template writer, which needs no language model (paper 3.3).

A generator turns evidence packs into rationales (`evigen_jax.rationale`). The template writer quotes each item verbatim
and adds fixed sentences; it paraphrases nothing and infers nothing, so it cannot invent, and it says that it is a template.
"""
from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from evigen_jax.evidence import base_value, validate_pack
from evigen_jax.rationale import SCHEMA, validate_rationale
from evigen_jax.sentences import MARKER, Span, sentences, words

QUOTE_CHARS = 300
QUOTE_WORDS = 5

SentenceScores = Callable[[Mapping[str, Any], Sequence[str]], Sequence[float]]


class Generator(Protocol):
    """Writes rationales. name and model go into each; is_llm decides what the page says about who wrote it."""

    name: str
    model: str | None
    is_llm: bool

    def generate(self, packs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """One rationale a pack, in order. An answer that cannot be parsed is a `failed_rationale`, never left out."""
        ...


class TemplateGenerator:
    """Fixed sentences around verbatim quotes.

    The quote of a note item is its strongest sentence. By default strength is information within the pack: the sum of
    log(1 + sentences / sentences with the word) over a sentence's distinct content words, over the square root of its
    length. Phrases that stand in every note of the patient (headings, copied-forward templates) weigh little, phrases
    that stand once weigh much, and neither length nor brevity wins by itself. Headings, and the cut sentence at the
    start of a chunk, count half. It sees words, not the model, and costs nothing. On the shipped sample it quoted the
    planted sentence for 30 of 36 chunks that hold one (chance: 1 in 3); the cosine of sentence and query, which needs an
    encoder, for 27. `sentence_scores` replaces it.

    Args:
        sentence_scores: (pack item, its sentences) -> a number each, largest quoted.
        percentiles: patient_id -> percentile (0 to 100) of the prediction in a reference population, where known.
    """

    name = "template"
    model: str | None = None
    is_llm = False

    def __init__(self, sentence_scores: SentenceScores | None = None, percentiles: Mapping[str, float] | None = None):
        self._scores = sentence_scores
        self._percentiles = percentiles or {}
        for patient_id, p in self._percentiles.items():
            if not 0 <= p <= 100:
                raise ValueError(f"percentile of patient {patient_id!r}: got {p!r}, expected 0 to 100")

    def generate(self, packs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Raises: ValueError for a pack that is not valid."""
        return [self._write(pack) for pack in packs]

    def _write(self, pack: dict[str, Any]) -> dict[str, Any]:
        validate_pack(pack)
        split = {i["obs_id"]: _spans(i) for i in pack["items"]}
        known = Counter(w for i in pack["items"] for a, b in split[i["obs_id"]] for w in set(words(i["text"][a:b])))
        total = sum(map(len, split.values()))
        factors = []
        for item in pack["items"]:
            spans = split[item["obs_id"]]
            texts = [item["text"][a:b] for a, b in spans]
            scores = self._scores(item, texts) if self._scores else [_information(item, n, t, known, total) for n, t in enumerate(texts)]
            if len(scores) != len(texts):
                raise ValueError(f"sentence_scores: got {len(scores)} scores for {len(texts)} sentences of {item['obs_id']!r}")
            best = max(range(len(texts)), key=lambda n: (scores[n], -n))
            factors.append(_factor(item, quote(item["text"], spans, best), pack))
        rationale = {
            "schema": SCHEMA, "patient_id": pack["patient_id"], "prediction_time": pack["prediction_time"], "task": pack["task"]["name"],
            "probability": pack["prob"], "generator": {"name": self.name, "model": self.model, "is_llm": self.is_llm},
            "prediction_explanation": _explanation(pack, self._percentiles.get(pack["patient_id"])), "factors": factors,
            "reasoning_lens": _lens(pack), "recommendations": _recommendations(pack), "raw": None, "parse_notes": [],
            "failed_reason": None if factors else "nothing was retrieved for this patient, so there is nothing to quote",
        }
        validate_rationale(rationale)
        return rationale


# ---- quotes ---------------------------------------------------------------------------------------------------

def quote(text: str, spans: Sequence[Span], best: int) -> str:
    """Sentence number `best` of a text, verbatim: at most QUOTE_CHARS, and QUOTE_WORDS or more where neighbours allow.

    A shorter sentence is joined by the one that follows, else by the one before; a longer one is cut at its end, never
    at its start, where a negation would be lost.
    """
    low, high = best, best
    while len(words(text[spans[low][0]:spans[high][1]])) < QUOTE_WORDS:
        if high + 1 < len(spans) and spans[high + 1][1] - spans[low][0] <= QUOTE_CHARS:
            high += 1
        elif low > 0 and spans[high][1] - spans[low - 1][0] <= QUOTE_CHARS:
            low -= 1
        else:
            break
    start, end = spans[low][0], spans[high][1]
    marker = MARKER.match(text, start, end)
    if marker and len(words(text[marker.end():end])) >= QUOTE_WORDS:
        start = marker.end()
    return _cut(text[start:end])


def _cut(text: str) -> str:
    if len(text) <= QUOTE_CHARS:
        return text
    head = text[:QUOTE_CHARS + 1]
    ends = [m.start() for m in re.finditer(r"[;\n]|[.,:](?=\s)", head) if m.start() >= QUOTE_CHARS // 2]
    space = max((m.start() for m in re.finditer(r"\s", head)), default=0)
    end = ends[-1] if ends else space if space >= QUOTE_CHARS // 2 else QUOTE_CHARS
    return text[:end].rstrip()


def _spans(item: Mapping[str, Any]) -> list[Span]:
    text = item["text"]
    if item["kind"] == "code":
        return [(0, len(text))]
    return sentences(text) or [(0, len(text))]


_COMMON = frozenset(
    "a an and are as at be been but by can did do does for from had has have he her his i if in into is it its may more no not of on or "
    "our she so than that the their them then there these they this to was we were when which who will with would you your".split()
)


def _information(item: Mapping[str, Any], n: int, text: str, known: Mapping[str, int], total: int) -> float:
    content = [w for w in words(text) if w not in _COMMON]
    weight = sum(math.log1p(total / known[w]) for w in set(content)) / math.sqrt(len(content) + 4)
    heading = text.endswith(":") or (text.isupper() and len(content) < 8)
    cut_off = n == 0 and (item["start"] or 0) > 0 and not text[0].isupper()
    return weight * (0.5 if heading else 1.0) * (0.5 if cut_off else 1.0)


# ---- sentences ------------------------------------------------------------------------------------------------

def _way(value: float) -> str:
    return "raises" if value > 0 else "lowers" if value < 0 else "does not change"


def _when(item: Mapping[str, Any]) -> str:
    return f"dated {item['time'][:10]}" if item["time"] else "without a date"


def _factor(item: Mapping[str, Any], quoted: str, pack: Mapping[str, Any]) -> dict[str, Any]:
    if item["kind"] == "note":
        summary = f"A passage of a note {_when(item)}; one sentence of it is quoted in its own words."
    else:
        summary = f"Diagnosis code {item['source_id']}, {item['text']}; first entry {_when(item)}."
    unit = "the logit" if pack["target"] == "logit" else "the probability"
    thing = "passage" if item["kind"] == "note" else "diagnosis"
    return {
        "rank": item["rank"], "obs_id": item["obs_id"], "summary": summary,
        "evidence": [{
            "quote": quoted, "citation": {"kind": item["kind"], "id": item["source_id"]},
            "date": item["time"], "age_years": item["age_years"],
        }],
        "reasoning": (
            f"The record holds this {thing}; given the rest of the retrieved record, it {_way(item['attribution'])} the predicted risk: "
            f"its contribution to {unit} is {item['attribution']:+.4f}. The template does not say why."
        ),
        "attribution": item["attribution"], "stated_attribution": item["attribution"],
    }


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _explanation(pack: Mapping[str, Any], percentile: float | None) -> str:
    items = pack["items"]
    task = pack["task"]["sentence"].strip().rstrip(".")
    text = [f"Predicted outcome: {task}.", f"The model\u2019s estimate of its probability is {pack['prob']:.3f}."]
    if percentile is not None:
        text.append(f"That is at percentile {percentile:.0f} of the reference population.")
    if items:
        up, down = (sum(sign * i["attribution"] > 0 for i in items) for sign in (1, -1))
        notes, codes = len({i["source_id"] for i in items if i["kind"] == "note"}), sum(i["kind"] == "code" for i in items)
        held = " and ".join(filter(None, [notes and _count(notes, "note"), codes and _count(codes, "diagnosis code")]))
        dates = sorted(i["time"][:10] for i in items if i["time"])
        span = "" if not dates else f", dated {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else "")
        text.append(f"Shown: {_count(len(items), 'piece')} of evidence from {held}{span}.")
        text.append(f"Of these, {up} raise{'s' if up == 1 else ''} and {down} lower{'s' if down == 1 else ''} the predicted risk.")
    if pack.get("note"):
        text.append(pack["note"])
    if pack["notes_rendered"]:
        text.append("The notes were rendered from structured rows of the record and restate its codes, prescriptions and measurements.")
    if not pack["converged"]:
        text.append(f"The contributions are approximate: the path integral had not converged (relative gap {pack['completeness_gap']:.1e}).")
    text.append("This text was filled in from a template; no language model wrote it.")
    return " ".join(text)


def _lens(pack: Mapping[str, Any]) -> str:
    items = pack["items"]
    unit = "logit" if pack["target"] == "logit" else "probability"
    shown = math.fsum(i["attribution"] for i in items)
    text = [
        f"With none of its retrieved evidence the model would give this patient a {unit} of {base_value(pack):+.4f}.",
        f"The factors above add {shown:+.4f} in all, other notes {pack['other_note_attribution']:+.4f} and other codes "
        f"{pack['other_code_attribution']:+.4f}, which leads to {pack[unit if unit == 'logit' else 'prob']:+.4f}.",
    ]
    for sign, verb in ((1, "raise"), (-1, "lower")):
        ranks = [str(i["rank"]) for i in items if sign * i["attribution"] > 0]
        if ranks:
            what = f"Factor {ranks[0]} {verb}s" if len(ranks) == 1 else f"Factors {', '.join(ranks[:-1])} and {ranks[-1]} {verb}"
            text.append(f"{what} the predicted risk.")
    text.append("Contributions say how the model weighed the text, not what caused what; the template draws no link between factors.")
    return " ".join(text)


def _recommendations(pack: Mapping[str, Any]) -> list[str]:
    out = ["It may be helpful to weigh this estimate together with what the record does not show and what the patient wishes."]
    for i in pack["items"]:
        out.append(
            f"Factor {i['rank']}: it may be worth reading the cited note in full, and asking whether what is quoted still holds."
            if i["kind"] == "note" else f"Factor {i['rank']}: it may be worth checking whether the diagnosis still applies."
        )
    return out
