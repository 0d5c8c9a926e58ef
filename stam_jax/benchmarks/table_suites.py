"""The suites on MIMIC-IV tables: MIMIC-QA and EHRSQL, from one ingestion of the rendered record a write path.

Two readers answer MIMIC-QA from the same packets: the extractive one, which knows nothing of tables, and one that reads
the cited rows back and computes (`mimic_qa.answer`). The second one shows what was served; over all that the store
holds it shows what was kept. EHRSQL asks for counts and sums, so it is a query of the store.
"""
from __future__ import annotations

import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from stam_jax.baselines.serving import FromMemory
from stam_jax.baselines.writers import AppendOnly
from stam_jax.benchmarks import ehrsql, mimic_qa
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.harness import Memories, OnceEncoder, build, median_words, serve, sha256_of
from stam_jax.benchmarks.table_memory import cited, joined, rows, told
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.read.answer import Reader
from stam_jax.read.packet import Packet
from stam_jax.read.search import encode_query
from stam_jax.readers import tables
from stam_jax.readers.rendered import Rendered
from stam_jax.write.writer import Writer

STAM, APPENDED = "STAM", "append only"
# write path -> (wrap the writer, settings)
PATHS: dict[str, tuple[Callable[[Writer], Writer], WriteConfig]] = {
    STAM: (lambda w: w, WriteConfig()),
    "no relations": (lambda w: w, WriteConfig(relations=False)),
    APPENDED: (AppendOnly, WriteConfig(relations=False, restatement="keep_both")),
}
ARMS = ("BOTH", "ACTIVE", "REFILLED")
Tell = Callable[[str], Any] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Told:
    """The rendered record of a folder, by patient, and what each write path made of it."""

    record: Mapping[str, Sequence[Rendered]]
    memories: Mapping[str, Memories]
    encoder: Encoder


def tell(folder: str | os.PathLike, writer: Writer, encoder: Encoder, *, paths: Sequence[str] = (STAM, APPENDED),
         progress: Tell = None) -> Told:
    """Ingest the tables of a folder once a write path, each text encoded once. Raises: RecordError."""
    record: dict[str, list[Rendered]] = defaultdict(list)
    for rendered in tables.read(folder):
        record[rendered.entry.patient_id].append(rendered)
    encoder, made = OnceEncoder(encoder), {}
    for name in paths:
        if progress is not None:
            progress(f"writing: {name}")
        wrap, config = PATHS[name]
        made[name] = build(name, [r for own in record.values() for r in own], wrap(writer), encoder, config)
    return Told(record, made, encoder)


def store_table(found: Told) -> T.Table:
    """What each write path kept and moved."""
    out = []
    for name, m in found.memories.items():
        active, history = (sum(len(getattr(s, place)()) for s in m.states.values()) for place in ("active", "history"))
        moved = Counter(t.reason for s in m.states.values() for mid in s.memories if (t := s.standing(mid)) is not None)
        others = moved.total() - sum(moved[r] for r in ("SUPERSEDED", "EXPIRED", "PRIOR_STATE"))
        lost = sum(len(told(own)) - len(rows(m.states[p])) for p, own in found.record.items())
        out.append((name, active + history, T.share(history, active + history), moved["SUPERSEDED"], moved["EXPIRED"],
                    moved["PRIOR_STATE"], others, m.report.memories["confirmed"], lost))
    return T.Table("store", "The memory of the tables by write path",
                   ("write path", "memories", "archived", "superseded", "expired", "prior", "other reasons",
                    "confirmations", "rows that no memory cites"), tuple(out),
                   "A row that says again what holds confirms its memory instead of making another one. What is over "
                   "by its own dates expires under every write path.")


# ---- MIMIC-QA -----------------------------------------------------------------------------------------------------

