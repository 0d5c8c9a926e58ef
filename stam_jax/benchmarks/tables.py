"""Figures with their uncertainty, and the tables that show them: Markdown for people, JSON for programs.

A cell of a table is a word, a number, None, a `Figure` or a `Difference`. The same report gives the same bytes: nothing
in it depends on the clock, the place on disk or the order of a set. NumPy and SciPy only, no jax.
"""
from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from core_jax import stats
from core_jax.records import atomic_write
from stam_jax.read.listing import clean

SCHEMA = "stam-bench/1"
FIGURE_DRAWS, TEST_DRAWS = 10_000, 10_000  # resamples of one figure's interval; of a comparison's interval and test
Labels = Sequence[str] | None


class Figure(NamedTuple):
    """An estimate with its 95 % interval, over `n` rows; value None where nothing was counted."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Difference(NamedTuple):
    """First minus second on the same rows, with its 95 % interval and two-sided p; `holm` is p adjusted for its table.

    test: `exact McNemar` (b, c = rows that only the first, only the second has right) or `sign flip`. n: rows, or
    patients.
    """

    value: float
    low: float | None
    high: float | None
    p: float
    test: str
    n: int
    b: int | None = None
    c: int | None = None
    holm: float | None = None


def share(part: int, whole: int) -> Figure:
    """part / whole with Wilson's interval."""
    return Figure(part / whole, *stats.wilson(part, whole), whole) if whole else Figure(None, n=0)


def mean(values: Sequence[float], types: Labels = None, clusters: Labels = None, *, seed: int = 0) -> Figure:
    """Mean over types of the mean in the type. Interval: rows drawn with replacement inside their type; with `clusters`
    (patients) whole clusters are drawn."""
    if not len(values):
        return Figure(None, n=0)
    return Figure(stats.macro_mean(values, types), *_interval(values, types, clusters, FIGURE_DRAWS, seed), len(values))


def ratio(part: Sequence[int], whole: Sequence[int], *, seed: int = 0) -> Figure:
    """sum(part) / sum(whole) over patients, with the percentile interval of patients drawn with replacement."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    if not whole.sum():
        return Figure(None, n=0)
    counts = _draws(len(part), FIGURE_DRAWS, seed)
    low, high = _percentiles(counts @ part, counts @ whole)
    return Figure(float(part.sum() / whole.sum()), low, high, int(whole.sum()))


def compare_right(first: Sequence[int], second: Sequence[int]) -> Difference:
    """Two systems that are right (1) or wrong (0) on the same rows: exact McNemar, Newcombe's interval."""
    got = stats.mcnemar(first, second)
    return Difference(got.difference, got.low, got.high, got.p_value, "exact McNemar", got.n, got.b, got.c)


def compare_scores(first: Sequence[float], second: Sequence[float], types: Labels = None, clusters: Labels = None, *,
                   seed: int = 0) -> Difference:
    """Scores of the same rows: sign flip on the (type-macro) mean difference, bootstrap interval as of `mean`.

    With `clusters` (patients) all differences of a cluster flip together, and clusters are drawn.
    """
    d = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    test = stats.sign_flip(d, types, clusters, n=TEST_DRAWS, seed=seed)
    return Difference(test.estimate, *_interval(d, types, clusters, TEST_DRAWS, seed), test.p_value, "sign flip", test.units)


def compare_ratios(first: tuple[Sequence[int], Sequence[int]], second: tuple[Sequence[int], Sequence[int]], *,
                   seed: int = 0) -> Difference:
    """Two ratios of sums, each (part, whole) over the same patients: the difference of parts over the mean whole.

    Where both wholes are equal this is the difference of the ratios. Interval: patients drawn with replacement. Test:
    sign flip patient by patient, since what one patient's memories do hangs together.

    Raises: ValueError: unequal numbers of patients, nothing counted.
    """
    (p1, w1), (p2, w2) = (tuple(np.asarray(x, np.float64) for x in arm) for arm in (first, second))
    if not len(p1) == len(w1) == len(p2) == len(w2):
        raise ValueError(f"compare_ratios: got {len(p1)}, {len(w1)}, {len(p2)} and {len(w2)} patients, expected equal "
                         "numbers")
    more, whole = p1 - p2, (w1 + w2) / 2
    if not whole.sum():
        raise ValueError("compare_ratios: nothing was counted")
    counts = _draws(len(p1), TEST_DRAWS, seed)
    low, high = _percentiles(counts @ more, counts @ whole)
    test = stats.sign_flip(more, n=TEST_DRAWS, seed=seed)
    return Difference(float(more.sum() / whole.sum()), low, high, test.p_value, "sign flip", len(p1))


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """The same with Holm's adjusted p among them."""
    return [d._replace(holm=p) for d, p in zip(differences, stats.holm([d.p for d in differences]))]


def _interval(values: Sequence[float], types: Labels, clusters: Labels, draws: int, seed: int
              ) -> tuple[float, float] | tuple[None, None]:
    """The 95 % percentile interval of `stats.macro_mean`, rows drawn inside their type, or whole clusters. Draws of
    clusters that lack a type are left out; None where every draw lacks one (many types, few patients)."""
    kinds = ("",) * len(values) if types is None else tuple(types)
    if clusters is None:
        drawn = _weights(kinds, draws, seed) @ np.asarray(values, np.float32)
    else:
        _, kind = np.unique(kinds, return_inverse=True)
        _, group = np.unique(list(clusters), return_inverse=True)
        sums, sizes = (np.zeros((group.max() + 1, kind.max() + 1)) for _ in range(2))
        np.add.at(sums, (group, kind), np.asarray(values, np.float64))
        np.add.at(sizes, (group, kind), 1.0)
        counts = _draws(len(sums), draws, seed)
        size = counts @ sizes
        kept = (size > 0).all(axis=1)
        if not kept.any():
            return None, None
        drawn = ((counts[kept] @ sums) / size[kept]).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


