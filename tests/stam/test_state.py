"""A patient's state: what moves are refused, what a view shows, and that every broken invariant is named."""
import dataclasses

import pytest
from memory_cases import commit, doses, entry, memory

from core_jax.records import RecordError
from stam_jax.graph import canonical, redaction, undo
from stam_jax.graph.memory import Provenance
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State, StateError
from stam_jax.graph.transitions import IllegalTransition, Transition, archive, delete, prior, reinstate
from stam_jax.graph.update import Confirmation, Mark, Redaction, Status, Update, from_body, to_body
from stam_jax.read import listing


def grown(*commits) -> State:
    state = State("p1")
    for c in commits:
        state = state.apply(Update.of(c))
    return state


def erase(state: State, mid: str) -> State:
    """Deletion without a journal: the hash of the content is made up."""
    t = Transition(mid, state.places[mid], "DELETED", "ERASURE_REQUEST", decided_by="user")
    return state.apply(Update(state.patient_id, state.version + 1, transitions=(t,), tombstones=((mid, "0" * 64),),
                              redactions=tuple(redaction.plan(state, {mid: False}))).numbered())


E1 = entry("metformin 500 mg daily. Mother had diabetes.", date="2024-01-10")
E2 = entry("metformin 850 mg daily. Penicillin allergy noted.", date="2024-02-10")
OLD = memory(E1, "metformin 500 mg daily", start="2024-01-10", concept="metformin", attribute="dose", value="500")
MOTHER = memory(E1, "Mother had diabetes", experiencer="FAMILY")
NEW = memory(E2, "metformin 850 mg daily", start="2024-02-10", concept="metformin", attribute="dose", value="850")
ALLERGY = memory(E2, "Penicillin allergy")
THREAD = Relation.of(OLD.mid, NEW.mid, "same_condition_thread", confidence=0.8)
FIRST = commit(0, [E1], [OLD, MOTHER])
SECOND = commit(1, [E2], [NEW, ALLERGY], relations=[THREAD], transitions=[
    archive(OLD.mid, "SUPERSEDED", successor=NEW.mid, evidence_rid=THREAD.rid, decided_by="rule:R4")])


@pytest.fixture
def two() -> State:
    return grown(FIRST, SECOND)


def test_what_holds_and_what_held(two):
    assert {m.mid for m in two.active()} == {MOTHER.mid, NEW.mid, ALLERGY.mid}
    assert [m.mid for m in two.history()] == [OLD.mid]
    assert two.memory(OLD.mid).text == OLD.text and two.memory(OLD.mid).store == "HISTORY"
    assert [m.mid for m in two.chain(OLD.mid)] == [OLD.mid, NEW.mid]
    assert two.successor(OLD.mid) == NEW.mid and two.predecessors(NEW.mid) == [OLD.mid]
    assert two.check() == []


def test_apply_leaves_the_state_as_it_was(two):
    before = two.canonical()
    left = two.apply(Update.of(commit(2, transitions=[archive(NEW.mid, "RESOLVED")])))
    right = two.apply(Update.of(commit(2, transitions=[archive(ALLERGY.mid, "CORRECTED")])))
    assert two.canonical() == before and len(two.updates()) == 2
    assert left.check() == right.check() == [] and left.sha256 != right.sha256
    assert [t.mid for t in right.updates()[2].transitions] == [ALLERGY.mid]


def test_a_memory_of_somebody_else_is_not_found(two):
    for look in (two.memory, two.chain, two.why):
        with pytest.raises(LookupError, match="p1"):
            look("mnobody")


