"""Deletion: labels, candidates and floors, the scorer, stale calibrations, plan and apply apart, diagnostics."""
import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest
from memory_cases import HEADER, commit, entry, memory, vector

from core_jax.records import RecordError
from stam_jax.deletion import endurance
from stam_jax.deletion import plan as deletion
from stam_jax.deletion.conformal import WARNING, Control, Scored
from stam_jax.deletion.endurance import CandidateRule, concept_type
from stam_jax.deletion.plan import Calibration, StaleCalibration
from stam_jax.deletion.scorer import Example, Scorer, examples, feature_names, parts, split
from stam_jax.graph.relations import DEFAULT, Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import archive, prior
from stam_jax.graph.update import Update
from stam_jax.read import search as read
from stam_jax.storage.store import StaleVersion, Store

RULE = CandidateRule()


# ---- labels -------------------------------------------------------------------------------------------------------

def labels_file(tmp_path, text, encoding="utf-8") -> pathlib.Path:
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_labels_are_read(tmp_path):
    path = labels_file(tmp_path, '\ufeffmid,note,label,patient_id\nm1,"a\nb",safe-to-forget,p 1\n\nm2,,uncertain,p2\n')
    assert endurance.read_labels(path) == {("p 1", "m1"): "safe-to-forget", ("p2", "m2"): "uncertain"}


def test_labels_that_are_written_are_read(tmp_path):
    labels = {("p 1", "m1"): "never-forget", ('a "b", c', "m0"): "uncertain"}
    assert endurance.write_labels(tmp_path / "labels.csv", labels) == 2
    assert endurance.read_labels(tmp_path / "labels.csv") == labels


@pytest.mark.parametrize("text, where", [
    ("patient_id,mid\np,m\n", ":1: label"), ("", ":1: patient_id"), ("patient_id,mid,label,label\n", ":1: label"),
    ("patient_id,mid,label\np,m,never\n", ":2: label.*never-forget"),
    ("patient_id,mid,label\np,,uncertain\n", ":2: mid"), ("patient_id,mid,label\np,m\n", ":2: .*2 values"),
    ("patient_id,mid,label\np,m,uncertain\np,m,uncertain\n", ":3: mid.*twice"),
    ("patient_id,mid,label\n", "has no label"), ('patient_id,mid,label\np,"m,uncertain\n', "CSV")])
def test_bad_labels_are_named_by_file_row_and_field(tmp_path, text, where):
    with pytest.raises(RecordError, match=f"labels.csv.*{where}"):
        endurance.read_labels(labels_file(tmp_path, text))


def test_labels_that_are_no_text(tmp_path):
    with pytest.raises(RecordError, match="UTF-8"):
        endurance.read_labels(labels_file(tmp_path, "patient_id,mid,label\np,m,\xe9\n", "latin-1"))
    with pytest.raises(RecordError, match="no such file"):
        endurance.read_labels(tmp_path / "none.csv")


# ---- candidates ---------------------------------------------------------------------------------------------------

def state_of(*commits) -> State:
    state = State("p1")
    for c in commits:
        state = state.apply(Update.of(c))
    return state


def past(text="was so", **fields):
    e = entry(text)
    return e, memory(e, text=text, store="HISTORY", **fields)


@pytest.mark.parametrize("fields, kept", [
    (dict(concept="penicillin", attribute="allergy"), "allergy"),
    (dict(concept="stent", attribute="procedure"), "surgery"),
    (dict(concept="gout", attribute="status"), "diagnosis"), (dict(concept="stroke", experiencer="FAMILY"), "family"),
    (dict(concept="metformin", attribute="dose", experiencer="FAMILY"), "family"),
    (dict(concept="dry cough", attribute="status"), None), (dict(concept="leg swelling", attribute="status"), None),
    (dict(concept="gout", attribute="status", polarity="NEGATED"), None),
    (dict(concept="lisinopril", attribute="dose"), None)])
