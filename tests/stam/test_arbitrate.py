"""Rules R1 to R12, one after the other, and what must hold of every commit whatever a writer says."""
import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import entry, memory
from writer_cases import RandomWriter, SlotWriter

from stam_jax.config import RESTATEMENTS, WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import CHAIN_ENDS, archive
from stam_jax.graph.update import Commit, Update
from stam_jax.write.arbitrate import arbitrate, restates
from stam_jax.write.candidates import Arrival, link_candidates, relations
from stam_jax.write.impact import impact
from stam_jax.write.nearest import Vectors
from stam_jax.write.normalise import normalise
from stam_jax.write.writer import Affected, Extraction, Placement, UpdateAnswer, UpdateTask, Verdict

CONFIG = WriteConfig()
DOSE = dict(concept="metformin", attribute="dose", unit="mg")


def stored(*memories, relations=(), moves=(), entries=()):
    """A state of one update with these memories and the entries that they quote."""
    found = {m.provenance[0].entry_key: e for m in memories for e in entries}
    entries = list({e.entry_key: e for e in (*entries, *found.values())}.values())
    first = Commit("p1", 0, tuple(entries), tuple(memories), tuple(relations), tuple(moves))
    return State("p1").apply(Update.of(first))


def old(text="metformin 500 mg", *, date="2024-01-01", value="500", state=True, **fields):
    e = entry(text, date=date, source="old")
    m = memory(e, start=fields.pop("start", date), **DOSE | dict(value=value) | fields)
    return e, m


def new(text="metformin 850 mg", *, date="2024-02-01", value="850", **fields):
    return old(text, date=date, value=value, **fields)


def thread(a, b, type="same_condition_thread", **fields):
    return Relation.of(a.mid, b.mid, type, **fields)


def decide(state, e, news, verdicts=(), placements=(), *, linked=(), candidates=None, config=CONFIG, **fields):
    """(commit, state after it) of one task whose candidates are the state's memories in their order."""
    candidates = tuple(Affected(m) for m in (state.memories.values() if candidates is None else candidates))
    task = UpdateTask(e, tuple(news), candidates)
    answer = UpdateAnswer(tuple(placements), tuple(verdicts))
    c = arbitrate(state, e, news, linked, [(task, answer)], config, decider="model", **fields)
    after = state.apply(Update.of(c))
    assert not after.check()
    return c, after


def one(date="2024-01-01", **fields):
    """A state with one ACTIVE dose."""
    e, m = old(date=date, **fields)
    return stored(m, entries=[e]), m


SUPERSEDED = (Verdict(0, "SUPERSEDED", 0),)


def test_a_later_dose_along_a_relation_supersedes():
    state, m = one()
    e, n = new()
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    t, = c.transitions
    assert (t.mid, t.reason, t.successor, t.order) == (m.mid, "SUPERSEDED", n.mid, "known")
    assert t.evidence_rid == thread(m, n).rid and t.decided_by == "model:C1 SUPERSEDED N1"
    assert [x.mid for x in after.active()] == [n.mid]


@pytest.mark.parametrize("verdicts, placements, counted", [
    ([Verdict(7, "SUPERSEDED", 0)], [], "unknown_alias"), ([Verdict(0, "SUPERSEDED", 7)], [], "unknown_alias"),
    ([Verdict(0, "SUPERSEDED", None)], [], "unknown_alias"), ([Verdict(-1, "RESOLVED", 0)], [], "unknown_alias"),
    ([Verdict(0, "EATEN", 0)], [], "unknown_alias"), ([], [Placement(0, "PRIOR", None)], "unknown_alias"),
    ([], [Placement(0, "SAME", 9)], "unknown_alias"), ([], [Placement(3, "CURRENT")], "unknown_alias"),
    ([Verdict(0, "SUPERSEDED", 0), Verdict(0, "KEEP")], [], "contradictory"),
    ([Verdict(0, "SUPERSEDED", 0), Verdict(0, "RESOLVED", 0)], [], "contradictory"),
    ([], [Placement(0, "PRIOR", 0), Placement(0, "CURRENT")], "contradictory"),
])
def test_r1_what_cannot_be_read_changes_nothing(verdicts, placements, counted):
    state, m = one()
    e, n = new()
    c, after = decide(state, e, [n], verdicts, placements, linked=[thread(m, n)])
    assert c.counters[counted] and not c.transitions
    assert [x.mid for x in after.active()] == [m.mid, n.mid]


