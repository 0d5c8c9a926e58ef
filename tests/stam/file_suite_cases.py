"""Small copies of three benchmarks in the shapes of their files, every word invented here."""
from __future__ import annotations

import contextlib
import csv
import json
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from memory_bench_cases import NOISE, folder, query, session

from core_jax.engine.request import Request
from core_jax.engine.scripted import Scripted

DRUGS = ("metformin", "lisinopril", "sertraline")


def _said(drug: str) -> dict[int, str]:
    return {2: f"Started {drug} 5 mg daily.", 4: "Allergic to penicillin (hives).",
            12: f"{drug} increased to 75 mg daily.", 15: "Potassium 4.1 mmol/L."}


def memory_bench(path: pathlib.Path, personas: int = 2) -> pathlib.Path:
    """Personas of 20 sessions; the dose changes between the first checkpoint and the second."""
    for n in range(1, personas + 1):
        drug, said = DRUGS[n - 1], _said(DRUGS[n - 1])
        sessions = [session(i, said.get(i, "I slept well."), "Noted.", date=f"2024-{1 + i // 28:02d}-{1 + i % 28:02d}")
                    for i in range(1, 21)]
        dose = f"What is the current dose of {drug}?"
        queries = [
            query("eem_10", 10, "entity_exact_match", ("5 mg", True), question=dose, source_key_points=_points(2)),
            query("eem_20", 20, "entity_exact_match", ("5 mg", True), question=dose, source_key_points=_points(12)),
            query("mq_10", 10, "multiple_choice", ("A. aspirin", False), (f"B. {drug}", True), ("C. insulin", False),
                  question="Which drug was started?", source_key_points=[]),
            query("tla_20", 20, "temporal_localization", ("2024-01-13", True), question=f"When was {drug} increased?",
                  source_key_points=[]),
            query("sua_20", 20, "state_update", ("75 mg daily", True), question=dose, source_key_points=_points(2, 12)),
            query("ig_20", 20, "inference_generation", ("No amoxicillin: it is a penicillin", True),
                  question="Which antibiotic must be avoided?", source_key_points=[],
                  metadata={"trap_design": {"required_patient_info": ["penicillin allergy"]}}),
            query("mcd_20", 20, "multi_hop_clinical_deduction", ("The larger dose", True), question="Why is it so?",
                  source_key_points=[],
                  metadata={"hop_count": 2, "reasoning_chain": [{"content": "the dose was raised"}]}),
        ]
        folder(path, sessions=sessions, queries=queries, noise=[sessions[0], NOISE, *sessions[1:]], persona=n)
    return path


def _points(*sessions: int) -> list[dict]:
    return [{"category": "medication", "name": "dose", "content": "x", "time": "2024-01-01", "session_id": s}
            for s in sessions]


def locomo(path: pathlib.Path, samples: int = 3) -> pathlib.Path:
    """Talks about drugs, with questions of LoCoMo's numbers and of a type by name."""
    raw = []
    for n, drug in zip(range(samples), DRUGS):
        raw.append({"sample_id": f"talk-{n}", "conversation": {
            "speaker_a": "Ann", "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": f"Started {drug} 20 mg twice daily."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "I hope that it helps."}],
            "session_2_date_time": "9:05 am on 3 June, 2023", "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": f"{drug} increased to 40 mg twice daily."}]},
            "qa": [
                {"question": f"What is the current dose of {drug}?", "answer": "40 mg twice daily", "category": 4,
                 "evidence": ["D2:1"]},
                {"question": f"What was the dose of {drug} before?", "answer": "20 mg twice daily",
                 "category": "longitudinal_progression", "evidence": ["D1:1"]},
                {"question": "Does Ben take warfarin?", "adversarial_answer": "yes, 5 mg", "category": 5,
                 "evidence": []}]})
    path.mkdir(parents=True, exist_ok=True)
    (path / "talks.json").write_text(json.dumps(raw), encoding="utf-8")
    return path / "talks.json"


def clinical_bench(path: pathlib.Path, patients: int = 6) -> pathlib.Path:
    """Notes of some patients, two questions each, and the scores of a condition of others."""
    path.mkdir(parents=True, exist_ok=True)
    records, questions, scores = [], [], []
    for n in range(patients):
        who, drug = f"p{n}", DRUGS[n % 3]
        records.append({"patient_id": who, "notes": [
            {"note_id": "a", "time": "2019-03-01", "text": f"Started {drug} {10 + n} mg daily. Denies chest pain."},
            {"note_id": "b", "time": "2019-06-01", "text": f"{drug} increased to {20 + n} mg daily."}]})
        questions += [
            {"question_id": f"bench_a_change_{n}", "subject_id": who, "category": "change",
             "question": f"What is the current dose of {drug}?", "reference": f"{20 + n} mg daily"},
            {"question_id": f"bench_a_negated_{n}", "subject_id": who, "category": "negated",
             "question": "Does the patient have chest pain?", "reference": "No, the patient denies chest pain."}]
        scores += [(f"bench_a_change_{n}", "C1", "0.5"), (f"bench_a_negated_{n}", "C1", "1")]
    for name, rows in (("patients.jsonl", records), ("questions.jsonl", questions)):
        (path / name).write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    with open(path / "scores.csv", "w", encoding="utf-8", newline="") as f:
        csv.writer(f).writerows([("question_id", "condition", "judge_score", "judge_reason"),
                                 *((*s, "because") for s in scores)])
    return path


@contextlib.contextmanager
def served(answer: Callable[[str], str]) -> Iterator[str]:
    """`URL#name` of an endpoint on this machine that answers a prompt's last message by a function."""
    import uvicorn

    from core_jax.engine import http

    def said(request: Request) -> str:
        return answer(request.prompt if isinstance(request.prompt, str) else request.prompt[-1]["content"])

    config = uvicorn.Config(http.application(Scripted(said, model="scripted")), log_level="critical", access_log=False,
                            lifespan="off", ws="none", log_config=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1#scripted"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