def test_floor_classes_are_never_candidates(fields, kept):
    e, m = past(**fields)
    assert endurance.floor(m) == kept
    later = commit(1, [entry("later")])
    state = state_of(commit(0, [e], [m], transitions=[prior(m.mid)]), later)
    assert (RULE.verdicts(state)[m.mid] is None) is (kept is None)
    assert CandidateRule(floors=()).verdicts(state)[m.mid] is None


def test_only_what_has_been_in_history_for_a_while():
    e1, e2 = entry("one"), entry("two")
    one, two = memory(e1), memory(e2)
    state = state_of(commit(0, [e1], [one]), commit(1, [e2], [two], transitions=[
        archive(one.mid, "SUPERSEDED", successor=two.mid)]))
    assert "0 updates ago" in RULE.verdicts(state)[one.mid] and "HISTORY" in RULE.verdicts(state)[two.mid]
    assert CandidateRule(age=0).verdicts(state)[one.mid] is None
    later = state.apply(Update.of(commit(2, [entry("three")])))
    assert RULE.verdicts(later)[one.mid] is None
    assert "1 updates ago" in CandidateRule(age=2).verdicts(later)[one.mid]
    bare = later.apply(Update.of(commit(3)))  # an update without an entry makes nothing older
    assert bare.version == 4 and "1 updates ago" in CandidateRule(age=2).verdicts(bare)[one.mid]


def test_what_an_active_memory_or_an_open_plan_needs_is_kept():
    e = entry("lisinopril was changed from 5 mg to 10 mg; inr every 2 weeks")
    span = "lisinopril was changed from 5 mg to 10 mg"
    old, new = memory(e, span, text="5 mg", store="HISTORY"), memory(e, span, text="10 mg", ordinal=1)
    state = state_of(commit(0, [e], [old, new], transitions=[prior(old.mid, successor=new.mid)]),
                     commit(1, [entry("x")]))
    assert f"shares with {new.mid}" in RULE.verdicts(state)[old.mid]
    other = memory(e, "from 5 mg", text="5 mg", store="HISTORY")
    apart = memory(e, "to 10 mg", text="10 mg", ordinal=1)
    state = state_of(commit(0, [e], [other, apart], transitions=[prior(other.mid)]), commit(1, [entry("x")]))
    assert RULE.verdicts(state)[other.mid] is None
    e2, drug = past("warfarin 5 mg", concept="warfarin", attribute="dose")
    plan = memory(e, "inr every 2 weeks", kind="PLAN", ordinal=2)
    link = Relation.of(plan.mid, drug.mid, "monitoring_for")
    state = state_of(commit(0, [e, e2], [drug, plan], relations=[link], transitions=[prior(drug.mid)]),
                     commit(1, [entry("x")]))
    assert f"open plan {plan.mid}" in RULE.verdicts(state)[drug.mid]
    done = state.apply(Update.of(commit(2, transitions=[archive(plan.mid, "RESOLVED")])))
    assert RULE.verdicts(done)[drug.mid] is None


def test_concept_types():
    named = memory(entry("x"), concept="Type 2  Diabetes", attribute="status")
    assert concept_type(named) == "type 2 diabetes / status"
    assert concept_type(memory(entry("x"), kind="BACKGROUND")) == "* / background"


# ---- scorer -------------------------------------------------------------------------------------------------------

