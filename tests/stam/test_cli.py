"""The `stam` command from end to end, in this process, with an encoder that needs no weights."""
import contextlib
import io
import json
import re
import shutil

import pytest

from core_jax.records import read_jsonl
from stam_jax.cli import main

HASH = ["--set", "encoder=hash:64", "--quiet"]
RECORD = {
    "2024-01-10_clinic.txt": "Type 2 diabetes. Started metformin 500 mg daily.\nAllergic to penicillin (hives).\n",
    "2024-03-02_clinic.txt": "Metformin increased to 1000 mg twice daily.\nHbA1c 8.1 %.\n",
    "2024-06-01_phone.txt": "HbA1c 7.2 %.\n",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for name, text in RECORD.items():
        path = folder / "records" / "P1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["ingest", "--store", str(folder / "memory"), "--format", "text", "--input", str(folder / "records"), *HASH]) == 0
    report = json.loads(out.getvalue())
    assert report["entries"] == {"admitted": 3, "partial": 0} and report["transitions"]["SUPERSEDED"] == 2
    return folder


@pytest.fixture
def store(made, tmp_path):
    """Each test has a store of its own."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "memory")


def run(capsys, *args, code=0):
    assert main([*args, *([] if "--quiet" in args else ["--quiet"])]) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


def test_looking(store, capsys, tmp_path):
    assert run(capsys, "show", "--store", store).startswith("P1: version 3, 4 hold, 2 past")
    shown = run(capsys, "show", "--store", store, "--patient", "P1")
    past = next(line for line in shown.splitlines() if "500 mg daily" in line and "replaced by" in line)
    mid = re.search(r"\bm[a-z2-7]{16}\b", past)[0]
    why = run(capsys, "why", "--store", store, "--patient", "P1", "--memory", mid)
    assert '"Started metformin 500 mg daily' in why and "decided by rule:" in why
    assert "500 mg daily" in run(capsys, "show", "--store", store, "--patient", "P1", "--as-of-seq", "1").split("PAST")[0]
    assert "HELD" in run(capsys, "show", "--store", store, "--patient", "P1", "--as-of-date", "2024-02")
    assert json.loads(run(capsys, "show", "--store", store, "--patient", "P1", "--json"))
    assert "replaced by" in run(capsys, "diff", "--store", store, "--patient", "P1", "--from", "1", "--to", "2")
    for form in ("jsonl", "graphml", "dot"):
        run(capsys, "export", "--store", store, "--patient", "P1", "--as", form, "--out", str(tmp_path / form))
        assert (tmp_path / form).stat().st_size
    page = json.loads(run(capsys, "timeline", "--store", store, "--patient", "P1", "--out", str(tmp_path / "P1.html")))["page"]
    assert "metformin" in open(page, encoding="utf-8").read()
    assert json.loads(run(capsys, "timeline", "--store", store, "--out", str(tmp_path / "pages")))["pages"] == 1


def test_asking(store, capsys):
    assert "HbA1c 7.2 %" in run(capsys, "search", "--store", store, "--patient", "P1", "--query", "HbA1c", "--most", "2", *HASH)
    ask = ["answer", "--store", store, "--patient", "P1", *HASH, "--question"]
    assert json.loads(run(capsys, *ask, "What is the current dose of metformin?"))["answer"] == "1000 mg twice daily"
    assert json.loads(run(capsys, *ask, "What was the HbA1c before?"))["answer"].startswith("8.1 %")
    active = json.loads(run(capsys, *ask, "What was the HbA1c before?", "--arm", "active"))
    assert not any("past:" in line for line in active["packet"])


def test_writing_again_changes_nothing(store, capsys, tmp_path):
    again = json.loads(run(capsys, "ingest", "--store", store, "--format", "text", "--input", str(tmp_path / "records"), *HASH))
    assert again["entries"] == {"duplicate": 3} or again["entries"]["duplicate"] == 3
    assert run(capsys, "show", "--store", store).startswith("P1: version 3,")


def test_taking_back_and_erasing(store, capsys):
    run(capsys, "revert", "--store", store, "--patient", "P1", "--seq", "3")
    assert "8.1 %" in run(capsys, "show", "--store", store, "--patient", "P1").split("PAST")[0]
    assert "add --yes" in run(capsys, "erase", "--store", store, "--patient", "P1", code=2)
    assert json.loads(run(capsys, "erase", "--store", store, "--patient", "P1", "--yes"))["erased"]
    assert "metformin" not in run(capsys, "show", "--store", store, "--patient", "P1")
    assert "0 violations" in run(capsys, "verify", "--store", store)


def test_gate_and_deletion(capsys, tmp_path):
    made, store = str(tmp_path / "planted"), str(tmp_path / "memory")
    run(capsys, "planted", "--patients", "6", "--out", made)
    run(capsys, "ingest", "--store", store, "--format", "planted", "--input", f"{made}/timelines.jsonl", *HASH)
    replay, gate = str(tmp_path / "replay.jsonl"), str(tmp_path / "gate.json")
    told = json.loads(run(capsys, "gate", "replay", "--store", store, "--questions", f"{made}/questions.jsonl", "--out", replay, *HASH))
    assert told["questions"] == len(list(read_jsonl(replay))) > 40
    run(capsys, "gate", "fit", "--replay", replay, "--out", gate, "--lambda", "0.1")
    assert json.loads(run(capsys, "gate", "report", "--replay", replay, "--gate", gate))["gate"]["fitted_on_these_rows"]
    question = next(raw for _, raw in read_jsonl(f"{made}/questions.jsonl"))
    answer = json.loads(run(capsys, "answer", "--store", store, "--patient", question["patient_id"], "--question", question["question"],
                            "--arm", "gate", "--gate", gate, *HASH))
    assert 0 <= answer["history_needed"] <= 1
    from stam_jax.storage.store import Store

    labels = tmp_path / "labels.csv"
    with Store.open(store) as opened:
        rows = [f"{p},{m.mid},{'safe-to-forget' if m.attribute == 'value' else 'never-forget'}" for p in opened.patients()
                for m in opened.state(p).memories.values()]
    labels.write_text("patient_id,mid,label\n" + "\n".join(rows) + "\n")
    calibration = str(tmp_path / "calibration.json")
    made = json.loads(run(capsys, "delete", "calibrate", "--store", store, "--labels", str(labels), "--out", calibration))
    assert "no single memory" in made["warning"]
    assert json.loads(run(capsys, "delete", "plan", "--store", store, "--calibration", calibration))["proposed"] == 0  # too few types
    assert "calibration" in run(capsys, "delete", "apply", "--store", store, "--calibration", calibration, "--id", "c0", code=2)


def test_demo(capsys, tmp_path):
    patients = tmp_path / "patients.jsonl"
    patients.write_text('{"patient_id": "P1", "notes": [{"note_id": "a", "time": "2019-03-01", "text": "Started metformin 500 mg daily."}]}\n'
                        '{"patient_id": "P2", "notes": [{"note_id": "a", "time": "2019-03-01", "text": "Potassium 4.1 mmol/L."}]}\n')
    ask = ["demo", "--out", str(tmp_path / "demo"), "--input", str(patients), "--most", "1", *HASH]
    first = json.loads(run(capsys, *ask))
    assert first["patients"] == 9 and first["violations"] == [] and first["mean_token_f1"] > 0.9
    assert "patient" in open(first["page"], encoding="utf-8").read()
    again = json.loads(run(capsys, *ask))
    assert again.pop("added") == 0 and first.pop("added") == first["entries"] and again == first


def test_lessons(capsys, tmp_path):
    files = json.loads(run(capsys, "lessons", "write", "--patients", "5", "--most", "20", "--out", str(tmp_path / "lessons")))["files"]
    assert files["extract.jsonl"] > 0 and (tmp_path / "lessons" / "link.jsonl").exists()
    assert json.loads(run(capsys, "lessons", "score", "--patients", "12", "--most", "10"))["extract"]["f1"] > 0.9


@pytest.mark.parametrize(("args", "why"), [
    (["show", "--store", "{}/nowhere"], "no store there"),
    (["ingest", "--store", "{}/new", "--format", "text", "--input", "{}/nowhere", *HASH], "no such file or folder"),
    (["ingest", "--store", "{}/new", "--format", "text", "--input", "{}/records", "--writer", "nonsense", *HASH], "no such file or folder"),
    (["ingest", "--store", "{}/new", "--format", "text", "--input", "{}/records", "--set", "write.budgt=3", *HASH], "did you mean 'budget'"),
    (["ingest", "--store", "{}/new", "--format", "text", "--input", "{}/records", "--adapters", "{}/records", *HASH], "--adapters"),
    (["ingest", "--store", "{}/memory", "--format", "text", "--input", "{}/records", "--set", "encoder=hash:32"], "encoder"),
    (["show", "--store", "{}/memory", "--patient", "P"], "does not know it"),
    (["why", "--store", "{}/memory", "--patient", "P1", "--memory", "mxxxxxxxxxxxxxxxx"], "mxxxxxxxxxxxxxxxx"),
    (["diff", "--store", "{}/memory", "--patient", "P1", "--from", "2", "--to", "9"], "expected 0 <= from"),
    (["show", "--store", "{}/memory", "--patient", "P1", "--as-of-date", "yesterday"], "yesterday"),
    (["answer", "--store", "{}/memory", "--patient", "P1", "--question", " ", *HASH], "no words"),
    (["answer", "--store", "{}/memory", "--patient", "P1", "--question", "x", "--arm", "gate", *HASH], "--gate"),
    (["gate", "fit", "--replay", "{}/memory"], "--out"),
    (["serve", "--store", "{}/memory", "--host", "0.0.0.0"], "key"),
])
def test_bad_input(store, capsys, tmp_path, args, why):
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    error = run(capsys, *[a.format(tmp_path) for a in args], code=2)
    assert why in error and len(error.splitlines()) == 1
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
