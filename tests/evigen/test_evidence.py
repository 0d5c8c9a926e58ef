"""Evidence packs: provenance by key, ranking, totals that add up."""
import copy
import dataclasses
import json
import random

import pytest
from pack_cases import NOTE_A, attributed, pack, prediction, record

from evigen_jax.evidence import Attributed, build_pack, check_sources, sigmoid, validate_pack


def test_items_carry_the_record_under_their_own_id():
    found = pack()
    by_id = {i["obs_id"]: i for i in found["items"]}
    assert by_id["I50.9-10"]["text"] == "Heart failure, unspecified" and by_id["I50.9-10"]["time"] == "2012-03-01T00:00:00"
    assert by_id["0010-9"]["text"] == "Cholera due to vibrio cholerae" and by_id["0010-9"]["start"] is None
    end = NOTE_A.index("DISCHARGE")
    chunk = by_id[f"n#a#0-{end}"]
    assert chunk["text"] == NOTE_A[:end] and chunk["source_id"] == "n#a" and chunk["queries"] == [0, 1]
    assert chunk["age_years"] == pytest.approx(74.08, abs=0.01)
    check_sources(found, record(), stored=set(by_id))
    json.dumps(found, allow_nan=False)


def test_text_follows_its_id_after_duplicate_codes():
    """The release dropped the deduplicating index, so ids and titles slipped against the attributions."""
    of = [Attributed("0010-9", "code", 0.9, 0.5, (4,)), Attributed("I50.9-10", "code", -0.3, 0.5, (4,))]
    assert [(i["obs_id"], i["text"][:5]) for i in pack(of=of)["items"]] == [("0010-9", "Chole"), ("I50.9-10", "Heart")]


def test_rank_by_size_ties_by_id_stable_under_permutation():
    ids = [i["obs_id"] for i in pack()["items"]]
    assert ids[:3] == [attributed()[0].obs_id, attributed()[2].obs_id, "I50.9-10"]
    assert ids[3:] == sorted(ids[3:]), "0.02 and -0.02 tie"
    for seed in range(5):
        mixed = attributed()
        random.Random(seed).shuffle(mixed)
        assert [i["obs_id"] for i in pack(of=mixed)["items"]] == ids
    signed = [i["attribution"] for i in pack(ranking="signed")["items"]]
    assert signed == sorted(signed, reverse=True)


@pytest.mark.parametrize("options", [{}, {"k": 2}, {"notes_only": True, "k": 1}, {"ranking": "signed", "k": 1}])
@pytest.mark.parametrize("target", ["logit", "prob"])
def test_contributions_add_up(options, target):
    found = pack(fields={"target": target}, **options)
    base, end = (found["base_logit"], found["logit"]) if target == "logit" else (sigmoid(found["base_logit"]), found["prob"])
    total = base + sum(i["attribution"] for i in found["items"]) + found["other_note_attribution"] + found["other_code_attribution"]
    assert total + found["residual"] == pytest.approx(end, abs=1e-12)
    everything = sum(a.attribution for a in attributed())
    assert sum(i["attribution"] for i in found["items"]) + found["other_note_attribution"] + found["other_code_attribution"] == pytest.approx(everything)


def test_notes_only_keeps_codes_in_the_total():
    found = pack(notes_only=True)
    assert {i["kind"] for i in found["items"]} == {"note"} and found["other_code_attribution"] == pytest.approx(0.22)
    assert found["note"].startswith("3 of the 5 items") and pack()["note"] is None
    assert pack(of=[])["items"] == [] and pack(of=[])["note"].startswith("0 of the 5")


@pytest.mark.parametrize("obs_id, kind, match", [
    ("gone#0-5", "note", "gone#0-5"), ("nb#0-9999", "note", "nb#0-9999"), ("nb#5-5", "note", "nb#5-5"), ("nb", "note", "'nb'"),
    ("I50.9-9", "code", "I50.9-9"), ("nb#-3-5", "note", "nb#-3-5"),
])
def test_an_id_that_the_record_lacks_is_an_error(obs_id, kind, match):
    with pytest.raises(ValueError, match=match):
        pack(of=[Attributed(obs_id, kind, 0.5, 0.5, (0,))])


def test_a_pack_checked_against_another_record_or_store():
    found = pack()
    other = record()
    other = dataclasses.replace(other, notes=tuple(dataclasses.replace(n, text=n.text.replace("CHF", "CHX")) for n in other.notes))
    with pytest.raises(ValueError, match="text: the pack has"):
        check_sources(found, other)
    with pytest.raises(ValueError, match="vector store has no such row"):
        check_sources(found, record(), stored={"I50.9-10"})
    with pytest.raises(ValueError, match="record of 'p2'"):
        check_sources(found, dataclasses.replace(record(), patient_id="p2"))


@pytest.mark.parametrize("bad", [
    lambda: pack(of=attributed() + attributed()[:1]), lambda: pack(k=0), lambda: pack(ranking="size"),
    lambda: pack(of=[Attributed("I50.9-10", "code", float("nan"), 0.1, (4,))]),
    lambda: pack(of=[Attributed("I50.9-10", "code", 0.1, float("inf"), (4,))]), lambda: pack(fields={"prob": 0.9}),
])
def test_bad_values_are_refused(bad):
    with pytest.raises(ValueError):
        bad()


def _set(path, value):
    def change(p):
        for name in path[:-1]:
            p = p[name]
        p[path[-1]] = value
    return change


@pytest.mark.parametrize("path, value", [
    (("schema",), "evidence_pack/0"), (("label",), 2), (("label",), True), (("prob",), 1.2), (("residual",), 0.1), (("target",), "odds"),
    (("items", 0, "rank"), 2), (("items", 0, "text"), "shorter"), (("items", 1, "obs_id"), "nb#0-3"), (("items", 0, "kind"), "lab"),
    (("items", 2, "source_id"), "other"), (("items", 0, "attribution"), float("nan")), (("items", 0, "attribution"), 0.9), (("extra",), 1),
    (("items", 0, "extra"), 1), (("task",), {"name": "x"}), (("items", 0, "queries"), []), (("completeness_gap",), -1.0),
    (("prediction_time",), "soon"), (("converged",), 1), (("items", 0, "time"), "2014-13-01"), (("patient_id",), ""),
])
def test_validate_names_the_field(path, value):
    found = copy.deepcopy(pack())
    validate_pack(found)
    _set(path, value)(found)
    with pytest.raises(ValueError):
        validate_pack(found)
    for name in ("schema", "items", "residual", "task"):
        missing = {k: v for k, v in pack().items() if k != name}
        with pytest.raises(ValueError, match=f"{name}: missing"):
            validate_pack(missing)
    with pytest.raises(ValueError):
        validate_pack([found])


def test_twice_the_same_item():
    found = copy.deepcopy(pack())
    found["items"][1] = found["items"][0] | {"rank": 2}
    with pytest.raises(ValueError, match="stands above already"):
        validate_pack(found)


def test_build_pack_needs_no_label():
    found = build_pack(record(), "2014-07-01T00:00:00", prediction(), attributed(), task={"name": "t", "sentence": "s"}, run_id="r", encoder_id="e")
    assert found["label"] is None