@pytest.mark.parametrize("move, why", [
    (archive(OLD.mid, "RESOLVED"), "but it is HISTORY"),
    (archive("mnobody", "RESOLVED"), "not there"),
    (archive(NEW.mid, "SUPERSEDED", successor="mnobody"), "not a memory of this patient"),
    (archive(NEW.mid, "SUPERSEDED", successor=OLD.mid), "before 2024-02-10"),
    (archive(NEW.mid, "SUPERSEDED", successor=OLD.mid, order="assumed"), "followed by .* itself"),
    (archive(ALLERGY.mid, "SUPERSEDED", successor=MOTHER.mid), "about FAMILY"),
    (archive(ALLERGY.mid, "RESOLVED", also_by=(MOTHER.mid,)), "about FAMILY"),
    (archive(ALLERGY.mid, "RESOLVED", evidence_rid="rnone"), "rnone"),
    (archive(NEW.mid, "EXPIRED"), "no entry is dated after"),
    (reinstate(NEW.mid), "but it is ACTIVE"),
    (prior(NEW.mid), "but it is ACTIVE"),
    (delete(NEW.mid, 0.9, 0.5, "c1"), "but it is ACTIVE"),
])
def test_moves_without_ground_are_refused(two, move, why):
    with pytest.raises((IllegalTransition, StateError), match=why):
        two.apply(Update.of(commit(2, transitions=[move])))


@pytest.mark.parametrize("fields, why", [
    (dict(entries=[E1]), "there already"),
    (dict(memories=[OLD]), "there already"),
    (dict(memories=[memory(entry("elsewhere"))]), "is not there"),
    (dict(relations=[THREAD]), "there already"),
    (dict(relations=[Relation.of(OLD.mid, "mnobody", "causal")]), "not there"),
    (dict(confirmations=[Confirmation("mnobody", [Provenance.of(E1, 0, 4)])]), "not there"),
    (dict(marks=[Mark("mnobody", set())]), "not there"),
    (dict(statuses=[Status("enone", "partial")]), "not there"),
    (dict(memories=[dataclasses.replace(memory(E2, "noted"), store="HISTORY")]), "without its PRIOR_STATE"),
])
def test_updates_that_do_not_fit_are_refused(two, fields, why):
    with pytest.raises(StateError, match=why):
        two.apply(Update.of(commit(2, **fields)))


def test_an_update_of_another_patient_or_number_is_refused(two):
    for update in (Update("p2", 3), Update("p1", 2), Update("p1", 4)):
        with pytest.raises(StateError):
            two.apply(update)


def test_a_verified_quote_must_stand_in_its_entry(two):
    wrong = dataclasses.replace(Provenance.of(E1, 0, 9), entry_key=E2.entry_key, start=3, end=12)
    with pytest.raises(StateError, match="says something else"):
        two.apply(Update.of(commit(2, confirmations=[Confirmation(NEW.mid, [wrong])])))
    unverified = dataclasses.replace(wrong, verified=False)
    assert two.apply(Update.of(commit(2, confirmations=[Confirmation(NEW.mid, [unverified])]))).check() == []


def test_confirmations_add_provenance_once(two):
    again = Confirmation(OLD.mid, [Provenance.of(E2, 0, 9), Provenance.of(E2, 0, 9), OLD.provenance[0]])
    state = two.apply(Update.of(commit(2, confirmations=[again], marks=[Mark(NEW.mid, {"needs_review"})])))
    assert state.memory(OLD.mid).provenance == (OLD.provenance[0], again.provenance[0])
    assert state.memory(NEW.mid).flags == {"needs_review"} and state.check() == []


def test_a_same_day_change_needs_an_assumed_order_only_backwards():
    morning, evening = entry("dose 5", date="2024-05-01T08:00:00"), entry("dose 10", date="2024-05-01T20:00:00")
    a, b = memory(morning, start="2024-05-01"), memory(evening, start="2024-05-01")
    state = grown(commit(0, [morning], [a]), commit(1, [evening], [b], transitions=[
        archive(a.mid, "SUPERSEDED", successor=b.mid, order="assumed")]))
    assert state.check() == [] and state.why(a.mid).transitions[0].order == "assumed"


