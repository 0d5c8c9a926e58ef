"""Rationales: their schema, and a parser for what a language model writes (paper 3.3, Table 19). Plain Python.

A factor's `obs_id` and `attribution` come from the evidence pack. What the writer stated stays beside them for the
verifier to check: the citation and date of each quote, and `stated_attribution`. Nothing is corrected here.
"""
from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from typing import Any

from evigen_jax.evidence import check_fields
from evigen_jax.loose_json import loads

SCHEMA = "rationale/1"
MAX_CHARS = 1_000_000

_RATIONALE = {
    "schema": str, "patient_id": str, "prediction_time": str, "task": str, "probability": float, "generator": dict,
    "prediction_explanation": str, "factors": list, "reasoning_lens": str, "recommendations": list, "raw": (str, None),
    "parse_notes": list, "failed_reason": (str, None), "request_sha256": str,
}
_FACTOR = {
    "rank": int, "obs_id": str, "summary": str, "evidence": list, "reasoning": str, "attribution": float,
    "stated_attribution": (float, None),
}
_EVIDENCE = {"quote": str, "citation": dict, "date": (str, None), "age_years": (float, None)}


def validate_rationale(rationale: Any) -> None:
    """Check every field. `request_sha256`, where a language model wrote it, names pack, prompt, model and settings. A rationale with `failed_reason` has no factors; any other has at least one, ranks ascending.

    A citation's id is "" where the writer gave none: then it names nothing in the record, which is what the verifier
    will say.

    Raises: ValueError naming patient and field.
    """
    who = f"rationale of {rationale.get('patient_id')!r}" if isinstance(rationale, dict) else "rationale"
    check_fields(rationale, _RATIONALE, who, optional=("parse_notes", "failed_reason", "request_sha256"))
    if rationale["schema"] != SCHEMA:
        raise ValueError(f"{who}: schema: got {rationale['schema']!r}, expected {SCHEMA!r}")
    if not 0 <= rationale["probability"] <= 1:
        raise ValueError(f"{who}: probability: got {rationale['probability']!r}, expected a number in [0, 1]")
    check_fields(rationale["generator"], {"name": str, "model": (str, None), "is_llm": bool}, f"{who}: generator")
    for name in ("recommendations", "parse_notes"):
        if not all(isinstance(v, str) for v in rationale.get(name, ())):
            raise ValueError(f"{who}: {name}: expected strings")
    if (rationale.get("failed_reason") is None) == (not rationale["factors"]):
        raise ValueError(f"{who}: factors: got {len(rationale['factors'])} with failed_reason {rationale.get('failed_reason')!r}")
    before = 0
    for n, factor in enumerate(rationale["factors"]):
        at = f"{who}: factors[{n}]"
        check_fields(factor, _FACTOR, at)
        if factor["rank"] <= before:
            raise ValueError(f"{at}.rank: got {factor['rank']} after {before}, expected ascending ranks from 1")
        before = factor["rank"]
        for m, evidence in enumerate(factor["evidence"]):
            check_fields(evidence, _EVIDENCE, f"{at}.evidence[{m}]")
            check_fields(evidence["citation"], {"kind": str, "id": str}, f"{at}.evidence[{m}].citation")
            if evidence["citation"]["kind"] not in ("note", "code"):
                raise ValueError(f"{at}.evidence[{m}].citation.kind: got {evidence['citation']['kind']!r}, expected note or code")


