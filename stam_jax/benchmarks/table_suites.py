"""The suites on MIMIC-IV tables: MIMIC-QA and EHRSQL, from one ingestion of the rendered record a write path.

MIMIC-QA is asked as the planted questions are: every write path and every control of serving before the same reader, at
approximately the same median rendered context, and STAM at depths at which a patient's hundreds of rows differ. Two
readers answer from the same packets: `rows` (`mimic_qa.RowReader`) reads back the rows that were served and computes,
so that it shows what was served; beside it stands the reader that was named. EHRSQL asks for counts and sums, so it is
a query of the store.
"""
from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from stam_jax.baselines.serving import Place
from stam_jax.benchmarks import ehrsql, mimic_qa
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.answers import (
    ALL,
    CHUNK,
    DRAWN,
    TESTED,
    Answers,
    Served,
    aspects,
    dependence,
    depths,
    repeatability,
)
from stam_jax.benchmarks.harness import (
    Ask,
    Memories,
    OnceEncoder,
    is_model,
    length_of,
    median_words,
    sha256_of,
)
from stam_jax.benchmarks.table_memory import cited, joined, rows, told, told_at
from stam_jax.benchmarks.write_paths import ORDER, STAM, memories_of, told_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.readers import tables
from stam_jax.readers.rendered import Rendered
from stam_jax.write.writer import Writer

PATHS = tuple(name for name in ORDER if name != "same slot, arbitrated")
DEPTHS, WORDS = (30, 60, 120, 240), 4500
WINDOW = 32_768  # tokens of a whole record before a language model
WRITE, READ = WriteConfig(), ReadConfig()
Tell = Callable[[str], Any] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Told:
    """The rendered record of a folder, by patient, and what each write path made of it.

    chosen: the patients who were told under every write path; STAM was told all of them. write: STAM's settings.
    """

    record: Mapping[str, Sequence[Rendered]]
    memories: Mapping[str, Memories]
    encoder: Encoder
    chosen: frozenset[str]
    write: WriteConfig = WRITE


def tell(folder: str | os.PathLike, writer: Writer, encoder: Encoder, *, paths: Sequence[str] = PATHS,
         everybody: bool = False, write: WriteConfig = WRITE, progress: Tell = None) -> Told:
    """Ingest the tables of a folder once a write path, each text encoded once: STAM the whole folder, its controls the
    patients of MIMIC-QA's test split, or everybody too (where no patient falls into that split, too). Raises:
    RecordError."""
    record: dict[str, list[Rendered]] = defaultdict(list)
    for rendered in tables.read(folder):
        record[rendered.entry.patient_id].append(rendered)
    test = frozenset(p for p, split in mimic_qa.splits(record).items() if split == "test")
    chosen = frozenset(record) if everybody or not test else test
    encoder = OnceEncoder(encoder)
    some = [r for p, own in record.items() if p in chosen for r in own]
    controls = [name for name in paths if name != STAM]
    made = memories_of([r for own in record.values() for r in own], writer, encoder, (STAM,), progress, write=write)
    made |= memories_of(some, writer, encoder, controls, progress, write=write)
    return Told(record, {name: made[name] for name in ORDER if name in made}, encoder, chosen, write)


# ---- MIMIC-QA -----------------------------------------------------------------------------------------------------

def asks_of(asked: Sequence[mimic_qa.Question], record: Mapping[str, Sequence[Rendered]]) -> list[Ask]:
    """The questions; a row of the evidence is served where one of its sentences is."""
    spots: dict[str, dict[str, list[Place]]] = {p: defaultdict(list) for p in {q.patient_id for q in asked}}
    for patient, by_row in spots.items():
        for rendered in record[patient]:
            for span, row in told_at(rendered):
                by_row[row.row].append((rendered.entry.entry_key, *span))
    return [Ask(q.question_id, q.patient_id, q.type, q.text, (q.answer,),
                tuple(tuple(spots[q.patient_id][row]) for row in q.rows)) for q in asked]


