"""Questions of six types on a timeline's gold, asked after its last entry, with answers and evidence."""
from __future__ import annotations

from collections.abc import Callable

from core_jax.synth.stream import Stream
from core_jax.synth.timeline_gold import Fact, Question, Timeline

PER_TYPE = 2
NOT_MENTIONED = "not mentioned"
SPOKEN = {"daily": "once daily", "bid": "twice daily", "tid": "three times daily", "qid": "four times daily",
          "nightly": "at bedtime", "weekly": "once weekly"}
_NEVER_ASKED_OF = ("kidney transplant", "psoriasis", "tuberculosis", "glaucoma")  # in no vocabulary

Draft = tuple[str, tuple[str, ...], tuple[Fact, ...]]  # question, answers, evidence


def spoken(fact: Fact) -> str:
    """A fact's value in plain words: "850 mg twice daily", "8.1 %"."""
    if fact.attribute == "dose":
        amount, unit, frequency = fact.value.split()
        return f"{amount} {unit} {SPOKEN[frequency]}"
    return f"{fact.value} {fact.unit}" if fact.attribute == "value" else fact.value


def _ask(fact: Fact) -> str:
    return {"dose": f"dose of {fact.concept}", "value": f"{fact.concept} value", "preference": fact.concept,
            "allergy": f"reaction to {fact.concept}", "plan": f"interval of {fact.concept}"}[fact.attribute]


class _View:
    """The gold as the questions look at it: the patient's own facts, by slot and by id."""

    def __init__(self, timeline: Timeline):
        self.by_id = {f.fact_id: f for f in timeline.facts}
        self.own = [f for f in timeline.facts if f.experiencer == "PATIENT" and f.restates is None
                    and f.polarity != "CONDITIONAL"]
        self.current = [f for f in self.own if f.status == "current"]
        self.pairs = [(self.by_id[p.old], self.by_id[p.new], p.late) for p in timeline.pairs]
        self.left = {t.fact: t for t in timeline.transitions}
        self.relations = [(self.by_id[r.src], self.by_id[r.dst], r.type) for r in timeline.relations]
        self.family = [f for f in timeline.facts if f.experiencer == "FAMILY"]
        self.concepts = {f.concept for f in timeline.facts if f.experiencer == "PATIENT"}

    def by(self, fact: Fact) -> Fact | None:
        """The fact with which `fact` ended."""
        t = self.left.get(fact.fact_id)
        return self.by_id[t.successor] if t and t.successor else None

    def holding(self, fact: Fact) -> Fact | None:
        """The current fact of the same slot."""
        return next((f for f in self.current if f.key == fact.key), None)


def _current_state(v: _View, rng: Stream) -> list[Draft]:
    return [(rng.pick((f"What is the patient's current {_ask(f)}?", f"What is the most recent {_ask(f)}?")),
             (spoken(f),), (f,)) for f in v.current if f.value is not None and f.polarity == "AFFIRMED"]


def _past_state(v: _View, rng: Stream) -> list[Draft]:
    out = [(f"What was the {_ask(old)} before it became {spoken(new)}?", (spoken(old),), (old, new))
           for old, new, late in v.pairs if not late and v.left[old.fact_id].reason == "SUPERSEDED"]
    for f in v.own:
        t = v.left.get(f.fact_id)
        if f.attribute == "dose" and t and t.reason == "EXPIRED":
            problem = next((d for s, d, kind in v.relations if s is f and kind == "treatment_for"), None)
            if problem is not None:
                out.append((f"Which short course was given for {problem.concept}?",
                            (f"{f.concept} {spoken(f)}", f.concept), (f, problem)))
    return out


def _change(v: _View, rng: Stream) -> list[Draft]:
    out = [(f"What did the {_ask(new)} change from and to, when it last changed?",
            (f"from {spoken(old)} to {spoken(new)}",), (old, new))
           for old, new, late in v.pairs if not late and v.left[old.fact_id].reason == "SUPERSEDED"
           and new.status == "current"]
    for drug, effect, kind in v.relations:
        stop = v.by(drug)
        if kind == "causal" and drug.attribute == "dose" and stop is not None and stop.polarity == "NEGATED":
            out.append((f"Why was {drug.concept} stopped?", (effect.concept,), (stop, effect)))
    for f in v.own:
        t = v.left.get(f.fact_id)
        if t is not None and t.reason == "CORRECTED" and f.value is not None:
            new = v.by_id[t.successor]
            out.append((f"Which {_ask(f)} had been recorded by mistake, and what is right?",
                        (f"{spoken(f)} was wrong, {spoken(new)} is right",), (f, new)))
    return out


