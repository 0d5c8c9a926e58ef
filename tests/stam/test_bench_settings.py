"""What all suites of `stam bench` do alike: settings count, questions are instructed, reports name their command."""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shlex

import bench_cases as cases
import numpy as np
import pytest
from file_suite_cases import locomo
from table_cases import folder

from core_jax.embed import HashEncoder
from stam_jax.baselines.writers import SameSlot
from stam_jax.benchmarks import cascade, cohorts, deletion, file_suites, gate, harness, planted, table_suites
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.write_paths import INGESTED, STAM, memories_of, settings_of
from stam_jax.cli import main, parser
from stam_jax.commands import suites
from stam_jax.config import Config, ReadConfig, WriteConfig
from stam_jax.read.answer import ExtractiveReader
from stam_jax.read.search import encode_query, packet, search
from stam_jax.rules import RulesWriter, names
from stam_jax.write.writer import Extraction

WRITE = WriteConfig(relations=False, per_chunk=31)
READ = ReadConfig(active=5, history=4, most=6, labels=False, spans=True, instruction="Find this: ")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(T, "TEST_DRAWS", 50)
    monkeypatch.setattr(T, "FIGURE_DRAWS", 50)


@pytest.fixture(scope="module")
def timelines():
    return cases.cohort(2)


@pytest.fixture(scope="module")
def memories(timelines):
    return memories_of([e for t in timelines for e in planted.entries_of(t)], cases.Gold(timelines), HashEncoder(64),
                       (STAM, "append only"), write=WriteConfig())


# ---- instructions ----------------------------------------------------------------------------------------------------

class _Nothing:
    decider, hashes = "rule", {}

    def extract(self, entries):
        return [Extraction() for _ in entries]


def _suites(timelines, memories, tmp_path):
    """suite -> (texts of its questions, what encodes them: encoder, read -> None)."""
    asks = [a for t in timelines for a in planted.asks_of(t)]
    stam, reader = memories[STAM], ExtractiveReader(names)
    fallen = [a for t in timelines for a in cascade.asks_of(t)]
    cohort = cohorts.read("locomo", locomo(tmp_path))
    told = file_suites.written(cohort, [RulesWriter()], HashEncoder(64))
    tables = table_suites.tell(folder(tmp_path / "tables"), SameSlot(_Nothing()), HashEncoder(64),
                               paths=(STAM, "append only"))
    return {
        "planted": ({a.text for a in asks}, lambda e, read: planted.answers_of(
            timelines, memories, e, reader, 0, read)),
        "gate": ({a.text for a in asks}, lambda e, read: gate.replays(asks, stam, e, reader, read)),
        "cascade": ({a.text for a in fallen}, lambda e, read: cascade.absence_table(
            timelines, {STAM: cascade.Watched(stam, {})}, e, reader, 0, read)),
        "locomo": ({q.text for q in cohort.asked}, lambda e, read: file_suites.Marked(
            cohort, told, e, reader, None, read=read)),
        "mimic_qa": (None, lambda e, read: table_suites.mimic_qa_report(
            tmp_path / "tables", dataclasses.replace(tables, encoder=harness.OnceEncoder(e)), reader, read=read)),
    }


def test_every_suite_instructs_its_questions(timelines, memories, tmp_path):
    for name, (texts, run) in _suites(timelines, memories, tmp_path).items():
        own, given = cases.Prompted(64), cases.Prompted(64)
        run(harness.OnceEncoder(own), ReadConfig(6, 6, 6))
        run(harness.OnceEncoder(given), READ)
        instructed = {t for t in given.plain if t.startswith("Find this: ")}
        assert own.asked and instructed == {"Find this: " + t for t in own.asked} and not given.asked, name
        assert texts is None or own.asked == texts, name


def test_a_text_is_encoded_once_a_prompt():
    inner = cases.Prompted(16)
    once = harness.OnceEncoder(harness.OnceEncoder(inner))
    assert np.array_equal(encode_query(once, ["a", "b"]), HashEncoder(16).encode(["Find: a", "Find: b"]))
    assert np.array_equal(once.encode(["b"]), HashEncoder(16).encode(["b"]))
    inner.asked.clear()
    encode_query(once, ["a", "c"])
    assert inner.asked == {"c"}
    assert harness.OnceEncoder(HashEncoder(8)).prompts == {}


