"""Stage 1 of the faithfulness audit: what can be checked mechanically in a rationale (paper, appendix G).

Two checks a factor: every citation names a note or code of the patient's record, and every quote stands in the source
it cites (for a code: in its title). Five factors, ten booleans. A rationale that was not parsed, or has another number
of factors, fails and stays in the denominator; where the evidence pack itself holds fewer than five items, that number
is asked for instead. Beside the verdict stands the paper's own form of it (rapidfuzz, no further gates), and flags that
change no verdict: citations outside the pack or of another factor, repeated evidence, directions and numbers that
contradict the pack. Nothing is edited.
"""
from __future__ import annotations

import dataclasses
import math
import multiprocessing
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core_jax.records import Patient
from evigen_jax.evidence import check_fields
from evigen_jax.quotes import THRESHOLD, UNTRUSTED, NormalizedSource, normalise, prepare, verify_quote
from evigen_jax.rationale import rationale_sha256

SCHEMA = "verification/1"
FACTORS = 5
CHECKS = ("citation", "quote")
Row = tuple[Any, Patient, Mapping[str, Any]]

_ROW = {
    "schema": str, "patient_id": str, "rationale_sha256": str, "threshold": float, "expected_factors": int, "s1": list,
    "s1_pass": bool, "s1_pass_rapidfuzz": bool, "factors": list, "flags": list, "failed_reason": (str, None),
}
_FACTOR = {
    "rank": int, "quotes": list, "citation_known_record": bool, "citation_known_pack": bool,
    "direction_ok": (bool, None), "attribution_matches": (bool, None),
}
_QUOTE = {
    "ok": bool, "trusted": bool, "score": (float, None), "score_rapidfuzz": (float, None), "method": str, "spans": list,
    "flags": list, "reason": (str, None), "note_id": str, "found_in": (str, None),
}


def verify_rationale(
    rationale: Any, patient_visible: Patient, pack: Mapping[str, Any], *,
    threshold: float = THRESHOLD, nearest: bool = True,
) -> dict[str, Any]:
    """Check one rationale against the record that it may cite and the pack that it was written from.

    Args:
      rationale: "rationale/1"; anything else (None, text, fields of the wrong type) counts as unparsable.
      patient_visible: the record as the model saw it (`core_jax.records.visible`).
      pack: valid "evidence_pack/1" of the same patient.
      threshold, nearest: as in `verify_quote`.

    Returns a "verification/1" object:
      rationale_sha256: of the rationale checked, as it was given. threshold: the one given.
      s1: [{rank, check: "citation" | "quote", ok, ok_rapidfuzz}], two a factor for ranks 1..expected_factors.
      s1_pass, s1_pass_rapidfuzz: all of them hold, and nothing failed before.
      factors: one for each factor written, quotes in the order of its evidence: `verify_quote`'s result, `note_id` (the
        id cited, a code's too) and `found_in` (another source of the pack that does hold a quote missing in its own).
        direction_ok: the reasoning's "raises" or "lowers" against the attribution's sign; attribution_matches: the
        number stated against the pack's, to 4 decimals; None where nothing is stated.
      flags: "factor <rank>: <name>". failed_reason: None, or why the rationale fails as a whole.

    Raises: ValueError when pack, record and rationale are not of one patient.
    """
    if pack["patient_id"] != patient_visible.patient_id:
        raise ValueError(
            f"evidence pack of {pack['patient_id']!r} checked against the record of {patient_visible.patient_id!r}")
    parsed = isinstance(rationale, Mapping)
    if parsed and rationale.get("patient_id") != pack["patient_id"]:
        raise ValueError(
            f"rationale of {rationale.get('patient_id')!r} checked against the pack of {pack['patient_id']!r}")
    expected = min(FACTORS, len(pack["items"]))
    raw = rationale.get("factors") if parsed else None
    written = [f for f in raw if isinstance(f, Mapping)] if isinstance(raw, list) else []
    failed = _failure(rationale, raw, expected)
    record = _Record(patient_visible, pack, threshold, nearest)
    flags: list[str] = []
    factors = [_factor(f, n, record, flags) for n, f in enumerate(written, 1)]
    _repeated(written, factors, flags)

    s1 = []
    for rank in range(1, expected + 1):
        f = next((f for f in factors if f["rank"] == rank), None)
        quoted = f["quotes"] if f else []
        known = bool(quoted) and f["citation_known_record"]
        strict = {"citation": known, "quote": bool(quoted) and all(q["ok"] for q in quoted)}
        paper = strict | {"quote": bool(quoted) and all((q["score_rapidfuzz"] or 0.0) >= threshold for q in quoted)}
        s1 += [{"rank": rank, "check": c, "ok": strict[c], "ok_rapidfuzz": paper[c]} for c in CHECKS]
    return {
        "schema": SCHEMA, "patient_id": pack["patient_id"], "rationale_sha256": rationale_sha256(rationale),
        "threshold": float(threshold), "expected_factors": expected, "s1": s1,
        "s1_pass": failed is None and all(c["ok"] for c in s1),
        "s1_pass_rapidfuzz": failed is None and all(c["ok_rapidfuzz"] for c in s1),
        "factors": factors, "flags": flags, "failed_reason": failed,
    }


