"""MIMIC-IV folders: what a record holds, in any row order; faults with file, row and column; the open demo."""
import csv
import gzip
import json
import random
from collections import Counter

import pytest

from core_jax.icd import Titles
from core_jax.readers import mimic_iv
from core_jax.records import RecordError, patient_to_dict, visible

PATIENTS = [
    ["subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod"],
    ["10000002", "F", "60", "2150", "2011 - 2013", "2152-03-01"],
    ["10000001", "M", "30", "2150", "2011 - 2013", ""],
]
ADMISSIONS = [
    ["subject_id", "hadm_id", "admittime", "dischtime", "deathtime", "admission_type", "discharge_location",
     "hospital_expire_flag"],
    ["10000002", "22", "2151-05-01 08:00:00", "2151-05-09 12:00:00", "", "EW EMER.", "HOSPICE", "0"],
    ["10000002", "21", "2150-01-01 08:00:00", "2150-01-03 12:00:00", "", "URGENT", "HOME", "0"],
    ["10000001", "11", "2150-01-05 08:00:00", "2150-01-04 12:00:00", "", "URGENT", "DIED", "1"],
]
DIAGNOSES = [
    ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"],
    ["10000002", "22", "2", "I5023", "10"], ["10000002", "22", "1", "I10", "10"], ["10000002", "21", "1", "0010 ", "9"],
    ["10000001", "11", "1", "413.9", "9"],
]
NOTES = [
    ["note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text"],
    ["10000002-DS-21", "10000002", "22", "DS", "21", "2151-05-09 13:45:00", "2151-05-08 00:00:00",
     "later, \"quoted\"\r\nsecond line\n"],
    ["10000002-AD-9", "10000002", "22", "AD", "9", "2151-05-09 00:00:00", "", "addendum"],
    ["10000002-DS-3", "10000002", "21", "DS", "3", "2150-01-03 00:00:00", "", " first "],
]
DRUGS = [
    ["subject_id", "hadm_id", "pharmacy_id", "starttime", "stoptime", "drug_type", "drug", "prod_strength",
     "dose_val_rx", "dose_unit_rx", "doses_per_24_hrs", "route"],
    ["10000002", "22", "7", "2151-05-02 10:00:00", "", "MAIN", "Furosemide", "", "40", "mg", "2", "IV"],
    ["10000002", "22", "7", "2151-05-03 10:00:00", "", "MAIN", "Furosemide", "", "80", "mg", "2", "IV"],
    ["10000002", "22", "8", "2151-05-02 10:00:00", "", "BASE", "Dextrose", "", "1", "BAG", "", "IV"],
    ["10000002", "22", "9", "2151-05-10 10:00:00", "", "MAIN", "Afterwards", "", "1", "mg", "", "PO"],
]
OMR = [
    ["subject_id", "chartdate", "seq_num", "result_name", "result_value"],
    ["10000002", "2151-04-01", "1", "Weight (Lbs)", "150"], ["10000002", "2151-05-05", "1", "Weight (Lbs)", "140"],
    ["10000002", "2151-05-09", "1", "Weight (Lbs)", "99"], ["10000002", "2150-01-02", "1", "Blood Pressure", "120/80"],
]
CULTURES = [
    ["microevent_id", "subject_id", "hadm_id", "chartdate", "charttime", "spec_type_desc", "storetime", "test_name",
     "org_name", "ab_name", "interpretation", "comments"],
    ["1", "10000002", "22", "2151-05-02 00:00:00", "2151-05-02 09:00:00", "URINE", "2151-05-04 09:00:00",
     "URINE CULTURE", "ESCHERICHIA COLI", "AMPICILLIN", "R", ""],
    ["2", "10000002", "22", "2151-05-02 00:00:00", "2151-05-02 09:00:00", "URINE", "2151-05-04 09:00:00",
     "URINE CULTURE", "ESCHERICHIA COLI", "MEROPENEM", "S", "___"],
    ["3", "10000002", "22", "2151-05-08 00:00:00", "2151-05-08 09:00:00", "BLOOD CULTURE", "2151-05-12 09:00:00",
     "Blood Culture", "STAPH AUREUS COAG +", "", "", ""],
    ["4", "10000002", "22", "2151-05-02 00:00:00", "", "SWAB", "", "MRSA SCREEN", "", "", "", "No MRSA isolated.  "],
]
TABLES = {"hosp/patients": PATIENTS, "hosp/admissions": ADMISSIONS, "hosp/diagnoses_icd": DIAGNOSES,
          "note/discharge": NOTES, "hosp/prescriptions": DRUGS, "hosp/omr": OMR, "hosp/microbiologyevents": CULTURES}


