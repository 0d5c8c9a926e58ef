"""Results appear whole; what a killed process leaves is cleared by the next one, and never what a living one makes."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from core_jax import staging

MAKER = """
import pathlib, sys, time
from core_jax import staging
staging.clear(sys.argv[1])
with staging.folder(sys.argv[1]) as part:
    pathlib.Path(part, "a").write_text(sys.argv[2])
    print("half", flush=True)
    time.sleep(float(sys.argv[3]))
    pathlib.Path(part, "b").write_text(sys.argv[2])
"""
DIES_BETWEEN = """
import os, pathlib, sys
from core_jax import staging
rename, calls = os.rename, []
def once(a, b):
    if calls: os.kill(os.getpid(), 9)
    calls.append(a); rename(a, b)
os.rename = once
with staging.folder(sys.argv[1]) as part:
    pathlib.Path(part, "a").write_text("new")
"""


def start(script: str, *words: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            cwd=pathlib.Path(__file__).resolve().parents[2])


def make(path, text: str) -> None:
    staging.clear(path)
    with staging.folder(path) as part:
        for name in "ab":
            pathlib.Path(part, name).write_text(text)


def content(folder) -> dict[str, str]:
    return {f.name: f.read_text() for f in folder.iterdir()}


def test_a_folder_and_a_file_appear_whole_or_not_at_all(tmp_path):
    out = tmp_path / "out"
    make(out, "1")
    make(out, "2")
    assert content(out) == {"a": "2", "b": "2"} and os.listdir(tmp_path) == ["out"]
    with pytest.raises(ZeroDivisionError), staging.folder(out) as part:
        pathlib.Path(part, "a").write_text("3")
        1 / 0
    with pytest.raises(ZeroDivisionError), staging.file(tmp_path / "f") as raw:
        raw.write(b"half")
        1 / 0
    assert content(out) == {"a": "2", "b": "2"} and os.listdir(tmp_path) == ["out"]
    with staging.file(tmp_path / "f") as raw:
        raw.write(b"whole")
    assert (tmp_path / "f").read_bytes() == b"whole" and sorted(os.listdir(tmp_path)) == ["f", "out"]


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays(tmp_path):
    out = tmp_path / "out"
    with start(MAKER, out, "killed", 20) as killed, start(MAKER, out, "alive", 20) as alive:
        assert killed.stdout.readline() == alive.stdout.readline() == "half\n"
        killed.kill()
        killed.wait()
        before = {n for n in os.listdir(tmp_path)}
        make(out, "next")
        left = {n for n in os.listdir(tmp_path)} - {"out"}
        assert len(before) == 2 and len(left) == 1 and left < before and content(out) == {"a": "next", "b": "next"}
        assert content(tmp_path / left.pop()) == {"a": "alive"}
        alive.send_signal(signal.SIGINT)
    assert os.listdir(tmp_path) == ["out"]  # it tidied up itself


def test_an_unfinished_file_goes_too(tmp_path):
    script = ("import sys, time\nfrom core_jax import staging\nwith staging.file(sys.argv[1]) as raw:\n"
              "    raw.write(b'half')\n    raw.flush()\n    print('half', flush=True)\n    time.sleep(20)\n")
    with start(script, tmp_path / "f") as killed:
        assert killed.stdout.readline() == "half\n"
        killed.kill()
    assert len(os.listdir(tmp_path)) == 1
    with staging.file(tmp_path / "f") as raw:
        raw.write(b"whole")
    assert os.listdir(tmp_path) == ["f"]


def test_a_result_that_had_stepped_aside_comes_back(tmp_path):
    out = tmp_path / "out"
    make(out, "old")
    with start(DIES_BETWEEN, out) as killed:
        assert killed.wait() == -signal.SIGKILL
    assert not out.exists() and len(os.listdir(tmp_path)) == 2
    staging.clear(out)
    assert content(out) == {"a": "old", "b": "old"} and os.listdir(tmp_path) == ["out"]


def test_a_rename_that_fails_brings_the_earlier_result_back(tmp_path, monkeypatch):
    out = tmp_path / "out"
    make(out, "old")
    rename = os.rename

    def refuse(a, b):
        if str(b) == str(out) and ".part" in str(a):
            raise OSError(5, "no")
        rename(a, b)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="no"):
        make(out, "new")
    assert content(out) == {"a": "old", "b": "old"} and os.listdir(tmp_path) == ["out"]


def test_nothing_but_its_own_is_cleared(tmp_path):
    names = [".out.backup.part", ".out.0123456.part", "out.01234567.part", ".other.01234567.part", ".out.01234567.was.gz"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "mine").write_text("")
    (tmp_path / ".out.01234567.part").symlink_to(tmp_path / "mine")
    make(tmp_path / "out", "1")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "out", "mine", ".out.01234567.part"])


def test_an_error_names_the_result(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/out'$"):
        make(tmp_path / "file" / "out", "1")


def test_many_at_once_with_kills_leave_one_whole_result(tmp_path):
    rng, out = random.Random(0), tmp_path / "out"
    make(out, "first")
    running = [start(MAKER, out, n, rng.random() * 0.2) for n in range(8)]
    time.sleep(0.3)
    for process in running[::2]:
        process.kill()
    for process in running:
        process.communicate()
    make(out, "last")
    assert content(out) == {"a": "last", "b": "last"} and os.listdir(tmp_path) == ["out"]
