"""Random catalogues: lists of the stated length, vectors that keep to the tree."""

import numpy as np
import pytest

from beamtree.model.memory import MAX_FOLLOWERS
from benchmarks.catalogue import HISTORY_LENGTH, Catalogue, distance_edges, followers_within


@pytest.mark.parametrize(("size", "length"), [(3, 1), (10, 4), (101, 50), (1000, 33), (7129, 300)])
def test_ranges_of_distances_reach_from_the_next_leaf_to_half_the_catalogue(size: int, length: int) -> None:
    edges = distance_edges(size, length=length)
    assert len(edges) == length + 1
    assert edges[0] == 1
    assert edges[-1] == (size - 1) // 2 + 1
    assert (np.diff(edges) >= 1).all()


def test_more_followers_than_distances_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 4 followers in a catalogue of 10 items, got 5"):
        distance_edges(10, length=5)


def test_every_item_has_two_lists_of_distinct_others() -> None:
    memory = Catalogue.draw(items=100, followers=12).memory
    for links in (memory.transitions, memory.company):
        lists = links.items.reshape(100, 12)
        assert links.offsets.tolist() == list(range(0, 1201, 12))
        assert (np.diff(lists, axis=1) > 0).all()
        assert (lists != np.arange(100)[:, None]).all()


def test_neighbours_on_the_leaves_have_like_vectors() -> None:
    catalogue = Catalogue.draw(items=256, followers=5)
    vectors = catalogue.item_vectors[catalogue.tree.item_at_leaf]
    siblings = (vectors[::2] * vectors[1::2]).sum(axis=1).mean()
    far_apart = (vectors[:128] * vectors[128:]).sum(axis=1).mean()
    assert siblings == pytest.approx(7 / 8, abs=0.05)  # they share all levels but the last of eight
    assert far_apart == pytest.approx(0.0, abs=0.05)


def test_requests_are_single_histories_of_known_items() -> None:
    requests = Catalogue.draw(items=30, followers=5).requests(4)
    assert [len(request) for request in requests] == [1] * 4
    histories = np.stack([request.histories.row(0) for request in requests])
    assert histories.shape == (4, HISTORY_LENGTH)
    assert histories.min() >= 0
    assert histories.max() < 30


def test_lists_are_as_long_as_by_default_unless_they_would_not_fit() -> None:
    default = MAX_FOLLOWERS
    assert followers_within(400, items=10_000) == default
    assert followers_within(400, items=1_000_000) == 33
    assert followers_within(400, items=21) == 10
