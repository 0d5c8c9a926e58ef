"""The suites on files that a user names (`stam_jax.benchmarks.cohorts`), which all run alike.

STAM and its controls answer the same questions from what had been told by then, at approximately matched median
context; the benchmark's own score (`compat`) and the strict one stand side by side. Reports hold no words of the files.
"""
from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from stam_jax.baselines.serving import NO_STATE, FullContext, Piece, Raw, pieces, places
from stam_jax.benchmarks import cohorts
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.answers import ALL, CHUNK, Answers, Served, depths, repeatability
from stam_jax.benchmarks.cohorts import FOLDS, TITLES, Cohort
from stam_jax.benchmarks.harness import (
    Ask,
    Memories,
    OnceEncoder,
    OnceWriter,
    build,
    is_model,
    median_words,
    serve,
    sha256_of,
)
from stam_jax.benchmarks.judge import TEMPERATURE, Judge
from stam_jax.benchmarks.write_paths import APPENDED, INGESTED, REPLAYED, STAM, settings_of, told_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.memory import Entry
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.read.packet import Packet
from stam_jax.readers.locomo import turns
from stam_jax.write.writer import Writer

DEPTHS = (30, 60, 120, 240)
WORDS = 4500
WINDOW = 32768  # tokens of a whole record before a language model
SCORERS = ("compat", "strict")
WRITE, READ = WriteConfig(), ReadConfig()


def written(cohort: Cohort, writers: Sequence[Writer], encoder: Encoder,
            progress: Callable[[str], Any] | None = None, *, write: WriteConfig = WRITE) -> dict[str, Memories]:
    """STAM's memories and append-only ones. writers: one for all patients, or one a fold, which writes the patients of
    its fold only. write: STAM's settings."""
    made: dict[str, Memories] = {}
    for fold, writer in enumerate(writers):
        own = [e for p, told in cohort.entries.items() if len(writers) == 1 or cohort.folds[p] == fold for e in told]
        writer = OnceWriter(writer)
        for name in (STAM, APPENDED) if own else ():
            if progress is not None:
                progress(f"writing: {name}")
            m = build(name, own, INGESTED[name][0](writer), encoder, settings_of(name, write), updates=True)
            if name in REPLAYED:
                m = m.changed(name, REPLAYED[name])
            before = made.get(name)
            made[name] = m if before is None else dataclasses.replace(
                m, states={**before.states, **m.states}, vectors={**before.vectors, **m.vectors})
    return made


def known(state: State, told: Sequence[Entry]) -> State:
    """The state when exactly these entries had been told. Raises: ValueError: they did not arrive in this order."""
    keys = {e.entry_key for e in told}
    seq = max((u.seq for u in state.updates() if any(e.entry_key in keys for e in u.entries)), default=0)
    found = state if seq == state.version else state.as_of_seq(seq)
    if not found.entries.keys() <= keys:
        raise ValueError(f"patient {state.patient_id!r}: the entries arrived in another order than they were told")
    return found


