"""What a log looks like, in numbers: its size, history lengths, the popularity of its items, its time span."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.dataset import DEFAULT_MIN_INTERACTIONS
from beamtree.data.interactions import InteractionLog
from beamtree.data.parse import seconds_per_unit

POPULARITY_SHARES: Final = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
LENGTH_QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class LengthBin:
    """Users whose history has between `shortest` and `longest` interactions, both included."""

    shortest: int
    longest: int
    users: int


@dataclass(frozen=True)
class Kept:
    """What remains when users with fewer than `min_interactions` are dropped."""

    min_interactions: int
    users: int
    items: int
    interactions: int


@dataclass(frozen=True)
class LogDescription:
    """All figures about one log.

    length_quantiles: share of users -> history length; length_bins: one per power of two.
    popularity_curve: share of the items, most popular first -> share of all interactions that they receive.
    first_time, last_time: on the log's own scale; first_date, last_date: ISO, or None where times are no dates.
    repeat_share: interactions with an item that the same user had before; tied_share: those that share user and time
    with another interaction, so that only the order in the file tells which came first.
    """

    users: int
    items: int
    interactions: int
    density: float
    length_quantiles: dict[float, int]
    length_bins: tuple[LengthBin, ...]
    popularity_curve: dict[float, float]
    first_time: float
    last_time: float
    first_date: str | None
    last_date: str | None
    repeat_share: float
    tied_share: float
    kept: Kept


def describe_log(log: InteractionLog, *, min_interactions: int = DEFAULT_MIN_INTERACTIONS) -> LogDescription:
    """Compute the figures; exact, one pass per figure."""
    frame = log.frame
    per_user = frame.group_by(USER_ID).len()
    lengths = per_user["len"].to_numpy().astype(np.int64)
    counts = frame.group_by(ITEM_ID).len()["len"].to_numpy().astype(np.int64)
    times = frame[TIMESTAMP]
    first, last = (float(value) for value in (times.min(), times.max()) if isinstance(value, int | float))
    unit = seconds_per_unit(times)
    total = frame.height
    distinct_pairs = frame.select(USER_ID, ITEM_ID).n_unique()
    per_moment = frame.group_by(USER_ID, TIMESTAMP).len()["len"]
    tied = int(per_moment.filter(per_moment > 1).sum())
    long_users = per_user.filter(pl.col("len") >= min_interactions)
    remaining = frame.join(long_users, on=USER_ID, how="semi")
    return LogDescription(
        users=len(lengths),
        items=len(counts),
        interactions=total,
        density=distinct_pairs / (len(lengths) * len(counts)),
        length_quantiles={share: int(np.quantile(lengths, share, method="inverted_cdf")) for share in LENGTH_QUANTILES},
        length_bins=_bin_lengths(lengths),
        popularity_curve=_popularity_curve(counts),
        first_time=first,
        last_time=last,
        first_date=_date(first, unit),
        last_date=_date(last, unit),
        repeat_share=1 - distinct_pairs / total,
        tied_share=tied / total,
        kept=Kept(min_interactions, long_users.height, remaining[ITEM_ID].n_unique(), remaining.height),
    )


def _bin_lengths(lengths: npt.NDArray[np.int64]) -> tuple[LengthBin, ...]:
    """1, 2-3, 4-7, 8-15, ...: from the shortest history's bin to the longest's, empty ones between included."""
    powers = np.frexp(lengths.astype(np.float64))[1] - 1
    users = np.bincount(powers)
    first = int(np.flatnonzero(users)[0])
    return tuple(LengthBin(2**power, 2 ** (power + 1) - 1, int(users[power])) for power in range(first, len(users)))


def _popularity_curve(counts: npt.NDArray[np.int64]) -> dict[float, float]:
    running = np.cumsum(np.sort(counts)[::-1])
    ends = {share: max(1, round(share * len(counts))) for share in POPULARITY_SHARES}
    return {share: float(running[end - 1] / running[-1]) for share, end in ends.items()}


def _date(time: float, unit: float | None) -> str | None:
    if unit is None:
        return None
    return datetime.fromtimestamp(time * unit, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
