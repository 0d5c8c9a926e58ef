"""The history gate: serve HISTORY beside ACTIVE only where it is likely to change the answer.

    rows = list(rehearse(questions, searches, reader, config, encoder.id))  # both arms answer
    gate = Gate.fit(rows, lam=0.05)
    judged = gate.report(rows_of_other_patients)
    packet, p = serve(found, gate, config, question, reader.count)

It reads similarities of the search and nothing of the text; words of the question are an optional group. Nothing here
changes a packet: BOTH is served as it is, or ACTIVE is. NumPy and SciPy, no JAX.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from core_jax import stats
from core_jax.records import RecordError, atomic_write
from stam_jax.config import ReadConfig
from stam_jax.graph import canonical
from stam_jax.history import replay
from stam_jax.history.logistic import Logistic
from stam_jax.history.replay import Asked, Replay, Served
from stam_jax.history.threshold import LAMBDAS, Cut, best, macro_weights
from stam_jax.metrics import token_f1
from stam_jax.read.answer import Reader
from stam_jax.read.intent import has
from stam_jax.read.packet import Packet
from stam_jax.read.search import Found, packet
from stam_jax.readers.json_document import Document

FEATURES = ("a1", "h1", "h1_less_a1", "a_top5", "h_top5", "h_top5_less_a_top5", "h_share", "h_near_a1", "a1_less_a5",
            "log_size_ratio")
_CUES = {"cue_past": r"before|previous|prior|former|used to|original|earlier|history|\bwas\b|\bwere\b|\bdid\b",
         "cue_change": r"chang|increas|decreas|stop|start|switch|became|adjust",
         "cue_order": r"first|last|after|when|since|until|order|sequence",
         "cue_now": r"current|\bnow\b|today|at present|still|latest|most recent"}
CUES = tuple(_CUES)
_NEAR = 0.05
SCHEMA = "gate/3"
_BATCH = 64  # questions that a reader is asked at once


def features(found: Found, config: ReadConfig, question: str | None = None) -> dict[str, float]:
    """Numbers of one question, by name: FEATURES, and with the question CUES (0 or 1 each).

    A store without hits has cosine 0. a5 is the fifth best or the last. h_share: of the joint top `config.most`.
    """
    a, h = ([i.cosine for i in items] or [0.0] for items in (found.active, found.history))
    top = found.ranked()[:config.most]
    a5, h5 = (sum(x[:5]) / len(x[:5]) for x in (a, h))
    near = sum(abs(i.cosine - a[0]) <= _NEAR for i in found.history)
    share = sum(i.place == "HISTORY" for i in top) / max(len(top), 1)
    held, past = found.stored
    ratio = math.log1p(past) / math.log1p(max(held, 1))
    out = dict(zip(FEATURES, (a[0], h[0], h[0] - a[0], a5, h5, h5 - a5, share, float(near), a[0] - a[:5][-1], ratio)))
    if question is not None:
        out |= {name: float(has(words, question)) for name, words in _CUES.items()}
    return out


def rehearse(questions: Sequence[Asked], searches: Iterable[Found], reader: Reader, config: ReadConfig,
             encoder: str, *, judge: Callable[[str, Sequence[str]], float] | None = None) -> Iterator[Replay]:
    """Both arms, and ACTIVE filled up, answer each question. searches: one a question, in their order; encoder: whose.

    judge: (answer, right answers) -> 0 or 1; without it answers are scored by token F1.
    Raises: ValueError: the reader failed on a question.
    """
    score, searches = judge or token_f1, iter(searches)
    for first in range(0, len(questions), _BATCH):
        some = questions[first:first + _BATCH]
        found = [next(searches) for _ in some]
        packets = [packet(f, arm, config, reader.count) for f in found for arm in ("ACTIVE", "BOTH", "REFILLED")]
        answers = reader.answer([q.text for q in some for _ in range(3)], packets)
        for i, q in enumerate(some):
            own = answers[3 * i:3 * i + 3]
            if failed := [a.error for a in own if a.error]:
                raise ValueError(f"question {q.question_id!r}: {failed[0]}")
            active, both, refilled = (Served(a.packet_sha256, a.text, float(score(a.text, q.answers)), max(a.tokens, 1))
                                      for a in own)
            yield Replay(q.question_id, q.patient_id, q.type, features(found[i], config, q.text), active, both,
                         sum(x.place == "HISTORY" for x in packets[3 * i + 1].items), judge is not None, refilled, encoder)


# ---- fitting ------------------------------------------------------------------------------------------------------

def folds(patients: Sequence[str], k: int, seed: int = 0) -> list[int]:
    """The fold of each row, 0..k-1: all rows of a patient in one, as many patients in each as can be.

    Raises: ValueError: fewer patients than folds.
    """
    order = sorted(set(patients), key=lambda p: canonical.digest([seed, p]))
    if not 2 <= k <= len(order):
        raise ValueError(f"folds: got {k} of {len(order)} patients, expected 2 to {len(order)}")
    of = {p: i % k for i, p in enumerate(order)}
    return [of[p] for p in patients]


def _matrix(rows: Sequence[Replay], names: Sequence[str]) -> np.ndarray:
    """Raises: RecordError: a row without one of the features."""
    for r in rows:
        if missing := [n for n in names if n not in r.features]:
            raise RecordError(f"question {r.question_id!r} has none", field=f"features.{missing[0]}")
    return np.array([[r.features[n] for n in names] for r in rows], np.float64).reshape(len(rows), len(names))


def _learn(rows: Sequence[Replay], names: Sequence[str], l2: float) -> Logistic:
    """From the questions of which the gate is asked: those for which HISTORY serves something."""
    asked = [r for r in rows if r.history]
    if not asked:
        raise ValueError(f"got {len(rows)} questions, HISTORY serves something for none of them")
    return Logistic.fit(_matrix(asked, names), np.array([r.needs_history for r in asked]), l2=l2)


def _predict(model: Logistic, rows: Sequence[Replay], names: Sequence[str]) -> np.ndarray:
    """P(the arms differ): float [n], 0 where HISTORY serves nothing."""
    return np.where([r.history > 0 for r in rows], model.predict(_matrix(rows, names)), 0.0)


def crossfit(rows: Sequence[Replay], names: Sequence[str] = FEATURES, *, k: int = 5, l2: float = 1.0, seed: int = 0
             ) -> np.ndarray:
    """P of each row by a model that saw no row of its patient: float [n]. Raises: ValueError: too few patients."""
    of = np.array(folds([r.patient_id for r in rows], k, seed))
    out = np.zeros(len(rows))
    for f in range(k):
        train, test = ([r for r, g in zip(rows, of) if (g == f) == held] for held in (False, True))
        out[of == f] = _predict(_learn(train, names, l2), test, names)
    return out


@dataclasses.dataclass(frozen=True)
class Gate:
    """A fitted gate with its threshold frozen.

    threshold: HISTORY is served where p >= it. lam: the price of a prompt it was chosen for. replay_sha256: of the rows
    it was fitted on; patients: hashes of their patients. macro: the score is a mean over types of question. price: what
    a prompt's cost is counted in: "tokens", or the name of the model whose prefill operations they are. encoder: of
    the searches; "" where the replay did not say.
    """

    names: tuple[str, ...]
    model: Logistic
    threshold: float
    lam: float
    replay_sha256: str
    patients: frozenset[str] = frozenset()
    macro: bool = False
    price: str = "tokens"
    encoder: str = ""

    @classmethod
    def fit(cls, rows: Sequence[Replay], *, lam: float, names: Sequence[str] = FEATURES, macro: bool = False,
            k: int = 5, l2: float = 1.0, seed: int = 0, cost: Callable[[int], float] = float, price: str = "tokens"
            ) -> Gate:
        """The threshold is chosen on probabilities of patients that the model had not seen; then all rows are fitted.

        cost: prompt tokens -> cost (`core_jax.models.cost.prefill_flops` of a config; tokens unless given); price: its
        name.
        Raises: ValueError: fewer patients than folds, HISTORY serves nothing, searches of two encoders.
        """
        rows = list(rows)
        if len(encoders := sorted({r.encoder for r in rows})) > 1:
            raise ValueError(f"replay: got searches of the encoders {encoders[0]!r} and {encoders[1]!r}, expected one")
        cut = _cut(rows, crossfit(rows, names, k=k, l2=l2, seed=seed), lam, macro, cost)
        return cls(tuple(names), _learn(rows, names, l2), cut.threshold, lam, replay.digest(rows),
                   frozenset(_mark(r.patient_id) for r in rows), macro, price, encoders[0])

    def for_searches_of(self, encoder: str) -> Gate:
        """Itself. Raises: ValueError: fitted on searches of another encoder, whose similarities mean something else."""
        if encoder != self.encoder:
            raise ValueError(f"gate: fitted on searches of the encoder {self.encoder or '(not said)'}, these are of "
                             f"{encoder}; fit it on a replay of this store")
        return self

    def probability(self, numbers: dict[str, float]) -> float:
        """P(the arms answer differently) of one question's features. Raises: ValueError: its numbers give none."""
        p = float(self.model.predict(np.array([[numbers[n] for n in self.names]]))[0])
        if math.isnan(p):
            raise ValueError("the gate's numbers give no probability; fit it again")
        return p

    def serves(self, rows: Sequence[Replay]) -> np.ndarray:
        """Which rows are served HISTORY: bool [n], False where HISTORY has nothing."""
        return (_predict(self.model, rows, self.names) >= self.threshold) & np.array([r.history > 0 for r in rows])

    def report(self, rows: Sequence[Replay], *, flops: Callable[[int], float] | None = None) -> dict[str, Any]:
        """What the gate as it stands does to a replay: as `report`, with one row and nothing fitted.

        `unseen`: no row is of a patient on whom it was fitted; else the figures flatter it.
        Raises: ValueError: no question, searches of another encoder.
        """
        if not (rows := list(rows)):
            raise ValueError("got no question")
        for encoder in sorted({r.encoder for r in rows}):
            self.for_searches_of(encoder)
        seen = sum(_mark(r.patient_id) in self.patients for r in rows)
        row = {"lambda": self.lam, "threshold": _plain(self.threshold), "price": self.price, "macro": self.macro,
               **_judged(rows, self.serves(rows), self.macro, flops)}
        return _told(rows, self.names) | {
            "rows": [row], "unseen": not seen and replay.digest(rows) != self.replay_sha256,
            "questions_of_fitted_patients": seen}

    def save(self, path: str | os.PathLike) -> None:
        raw = {"schema": SCHEMA, "features": list(self.names), "model": self.model.to_dict(), "lam": self.lam,
               "threshold": _plain(self.threshold), "replay_sha256": self.replay_sha256,
               "patients": sorted(self.patients), "macro": self.macro, "price": self.price, "encoder": self.encoder}
        with atomic_write(path) as f:
            f.write(json.dumps(raw, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike) -> Gate:
        """Raises: RecordError naming file and field."""
        try:
            raw = Document(path).root
            canonical.choice(raw.get("schema"), "schema", (SCHEMA,))
            names = canonical.sequence(raw.get("features"), "features", str)
            model = Logistic.from_dict(raw.get("model"), "model")
            if len(names) != len(model.weights) or len({*names} & {*FEATURES, *CUES}) != len(names):
                raise RecordError(f"got {list(names)!r:.200} and {len(model.weights)} weights", field="features")
            for name in ("replay_sha256", "price"):
                canonical.text(raw.get(name), name)
            canonical.text(raw.get("encoder"), "encoder", empty=True)
            canonical.truth(raw.get("macro"), "macro")
            patients = frozenset(canonical.sequence(raw.get("patients"), "patients", str))
            threshold, lam = float(raw["threshold"]), float(raw["lam"])
            if math.isnan(threshold) or not 0 <= lam < math.inf:
                raise RecordError(f"got threshold {threshold} and lam {lam}", field="threshold")
            return cls(names, model, threshold, lam, raw["replay_sha256"], patients, raw["macro"], raw["price"],
                       raw["encoder"])
        except RecordError as e:
            raise RecordError(e.message, file=path, field=e.field) from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            raise RecordError(f"is no gate: {e!r:.120}", file=path) from None


def _mark(patient_id: str) -> str:
    return canonical.identifier("p", patient_id)


def _plain(threshold: float) -> float | str:
    return threshold if math.isfinite(threshold) else str(threshold)


def serve(found: Found, gate: Gate, config: ReadConfig, question: str, count: Callable[[str], int] | None = None
          ) -> tuple[Packet, float]:
    """(the packet that the gate chooses, P). Where HISTORY serves nothing the gate is not asked, and P is 0."""
    both = packet(found, "BOTH", config, count)
    if any(i.place == "HISTORY" for i in both.items):
        p = gate.probability(features(found, config, question))
        if p >= gate.threshold:
            return both, p
    else:
        p = 0.0
    return packet(found, "ACTIVE", config, count), p


# ---- judging ------------------------------------------------------------------------------------------------------

def _cut(rows: Sequence[Replay], p: np.ndarray, lam: float, macro: bool, cost: Callable[[int], float]) -> Cut:
    return best(p, [r.active.score for r in rows], [r.both.score for r in rows], [cost(r.active.tokens) for r in rows],
                [cost(r.both.tokens) for r in rows], lam=lam,
                weights=macro_weights([r.type for r in rows]) if macro else None)


def report(rows: Sequence[Replay], *, lambdas: Sequence[float] = LAMBDAS, names: Sequence[str] = FEATURES,
           macro: bool = False, k: int = 5, l2: float = 1.0, seed: int = 0,
           flops: Callable[[int], float] | None = None) -> dict[str, Any]:
    """What the gate does to patients it has not seen: for each fold, model and threshold come from the other folds.

    `rows[i]` (one a lambda): thresholds of the folds, skip_rate (share served ACTIVE where HISTORY had something),
    score of the gate, of BOTH and of ACTIVE, change against BOTH with its test (exact McNemar where all scores are 0 or
    1, else sign flip; `by_patient`: whole patients drawn and flipped), mean tokens and, with `flops` (prompt tokens ->
    operations), mean prefill operations; what is saved is a share. history_critical: BOTH is right and ACTIVE filled up
    is wrong; history_harmful: the reverse.

    Raises: ValueError: fewer patients than folds (at least 3), HISTORY serves nothing.
    """
    rows = list(rows)
    cost = flops or float
    of = np.array(folds([r.patient_id for r in rows], k, seed))
    held: list[tuple[np.ndarray, np.ndarray, list[Replay], np.ndarray]] = []
    for f in range(k):
        train, test = ([r for r, g in zip(rows, of) if (g == f) == inside] for inside in (False, True))
        inner = crossfit(train, names, k=min(k, len({r.patient_id for r in train})), l2=l2, seed=seed)
        held.append((of == f, _predict(_learn(train, names, l2), test, names), train, inner))
    table, known = [], {}  # prices that serve the same are judged once
    for lam in lambdas:
        both, cuts = np.zeros(len(rows), bool), []
        for inside, p, train, inner in held:
            cut = _cut(train, inner, lam, macro, cost)
            cuts.append(cut.threshold)
            both[inside] = p >= cut.threshold
        both &= np.array([r.history > 0 for r in rows])
        if (served := both.tobytes()) not in known:
            known[served] = _judged(rows, both, macro, flops)
        table.append({"lambda": lam, "thresholds": [_plain(t) for t in cuts], **known[served]})
    return _told(rows, names) | {"rows": table}


def _told(rows: Sequence[Replay], names: Sequence[str]) -> dict[str, Any]:
    """What a report says of its rows, whatever gate it judges."""
    refilled = [r for r in rows if r.refilled is not None]
    critical = sum(r.both.score > 0.5 >= r.refilled.score for r in refilled)
    harmful = sum(r.refilled.score > 0.5 >= r.both.score for r in refilled)
    return {"questions": len(rows), "patients": len({r.patient_id for r in rows}), "features": list(names),
            "needs_history": sum(r.needs_history for r in rows), "replay_sha256": replay.digest(rows),
            "refilled": len(refilled), "history_critical": critical, "history_harmful": harmful}


def _judged(rows: Sequence[Replay], both: np.ndarray, macro: bool, flops: Callable[[int], float] | None
            ) -> dict[str, Any]:
    """both: bool [n], which rows are served HISTORY."""
    weights = macro_weights([r.type for r in rows]) if macro else np.full(len(rows), 1.0 / len(rows))
    served = {arm: np.array([getattr(r, arm).score for r in rows], np.float64) for arm in ("active", "both")}
    tokens = {arm: np.array([getattr(r, arm).tokens for r in rows], np.float64) for arm in ("active", "both")}
    asked = np.array([r.history > 0 for r in rows])
    score = np.where(both, served["both"], served["active"])
    used = np.where(both, tokens["both"], tokens["active"])
    return {"skip_rate": float((asked & ~both).sum() / max(asked.sum(), 1)), "asked": int(asked.sum()),
            "score": float(weights @ score), "score_both": float(weights @ served["both"]),
            "score_active": float(weights @ served["active"]),
            "change": _paired(score, served["both"], [r.type for r in rows] if macro else None,
                              [r.patient_id for r in rows]),
            "tokens": float(used.mean()), "tokens_both": float(tokens["both"].mean()),
            "tokens_saved": float(1 - used.sum() / tokens["both"].sum())} | (
                {} if flops is None else _operations(flops, used, tokens["both"]))


def _operations(flops: Callable[[int], float], used: np.ndarray, both: np.ndarray) -> dict[str, float]:
    spent, full = (float(np.mean([flops(int(n)) for n in x])) for x in (used, both))
    return {"prefill_flops": spent, "prefill_flops_both": full, "prefill_flops_saved": 1 - spent / full}


def _paired(gate: np.ndarray, both: np.ndarray, types: Sequence[str] | None, patients: Sequence[str]
            ) -> dict[str, Any]:
    """Scores of the gate less those of BOTH, over questions and, as `by_patient`, over patients.

    low and high of `by_patient` are None where no draw of patients held every type.
    """
    flip = stats.sign_flip(gate - both, types, patients)
    try:
        interval = stats.paired_bootstrap(gate - both, types, patients)
    except ValueError:
        interval = None
    by_patient = {"test": "sign_flip", "patients": flip.units, "p_value": flip.p_value,
                  "low": None if interval is None else interval.low,
                  "high": None if interval is None else interval.high}
    counts = {"better": int((gate > both).sum()), "worse": int((gate < both).sum()), "by_patient": by_patient}
    if types is None and np.isin(gate, (0, 1)).all() and np.isin(both, (0, 1)).all():
        m = stats.mcnemar(gate.astype(int), both.astype(int))
        return {"test": "mcnemar", "difference": m.difference, "low": m.low, "high": m.high,
                "p_value": m.p_value} | counts
    flip = stats.sign_flip(gate - both, types)
    interval = stats.paired_bootstrap(gate - both, types)
    return {"test": "sign_flip", "difference": flip.estimate, "low": interval.low, "high": interval.high,
            "p_value": flip.p_value} | counts
