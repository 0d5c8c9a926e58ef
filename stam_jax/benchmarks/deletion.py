"""The deletion suite: labels from planted gold, a bound calibrated on some patients, memories deleted of others.

Appendix F of the paper, end to end: the operating point of each criterion (F.2, F.4), what else could have been made a
candidate (F.5), what goes and what barely stays (F.6), and answers before and after (F.7). What is deleted is deleted
in a store on disk, which is then verified.
"""
from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from core_jax.embed import Encoder
from core_jax.synth.timelines import Timeline, TimelineConfig, fingerprint, generate
from stam_jax import metrics
from stam_jax.baselines.serving import FromMemory
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.answers import DRAWN
from stam_jax.benchmarks.harness import Ask, OnceEncoder, Score, evaluate, length_of, memory_rows, serve
from stam_jax.benchmarks.planted import READ, WRITE, asks_of, entries_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.deletion import conformal as crc
from stam_jax.deletion import plan as deletion
from stam_jax.deletion.conformal import WARNING, Control
from stam_jax.deletion.endurance import FLOORS, CandidateRule, floor
from stam_jax.deletion.scorer import Example, Scorer, examples, parts
from stam_jax.graph.relations import RelationTable
from stam_jax.graph.state import State
from stam_jax.read.answer import Reader
from stam_jax.read.search import Vectors, encode_query, snapshot
from stam_jax.storage.store import Store
from stam_jax.write.ingest import header_of, ingest
from stam_jax.write.writer import Writer

Labels = Mapping[tuple[str, str], str]  # (patient_id, mid) -> label
Held = Mapping[str, tuple[State, Vectors]]  # of each patient

CONTROL = Control(unit="patient")  # planted patients share their hundred-odd concept types
RULE = CandidateRule()
SHARES = (0.3, 0.35, 0.35)  # of the patients: the scorer's, the calibration's, those of whom memories are deleted
SHOWN = 5
# name -> control: the criteria, all with the candidates that are applied
CRITERIA = {
    "strict (applied)": CONTROL,
    "any protected memory": dataclasses.replace(CONTROL, loss="any"),
    "uncertain weighs half": dataclasses.replace(CONTROL, loss="weighted"),
    "types with protected ones only": dataclasses.replace(CONTROL, nonempty=True),
    "a threshold for each kind of slot": dataclasses.replace(CONTROL, groups=True),
    "never-forget only": dataclasses.replace(CONTROL, protect=("never-forget",)),
}
# name -> (rule, control): other candidates, each calibrated anew
CANDIDATES = {
    "as applied": (RULE, CONTROL),
    "without floor classes": (CandidateRule(floors=()), CONTROL),
    "at once": (CandidateRule(age=0), CONTROL),
    "after four updates": (CandidateRule(age=4), CONTROL),
    "never-forget only, without floor classes": (CandidateRule(floors=()), CRITERIA["never-forget only"]),
}
ALPHAS = ("0.005", "0.01", "0.02", "0.05", "0.1")