def _failure(rationale: Any, raw: Any, expected: int) -> str | None:
    if not isinstance(rationale, Mapping):
        return f"unparsable: got {type(rationale).__name__}, expected an object"
    if rationale.get("failed_reason"):
        return str(rationale["failed_reason"])
    if not isinstance(raw, list) or not all(isinstance(f, Mapping) for f in raw):
        return "unparsable: no list of factors"
    if expected == 0:
        return "the evidence pack holds no items"
    if len(raw) != expected:
        return f"{len(raw)} factors, expected {expected}"
    return None


class _Record:
    """What may be cited: texts by (kind, id), prepared when first quoted; and what the pack holds."""

    def __init__(self, patient: Patient, pack: Mapping[str, Any], threshold: float, nearest: bool):
        self._texts: dict[tuple[str, str], list[str]] = {("note", n.note_id): [n.text] for n in patient.notes}
        for c in patient.codes:
            titles = self._texts.setdefault(("code", c.obs_id), [])
            if c.title not in titles:
                titles.append(c.title)
        self._times = {n.note_id: n.time for n in patient.notes}
        self._prepared: dict[tuple[str, str], list[NormalizedSource]] = {}
        self._options = {"threshold": threshold, "nearest": nearest}
        self.items = {i["obs_id"]: i for i in pack["items"]}
        self.pack = list(dict.fromkeys((i["kind"], i["source_id"]) for i in pack["items"]))

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._texts

    def time(self, key: tuple[str, str]) -> str | None:
        return self._times.get(key[1]) if key[0] == "note" else None

    def check(
        self, quote: str, key: tuple[str, str], near: tuple[int, int] | None = None, **options: Any,
    ) -> dict[str, Any]:
        """The best verdict among the texts known under this id: one note, or the titles recorded for one code."""
        if key not in self._prepared:
            self._prepared[key] = [prepare(t) for t in self._texts[key]]
        results = [verify_quote(quote, s, near=near, **self._options | options) for s in self._prepared[key]]
        return max(results, key=lambda r: (r["ok"], r["score"] or 0.0))


def _missing(reason: str) -> dict[str, Any]:
    return {"ok": False, "trusted": False, "score": None, "score_rapidfuzz": None, "method": "none", "spans": [],
            "flags": [reason], "reason": reason}


def _factor(factor: Mapping[str, Any], number: int, record: _Record, flags: list[str]) -> dict[str, Any]:
    rank = factor.get("rank")
    rank = rank if isinstance(rank, int) and not isinstance(rank, bool) else number
    item = record.items.get(factor.get("obs_id")) if isinstance(factor.get("obs_id"), str) else None
    evidence = factor.get("evidence")
    evidence = evidence if isinstance(evidence, list) else []
    names: list[str] = [] if evidence else ["no_evidence"]
    names += [] if item else ["unknown_observation"]
    cited, quotes = [], []
    for e in evidence:
        key, result = _evidence(e, item, record, names)
        cited.append(key)
        quotes.append(result)

    attribution = None if item is None else float(item["attribution"])
    stated = _number(factor.get("stated_attribution"))
    matches = None if stated is None or attribution is None else _same(stated, attribution)
    way = stated_direction(factor["reasoning"]) if isinstance(factor.get("reasoning"), str) else None
    direction = None
    if way is not None and attribution is not None and not _same(attribution, 0.0):
        direction = way == math.copysign(1, attribution)
    own = _number(factor.get("attribution"))
    for name, wrong in (
        ("attribution", matches is False), ("direction", direction is False),
        ("attribution_not_from_pack", attribution is not None and (own is None or not _same(own, attribution))),
    ):
        names += [name] if wrong else []
    flags += [f"factor {rank}: {name}" for name in dict.fromkeys(names)]
    return {
        "rank": rank, "quotes": quotes, "citation_known_record": bool(cited) and all(k in record for k in cited),
        "citation_known_pack": bool(cited) and all(k in record.pack for k in cited), "direction_ok": direction,
        "attribution_matches": matches,
    }