def test_r1_the_same_line_twice_is_one_line():
    state, m = one()
    e, n = new()
    c, _ = decide(state, e, [n], SUPERSEDED * 2, linked=[thread(m, n)])
    assert len(c.transitions) == 1 and "contradictory" not in c.counters


@pytest.mark.parametrize("kind", ["SUPERSEDED", "RESOLVED", "CORRECTED"])
def test_r2_history_is_not_archived_again(kind):
    e1, a = old()
    e2, b = new(date="2024-01-10")
    state = stored(a, b, entries=[e1, e2], moves=[archive(a.mid, "SUPERSEDED", successor=b.mid)])
    e, n = new("metformin 1000 mg", value="1000")
    c, _ = decide(state, e, [n], [Verdict(0, kind, 0)], linked=[thread(a, n)], candidates=[a, b])
    assert not c.transitions and c.counters["not_active"] == 1


def test_r3_a_relative_changes_nothing_of_the_patient():
    state, m = one()
    e, n = new(experiencer="FAMILY")
    for v, p in ((SUPERSEDED, ()), ((), [Placement(0, "SAME", 0)]), ((), [Placement(0, "PRIOR", 0)])):
        c, after = decide(state, e, [n], v, p, linked=[thread(m, n)])
        assert c.counters["other_experiencer"] == 1 and len(after.active()) == 2


@pytest.mark.parametrize("unproved", ["quote", "value"])
def test_what_the_entry_does_not_say_archives_nothing(unproved):
    state, m = one()
    e, n = new()
    if unproved == "quote":
        p = dataclasses.replace(n.provenance[0], verified=False)
        n = dataclasses.replace(n, provenance=(p,))
    else:
        n = dataclasses.replace(n, flags=frozenset({"value_unverified"}))
    for kind in ("SUPERSEDED", "RESOLVED", "CORRECTED"):
        c, after = decide(state, e, [n], [Verdict(0, kind, 0)], linked=[thread(m, n)])
        assert c.counters["blocked_unverified"] == 1 and len(after.active()) == 2


def test_what_no_entry_says_ends_nothing_that_comes_later():
    """An unverified memory of March: neither does February's precede it, nor does what repeats it hang on it."""
    e1, m = old(date="2024-03-01")
    m = dataclasses.replace(m, provenance=(dataclasses.replace(m.provenance[0], verified=False),))
    for date, value, v, p in (
            ("2024-02-01", "850", SUPERSEDED, ()), ("2024-02-01", "850", (), [Placement(0, "PRIOR", 0)]),
            ("2024-04-01", "500", (), [Placement(0, "SAME", 0)])):
        e, n = new(date=date, value=value)
        c, after = decide(stored(m, entries=[e1]), e, [n], v, p, linked=[thread(m, n)])
        assert [x.mid for x in after.active()] == [m.mid, n.mid] and not c.confirmations


def test_r4_nothing_is_superseded_without_an_admissible_relation():
    state, m = one()
    e, n = new()
    for linked in ([], [thread(m, n, "drug_interaction")], [thread(m, n, "systemic_link"), thread(m, n, "causal")]):
        c, after = decide(state, e, [n], SUPERSEDED, linked=linked)
        assert c.counters["blocked_no_relation"] == 1 and len(after.active()) == 2
    c, after = decide(state, e, [n], SUPERSEDED, config=WriteConfig(relations=False))
    assert [x.mid for x in after.active()] == [n.mid] and c.transitions[0].evidence_rid is None


@pytest.mark.parametrize("first, second, goes", [
    ("same_condition_thread", "monitoring_for", True), ("same_condition_thread", "drug_interaction", True),
    ("drug_interaction", "monitoring_for", False)])
