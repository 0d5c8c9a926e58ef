from __future__ import annotations

import json

import numpy as np
import pytest

from core_jax.records import Code, Note, Patient
from evigen_jax import arms, metrics
from evigen_jax.curves import training_curves
from evigen_jax.packed import PackedCohort
from evigen_jax.retriever import EviGenConfig

WHEN = "2020-06-01T00:00:00"


def _patients(n=120, seed=0):
    rng = np.random.default_rng(seed)
    people, rows = [], []
    for i in range(n):
        year = [1985, 1970, 1950, 1930][i % 4]
        text = "x" * int(10 ** rng.uniform(1, 3))
        note = Note(f"n{i}", text, time="2020-01-01T00:00:00")
        later = Note(f"n{i}-after", "y" * 100_000, time="2021-01-01T00:00:00")  # must not count as history
        people.append(Patient(f"p{i}", sex="F" if i % 3 else "M", birth_year=year, notes=(note, later)))
        label = int(rng.random() < 0.4)
        rows.append({"patient_id": f"p{i}", "prediction_time": WHEN, "label": label,
                     "prob": float(np.clip(0.3 * label + 0.6 * rng.random(), 0, 1))})
    return people, rows


def test_subgroups_cover_everyone_once_per_kind_and_hide_small_cells():
    people, rows = _patients()
    cells = metrics.subgroups(rows, people)
    json.dumps(cells, allow_nan=False)
    for kind in ("sex", "age", "history"):
        assert sum(c["n"] for c in cells if c["group"] == kind) == len(rows)
    assert [c["value"] for c in cells if c["group"] == "age"] == ["<45", "45-64", "65-79", "80+"]
    women = next(c for c in cells if c["value"] == "F")
    inside = sorted((r for r, p in zip(rows, people) if p.sex == "F"), key=lambda r: r["patient_id"])
    overall = metrics.scores([r["label"] for r in inside], [r["prob"] for r in inside])
    assert {k: women[k] for k in overall} == overall and not women["suppressed"]
    assert [c["n"] for c in cells if c["group"] == "history"] == [40, 40, 40]
    longest = next(c for c in cells if c["value"].startswith("longest"))
    assert "over" in longest["value"] and float(longest["value"].split()[3]) < 1000  # the later note is not history

    rows[0]["label"] = 1
    young = {p.patient_id for p in people if p.birth_year == 1985}
    some = [r | {"label": 0 if r["patient_id"] in young else r["label"]} for r in rows]
    cell = next(c for c in metrics.subgroups(some, people) if c["value"] == "<45")
    assert cell["suppressed"] and cell["reason"] == "one class only" and cell["auc"] is None and cell["n"] == 30
    cell = next(c for c in metrics.subgroups(rows[:40], people) if c["value"] == "80+")
    assert cell["suppressed"] and cell["reason"] == "fewer than 20 patients" and cell["n"] == 10
    with pytest.raises(ValueError, match="patient p9: predicted, but not among the records"):
        metrics.subgroups(rows[9:10], people[:9])


def test_age_comes_from_the_birth_date_or_the_last_item_and_children_get_their_bands():
    people, rows = [], []
    for i, age in enumerate((0.5, 2.0, 4.0, 8.0, 15.0, 30.0)):
        people.append(Patient(f"p{i}", codes=(Code("Z00", "10", "Visit", time="2020-01-01T00:00:00", age_years=age),)))
        rows.append({"patient_id": f"p{i}", "prediction_time": WHEN, "label": i % 2, "prob": 0.5})
    cells = {c["value"]: c for c in metrics.subgroups(rows, people) if c["group"] == "age"}
    assert list(cells) == ["<1", "1-2", "3-5", "6-11", "12-17", "18+"]
    nobody = metrics.subgroups(rows[:1], [Patient("p0")])
    assert [c["value"] for c in nobody if c["group"] == "age"] == ["unknown"] and nobody[0]["value"] == "unknown"


def test_scores_of_unlabelled_rows_are_null():
    assert metrics.scores_or_none([{"patient_id": "p", "label": None, "prob": 0.5}])["auc"] is None
    assert metrics.scores_or_none([{"label": 1, "prob": 0.9}, {"label": 0, "prob": 0.1}, {"label": None, "prob": 0.4}])["auc"] == 1.0
    assert metrics.scores([1, 1], [0.5, 0.6])["auc"] is None and metrics.scores([1, 1], [0.5, 0.6])["accuracy"] == 1.0


def test_activation_table_as_table_4():
    gate = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], np.float32)
    table = metrics.activation_table(gate, n_note=2)
    assert [r["activation_percent"] for r in table["rows"]] == pytest.approx([100, 200 / 3, 100 / 3, 0])
    assert table["mean_active"] == pytest.approx(gate.sum(axis=1).mean()) == pytest.approx(sum(r["activation_percent"] for r in table["rows"]) / 100)
    assert [(r["modality"], r["gate"]) for r in table["rows"]][:3] == [("note", "shared, always on"), ("note", "dynamic"), ("code", "dynamic")]
    with pytest.raises(ValueError, match="0 and 1"):
        metrics.activation_table(gate * 0.5, 2)


