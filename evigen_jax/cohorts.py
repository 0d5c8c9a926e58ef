"""Cohorts: who is predicted, from which moment, with which label; the attrition; the split; the cohort folder.

Builders take a stream of patients and keep a few numbers of each, never a record. Sources: paper F.1 (mortality), F.2
(age cutoff), Tables 16 and 17. Where the paper is silent the choice is marked [C].
"""
from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from core_jax import staging
from core_jax.icd import normalize
from core_jax.records import (
    Label,
    Patient,
    RecordError,
    atomic_write,
    patient_to_dict,
    read_labels,
    read_patients,
    visible,
    write_jsonl,
)

SCHEMA = "cohort/1"
SPLITS = ("train", "val", "test")
_LOG = logging.getLogger(__name__)

Attrition = list[dict[str, Any]]  # rows {"criterion", "patients", "positive", "applied", ...}


class IndexStay(Protocol):
    """What a source says of a patient's last stay (`core_jax.readers.mimic_iv.IndexStay`)."""

    encounter_id: str
    end: str
    in_hospital_death: bool


def _rank(seed: int, patient_id: str) -> str:
    """A fixed pseudo-random order of patients that depends on nothing but seed and id."""
    return hashlib.sha256(f"{seed}:{patient_id}".encode()).hexdigest()


def _days(start: str, end: str) -> int:
    """Whole days between two dates, times of day ignored."""
    return (dt.date.fromisoformat(end[:10]) - dt.date.fromisoformat(start[:10])).days


def _has_input(patient: Patient, time: str) -> bool:
    """A dated code or non-blank note by then: the selector needs one."""
    return any(c.time and c.time <= time for c in patient.codes) or any(
        n.time and n.time <= time and n.text.strip() for n in patient.notes)


def _row(criterion: str, labels: Iterable[int], *, applied: bool = True, **more: Any) -> dict[str, Any]:
    labels = list(labels)
    return {"criterion": criterion, "patients": len(labels), "positive": sum(labels), "applied": applied} | more


# ---- mortality after the last discharge -----------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, slots=True)
class _Index:
    label: Label
    in_hospital_death: bool
    survival_days: int | None
    age: float | None
    notes: int
    dense: bool
    has_input: bool


def mimic_mortality(
    patients: Iterable[Patient],
    stays: Mapping[str, IndexStay],
    criteria: str = "paper",
    keep_in_hospital_deaths: bool = False,
) -> tuple[list[Label], Attrition]:
    """Death within 365 days of the last discharge (paper F.1).

    The index is the end of the last stay (`stays`, from `mimic_iv.read_index_stays`); label 1 where 0 <= date of death
    - date of the index <= 365 days, 0 where no death is known. Input is everything up to and including the index.
    criteria="paper": age at the index > 40 (anchor_age + year - anchor_year), at least 3 discharge notes (addenda, note
    type AD, are not counted [C]), and stays / max(1, days from the first to the last discharge) > 1/200. "none"
    leaves these three out; their rows follow in the attrition with applied=False.
    Always: an index stay that ended in death is left out unless `keep_in_hospital_deaths` [C]; so is a death dated
    before the index ("excluded" of its row lists the patients), and a patient without dated input.

    Returns: labels in the order of patient ids, without split; attrition rows.
    """
    if criteria not in ("paper", "none"):
        raise ValueError(f'criteria: got {criteria!r}, expected "paper" or "none"')
    total = 0
    rows: list[_Index] = []
    for p in patients:
        total += 1
        if (stay := stays.get(p.patient_id)) is not None:
            rows.append(_index(p, stay))
    rows.sort(key=lambda r: r.label.patient_id)
    attrition = [_row("all patients", [0] * total) | {"positive": None},
                 _row("a hospital stay that ended", (r.label.label for r in rows))]

    def keep(criterion: str, test: Callable[[_Index], bool], *, applied: bool = True, listed: bool = False) -> None:
        nonlocal rows
        out = [r.label.patient_id for r in rows if not test(r)] if listed else None
        rows = [r for r in rows if test(r)]
        attrition.append(_row(criterion, (r.label.label for r in rows), applied=applied)
                         | ({"excluded": out} if listed else {}))

    if not keep_in_hospital_deaths:
        keep("the last stay did not end in death", lambda r: not r.in_hospital_death)
    keep("no death dated before the last discharge", lambda r: (r.survival_days or 0) >= 0, listed=True)
    keep("a dated note or code by the last discharge", lambda r: r.has_input)
    labels = [r.label for r in rows]
    paper = criteria == "paper"
    keep("age above 40 at the last discharge", lambda r: r.age is not None and r.age > 40, applied=paper)
    keep("at least 3 discharge notes", lambda r: r.notes >= 3, applied=paper)
    keep("more than 1 discharge in 200 days", lambda r: r.dense, applied=paper)
    return ([r.label for r in rows] if paper else labels), attrition


