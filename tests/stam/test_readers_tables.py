"""MIMIC-IV tables as rendered entries: every row is told once, in words that can be read back, on the day it was
known."""
from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from table_cases import TABLES, folder, remembered

from core_jax.readers.table import blocks, find
from core_jax.records import RecordError
from stam_jax.graph.clinical_time import ClinicalTime
from stam_jax.readers import tables
from stam_jax.readers.rendered import CHUNK, Line, Rendered, render, row_of
from stam_jax.readers.table_sentences import SENTENCES, copy, parse, write
from stam_jax.write.writer import Draft, Extraction


def _by_source(path, **kw) -> dict[tuple[str, str], Rendered]:
    return {(r.entry.patient_id, r.entry.source_id): r for r in tables.read(path, **kw)}


def test_an_order_is_a_dose_with_its_dates_and_leads_back_to_its_row(tmp_path):
    found = _by_source(folder(tmp_path))["20000001", "hosp/prescriptions/2016-01-10"]
    assert (found.entry.date, found.entry.kind, found.entry.author_role) == ("2016-01-10", "prescriptions", "system")
    draft = next(d for d in found.extraction.drafts if d.concept == "lisinopril")
    assert (draft.kind, draft.attribute, draft.value, draft.unit) == ("STATE", "dose", "20 mg bid", "mg")
    assert draft.quote == ("Prescribed Lisinopril; dose 20 mg; route PO; doses in 24 hours 2; from 2016-01-10 12:00; "
                           "to 2016-01-12 08:00; part MAIN; stay 102.")
    assert row_of(found.entry, draft.span[1]) == "prescriptions/15"
    assert row_of(found.entry, draft.span[1] - 1) is None
    state = remembered([found])
    memory = next(m for m in state.memories.values() if m.concept == "lisinopril")
    assert memory.clinical_time == ClinicalTime("2016-01-10", "2016-01-13", True, "explicit")


def test_carriers_are_background_and_equal_rows_stay_apart(tmp_path):
    found = _by_source(folder(tmp_path))["20000001", "hosp/prescriptions/2015-03-01"]
    carriers = [d for d in found.extraction.drafts if d.concept == "0.9% sodium chloride"]
    assert [(d.kind, d.attribute, d.value) for d in carriers] == [("BACKGROUND", "background", None)] * 2
    assert carriers[1].quote == copy(carriers[0].quote, 2)
    assert parse(carriers[1].quote) == parse(carriers[0].quote)
    assert [row_of(found.entry, d.span[1]) for d in carriers] == ["prescriptions/13", "prescriptions/14"]
    assert len(remembered([found]).memories) == len(found.extraction.drafts) == 3


def test_an_end_before_the_start_is_no_interval(tmp_path):
    found = _by_source(folder(tmp_path))["20000002", "hosp/prescriptions/2016-06-01"]
    assert found.extraction.drafts[0].time == "from 2016-06-01 to 2016-06-01"
    later = TABLES["prescriptions"].replace("2016-06-01 09:00:00", "2016-05-30 09:00:00")
    found = _by_source(folder(tmp_path, prescriptions=later))["20000002", "hosp/prescriptions/2016-06-01"]
    assert found.extraction.drafts[0].time == "2016-06-01"


def test_facts_are_told_when_they_are_known_and_dated_when_they_held(tmp_path):
    found = _by_source(folder(tmp_path))
    culture = found["20000001", "hosp/microbiologyevents/2015-03-04"]  # stored two days after it was taken
    draft = culture.extraction.drafts[0]
    assert draft.time == "2015-03-02"
    assert (draft.concept, draft.value) == ("escherichia coli against ceftriaxone", "sensitive")
    assert found["20000001", "hosp/diagnoses_icd/2015-03-05"].extraction.drafts[0].time == "2015-03-05"
    assert found["20000001", "hosp/patients/undated"].entry.date is None
    assert ("20000001", "hosp/admissions/2015-03-01") in found and ("20000001", "hosp/admissions/2015-03-05") in found
    dates = [e.entry.date or "" for (p, _), e in found.items() if p == "20000001"]
    assert dates == sorted(dates)


def test_other_tables(tmp_path):
    drafts = {(d.concept, d.value, d.unit) for r in tables.read(folder(tmp_path)) for d in r.extraction.drafts}
    assert {("weight", "145.5", "lb"), ("blood pressure", "132/98", "mmhg"), ("potassium", "5.9", "meq/l"),
            ("care unit", "none", None), ("hospital service", "CMED", None), ("insurance", "Medicare", None),
            ("sex", "F", None), ("essential (primary) hypertension", None, None)} <= drafts
    said = " ".join(r.entry.text for r in tables.read(tmp_path))
    assert "normal range 3.3 to 5.1" in said and "remark NO GROWTH. FINAL; SEE NOTE." in said
    assert "2019-01-01" not in said  # dod


