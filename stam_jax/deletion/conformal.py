"""Conformal risk control of the deletion threshold (Angelopoulos et al., ICLR 2024), in exact arithmetic.

A unit is a concept type, or a concept type of one patient. Its loss at tau is the share of its protected memories that
score at least tau and may be deleted. Where units are exchangeable with those of the deployment, the expected loss of
the next one is at most alpha. Units of one patient hang together, and those of one type do: by type the scorer and the
calibration share no type, by patient they share no patient, and neither holds for what is new in the other way.
Standard library only.
"""
from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from core_jax.records import RecordError
from stam_jax.graph import canonical

LABELS = ("safe-to-forget", "never-forget", "uncertain")
LOSSES = ("strict", "any", "weighted")
UNITS = ("type", "patient")
# of 1e-99999999 the exact value takes minutes
_WRITTEN = re.compile(r"[0-9]{0,400}(/[0-9]{1,400}|(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,3})?)")
WARNING = ("The bound is on the mean loss over concept types. It holds for no single memory and no single type, and "
           "says nothing of clinical safety.")


def exact(value: Fraction | int | float | str, field: str) -> Fraction:
    """A number as it is written: 0.01 is 1/100. Raises: RecordError: no number in [0, 1] of at most 400 digits."""
    if isinstance(value, str) and not _WRITTEN.fullmatch(value):
        raise RecordError(f"got {value!r:.80}, expected a number in [0, 1]", field=field)
    try:
        out = Fraction(str(value)) if not isinstance(value, bool) else None
    except (ValueError, ZeroDivisionError):
        out = None
    if out is None or not 0 <= out <= 1:
        raise RecordError(f"got {value!r:.80}, expected a number in [0, 1]", field=field)
    return out


@dataclasses.dataclass(frozen=True, slots=True)
class Scored:
    """One labelled memory. concept_type: its unit. score: P(safe to forget). deletable: it is a candidate. group: for
    `Control.groups`."""

    concept_type: str
    label: str
    score: float
    deletable: bool
    group: str = "all"

    def __post_init__(self):
        canonical.text(self.concept_type, "concept_type")
        canonical.choice(self.label, "label", LABELS)
        canonical.share(self.score, "score")
        canonical.truth(self.deletable, "deletable")
        canonical.text(self.group, "group")


