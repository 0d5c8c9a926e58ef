"""Scores of answers and of a memory's state against planted gold. Standard library only.

Answers: token F1 with SQuAD's normalisation is the headline; `clinical` keeps what makes numbers differ and is reported
beside it; `locomo_f1` is LoCoMo's variant.

State: a memory is aligned to a fact when it comes from the fact's entry and says the same of the same slot. Gold is a
`core_jax.synth.timelines.Timeline`; memories are `MemoryRow`s, or anything with their attributes.
"""
from __future__ import annotations

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from core_jax.synth.timeline_gold import DIRECTED, Fact, Timeline
from stam_jax.porter import stem

Normaliser = Callable[[str], str]

# ---- answers ---------------------------------------------------------------------------------------------------------

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MEANS = re.compile(r"(?<=\d)\.(?=\d)|(?<=\w)/(?=\w)|(?<=\d)-(?=\d)|(?<!\w)[-+<>]+(?=\d)")  # marks that numbers need


def squad(text: str) -> str:
    """Lower case, ASCII punctuation deleted, articles a/an/the deleted, blanks squeezed, in this order.

    "8.2" and "82" become the same token: `clinical` is the companion that keeps them apart.
    """
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def clinical(text: str) -> str:
    """As `squad`, but decimal points, slashes, dashes inside numbers and signs before a number stay."""
    text = text.lower()
    kept = {i for m in _MEANS.finditer(text) for i in range(*m.span())}
    text = "".join(c for i, c in enumerate(text) if i in kept or c not in string.punctuation)
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


def _overlap_f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    if not prediction or not reference:
        return float(not prediction and not reference)
    return 2 * sum((Counter(prediction) & Counter(reference)).values()) / (len(prediction) + len(reference))


def token_f1(prediction: str, references: Sequence[str], normalise: Normaliser = squad) -> float:
    """The best F1 over references on token multisets; two empty sides score 1, one empty side 0 (SQuAD v2).

    Raises: ValueError without a reference.
    """
    if isinstance(references, str) or not references:
        raise ValueError(f"references: got {references!r}, expected a list of at least one string")
    tokens = normalise(prediction).split()
    return max(_overlap_f1(tokens, normalise(r).split()) for r in references)


def _locomo_tokens(text: str) -> list[str]:
    text = text.replace(",", "").lower().translate(_PUNCTUATION)
    return [stem(word) for word in re.sub(r"\b(a|an|the|and)\b", " ", text).split()]


def _locomo_pair(prediction: str, reference: str) -> float:
    p, g = _locomo_tokens(prediction), _locomo_tokens(reference)
    return _overlap_f1(p, g) if p and g else 0.0


def locomo_f1(prediction: str, reference: str, category: int) -> float:
    """LoCoMo's score of one answer: commas go first, "and" is an article, words are stemmed; an empty side scores 0.

    Category 1 (multi-hop) averages the best match of each comma-separated part of the gold; category 3 keeps the gold
    before ";"; category 5 (adversarial) is 1 iff the answer says that there is no information.

    Raises: ValueError for a category outside 1..5; it has no default, since a wrong one scores silently.
    """
    if category not in (1, 2, 3, 4, 5):
        raise ValueError(f"category: got {category!r}, expected 1 to 5")
    if category == 5:
        return float(any(s in prediction.lower() for s in ("no information available", "not mentioned")))
    if category == 1:
        parts = [p.strip() for p in prediction.split(",")]
        golds = [g.strip() for g in reference.split(",")]
        return sum(max(_locomo_pair(p, g) for p in parts) for g in golds) / len(golds)
    return _locomo_pair(prediction, reference.split(";")[0].strip() if category == 3 else reference)


@dataclasses.dataclass(frozen=True)
class TypeScores:
    """`macro` = mean over types of the mean in the type; `pooled` = mean over all questions; `types[t]` = (mean, n)."""

    macro: float
    pooled: float
    types: dict[str, tuple[float, int]]