# ---- settings --------------------------------------------------------------------------------------------------------

def test_controls_share_the_settings_but_for_what_makes_them_controls():
    own = WriteConfig(budget=9, similar=3, per_chunk=5, least_link=0.7)
    assert settings_of(STAM, own) == own
    assert settings_of("no relations", own) == dataclasses.replace(own, relations=False)
    assert settings_of("semantic only, B 24", own) == dataclasses.replace(own, similar=24, related=0, budget=24)
    assert all(settings_of(name, own).per_chunk == 5 for name in INGESTED)


def test_packets_are_those_of_the_settings(timelines, memories):
    a = planted.answers_of(timelines, memories, HashEncoder(64), ExtractiveReader(names), 0, READ)
    both, one = a.arm("STAM, BOTH"), memories[STAM]
    assert both.setting == "k 6"
    for ask, served in zip(a.asks, both.packets):
        found = search(one.states[ask.patient_id], one.vectors[ask.patient_id], a.vectors[ask.text], READ)
        assert served == packet(found, "BOTH", READ)
    assert a.sized(9) == dataclasses.replace(READ, active=9, history=9, most=9)  # a depth of its own, all else alike
    short = planted.answers_of(timelines, memories, HashEncoder(64), ExtractiveReader(names), 0,
                               ReadConfig(12, 12, 12, tokens=15))
    assert all(len(p.text.split()) <= 15 for p in short.arm("STAM, BOTH").packets)
    assert max(len(p.text.split()) for p in short.arm("x", 12).packets) > 15  # a control is matched by its depth alone


def _bench(capsys, out, *args, code=0):
    assert main(["bench", "--out", str(out), "--quiet", *args]) == code
    said = capsys.readouterr()
    return {name: json.loads(pathlib.Path(p).read_text()) for name, p in json.loads(said.out)["tables"].items()
            } if code == 0 else said.err.strip()


def test_settings_reach_every_suite(capsys, tmp_path, monkeypatch):
    seen = {}

    def recorder(name):
        def run(*args, **how):
            seen[name] = how
            return T.Report(name, name, how["command"], {}, {}, {}, ())
        return run

    for name, module in {"planted": planted, "cascade": cascade, "gate": gate, "deletion": deletion}.items():
        monkeypatch.setattr(module, "run", recorder(name))
    monkeypatch.setattr(file_suites, "run", lambda suite, *args, **how: recorder(suite)(**how))
    for name in ("mimic_qa", "ehrsql"):
        monkeypatch.setattr(table_suites, f"{name}_report", recorder(name))
    monkeypatch.setattr(table_suites, "tell", lambda *args, **how: seen.update(tell=how) or "told")
    for path in ("mimic_iv_demo", "ehrsql2024"):
        (tmp_path / "data" / path).mkdir(parents=True)
    (tmp_path / "data" / "ehrsql2024" / "train_reproducible.json").write_text("[]")
    args = ["--suite", "planted,cascade,gate,deletion,mimic_qa,ehrsql,locomo", "--data", str(tmp_path / "data"),
            "--input", str(locomo(tmp_path / "talks"))]
    changed = ["--set", "write.budget=7", "--set", "read.spans=true", "--set", "encoder=hash:16"]
    made = _bench(capsys, tmp_path / "out", *args, *changed)
    write, read = WriteConfig(budget=7), ReadConfig(spans=True)
    for name in ("planted", "cascade", "gate", "deletion"):
        assert (seen[name]["write"], seen[name]["read"]) == (write, dataclasses.replace(planted.READ, spans=True)), name
    assert (seen["locomo"]["write"], seen["locomo"]["read"]) == (write, read)
    assert seen["mimic_qa"]["read"] == read and seen["tell"]["write"] == write
    command = ("stam bench --set write.budget=7 --set read.spans=true --set encoder=hash:16 "
               "--suite planted,cascade,gate,deletion,mimic_qa,ehrsql,locomo --input PATH --data DIR --out DIR")
    assert {r["command"] for r in made.values()} == {command} and len(made) == 7
    _bench(capsys, tmp_path / "out", *args, "--set", "read.most=60", "--set", "read.history=0")
    assert seen["planted"]["read"] == seen["mimic_qa"]["read"] == ReadConfig(60, 0, 60)
    _bench(capsys, tmp_path / "out", *args, "--set", "read.most=60")
    assert seen["gate"]["read"] == ReadConfig()  # named, though it is the default