class Marked(Answers):
    """A cohort's questions before one reader, each from the memories of its moment, marked by both scorers.

    What the parent keeps by patient is kept by moment here; `patients` are the patients themselves. `Served.scores` are
    the marks. failed: answers that the reader could not give, by the identity of the arm's marks.
    """

    def __init__(self, cohort: Cohort, memories: Mapping[str, Memories], encoder: Encoder, reader: Reader,
                 judge: Judge | None, *, read: ReadConfig = READ, seed: int = 0):
        self.record = {p: [getattr(e, "entry", e) for e in own] for p, own in cohort.entries.items()}
        told = {at: self.record[p][:n] for at, (p, n) in cohort.told.items()}
        then = {name: dataclasses.replace(m, states={at: known(m.states[p], told[at]) for at, (p, _) in
                                                     cohort.told.items()},
                                          vectors={at: m.vectors[p] for at, (p, _) in cohort.told.items()})
                for name, m in memories.items()}
        super().__init__([Ask(q.question_id, q.moment, q.type, q.text, ()) for q in cohort.asked], told, then, encoder,
                         reader, read=read, macro=cohort.macro, seed=seed)
        self.cohort, self.judge, self.failed = cohort, judge, Counter()
        self.patients = [q.patient_id for q in cohort.asked]

    @functools.cached_property
    def _cut(self) -> tuple[dict[str, list[Piece]], dict[str, np.ndarray]]:
        """Chunks of what was told by each moment, encoded once a patient."""
        own = {p: pieces(entries, CHUNK) for p, entries in self.record.items()}
        rows = self.encoder.encode([c.text for found in own.values() for c in found])
        first = dict(zip(own, itertools.accumulate((len(found) for found in own.values()), initial=0)))
        cut: dict[str, list[Piece]] = {}
        vectors: dict[str, np.ndarray] = {}
        for at, (p, n) in self.cohort.told.items():
            keys = {e.entry_key for e in self.record[p][:n]}
            count = sum(c.entry.entry_key in keys for c in own[p])
            cut[at], vectors[at] = own[p][:count], rows[first[p]:first[p] + count]
        return cut, vectors

    @property
    def pieces(self) -> dict[str, list[Piece]]:
        return self._cut[0]

    @property
    def piece_vectors(self) -> dict[str, np.ndarray]:
        return self._cut[1]

    def scored(self, name: str, setting: str, packets: Sequence[Packet]) -> Served:
        answers = self.reader.answer([q.prompt for q in self.cohort.asked], packets)
        marks = self.cohort.marks([q.source for q in self.cohort.asked], [a.text for a in answers], self.judge)
        self.failed[name, setting] = sum(a.error is not None for a in answers)
        return Served(name, setting, packets, marks, [a.text for a in answers])

    def found(self, packets: Sequence[Packet]) -> float | None:
        """Mean share of a question's evidence, turns or sessions, that what was served touches; None where no question
        names any."""
        shares = []
        for q, packet in zip(self.cohort.asked, packets):
            if q.evidence:
                entries = {e.entry_key: e for e in self.entries[q.moment]}
                names = set()
                for key, spans in places(packet).items():
                    names.add(entries[key].source_id)
                    names.update(t for a, b in spans for t in turns(entries[key].text, a, b))
                shares.append(sum(e in names for e in q.evidence) / len(q.evidence))
        return float(np.mean(shares)) if shares else None

    # ---- figures ---------------------------------------------------------------------------------------------------

    def scores(self, s: Served, scorer: str, at: Sequence[int]) -> list[float]:
        return [getattr(s.scores[i], scorer) for i in at]

    def scoring(self, s: Served, scorer: str, at: Sequence[int] | None = None) -> list[int]:
        """Of the questions `at`, those that a scorer gives a score; which they are depends on their types alone."""
        return [i for i in (range(len(self.asks)) if at is None else at) if getattr(s.scores[i], scorer) is not None]

    def over(self, at: Sequence[int]) -> tuple[list[str] | None, list[str]]:
        """(strata, patients) of some of the questions."""
        return None if self.strata is None else [self.types[i] for i in at], [self.patients[i] for i in at]

    def figure(self, s: Served, scorer: str, at: Sequence[int]) -> T.Figure:
        return T.mean(self.scores(s, scorer, at), self.over(at)[0], seed=self.seed)

    def figures(self, s: Served) -> dict[str, T.Figure]:
        return {name: self.figure(s, scorer, at) for name, (scorer, at) in Columns.by(self, s).named(self).items()}

    def against(self, a: Served, b: Served, scorer: str, at: Sequence[int]) -> tuple[T.Difference, T.Difference | None]:
        """(over questions, over patients); the second None where there is but one patient."""
        first, second = self.scores(a, scorer, at), self.scores(b, scorer, at)
        strata, patients = self.over(at)
        if strata is None and {*first, *second} <= {0.0, 1.0}:
            one = T.compare_right([int(x) for x in first], [int(x) for x in second])
        else:
            one = T.compare_scores(first, second, strata, seed=self.seed)
        return one, (T.compare_scores(first, second, strata, patients, seed=self.seed)
                     if len(set(patients)) > 1 else None)


