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


def test_a_memory_archived_wrongly_is_reinstated(store, capsys, tmp_path):
    shown = run(capsys, "show", "--store", store, "--patient", "P1")
    mid = re.search(r"500 mg daily.*?(m[a-z2-7]{16})", shown.split("PAST")[1])[1]
    ask = ["reinstate", "--store", store, "--patient", "P1", "--memory", mid, "--why"]
    said = run(capsys, *ask, "another drug was meant")
    assert "holds again" in said and "beside it holds" in said and "1000 mg" in said.split("beside it holds")[1]
    assert "500 mg daily" in run(capsys, "show", "--store", store, "--patient", "P1").split("PAST")[0]
    why = run(capsys, "why", "--store", store, "--patient", "P1", "--memory", mid)
    assert 'holds again (decided by user:reinstate): "another drug was meant"' in why
    page = json.loads(run(capsys, "timeline", "--store", store, "--patient", "P1", "--out", str(tmp_path / "P1.html")))["page"]
    assert "another drug was meant" in open(page, encoding="utf-8").read()
    assert "holds already" in run(capsys, *ask, "again", code=2)
    assert "0 violations" in run(capsys, "verify", "--store", store)
    run(capsys, "revert", "--store", store, "--patient", "P1", "--seq", "4")
    assert mid in run(capsys, "show", "--store", store, "--patient", "P1").split("PAST")[1]


def test_what_a_memory_consists_of(store, capsys):
    told = json.loads(run(capsys, "metrics", "--store", store))
    assert told["patients"] == 1 and told["memories"] == {"ACTIVE": 4, "HISTORY": 2} and told["history"] == {"SUPERSEDED": 2}
    assert told["entries"] == {"complete": 3} and told["archived"] == 0.3333 and told["files"]["bytes"] > 10_000
    assert told["age_days"]["ACTIVE"] == {"count": 4, "median": 117.0, "most": 143, "undated": 0, "ahead": 0}
    assert told["sizes"]["entry_characters"]["total"] == sum(map(len, RECORD.values()))
    assert told == json.loads(run(capsys, "metrics", "--store", store, "--patient", "P1"))
    assert "does not know it" in run(capsys, "metrics", "--store", store, "--patient", "P", code=2)


def test_turns_of_a_transcript_that_are_no_record_are_counted(capsys, tmp_path):
    path = tmp_path / "P1.json"
    path.write_text(json.dumps({"date": "2024-01-01", "messages": [
        {"role": "system", "content": "The patient takes warfarin 5 mg daily."},
        {"role": "user", "content": "I take metformin 500 mg daily."},
        {"role": "assistant", "content": "You take warfarin 5 mg daily."}]}), encoding="utf-8")
    report = json.loads(run(capsys, "ingest", "--store", str(tmp_path / "memory"), "--format", "chat", "--input", str(path), *HASH))
    assert report["problems"] == {"assistant_turn": 1, "system_turn": 1} and report["memories"]["inserted"] == 1


def test_an_answer_says_how_much_of_what_holds_was_looked_at(store, capsys):
    ask = ["answer", "--store", store, "--patient", "P1", "--question", "Which medicines does she take?", *HASH]
    told, cut = json.loads(run(capsys, *ask)), json.loads(run(capsys, *ask, "--set", "read.most=1"))
    assert (told["hold"], told["hold_served"], cut["hold"]) == (4, 4, 4) and cut["hold_served"] <= 1


def test_the_instruction_before_a_question_is_a_setting(store, capsys):
    ask = ["search", "--store", store, "--patient", "P1", "--query", "HbA1c", *HASH]
    plain, told = run(capsys, *ask), run(capsys, *ask, "--set", "read.instruction=Find the words on penicillin hives: ")
    assert plain != told and "penicillin" in told.splitlines()[0].lower()


