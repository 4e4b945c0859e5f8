"""The profile of a log: share of repeats, ties in time and their order, density."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import polars as pl

from beamtree.data.parse import seconds_per_unit
from beamtree.data.sequences import Sequences
from beamtree.types import AnyArray, Int64Array

MANY_REPEATS: Final = 0.1
"""From this share of repeats on, seen items may be recommended: excluding them would exclude one label in ten.

Film and book ratings and the review logs of shops have none, news clicks 2 %, groceries 41 %.
"""

SORTED_PAIRS: Final = 0.9
"""Tied neighbours count as sorted by item from this share on; half of them rise in any order that ignores the items."""

MIN_TIED_PAIRS: Final = 20
"""Fewer pairs say nothing: of 20 in a random order, 18 rise or fall together once in 2,500 logs."""

LONG_HISTORY: Final = 15
"""Users with this number of interactions can be held out: seven are input, eight are labels."""

MIN_LONG_USERS: Final = 100
"""Shorter histories count as long where fewer users have a long one: of 100 users, 10 validate and 10 test."""

USUAL: Final = 0.95
"""The share of users whose histories are usual in length."""


@dataclass(frozen=True)
class LogProfile:
    """Measured once, when a log is read, on its interactions in the order of time.

    density: distinct pairs of user and item over all pairs; median_history and its neighbours: interactions per user.
    repeat_share: of the interactions that may be targets, those with an item that the same user had before. tied_share:
    interactions that share user and time with another one, so that only the order of the rows tells which came first.
    tied_pairs: neighbours among those; sorted_share: how many of them follow the item ids, rising or falling, whichever
    is more; 0 without pairs.
    has_dates: whether times are moments, and not numbers that only put the interactions in order.
    long_history: interactions from which on a history counts as long: 15, or those of the user with the 100th longest
    history where fewer than 100 have 15 (of the shortest, where there are fewer than 100 users); long_users: the
    number of users with such a history. usual_history: interactions that 95 % of the users do not exceed.
    """

    users: int
    items: int
    interactions: int
    density: float
    shortest_history: int
    median_history: int
    longest_history: int
    repeat_share: float
    tied_share: float
    tied_pairs: int
    sorted_share: float
    has_dates: bool
    long_history: int
    long_users: int
    usual_history: int

    @classmethod
    def recorded(cls, facts: Mapping[str, Any]) -> "LogProfile | None":
        """A profile that a model keeps; None where an earlier version measured something else."""
        return cls(**facts) if facts.keys() == {field.name for field in fields(cls)} else None

    @property
    def people_repeat(self) -> bool:
        """Whether repeats are common enough that seen items are worth recommending."""
        return self.repeat_share >= MANY_REPEATS

    @property
    def ties_are_sorted(self) -> bool:
        """Whether tied rows are sorted by item id, which leaks the next item."""
        return self.tied_pairs >= MIN_TIED_PAIRS and self.sorted_share >= SORTED_PAIRS

    def lines(self) -> list[str]:
        """The profile as sentences to print or to log."""
        times = "times are dates" if self.has_dates else "times are no dates: only their order is used"
        return [
            f"histories of {self.shortest_history:,} to {self.longest_history:,} interactions, median "
            f"{self.median_history:,}; density {self.density:.3%}; {times}"
        ]


def measure_log(sequences: Sequences, times: AnyArray | None, *, num_items: int) -> LogProfile:
    """The profile of sequences whose dense ids rise with the raw ones; times: (N,), aligned with `sequences.items`.

    At least one interaction.
    """
    lengths, items = sequences.lengths, sequences.items
    users = np.repeat(np.arange(len(sequences)), lengths)
    keys = np.sort(users * num_items + items)
    distinct = 1 + int(np.count_nonzero(np.diff(keys)))
    pairs = np.zeros(len(items) - 1, dtype=np.bool_)
    if times is not None:
        pairs = (np.diff(users) == 0) & (np.diff(times) == 0)
    tied = np.concatenate((pairs, [False])) | np.concatenate(([False], pairs))
    rising, falling = (int(np.count_nonzero(pairs & step)) for step in (np.diff(items) > 0, np.diff(items) < 0))
    num_pairs = int(np.count_nonzero(pairs))
    long_history = _long_history(lengths)
    return LogProfile(
        users=len(sequences),
        items=num_items,
        interactions=len(items),
        density=distinct / (len(sequences) * num_items),
        shortest_history=int(lengths.min()),
        median_history=int(np.quantile(lengths, 0.5, method="inverted_cdf")),
        longest_history=int(lengths.max()),
        repeat_share=_repeat_share(sequences, num_items=num_items, distinct=distinct),
        tied_share=float(tied.mean()),
        tied_pairs=num_pairs,
        sorted_share=max(rising, falling) / num_pairs if num_pairs else 0.0,
        has_dates=times is not None and seconds_per_unit(pl.Series(times)) is not None,
        long_history=long_history,
        long_users=int(np.count_nonzero(lengths >= long_history)),
        usual_history=int(np.quantile(lengths, USUAL, method="inverted_cdf")),
    )


def _repeat_share(sequences: Sequences, *, num_items: int, distinct: int) -> float:
    """Of the interactions that may be targets, those with an item that the same user had before.

    distinct: pairs of user and item.
    """
    places, size = sequences.target_places, len(sequences.items)
    if places is None:
        return (size - distinct) / size
    users = np.repeat(np.arange(len(sequences)), sequences.lengths)
    _, first = np.unique(users * num_items + sequences.items, return_index=True)
    is_repeat = np.ones(size, dtype=np.bool_)
    is_repeat[first] = False
    return float(is_repeat[places].mean())


def _long_history(lengths: Int64Array) -> int:
    """LONG_HISTORY, or less where fewer than MIN_LONG_USERS reach it; lengths: (users,), at least one."""
    place = max(0, len(lengths) - MIN_LONG_USERS)
    return min(LONG_HISTORY, int(np.partition(lengths, place)[place]))