def endurance_of(timeline: Timeline, state: State) -> dict[str, str]:
    """mid -> label of every memory: the strictest of the gold facts that it is aligned to, `uncertain` without one."""
    rank = ("safe-to-forget", "uncertain", "never-forget")
    facts, out = {f.fact_id: f.endurance for f in timeline.facts}, {}
    for fact_id, mids in metrics.align(timeline, memory_rows(state)).items():
        for mid in mids:
            out[mid] = max(out.get(mid, rank[0]), facts[fact_id], key=rank.index)
    return {mid: out.get(mid, "uncertain") for mid in state.memories}


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Labelled patients in three parts. table: the relations' types, for the scorer."""

    held: Held
    labels: Labels
    table: RelationTable

    def parts(self, rule: CandidateRule, unit: str = "patient") -> dict[str, list[Example]]:
        rows = [e for state, vectors in self.held.values() for e in examples(state, vectors, rule, self.labels)]
        return parts(rows, unit, SHARES)

    @property
    def deployed(self) -> tuple[str, ...]:
        """The patients of whom memories are deleted."""
        return tuple(sorted({e.patient_id for e in self.parts(RULE)["test"]}))

    def scorer(self, unit: str = "patient") -> Scorer:
        return Scorer.fit(self.parts(RULE, unit)["train"], self.table)

    def row(self, scorer: Scorer, rule: CandidateRule, control: Control) -> tuple:
        """tau, units and loss of the calibration; then what it does to the patients of whom memories are deleted."""
        part = self.parts(rule, control.unit)
        found = crc.levels(deletion.scored(scorer, part["calibration"]), control)
        rows = deletion.scored(scorer, part["test"])

        def tau(group: str) -> float:
            level = found.get(group if control.groups else "all")
            return float("inf") if level is None else level.tau

        gone = [r.deletable and r.score >= tau(r.group) for r in rows]
        taus = sorted({level.tau for level in found.values()})
        told = ", ".join(f"{t:.3f}" for t in taus)
        return (told, sum(x.types for x in found.values()), float(sum(x.total for x in found.values())),
                sum(r.deletable for r in rows), *_outcome(deletion.judge(rows, gone, control)))


OUTCOME = ("removed", "safe precision", "safe recall", "never-forget lost", "never-forget removed", "mean loss")


def _outcome(d: deletion.Diagnostics) -> tuple:
    return (T.share(d.removed, d.memories), T.share(d.removed_safe, d.removed), T.share(d.removed_safe, d.safe),
            T.share(d.removed_never, d.never), d.removed_never, d.mean_loss)


def calibration_tables(study: Study, scorer: Scorer) -> list[T.Table]:
    """What criteria and candidates do to patients on whom nothing was fitted."""
    columns = ("tau", "units", "loss at tau", "candidates", *OUTCOME)
    by_type = dataclasses.replace(CONTROL, unit="type")
    criteria = [(name, *study.row(scorer, RULE, control)) for name, control in CRITERIA.items()]
    criteria.append(("unit: a concept type over all patients (judged on other types)",
                     *study.row(study.scorer("type"), RULE, by_type)))
    part = study.parts(RULE)
    held = deletion.scored(scorer, part["calibration"])
    rows = deletion.scored(scorer, part["test"])
    for delta in ("0.1", "0.05"):
        level = crc.learn_then_test(held, CONTROL, delta)
        gone = [r.deletable and r.score >= level.tau for r in rows]
        criteria.append((f"with probability {1 - float(delta):g}", f"{level.tau:.3f}", level.types, float(level.total),
                         sum(r.deletable for r in rows), *_outcome(deletion.judge(rows, gone, CONTROL))))
    out = [T.Table(
        "criteria", "Operating points at alpha 0.01", ("criterion", *columns), tuple(criteria),
        f"A unit is a concept type of one patient; {len(held)} memories of other patients calibrate, and the scorer "
        "saw neither. Mean loss: over the units of the deployed patients, by the criterion's own loss. "
        f"never-forget lost: share of the never-forget memories that goes. {WARNING}")]
    out.append(T.Table("alphas", "More room", ("alpha", *columns), tuple(
        (a, *study.row(scorer, RULE, dataclasses.replace(CONTROL, alpha=a))) for a in ALPHAS)))
    others = [(name, *study.row(scorer, rule, control)) for name, (rule, control) in CANDIDATES.items()]
    fixed = {"every candidate, no score": [r.deletable for r in rows],
             "temporal status: all HISTORY": [e.in_history for e in part["test"]]}
    for name, gone in fixed.items():
        others.append((name, None, None, None, sum(gone), *_outcome(deletion.judge(rows, gone, CONTROL))))
    out.append(T.Table("candidates", "Other candidates", ("candidates", *columns[:3], "candidates' number", *OUTCOME),
                       tuple(others), "Each but the last two is calibrated anew at alpha 0.01."))
    return out


