"""Figures, comparisons and the files that show them."""
import itertools
import json

import numpy as np
import pytest

from core_jax import stats
from stam_jax.benchmarks import tables as T


def test_share_and_ratio():
    assert T.share(0, 0) == T.Figure(None, n=0)
    got = T.share(3, 4)
    assert got.value == 0.75 and 0.3 < got.low < got.value < got.high <= 1 and got.n == 4
    assert T.ratio([1, 2, 0], [2, 2, 0]).value == 0.75
    assert T.ratio([0, 0], [0, 0]).value is None
    same = T.ratio([1, 1, 1], [2, 2, 2])
    assert (same.low, same.value, same.high) == (0.5, 0.5, 0.5)  # patients that are all alike leave no doubt


def test_compare_ratios_flips_patients():
    a, b = ([3, 2, 4, 1], [4, 3, 5, 4]), ([1, 2, 1, 2], [4, 3, 5, 4])
    got = T.compare_ratios(a, b)
    assert got.value == pytest.approx(10 / 16 - 6 / 16)
    flips = [sum(s * d for s, d in zip(signs, (2, 0, 3, -1))) for signs in itertools.product((1, -1), repeat=4)]
    assert got.p == sum(abs(x) >= 4 for x in flips) / 16
    back = T.compare_ratios(b, a)
    assert back.value == -got.value and back.low == pytest.approx(-got.high) and back.p == got.p
    same = T.compare_ratios(a, (a[0], [5, 5, 5, 5]))  # only the wholes differ: no patient has more
    assert (same.value, same.p) == (0.0, 1.0)
    assert T.compare_ratios(([2, 2], [4, 4]), ([1, 1], [6, 6])).value == 0.2  # 2 more of 10, the mean of 8 and 12


def test_compare_ratios_refuses_unequal_arms():
    with pytest.raises(ValueError, match="expected equal"):
        T.compare_ratios(([1], [1]), ([1, 2], [1, 2]))
    with pytest.raises(ValueError, match="nothing was counted"):
        T.compare_ratios(([0], [0]), ([0], [0]))


def test_compare_right_and_scores():
    got = T.compare_right([1] * 20 + [0] * 14, [0] * 20 + [1] * 14)
    assert (got.b, got.c, round(got.p, 6)) == (20, 14, 0.391528)
    d = [.2, .1, -.05, .3, 0, .15]
    assert T.compare_scores(d, [0.0] * 6).p == 0.125
    macro = T.compare_scores([1, 1, 1, 0], [0, 0, 0, 0], ["a", "a", "a", "b"])
    assert macro.value == 0.5  # one half for each type, whatever their sizes


def test_adjusted_is_holm():
    made = [T.Difference(0.1, 0, 0.2, p, "sign flip", 9) for p in (0.01, 0.04, 0.03)]
    assert [d.holm for d in T.adjusted(made)] == pytest.approx([0.03, 0.06, 0.06])


REPORT = T.Report(
    "toy", "Toy", "stam bench --suite toy", {"b": 1, "a": [2]}, {"seed": 0}, {"data": "ab" * 32},
    (T.Table("one", "First", ("system", "score", "against"),
             (("a|b", T.Figure(0.5, 0.25, 0.75, 8), None),
              ("c\nd", 0.1234567, T.Difference(-0.031, -0.05, 0.01, 0.0004, "exact McNemar", 8, 3, 9, 0.02)))),
     T.Table("two", "Second", ("n",), ((3,), (float("nan"),)), "A note.")))


HOSTILE = T.Report("toy", "Toy", "stam bench --suite toy", {}, {}, {}, (
    T.Table("one", "First", ("a", "b"), (("\\|\n</td><script>\x1b[31m\u202eworse", "< 1"),)),))