def folder(path, *, suffix=".csv.gz", shuffle=None, **tables):
    """A MIMIC-IV folder; keyword "hosp_patients" replaces that table's rows or, as bytes, the whole file."""
    for name, rows in TABLES.items():
        rows = tables.get(name.replace("/", "_"), rows)
        file = path / (name + suffix)
        file.parent.mkdir(exist_ok=True, parents=True)
        if rows is None:
            continue
        if isinstance(rows, bytes):
            file.write_bytes(rows)
            continue
        if shuffle is not None:
            rest = rows[1:]
            random.Random(shuffle).shuffle(rest)
            rows = [rows[0], *rest]
        opener = gzip.open if suffix.endswith("gz") else open
        with opener(file, "wt", encoding="utf-8", newline="") as f:
            csv.writer(f).writerows(rows)
    return path


def replaced(table, row, column, value):
    rows = [list(r) for r in TABLES[table]]
    rows[row][rows[0].index(column)] = value
    return rows


def test_a_record(tmp_path):
    counts = Counter()
    first, second = mimic_iv.read(folder(tmp_path), counts=counts)
    assert [first.patient_id, second.patient_id] == ["10000001", "10000002"], "in the order of ids"
    assert (second.sex, second.birth_date, second.birth_year, second.death_date) == ("F", None, 2090, "2152-03-01")
    assert [(n.note_id, n.time, n.type, n.age_years) for n in second.notes] == [
        ("10000002-DS-3", "2150-01-03T00:00:00", "DS", 60.0),
        ("10000002-AD-9", "2151-05-09T00:00:00", "AD", 61.0), ("10000002-DS-21", "2151-05-09T00:00:00", "DS", 61.0)]
    assert second.notes[2].text == "later, \"quoted\"\r\nsecond line\n", "text is kept to the character"
    assert [(c.obs_id, c.time) for c in second.codes] == [
        ("0010-9", "2150-01-03T12:00:00"), ("I10-10", "2151-05-09T12:00:00"), ("I5023-10", "2151-05-09T12:00:00")]
    assert second.codes[0].title == "Cholera due to vibrio cholerae"
    assert first.codes[0].code == "4139" and first.codes[0].title == "Other and unspecified angina pectoris"
    assert first.encounters[0].end == first.codes[0].time == "2150-01-05T08:00:00", "a stay that ends before it starts"
    assert counts == {"stay_ends_before_it_starts": 1}


def test_events(tmp_path):
    patient = list(mimic_iv.read(folder(tmp_path)))[1]
    assert [e.event_id for e in patient.events if e.kind == "prescription"] == [
        "prescription-7", "prescription-8", "prescription-7-2", "prescription-9"]
    culture = next(e for e in patient.events if e.event_id == "microbiology-3")
    assert culture.time == "2151-05-12T09:00:00", "a result is known from its storetime"
    assert culture.fields["org_name"] == "STAPH AUREUS COAG +" and "comments" not in culture.fields
    seen = visible(patient, "2151-05-09T12:00:00")
    assert "microbiology-3" not in {e.event_id for e in seen.events}
    assert list(mimic_iv.read(tmp_path, events=False))[1].events == ()


@pytest.mark.parametrize("notes", ["discharge", "rendered", "none"])
def test_row_order_and_compression_do_not_matter(tmp_path, notes):
    whole = list(mimic_iv.read(folder(tmp_path / "a"), notes=notes))
    for seed, suffix in enumerate((".csv", ".csv.gz", ".csv", ".csv.gz", ".csv")):
        path = folder(tmp_path / str(seed), shuffle=seed, suffix=suffix)
        assert list(mimic_iv.read(path, notes=notes)) == whole


