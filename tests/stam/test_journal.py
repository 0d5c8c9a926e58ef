"""The hash chain: bound to its patient, broken by any change, kept by a redaction."""
import dataclasses
import json

import pytest
from memory_cases import doses

from stam_jax.graph import canonical
from stam_jax.graph.state import State
from stam_jax.graph.update import Update
from stam_jax.storage import journal


@pytest.fixture
def chain() -> list[journal.Record]:
    out, prev = [], journal.genesis("p1")
    for c in doses(4):
        out.append(journal.record(Update.of(c), prev, "2024-01-01T00:00:00"))
        prev = out[-1].hash
    return out


def test_a_chain_holds_and_replays(chain):
    assert journal.faults("p1", chain) == [] == journal.faults("p1", [])
    states = [State.replay("p1", [r.update() for r in chain[:n]]) for n in range(5)]
    assert len({s.sha256 for s in states}) == 5 and [s.version for s in states] == [0, 1, 2, 3, 4]


def test_a_chain_belongs_to_its_patient(chain):
    moved = [dataclasses.replace(r, patient_id="p10") for r in chain]
    assert journal.faults("p10", moved)


@pytest.mark.parametrize("change", [
    lambda c: c[1:], lambda c: [c[0], *c[2:]], lambda c: [c[1], c[0], *c[2:]], lambda c: [*c, c[-1]],
    lambda c: [*c[:-1], dataclasses.replace(c[-1], body=c[-1].body.replace("8", "9", 1))],
    lambda c: [*c[:-1], dataclasses.replace(c[-1], hash="0" * 64)],
    lambda c: [*c[:1], dataclasses.replace(c[1], prev_hash=journal.genesis("p1")), *c[2:]],
    lambda c: [*c[:-1], dataclasses.replace(c[-1], body="[]")],
    lambda c: [*c[:-1], dataclasses.replace(c[-1], body="{")],
    lambda c: [*c[:-1], dataclasses.replace(c[-1], body=" " + c[-1].body)],
])
def test_any_change_breaks_it(chain, change):
    assert journal.faults("p1", change(chain))


def test_a_forged_predecessor_shows_in_its_follower(chain):
    update = dataclasses.replace(chain[0].update(), counters={"forged": 1})
    forged = journal.record(update, journal.genesis("p1"))
    assert journal.faults("p1", [forged, dataclasses.replace(chain[1], prev_hash=forged.hash), *chain[2:]]) == [
        "record 2 of 'p1': the body does not have the hash of the record"]


def test_the_moment_of_recording_is_no_part_of_it(chain):
    assert journal.record(chain[0].update(), journal.genesis("p1"), "another day").hash == chain[0].hash


def test_a_redaction_keeps_every_hash(chain):
    mid = chain[0].update().memories[0].mid
    entry = chain[0].update().entries[0]
    left = {entry.entry_key: {"source_id": "erased", "kind": "erased", "text": "", "author_role": "erased"}}
    cut = [journal.redact(r, {mid}, left) for r in chain]
    assert journal.faults("p1", cut) == [] and [r.hash for r in cut] == [r.hash for r in chain]
    assert "lisinopril 5 mg" not in cut[0].body and cut[1:] == chain[1:]
    assert journal.contents(cut, {mid}) == journal.contents(chain, {mid})
    assert [journal.redact(r, {mid}, left) for r in cut] == cut
    forged = json.loads(cut[0].body)
    forged["memories"][0]["content_sha256"] = canonical.digest("something else")
    assert journal.faults("p1", [dataclasses.replace(cut[0], body=canonical.dumps(forged)), *cut[1:]])