# ---- tables ----------------------------------------------------------------------------------------------------------

def arms(a: Marked, window: int, progress: Callable[[str], Any] | None = None) -> tuple[list[Served], list[Served]]:
    """(systems, depths): STAM's packet with both stores first, its arms, its controls, no memory; STAM at other depths
    and the record itself."""
    def tell(what: str) -> None:
        if progress is not None:
            progress(f"answering: {what}")

    tell("STAM")
    both = a.arm("STAM, BOTH")
    aim = median_words(both.packets, a.length)
    out = [both, a.arm("STAM, ACTIVE", arm="ACTIVE"), a.arm("ACTIVE, filled up", arm="REFILLED")]
    tell("controls")
    out += [a.like(APPENDED, aim, memories=APPENDED), a.flat("flat RAG", aim), a.full("full context", aim),
            a.scored("no memory", "-", [Packet(NO_STATE, (), "")] * len(a.asks))]
    tell("depths")
    swept = depths(a, [*map(a.sized, DEPTHS), a.sized(ALL, WORDS), a.sized(ALL)], arms=("BOTH",))
    cut = FullContext(a.entries, a.said, WORDS)
    return out, [*(s for s, _ in swept["BOTH"]),
                 a.scored("full context", f"{WORDS} words", serve(cut, a.asks, a.vectors)),
                 a.full("full context", window if is_model(a.reader) else None)]


@dataclasses.dataclass(frozen=True)
class Columns:
    """What is shown of every system: name -> (scorer, questions). Where one scorer covers types of question that the
    other does not, both are shown over what both cover, and the wider one again."""

    of: Mapping[str, tuple[str, Sequence[int]]]
    judged: Sequence[int]

    @classmethod
    def by(cls, a: Marked, s: Served) -> Columns:
        compat, strict = (a.scoring(s, name) for name in SCORERS)
        shared = [i for i in strict if i in set(compat)]
        of = {"compat": ("compat", compat), "strict": ("strict", shared)} if compat else {}
        if shared != strict:
            of["strict, with rules" if compat else "strict, by rules"] = "strict", strict
        return cls(of, a.scoring(s, "judged"))

    def named(self, a: Marked) -> dict[str, tuple[str, Sequence[int]]]:
        """`of`, by the names that say how it is averaged."""
        return {f"{name} ({'type macro' if a.strata else 'pooled'})": shown for name, shown in self.of.items()}

    def table(self, a: Marked, name: str, title: str, shown: Sequence[Served], note: str) -> T.Table:
        columns = ("system", "depth", f"median {a.length.unit}", *self.named(a),
                   *(("judge's own score",) if self.judged else ()), "evidence served", "truncated", "answers failed")
        rows = []
        for s in shown:
            cut = [p.cut for p in s.packets if isinstance(p, Raw) and p.cut is not None]
            rows.append((s.name, s.setting, median_words(s.packets, a.length),
                         *(a.figure(s, scorer, at) for scorer, at in self.of.values()),
                         *((float(np.mean(a.scores(s, "judged", self.judged))),) if self.judged else ()),
                         a.found(s.packets), sum(cut) if cut else None, a.failed[s.name, s.setting]))
        return T.Table(name, title, columns, tuple(rows), note)

    def differences(self, a: Marked, first: Served, others: Sequence[Served]) -> T.Table:
        names, cells = [], []
        for column, (scorer, at) in self.of.items():
            one, patients = zip(*(a.against(first, o, scorer, at) for o in others))
            names += [column, f"{column}, patients drawn"]
            cells += [T.adjusted(one), patients if None in patients else T.adjusted(patients)]
        return T.Table("differences", "STAM (BOTH) minus each", ("system", "depth", *names), tuple(
            zip([o.name for o in others], [o.setting for o in others], *cells)),
            "Over questions: exact McNemar where the figure is pooled and answers are right or wrong, else sign flip. "
            "Patients drawn: all questions of a patient or a conversation flip together (all patterns up to 16). Holm "
            "within the column.")