@functools.lru_cache(maxsize=4)
def _weights(types: tuple[str, ...], draws: int, seed: int) -> np.ndarray:
    """float32 [draws, n]: each row's part of the macro mean of one resample. All arms of a suite share them."""
    kinds, rng = np.asarray(types), np.random.default_rng(seed)
    distinct = sorted(set(types))
    out = np.empty((draws, len(types)), np.float32)
    for kind in distinct:
        rows = np.flatnonzero(kinds == kind)
        out[:, rows] = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=draws)
        out[:, rows] /= len(rows) * len(distinct)
    return out


def _draws(n: int, count: int, seed: int) -> np.ndarray:
    """float64 [count, n]: how often each of n patients was drawn."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=count).astype(np.float64)


def _percentiles(part: np.ndarray, whole: np.ndarray) -> tuple[float, float]:
    kept = whole > 0
    low, high = np.quantile(part[kept] / whole[kept], (0.025, 0.975))
    return float(low), float(high)


# ---- tables --------------------------------------------------------------------------------------------------------

Cell = str | int | float | bool | None | Figure | Difference


@dataclasses.dataclass(frozen=True)
class Table:
    """name: a word, unlike those of the report's other tables. rows: one cell a column. note: how to read it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self):
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name}: row {i} has {len(row)} cells, expected {len(self.columns)}")


@dataclasses.dataclass(frozen=True)
class Report:
    """What one suite found. command: what makes it again. data: name -> SHA-256. seeds: name -> number."""

    suite: str
    title: str
    command: str
    config: Mapping[str, Any]
    seeds: Mapping[str, int]
    data: Mapping[str, str]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        names = [t.name for t in self.tables]
        if len(set(names)) != len(names):
            raise ValueError(f"report {self.suite}: got tables {names}, expected distinct names")


def versions(*packages: str) -> dict[str, str]:
    """Installed versions; a package that is not installed is left out."""
    out = {}
    for name in sorted(packages):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


PACKAGES = ("evigen-stam-jax", "jax", "numpy", "scipy", "transformers")


def to_json(report: Report) -> str:
    """One JSON object; keys sorted, rows in their order, figures as objects."""
    raw = {"schema": SCHEMA, "versions": versions(*PACKAGES)} | {
        f.name: getattr(report, f.name) for f in dataclasses.fields(report) if f.name != "tables"}
    raw["tables"] = {t.name: {"title": t.title, "note": t.note, "columns": list(t.columns),
                              "rows": [{c: _plain(v) for c, v in zip(t.columns, row)} for row in t.rows]}
                     for t in report.tables}
    return json.dumps(raw, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(cell: Cell) -> Any:
    if isinstance(cell, (Figure, Difference)):
        return {k: _plain(v) for k, v in cell._asdict().items() if v is not None}
    if isinstance(cell, float):
        return None if math.isnan(cell) else round(cell, 6)
    return cell


def to_markdown(report: Report) -> str:
    """All tables with their notes, then what is needed to make them again."""
    lines = [f"# {report.title}", ""]
    for t in report.tables:
        lines += [f"## {t.title}", ""]
        lines += ["| " + " | ".join(_escaped(c) for c in t.columns) + " |", "|---" * len(t.columns) + "|"]
        lines += ["| " + " | ".join(_escaped(shown(cell)) for cell in row) + " |" for row in t.rows]
        lines += ["", *([t.note, ""] if t.note else [])]
    lines += [f"- {note}" for note in report.notes] + ([""] if report.notes else [])
    lines += ["## How this was made", "", "```", report.command, "```", ""]
    for name, found in (("seeds", report.seeds), ("data (SHA-256)", report.data), ("versions", versions(*PACKAGES))):
        lines.append(f"- {name}: " + (", ".join(f"{k} {v}" for k, v in sorted(found.items())) or "none"))
    lines.append("- settings: `" + json.dumps(report.config, sort_keys=True, ensure_ascii=False) + "`")
    return "\n".join(lines) + "\n"


def shown(cell: Cell) -> str:
    """A cell as text: `0.853 [0.820, 0.881]`, `+0.031 [0.010, 0.052], p 0.004 (Holm 0.020), 34:12`."""
    if cell is None or isinstance(cell, float) and math.isnan(cell):
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Figure):
        if cell.value is None:
            return "-"
        return f"{cell.value:.3f}" + ("" if cell.low is None else f" [{cell.low:.3f}, {cell.high:.3f}]")
    if isinstance(cell, Difference):
        holm = "" if cell.holm is None else f" (Holm {_p(cell.holm)})"
        pairs = "" if cell.b is None else f", {cell.b}:{cell.c}"
        inside = "" if cell.low is None else f" [{cell.low:+.3f}, {cell.high:+.3f}]"
        return f"{cell.value:+.3f}{inside}, p {_p(cell.p)}{holm}{pairs}"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _escaped(text: str) -> str:
    """A cell's text in Markdown, shown as it is: no markup begins in it, no terminal obeys it."""
    return re.sub(r"<(?=[A-Za-z/!?])|[\\|]", r"\\\g<0>", clean(text.replace("\n", " ")))


def write(report: Report, folder: str | os.PathLike) -> tuple[pathlib.Path, pathlib.Path]:
    """`<suite>.md` and `<suite>.json`, each whole or not there. Returns their paths."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{report.suite}.md", folder / f"{report.suite}.json"
    for path, text in zip(out, (to_markdown(report), to_json(report))):
        with atomic_write(path) as f:
            f.write(text)
    return out
