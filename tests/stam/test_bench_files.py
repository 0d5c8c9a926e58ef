"""`stam bench` on files that a user names, through the command itself: MedMemoryBench, LoCoMo-shaped, ClinicalBench."""
from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
from file_suite_cases import clinical_bench, locomo, memory_bench, served

from core_jax.embed import load_encoder
from core_jax.engine.scripted import Scripted
from core_jax.records import RecordError
from stam_jax.benchmarks import cohorts, file_suites
from stam_jax.benchmarks.write_paths import APPENDED, STAM
from stam_jax.cli import main, parser
from stam_jax.commands import file_suites as command
from stam_jax.commands import suites
from stam_jax.config import Config, ReadConfig, WriteConfig
from stam_jax.graph.memory import Entry
from stam_jax.read.answer import ExtractiveReader
from stam_jax.rules import RulesWriter, names

HASH = ["--set", "encoder=hash:64", "--set", "read.most=8"]


def _bench(capsys, out, *args, code=0):
    assert main(["bench", "--out", str(out), *HASH, "--quiet", *args]) == code
    said = capsys.readouterr()
    return json.loads(said.out) if code == 0 else said.err.strip()


def _report(told, suite):
    with open(told["tables"][suite], encoding="utf-8") as f:
        found = json.load(f)
    with open(told["tables"][suite].replace(".json", ".md"), encoding="utf-8") as f:
        assert "| STAM, BOTH |" in f.read()
    return found


def _rows(report, table, **where):
    return [r for r in report["tables"][table]["rows"] if all(r[k] == v for k, v in where.items())]


def test_memory_bench_without_a_judge(capsys, tmp_path):
    path = memory_bench(tmp_path / "bench")
    report = _report(_bench(capsys, tmp_path / "out", "--suite", "memory_bench", "--input", str(path)), "memory_bench")
    both = _rows(report, "types", system="STAM, BOTH", type="entity_exact_match")[0]
    # of the dose at session 10 both are right; 75 mg, the dose at session 20, passes for 5 mg by compat alone
    assert (both["compat"]["value"], both["strict"]["value"], both["questions"]) == (1.0, 0.5, 4)
    by = {r["type"]: r["scored by"] for r in _rows(report, "types", system="STAM, BOTH")}
    assert by == {"entity_exact_match": "match", "multiple_choice": "options", "temporal_localization": "rule",
                  "state_update": "rule", "inference_generation": "unscored",
                  "multi_hop_clinical_deduction": "unscored"}
    assert _rows(report, "types", system="STAM, BOTH", type="state_update")[0]["strict"]["value"] == 1.0
    assert _rows(report, "scorers", system="STAM, BOTH")[0] == {
        "system": "STAM, BOTH", "questions": 6, "compat higher": 2, "equal": 4, "strict higher": 0}
    head = _rows(report, "answers", system="STAM, BOTH")[0]
    assert head["compat (type macro)"]["value"] == 0.5 and head["strict (type macro)"]["value"] == 0.25
    assert head["strict, with rules (type macro)"]["n"] == 10 and head["evidence served"] == 1.0
    none = _rows(report, "answers", system="no memory")[0]
    assert none["compat (type macro)"]["value"] == 0.0 and none["median words"] == 0.0
    assert _rows(report, "answers", system="flat RAG")[0]["evidence served"] is not None
    against = _rows(report, "differences", system="no memory")[0]
    assert against["compat"]["test"] == "sign flip" and against["compat"]["holm"] >= against["compat"]["p"]
    assert against["compat, patients drawn"]["n"] == 2 and against["compat, patients drawn"]["p"] == 0.5
    assert [r["questions"] for r in _rows(report, "patients")] == [7, 7]
    assert "repeatability" not in report["tables"]  # a reader without a model says the same again
    assert report["config"]["read"]["most"] == 8 and report["config"]["write"][APPENDED]["restatement"] == "keep_both"
    assert report["command"] == ("stam bench --set encoder=hash:64 --set read.most=8 --suite memory_bench --input PATH "
                                 "--out DIR")
    assert report["config"]["entries"] == 40 and report["config"]["judge"] is None
    assert "No judge was named" in report["notes"][0]
    assert "penicillin" not in json.dumps(report["tables"])  # no words of the files


