"""What is stored depends on no clock of the machine: the same states, journal and pages on both sides of the date line."""
import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, time
time.tzset()
from core_jax.embed import HashEncoder
from stam_jax.graph.clinical_time import ClinicalTime, entry_date, later, resolve
from stam_jax.graph.memory import Entry
from stam_jax.page.page import page
from stam_jax.rules import RulesWriter
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest

notes = [("2024-02-29", "Started metformin 500 mg daily yesterday. INR check in two weeks."),
         ("2024-03-10T02:30:00", "Metformin 850 mg twice daily since last Monday. Potassium 4.1 mmol/L this morning."),
         ("2024-12-31T23:59:59", "Metformin stopped today. Cough for three days."),
         ("2025-01-01T00:00:01", "Denies cough. Next visit on 2025-02-28."), (None, "Allergic to penicillin since 2019.")]
encoder = HashEncoder(32)
with Store.open(sys.argv[1], encoder=header_of(encoder), check=True) as store:
    ingest(store, [Entry.of("P1", str(i), "note", text, date=date) for i, (date, text) in enumerate(notes)], RulesWriter(), encoder)
    state = store.state("P1")
    words = ["today", "yesterday", "two weeks ago", "last month", "since Monday", "until tomorrow", "in March", "2020"]
    dates = ["2024-03-31T00:30:00", "2024-03-31T23:30:00", "2024-03-31T12:00:00+05:00", "2024-02-29", "2024"]
    said = []
    for d in dates:
        try:
            date = entry_date(d)
        except ValueError as e:
            said.append(str(e))
        else:
            said.append([date, *(str(resolve(w, date)) for w in words)])
    print(json.dumps({"offset": time.timezone, "state": state.sha256, "chain": [r.hash for r in store.records("P1")],
                      "shown": [[m.mid for m in getattr(state.as_of_date("2024-03-10"), n)] for n in ("held", "ended")],
                      "page": len(page(state)), "times": said, "violations": [str(v) for v in store.verify()]}))
"""


def run(path, zone):
    env = {**os.environ, "TZ": zone, "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], env=env, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


@pytest.fixture(scope="module")
def at_greenwich(tmp_path_factory):
    return run(tmp_path_factory.mktemp("utc") / "store", "UTC")


@pytest.mark.parametrize("zone, offset", [("Pacific/Kiritimati", -14), ("America/Los_Angeles", 8)])
def test_another_time_zone_changes_nothing(tmp_path, at_greenwich, zone, offset):
    there = run(tmp_path / "store", zone)
    assert there.pop("offset") == offset * 3600 and at_greenwich["offset"] == 0
    assert there == {k: v for k, v in at_greenwich.items() if k != "offset"} and not there["violations"]
