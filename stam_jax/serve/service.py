"""What the HTTP and MCP faces, and programs, do with one store: each call names its patient and sees nothing else.

    service = Service(store, encoder, writer=RulesWriter(), reader=ExtractiveReader(names))
    service.ingest("P1", "Started metformin 850 mg bid.", date="2024-03-01")
    service.answer("P1", "What is the current dose of metformin?")

Everything comes back as plain JSON values. Imports without JAX; ingesting needs it.
"""
from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from stam_jax.config import Config
from stam_jax.graph import views
from stam_jax.graph.clinical_time import bounds
from stam_jax.graph.memory import Entry
from stam_jax.graph.state import State
from stam_jax.history.gate import Gate
from stam_jax.history.gate import serve as gated
from stam_jax.page.page import page
from stam_jax.read import search as read
from stam_jax.read.answer import Reader
from stam_jax.read.export import record
from stam_jax.read.packet import ARMS
from stam_jax.storage.store import Store
from stam_jax.write.writer import Writer

GATE = "GATE"
ASKED_ARMS = (*ARMS, GATE)


class Service:
    """One store behind one set of methods; threads may share it. What writes waits for its turn.

    Args:
        encoder: makes the vectors of memories and questions; the one that the store was made with.
        gate: decides whether past memories are served, where a question names no arm.
        patient_id: the only patient that may be asked for; None = any that a caller names.
        listing: whether the ids of all patients may be asked for.

    Every method raises PermissionError: another patient than the bound one; LookupError: a patient or memory that the
    store does not know; ValueError: bad input; StoreBusy: another process holds the shard. The constructor raises
    ValueError: a gate that was fitted on another encoder's searches.
    """

    def __init__(self, store: Store, encoder: Any, *, writer: Writer, reader: Reader, config: Config = Config(),
                 gate: Gate | None = None, patient_id: str | None = None, listing: bool = False):
        self.store, self.config, self.writer, self.reader = store, config, writer, reader
        self.encoder, self.gate = _OneAtATime(encoder), gate and gate.for_searches_of(encoder.id)
        self.patient_id, self.listing = patient_id, listing
        self._writing = threading.Lock()

    # ---- writing ----------------------------------------------------------------------------------------------

    def ingest(self, patient_id: str, text: str, *, date: str | None = None, kind: str = "note",
               author_role: str = "unknown", source_id: str | None = None) -> dict[str, Any]:
        """Take one entry in: what was new in it, what it moved and confirmed. The same entry again changes nothing."""
        from stam_jax.write.ingest import ingest

        self._allow(patient_id)
        if not isinstance(text, str) or not text.strip():
            raise ValueError("text: got no text")
        entry = Entry.of(patient_id, source_id or kind, kind, text, date=date, author_role=author_role)
        refused: list[str] = []
        with self._writing:
            known = entry.entry_key in self.store.state(patient_id).entries
            ingest(self.store, [entry], self.writer, self.encoder, self.config.write, wave=1,
                   on_refused=lambda _, why: refused.append(why))
            state = self.store.state(patient_id)
        if refused:
            raise ValueError(f"the entry was refused: {refused[0]}")
        seq = state.entry_seq[entry.entry_key]
        update = state.updates()[seq - 1]
        news = [m.mid for m in update.memories]
        return {"patient_id": patient_id, "entry": entry.entry_key, "update": seq, "version": state.version,
                "known_before": known, "status": state.entries[entry.entry_key].status,
                "added": [record(state, mid) for mid in news],
                "moved": [record(state, t.mid) for t in update.transitions if t.mid not in news],
                "confirmed": [record(state, c.mid) for c in update.confirmations]}

    def revert(self, patient_id: str, seq: int, *, cascade: bool = False) -> dict[str, Any]:
        """Take back one update by a compensating one. Raises: UndoRefused: others build on it."""
        self._state(patient_id)
        with self._writing:
            version = self.store.revert(patient_id, seq, cascade=cascade)
        return {"patient_id": patient_id, "reverted": seq, "version": version}

    def erase(self, patient_id: str, memory_ids: Sequence[str] | None = None, *,
              everything: bool = False) -> dict[str, Any]:
        """Delete memories for good, text and all; the whole patient only where `everything` says so."""
        state = self._state(patient_id)
        if bool(memory_ids) == everything:
            raise ValueError("memory_ids: name them, or set everything to erase the whole patient; not both")
        gone = [state.memory(mid).mid for mid in memory_ids or state.memories]
        with self._writing:
            version = self.store.erase(patient_id, None if everything else gone, by="user")
        return {"patient_id": patient_id, "erased": gone, "version": version}

    # ---- reading ----------------------------------------------------------------------------------------------

    def patients(self) -> dict[str, Any]:
        """Ids of all patients. Raises: PermissionError: this service does not list."""
        if not self.listing or self.patient_id is not None:
            raise PermissionError("this service does not list patients")
        return {"patients": self.store.patients()}

    def show(self, patient_id: str, *, memory_id: str | None = None, as_of_seq: int | None = None,
             as_of_date: str | None = None) -> dict[str, Any]:
        """What holds and what held before; or one memory with what followed it. By date: what was true then."""
        state = self._view(patient_id, as_of_seq)
        head = {"patient_id": patient_id, "version": state.version, "entries": len(state.entries)}
        if memory_id is not None:
            chain = [getattr(link, "mid", None) for link in state.chain(memory_id)]
            return head | {"memory": record(state, memory_id), "chain": [record(state, mid) for mid in chain]}
        if as_of_date is not None:
            view = state.as_of_date(as_of_date)
            return head | {"date": as_of_date} | {
                name: [record(state, m.mid) for m in getattr(view, name)]
                for name in ("held", "ended", "ahead", "uncertain")}
        return head | {"active": [record(state, m.mid) for m in state.active()],
                       "history": [record(state, m.mid) for m in state.history()], "deleted": len(state.tombstones)}

    def timeline(self, patient_id: str, *, concept: str | None = None, as_of_seq: int | None = None,
                 as_of_date: str | None = None) -> dict[str, Any]:
        """Slots in alphabetical order, each with its memories by date: what holds, and the way there."""
        state = self._view(patient_id, as_of_seq)
        dated = None if as_of_date is None else state.as_of_date(as_of_date)
        slots: dict[tuple[str, str, str], list[Any]] = {}
        for m in state.memories.values():
            if concept is None or (m.concept or "").casefold() == concept.casefold():
                slots.setdefault((m.experiencer, m.concept or "", m.attribute or ""), []).append(m)
        rows = []
        for (who, name, attribute), found in sorted(slots.items()):
            found.sort(key=lambda m: (bounds(m.clinical_time.start) if m.clinical_time.start else _FIRST, m.update_seq))
            rows.append({"experiencer": who, "concept": name or None, "attribute": attribute or None,
                         "memories": [_line(state, m.mid, dated) for m in found]})
        return {"patient_id": patient_id, "version": state.version, "slots": rows}

    def search(self, patient_id: str, query: str, *, most: int = 10, as_of_seq: int | None = None,
               as_of_date: str | None = None) -> dict[str, Any]:
        """The memories nearest to a query, of both stores, the nearest first."""
        found = self._search(patient_id, query, as_of_seq, as_of_date)
        return {"patient_id": patient_id, "version": found.state.version, "memories": [
            record(found.state, item.mid) | {"place": item.place, "cosine": round(item.cosine, 6)}
            for item in found.ranked()[:most]]}

    def answer(self, patient_id: str, question: str, *, arm: str | None = None, as_of_seq: int | None = None,
               as_of_date: str | None = None) -> dict[str, Any]:
        """An answer, the packet it was read from, and the memories on which it rests; how many memories hold, and how
        many of them the packet has.

        arm: BOTH, ACTIVE, REFILLED, or GATE, which serves BOTH or ACTIVE as the gate decides; left out it is GATE where
        the service has a gate, else BOTH. `arm` of the answer is what was served, `gate` what the gate said.
        """
        arm = arm or ("BOTH" if self.gate is None else GATE)
        if arm not in ASKED_ARMS:
            raise ValueError(f"arm: got {arm!r:.80}, expected one of {ASKED_ARMS}")
        if arm == GATE and self.gate is None:
            raise ValueError(f"arm: got {GATE}, but this service has no gate; expected one of {ARMS}")
        found = self._search(patient_id, question, as_of_seq, as_of_date)
        decided = None
        if arm == GATE:
            packet, p = gated(found, self.gate, self.config.read, question, self.reader.count)
            decided = {"history_needed": round(p, 6), "threshold": str(self.gate.threshold), "lambda": self.gate.lam,
                       "fitted_on": self.gate.replay_sha256}
        else:
            packet = read.packet(found, arm, self.config.read, self.reader.count)
        said = self.reader.answer([question], [packet])[0]
        return {"patient_id": patient_id, "version": found.state.version, "question": question, "answer": said.text,
                "error": said.error, "reader": said.reader, "arm": said.arm, "gate": decided, "tokens": said.tokens,
                "hold": found.stored[0], "hold_served": sum(i.place == "ACTIVE" for i in packet.items),
                "packet_sha256": said.packet_sha256, "packet": packet.text, "served": list(said.mids),
                "grounds": [record(found.state, mid) for mid in said.grounds]}

    def why(self, patient_id: str, memory_id: str) -> dict[str, Any]:
        """Where a memory came from and each move it made: reason, rule or model line, successor, and the
        relations from the new memory to it (`way`, of which `along` is the last)."""
        state = self._state(patient_id)
        why = state.why(memory_id)
        moves = []
        for t in why.transitions:
            way = [{"type": r.type, "confidence": r.confidence, "origin": r.origin, "from": _line(state, r.src),
                    "to": _line(state, r.dst)} for rid in t.way if (r := why.relations.get(rid)) is not None]
            moves.append({
                "update": t.update_seq, "from": t.from_, "to": t.to, "reason": t.reason, "decided_by": t.decided_by,
                "order": t.order, "successor": _line(state, t.successor) if t.successor in state.places else None,
                "also_by": list(t.also_by), "score": t.score, "threshold": t.tau, "calibration": t.calibration_id,
                "along": way[-1] if way else None, "way": way})
        return {"patient_id": patient_id, "memory": record(state, memory_id), "noted_by_update": why.inserted_seq,
                "moves": moves, "chain": [_line(state, mid) for mid in why.chain]}

    def verify(self, patient_id: str) -> dict[str, Any]:
        """Every violated invariant of this patient, from the rows on disk; none where all is well."""
        self._state(patient_id)
        return {"patient_id": patient_id, "violations": [str(v) for v in self.store.verify(patient_id)]}

    def page(self, patient_id: str) -> str:
        """The timeline page as HTML."""
        return page(self._state(patient_id))

    def _allow(self, patient_id: str) -> None:
        if self.patient_id is not None and patient_id != self.patient_id:
            raise PermissionError("this service is bound to another patient")

    def _state(self, patient_id: str) -> State:
        self._allow(patient_id)
        if not (state := self.store.state(patient_id)).version:
            raise LookupError(f"patient {patient_id!r}: the store does not know it")
        return state

    def _view(self, patient_id: str, as_of_seq: int | None) -> State:
        state = self._state(patient_id)
        return state if as_of_seq is None else state.as_of_seq(as_of_seq)

    def _search(self, patient_id: str, text: str, as_of_seq: int | None, as_of_date: str | None) -> read.Found:
        self._state(patient_id)
        if not isinstance(text, str) or not text.strip():
            raise ValueError("got no words to search for")
        state, vectors = read.snapshot(self.store, patient_id)
        query: np.ndarray = read.encode_query(self.encoder, [text], self.config.read.instruction)[0]
        return read.search(state, vectors, query, self.config.read, as_of_seq=as_of_seq, as_of_date=as_of_date)


_FIRST = bounds("0001")


def _line(state: State, mid: str, dated: views.DateView | None = None) -> dict[str, Any]:
    """A memory in few words. dated: say where it stands by date, not by store."""
    m = state.memories.get(mid)
    if m is None:
        return {"memory_id": mid, "store": state.places[mid]}
    out = {"memory_id": mid, "store": m.store, "text": m.text, "value": m.value, "unit": m.unit, "polarity": m.polarity,
           "start": m.clinical_time.start, "end": m.clinical_time.end}
    if dated is not None:
        names = ("held", "ended", "ahead", "uncertain")
        out["then"] = next((name for name in names if m in getattr(dated, name)), "never")
    if (t := state.standing(mid)) is not None:
        out |= {"reason": t.reason, "successor": t.successor}
    return out


class _OneAtATime:
    """An encoder that serves one call at a time, whoever asks; everything else is the encoder's own."""

    def __init__(self, encoder: Any):
        self._encoder, self._lock = encoder, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, *args: Any, **kwargs: Any) -> np.ndarray:
        with self._lock:
            return self._encoder.encode(*args, **kwargs)