def _types(a: Marked, shown: Sequence[Served]) -> T.Table:
    rows = []
    for kind in dict.fromkeys(a.types):
        own = [i for i, t in enumerate(a.types) if t == kind]
        for s in shown:
            by = sorted({s.scores[i].by for i in own})
            rows.append((kind, len(own), ", ".join(by), s.name, *(_mean(a, s, n, own) for n in (*SCORERS, "judged"))))
    return T.Table("types", "By type of question", ("type", "questions", "scored by", "system", *SCORERS,
                                                    "judge's own score"), tuple(rows))


def _mean(a: Marked, s: Served, scorer: str, at: Sequence[int]) -> T.Figure | None:
    """Over those of the questions that have such a score."""
    own = a.scores(s, scorer, a.scoring(s, scorer, at))
    return T.mean(own, seed=a.seed) if own else None


def _scorers(a: Marked, shown: Sequence[Served]) -> T.Table:
    rows = []
    for s in shown:
        pairs = [(m.compat, m.strict) for m in s.scores if m.compat is not None and m.strict is not None]
        rows.append((s.name, len(pairs), sum(x > y for x, y in pairs), sum(x == y for x, y in pairs),
                     sum(x < y for x, y in pairs)))
    return T.Table("scorers", "Where the two scorers differ",
                   ("system", "questions", "compat higher", "equal", "strict higher"), tuple(rows),
                   "Over the questions that both score.")


def _patients(a: Marked, s: Served) -> T.Table:
    rows = []
    for p, told in a.record.items():
        own = [i for i, who in enumerate(a.patients) if who == p]
        rows.append((p, len(told), len(own), *(_mean(a, s, n, own) for n in SCORERS)))
    return T.Table("patients", "STAM (BOTH) by patient", ("patient", "entries", "questions", *SCORERS), tuple(rows),
                   "Means over the patient's questions that have a score.")


def _folds(a: Marked, shown: Sequence[Served]) -> T.Table:
    of = a.cohort.folds
    rows = [(fold, sum(f == fold for f in of.values()), len(own), s.name, *(_mean(a, s, n, own) for n in SCORERS))
            for fold in sorted(set(of.values()))
            for own in [[i for i, p in enumerate(a.patients) if of[p] == fold]] for s in shown]
    return T.Table("folds", "By fold of patients", ("fold", "patients", "questions", "system", *SCORERS), tuple(rows),
                   f"A patient is in one of {FOLDS} folds, by the hash of its id. With adapters for each fold (fold_0/ "
                   "and so on in --adapters) a patient is written by those of its own fold, which must not have seen "
                   "it.")


def _published(a: Marked, s: Served) -> T.Table:
    mine = {q.question_id: m for q, m in zip(a.cohort.asked, s.scores)}
    rows, found = [], []
    for condition, scores in sorted(a.cohort.published.items()):
        own = [q for q in mine if q in scores]
        if own:
            right = [int(scores[q] == 1.0) for q in own]
            rows.append((condition, len(own), T.share(sum(right), len(own)), float(np.mean([scores[q] for q in own]))))
            found.append(None if a.judge is None else T.compare_right([int(mine[q].compat == 1.0) for q in own], right))
    return T.Table("published", "Others' scores of the same questions",
                   ("condition", "questions", "score 1", "with half points", "STAM (BOTH) minus it, compat"),
                   tuple((*row, d) for row, d in zip(rows, found if a.judge is None else T.adjusted(found))),
                   "Exact McNemar; theirs are the scores of another judge.")


# ---- the suite -------------------------------------------------------------------------------------------------------

_NOTES = {
    "memory_bench": (
        "A question is asked of what was told up to its session, and of nothing later; no session is left out.",
        "A reader without a model reads slots: it chooses no options and follows no chain. The rules writer reads "
        "English."),
    "locomo": ("The rules writer knows clinical statements only: of talks about anything else it keeps little.",),
    "clinical_bench": ("Physicians found 56 % of the benchmark's references defective: its figures are soft.",),
}


