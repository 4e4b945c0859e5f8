"""Confidence intervals of the difference between two systems, by a paired bootstrap over users."""

from typing import NamedTuple

import numpy as np

from beamtree.errors import InputError
from beamtree.types import Float64Array

RESAMPLES = 10_000
MIN_RESAMPLES = 1_000
MAX_DRAWS = 50_000_000
"""Draws of users in all; above 5,000 users there are fewer resamples instead, and at least MIN_RESAMPLES."""
DRAWS_AT_A_TIME = 2**21
LEVEL = 0.95


class Interval(NamedTuple):
    """An estimate with its 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether the interval includes zero."""
        return self.low <= 0.0 <= self.high


def difference(values: Float64Array, others: Float64Array, *, seed: int) -> Interval:
    """The mean of `values` minus that of `others`, both (users,), user by user."""
    means, resampled = _means(values, others, seed=seed)
    return _interval(float(means[0] - means[1]), resampled[:, 0] - resampled[:, 1])


def relative_difference(values: Float64Array, others: Float64Array, *, seed: int) -> Interval:
    """The mean of `values` over that of `others`, minus one: 0.03 = ahead by 3 %. InputError where others are all 0.

    Its sign is that of `difference`, in every resample. A resample in which others are all 0 counts as infinitely far
    ahead, or as level where `values` are too.
    """
    means, resampled = _means(values, others, seed=seed)
    if means[1] == 0.0:
        raise InputError("A difference in proportion to a system that hits nothing has no value: ask for `difference`.")
    beaten = np.where(resampled[:, 0] > 0.0, np.inf, 0.0)
    ratios = np.divide(resampled[:, 0], resampled[:, 1], out=beaten + 1.0, where=resampled[:, 1] > 0.0)
    return _interval(float(means[0] / means[1] - 1.0), ratios - 1.0)


def _means(values: Float64Array, others: Float64Array, *, seed: int) -> tuple[Float64Array, Float64Array]:
    """The means of both (2,), and of each resample of the users (resamples, 2)."""
    if values.shape != others.shape or values.ndim != 1 or not len(values):
        raise InputError(f"Expected a value of both systems for every user, got {values.shape} and {others.shape}.")
    pairs = np.stack([values, others], axis=1).astype(np.float64)
    num_users = len(pairs)
    resamples = min(RESAMPLES, max(MIN_RESAMPLES, MAX_DRAWS // num_users))
    generator = np.random.default_rng(seed)
    block = max(1, DRAWS_AT_A_TIME // num_users)
    means = [
        pairs[generator.integers(0, num_users, size=(min(block, resamples - first), num_users))].mean(axis=1)
        for first in range(0, resamples, block)
    ]
    return pairs.mean(axis=0), np.concatenate(means)


def _interval(estimate: float, resampled: Float64Array) -> Interval:
    outside = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(resampled, [outside, 1.0 - outside], method="inverted_cdf")
    return Interval(estimate, float(low), float(high))
