"""Cohorts of F.1 and F.2 at their borders, matching, the split's invariants, tables, the cohort folder."""
import dataclasses
import json
import logging
import os
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.readers import clinosim, mimic_iv
from core_jax.records import Code, Encounter, Label, Note, Patient, RecordError, read_labels, read_patients
from evigen_jax import cohorts as c

TASK = {"name": "mortality", "sentence": "all-cause mortality within 1 year"}


# ---- F.1 ------------------------------------------------------------------------------------------------------

def person(pid="p", ends=("2150-01-01", "2150-03-01", "2150-05-01"), *, born=2100, death=None, notes=3, kinds="DS",
           code=True):
    stays = tuple(Encounter(f"{pid}-{i}", None, e + "T08:00:00", e + "T12:00:00") for i, e in enumerate(ends))
    found = tuple(Note(f"n{i}", "text", ends[0] + "T00:00:00", None, kinds) for i in range(notes))
    codes = (Code("I10", "10", "Hypertension", ends[0] + "T12:00:00"),) if code else ()
    return Patient(pid, birth_year=born, death_date=death, encounters=stays, notes=found, codes=codes)


def build(*people, died=(), **kw):
    stays = {p.patient_id: mimic_iv.IndexStay(p.encounters[-1].encounter_id, p.encounters[-1].end, p.patient_id in died)
             for p in people if p.encounters}
    return c.mimic_mortality(people, stays, **kw)


@pytest.mark.parametrize("death, label", [
    (None, [0]), ("2150-05-01", [1]), ("2151-05-01", [1]), ("2151-05-02", [0]), ("2150-04-30", []),
])
def test_the_year_after_the_last_discharge(death, label):
    labels, attrition = build(person(death=death))
    assert [x.label for x in labels] == label
    excluded = next(r for r in attrition if "excluded" in r)["excluded"]
    assert excluded == ([] if label else ["p"]), "a death before the index is listed, not labelled"
    assert all(x.prediction_time == "2150-05-01T12:00:00" for x in labels)


@pytest.mark.parametrize("change, kept", [
    ({}, True),
    ({"born": 2110}, False),  # 40 at the index
    ({"born": 2109}, True),
    ({"born": None}, False),
    ({"notes": 2}, False),
    ({"notes": 3, "kinds": "AD"}, False),  # addenda are no discharge notes
    ({"ends": ("2150-01-01", "2150-01-02", "2151-08-23")}, True),  # 599 days: 3/599 > 1/200
    ({"ends": ("2150-01-01", "2150-01-02", "2151-08-24")}, False),  # 600 days
    ({"ends": ("2150-01-01",)}, True),  # a span of 0 days counts as 1
])
def test_the_papers_criteria(change, kept):
    p = person(**change)
    assert len(build(p)[0]) == int(kept)
    assert len(build(p, criteria="none")[0]) == 1


def test_attrition_of_the_criteria_that_are_not_applied():
    labels, rows = build(person("a"), person("b", born=2120), Patient("z"), criteria="none")
    assert [x.patient_id for x in labels] == ["a", "b"]
    assert [(r["patients"], r["applied"]) for r in rows] == [
        (3, True), (2, True), (2, True), (2, True), (2, True), (1, False), (1, False), (1, False)]
    text = c.attrition_table(rows)
    assert "age above 40 at the last discharge (not applied)" in text and text.splitlines()[0].split() == [
        "criterion", "patients", "positive"]
    with pytest.raises(ValueError, match="criteria: got 'all'"):
        build(criteria="all")


def test_deaths_in_hospital():
    a, b = person("a", death="2150-05-01"), person("b")
    assert [x.patient_id for x in build(a, b, died={"a"})[0]] == ["b"]
    labels, _ = build(a, b, died={"a"}, keep_in_hospital_deaths=True)
    assert [(x.patient_id, x.label) for x in labels] == [("a", 1), ("b", 0)]


def test_a_patient_without_input_is_left_out():
    labels, rows = build(person("a", notes=0, code=False), person("b", notes=0), criteria="none")
    assert [x.patient_id for x in labels] == ["b"]
    assert [r["patients"] for r in rows[3:5]] == [2, 1]