def test_a_report_shows_settings_that_count(capsys, tmp_path):
    report = _bench(capsys, tmp_path, "--suite", "gate", "--patients", "10", "--wording", "train", "--set",
                    "encoder=hash:16", "--set", "read.most=3", "--set", "write.per_chunk=2")["gate"]
    assert report["config"]["read"] == dataclasses.asdict(ReadConfig(most=3))
    assert report["config"]["write"] == dataclasses.asdict(WriteConfig(per_chunk=2))
    usual = _bench(capsys, tmp_path, "--suite", "gate", "--patients", "10", "--wording", "train", "--set",
                   "encoder=hash:16")["gate"]
    tokens = [r["tables"]["gate"]["rows"][0]["mean tokens"] for r in (report, usual)]
    assert tokens[0] < 0.5 * tokens[1] and usual["config"]["read"] == dataclasses.asdict(planted.READ)
    assert report["command"] == ("stam bench --set encoder=hash:16 --set read.most=3 --set write.per_chunk=2 "
                                 "--suite gate --patients 10 --wording train --out DIR")


@pytest.mark.parametrize(("args", "why"), [
    (["--set", "write.budget=24"], "write.budget: changes nothing here: clinosim takes write.retries, write.answer_"),
    (["--set", "read.most=5"], "read.most: changes nothing here"),
    (["--set", "encoder=hash:8"], "encoder: changes nothing here"),
])
def test_a_setting_that_counts_nowhere_is_refused(capsys, tmp_path, args, why):
    (tmp_path / "clinosim").mkdir()
    (tmp_path / "clinosim" / "a.jsonl").write_text("")
    said = _bench(capsys, tmp_path / "out", "--suite", "clinosim", "--data", str(tmp_path), *args, code=2)
    assert why in said and len(said.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_which_suites_take_a_setting():
    one = Config(write=WriteConfig(budget=24))
    suites._check_settings(["clinosim", "ehrsql"], one)  # counts in one of them
    suites._check_settings(["clinosim"], Config(write=WriteConfig(retries=0)))
    suites._check_settings(["planted"], Config("hash:8", one.write, ReadConfig(words=9)))
    with pytest.raises(ValueError, match=r"read\.words: changes nothing here: ehrsql takes write\.\*"):
        suites._check_settings(["ehrsql"], Config(read=ReadConfig(words=9)))


# ---- the command -----------------------------------------------------------------------------------------------------

def test_a_command_has_every_option_and_no_place():
    words = ["bench", "--suite", "planted", "--system", "mem0", "--patients", "4", "--seed", "3", "--writer", "u#n",
             "--adapters", "/home/a", "--reader", "r", "--judge", "j", "--noise", "--language", "zh", "--data", "/d",
             "--all-questions", "--window", "9", "--table-encoder", "hash:8", "--wording", "train", "--config", "/c.py",
             "--set", "write.budget=2", "--set", "read.instruction=Find this: ", "--input", "/x", "--input", "/y",
             "--system-python", "/p", "--out", "/o", "--quiet"]
    args = parser().parse_args(words)
    usual = parser().parse_args(["bench", "--out", "x"])
    assert all(getattr(args, name) != value for name, value in vars(usual).items() if name != "command")
    again = parser().parse_args(shlex.split(suites.command_of(args))[1:])
    places = {"adapters": "DIR", "data": "DIR", "config": "FILE.py", "input": ["PATH", "PATH"],
              "system_python": "PYTHON", "out": "DIR", "quiet": False}
    assert again == argparse.Namespace(**vars(args) | places)
    assert suites.command_of(usual) == "stam bench --out DIR"
