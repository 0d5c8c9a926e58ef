"""Conformal risk control in exact arithmetic: golden sums, monotony, groups, and the bound itself by simulation."""
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_jax.records import RecordError
from stam_jax.deletion import conformal as crc
from stam_jax.deletion.conformal import Control, Scored

SAFE, NEVER, UNSURE = crc.LABELS


def types(n: int, rows=lambda i: [(NEVER, 0.1), (SAFE, 0.9)], group="all") -> list[Scored]:
    """n concept types, each with the given (label, score) memories, all candidates."""
    return [Scored(f"{group}{i}", label, score, True, group) for i in range(n) for label, score in rows(i)]


@pytest.mark.parametrize("n, errors, deletes", [(98, 0, False), (99, 0, True), (99, 1, False), (198, 1, False),
                                                (199, 1, True), (199, 2, False), (299, 2, True)])
def test_the_room_for_errors_is_exact(n, errors, deletes):
    """alpha = 1/100: 99 types allow none, 199 allow a total loss of 1; rounding decides nothing."""
    rows = types(n, lambda i: [(NEVER, 0.9 if i < errors else 0.1), (SAFE, 0.9)])
    level = crc.calibrate(rows)
    assert (level.tau == 0.9) is deletes and level.types == n
    assert deletes or level.tau == math.inf and level.total == 0
    if deletes:
        assert level.total == errors and level.slack == Fraction(n + 1, 100) - errors - 1 >= 0


@pytest.mark.parametrize("alpha", [0.01, "0.01", Fraction(1, 100), "1/100"])
def test_alpha_is_what_is_written(alpha):
    assert Control(alpha).alpha == Fraction(1, 100)
    assert Control(0.1).alpha == Fraction(1, 10)
    small = Control(1e-300)
    assert Control(str(small.alpha)) == small


@pytest.mark.parametrize("bad", [dict(alpha=1.5), dict(alpha="x"), dict(alpha=math.nan), dict(loss="mean"),
                                 dict(protect=()), dict(protect=("safe-to-forget",)), dict(uncertain=-1),
                                 dict(alpha=True), dict(alpha="1/0"), dict(alpha="1e-99999999"),
                                 dict(alpha="1e-9_9_9_9_9_9_9_9"), dict(uncertain="1e99999999"),
                                 dict(alpha="0." + "0" * 500 + "1")])
def test_bad_settings(bad):
    with pytest.raises(RecordError, match=next(iter(bad))):
        Control(**bad)


def test_losses():
    rows = [Scored("c", NEVER, 0.95, True), Scored("c", UNSURE, 0.9, True), Scored("c", UNSURE, 0.2, True),
            Scored("c", NEVER, 1.0, False), Scored("c", SAFE, 0.99, True), Scored("d", SAFE, 1.0, True)]

    def at(tau, **control):
        return crc.type_losses(rows, tau, Control(**control))

    assert at(0.9) == {"c": Fraction(2, 4), "d": 0}
    assert at(0.91) == {"c": Fraction(1, 4), "d": 0}
    assert at(0.9, loss="any") == {"c": 1, "d": 0} and at(0.99, loss="any") == {"c": 0, "d": 0}
    assert at(0.9, loss="weighted") == {"c": Fraction(3, 8), "d": 0}
    assert at(0.9, loss="weighted", uncertain="1/4") == {"c": Fraction(5, 16), "d": 0}
    assert at(0.9, protect=("never-forget",)) == {"c": Fraction(1, 2), "d": 0}
    assert at(0.9, nonempty=True) == {"c": Fraction(1, 2)}
    assert at(math.inf) == {"c": 0, "d": 0} and at(0.0) == {"c": Fraction(3, 4), "d": 0}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(crc.LABELS), st.integers(0, 6), st.booleans()),
                max_size=40), st.sampled_from(crc.LOSSES), st.sampled_from(["1/2", "1/5", "1/10", "1"]), st.booleans())
def test_the_least_threshold_that_the_definition_allows(raw, loss, alpha, nonempty):
    rows = [Scored(f"t{t}", label, s / 6, d) for t, label, s, d in raw]
    control = Control(alpha, loss, nonempty=nonempty)
    level = crc.calibrate(rows, control)

    def total(tau):
        return sum(crc.type_losses(rows, tau, control).values(), Fraction(0))

    def allowed(tau):
        return total(tau) + 1 <= control.alpha * (level.types + 1)

    grid = sorted({r.score for r in rows if r.deletable})
    losses = [total(t) for t in grid]
    assert losses == sorted(losses, reverse=True)  # monotone
    assert level.tau == next((t for t in grid if allowed(t)), math.inf)
    assert level.total == total(level.tau) and level.types == len(crc.type_losses(rows, 0.0, control))


def test_types_without_protected_memories_dilute_and_are_left_out_on_request():
    rows = types(60, lambda i: [(NEVER, 0.1), (SAFE, 0.9)]) + types(60, lambda i: [(SAFE, 0.8)], "e")
    assert crc.calibrate(rows).tau == 0.8 or crc.calibrate(rows).tau == 0.1
    assert crc.calibrate(rows, Control(nonempty=True)) == crc.Level(math.inf, 60, Fraction(0), Fraction(61, 100) - 1)


def test_groups_stand_on_their_own_types():
    rows = types(120, group="dose") + types(50, group="allergy")
    levels = crc.calibrate_groups(rows)
    assert levels["dose"].tau == 0.9 and levels["allergy"].tau == math.inf
    assert crc.calibrate(rows).tau == 0.9