def test_r4_a_path_of_two_begins_with_an_admissible_relation(first, second, goes):
    e1, drug = old("warfarin 5 mg", value="5", concept="warfarin")
    e2 = entry("check the INR every 2 weeks", date="2024-01-01", source="old")
    plan = memory(e2, kind="PLAN", concept="inr", attribute="plan", value="every 2 weeks", start="2024-01-01")
    state = stored(drug, plan, entries=[e1, e2], relations=[thread(plan, drug, second)])
    e, stop = new("warfarin stopped", value=None, concept="warfarin", polarity="NEGATED")
    c, after = decide(state, e, [stop], [Verdict(1, "RESOLVED", 0)], linked=[thread(stop, drug, first)])
    assert (after.places[plan.mid] == "HISTORY") == goes
    if goes:
        t, = c.transitions
        assert (t.via, t.evidence_rid) == ((thread(stop, drug, first).rid,), thread(plan, drug, second).rid)
        assert set(after.why(plan.mid).relations) == set(t.way)


def test_the_way_of_what_repeats_a_memory_begins_at_that_memory():
    """N says what the stored stop says and hangs on it; the first relation of N's way is stored with the other's name."""
    e0, stop = old("warfarin stopped", value=None, concept="warfarin", polarity="NEGATED")
    e1, drug = old("warfarin 5 mg", value="5", concept="warfarin", date="2023-01-01")
    e2 = entry("check the INR every 2 weeks", date="2023-01-01", source="old")
    plan = memory(e2, kind="PLAN", concept="inr", attribute="plan", value="every 2 weeks", start="2023-01-01")
    watch = thread(plan, drug, "monitoring_for")
    state = stored(stop, drug, plan, entries=[e0, e1, e2], relations=[watch])
    e, n = new("warfarin was stopped", value=None, concept="warfarin", polarity="NEGATED", start="2024-01-01")
    c, after = decide(state, e, [n], [Verdict(2, "RESOLVED", 0)], [Placement(0, "SAME", 0)],
                      linked=[thread(n, drug), thread(n, stop, "restatement")])
    t, = c.transitions
    assert n.mid not in after.memories and t.way == (thread(stop, drug).rid, watch.rid) and t.successor == stop.mid


def test_r5_what_is_reported_late_precedes_what_holds():
    state, m = one(date="2024-03-01")
    e, n = new(date="2024-02-01")
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    t, = c.transitions
    assert (t.mid, t.reason, t.successor, t.order, t.decided_by) == (n.mid, "PRIOR_STATE", m.mid, "known", "rule:R5")
    assert [x.mid for x in after.active()] == [m.mid] and c.counters["became_prior"] == 1


def test_r5_where_time_is_silent_only_the_same_slot_changes():
    state, m = one(start=None)
    e, n = new(start=None)
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert c.transitions[0].order == "assumed" and [x.mid for x in after.active()] == [n.mid]
    e, other = new("aspirin 100 mg", concept="aspirin", value="100", start=None)
    c, after = decide(state, e, [other], SUPERSEDED, linked=[thread(m, other)])
    assert c.counters["blocked_older"] == 1 and len(after.active()) == 2


def test_r5_where_time_is_silent_the_entry_of_the_earlier_date_is_the_older():
    state, m = one(date="2024-03-01", start=None)
    e, n = new(date="2024-02-01", start=None)
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert c.transitions[0].reason == "PRIOR_STATE" and c.transitions[0].order == "assumed"
    assert [x.mid for x in after.active()] == [m.mid]


def test_r5_a_confirmed_value_held_on_the_day_of_its_confirmation():
    """500 in January and again in March, then 850 of February comes in: 500 holds."""
    state, m = one()
    again = entry("metformin 500 mg as before", date="2024-03-01")
    c, state = decide(state, again, [memory(again, start="2024-03-01", **DOSE, value="500")], SUPERSEDED)
    assert c.confirmations and not c.memories
    e, n = new(date="2024-02-01")
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert [x.mid for x in after.active()] == [m.mid] and c.transitions[0].order == "assumed"


def test_r5_a_correction_may_start_before_what_it_corrects():
    state, m = one(date="2024-02-01")
    e, n = new("the dose is 850 mg since January, not 500", date="2024-03-01", start="2024-01-01")
    c, after = decide(state, e, [n], [Verdict(0, "CORRECTED", 0)], linked=[thread(m, n)])
    assert c.transitions[0].reason == "CORRECTED" and [x.mid for x in after.active()] == [n.mid]


