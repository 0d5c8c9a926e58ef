"""Rows of MIMIC-IV tables as sentences, and sentences read back: `parse(write(kind, fields))` gives the fields again.

A sentence is a chain of labelled parts; a part whose field is empty is left out, and the first never is. Nothing is
summarised: what stands in the columns that are read stands in the sentence. Rows that say the same are told apart by a
number at the end (`copy`).
"""
from __future__ import annotations

import re

# kind -> (text before the field, field) in order
SENTENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "sex": (("The patient's sex is ", "gender"),),
    "age": (("The patient's age was ", "anchor_age"), (" in ", "anchor_year")),
    "admission": (("Admitted to hospital on ", "admittime"), ("; admission type ", "admission_type"),
                  ("; from ", "admission_location"), ("; stay ", "hadm_id")),
    "insurance": (("Insurance plan ", "insurance"), ("; since ", "admittime"), ("; stay ", "hadm_id")),
    "discharge": (("Discharged from hospital on ", "dischtime"), ("; to ", "discharge_location"),
                  ("; stay ", "hadm_id")),
    "unit": (("Care unit ", "careunit"), ("; event ", "eventtype"), ("; from ", "intime"), ("; to ", "outtime"),
             ("; stay ", "hadm_id")),
    "service": (("Hospital service ", "curr_service"), ("; before ", "prev_service"), ("; from ", "transfertime"),
                ("; stay ", "hadm_id")),
    "order": (("Prescribed ", "drug"), ("; dose ", "dose"), ("; route ", "route"),
              ("; doses in 24 hours ", "doses_per_24_hrs"), ("; from ", "starttime"), ("; to ", "stoptime"),
              ("; part ", "drug_type"), ("; stay ", "hadm_id")),
    "diagnosis": (("Diagnosis ", "title"), ("; code ", "icd_code"), ("; ICD version ", "icd_version"),
                  ("; number ", "seq_num"), ("; known on ", "known"), ("; stay ", "hadm_id")),
    "measurement": (("Measured ", "result_name"), (": ", "result_value"), ("; on ", "chartdate"),
                    ("; number ", "seq_num")),
    "culture": (("Microbiology of ", "spec_type_desc"), ("; test ", "test_name"), ("; taken on ", "taken"),
                ("; grew ", "org_name"), ("; against ", "ab_name"), ("; interpretation ", "interpretation"),
                ("; dilution ", "dilution_text"), ("; remark ", "comments"), ("; stay ", "hadm_id")),
    "lab": (("Laboratory test ", "label"), (": ", "result"), ("; on ", "charttime"), ("; flag ", "flag"),
            ("; normal range ", "range"), ("; specimen ", "fluid"), ("; stay ", "hadm_id")),
}
_PATTERNS = {
    kind: re.compile("".join(
        rf"{re.escape(before)}(?P<{field}>.+?)" if i == 0 else rf"(?:{re.escape(before)}(?P<{field}>.+?))?"
        for i, (before, field) in enumerate(parts)) + r"(?:; copy (?P<copy>\d+))?\.")
    for kind, parts in SENTENCES.items()}


def write(kind: str, fields: dict[str, str]) -> str:
    """The sentence of a row. Line ends inside a field become blanks. Raises: KeyError: an unknown kind, a missing
    field."""
    parts = [(before, " ".join(fields[name].strip().splitlines())) for before, name in SENTENCES[kind]]
    head = [(parts[0][0], parts[0][1] or "unknown")]
    return "".join(before + value for before, value in head + [p for p in parts[1:] if p[1]]) + "."


def copy(sentence: str, number: int) -> str:
    """The sentence of another row that says the same."""
    return f"{sentence.removesuffix('.')}; copy {number}."


def parse(sentence: str) -> tuple[str, dict[str, str]] | None:
    """(kind, fields) of a sentence that `write` made, "" for parts that it lacks; None for any other text."""
    for kind, parts in SENTENCES.items():
        if sentence.startswith(parts[0][0]) and (found := _PATTERNS[kind].fullmatch(sentence)):
            return kind, {name: value or "" for name, value in found.groupdict().items() if name != "copy"}
    return None
