"""The relation graph of a page: concepts in columns by what they are, typed edges between them, laid out here."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (("Plans", "Measurements", "Procedures", "Preferences", "Other notes"), ("Medicines",),
           ("Problems and symptoms", "Allergies", "Family history", "About other people"))
HEADS = ("Plans, measurements, other", "Medicines", "Problems, allergies, family")
MOST = 72  # concepts drawn; those with the fewest relations are left out first
WIDTH, COLUMN, BOX, ROW, GAP, TOP = 1010, 380, 240, 42, 12, 34


def layout(content: Mapping[str, Any]) -> dict[str, Any]:
    """Concepts that are related to another one, as boxes, and their edges as paths, in a drawing WIDTH wide.

    Returns {"nodes": [{name, title, x, y, lanes}], "edges": [{type, src, dst, relations, path, words}], "height",
    "left_out"}. relations: places among content["relations"]; src, dst: places among the nodes.
    """
    lanes, memories = content["lanes"], content["memories"]
    names = [(lane["group"] if lane["group"] in ("Family history", "About other people") else "", lane["concept"])
             for lane in lanes]
    joined: dict[tuple, list[int]] = {}
    for i, (src, dst, type_, *_) in enumerate(content["relations"]):
        a, b = names[memories[src]["lane"]], names[memories[dst]["lane"]]
        if not content["types"][type_]["directed"]:
            a, b = min(a, b), max(a, b)
        if a != b and a[1] and b[1]:
            joined.setdefault((a, b, type_), []).append(i)
    weight: dict[tuple, int] = {}
    for a, b, type_ in joined:
        for end in (a, b):
            weight[end] = weight.get(end, 0) + len(joined[a, b, type_])
    kept = set(sorted(weight, key=lambda n: (-weight[n], n))[:MOST])
    edges = {key: found for key, found in joined.items() if key[0] in kept and key[1] in kept}
    columns = _ordered(_columns(kept, names, lanes), edges)

    at = {name: (column, row) for column, found in enumerate(columns) for row, name in enumerate(found)}
    number = {name: i for i, name in enumerate(at)}
    nodes = [{"name": _cut(name[1]), "title": name[1], "x": COLUMN * column, "y": TOP + ROW * row,
              "lanes": [i for i, n in enumerate(names) if n == name]} for name, (column, row) in at.items()]
    drawn = []
    between: dict[tuple, int] = {}
    for (a, b, type_), found in sorted(edges.items(), key=lambda e: (number[e[0][0]], number[e[0][1]], e[0][2])):
        pair = (min(number[a], number[b]), max(number[a], number[b]))
        nth = between[pair] = between.get(pair, -1) + 1
        words = content["types"][type_]["words"][0]
        drawn.append({"type": type_, "src": number[a], "dst": number[b], "relations": found,
                      "path": _path(at[a], at[b], nth), "words": f"{a[1]} {words} {b[1]}"})
    return {"nodes": nodes, "edges": drawn, "height": TOP + ROW * max((len(c) for c in columns), default=0),
            "left_out": len(weight) - len(kept)}


def _columns(kept: set, names: Sequence[tuple], lanes: Sequence[Mapping[str, Any]]) -> list[list[tuple]]:
    """A concept stands in the column of its first lane."""
    columns: list[list[tuple]] = [[] for _ in COLUMNS]
    for name in sorted(kept):
        group = lanes[names.index(name)]["group"]
        columns[next(i for i, groups in enumerate(COLUMNS) if group in groups)].append(name)
    return columns


def _ordered(columns: list[list[tuple]], edges: Mapping[tuple, Any]) -> list[list[tuple]]:
    """Each column sorted by the mean row of its neighbours, a few times over, so that few edges cross."""
    near: dict[tuple, set] = {}
    for a, b, _ in edges:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    for _ in range(6):
        for i, column in enumerate(columns):
            row = {name: r / max(1, len(c) - 1) for c in columns for r, name in enumerate(c)}

            def mean(name: tuple, row=row) -> tuple:
                others = [row[n] for n in near[name]]
                return sum(others) / len(others), name

            columns[i] = sorted(column, key=mean)
    return columns


def _path(a: tuple[int, int], b: tuple[int, int], nth: int) -> str:
    """From the side of one box to the side of another; within a column an arc at its right. nth: of this pair."""
    (column_a, row_a), (column_b, row_b) = a, b
    shift = 5 * ((nth + 1) // 2) * (-1 if nth % 2 else 1)
    y1, y2 = (TOP + ROW * r + (ROW - GAP) / 2 + shift for r in (row_a, row_b))
    if column_a == column_b:
        last = column_a == len(COLUMNS) - 1
        x = COLUMN * column_a + (0 if last else BOX)
        bend = x + (-1 if last else 1) * (26 + 7 * min(abs(row_a - row_b), 10))
        return f"M{x} {y1:g}C{bend} {y1:g} {bend} {y2:g} {x} {y2:g}"
    right = 1 if column_a < column_b else -1
    x1, x2 = COLUMN * column_a + (BOX if right > 0 else 0), COLUMN * column_b + (0 if right > 0 else BOX)
    if abs(column_a - column_b) == 1:
        return f"M{x1} {y1:g}{_curve(x1, y1, x2, y2)}"
    gap = TOP + ROW * round((row_a + row_b + 1) / 2) - GAP / 2 + shift / 2  # between two boxes of the column passed by
    near, far = (COLUMN, COLUMN + BOX) if right > 0 else (COLUMN + BOX, COLUMN)
    return f"M{x1} {y1:g}{_curve(x1, y1, near, gap)}H{far}{_curve(far, gap, x2, y2)}"


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (x1 + x2) / 2
    return f"C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"


def _cut(name: str) -> str:
    return name if len(name) <= 28 else name[:27].rstrip() + "…"