def test_a_corrected_memory_may_be_followed_by_an_earlier_one():
    a = memory(E2, "metformin 850 mg daily", start="2024-02-10")
    b = memory(E2, "metformin 850 mg daily", start="2024-01", ordinal=1, text="on 850 mg since January")
    assert grown(commit(0, [E2], [a, b], transitions=[archive(a.mid, "CORRECTED", successor=b.mid)])).check() == []


def test_a_plan_expires_only_when_a_later_entry_arrives():
    plan_entry = entry("amoxicillin for 7 days", date="2024-03-01")
    plan = memory(plan_entry, start="2024-03-01", end="2024-03-08", end_planned=True, kind="PLAN")
    state = grown(commit(0, [plan_entry], [plan]))
    assert state.active() and state.as_of_date("2030-01-01").held == ()
    for e in (entry("same day", date="2024-03-08"), entry("undated", date=None), entry("the month", date="2024-03")):
        with pytest.raises(IllegalTransition, match="no entry is dated after its end"):
            state.apply(Update.of(commit(1, [e], transitions=[archive(plan.mid, "EXPIRED", decided_by="rule:R9")])))
    late = state.apply(Update.of(commit(1, [entry("later", date="2024-03-09")], transitions=[
        archive(plan.mid, "EXPIRED", decided_by="rule:R9")])))
    assert late.active() == [] and late.check() == []


# ---- views ----------------------------------------------------------------------------------------------------

def test_what_was_known_and_what_was_true_differ_for_late_reports():
    now = entry("on warfarin 5 mg since May", date="2024-06-01")
    late = entry("letter: in March he took warfarin 3 mg, from 1 March", date="2024-07-01")
    current = memory(now, "warfarin 5 mg", start="2024-05-01")
    before = dataclasses.replace(memory(late, "warfarin 3 mg", start="2024-03-01"), store="HISTORY")
    state = grown(commit(0, [now], [current]),
                  commit(1, [late], [before], transitions=[prior(before.mid, successor=current.mid)]))
    assert state.check() == []
    assert [m.text for m in state.as_of_date("2024-03-15").held] == [before.text]
    assert [m.text for m in state.as_of_date("2024-05-15").held] == [current.text]
    assert [m.text for m in state.as_of_date("2024-05-15").ended] == [before.text]
    assert [m.text for m in state.as_of_date("2024-03-15").ahead] == [current.text]
    assert [m.text for m in state.as_of_seq(1).active()] == [current.text]
    assert state.as_of_seq(1).as_of_date("2024-03-15").held == ()  # it did not know then
    assert state.as_of_seq(0).active() == [] and state.as_of_seq(2).sha256 == state.sha256
    assert [m.mid for m in state.chain(before.mid)] == [before.mid, current.mid]


def test_as_of_seq_shows_each_state_as_it_was(two):
    states = [State("p1")]
    for c in doses(6):
        states.append(states[-1].apply(Update.of(c)))
    assert [states[-1].as_of_seq(i).sha256 for i in range(7)] == [s.sha256 for s in states]
    for bad in (-1, 7, True, "1", None):
        with pytest.raises(ValueError):
            states[-1].as_of_seq(bad)


@pytest.mark.parametrize("start, end, date, expected", [
    ("2024-03", None, "2024-04-01", "held"), ("2024-03", None, "2024-03-15", "uncertain"),
    ("2024-03", None, "2024-02-29", "ahead"), ("2023", None, "2024-01-01", "held"), ("2024", None, "2024", "uncertain"),
    ("2024-03-01", "2024-03-08", "2024-03-07", "held"), ("2024-03-01", "2024-03-08", "2024-03-08", "ended"),
    ("2024-03-01", "2024-06", "2024-06-15", "uncertain"), ("2024-03-01", "2024-06", "2024-06-30", "ended"),
    ("2024-03-01", "2024-06", "2024-05-31", "held"), (None, "2024-06-01", "2024-06-01", "ended"),
    (None, None, "2024-01-01", "uncertain"), ("2024-02-29", None, "2024-02-28", "ahead"),
    ("2024-02-29", None, "2024-02-29", "held"), ("2024-03-01", None, "2024-02", "ahead"),
])
def test_a_date_decides_only_what_the_precision_decides(start, end, date, expected):
    m = memory(E1, start=start, end=end)
    view = grown(commit(0, [E1], [m])).as_of_date(date)
    assert [name for name in ("held", "ended", "ahead", "uncertain") if getattr(view, name)] == [expected]