def _evidence(
    e: Any, item: Mapping[str, Any] | None, record: _Record, names: list[str],
) -> tuple[tuple[str, str], dict[str, Any]]:
    """((kind, id) cited, the quote's result); adds what is to be said of the factor to `names`."""
    citation = e.get("citation") if isinstance(e, Mapping) else None
    quote = e.get("quote") if isinstance(e, Mapping) else None
    named = isinstance(citation, Mapping) and all(isinstance(citation.get(k), str) for k in ("kind", "id"))
    if not named or not isinstance(quote, str):
        names.append("malformed_evidence")
        return ("", ""), _missing("malformed_evidence") | {"note_id": "", "found_in": None}
    key = citation["kind"], citation["id"]
    own = None if item is None else (item["kind"], item["source_id"])
    near = (item["start"], item["end"]) if key == own and key[0] == "note" else None
    result = record.check(quote, key, near) if key in record else _missing("unknown_citation")
    found = None
    if not result["ok"] and result["reason"] != "empty":
        others = [k for k in record.pack if k != key and k in record]
        found = next((k[1] for k in others if record.check(quote, k, nearest=False)["ok"]), None)
    time, stated = record.time(key), e.get("date")
    outside = near is not None and any(b <= near[0] or a >= near[1] for a, b in result["spans"])
    for name, true in (
        ("citation_unknown", key not in record),
        ("citation_outside_pack", key in record and key not in record.pack),
        ("citation_of_other_factor", own is not None and key != own and key in record.pack),
        ("quote_in_other_source", found is not None),
        ("quote_outside_chunk", result["ok"] and outside),
        ("date", bool(time) and isinstance(stated, str) and stated != "" and stated[:10] != time[:10]),
    ):
        names += [name] if true else []
    names += [f for f in result["flags"] if f in UNTRUSTED]
    return key, result | {"note_id": key[1], "found_in": found}


def _repeated(written: list[Mapping[str, Any]], factors: list[dict[str, Any]], flags: list[str]) -> None:
    """Flags the second use of an observation, or of a quote from the same source."""
    seen: dict[Any, int] = {}
    for raw, factor in zip(written, factors):
        evidence = raw.get("evidence") if isinstance(raw.get("evidence"), list) else []
        keys = {("observation", raw.get("obs_id"))} if isinstance(raw.get("obs_id"), str) else set()
        keys |= {("quote", q["note_id"], normalise(e["quote"])) for e, q in zip(evidence, factor["quotes"])
                 if q["reason"] != "malformed_evidence"}
        for name in sorted({f"repeated_{k[0]}" for k in keys if k in seen}):
            flags.append(f"factor {factor['rank']}: {name}")
        seen |= dict.fromkeys(keys, 1)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _same(a: float, b: float) -> bool:
    """Equal to 4 decimals, whichever way the last one was rounded; False for NaN."""
    return abs(a - b) <= 0.5e-4 * (1 + 1e-6)


# ---- direction ------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\u2192|[-=]>|[.;:](?=\s|$)|[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+(?:[.,-]\w+)*")
_UP = re.compile(r"(?:increas|rais|elevat|heighten|amplif)\w*|higher|greater|upward")
_DOWN = re.compile(r"(?:decreas|reduc|diminish|lessen|lower)\w*|smaller|downward")
_BAD = re.compile(r"worsen\w*|worse|poor(?:er)?|adverse|unfavou?rable")  # these say it of risk and of survival alike
_GOOD = re.compile(r"better|favou?rable|protective|protects?")
_RISK = frozenset(
    "risk risks probability likelihood chance chances odds hazard mortality death logit prediction score".split())