def _index(p: Patient, stay: IndexStay) -> _Index:
    ends = sorted(e.end for e in p.encounters if e.end)
    survival = None if p.death_date is None else _days(stay.end, p.death_date)
    birth = int(p.birth_date[:4]) if p.birth_date else p.birth_year
    return _Index(
        label=Label(p.patient_id, stay.end, int(survival is not None and 0 <= survival <= 365)),
        in_hospital_death=stay.in_hospital_death,
        survival_days=survival,
        age=None if birth is None else int(stay.end[:4]) - birth,
        notes=sum(n.type != "AD" for n in p.notes),
        dense=bool(ends) and len(ends) * 200 > max(1, _days(ends[0], ends[-1])),
        has_input=_has_input(p, stay.end),
    )


def clinosim_mortality(
    patients: Iterable[Patient],
    *,
    age_matched: int | None = None,
    caliper_years: float = 5.0,
    seed: int = 0,
) -> tuple[list[Label], Attrition]:
    """Death within 365 days of an encounter, for the clinosim file (shared/data/README: 46 positive, 709 negative).

    The index is the end of the last encounter that ended on a day before death; for a survivor, of the last one with
    365 days of record after it, so that a 0 is an observed year. Age alone predicts the label (AUC 0.914): with
    `age_matched=k` each positive keeps its k nearest survivors in age, within the caliper and each used once (oldest
    positives choose first, round by round); positives that find none are left out. The last row's "age_auc" says what
    age still predicts; with k above 1 the oldest run out of peers and it rises.

    Returns: labels in the order of patient ids, without split; attrition rows.
    """
    if age_matched is not None and age_matched < 1:
        raise ValueError(f"age_matched: got {age_matched}, expected at least 1")
    people: list[tuple[str, str | None, str | None, list[tuple[str, bool]]]] = []
    record_end = ""
    for p in patients:
        ends = sorted({e.end or e.start for e in p.encounters if e.end or e.start})
        record_end = max(record_end, *ends) if ends else record_end
        people.append((p.patient_id, p.birth_date, p.death_date, [(e, _has_input(p, e)) for e in ends]))
    rows: list[tuple[Label, float | None, bool]] = []
    for patient_id, birth, death, ends in people:
        earlier = [e for e in ends if (e[0][:10] < death[:10] if death else _days(e[0], record_end) >= 365)]
        if earlier:
            time, has_input = earlier[-1]
            label = int(death is not None and _days(time, death) <= 365)
            age = None if birth is None else _days(birth, time) / 365.25
            rows.append((Label(patient_id, time, label), age, has_input))
    rows.sort(key=lambda r: r[0].patient_id)
    attrition = [
        _row("all patients", [0] * len(people)) | {"positive": None},
        _row("an encounter before death, or a year of record after one", (r[0].label for r in rows),
             age_auc=_age_auc(rows)),
    ]
    rows = [r for r in rows if r[2]]
    attrition.append(_row("a dated note or code by then", (r[0].label for r in rows)))
    if age_matched is not None:
        rows = _nearest_in_age([r for r in rows if r[1] is not None], age_matched, caliper_years, seed)
        attrition.append(_row(f"survivors matched on age, {age_matched} to 1 within {caliper_years:g} years",
                              (r[0].label for r in rows), age_auc=_age_auc(rows)))
    return [r[0] for r in rows], attrition