def test_what_was_corrected_never_held_and_what_resolved_held_until_the_entry_that_says_so():
    e, later_entry = entry("asthma. Rash.", date="2024-01-01"), entry("no asthma; rash gone", date="2024-02-01")
    asthma, rash = memory(e, "asthma", start="2023-12-01"), memory(e, "Rash", start="2023-12-01")
    state = grown(commit(0, [e], [asthma, rash]), commit(1, [later_entry], transitions=[
        archive(asthma.mid, "CORRECTED"), archive(rash.mid, "RESOLVED")]))
    assert state.as_of_date("2024-01-15").held == (state.memory(rash.mid),)
    assert state.as_of_date("2024-02-01").ended == (state.memory(rash.mid),)
    with pytest.raises(RecordError):
        state.as_of_date("some day")


def test_why_tells_source_reason_rule_and_relation(two):
    why = two.why(OLD.mid)
    assert why.place == "HISTORY" and why.inserted_seq == 1 and why.chain == (OLD.mid, NEW.mid)
    (source, span), = why.sources
    assert source.text[span.start:span.end] == "metformin 500 mg daily"
    assert [(t.reason, t.decided_by, t.tid) for t in why.transitions] == [("SUPERSEDED", "rule:R4", "t2.0")]
    assert why.relations == {THREAD.rid: two.relations[THREAD.rid]}
    gone = erase(two, OLD.mid).why(OLD.mid)
    assert gone.place == "DELETED" and gone.sources == () and gone.record.reason == "ERASURE_REQUEST"


# ---- deletion -------------------------------------------------------------------------------------------------

def test_an_erased_memory_leaves_no_words(two):
    state = erase(two, OLD.mid)
    assert state.check() == [] and "500" not in state.canonical() and OLD.mid not in state.memories
    assert state.relations == {} and state.tombstones[OLD.mid].experiencer == "PATIENT"
    assert "Mother had diabetes" in state.entries[E1.entry_key].text  # the rest of the entry stays
    assert len(state.entries[E1.entry_key].text) == len(E1.text)
    assert "500" not in state.as_of_seq(1).canonical() and state.as_of_seq(1).check() == []
    with pytest.raises(LookupError, match="deleted"):
        state.memory(OLD.mid)
    with pytest.raises(StateError, match="there already"):
        state.apply(Update.of(commit(3, [], [OLD])))
    with pytest.raises(IllegalTransition, match="deleted"):
        state.apply(Update.of(commit(3, transitions=[archive(NEW.mid, "SUPERSEDED", successor=OLD.mid)])))


def test_a_chain_may_end_in_what_was_erased(two):
    state = erase(two, NEW.mid)
    assert state.check() == [] and [c.mid for c in state.chain(OLD.mid)] == [OLD.mid, NEW.mid]


def test_the_gate_spares_what_others_cite():
    e = entry("aspirin 100 mg daily since 2010")
    a, b = memory(e, "aspirin 100 mg daily"), memory(e, "100 mg daily since 2010")
    state = grown(commit(0, [e], [a, b], transitions=[archive(a.mid, "RESOLVED")]))

    def left(sparing):
        (r,) = redaction.plan(state, {a.mid: sparing})
        return redaction.blank(e, r.spans).text.replace(redaction.BLOCK, "_")

    assert left(True) == "________100 mg daily since 2010"
    assert left(False) == "____________________ since 2010"


def test_other_places_that_say_the_same_go_too():
    e = entry("Lives  ALONE. Seen at home; she lives alone, she says.")
    m = memory(e, "Seen at home", text="lives alone")
    left = erase(grown(commit(0, [e], [m])), m.mid).entries[e.entry_key].text
    assert left.replace(redaction.BLOCK, "_") == "____________. ____________; she ___________, she says."


