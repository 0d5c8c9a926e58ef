"""MedMemoryBench's protocol and scores, its own (`compat`) and strict ones side by side.

compat follows the published scorer to the letter, with what is wrong in it: punctuation and blanks are deleted before
one string is looked for in another, so 75 mg passes for 5 mg, 18.2 and 82 for 8.2, and a negated drug for the drug; any
lone capital letter is an option, so "A patient ..." chooses A and "BD" chooses nothing. strict compares numbers as
numbers and words as words, does not take a negated mention, and reads options from where an answer states them.

Entity and multiple-choice questions need no judge. With a judge the other four types are scored by its verdict. Without
one, temporal and state-update questions get a rule-based score, named so (`rule`), and the other two none: a figure
that covers fewer types says which.
"""
from __future__ import annotations

import dataclasses
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from stam_jax.metrics import type_scores
from stam_jax.readers.memory_bench import TYPES, Persona, Query, Session

JUDGED = ("temporal_localization", "state_update", "inference_generation", "multi_hop_clinical_deduction")
RULED = JUDGED[:2]
Judge = Callable[[Query, str], str]  # (query, output) -> the judge's raw words, which hold one JSON object


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """compat, strict: in [0, 1], None where nothing scored them. by: match, options, judge, rule or unscored."""

    query_id: str
    patient_id: str
    type: str
    output: str
    by: str
    compat: float | None
    strict: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """Of one scorer. macro: mean over types; pooled: over questions; types: type -> (mean, n). missing: types that have
    questions but no score."""

    macro: float | None
    pooled: float | None
    types: Mapping[str, tuple[float, int]]
    missing: tuple[str, ...]


def run(persona: Persona, tell: Callable[[Sequence[Session]], Any], ask: Callable[[Query], str],
        judge: Judge | None = None) -> list[Result]:
    """One persona through the protocol: what `tell` is given persists; `ask` answers at each checkpoint. The caller
    makes a fresh memory for each persona."""
    out = []
    for unit in persona.units():
        tell(unit.sessions)
        out += [score(query, ask(query), persona.patient_id, judge) for query in unit.queries]
    return out


def score(query: Query, output: str, patient_id: str = "", judge: Judge | None = None) -> Result:
    """Both scores of one answer. Raises: nothing for a judge's answer: one that cannot be read counts as wrong."""
    def result(by: str, compat: float | None, strict: float | None) -> Result:
        return Result(query.query_id, patient_id, query.type, output, by, compat, strict)

    if query.type == "entity_exact_match":
        return result("match", float(compat_contains(output, query.gold)), float(strict_contains(output, query.gold)))
    if query.type == "multiple_choice":
        right = compat_right_options(query)
        return result("options", float(compat_options(output) == right), float(strict_options(output) == right))
    if judge is None:
        if query.type not in RULED:
            return result("unscored", None, None)
        ruled = float(rule_temporal(output, query.gold) if query.type == RULED[0] else rule_state(output, query.gold))
        return result("rule", None, ruled)
    verdict = {} if not output.strip() else read_verdict(judge(query, output)) or {}
    right = bool(verdict.get("is_correct", False))
    if query.type != "multi_hop_clinical_deduction":
        return result("judge", float(right), float(right))
    return result("judge", float(right), float(right and deduction_passes(verdict)))


def summarise(results: Iterable[Result], scorer: str) -> Summary:
    """scorer: "compat" or "strict"."""
    results = list(results)
    scored = [(r.type, getattr(r, scorer)) for r in results if getattr(r, scorer) is not None]
    missing = tuple(t for t in TYPES if any(r.type == t for r in results) and all(t != kind for kind, _ in scored))
    if not scored:
        return Summary(None, None, {}, missing)
    got = type_scores([s for _, s in scored], [t for t, _ in scored])
    return Summary(got.macro, got.pooled, got.types, missing)


# ---- compat -------------------------------------------------------------------------------------------------------

_DELETED = str.maketrans("", "", string.punctuation + "，。！？、；：（）【】《》·…—～－–")
_COMPAT_OPTIONS = [re.compile(p) for p in (r"\b([A-F])\b", r"选([A-F])", r"答案[是为：:]*\s*([A-F])", r"([A-F])选项")]
_LABEL = re.compile(r"([A-F])[.、:\s]")


def _squeezed(text: str) -> str:
    return "".join(text.translate(_DELETED).split()).lower()


def compat_contains(output: str, golds: Sequence[str]) -> bool:
    """Whether the output contains every gold answer, punctuation and blanks deleted from both."""
    said = _squeezed(output)
    return bool(golds) and all(_squeezed(g) and _squeezed(g) in said for g in golds)


