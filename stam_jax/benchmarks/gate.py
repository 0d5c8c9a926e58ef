"""The gate suite: a history gate fitted on some planted patients, frozen, and judged on others (paper 5.3, D.1, D.2).

Store, packets and reader stay as they are; only the arm that is served changes. Each price of a prompt has its gate,
with similarities alone and with words of the question beside them (an ablation).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from core_jax.embed import Encoder
from core_jax.models.cost import prefill_flops
from core_jax.models.presets import DECODERS
from core_jax.synth.timelines import TimelineConfig, fingerprint, generate
from stam_jax.benchmarks import tables as T
from stam_jax.benchmarks.answers import DRAWN, TESTED
from stam_jax.benchmarks.harness import Ask, Memories, OnceEncoder, OnceWriter, build, is_right
from stam_jax.benchmarks.planted import READ, WRITE, asks_of, entries_of
from stam_jax.config import ReadConfig, WriteConfig
from stam_jax.history.gate import CUES, FEATURES, Gate, folds, rehearse
from stam_jax.history.replay import Asked, Replay
from stam_jax.history.threshold import LAMBDAS
from stam_jax.read.answer import Reader
from stam_jax.read.search import Found, encode_query, search
from stam_jax.write.writer import Writer

MODEL = "qwen3-4b"  # whose prefill is counted: the paper's local reader
GROUPS = {"similarities": FEATURES, "and cue words": FEATURES + CUES}


def replays(asks: Sequence[Ask], memories: Memories, encoder: Encoder, reader: Reader, read: ReadConfig
            ) -> list[Replay]:
    """Both arms' answers to each question, scored by token F1."""
    texts = list(dict.fromkeys(a.text for a in asks))
    vectors = dict(zip(texts, encode_query(encoder, texts, read.instruction)))

    def searches() -> Iterator[Found]:
        for a in asks:
            yield search(memories.states[a.patient_id], memories.vectors[a.patient_id], vectors[a.text], read)

    return list(rehearse([Asked(a.ask_id, a.patient_id, a.type, a.text, a.answers) for a in asks], searches(), reader,
                         read, encoder.id))


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """Replays of patients on whom no gate was fitted. right: of (ACTIVE, BOTH, REFILLED), 0 or 1. needed: the gold says
    that some evidence is past."""

    rows: Sequence[Replay]
    right: np.ndarray  # int [n, 3]
    needed: np.ndarray  # bool [n]

    @classmethod
    def of(cls, rows: Sequence[Replay], asks: Sequence[Ask]) -> Judged:
        by_id = {a.ask_id: a for a in asks}
        own = [by_id[r.question_id] for r in rows]
        right = [[is_right(s.answer, a.answers) for s in (r.active, r.both, r.refilled)] for r, a in zip(rows, own)]
        return cls(rows, np.array(right, int).reshape(-1, 3), np.array([bool(a.history_needed) for a in own], bool))

    @property
    def types(self) -> list[str]:
        return [r.type for r in self.rows]

    @property
    def patients(self) -> list[str]:
        return [r.patient_id for r in self.rows]

    def skipped(self, both: np.ndarray, where: np.ndarray) -> T.Figure:
        """Share of the questions at `where`, of which HISTORY has something, that are served without it."""
        asked = where & np.array([r.history > 0 for r in self.rows])
        return T.share(int((asked & ~both).sum()), int(asked.sum()))

    def f1(self, both: np.ndarray) -> list[float]:
        return [r.both.score if b else r.active.score for r, b in zip(self.rows, both)]

    def is_right(self, both: np.ndarray) -> list[int]:
        return np.where(both, self.right[:, 1], self.right[:, 0]).tolist()

    def costs(self, both: np.ndarray) -> tuple[float, float]:
        """(mean tokens, mean prefill operations) of what is served."""
        tokens = [r.both.tokens if b else r.active.tokens for r, b in zip(self.rows, both)]
        return float(np.mean(tokens)), float(np.mean([prefill_flops(DECODERS[MODEL], n) for n in tokens]))