def test_gate(capsys, tmp_path):
    made, store = str(tmp_path / "planted"), str(tmp_path / "memory")
    run(capsys, "planted", "--patients", "6", "--out", made)
    run(capsys, "ingest", "--store", store, "--format", "planted", "--input", f"{made}/timelines.jsonl", *HASH)
    replay, gate = str(tmp_path / "replay.jsonl"), str(tmp_path / "gate.json")
    told = json.loads(run(capsys, "gate", "replay", "--store", store, "--questions", f"{made}/questions.jsonl", "--out", replay, *HASH))
    assert told["questions"] == len(list(read_jsonl(replay))) > 40
    mine, others = str(tmp_path / "mine.jsonl"), str(tmp_path / "others.jsonl")
    raws = [raw for _, raw in read_jsonl(replay)]
    last = max(raw["patient_id"] for raw in raws)
    for path, of_last in ((mine, False), (others, True)):
        with open(path, "w") as f:
            f.writelines(json.dumps(raw) + "\n" for raw in raws if (raw["patient_id"] == last) is of_last)
    fit = ["gate", "fit", "--replay", mine, "--out", gate, "--lambda", "0.1"]
    assert "h_share" in json.loads(run(capsys, *fit, "--cues", "--macro", "--model", "qwen3-4b"))["features"]
    frozen = json.loads(run(capsys, "gate", "report", "--replay", others, "--gate", gate))
    row, = frozen["rows"]
    assert frozen["unseen"] and frozen["patients"] == 1 and "cue_past" in frozen["features"]
    assert row["price"] == "qwen3-4b" and row["macro"] and 0 <= row["skip_rate"] <= 1 and 0 <= row["change"]["p_value"] <= 1
    assert row["prefill_flops_both"] > 8e9 * row["tokens_both"] / 2 and row["tokens"] <= row["tokens_both"]
    assert not json.loads(run(capsys, "gate", "report", "--replay", replay, "--gate", gate))["unseen"]
    crossed = json.loads(run(capsys, "gate", "report", "--replay", replay, "--cues", "--model", "qwen3-0.6b"))
    assert len(crossed["rows"]) == len(crossed["with_cue_words"]) == 6 and "prefill_flops_saved" in crossed["rows"][0]
    assert "--cues" in run(capsys, "gate", "report", "--replay", others, "--gate", gate, "--cues", code=2)
    assert "expected one of qwen3" in run(capsys, "gate", "report", "--replay", replay, "--model", "gpt", code=2)
    judged = str(tmp_path / "judged.jsonl")
    run(capsys, "gate", "replay", "--store", store, "--questions", f"{made}/questions.jsonl", "--out", judged, "--judged", *HASH)
    assert {raw["both"]["score"] for _, raw in read_jsonl(judged)} <= {0, 1} and all(raw["judged"] for _, raw in read_jsonl(judged))
    run(capsys, *fit)
    question = next(raw for _, raw in read_jsonl(f"{made}/questions.jsonl"))
    answer = json.loads(run(capsys, "answer", "--store", store, "--patient", question["patient_id"], "--question", question["question"],
                            "--arm", "gate", "--gate", gate, *HASH))
    assert 0 <= answer["history_needed"] <= 1


