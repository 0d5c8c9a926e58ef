"""`stam demo`: a memory of sample patients, their pages, and planted questions answered from it."""
from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

from core_jax.embed import Encoder
from core_jax.synth.timelines import TimelineConfig, generate
from stam_jax.config import Config
from stam_jax.metrics import token_f1
from stam_jax.page.page import write_index
from stam_jax.read import search as read
from stam_jax.read.answer import ExtractiveReader
from stam_jax.readers import neutral, planted
from stam_jax.rules import RulesWriter, names
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest

TIMELINES = TimelineConfig(n=8, seed=7)


def run(out: str, patients: str | None, most: int, encoder: Encoder, config: Config, progress: Callable[[int], Any] | None = None
        ) -> dict[str, Any]:
    """Fill `out`/store and write `out`/pages. Run again, it adds nothing.

    Args:
        patients: JSON Lines of patient records, of which the first `most` are read; None = planted timelines only.
    """
    timelines = list(generate(TIMELINES))
    entries = itertools.chain(() if patients is None else _first(neutral.read(patients), most),
                              itertools.chain.from_iterable(map(planted.entries, timelines)))
    with Store.open(os.path.join(out, "store"), encoder=header_of(encoder)) as store:
        report = ingest(store, entries, RulesWriter(), encoder, config.write, progress=progress)
        reader, rows = ExtractiveReader(names), []
        asked = [(t.patient_id, q) for t in timelines for q in t.questions]
        queries = read.encode_query(encoder, [q.text for _, q in asked], config.read.instruction)
        for (patient_id, question), vector in zip(asked, queries):
            found = read.search(*read.snapshot(store, patient_id), vector, config.read)
            answer = reader.answer([question.text], [read.packet(found, "BOTH", config.read, reader.count)])[0]
            rows.append((patient_id, question, answer, token_f1(answer.text, question.answers)))
        states = [store.state(p) for p in store.patients()]
        violations = store.verify()
        page = write_index(store, os.path.join(out, "pages"))
    shown = {r[1].type: r for r in rows if r[3] == 1.0 and r[1].type in ("current_state", "change", "multi_hop")}.values()
    return {
        "patients": len(states), "entries": sum(len(s.entries) for s in states), "hold": sum(len(s.active()) for s in states),
        "past": sum(len(s.history()) for s in states), "added": report.entries["admitted"], "violations": [str(v) for v in violations],
        "planted_questions": len(rows), "mean_token_f1": round(sum(r[3] for r in rows) / len(rows), 3),
        "examples": [{"patient": p, "question": q.text, "answer": a.text} for p, q, a, _ in shown], "page": os.path.abspath(page)}


def _first(entries: Iterator[Any], most: int) -> Iterator[Any]:
    """The entries of the first `most` patients."""
    for i, (_, own) in enumerate(itertools.groupby(entries, key=lambda e: getattr(e, "entry", e).patient_id)):
        if i == most:
            return
        yield from own