def test_order_of_patients_does_not_matter():
    people = [person(f"p{i}", death="2150-06-01" if i % 3 else None) for i in range(9)]
    assert build(*people) == build(*people[::-1])


# ---- the clinosim file ----------------------------------------------------------------------------------------

def visitor(pid, ends, birth="1950-01-01", death=None):
    stays = tuple(Encounter(f"e{i}", None, e + "T08:00:00", e + "T09:00:00") for i, e in enumerate(ends))
    return Patient(pid, birth_date=birth, death_date=death, encounters=stays,
                   notes=(Note("n", "x", ends[0] + "T08:00:00"),))


def test_clinosim_index():
    people = [
        visitor("dead", ["2021-01-01", "2022-02-28", "2022-03-01"], death="2022-03-01"),  # the last stay is no index
        visitor("late", ["2021-01-01"], death="2022-01-02"),  # 366 days
        visitor("alive", ["2021-01-01", "2024-12-31", "2025-01-01"]),
        visitor("new", ["2025-06-01", "2025-12-31"]),  # no year of record after any encounter
    ]
    labels, rows = c.clinosim_mortality(people)
    assert [(x.patient_id, x.prediction_time, x.label) for x in labels] == [
        ("alive", "2024-12-31T09:00:00", 0), ("dead", "2022-02-28T09:00:00", 1), ("late", "2021-01-01T09:00:00", 0)]
    assert [r["patients"] for r in rows] == [4, 3, 3]


def test_negatives_matched_on_age():
    dead = [visitor(f"d{i}", ["2021-01-01"], birth=f"19{20 + i}-01-01", death="2021-02-01") for i in (0, 20, 40)]
    alive = [visitor(f"a{i}", ["2021-01-01", "2025-12-31"], birth=f"19{i}-06-01") for i in range(38, 99)]
    labels, rows = c.clinosim_mortality(dead + alive, age_matched=2)
    assert [x.patient_id for x in labels if x.label] == ["d20", "d40"], "1920 finds nobody within five years"
    assert sorted(x.patient_id for x in labels if not x.label) == ["a39", "a40", "a59", "a60"]
    assert rows[1]["age_auc"] > 0.6 and abs(rows[-1]["age_auc"] - 0.5) < 0.13
    with pytest.raises(ValueError, match="age_matched"):
        c.clinosim_mortality([], age_matched=0)


# ---- F.2 ------------------------------------------------------------------------------------------------------

def child(pid="k", birth="2015-03-31", visits=("2015-05-01", "2015-11-01", "2016-05-01"), *, target=None, leak=None,
          kind="well child", last="2019-05-01", sex="F", version="10", code="F84.0"):
    stays = tuple(Encounter(f"v{i}", kind, v + "T09:00:00", v + "T10:00:00") for i, v in enumerate(visits))
    stays += (Encounter("last", "clinic", last + "T09:00:00", last + "T10:00:00"),)
    codes = tuple(Code(code, version, "target", t and t + "T00:00:00") for t in (target, leak) if t)
    return Patient(pid, sex=sex, birth_date=birth, encounters=stays, codes=codes,
                   notes=(Note("n", "seen", visits[0] + "T00:00:00" if visits else last + "T00:00:00"),))


def labels_of(*children, spec=c.AUTISM):
    return {x.patient_id: x.label for x in c.age_cutoff(children, spec)[0]}


@pytest.mark.parametrize("birth, months, day", [
    ("2015-03-31", 18, "2016-09-30"), ("2016-02-29", 12, "2017-02-28"),
    ("2015-12-15", 1, "2016-01-15"), ("2015-01-01", 36, "2018-01-01"),
])
def test_calendar_months(birth, months, day):
    assert c.months_after(birth, months).isoformat() == day


def test_prediction_is_strictly_before_the_cutoff():
    labels, _ = c.age_cutoff([child(target="2018-01-01")], c.AUTISM)
    assert labels == [Label("k", "2016-09-29T23:59:59", 1)]


