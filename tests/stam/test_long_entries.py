"""An entry of a megabyte, and of ten, from the reader to the last check: nothing lost, every quote in its place."""
import datetime as dt

import pytest

from core_jax.embed import HashEncoder
from stam_jax.graph.memory import Entry
from stam_jax.rules import RulesWriter
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest

ENCODER = HashEncoder(48)
FILLER = "The weather was talked about, then the garden, and how the stairs are in winter. "


def taken(path, characters):
    """A note of that length with a reading every ten thousand characters. Returns the state."""
    block = (FILLER * 200)[:9900].rstrip() + "\n"
    text = "".join(f"{block}Potassium {3 + i % 30 / 10:.1f} mmol/L on {dt.date(2019, 1, 1) + dt.timedelta(days=i)}.\n"
                   for i in range(characters // 9900 + 1))
    assert len(text) >= characters
    entries = [Entry.of("P1", "long", "note", text, date="2024-01-01"),
               Entry.of("P1", "after", "note", "Potassium 4.9 mmol/L.", date="2024-02-01")]
    with Store.open(path, encoder=header_of(ENCODER)) as store:
        report = ingest(store, entries, RulesWriter(), ENCODER)
        assert report.entries == {"admitted": 2, "partial": 0}
        assert store.verify() == []
    with Store.open(path) as store:
        state = store.state("P1")
        assert state.entries[entries[0].entry_key].text == text and store.verify() == []
        return text, state


@pytest.mark.parametrize("characters", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_a_long_entry(tmp_path, characters):
    text, state = taken(tmp_path / "store", characters)
    readings = text.count("Potassium") + 1
    places = [p for m in state.memories.values() for p in m.provenance]
    assert len(places) >= readings
    for m in state.memories.values():
        p = m.provenance[0]
        assert p.verified and "Potassium" in state.entries[p.entry_key].text[p.start:p.end] and m.value in m.text
    assert len(next(iter(state.entries.values())).chunks) >= characters / 9900 / 2
