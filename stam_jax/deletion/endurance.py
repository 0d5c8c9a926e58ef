"""Which memories may go at all, and labels of how long they are worth keeping. Standard library only."""
from __future__ import annotations

import bisect
import csv
import dataclasses
import os
import re
from collections.abc import Mapping

from core_jax.records import RecordError, atomic_write
from stam_jax.deletion.conformal import LABELS
from stam_jax.graph import canonical
from stam_jax.graph.memory import Memory
from stam_jax.graph.state import State

FLOORS = ("allergy", "diagnosis", "surgery", "family")
COLUMNS = ("patient_id", "mid", "label")
# what is felt or seen, not named as a disease: a status of any other concept counts as a diagnosis
_SYMPTOM = re.compile(
    r"\b(\w*aches?|pains?|coughs?|fever|chills|nausea|vomiting|diarrh?oea|diarrhea|constipation|bloating|dizziness"
    r"|fatigue|tiredness|drowsiness|insomnia|sweats|swelling|rash|itch(ing|iness)?|cramps?|tremor|palpitations|breath"
    r"|dyspn(o)?ea|nosebleeds?|bleeding|bruising|tenderness|weakness|numbness|tingling|vision|sores?|appetite|hiccups"
    r"|thirst|hot flashes|wheez(e|ing)|hoarseness|heartburn|congestion|runny nose)\b")


def floor(m: Memory) -> str | None:
    """The class for which a memory is never deleted by the gate: an allergy, a diagnosis that was made, a surgery or
    implant, whatever is told of relatives."""
    if m.experiencer != "PATIENT":
        return "family"
    if m.attribute == "allergy":
        return "allergy"
    if m.attribute == "procedure":
        return "surgery"
    if m.attribute == "status" and m.polarity == "AFFIRMED" and not _SYMPTOM.search((m.concept or m.text).lower()):
        return "diagnosis"
    return None


@dataclasses.dataclass(frozen=True)
class CandidateRule:
    """Which memories may be deleted. age: updates by entries since a memory was archived. floors: classes that never
    are."""

    age: int = 1
    floors: tuple[str, ...] = FLOORS

    def __post_init__(self):
        canonical.integer(self.age, "age", 0)
        object.__setattr__(self, "floors", canonical.sequence(self.floors, "floors", str))
        for name in self.floors:
            canonical.choice(name, "floors", FLOORS)

    @property
    def sha256(self) -> str:
        """Of everything that decides; a calibration of another rule is stale."""
        return canonical.digest(["candidates/2", self.age, sorted(self.floors), _SYMPTOM.pattern])

    def verdicts(self, state: State) -> dict[str, str | None]:
        """mid -> why a memory is no candidate, in words; None where it is one."""
        citing: dict[str, list[Memory]] = {}  # entry key -> what holds and cites it
        for m in state.active():
            for key in {p.entry_key for p in m.provenance}:
                citing.setdefault(key, []).append(m)
        plans = {m.mid: _grounds(state, m) for m in state.active() if m.kind == "PLAN"}
        needed = {grounds[0]: plan for plan, grounds in plans.items() if len(grounds) == 1}
        ages = updates_since_archived(state)
        return {m.mid: self._verdict(m, ages.get(m.mid), citing, needed) for m in state.memories.values()}

    def _verdict(self, m: Memory, age: int | None, citing: dict[str, list[Memory]], needed: dict[str, str]
                 ) -> str | None:
        if m.store != "HISTORY" or age is None:
            return "is not in HISTORY"
        if (name := floor(m)) in self.floors:
            return f"is never deleted: {name}"
        if age < self.age:
            return f"was archived {age} updates ago, expected at least {self.age}"
        if m.mid in needed:
            return f"is all that the open plan {needed[m.mid]} rests on"
        for key in sorted({p.entry_key for p in m.provenance}):
            for other in citing.get(key, ()):
                if _only_proof(other, m):
                    return f"shares with {other.mid} the only place that says it"
        return None


def updates_since_archived(state: State) -> dict[str, int]:
    """mid -> how many updates brought an entry since a memory was archived; ACTIVE memories have none.

    Other updates, deletions among them, make nothing older: deleting twice deletes no more than once.
    """
    arrivals = sorted(set(state.entry_seq.values()))
    moved = {mid: state.standing(mid) for mid in state.memories}
    return {mid: len(arrivals) - bisect.bisect_right(arrivals, t.update_seq) for mid, t in moved.items()
            if t is not None}


def _only_proof(active: Memory, past: Memory) -> bool:
    """Whether every place that says the active memory is cited by the past one too."""
    return all(any(p.entry_key == q.entry_key and p.start < q.end and q.start < p.end for q in past.provenance)
               for p in active.provenance)


def _grounds(state: State, plan: Memory) -> list[str]:
    """The memories that a plan follows from or is related to."""
    related = {r.other(plan.mid) for r in state.relations.values() if plan.mid in (r.src, r.dst)}
    return sorted(related | set(state.predecessors(plan.mid)))


def concept_type(m: Memory) -> str:
    """Normalised concept and attribute; what has no slot is typed by its kind."""
    if m.concept is None and m.attribute is None:
        return f"* / {m.kind.lower()}"
    return " / ".join(" ".join((part or "*").casefold().split()) for part in m.slot)


def write_labels(path: str | os.PathLike, labels: Mapping[tuple[str, str], str]) -> int:
    """(patient_id, mid) -> label as a CSV file that `read_labels` reads. Returns the number of rows."""
    with atomic_write(path) as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows((*key, label) for key, label in sorted(labels.items()))
    return len(labels)


def read_labels(path: str | os.PathLike) -> dict[tuple[str, str], str]:
    """(patient_id, mid) -> label, from a CSV file with a header; other columns are not looked at.

    Raises: RecordError with file, row and field: no such file, not UTF-8, a missing column, an empty id, an unknown
        label, a memory twice, no row.
    """
    path = os.fspath(path)
    out: dict[tuple[str, str], str] = {}
    row = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            reader = csv.reader(f, strict=True)
            header = [name.strip() for name in next(reader, [])]
            row = 1
            for name in COLUMNS:
                if header.count(name) != 1:
                    raise RecordError(f"got the columns {header!r:.200}, expected it once", file=path, line=1,
                                      field=name)
            at = [header.index(name) for name in COLUMNS]
            for row, cells in enumerate(reader, 2):
                if not any(c.strip() for c in cells):
                    continue
                if len(cells) != len(header):
                    raise RecordError(f"got {len(cells)} values, expected {len(header)}", file=path, line=row)
                patient, mid, label = (cells[i].strip() for i in at)
                for name, value in (("patient_id", patient), ("mid", mid)):
                    if not value:
                        raise RecordError("is empty", file=path, line=row, field=name)
                if label not in LABELS:
                    raise RecordError(f"got {label!r:.80}, expected one of {LABELS}", file=path, line=row,
                                      field="label")
                if (patient, mid) in out:
                    raise RecordError(f"{mid!r} of patient {patient!r} stands twice", file=path, line=row, field="mid")
                out[patient, mid] = label
    except FileNotFoundError:
        raise RecordError("no such file", file=path) from None
    except UnicodeDecodeError as e:
        raise RecordError(f"not valid UTF-8 at byte {e.start}", file=path, line=row + 1) from None
    except csv.Error as e:
        raise RecordError(f"not valid CSV: {e}", file=path, line=row + 1) from None
    if not out:
        raise RecordError("has no label", file=path)
    return out
