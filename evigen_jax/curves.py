"""The picture of a training run (matplotlib, Agg; .png or .svg by the name)."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from core_jax.records import atomic_write

_INK = ("#1b6ca8", "#c05a00", "#3a7d44", "#7b4b94", "#5c5c5c", "#a61e4d")  # apart for colour-blind readers, dark on white


def _figure(columns: int):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def _save(figure, path: str | os.PathLike) -> str:
    path = os.fspath(path)
    ext = os.path.splitext(path)[1]
    if ext not in (".png", ".svg"):
        raise ValueError(f"{path}: got {ext!r}, expected .png or .svg")
    with atomic_write(path, "wb") as f:
        figure.savefig(f, format=ext[1:], dpi=130, metadata={"Software": None} if ext == ".png" else {"Date": None})
    return path


def training_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | os.PathLike,
                    best: Mapping[str, int] | None = None) -> str:
    """Loss, validation AUC, active queries and smallest query norm by epoch, one line a run.

    Args: runs: name -> rows of its metrics log; path: .png or .svg; best: name -> best epoch, marked with a dot.
    """
    figure, axes = _figure(4)
    panels = (("train_loss", "training loss"), ("val_auc", "validation AUC"), ("val_active", "active queries"),
              ("log_min_query_norm", "log min |q|"))
    for ax, (field, title) in zip(axes, panels):
        for i, (name, rows) in enumerate(runs.items()):
            rows = [r for r in rows if r.get(field) is not None]
            x, y = [r["epoch"] for r in rows], [r[field] for r in rows]
            ax.plot(x, y, color=_INK[i % len(_INK)], linewidth=1.6, label=name, marker=".", markersize=4)
            if field == "val_auc" and best and name in best:
                ax.plot([best[name]], [y[x.index(best[name])]], "o", color=_INK[i % len(_INK)], markersize=8)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("epoch")
        ax.xaxis.get_major_locator().set_params(integer=True)
    if len(runs) > 1:
        axes[0].legend(fontsize=8, frameon=False)
    return _save(figure, path)
