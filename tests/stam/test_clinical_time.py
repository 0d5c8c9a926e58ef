"""Clinical time: precision, order, time words against the entry's date, and no clock and no zone anywhere."""
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_jax.records import RecordError
from stam_jax.graph.clinical_time import UNKNOWN, ClinicalTime, bounds, default, entry_date, later, resolve


def at(start, end=None, planned=False):
    return ClinicalTime(start, end, planned, "explicit")


@pytest.mark.parametrize("a, b, expected", [
    ("2024-03-02", "2024-03-01", "yes"),
    ("2024-03-01", "2024-03-02", "no"),
    ("2024-03-01", "2024-03-01", "unknown"),  # a change within one day: dates cannot order it
    ("2024-03", "2024-03-15", "unknown"),
    ("2024-04", "2024-03-31", "yes"),
    ("2024", "2024-06", "unknown"),
    ("2025", "2024-12-31", "yes"),
    ("2023", "2024", "no"),
    ("2024-03-01", "2024-02-29", "yes"),  # leap day
    (None, "2024", "unknown"),
    (None, None, "unknown"),
])
def test_later_answers_only_where_the_precision_decides(a, b, expected):
    def time(start):
        return UNKNOWN if start is None else at(start)

    assert later(time(a), time(b)) == expected
    assert later(time(b), time(a)) == {"yes": "no", "no": "yes", "unknown": "unknown"}[expected]


def test_precision_and_bounds():
    assert [at(s).precision for s in ("2024", "2024-02", "2024-02-29")] == ["year", "month", "day"]
    assert UNKNOWN.precision == "unknown"
    assert [str(d) for d in bounds("2024-02")] == ["2024-02-01", "2024-02-29"]
    assert [str(d) for d in bounds("2023-02")] == ["2023-02-01", "2023-02-28"]
    assert [str(d) for d in bounds("2024")] == ["2024-01-01", "2024-12-31"]


@pytest.mark.parametrize("fields, field", [
    (dict(start="2023-02-29", source="explicit"), "start"),
    (dict(start="2023-13", source="explicit"), "start"),
    (dict(start="03/04/2023", source="explicit"), "start"),
    (dict(start="2023-02-01T10:00:00", source="explicit"), "start"),
    (dict(start="2023-02-02", end="2023-02-02", source="explicit"), "end"),  # half-open: empty
    (dict(start="2023-02-02", end="2023-01", source="explicit"), "end"),
    (dict(start="2023", source="unknown"), "source"),
    (dict(source="explicit"), "source"),
    (dict(start="2023", end_planned=True, source="explicit"), "end_planned"),
    (dict(start="2023", source="guess"), "source"),
])
def test_bad_times_are_refused(fields, field):
    with pytest.raises(RecordError) as e:
        ClinicalTime(**fields)
    assert e.value.field == field


def test_an_end_counts_only_once_it_is_certain():
    assert at("2024-01-01", "2024-02-01").ended_before("2024-02-02")
    assert not at("2024-01-01", "2024-02-01").ended_before("2024-02-01")
    assert not at("2024-01-01", "2024-02").ended_before("2024-02-15")
    assert at("2024-01-01", "2024-02").ended_before("2024-03")
    assert not at("2024-01-01").ended_before("2999")


@pytest.mark.parametrize("value, expected", [
    (None, None), ("", None), ("2024", "2024"), ("2024-02", "2024-02"), ("2024-02-29", "2024-02-29"),
    ("2024-03-10T23:30:00-05:00", "2024-03-11T04:30:00"),  # an offset becomes UTC, whatever the machine's zone
    ("2024-03-31T02:30:00", "2024-03-31T02:30:00"),  # an hour that summer time skips in Europe
])
def test_entry_dates(value, expected):
    assert entry_date(value) == expected


def test_entry_dates_that_are_none_are_refused():
    for bad in ("2023-02-29", "yesterday", "2024-13", 5):
        with pytest.raises(RecordError):
            entry_date(bad)


NOTE = "2024-03-15T10:00:00"  # a Friday