def run(suite: str, path: str | os.PathLike, writers: Sequence[Writer], encoder: Encoder, reader: Reader, *,
        judge: Judge | None = None, language: str = "en", noise: bool = False, write: WriteConfig = WRITE,
        read: ReadConfig = READ, window: int = WINDOW, seed: int = 0,
        command: str = "stam_jax.benchmarks.file_suites.run(...)", progress: Callable[[str], Any] | None = None
        ) -> T.Report:
    """One suite on one path.

    writers: one, or one a fold (`clinical_bench`). language, noise: of the sessions (`memory_bench`). write, read:
    STAM's settings. window: tokens of a whole record before a language model.

    Raises: RecordError: the file's fault. ValueError: another number of writers, an entry refused.
    """
    cohort = cohorts.read(suite, path, language=language, noise=noise)
    if len(writers) not in ((1,) if cohort.folds is None else (1, FOLDS)):
        raise ValueError(f"writers: got {len(writers)} for {suite}, expected 1{f' or {FOLDS}' if cohort.folds else ''}")
    encoder = encoder if isinstance(encoder, OnceEncoder) else OnceEncoder(encoder)
    a = Marked(cohort, written(cohort, writers, encoder, progress, write=write), encoder, reader, judge, read=read,
               seed=seed)
    systems, swept = arms(a, window, progress)
    both, by = systems[0], Columns.by(a, systems[0])
    how = Counter(m.by for m in both.scores)
    covered = "Scored by: " + ", ".join(f"{k} {n}" for k, n in sorted(how.items())) + "."
    if len(by.of) > 2:
        covered += (" Without a judge compat covers fewer types; `strict` is over the same questions, `with rules` "
                    "over all that the strict scorer has a rule for.")
    made = [by.table(a, "answers", "Answers by both scorers", systems, (
                f"{covered} Intervals: questions drawn with replacement, within their type where it is a macro mean. "
                "Append only, flat RAG and full context are at about the median context of the first row; full context "
                "is cut to it, the oldest words first. Evidence is served when a word of its turn or session is.")),
            by.differences(a, both, systems[1:]), _types(a, systems), _scorers(a, systems), _patients(a, both),
            by.table(a, "depths", "Depth", swept, "`truncated`: questions before which the record was cut.")]
    made += [_folds(a, systems)] if cohort.folds is not None else []
    made += [_published(a, both)] if cohort.published else []
    made += [again] if (again := repeatability(a, both)) is not None else []
    notes = ["No judge was named (--judge): compat has no score for what needs one."] if judge is None else [
        "The judge's scores are those of this model and these prompts, not of the judge that the benchmark pins.",
        f"It was shown {judge.asked} different answers; {judge.unread} verdicts could not be read and {judge.failed} "
        "failed: these count as wrong."]
    settings = {"questions": len(cohort.asked), "patients": len(cohort.entries), "read": dataclasses.asdict(read),
                "write": told_of((STAM, APPENDED), write), "chunk words": CHUNK,
                "entries": sum(map(len, cohort.entries.values())), "reader": reader.name,
                "encoder": encoder.id, "writer": [dict(w.hashes) for w in writers],
                "whole record": window if is_model(reader) else None,
                "judge": None if judge is None else {"model": judge.name, "temperature": TEMPERATURE}}
    settings |= {"language": language, "noise": noise} if suite == "memory_bench" else {}
    told = sha256_of(e for own in a.record.values() for e in own)
    asked = canonical.sha256(repr([(q.question_id, q.moment, q.type, q.prompt, q.source) for q in cohort.asked]))
    return T.Report(suite, f"{TITLES[suite]} from memory", command, settings, {"resampling": seed},
                    {"entries": told, "questions": asked}, tuple(made),
                    (*notes, *_NOTES[suite]))