def examples_table(study: Study, scorer: Scorer, proposal: deletion.Plan) -> T.Table:
    """What goes with the least margin, and what is protected by the least (paper F.6)."""
    rows = [e for e in study.parts(RULE)["test"] if e.deletable]
    scores = dict(zip(((e.patient_id, e.mid) for e in rows), scorer.score(rows)))
    going = {(p.patient_id, p.mid) for p in proposal.proposed}

    def line(what: str, key: tuple[str, str]) -> tuple:
        m = study.held[key[0]][0].memories[key[1]]
        return what, m.text, study.labels[key], study.held[key[0]][0].standing(key[1]).reason, scores[key]

    kept = sorted((k for k in scores if k not in going and study.labels[k] != "safe-to-forget"),
                  key=lambda k: (-scores[k], k))
    removed = sorted(going, key=lambda k: (scores[k], k))
    return T.Table("examples", "Around the threshold", ("", "memory", "gold label", "archived as", "score"),
                   (*(line("removed", k) for k in removed[:SHOWN]), *(line("kept", k) for k in kept[:SHOWN])),
                   "The removed memories with the lowest scores, the protected candidates with the highest.")


def classes(state: State, labels: Labels) -> Counter:
    """How many memories stand in ACTIVE, in each floor class, and in HISTORY by their label."""
    out = Counter()
    for m in state.memories.values():
        name = floor(m)
        out["ACTIVE"] += m.store == "ACTIVE"
        if m.store == "HISTORY":
            out[f"HISTORY, {name}" if name else f"HISTORY, else, {labels[m.patient_id, m.mid]}"] += 1
    return out


def kept_table(before: Held, after: Held, labels: Labels, violations: int) -> T.Table:
    first, then = (sum((classes(state, labels) for state, _ in held.values()), Counter()) for held in (before, after))
    names = ["ACTIVE", *(f"HISTORY, {name}" for name in FLOORS),
             *(f"HISTORY, else, {label}" for label in ("never-forget", "uncertain", "safe-to-forget"))]
    tombs = sum(len(state.tombstones) for state, _ in after.values())
    return T.Table("kept", "The store before and after", ("memories", "before", "after"),
                   (*((n, first[n], then[n]) for n in names), ("tombstones", 0, tombs)),
                   f"{violations} violated invariants after the deletion. A class after `HISTORY` is a floor: none of "
                   "it is ever a candidate.")


def answers_table(asks: Sequence[Ask], scores: Mapping[str, Sequence[Score]], safe: Collection[str], seed: int,
                  read: ReadConfig = READ) -> T.Table:
    """Paired answers (paper F.7). scores: name -> scores of the same questions, the first before any deletion. safe:
    ask_ids of the questions that rest on something that the gold calls safe to forget."""
    rows: list[tuple] = []
    groups = {"all": asks, "on what is safe to forget": [a for a in asks if a.ask_id in safe],
              "on nothing of that": [a for a in asks if a.ask_id not in safe]}
    for part, own in groups.items():
        if not own:
            continue
        chosen = {a.ask_id for a in own}
        types, patients = [a.type for a in own], [a.patient_id for a in own]
        (_, before), *others = ((name, [s for a, s in zip(asks, got) if a.ask_id in chosen])
                                for name, got in scores.items())
        compared = [(*(T.compare_scores([s.f1 for s in got], [s.f1 for s in before], types, clusters, seed=seed)
                       for clusters in (None, patients)),
                     T.compare_right([s.right for s in got], [s.right for s in before])) for _, got in others]
        changes = [(None, None, None), *zip(*(T.adjusted(column) for column in zip(*compared)))]
        for name, change, got in zip(scores, changes, (before, *(got for _, got in others))):
            same = None if got is before else T.share(sum(a.answer == b.answer for a, b in zip(got, before)), len(own))
            f1 = [s.f1 for s in got]
            rows.append((part, name, T.mean(f1, types, seed=seed), T.mean(f1, types, patients, seed=seed),
                         T.share(sum(s.right for s in got), len(own)), *change, same))
    return T.Table("answers", "Answers before and after deletion",
                   ("questions", "store", "type-macro F1", "patients drawn", "accuracy", "F1 minus before",
                    "the same, patients drawn", "accuracy minus before", "same answers"), tuple(rows),
                   f"Questions on the deployed patients, depth {read.most}. Planted questions ask for past readings "
                   "too, which the gold calls safe to forget: what deletion costs there is no failure of the bound. "
                   f"{DRAWN} Sign flip over questions, then over patients, and exact McNemar (improved:regressed); "
                   "Holm within column and part.")