@pytest.mark.parametrize("words, start, end", [
    ("today", "2024-03-15", None), ("yesterday", "2024-03-14", None), ("Yesterday.", "2024-03-14", None),
    ("the day before yesterday", "2024-03-13", None), ("tomorrow", "2024-03-16", None),
    ("two weeks ago", "2024-03-01", None), ("15 days ago", "2024-02-29", None), ("a month ago", "2024-02", None),
    ("3 months ago", "2023-12", None), ("2 years ago", "2022", None), ("in 3 months", "2024-06", None),
    ("10 days from now", "2024-03-25", None), ("last week", "2024-03", None), ("this month", "2024-03", None),
    ("last year", "2023", None), ("next month", "2024-04", None),
    ("last Friday", "2024-03-08", None), ("on Monday", "2024-03-18", None), ("next Friday", "2024-03-22", None),
    ("March 4", "2024-03-04", None), ("4th of November", "2023-11-04", None), ("Feb 29", "2024-02-29", None),
    ("December", "2023-12", None),
    ("2019", "2019", None), ("in 2019", "2019", None), ("2019-07", "2019-07", None),
    ("March 4, 2020", "2020-03-04", None),
    ("4 Mar 2020", "2020-03-04", None), ("Mar 2020", "2020-03", None), ("3/14/2020", "2020-03-14", None),
    ("14/3/2020", "2020-03-14", None), ("3/4/2020", "2020", None),
    ("since March 2020", "2020-03", None), ("since yesterday", "2024-03-14", None),
    ("for the past 3 days", "2024-03-12", None), ("for the next 2 weeks", "2024-03-15", "2024-03-29"),
    ("from 2020-01-01 to 2020-02-10", "2020-01-01", "2020-02-11"), ("2019 - 2021", "2019", "2022"),
    ("until June 2024", "2024-03-15", "2024-07"), ("until 2024-03-01", None, "2024-03-02"),
    ("", "2024-03-15", None), (None, "2024-03-15", None),
])
def test_time_words(words, start, end):
    found = resolve(words, NOTE)
    assert (found.start, found.end) == (start, end)
    assert found.end_planned == (end is not None and end > "2024-03-15")


def test_ambiguous_slashes_follow_the_reader_who_says_how():
    assert resolve("3/4/2020", NOTE, day_first=False).start == "2020-03-04"
    assert resolve("3/4/2020", NOTE, day_first=True).start == "2020-04-03"
    assert resolve("3/3/2020", NOTE).start == "2020-03-03"
    assert resolve("14/3/2020", NOTE, day_first=False) == UNKNOWN  # there is no month 14


@pytest.mark.parametrize("words", [
    "soon", "a few days ago", "when he was young", "2023-02-29", "31/2/2020", "9999 years ago", "from 2021 to 2019",
    "for 3 days", "the", "-", "from to", "x" * 5000])
def test_words_that_say_no_date_are_unknown(words):
    assert resolve(words, NOTE) == UNKNOWN


def test_an_undated_entry_dates_nothing_but_what_it_says_outright():
    for words in ("today", "yesterday", "last year", "March 4", "in 3 months", "for the next 2 weeks", "", None):
        assert resolve(words, None) == UNKNOWN
    assert resolve("2019-07-02", None) == ClinicalTime("2019-07-02", source="explicit")
    assert default(None) == UNKNOWN
    assert default("2024-03") == ClinicalTime("2024-03", source="entry_default")


def test_words_of_an_entry_of_low_precision_are_no_sharper():
    assert resolve("yesterday", "2024-03").start == "2024"  # 29 February to 30 March
    assert resolve("last month", "2024-03").start == "2024-02"
    assert resolve("two years ago", "2024").start == "2022"
    assert resolve("yesterday", "2024") == UNKNOWN  # 2023 or 2024
    assert resolve("yesterday", "0001-01-01") == UNKNOWN


@given(st.text(max_size=40), st.one_of(st.none(), st.dates().map(str)))
def test_any_words_give_a_time(words, date):
    assert isinstance(resolve(words, date), ClinicalTime)


def test_nothing_depends_on_the_zone_of_the_machine(repository):
    script = ("from stam_jax.graph.clinical_time import *\n"
              "print([resolve(w, entry_date(d)) for w in ('yesterday', 'last week', 'in 2 months', '')\n"
              " for d in ('2024-03-31T02:30:00', '2024-03-10T23:30:00-05:00', '2024-01-01')])\n")
    found = {
        subprocess.run([sys.executable, "-c", script], cwd=repository, text=True, capture_output=True, check=True,
                       env=os.environ | {"TZ": zone, "PYTHONPATH": str(repository)}).stdout
        for zone in ("UTC", "America/New_York", "Asia/Tokyo", "Europe/Berlin")
    }
    assert len(found) == 1 and "2024-03-30" in found.pop()