def test_numbers_of_a_memory_are_named_and_right():
    e1, e2, e3 = (entry(t) for t in ("Lisinopril 5 mg", "Lisinopril 10 mg", "hypertension"))
    five = memory(e1, concept="lisinopril", attribute="dose", value="5 mg", unit="mg")
    ten, htn = memory(e2), memory(e3)
    state = state_of(
        commit(0, [e1, e3], [five, htn], relations=[Relation.of(five.mid, htn.mid, "treatment_for")]),
        commit(1, [e2], [ten], transitions=[archive(five.mid, "SUPERSEDED", successor=ten.mid)]),
        commit(2, [entry("x")]), commit(3, [entry("y")]))
    mids = list(state.memories)
    rows = examples(state, (mids, np.stack([vector(m) for m in mids])), RULE)
    e = next(e for e in rows if e.mid == five.mid)
    told = {n: v for n, v in zip(feature_names(DEFAULT), e.numbers, strict=True) if v}
    assert told == {"kind STATE": 1, "polarity AFFIRMED": 1, "reason SUPERSEDED": 1, "slot dose": 1, "has unit": 1,
                    "treatment_for to ACTIVE": 1, "log updates since archived": math.log1p(2),
                    "log length": math.log1p(len(five.text))}
    assert e.deletable and e.in_history and e.group == "dose" and e.label is None
    only = examples(state, (mids, np.stack([vector(m) for m in mids])), RULE, {("p1", ten.mid): "uncertain"})
    assert [(x.mid, x.label) for x in only] == [(ten.mid, "uncertain")]
    with pytest.raises(ValueError, match="has no vector"):
        examples(state, (mids[1:], np.ones((3, 8))), RULE)


def rows_of(n_types: int, seed=0, dim=8, per=3) -> list[Example]:
    """Memories whose embedding tells whether they are safe."""
    rng = np.random.default_rng(seed)
    width = len(feature_names(DEFAULT))
    out = []
    for t in range(n_types):
        for i in range(per):
            safe = bool(rng.random() < 0.5)
            label = "safe-to-forget" if safe else ("never-forget", "uncertain")[i % 2]
            v = rng.normal(size=dim) * 0.3 + (1 if safe else -1)
            numbers = tuple(rng.normal(size=width).tolist())
            out.append(Example(f"p{t % 7}", f"m{t}.{i}", f"type {t}", f"g{t % 2}", True, True, v, numbers, label))
    return out


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer.fit(rows_of(40, seed=1), DEFAULT)


def shifted(rows, by=1000):
    return [dataclasses.replace(e, concept_type=f"type {int(e.concept_type.split()[1]) + by}") for e in rows]


def test_scorer_learns_and_comes_back_from_disk(tmp_path, scorer):
    fresh = rows_of(50, seed=2)
    s = np.array(scorer.score(fresh))
    safe = np.array([e.label == "safe-to-forget" for e in fresh])
    assert s[safe].mean() > 0.9 > 0.1 > s[~safe].mean() and ((0 <= s) & (s <= 1)).all()
    scorer.save(tmp_path / "s.json")
    again = Scorer.load(tmp_path / "s.json")
    assert again == scorer and again.sha256 == scorer.sha256 and again.score(fresh) == scorer.score(fresh)
    assert Scorer.fit(rows_of(40, seed=1), DEFAULT).sha256 == scorer.sha256
    assert len(scorer.components) == 8 and len(scorer.model.weights) == 8 + len(feature_names(DEFAULT))
    assert scorer.score([]) == []
    with pytest.raises(ValueError, match="expected 8"):
        scorer.score(rows_of(1, dim=9))


def test_principal_components_are_scikit_learns():
    pca = pytest.importorskip("sklearn.decomposition").PCA(n_components=4)
    rows = rows_of(40, seed=3, dim=20)
    ours = np.array(Scorer.fit(rows, DEFAULT, components=4).components)
    theirs = pca.fit(np.stack([e.vector for e in rows])).components_
    np.testing.assert_allclose(np.abs((ours * theirs).sum(axis=1)), 1.0, atol=1e-6)
    assert (np.take_along_axis(ours, np.abs(ours).argmax(axis=1)[:, None], axis=1) > 0).all()


def test_scorer_needs_labels_of_history():
    with pytest.raises(ValueError, match="at least 2"):
        Scorer.fit([dataclasses.replace(e, in_history=False) for e in rows_of(5)], DEFAULT)
    with pytest.raises(ValueError, match="no label"):
        Scorer.fit([dataclasses.replace(e, label=None) for e in rows_of(5)], DEFAULT)


@pytest.mark.parametrize("change", [{"schema": "x"}, {"mean": [1.0]}, {"components": [[1.0, None]]}, {"names": "x"},
                                    {"model": None}, {"mean": [10**400]}])
