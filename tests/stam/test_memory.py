"""Entries, memories, relations and transitions: strict fields, one canonical form, ids that are hashes, legal moves."""
import dataclasses
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_cases import commit, entry, memory

from core_jax.records import RecordError
from stam_jax.graph import canonical, relations
from stam_jax.graph.memory import PLACES, Entry, Memory, Provenance, canonical_text, memory_id
from stam_jax.graph.relations import Relation, RelationTable, RelationType
from stam_jax.graph.transitions import LEGAL, REASONS, IllegalTransition, Transition, archive, delete, prior, reinstate
from stam_jax.graph.update import Commit, Confirmation, Mark, Status, Update, from_body, to_body

E = entry("BP 140/90. Starts lisinopril 10 mg daily.")
M = memory(E, "lisinopril 10 mg daily", concept="lisinopril", attribute="dose", value="10", unit="mg", start="2024-03",
           flags={"needs_review"})


def test_records_survive_the_way_to_json_and_back():
    for record in (E, M, Relation.of("b", "a", "causal", confidence=1)):
        text = canonical.dumps(canonical.to_dict(record))
        again = type(record).from_dict(json.loads(text))
        assert again == record and canonical.dumps(canonical.to_dict(again)) == text
    moves = [prior("m", successor="n"), archive("m", "RESOLVED"), reinstate("m"), delete("m", 0.9, 0.5, "c1")]
    for t in moves:
        assert Transition.from_dict(json.loads(canonical.dumps(canonical.to_dict(t)))) == t


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.recursive(st.none() | st.booleans() | NUMBERS | st.text(),
                    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3), max_leaves=8))
def test_canonical_json_is_a_fixed_point(value):
    try:
        text = canonical.dumps(value)
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    assert canonical.dumps(json.loads(text)) == text


def test_what_is_no_number_has_no_canonical_form():
    with pytest.raises(ValueError):
        canonical.dumps({"x": float("nan")})


def test_ids_are_hashes_of_where_a_text_came_from():
    assert M.mid == memory_id("p1", E.entry_key, 0, 0, M.text) and len(M.mid) == 17 and M.mid[0] == "m"
    parts = [("p1", "e", 0, 0, "ab"), ("p1e", "", 0, 0, "ab"), ("p1", "e", 1, 0, "ab"), ("p1", "e", 0, 1, "ab"),
             ("p1", "e", 0, 0, "abc"), ("p2", "e", 0, 0, "ab"), ("p1", "e0", 0, 0, "ab")]
    assert len({memory_id(*p) for p in parts}) == len(parts)


def test_an_entry_is_known_by_its_content():
    same = entry("BP 140/90. Starts lisinopril 10 mg daily.", source="another file")
    assert same.entry_key == E.entry_key
    assert entry("a\r\nb").text == "a\nb" and entry("a\r\nb").entry_key == entry("a\nb").entry_key
    assert entry("e\u0301").entry_key == entry("\u00e9").entry_key
    assert len({entry(**c).entry_key for c in (dict(text="x"), dict(text="y"), dict(text="x", date="2024-03-02"),
                                               dict(text="x", date=None), dict(text="x", patient="p2"))}) == 5


def test_text_that_cannot_be_stored_is_made_storable():
    assert canonical_text("a\x00b\ud800") == "a\ufffdb?"
    assert Entry.of("p", "s", "note", "").chunks == ()


@pytest.mark.parametrize("changes, field", [
    (dict(text=""), "text"), (dict(text="changed"), "mid"), (dict(mid="m123"), "mid"), (dict(ordinal=1), "mid"),
    (dict(patient_id="p2"), "mid"), (dict(patient_id=""), "patient_id"), (dict(patient_id="a\x00b"), "patient_id"),
    (dict(kind="FACT"), "kind"), (dict(polarity="MAYBE"), "polarity"), (dict(experiencer="MOTHER"), "experiencer"),
    (dict(store="DELETED"), "store"), (dict(provenance=()), "provenance"), (dict(provenance=("x",)), "provenance[0]"),
    (dict(flags={"odd"}), "flags"), (dict(flags="needs_review"), "flags"), (dict(value=5), "value"),
    (dict(concept=" "), "concept"), (dict(update_seq=-1), "update_seq"), (dict(clinical_time="2024"), "clinical_time"),
])
def test_memories_are_strict(changes, field):
    with pytest.raises(RecordError) as e:
        dataclasses.replace(M, **changes)
    assert e.value.field == field