def test_memory_bench_with_a_reader_and_a_judge(capsys, tmp_path):
    path, asked, said = memory_bench(tmp_path / "bench"), [], Counter()

    def answer(prompt):
        asked.append(prompt)
        if prompt.startswith("You grade"):
            return json.dumps({"is_correct": "the answer is" in prompt, "ncr_score": 1, "crc_score": 1,
                               "cc_score": 0.5})
        said[prompt] += 1
        other = "." * said[prompt]  # each time
        return f"A patient: the answer is B{other}" if "Which drug" in prompt else "the answer is 5 mg"

    with served(answer) as model:
        told = _bench(capsys, tmp_path / "out", "--suite", "memory_bench", "--input", str(path / "persona_1"),
                      "--reader", model, "--judge", model, "--noise", "--language", "zh")
    report = _report(told, "memory_bench")
    types = {r["type"]: r for r in _rows(report, "types", system="STAM, BOTH")}
    assert (types["state_update"]["scored by"], types["state_update"]["strict"]["value"]) == ("judge", 1.0)
    chain = types["multi_hop_clinical_deduction"]
    assert (chain["compat"]["value"], chain["strict"]["value"]) == (1.0, 0.0)  # a whole chain was asked for
    assert chain["judge's own score"]["value"] == pytest.approx(0.85 * 0.5 * 0.1)
    assert (types["multiple_choice"]["compat"]["value"], types["multiple_choice"]["strict"]["value"]) == (0.0, 1.0)
    head = _rows(report, "answers", system="STAM, BOTH")[0]
    assert "strict, with rules (type macro)" not in head and head["median tokens"] > 0 and head["answers failed"] == 0
    assert _rows(report, "differences", system="no memory")[0]["compat, patients drawn"] is None  # one patient
    assert report["config"]["language"] == "zh" and report["config"]["noise"] and report["config"]["entries"] == 21
    assert report["config"]["judge"]["model"] == "scripted"
    assert "was shown 4 different answers; 0 verdicts" in report["notes"][1]
    prompts = [p for p in asked if p.startswith("<n")]
    assert any("请只回答所有正确选项的字母" in p for p in prompts) and any("父" in p or "Karl" in p for p in prompts)
    again = {r["figure"]: r for r in _rows(report, "repeatability", system="STAM, BOTH")}
    assert set(again) == {"compat (type macro)", "strict (type macro)"}
    assert all((r["passes"], r["answers that differ"], r["span in points"]) == (3, 1, 0.0) for r in again.values())
    assert again["compat (type macro)"]["lowest"] == head["compat (type macro)"]["value"]
    assert "--noise" in report["command"] and str(tmp_path) not in report["command"].replace(model, "")


def test_locomo(capsys, tmp_path):
    args = ["--suite", "locomo", "--input", str(locomo(tmp_path))]
    report = _report(_bench(capsys, tmp_path / "out", *args), "locomo")
    types = {r["type"]: r for r in _rows(report, "types", system="STAM, BOTH")}
    assert types["single-hop"]["compat"]["value"] == types["longitudinal_progression"]["strict"]["value"] == 1.0
    # the reader declines by "not in memory" or "not mentioned"; to LoCoMo only the second one declines
    assert types["adversarial"]["strict"]["value"] == 1.0
    head = _rows(report, "answers", system="STAM, BOTH")[0]
    assert head["evidence served"] == 1.0 and head["strict (type macro)"]["n"] == 9
    assert _rows(report, "answers", system="full context")[0]["truncated"] is not None
    active = _rows(report, "types", system="STAM, ACTIVE", type="longitudinal_progression")[0]
    assert active["strict"]["value"] < 1.0
    assert {r["depth"] for r in _rows(report, "depths")} == {"k 30", "k 60", "k 120", "k 240", "4500 words", "all",
                                                             "whole record"}
    assert report == _report(_bench(capsys, tmp_path / "again", *args), "locomo")


