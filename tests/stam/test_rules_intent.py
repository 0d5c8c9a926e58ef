"""What is to begin, end or pause on a later day changes nothing before it; and clauses that speak of another time."""
from __future__ import annotations

import pytest
from test_rules_safety import A, C, N, drafts, held, told

THURSDAY = "2021-03-04"


@pytest.mark.parametrize(("text", "expected"), [
    # of a later day
    ("Restart lisinopril tomorrow at 5 mg.", [("lisinopril", "5 mg", C)]),
    ("Increase lisinopril to 20 mg from next week.", [("lisinopril", "20 mg", C)]),
    ("Increase lisinopril to 20 mg daily next week.", [("lisinopril", "20 mg daily", C)]),
    ("Tomorrow increase lisinopril to 20 mg daily.", [("lisinopril", "20 mg daily", C)]),
    ("Lisinopril 20 mg daily starting 10 March 2021.", [("lisinopril", "20 mg daily", C)]),
    ("From Monday lisinopril 20 mg daily.", [("lisinopril", "20 mg daily", C)]),
    ("Start apixaban 5 mg bid on Monday.", [("apixaban", "5 mg bid", C)]),
    ("She will start apixaban 5 mg bid on Monday.", [("apixaban", "5 mg bid", C)]),
    ("Resume apixaban 5 mg bid on 3/6/2021.", [("apixaban", "5 mg bid", C)]),
    ("Stop lisinopril on Monday.", [("lisinopril", None, C)]),
    ("Switch lisinopril to losartan 50 mg daily next week.", [("lisinopril", None, C), ("losartan", "50 mg daily", C)]),
    ("On 3/15/2021 switch from lisinopril to losartan 50 mg daily.",
     [("lisinopril", None, C), ("losartan", "50 mg daily", C)]),
    # of now, the later day being another thing's
    ("Increase lisinopril to 20 mg daily, recheck BMP in 1 week.", [("lisinopril", "20 mg daily", A)]),
    ("Start amlodipine 5 mg daily and see next week.", [("amlodipine", "5 mg daily", A)]),
    ("Start amlodipine 5 mg daily and INR in 1 week.", [("amlodipine", "5 mg daily", A)]),
    ("Started metformin 500 mg bid with BMP in 2 weeks.", [("metformin", "500 mg bid", A)]),
    ("Switch lisinopril to losartan 50 mg daily, review next week.",
     [("lisinopril", None, N), ("losartan", "50 mg daily", A)]),
    ("Lisinopril 10 mg daily, now increased to 20 mg daily, recheck in 2 weeks.", [("lisinopril", "20 mg daily", A)]),
    ("Increase metoprolol to 50 mg bid starting today.", [("metoprolol", "50 mg bid", A)]),
    ("Start alendronate 70 mg weekly on Sunday.", [("alendronate", "70 mg weekly", A)]),
    # of a day that has been
    ("Started apixaban 5 mg bid on Monday.", [("apixaban", "5 mg bid", A)]),
    ("Stopped lisinopril on Monday.", [("lisinopril", None, N)]),
    # a change for later beside the dose of now
    ("Ramipril 2.5 mg od, increase to 5 mg after 2 weeks if U&E stable.",
     [("ramipril", "2.5 mg daily", A), ("ramipril", "5 mg", C)]),
    ("Start bisoprolol 2.5 mg OD, uptitrate to 5 mg in 4 weeks if HR > 80.",
     [("bisoprolol", "2.5 mg daily", A), ("bisoprolol", "5 mg", C)]),
])
def test_what_begins_later_does_not_hold_yet(text, expected):
    assert told(text, "dose") == expected


@pytest.mark.parametrize(("text", "time"), [
    ("Restart lisinopril tomorrow at 5 mg.", "tomorrow"), ("Start apixaban 5 mg bid on Monday.", "next Monday"),
    ("Started apixaban 5 mg bid on Monday.", "on Monday"), ("Hold lisinopril until 3 May.", "until 3 May"),
    ("Hold warfarin for 5 days.", "for the next 5 days"), ("Lisinopril 10 mg daily, next visit in 2 weeks.", None),
])
def test_the_day_is_kept(text, time):
    (draft,) = [d for d in drafts(text) if d.attribute == "dose"]
    assert draft.time == time


@pytest.mark.parametrize("later", [
    "Increase lisinopril to 20 mg from next week.", "Stop lisinopril on Monday.", "Hold lisinopril from tomorrow.",
    "Switch lisinopril to losartan 50 mg daily on 10 March 2021.", "Stop all ACE inhibitors from Monday.",
    "Hold ACE inhibitors from tomorrow.",
])
def test_what_holds_stays_until_its_day(tmp_path, later):
    found = held(tmp_path, ("2021-01-04", "Lisinopril 10 mg daily."), (THURSDAY, later))
    assert ("lisinopril", "10 mg daily", A) in found


@pytest.mark.parametrize("paused", ["Hold lisinopril until 3 May.", "Hold all ACE inhibitors until 3 May."])
def test_a_pause_ends_with_its_day(tmp_path, paused):
    def of_lisinopril(*more):
        found = held(tmp_path / str(len(more)), ("2021-01-04", "Lisinopril 10 mg daily."), (THURSDAY, paused), *more)
        return {f for f in found if f[0] in ("lisinopril", "ace inhibitors")}

    (during,) = of_lisinopril()
    assert during[2] == N
    assert of_lisinopril(("2021-05-20", "Feels well.")) == set()


def test_a_pause_that_is_over_ends_nothing(tmp_path):
    assert ("lisinopril", "10 mg daily", A) in held(
        tmp_path, ("2021-01-04", "Lisinopril 10 mg daily."), ("2021-03-20", "Lisinopril was held until 9 March."))


def test_a_stop_beside_a_later_restart_is_a_stop(tmp_path):
    found = held(tmp_path, ("2021-01-04", "Lisinopril 10 mg daily."),
                 (THURSDAY, "Hold lisinopril today, restart tomorrow at 5 mg."))
    assert ("lisinopril", None, N) in found and ("lisinopril", "10 mg daily", A) not in found
