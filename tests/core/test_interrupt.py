"""Ctrl-C ends a command within a step, wherever it falls; a second one ends it at once; the next run goes on."""
import contextlib
import gc
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from core_jax.interrupt import heard
from evigen_jax.cli import main

SMALL = ["--quiet", "--set=encoder.name=hash:16", "--set=model.n_note=2", "--set=model.n_code=1", "--set=model.d_hidden=8",
         "--set=train.warmup_steps=5", "--set=train.patience=3000", "--set=train.epochs=3000", "--set=cohort.planted_patients=40"]


@pytest.fixture(autouse=True)
def hears():
    """A suite that runs in the background of a script ignores interrupts, and so would the children that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Interrupted:
    """Is interrupted where Python prints what is raised and goes on: when it is destroyed."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        spin(0.1)


def test_an_interrupt_in_a_destructor_or_a_collection_is_raised_all_the_same(capsys):
    def collected(phase, info):
        if phase == "stop":
            gc.callbacks.remove(collected)
            os.kill(os.getpid(), signal.SIGINT)
            spin(0.1)

    for provoke in (Interrupted, lambda: (gc.callbacks.append(collected), gc.collect())):
        with pytest.raises(KeyboardInterrupt), heard():
            provoke()
            spin(5)
    assert "ignored" not in capsys.readouterr().err


def test_everything_is_as_before_afterwards():
    def state():
        return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook, signal.getitimer(signal.ITIMER_REAL)

    before = state()
    with heard():
        assert state()[0] is not before[0]
    with pytest.raises(KeyboardInterrupt), heard():
        os.kill(os.getpid(), signal.SIGINT)
        spin(5)
    with pytest.raises(KeyboardInterrupt), heard():  # what an interrupted library raises in its place
        try:
            os.kill(os.getpid(), signal.SIGINT)
            spin(5)
        except KeyboardInterrupt:
            raise RuntimeError("generator ignored it") from None
    with pytest.raises(ZeroDivisionError), heard():
        1 / 0
    assert state() == before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heard():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    cohort, store = str(folder / "cohort"), str(folder / "store")
    assert main(["cohort", "planted", "--out", cohort, *SMALL]) == 0
    assert main(["embed", "--cohort", cohort, "--out", store, *SMALL]) == 0
    return ["--cohort", cohort, "--store", store]


@contextlib.contextmanager
def training(data, run):
    """`evigen train` into `run` by a process of its own, which has begun."""
    script = "from evigen_jax.cli import script; print('begun', flush=True); script()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "train", *data, "--out", str(run), "--runs", "1", *SMALL], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=pathlib.Path(__file__).resolve().parents[2],
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"})  # compiling is what takes the time here
    with process:
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()  # one that does not end is not waited for


def interrupt(process) -> None:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.endswith("evigen train: interrupted; what was finished is kept, run the same command again to go on\n")


def epochs(run: pathlib.Path) -> int:
    log = run / "seed_0" / "metrics.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_training_ends_when_told(data, tmp_path):
    with training(data, tmp_path) as process:
        end = time.monotonic() + 120
        while epochs(tmp_path) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(random.Random(0).random())
        interrupt(process)


@pytest.mark.slow
def test_any_moment_will_do_and_training_goes_on_from_there(data, tmp_path):
    rng, seen = random.Random(1), 0
    for _ in range(12):
        with training(data, tmp_path) as process:
            time.sleep(15 * rng.random())
            interrupt(process)
        assert epochs(tmp_path) >= seen - 1  # an epoch whose checkpoint was not there yet is done again
        seen = epochs(tmp_path)
    rows = [json.loads(line)["epoch"] for line in (tmp_path / "seed_0" / "metrics.jsonl").read_text().splitlines()]
    assert seen > 10 and rows == list(range(1, len(rows) + 1))


def test_a_second_signal_ends_it_at_once(tmp_path):
    script = ("import time\nfrom core_jax.interrupt import heard\nwith heard():\n    for word in ('ready', 'closing', 'stuck'):\n"
              "        try:\n            print(word, flush=True)\n            time.sleep(20)\n        except KeyboardInterrupt:\n            pass\n")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                          cwd=pathlib.Path(__file__).resolve().parents[2]) as process:
        for line in ("ready\n", "closing\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == -signal.SIGINT


def test_a_step_that_cannot_go_on_says_that_nothing_was_written(tmp_path, capsys, monkeypatch):
    from evigen_jax import sources

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        spin(5)

    monkeypatch.setattr(sources, "build", interrupted)
    assert main(["cohort", "planted", "--out", str(tmp_path / "c"), *SMALL]) == 130
    assert capsys.readouterr().err == "evigen cohort: interrupted; nothing was written\n" and os.listdir(tmp_path) == []