@pytest.mark.parametrize("change, label", [
    ({}, 1),
    ({"birth": "2013-12-31"}, None),
    ({"birth": None}, None),
    ({"visits": ("2015-05-01", "2016-05-01")}, None),  # none at 6 to 12 months
    ({"visits": ("2015-05-01", "2015-09-30", "2016-03-31")}, 1),  # on the first day of a window
    ({"visits": ("2015-09-30", "2015-11-01", "2016-05-01")}, None),  # the day of 6 months is no more in 0 to 6
    ({"kind": "emergency"}, None),
    ({"kind": "WELL CHILD"}, 1),
    ({"leak": "2016-09-29"}, None),
    ({"leak": "2016-09-30"}, 1),  # at the cutoff: not input, no leak
    ({"code": "F84.2"}, None),  # Rett syndrome: related, but not the target; no negative either
])
def test_who_is_positive(change, label):
    change = {"target": "2018-01-01"} | change
    got = labels_of(child(**change), child("other", target="2018-01-01"))
    assert got.get("k") == label and got["other"] == 1


def test_an_undated_target_code_excludes():
    undated = dataclasses.replace(child("k"), codes=(Code("F840", "10", "t"),))
    assert labels_of(undated, child("other", target="2018-01-01")) == {"other": 1}


def test_visits_by_code():
    plain = child(kind="clinic", target="2018-01-01")
    by_stay = dataclasses.replace(plain, codes=plain.codes + tuple(
        Code("Z00129", "10", "t", "2019-01-01T00:00:00", None, f"v{i}") for i in range(3)))
    by_time = dataclasses.replace(plain, encounters=(), codes=plain.codes + tuple(
        Code("V202", "9", "t", d + "T00:00:00") for d in ("2015-05-01", "2015-11-01", "2016-05-01")))
    for p, kept in ((plain, {}), (by_stay, {"k": 1}), (by_time, {"k": 1})):
        assert labels_of(p) == kept


def test_adhd_spec():
    visits = ("2015-05-01", "2015-11-01", "2016-05-01", "2017-06-01")
    kid = child(visits=visits, target="2020-01-01", code="F90.2", last="2021-01-01")
    labels, _ = c.age_cutoff([kid, child("few", visits=visits[:3], target="2020-01-01", code="F90.2")], c.ADHD)
    assert labels == [Label("k", "2018-03-30T23:59:59", 1)]


def test_negatives_are_matched_on_every_marginal():
    rng = random.Random(0)

    def kid(pid, positive):
        year = rng.choices((2014, 2015, 2016), (1, 2, 7) if positive else (4, 3, 3))[0]
        last = year + rng.choices((3, 4, 5), (1, 1, 2) if positive else (3, 1, 1))[0]
        sex = rng.choices("MF", (4, 1) if positive else (1, 1))[0]
        visits = (f"{year}-04-01", f"{year}-10-01", f"{year + 1}-05-01")
        return child(pid, f"{year}-03-01", visits, last=f"{last}-06-01", sex=sex,
                     target=f"{last}-05-01" if positive else None)

    children = [kid(f"p{i}", True) for i in range(60)] + [kid(f"n{i}", False) for i in range(4000)]
    labels, rows = c.age_cutoff(children, c.AUTISM)
    assert [r["patients"] for r in rows[:-1]] == [4060] * 7
    counts = Counter(x.label for x in labels)
    assert counts[1] == 60 and 0.95 * 300 <= counts[0] <= 300
    assert set(rows[-1]["imbalance"]) == set(c.MATCHED) and max(rows[-1]["imbalance"].values()) < 0.03
    chosen = {x.patient_id for x in labels if not x.label}
    share = sum(p.sex == "M" for p in children if p.patient_id in chosen) / len(chosen)
    assert abs(share - sum(p.sex == "M" for p in children[:60]) / 60) < 0.03
    assert c.age_cutoff(children[::-1], c.AUTISM)[0] == labels, "any order of patients"
    other, _ = c.age_cutoff(children, dataclasses.replace(c.AUTISM, seed=1))
    assert other != labels and Counter(x.label for x in other)[0] == pytest.approx(counts[0], abs=3)