def test_clinical_bench(capsys, tmp_path):
    path = clinical_bench(tmp_path / "bench")
    args = ["--suite", "clinical_bench", "--input", str(path)]
    alone = _report(_bench(capsys, tmp_path / "out", *args), "clinical_bench")
    head = _rows(alone, "answers", system="STAM, BOTH")[0]
    assert "compat (pooled)" not in head and head["strict, by rules (pooled)"]["n"] == 12
    assert _rows(alone, "types", system="STAM, BOTH", type="change")[0]["strict"]["value"] == 1.0
    assert "STAM (BOTH) minus it, compat" not in {k for r in _rows(alone, "published") for k, v in r.items() if v}

    def judge(prompt):
        return json.dumps({"score": 1 if '"answer": "2' in prompt else 0.5})

    with served(judge) as model:
        told = _bench(capsys, tmp_path / "out", *args, "--judge", model)
    report = _report(told, "clinical_bench")
    head = _rows(report, "answers", system="STAM, BOTH")[0]
    assert head["compat (pooled)"]["value"] == 0.5 and head["judge's own score"] == 0.75
    against = _rows(report, "differences", system="no memory")[0]
    assert (against["compat"]["test"], against["compat"]["b"], against["compat"]["c"]) == ("exact McNemar", 6, 0)
    assert (against["compat, patients drawn"]["n"], against["compat, patients drawn"]["p"]) == (6, 2 / 64)
    folds = _rows(report, "folds", system="STAM, BOTH")
    assert [r["fold"] for r in folds] == [0, 1, 2, 3, 4] and sum(r["patients"] for r in folds) == 6
    (other,) = _rows(report, "published")
    assert (other["condition"], other["score 1"]["value"], other["with half points"]) == ("C1", 0.5, 0.75)
    assert (other["STAM (BOTH) minus it, compat"]["b"], other["STAM (BOTH) minus it, compat"]["c"]) == (6, 6)
    # notes may also lie in folders
    folder = tmp_path / "folders"
    (folder / "records" / "7").mkdir(parents=True)
    (folder / "records" / "7" / "2020-01-03_clinic.txt").write_text("Started metformin 500 mg daily.")
    question = {"question_id": "q", "subject_id": 7, "category": "change", "question": "What is the dose of metformin?",
                "reference": "500 mg daily"}
    (folder / "questions.jsonl").write_text(json.dumps(question))
    found = cohorts.read("clinical_bench", folder)
    assert [q.patient_id for q in found.asked] == ["7"] and found.folds == {"7": 0}