def test_every_row_of_every_table_is_told_and_nothing_depends_on_their_order(tmp_path):
    first = list(tables.read(folder(tmp_path / "a")))
    for seed in (3, 5):
        assert first == list(tables.read(folder(tmp_path / f"shuffled {seed}", shuffled=seed)))
    _whole(tmp_path / "a", first)


def _whole(path, record: list[Rendered]) -> None:
    """Every row is told, its words give it back, and memories of it keep all of them."""
    told = defaultdict(list)
    for r in record:
        for d in r.extraction.drafts:
            kind, fields = parse(d.quote)
            name = row_of(r.entry, d.span[1])
            said = write(kind, fields)
            assert d.quote == said or d.quote == copy(said, int(d.quote.rsplit(" ", 1)[1][:-1]))
            told[r.entry.patient_id, name].append(kind)
    for table, (columns, _) in tables.TABLES.items():
        if (file := find(path, "hosp", table, required=False)) is None:
            continue
        rows = defaultdict(list)
        for _, (subjects, *cells) in blocks(file, ("subject_id", *columns)):
            for subject, *values in zip(subjects, *cells, strict=True):
                rows[subject].append(dict(zip(columns, values)))
        for subject, of in rows.items():
            names = tables.names(table, of)
            assert len(set(names)) == len(names)
            assert all(told[subject, name] for name in names), (subject, table)


def test_subjects_counts_and_strangers(tmp_path):
    path = folder(tmp_path, omr=TABLES["omr"] + "99,2015-01-01,1,Weight (Lbs),1\n20000002,,1,Weight (Lbs),70\n")
    counts = Counter()
    record = list(tables.read(path, counts=counts))
    assert counts == {"rows_of_unknown_subject": 1, "omr_without_time": 1}
    assert [r.entry.date for r in record if r.entry.source_id == "hosp/omr/undated"] == [None]
    assert {r.entry.patient_id for r in tables.read(path, ["20000002"])} == {"20000002"}
    with pytest.raises(RecordError, match="no such subject: 7"):
        list(tables.read(path, ["7"]))


@pytest.mark.parametrize(("table", "old", "new", "line", "field"), [
    ("admissions", "2016-01-10 08:00:00", "yesterday", 3, "admittime"),
    ("prescriptions", "2015-03-03 12:00:00,2015-03-05 12:00:00", "2015-03-03 12:00:00,2015-13-05", 3, "stoptime"),
    ("diagnoses_icd", "I10,10", "I10,11", 4, "icd_version"),
    ("labevents", "2,20000001,101,50971", "2,20000001,101,1", 3, "itemid"),
    ("services", "transfertime", "time", 1, "transfertime"),
])
def test_errors_name_file_row_and_column(tmp_path, table, old, new, line, field):
    path = folder(tmp_path, **{table: TABLES[table].replace(old, new)})
    with pytest.raises(RecordError) as e:
        list(tables.read(path))
    assert (e.value.file, e.value.line, e.value.field) == (str(path / "hosp" / f"{table}.csv"), line, field)


def test_sentences_give_their_fields_back_with_any_part_missing():
    for kind, parts in SENTENCES.items():
        full = {name: f"{name} 1.5 (x), y" for _, name in parts}
        for missing in [None, *list(full)[1:]]:
            fields = {n: "" if n == missing else v for n, v in full.items()}
            assert parse(write(kind, fields)) == (kind, fields)
    assert parse("Prescribed by a doctor") is None and parse("He was seen.") is None


def test_long_entries_are_cut_into_chunks_of_lines():
    draft = Draft("x", "x", concept="c", attribute="status")
    lines = [Line(f"Line {i}.", f"t/{i}", (draft,)) for i in range(2 * CHUNK + 1)]
    found = render("p", "s", "k", lines, date=None)
    assert [d.chunk for d in found.extraction.drafts] == [0] * CHUNK + [1] * CHUNK + [2]
    assert "".join(found.entry.text[a:b] for a, b in found.entry.chunks) == found.entry.text
    for d in found.extraction.drafts:
        first, last = found.entry.chunks[d.chunk]
        assert first <= d.span[0] and d.span[1] <= last
    with pytest.raises(RecordError, match="span"):
        Rendered(found.entry, Extraction((Draft("x", "x", span=(0, 1)),)))
    with pytest.raises(RecordError, match="chunk"):
        Rendered(found.entry, Extraction((Draft("x", "Line", span=(0, 4), chunk=3),)))


@pytest.mark.slow
def test_the_demo_is_told_whole(ehr_data):
    path = ehr_data / "mimic_iv_demo"
    if not path.is_dir():
        pytest.skip("no mimic_iv_demo in the data folder")
    counts = Counter()
    record = list(tables.read(path, counts=counts))
    assert not counts and len({r.entry.patient_id for r in record}) == 100
    assert len({r.entry.entry_key for r in record}) == len(record)
    _whole(path, record)
    assert len(remembered([r for r in record if r.entry.patient_id == record[0].entry.patient_id]).memories) > 100