# ---- undo -----------------------------------------------------------------------------------------------------

def test_undo_and_redo_come_back_to_the_same_memories(two):
    undone = two.apply(undo.compensation(two, 2))
    assert undone.check() == []
    assert {m.mid for m in undone.active()} == {OLD.mid, MOTHER.mid}
    assert {m.mid for m in undone.history()} == {NEW.mid, ALLERGY.mid} and undone.relations == {}
    assert undone.entries[E2.entry_key].status == "reverted"
    assert undone.as_of_date("2024-03-01").held == (undone.memory(OLD.mid),)  # the undone never held
    redone = undone.apply(undo.compensation(undone, 3))
    assert redone.check() == [] and redone.places == two.places and redone.relations.keys() == two.relations.keys()
    assert redone.successor(OLD.mid) == NEW.mid and redone.entries[E2.entry_key].status == "complete"


def test_undo_of_a_late_report_a_confirmation_and_a_mark(two):
    late = entry("before that metformin 250 mg", date="2024-03-01")
    m = dataclasses.replace(memory(late, "metformin 250 mg", start="2023"), store="HISTORY")
    span = Confirmation(NEW.mid, [Provenance.of(late, 12, 21)])
    third = two.apply(Update.of(commit(2, [late], [m], transitions=[prior(m.mid, successor=OLD.mid)],
                                       confirmations=[span], marks=[Mark(ALLERGY.mid, {"needs_review"})])))
    undone = third.apply(undo.compensation(third, 3))
    assert undone.check() == [] and undone.standing(m.mid).reason == "CORRECTED"
    assert undone.memory(NEW.mid).provenance == NEW.provenance and not undone.memory(ALLERGY.mid).flags
    redone = undone.apply(undo.compensation(undone, 4))
    assert redone.check() == [] and redone.memory(NEW.mid) == third.memory(NEW.mid)
    assert redone.standing(m.mid).successor == OLD.mid


def test_undo_is_refused_while_others_build_on_it(two):
    with pytest.raises(undo.UndoRefused, match="updates 2 build on it") as e:
        undo.order(two.updates(), 1, cascade=False)
    assert e.value.dependents == (2,)
    assert undo.order(two.updates(), 1, cascade=True) == [2, 1]
    free = two.apply(Update.of(commit(2, [entry("unrelated")])))
    assert undo.order(free.updates(), 2, cascade=False) == [2]
    undone = two.apply(undo.compensation(two, 2))
    assert undo.order(undone.updates(), 1, cascade=False) == [1]  # the pair cancels
    with pytest.raises(undo.UndoRefused, match="reverted by update 3 already"):
        undo.order(undone.updates(), 2, cascade=False)
    for bad in (0, 9, True, "1"):
        with pytest.raises(ValueError):
            undo.order(two.updates(), bad, cascade=True)


@pytest.mark.parametrize("fields, said", [
    (dict(concept="hypertension", attribute="status"), "hypertension: present"),
    (dict(concept="lisinopril", attribute="dose", polarity="NEGATED"), "lisinopril: stopped"),
    (dict(concept="lisinopril", attribute="dose", value="5", unit="mg"), "lisinopril: 5 mg"),
    (dict(concept="gout", attribute="status", polarity="UNCERTAIN"), "gout: present (uncertain)"),
    (dict(concept="stroke", attribute="status", experiencer="FAMILY"), "family, stroke: present"),
    (dict(concept=None, attribute=None, polarity="NEGATED"), "negated"),
])
def test_a_line_says_which_statement_of_its_sentence_it_is(fields, said):
    e = entry("Hypertension, lisinopril 5 mg, gout, stroke.")
    assert f"stroke. [{said}]  m" in listing.summary(memory(e, **{"value": None, "unit": None} | fields))


