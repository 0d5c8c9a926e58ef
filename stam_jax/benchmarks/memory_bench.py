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

import re
import string
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from stam_jax.benchmarks.judge import DEDUCTION, DEDUCTION_TOKENS, TOKENS, Judge, Mark, prompt
from stam_jax.readers.memory_bench import Query

JUDGED = ("temporal_localization", "state_update", "inference_generation", DEDUCTION)
RULED = JUDGED[:2]
_HINTS = {
    "en": {"multiple_choice": "Answer with the letters of all options that are right.",
           "inference_generation": "Name the patient's own facts on which the answer rests.",
           DEDUCTION: "Name the patient's own facts on which the answer rests, in their order."},
    "zh": {"multiple_choice": "请只回答所有正确选项的字母。", "inference_generation": "请说明答案所依据的患者本人的信息。",
           DEDUCTION: "请按顺序说明答案所依据的患者本人的信息。"},
}


def asked(query: Query, language: str = "en") -> str:
    """What a reader is asked: the question, its options where they do not stand in it, and how to answer its type."""
    lines = [query.question]
    if query.type == "multiple_choice" and not all(a.content in query.question for a in query.answers):
        lines += [a.content for a in query.answers]
    return "\n".join([*lines, *filter(None, [_HINTS[language].get(query.type)])])


def marks(queries: Sequence[Query], outputs: Sequence[str], judge: Judge | None = None) -> list[Mark]:
    """Both scores of each answer. A verdict that cannot be read counts as wrong, and so does an empty answer, of which
    no judge is asked."""
    verdicts: dict[int, Mapping[str, Any]] = {}
    for most, kinds in ((TOKENS, JUDGED[:-1]), (DEDUCTION_TOKENS, JUDGED[-1:])) if judge is not None else ():
        at = [i for i, q in enumerate(queries) if q.type in kinds]
        said = [i for i in at if outputs[i].strip()]
        verdicts |= dict.fromkeys(at, {})
        verdicts |= zip(said, judge([prompt(queries[i], outputs[i]) for i in said], most=most))
    return [score(q, o, verdicts.get(i)) for i, (q, o) in enumerate(zip(queries, outputs, strict=True))]


def score(query: Query, output: str, verdict: Mapping[str, Any] | None = None) -> Mark:
    """Both scores of one answer. verdict: the judge's; None = there is no judge."""
    if query.type == "entity_exact_match":
        return Mark("match", float(compat_contains(output, query.gold)), float(strict_contains(output, query.gold)))
    if query.type == "multiple_choice":
        right = compat_right_options(query)
        return Mark("options", float(compat_options(output) == right), float(strict_options(output) == right))
    if verdict is None:
        if query.type not in RULED:
            return Mark("unscored", None, None)
        ruled = float(rule_temporal(output, query.gold) if query.type == RULED[0] else rule_state(output, query.gold))
        return Mark("rule", None, ruled)
    said = verdict.get("is_correct", False)
    if query.type != DEDUCTION:
        return Mark("judge", float(bool(said)), float(said is True))
    return Mark("judge", float(bool(said)), float(said is True and deduction_passes(verdict)), deduction_score(verdict))


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


_RETRIEVAL = {"excellent": 1.0, "good": 0.9, "partial": 0.7, "poor": 0.4, "none": 0.1}


def deduction_score(verdict: Mapping[str, Any]) -> float:
    """The composite of a multi-hop verdict: 0.35 node coverage + 0.35 causal + 0.30 chain, halved where the answer is
    not about this patient, times the quality of what was retrieved."""
    composite = sum(w * _rate(verdict, n) for n, w in (("ncr_score", 0.35), ("crc_score", 0.35), ("cc_score", 0.30)))
    composite *= 1.0 if verdict.get("uses_patient_specific_info") else 0.5
    quality = verdict.get("memory_retrieval_quality", "none")
    return composite * (_RETRIEVAL.get(quality, 0.5) if isinstance(quality, str) else 0.5)


def deduction_passes(verdict: Mapping[str, Any]) -> bool:
    """The thresholds that the judge was told, held to its own figures."""
    return all(_rate(verdict, n) >= least for n, least in (("ncr_score", 0.75), ("crc_score", 0.75), ("cc_score", 0.7)))


def _rate(verdict: Mapping[str, Any], name: str) -> float:
    """What is no number from 0 to 1 counts as 0."""
    value = verdict.get(name, 0.0)
    rated = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if rated else 0.0


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
                        r"|not (?:in memory|mentioned|recorded|available|specified|answerable)"
                        r"|(?:cannot|can't|could not) be (?:determined|answered)"
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


def abstains(output: str) -> bool:
    """Whether an answer says, somewhere in it, that it does not know."""
    return _ABSTAINED.search(output) is not None


def rule_temporal(output: str, golds: Sequence[str]) -> bool:
    """Without a judge: every date of the gold is named; where it has none, its words are. Abstaining is wrong."""
    gold = " ".join(golds)
    if abstains(output):
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
    stated = all(any(t == n and not _negated(said, i) for i, t in enumerate(said)) for n in _numbers(gold))
    return not abstains(output) and stated and _recall(output, gold) >= 0.6


def other_number(output: str, gold: str) -> bool:
    """Whether a number of the gold is missing and another one is stated."""
    said, wanted = _numbers(output), _numbers(gold)
    return bool(wanted - said and said - wanted)


def _numbers(text: str) -> set[Decimal]:
    return {t for t in _tokens(text) if isinstance(t, Decimal)}


_SMALL = set("a an the of to is was are were be has have had and in on at for with by that this it".split())


def _recall(output: str, gold: str) -> float:
    said = set(_tokens(output))
    wanted = {t for t in _tokens(gold) if t not in _SMALL and t not in _BREAKS}
    return sum(t in said for t in wanted) / len(wanted) if wanted else 0.0
