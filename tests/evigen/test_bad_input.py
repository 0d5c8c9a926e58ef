"""What a hostile tester broke, one test a kind of fault: exit code 2, one line that names the place, nothing lost."""
import copy
import fcntl
import io
import json
import os
import pathlib
import shutil
import sys

import jax
import numpy as np
import pytest
import tensorstore

from evigen_jax import crossval
from evigen_jax.cli import main
from evigen_jax.report import write

SMALL = ["--quiet", "--set=encoder.name=hash:16", "--set=model.n_note=2", "--set=model.n_code=1", "--set=model.d_hidden=8",
         "--set=train.epochs=1", "--set=train.warmup_steps=5", "--set=cohort.planted_patients=40"]
PATIENT = {"patient_id": "1", "birth_date": "1950-02-01", "notes": [{"note_id": "a", "time": "2019-03-01", "text": "had a fall"}]}
LABEL = {"patient_id": "1", "prediction_time": "2020-01-01", "label": 1}


def refused(capsys, *words) -> str:
    code = main([*map(str, words), *SMALL])
    captured = capsys.readouterr()
    assert code == 2 and captured.out == "", captured
    lines = captured.err.strip().splitlines()
    assert lines[-1].startswith(f"evigen {words[0]}: ") and "Traceback" not in captured.err
    return lines[-1]