def test_matching_takes_nobody_twice_and_nobody_from_empty_bins():
    pool = [("M", 1)] * 3 + [("F", 1)] * 50 + [("F", 2)] * 50
    drawn, gaps = c.frequency_match([("M", 1), ("F", 1)], pool, [str(i) for i in range(len(pool))], 10, 0)
    assert len(drawn) == len(set(drawn)) and set(drawn[:3]) == {0, 1, 2}, "all three that there are"
    assert all(i < 53 for i in drawn) and len(drawn) == 13
    assert gaps == [pytest.approx(0.5 - 3 / 13, abs=1e-4), 0.0]
    assert c.frequency_match([], pool, [str(i) for i in range(len(pool))], 5, 0)[0] == []
    assert c.frequency_match([("X", 9)], pool, [str(i) for i in range(len(pool))], 5, 0)[0] == []


# ---- split ----------------------------------------------------------------------------------------------------

def some(n, positive):
    return [Label(f"p{i}", "2011-01-01T00:00:00", int(i < positive)) for i in range(n)]


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5), st.randoms())
@settings(max_examples=80, deadline=None)
def test_split_invariants(positive, negative, seed, rng):
    labels = some(positive + negative, positive)
    got = c.split(labels, seed)
    mixed = labels[:]
    rng.shuffle(mixed)
    assert c.split(mixed, seed) == got, "any order of rows"
    assert sorted(x.patient_id for x in got) == sorted(x.patient_id for x in labels)
    for y, n in ((1, positive), (0, negative)):
        sizes = Counter(x.split for x in got if x.label == y)
        assert sum(sizes.values()) == n
        for name, f in zip(c.SPLITS, (0.8, 0.1, 0.1), strict=True):
            assert abs(sizes[name] - f * n) <= 1 + 1e-9, "8:1:1 within one per class"
            assert n < 5 or sizes[name] >= 1


def test_split_depends_on_the_seed_and_a_new_patient_moves_few():
    labels = some(200, 50)
    a, b = c.split(labels, 0), c.split(labels, 1)
    assert a != b
    more = {x.patient_id: x.split for x in c.split(some(201, 50), 0)}
    assert sum(more[x.patient_id] != x.split for x in a) <= 2


@pytest.mark.parametrize("second, said", [
    (Label("p0", "2011-01-01T00:00:00", 0), "contradictory labels for patient 'p0': 1 at 2011-01-01T00:00:00 and 0 at"),
    (Label("p0", "2012-01-01T00:00:00", 1), "two rows for patient 'p0'"),
])
def test_a_patient_has_one_label(second, said):
    with pytest.raises(RecordError, match=said):
        c.split([*some(5, 2), second], 0)


@pytest.mark.parametrize("fractions", [(0.8, 0.1), (0.8, 0.3, 0.1), (1.2, -0.1, -0.1)])
def test_bad_fractions(fractions):
    with pytest.raises(ValueError, match="fractions"):
        c.split(some(5, 2), 0, fractions)


@pytest.mark.parametrize("positive", [0, 5])
def test_one_class_is_an_error_before_training(positive):
    with pytest.raises(RecordError, match=f"train has {positive} positive and {5 - positive} negative"):
        c.require_two_classes(some(5, positive), "train")
    c.require_two_classes(some(5, 2))


# ---- tables ---------------------------------------------------------------------------------------------------

def test_history_lengths():
    p = Patient("p", notes=(Note("a", "one two\nthree"), Note("b", "")),
                codes=(Code("I10", "10", "high blood pressure"), Code("I10", "10", "again"), Code("I10", "9", "other")))
    assert c.history_length(p, c.count_words) == 3 + 3 + 1, "a code once, with its earliest title"
    table = c.history_lengths([p, Patient("q", notes=(Note("a", "x"),))])
    assert table == {"min": 1, "p25": 2.5, "median": 4, "p75": 5.5, "p90": 6.4, "p99": 6.9, "max": 7, "mean": 4}
    assert c.lengths_table(table).splitlines()[0].split()[2:] == list(table)
    with pytest.raises(ValueError, match="lengths"):
        c.history_lengths([])


