"""A small MedMemoryBench persona, invented for the tests, in the benchmark's files."""
from __future__ import annotations

import json
import pathlib
from typing import Any


def session(number: int | None, *said: str, date: str | None = "2024-01-01", **fields: Any) -> dict[str, Any]:
    messages = [{"turn": i, "role": ("user", "assistant")[i % 2], "content": s} for i, s in enumerate(said)]
    raw = {"session_id": number, "persona_id": 1, "event_id": None, "status": "completed", "turn_count": len(said),
           "messages": messages, "turns": messages,
           "event_info": None if date is None else {"date": date, "event": "visit"},
           "knowledge_points": [], "kp_count": 0} | fields
    return {k: v for k, v in raw.items() if k != "session_id" or v is not None}


def query(name: str, number: int, kind: str, *answers: tuple[str, bool], **fields: Any) -> dict[str, Any]:
    return {"query_id": name, "session_id": number, "query_type": kind, "question": f"{name}?",
            "answers": [{"content": c, "is_correct": r, "explanation": ""} for c, r in answers],
            "source_key_points": [{"category": "medication", "name": "metformin", "content": "5 mg",
                                   "time": "2024-01-01", "session_id": 1}], "metadata": {}} | fields


SESSIONS = [session(i + 1, f"Session {i + 1}: I take {i + 1} mg.", "Noted.",
                    date=f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}")
            for i in range(32)]
NOISE = session(None, "My father coughs.", "Since when?", date=None, noise_family_id="f1",
                noise_type="family_health_consultation", family_role={"name": "Karl", "relationship": "father"})
PLAIN_NOISE = session(None, "What is flu?", "A virus.", date=None, noise_id="n1")
QUERIES = [
    query("eem", 10, "entity_exact_match", ("5 mg", True)),
    query("mq", 10, "multiple_choice", ("A. x", False), ("B. y", True), ("D. z", True)),
    query("sua", 30, "state_update", ("The dose is now 10 mg daily", True)),
    query("mcd", 30, "multi_hop_clinical_deduction", ("Because of the statin", True), metadata={"hop_count": 2}),
]


def folder(path: pathlib.Path, *, sessions=None, queries=None, noise=None, persona: int = 1) -> pathlib.Path:
    place = path / f"persona_{persona}" / "eval"
    place.mkdir(parents=True, exist_ok=True)
    files = {"generated_dialogues": {"metadata": {}, "sessions": SESSIONS if sessions is None else sessions},
             "generated_queries": {"metadata": {}, "queries": QUERIES if queries is None else queries}}
    if noise is not None:
        files["generated_dialogues_with_noise"] = {"metadata": {}, "sessions": noise}
    for name, content in files.items():
        (place / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return path