def test_r6_a_denial_ends_and_a_condition_does_nothing():
    state, m = one()
    e, n = new("metformin stopped", value=None, polarity="NEGATED")
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert (c.transitions[0].reason, c.transitions[0].successor) == ("RESOLVED", n.mid)
    for polarity, kind, goes in (("CONDITIONAL", "SUPERSEDED", 0), ("CONDITIONAL", "RESOLVED", 0),
                                 ("UNCERTAIN", "SUPERSEDED", 0), ("UNCERTAIN", "RESOLVED", 1)):
        e, n = new(polarity=polarity)
        c, after = decide(state, e, [n], [Verdict(0, kind, 0)], linked=[thread(m, n)])
        assert len(c.transitions) == goes, (polarity, kind)
    e, late = new(date="2023-01-01", polarity="CONDITIONAL")
    c, after = decide(state, e, [late], SUPERSEDED, [Placement(0, "PRIOR", 0)], linked=[thread(m, late)])
    assert late.mid in [x.mid for x in after.active()]


@pytest.mark.parametrize("config, active, history", [
    ("attach", ["old"], []), ("keep_both", ["old", "new"], []), ("archive_older", ["new"], ["old"])])
def test_r7_the_same_value_again(config, active, history):
    state, m = one()
    e, n = new("metformin 500.0 mg continues", value="500.0")
    other = entry("type 2 diabetes", date="2024-01-01")
    problem = memory(other, start="2024-01-01", concept="type 2 diabetes", attribute="status")
    state = state.apply(Update.of(Commit("p1", 1, (other,), (problem,))))
    linked = [thread(m, n, "restatement"), thread(n, problem, "treatment_for")]
    c, after = decide(state, e, [n], SUPERSEDED, linked=linked, config=WriteConfig(restatement=config))
    names = {m.mid: "old", n.mid: "new", problem.mid: "problem"}
    assert [names[x.mid] for x in after.active() if x is not problem and x.mid != problem.mid] == active
    assert [names[x.mid] for x in after.history()] == history
    if config == "attach":
        assert after.memories[m.mid].provenance == m.provenance + n.provenance
        assert [(r.src, r.dst, r.type) for r in after.relations.values()] == [(m.mid, problem.mid, "treatment_for")]
    if history:
        assert c.transitions[0].reason == "RESTATED"


@pytest.mark.parametrize("day, order", [("2024-03-01", "known"), ("2023-12-01", "assumed")])
def test_r7_what_says_more_takes_the_place_of_what_says_less(day, order):
    state, m = one()
    e, n = new("metformin 500 mg bid", value="500 mg bid", date=day)
    c, after = decide(state, e, [n], (), [Placement(0, "SAME", 0)])
    assert [x.mid for x in after.active()] == [n.mid] and [x.mid for x in after.history()] == [m.mid]
    assert (c.transitions[0].reason, c.transitions[0].successor, c.transitions[0].order) == ("RESTATED", n.mid, order)
    c, after = decide(state, e, [n], (), [Placement(0, "SAME", 0)], config=WriteConfig(restatement="keep_both"))
    assert len(after.active()) == 2


def test_r7_what_says_more_and_held_before_another_dose_is_the_state_before_that():
    e1, a = new("metformin 1000 mg", value="1000", date="2024-02-01")
    e2, b = new("metformin 500 mg", value="500", date="2024-03-01")
    state = stored(a, b, entries=[e1, e2], moves=[archive(a.mid, "SUPERSEDED", successor=b.mid)])
    e, n = new("metformin 500 mg bid", value="500 mg bid", date="2024-01-10")
    c, after = decide(state, e, [n], (), [Placement(0, "SAME", 1)])
    assert [x.mid for x in after.active()] == [b.mid]
    assert [(t.mid, t.reason) for t in c.transitions] == [(n.mid, "PRIOR_STATE")]


@pytest.mark.parametrize("a, b, same", [
    (dict(value="4.0"), dict(value="40"), False), (dict(value="4.0"), dict(value="4"), True),
    (dict(value="850 mg bid"), dict(value="850 mg"), False), (dict(value="850 mg"), dict(value="850 mg bid"), True),
    (dict(value="850 mg bid"), dict(value="850 mg daily"), False), (dict(value="1,000"), dict(value="1000"), True),
    (dict(value="5", polarity="NEGATED"), dict(value="5"), False), (dict(value="<0.01"), dict(value="0.01"), False),
    (dict(value="5", kind="EVENT", start="2024-01-01"), dict(value="5", kind="EVENT", start="2024-01-02"), False),
    (dict(value="5", kind="EVENT", start="2024-01-01"), dict(value="5", kind="EVENT", start="2024-01"), True),
    (dict(value="5", concept="insulin"), dict(value="5"), False),
    (dict(value="5", experiencer="FAMILY"), dict(value="5"), False),
])
def test_r7_what_restates(a, b, same):
    x, y = (memory(entry("words"), **DOSE | fields) for fields in (a, b))
    assert restates(x, y) is same