# ---- the folder -----------------------------------------------------------------------------------------------

PEOPLE = [person(f"p{i}") for i in range(10)]
LABELS = c.split([Label(f"p{i}", "2150-05-01T12:00:00", i % 2) for i in range(9)], 0)
ROWS = [{"criterion": "all", "patients": 9, "positive": 4, "applied": True}]


def write(out, people=PEOPLE, labels=LABELS, **kw):
    return c.write_cohort(out, iter(people), labels, ROWS, source="here", task=TASK, criteria="paper", **kw)


def test_folder_round_trip(tmp_path):
    more = {"notes_rendered": True, "warnings": {"blank_note": 2}, "count": len, "unit": "characters"}
    info = write(tmp_path / "a" / "cohort", **more)
    cohort = c.read_cohort(tmp_path / "a" / "cohort")
    assert cohort.info == info and info["schema"] == "cohort/1" and info["notes_rendered"] is True
    assert info["counts"]["patients"] == 9 and info["counts"]["split"]["train"]["patients"] == 9 - 2
    assert info["warnings"] == {"blank_note": 2} and info["task"] == TASK
    assert cohort.labels == sorted(LABELS, key=lambda x: x.patient_id)
    assert cohort.labels == read_labels(tmp_path / "a/cohort/labels.jsonl")
    assert [p.patient_id for p in cohort.patients()] == [f"p{i}" for i in range(9)], "p9 has no label"
    assert all(p.death_date is None for p in cohort.visible_patients())
    assert sorted(os.listdir(tmp_path / "a")) == ["cohort"], "no temporary neighbour is left"
    assert sorted(os.listdir(tmp_path / "a" / "cohort")) == [
        "attrition.json", "cohort.json", "labels.jsonl", "lengths.json", "patients.jsonl.gz"]
    lengths = json.loads((tmp_path / "a/cohort/lengths.json").read_text())
    assert lengths["unit"] == "characters" and lengths["all"]["max"] == 3 * 4 + len("Hypertension")
    assert set(lengths) == {"unit", "all", "train", "val", "test"}
    assert json.loads((tmp_path / "a/cohort/attrition.json").read_text()) == ROWS


def test_equal_input_gives_equal_bytes(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", labels=LABELS[::-1])
    for name in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_record_keeps_what_lies_after_the_prediction(tmp_path):
    people = [person("p0", death="2150-06-01"), person("p1")]
    labels = [Label("p0", "2150-03-01T12:00:00", 1), Label("p1", "2150-03-01T12:00:00", 0)]
    write(tmp_path / "a", people, labels)
    full = next(read_patients(tmp_path / "a" / "patients.jsonl.gz"))
    assert full.death_date == "2150-06-01" and len(full.encounters) == 3
    assert len(next(c.read_cohort(tmp_path / "a").visible_patients()).encounters) == 2


def interrupted():
    yield PEOPLE[0]
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("kw, error, said", [
    ({"people": PEOPLE[:3]}, RecordError, "6 labelled patients are not among the records: p3"),
    ({"people": [*PEOPLE, PEOPLE[0]]}, RecordError, "comes twice"),
    ({"people": [Patient("p0"), *PEOPLE[1:]]}, RecordError, "no dated note and no dated code"),
    ({"labels": [*LABELS, Label("p0", "2150-05-01T12:00:00", 1)]}, RecordError, "contradictory labels"),
    ({"labels": []}, RecordError, "no patient meets the criteria"),
    ({"people": interrupted()}, OSError, "No space left"),
])
def test_nothing_half_written(tmp_path, kw, error, said):
    with pytest.raises(error, match=said):
        write(tmp_path / "a", **kw)
    assert os.listdir(tmp_path) == []
    write(tmp_path / "a")
    before = {n: (tmp_path / "a" / n).read_bytes() for n in os.listdir(tmp_path / "a")}
    if "people" in kw and not isinstance(kw["people"], list):
        kw = {"people": interrupted()}
    with pytest.raises(error, match=said):
        write(tmp_path / "a", overwrite=True, **kw)
    assert before == {n: (tmp_path / "a" / n).read_bytes() for n in os.listdir(tmp_path / "a")}
    assert os.listdir(tmp_path) == ["a"]


def test_existing_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    with pytest.raises(FileExistsError, match="holds a cohort already"):
        write(tmp_path / "empty")
    (tmp_path / "empty" / "labels.jsonl").write_text("stale")
    write(tmp_path / "empty", overwrite=True)
    assert c.read_cohort(tmp_path / "empty").labels
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="not a cohort folder"):
        write(tmp_path / "full", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="is a file"):
        write(tmp_path / "file")


