"""One patient's memory in forms that other programs read: JSON Lines, GraphML, DOT. Standard library only.

What is deleted stands there as its tombstone: that it was, and why it went.
"""
from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from typing import Any

from core_jax.records import atomic_write
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ONE_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def record(state: State, mid: str) -> dict[str, Any]:
    """One memory as a JSON object: what it says, where it stands and why, and where the record says it.

    Raises: LookupError: this patient never had it.
    """
    why = state.why(mid)
    last = _standing(state, mid)
    out: dict[str, Any] = {"memory_id": mid, "patient_id": state.patient_id, "store": why.place,
                           "update": why.inserted_seq}
    if (m := state.memories.get(mid)) is not None:
        out |= {"text": m.text, "kind": m.kind, "concept": m.concept, "attribute": m.attribute, "value": m.value,
                "unit": m.unit, "polarity": m.polarity, "experiencer": m.experiencer, "start": m.clinical_time.start,
                "end": m.clinical_time.end, "end_planned": m.clinical_time.end_planned, "flags": sorted(m.flags)}
    if last is not None:
        along = state.relations.get(last.evidence_rid or "")
        out |= {"reason": last.reason, "successor": last.successor, "moved_by_update": last.update_seq,
                "decided_by": last.decided_by, "order": last.order, "along": along.type if along else None}
    out["sources"] = [{"entry": e.entry_key, "source_id": e.source_id, "kind": e.kind, "date": e.date,
                       "author_role": e.author_role, "start": p.start, "end": p.end, "quote": e.text[p.start:p.end],
                       "verified": p.verified} for e, p in why.sources]
    return out


def jsonl(state: State) -> Iterator[str]:
    """A memory a line, in the order of arrival, then the tombstones."""
    for mid in (*state.memories, *state.tombstones):
        yield json.dumps(record(state, mid), ensure_ascii=False, allow_nan=False) + "\n"


def graphml(state: State) -> str:
    """Memories as nodes; relations, and who followed whom, as edges. Characters that XML lacks read as U+FFFD."""
    root = ET.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    nodes = ("store", "text", "kind", "concept", "attribute", "value", "unit", "polarity", "experiencer", "start",
             "end", "reason", "update")
    edges = (("type", "string"), ("confidence", "double"), ("origin", "string"), ("update", "int"))
    for name in nodes:
        ET.SubElement(root, "key", {"id": f"n_{name}", "for": "node", "attr.name": name,
                                    "attr.type": "int" if name == "update" else "string"})
    for name, kind in edges:
        ET.SubElement(root, "key", {"id": f"e_{name}", "for": "edge", "attr.name": name, "attr.type": kind})
    graph = ET.SubElement(root, "graph", id="memory", edgedefault="directed")

    def fill(element: ET.Element, prefix: str, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if value is not None:
                ET.SubElement(element, "data", key=f"{prefix}_{name}").text = _NOT_XML.sub("\ufffd", str(value))

    for mid in (*state.memories, *state.tombstones):
        said = record(state, mid)
        fill(ET.SubElement(graph, "node", id=mid), "n", {name: said.get(name) for name in nodes})
    for edge in _edges(state):
        element = ET.SubElement(graph, "edge", id=edge["id"], source=edge["src"], target=edge["dst"],
                                directed=str(edge["directed"]).lower())
        fill(element, "e", {name: edge[name] for name, _ in edges})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def dot(state: State) -> str:
    """Graphviz: boxes that hold are filled, past ones dashed, deleted ones square; bold edges lead to successors."""
    style = {"ACTIVE": 'style=filled fillcolor="#cfe8e4"', "HISTORY": 'style=dashed color="#8695a1"',
             "DELETED": 'shape=Msquare color="#b3402f"'}
    lines = ["digraph memory {", "  rankdir=LR;", "  node [shape=box fontname=Helvetica];"]
    for mid in (*state.memories, *state.tombstones):
        m = state.memories.get(mid)
        lines.append(f"  {mid} [label={_quoted(m.text if m else 'deleted')} {style[state.places[mid]]}];")
    for edge in _edges(state):
        how = "style=bold" if edge["origin"] is None else "" if edge["directed"] else "dir=none"
        lines.append(f"  {edge['src']} -> {edge['dst']} [label={_quoted(edge['type'])} {how}];")
    return "\n".join([*lines, "}", ""])


FORMS: dict[str, Callable[[State], Any]] = {"jsonl": jsonl, "graphml": graphml, "dot": dot}


def write(state: State, path: str | os.PathLike, form: str) -> None:
    """The file appears whole or not at all. Raises: ValueError: no such form."""
    if form not in FORMS:
        raise ValueError(f"form: got {form!r:.80}, expected one of {sorted(FORMS)}")
    with atomic_write(path) as f:
        f.writelines(FORMS[form](state))


def _standing(state: State, mid: str) -> Transition | None:
    moves = state.transitions.get(mid, ())
    return moves[-1] if moves else None


def _edges(state: State) -> Iterator[dict[str, Any]]:
    """Relations, then an edge from each memory in HISTORY to its successor (origin None, its reason as type)."""
    for r in state.relations.values():
        yield {"id": r.rid, "src": r.src, "dst": r.dst, "type": r.type, "confidence": r.confidence, "origin": r.origin,
               "update": r.update_seq, "directed": state.table[r.type].directed}
    for mid in state.memories:
        t = state.standing(mid)
        if t is not None and t.successor is not None and t.successor in state.places:
            yield {"id": f"{mid}.{t.tid}", "src": mid, "dst": t.successor, "type": t.reason, "confidence": None,
                   "origin": None, "update": t.update_seq, "directed": True}


def _quoted(text: str) -> str:
    """A DOT string whose every character stands for itself."""
    text = _ONE_LINE.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
