from dataclasses import replace

import numpy as np
import pytest

from beamtree.data.profile import MIN_TIED_PAIRS, LogProfile, measure_log
from beamtree.types import AnyArray
from tests.small import sequences_of


def profile_of(lists: list[list[int]], times: AnyArray | list[int] | None = None, *, num_items: int = 10) -> LogProfile:
    return measure_log(
        sequences_of(lists), None if times is None else np.asarray(times, dtype=np.int64), num_items=num_items
    )


def test_a_small_log_by_hand() -> None:
    """Times tie for 7 3 of the first user and 1 4 of the second: two pairs, one falling, one rising."""
    found = profile_of([[7, 3, 7], [1, 4, 4, 4, 9]], [5, 5, 6, 6, 6, 7, 8, 9])
    assert found == LogProfile(
        users=2,
        items=10,
        interactions=8,
        density=5 / 20,
        shortest_history=3,
        median_history=3,
        longest_history=5,
        repeat_share=3 / 8,
        tied_share=4 / 8,
        tied_pairs=2,
        sorted_share=0.5,
        has_dates=False,
        long_history=3,
        long_users=2,
        usual_history=5,
    )


@pytest.mark.parametrize(
    ("lengths", "long_history", "long_users"),
    [
        ([15] * 99 + [40] + [2] * 200, 15, 100),
        ([15] * 99 + [14] * 3 + [2] * 200, 14, 102),
        ([20] * 30 + [5] * 80 + [3] * 10, 5, 110),
        ([20] * 30 + [4], 4, 31),
        ([20] * 30, 15, 30),
    ],
)
def test_a_history_is_long_from_15_on_or_where_the_hundred_longest_end(
    lengths: list[int], long_history: int, long_users: int
) -> None:
    found = profile_of([list(range(length)) for length in reversed(lengths)], num_items=40)
    assert (found.long_history, found.long_users) == (long_history, long_users)


def test_neighbours_of_different_users_do_not_tie() -> None:
    found = profile_of([[1, 2], [3, 4]], [1, 5, 5, 6])
    assert (found.tied_share, found.tied_pairs, found.sorted_share) == (0.0, 0, 0.0)


def test_nothing_ties_and_nothing_is_dated_without_times() -> None:
    found = profile_of([[1, 1, 1]])
    assert (found.tied_pairs, found.has_dates, found.repeat_share) == (0, False, 2 / 3)


@pytest.mark.parametrize(("repeats", "people_repeat"), [(9, False), (10, True)])
def test_people_repeat_from_one_interaction_in_ten_on(repeats: int, people_repeat: bool) -> None:
    """A hundred interactions, so many of them with item 0 once more."""
    history = [*range(100 - repeats), *[0] * repeats]
    assert profile_of([history], num_items=100).people_repeat is people_repeat


@pytest.mark.parametrize(
    ("history", "is_sorted"),
    [
        (list(range(21)), True),
        (list(range(21))[::-1], True),
        (list(range(20)), False),
        ([*range(19), 0, 1], True),
        ([5, 4, 3, *range(6, 24)], True),
        ([5, 4, 3, 2, *range(6, 23)], False),
    ],
    ids=["rising", "falling", "too few pairs", "one step back in 20", "two in 20", "three in 20"],
)
def test_ties_are_sorted_where_nine_of_ten_pairs_follow_the_items(history: list[int], is_sorted: bool) -> None:
    found = profile_of([history], np.zeros(len(history)), num_items=30)
    assert found.ties_are_sorted is is_sorted
    assert found.tied_pairs == len(history) - 1
    assert found.tied_share == 1.0


def test_a_random_order_is_not_sorted() -> None:
    order = np.random.default_rng(0).permutation(MIN_TIED_PAIRS + 1).tolist()
    assert not profile_of([order], np.zeros(len(order)), num_items=30).ties_are_sorted


@pytest.mark.parametrize(("first", "has_dates"), [(0, False), (1_500_000_000, True), (1_500_000_000_000, True)])
def test_times_are_dates_by_their_size(first: int, has_dates: bool) -> None:
    found = profile_of([[1, 2]], [first, first + 1])
    assert found.has_dates is has_dates
    assert found.lines() == [
        "histories of 2 to 2 interactions, median 2; density 20.000%; "
        + ("times are dates" if has_dates else "times are no dates: only their order is used")
    ]


def test_repeats_are_counted_among_the_rows_that_may_be_targets() -> None:
    """Somebody views 0 and 1, buys 0, views 0 again and buys 2: one of two purchases repeats an item."""
    sequences = sequences_of([[0, 1, 0, 0, 2]])
    weighed = replace(sequences, weights=np.array([0, 0, 1, 0, 1], dtype=np.float32))
    assert measure_log(sequences, None, num_items=3).repeat_share == 0.4
    assert measure_log(weighed, None, num_items=3).repeat_share == 0.5