def on_safe(timeline: Timeline) -> set[str]:
    """Ids of the questions of which some evidence is safe to forget."""
    safe = {f.fact_id for f in timeline.facts if f.endurance == "safe-to-forget"}
    return {q.question_id for q in timeline.questions if not safe.isdisjoint(q.facts)}


def run(writer: Writer, encoder: Encoder, reader: Reader, *, patients: int = 60, seed: int = 0,
        wording: str = "heldout", write: WriteConfig = WRITE, read: ReadConfig = READ,
        command: str = "stam_jax.benchmarks.deletion.run(...)", progress: Callable[[str], Any] | None = None
        ) -> T.Report:
    """write, read: STAM's settings. Raises: ValueError: fewer than 6 patients, an entry was refused."""
    if patients < 6:
        raise ValueError(f"patients: got {patients}, expected at least 6, so that each part has two")
    config = TimelineConfig(patients, seed, wording)
    timelines = {t.patient_id: t for t in generate(config)}
    encoder = OnceEncoder(encoder)
    tell = progress or (lambda what: None)
    tell("writing")
    with tempfile.TemporaryDirectory(prefix="stam-bench-") as folder:
        with Store.open(folder, encoder=header_of(encoder)) as store:
            report = ingest(store, [e for t in timelines.values() for e in entries_of(t)], writer, encoder,
                            write, wave=256)
            if report.refused:
                raise ValueError(f"deletion: refused {dict(report.refused)}")
            held = {p: snapshot(store, p) for p in store.patients()}
            labels = {(p, mid): label for p, (state, _) in held.items()
                      for mid, label in endurance_of(timelines[p], state).items()}
            study = Study(held, labels, store.table)
            scorer, part = study.scorer(), study.parts(RULE)
            calibration = deletion.calibrate(scorer, RULE, part["calibration"], CONTROL, "of the suite")
            before = {p: held[p] for p in study.deployed}
            proposal = deletion.plan(before.values(), scorer, RULE, calibration)
            tell(f"{len(proposal.proposed)} of {proposal.memories} memories go")
            deletion.apply(store, proposal, scorer, RULE, calibration, calibration_id=calibration.id)
            after = {p: snapshot(store, p) for p in before}
            violations = len(store.verify())
    tell("answering")
    asks = [a for p in before for a in asks_of(timelines[p])]
    safe = {name for p in before for name in on_safe(timelines[p])}
    texts = list(dict.fromkeys(a.text for a in asks))
    vectors = dict(zip(texts, encode_query(encoder, texts, read.instruction)))
    served = {"before": (before, "BOTH"), "calibrated deletion": (after, "BOTH"),
              "all HISTORY deleted": (before, "REFILLED")}
    scores = {}
    for name, (own, arm) in served.items():
        memory = FromMemory({p: s for p, (s, _) in own.items()}, {p: v for p, (_, v) in own.items()}, read, arm,
                            count=length_of(reader).count)
        scores[name] = evaluate(serve(memory, asks, vectors), asks, reader)
    found = [*calibration_tables(study, scorer), kept_table(before, after, labels, violations),
             answers_table(asks, scores, safe, seed, read), examples_table(study, scorer, proposal)]
    settings = {"patients": patients, "wording": wording, "encoder": encoder.id, "reader": reader.name,
                "writer": dict(writer.hashes), "write": dataclasses.asdict(write), "read": dataclasses.asdict(read),
                "control": CONTROL.to_dict(),
                "shares of patients": list(SHARES), "candidates": dataclasses.asdict(RULE)}
    return T.Report("deletion", "Calibrated deletion on planted timelines", command, settings,
                    {"timelines": seed, "resampling": seed}, {"timelines": fingerprint(config)}, tuple(found))
