"""`core_jax.records` patients (JSON Lines) -> entries: notes as they stand, codes and events rendered.

Codes and events of one day and kind are one rendered entry; what has no time is undated. An event becomes a value where
it has a field named value, else background.
"""
from __future__ import annotations

import os
from collections.abc import Iterator

from core_jax.records import Event, Patient, RecordError, read_patients
from stam_jax.graph.memory import Entry
from stam_jax.readers.rendered import Line, Rendered, render
from stam_jax.write.writer import Draft


def read(path: str | os.PathLike) -> Iterator[Entry | Rendered]:
    """Entries of a .jsonl or .jsonl.gz file, streaming; a patient's in the order of their days, undated ones first.

    Raises: RecordError with file, line and field.
    """
    for patient in read_patients(path):
        try:
            yield from entries(patient)
        except RecordError as e:
            raise RecordError(f"{e.message} (patient {patient.patient_id!r})", file=path, field=e.field) from None


def entries(patient: Patient) -> Iterator[Entry | Rendered]:
    """The entries of one patient."""
    found: list[tuple[str, int, str, Entry | Rendered]] = []
    for note in patient.notes:
        entry = Entry.of(patient.patient_id, note.note_id, note.type or "note", note.text, date=note.time,
                         author_role="clinician")
        found.append((note.time or "", 0, note.note_id, entry))
    groups: dict[tuple[str, str], list[Line]] = {}
    for code in patient.codes:
        when = f"; known on {code.time[:10]}" if code.time else ""
        sentence = f"Diagnosis {_line(code.title)}; code {code.code}; ICD version {code.version}{when}."
        draft = Draft(sentence, sentence, concept=_line(code.title).lower(), attribute="status",
                      time=code.time and code.time[:10])
        row = "/".join(x for x in ("codes", code.encounter_id, code.obs_id) if x)
        groups.setdefault(((code.time or "")[:10], "codes"), []).append(Line(sentence, row, (draft,)))
    for event in patient.events:
        line = _event(event)
        groups.setdefault(((event.time or "")[:10], event.kind), []).append(line)
    for (day, kind), lines in groups.items():
        rendered = render(patient.patient_id, f"{kind}/{day or 'undated'}", kind, lines, date=day or None)
        found.append((day, 1, kind, rendered))
    for *_, item in sorted(found, key=lambda f: f[:3]):
        yield item


def _event(event: Event) -> Line:
    fields = {k: _line(v) for k, v in sorted(event.fields.items()) if v.strip()}
    name = fields.get("name") or fields.get("drug") or fields.get("result_name") or event.kind
    value = fields.get("value") or fields.get("result_value")
    said = "".join(f"; {k.replace('_', ' ')} {v}" for k, v in fields.items())
    when = f"; on {event.time[:10]}" if event.time else ""
    sentence = f"Event {_line(event.kind)}{said}{when}."
    draft = Draft(sentence, sentence, kind="EVENT" if value else "BACKGROUND", concept=name.lower(),
                  attribute="value" if value else "background", value=value, unit=fields.get("unit"),
                  time=event.time and event.time[:10])
    return Line(sentence, f"events/{event.event_id}", (draft,))


def _line(text: str) -> str:
    return " ".join(text.split())