# ---- planted evidence -----------------------------------------------------------------------------------------

OBS = ["n1#0-100", "n1#80-180", "n1#160-260", "n2#0-50", "I509-10", "Z000-10"]
GOLD = {"patient_id": "a", "bayes_prob": 0.8, "factors": [
    {"factor": "heart failure", "weight": 1.2, "spans": [{"note_id": "n1", "start": 10, "end": 30}, {"note_id": "n1", "start": 40, "end": 60}], "codes": ["I509-10"]},
    {"factor": "exercise", "weight": -0.7, "spans": [{"note_id": "n2", "start": 5, "end": 25}], "codes": []},
    {"factor": "overlapped", "weight": 0.4, "spans": [{"note_id": "n1", "start": 165, "end": 179}], "codes": []},
    {"factor": "silent", "weight": 0.0, "spans": [{"note_id": "n1", "start": 100, "end": 120}], "codes": []},
]}


def _report(items, **kw):
    return metrics.planted_report({"a": items}, [GOLD], {"a": OBS}, **kw)


def test_gold_items_by_hand():
    finds, weight, lost = metrics.gold_items(GOLD, OBS)
    # two spans share the first chunk: one item; a span in the overlap of two chunks is found by either
    assert finds == {"n1#0-100": {"n1#0-100"}, "I509-10": {"I509-10"}, "n2#0-50": {"n2#0-50"},
                     "n1#80-180": {"n1#80-180"}, "n1#160-260": {"n1#80-180"}}
    assert weight == pytest.approx({"n1#0-100": 1.2, "I509-10": 1.2, "n2#0-50": -0.7, "n1#80-180": 0.4, "n1#160-260": 0.4})
    assert lost == 0
    # half of a span is enough, less is not
    one = {"factors": [{"factor": "f", "weight": 1.0, "spans": [{"note_id": "n", "start": 90, "end": 110}], "codes": ["X-10"]}]}
    assert metrics.gold_items(one, ["n#0-100"]) == ({"n#0-100": {"n#0-100"}}, {"n#0-100": 1.0}, 1)
    assert metrics.gold_items(one, ["n#0-99"])[0] == {}
    assert metrics.note_span("a#b#3-9") == ("a#b", 3, 9)
    with pytest.raises(ValueError, match="expected <note_id>#<start>-<end>"):
        metrics.note_span("I509-10")


def test_recall_precision_and_signs_by_hand():
    items = [{"obs_id": "n1#0-100", "attribution": 0.5}, {"obs_id": "n2#0-50", "attribution": 0.1},
             {"obs_id": "n1#160-260", "attribution": 0.2}, {"obs_id": "n1#80-180", "attribution": 0.1},
             {"obs_id": "Z000-10", "attribution": -0.3}, {"obs_id": "I509-10", "attribution": 0.9}]
    got = _report(items)
    assert got["recall"] == pytest.approx(3 / 4)  # items: chunk 1, n2, the overlap (found twice, counted once), the code (6th)
    assert got["precision"] == pytest.approx(4 / 5)
    assert (got["sign_accuracy"], got["signed_items"]) == (pytest.approx(3 / 4), 4)  # n2 lowers the risk
    assert _report(items, k=6)["recall"] == 1.0
    assert _report([{"obs_id": "n1#0-100"}])["sign_accuracy"] is None
    assert _report([])["recall"] == 0.0 and _report([])["precision"] is None
    with pytest.raises(ValueError, match="'other#0-9' is not the patient's"):
        _report([{"obs_id": "other#0-9"}])
    with pytest.raises(ValueError, match="patient b: no gold row"):
        metrics.planted_report({"b": []}, [GOLD], {"b": OBS})


def test_denominator_is_at_most_k_and_patients_without_gold_are_counted():
    obs = [f"n#{100 * i}-{100 * i + 100}" for i in range(12)]
    many = {"patient_id": "m", "bayes_prob": 0.5, "factors": [
        {"factor": "f", "weight": 1.0, "spans": [{"note_id": "n", "start": 100 * i, "end": 100 * i + 10} for i in range(9)], "codes": []}]}
    none = {"patient_id": "z", "bayes_prob": 0.1, "factors": []}
    got = metrics.planted_report({"m": [{"obs_id": o} for o in obs[:5]], "z": [{"obs_id": obs[0]}]}, [many, none], {"m": obs, "z": obs})
    assert got["recall"] == 1.0 and got["patients"] == 2 and got["patients_without_gold"] == 1
    assert got["precision"] == pytest.approx(5 / 6)


