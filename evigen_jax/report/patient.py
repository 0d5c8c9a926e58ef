"""One patient's page: evidence pack + rationale + verification + record -> what the template shows and the JSON beside it."""
from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from core_jax.records import Patient
from evigen_jax.quotes import REASONS, UNTRUSTED
from evigen_jax.report import highlights

FLAGS = {
    "number_mismatch": "a number differs from the source",
    "negation_changed": "a negation was added or lost",
    "negation_outside": "the source negates this just outside the quote",
    "filled_blank": "a blank of the source was filled in",
    "edge_overhang": "text hangs over the edge of the note", "short": "short quote",
    "punctuation_only": "only punctuation differs",
}
ZERO = 0.00005  # below this a value reads 0.0000


@dataclasses.dataclass(frozen=True)
class Case:
    """Everything known about one patient of the report. `times` and ids are already gone where it is de-identified."""

    patient: Patient
    pack: Mapping[str, Any]
    rationale: Mapping[str, Any] | None
    verification: Mapping[str, Any] | None
    label: int | None
    split: str | None
    percentile: float | None  # share (0..1) of the split's patients with a lower risk, ties half
    population: int  # patients behind the percentile
    age: float | None  # years at the prediction time


# ---- words and numbers ----------------------------------------------------------------------------------------

def signed(value: float) -> str:
    """Four decimals with a sign in front: +0.4312, \u22120.0786, 0.0000."""
    if abs(value) < ZERO:
        return "0.0000"
    return ("+" if value > 0 else "\u2212") + f"{abs(value):.4f}"


def plain(value: float, decimals: int = 4) -> str:
    return f"{value:.{decimals}f}".replace("-", "\u2212")


def percent(value: float, decimals: int = 1) -> str:
    return f"{100 * value:.{decimals}f}\u00a0%"


def direction(value: float) -> str:
    return "none" if abs(value) < ZERO else "up" if value > 0 else "down"


def date(time: str | None, deidentified: bool) -> str:
    return "date removed" if deidentified else time[:10] if time else "no date"


def age(years: float | None, deidentified: bool = False) -> str:
    if years is None:
        return "age unknown"
    if deidentified and years >= 90:
        return "90 years or older"
    if years < 2:
        return f"{int(years * 12)} months"
    return f"{years:.1f} years" if years < 18 else f"{int(years)} years"


def clip(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[:length].rsplit(" ", 1)[0] + "\u2026"


# ---- the contribution strip -----------------------------------------------------------------------------------

def strip(pack: Mapping[str, Any], labels: Mapping[int, str], p: str) -> dict[str, Any]:
    """The waterfall: rows with `x`, `width`, `at` in percent of the drawing; `labels` maps an item's rank to its words."""
    on_prob = pack["target"] == "prob"
    total = pack["prob"] if on_prob else pack["logit"]
    parts = [(labels[i["rank"]], i["attribution"], f"#{p}factor-{i['rank']}", str(i["rank"])) for i in pack["items"]]
    parts += [("Other notes", pack["other_note_attribution"], None, ""), ("Other codes", pack["other_code_attribution"], None, "")]
    if abs(pack["residual"]) >= ZERO:
        parts.append(("Not attributed (numerical residual)", pack["residual"], None, ""))
    levels = [pack["base_logit"]]
    for part in parts:
        levels.append(levels[-1] + part[1])
    lo, hi = min([*levels, total]), max([*levels, total])
    pad = 0.06 * (hi - lo) or 1.0
    lo, hi = lo - pad, hi + pad

    def x(value: float) -> float:
        return round(100 * (value - lo) / (hi - lo), 3)

    rows = []
    for before, (label, value, href, rank) in zip(levels, parts):
        left, right = sorted((x(before), x(before + value)))
        rows.append({"rank": rank, "label": label, "href": href, "value": signed(value), "direction": direction(value),
                     "x": left, "width": round(max(right - left, 0.4), 3), "at": x(before)})
    gap = total - levels[-1]
    return {"rows": rows, "base": plain(pack["base_logit"]), "base_x": x(levels[0]), "base_prob": _sigmoid_words(pack["base_logit"], on_prob),
            "total": plain(total), "total_x": x(total), "on_prob": on_prob, "gap": None if abs(gap) < 1e-3 else signed(gap)}


def _sigmoid_words(logit: float, on_prob: bool) -> str:
    return percent(logit if on_prob else 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit)))


# ---- sources --------------------------------------------------------------------------------------------------

