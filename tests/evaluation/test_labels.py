"""Labels that count: worked out by hand for three users."""

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.interactions import InteractionLog
from beamtree.data.requests import Requests
from beamtree.data.split import HeldOut
from beamtree.errors import DataError, SettingsError
from beamtree.evaluation.labels import _among, reachable_labels
from beamtree.evaluation.protocol import describe_protocol, evaluate
from beamtree.retrieval.result import SearchResult
from tests.small import ragged, small_config


def dataset_of(lists: list[list[int]]) -> Dataset:
    """Item i is called i, user u is u, and the places in a list are the times."""
    rows = [(user, item, time) for user, items in enumerate(lists) for time, item in enumerate(items)]
    log = InteractionLog(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))
    return prepare_dataset(log, min_interactions=1)


def held_out(*spans: tuple[int, int, int]) -> HeldOut:
    """(start, middle, end) of each user: history before the middle, labels after it."""
    start, middle, end = np.array(spans, dtype=np.int64).T.copy()
    return HeldOut(np.arange(len(spans), dtype=np.int32), start, middle, middle, end)


# 0 1 2 goes on to 3 3 0 4: label 0 was seen. 5 1 goes on to 1 5: both were. 2 goes on to 0, which others have seen.
DATASET = dataset_of([[0, 1, 2, 3, 3, 0, 4], [5, 1, 1, 5], [2, 0]])
USERS = held_out((0, 3, 7), (7, 9, 11), (11, 12, 13))


def config_with(*, protocol: str = "clean", exclude_seen: bool | None = True) -> Config:
    return small_config(data={"protocol": protocol}, retrieval={"exclude_seen": exclude_seen})


class Listed:
    """A system that gives user u the list u, and remembers whom it was asked for."""

    def __init__(self, lists: list[list[int]]) -> None:
        self.lists = np.array(lists, dtype=np.int32)
        self.asked: list[int] = []

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        assert requests.users is not None
        self.asked = requests.users.tolist()
        items = np.ascontiguousarray(self.lists[requests.users, :k])
        return SearchResult(items, np.zeros(items.shape, dtype=np.float32))


RECOMMENDED = [[3, 5, 4], [2, 3, 4], [0, 1, 3]]


def measured(**changes: Any) -> tuple[Any, list[int]]:
    system = Listed(RECOMMENDED)
    found = evaluate(system, DATASET, USERS, config=config_with(**changes), cutoffs=(3,))
    return found, system.asked


@pytest.mark.parametrize(
    ("items", "rows", "seen", "expected"),
    [
        ([9, 0], [0, 1], [[1], [4]], [False, False]),
        ([4], [1], [[9], [1]], [False]),
        ([4, 9, 1, 4], [0, 0, 1, 1], [[9], [1]], [False, True, True, False]),
    ],
)
def test_what_another_user_has_seen_is_not_taken_for_ones_own(
    items: list[int], rows: list[int], seen: list[list[int]], expected: list[bool]
) -> None:
    """Whichever of labels and seen items has the largest id."""
    labels = np.array(items, dtype=np.int32), np.array(rows, dtype=np.int64)
    assert _among(labels, ragged(seen)).tolist() == expected


@pytest.mark.parametrize(("protocol", "exclude_seen"), [("clean", True), ("clean", False), ("paper", True)])
def test_seen_items_are_excluded_where_the_settings_and_the_protocol_say_so(protocol: str, exclude_seen: bool) -> None:
    config = config_with(protocol=protocol, exclude_seen=exclude_seen)
    found = reachable_labels(USERS, DATASET.sequences, config=config)
    assert found.excludes_seen is (protocol == "clean" and exclude_seen)


