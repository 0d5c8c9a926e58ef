"""Other memory systems behind one protocol, each through its own package and in its own interpreter.

A system is given whole entries, in the order of arrival, and asked for the lines that it would serve. What it refuses
or loses is counted, never passed over (`lost`). Nothing here is imported by the rest of the project, and no package is
needed to import this module.
"""
from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from core_jax.records import RecordError
from stam_jax.baselines import installed
from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """What a system serves: its text, the date and the key of the entry from which it came, where it knows them."""

    text: str
    date: str | None = None
    entry_key: str | None = None


class MemorySystem(Protocol):
    """name: with the version of its package. lost: what it failed at, and how -> how often (`add: KeyError`).

    asked: what it asked of its language model: `calls`, `words read`, `words said`.
    """

    name: str
    lost: Counter[str]
    asked: Counter[str]

    def add(self, entry: Entry) -> int:
        """Take an entry in; how many memories it says came of it."""
        ...

    def search(self, patient_id: str, question: str, most: int) -> list[Line]:
        """At most `most` lines of this patient, the best first."""
        ...

    def close(self) -> None: ...


class Installed:
    """A system in the interpreter `python` (`installed.py`), for as long as this object is open.

    system: one of `installed.SYSTEMS`, or MODULE:FACTORY of an adapter of one's own.
    Raises: ValueError: no such system or interpreter, or it cannot be opened there; its process ended.
    """

    def __init__(self, system: str, python: str, site: installed.Site, asked: Counter[str]):
        if system not in installed.SYSTEMS and not all(system.partition(":")):
            raise ValueError(f"--system {system}: expected {', '.join(installed.SYSTEMS)} or MODULE:FACTORY")
        self.lost, self.asked = Counter(), asked
        self._system, self._told = system, tempfile.TemporaryFile()
        command = [python, installed.__file__, system, json.dumps(dataclasses.asdict(site))]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._told,
                                             text=True, encoding="utf-8")
        except OSError as e:
            self._told.close()
            raise ValueError(f"--system-python {python}: {os.strerror(e.errno)}") from None
        try:
            opened = self._answer()
            if "error" in opened:
                raise ValueError(f"--system {system}: {opened['error']}")
            canonical.text(opened.get("name"), f"--system {system}: name")
        except ValueError:
            self.close()
            raise
        self.name: str = opened["name"]
        self._whose: dict[str, str] = {}

    def add(self, entry: Entry) -> int:
        said = {name: getattr(entry, name) for name in ("patient_id", "entry_key", "date", "text")}
        self._whose[entry.entry_key] = entry.patient_id
        made = self._ask("add", {"entry": said}).get("made", 0)
        if isinstance(made, bool) or not isinstance(made, int) or made < 0:
            self.lost["add: gave no count"] += 1
            return 0
        return made

    def search(self, patient_id: str, question: str, most: int) -> list[Line]:
        got = self._ask("search", {"patient_id": patient_id, "question": question, "most": most}).get("lines", [])
        lines = [_line(raw) for raw in got] if isinstance(got, list) else [None]
        if unread := lines.count(None):
            self.lost["search: gave no line"] += unread
        own = [line for line in lines if line and self._whose.get(line.entry_key, patient_id) == patient_id]
        if leaked := len(lines) - unread - len(own):
            self.lost["search: gave another patient's line"] += leaked
        return own[:most]

    def close(self) -> None:
        """Ends the process; one that does not end by itself within ten seconds is ended."""
        if self._told.closed:
            return
        try:
            self._process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.communicate()
        finally:
            self._told.close()

    def _ask(self, what: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended; the answer says so
        got = self._answer()
        if "error" in got:
            self.lost[f"{what}: {got['error']}"] += 1
        return got

    def _answer(self) -> dict[str, Any]:
        if line := self._process.stdout.readline():
            try:
                got = json.loads(line)
            except (ValueError, RecursionError):
                got = None
            if isinstance(got, dict):
                return got
            raise ValueError(f"--system {self._system}: {self._process.args[0]} said {line!r:.80}, expected an answer "
                             f"of {installed.__name__}; is it a Python?")
        self._process.wait()
        self._told.seek(0)
        last = self._told.read().decode("utf-8", "replace").strip().rpartition("\n")[2] or "it said nothing"
        raise ValueError(f"--system {self._system}: its process ended ({self._process.returncode}): {last}")


def _line(raw: Any) -> Line | None:
    """None for what is no line: no text, or another type than text."""
    if not isinstance(raw, dict):
        return None
    try:
        canonical.text(raw.get("text"), "text")
        for name in ("date", "entry_key"):
            canonical.text(raw.get(name), name, optional=True)
    except RecordError:
        return None
    return Line(raw["text"], raw.get("date"), raw.get("entry_key"))


def fill(system: MemorySystem, entries: Sequence[Entry]) -> Counter[str]:
    """Give a system all entries. Counted: `entries`, `memories`, `empty` (entries of which nothing came)."""
    out: Counter[str] = Counter()
    for entry in entries:
        made = system.add(entry)
        out.update(entries=1, memories=made, empty=made == 0)
    return out