def test_deletion(capsys, tmp_path):
    """Calibrated on the gold of some patients, applied to others: what goes is past and no floor class, and it is gone."""
    from stam_jax.deletion.endurance import floor, read_labels
    from stam_jax.storage.store import Store

    for name, seed, patients in (("known", 0, 16), ("new", 1, 3)):
        folder = tmp_path / name
        run(capsys, "planted", "--patients", str(patients), "--seed", str(seed), "--out", str(folder))
        run(capsys, "ingest", "--store", str(folder / "memory"), "--format", "planted", "--input", str(folder / "timelines.jsonl"), *HASH)
        told = json.loads(run(capsys, "delete", "label", "--store", str(folder / "memory"), "--timelines", str(folder / "timelines.jsonl"),
                              "--out", str(folder / "labels.csv")))
        assert told["patients"] == patients and set(told["labels"]) == {"safe-to-forget", "never-forget", "uncertain"}
    known, store, calibration = str(tmp_path / "known" / "memory"), str(tmp_path / "new" / "memory"), str(tmp_path / "calibration.json")
    calibrate = ["delete", "calibrate", "--store", known, "--labels", str(tmp_path / "known" / "labels.csv"), "--out", calibration]
    few = json.loads(run(capsys, *calibrate))
    assert "no single memory" in few["warning"] and few["levels"]["all"]["types"] < 99  # the types of a cohort are too few
    assert json.loads(run(capsys, "delete", "plan", "--store", store, "--calibration", calibration))["proposed"] == 0
    made = json.loads(run(capsys, *calibrate, "--unit", "patient", "--alpha", "0.1", "--age", "2"))
    assert made["unit"] == "patient" and made["candidates"]["age"] == 2 and made["test"]["calibrated"]["removed"] > 0
    assert made["test"]["if_never_forget_only"]["never_forget_loss"] >= made["test"]["calibrated"]["never_forget_loss"]
    planned = json.loads(run(capsys, "delete", "plan", "--store", store, "--calibration", calibration))
    going = {(p, mid) for p, mid, *_ in planned["would_delete"]}
    assert len(going) == planned["proposed"] > 0
    one = planned["would_delete"][0][0]
    alone = json.loads(run(capsys, "delete", "plan", "--store", store, "--calibration", calibration, "--patient", one))
    assert alone["patients"] == 1 and 0 < alone["proposed"] < len(going)
    with Store.open(store) as opened:
        before = {(p, m.mid): m for p in opened.patients() for m in opened.state(p).memories.values()}
    apply = ["delete", "apply", "--store", store, "--calibration", calibration, "--id"]
    assert "c0" in run(capsys, *apply, "c0", code=2)
    assert json.loads(run(capsys, *apply, made["id"]))["deleted"] == len(going)
    assert "0 violations" in run(capsys, "verify", "--store", store)
    with Store.open(store) as opened:
        after = {(p, m.mid) for p in opened.patients() for m in opened.state(p).memories.values()}
        tombs = {(p, mid) for p in opened.patients() for mid in opened.state(p).tombstones}
    assert before.keys() - after == going == tombs
    assert all(before[key].store == "HISTORY" and floor(before[key]) is None for key in going)
    protected = {key for key, m in before.items() if floor(m) or m.store == "ACTIVE"}
    assert protected <= after and {floor(before[key]) for key in protected} >= {"allergy", "diagnosis", "surgery"}
    labels = read_labels(tmp_path / "new" / "labels.csv")
    assert sum(labels[key] == "safe-to-forget" for key in going) > 0.5 * len(going)
    again = json.loads(run(capsys, "delete", "plan", "--store", store, "--calibration", calibration))
    assert again["proposed"] == 0


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
    for action in ("write", "score"):
        assert "--most 0: expected at least 1" in run(capsys, "lessons", action, "--patients", "5", "--most", "0",
                                                      "--out", str(tmp_path / "none"), code=2)
    assert not (tmp_path / "none").exists()


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
    (["delete", "label", "--store", "{}/memory", "--out", "{}/labels.csv"], "--timelines"),
    (["delete", "calibrate", "--store", "{}/memory", "--labels", "{}/nowhere.csv", "--out", "{}/c.json"], "no such file"),
    (["serve", "--store", "{}/memory", "--gate", "{}/nowhere.json"], "nowhere.json"),
    (["serve", "--store", "{}/memory", "--host", "0.0.0.0"], "key"),
])
def test_bad_input(store, capsys, tmp_path, args, why):
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    error = run(capsys, *[a.format(tmp_path) for a in args], code=2)
    assert why in error and len(error.splitlines()) == 1
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