def test_small_blocks_and_subsets_give_the_same(tmp_path, monkeypatch):
    whole = list(mimic_iv.read(folder(tmp_path)))
    monkeypatch.setattr(mimic_iv, "NOTE_BLOCK", 220)  # bytes: a note or two
    assert list(mimic_iv.read(tmp_path)) == whole
    assert list(mimic_iv.read(tmp_path, subjects={"10000002"})) == whole[1:]
    with pytest.raises(RecordError, match="no such subject: 99"):
        list(mimic_iv.read(tmp_path, subjects={"99"}))


def test_own_titles_come_first_and_unknown_codes_are_named(tmp_path):
    folder(tmp_path, hosp_diagnoses_icd=replaced("hosp/diagnoses_icd", 1, "icd_code", "I109"))
    own = "icd_code,icd_version,long_title\nI10,10,High blood pressure\n"
    (tmp_path / "hosp" / "d_icd_diagnoses.csv").write_text(own)
    second = list(mimic_iv.read(tmp_path))[1]
    assert [c.title for c in second.codes[1:]] == ["High blood pressure", "ICD-10 I109 (no description)"]
    titles = Titles()
    list(mimic_iv.read(tmp_path, titles=titles, notes="rendered"))
    assert titles.unknown == {"I109-10": 1}


# ---- rendered notes -------------------------------------------------------------------------------------------

def test_rendered_note(tmp_path):
    patient = list(mimic_iv.read(folder(tmp_path), notes="rendered"))[1]
    assert [(n.note_id, n.type, n.time) for n in patient.notes] == [
        ("10000002-RN-21", "rendered", "2150-01-03T12:00:00"), ("10000002-RN-22", "rendered", "2151-05-09T12:00:00")]
    assert patient.notes[1].text == """HOSPITAL STAY:
61 year old woman, admitted on 2151-05-01 (ew emergency). The stay ended on 2151-05-09.

DIAGNOSES:
Principal diagnosis: Essential (primary) hypertension.
Acute on chronic systolic (congestive) heart failure.

MEDICATIONS ORDERED:
Furosemide 40 mg IV, 2 a day, from 2151-05-02.

MEASUREMENTS:
Weight (Lbs): 140 on 2151-05-05, 150 on 2151-04-01.

MICROBIOLOGY:
SWAB, MRSA SCREEN, 2151-05-02: No MRSA isolated.
URINE, URINE CULTURE, 2151-05-02: grew ESCHERICHIA COLI, resistant to ampicillin, sensitive to meropenem.
"""


def test_outcomes_are_in_no_record(tmp_path):
    """Whatever stands in an outcome field, nothing a model sees changes."""
    a = list(mimic_iv.read(folder(tmp_path / "a"), notes="rendered"))
    people = [PATIENTS[0], *([*r[:5], ""] for r in PATIENTS[1:])]
    stays = [ADMISSIONS[0], *([*r[:4], "2151-05-09 11:00:00", r[5], "DIED", "1"] for r in ADMISSIONS[1:])]
    b = list(mimic_iv.read(folder(tmp_path / "b", hosp_patients=people, hosp_admissions=stays), notes="rendered"))
    assert [visible(p, "2200-01-01") for p in a] == [visible(p, "2200-01-01") for p in b]
    assert "HOSPICE" not in json.dumps([patient_to_dict(p) for p in a])


def test_index_stays(tmp_path):
    folder(tmp_path)
    assert mimic_iv.read_index_stays(tmp_path) == {
        "10000002": mimic_iv.IndexStay("22", "2151-05-09T12:00:00", False),
        "10000001": mimic_iv.IndexStay("11", "2150-01-05T08:00:00", True)}
    assert set(mimic_iv.read_index_stays(tmp_path, {"10000001"})) == {"10000001"}


@pytest.mark.parametrize("shuffle", range(4))
def test_a_death_among_stays_that_end_together_counts(tmp_path, shuffle):
    rows = [*ADMISSIONS, ["10000002", "23", "2151-05-02 00:00:00", "2151-05-09 12:00:00", "", "URGENT", "", "1"]]
    folder(tmp_path, hosp_admissions=rows, shuffle=shuffle)
    assert mimic_iv.read_index_stays(tmp_path)["10000002"] == mimic_iv.IndexStay("23", "2151-05-09T12:00:00", True)
    counts = Counter()
    list(mimic_iv.read(tmp_path, counts=counts))
    assert counts["stay_overlaps_the_one_before"] == 1


