"""MIMIC-QA: every answer and its evidence computed twice, in Python over the rendered record and in SQL over the
tables."""
from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict

import pytest
from table_cases import TABLES, folder, remembered

from stam_jax.baselines.serving import Raw
from stam_jax.benchmarks import mimic_qa, table_memory
from stam_jax.read.packet import Item, Packet
from stam_jax.readers import tables


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = folder(tmp_path_factory.mktemp("hospital"))
    return path, mimic_qa.questions(path, per_patient=60)


def test_answers_that_a_person_can_check(small):
    said = {q.form: (q.answer, q.type, q.rows) for q in small[1] if q.patient_id == "20000001"}
    assert said["last_value", "Weight (Lbs)"][:2] == ("150", "state")
    assert said["first_value", "Weight (Lbs)"] == ("150", "temporal", ("omr/2015-02-01/Weight (Lbs)/1",))
    assert said["highest", "Weight (Lbs)"][2] == ("omr/2015-02-01/Weight (Lbs)/1", "omr/2016-02-01/Weight (Lbs)/1")
    assert said["around", "Weight (Lbs)", "2015-03-01"][0] == "150 before, 145.5 after"
    assert said["last_dose", "lisinopril"] == ("20 mg", "state", ("prescriptions/15",))
    assert said["dose_before", "lisinopril"] == ("10 mg", "temporal", ("prescriptions/12", "prescriptions/15"))
    assert said["stay_dose", "lisinopril", "2015-03-01"][0] == "5 mg"
    assert said["which_stays", "lisinopril"][0] == "in both"
    assert said["which_stays", "insulin (regular)"][0] == "in the last stay only"
    assert said["in_stay", "insulin (regular)", "2015-03-01"] == ("no", "temporal", ())
    assert said["gap", "2015-03-01"][0] == "311 days" and said["stay_days", "2015-03-01"][0] == "4 days"
    assert said["organism", "URINE"][0] == "ESCHERICHIA COLI"
    assert said["susceptible", "ESCHERICHIA COLI", "CEFTRIAXONE"][0] == "sensitive"
    assert said["abnormal", "2015-03-01"] == ("Potassium", "temporal", ("labevents/1",))
    assert said["insurance",][0] == "Medicare" and said["last_service",][0] == "SURG"
    assert said["started_after", "2015-03-05"][0] == "Lisinopril"
    assert said["first_unit", "2015-03-01"][0] == "Surgical Intensive Care Unit (SICU)"
    assert said["principal", "2015-03-01"][0].lower() == "unspecified essential hypertension"
    assert {t.name for t in mimic_qa.TEMPLATES} == {q.form[0] for q in small[1]}


def test_what_has_two_answers_is_not_asked(tmp_path):
    twice = TABLES["omr"] + "20000001,2016-02-01,2,Weight (Lbs),151\n"
    asked = mimic_qa.questions(folder(tmp_path, omr=twice), per_patient=60)
    assert ("last_value", "Weight (Lbs)") not in {q.form for q in asked if q.patient_id == "20000001"}


def test_stays_that_overlap_have_no_gap_between_them(tmp_path):
    early = TABLES["admissions"].replace("2016-01-10 08:00:00", "2015-03-04 08:00:00")
    asked = mimic_qa.questions(folder(tmp_path, admissions=early), per_patient=60)
    assert "stay_days" in {q.form[0] for q in asked} and "gap" not in {q.form[0] for q in asked}


def test_sql_finds_the_same(small):
    path, asked = small
    assert mimic_qa.verify(asked, mimic_qa.Tables(path)) == []


def test_verification_sees_a_wrong_answer_and_wrong_rows(small):
    path, asked = small
    base = mimic_qa.Tables(path)
    for q in asked:
        assert mimic_qa.verify([dataclasses.replace(q, answer="otherwise")], base), q.question_id
        if q.rows:
            assert mimic_qa.verify([dataclasses.replace(q, rows=q.rows[1:])], base), q.question_id