def test_markdown():
    text = T.to_markdown(REPORT)
    assert "| a\\|b | 0.500 [0.250, 0.750] | - |" in text
    assert "| c d | 0.123 | -0.031 [-0.050, +0.010], p < 0.001 (Holm 0.020), 3:9 |" in text
    (row,) = [line for line in T.to_markdown(HOSTILE).splitlines() if "worse" in line]
    assert row == "| \\\\\\| \\</td>\\<script> [31m worse | < 1 |"
    assert "stam bench --suite toy" in text and "A note." in text and "data " + "ab" * 32 in text


def test_json_is_whole_and_the_same_again():
    raw = json.loads(T.to_json(REPORT))
    assert raw["schema"] == T.SCHEMA and raw["config"] == {"a": [2], "b": 1}
    first, second = raw["tables"]["one"]["rows"]
    assert first["score"] == {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8} and first["against"] is None
    assert second["against"]["c"] == 9 and second["against"]["holm"] == 0.02
    assert raw["tables"]["two"]["rows"][1]["n"] is None  # NaN is no JSON
    assert T.to_json(REPORT) == T.to_json(REPORT) and "numpy" in raw["versions"]


def test_write_replaces_whole_files(tmp_path):
    paths = T.write(REPORT, tmp_path / "out")
    first = [p.read_bytes() for p in paths]
    assert [p.name for p in paths] == ["toy.md", "toy.json"]
    assert [p.read_bytes() for p in T.write(REPORT, tmp_path / "out")] == first
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["toy.json", "toy.md"]


def test_tables_are_checked():
    with pytest.raises(ValueError, match="row 0 has 2 cells, expected 1"):
        T.Table("x", "X", ("a",), ((1, 2),))
    with pytest.raises(ValueError, match="distinct names"):
        T.Report("x", "X", "c", {}, {}, {}, (T.Table("t", "", ("a",), ()), T.Table("t", "", ("a",), ())))


def test_intervals_agree_with_the_shared_bootstrap():
    rng = np.random.default_rng(0)
    values, types = rng.random(90), np.repeat(["a", "b", "c"], (50, 30, 10))
    ours, theirs = T.mean(values, list(types)), stats.paired_bootstrap(values, types, n=2000)
    assert ours.value == pytest.approx(theirs.estimate)
    assert ours.low == pytest.approx(theirs.low, abs=0.01) and ours.high == pytest.approx(theirs.high, abs=0.01)


def test_intervals_and_tests_can_draw_patients():
    rng = np.random.default_rng(1)
    values, types = rng.random(90), np.resize(["a", "b", "c"], 90)
    patients = np.repeat([f"p{i}" for i in range(30)], 3)
    ours = T.mean(values, list(types), list(patients))
    theirs = stats.paired_bootstrap(values, types, patients)
    assert ours.value == pytest.approx(theirs.estimate)
    assert ours.low == pytest.approx(theirs.low, abs=0.005) and ours.high == pytest.approx(theirs.high, abs=0.005)
    alike = np.repeat([0.0, 1.0] * 10, 5)  # what one patient's questions say five times is said once
    who = np.repeat([str(i) for i in range(20)], 5)
    narrow, wide = T.mean(alike), T.mean(alike, None, who)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    got = T.compare_scores([1.0] * 10, [0.0] * 10, None, ["p", "q"] * 5)
    assert (got.p, got.n, got.low, got.high) == (0.5, 2, 1.0, 1.0)  # two patients: of four patterns two reach it
    lone = T.mean([1.0, 1.0, 0.0], ["a", "b", "b"], ["p", "q", "q"])  # draws without p or without q lack a type
    assert (lone.value, lone.low, lone.high) == (0.75, 0.75, 0.75)
    many, each = [f"t{i:03}" for i in range(100)], [f"p{i}" for i in range(100)]  # no draw has every type
    assert T.shown(T.mean([1.0] * 100, many, each)) == "1.000"
    assert T.shown(T.compare_scores([1.0] * 100, [0.0] * 100, many, each)) == "+1.000, p < 0.001"


def test_mean_is_by_type():
    got = T.mean([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"])
    assert got.value == 0.5 and T.mean([]).value is None
    assert np.isfinite([got.low, got.high]).all()