# ---- faults ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("table, row, column, value, said", [
    ("hosp/patients", 1, "subject_id", "", "empty"),
    ("hosp/patients", 2, "subject_id", "10000002", "row 2 already"),
    ("hosp/patients", 1, "anchor_age", "sixty", "sixty"),
    ("hosp/patients", 1, "anchor_year", "", "whole number"),
    ("hosp/patients", 1, "dod", "next year", "next year"),
    ("hosp/patients", 1, "dod", "2001-01-01", "before birth"),
    ("hosp/admissions", 1, "dischtime", "2151-05-32", "2151-05-32"),
    ("hosp/admissions", 1, "hadm_id", "", "empty"),
    ("hosp/admissions", 1, "hadm_id", "21", "duplicate"),
    ("hosp/admissions", 2, "admittime", "2011-01-01", "before birth"),
    ("hosp/diagnoses_icd", 2, "icd_version", "11", "expected 9 or 10"),
    ("hosp/diagnoses_icd", 2, "icd_code", " ", "empty"),
    ("note/discharge", 3, "note_id", "10000002-DS-21", "duplicate"),
    ("note/discharge", 3, "note_id", "", "empty"),
    ("note/discharge", 1, "charttime", "", "expected a date"),
    ("note/discharge", 1, "charttime", "yesterday", "yesterday"),
    ("note/discharge", 1, "charttime", "2001-01-01", "before birth"),
    ("note/discharge", 2, "text", "x\x00y", "NUL"),
    ("hosp/prescriptions", 1, "starttime", "noon", "noon"),
])
def test_a_bad_cell_is_named(tmp_path, table, row, column, value, said):
    folder(tmp_path, **{table.replace("/", "_"): replaced(table, row, column, value)})
    with pytest.raises(RecordError, match=said) as e:
        list(mimic_iv.read(tmp_path))
    assert e.value.file.endswith(table + ".csv.gz")
    assert e.value.field == column
    # a duplicate is found at the second of the two rows
    assert e.value.line == (row + 1 if said != "duplicate" else max(row, 2) + 1)


def test_not_utf8(tmp_path):
    raw = b"subject_id,hadm_id,seq_num,icd_code,icd_version\n10000002,22,1,I10,10\n10000002,22,2,\xff,10\n"
    folder(tmp_path, hosp_diagnoses_icd=gzip.compress(raw))
    with pytest.raises(RecordError, match="not valid UTF-8") as e:
        list(mimic_iv.read(tmp_path))
    assert (e.value.line, e.value.field) == (3, "icd_code")


def packed(raw: bytes) -> bytes:
    # mtime=0: the bytes stand in the tests' names, and two workers must collect the same names
    return gzip.compress(raw, mtime=0)


@pytest.mark.parametrize("raw, said", [
    (b"", "empty file"), (packed(b""), "empty file"), (b"not gzip", "gzip"),
    (packed(b"note_id,text\n" + b"a,b\n" * 1000)[:-10], "missing column|gzip"),
    (packed(b"note_id,subject_id\n"), "missing column"),
    (packed(b"note_id,note_id,subject_id,hadm_id,note_type,charttime,text\n"), "stands twice"),
    (packed(b"\xff\xfe,b\n1,2\n"), "UTF-8"),
    (packed(b"note_id,subject_id,hadm_id,note_type,charttime,text\na,10000002\n"), "Expected 6 columns, got 2"),
    (packed(b'note_id,subject_id,hadm_id,note_type,charttime,text\na,10000002,22,DS,2151-05-09,"no end\n'),
     "ends inside a quoted value"),
    (packed(b'note_id,subject_id,hadm_id,note_type,charttime,text\na,10000002,22,"DS,2151-05-09,no end\n'),
     "got 4"),
])
def test_a_bad_file_is_named(tmp_path, raw, said):
    folder(tmp_path, note_discharge=raw)
    with pytest.raises(RecordError, match=said) as e:
        list(mimic_iv.read(tmp_path))
    assert e.value.file.endswith("note/discharge.csv.gz")


def test_columns_that_nobody_asked_for_may_hold_anything(tmp_path):
    """pyarrow guesses types from the first block: a later value must not fail because of it."""
    rows = [*(f"n{i},10000002,22,DS,2151-05-09,x,{i if i < 9000 else 'odd'}" for i in range(9001))]
    raw = "note_id,subject_id,hadm_id,note_type,charttime,text,extra\n" + "\n".join(rows) + "\n"
    folder(tmp_path, note_discharge=gzip.compress(raw.encode()))
    assert len(list(mimic_iv.read(tmp_path))[1].notes) == 9001