def test_r7_same_is_refused_for_another_value_or_denial():
    state, m = one()
    for fields in (dict(value="5000"), dict(value="500", polarity="NEGATED"), dict(value="500", concept="insulin")):
        e, n = new("metformin 5000 mg, not 500", **fields)
        c, after = decide(state, e, [n], (), [Placement(0, "SAME", 0)])
        assert c.counters["blocked_other_value"] == 1 and len(after.active()) == 2


def test_r7_an_unverified_repetition_confirms_nothing():
    state, m = one()
    e, n = new("metformin 500 mg", value="500")
    n = dataclasses.replace(n, provenance=(dataclasses.replace(n.provenance[0], verified=False),))
    c, after = decide(state, e, [n], (), [Placement(0, "SAME", 0)])
    assert not c.confirmations and len(after.active()) == 2


def test_r7_a_recurrence_is_no_repetition_of_what_ended():
    e1, a = old()
    e2, b = new(date="2024-01-10")
    state = stored(a, b, entries=[e1, e2], moves=[archive(a.mid, "SUPERSEDED", successor=b.mid)])
    e, n = new("metformin 500 mg again", value="500", date="2024-03-01")
    c, after = decide(state, e, [n], [Verdict(1, "SUPERSEDED", 0)], [Placement(0, "SAME", 0)], linked=[thread(b, n)])
    assert [x.mid for x in after.active()] == [n.mid]


@pytest.mark.parametrize("fields", [
    dict(attribute="allergy", value="rash"), dict(attribute="procedure", value=None), dict(value=None)])