def rationale_sha256(rationale: Any) -> str:
    """sha256 of the canonical JSON (sorted keys, no blanks, ASCII): names exactly what was verified."""
    text = json.dumps(rationale, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def failed_rationale(pack: dict[str, Any], generator: dict[str, Any], raw: str | None, reason: str) -> dict[str, Any]:
    """What stands for an answer that could not be parsed, so that it stays in every denominator."""
    return _frame(pack, generator, raw) | {"failed_reason": reason}


def parse_rationale(text: str, pack: dict[str, Any], generator: dict[str, Any] | None = None) -> dict[str, Any]:
    """A language model's answer -> rationale.

    A thinking block is removed first. JSON is tried (fenced or amid prose; cut off: complete factors are kept, and
    `parse_notes` says what was lost), then the bracket-section text of Table 19, whatever bold, bullets, headings or
    numbers stand around its labels. Factors go to pack items by position; only where their citations are exactly the
    pack's in another order do they follow the citations (and, among chunks of one note, the quotes). A factor beyond the pack keeps its own citation as obs_id.

    Raises: ValueError with the reason, and nothing else.
    """
    if not isinstance(text, str):
        raise ValueError(f"rationale: got {type(text).__name__}, expected text")
    if len(text) > MAX_CHARS:
        raise ValueError(f"rationale: got {len(text)} characters, expected at most {MAX_CHARS}")
    raw = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
    answer, notes = _without_thinking(raw), []
    try:
        found, cut = loads(answer, lambda d: any(_key(k) in _JSON_FACTORS for k in d))
        sections = _from_json(found, cut, notes)
    except ValueError as json_reason:
        sections = _from_text(answer)
        if not sections["factors"]:
            raise ValueError(f"rationale: no factors found; as JSON: {json_reason}") from None
    whole = [f for f in sections["factors"] if f["summary"] or f["reasoning"] or f["evidence"]]
    if not whole:
        raise ValueError("rationale: every factor is empty")
    notes += [f"{name} is missing" for name in ("prediction_explanation", "reasoning_lens", "recommendations") if not sections[name]]
    out = _frame(pack, generator or {"name": "text", "model": None, "is_llm": True}, raw)
    out |= {name: sections[name] for name in ("prediction_explanation", "reasoning_lens", "recommendations")}
    out |= {"factors": _matched(whole, pack["items"]), "parse_notes": notes}
    validate_rationale(out)
    return out


def _frame(pack, generator, raw) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "patient_id": pack["patient_id"], "prediction_time": pack["prediction_time"], "task": pack["task"]["name"],
        "probability": pack["prob"], "generator": dict(generator), "prediction_explanation": "", "factors": [], "reasoning_lens": "",
        "recommendations": [], "raw": raw, "parse_notes": [], "failed_reason": None,
    }


_THINK_OPEN, _THINK_CLOSE = re.compile(r"<think(?:ing)?>", re.I), re.compile(r"</think(?:ing)?>", re.I)


def _without_thinking(text: str) -> str:
    """What follows the last closing tag; the opening one may have stood in the prompt. Never closed: no answer."""
    closes = list(_THINK_CLOSE.finditer(text))
    if closes:
        text = text[closes[-1].end():]
    opened = _THINK_OPEN.search(text)
    if opened:
        text = text[:opened.start()]
        if not text.strip():
            raise ValueError("rationale: only a thinking block that never ends, no answer")
    if not text.strip():
        raise ValueError("rationale: the answer is empty")
    return text


# ---- factors and pack items -----------------------------------------------------------------------------------