def mimic_qa_report(folder: str | os.PathLike, found: Told, reader: Reader, *, config: ReadConfig = ReadConfig(),
                    seed: int = 0, command: str = "stam bench --suite mimic_qa", progress: Tell = None) -> T.Report:
    """All questions, no split left out: nothing is fitted on them. Raises: ValueError: an answer that SQL does not
    find."""
    asked = [q for p, split in mimic_qa.splits(found.record).items()
             for q in mimic_qa.of_patient(p, told(found.record[p]), split)]
    if faults := mimic_qa.verify(asked, mimic_qa.Tables(folder)):
        raise ValueError(f"{len(faults)} questions do not hold, {faults[0]} the first")
    types, texts = [q.type for q in asked], list(dict.fromkeys(q.text for q in asked))
    vectors = dict(zip(texts, encode_query(found.encoder, texts)))
    answers, shown, compared = [], {}, {}
    for name, m in found.memories.items():
        by_memory = {p: cited(s) for p, s in m.states.items()}
        whole = {p: joined(of) for p, of in by_memory.items()}
        kept = {p: [r for r in own if r.memory.store == "ACTIVE"] for p, own in whole.items()}
        for place, of in (("all of the store", whole), ("all of ACTIVE", kept)):
            if progress is not None:
                progress(f"answering: {name}, {place}")
            got = mimic_qa.score(asked, [mimic_qa.answer(q, of[q.patient_id]) for q in asked],
                                 [[r.row for r in of[q.patient_id]] for q in asked])
            answers.append((name, place, "rows", None, *_figures(got, types, seed)))
        for arm in ARMS if name == STAM else ARMS[:1]:
            if progress is not None:
                progress(f"answering: {name}, {arm}")
            packets = serve(FromMemory(m.states, m.vectors, config, arm), asked, vectors)
            found_rows = [joined(by_memory[q.patient_id], p.mids) for q, p in zip(asked, packets)]
            served = [[r.row for r in own] for own in found_rows]
            for how, said in (("extractive", _read(reader, asked, packets)),
                              ("rows", [mimic_qa.answer(q, own) for q, own in zip(asked, found_rows)])):
                got = mimic_qa.score(asked, said, served)
                answers.append((name, f"packet {arm}", how, median_words(packets), *_figures(got, types, seed)))
                compared[name, arm, how] = got.each
                if name == STAM and arm == "BOTH":
                    shown[how] = got
    headline = T.Table("answers", "Answers by what is read", (
        "write path", "read", "reader", "median words", "token F1", "clinical F1", "exact", "F1 state", "F1 temporal",
        "evidence read"), tuple(answers),
        "Token F1 is the mean over questions. `rows` computes on the rows that are cited by what it reads, and says "
        "nothing where they hold no single answer; over the whole store it measures what was kept, "
        "not what retrieval finds.")
    first, others = compared[STAM, "BOTH", "rows"], [k for k in compared if k[2] == "rows" and k[:2] != (STAM, "BOTH")]
    found_p = T.adjusted([T.compare_scores(first, compared[k], types, seed=seed) for k in others]) if others else []
    differences = T.Table("differences", "STAM (BOTH) minus each, the reader of rows",
                          ("write path", "arm", "token F1"), tuple((k[0], k[1], d) for k, d in zip(others, found_p)),
                          "Type macro of state and temporal; sign flip over questions, Holm within the column.")
    columns = ("template", "questions", "F1 extractive", "F1 rows")
    kinds = T.Table("templates", "STAM, packet BOTH, by template", columns, tuple(
        (name, n, shown["extractive"].templates[name][0], f1) for name, (f1, n) in shown["rows"].templates.items()))
    return T.Report(
        "mimic_qa", "MIMIC-QA rebuilt on MIMIC-IV tables", command,
        {"questions": len(asked), "patients": len(found.record), "read": dataclasses.asdict(config),
         "reader": reader.name, "encoder": found.encoder.id}, {"resampling": seed}, {"tables": _sha256(found)},
        (store_table(found), headline, differences, kinds),
        ("Rebuilt from the paper's description: its own 2,000 questions are not public, so figures are not comparable.",
         "Every answer and its evidence was recomputed by SQL over the tables, and over the evidence rows alone.",
         "Rows are MIMIC-IV (demo: ODbL 1.0, PhysioNet and TinyEHR); questions are made from them and not shipped."))


def _read(reader: Reader, asked: Sequence[mimic_qa.Question], packets: Sequence[Packet]) -> list[str]:
    return [a.text for a in reader.answer([q.text for q in asked], packets)]


def _figures(got: mimic_qa.Scores, types: Sequence[str], seed: int) -> tuple:
    by = {kind: [f for f, t in zip(got.each, types) if t == kind] for kind in ("state", "temporal")}
    return (T.mean(got.each, seed=seed), got.clinical, got.exact, float(np.mean(by["state"])),
            float(np.mean(by["temporal"])), got.evidence)


def _sha256(found: Told) -> str:
    return sha256_of(r.entry for own in found.record.values() for r in own)


# ---- EHRSQL -------------------------------------------------------------------------------------------------------

def ehrsql_report(questions: str | os.PathLike, found: Told, *, command: str = "stam bench --suite ehrsql") -> T.Report:
    """Every question of a file, answered from each write path's store and, beside, from the rendered record itself."""
    asked = ehrsql.load(questions)
    sources = {"the record as it was told": {p: told(own) for p, own in found.record.items()}} | {
        name: {p: rows(s) for p, s in m.states.items()} for name, m in found.memories.items()}
    results = {name: ehrsql.run(asked, ehrsql.Store(of)) for name, of in sources.items()}
    sums = {name: ehrsql.summarise(r) for name, r in results.items()}
    rates = T.Table("rates", "Right answers by what is read",
                    ("read", "right", "without defective or foreign questions"),
                    tuple((n, T.share(s.right, s.n), T.share(*s.sound)) for n, s in sums.items()),
                    "Right: all cells of the published answer. Left out in the last column: questions on a table that "
                    "was not told, and ages published as the anchor age.")
    kinds = sorted(sums[STAM].kinds)
    by_kind = T.Table("kinds", "Right answers by what answering takes", ("read", *kinds),
                      tuple((n, *(T.share(*s.kinds[k]) for k in kinds)) for n, s in sums.items()))
    misses = T.Table("misses", "Misses by class", ("read", *ehrsql.MISSES),
                     tuple((n, *(s.misses.get(c, 0) for c in ehrsql.MISSES)) for n, s in sums.items()),
                     "; ".join(f"{k}: {v}" for k, v in ehrsql.MISSES.items()))
    each = T.Table("missed", "Every miss of STAM", ("question", "kind", "class", "published", "answered"), tuple(
        (r.question.text, r.question.kind, r.miss, "; ".join(c for row in r.question.gold for c in row),
         None if r.answer is None else "; ".join(r.answer)) for r in results[STAM] if r.miss is not None))
    return T.Report(
        "ehrsql", "EHRSQL 2024 answered from memory", command,
        {"questions": len(asked), "patients": len(found.record)}, {}, {"tables": _sha256(found)},
        (rates, by_kind, misses, each),
        ("Answers come out of the store, over all patients of it; no table and no SQL is read.",
         "Wordings were read off these same questions: the rate says what the store can answer, not how well unseen "
         "wordings are understood.", "Questions: EHRSQL 2024, CC BY 4.0."))