def _temporal_order(v: _View, rng: Stream) -> list[Draft]:
    starts = [f for f in v.own if f.polarity == "AFFIRMED" and f.attribute in ("dose", "status") and not f.late
              and f.when.precision == "day" and not any(g.key == f.key and g is not f and g.fact_id < f.fact_id
                                                        for g in v.own)]
    out = []
    for a, b in zip(starts, starts[1:] + starts[:1]):
        if a.when.start != b.when.start and a.concept != b.concept:
            first = min((a, b), key=lambda f: f.when.start)
            out.append((f"Which came first in the record's account: {a.concept} or {b.concept}?",
                        (first.concept,), (a, b)))
    return out


def _absence(v: _View, rng: Stream) -> list[Draft]:
    out = []
    for f in v.current:
        if f.polarity == "NEGATED":
            verb = f"taking {f.concept}" if f.attribute == "dose" else f"known to have {f.concept}"
            out.append((f"Is the patient currently {verb}?", ("no",), (f,)))
    for f in v.family:
        if f.concept not in v.concepts:
            verb = "take" if f.attribute == "dose" else "have"
            out.append((f"Does the patient {verb} {f.concept}?", ("no, a relative does", NOT_MENTIONED), (f,)))
    unknown = rng.pick(_NEVER_ASKED_OF)
    out.append((f"Does the record mention {unknown} of the patient?", (NOT_MENTIONED, "no"), ()))
    return out


def _multi_hop(v: _View, rng: Stream) -> list[Draft]:
    out = []
    for a, b, kind in v.relations:
        holds = v.holding(a)
        if kind == "treatment_for" and holds and holds.polarity == "AFFIRMED" and not a.when.end_planned:
            rivals = {s.concept for s, d, k in v.relations if k == kind and d.key == b.key and s.concept != a.concept
                      and (h := v.holding(s)) and h.polarity == "AFFIRMED"}
            if not rivals:
                out.append((f"What is the current dose of the drug given for {b.concept}?",
                            (f"{a.concept} {spoken(holds)}", spoken(holds)),
                            (holds, a, b) if holds is not a else (a, b)))
        if kind == "monitoring_for":
            reason = next((d for s, d, k in v.relations if k == "treatment_for" and s is b), None)
            if a.status == "current" and reason is not None:
                out.append((f"Which regular check goes with the drug given for {reason.concept}, and how often?",
                            (f"{a.concept} {a.value}",), (a, b)))
            elif (t := v.left.get(a.fact_id)) and t.cascade:
                out.append((f"Is {a.concept} still needed, and why?", (f"no, {b.concept} was stopped",),
                            (a, v.by_id[t.successor])))
        if kind == "drug_interaction":
            out.append((f"Which of the patient's drugs interacts with {b.concept}?", (a.concept,), (a, b)))
        if kind == "causal" and b.attribute == "status" and a.attribute == "status":
            out.append((f"Which condition is behind the {b.concept}?", (a.concept,), (a, b)))
    return out


_MAKERS: dict[str, Callable[[_View, Stream], list[Draft]]] = {
    "current_state": _current_state, "past_state": _past_state, "change": _change, "temporal_order": _temporal_order,
    "absence": _absence, "multi_hop": _multi_hop}


def questions(timeline: Timeline, rng: Stream) -> tuple[Question, ...]:
    """Up to PER_TYPE questions of each type, none twice."""
    view, out = _View(timeline), []
    for kind, maker in _MAKERS.items():
        drafts = list({d[0]: d for d in maker(view, rng)}.values())
        for text, answers, evidence in rng.sample(drafts, min(PER_TYPE, len(drafts))):
            out.append(Question(f"{timeline.patient_id}-q{len(out):02d}", kind, text, answers,
                                tuple(f.fact_id for f in evidence), tuple(dict.fromkeys(f.session for f in evidence)),
                                any(f.status == "past" for f in evidence)))
    return tuple(out)
