import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.rivals.item_to_item import FADING, WINDOW, ItemToItem


def fitted(*lists: list[int], num_items: int, end: int | None = None) -> ItemToItem:
    """From users who did this, of whom the training sees all, or only what lies before `end`."""
    items = np.array([item for each in lists for item in each], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    ends = offsets[1:] if end is None else np.minimum(offsets[1:], end)
    spans = Spans(np.arange(len(lists), dtype=np.int32), offsets[:-1], ends)
    return ItemToItem.fit(Sequences(items, offsets), spans, num_items=num_items)


def scores(model: ItemToItem, *history: int) -> NDArray[np.float32]:
    return model.scores(np.array([history], dtype=np.int32)).reshape(-1)


def test_what_followed_counts_and_what_came_before_does_not() -> None:
    found = scores(fitted([0, 1], [0, 1], [0, 2], [3, 0], num_items=4), 0)
    np.testing.assert_allclose(found, np.log1p([0, 2, 1, 0]), rtol=1e-6)


def test_users_and_held_out_interactions_are_kept_apart() -> None:
    assert not scores(fitted([0], [1], num_items=2), 0).any(), "the next user's items follow nobody else's"
    assert not scores(fitted([0, 1], num_items=2, end=1), 0).any()


def test_an_item_never_follows_itself() -> None:
    np.testing.assert_allclose(scores(fitted([0, 0, 1], num_items=2), 0), np.log1p([0, 2]), rtol=1e-6)


def test_only_what_came_soon_counts() -> None:
    between = [1] * (WINDOW - 1)
    assert scores(fitted([0, *between, 2], num_items=3), 0)[2] > 0
    assert scores(fitted([0, 1, *between, 2], num_items=3), 0)[2] == 0


def test_of_a_large_log_every_nth_user_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.rivals.item_to_item.MOST_INTERACTIONS", 6)
    assert scores(fitted([0, 1], [0, 2], [0, 1], [0, 2], num_items=3), 0)[1:].tolist() == [np.log1p(np.float32(2)), 0]


def test_latest_items_of_a_history_count_most_and_padding_nothing() -> None:
    model = fitted([0, 2], [1, 3], num_items=4)
    found = scores(model, -1, -1, 0, 1)
    np.testing.assert_allclose(found, np.log(2) * np.array([0, 0, FADING, 1]), rtol=1e-6)
    assert not scores(model, -1, -1).any()


@given(st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=5))
def test_counts_agree_with_a_plain_loop(lists: list[list[int]]) -> None:
    counts = np.zeros((5, 5))
    for items in lists:
        for here, item in enumerate(items):
            for other in items[here + 1 : here + 1 + WINDOW]:
                counts[item, other] += item != other
    np.testing.assert_allclose(fitted(*lists, num_items=5).followers.toarray(), np.log1p(counts), rtol=1e-6)