@dataclasses.dataclass(frozen=True)
class Control:
    """What is held, fixed before calibration.

    alpha: most expected loss. loss of a type: "strict" = share of its protected memories that are deleted; "any" = 1
    where one of them is; "weighted" = as strict, an uncertain memory counting `uncertain`. protect: the protected
    labels. nonempty: only types that have a protected memory are units, so that the others do not dilute the mean.
    groups: one threshold a group, each from its own types (Mondrian). unit: "type", or "patient" for a concept type of
    one patient; it says what `Scored.concept_type` names.
    """

    alpha: Fraction = Fraction(1, 100)
    loss: str = "strict"
    uncertain: Fraction = Fraction(1, 2)
    protect: tuple[str, ...] = ("never-forget", "uncertain")
    nonempty: bool = False
    groups: bool = False
    unit: str = "type"

    def __post_init__(self):
        object.__setattr__(self, "alpha", exact(self.alpha, "alpha"))
        object.__setattr__(self, "uncertain", exact(self.uncertain, "uncertain"))
        canonical.choice(self.loss, "loss", LOSSES)
        canonical.choice(self.unit, "unit", UNITS)
        object.__setattr__(self, "protect", canonical.sequence(self.protect, "protect", str))
        if not self.protect or set(self.protect) - set(LABELS[1:]):
            raise RecordError(f"got {self.protect}, expected some of {LABELS[1:]}", field="protect")

    def to_dict(self) -> dict:
        return {**dataclasses.asdict(self), "alpha": str(self.alpha), "uncertain": str(self.uncertain),
                "protect": list(self.protect)}

    def harm(self, row: Scored) -> Fraction:
        """What the deletion of a memory adds to its type's loss, times the number of its protected memories."""
        if row.label not in self.protect:
            return Fraction(0)
        return self.uncertain if self.loss == "weighted" and row.label == "uncertain" else Fraction(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """A calibrated threshold. tau: delete what scores at least this; inf = nothing. types: n. total: sum of the types'
    losses at tau. slack: alpha (n + 1) - total - 1, which is below 0 only where nothing may be deleted."""

    tau: float
    types: int
    total: Fraction
    slack: Fraction


def _sweep(rows: Sequence[Scored], control: Control) -> tuple[int, Iterable[tuple[float, Fraction]]]:
    """(number of types, (tau, sum of losses at tau) for each distinct score of a candidate, the largest first)."""
    protected: dict[str, int] = {}
    for r in rows:
        protected[r.concept_type] = protected.get(r.concept_type, 0) + (r.label in control.protect)
    types = sum(1 for n in protected.values() if n or not control.nonempty)

    def totals():
        total, hit = Fraction(0), set()
        falling = sorted((r for r in rows if r.deletable), key=lambda r: -r.score)
        for score, together in itertools.groupby(falling, key=lambda r: r.score):
            for r in together:
                if not (harm := control.harm(r)):
                    continue
                if control.loss != "any":
                    total += harm / protected[r.concept_type]
                elif r.concept_type not in hit:
                    hit.add(r.concept_type)
                    total += 1
            yield score, total

    return types, totals()


def calibrate(rows: Iterable[Scored], control: Control = Control()) -> Level:
    """The least score tau with (sum of losses at tau + 1) <= alpha (n + 1), among the candidates' scores; else inf.

    With alpha = 1/100 fewer than 99 types delete nothing. Groups are not looked at.
    """
    types, totals = _sweep(list(rows), control)
    room = control.alpha * (types + 1) - 1
    tau, loss = math.inf, Fraction(0)
    if room >= 0:
        for score, total in totals:
            if total > room:
                break
            tau, loss = score, total
    return Level(tau, types, loss, room - loss)


def calibrate_groups(rows: Iterable[Scored], control: Control = Control()) -> dict[str, Level]:
    """A threshold for each group, from its types alone (Mondrian): a group with too few types deletes nothing."""
    by: dict[str, list[Scored]] = {}
    for r in rows:
        by.setdefault(r.group, []).append(r)
    return {group: calibrate(some, control) for group, some in sorted(by.items())}


def levels(rows: Iterable[Scored], control: Control = Control()) -> dict[str, Level]:
    """Group -> threshold; one group "all" unless `control.groups`."""
    return calibrate_groups(rows, control) if control.groups else {"all": calibrate(rows, control)}


def binomial_tail(k: int, n: int, p: Fraction) -> Fraction:
    """P(X <= k), X ~ Binomial(n, p), exact."""
    a, b = p.numerator, p.denominator - p.numerator
    return Fraction(sum(math.comb(n, i) * a**i * b**(n - i) for i in range(min(k, n) + 1)), p.denominator**n)


def learn_then_test(rows: Iterable[Scored], control: Control = Control(), delta: Fraction | float = Fraction(1, 10)
                    ) -> Level:
    """The companion with high probability: P(share of types with a loss > alpha) <= delta, over calibrations.

    Thresholds are tested from the largest down by the exact binomial p-value of "any" losses, up to the first that
    fails. Without any loss 230 types suffice for delta = 1/10, 299 for 1/20. slack: delta less the p-value.
    """
    delta = exact(delta, "delta")
    types, totals = _sweep(list(rows), dataclasses.replace(control, loss="any"))
    tau, loss, p = math.inf, Fraction(0), binomial_tail(0, types, control.alpha)
    if p <= delta:
        for score, total in totals:
            if total != loss:
                p_next = binomial_tail(int(total), types, control.alpha)
                if p_next > delta:
                    break
                p = p_next
            tau, loss = score, total
    return Level(tau, types, loss, delta - p)


def type_losses(rows: Iterable[Scored], tau: float, control: Control = Control()) -> dict[str, Fraction]:
    """Type -> its loss at tau."""
    protected: dict[str, int] = {}
    out: dict[str, Fraction] = {}
    rows = list(rows)
    for r in rows:
        protected[r.concept_type] = protected.get(r.concept_type, 0) + (r.label in control.protect)
    for r in rows:
        harm = control.harm(r) if r.deletable and r.score >= tau else Fraction(0)
        before = out.get(r.concept_type, Fraction(0))
        if control.loss == "any":
            out[r.concept_type] = max(before, Fraction(harm > 0))
        else:
            out[r.concept_type] = before + (harm / protected[r.concept_type] if harm else 0)
    return {t: loss for t, loss in sorted(out.items()) if protected[t] or not control.nonempty}