def test_a_user_says_that_a_memory_holds_after_all(two):
    back = two.apply(Update.of(undo.reinstatement(two, OLD.mid, "  the stop was meant for another drug ")))
    assert back.check() == [] and OLD.mid in {m.mid for m in back.active()}
    t = back.transitions[OLD.mid][-1]
    assert (t.reason, t.from_, t.to, t.decided_by) == ("REINSTATED", "HISTORY", "ACTIVE", "user:reinstate")
    why = "\n".join(listing.why(back.why(OLD.mid), back))
    assert 'update 3: holds again (decided by user:reinstate): "the stop was meant for another drug"' in why
    assert "another drug" not in back.canonical().replace(back.entries[list(back.entries)[-1]].text, "")
    undone = back.apply(undo.compensation(back, 3))
    assert undone.check() == [] and undone.successor(OLD.mid) == NEW.mid and undone.memory(OLD.mid).provenance == OLD.provenance
    gone = erase(back, OLD.mid)
    assert "another drug" not in gone.canonical()


def test_what_cannot_be_reinstated(two):
    for mid, why, refused in ((NEW.mid, "x", "holds already"), (OLD.mid, " ", "words that say why")):
        with pytest.raises(ValueError, match=refused):
            undo.reinstatement(two, mid, why)
    with pytest.raises(LookupError, match="not a memory"):
        undo.reinstatement(two, "mnobody", "x")
    e = entry("INR until May", date="2024-02-20")
    plan = memory(e, "INR until May", kind="PLAN", start="2024-02-20", end="2024-05-01", end_planned=True)
    later = entry("seen", date="2024-06-01")
    over = grown(commit(0, [e], [plan]), commit(1, [later], transitions=[archive(plan.mid, "EXPIRED")]))
    with pytest.raises(undo.UndoRefused, match="ended on 2024-05-01, as was planned"):
        undo.reinstatement(over, plan.mid, "x")


def test_twice_reinstated_in_the_same_words_and_a_proposal_that_falls(two):
    marked = two.apply(Update.of(commit(2, marks=[Mark(OLD.mid, {"deletion_proposed", "needs_review"})])))
    state = marked.apply(Update.of(undo.reinstatement(marked, OLD.mid, "wrong")))
    assert state.memory(OLD.mid).flags == {"needs_review"}
    state = state.apply(Update.of(commit(4, transitions=[archive(OLD.mid, "RESOLVED")])))
    state = state.apply(Update.of(undo.reinstatement(state, OLD.mid, "wrong")))
    assert state.check() == [] and len(state.memory(OLD.mid).provenance) == 3


# ---- the way ----------------------------------------------------------------------------------------------------

def test_the_way_to_a_memory_is_kept_whole(two):
    e = entry("INR check every 2 weeks", date="2024-02-10", source="plan")
    plan = memory(e, kind="PLAN")
    watch = Relation.of(plan.mid, OLD.mid, "monitoring_for")
    third = two.apply(Update.of(commit(2, [e], [plan], relations=[watch])))
    move = archive(plan.mid, "RESOLVED", successor=NEW.mid, order="assumed", evidence_rid=watch.rid, via=(THREAD.rid,))
    state = third.apply(Update.of(commit(3, transitions=[move])))
    assert state.check() == [] and list(state.why(plan.mid).relations) == [THREAD.rid, watch.rid]
    said = "\n".join(listing.why(state.why(plan.mid), state))
    assert f"along same_condition_thread to {OLD.text} ({OLD.mid}) and from there monitoring_for" in said
    alone = third.apply(Update.of(commit(3, transitions=[dataclasses.replace(move, successor=None, order="known")])))
    assert undo.dependents(alone.updates(), 2) == [4]  # the first relation of the way is of update 2
    with pytest.raises(IllegalTransition, match="rnone"):
        third.apply(Update.of(commit(3, transitions=[dataclasses.replace(move, via=("rnone",))])))
    with pytest.raises(IllegalTransition, match="its last relation"):
        archive(plan.mid, "RESOLVED", via=(THREAD.rid,))
    body = to_body(state.updates()[-1])
    assert Update.of(commit(3, transitions=[move])) == from_body("p1", 4, body)
    assert "via" not in canonical.to_dict(archive(plan.mid, "RESOLVED", evidence_rid=watch.rid))  # as stores had it before