def gate_tables(fitted: Sequence[Replay], judged: Judged, seed: int) -> list[T.Table]:
    """fitted: replays of the patients on whom gates are fitted; `judged` holds none of these."""
    every, nothing = np.ones(len(judged.rows), bool), np.zeros(len(judged.rows), bool)
    gates = {(name, lam): Gate.fit(fitted, lam=lam, names=features, macro=True, seed=seed)
             for name, features in GROUPS.items() for lam in LAMBDAS}
    arms = {("BOTH", None): every, ("ACTIVE", None): nothing, ("gold need of HISTORY", None): judged.needed}
    arms |= {key: gate.serves(judged.rows) for key, gate in gates.items()}
    reference, full = judged.f1(every), judged.costs(every)
    others = [key for key in arms if key != ("BOTH", None)]
    f1, by_patient = (T.adjusted([T.compare_scores(judged.f1(arms[k]), reference, judged.types, clusters, seed=seed)
                                  for k in others]) for clusters in (None, judged.patients))
    right = T.adjusted([T.compare_right(judged.is_right(arms[k]), judged.is_right(every)) for k in others])
    rows = []
    for key, both in arms.items():
        tokens, flops = judged.costs(both)
        changes = [None] * 3 if key not in others else [c[others.index(key)] for c in (f1, by_patient, right)]
        rows.append((*key, str(round(gates[key].threshold, 3)) if key in gates else None, judged.skipped(both, every),
                     T.mean(judged.f1(both), judged.types, seed=seed),
                     T.mean(judged.f1(both), judged.types, judged.patients, seed=seed), *changes, tokens,
                     1 - tokens / full[0], flops / 1e12, 1 - flops / full[1]))
    served = T.Table(
        "gate", "A frozen gate on patients it has not seen",
        ("served", "price of a prompt", "threshold", "HISTORY skipped", "type-macro F1", "patients drawn",
         "F1 minus BOTH", "the same, patients drawn", "accuracy minus BOTH", "mean tokens", "tokens saved",
         "prefill TFLOP", "prefill saved"), tuple(rows),
        f"Fitted on {len({r.patient_id for r in fitted})} patients ({len(fitted)} questions), judged on "
        f"{len({r.patient_id for r in judged.rows})} others ({len(judged.rows)} questions); the threshold is the exact "
        f"optimum of type-macro F1 less price times tokens on the fitted patients, out of fold. {DRAWN} {TESTED} Tokens "
        f"as the reader counts them; prefill operations of {MODEL} at as many tokens. `gold need of HISTORY` serves "
        "BOTH where the gold says that evidence is past.")
    return [served, _need_table(judged, arms, seed), _dependence(judged)]


def _need_table(judged: Judged, arms: dict[tuple[str, float | None], np.ndarray], seed: int) -> T.Table:
    """The gold says which questions need HISTORY; the gate is never told, it learns from where the arms differ."""
    rows = []
    differ = np.array([r.needs_history for r in judged.rows])
    for (name, lam), both in arms.items():
        if lam is not None:
            rows.append((name, lam, *(judged.skipped(both, where) for where in (
                judged.needed, ~judged.needed, differ, ~differ))))
    return T.Table("need", "Whose HISTORY is skipped",
                   ("served", "price of a prompt", "gold: needed", "gold: not needed", "arms differ", "arms agree"),
                   tuple(rows), "Share of the questions for which HISTORY has something that are served without it.")


def _dependence(judged: Judged) -> T.Table:
    rows = []
    for kind in (*dict.fromkeys(judged.types), "all"):
        at = np.array([kind in (t, "all") for t in judged.types])
        right = judged.right[at]
        rows.append((kind, int(at.sum()), float(judged.needed[at].mean()),
                     float(np.mean([r.needs_history for r, inside in zip(judged.rows, at) if inside])),
                     int((right[:, 1] > right[:, 2]).sum()), int((right[:, 1] < right[:, 2]).sum()),
                     T.compare_right(right[:, 1].tolist(), right[:, 2].tolist())))
    return T.Table("dependence", "Dependence on HISTORY: BOTH against filled-up ACTIVE",
                   ("type", "questions", "gold needs HISTORY", "arms differ", "critical", "harmful", "BOTH minus it"),
                   tuple(rows), "critical: only BOTH is right; harmful: only filled-up ACTIVE is. Exact McNemar, not "
                   "adjusted.")


def run(writer: Writer, encoder: Encoder, reader: Reader, *, patients: int = 60, seed: int = 0,
        wording: str = "heldout", write: WriteConfig = WRITE, read: ReadConfig = READ,
        command: str = "stam_jax.benchmarks.gate.run(...)", progress: Callable[[str], Any] | None = None) -> T.Report:
    """Half of the patients are for fitting. write, read: STAM's settings.

    Raises: ValueError: fewer than 10 patients (fitting needs five).
    """
    if patients < 10:
        raise ValueError(f"patients: got {patients}, expected at least 10: five to fit on, as many to judge")
    config = TimelineConfig(patients, seed, wording)
    timelines = list(generate(config))
    writer, encoder = OnceWriter(writer), OnceEncoder(encoder)
    asks = [a for t in timelines for a in asks_of(t)]
    if progress is not None:
        progress("writing")
    memories = build("gate", [e for t in timelines for e in entries_of(t)], writer, encoder, write)
    if progress is not None:
        progress("answering")
    rows = replays(asks, memories, encoder, reader, read)
    half = folds([r.patient_id for r in rows], 2, seed)
    fitted = [r for r, f in zip(rows, half) if f == 0]
    judged = Judged.of([r for r, f in zip(rows, half) if f == 1], asks)
    settings = {"patients": patients, "wording": wording, "encoder": encoder.id, "reader": reader.name,
                "writer": dict(writer.hashes), "write": dataclasses.asdict(write), "read": dataclasses.asdict(read),
                "prefill of": MODEL,
                "features": {name: list(own) for name, own in GROUPS.items()}}
    return T.Report("gate", "When is HISTORY served?", command, settings, {"timelines": seed, "resampling": seed},
                    {"timelines": fingerprint(config)}, tuple(gate_tables(fitted, judged, seed)))