@pytest.mark.parametrize("changes, field", [
    (dict(entry_key=""), "entry_key"), (dict(status="done"), "status"), (dict(date="yesterday"), "date"),
    (dict(date="2024-03-10T23:30:00-05:00"), "date"), (dict(chunks=((0, 999),)), "chunks[0]"),
    (dict(chunks=((3, 1),)), "chunks[0]"), (dict(chunks=((1,),)), "chunks[0]"), (dict(text=None), "text"),
    (dict(text="\ud800"), "text"),
])
def test_entries_are_strict(changes, field):
    with pytest.raises(RecordError) as e:
        dataclasses.replace(E, **changes)
    assert e.value.field == field


def test_objects_with_other_fields_are_refused_with_their_place():
    raw = canonical.to_dict(M)
    with pytest.raises(RecordError, match=r"memory.colour"):
        Memory.from_dict(raw | {"colour": "red"})
    with pytest.raises(RecordError, match=r"memory.text"):
        Memory.from_dict({k: v for k, v in raw.items() if k != "text"})
    with pytest.raises(RecordError, match=r"memory.provenance\[0\].quote_sha"):
        Memory.from_dict(raw | {"provenance": [canonical.to_dict(M.provenance[0]) | {"quote_sha": "0"}]})
    with pytest.raises(RecordError, match=r"memory.clinical_time.start"):
        Memory.from_dict(raw | {"clinical_time": {"start": "soon", "source": "explicit"}})
    with pytest.raises(RecordError):
        Memory.from_dict(["no object"])


def test_a_span_holds_while_its_words_stand_there():
    p = M.provenance[0]
    assert p.holds(E)
    assert p.holds(dataclasses.replace(E, text=E.text.replace("lisinopril 10", "LISINOPRIL\t10"), chunks=()))
    assert not p.holds(dataclasses.replace(E, text=E.text.replace("10 mg", "20 mg"), chunks=()))
    assert not p.holds(dataclasses.replace(E, text=E.text[:20], chunks=()))
    with pytest.raises(RecordError):
        Provenance.of(E, 0, 1000)


# ---- the state machine ----------------------------------------------------------------------------------------

FILL = {"SUPERSEDED": dict(successor="n"), "RESTATED": dict(successor="n"),
        "ERASURE_REQUEST": dict(decided_by="user:ward"),
        "CALIBRATED_GATE": dict(score=0.9, tau=0.5, calibration_id="c1")}


def test_every_other_move_is_illegal():
    legal = 0
    for from_, to, reason in itertools.product((None, *PLACES), PLACES, sorted(REASONS)):
        try:
            Transition("m", from_, to, reason, **FILL.get(reason, {}))
            legal += 1
            assert reason in LEGAL[from_, to]
        except IllegalTransition:
            assert reason not in LEGAL.get((from_, to), ())
    assert legal == sum(map(len, LEGAL.values())) == 11


@pytest.mark.parametrize("fields", [
    dict(from_="ACTIVE", to="HISTORY", reason="SUPERSEDED"),
    dict(from_="ACTIVE", to="HISTORY", reason="RESTATED"),
    dict(from_="ACTIVE", to="HISTORY", reason="EXPIRED", successor="n"),
    dict(from_="ACTIVE", to="HISTORY", reason="SUPERSEDED", successor="m"),
    dict(from_="ACTIVE", to="HISTORY", reason="SUPERSEDED", successor="n", also_by=("m",)),
    dict(from_="HISTORY", to="ACTIVE", reason="REINSTATED", successor="n"),
    dict(from_="HISTORY", to="DELETED", reason="CALIBRATED_GATE"),
    dict(from_="HISTORY", to="DELETED", reason="CALIBRATED_GATE", score=0.9, tau=0.5),
    dict(from_="HISTORY", to="DELETED", reason="CALIBRATED_GATE", score=0.4, tau=0.5, calibration_id="c1"),
    dict(from_="ACTIVE", to="DELETED", reason="CALIBRATED_GATE", score=0.9, tau=0.5, calibration_id="c1"),
    dict(from_="ACTIVE", to="DELETED", reason="ERASURE_REQUEST", decided_by="model"),
    dict(from_="HISTORY", to="DELETED", reason="ERASURE_REQUEST", decided_by="rule:R9"),
    dict(from_="HISTORY", to="DELETED", reason="ERASURE_REQUEST", decided_by="user", score=0.5),
])
def test_moves_that_lack_their_grounds_are_illegal(fields):
    with pytest.raises(IllegalTransition):
        Transition("m", **fields)