def test_the_memory_of_the_tables_answers_as_the_tables_do(small):
    path, asked = small
    record = defaultdict(list)
    for r in tables.read(path):
        record[r.entry.patient_id].append(r)
    rows = {p: table_memory.rows(remembered(of)) for p, of in record.items()}
    answers = [mimic_qa.answer(q, rows[q.patient_id]) for q in asked]
    got = mimic_qa.score(asked, answers, [[r.row for r in rows[q.patient_id]] for q in asked])
    assert (got.exact, got.f1.macro, got.evidence) == (1.0, 1.0, 1.0)
    for patient, of in record.items():
        assert [dataclasses.replace(r, memory=None) for r in rows[patient]] == table_memory.told(of)
    nothing = mimic_qa.score(asked, [mimic_qa.answer(q, []) for q in asked], [[] for _ in asked])
    assert nothing.evidence == 0.0 and nothing.exact < 0.5
    with pytest.raises(ValueError, match="as many"):
        mimic_qa.score(asked, answers[1:])


def test_whatever_was_served_there_is_an_answer_or_none(small):
    path, asked = small
    rows = table_memory.told(r for r in tables.read(path) if r.entry.patient_id == "20000001")
    draw = random.Random(0)
    for q in asked:
        for share in (0.1, 0.5, 0.9):
            assert isinstance(mimic_qa.answer(q, [r for r in rows if draw.random() < share]), str)


def test_rows_are_read_where_their_whole_sentence_was_served(small):
    path, asked = small
    record = defaultdict(list)
    for r in tables.read(path):
        record[r.entry.patient_id].append(r)
    reader = mimic_qa.RowReader(record, asked)
    own = record["20000001"]
    spans = tuple((r.entry.entry_key, 0, len(r.entry.text)) for r in own)
    assert reader.rows(Raw("raw", (), "", spans=spans)) == table_memory.told(own)
    mine = [q for q in asked if q.patient_id == "20000001"]
    whole = [Raw("raw", (), "", spans=spans)] * len(mine)
    assert [a.text for a in reader.answer([q.text for q in mine], whole)] == [q.answer for q in mine]
    (span, row), entry = table_memory.told_at(own[0])[0], own[0].entry
    start, end = span
    assert reader.rows(Raw("raw", (), "", spans=((entry.entry_key, start, end),))) == [row]
    assert reader.rows(Raw("raw", (), "", spans=((entry.entry_key, start + 1, end),))) == []
    halves = ((entry.entry_key, start, start + 4), (entry.entry_key, start + 4, end))
    assert reader.rows(Raw("raw", (), "", spans=halves)) == [row]
    of_memories = Packet("BOTH", tuple(Item(m, m.store, 0.0) for m in remembered(own).memories.values()), "")
    assert reader.rows(of_memories) == table_memory.told(own)
    with pytest.raises(ValueError, match="expected one of them"):
        mimic_qa.RowReader(record, [mine[0], dataclasses.replace(mine[0], form=("other",))])


@pytest.mark.slow
def test_two_thousand_questions_of_the_demo(ehr_data):
    path = ehr_data / "mimic_iv_demo"
    if not path.is_dir():
        pytest.skip("no mimic_iv_demo in the data folder")
    asked = mimic_qa.questions(path)
    assert len(asked) == 2000 and len({q.question_id for q in asked}) == 2000
    assert set(Counter(q.patient_id for q in asked).values()) == {20}
    assert Counter(q.split for q in asked) == {"train": 1400, "validation": 200, "test": 400}
    of = defaultdict(set)
    for q in asked:
        of[q.patient_id].add(q.split)
    assert all(len(s) == 1 for s in of.values())
    assert 600 < Counter(q.type for q in asked)["state"] < 1400
    assert mimic_qa.verify(asked, mimic_qa.Tables(path)) == []
