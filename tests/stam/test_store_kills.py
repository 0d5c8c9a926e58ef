"""SIGKILL before, within and after the transaction and at random moments: nothing committed is lost, nothing torn."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_nothing(tmp_path, kills):
    path = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(HERE / "kill_points.py"), str(tmp_path), str(kills)], text=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == {} and report["end"] == "same"
    assert report["killed"] + report["finished"] == kills and report["killed"] >= kills * 0.7 and report["in_log"] >= 1
