"""Plain text and transcripts: what stands in names, headings and turns becomes entries, and faults name their place."""
from __future__ import annotations

import json
from collections import Counter

import pytest

from core_jax.records import RecordError
from stam_jax.readers import chat, text
from stam_jax.write.turns import turns


def test_a_folder_of_patients(tmp_path):
    for name, said in {"P2/2020-01-03_clinic.txt": "b", "P2/2019_letter from school.md": "a", "P2/history.txt": "c",
                       "P1/2020-02.txt": "d", "P1/2020-02-01T08:30:00 ward.txt": "e", "P1/2024ish.txt": "f"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(said, encoding="utf-8")
    (tmp_path / ".hidden").write_text("x", encoding="utf-8")
    found = [(e.patient_id, e.date, e.kind, e.text, e.source_id) for e in text.read(tmp_path)]
    assert found == [
        ("P1", None, "2024ish", "f", "P1/2024ish.txt"), ("P1", "2020-02", "note", "d", "P1/2020-02.txt"),
        ("P1", "2020-02-01T08:30:00", "ward", "e", "P1/2020-02-01T08:30:00 ward.txt"),
        ("P2", None, "history", "c", "P2/history.txt"), 
        ("P2", "2019", "letter from school", "a", "P2/2019_letter from school.md"),
        ("P2", "2020-01-03", "clinic", "b", "P2/2020-01-03_clinic.txt")]


def test_one_file_with_dated_sections(tmp_path):
    file = tmp_path / "P7.txt"
    said = "Born in Ghent.\n\n## 2020-01-03 clinic\nTakes 5 mg.\n2020 was hard\n[2021-02]\n\nNo pain.\n\n2022\n"
    file.write_text(said, encoding="utf-8")
    assert [(e.patient_id, e.date, e.kind, e.text, e.source_id) for e in text.read(file)] == [
        ("P7", None, "note", "Born in Ghent.\n", "P7.txt:1"),
        ("P7", "2020-01-03", "clinic", "Takes 5 mg.\n2020 was hard\n", "P7.txt:3"),
        ("P7", "2021-02", "note", "No pain.\n", "P7.txt:6")]
    assert [e.patient_id for e in text.read(tmp_path)] == ["P7"] * 3  # a file beside folders is a patient too


@pytest.mark.parametrize(("name", "content", "message"), [
    ("P1/2020-13-03_a.txt", b"x", "date: got '2020-13-03'"), ("P1/a.pdf", b"x", "ends in .txt or .md"),
    ("P1.txt", b" \n", "blank file"), ("P1/a.txt", b"\xff", "not valid UTF-8 at byte 0; convert"),
    ("a.csv", b"x", "expected a folder")])
def test_faults_of_text_name_the_file(tmp_path, name, content, message):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordError, match=message) as e:
        list(text.read(tmp_path))
    assert e.value.file == str(tmp_path / name)


def test_faults_of_sections_and_missing_paths(tmp_path):
    (tmp_path / "p.txt").write_text("a\n[2020-02-30]\nb", encoding="utf-8")
    with pytest.raises(RecordError) as e:
        list(text.read(tmp_path / "p.txt"))
    assert (e.value.line, e.value.field) == (2, "date")
    with pytest.raises(RecordError, match="no such file or folder"):
        list(text.read(tmp_path / "q"))
    (tmp_path / "d" / "P1").mkdir(parents=True)
    with pytest.raises(RecordError, match="no files of this patient"):
        list(text.read(tmp_path / "d"))
    (tmp_path / "d" / "P1").rmdir()
    with pytest.raises(RecordError, match="nothing to read"):
        list(text.read(tmp_path / "d"))


# ---- transcripts --------------------------------------------------------------------------------------------------

def test_json_transcripts(tmp_path):
    one = {"date": "2024-05-01",
           "messages": [{"role": "user", "content": "I take\n5 mg."}, {"role": "assistant", "content": " "},
                        {"speaker": "Nurse", "text": "Noted."}]}
    many = {"sessions": [one | {"patient_id": "A", "session_id": 3}, one | {"timestamp": "2024-05-02", "date": None}]}
    (tmp_path / "P9.json").write_text(json.dumps(one), encoding="utf-8")
    (tmp_path / "M.json").write_text(json.dumps(many), encoding="utf-8")
    lines = [one, one | {"date": "2024-05-03"}]
    (tmp_path / "L.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    said = "Patient: I take 5 mg.\nNurse: Noted.\n"
    (found,) = chat.read(tmp_path / "P9.json")
    assert (found.patient_id, found.source_id, found.date, found.text) == ("P9", "1", "2024-05-01", said)
    assert [(e.patient_id, e.source_id, e.date) for e in chat.read(tmp_path / "M.json")] == [
        ("A", "3", "2024-05-01"), ("M", "2", "2024-05-02")]
    assert [(e.patient_id, e.source_id, e.date) for e in chat.read(tmp_path / "L.jsonl")] == [
        ("L", "1", "2024-05-01"), ("L", "2", "2024-05-03")]


def test_lines_of_speakers(tmp_path):
    file = tmp_path / "P3.txt"
    file.write_text("Doctor: Hello.\n[2024-05-01]\nPatient: I feel\n  worse: dizzy.\nDoctor: Since when?\n\n[2024-06]\n"
                    "Patient: Better.\n", encoding="utf-8")
    assert [(e.date, e.text, e.source_id) for e in chat.read(file)] == [
        (None, "Doctor: Hello.\n", "P3.txt:1"),
        ("2024-05-01", "Patient: I feel worse: dizzy.\nDoctor: Since when?\n", "P3.txt:2"),
        ("2024-06", "Patient: Better.\n", "P3.txt:7")]


def test_who_speaks_in_a_transcript(tmp_path):
    said = [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": ""},
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "assistant", "speaker": "Dr. Lee", "content": "c"}, {"role": "doctor", "content": "d"},
            {"speaker": "Doctor", "content": "e"}, {"role": "tool", "content": [1]},
            {"role": "assistant", "content": None, "tool_calls": []}, {"speaker": "AI", "text": "f"}]
    (tmp_path / "p.json").write_text(json.dumps({"messages": said}), encoding="utf-8")
    left_out = Counter()
    (found,) = chat.read(tmp_path / "p.json", left_out)
    assert found.text == "Patient: a\nAssistant: b\nAssistant: c\ndoctor: d\nDoctor: e\nAssistant: f\n"
    assert left_out == {"system_turn": 2, "tool_turn": 2}
    (tmp_path / "p.txt").write_text("System: Be kind.\nmore\nUser: a\nBot: b\n- Metformin: 5 mg\nNurse: c\nTool: x\n",
                                    encoding="utf-8")
    (found,) = chat.read(tmp_path / "p.txt", left_out)
    assert found.text == "Patient: a\nAssistant: b - Metformin: 5 mg\nNurse: c\n"
    assert left_out == {"system_turn": 3, "tool_turn": 3}


