"""Statistics of a log: profile, history lengths, popularity of its items, time span."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.dataset import DEFAULT_MIN_INTERACTIONS, Times, order_in_time
from beamtree.data.interactions import InteractionLog
from beamtree.data.parse import seconds_per_unit
from beamtree.data.profile import LogProfile, measure_log
from beamtree.data.sequences import Sequences
from beamtree.data.vocabulary import Vocabulary
from beamtree.types import BoolArray, Int64Array

POPULARITY_SHARES: Final = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
LENGTH_QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class LengthBin:
    """Users whose history has between `shortest` and `longest` interactions, both included."""

    shortest: int
    longest: int
    users: int


@dataclass(frozen=True)
class LogDescription:
    """All figures about one log.

    profile: of the whole log; kept: of what remains when users with fewer than `min_interactions` are dropped, None
    without such users.
    length_quantiles: share of users -> history length; length_bins: one per power of two.
    popularity_curve: share of the items, most popular first -> share of all interactions that they receive.
    first_time, last_time: on the log's own scale; first_date, last_date: ISO, or None where times are no dates.
    """

    profile: LogProfile
    min_interactions: int
    kept: LogProfile | None
    length_quantiles: dict[float, int]
    length_bins: tuple[LengthBin, ...]
    popularity_curve: dict[float, float]
    first_time: float
    last_time: float
    first_date: str | None
    last_date: str | None


def describe_log(log: InteractionLog, *, min_interactions: int = DEFAULT_MIN_INTERACTIONS) -> LogDescription:
    """Compute the figures; exact, one pass per figure."""
    frame = log.frame
    users, items = (Vocabulary(frame[name].unique().sort()) for name in (USER_ID, ITEM_ID))
    sequences, times = order_in_time(frame, dense_user=users.encode(frame[USER_ID]), num_users=len(users), items=items)
    lengths = sequences.lengths
    first, last = float(times.min()), float(times.max())
    unit = seconds_per_unit(frame[TIMESTAMP])
    return LogDescription(
        profile=measure_log(sequences, times, num_items=len(items)),
        min_interactions=min_interactions,
        kept=_profile_of(sequences, times, users=lengths >= min_interactions),
        length_quantiles={share: int(np.quantile(lengths, share, method="inverted_cdf")) for share in LENGTH_QUANTILES},
        length_bins=_bin_lengths(lengths),
        popularity_curve=_popularity_curve(np.bincount(sequences.items)),
        first_time=first,
        last_time=last,
        first_date=_date(first, unit),
        last_date=_date(last, unit),
    )


def _profile_of(sequences: Sequences, times: Times, *, users: BoolArray) -> LogProfile | None:
    """The profile of some of the users and of the items that they touched; None where there are no such users."""
    if not users.any():
        return None
    rows = np.repeat(users, sequences.lengths)
    _, items = np.unique(sequences.items[rows], return_inverse=True)
    offsets = np.concatenate(([0], np.cumsum(sequences.lengths[users])))
    weights = None if sequences.weights is None else sequences.weights[rows]
    some = Sequences(items.astype(np.int32), offsets, weights)
    return measure_log(some, times[rows], num_items=int(items.max()) + 1)


def _bin_lengths(lengths: Int64Array) -> tuple[LengthBin, ...]:
    """1, 2-3, 4-7, 8-15, ...: from the shortest history's bin to the longest's, empty ones between included."""
    powers = np.frexp(lengths.astype(np.float64))[1] - 1
    users = np.bincount(powers)
    first = int(np.flatnonzero(users)[0])
    return tuple(LengthBin(2**power, 2 ** (power + 1) - 1, int(users[power])) for power in range(first, len(users)))


def _popularity_curve(counts: Int64Array) -> dict[float, float]:
    running = np.cumsum(np.sort(counts)[::-1])
    ends = {share: max(1, round(share * len(counts))) for share in POPULARITY_SHARES}
    return {share: float(running[end - 1] / running[-1]) for share, end in ends.items()}


def _date(time: float, unit: float | None) -> str | None:
    if unit is None:
        return None
    return datetime.fromtimestamp(time * unit, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