@pytest.mark.parametrize("n, delta, deletes", [(229, "0.1", False), (230, "0.1", True), (298, "0.05", False),
                                               (299, "0.05", True)])
def test_learn_then_test_without_an_error(n, delta, deletes):
    level = crc.learn_then_test(types(n, lambda i: [(SAFE, 0.9), (NEVER, 0.1)]), delta=delta)
    assert (level.tau == 0.9) is deletes


def test_learn_then_test_stops_at_the_first_failure():
    rows = types(500, lambda i: [(SAFE, 0.9), (SAFE, 0.5), (NEVER, 0.6 if i < 2 else 0.4 if i < 30 else 0.1)])
    level = crc.learn_then_test(rows)
    p = [float(crc.binomial_tail(k, 500, Fraction(1, 100))) for k in (0, 2, 30)]
    assert p[0] < p[1] < 0.15 and p[2] > 0.9
    assert level.tau == (0.9 if p[1] > 0.1 else 0.5)
    assert crc.learn_then_test(rows, delta="0.15").tau == 0.5


def test_binomial_tail():
    scipy_stats = pytest.importorskip("scipy.stats")
    for k, n in ((0, 230), (3, 500), (50, 60), (60, 60)):
        assert float(crc.binomial_tail(k, n, Fraction(1, 100))) == pytest.approx(scipy_stats.binom.cdf(k, n, 0.01))


# ---- the bound ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def population() -> list[list[Scored]]:
    """3,000 types of 1 to 6 memories, those of one type alike; a scorer that is often wrong."""
    rng, out = np.random.default_rng(0), []
    for i in range(3000):
        bias = rng.normal(0, 0.15)
        rows = []
        for _ in range(rng.integers(1, 7)):
            label = crc.LABELS[rng.choice(3, p=(0.5, 0.2, 0.3))]
            score = float(np.clip((0.65 if label == SAFE else 0.4) + bias + rng.normal(0, 0.12), 0, 1))
            rows.append(Scored(f"t{i}", label, score, bool(rng.random() < 0.8)))
        out.append(rows)
    return out


@pytest.mark.parametrize("n, golden", [(50, 0.0), (99, 0.0011), (120, 0.0024), (200, 0.0056), (500, 0.0083)])
def test_expected_loss_by_the_number_of_types(n, golden):
    """Types of ten protected memories with scores drawn from U(0, 1), safe ones dense where it matters, 400
    calibrations. A threshold tau costs the next type 1 - tau in expectation, so that no fresh types are drawn."""
    rng = np.random.default_rng(n)
    protected, safe = rng.random((400, n, 10)), 1 - 0.04 * rng.random((400, n, 40))
    room = (n + 1) / 100 - 1
    allowed = math.floor(10 * room + 1e-9)  # protected memories that may go, each a tenth of its type's loss
    if room < 0:
        taus = np.full(400, np.inf)
    else:
        first = -np.partition(-protected.reshape(400, -1), allowed, axis=1)[:, allowed]  # the one that must stay
        above = np.concatenate([safe, protected], axis=2).reshape(400, -1)
        taus = np.where(above > first[:, None], above, np.inf).min(axis=1)
    for rep in range(2):  # the same thresholds as in exact arithmetic
        rows = [Scored(f"t{i}", label, float(s), True) for i in range(n) for label, drawn in (
            (NEVER, protected[rep, i]), (SAFE, safe[rep, i])) for s in drawn]
        assert crc.calibrate(rows).tau == taus[rep]
    losses = np.where(np.isinf(taus), 0.0, 1 - taus)
    se = losses.std(ddof=1) / 20
    assert abs(losses.mean() - golden) <= 3 * se + 5e-5 and losses.mean() <= 0.01 + 3 * se


@pytest.mark.parametrize("n, alpha, loss", [(50, "0.01", "strict"), (99, "0.01", "strict"), (150, "0.01", "any"),
                                            (40, "0.1", "strict"), (120, "0.05", "weighted"), (60, "0.1", "any")])
def test_expected_loss_of_the_next_type_is_at_most_alpha(population, n, alpha, loss):
    """400 calibrations on types drawn at random, each with 40 more of them: within three standard errors."""
    control, losses, deleted = Control(alpha, loss), [], 0
    rng = np.random.default_rng(n)
    for _ in range(400):
        drawn = [population[i] for i in rng.permutation(len(population))[:n + 40]]
        tau = crc.calibrate([r for rows in drawn[:n] for r in rows], control).tau
        fresh = [r for rows in drawn[n:] for r in rows]
        deleted += sum(r.deletable and r.score >= tau for r in fresh)
        losses.append(float(sum(crc.type_losses(fresh, tau, control).values())) / 40)
    mean, se = np.mean(losses), np.std(losses, ddof=1) / np.sqrt(400)
    assert mean <= float(control.alpha) + 3 * se
    if control.alpha * (n + 1) < 1:
        assert deleted == 0
    else:
        assert deleted > 0 and mean >= float(control.alpha) - 3 / (n + 1) - 3 * se  # and it does not waste the room


@pytest.mark.parametrize("written", ["1e-99999999", "1/0", "0." + "1" * 500, "nan", "1_0", "-0.1", "2"])
def test_what_is_no_share_is_refused_at_once(written):
    with pytest.raises(RecordError, match="alpha"):
        crc.exact(written, "alpha")

