"""Exports: every memory once, hostile text escaped, nothing of what was deleted."""
import json
import re
import xml.etree.ElementTree as ET

import page_cases as cases
import pytest

from stam_jax.read import export
from stam_jax.storage.store import Store

NS = "{http://graphml.graphdrawing.org/xmlns}"
HOSTILE = cases.state_of(cases.hostile())
PLANTED = cases.state_of(cases.planted()[1])


def test_jsonl_has_every_memory_with_its_fate_and_proof():
    rows = [json.loads(line) for line in export.jsonl(PLANTED)]
    assert [r["memory_id"] for r in rows] == list(PLANTED.memories)
    for row in rows:
        m, standing = PLANTED.memory(row["memory_id"]), PLANTED.standing(row["memory_id"])
        assert (row["store"], row["text"], row["value"]) == (m.store, m.text, m.value)
        assert row.get("reason") == (standing and standing.reason) and row.get("successor") == (standing and standing.successor)
        for source, p in zip(row["sources"], m.provenance, strict=True):
            assert source["quote"] == PLANTED.entries[source["entry"]].text[p.start:p.end]
    assert {r["store"] for r in rows} == {"ACTIVE", "HISTORY"} and any(r.get("along") for r in rows)


def test_a_lone_record_and_one_that_is_not_there():
    mid = next(iter(PLANTED.memories))
    assert export.record(PLANTED, mid)["patient_id"] == PLANTED.patient_id
    with pytest.raises(LookupError, match="not a memory of this patient"):
        export.record(PLANTED, "mzzzzzzzzzzzzzzzz")


@pytest.mark.parametrize("state", [HOSTILE, PLANTED], ids=["hostile", "planted"])
def test_graphml_reads_back(state):
    graph = ET.fromstring(export.graphml(state)).find(f"{NS}graph")
    nodes = {n.get("id"): {d.get("key"): d.text for d in n} for n in graph.findall(f"{NS}node")}
    assert list(nodes) == list(state.memories)
    for mid, m in state.memories.items():
        assert nodes[mid]["n_text"] == m.text and nodes[mid]["n_store"] == m.store
        assert nodes[mid].get("n_value") == m.value
    edges = graph.findall(f"{NS}edge")
    followed = [m for m in state.memories if state.successor(m)]
    assert len(edges) == len(state.relations) + len(followed) and len({e.get("id") for e in edges}) == len(edges)
    kinds = [next(d.text for d in e if d.get("key") == "e_type") for e in edges]
    assert sorted(kinds) == sorted([r.type for r in state.relations.values()]
                                   + [state.standing(m).reason for m in followed])
    for e in edges:
        assert {e.get("source"), e.get("target")} <= nodes.keys()


def test_graphml_replaces_what_xml_lacks():
    e = cases.entry("a\x0bb \x1b[31m red")
    state = cases.state_of([cases.commit(0, [e], [cases.memory(e, text="a\x0bb \x1b[31m & <red> \ufffe")])])
    graph = ET.fromstring(export.graphml(state)).find(f"{NS}graph")
    assert next(d.text for d in graph.iter(f"{NS}data") if d.get("key") == "n_text") == "a\ufffdb \ufffd[31m & <red> \ufffd"


def test_dot_is_one_statement_a_line_whatever_the_text():
    text = 'end"]; evil [label="x\\'
    e = cases.entry(f"note: {text}\nmore")
    state = cases.state_of([cases.commit(0, [e], [cases.memory(e, text=f"{text}\nmore\u2028\\")])])
    lines = export.dot(state).splitlines()
    node = re.compile(r'  (m[a-z2-7]{16}) \[label="((?:[^"\\]|\\.)*)" [^"]*("#[0-9a-f]{6}")?\];')
    found = [node.fullmatch(line) for line in lines[3:-1]]
    assert len(found) == 1 and found[0] and found[0][1] == next(iter(state.memories))
    assert re.sub(r"\\(.)", r"\1", found[0][2]) == f"{text} more \\"
    assert sum(" -> " in line for line in export.dot(HOSTILE).splitlines()) == 3


@pytest.mark.parametrize("form", sorted(export.FORMS))
def test_what_was_deleted_is_in_no_export(tmp_path, form):
    with Store.open(tmp_path / "store", encoder=cases.HEADER) as store:
        cases.fill(store, cases.hostile("p1"))
        gone = store.state("p1").history()[0]
        state = cases.with_tombstone(store, "p1")
    export.write(state, tmp_path / "out", form)
    text = (tmp_path / "out").read_text(encoding="utf-8")
    assert gone.mid in text and text.count("Takes ") == text.count("Takes more") > 0
    assert "ERASURE_REQUEST" in text or form == "dot"


def test_an_unknown_form(tmp_path):
    with pytest.raises(ValueError, match="form: got 'xml'"):
        export.write(PLANTED, tmp_path / "out", "xml")
    assert not (tmp_path / "out").exists()