def rows(path) -> list[dict]:
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def written(path, items) -> pathlib.Path:
    path.write_text("".join(json.dumps(x) + "\n" for x in items), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Cohort to verifications once, by the commands; nothing in it may change."""
    folder = tmp_path_factory.mktemp("chain")
    jax.config.update("jax_disable_most_optimizations", True)  # compiling is what takes the time here
    path = {n: folder / n for n in ("cohort", "store", "run", "p", "packs", "r", "v")}
    data = ["--cohort", path["cohort"], "--store", path["store"]]
    path["data"], path["trained"] = data, ["--run", path["run"], *data]
    for words in (["cohort", "planted", "--out", path["cohort"]], ["embed", "--cohort", path["cohort"], "--out", path["store"]],
                  ["train", *data, "--out", path["run"], "--runs", "1"], ["predict", *path["trained"], "--out", path["p"]],
                  ["explain", *path["trained"], "--out", path["packs"]], ["generate", "--packs", path["packs"], "--out", path["r"]],
                  ["verify", "--rationales", path["r"], "--packs", path["packs"], "--cohort", path["cohort"], "--out", path["v"]]):
        assert main([*map(str, words), *SMALL]) == 0, words
    jax.config.update("jax_disable_most_optimizations", False)
    return path


@pytest.mark.parametrize("text, reason", [
    ("x = 1\nraise KeyError('lr')", "line 2: KeyError"), ("def get_config():\n    return 1 / 0", "line 2: ZeroDivisionError"),
    ("syntax(", "SyntaxError"), ("\0", "SyntaxError"), ("import sys; sys.exit(0)", "SystemExit"), ("import nosuchmodule", "nosuchmodule"),
    ("get_config = 3", "not callable"), ("def get_config():\n    return get_config()", "RecursionError"), ("x = 1", "no get_config()"),
])
def test_a_settings_file_that_raises(text, reason, capsys, tmp_path):
    (tmp_path / "c.py").write_text(text)
    line = refused(capsys, "cohort", "planted", "--out", tmp_path / "c", "--config", tmp_path / "c.py")
    assert f"{tmp_path}/c.py" in line and reason in line and os.listdir(tmp_path) == ["c.py"]
    assert "directory" in refused(capsys, "cohort", "planted", "--out", tmp_path / "c", "--config", tmp_path)


@pytest.mark.parametrize("item", ["train.lr=1e999", "train.lr=1" + "0" * 400, "explain.tolerance=-1e999", "verify.threshold=(1)*2"])
def test_settings_are_finite_numbers(item, capsys, tmp_path):
    assert f"--set {item.partition('=')[0]}: got" in refused(capsys, "cohort", "planted", "--out", tmp_path / "c", "--set", item)


@pytest.mark.parametrize("text, reason", [("{}", "spec.json.name: missing"), ("[" * 100_000, "not valid JSON")])
def test_a_spec_that_lacks_fields(text, reason, capsys, tmp_path):
    (tmp_path / "spec.json").write_text(text)
    patients = written(tmp_path / "p.jsonl", [PATIENT])
    assert reason in refused(capsys, "cohort", "jsonl", "--input", patients, "--spec", tmp_path / "spec.json", "--out", tmp_path / "c")


@pytest.mark.parametrize("change, reason", [({"patient_id": "9"}, "l.jsonl: patient_id: "), ({"prediction_time": "2001-01-01"}, "l.jsonl: notes: ")])
def test_a_label_that_does_not_fit_its_record_names_the_file(change, reason, capsys, tmp_path):
    files = written(tmp_path / "p.jsonl", [PATIENT]), written(tmp_path / "l.jsonl", [LABEL | change])
    assert reason in refused(capsys, "cohort", "jsonl", "--input", files[0], "--labels", files[1], "--out", tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["l.jsonl", "p.jsonl"]


def test_a_field_that_stands_twice(capsys, tmp_path):
    patients = written(tmp_path / "p.jsonl", [PATIENT])
    (tmp_path / "l.jsonl").write_text('{"patient_id": "1", "prediction_time": "2020-01-01", "label": 1, "label": 0}\n')
    line = refused(capsys, "cohort", "jsonl", "--input", patients, "--labels", tmp_path / "l.jsonl", "--out", tmp_path / "c")
    assert "l.jsonl:1: label: stands twice" in line


def test_results_never_replace_what_they_are_made_from(chain, capsys, tmp_path):
    before = {p: p.read_bytes() for p in chain["cohort"].parent.rglob("*") if p.is_file()}
    (tmp_path / "link").symlink_to(chain["packs"])
    os.mkfifo(tmp_path / "pipe")
    generate = ["generate", "--packs", chain["packs"], "--out"]
    for words in ([*generate, chain["packs"]], [*generate, tmp_path / "link"], [*generate, tmp_path / "pipe"], [*generate, ""],
                  ["predict", *chain["trained"], "--out", chain["cohort"] / "labels.jsonl"],
                  ["predict", *chain["trained"], "--out", chain["run"] / "runs.json"],
                  ["embed", "--cohort", chain["cohort"], "--out", chain["cohort"]],
                  ["train", *chain["data"], "--out", chain["store"] / "run"],
                  ["cohort", "jsonl", "--input", chain["cohort"] / "patients.jsonl.gz", "--labels", chain["cohort"] / "labels.jsonl",
                   "--overwrite", "--out", chain["cohort"]]):
        assert "name another path" in refused(capsys, *words) or words[-1] == ""
    assert {p: p.read_bytes() for p in chain["cohort"].parent.rglob("*") if p.is_file()} == before
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()


def test_a_link_keeps_pointing_at_the_result(chain, capsys, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "r.jsonl")
    assert main(["generate", "--packs", str(chain["packs"]), "--out", str(tmp_path / "link"), *SMALL]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "r.jsonl").read_bytes() == chain["r"].read_bytes()


def test_a_folder_of_something_else_is_no_store(chain, capsys, tmp_path):
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "mine").write_text("keep")
    with_size = ["--set", "observations.size=0"]
    assert "got size 0" in refused(capsys, "embed", "--cohort", chain["cohort"], "--out", tmp_path / "new", *with_size)
    assert "not a vector store" in refused(capsys, "embed", "--cohort", chain["cohort"], "--out", tmp_path)
    assert (tmp_path / "vectors" / "mine").read_text() == "keep" and os.listdir(tmp_path) == ["vectors"]


def test_an_error_says_what_to_do(chain, capsys, tmp_path):
    (tmp_path / "mimic" / "hosp").mkdir(parents=True)
    trained = written(tmp_path / "l", [x | {"split": "train"} for x in rows(chain["cohort"] / "labels.jsonl")[:9]])
    assert main(["cohort", "jsonl", "--input", str(chain["cohort"] / "patients.jsonl.gz"), "--labels", str(trained), "--out",
                 str(tmp_path / "c"), *SMALL]) == 0
    assert main(["embed", "--cohort", str(tmp_path / "c"), "--out", str(tmp_path / "s"), *SMALL, "--set=encoder.name=hash:8"]) == 0
    capsys.readouterr()
    other, out = ["--cohort", tmp_path / "c", "--store", tmp_path / "s"], ["--out", tmp_path / "out"]
    for words, advice in (
        (["cohort", "planted", "--out", chain["cohort"]], "replace it (--overwrite)"),
        (["cohort", "mimic_iv", "--input", tmp_path / "mimic", *out], "--notes rendered"),
        (["embed", "--cohort", tmp_path / "none", *out], "`evigen cohort` makes one"),
        (["train", *chain["data"], "--out", chain["run"], "--runs", "1", "--set", "train.lr=0.5"], "replace it (--no-resume)"),
        (["train", *other, *out], "use `evigen eval`"),
        (["train", *chain["data"], *out, "--set", "model.d=768"], "model.d: got 768, the store has 16"),
        (["train", "--cohort", chain["cohort"], "--store", tmp_path / "s", *out], "in this store; name the store of this cohort, or run `evigen embed` into a new folder"),
        (["predict", "--run", chain["run"], *other, *out], "embed with that encoder"),
        (["predict", "--run", tmp_path / "none", *chain["data"], *out], "no trained run here"),
        (["eval", *chain["data"], *out, "--folds", "99"], "expected 2 to "),
    ):
        assert advice in refused(capsys, *words), words
    assert not (tmp_path / "out").exists()


def test_folds_leave_enough_of_each_class():
    label = np.array([0] * 9 + [1] * 3)
    assert sorted(np.bincount(crossval.fold_of(label, 3, 0))) == [4, 4, 4]
    for folds, ones, reason in ((2, 3, "it takes 3 patients a class"), (2, 2, "it takes 3 patients a class"), (4, 3, "expected 2 to 3"), (1, 3, "got 1")):
        with pytest.raises(ValueError, match=reason):
            crossval.fold_of(np.array([0] * 9 + [1] * ones), folds, 0)


def test_one_process_trains_into_a_folder(chain, capsys, tmp_path):
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        for command in ("train", "eval"):
            assert "another process" in refused(capsys, command, *chain["data"], "--out", tmp_path)
    finally:
        os.close(held)
    assert os.listdir(tmp_path) == []
    for words in (["train", *chain["data"], "--runs", "0"], ["eval", *chain["data"], "--repeats", "0"], ["eval", *chain["data"], "--folds", "1"]):
        assert "got " in refused(capsys, *words, "--out", tmp_path / "out") and os.listdir(tmp_path) == []


def test_what_a_killed_run_left_is_gone_after_the_next(chain, tmp_path):
    files = ["--predictions", chain["p"], "--packs", chain["packs"], "--rationales", chain["r"], "--verifications", chain["v"]]
    for n, words in enumerate((["cohort", "planted"], ["report", *chain["trained"], *files], ["generate", "--packs", chain["packs"]])):
        part = tmp_path / str(n) / ".out.0123abcd.part"
        part.mkdir(parents=True)
        (part / "half").write_text("half")
        assert main([*map(str, words), "--out", str(tmp_path / str(n) / "out"), *SMALL]) == 0
        assert os.listdir(tmp_path / str(n)) == ["out"], words


def test_a_full_disk_names_the_output(chain, capsys, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(write, "_write", full)
    files = ["--predictions", chain["p"], "--packs", chain["packs"], "--rationales", chain["r"], "--verifications", chain["v"]]
    for words in (["cohort", "planted"], ["predict", *chain["trained"]], ["generate", "--packs", chain["packs"]],
                  ["report", *chain["trained"], *files]):
        assert f"{tmp_path}/out" in refused(capsys, *words, "--out", tmp_path / "out") and os.listdir(tmp_path) == []


def test_a_summary_that_stdout_cannot_spell(chain, tmp_path, monkeypatch):
    for encoding, name in (("ascii", "é"), ("utf-8", "\udcff")):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape" if name > "é" else "strict"))
        assert main(["generate", "--packs", str(chain["packs"]), "--out", f"{tmp_path}/{name}", *SMALL]) == 0
        sys.stdout.flush()
        assert json.loads(raw.getvalue().decode("utf-8"))["rationales"] == f"{tmp_path}/{name}"


@pytest.mark.parametrize("name, text, reason", [
    ("store/header.json", '{"dim": "16"}', "header.json: dim"), ("store/index.jsonl", "{}\n", "index.jsonl:1: "),
    ("store/index.jsonl", "[" * 100_000, "index.jsonl:1: "), ("cohort/cohort.json", '{"task": []}', "cohort.json: task"),
    ("run/runs.json", "[]", "runs.json: best"), ("run/runs.json", '{"best": "../x"}', "runs.json: best"),
    ("run/seed_0/config.json", "{}", "config.json: model"),
])
def test_a_damaged_file_of_our_own(name, text, reason, chain, capsys, tmp_path):
    for part in ("cohort", "store", "run"):
        shutil.copytree(chain[part], tmp_path / part)
    file = tmp_path / name
    if text.startswith("{") and file.suffix == ".json" and "runs" not in name and text != "{}":
        text = json.dumps(json.loads(file.read_text()) | json.loads(text))
    file.write_text(text)
    line = refused(capsys, "predict", "--run", tmp_path / "run", "--cohort", tmp_path / "cohort", "--store", tmp_path / "store",
                   "--out", tmp_path / "p")
    assert reason in line and not (tmp_path / "p").exists()


def test_nan_in_a_store_names_the_store(chain, capsys, tmp_path):
    shutil.copytree(chain["store"], tmp_path / "store")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "store" / "vectors")}}
    tensorstore.open(spec, open=True).result()[5].write(np.full(16, np.nan, np.float32)).result()
    line = refused(capsys, "train", "--cohort", chain["cohort"], "--store", tmp_path / "store", "--out", tmp_path / "run")
    assert f"{tmp_path}/store: patient " in line and "NaN" in line and os.listdir(tmp_path) == ["store"]


def other(row: dict, **change) -> dict:
    return copy.deepcopy(row) | change


@pytest.mark.parametrize("name, change, reason", [
    ("p", {"patient_id": "elsewhere"}, "not in the cohort"), ("p", {"gate": [1]}, "gate"), ("p", {"split": []}, "split"),
    ("p", {"gate": [7, 7, 7]}, "gate"), ("p", {"prob": 0.001, "logit": -6.9}, "prob"), ("p", {"label": 3}, "p:1: label"),
    ("p", {"logit": 10**400}, "p:1: "), ("r", {"probability": 0.123}, "r: patient "), ("r", {"task": "other"}, "r: patient "),
    ("v", {"factors": []}, "not the citations"), ("r", {"reasoning_lens": "Another one."}, "rationale_sha256: got"),
    ("v", {"rationale_sha256": "0" * 64}, "rationale_sha256: got 000000000000, the rationale in "), ("v", {"threshold": 101.0}, "threshold"),
    ("packs", {"run_id": "0" * 12}, "run_id"), ("packs", {"encoder_id": "x"}, "encoder_id"),
    ("packs", {"prediction_time": "2001-01-01T00:00:00"}, "prediction_time"), ("packs", {"task": {"name": "x", "sentence": "y"}}, "task"),
])
def test_results_of_another_run_or_cohort_are_not_joined(name, change, reason, chain, capsys, tmp_path):
    first, *rest = rows(chain[name])
    at = {n: chain[n] for n in ("p", "packs", "r", "v")} | {name: written(tmp_path / name, [other(first, **change), *rest])}
    line = refused(capsys, "report", *chain["trained"], "--predictions", at["p"], "--packs", at["packs"], "--rationales", at["r"],
                   "--verifications", at["v"], "--out", tmp_path / "report")
    assert reason in line and os.listdir(tmp_path) == [name]


def test_a_verification_of_another_rationale_names_both_files_and_the_patient(chain, capsys, tmp_path):
    first, *rest = rows(chain["r"])
    first["factors"][0]["summary"] += "!"  # same ranks, same citations
    changed = written(tmp_path / "changed", [first, *rest])
    other = written(tmp_path / "other", rest)
    for file in (changed, other):
        line = refused(capsys, "report", *chain["trained"], "--predictions", chain["p"], "--packs", chain["packs"], "--rationales", file,
                       "--verifications", chain["v"], "--out", tmp_path / "report")
        assert all(str(part) in line for part in (file, chain["v"], repr(first["patient_id"]), "verify again"))


def test_the_threshold_that_was_set_is_the_one_in_every_figure(chain, capsys, tmp_path):
    packs, rationales = rows(chain["packs"]), rows(chain["r"])
    quote = rationales[0]["factors"][0]["evidence"][0]
    quote["quote"] = quote["quote"][:-8] + "".join("x" if c.isalpha() else c for c in quote["quote"][-8:])  # 90 > its score > 50
    packs, rationales = written(tmp_path / "packs", packs[:1]), written(tmp_path / "r", rationales[:1])
    out = tmp_path / "v"
    for threshold in (90.0, 50.0):
        assert main(["verify", "--rationales", str(rationales), "--packs", str(packs), "--cohort", str(chain["cohort"]), "--out", str(out),
                     *SMALL, "--set", f"verify.threshold={threshold}"]) == 0
        got, n = json.loads(capsys.readouterr().out), len(rows(packs)[0]["items"])
        assert got["thresholds"] == [threshold] == [v["threshold"] for v in rows(out)]
        assert got["quotes_rapidfuzz"]["k"] == got["quotes"]["k"] == n - (threshold > 50), got
    assert main(["report", *map(str, chain["trained"]), "--predictions", str(chain["p"]), "--packs", str(packs), "--rationales",
                 str(rationales), "--verifications", str(out), "--out", str(tmp_path / "report"), *SMALL]) == 0
    rates = {r["name"]: r["k"] for r in json.loads((tmp_path / "report" / "index.json").read_text())["pass_rates"]}
    assert rates["Quotes, rapidfuzz score 50 or more"] == str(n), rates


def test_verify_refuses_a_pack_of_another_moment_and_a_row_that_stands_twice(chain, capsys, tmp_path):
    packs = rows(chain["packs"])
    late = written(tmp_path / "late", [other(packs[0], prediction_time="2001-01-01T00:00:00"), *packs[1:]])
    twice = written(tmp_path / "twice", [*packs, packs[0]])
    forged = other(packs[0])
    forged["items"][0]["text"] = "x" * len(forged["items"][0]["text"])
    forged = written(tmp_path / "forged", [forged, *packs[1:]])
    verify = ["verify", "--rationales", chain["r"], "--cohort", chain["cohort"], "--out", tmp_path / "v", "--packs"]
    assert "late: patient " in refused(capsys, *verify, late)
    assert "text: the pack has" in refused(capsys, *verify, forged)
    assert f"twice:{len(packs) + 1}: patient_id: " in refused(capsys, *verify, twice)
    assert "twice:" in refused(capsys, "generate", "--packs", twice, "--out", tmp_path / "v") and not (tmp_path / "v").exists()


def test_paths_through_the_folder_above(chain, capsys, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    up = {name: os.path.relpath(chain[name], tmp_path / "here") for name in ("cohort", "store", "run")}
    assert all(path.startswith("..") for path in up.values())
    assert main(["embed", "--cohort", up["cohort"], "--out", "../s", *SMALL]) == 0
    assert main(["predict", "--run", up["run"], "--cohort", up["cohort"], "--store", "../s", "--out", "../p.jsonl", *SMALL]) == 0
    assert (tmp_path / "p.jsonl").read_bytes() == chain["p"].read_bytes()


def test_rationales_of_other_packs_are_refused(chain, capsys, tmp_path):
    def moved(pack):
        first, *others = pack["items"]
        share = 0.01 * first["attribution"]
        return pack | {"items": [first | {"attribution": first["attribution"] + share}, *others], "residual": pack["residual"] - share}

    other = written(tmp_path / "packs.jsonl", [moved(p) for p in rows(chain["packs"])])
    assert "generate again from these packs" in refused(
        capsys, "verify", "--rationales", chain["r"], "--packs", other, "--cohort", chain["cohort"], "--out", tmp_path / "v.jsonl")
    assert "generate again from these packs" in refused(
        capsys, "report", *chain["trained"], "--predictions", chain["p"], "--packs", other, "--rationales", chain["r"],
        "--verifications", chain["v"], "--out", tmp_path / "report")
    assert not (tmp_path / "v.jsonl").exists() and not (tmp_path / "report").exists()
