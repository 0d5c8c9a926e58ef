"""The source panel: the notes and codes of one page, and what is highlighted in them."""

from __future__ import annotations

from typing import Any

from core_jax.records import Patient
from evigen_jax.report import highlights
from evigen_jax.report.wording import age, date


class Sources:
    """The notes and codes a page shows, and where each observation and quote is highlighted in them."""

    def __init__(self, patient: Patient, p: str, deidentified: bool):
        self.p, self.deidentified = p, deidentified
        self.notes = {n.note_id: n for n in patient.notes}
        self.codes: dict[str, Any] = {}
        for code in patient.codes:  # earliest first
            self.codes.setdefault(code.obs_id, code)
        self.order = {("note", n.note_id): i for i, n in enumerate(patient.notes)}
        self.order |= {("code", c): len(self.order) + i for i, c in enumerate(self.codes)}
        self.shown: dict[tuple[str, str], list[highlights.Highlight]] = {}

    def resolve(self, kind: str, id: str) -> tuple[str, str] | None:
        """The key of a cited source; a citation may name the observation (`<note_id>#<start>-<end>`) for its note."""
        known = self.notes if kind == "note" else self.codes
        if id in known:
            return (kind, id)
        return (kind, id.rpartition("#")[0]) if kind == "note" and id.rpartition("#")[0] in known else None

    def text(self, key: tuple[str, str]) -> str:
        return self.notes[key[1]].text if key[0] == "note" else self.codes[key[1]].title

    def record(self, key: tuple[str, str]) -> Any:
        return self.notes[key[1]] if key[0] == "note" else self.codes[key[1]]

    def add(
        self,
        key: tuple[str, str],
        spans: list[tuple[int, int]],
        kind: str,
        anchor: str,
        back: str,
        label: str,
        hint: str,
    ) -> None:
        marks = self.shown.setdefault(key, [])
        for number, (start, end) in enumerate(spans):
            marks.append(
                highlights.Highlight(start, end, kind, "" if number else anchor, anchor, back, label, hint)
            )

    def anchor(self, key: tuple[str, str]) -> str:
        return f"{self.p}source-{self.order[key] + 1}"

    def when(self, key: tuple[str, str]) -> str:
        record = self.record(key)
        first = "first recorded " if key[0] == "code" and record.time and not self.deidentified else ""
        return f"{first}{date(record.time, self.deidentified)}, {age(record.age_years, self.deidentified)}"

    def rows(self) -> list[dict[str, Any]]:
        """Shown sources in time order, notes before codes, with their HTML."""
        out = []
        for key in sorted(self.shown, key=self.order.__getitem__):
            text, record = self.text(key), self.record(key)
            html, hidden = highlights.render(
                text, sorted(self.shown[key], key=lambda h: (h.start, h.kind != "item", -h.end))
            )
            out.append(
                {
                    "kind": key[0],
                    "id": key[1],
                    "anchor": self.anchor(key),
                    "html": html,
                    "hidden": hidden,
                    "length": len(text),
                    "when": self.when(key),
                    "type": getattr(record, "type", None) or "",
                    "text": text,
                    "time": record.time,
                    "age_years": record.age_years,
                }
            )
        return out
