import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamtree.baselines import item_to_item
from beamtree.baselines.item_to_item import (
    FADE,
    HISTORY_LENGTH,
    WINDOW,
    ItemToItem,
    TransitionScores,
    count_transitions,
)
from tests.baselines.small_logs import ask, budget, dataset_of, halves, whole


def counted(*lists: list[int], num_items: int) -> TransitionScores:
    dataset = dataset_of(list(lists), num_items=num_items)
    return count_transitions(dataset, whole(dataset))


def scores(model: TransitionScores, *history: int) -> NDArray[np.float32]:
    return np.asarray(model(ask(list(history)))[0])


def test_what_followed_counts_and_what_came_before_does_not() -> None:
    found = scores(counted([0, 1], [0, 1], [0, 2], [3, 0], num_items=4), 0)
    np.testing.assert_allclose(found, np.log1p([0, 2, 1, 0]), rtol=1e-6)


def test_users_and_held_out_interactions_are_kept_apart() -> None:
    assert not scores(counted([0], [1], num_items=2), 0).any(), "the next user's items follow nobody else's"
    dataset = dataset_of([[0, 1], [2, 3]], num_items=4)
    model = count_transitions(dataset, halves(dataset, validation=[0]))
    assert not scores(model, 0).any()
    assert scores(model, 2)[3] > 0


def test_an_item_never_follows_itself() -> None:
    np.testing.assert_allclose(scores(counted([0, 0, 1], num_items=2), 0), np.log1p([0, 2]), rtol=1e-6)


def test_only_what_came_soon_counts() -> None:
    between = [1] * (WINDOW - 1)
    assert scores(counted([0, *between, 2], num_items=3), 0)[2] > 0
    assert scores(counted([0, 1, *between, 2], num_items=3), 0)[2] == 0


def test_the_latest_items_of_a_history_count_most_and_those_long_ago_nothing() -> None:
    model = counted([0, 2], [1, 3], num_items=5)
    np.testing.assert_allclose(scores(model, 0, 1), np.log(2) * np.array([0, 0, FADE, 1, 0]), rtol=1e-6)
    assert scores(model, 0, *[4] * (HISTORY_LENGTH - 1))[2] > 0
    assert scores(model, 0, *[4] * HISTORY_LENGTH)[2] == 0


def test_where_nothing_followed_popular_items_come_after_those_that_did() -> None:
    """Item 3 is the most popular one and follows nothing; item 1 follows 0 once; 2 and 4 by their counts."""
    dataset = dataset_of([[0, 1], [3], [3], [3], [4], [4]], num_items=5)
    fitted = ItemToItem().fit(dataset, whole(dataset), budget=budget())
    assert fitted.search(ask([0], [2]), k=5).items.tolist() == [[1, 3, 4, 0, 2], [3, 4, 0, 1, 2]]


def test_lists_are_cut_only_where_all_together_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_to_item, "MAX_PAIRS", 6)
    monkeypatch.setattr(item_to_item, "MIN_FOLLOWERS", 1)
    assert np.flatnonzero(scores(counted([0, 1], [0, 2], [0, 2], num_items=3), 0)).tolist() == [1, 2]
    assert np.flatnonzero(scores(counted([0, 1], [0, 2], [0, 2], num_items=6), 0)).tolist() == [2]


@given(st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=5))
def test_counts_agree_with_a_plain_loop(lists: list[list[int]]) -> None:
    counts = np.zeros((5, 5))
    for items in lists:
        for here, item in enumerate(items):
            for other in items[here + 1 : here + 1 + WINDOW]:
                counts[item, other] += item != other
    model = counted(*lists, num_items=5)
    for item in range(5):
        np.testing.assert_allclose(scores(model, item), np.log1p(counts[item]), rtol=1e-6)