_QUALITY = frozenset("prognosis outcome outcomes".split())
_BREAKS = frozenset("\u2192 -> => . ; :".split(" "))
_NOT = frozenset("not no never without neither nor cannot doesn't doesn\u2019t".split())
_VERBS = frozenset(
    "is are was were which that who associated linked leading leads indicates suggests reflects implies and but or due "
    "from because with given".split())
_CAUSES = frozenset("which that who due from because with given and but or".split())


def stated_direction(reasoning: str) -> int | None:
    """+1 where the text says that the risk goes up, -1 down, None where it says neither, both, or "does not raise".

    Lexical: a word of direction counts when the thing it moves (risk, probability, mortality, ...; survival and
    prognosis the other way round) follows within six words or precedes within seven, in one clause. Of "evidence ->
    implication -> impact" the last part decides when it says something.
    """
    text = reasoning[:20_000].lower()
    last = re.split(r"\u2192|[-=]>", text)[-1]
    for part in (last, text):
        votes = _votes([m.group() for m in _TOKEN.finditer(part)])
        if votes:
            return votes.pop() if len(votes) == 1 and 0 not in votes else None
    return None


def _votes(tokens: list[str]) -> set[int]:
    """Directions said of the risk; 0 stands for a negated one."""
    votes = set()
    for n, token in enumerate(tokens):
        sign, judges = _sign(token)
        if not sign:
            continue
        moved = _object(tokens[n + 1:n + 7], _VERBS) or _object(tokens[max(0, n - 7):n][::-1], _CAUSES)
        if moved and (judges or moved not in _QUALITY):
            negated = not _NOT.isdisjoint(tokens[max(0, n - 3):n])
            votes.add(0 if negated else -sign if moved == "survival" and not judges else sign)
    return votes


def _sign(token: str) -> tuple[int, bool]:
    """(+1 up or bad, -1 down or good, 0 no word of direction; whether it judges rather than measures)."""
    for pattern, sign, judges in ((_UP, 1, False), (_DOWN, -1, False), (_BAD, 1, True), (_GOOD, -1, True)):
        if pattern.fullmatch(token):
            return sign, judges
    return 0, False


def _object(tokens: list[str], stops: frozenset[str]) -> str | None:
    """What is moved: the first risk, survival or prognosis before any break, stop or other word of direction."""
    for t in tokens:
        if t in _RISK or t in _QUALITY or t == "survival":
            return t
        if t in _BREAKS or t in stops or _sign(t)[0]:
            return None
    return None


# ---- many -----------------------------------------------------------------------------------------------------

def verify_many(
    rows: Iterable[Row], workers: int = 1, *, threshold: float = THRESHOLD, nearest: bool = True,
) -> list[dict[str, Any]]:
    """`verify_rationale` of each (rationale, visible patient, pack), in the order of the rows.

    With workers > 1 in as many processes (started afresh, so that no thread of jax is forked); only texts that the
    rationale or the pack cites are sent.

    Raises: ValueError as `verify_rationale`, or for workers < 1.
    """
    if workers < 1:
        raise ValueError(f"workers: got {workers}, expected at least 1")
    jobs = ((rationale, patient, pack, threshold, nearest) for rationale, patient, pack in rows)
    if workers == 1:
        return [_job(job) for job in jobs]
    quiet = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}  # Ctrl-C is the parent's to answer
    with multiprocessing.get_context("spawn").Pool(workers, **quiet) as pool:
        return list(pool.imap(_job, map(_trimmed, jobs), chunksize=8))


def _job(job: tuple[Any, Patient, Mapping[str, Any], float, bool]) -> dict[str, Any]:
    rationale, patient, pack, threshold, nearest = job
    return verify_rationale(rationale, patient, pack, threshold=threshold, nearest=nearest)


def _trimmed(job):
    rationale, patient, pack, *options = job
    cited = {i["source_id"] for i in pack["items"]} | set(_cited(rationale))
    notes = tuple(n if n.note_id in cited else dataclasses.replace(n, text="") for n in patient.notes)
    return (rationale, dataclasses.replace(patient, notes=notes, encounters=(), events=()), pack, *options)