def test_a_bad_scorer_file_is_refused(tmp_path, scorer, change):
    scorer.save(tmp_path / "s.json")
    raw = json.loads((tmp_path / "s.json").read_text()) | change
    (tmp_path / "s.json").write_text(json.dumps(raw))
    with pytest.raises(RecordError, match="s.json"):
        Scorer.load(tmp_path / "s.json")


def test_types_are_split_whole():
    of = split([f"t{i}" for i in range(100)] * 3)
    assert sorted(of) == sorted({f"t{i}" for i in range(100)})
    counts = {part: sum(p == part for p in of.values()) for part in ("train", "calibration", "test")}
    assert counts == {"train": 50, "calibration": 30, "test": 20}
    assert split(of) == of != split(of, seed=1)


def test_parts_by_type_and_by_patient():
    rows = [dataclasses.replace(e, concept_type=f"type {int(e.concept_type[5:]) % 9}", patient_id=f"p{i % 20}")
            for i, e in enumerate(rows_of(60))]
    by_type = parts(rows)
    assert {e.concept_type for own in by_type.values() for e in own} == {f"type {i}" for i in range(9)}
    kinds = [{e.concept_type for e in own} for own in by_type.values()]
    assert all(kinds) and not (kinds[0] & kinds[1] or kinds[0] & kinds[2] or kinds[1] & kinds[2])
    by_patient = parts(rows, "patient")
    people = [{e.patient_id for e in own} for own in by_patient.values()]
    assert [len(p) for p in people] == [10, 6, 4] and len(set.union(*people)) == 20
    assert sum(map(len, by_patient.values())) == len(rows)
    types = {(e.patient_id, e.mid): e.concept_type for e in rows}
    units = {(e.patient_id, types[e.patient_id, e.mid]): e.concept_type for own in by_patient.values() for e in own}
    assert len(set(units.values())) == len(units) and not any("p1" in u or "type" in u for u in units.values())


# ---- calibration --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def calibration(scorer) -> Calibration:
    return deletion.calibrate(scorer, RULE, shifted(rows_of(150, seed=4)), Control(), "2026-01-01")


def test_a_calibration_is_what_its_rows_say(tmp_path, scorer, calibration):
    assert list(calibration.levels) == ["all"] and 0.1 < calibration.tau("anything") < 1
    assert calibration.levels["all"].types == 150
    calibration.save(tmp_path / "c.json")
    again = Calibration.load(tmp_path / "c.json")
    assert again == calibration and again.id == calibration.id
    bare = dataclasses.replace(calibration, rule=CandidateRule(age=3, floors=()))
    bare.save(tmp_path / "bare.json")
    assert Calibration.load(tmp_path / "bare.json").rule == bare.rule
    later = dataclasses.replace(calibration, date="2027-01-01")
    assert later.id == calibration.id
    assert dataclasses.replace(calibration, control=Control("0.02")).id != calibration.id


def test_a_calibration_whose_rows_were_changed_is_refused(tmp_path, calibration):
    calibration.save(tmp_path / "c.json")
    for change in (lambda r: r["rows"][0].update(label="safe-to-forget"), lambda r: r["rows"].pop(),
                   lambda r: r["levels"].update(all=0.0), lambda r: r["control"].update(alpha="1/2"),
                   lambda r: r.update(scorer_sha256="0" * 64)):
        raw = json.loads((tmp_path / "c.json").read_text())
        change(raw)
        (tmp_path / "d.json").write_text(json.dumps(raw))
        with pytest.raises(StaleCalibration, match="d.json"):
            Calibration.load(tmp_path / "d.json")
    (tmp_path / "d.json").write_text(json.dumps(json.loads((tmp_path / "c.json").read_text()) | {"rule": {"age": 2}}))
    with pytest.raises(StaleCalibration, match="what is a candidate"):
        Calibration.load(tmp_path / "d.json")
    for change in ({"schema": "x"}, {"rows": [1]}, {"date": ""}, {"control": {"alpha": 7}}, {"rule": {"age": -1}}):
        (tmp_path / "d.json").write_text(json.dumps(raw | change))
        with pytest.raises(RecordError, match="d.json"):
            Calibration.load(tmp_path / "d.json")