def _age_auc(rows: Sequence[tuple[Label, float | None, bool]]) -> float | None:
    ages = [np.array([r[1] for r in rows if r[0].label == y and r[1] is not None], np.float64) for y in (0, 1)]
    if not len(ages[0]) or not len(ages[1]):
        return None
    wins = (ages[1][:, None] > ages[0][None]).mean() + 0.5 * (ages[1][:, None] == ages[0][None]).mean()
    return round(float(wins), 4)


def _nearest_in_age(rows: list, k: int, caliper: float, seed: int) -> list:
    positive = sorted((r for r in rows if r[0].label), key=lambda r: (-r[1], _rank(seed, r[0].patient_id)))
    free = sorted((r for r in rows if not r[0].label), key=lambda r: _rank(seed, r[0].patient_id))
    chosen: list = []
    for turn in range(k):
        left = []
        for p in positive:
            near = min(free, key=lambda r: abs(r[1] - p[1]), default=None)
            if near is not None and abs(near[1] - p[1]) <= caliper:
                free.remove(near)
                chosen.append(near)
                left.append(p)
        if turn == 0:
            matched = left
        positive = left
    return sorted(matched + chosen, key=lambda r: r[0].patient_id)


# ---- a diagnosis after a fixed age ----------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class AgeCutoff:
    """One task of the kind of paper F.2. Codes are (ICD version, prefix), dotted or not; ages are calendar months.

    A visit counts when its encounter's type is among `visit_types` (case ignored) or one of its codes falls under
    `visit_codes`; a code without an encounter is a visit at its own time. `leakage_codes` dated before the cutoff, or
    undated, exclude a patient. `ratio` bounds the negatives per positive (the paper has about 5 autism and 4.5 ADHD).
    """

    name: str
    cutoff_months: int
    windows_months: tuple[tuple[int, int], ...]  # [from, to) each needs a visit
    target_codes: tuple[tuple[str, str], ...]
    leakage_codes: tuple[tuple[str, str], ...]
    visit_types: tuple[str, ...]
    visit_codes: tuple[tuple[str, str], ...]
    born_on_or_after: str | None = "2014-01-01"
    ratio: float = 5.0
    seed: int = 0


# Z00.11 and Z00.12, V20.2 and V20.3: routine health checks of newborns and children [C]
_WELL_CHILD = {"visit_types": ("well child", "well-child", "well child visit", "well-child visit"),
               "visit_codes": (("10", "Z00.11"), ("10", "Z00.12"), ("9", "V20.2"), ("9", "V20.3"))}
AUTISM = AgeCutoff(
    name="autism", cutoff_months=18, windows_months=((0, 6), (6, 12), (12, 18)),
    target_codes=(("10", "F84.0"), ("10", "F84.5"), ("10", "F84.8"), ("10", "F84.9"),
                  ("9", "299.0"), ("9", "299.8"), ("9", "299.9")),
    leakage_codes=(("10", "F84"), ("9", "299")), **_WELL_CHILD,
)
ADHD = AgeCutoff(
    name="adhd", cutoff_months=36, windows_months=((0, 6), (6, 12), (12, 24), (24, 36)),
    target_codes=(("10", "F90"), ("9", "314.0")), leakage_codes=(("10", "F90"), ("9", "314")), **_WELL_CHILD,
)

MATCHED = ("sex", "birth year", "year of last encounter", "age at last encounter", "observed years")


