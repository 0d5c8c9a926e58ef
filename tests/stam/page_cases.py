"""Patients for the tests of pages, exports and services: planted timelines with their gold as memories, and hostile text."""
from __future__ import annotations

import dataclasses

from memory_cases import HEADER, commit, entry, memory

from core_jax.records import RecordError
from core_jax.synth.timelines import Timeline, TimelineConfig, generate
from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.graph.memory import Entry, Memory, Provenance
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import IllegalTransition, archive, prior
from stam_jax.graph.update import Commit, Update
from stam_jax.storage.store import Store

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def time(when) -> ClinicalTime:
    if when.start is None and when.end is None:
        return ClinicalTime()
    length = {"day": 10, "month": 7, "year": 4}.get(when.precision, 10)
    start = when.start and when.start[:length]
    try:
        return ClinicalTime(start, when.end, when.end_planned, when.source)
    except RecordError:
        return ClinicalTime(when.start, None, False, when.source)


def planted(index: int = 0, *, entries: tuple[int, int] = (12, 20), n: int = 1) -> tuple[Timeline, list[Commit]]:
    """One planted patient and commits that follow its gold, an update an entry."""
    timeline = list(generate(TimelineConfig(n=index + 1, entries=entries)))[index]
    return timeline, commits(timeline)


def commits(timeline: Timeline) -> list[Commit]:
    pid, out, made, dropped, relations = timeline.patient_id, [], {}, set(), set()
    state = State(pid)
    for said in timeline.entries:
        e = Entry.of(pid, said.session, said.kind, said.text, date=said.date, author_role="clinician")
        if e.entry_key in state.entries:
            continue
        fresh = []
        moved = {t.fact: t for t in timeline.transitions if t.session == said.session}
        for fact in (f for f in timeline.facts if f.session == said.session):
            t = moved.get(fact.fact_id)
            m = Memory.of(pid, f"Patient: {e.text[fact.start:fact.end]}", [Provenance.of(e, fact.start, fact.end)],
                          ordinal=len(fresh), kind=fact.kind, concept=fact.concept, attribute=fact.attribute,
                          value=fact.value, unit=fact.unit, polarity=fact.polarity, experiencer=fact.experiencer,
                          clinical_time=time(fact.when),
                          store="HISTORY" if t is not None and t.reason == "PRIOR_STATE" else "ACTIVE")
            made[fact.fact_id] = m
            fresh.append(m)
        links = []
        for r in timeline.relations:
            if r.src in made and r.dst in made and (r.src, r.dst, r.type) not in relations and not {r.src, r.dst} & dropped:
                links.append(Relation.of(made[r.src].mid, made[r.dst].mid, r.type, confidence=0.9))
                relations.add((r.src, r.dst, r.type))
        moves = []
        for t in moved.values():
            m, successor = made[t.fact], t.successor and made[t.successor].mid
            along = next((r.rid for r in links if {r.src, r.dst} == {m.mid, successor}), None)
            how = dict(successor=successor, decided_by="rule:R4" if t.reason == "SUPERSEDED" else "rule:R6",
                       evidence_rid=along, order="assumed")
            if t.reason == "EXPIRED":
                how = dict(decided_by="rule:R9")
            moves.append((prior if t.reason == "PRIOR_STATE" else archive)(
                *([m.mid] if t.reason == "PRIOR_STATE" else [m.mid, t.reason]), **how))
        unique = list({r.rid: r for r in links}.values())
        c = commit(state.version, [e], fresh, patient=pid, relations=unique, transitions=moves)
        try:
            state = state.apply(Update.of(c))
        except (IllegalTransition, ValueError):  # gold knows no calendar: keep the facts, without what cannot be
            c = dataclasses.replace(c, transitions=tuple(t for t in moves if t.from_ is None))
            state = state.apply(Update.of(c))
        out.append(c)
    return out


def state_of(commits_: list[Commit]) -> State:
    state = State(commits_[0].patient_id)
    for c in commits_:
        state = state.apply(Update.of(c))
    return state