def test_bayes_gap_and_seeds():
    rng = np.random.default_rng(0)
    logit = rng.normal(size=300)
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * logit))).astype(int)
    gold = {f"p{i}": {"patient_id": f"p{i}", "bayes_prob": float(1 / (1 + np.exp(-2 * z))), "factors": []} for i, z in enumerate(logit)}
    rows = [{"patient_id": f"p{i}", "label": int(t), "prob": gold[f"p{i}"]["bayes_prob"] ** 2} for i, t in enumerate(y)]
    got = metrics.bayes_gap(rows, gold)
    assert got["auc"] == got["bayes_auc"] and (got["bayes_gap"], got["bayes_gap_low"], got["bayes_gap_high"]) == (0, 0, 0)
    noisy = [r | {"prob": 0.5 * r["prob"] + 0.5 * float(rng.random())} for r in rows]
    worse = metrics.bayes_gap(noisy, gold)
    assert worse["bayes_gap"] > 0 and worse["bayes_gap_low"] < worse["bayes_gap"] < worse["bayes_gap_high"]
    table = metrics.over_seeds([{"test_auc": 0.8, "recall": 0.5, "ok": True, "x": None}, {"test_auc": 0.9, "recall": 0.7, "ok": True, "x": 1.0}])
    assert (table["test_auc"]["low"], table["test_auc"]["high"]) == (pytest.approx(0.85 - 12.7062 * 0.05, abs=1e-4), 1.0)
    assert table["recall"]["low"] == 0.0 and table["recall"]["high"] == 1.0, "the t interval of two seeds is wider than [0, 1]"
    assert set(table) == {"test_auc", "recall"} and table["test_auc"]["mean"] == pytest.approx(0.85) and table["test_auc"]["n"] == 2


# ---- arms -----------------------------------------------------------------------------------------------------

def _packed():
    eye = np.eye(4, dtype=np.float32)
    return PackedCohort(
        patient_ids=["a", "b"], label=np.array([0, 1], np.int32),
        x_note=eye[[0, 1, 1, 2, 3]], off_note=np.array([0, 3, 5]), obs_note=["n1#0-9", "n2#0-9", "n3#0-9", "n4#0-9", "n5#0-9"],
        mean_note=np.zeros((2, 4), np.float32), x_code=eye[[0]], off_code=np.array([0, 1, 1]), obs_code=["I10-10"],
        mean_code=np.zeros((2, 4), np.float32))


def test_similarity_evidence_takes_the_nearest_to_any_query_with_stable_ties():
    note, code = np.array([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), np.array([[3.0, 4.0, 0.0, 0.0]])
    got = arms.similarity_evidence(_packed(), note, code, k=3)
    assert [(i["obs_id"], i["rank"]) for i in got["a"]] == [("n2#0-9", 1), ("n3#0-9", 2), ("I10-10", 3)]
    assert [i["similarity"] for i in got["a"]] == pytest.approx([1, 1, 0.6])
    assert [i["obs_id"] for i in got["b"]] == ["n4#0-9", "n5#0-9"]
    assert list(arms.similarity_evidence(_packed(), note, np.zeros((0, 4)), patients=[1])) == ["b"]


def test_fixed_queries_are_the_embeddings_and_every_gate_is_open():
    import jax

    note, code = np.eye(4)[:3], np.eye(4)[3:]
    config, init = arms.fixed_queries(EviGenConfig(d=4, d_hidden=8), note, code)
    assert (config.n_note, config.n_code, config.gating, config.lambda_aux) == (3, 1, False, 0.0)
    one, two = init(jax.random.key(0)), init(jax.random.key(1))
    np.testing.assert_array_equal(one["query"], np.eye(4))
    assert np.any(one["expert"]["w1"] != two["expert"]["w1"])
    with pytest.raises(ValueError, match="expected .n >= 1, 4."):
        arms.fixed_queries(EviGenConfig(d=4), np.zeros((0, 4)), code)


def test_curves_are_pictures_and_the_name_decides(tmp_path):
    rows = [{"epoch": e, "train_loss": 1 / e, "val_auc": 0.5 + 0.1 * e, "val_active": 2.0, "log_min_query_norm": -0.1} for e in (1, 2, 3)]
    path = training_curves({"seed 0": rows, "seed 1": rows[:2]}, tmp_path / "c.svg", best={"seed 0": 2})
    assert "<svg" in open(path).read() and [p.name for p in tmp_path.iterdir()] == ["c.svg"]
    training_curves({"seed 0": rows}, tmp_path / "c.png")
    assert open(tmp_path / "c.png", "rb").read(4) == b"\x89PNG"
    with pytest.raises(ValueError, match=r"expected .png or .svg"):
        training_curves({"seed 0": rows}, tmp_path / "c.pdf")