def test_a_stale_calibration_is_refused(scorer, calibration):
    calibration.check(scorer, RULE)
    for other, rule in ((Scorer.fit(rows_of(40, seed=9), DEFAULT), RULE), (scorer, CandidateRule(age=2)),
                        (scorer, CandidateRule(floors=("allergy",)))):
        with pytest.raises(StaleCalibration, match="made with"):
            calibration.check(other, rule)
        with pytest.raises(StaleCalibration):
            deletion.plan([], other, rule, calibration)


def test_calibration_types_were_not_seen_in_training(scorer):
    with pytest.raises(ValueError, match="seen in training"):
        deletion.calibrate(scorer, RULE, rows_of(150, seed=4), Control(), "2026-01-01")


def test_fewer_than_99_types_delete_nothing(scorer):
    few = deletion.calibrate(scorer, RULE, shifted(rows_of(98, seed=4)), Control(), "2026-01-01")
    assert few.tau("all") == math.inf
    by_group = deletion.calibrate(scorer, RULE, shifted(rows_of(150, seed=4)), Control(groups=True), "2026-01-01")
    assert {g: level.types for g, level in by_group.levels.items()} == {"g0": 75, "g1": 75}
    assert by_group.tau("g0") == by_group.tau("never seen") == math.inf
    enough = deletion.calibrate(scorer, RULE, shifted(rows_of(400, seed=4)), Control(groups=True), "2026-01-01")
    assert enough.tau("g0") < 1 and enough.tau("never seen") == math.inf


def test_reports_carry_the_warning(calibration):
    plan = deletion.Plan("c", {"p1": 3}, 10, 4, ())
    for report in (calibration.report(), plan.report(), deletion.diagnose({("p", "m"): "uncertain"}, ()).report()):
        assert report["warning"] == WARNING and "no single memory" in WARNING
        json.dumps(report, allow_nan=False)
    r = calibration.report()
    assert r["if_nonempty_types_only"]["types"] < 150 == r["levels"]["all"]["types"]
    assert r["if_never_forget_only"]["tau"] <= r["levels"]["all"]["tau"]
    assert r["with_probability_0.9"]["tau"] == "inf" and r["alpha"] == "1/100"


# ---- plan and apply -----------------------------------------------------------------------------------------------

SECRET, KEPT = "humidifier", "metformin"


def patients_in(store: Store, n=3) -> None:
    """In each patient an old humidifier setting, an old dose, and what followed them."""
    for p in (f"p{i}" for i in range(n)):
        texts = (f"{SECRET} at level three", f"{SECRET} at level four", f"{KEPT} 500 mg", f"{KEPT} 850 mg", "nothing")
        e = [entry(t, patient=p, date=f"2024-0{i + 1}-01") for i, t in enumerate(texts)]
        m = [memory(x, text=x.text, concept=x.text.split()[0], attribute=a)
             for x, a in zip(e, ("preference", "preference", "dose", "dose"))]
        store.commit([commit(0, [e[0], e[2]], [m[0], m[2]], patient=p)])
        store.commit([commit(1, [e[1], e[3]], [m[1], m[3]], patient=p, transitions=[
            archive(m[0].mid, "SUPERSEDED", successor=m[1].mid), archive(m[2].mid, "SUPERSEDED", successor=m[3].mid)])])
        store.commit([commit(2, [e[4]], patient=p)])


@pytest.fixture
def gated(tmp_path):
    """(store, its path, scorer that finds preferences safe, calibration at tau 0.5)"""
    path = tmp_path / "store"
    with Store.open(path, encoder=HEADER, check=True) as store:
        patients_in(store)
        states = [read.snapshot(store, p) for p in store.patients()]
        rows = [e for s, v in states for e in examples(s, v, RULE)]
        train = [dataclasses.replace(e, concept_type=f"t{i}", label="safe-to-forget" if e.group == "preference" else
                                     "never-forget") for i, e in enumerate(rows)]
        scorer = Scorer.fit(train, store.table, components=1)
        scored = tuple(Scored(f"c{i}", label, s, True) for i in range(120)
                       for label, s in (("safe-to-forget", 0.5), ("never-forget", 0.4)))
        yield store, path, scorer, Calibration(Control(), scorer.sha256, RULE, scored, "2026-01-01")


