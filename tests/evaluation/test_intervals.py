import numpy as np
import pytest

from beamtree.errors import InputError
from beamtree.evaluation import intervals
from beamtree.evaluation.intervals import Interval, difference, relative_difference


def test_a_constant_difference_has_no_spread() -> None:
    others = np.random.default_rng(0).random(50)
    assert difference(others + 0.25, others, seed=0) == pytest.approx((0.25, 0.25, 0.25))
    assert relative_difference(1.5 * others, others, seed=0) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_is_that_of_the_mean_of_differences_by_users() -> None:
    """400 differences of mean 0.1 and deviation 1 have a mean that is sure to 1.96 / 20; pairing removes the rest."""
    generator = np.random.default_rng(3)
    own, common = generator.normal(size=400), 10 * generator.normal(size=400)
    own = (own - own.mean()) / own.std() + 0.1
    found = difference(own + common, common, seed=1)
    assert found.estimate == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1 - 1.96 / 20, abs=0.005)
    assert found.high == pytest.approx(0.1 + 1.96 / 20, abs=0.005)


def test_two_users_by_hand() -> None:
    """Resamples are (both, once each, both of the other) with 1/4, 1/2, 1/4: differences 0, 1/2, 1."""
    assert difference(np.array([1.0, 1.0]), np.array([1.0, 0.0]), seed=0) == (0.5, 0.0, 1.0)


def test_a_resample_without_hits_of_the_other_is_infinitely_far_ahead() -> None:
    found = relative_difference(np.array([1.0, 1.0]), np.array([1.0, 0.0]), seed=0)
    assert found == (1.0, 0.0, np.inf)
    assert relative_difference(np.array([1.0, 0.0]), np.array([1.0, 0.0]), seed=0) == (0.0, 0.0, 0.0)


def test_both_agree_on_who_is_ahead() -> None:
    generator = np.random.default_rng(5)
    for shift in (-0.2, -0.05, 0.0, 0.05, 0.2):
        others = generator.random(60)
        values = np.clip(others + generator.normal(shift, 0.3, size=60), 0, None)
        plain, relative = difference(values, others, seed=2), relative_difference(values, others, seed=2)
        assert plain.holds_zero == relative.holds_zero
        assert np.sign(plain.estimate) == np.sign(relative.estimate)


@pytest.mark.parametrize("at_a_time", [7, 100, 10**6])
def test_blocks_do_not_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    values, others = np.random.default_rng(0).random((2, 13))
    expected = difference(values, others, seed=4)
    monkeypatch.setattr(intervals, "DRAWS_AT_A_TIME", at_a_time)
    assert difference(values, others, seed=4) == expected
    assert difference(values, others, seed=5) != expected


def test_many_users_are_resampled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MAX_DRAWS", 100)
    monkeypatch.setattr(intervals, "MIN_RESAMPLES", 3)
    values = np.random.default_rng(0).random((2, 50))
    _, resampled = intervals._means(values[0], values[1], seed=0)
    assert resampled.shape == (3, 2)


@pytest.mark.parametrize(("low", "high", "holds"), [(-1.0, 1.0, True), (0.0, 1.0, True), (0.1, 1.0, False)])
def test_zero_is_inside_or_not(low: float, high: float, holds: bool) -> None:
    assert Interval(0.5, low, high).holds_zero == holds


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="both systems for every user"):
        difference(np.ones(2), np.ones(3), seed=0)
    with pytest.raises(InputError, match="hits nothing"):
        relative_difference(np.ones(2), np.zeros(2), seed=0)