def mimic_qa_report(folder: str | os.PathLike, found: Told, reader: Reader, *, read: ReadConfig = READ,
                    window: int = WINDOW, seed: int = 0,
                    command: str = "stam_jax.benchmarks.table_suites.mimic_qa_report(...)", progress: Tell = None
                    ) -> T.Report:
    """STAM on all questions, by split; its controls and arms on those of the patients who were told to all of them.
    Nothing is fitted on any.

    read: the settings of STAM's packets, to whose length the other systems are matched. window: tokens of a whole
        record before a language model.

    Raises: ValueError: an answer that SQL does not find.
    """
    def say(what: str) -> None:
        if progress is not None:
            progress(f"answering: {what}")

    parts = mimic_qa.splits(found.record)
    asked = [q for p, split in parts.items() for q in mimic_qa.of_patient(p, told(found.record[p]), split)]
    if faults := mimic_qa.verify(asked, mimic_qa.Tables(folder)):
        raise ValueError(f"{len(faults)} questions do not hold, {faults[0]} the first")
    mine = [q for q in asked if q.patient_id in found.chosen]
    readers = (mimic_qa.RowReader(found.record, asked), reader)

    def answers(questions: Sequence[mimic_qa.Question]) -> Answers:
        patients = {q.patient_id for q in questions}
        return Answers(asks_of(questions, found.record),
                       {p: [r.entry for r in found.record[p]] for p in sorted(patients)}, found.memories, found.encoder,
                       readers[0], read=read, macro=False, length=length_of(reader), seed=seed)

    a = answers(mine)
    b = a.read_by(reader)
    again = functools.cache(b.again)

    def table(name: str, title: str, shown: Sequence[Served], note: str = "", more: Mapping[str, Sequence] | None = None
              ) -> T.Table:
        """As `Answers.table`, with the F1 of the other reader, or with other columns."""
        more = more or {f"F1 {reader.name}": [a.mean([x.f1 for x in again(s).scores]) for s in shown]}
        cells = [(*a.row(s), *extra) for s, *extra in zip(shown, *more.values())]
        return T.Table(name, title, (*a.columns, *more), tuple(cells), note)

    say("reference")
    both = a.arm("STAM, BOTH")
    aim = median_words(both.packets, a.length)
    systems = []
    for name, memories in _SHOWN.items():
        if memories in found.memories:
            say(name)
            systems.append(a.like(name, aim, memories=memories))
    say("flat RAG and full context")
    systems += [a.flat("flat RAG", aim), a.full("full context", aim)]
    out = [store_table(found, mine), table(
        "answers", "Answers at approximately matched median context", [both, *systems],
        f"The reader `rows` computes on the rows that were served and reads no labels: write paths differ before it by "
        f"what they leave room for, not by what they say holds. {DRAWN} `truncated`: questions before which the record "
        "was cut, the oldest words first. The raw record names each row behind its sentence; memories do not."),
        a.differences("differences", "STAM minus each system at matched context, the reader of rows", both, systems,
                      TESTED)]
    if is_model(reader):
        out.append(b.differences("reader_differences", f"The same, read by {reader.name}", again(both),
                                 [again(s) for s in systems], TESTED))
    say("arms")
    refilled, half = a.arm("ACTIVE, filled up (all HISTORY deleted)", arm="REFILLED"), max(1, read.most // 2)
    arms = [a.arm("STAM, ACTIVE", arm="ACTIVE"), refilled,
            a.arm("separate allocation, half each", active=half, history=half), a.arm("no store labels", told=False),
            a.arm("with source spans", spans=True)]
    out += [table("arms", "Serving arms and controls at the same depth", [both, *arms],
                  "A rendered row is its own source, so that source spans only repeat it; `rows` reads no labels."),
            a.differences("arm_differences", "STAM (BOTH) minus each arm, the reader of rows", both, arms, TESTED),
            dependence(a, both, refilled),
            aspects(a, {t: (t,) for t in dict.fromkeys(a.types)}, both, [arms[0], *systems])]
    say("depths")
    swept = depths(a, [*map(a.sized, DEPTHS), a.sized(ALL, WORDS), a.sized(ALL)])
    shown = [s for own in swept.values() for s, _ in own]
    records = [a.full("full context", WORDS), a.full("full context", window if is_model(reader) else None)]
    more = {"whole stores": [n for own in swept.values() for _, n in own] + [None] * len(records)}
    if is_model(reader):
        more[f"F1 {reader.name}"] = [a.mean([x.f1 for x in again(s).scores]) for s in (*shown, *records)]
    out.append(table("depths", "Depth", [*shown, *records],
                     "`whole stores`: questions before which all of the patient's memories were ranked into the packet.",
                     more))
    say("by split")
    whole = a if len(mine) == len(asked) else answers(asked)
    everything = both if whole is a else whole.arm("STAM, BOTH")
    reread = again(both) if whole is a else whole.read_by(reader).again(everything)
    out.append(_split_table(asked, everything, reread, mine, [(s, again(s)) for s in systems], found.chosen, seed))
    out += [_kept_table(found, mine, seed), _template_table(asked, everything, reread, reader.name)]
    if is_model(reader):
        out.append(repeatability(b, again(both)))
    return T.Report(
        "mimic_qa", "MIMIC-QA rebuilt on MIMIC-IV tables", command,
        {"questions": len(asked), "patients": len(parts), "questions of controls": len(mine),
         "patients of controls": len({q.patient_id for q in mine}), "chunk words": CHUNK,
         "reader": reader.name, "encoder": found.encoder.id, "whole record": window if is_model(reader) else None,
         "read": dataclasses.asdict(read), "write": told_of(found.memories, found.write)},
        {"resampling": seed}, {"tables": sha256_of(r.entry for own in found.record.values() for r in own)}, tuple(out),
        ("Rebuilt from the paper's description: its own 2,000 questions are not public, so figures are not comparable.",
         "Every answer and its evidence was recomputed by SQL over the tables, and over the evidence rows alone.",
         "Rows are MIMIC-IV (demo: ODbL 1.0, PhysioNet and TinyEHR); questions are made from them and not shipped."))


_SHOWN = {"append only": "append only", "same-slot rule": "same slot",
          "doses-and-measurements rule": "doses and measurements", "semantic only, B 12": "semantic only, B 12",
          "semantic only, B 24": "semantic only, B 24", "B 24": "B 24", "no relations": "no relations"}


def store_table(found: Told, asked: Sequence[mimic_qa.Question]) -> T.Table:
    """What each write path kept and moved, and where it put the evidence."""
    wanted = [(q.patient_id, row) for q in asked for row in q.rows]
    out = []
    for name, m in found.memories.items():
        states = {p: m.states[p] for p in sorted(found.chosen)}
        active, history = (sum(len(getattr(s, place)()) for s in states.values()) for place in ("active", "history"))
        moved = Counter(t.reason for s in states.values() for mid in s.memories if (t := s.standing(mid)) is not None)
        others = moved.total() - sum(moved[r] for r in ("SUPERSEDED", "EXPIRED", "PRIOR_STATE"))
        said = sum(len(x.provenance) for s in states.values() for x in s.memories.values())
        lost = sum(len(told(found.record[p])) - len(rows(s)) for p, s in states.items())
        past = {(p, row) for p, s in states.items() for row in _past(s)}
        asking = len({q.question_id for q in asked if any((q.patient_id, row) in past for row in q.rows)})
        out.append((name, active + history, T.share(history, active + history), moved["SUPERSEDED"], moved["EXPIRED"],
                    moved["PRIOR_STATE"], others, said - active - history, lost, sum(w in past for w in wanted), asking))
    return T.Table("store", "The memory of the tables by write path",
                   ("write path", "memories", "archived", "superseded", "expired", "prior", "other reasons",
                    "confirmations", "rows that no memory cites", "evidence in HISTORY", "questions with such"),
                   tuple(out),
                   f"{len(found.chosen)} patients, {len(asked)} questions with {len(wanted)} rows of evidence. "
                   "`evidence in HISTORY`: rows that only memories in HISTORY cite. A row that says again what holds "
                   "confirms its memory instead of making another one. What is over by its own dates expires wherever "
                   "arbitration ran, so not under the bare rules (append only, same slot, doses and measurements).")


def _past(state: State) -> set[str]:
    """The rows that no ACTIVE memory cites, and one in HISTORY does."""
    at: dict[str, set[str]] = {"ACTIVE": set(), "HISTORY": set()}
    for own in cited(state).values():
        for r in own:
            at[r.memory.store].add(r.row)
    return at["HISTORY"] - at["ACTIVE"]


def _kept_table(found: Told, asked: Sequence[mimic_qa.Question], seed: int) -> T.Table:
    """What the reader of rows makes of whole stores: what was kept, whatever retrieval finds."""
    out = []
    for name, m in found.memories.items():
        by_memory = {p: cited(m.states[p]) for p in sorted(found.chosen)}
        whole = {p: joined(of) for p, of in by_memory.items()}
        held = {p: joined(of, [x.mid for x in m.states[p].active()]) for p, of in by_memory.items()}
        for place, of in (("all of the store", whole), ("all of ACTIVE", held)):
            got = mimic_qa.score(asked, [mimic_qa.answer(q, of[q.patient_id]) for q in asked],
                                 [[r.row for r in of[q.patient_id]] for q in asked])
            kinds = (float(np.mean([f for f, q in zip(got.each, asked) if q.type == t])) for t in ("state", "temporal"))
            out.append((name, place, T.mean(got.each, seed=seed), got.exact, *kinds, got.evidence))
    return T.Table("kept", "The reader of rows before whole stores", ("write path", "read", "token F1", "exact", "F1 state",
                                                                     "F1 temporal", "evidence read"), tuple(out))


def _split_table(asked: Sequence[mimic_qa.Question], both: Served, read: Served, mine: Sequence[mimic_qa.Question],
                 systems: Sequence[tuple[Served, Served]], chosen: frozenset[str], seed: int) -> T.Table:
    """By split of the patients (70/10/20): STAM on all questions, the others where they were told all of a split."""
    out = []
    for split in dict.fromkeys(q.split for q in asked):
        everyone = chosen.issuperset(q.patient_id for q in asked if q.split == split)
        for questions, (s, r) in ((asked, (both, read)), *((mine, pair) for pair in systems if everyone)):
            at = [i for i, q in enumerate(questions) if q.split == split]
            patients, f1 = [questions[i].patient_id for i in at], [s.scores[i].f1 for i in at]
            kinds = [[f for f, i in zip(f1, at) if questions[i].type == t] for t in ("state", "temporal")]
            served = [s.scores[i].served for i in at if s.scores[i].served is not None]
            out.append((split, s.name, len(set(patients)), len(at), T.mean(f1, None, patients, seed=seed),
                        *(float(np.mean(k)) if k else None for k in kinds),
                        float(np.mean(served)) if served else None, float(np.mean([r.scores[i].f1 for i in at]))))
    return T.Table("splits", "By split of the patients", (
        "split", "system", "patients", "questions", "token F1", "F1 state", "F1 temporal", "evidence served",
        "F1 of the other reader"), tuple(out), "The reader of rows, at matched context; intervals: patients drawn with "
        "replacement. Nothing was fitted on any split.")


def _template_table(asked: Sequence[mimic_qa.Question], both: Served, read: Served, name: str) -> T.Table:
    at: dict[str, list[int]] = defaultdict(list)
    for i, q in enumerate(asked):
        at[q.form[0]].append(i)
    return T.Table("templates", "STAM, packet BOTH, by template", ("template", "questions", "F1 rows", f"F1 {name}"), tuple(
        (t, len(own), *(float(np.mean([s.scores[i].f1 for i in own])) for s in (both, read)))
        for t, own in sorted(at.items())))


# ---- EHRSQL -------------------------------------------------------------------------------------------------------

def ehrsql_report(questions: str | os.PathLike, found: Told, *,
                  command: str = "stam_jax.benchmarks.table_suites.ehrsql_report(...)") -> T.Report:
    """Every question of a file, answered from the store of each write path that was told all patients and, beside, from
    the rendered record itself."""
    asked = ehrsql.load(questions)
    sources = {"the record as it was told": {p: told(own) for p, own in found.record.items()}} | {
        name: {p: rows(s) for p, s in m.states.items()} for name, m in found.memories.items()
        if m.states.keys() == found.record.keys()}
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
        {"questions": len(asked), "patients": len(found.record), "write": told_of(found.memories, found.write)}, {},
        {"tables": sha256_of(r.entry for own in found.record.values() for r in own)},
        (rates, by_kind, misses, each),
        ("Answers come out of the store, over all patients of it; no table and no SQL is read.",
         "Wordings were read off these same questions: the rate says what the store can answer, not how well unseen "
         "wordings are understood.", "Questions: EHRSQL 2024, CC BY 4.0."))