def _matched(factors: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sources = {i["obs_id"]: (i["kind"], i["source_id"]) for i in items}
    for factor in factors:
        for evidence in factor["evidence"]:  # a chunk's id cites its note
            cited = evidence["citation"]
            if cited["id"] in sources:
                cited["kind"], cited["id"] = sources[cited["id"]]
    places: list[int | None] = [n if n < len(items) else None for n in range(len(factors))]
    cited = [_cited(f) for f in factors]
    have = [(i["kind"], i["source_id"]) for i in items]
    if len(factors) == len(items) and cited != have and sorted(cited) == sorted(have):
        free = {source: [n for n, h in enumerate(have) if h == source] for source in set(have)}
        places = [next((n for n in free[c] if _quotes_from(f, items[n])), None) for f, c in zip(factors, cited)]
        for n, place in enumerate(places):  # chunks of one note are told apart by what is quoted, the rest in order
            if place is not None and place in free[cited[n]]:
                free[cited[n]].remove(place)
            else:
                places[n] = None
        places = [free[c].pop(0) if place is None else place for c, place in zip(cited, places)]
    out = []
    for n, (factor, place) in enumerate(zip(factors, places)):
        if place is None:
            fixed = {"rank": n + 1, "obs_id": cited[n][1] or "(none)", "attribution": 0.0}
        else:
            fixed = {name: items[place][name] for name in ("rank", "obs_id", "attribution")}
        out.append({**fixed, **factor})
    return sorted(out, key=lambda f: f["rank"])


def _quotes_from(factor, item) -> bool:
    text = " ".join(item["text"].split())
    return any(e["quote"] and " ".join(e["quote"].split()) in text for e in factor["evidence"])


def _cited(factor) -> tuple[str, str]:
    first = next((e["citation"] for e in factor["evidence"] if e["citation"]["id"]), {"kind": "", "id": ""})
    return first["kind"], first["id"]


# ---- JSON -----------------------------------------------------------------------------------------------------

_JSON_FACTORS = {"factors", "evidence_reasoning", "predictive_factors"}
_NAMES = {
    "prediction_explanation": {"prediction_explanation", "prediction", "explanation", "prediction_and_explanation"},
    "factors": _JSON_FACTORS,
    "reasoning_lens": {"reasoning_lens", "lens"},
    "recommendations": {"recommendations", "recommendation"},
    "summary": {"summary", "factor_summary", "factor"},
    "evidence": {"evidence", "supporting_evidence", "quotes", "quote"},
    "reasoning": {"reasoning"},
    "stated_attribution": {"attribution", "attribution_score", "stated_attribution"},
}


def _key(name: Any) -> str:
    return re.sub(r"[^a-z]+", "_", str(name).lower()).strip("_")


def _field(raw: dict[str, Any], name: str) -> Any:
    return next((v for k, v in raw.items() if _key(k) in _NAMES[name]), None)


def _from_json(raw: dict[str, Any], cut: bool, notes: list[str]) -> dict[str, Any]:
    listed = _field(raw, "factors")
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        raise ValueError(f"factors: got {type(listed).__name__}, expected a list")
    factors = [_json_factor(f) for f in listed if isinstance(f, dict)]
    if len(factors) < len(listed):
        notes.append(f"{len(listed) - len(factors)} entries of factors are no objects")
    if cut:
        notes.append("the JSON is cut off")
        later = any(_field(raw, name) for name in ("reasoning_lens", "recommendations"))
        if factors and not later and not (factors[-1]["reasoning"] and factors[-1]["evidence"]):
            factors.pop()
            notes.append("the last factor is incomplete and was left out")
    if not factors:
        raise ValueError("no complete factor")
    advice = _field(raw, "recommendations")
    return {
        "prediction_explanation": _words(_field(raw, "prediction_explanation")), "factors": factors,
        "reasoning_lens": _words(_field(raw, "reasoning_lens")),
        "recommendations": [w for v in advice if (w := _words(v))] if isinstance(advice, list) else _lines(_words(advice)),
    }


def _json_factor(raw: dict[str, Any]) -> dict[str, Any]:
    given = _field(raw, "evidence")
    outer = next((v for k, v in raw.items() if _key(k) in ("citation", "source")), None)
    evidence = []
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, dict):
            quote = next((v for k, v in one.items() if _key(k) in ("quote", "text")), "")
            cited = next((v for k, v in one.items() if _key(k) in ("citation", "source")), None)
            cited = cited or {k: v for k, v in one.items() if _key(k) in ("note_id", "icd_code", "code")} or outer
            date, age = (next((v for k, v in one.items() if _key(k) == n), None) for n in ("date", "age_years"))
            evidence.append({
                "quote": _unquoted(_words(quote)), "citation": _citation(cited), "date": _date(_words(date)),
                "age_years": float(age) if isinstance(age, (int, float)) and not isinstance(age, bool) and 0 <= age < 150 else None,
            })
        elif isinstance(one, str) and one.strip():
            found = _evidence_lines(one)
            for e in found:
                if not e["citation"]["id"] and outer is not None:
                    e["citation"] = _citation(outer)
            evidence += found
    stated = _field(raw, "stated_attribution")
    return {
        "summary": _words(_field(raw, "summary")), "evidence": [e for e in evidence if e["quote"] or e["citation"]["id"]],
        "reasoning": _words(_field(raw, "reasoning")), "stated_attribution": _number(stated),
    }