def test_r8_many_values_live_side_by_side(fields):
    e0 = entry("penicillin: anaphylaxis", date="2024-01-01")
    base = dict(concept="penicillin", attribute="dose", value="500")
    m = memory(e0, start="2024-01-01", **base | fields | {"value": "anaphylaxis" if fields["value"] else "500"})
    e = entry("penicillin: rash", date="2024-02-01")
    n = memory(e, start="2024-02-01", **base | fields)
    c, after = decide(stored(m, entries=[e0]), e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert len(after.active()) == 2 and c.counters["blocked_multivalued"] == 1


def test_r8_an_allergy_that_is_reported_late_still_holds():
    e0, e = entry("penicillin: rash", date="2024-03-01"), entry("penicillin: hives", date="2024-01-01")
    slot = dict(concept="penicillin", attribute="allergy")
    m, n = memory(e0, start="2024-03-01", value="rash", **slot), memory(e, start="2024-01-01", value="hives", **slot)
    for v, p in ((SUPERSEDED, ()), ((), [Placement(0, "PRIOR", 0)])):
        c, after = decide(stored(m, entries=[e0]), e, [n], v, p, linked=[thread(m, n)])
        assert len(after.active()) == 2
    n = memory(e, start="2024-01-01", value="hives", polarity="NEGATED", **slot)
    c, after = decide(stored(m, entries=[e0]), e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert [x.mid for x in after.active()] == [m.mid]


def test_r8_another_problem_is_not_a_successor():
    e0, e = entry("asthma", date="2024-01-01"), entry("cough", date="2024-02-01")
    m = memory(e0, start="2024-01-01", concept="asthma", attribute="status")
    n = memory(e, start="2024-02-01", concept="cough", attribute="status")
    c, after = decide(stored(m, entries=[e0]), e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert len(after.active()) == 2 and c.counters["blocked_multivalued"] == 1


def plan_until(end, *, date="2024-01-01", kind="PLAN"):
    e0 = entry(f"INR every 2 weeks until {end}", date=date)
    return e0, memory(e0, start="2024-01-01", end=end, end_planned=True, kind=kind, concept="inr", attribute="plan",
                      value="every 2 weeks")


@pytest.mark.parametrize("date, reason", [
    ("2024-02-14", None), ("2024-02-15", None), ("2024-02-16", "EXPIRED"), ("2024", None), ("2024-03", "EXPIRED"),
    ("2024-02", None), (None, None)])
def test_r9_a_plan_ends_when_an_entry_is_dated_after_its_end(date, reason):
    e0, m = plan_until("2024-02-15")
    c, after = decide(stored(m, entries=[e0]), entry("all well", date=date), [])
    assert [t.reason for t in c.transitions] == ([reason] if reason else [])
    assert not reason or c.transitions[0].decided_by == "rule:R9"


def test_r9_a_plan_that_is_reported_after_its_end_is_over_at_once():
    seen = entry("all well", date="2024-05-01")
    e, m = plan_until("2024-02-15")
    c, after = decide(stored(entries=[seen]), e, [m])
    assert not after.active() and after.standing(m.mid).reason == "EXPIRED"
    e, event = plan_until("2024-02-15", kind="EVENT")
    assert decide(stored(entries=[seen]), e, [event])[1].active()


def test_r9_what_is_over_replaces_nothing():
    state, m = one()
    state = state.apply(Update.of(Commit("p1", 1, (entry("all well", date="2024-06-01"),))))
    e = entry("metformin 850 mg for February", date="2024-02-01")
    n = memory(e, start="2024-02-01", end="2024-03-01", end_planned=True, **DOSE, value="850")
    c, after = decide(state, e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert [x.mid for x in after.active()] == [m.mid] and after.standing(n.mid).reason == "EXPIRED"
    assert c.counters["blocked_ended"] == 1


def test_r9_a_plan_that_is_over_and_said_again_is_a_new_one():
    e0, m = plan_until("2024-02-15")
    e = entry("INR every 2 weeks goes on", date="2024-03-01")
    n = memory(e, start="2024-03-01", kind="PLAN", concept="inr", attribute="plan", value="every 2 weeks")
    c, after = decide(stored(m, entries=[e0]), e, [n], SUPERSEDED, linked=[thread(m, n)])
    assert [x.mid for x in after.active()] == [n.mid] and after.standing(m.mid).reason == "EXPIRED"


def test_r10_the_best_of_several_archivers_follows():
    state, m = one()
    e = entry("metformin 850 mg; 1000 mg from the 3rd", date="2024-02-01")
    a = memory(e, "metformin 850 mg", start="2024-02-01", **DOSE | dict(concept="a"), value="850")
    b = memory(e, "1000 mg", start="2024-02-03", ordinal=1, **DOSE | dict(concept="b"), value="1000")
    verdicts = [Verdict(0, "SUPERSEDED", 0), Verdict(0, "SUPERSEDED", 1)]
    for types, best in ((("restatement", "same_condition_thread"), a), (("same_condition_thread", "restatement"), b),
                        (("treatment_for", "treatment_for"), b)):
        linked = [thread(a, m, types[0]), thread(b, m, types[1])]
        c, _ = decide(state, e, [a, b], verdicts, linked=linked)
        t, = c.transitions
        assert t.successor == best.mid and t.also_by == tuple({a.mid, b.mid} - {best.mid})
        assert c.counters["several_archivers"] == 1


@pytest.mark.parametrize("times, current", [
    (("2024-01-05", "2024-01-20"), 1), (("2024-01-20", "2024-01-05"), 0), (("2024-02-01", "2024-02-01"), 1),
    ((None, None), 1)])
def test_r11_of_two_values_in_one_entry_the_later_one_holds(times, current):
    e = entry("metformin 500 mg, metformin 850 mg", date="2024-02-01")
    news = [memory(e, f"metformin {v} mg", start=t, ordinal=i, **DOSE, value=v)
            for i, (v, t) in enumerate(zip(("500", "850"), times))]
    c, after = decide(State("p1"), e, news)
    assert [x.mid for x in after.active()] == [news[current].mid]
    t, = c.transitions
    assert t.reason == "PRIOR_STATE" and t.successor == news[current].mid and t.decided_by == "rule:R11"


def test_r11_the_old_dose_named_beside_the_new_one_confirms_the_old_memory():
    state, m = one()
    e = entry("metformin 500 mg raised to metformin 850 mg", date="2024-02-01")
    news = [memory(e, f"metformin {v} mg", start="2024-02-01", ordinal=i, **DOSE, value=v)
            for i, v in enumerate(("500", "850"))]
    verdicts = [Verdict(0, "SUPERSEDED", 0), Verdict(0, "SUPERSEDED", 1)]
    c, after = decide(state, e, news, verdicts, linked=[thread(m, n) for n in news])
    assert [x.mid for x in after.active()] == [news[1].mid] and after.successor(m.mid) == news[1].mid
    assert after.memories[m.mid].provenance[1:] == news[0].provenance


def test_r11_two_appointments_and_a_silent_mention_are_no_conflict():
    e = entry("cardiology in March, cardiology in June; metformin 500 mg, takes metformin", date="2024-02-01")
    plan = dict(kind="PLAN", concept="cardiology", attribute="plan")
    news = [memory(e, "cardiology in March", start="2024-03", end="2024-04", end_planned=True, **plan),
            memory(e, "cardiology in June", start="2024-06", end="2024-07", end_planned=True, ordinal=1, **plan),
            memory(e, "metformin 500 mg", start="2024-02-01", ordinal=2, **DOSE, value="500"),
            memory(e, "takes metformin", start="2024-02-01", ordinal=3, **DOSE)]
    c, after = decide(State("p1"), e, news)
    assert len(after.active()) == 4


@pytest.mark.parametrize("how", ["failed", "error"])
def test_r12_after_a_failure_everything_is_kept_and_nothing_moves(how):
    state, m = one()
    e, n = new()
    task = UpdateTask(e, (n,), (Affected(m),))
    answer = UpdateAnswer(verdicts=SUPERSEDED, error="no answer" if how == "error" else None)
    c = arbitrate(state, e, [n], [thread(m, n)], [(task, answer)], CONFIG, failed=how == "failed")
    after = state.apply(Update.of(c))
    assert not c.transitions and after.entries[e.entry_key].status == "partial"
    assert [x.flags for x in after.active()] == [frozenset(), {"needs_review"}]
    # another try: what stands is judged like new
    again = canonical.replaced(after.entries[e.entry_key], status="complete")
    c = arbitrate(after, again, [n], [thread(m, n)], [(task, UpdateAnswer(verdicts=SUPERSEDED))], CONFIG)
    final = after.apply(Update.of(c))
    assert not final.check() and not c.memories and not c.entries
    assert [x.mid for x in final.active()] == [n.mid] and final.memories[n.mid].flags == frozenset()
    assert final.entries[e.entry_key].status == "complete"


def test_deletion_is_proposed_only_of_what_is_or_goes_to_history():
    state, m = one()
    e, n = new()
    c, after = decide(state, e, [n], [Verdict(0, "SUPERSEDED", 0, delete=True)], linked=[thread(m, n)])
    assert after.memories[m.mid].flags == {"deletion_proposed"} and after.places[m.mid] == "HISTORY"
    c, after = decide(state, e, [n], [Verdict(0, "KEEP", delete=True)], linked=[thread(m, n)])
    assert after.memories[m.mid].flags == frozenset()


def test_a_resolution_without_a_new_memory_needs_a_ground_in_the_entry():
    state, m = one()
    c, after = decide(state, entry("bye", date="2024-02-01"), [], [Verdict(0, "RESOLVED")])
    assert not c.transitions
    e, n = new("metformin stopped", value=None, polarity="NEGATED")
    c, after = decide(state, e, [n], [Verdict(0, "RESOLVED")], linked=[thread(m, n)])
    assert c.transitions[0].reason == "RESOLVED" and c.transitions[0].successor is None


# ---- whatever a writer says -----------------------------------------------------------------------------------

CONCEPTS = ("metformin", "warfarin", "inr", "cough", "penicillin")
WORDS = ("dose 5 mg", "dose 50 mg", "dose 5.0 mg bid", "dose", "dose !", "status", "status !", "status ?", "value 4.1",
         "value 41", "allergy rash", "plan every 2 weeks", "plan", "procedure", "preference tea")
TIMES = ("", "", " @2023", " @2024-01", " @2024-02-01", " @until 2024-02-01", " @from 2024-01-01 to 2024-01-20",
         " @next week", " @gibberish")
DATES = (None, "2023-12-24", "2024-01-05", "2024-01-05T09:00:00", "2024-02", "2024-02-03", "2024-06-01")


def random_entry(dice):
    def line():
        return ("family " * (dice.random() < 0.1)
                + f"{dice.choice(CONCEPTS)} {dice.choice(WORDS)}{dice.choice(TIMES)}")

    lines = [line() for _ in range(dice.randrange(6))]
    return entry("\n".join([f"visit {dice.randrange(10 ** 6)}", *lines]), date=dice.choice(DATES))


def run_entry(state, e, writer, config, dice, *, unverified=0.1):
    """W1 to W8 of one entry without a store; vectors are drawn."""
    drafts = [dataclasses.replace(d, quote=d.quote if dice.random() > unverified else "said nowhere at all", span=None)
              for d in writer.drafts(e)]
    news, counters = normalise(e, Extraction(tuple(drafts)), config)
    rows = np.random.default_rng(len(state.memories)).integers(-900, 900, (len(news), 16)).astype(np.int16)
    mids = list(state.memories)
    known = np.random.default_rng(7).integers(-900, 900, (len(mids), 16)).astype(np.int16)
    arrival = Arrival(state, e, tuple(news), rows, Vectors.of(mids, known))
    tasks, = link_candidates([arrival], config)
    answers = writer.link(tasks)
    linked = [[] for _ in news]
    for t, a in zip(tasks, answers):
        linked[news.index(t.memory)] += relations(t, a, config, state.table, "RULE", counters)
    updates, = impact([arrival], [linked], config)
    proposals = list(zip(updates, writer.update(updates)))
    failed = any(a.error is not None for a in answers)
    return news, arbitrate(state, e, news, sum(linked, []), proposals, config, decider=writer.decider,
                           counters=counters, failed=failed)


def judge(state, news, c):
    """The state after a commit; nothing is lost, and whatever was archived is followed by what holds."""
    after = state.apply(Update.of(c))
    assert not (found := after.check()), found
    assert set(after.memories) == set(state.memories) | {m.mid for m in c.memories}
    places = {p for m in after.memories.values() for p in m.provenance}
    assert {m.provenance[0] for m in news} <= places
    unverified = {m.mid for m in after.memories.values() if not m.provenance[0].verified}
    for t in c.transitions:
        if t.reason in ("SUPERSEDED", "RESTATED", "CORRECTED") or (t.reason == "RESOLVED" and t.successor):
            assert after.places[t.successor] == "ACTIVE", t
            assert not unverified & {t.successor, *t.also_by}
        if t.reason == "PRIOR_STATE":
            assert after.places[t.successor] == "ACTIVE" or after.standing(t.successor).reason in CHAIN_ENDS
    return after


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10 ** 9), restatement=st.sampled_from(RESTATEMENTS), related=st.booleans(),
       failing=st.sampled_from([0.0, 0.2]))
def test_every_commit_is_accepted_and_loses_nothing(seed, restatement, related, failing):
    dice, config = random.Random(seed), WriteConfig(restatement=restatement, relations=related, group=3, budget=6)
    writers = RandomWriter(seed, failing), SlotWriter()
    state = State("p1")
    for _ in range(dice.randrange(1, 9)):
        e, writer = random_entry(dice), dice.choice(writers)
        if e.entry_key in state.entries:
            continue
        news, c = run_entry(state, e, writer, config, dice)
        state = judge(state, news, c)
        partial = [e for e in state.entries.values() if e.status == "partial"]
        if partial and dice.random() < 0.5:
            e = canonical.replaced(dice.choice(partial), status="complete")
            news, c = run_entry(state, e, RandomWriter(seed + 1), config, dice)
            state = judge(state, news, c)


def test_arbitration_changes_no_argument_and_repeats_itself():
    dice, state = random.Random(3), State("p1")
    for _ in range(6):
        before = state.canonical()
        e = random_entry(dice)
        drawn = dice.getstate()
        news, c = run_entry(state, e, RandomWriter(1), CONFIG, dice)
        dice.setstate(drawn)
        assert Update.of(run_entry(state, e, RandomWriter(1), CONFIG, dice)[1]) == Update.of(c)
        assert state.canonical() == before
        state = judge(state, news, c)


