"""Titles of both classifications, dotted or not; unknown codes are named and counted."""
import pytest

from core_jax.icd import Titles, normalize, title


@pytest.mark.parametrize("code, version, expected", [
    ("I25.10", "10", "Atherosclerotic heart disease of native coronary artery without angina pectoris"),
    ("I2510", "10", "Atherosclerotic heart disease of native coronary artery without angina pectoris"),
    ("i10 ", "10", "Essential (primary) hypertension"),
    ("413.9", "9", "Other and unspecified angina pectoris"),
    ("4139", "9", "Other and unspecified angina pectoris"),
    ("0010", "9", "Cholera due to vibrio cholerae"),
    ("V70.7", "9", "Examination of participant in clinical trial"),
    ("E9289", "9", "Unspecified accident"),
    ("001", "9", "Cholera"),
])
def test_titles(code, version, expected):
    assert title(code, version) == expected


@pytest.mark.parametrize("code, version", [
    ("10", "9"), ("1", "10"), ("A00-B99", "10"), ("A00-A09", "10"), ("001-139", "9"), ("I10", "9"), ("4139", "10"),
    ("", "9"), ("", "10"), ("I109", "10"), ("99999", "9"), ("I10; DROP", "10"),
])
def test_what_is_no_code_has_no_title(code, version):
    assert title(code, version) is None


def test_other_versions_are_refused():
    with pytest.raises(ValueError, match="'11'"):
        title("I10", "11")


def test_normalize():
    assert [normalize(c) for c in ("001.0 ", "v70.7", " I25.10")] == ["0010", "V707", "I2510"]


def test_own_titles_come_first_and_unknown_ones_are_counted():
    titles = Titles({("I10", "10"): "High blood pressure"})
    assert titles("I10", "10") == "High blood pressure"
    assert titles("E11.9", "10") == "Type 2 diabetes mellitus without complications"
    assert titles("I10.9", "10") == titles("I109", "10") == "ICD-10 I109 (no description)"
    assert titles("77777", "9") == "ICD-9 77777 (no description)"
    assert titles.unknown == {"I109-10": 2, "77777-9": 1}


def test_the_open_demo(ehr_data):
    from core_jax.readers.table import blocks

    path = ehr_data / "mimic_iv_demo" / "hosp" / "diagnoses_icd.csv.gz"
    if not path.exists():
        pytest.skip("no MIMIC-IV demo in the data folder")
    rows = [row for _, cells in blocks(str(path), ("icd_code", "icd_version")) for row in zip(*cells, strict=True)]
    codes = {(normalize(code), version) for code, version in rows}
    for version, known, total in (("10", 729, 734), ("9", 740, 740)):
        found = [title(*key) is not None for key in codes if key[1] == version]
        assert (sum(found), len(found)) == (known, total)