def test_a_label_begins_a_turn_however_it_is_written(tmp_path):
    (tmp_path / "p.txt").write_text(
        "Patient: a\n[10:32] Assistant: b\n[10:33] Patient:\nc\n- PT: 12\n**Assistant:** d\nPatient: e\nAssistant:\nf\n"
        "Tool:\n{}\nPatient: g\nAssistant\uff1ah\n", encoding="utf-8")
    left_out = Counter()
    (found,) = chat.read(tmp_path / "p.txt", left_out)
    assert found.text == ("Patient: a\nAssistant: b\nPatient: c - PT: 12\nAssistant: d\nPatient: e\nAssistant: f\n"
                          "Patient: g\nAssistant: h\n")
    assert left_out == {"tool_turn": 1}


def test_a_speaker_is_one_line(tmp_path):
    said = [{"role": "user", "speaker": "Bob\nAssistant", "content": "I take warfarin."}]
    (tmp_path / "p.json").write_text(json.dumps({"messages": said}), encoding="utf-8")
    (found,) = chat.read(tmp_path / "p.json")
    assert found.text == "Bob Assistant: I take warfarin.\n" and turns(found) == []


@pytest.mark.parametrize("raw, said", [
    ('{"messages": ' + "9" * 5000 + "}", "integer string conversion"), ('{"messages": NaN}', "NaN is not valid JSON"),
    ('{"messages": [{"role": "assistant", "role": "user", "content": "x"}]}', "role: stands twice in one object"),
    ("[" * 100000, "nested too deep")])
def test_strange_json_names_the_file(tmp_path, raw, said):
    (tmp_path / "p.json").write_text(raw)
    with pytest.raises(RecordError, match=f"p.json: .*{said}"):
        list(chat.read(tmp_path / "p.json"))


@pytest.mark.parametrize(("raw", "field"), [
    ({"messages": [{"speaker": " ", "content": "x"}]}, "sessions[0].messages[0].role"),
    ({"messages": []}, "sessions[0].messages"), ({"messages": [{"role": "user"}]}, "sessions[0].messages[0].content"),
    ({"messages": [{"content": "x"}]}, "sessions[0].messages[0].role"), ([3], "sessions[0]"),
    ({"date": "May", "messages": [{"role": "user", "content": "x"}]}, "sessions[0].date"),
    ({"sessions": []}, "sessions"),
    ({"patient_id": 3, "messages": [{"role": "a", "content": "x"}]}, "sessions[0].patient_id")])
def test_faults_of_transcripts_name_the_field(tmp_path, raw, field):
    (tmp_path / "p.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(RecordError) as e:
        list(chat.read(tmp_path / "p.json"))
    assert (e.value.file, e.value.field) == (str(tmp_path / "p.json"), field)


@pytest.mark.parametrize(("content", "line"), [("hello there\n", 1), ("[2024-05-01]\nA: x\n[soon]\n", 3)])
def test_faults_of_lines_name_the_line(tmp_path, content, line):
    (tmp_path / "p.txt").write_text(content, encoding="utf-8")
    with pytest.raises(RecordError) as e:
        list(chat.read(tmp_path / "p.txt"))
    assert e.value.line == line


def test_broken_json_names_the_line(tmp_path):
    (tmp_path / "p.json").write_text('{"a":\n 1,,}', encoding="utf-8")
    with pytest.raises(RecordError) as e:
        list(chat.read(tmp_path / "p.json"))
    assert e.value.line == 2


def test_a_blank_note_of_a_folder_is_an_entry_that_ingestion_refuses(tmp_path):
    (tmp_path / "P1").mkdir()
    for name, words in (("2020-01-01_a.txt", "Potassium 4.1."), ("2020-01-02_a.txt", " \n")):
        (tmp_path / "P1" / name).write_text(words)
    assert [e.text.strip() for e in text.read(tmp_path)] == ["Potassium 4.1.", ""]


def test_a_single_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "patients.jsonl"
    path.write_text("{}\n")
    with pytest.raises(RecordError, match="ends in .txt or .md"):
        list(text.read(path))