def test_undo_of_a_deletion_is_refused(two):
    gone = erase(two, OLD.mid)
    for seq in (1, 3):
        with pytest.raises(undo.UndoRefused, match="deleted"):
            undo.compensation(gone, seq)


# ---- every invariant is seen when it breaks -------------------------------------------------------------------

def _broken(name, state):
    """Breaks one invariant of a sound state behind its back."""
    old, new, e2 = state.memories[OLD.mid], state.memories[NEW.mid], state.entries[E2.entry_key]

    def force(record, **fields):
        return canonical.replaced(record, **fields)

    last = state.transitions[OLD.mid][-1]
    if name == "I1":
        state.places[NEW.mid] = "HISTORY"
    elif name == "I1 lost":
        del state.memories[NEW.mid]
    elif name == "I2":
        state.memories[NEW.mid] = force(new, text="metformin 1000 mg daily")
    elif name == "I3":
        state.transitions[OLD.mid] = (force(last, successor="mforeign"),)
    elif name == "I3 family":
        state.transitions[OLD.mid] = (force(last, successor=MOTHER.mid),)
    elif name == "I4":
        state.transitions[NEW.mid] = (force(last, mid=NEW.mid, successor=OLD.mid, order="assumed"),)
        state.places[NEW.mid], state.memories[NEW.mid] = "HISTORY", force(new, store="HISTORY")
    elif name == "I5":
        state.relations[THREAD.rid] = force(THREAD, dst="mforeign")
    elif name == "I6":
        state.relations[THREAD.rid] = force(state.relations[THREAD.rid], update_seq=9)
    elif name == "I8":
        state.entries[E2.entry_key] = force(e2, text=e2.text.replace("850", "100"))
    elif name == "I9":
        state.memories[NEW.mid] = force(new, clinical_time=dataclasses.replace(new.clinical_time, start="2023"))
    elif name == "I10":
        state.places[ALLERGY.mid] = "HISTORY"
        state.memories[ALLERGY.mid] = force(state.memories[ALLERGY.mid], store="HISTORY")
    elif name == "I11":
        state.memories[NEW.mid] = force(new, value="851")
    elif name == "I12":
        state.entries["e2"] = force(e2, entry_key="e2")
        state.entry_seq["e2"] = 2
    elif name == "I13":
        state._log[0][0] = dataclasses.replace(state._log[0][0], redactions=(Redaction(E1.entry_key, "0" * 64),))
    elif name == "I14":
        t = canonical.replaced(delete("m", 0.9, 0.5, "c1"), mid=NEW.mid, from_="ACTIVE", update_seq=2)
        state.transitions[NEW.mid], state.places[NEW.mid] = (t,), "DELETED"
    elif name == "I15":
        state.memories[NEW.mid] = force(new, patient_id="p10")
    assert old


@pytest.mark.parametrize("name", ["I1", "I1 lost", "I2", "I3", "I3 family", "I4", "I5", "I6", "I8", "I9", "I10", "I11",
                                  "I12", "I13", "I14", "I15"])
def test_every_broken_invariant_is_named(two, name):
    _broken(name, two)
    assert name.split()[0] in {v.invariant for v in two.check()}


def test_embedding_rows_are_compared_where_they_are_given(two):
    mids = set(two.memories)
    assert two.check(mids) == []
    assert [v.invariant for v in two.check(mids - {NEW.mid})] == ["I7"]
    assert [str(v) for v in two.check(mids | {"mforeign"})] == [
        "I7: patient 'p1': mforeign has an embedding row, but is not there"]
    assert [v.invariant for v in erase(two, OLD.mid).check(mids)] == ["I7"]