def test_one_class_is_a_warning_when_written(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        info = write(tmp_path / "a", labels=[dataclasses.replace(x, label=0) for x in LABELS])
    assert "labelled 0" in caplog.text and info["warnings"]["one_class_only"] == 9


def test_reading_a_folder_that_changed(tmp_path):
    with pytest.raises(RecordError, match="no cohort here"):
        c.read_cohort(tmp_path)
    write(tmp_path / "a")
    info = json.loads((tmp_path / "a/cohort.json").read_text())
    for change, said in (({"schema": "cohort/9"}, "cohort/9"), ({"sha256": {}}, "checksums")):
        (tmp_path / "a/cohort.json").write_text(json.dumps(info | change))
        with pytest.raises(RecordError, match=said):
            c.read_cohort(tmp_path / "a")
    for text in ("{", "[]"):
        (tmp_path / "a/cohort.json").write_text(text)
        with pytest.raises(RecordError):
            c.read_cohort(tmp_path / "a")
    (tmp_path / "a/cohort.json").write_text(json.dumps(info))
    (tmp_path / "a/labels.jsonl").write_text("{}")
    with pytest.raises(RecordError, match="changed since") as e:
        c.read_cohort(tmp_path / "a")
    assert e.value.file.endswith("labels.jsonl")
    (tmp_path / "a/labels.jsonl").unlink()
    with pytest.raises(RecordError, match="no such file"):
        c.read_cohort(tmp_path / "a")


# ---- data of others -------------------------------------------------------------------------------------------

def test_the_open_mimic_demo(ehr_data):
    folder = ehr_data / "mimic_iv_demo"
    if not (folder / "hosp").is_dir():
        pytest.skip("no MIMIC-IV demo in the data folder")
    patients, stays = list(mimic_iv.read(folder, notes="rendered", events=False)), mimic_iv.read_index_stays(folder)
    labels, rows = c.mimic_mortality(patients, stays, "none")
    assert (len(labels), sum(x.label for x in labels)) == (85, 16)
    assert [(r["patients"], r["positive"]) for r in rows] == [
        (100, None), (100, 31), (85, 16), (85, 16), (85, 16), (76, 15), (22, 7), (12, 4)]
    labels, _ = c.mimic_mortality(patients, stays, "paper")
    assert (len(labels), sum(x.label for x in labels)) == (12, 4)
    assert len(c.mimic_mortality(patients, stays, "none", True)[0]) == 100


def test_the_clinosim_file(ehr_data):
    files = sorted((ehr_data / "clinosim").glob("*.jsonl.gz"))
    if not files:
        pytest.skip("no clinosim file in the data folder")
    counts = Counter()
    patients = list(clinosim.read(files[0], counts=counts))
    assert len(patients) == 763 and counts["death_certificate"] == 7
    labels, rows = c.clinosim_mortality(patients)
    assert Counter(x.label for x in labels) == {1: 46, 0: 709} and rows[1]["age_auc"] == 0.9143
    matched, rows = c.clinosim_mortality(patients, age_matched=1)
    assert Counter(x.label for x in matched) == {1: 46, 0: 46} and abs(rows[-1]["age_auc"] - 0.5) < 0.02