def compat_options(text: str) -> set[str]:
    """Every letter A to F that stands alone in the upper-cased text."""
    return {letter for pattern in _COMPAT_OPTIONS for letter in pattern.findall(text.upper())}


def compat_right_options(query: Query) -> set[str]:
    """The labels of the right answers ("B. ..."); answers without one give the letters that stand alone in them."""
    labelled = {m[1] for a in query.gold if (m := _LABEL.match(a.upper()))}
    return labelled or {letter for a in query.gold for letter in compat_options(a)}


def read_verdict(text: str) -> dict[str, Any] | None:
    """The JSON object of a judge's answer: the whole of it, else from its first brace to the one that closes it."""
    try:
        found = json.loads(text.strip())
    except (json.JSONDecodeError, RecursionError):
        found = None
        if (start := text.find("{")) >= 0:
            depth, quoted, escaped = 0, False, False
            for i, c in enumerate(text[start:], start):
                if escaped:
                    escaped = False
                elif c == "\\" and quoted:
                    escaped = True
                elif c == '"':
                    quoted = not quoted
                elif not quoted:
                    depth += (c == "{") - (c == "}")
                    if depth == 0:
                        try:
                            found = json.loads(text[start:i + 1])
                        except (json.JSONDecodeError, RecursionError):
                            pass
                        break
    return found if isinstance(found, dict) else None


_RETRIEVAL = {"excellent": 1.0, "good": 0.9, "partial": 0.7, "poor": 0.4, "none": 0.1}


def deduction_score(verdict: Mapping[str, Any]) -> float:
    """The composite of a multi-hop verdict: 0.35 node coverage + 0.35 causal + 0.30 chain, halved where the answer is
    not about this patient, times the quality of what was retrieved."""
    composite = sum(w * _rate(verdict, n) for n, w in (("ncr_score", 0.35), ("crc_score", 0.35), ("cc_score", 0.30)))
    composite *= 1.0 if verdict.get("uses_patient_specific_info") else 0.5
    return composite * _RETRIEVAL.get(verdict.get("memory_retrieval_quality", "none"), 0.5)


def deduction_passes(verdict: Mapping[str, Any]) -> bool:
    """The thresholds that the judge was told, held to its own figures."""
    return all(_rate(verdict, n) >= least for n, least in (("ncr_score", 0.75), ("crc_score", 0.75), ("cc_score", 0.7)))


def _rate(verdict: Mapping[str, Any], name: str) -> float:
    value = verdict.get(name, 0.0)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


# ---- strict -------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+(?:'[a-z]+)?|[%/+]|[.;,?!:，。！？；、\n]",
                    re.IGNORECASE)
_CJK = re.compile(r"[\u3400-\u9fff]")
_BREAKS = set(".;,?!:，。！？；、\n") | {"but", "however", "instead", "although", "yet"}
_NEGATIONS = {"not", "no", "never", "without", "denies", "denied", "neither", "nor", "isn't", "wasn't", "aren't",
              "doesn't", "didn't", "don't", "cannot", "excluded", "stopped", "discontinued", "avoid", "不", "没", "未",
              "无", "否"}
_ONLY = {"only", "just", "仅", "只"}
_ABSTAINED = re.compile(r"\b(?:i (?:do not|don't) (?:know|have)"
                        r"|not (?:in memory|mentioned|recorded|available|specified)"
                        r"|no (?:information|record|memory)|cannot (?:determine|recall|find)|unknown|unable to)\b"
                        r"|不知道|没有(?:相关)?(?:信息|记录)|无法(?:确定|回答)", re.IGNORECASE)
_LETTERS = re.compile(r"(?<![A-Za-z])([A-F](?:\s*(?:,|;|/|&|\+|and|or|、|，|和)?\s*[A-F])*)(?![A-Za-z'])")
_BARE = re.compile(r"[(\[*]*[a-fA-F](?:[\s,;/&+、，和]|and)*(?:[a-fA-F](?:[\s,;/&+、，和]|and)*)*[)\].*]*")
_STATES = re.compile(r"(?:answers?|options?|choices?|correct|choose|select|chose)\b"
                     r"[^A-F\n]{0,30}?(?:is|are|:|=)?\s*[*(\[]*|答案[是为：:]*\s*|选择?\s*", re.IGNORECASE)
_MONTHS = {m: i for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}


def _tokens(text: str) -> list[str | Decimal]:
    out: list[str | Decimal] = []
    for piece in _TOKEN.findall(text):
        if piece[0].isdigit():
            out.append(Decimal(piece.replace(",", "")))
        elif _CJK.search(piece):
            out += list(piece)
        else:
            out.append(piece.lower())
    return out


def strict_contains(output: str, golds: Sequence[str]) -> bool:
    """Whether the output states every gold answer: the same words and numbers in a row, at least once not negated.

    A negation reaches to the end of its clause, and not into a gold answer that holds one itself.
    """
    said = _tokens(output)
    return bool(golds) and all(_states(said, [t for t in _tokens(g) if t not in _BREAKS]) for g in golds)