@pytest.mark.parametrize("fields, field", [
    (dict(decided_by="somebody"), "decided_by"), (dict(decided_by="model:<b>\n"), "decided_by"),
    (dict(order="guessed"), "order"), (dict(reason="BORED"), "reason"), (dict(to="LIMBO"), "to"),
    (dict(score=1.5), "score"), (dict(tau=float("nan")), "tau"), (dict(mid=""), "mid"), (dict(also_by="n"), "also_by"),
])
def test_transitions_are_strict(fields, field):
    with pytest.raises(RecordError) as e:
        Transition(**(dict(mid="m", from_="ACTIVE", to="HISTORY", reason="RESOLVED") | fields))
    assert e.value.field == field


# ---- relations ------------------------------------------------------------------------------------------------

def test_symmetric_relations_have_one_form():
    assert Relation.of("b", "a", "restatement") == Relation.of("a", "b", "restatement")
    assert Relation.of("b", "a", "causal") != Relation.of("a", "b", "causal")
    with pytest.raises(RecordError, match="symmetric"):
        relations.check_stored_form(Relation(relations.relation_id("b", "a", "restatement"), "b", "a", "restatement"),
                                    relations.DEFAULT)


@pytest.mark.parametrize("make", [
    lambda: Relation.of("a", "a", "causal"), lambda: Relation.of("a", "b", "NONE"),
    lambda: Relation.of("a", "b", "causal", confidence=2), lambda: Relation.of("a", "b", "causal", origin="MODEL"),
    lambda: Relation("r1", "a", "b", "causal"), lambda: RelationTable((RelationType("NONE"),)),
    lambda: RelationTable((RelationType("x"), RelationType("x"))),
])
def test_relations_are_strict(make):
    with pytest.raises(RecordError):
        make()


def test_the_paper_has_seven_types():
    names = [t.name for t in relations.DEFAULT.types]
    assert names == ["restatement", "same_condition_thread", "drug_interaction", "systemic_link", "causal",
                     "treatment_for", "monitoring_for"]
    assert {t.name for t in relations.DEFAULT.types if t.archive_admissible} == {
        "restatement", "same_condition_thread", "treatment_for", "monitoring_for"}


def test_a_relation_knows_its_other_end():
    near = Relation.of("a", "b", "restatement")
    assert near.other("a") == "b" and near.other("b") == "a"


# ---- commits --------------------------------------------------------------------------------------------------

def test_a_commit_is_of_one_patient():
    with pytest.raises(RecordError, match=r"entries\[0\].patient_id"):
        commit(0, [entry("x", patient="p2")])
    with pytest.raises(RecordError, match=r"memories\[0\].patient_id"):
        commit(0, [], [memory(entry("x", patient="p2"))])


@pytest.mark.parametrize("fields", [
    dict(patient_id=""), dict(expected_version=-1), dict(expected_version=True), dict(entries="x"),
    dict(entries=("x",)), dict(counters={"x": -1}), dict(model_hashes={"x": 3}), dict(transitions=({},)),
])
def test_commits_are_strict(fields):
    with pytest.raises(RecordError):
        Commit(**(dict(patient_id="p1", expected_version=0) | fields))


def test_an_update_survives_the_journal():
    e = entry("again lisinopril 10 mg daily")
    update = Update.of(commit(
        4, [e], [M], transitions=[archive("x", "RESOLVED", decided_by="model:C1 RESOLVED")],
        relations=[Relation.of("a", "b", "causal")], confirmations=[Confirmation("x", [Provenance.of(e, 0, 5)])],
        marks=[Mark("x", set())], statuses=[Status(E.entry_key, "complete")], counters={"blocked_no_relation": 2},
        model_hashes={"linker": "abc"}))
    assert update.memories[0].update_seq == update.relations[0].update_seq == 5 and update.transitions[0].tid == "t5.0"
    body = json.loads(canonical.dumps(to_body(update)))
    assert from_body("p1", 5, body) == update
    with pytest.raises(RecordError, match="unknown"):
        from_body("p1", 5, body | {"extra": 1})
