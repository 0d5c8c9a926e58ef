"""States as a writer without faults would make them, from a planted timeline's gold: for tests of what reads states."""
from __future__ import annotations

from core_jax.synth.timeline_gold import Fact, Timeline
from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import archive, prior
from stam_jax.graph.update import Commit, Confirmation, Update


def _time(fact: Fact) -> ClinicalTime:
    w = fact.when
    cut = {"day": 10, "month": 7, "year": 4, "unknown": 0}[w.precision]
    start = w.start[:cut] if w.start and cut else None
    end = w.end if w.end and (start is None or w.end > start) else None
    source = "unknown" if start is None and end is None else w.source if w.source != "unknown" else "explicit"
    return ClinicalTime(start, end, bool(end) and w.end_planned, source)


def gold_commits(timeline: Timeline) -> tuple[list[Commit], dict[str, str]]:
    """(one commit an entry, without embeddings; fact_id -> mid). A restatement becomes a confirmation.

    What ends on the day of an entry expires with the next one that is dated later: the state machine asks for that.
    """
    pid, made = timeline.patient_id, {}
    facts = {f.fact_id: f for f in timeline.facts}
    places = {f: "ACTIVE" for f in facts}
    order = {e.session: i for i, e in enumerate(timeline.entries)}
    commits, related, waiting = [], set(), []
    for version, e in enumerate(timeline.entries):
        entry = Entry.of(pid, e.session, e.kind, e.text, date=e.date)
        moves = waiting + [t for t in timeline.transitions if t.session == e.session]
        waiting = []
        memories, transitions, confirmations = [], [], []
        for n, f in enumerate(f for f in timeline.facts if f.session == e.session):
            place = Provenance.of(entry, f.start, f.end)
            if f.restates:
                confirmations.append(Confirmation(made[f.restates], (place,)))
                made[f.fact_id] = made[f.restates]
                continue
            past = any(t.fact == f.fact_id for t in moves)
            m = Memory.of(pid, e.text[f.start:f.end], [place], ordinal=n, kind=f.kind, concept=f.concept,
                          attribute=f.attribute, value=f.value, unit=f.unit, polarity=f.polarity,
                          experiencer=f.experiencer, clinical_time=_time(f), store="HISTORY" if past else "ACTIVE")
            made[f.fact_id] = m.mid
            memories.append(m)
        for t in moves:
            root = facts[t.fact].restates or t.fact
            successor = made.get(t.successor) if t.successor else None
            if places[root] != "ACTIVE":
                continue
            if t.reason == "EXPIRED" and not (e.date and facts[root].when.end < e.date[:10]):
                waiting.append(t)
                continue
            places[root] = "HISTORY"
            if facts[root].session == e.session:
                transitions.append(prior(made[root], successor=successor, order="assumed"))
            else:
                transitions.append(archive(made[root], t.reason, successor=successor, order="assumed"))
        relations = []
        for r in timeline.relations:
            ends = [facts[r.src], facts[r.dst]]
            if max(order[f.session] for f in ends) == version and r.type != "restatement":
                found = Relation.of(made[r.src], made[r.dst], r.type) if made[r.src] != made[r.dst] else None
                if found is not None and found.rid not in related:
                    related.add(found.rid)
                    relations.append(found)
        commits.append(Commit(pid, version, (entry,), tuple(memories), tuple(relations), tuple(transitions),
                              confirmations=tuple(confirmations)))
    return commits, made


def gold_state(timeline: Timeline) -> tuple[State, dict[str, str]]:
    """(the state after the last entry, fact_id -> mid)."""
    commits, made = gold_commits(timeline)
    state = State(timeline.patient_id)
    for c in commits:
        state = state.apply(Update.of(c))
    return state, made