def test_a_truncated_file(tmp_path):
    rows = "".join(f"n{i},10000002,22,DS,2151-05-09,{random.Random(i).random()}\n" for i in range(20_000))
    raw = gzip.compress(("note_id,subject_id,hadm_id,note_type,charttime,text\n" + rows).encode())
    folder(tmp_path, note_discharge=raw[:-100])
    with pytest.raises(RecordError, match="truncated or corrupt gzip"):
        list(mimic_iv.read(tmp_path))


def test_a_row_with_too_few_values_has_its_number(tmp_path):
    header, row = "note_id,subject_id,hadm_id,note_type,charttime,text\n", 'n,10000002,22,DS,2151-05-09,"a\nb"\n'
    folder(tmp_path, note_discharge=gzip.compress((header + row * 3 + "short,1\n").encode()))
    with pytest.raises(RecordError, match="Expected 6 columns") as e:
        list(mimic_iv.read(tmp_path))
    assert e.value.line == 5, "the fifth row, whatever lines it stands on"


def test_a_missing_table_is_named(tmp_path):
    folder(tmp_path, note_discharge=None)
    with pytest.raises(RecordError, match="no such table") as e:
        list(mimic_iv.read(tmp_path))
    assert e.value.file.endswith("note/discharge")
    assert len(list(mimic_iv.read(tmp_path, notes="none"))) == 2
    with pytest.raises(ValueError, match="notes: got 'all'"):
        list(mimic_iv.read(tmp_path, notes="all"))


def test_a_bad_flag(tmp_path):
    folder(tmp_path, hosp_admissions=replaced("hosp/admissions", 2, "hospital_expire_flag", "yes"))
    with pytest.raises(RecordError, match="expected 0 or 1") as e:
        mimic_iv.read_index_stays(tmp_path)
    assert (e.value.line, e.value.field) == (3, "hospital_expire_flag")


def test_oddities_are_counted(tmp_path):
    counts = Counter()
    stray = [["10000002", "77", "1", "I10", "10"], ["5", "77", "1", "I10", "10"]]
    folder(tmp_path, hosp_diagnoses_icd=[*DIAGNOSES, *stray],
           note_discharge=[*NOTES, ["x", "10000002", "77", "DS", "1", "2151-05-09", "", " "]],
           hosp_admissions=replaced("hosp/admissions", 1, "dischtime", ""))
    patient = list(mimic_iv.read(tmp_path, counts=counts))[1]
    assert counts == {"stay_ends_before_it_starts": 1, "stay_without_end": 1, "code_of_unknown_stay": 1,
                      "note_of_unknown_stay": 1, "blank_note": 1, "rows_of_unknown_subject": 1}
    assert sum(c.time is None for c in patient.codes) == 3, "known, but not from when"


# ---- the open demo, and a file of full size -------------------------------------------------------------------

@pytest.fixture(scope="module")
def demo(ehr_data):
    path = ehr_data / "mimic_iv_demo"
    if not (path / "hosp").is_dir():
        pytest.skip("no MIMIC-IV demo in the data folder")
    return path


def test_the_open_demo(demo):
    counts, titles = Counter(), Titles()
    patients = list(mimic_iv.read(demo, notes="rendered", counts=counts, titles=titles))
    assert len(patients) == 100 and not counts
    assert sum(len(p.encounters) for p in patients) == sum(len(p.notes) for p in patients) == 275
    assert sum(len(p.codes) for p in patients) == 4506
    assert Counter(e.kind for p in patients for e in p.events) == {
        "prescription": 18087, "measurement": 2964, "microbiology": 2899}
    assert len(titles.unknown) == 5
    assert all("." not in c.code for p in patients for c in p.codes)
    assert all(n.text.count("\n") >= 4 for p in patients for n in p.notes)


@pytest.mark.slow
def test_a_note_file_of_full_size_stays_under_2_gib():
    import full_size_notes

    seen = full_size_notes.measure(3.2)
    assert seen["characters_read"] == seen["note_bytes"] > 3e9 and seen["notes_read"] == seen["notes"]
    assert seen["peak_rss_bytes"] < 2 << 30