def months_after(birth_date: str, months: int) -> dt.date:
    """The day `months` calendar months after a date; the last day of the month where that day does not exist."""
    born = dt.date.fromisoformat(birth_date)
    year, month = divmod(born.month - 1 + months, 12)
    first = dt.date(born.year + year, month + 1, 1)
    length = ((first + dt.timedelta(days=31)).replace(day=1) - first).days
    return first.replace(day=min(born.day, length))


def age_cutoff(patients: Iterable[Patient], spec: AgeCutoff) -> tuple[list[Label], Attrition]:
    """A diagnosis at any later time, predicted from the record before a fixed age (paper F.2).

    Prediction time is one second before the day on which the cutoff age is reached: input lies strictly before it.
    Positive: born on or after the floor, a visit in each window, a target code at some time, no leakage code before the
    cutoff (one without a date excludes too). Negative: the same without a target or leakage code at any time [C].
    Negatives are frequency-matched on the marginals of `MATCHED` by `frequency_match`; bins [C]: sex as written,
    calendar years, whole years of age at the last encounter, whole years between the first and the last encounter.

    Returns: labels in the order of patient ids, without split; attrition rows, the matched one with "imbalance": the
        largest difference of shares in any bin, by variable.
    """
    target, leak = _prefixes(spec.target_codes), _prefixes(spec.leakage_codes)
    names = ("a birth date", f"born on or after {spec.born_on_or_after}", "a visit in each age window",
             "no target-related code before the cutoff", "a dated note or code before the cutoff",
             "the target itself or nothing related to it at any time")
    reached: list[list[int]] = [[] for _ in names]
    total: list[int] = []
    eligible: list[tuple[Label, tuple[Hashable, ...]]] = []
    for p in patients:
        y = int(any(_matches(c, target) for c in p.codes))
        related = not y and any(_matches(c, leak) for c in p.codes)
        total.append(y)
        for step, test in enumerate([*_age_tests(p, spec, leak), lambda related=related: not related]):
            if not test():
                break
            reached[step].append(y)
        else:
            eligible.append((Label(p.patient_id, _before_cutoff(p, spec), y), _match_keys(p)))
    attrition = [_row("all patients", total), *(_row(n, ys) for n, ys in zip(names, reached, strict=True))]
    positive = [e for e in eligible if e[0].label]
    pool = sorted((e for e in eligible if not e[0].label), key=lambda e: e[0].patient_id)
    chosen, imbalance = frequency_match(
        [k for _, k in positive], [k for _, k in pool], [e[0].patient_id for e in pool], spec.ratio, spec.seed)
    rows = sorted([e[0] for e in positive] + [pool[i][0] for i in chosen], key=lambda label: label.patient_id)
    attrition.append(_row(f"negatives matched, at most {spec.ratio:g} to 1", (r.label for r in rows),
                          imbalance=dict(zip(MATCHED, imbalance, strict=True))))
    return rows, attrition


def _age_tests(p: Patient, spec: AgeCutoff, leak: tuple) -> Iterator[Callable[[], bool]]:
    floor = spec.born_on_or_after
    yield lambda: p.birth_date is not None
    yield lambda: floor is None or p.birth_date >= floor
    yield lambda: _visited(p, spec)
    yield lambda: not any(_matches(c, leak) and (c.time is None or c.time <= _before_cutoff(p, spec)) for c in p.codes)
    yield lambda: _has_input(p, _before_cutoff(p, spec))


def _before_cutoff(p: Patient, spec: AgeCutoff) -> str:
    day = dt.datetime.combine(months_after(p.birth_date, spec.cutoff_months), dt.time())
    return (day - dt.timedelta(seconds=1)).isoformat()