def test_all_leaves_out_what_has_no_input(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "SUITES", ())
    talks = locomo(tmp_path / "talks")
    assert main(["bench", "--out", str(tmp_path / "out"), *HASH, "--quiet", "--input", str(talks)]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert set(told["tables"]) == {"locomo"} and set(told["left_out"]) == {"memory_bench", "clinical_bench"}
    assert "memory_bench: left out, no --input (a folder of persona_<number>/eval/)" in said.err
    assert "--input (" not in "".join(suites.SUITES) and "locomo: left out" not in said.err


@pytest.mark.parametrize(("args", "why"), [
    (["--suite", "locomo"], "--suite locomo: needs --input, a .json file of samples"),
    (["--suite", "planted", "--judge", "openai:x"], "--judge: only for the suites memory_bench, locomo, clinical_"),
    (["--suite", "locomo", "--input", "{}/talks.json", "--noise"], "--noise: only for the suite memory_bench"),
    (["--suite", "locomo", "--input", "{}/talks.json", "--language", "zh"], "--language: only for"),
    (["--suite", "planted", "--input", "{}/talks.json"], "is of the suite locomo, which --suite planted does not name"),
    (["--input", "{}/talks.json", "--input", "{}/talks.json"], "is of the suite locomo already"),
    (["--input", "{}/nowhere"], "no such file or folder"),
    (["--input", "{}/empty"], "expected one of: a folder of persona_<number>/eval/ (memory_bench)"),
    (["--suite", "memory_bench", "--input", "{}/talks.json"], "no folder persona_<number> in it"),
    (["--suite", "locomo", "--input", "{}/none.json"], "has no questions"),
    (["--suite", "clinical_bench", "--input", "{}/bench"], "'p9', who has no record"),
    (["--suite", "locomo", "--input", "{}/talks.json", "--judge", "{}/none"], "no such file or folder"),
])
def test_bad_input(capsys, tmp_path, args, why):
    locomo(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.json").write_text("[]")
    shutil.copytree(clinical_bench(tmp_path / "made"), tmp_path / "bench")
    with open(tmp_path / "bench" / "questions.jsonl", "a", encoding="utf-8") as f:
        f.write(json.dumps({"question_id": "x", "patient_id": "p9", "category": "c", "question": "?", "answer": "a"}))
    error = _bench(capsys, tmp_path / "out", *[a.format(tmp_path) for a in args], code=2)
    assert why in error and len(error.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_question_sees_nothing_that_was_told_later(tmp_path):
    cohort = cohorts.read("memory_bench", memory_bench(tmp_path, 1))
    assert cohort.told == {"persona_1@10": ("persona_1", 10), "persona_1@20": ("persona_1", 20)}
    encoder = file_suites.OnceEncoder(load_encoder("hash:64"))
    made = file_suites.written(cohort, [RulesWriter()], encoder)
    a = file_suites.Marked(cohort, made, encoder, ExtractiveReader(names), None, read=ReadConfig(30, 30, 30))
    arms, swept = file_suites.arms(a, 100)
    for s in (*arms, *swept):
        for q, packet in zip(cohort.asked, s.packets):
            assert ("75 mg" in packet.text) <= (q.moment == "persona_1@20")
    texts = {q.question_id: p.text for q, p in zip(cohort.asked, arms[0].packets)}
    assert "5 mg" in texts["persona_1/eem_10"] and "75 mg" in texts["persona_1/eem_20"]
    for name in (STAM, APPENDED):
        assert len(a.memories[name].states["persona_1@10"].entries) == 10
    state, entries = made[STAM].states["persona_1"], a.record["persona_1"]
    assert file_suites.known(state, []).version == 0 and file_suites.known(state, entries) is state
    with pytest.raises(ValueError, match="another order"):
        file_suites.known(state, [entries[0], entries[9]])


def test_each_fold_is_written_by_its_own_writer(tmp_path):
    cohort = cohorts.read("clinical_bench", clinical_bench(tmp_path))
    seen = {}

    class Writer(RulesWriter):
        def __init__(self, fold):
            super().__init__()
            self.fold = fold

        def extract(self, entries):
            seen.setdefault(self.fold, set()).update(e.patient_id for e in entries)
            return super().extract(entries)

    made = file_suites.written(cohort, [Writer(k) for k in range(5)], file_suites.OnceEncoder(load_encoder("hash:16")))
    assert seen == {k: {p for p, f in cohort.folds.items() if f == k} for k in range(5)}
    assert set(made[STAM].states) == set(made[APPENDED].vectors) == set(cohort.entries)
    with pytest.raises(ValueError, match="got 2 for clinical_bench, expected 1 or 5"):
        file_suites.run("clinical_bench", tmp_path, [Writer(0)] * 2, load_encoder("hash:16"), ExtractiveReader(names))
    with pytest.raises(ValueError, match="got 5 for locomo, expected 1$"):
        file_suites.run("locomo", locomo(tmp_path), [Writer(0)] * 5, load_encoder("hash:16"), ExtractiveReader(names))


def test_adapters_of_each_fold(tmp_path, monkeypatch):
    opened, backend = [], Scripted([])
    monkeypatch.setattr(command, "load_backend", lambda name, adapters: opened.append((name, adapters)) or backend)

    def args(suite="clinical_bench"):
        return parser().parse_args(["bench", "--out", "o", "--suite", suite, "--writer", "w", "--adapters",
                                    str(tmp_path)])

    (tmp_path / "link").mkdir()
    assert command.fold_writers(args(), Config()) is None  # adapters for all patients
    for k in range(5):
        (tmp_path / f"fold_{k}" / "link").mkdir(parents=True)
    (tmp_path / "fold_3" / "update").mkdir()
    writers = command.fold_writers(args(), Config(write=WriteConfig(answer_tokens=77, retries=0)))
    writers[3].extract([Entry.of("p", "s", "note", "Started metformin 500 mg daily.")])
    assert [r.sampling.max_tokens for r in backend.requests] == [77]
    ((name, adapters),) = opened  # one model
    assert name == "w" and adapters["link 4"] == str(tmp_path / "fold_4" / "link") and len(adapters) == 6
    assert [w.hashes["link_adapter"] for w in writers] == [f"link {k}" for k in range(5)]
    assert [k for k, w in enumerate(writers) if "update_adapter" in w.hashes] == [3]
    with pytest.raises(ValueError, match="for --suite clinical_bench alone"):
        command.fold_writers(args("locomo"), Config())
    (tmp_path / "fold_2" / "link").rmdir()
    with pytest.raises(ValueError, match="fold_2/ has none of the folders"):
        command.fold_writers(args(), Config())


def test_shapes(tmp_path):
    assert cohorts.suite_of(memory_bench(tmp_path / "a")) == "memory_bench"
    assert cohorts.suite_of(tmp_path / "a" / "persona_2") == "memory_bench"
    assert cohorts.suite_of(locomo(tmp_path / "b")) == "locomo"
    assert cohorts.suite_of(clinical_bench(tmp_path / "c")) == "clinical_bench"
    with pytest.raises(RecordError, match="has neither patients.jsonl"):
        (tmp_path / "c" / "patients.jsonl").unlink()
        cohorts.read("clinical_bench", tmp_path / "c")
