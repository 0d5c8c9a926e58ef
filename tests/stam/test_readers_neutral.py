"""Neutral patients as entries: notes stay as they are, codes and events are rendered."""
from __future__ import annotations

import json

import pytest
from table_cases import remembered

from core_jax.records import RecordError
from stam_jax.readers import neutral
from stam_jax.readers.rendered import Rendered, row_of

PATIENT = {
    "patient_id": "p1",
    "notes": [{"note_id": "n1", "text": "Takes lisinopril.", "time": "2020-01-02T09:00:00", "type": "clinic"},
              {"note_id": "n0", "text": "Old letter."}],
    "codes": [{"code": "I10", "version": "10", "title": "Essential\n(primary) hypertension", "time": "2020-01-02"},
              {"code": "E119", "version": "10", "title": "Type 2 diabetes"}],
    "events": [{"event_id": "e1", "kind": "lab", "time": "2020-01-02T08:00:00",
                "fields": {"name": "Potassium", "value": "4.1", "unit": "mmol/l"}},
               {"event_id": "e2", "kind": "prescription", "time": "2020-01-01",
                "fields": {"drug": "Aspirin", "route": " "}}],
}


def _file(tmp_path, *patients):
    path = tmp_path / "patients.jsonl"
    path.write_text("\n".join(json.dumps(p) for p in patients), encoding="utf-8")
    return path


def test_notes_codes_and_events_in_the_order_of_their_days(tmp_path):
    found = list(neutral.read(_file(tmp_path, PATIENT)))
    entries = [x.entry if isinstance(x, Rendered) else x for x in found]
    assert [(e.source_id, e.kind, e.date) for e in entries] == [
        ("n0", "note", None), ("codes/undated", "codes", None),
        ("prescription/2020-01-01", "prescription", "2020-01-01"),
        ("codes/2020-01-02", "codes", "2020-01-02"), ("lab/2020-01-02", "lab", "2020-01-02"),
        ("n1", "clinic", "2020-01-02T09:00:00")]
    assert entries[5].text == "Takes lisinopril." and entries[5].author_role == "clinician"
    rendered = [x for x in found if isinstance(x, Rendered)]
    drafts = {d.concept: d for x in rendered for d in x.extraction.drafts}
    assert drafts["essential (primary) hypertension"].time == "2020-01-02" and drafts["type 2 diabetes"].time is None
    lab = drafts["potassium"]
    assert (lab.kind, lab.attribute, lab.value, lab.unit) == ("EVENT", "value", "4.1", "mmol/l")
    assert lab.quote == "Event lab; name Potassium; unit mmol/l; value 4.1; on 2020-01-02."
    assert (drafts["aspirin"].kind, drafts["aspirin"].attribute) == ("BACKGROUND", "background")
    assert row_of(rendered[-1].entry, lab.span[1]) == "events/e1"
    assert len(remembered(rendered).memories) == 4


def test_faults_name_the_place(tmp_path):
    with pytest.raises(RecordError) as e:
        list(neutral.read(_file(tmp_path, PATIENT, {"patient_id": "p2", "notes": [{"note_id": "n"}]})))
    assert (e.value.line, e.value.field) == (2, "notes[0].text")