def _words(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(w for v in value if (w := _words(v)))
    if value is None or isinstance(value, (dict, bool)):
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd").strip()  # JSON may escape lone surrogates


def _citation(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        by = {_key(k): v for k, v in value.items()}
        kind, id = _words(by.get("kind") or by.get("type")), _words(by.get("id"))
        for name, of in (("note_id", "note"), ("icd_code", "code"), ("code", "code")):
            if not id and by.get(name):
                kind, id = of, _words(by[name])
        return {"kind": "code" if "code" in kind.lower() or "icd" in kind.lower() else "note", "id": id}
    text = _words(value)
    found = list(_CITATION.finditer(text))
    return _cite(found[-1]) if found else {"kind": "note", "id": text}


# ---- bracket-section text -------------------------------------------------------------------------------------

# Possessive and bounded quantifiers throughout: time stays linear in the length of whatever a model wrote.
_MARK = r"[\s*_#>`\-\u2022\u2013\u2014+]*+"
_NUMBER = r"(?:\(?(?:\d{1,3}|[ivx]{1,5}|[a-d])[.):]\s*+)?"
_SECTION = re.compile(
    rf"^{_MARK}{_NUMBER}{_MARK}(?P<open>\[)?{_MARK}(?:"
    r"(?P<prediction_explanation>prediction\s*+(?:\+|&|and)\s*+explanation)"
    r"|(?P<factors>evidence[ -]{1,3}(?:based[ -]{1,3})?reasoning|predictive factors?(?:\s*+(?:\+|&|and)\s*+evidence[ -]{1,3}based[ -]{1,3}reasoning)?)"
    r"|(?P<reasoning_lens>reasoning lens)"
    r"|(?P<recommendations>recommendations?)"
    rf"){_MARK}(?P<close>\])?{_MARK}(?P<colon>:)?{_MARK}",
    re.I,
)
_LABEL = re.compile(
    rf"^{_MARK}{_NUMBER}{_MARK}(?:factor\s{{0,3}}\d{{1,3}}\s{{0,3}}[.:)\-\u2013\u2014]?\s*+)?{_MARK}(?:"
    r"(?P<summary>(?:factor\s{1,3})?summary)|(?P<evidence>(?:supporting\s{1,3})?evidence)|(?P<reasoning>reasoning)"
    rf"|(?P<stated>attribution(?:\s{{1,3}}score)?)){_MARK}[:=][\s*_]*+",
    re.I,
)
_FACTOR_HEAD = re.compile(rf"^{_MARK}factor\s{{0,3}}#?\d{{1,3}}\b{_MARK}[.:)]?{_MARK}", re.I)
_CITATION = re.compile(
    r"\b(?:(?P<note>note[ _]?id)|(?P<code>icd(?:[ -]?(?:9|10))?(?:[ -]?cm)?[ _]?codes?))\s{0,3}[:=#]\s{0,3}(?P<id>[^()\[\]\n]{1,200})[)\]]?",
    re.I)


def _from_text(text: str) -> dict[str, Any]:
    parts: dict[str, list[str]] = {"prediction_explanation": [], "factors": [], "reasoning_lens": [], "recommendations": []}
    section = "prediction_explanation"
    for line in text.splitlines():
        head = _SECTION.match(line) if len(line) < 2000 else None
        if head and (head["close"] or head["colon"] or not line[head.end():].strip()):
            section = next(name for name in parts if head[name])
            line = line[head.end():]
        elif section == "prediction_explanation" and len(line) < 2000 and (label := _LABEL.match(line)) and label["summary"]:
            section = "factors"  # the section's own heading was left out
        parts[section].append(line)
    return {
        "prediction_explanation": _plain(parts["prediction_explanation"]), "factors": _text_factors(parts["factors"]),
        "reasoning_lens": _plain(parts["reasoning_lens"]), "recommendations": _lines("\n".join(parts["recommendations"])),
    }


def _text_factors(lines: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, list[str]]] = []
    field: str | None = None
    for line in lines:
        label = _LABEL.match(line) if len(line) < 4000 else None
        if label:
            field = next(name for name in ("summary", "evidence", "reasoning", "stated") if label[name])
            again = found and found[-1].get(field)
            if not found or (field == "summary" and set(found[-1]) - {"head"}) or (again and field != "evidence"):
                found.append({})
            found[-1].setdefault(field, []).append(line[label.end():])
            continue
        head = _FACTOR_HEAD.match(line) if len(line) < 4000 else None
        if head and (not found or set(found[-1]) - {"head"}):
            found.append({"head": [line[head.end():]]})
            field = None
        elif field is not None and line.strip():
            found[-1][field].append(line)
    out = []
    for f in found:
        if set(f) == {"head"}:
            continue
        stated = _number(" ".join(f.get("stated", [])))
        out.append({
            "summary": _plain(f.get("summary") or f.get("head", [])), "evidence": _evidence_lines("\n".join(f.get("evidence", []))),
            "reasoning": _plain(f.get("reasoning", [])), "stated_attribution": stated,
        })
    return out


_BULLET = re.compile(r"^[\s>]*(?:[-*+\u2022\u2013\u2014]\s+|\(?\d{1,3}[.)]\s+)+")
_QUOTED = re.compile("\u201c([^\u201c\u201d]*)\u201d|\"([^\"]*)\"|\u00ab([^\u00ab\u00bb]*)\u00bb")
_JOIN = re.compile(r"[\s,;]*+(?:and|\.\.\.|\u2026|\[\.\.\.\])?[\s,;]*+", re.I)
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b")
_AGE = re.compile(r"\baged?\s{0,3}[:=]?\s{0,3}(\d{1,3}(?:\.\d{1,9})?)", re.I)


def _evidence_lines(text: str) -> list[dict[str, Any]]:
    """`"quote", date (note_id: X)` lines -> evidence. A line without a citation belongs to the one that follows."""
    out: list[dict[str, Any]] = []
    held: list[str] = []
    for line in text.splitlines():
        at = 0
        for c in _CITATION.finditer(line):
            held.append(line[at:c.start()].rstrip("([ \t"))
            out += _quotes("\n".join(held), _cite(c))
            held, at = [], c.end()
        rest = line[at:].strip(" \t.;,*_") if at else line
        held += [rest] if rest else []
    if any(part.strip() for part in held):
        out += _quotes("\n".join(held), {"kind": "note", "id": ""})
    return out


def _quotes(text: str, citation: dict[str, str]) -> list[dict[str, Any]]:
    """The quotes of one stretch of text: what stands in quote marks, else all of it but the date."""
    text = _BULLET.sub("", text).strip()
    marks = list(_QUOTED.finditer(text))
    if marks and all(_JOIN.fullmatch(text, a.end(), b.start()) for a, b in zip(marks, marks[1:])):
        quotes, rest = [next(g for g in m.groups() if g is not None) for m in marks], text[:marks[0].start()] + " " + text[marks[-1].end():]
    elif marks:  # quote marks inside the quote: from the first to the last
        a, b = marks[0].start() + 1, marks[-1].end() - 1
        quotes, rest = [text[a:b]], text[:a] + " " + text[b:]
    else:
        when = list(_DATE.finditer(text))
        end = when[-1].start() if when and not text[when[-1].end():].strip(" \t)],.;:") else len(text)
        quotes, rest = [_unquoted(text[:end].strip().rstrip("([,;-\u2013\u2014").removesuffix("Date:").strip())], text[end:]
    date, age = _DATE.search(rest), _AGE.search(rest)
    return [
        {"quote": q.strip(), "citation": dict(citation), "date": _date(date[0]) if date else None,
         "age_years": float(age[1]) if age and float(age[1]) < 150 else None}
        for q in quotes if q.strip() or citation["id"]
    ]


def _cite(found: re.Match) -> dict[str, str]:
    return {"kind": "note" if found["note"] else "code", "id": found["id"].strip().strip("*_`\"'.,;\u201c\u201d ")}


def _date(text: str) -> str | None:
    found = _DATE.search(text)
    if not found:
        return None
    try:
        dt.datetime.fromisoformat(found[0])
    except ValueError:
        return None
    return found[0].replace(" ", "T")


def _number(value: Any) -> float | None:
    """The first signed number; none where it is beyond 1e15."""
    if isinstance(value, (int, float)):
        return float(value) if not isinstance(value, bool) and abs(value) < 1e15 else None
    text = _words(value).replace("\u2212", "-").replace("\u2013", "-")
    found = re.search(r"([+-]?)\s{0,3}(\d{1,15}(?:\.\d{0,30})?|\.\d{1,30})(?![\d.])", text)
    return float(found[1] + found[2]) if found else None


def _unquoted(text: str) -> str:
    text = text.strip()
    for a, b in ('""', "\u201c\u201d", "\u00ab\u00bb", "''"):
        if len(text) >= 2 and text[0] == a and text[-1] == b:
            return text[1:-1].strip()
    return text


def _plain(lines: list[str]) -> str:
    """Lines as one text without markdown emphasis around them; blank lines stay as paragraph breaks."""
    out: list[str] = []
    for line in (line.rstrip(" \t\r*_").lstrip(" \t*_#>") for line in lines):
        if line or (out and out[-1]):
            out.append(line)
    return "\n".join(out).strip()


def _lines(text: str) -> list[str]:
    cleaned = (_BULLET.sub("", line).rstrip(" \t\r*_").lstrip(" \t*_#>") for line in text.splitlines())
    return [line for line in cleaned if line.strip("-= \t")]