def fill(store: Store, commits_: list[Commit]) -> None:
    for c in commits_:
        store.commit([c])


def hostile(patient: str = "p<b>1") -> list[Commit]:
    """Text that would run, hide, reorder or end the script element; an emoji before a quote; undated and uncertain."""
    text = f"🙂🙂 note: {SCRIPT} </script><!-- metformin 500 mg bid \u202egnal\u202c end"
    e = entry(text, patient=patient, source="a'\"><b>", date="2024-02-01")
    first = memory(e, "metformin 500 mg bid", text=f"Takes {SCRIPT} metformin", concept=f"metformin{SCRIPT}", attribute="dose",
                   value=f"500 mg{SCRIPT}", unit="mg", start="2024-02-01")
    odd = memory(e, "end", text="It\u2028ends \u202eodd", concept="__proto__", attribute="status", ordinal=1, polarity="UNCERTAIN")
    e2 = entry("metformin 1000 mg bid, \U0001f9ea result 8.1 %", patient=patient, source="s2", date=None)
    second = memory(e2, "metformin 1000 mg bid", text="Takes more", concept=f"metformin{SCRIPT}", attribute="dose",
                    value="1000 mg bid", unit="mg", start="2024-03")
    lab = memory(e2, "result 8.1 %", text="HbA1c 8.1", concept="hba1c", attribute="value", value="8.1", unit="%",
                 ordinal=1, kind="EVENT", start="2024-03-05")
    thread = Relation.of(first.mid, second.mid, "same_condition_thread", confidence=0.8)
    monitors = Relation.of(lab.mid, second.mid, "monitoring_for", confidence=0.7)
    return [commit(0, [e], [first, odd], patient=patient),
            commit(1, [e2], [second, lab], patient=patient, relations=[thread, monitors], transitions=[
                archive(first.mid, "SUPERSEDED", successor=second.mid, decided_by="model:C2 SUPERSEDED N1",
                        evidence_rid=thread.rid)])]


def many(n: int = 2000, *, patient: str = "large") -> list[Commit]:
    """n memories of 220 slots over ten years, 200 entries, a chain in each slot."""
    out, last, drugs = [], {}, [f"drug {i:03d}" for i in range(220)]
    per = n // 200
    for v in range(200):
        year, rest = divmod(v, 20)
        date = f"{2014 + year}-{1 + rest % 12:02d}-{1 + rest:02d}"
        lines = [f"{drugs[(v * per + k) % 220]} is {v + 1}0 mg bid from now on, as was agreed." for k in range(per)]
        e = entry("Seen in the clinic.\n" + "\n".join(lines), patient=patient, date=date, source=f"note {v}")
        made, moves, links = [], [], []
        for k, line in enumerate(lines):
            name = drugs[(v * per + k) % 220]
            m = memory(e, line, text=f"{name} {v + 1}0 mg twice daily", concept=name, attribute=("dose", "value", "status")[k % 3],
                       value=f"{v + 1}0 mg bid", unit="mg", start=date, ordinal=k, kind="EVENT" if k % 3 == 1 else "STATE")
            if (old := last.get(m.slot)) is not None:
                links.append(Relation.of(old.mid, m.mid, "same_condition_thread", confidence=0.9))
                moves.append(archive(old.mid, "SUPERSEDED", successor=m.mid, decided_by="rule:R4", order="assumed",
                                     evidence_rid=links[-1].rid))
            last[m.slot] = m
            made.append(m)
        links += [Relation.of(made[k].mid, made[k + 1].mid, ("treatment_for", "causal", "drug_interaction")[k % 3])
                  for k in range(0, per - 1, 3)]
        out.append(commit(v, [e], made, patient=patient, relations=links, transitions=moves))
    return out


def with_tombstone(store: Store, patient: str) -> State:
    """The patient after one memory in HISTORY was erased."""
    gone = store.state(patient).history()[0]
    store.erase(patient, [gone.mid], by="user:test")
    return store.state(patient)


__all__ = ["HEADER", "SCRIPT", "commit", "entry", "fill", "hostile", "many", "memory", "planted", "state_of", "with_tombstone"]