class Sources:
    """The notes and codes a page shows, and where each observation and quote is highlighted in them."""

    def __init__(self, case: Case, p: str, deidentified: bool):
        self.p, self.deidentified = p, deidentified
        self.notes = {n.note_id: n for n in case.patient.notes}
        self.codes: dict[str, Any] = {}
        for code in case.patient.codes:  # earliest first
            self.codes.setdefault(code.obs_id, code)
        self.order = {("note", n.note_id): i for i, n in enumerate(case.patient.notes)}
        self.order |= {("code", c): len(self.order) + i for i, c in enumerate(self.codes)}
        self.shown: dict[tuple[str, str], list[highlights.Highlight]] = {}

    def resolve(self, kind: str, id: str) -> tuple[str, str] | None:
        """The key of a cited source; a citation may name the observation (`<note_id>#<start>-<end>`) for its note."""
        known = self.notes if kind == "note" else self.codes
        if id in known:
            return (kind, id)
        return (kind, id.rpartition("#")[0]) if kind == "note" and id.rpartition("#")[0] in known else None

    def text(self, key: tuple[str, str]) -> str:
        return self.notes[key[1]].text if key[0] == "note" else self.codes[key[1]].title

    def record(self, key: tuple[str, str]) -> Any:
        return self.notes[key[1]] if key[0] == "note" else self.codes[key[1]]

    def add(self, key: tuple[str, str], spans: list[tuple[int, int]], kind: str, anchor: str, back: str, label: str, hint: str) -> None:
        marks = self.shown.setdefault(key, [])
        for number, (start, end) in enumerate(spans):
            marks.append(highlights.Highlight(start, end, kind, "" if number else anchor, anchor, back, label, hint))

    def anchor(self, key: tuple[str, str]) -> str:
        return f"{self.p}source-{self.order[key] + 1}"

    def when(self, key: tuple[str, str]) -> str:
        record = self.record(key)
        first = "first recorded " if key[0] == "code" and record.time and not self.deidentified else ""
        return f"{first}{date(record.time, self.deidentified)}, {age(record.age_years, self.deidentified)}"

    def rows(self) -> list[dict[str, Any]]:
        """Shown sources in time order, notes before codes, with their HTML."""
        out = []
        for key in sorted(self.shown, key=self.order.__getitem__):
            text, record = self.text(key), self.record(key)
            html, hidden = highlights.render(text, sorted(self.shown[key], key=lambda h: (h.start, h.kind != "item", -h.end)))
            out.append({"kind": key[0], "id": key[1], "anchor": self.anchor(key), "html": html, "hidden": hidden,
                        "length": len(text), "when": self.when(key), "type": getattr(record, "type", None) or "",
                        "text": text, "time": record.time, "age_years": record.age_years})
        return out


# ---- factor cards ---------------------------------------------------------------------------------------------

class _Flags:
    """Numbered stops for the reader's n and p keys, in page order."""

    def __init__(self, p: str):
        self.p, self.stops = p, []

    def add(self, text: str, source: str = "") -> int:
        self.stops.append({"number": len(self.stops) + 1, "text": text, "anchor": f"{self.p}flag-{len(self.stops) + 1}", "source": source})
        return len(self.stops)


def _badge(text: str, tone: str, flag: int = 0, source: str = "") -> dict[str, Any]:
    return {"text": text, "tone": tone, "flag": flag, "source": source}


def _pretty(name: str) -> str:
    return name.replace("_", " ")


def quote_badge(check: Mapping[str, Any] | None) -> tuple[str, str]:
    """(words, tone) of a quote's verdict as `verify_quote` gave it; None: it was not checked."""
    if check is None:
        return "quote not checked", "off"
    if not check["ok"]:
        reason = str(check.get("reason"))
        if reason == "below_threshold":
            return "quote NOT FOUND" + (f", nearest {check['score']:.1f} of 100" if check["score"] else ""), "bad"
        return f"quote NOT FOUND: {REASONS.get(reason, _pretty(reason))}", "bad"
    if check["method"] in ("exact", "normalised"):
        return f"quote {check['method']}", "ok"
    return f"quote fuzzy {check['score']:.1f}", "warn"