def planned(store, scorer, calibration, rule=RULE):
    return deletion.plan((read.snapshot(store, p) for p in store.patients()), scorer, rule, calibration)


def on_disk(path, word: str) -> list[str]:
    return [f.name for f in pathlib.Path(path).rglob("*") if f.is_file() and word.encode() in f.read_bytes()]


def test_a_plan_changes_nothing_and_applying_leaves_no_text(gated):
    store, path, scorer, calibration = gated
    before = [store.state(p).sha256 for p in store.patients()]
    plan = planned(store, scorer, calibration)
    assert [store.state(p).sha256 for p in store.patients()] == before
    assert [p.patient_id for p in plan.proposed] == ["p0", "p1", "p2"]
    assert {p.concept_type for p in plan.proposed} == {f"{SECRET} / preference"}
    assert plan.memories == 12 and plan.candidates == 6 and plan.report()["removed_share"] == 0.25
    assert all(p.score >= p.tau == 0.5 for p in plan.proposed) and on_disk(path, "level three")
    done = deletion.apply(store, plan, scorer, RULE, calibration, calibration_id=calibration.id)
    assert done == {f"p{i}": 4 for i in range(3)} and store.verify() == []
    assert not on_disk(path, "level three") and on_disk(path, "level four") and on_disk(path, f"{KEPT} 500 mg")
    tomb = store.state("p0").tombstones[plan.proposed[0].mid]
    assert (tomb.reason, tomb.calibration_id, tomb.tau, tomb.score) == (
        "CALIBRATED_GATE", calibration.id, 0.5, plan.proposed[0].score)
    move = store.state("p0").transitions[tomb.mid][-1]
    assert move.decided_by == deletion.DECIDED_BY and move.from_ == "HISTORY"
    again = planned(store, scorer, calibration)
    assert again.proposed == () and deletion.apply(store, again, scorer, RULE, calibration,
                                                   calibration_id=calibration.id) == {}


