"""The contribution strip: base, items, the rest, prediction, as the geometry of a waterfall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evigen_jax.evidence import base_value, sigmoid
from evigen_jax.report.wording import ZERO, direction, percent, plain, signed


def strip(pack: Mapping[str, Any], labels: Mapping[int, str], p: str) -> dict[str, Any]:
    """The waterfall's rows, with `x` and `width` in percent of the drawing; `labels` names the items by rank."""
    on_prob = pack["target"] == "prob"
    total = pack["prob"] if on_prob else pack["logit"]
    parts = [
        (labels[i["rank"]], i["attribution"], f"#{p}factor-{i['rank']}", str(i["rank"])) for i in pack["items"]
    ]
    parts += [
        ("Other notes", pack["other_note_attribution"], None, ""),
        ("Other codes", pack["other_code_attribution"], None, ""),
    ]
    if abs(pack["residual"]) >= ZERO:
        parts.append(("Not attributed (numerical residual)", pack["residual"], None, ""))
    base = base_value(pack)
    levels = [base]
    for part in parts:
        levels.append(levels[-1] + part[1])
    lo, hi = min([*levels, total]), max([*levels, total])
    pad = 0.06 * (hi - lo) or 1.0
    lo, hi = lo - pad, hi + pad

    def x(value: float) -> float:
        return round(100 * (value - lo) / (hi - lo), 3)

    rows = []
    for before, (label, value, href, rank) in zip(levels, parts):
        left, right = sorted((x(before), x(before + value)))
        rows.append(
            {
                "rank": rank,
                "label": label,
                "href": href,
                "value": signed(value),
                "direction": direction(value),
                "x": left,
                "width": round(max(right - left, 0.4), 3),
                "at": x(before),
            }
        )
    gap = total - levels[-1]
    return {
        "rows": rows,
        "base": plain(base),
        "base_x": x(base),
        "base_prob": "" if on_prob else percent(sigmoid(base)),
        "total": plain(total),
        "total_x": x(total),
        "on_prob": on_prob,
        "gap": None if abs(gap) < 1e-3 else signed(gap),
    }
