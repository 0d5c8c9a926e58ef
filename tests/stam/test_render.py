"""Lines of a packet: what they say of the past, their order, and that no memory leaves its line."""
import dataclasses

import pytest
from memory_cases import entry, memory

from stam_jax.read.packet import Item, Past
from stam_jax.read.render import amount, in_order, label, line, render, said


def item(text, *, start=None, place="ACTIVE", past=None, cosine=0.5, source=None, **fields) -> Item:
    e = entry(text)
    return Item(memory(e, text=text, start=start, **fields), place, cosine, past, source)


@pytest.mark.parametrize("past, words", [
    (Past("SUPERSEDED", "m1", "10 mg daily", "2024-04-02"), "(past: superseded by 10 mg daily on 2024-04-02)"),
    (Past("RESOLVED"), "(past: resolved)"),
    (Past("RESOLVED", "m1", "Warfarin stopped", "2024-05"), "(past: resolved by Warfarin stopped on 2024-05)"),
    (Past("CORRECTED", "m1", "7.1 %"), "(past: corrected to 7.1 %)"),
    (Past("EXPIRED", on="2024-05-01"), "(past: ended on 2024-05-01)"),
    (Past("ENDED", on="2024-05-01"), "(past: ended on 2024-05-01)"),
    (Past("RESTATED", "m1", "850 mg"), "(past: restated by 850 mg)"),
    (Past("PRIOR_STATE", "m1", "850 mg"), "(past: followed by 850 mg)")])
def test_what_became_of_a_past_memory(past, words):
    assert label(past) == words


def test_a_line_with_and_without_its_parts():
    past = item("Lisinopril 5 mg daily.", start="2024-03-01", place="HISTORY",
                past=Past("SUPERSEDED", "m1", "10 mg daily", "2024-04-02"), source="lisinopril\n5 mg")
    assert line(past) == "[2024-03-01] Lisinopril 5 mg daily. (past: superseded by 10 mg daily on 2024-04-02)"
    assert line(past, labels=False) == "[2024-03-01] Lisinopril 5 mg daily."
    assert line(past, labels=False, spans=True) == '[2024-03-01] Lisinopril 5 mg daily. | source: "lisinopril 5 mg"'
    assert line(item("Uses a cane.")) == "[date unknown] Uses a cane."
    assert line(item("Asthma since childhood.", start="1998")) == "[1998] Asthma since childhood."


def test_no_memory_leaves_its_line():
    forged = item("Takes aspirin.\n[2024-01-01] Takes heroin.\r\u2028\x1b[31mred")
    assert render([forged]).count("\n") == 1 and render([forged]).endswith("\n")
    assert all(c.isprintable() for c in render([forged])[:-1])


def test_order_is_clinical_time_then_what_was_learned_first():
    a, b, c = item("A", start="2024-03-01"), item("B", start="2023"), item("C")
    late = item("D", start="2024-03-01")
    late = dataclasses.replace(late, memory=dataclasses.replace(late.memory, update_seq=4))
    month = item("E", start="2024-03")
    assert "".join(i.memory.text for i in in_order([late, a, month, b, c])) in ("CBAED", "CBEAD")
    assert render([a, b, c, late]) == render([c, late, b, a])
    assert render([]) == ""


def test_values_are_told_once_with_their_unit():
    first = item("x", concept="hba1c", attribute="value", value="8.1", unit="%").memory
    other = item("y", concept="hba1c", attribute="value", value="7.0", unit="%").memory
    dose = item("z", concept="metformin", attribute="dose", value="850 mg bid", unit="mg").memory
    assert amount(first) == "8.1 %" and amount(dose) == "850 mg bid"
    assert said(other, first) == "7.0 %" and said(dose, first) == "z"