def test_an_apply_that_was_killed_before_it_compacted_is_finished_by_the_next(gated, monkeypatch):
    store, path, scorer, calibration = gated
    plan = planned(store, scorer, calibration)
    with monkeypatch.context() as killed:
        killed.setattr(store, "compact", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            deletion.apply(store, plan, scorer, RULE, calibration, calibration_id=calibration.id)
    assert store.compaction_due
    again = planned(store, scorer, calibration)
    assert deletion.apply(store, again, scorer, RULE, calibration, calibration_id=calibration.id) == {}
    assert not store.compaction_due and not on_disk(path, "level three") and store.verify() == []


def test_apply_refuses_what_was_not_planned_that_way(gated):
    store, path, scorer, calibration = gated
    plan = planned(store, scorer, calibration)
    before = [store.state(p).sha256 for p in store.patients()]
    other = dataclasses.replace(calibration, rows=calibration.rows[:-2])
    active = store.state("p0").active()[0]
    forged = dataclasses.replace(plan.proposed[0], mid=active.mid)
    cheaper = dataclasses.replace(plan.proposed[0], tau=0.1)
    worse = dataclasses.replace(plan.proposed[0], score=0.3)
    for error, the_plan, cal, given in (
            (StaleCalibration, plan, calibration, "c-other"), (StaleCalibration, plan, other, other.id),
            (StaleCalibration, dataclasses.replace(plan, proposed=(cheaper,)), calibration, calibration.id),
            (StaleCalibration, dataclasses.replace(plan, proposed=(worse,)), calibration, calibration.id),
            (ValueError, dataclasses.replace(plan, proposed=(forged,)), calibration, calibration.id)):
        with pytest.raises(error):
            deletion.apply(store, the_plan, scorer, RULE, cal, calibration_id=given)
    with pytest.raises(StaleCalibration):
        deletion.apply(store, plan, scorer, CandidateRule(age=0), calibration, calibration_id=calibration.id)
    old = CandidateRule(age=50)
    strict = dataclasses.replace(calibration, rule=old)
    young = dataclasses.replace(plan, calibration_id=strict.id)
    with pytest.raises(ValueError, match="was archived 1 updates ago"):
        deletion.apply(store, young, scorer, old, strict, calibration_id=strict.id)
    assert [store.state(p).sha256 for p in store.patients()] == before


def test_a_patient_who_went_on_meanwhile_is_planned_again(gated):
    store, path, scorer, calibration = gated
    plan = planned(store, scorer, calibration)
    store.commit([commit(3, [entry("visit", patient="p1")], patient="p1")])
    with pytest.raises(StaleVersion, match="p1"):
        deletion.apply(store, plan, scorer, RULE, calibration, calibration_id=calibration.id)
    assert on_disk(path, "level three") and store.version("p0") == 3
    deletion.apply(store, planned(store, scorer, calibration), scorer, RULE, calibration, calibration_id=calibration.id)
    assert not on_disk(path, "level three")


def test_a_calibration_without_room_deletes_nothing(gated):
    store, _, scorer, calibration = gated
    few = dataclasses.replace(calibration, rows=tuple(r for r in calibration.rows if int(r.concept_type[1:]) < 98))
    assert few.tau("all") == math.inf and planned(store, scorer, few).proposed == ()


# ---- diagnostics --------------------------------------------------------------------------------------------------

def test_diagnostics_of_the_appendix():
    labels = {("p", f"m{i}"): ("safe-to-forget", "never-forget", "uncertain")[i % 3] for i in range(30)}
    gone = [("p", "m0"), ("p", "m3"), ("p", "m6"), ("p", "m1"), ("p", "m2")]
    d = deletion.diagnose(labels, gone)
    assert (d.removed_share, d.safe_precision, d.safe_recall, d.never_loss) == (5 / 30, 0.6, 0.3, 0.1)
    assert d.removed_never == 1
    assert d.removed_share * d.safe_precision / d.safe_recall == pytest.approx(10 / 30)  # what is safe of the store
    nothing = deletion.diagnose(labels, [])
    assert nothing.safe_precision is None and nothing.safe_recall == 0
    with pytest.raises(ValueError, match="no label"):
        deletion.diagnose(labels, [("p", "m99")])


def test_every_criterion_is_judged_on_units_that_did_not_calibrate(scorer, calibration):
    rows = shifted(rows_of(60, seed=5), by=5000)
    rows = [dataclasses.replace(e, deletable=i % 4 > 0) for i, e in enumerate(rows)]
    found = deletion.criteria(calibration, scorer, rows)
    scores, tau = scorer.score(rows), calibration.tau("all")
    gone = [e for e, s in zip(rows, scores) if e.deletable and s >= tau]
    mine = found["calibrated"]
    assert (mine.memories, mine.removed) == (180, len(gone)) and 0 < mine.removed < 135
    assert mine.removed_never == sum(e.label == "never-forget" for e in gone)
    losses = {}
    for e in rows:
        losses.setdefault(e.concept_type, []).append((e.label != "safe-to-forget", e in gone))
    want = [sum(g for p, g in own if p) / max(1, sum(p for p, _ in own)) for own in losses.values()]
    assert mine.mean_loss == pytest.approx(np.mean(want))
    assert found["every_candidate"].removed == 135 and found["all_history"].removed == 180
    assert found["all_history"].never_loss == found["all_history"].safe_recall == 1.0
    level = calibration.others()["if_never_forget_only"]
    assert found["if_never_forget_only"].removed == sum(e.deletable and s >= level.tau for e, s in zip(rows, scores))
    assert set(calibration.others()) < set(found) and set(calibration.others()) < set(calibration.report())