def _cited(rationale: Any) -> Iterator[str]:
    factors = rationale.get("factors") if isinstance(rationale, Mapping) else None
    for f in factors if isinstance(factors, list) else []:
        for e in (f.get("evidence") if isinstance(f, Mapping) and isinstance(f.get("evidence"), list) else []):
            citation = e.get("citation") if isinstance(e, Mapping) else None
            if isinstance(citation, Mapping) and isinstance(citation.get("id"), str):
                yield citation["id"]


def summary(verifications: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Pass rates over a cohort, each {k, n, rate, low, high} with its 95 % Wilson interval (rate None when n is 0).

    thresholds: those that the verifications were made with, one as a rule.
    s1, s1_rapidfuzz: rationales, failed ones counted as not passing. checks, checks_rapidfuzz: the ten booleans a
    rationale. quotes, quotes_trusted, quotes_rapidfuzz: quotes written. citations: factors whose citations the record
    knows; citations_in_pack: the pack knows. failed: reasons and how often. flags: names and how often.
    """
    rows = list(verifications)
    checks = [c for r in rows for c in r["s1"]]
    factors = [f for r in rows for f in r["factors"]]
    quotes = [q for f in factors for q in f["quotes"]]
    by_paper = [(q["score_rapidfuzz"] or 0.0) >= r["threshold"] for r in rows for f in r["factors"] for q in f["quotes"]]
    return {
        "rationales": len(rows), "thresholds": sorted({r["threshold"] for r in rows}),
        "failed": dict(sorted(Counter(r["failed_reason"] for r in rows if r["failed_reason"]).items())),
        "s1": _share([r["s1_pass"] for r in rows]), "s1_rapidfuzz": _share([r["s1_pass_rapidfuzz"] for r in rows]),
        "checks": _share([c["ok"] for c in checks]), "checks_rapidfuzz": _share([c["ok_rapidfuzz"] for c in checks]),
        "quotes": _share([q["ok"] for q in quotes]), "quotes_trusted": _share([q["trusted"] for q in quotes]),
        "quotes_rapidfuzz": _share(by_paper),
        "citations": _share([f["citation_known_record"] for f in factors]),
        "citations_in_pack": _share([f["citation_known_pack"] for f in factors]),
        "flags": dict(sorted(Counter(flag.split(": ", 1)[1] for r in rows for flag in r["flags"]).items())),
    }


def _share(held: list[bool]) -> dict[str, Any]:
    from core_jax.stats import wilson  # scipy: worker processes do without

    k, n = sum(held), len(held)
    low, high = wilson(k, n) if n else (None, None)
    return {"k": k, "n": n, "rate": k / n if n else None, "low": low, "high": high}


def validate_verification(verification: Any) -> None:
    """Check every field of a "verification/1" object.

    Raises: ValueError naming patient and field.
    """
    who = f"verification of {verification.get('patient_id')!r}" if isinstance(verification, Mapping) else "verification"
    check_fields(verification, _ROW, who)
    if verification["schema"] != SCHEMA:
        raise ValueError(f"{who}: schema: got {verification['schema']!r}, expected {SCHEMA!r}")
    if not re.fullmatch("[0-9a-f]{64}", verification["rationale_sha256"]):
        raise ValueError(f"{who}: rationale_sha256: got {verification['rationale_sha256']!r:.80}, expected 64 hex digits")
    if not 0 < verification["threshold"] <= 100:
        raise ValueError(f"{who}: threshold: got {verification['threshold']!r}, expected above 0 and at most 100")
    for n, check in enumerate(verification["s1"]):
        check_fields(check, {"rank": int, "check": str, "ok": bool, "ok_rapidfuzz": bool}, f"{who}: s1[{n}]")
        if check["check"] not in CHECKS:
            raise ValueError(f"{who}: s1[{n}].check: got {check['check']!r}, expected one of {CHECKS}")
    for n, factor in enumerate(verification["factors"]):
        check_fields(factor, _FACTOR, f"{who}: factors[{n}]")
        for m, quote in enumerate(factor["quotes"]):
            check_fields(quote, _QUOTE, f"{who}: factors[{n}].quotes[{m}]")