def _prefixes(codes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((version, normalize(prefix)) for version, prefix in codes)


def _matches(code, prefixes: tuple[tuple[str, str], ...]) -> bool:
    key = normalize(code.code)
    return any(code.version == version and key.startswith(prefix) for version, prefix in prefixes)


def _visited(p: Patient, spec: AgeCutoff) -> bool:
    types = {t.lower() for t in spec.visit_types}
    well = [c for c in p.codes if _matches(c, _prefixes(spec.visit_codes))]
    stays = {c.encounter_id for c in well if c.encounter_id is not None}
    known = {e.encounter_id for e in p.encounters}
    days = [e.start[:10] for e in p.encounters
            if e.start and ((e.type or "").lower() in types or e.encounter_id in stays)]
    days += [c.time[:10] for c in well if c.time and c.encounter_id not in known]
    windows = [[months_after(p.birth_date, m).isoformat() for m in window] for window in spec.windows_months]
    return all(any(low <= day < high for day in days) for low, high in windows)


def _match_keys(p: Patient) -> tuple[Hashable, ...]:
    times = sorted(t for e in p.encounters for t in (e.start, e.end) if t) or sorted(c.time for c in p.codes if c.time)
    times = times or sorted(n.time for n in p.notes if n.time)
    first, last = times[0], times[-1]
    years = [int(_days(a, last) // 365.25) for a in (p.birth_date, first)]
    return (p.sex or "unknown", int(p.birth_date[:4]), int(last[:4]), *years)


def frequency_match(
    positive: Sequence[tuple[Hashable, ...]],
    pool: Sequence[tuple[Hashable, ...]],
    pool_ids: Sequence[str],
    ratio: float,
    seed: int,
) -> tuple[list[int], list[float]]:
    """Draw at most ratio * len(positive) of the pool so that each variable's shares come close to the positives' [C].

    Chances of the pool are raked to ratio times the positives' marginal counts (iterative proportional fitting, no
    chance above 1, none in a bin without a positive), then drawn by systematic sampling over the pool ordered by bins
    and by a hash of seed and id. Nobody is drawn twice: where the pool cannot fill the marginals, no bin is filled
    beyond its own, and fewer negatives come back.

    Returns: indices into the pool, ascending; per variable the largest |share of drawn - share of positives| of a bin.
    """
    if not positive or not pool:
        return [], [0.0] * (len(positive[0]) if positive else len(MATCHED))
    variables = zip(*positive, *pool, strict=True)
    columns = [np.unique([str(x) for x in values], return_inverse=True)[1] for values in variables]
    n = len(positive)
    shares = [np.bincount(c[:n], minlength=c.max() + 1) / n for c in columns]
    bins = [c[n:] for c in columns]
    take = np.all([s[b] > 0 for s, b in zip(shares, bins, strict=True)], axis=0).astype(np.float64)

    def sweep(chance: np.ndarray, most: float) -> np.ndarray:
        for share, b in zip(shares, bins, strict=True):
            held = np.bincount(b, chance, minlength=len(share))
            factor = np.divide(ratio * n * share, held, out=np.zeros_like(share), where=held > 0)
            chance = np.minimum(1.0, chance * np.minimum(factor, most)[b])
        return chance

    for most, sweeps in ((np.inf, 500), (1.0, 50)):  # first to the marginals, then down only
        for _ in range(sweeps):
            before, take = take, sweep(take, most)
            if np.abs(take - before).max() < 1e-9:
                break
    order = sorted(range(len(pool)), key=lambda i: (tuple(b[i] for b in bins), _rank(seed, pool_ids[i])))
    start = int(_rank(seed, "start")[:8], 16) / 2**32
    marks = np.floor(np.cumsum(take[order]) + (start + 1e-9)).astype(np.int64)
    drawn = sorted(order[i] for i in np.flatnonzero(np.diff(marks, prepend=0) > 0))
    gaps = [float(np.abs(np.bincount(b[drawn], minlength=len(share)) / max(1, len(drawn)) - share).max())
            for share, b in zip(shares, bins, strict=True)]
    return drawn, [round(g, 4) for g in gaps]


# ---- split ----------------------------------------------------------------------------------------------------

def split(labels: Sequence[Label], seed: int, fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> list[Label]:
    """Labels with train, val or test: by patient, stratified by label, the same for any input order.

    Within a class, patients go by a hash of seed and id; val and test get their rounded share, and at least one where
    the class has five or more.

    Returns: labels in the order of patient ids. Raises: RecordError where a patient has two labels, naming both.
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"fractions: got {fractions}, expected three parts of 1")
    check_labels(labels)
    out: list[Label] = []
    for y in (0, 1):
        group = sorted((x for x in labels if x.label == y), key=lambda x: _rank(seed, x.patient_id))
        val, test = (max(round(len(group) * f), int(f > 0 and len(group) >= 5)) for f in fractions[1:])
        for i, label in enumerate(group):
            name = "val" if i < val else "test" if i < val + test else "train"
            out.append(dataclasses.replace(label, split=name))
    return sorted(out, key=lambda x: x.patient_id)


def check_labels(labels: Iterable[Label]) -> None:
    """Raises: RecordError where a patient stands twice, contradictory or not, naming both rows."""
    seen: dict[str, Label] = {}
    for x in labels:
        if (old := seen.setdefault(x.patient_id, x)) is not x:
            what = "contradictory labels" if old.label != x.label else "two rows"
            raise RecordError(f"{what} for patient {x.patient_id!r}: {old.label} at {old.prediction_time} and "
                              f"{x.label} at {x.prediction_time}", field="patient_id")


def require_two_classes(labels: Iterable[Label], what: str = "the cohort") -> None:
    """Raises: RecordError where all labels are equal (or there are none): nothing can be trained or scored on them."""
    counts = Counter(x.label for x in labels)
    if len(counts) < 2:
        raise RecordError(f"{what} has {counts[1]} positive and {counts[0]} negative patients, expected both",
                          field="label")


# ---- tables ---------------------------------------------------------------------------------------------------

_LENGTHS = ("min", "p25", "median", "p75", "p90", "p99", "max", "mean")


def count_words(text: str) -> int:
    """Runs of non-blank characters."""
    return sum(1 for _ in re.finditer(r"\S+", text))


def history_length(patient: Patient, count: Callable[[str], int]) -> int:
    """Length of what is visible: the notes as they stand and the titles of the distinct codes (paper F.3)."""
    titles = {(c.code, c.version): c.title for c in reversed(patient.codes)}
    return sum(count(n.text) for n in patient.notes) + sum(map(count, titles.values()))


def length_percentiles(lengths: Sequence[int]) -> dict[str, float]:
    """Table 17's columns (linear interpolation between ranks). Raises: ValueError without any length."""
    if not len(lengths):
        raise ValueError("lengths: got none, expected at least one")
    values = np.percentile(np.asarray(lengths, np.float64), (0, 25, 50, 75, 90, 99, 100))
    return dict(zip(_LENGTHS, [round(float(v), 1) for v in (*values, np.mean(lengths))], strict=True))


def history_lengths(patients: Iterable[Patient], count: Callable[[str], int] = count_words) -> dict[str, float]:
    """Table 17 of visible patients, in units of `count` (a text -> its number of tokens or words)."""
    return length_percentiles([history_length(p, count) for p in patients])


def attrition_table(rows: Attrition) -> str:
    """The attrition as text; criteria that were not applied are marked, they say what they would have left."""
    shown = [(r["criterion"] + ("" if r["applied"] else " (not applied)"), f"{r['patients']:,}",
              "" if r["positive"] is None else f"{r['positive']:,}") for r in rows]
    return _table(("criterion", "patients", "positive"), shown)


def lengths_table(lengths: Mapping[str, float], name: str = "cohort") -> str:
    """One row of Table 17 as text."""
    return _table(("history length", *_LENGTHS), [(name, *(f"{lengths[k]:,.0f}" for k in _LENGTHS))])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    width = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        right = [c.rjust(w) for c, w in zip(cells[1:], width[1:], strict=True)]
        return "  ".join([cells[0].ljust(width[0]), *right]).rstrip()

    return "\n".join([line(head), line(["-" * w for w in width]), *map(line, rows)])


# ---- the cohort folder ----------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Cohort:
    """A cohort folder that was checked at `read_cohort`; patients are streamed from disk each time."""

    path: str
    info: dict[str, Any]
    labels: list[Label]

    def patients(self) -> Iterator[Patient]:
        """Full records in file order; for verifiers and pages. Models see `visible_patients`."""
        return read_patients(os.path.join(self.path, "patients.jsonl.gz"))

    def visible_patients(self) -> Iterator[Patient]:
        """Records up to each patient's prediction time, in file order."""
        times = {x.patient_id: x.prediction_time for x in self.labels}
        return (visible(p, times[p.patient_id]) for p in self.patients())


def write_cohort(
    out_dir: str | os.PathLike,
    patients: Iterable[Patient],
    labels: Sequence[Label],
    attrition: Attrition,
    *,
    source: str,
    task: Mapping[str, str],
    criteria: str,
    notes_rendered: bool = False,
    count: Callable[[str], int] = count_words,
    unit: str = "words",
    warnings: Mapping[str, int] | None = None,
    overwrite: bool = False,
    gold: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write a cohort folder: patients.jsonl.gz, labels.jsonl, attrition.json, lengths.json, cohort.json.

    Patients without a label are passed over. Everything is written to a neighbouring folder that is renamed at the end.

    Args:
        task: {"name", "sentence"}; the sentence completes "a prediction of ...".
        count, unit: measure of the history lengths.
        warnings: counted oddities of the reader, stored as they are.
        overwrite: replace a folder that is a cohort already.
        gold: rows of gold.jsonl.gz, where the truth is known.

    Returns: the content of cohort.json. Raises: RecordError (two labels of a patient, a labelled patient that does not
        come or has nothing visible, no labels), FileExistsError, OSError.
    """
    out = os.path.abspath(os.fspath(out_dir))
    staging.clear(out)
    check_labels(labels)
    if not labels:
        raise RecordError("no patient meets the criteria:\n" + attrition_table(attrition), field="label")
    if set(task) != {"name", "sentence"}:
        raise ValueError(f"task: got {sorted(task)}, expected name and sentence")
    if os.path.isdir(out) and os.listdir(out):
        if not os.path.isfile(os.path.join(out, "cohort.json")):
            raise FileExistsError(f"{out}: not empty and not a cohort folder; name another folder")
        if not overwrite:
            raise FileExistsError(f"{out}: holds a cohort already; name another folder, or replace it (--overwrite)")
    elif os.path.exists(out) and not os.path.isdir(out):
        raise FileExistsError(f"{out}: is a file; name a folder")

    by_id = {x.patient_id: x for x in labels}
    lengths: dict[str, int] = {}
    sizes: Counter[str] = Counter()

    def chosen() -> Iterator[dict[str, Any]]:
        for p in patients:
            if (label := by_id.get(p.patient_id)) is None:
                continue
            if p.patient_id in lengths:
                raise RecordError(f"patient {p.patient_id!r} comes twice", field="patient_id")
            seen = visible(p, label.prediction_time)
            if not _has_input(p, label.prediction_time):
                raise RecordError(f"patient {p.patient_id!r} has no dated note and no dated code by "
                                  f"{label.prediction_time}", field="notes")
            lengths[p.patient_id] = history_length(seen, count)
            sizes.update(notes=len(seen.notes), codes=len({(c.code, c.version) for c in seen.codes}))
            yield patient_to_dict(p)

    with staging.folder(out) as tmp:
        write_jsonl(os.path.join(tmp, "patients.jsonl.gz"), chosen())
        if missing := sorted(by_id.keys() - lengths.keys()):
            raise RecordError(f"{len(missing)} labelled patients are not among the records: {', '.join(missing[:5])}",
                              field="patient_id")
        if gold is not None:
            write_jsonl(os.path.join(tmp, "gold.jsonl.gz"), gold)
        write_jsonl(os.path.join(tmp, "labels.jsonl"), sorted(labels, key=lambda x: x.patient_id))
        table = length_percentiles(list(lengths.values()))
        by_split = {name: length_percentiles(group) for name in SPLITS
                    if (group := [lengths[x.patient_id] for x in labels if x.split == name])}
        positive = sum(x.label for x in labels)
        info = {
            "schema": SCHEMA, "source": source, "task": dict(task), "criteria": criteria,
            "notes_rendered": notes_rendered,
            "counts": {
                "patients": len(labels), "positive": positive, "negative": len(labels) - positive,
                "prevalence": round(positive / len(labels), 4),
                "visible_notes": sizes["notes"], "visible_codes": sizes["codes"],
                "split": {s: {"patients": sum(x.split == s for x in labels),
                              "positive": sum(x.label for x in labels if x.split == s)} for s in SPLITS},
            },
            "warnings": dict(sorted((warnings or {}).items())),
            "sha256": {name: _sha256(os.path.join(tmp, name)) for name in ("patients.jsonl.gz", "labels.jsonl")},
        }
        if positive in (0, len(labels)):
            info["warnings"]["one_class_only"] = len(labels)
            _LOG.warning("all %d patients are labelled %d: nothing can be trained on this cohort", len(labels),
                         labels[0].label)
        _write_json(os.path.join(tmp, "attrition.json"), attrition)
        _write_json(os.path.join(tmp, "lengths.json"), {"unit": unit, "all": table} | by_split)
        _write_json(os.path.join(tmp, "cohort.json"), info)
    return info


def _write_json(path: str, value: Any) -> None:
    with atomic_write(path) as f:
        json.dump(value, f, ensure_ascii=False, allow_nan=False, indent=1)
        f.write("\n")


def _sha256(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def read_cohort(folder: str | os.PathLike) -> Cohort:
    """Open a cohort folder; cohort.json, both checksums and the labels are checked.

    Raises: RecordError with the file: missing, another schema, or changed since it was written.
    """
    folder = os.fspath(folder)
    path = os.path.join(folder, "cohort.json")
    try:
        with open(path, encoding="utf-8") as f:
            info = json.load(f)
    except OSError as e:
        raise RecordError(f"no cohort here ({e.strerror}); `evigen cohort` makes one", file=path) from None
    except (ValueError, RecursionError) as e:
        raise RecordError(f"not valid JSON: {e}", file=path) from None
    if not isinstance(info, dict) or info.get("schema") != SCHEMA:
        got = info.get("schema") if isinstance(info, dict) else info
        raise RecordError(f"got {got!r}, expected {SCHEMA!r}", file=path, field="schema")
    task = info.get("task")
    if not isinstance(task, dict) or set(task) != {"name", "sentence"} or not all(isinstance(v, str) for v in task.values()):
        raise RecordError(f"got {task!r:.80}, expected name and sentence", file=path, field="task")
    for name, kind in (("notes_rendered", bool), ("counts", dict)):
        if not isinstance(info.get(name), kind):
            raise RecordError(f"got {info.get(name)!r:.80}", file=path, field=name)
    sums = info.get("sha256")
    if not isinstance(sums, dict) or set(sums) != {"patients.jsonl.gz", "labels.jsonl"}:
        raise RecordError("expected the checksums of patients.jsonl.gz and labels.jsonl", file=path, field="sha256")
    for name, digest in sums.items():
        full = os.path.join(folder, name)
        if not os.path.isfile(full):
            raise RecordError("no such file", file=full)
        if (got := _sha256(full)) != digest:
            raise RecordError(f"changed since the cohort was written: sha256 {got[:12]}..., expected {digest[:12]}...",
                              file=full)
    return Cohort(folder, info, read_labels(os.path.join(folder, "labels.jsonl")))