def _evidence(sources: Sources, flags: _Flags, card: int, number: int, evidence: Mapping[str, Any], check: Mapping[str, Any] | None,
              fallback: str, home: tuple[str, str] | None, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """One quote of a card: its verdict, where its citation leads, and the word diff where it is not exact.

    `home` is the source of the card's own item, `fallback` that item's anchor; `known` the factor's verification.
    """
    p, kind, id, quote = sources.p, evidence["citation"]["kind"], evidence["citation"]["id"], evidence["quote"]
    key = sources.resolve(kind, id)
    anchor, back = f"{p}quote-{card}-{number}", f"#{p}factor-{card}"
    place = f"Factor {card}"
    failed = check is not None and not check["ok"]
    badges, diff, target = [], [], fallback

    if key is None:
        badges.append(_badge("citation NOT in this record", "bad", flags.add(f"{place}: citation not in this record", fallback), fallback))
    elif known is not None and not known["citation_known_record"]:
        badges.append(_badge("citation NOT known", "bad", flags.add(f"{place}: citation not known", fallback), fallback))
    elif known is not None and not known["citation_known_pack"]:
        badges.append(_badge("citation in the record, not in the evidence pack", "warn",
                             flags.add(f"{place}: citation outside the evidence pack", fallback), fallback))
    else:
        badges.append(_badge("citation ok", "ok") if known is not None else _badge("citation not checked", "off"))

    if key is not None:
        text = sources.text(key)
        spans = [(int(s), int(e)) for s, e in (check or {}).get("spans") or [] if 0 <= s < e <= len(text)]
        if spans:
            target = anchor
            hint = f"closest text to the failed quote of factor {card}" if failed else f"quoted by factor {card}"
            label = f"\u2260{card}" if failed else f"\u21a9{card}"
            sources.add(key, spans, "closest" if failed else "quote", anchor, back, label, f"{hint}; back to the factor")
            source = " \u2026 ".join(text[s:e] for s, e in spans)
            if failed or check is not None and (source.split() != quote.split()):
                diff = highlights.word_diff(quote, source)
        elif key != home:
            sources.shown.setdefault(key, [])
            target = sources.anchor(key)

    words, tone = quote_badge(check)
    badges.append(_badge(words, tone, flags.add(f"{place}: quote not found", target) if failed else 0, target))
    for flag in (check or {}).get("flags") or []:
        text = FLAGS.get(flag) or REASONS.get(flag) or _pretty(flag)
        if flag in UNTRUSTED:
            badges.append(_badge(text, "bad", flags.add(f"{place}: {text}", target), target))
        elif flag != (check or {}).get("reason"):
            badges.append(_badge(text, "note"))

    when = "not in this record"
    if key is not None:
        when, record = sources.when(key), sources.record(key)
        stated = evidence.get("date")
        if stated and record.time and kind == "note" and stated[:10] != record.time[:10]:
            badges.append(_badge(f"date differs: the text says {stated[:10]}", "bad", flags.add(f"{place}: date differs from the record", target), target))
    return {"quote": quote, "failed": failed, "badges": badges, "diff": diff, "href": f"#{target}" if key is not None and target else "", "when": when,
            "citation": f"(note_id: {id})" if kind == "note" else f"(ICD code: {id})", "what": "note" if kind == "note" else "code title"}


def _cards(case: Case, sources: Sources, flags: _Flags) -> list[dict[str, Any]]:
    """Factor cards in pack order; a pack item without a factor gets one that says so, a factor without an item comes last."""
    p, items = sources.p, {i["obs_id"]: i for i in case.pack["items"]}
    factors = list((case.rationale or {}).get("factors") or [])
    checked = {f["rank"]: f for f in (case.verification or {}).get("factors") or []}
    pairs: list[tuple[Any, Any]] = []
    for item in case.pack["items"]:
        mine = [f for f in factors if f["obs_id"] == item["obs_id"]]
        pairs += [(item, f) for f in mine[:1]] or [(item, None)]
    used = {id(f) for _, f in pairs}
    pairs += [(items.get(f["obs_id"]), f) for f in factors if id(f) not in used]

    cards = []
    for number, (item, factor) in enumerate(pairs, 1):
        repeated = item is not None and number > len(case.pack["items"])
        fallback = "" if item is None else f"{p}obs-{item['rank']}"
        card: dict[str, Any] = {"number": number, "anchor": f"{p}factor-{number}", "item": item, "fallback": fallback,
                                "summary": factor["summary"] if factor else "", "reasoning": factor["reasoning"] if factor else "",
                                "badges": [], "evidence": [], "value": "", "direction": "none", "note": ""}
        if item is not None:
            card |= {"value": signed(item["attribution"]), "direction": direction(item["attribution"]),
                     "similarity": plain(item["similarity"]), "queries": ", ".join(map(str, item["queries"])),
                     "obs_id": item["obs_id"], "chunk": clip(item["text"], 220), "kind": item["kind"],
                     "when": sources.when((item["kind"], item["source_id"]))}
        if factor is None:
            card["note"] = "No factor was written about this piece of evidence."
            card["badges"].append(_badge("no factor written", "bad", flags.add(f"Item {number}: no factor written", fallback), fallback))
        elif item is None:
            card["note"] = f"This factor names {factor['obs_id']}, which is not in the evidence pack; it has no attribution."
            card["badges"].append(_badge("not in the evidence pack", "bad", flags.add(f"Factor {number}: not in the evidence pack")))
        elif repeated:
            card["note"] = f"A further factor about item {item['rank']}."
        check = checked.get(factor["rank"]) if factor else None
        quotes = list((check or {}).get("quotes") or [])
        for j, evidence in enumerate((factor or {}).get("evidence") or []):
            card["evidence"].append(_evidence(
                sources, flags, number, j + 1, evidence, quotes[j] if j < len(quotes) else None, fallback,
                None if item is None else sources.resolve(item["kind"], item["source_id"]), check))
        if factor and not card["evidence"]:
            card["badges"].append(_badge("no quote given", "bad", flags.add(f"Factor {number}: no quote given", fallback), fallback))
        if check is not None and check.get("direction_ok") is False:
            way = {"up": "raises", "down": "lowers", "none": "does not change"}[card["direction"]]
            card["badges"].append(_badge(f"direction: the attribution {way} the risk, the reasoning says otherwise", "bad",
                                         flags.add(f"Factor {number}: direction contradicts the attribution", fallback), fallback))
        if check is not None and check.get("attribution_matches") is False:
            stated = factor.get("stated_attribution")
            text = "attribution differs from the text" + ("" if stated is None else f", which says {signed(stated)}")
            card["badges"].append(_badge(text, "bad", flags.add(f"Factor {number}: stated attribution differs", fallback), fallback))
        if factor:
            card["badges"].append(_badge("process verifier not run", "off"))
        cards.append(card)
    return cards


# ---- audit ----------------------------------------------------------------------------------------------------

def _checks(case: Case, cards: list[dict[str, Any]]) -> dict[str, Any]:
    """The 22 checks of the paper's section 4.3: per factor S1 citation, S1 quote and two of S2, and two of S2 overall."""
    verdict = {(c["rank"], c["check"]): bool(c["ok"]) for c in (case.verification or {}).get("s1") or []}
    ranks = range(1, max(5, *(r for r, _ in verdict), 5) + 1) if verdict else range(1, 6)

    def cell(rank: int, check: str) -> str:
        if case.verification is None:
            return "not run"
        return {True: "pass", False: "FAIL", None: "FAIL (no factor)"}[verdict.get((rank, check))]

    rows = [{"rank": r, "cells": [cell(r, "citation"), cell(r, "quote"), "not run", "not run"]} for r in ranks]
    passed = sum(c == "pass" for row in rows for c in row["cells"])
    return {"rows": rows, "passed": passed, "mechanical": 2 * len(rows), "total": 4 * len(rows) + 2, "judge": 2 * len(rows) + 2}


def build(case: Case, run_info: Mapping[str, Any], *, stem: str, deidentified: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the template shows, the JSON written beside the page).

    Raises: ValueError naming patient and observation where the pack's text is not what the record holds at that place.
    """
    pack, metrics = case.pack, run_info.get("metrics") or {}
    content = {"task": pack["task"], "run_id": pack["run_id"], "encoder_id": pack["encoder_id"], "pack": pack,
               "rationale": case.rationale, "verification": case.verification}
    digest = hashlib.sha256(json.dumps([case.patient.patient_id, content], sort_keys=True).encode()).hexdigest()[:16]
    p = f"e{digest[:8]}-"
    sources, flags = Sources(case, p, deidentified), _Flags(p)

    for number, item in enumerate(pack["items"], 1):
        if item["rank"] != number:
            raise ValueError(f"patient {case.patient.patient_id!r}: got rank {item['rank']} at place {number} of the evidence pack")
        where = f"patient {case.patient.patient_id!r}, observation {item['obs_id']!r}"
        key = sources.resolve(item["kind"], item["source_id"])
        if key is None:
            raise ValueError(f"{where}: {item['kind']} {item['source_id']!r} is not in the visible record")
        text = sources.text(key)
        span = (item["start"], item["end"]) if item["kind"] == "note" else (0, len(text))
        if text[span[0]:span[1]] != item["text"] or not item["text"]:
            raise ValueError(f"{where}: got text {clip(item['text'], 60)!r}, the record has {clip(text[span[0]:span[1]], 60)!r} there")
        rank = item["rank"]
        sources.add(key, [span], "item", f"{p}obs-{rank}", f"#{p}factor-{rank}", str(rank), f"evidence item {rank} starts here; back to its factor")

    cards = _cards(case, sources, flags)
    labels = {c["item"]["rank"]: clip(c["summary"] or c["item"]["text"], 110) for c in cards[:len(pack["items"])]}
    if not pack["converged"]:
        flags.add("Attribution did not converge")
    failure = (case.verification or {}).get("failed_reason")
    if failure:
        flags.add("The rationale as a whole fails its checks")
    rows = sources.rows()
    modality = {int(r["query"]): r["modality"] for r in metrics.get("activation") or []}
    generator = (case.rationale or {}).get("generator")
    threshold, base_rate = metrics.get("threshold", 0.5), metrics.get("base_rate")

    page = {
        "p": p, "stem": stem, "hash": digest, "deidentified": deidentified, "patient_id": case.patient.patient_id,
        "task": pack["task"], "run_id": pack["run_id"], "encoder_id": pack["encoder_id"], "notes_rendered": bool(pack["notes_rendered"]),
        "index_date": date(pack["prediction_time"], deidentified), "age": age(case.age, deidentified), "sex": case.patient.sex or "",
        "prob": pack["prob"], "prob_words": percent(pack["prob"]), "prob4": plain(pack["prob"]), "logit": plain(pack["logit"]),
        "base_rate": base_rate, "base_rate_words": "not given" if base_rate is None else percent(base_rate),
        "threshold": threshold, "threshold_words": percent(threshold), "above": pack["prob"] >= threshold,
        "calibration": metrics.get("calibration") or "no calibration figures were given for this run",
        "percentile": "" if case.percentile is None else f"{100 * case.percentile:.0f}", "population": f"{case.population:,}",
        "split": case.split or "", "outcome": "not given" if case.label is None else ("positive" if case.label else "negative"),
        "generator": generator, "explanation": (case.rationale or {}).get("prediction_explanation") or "",
        "strip": strip(pack, labels, p), "cards": cards, "sources": rows, "flags": flags.stops,
        "lens": (case.rationale or {}).get("reasoning_lens") or "", "recommendations": list((case.rationale or {}).get("recommendations") or []),
        "has_rationale": case.rationale is not None, "has_verification": case.verification is not None,
        "checks": _checks(case, cards), "s1_pass": _verdict(case, "s1_pass"), "s1_rapidfuzz": _verdict(case, "s1_pass_rapidfuzz"),
        "verification_flags": [_pretty(str(f)) for f in (case.verification or {}).get("flags") or []], "failure": failure or "",
        "gap": f"{pack['completeness_gap']:.2e}".replace("-", "\u2212"), "converged": bool(pack["converged"]),
        "quadrature": str(pack["quadrature"]), "n_nodes": str(pack["n_nodes"]), "target": pack["target"],
        "queries": [f"{q}" + (f" ({modality[q]})" if q in modality else "") for q in pack["active_queries"]],
        "code_items": [c for c in cards if c["item"] is not None and c["item"]["kind"] == "code" and c["number"] <= len(pack["items"])],
    }
    record = {"schema": "report/1", "html": f"{stem}.html", "report_hash": digest, "deidentified": deidentified} | content | {
        "patient": {"patient_id": case.patient.patient_id, "sex": case.patient.sex, "age_years": case.age, "index_time": pack["prediction_time"]},
        "prediction": {"prob": pack["prob"], "logit": pack["logit"], "label": case.label, "split": case.split,
                       "percentile": case.percentile, "base_rate": base_rate, "threshold": threshold},
        "flags": [{"text": f["text"], "anchor": f["anchor"]} for f in flags.stops],
        "anchors": {i["obs_id"]: f"{stem}.html#{p}obs-{i['rank']}" for i in pack["items"]},
        "sources": [{k: r[k] for k in ("kind", "id", "type", "time", "age_years", "anchor", "text")} for r in rows],
    }
    return page, record


def _verdict(case: Case, name: str) -> str:
    if case.verification is None:
        return "not run"
    return "pass" if case.verification[name] else "FAIL"