def type_scores(scores: Sequence[float], types: Sequence[str]) -> TypeScores:
    """Raises: ValueError where there is no score or the lengths differ."""
    if len(scores) != len(types) or not scores:
        raise ValueError(f"got {len(scores)} scores and {len(types)} types, expected as many, at least 1")
    by: dict[str, list[float]] = {}
    for score, kind in zip(scores, types):
        by.setdefault(kind, []).append(float(score))
    means = {kind: (sum(v) / len(v), len(v)) for kind, v in sorted(by.items())}
    return TypeScores(sum(m for m, _ in means.values()) / len(means), sum(map(float, scores)) / len(scores), means)


# ---- memories and their alignment to facts --------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """One memory as the metrics see it. `sessions`: entries of its provenance, the first and those that restated it.

    store is ACTIVE, HISTORY or DELETED; reason and successor (a mid) are those of its last transition.
    """

    mid: str
    store: str
    sessions: tuple[str, ...]
    concept: str | None
    attribute: str | None
    value: str | None = None
    unit: str | None = None
    polarity: str = "AFFIRMED"
    experiencer: str = "PATIENT"
    reason: str | None = None
    successor: str | None = None


_SIG = {code: f" {code} " for code in ("daily", "bid", "tid", "qid", "nightly", "weekly")}
_FREQUENCIES = [(re.compile(rf"\b({pattern})"), _SIG[code]) for pattern, code in (
    (r"four times (a |per )?da(y|ily)|4 ?x ?/? ?(a )?da(y|ily)|q ?6 ?h(ours)?|q\.?i\.?d\b\.?|every (6|six) hours",
     "qid"),
    (r"three times (a |per )?da(y|ily)|3 ?x ?/? ?(a )?da(y|ily)|q ?8 ?h(ours)?|t\.?i\.?d\b\.?|every (8|eight) hours",
     "tid"),
    (r"(twice|two times) (a |per )?da(y|ily)|2 ?x ?/? ?(a )?da(y|ily)|q ?12 ?h(ours)?|b\.?i\.?d\b\.?"
     r"|every (12|twelve) hours", "bid"),
    (r"(at bedtime|nightly|every night|each (night|evening)|every evening|q ?hs|hs)\b", "nightly"),
    (r"((once )?(a week|weekly|per week)|every week|q ?wk|qweek|q ?7 ?d(ays)?)\b", "weekly"),
    (r"(once )?(a day|daily|per day)|every (day|morning)|each (day|morning)|q ?24 ?h(ours)?|q\.?d\b\.?|o\.?d\b\.?"
     r"|qam|qday|every (24|twenty-four) hours", "daily"))]
_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?|[-+]?\.\d+")
_UNITS = {"milligram": "mg", "milligrams": "mg", "microgram": "mcg", "micrograms": "mcg", "ug": "mcg", "µg": "mcg",
          "gram": "g", "grams": "g", "unit": "units", "u": "units", "iu": "units"}
_COUNTS = {"once": "1", "one": "1", "two": "2", "three": "3", "four": "4", "six": "6", "eight": "8", "twelve": "12"}
_SPANS = {"d": "day", "day": "day", "days": "day", "w": "week", "wk": "week", "wks": "week", "week": "week",
          "weeks": "week", "mo": "month", "month": "month", "months": "month", "y": "year", "year": "year",
          "years": "year", "yr": "year"}
_INTERVALS = {"biweekly": ("2", "week"), "fortnightly": ("2", "week"), "every other week": ("2", "week"),
              "quarterly": ("3", "month"), "annually": ("1", "year"), "daily": ("1", "day")}


def _dose(text: str) -> tuple[Decimal | None, str | None, str | None]:
    """(amount, unit, frequency code) of "850 mg twice daily", "0.25mg qHS", ...; None for what it does not say."""
    text = " " + text.lower().strip() + " "
    frequency = None
    for pattern, code in _FREQUENCIES:
        if pattern.search(text):
            frequency, text = code.strip(), pattern.sub(" ", text, count=1)
            break
    found = _NUMBER.search(text)
    if found is None:
        return None, None, frequency
    unit = re.match(r"\s*([a-zµ]+)", text[found.end():])
    word = unit.group(1) if unit else None
    return Decimal(found.group().replace(",", "")), _UNITS.get(word, word), frequency


def _interval(text: str) -> tuple[str, str] | str:
    """("2", "week") of "every two weeks", "q2wk", "biweekly", ...; the text itself where it is no interval."""
    text = squad(text.replace("-", " "))
    if text in _INTERVALS:
        return _INTERVALS[text]
    spans = "|".join(sorted(_SPANS, key=len, reverse=True))
    m = re.fullmatch(rf"(?:q|every|each)? ?(\d+ ?|[a-z]+ )?({spans})(?:ly)?", text)
    if m is None:
        return text
    count = (m.group(1) or "1").strip()
    count = _COUNTS.get(count, count)
    return (count, _SPANS[m.group(2)]) if count.isdigit() else text


def _number(text: str) -> Decimal | None:
    found = _NUMBER.match(text.strip())
    try:
        return Decimal(found.group().replace(",", "")) if found else None
    except InvalidOperation:
        return None


def values_agree(fact: Fact, value: str | None, unit: str | None, aliases: Mapping[str, Sequence[str]] | None = None
                 ) -> bool:
    """Whether a memory's value and unit say what the fact says, after normalisation.

    A fact without a value agrees with any. A dose must state the amount; unit and frequency must agree where both
    state them. Measurements agree as numbers, intervals as intervals, all else as normalised text or by an alias.
    """
    if fact.value is None:
        return True
    if value is None or not value.strip():
        return False
    if fact.attribute == "dose":
        gold, said = _dose(fact.value), _dose(value)
        if said[1] is None and unit:
            said = (said[0], _dose("1 " + unit)[1], said[2])
        return said[0] == gold[0] and all(s is None or s == g for s, g in zip(said[1:], gold[1:]))
    if fact.attribute == "value":
        gold, said = (re.match(r"\s*(\d+)\s*/\s*(\d+)", v) for v in (fact.value, value))
        if gold or said:
            return bool(gold and said) and gold.groups() == said.groups()
        return _number(value) == _number(fact.value)
    if fact.attribute == "plan":
        return _interval(value) == _interval(fact.value)
    return squad(value) in {squad(v) for v in (fact.value, *(aliases or {}).get(fact.value, ()))}


def align(timeline: Timeline, memories: Iterable[MemoryRow], *,
          similar: Callable[[Fact, MemoryRow], float] | None = None, least: float = 0.85) -> dict[str, tuple[str, ...]]:
    """fact_id -> mids of the memories aligned to it: same session, experiencer, polarity, attribute and value, and the
    same concept (by name or alias; else, with `similar`, at a similarity of at least `least`)."""
    names = {c: {squad(n) for n in (c, *timeline.aliases.get(c, ()))} for c in {f.concept for f in timeline.facts}}
    by_session: dict[str, list[MemoryRow]] = {}
    for m in memories:
        for session in dict.fromkeys(m.sessions):
            by_session.setdefault(session, []).append(m)

    def matches(f: Fact, m: MemoryRow) -> bool:
        if (m.experiencer, m.polarity, m.attribute) != (f.experiencer, f.polarity, f.attribute) or m.concept is None:
            return False
        if not values_agree(f, m.value, m.unit, timeline.aliases):
            return False
        return squad(m.concept) in names[f.concept] or (similar is not None and similar(f, m) >= least)

    return {f.fact_id: tuple(m.mid for m in by_session.get(f.session, ()) if matches(f, m)) for f in timeline.facts}


# ---- state ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class StateCounts:
    """Counts that add up over patients; the rates are properties, None where nothing was counted.

    `stale`: pairs whose old value is still ACTIVE somewhere. `evidence_in_history`: evidence facts of questions held in
    HISTORY only. `found`, `gold`, `right`, `predicted`: relations by type. `moves[reason]` = gold transitions with an
    aligned memory, and how many of these are archived for an accepted reason, and to the right successor too.
    """

    facts: int = 0
    facts_covered: int = 0
    pairs: int = 0
    pairs_covered: int = 0
    loose: int = 0
    strict: int = 0
    stale: int = 0
    current: int = 0
    falsely_archived: int = 0
    active: int = 0
    history: int = 0
    evidence: int = 0
    evidence_in_history: int = 0
    found: Counter = dataclasses.field(default_factory=Counter)
    gold: Counter = dataclasses.field(default_factory=Counter)
    right: Counter = dataclasses.field(default_factory=Counter)
    predicted: Counter = dataclasses.field(default_factory=Counter)
    transitions: Counter = dataclasses.field(default_factory=Counter)
    moves: Counter = dataclasses.field(default_factory=Counter)
    moves_reason: Counter = dataclasses.field(default_factory=Counter)
    moves_right: Counter = dataclasses.field(default_factory=Counter)

    def __add__(self, other: StateCounts) -> StateCounts:
        return StateCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)))

    @staticmethod
    def _share(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    @property
    def supersession_recall(self) -> float | None:
        """Loose, end to end: pairs whose old fact was never extracted are misses."""
        return self._share(self.loose, self.pairs)

    @property
    def supersession_recall_strict(self) -> float | None:
        return self._share(self.strict, self.pairs)

    @property
    def supersession_recall_covered(self) -> float | None:
        return self._share(self.loose, self.pairs_covered)

    @property
    def false_archival(self) -> float | None:
        return self._share(self.falsely_archived, self.current)

    @property
    def archived_fraction(self) -> float | None:
        return self._share(self.history, self.active + self.history)

    @property
    def transition_accuracy(self) -> float | None:
        """Over all gold transitions, those of facts that were never extracted being wrong."""
        return self._share(self.moves_right.total(), self.transitions.total())

    def relation_f1(self, type_: str | None = None) -> float | None:
        """Micro F1 of one relation type, or of all together."""
        found, gold, right, predicted = (c.total() if type_ is None else c[type_] for c in
                                         (self.found, self.gold, self.right, self.predicted))
        if not gold and not predicted:
            return None
        recall, precision = found / gold if gold else 0.0, right / predicted if predicted else 0.0
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0

    def report(self) -> dict:
        """All rates and the counts behind them, as JSON."""
        kinds = sorted(self.gold | self.predicted)
        return {
            "extraction_recall": self._share(self.facts_covered, self.facts), "facts": self.facts,
            "supersession_recall": self.supersession_recall,
            "supersession_recall_strict": self.supersession_recall_strict,
            "supersession_recall_covered": self.supersession_recall_covered,
            "pairs": self.pairs, "pairs_covered": self.pairs_covered, "stale": self._share(self.stale, self.pairs),
            "false_archival": self.false_archival, "current_memories": self.current,
            "archived_fraction": self.archived_fraction, "active": self.active, "history": self.history,
            "evidence": self.evidence, "evidence_in_history": self.evidence_in_history,
            "relation_f1": self.relation_f1(), "relation_f1_by_type": {k: self.relation_f1(k) for k in kinds},
            "transition_accuracy": self.transition_accuracy,
            "transitions": {k: {"gold": n, "covered": self.moves[k], "reason": self.moves_reason[k],
                                "reason_and_successor": self.moves_right[k]}
                            for k, n in sorted(self.transitions.items())},
        }


_SUPERSEDES = frozenset({"SUPERSEDED", "CORRECTED", "RESTATED"})
_NEEDS_SUCCESSOR = frozenset({"SUPERSEDED", "PRIOR_STATE"})


def state_counts(timeline: Timeline, memories: Iterable[MemoryRow], relations: Iterable[tuple[str, str, str]] = (), *,
                 similar: Callable[[Fact, MemoryRow], float] | None = None) -> StateCounts:
    """One patient's memories and relations (src mid, dst mid, type) against the gold, after the last entry.

    A fact and its restatements are one *run*: a memory aligned to any of them holds it. A pair counts (loose) when a
    memory of the old run is in HISTORY, reason SUPERSEDED, CORRECTED or RESTATED (for a late pair PRIOR_STATE too);
    strict also asks that its successors lead to a memory of the new run. A relation is right when the gold relates the
    two slots by that type (a restatement: when both ends are of one run), and found when a prediction joins the two
    runs; a restatement stored as provenance of one memory counts as predicted, right and found.

    Raises: ValueError where two memories share a mid.
    """
    rows = list(memories)
    by_mid = {m.mid: m for m in rows}
    if len(by_mid) != len(rows):
        twice = next(mid for mid, n in Counter(m.mid for m in rows).items() if n > 1)
        raise ValueError(f"memories: mid {twice!r} stands twice")
    aligned = align(timeline, rows, similar=similar)
    facts = {f.fact_id: f for f in timeline.facts}

    def root(fact_id: str) -> str:
        return facts[fact_id].restates or fact_id

    run: dict[str, set[str]] = {}  # root fact -> mids
    held: dict[str, set[str]] = {}  # mid -> root facts
    for fact_id, mids in aligned.items():
        run.setdefault(root(fact_id), set()).update(mids)
        for mid in mids:
            held.setdefault(mid, set()).add(root(fact_id))

    def leads_to(mid: str, aim: set[str]) -> bool:
        seen: set[str] = set()
        following = by_mid[mid].successor
        while following is not None and following not in seen:
            if following in aim:
                return True
            seen.add(following)
            following = by_mid[following].successor if following in by_mid else None
        return False

    def stored(mids: Iterable[str], store: str) -> list[MemoryRow]:
        return [by_mid[m] for m in mids if by_mid[m].store == store]

    out = StateCounts(facts=len(facts), facts_covered=sum(bool(aligned[f]) for f in facts),
                      active=sum(m.store == "ACTIVE" for m in rows), history=sum(m.store == "HISTORY" for m in rows))
    for p in timeline.pairs:
        old, new = run[root(p.old)], run[root(p.new)]
        reasons = _SUPERSEDES | ({"PRIOR_STATE"} if p.late else set())
        gone = [m for m in stored(old, "HISTORY") if m.reason in reasons]
        out.pairs += 1
        out.pairs_covered += bool(old)
        out.loose += bool(gone)
        out.strict += any(leads_to(m.mid, new) for m in gone)
        out.stale += bool(stored(old, "ACTIVE"))
    for mid in {m for f in timeline.facts if f.status == "current" for m in aligned[f.fact_id]}:
        m = by_mid[mid]
        restated = m.successor is not None and held.get(m.successor, set()) & held[mid]
        out.current += 1
        out.falsely_archived += m.store == "HISTORY" and not restated
    for fact_id in dict.fromkeys(f for q in timeline.questions for f in q.facts):
        out.evidence += 1
        mids = run[root(fact_id)]
        out.evidence_in_history += bool(stored(mids, "HISTORY")) and not stored(mids, "ACTIVE")
    for t in timeline.transitions:
        mids = run[root(t.fact)]
        moved = [m for m in stored(mids, "HISTORY") if m.reason in t.accept]
        aim = run[root(t.successor)] if t.successor else set()
        out.transitions[t.reason] += 1
        out.moves[t.reason] += bool(mids)
        out.moves_reason[t.reason] += bool(moved)
        out.moves_right[t.reason] += any(leads_to(m.mid, aim) if m.successor else m.reason not in _NEEDS_SUCCESSOR
                                         for m in moved)

    slots: set[tuple] = set()
    predicted = list(relations)
    joined = {(s, d, t) for s, d, t in predicted} | {(d, s, t) for s, d, t in predicted if t not in DIRECTED}
    for r in timeline.relations:
        a, b = facts[r.src].key, facts[r.dst].key
        slots |= {(a, b, r.type)} | ({(b, a, r.type)} if r.type not in DIRECTED else set())
        restated = r.type == "restatement"
        src, dst = (aligned[r.src], aligned[r.dst]) if restated else (run[root(r.src)], run[root(r.dst)])
        out.gold[r.type] += 1
        attached = restated and not set(src).isdisjoint(dst)
        out.found[r.type] += attached or any((s, d, r.type) in joined for s in src for d in dst)
        out.predicted[r.type] += attached
        out.right[r.type] += attached
    for s, d, t in predicted:
        out.predicted[t] += 1
        a, b = held.get(s, set()), held.get(d, set())
        out.right[t] += bool(a & b) if t == "restatement" else any(
            (facts[x].key, facts[y].key, t) in slots for x in a for y in b)
    return out


def order_invariance(reference: frozenset[Hashable], others: Sequence[frozenset[Hashable]]) -> tuple[float, float]:
    """(share of `others` equal to `reference`, mean Jaccard similarity): ACTIVE sets after another order of arrival.

    Elements are whatever identifies what is held: mids, or (slot, value). Raises: ValueError without another order.
    """
    if not others:
        raise ValueError("order_invariance: got no other order, expected at least 1")
    jaccard = [len(reference & o) / len(reference | o) if reference | o else 1.0 for o in others]
    return sum(o == reference for o in others) / len(others), sum(jaccard) / len(jaccard)
