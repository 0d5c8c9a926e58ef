"""One dated note per hospital stay, written from structured rows, for folders without notes (the open MIMIC-IV demo).

The note restates diagnoses, orders, measurements and cultures that were known when the stay ended, in plain sentences
under headings. No outcome field enters: no dod, deathtime, hospital_expire_flag, discharge_location or drg_mortality.
Whoever shows such a note says that it restates the codes (`notes_rendered`).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Stay:
    """What is known of a stay at its end. Rows are MIMIC-IV columns by name, values as strings, in a fixed order."""

    encounter_id: str
    start: str
    end: str
    type: str
    diagnoses: Sequence[str]  # titles by seq_num
    prescriptions: Sequence[dict[str, str]]
    measurements: Sequence[dict[str, str]]  # from the last day of the stay before to the day before this end
    cultures: Sequence[dict[str, str]]


def render(stay: Stay, *, sex: str | None, age: int | None) -> str:
    """The note's text; equal rows give equal text, whatever their order in the files."""
    who = {"F": "woman", "M": "man"}.get(sex, "patient")
    kind = stay.type.strip().replace("EMER.", "EMERGENCY").lower()
    kind = f" ({kind})" if kind else ""
    opening = f"{'Patient' if age is None else f'{age} year old {who}'}, admitted on {stay.start[:10]}{kind}. " \
              f"The stay ended on {stay.end[:10]}."
    sections = [("HOSPITAL STAY", [opening])]
    diagnoses = list(dict.fromkeys(stay.diagnoses))
    if diagnoses:
        sections.append(("DIAGNOSES", [f"Principal diagnosis: {diagnoses[0]}.", *(f"{d}." for d in diagnoses[1:])]))
    sections += [(name, lines) for name, lines in (
        ("MEDICATIONS ORDERED", _orders(stay.prescriptions)),
        ("MEASUREMENTS", _measurements(stay.measurements)),
        ("MICROBIOLOGY", _cultures(stay.cultures)),
    ) if lines]
    return "\n\n".join("\n".join([f"{name}:", *lines]) for name, lines in sections) + "\n"


def _orders(rows: Sequence[dict[str, str]]) -> list[str]:
    """Each drug and route once, with the dose of its first order; carrier solutions (drug_type BASE) left out."""
    first: dict[tuple[str, str], str] = {}
    for r in sorted(rows, key=lambda r: (r["starttime"], r["drug"], r["route"])):
        if r["drug_type"] == "BASE" or not r["drug"]:
            continue
        dose = " ".join(x for x in (r["dose_val_rx"], r["dose_unit_rx"]) if x)
        daily = f", {r['doses_per_24_hrs']} a day" if r["doses_per_24_hrs"] not in ("", "0") else ""
        text = " ".join(" ".join(x for x in (r["drug"], dose, r["route"]) if x).split())
        first.setdefault((r["drug"].lower(), r["route"]), f"{text}{daily}, from {r['starttime'][:10]}.")
    return list(first.values())


def _measurements(rows: Sequence[dict[str, str]]) -> list[str]:
    """The last value of each measurement, and the first one where it differs."""
    series: dict[str, list[tuple[str, str]]] = {}
    for r in sorted(rows, key=lambda r: (r["result_name"], r["chartdate"], r["seq_num"].zfill(6), r["result_value"])):
        if r["result_name"] and r["result_value"]:
            series.setdefault(r["result_name"], []).append((r["chartdate"][:10], r["result_value"]))
    lines = []
    for name, values in series.items():
        (day0, value0), (day, value) = values[0], values[-1]
        earlier = f", {value0} on {day0}" if day0 != day and value0 != value else ""
        lines.append(f"{name}: {value} on {day}{earlier}.")
    return lines


def _cultures(rows: Sequence[dict[str, str]]) -> list[str]:
    """One sentence per specimen, test and organism, with the drugs it resisted and answered to."""
    groups: dict[tuple[str, str, str, str], tuple[set[str], set[str], set[str]]] = {}
    for r in rows:
        day = (r["charttime"] or r["chartdate"])[:10]
        resistant, sensitive, said = groups.setdefault((day, r["spec_type_desc"], r["test_name"], r["org_name"]),
                                                       (set(), set(), set()))
        if r["ab_name"] and r["interpretation"] in ("R", "S"):
            (resistant if r["interpretation"] == "R" else sensitive).add(r["ab_name"].lower())
        if r["comments"].strip("_ "):
            said.add(" ".join(r["comments"].split()))
    lines = []
    for (day, specimen, test, organism), (resistant, sensitive, said) in sorted(groups.items()):
        if not organism and not said:
            continue
        text = f"{specimen}, {test}, {day}: " if specimen else f"{test}, {day}: "
        if organism:
            text += f"grew {organism}"
            text += f", resistant to {', '.join(sorted(resistant))}" if resistant else ""
            text += f", sensitive to {', '.join(sorted(sensitive))}" if sensitive else ""
        else:
            text += " ".join(sorted(said)).rstrip(".")
        lines.append(text + ".")
    return lines