def test_labels_that_were_seen_do_not_count_and_users_without_others_are_left_out() -> None:
    """Labels {3, 4} and {0}: hits 3, 4 of two, and 0 of one. Label 0 of the first and both of the second are seen."""
    found, asked = measured()
    assert asked == [0, 2]
    assert (found.num_users, found.num_seen_labels, found.num_left_out) == (2, 3, 1)
    assert found["recall@3"] == pytest.approx((2 / 2 + 1) / 2)
    assert found["precision@3"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert found.per_user["recall@3"].tolist() == [1.0, 1.0]


def test_labels_and_users_as_arrays() -> None:
    found = reachable_labels(USERS, DATASET.sequences, config=config_with())
    items, offsets = found.labels
    assert found.users.user.tolist() == [0, 2]
    assert (items.tolist(), offsets.tolist()) == ([3, 4, 0], [0, 2, 3])
    assert found.excludes_seen


def test_where_seen_items_may_be_recommended_every_distinct_label_counts() -> None:
    """Labels {3, 0, 4}, {1, 5} and {0}."""
    found, asked = measured(exclude_seen=False)
    assert asked == [0, 1, 2]
    assert (found.num_users, found.num_seen_labels, found.num_left_out) == (3, 0, 0)
    assert found["recall@3"] == pytest.approx((2 / 3 + 0 + 1) / 3)


@pytest.mark.parametrize("exclude_seen", [True, False, None])
def test_the_published_protocol_counts_all_labels_each_time(exclude_seen: bool | None) -> None:
    """Labels [3, 3, 0, 4], [1, 5] and [0], whatever the product does with seen items."""
    found, asked = measured(protocol="paper", exclude_seen=exclude_seen)
    assert asked == [0, 1, 2]
    assert (found.num_users, found.num_seen_labels, found.num_left_out) == (3, 0, 0)
    assert found["recall@3"] == pytest.approx((2 / 4 + 0 + 1) / 3)


def test_against_sets_for_random_users() -> None:
    generator = np.random.default_rng(0)
    lists = [generator.integers(0, 12, size=generator.integers(2, 20)).tolist() for _ in range(60)]
    dataset = dataset_of(lists)
    starts = dataset.sequences.offsets
    spans = [(int(start), int(start + end) // 2, int(end)) for start, end in pairwise(starts)]
    found = reachable_labels(held_out(*spans), dataset.sequences, config=config_with())
    expected, left_out, seen = {}, 0, 0
    for user, items in enumerate(lists):
        middle = spans[user][1] - spans[user][0]
        history, later = set(items[:middle]), set(items[middle:])
        seen += len(later & history)
        left_out += not later - history
        if later - history:
            expected[user] = later - history
    items, offsets = found.labels
    rows = np.split(items, offsets[1:-1])
    assert {int(user): set(row.tolist()) for user, row in zip(found.users.user, rows, strict=True)} == expected
    assert (found.num_seen_labels, found.num_left_out) == (seen, left_out)
    assert left_out > 0


def test_the_sentence_counts_what_does_not_count() -> None:
    found, _ = measured()
    assert describe_protocol(config_with(), found) == (
        "protocol clean: distinct labels not seen before, seen items are not recommended; 3 labels that were seen "
        "before do not count (users left out for that: 1)"
    )
    assert describe_protocol(config_with()) == (
        "protocol clean: distinct labels not seen before, seen items are not recommended"
    )
    without, _ = measured(exclude_seen=False)
    assert describe_protocol(config_with(exclude_seen=False), without) == (
        "protocol clean: distinct labels, seen items may be recommended"
    )
    assert describe_protocol(config_with(protocol="paper")) == (
        "protocol paper: repeated labels count each time, seen items may be recommended"
    )


def test_nothing_to_hit_is_an_error_with_a_remedy() -> None:
    only_repeats = USERS.take(np.array([1]))
    with pytest.raises(DataError, match=r"All labels of the 1 held-out users were seen .*exclude_seen=false"):
        reachable_labels(only_repeats, DATASET.sequences, config=config_with())
    nobody = USERS.take(slice(0, 0))
    assert len(reachable_labels(nobody, DATASET.sequences, config=config_with()).users) == 0


def test_a_protocol_that_nobody_decided_is_refused() -> None:
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        reachable_labels(USERS, DATASET.sequences, config=config_with(exclude_seen=None))
