"""A small hospital in MIMIC-IV's columns, invented for the tests, and states that remember what was told."""
from __future__ import annotations

import csv
import gzip
import pathlib
import random

from stam_jax.config import WriteConfig
from stam_jax.graph.state import State
from stam_jax.graph.update import Commit, Update
from stam_jax.readers.rendered import Rendered
from stam_jax.write.normalise import normalise

_ORDER = ("subject_id,hadm_id,pharmacy_id,starttime,stoptime,drug_type,drug,dose_val_rx,dose_unit_rx,doses_per_24_hrs,"
          "route")
TABLES = {
    "patients": "subject_id,gender,anchor_age,anchor_year,dod\n20000001,F,61,2015,2019-01-01\n20000002,M,40,2016,\n",
    "admissions": (
        "subject_id,hadm_id,admittime,dischtime,admission_type,admission_location,discharge_location,insurance\n"
        "20000001,101,2015-03-01 10:00:00,2015-03-05 12:30:00,URGENT,EMERGENCY ROOM,HOME,Medicaid\n"
        "20000001,102,2016-01-10 08:00:00,2016-01-12 09:00:00,ELECTIVE,PHYSICIAN REFERRAL,REHAB,Medicare\n"
        "20000002,103,2016-06-01 00:00:00,2016-06-02 00:00:00,EW EMER.,EMERGENCY ROOM,HOME,Other\n"),
    "diagnoses_icd": (
        "subject_id,hadm_id,seq_num,icd_code,icd_version\n"
        "20000001,101,1,401.9,9\n20000001,101,2,250.00,9\n20000001,102,1,I10,10\n20000002,103,1,J18.9,10\n"),
    "prescriptions": _ORDER + (
        "\n20000001,101,11,2015-03-01 12:00:00,2015-03-03 12:00:00,MAIN,Lisinopril,5,mg,1,PO"
        "\n20000001,101,12,2015-03-03 12:00:00,2015-03-05 12:00:00,MAIN,Lisinopril,10,mg,1,PO"
        "\n20000001,101,13,2015-03-01 12:00:00,2015-03-02 12:00:00,BASE,0.9% Sodium Chloride,1000,mL,,IV"
        "\n20000001,101,14,2015-03-01 12:00:00,2015-03-02 12:00:00,BASE,0.9% Sodium Chloride,1000,mL,,IV"
        "\n20000001,102,15,2016-01-10 12:00:00,2016-01-12 08:00:00,MAIN,Lisinopril,20,mg,2,PO"
        "\n20000001,102,16,2016-01-10 13:00:00,2016-01-12 08:00:00,MAIN,Insulin (Regular),2-4,UNIT,,SC"
        "\n20000002,103,17,2016-06-01 10:00:00,2016-06-01 09:00:00,MAIN,Ceftriaxone,1,g,1,IV"
        "\n20000002,103,18,2016-06-01 11:00:00,2016-06-01 12:00:00,MAIN,Sodium Chloride,1,g,1,PO\n"),
    "omr": (
        "subject_id,chartdate,seq_num,result_name,result_value\n20000001,2015-02-01,1,Weight (Lbs),150\n"
        "20000001,2015-04-01,1,Weight (Lbs),145.5\n20000001,2015-04-01,1,Blood Pressure,132/98\n"
        "20000001,2016-02-01,1,Weight (Lbs),150\n"),
    "microbiologyevents": (
        "microevent_id,subject_id,hadm_id,chartdate,charttime,storetime,spec_type_desc,test_name,org_name,ab_name,"
        "interpretation,dilution_text,comments\n"
        "1,20000001,101,2015-03-02 00:00:00,2015-03-02 09:00:00,2015-03-04 10:00:00,URINE,URINE CULTURE,"
        "ESCHERICHIA COLI,CEFTRIAXONE,S,<=1,\n"
        "2,20000001,102,2016-01-11 00:00:00,,2016-01-13 10:00:00,URINE,URINE CULTURE,,,,,"
        "\"NO GROWTH.\nFINAL; SEE NOTE.\"\n"),
    "transfers": (
        "subject_id,hadm_id,transfer_id,eventtype,careunit,intime,outtime\n"
        "20000001,101,1,ED,Emergency Department,2015-03-01 08:00:00,2015-03-01 10:00:00\n"
        "20000001,101,2,admit,Medical Intensive Care Unit (MICU),2015-03-01 10:00:00,2015-03-02 10:00:00\n"
        "20000001,101,3,transfer,Surgical Intensive Care Unit (SICU),2015-03-02 10:00:00,2015-03-03 10:00:00\n"
        "20000001,101,4,transfer,Medicine,2015-03-03 10:00:00,2015-03-04 10:00:00\n"
        "20000001,101,5,transfer,Coronary Care Unit (CCU),2015-03-04 10:00:00,2015-03-05 12:30:00\n"
        "20000001,101,6,discharge,,2015-03-05 12:30:00,\n"),
    "services": (
        "subject_id,hadm_id,transfertime,prev_service,curr_service\n20000001,101,2015-03-01 10:01:07,,MED\n"
        "20000001,101,2015-03-04 11:00:00,MED,CMED\n20000001,102,2016-01-10 08:00:01,,SURG\n"),
    "labevents": (
        "labevent_id,subject_id,hadm_id,itemid,charttime,storetime,value,valueuom,ref_range_lower,ref_range_upper,"
        "flag\n"
        "1,20000001,101,50971,2015-03-01 11:00:00,2015-03-01 12:00:00,5.9,mEq/L,3.3,5.1,abnormal\n"
        "2,20000001,101,50971,2015-03-02 11:00:00,2015-03-02 12:00:00,4.4,mEq/L,3.3,5.1,\n"),
    "d_icd_diagnoses": (
        "icd_code,icd_version,long_title\n4019,9,Unspecified essential hypertension\n"
        "25000,9,\"Diabetes mellitus, type II\"\nI10,10,Essential (primary) hypertension\nJ189,10,Pneumonia\n"),
    "d_labitems": "itemid,label,fluid\n50971,Potassium,Blood\n",
}


def folder(path: pathlib.Path, *, shuffled: int | None = None, **changed: str) -> pathlib.Path:
    """Writes the tables; `changed` replaces some. shuffled: a seed for another order of the rows."""
    (path / "hosp").mkdir(parents=True, exist_ok=True)
    for name, text in {**TABLES, **changed}.items():
        if shuffled is not None:
            head, *rows = csv.reader(text.splitlines(keepends=True))
            random.Random(shuffled).shuffle(rows)
            out = [head, *rows]
            with gzip.open(path / "hosp" / f"{name}.csv.gz", "wt", encoding="utf-8", newline="") as f:
                csv.writer(f).writerows(out)
        else:
            (path / "hosp" / f"{name}.csv").write_text(text, encoding="utf-8")
    return path


def remembered(record: list[Rendered]) -> State:
    """The state of one patient that keeps every draft as it comes, in ACTIVE."""
    state = State(record[0].entry.patient_id)
    for item in record:
        news, counters = normalise(item.entry, item.extraction, WriteConfig())
        assert not counters.keys() & {"duplicate_draft", "draft_over_limit", "bad_draft", "quote_not_found"}, counters
        state = state.apply(Update.of(Commit(state.patient_id, state.version, (item.entry,), tuple(news))))
    return state
