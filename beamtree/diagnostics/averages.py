"""Means over users with their standard errors; the histories of one user count as one observation."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from beamtree.evaluation.intervals import difference
from beamtree.types import Float64Array, FloatArray, Int64Array


@dataclass(frozen=True)
class Average:
    """A mean over users and its standard error; the error is None for a single user."""

    mean: float
    standard_error: float | None


@dataclass(frozen=True)
class Bounded:
    """A mean over users, or a mean difference, and its 95 % interval by a bootstrap over users."""

    mean: float
    low: float
    high: float

    @classmethod
    def difference(cls, values: Float64Array, others: Float64Array, *, seed: int) -> Self:
        """The mean of `values` minus that of `others`, both (users,), user by user."""
        return cls(*difference(values, others, seed=seed))

    @property
    def holds_zero(self) -> bool:
        """Whether the interval includes zero."""
        return self.low <= 0.0 <= self.high


def average_over_users(values: FloatArray) -> Average:
    """The mean of one value per user (users,), one user or more."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Average(mean=float(values.mean()), standard_error=error)


def average_over_histories(values: FloatArray, user_row: Int64Array) -> Average | None:
    """The mean over users of values (histories,), each user's histories averaged first; NaN is left out.

    user_row: (histories,). None where no history has a value.
    """
    has_value = np.isfinite(values)
    if not has_value.any():
        return None
    _, place = np.unique(user_row[has_value], return_inverse=True)
    return average_over_users(np.bincount(place, weights=values[has_value]) / np.bincount(place))