def _states(said: list, gold: list) -> bool:
    if not gold:
        return False
    words = [(i, t) for i, t in enumerate(said) if t not in _BREAKS or t in gold]
    for start in range(len(words) - len(gold) + 1):
        if [t for _, t in words[start:start + len(gold)]] == gold and not _negated(said, words[start][0]):
            return True
    return False


def _negated(said: list, at: int) -> bool:
    for i in range(at - 1, -1, -1):
        if said[i] in _BREAKS:
            return False
        if said[i] in _NEGATIONS and not (i + 1 < len(said) and said[i + 1] in _ONLY):
            return True
    return False


def strict_options(text: str) -> set[str]:
    """The options that an answer chooses: the last list of letters behind "the answer is" and the like, else an answer
    that is nothing but letters, else lines that begin with a label, else letters that stand alone and are no
    article."""
    text = text.strip()
    if len(text) < 40 and _BARE.fullmatch(text):
        return set(re.sub(r"and", "", text, flags=re.IGNORECASE).upper()) & set("ABCDEF")
    stated = [m for s in _STATES.finditer(text) if (m := _LETTERS.match(text, s.end())) and not _article(text, m)]
    if stated:
        return _letters(stated[-1][1])
    lines = {m[1] for line in text.splitlines() if (m := re.match(r"\s*[(\[*-]*\s*([A-F])\s*[.):、\]]", line))}
    if lines:
        return lines
    return {letter for m in _LETTERS.finditer(text)
            if not _article(text, m) and not _negated(_tokens(text[:m.start()]), len(_tokens(text[:m.start()])))
            for letter in _letters(m[1])}


def _letters(found: str) -> set[str]:
    return set(re.sub("and|or", "", found)) & set("ABCDEF")


def _article(text: str, m: re.Match) -> bool:
    """Whether "A" begins a noun phrase: "A patient", "A 50-year-old"."""
    return m[1] == "A" and re.match(r"\s+[a-z0-9]", text[m.end():]) is not None and not re.match(
        r"\s+(?:is|are|and|or|because|since)\b", text[m.end():])


def dates(text: str) -> set[str]:
    """Dates that a text names, as far as it names them: YYYY-MM-DD, YYYY-MM."""
    found = {f"{int(y):04d}-{int(m):02d}" + (f"-{int(d):02d}" if d else "")
             for y, m, d in re.findall(r"(?<!\d)(\d{4})[-/.年](\d{1,2})(?:[-/.月](\d{1,2}))?(?!\d)", text)}
    month = "|".join(_MONTHS)
    for m, d, y in re.findall(rf"\b({month})[a-z]*\.? (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})", text.lower()):
        found.add(f"{y}-{_MONTHS[m]:02d}-{int(d):02d}")
    for d, m, y in re.findall(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({month})[a-z]*\.?,? (\d{{4}})", text.lower()):
        found.add(f"{y}-{_MONTHS[m]:02d}-{int(d):02d}")
    for m, y in re.findall(rf"\b({month})[a-z]*\.?,? (\d{{4}})", text.lower()):
        found.add(f"{y}-{_MONTHS[m]:02d}")
    return {d for d in found if not any(o != d and o.startswith(d) for o in found)}


def rule_temporal(output: str, golds: Sequence[str]) -> bool:
    """Without a judge: every date of the gold is named; where it has none, its words are. Abstaining is wrong."""
    gold = " ".join(golds)
    if _ABSTAINED.search(output):
        return False
    named, wanted = dates(output), dates(gold)
    if wanted:
        return all(any(n.startswith(w) for n in named) for w in wanted)
    return _recall(output, gold) >= 0.6


def rule_state(output: str, golds: Sequence[str]) -> bool:
    """Without a judge: every number of the gold is stated, not negated, and at least 60 % of its words are. Abstaining
    is wrong. It cannot tell a paraphrase from an error, which is why it is never reported as the judged score."""
    gold = " ".join(golds)
    said = _tokens(output)
    numbers = [t for t in _tokens(gold) if isinstance(t, Decimal)]
    stated = all(any(t == n and not _negated(said, i) for i, t in enumerate(said)) for n in numbers)
    return not _ABSTAINED.search(output) and stated and _recall(output, gold) >= 0.6


_SMALL = set("a an the of to is was are were be has have had and in on at for with by that this it".split())


def _recall(output: str, gold: str) -> float:
    said = set(_tokens(output))
    wanted = {t for t in _tokens(gold) if t not in _SMALL and t not in _BREAKS}
    return sum(t in said for t in wanted) / len(wanted) if wanted else 0.0
