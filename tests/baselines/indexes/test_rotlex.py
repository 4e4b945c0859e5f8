import numpy as np
import pytest
import torch

from beamtree.baselines.indexes.rotlex import bucket_lists
from beamtree.baselines.indexes.rotlex_router import (
    Router,
    assign_to_buckets,
    exact_neighbours,
    first_buckets,
    learn_buckets,
    mean_over_askers,
)
from tests.baselines.indexes.communities import BUDGET, cloud

POINTS = cloud()


def test_the_first_buckets_are_of_one_size_and_hold_what_is_near() -> None:
    buckets = first_buckets(POINTS.vectors, branching=4, generator=np.random.default_rng(0))
    assert np.bincount(buckets, minlength=16).tolist() == [25] * 16
    spread = np.mean([POINTS.vectors[buckets == bucket].var(axis=0).sum() for bucket in range(16)])
    assert spread < 0.7 * POINTS.vectors.var(axis=0).sum()


def test_affinity_is_the_mean_over_those_who_ask_for_an_item() -> None:
    neighbours = np.array([[0, 1], [1, 2]], dtype=np.int32)
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6]], dtype=np.float32)
    affinity = mean_over_askers(neighbours, probabilities, num_items=4)
    np.testing.assert_allclose(affinity(slice(0, 4)), [[0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.0, 0.0]])
    np.testing.assert_allclose(affinity(slice(1, 2)), [[0.6, 0.4]])


def test_the_strongest_pairs_come_first_and_full_buckets_take_nobody() -> None:
    """Four items, two buckets with room for three each: the weakest lover of bucket 0 has to leave."""
    affinity = np.array([[0.9, 0.1], [0.7, 0.6], [0.8, 0.5], [0.85, 0.2]], dtype=np.float32)
    assert assign_to_buckets(lambda rows: affinity[rows], num_items=4, buckets=2).tolist() == [0, 1, 0, 0]


def test_who_finds_all_considered_buckets_full_goes_where_room_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamtree.baselines.indexes.rotlex_router.CONSIDERED_BUCKETS", 1)
    affinity = np.array([[0.9, 0.0, 0.1], [0.8, 0.0, 0.1], [0.7, 0.0, 0.1]], dtype=np.float32)
    assert assign_to_buckets(lambda rows: affinity[rows], num_items=3, buckets=3).tolist() == [0, 0, 1]


def test_exact_neighbours_are_those_of_a_full_sort() -> None:
    found = exact_neighbours(POINTS.asked, POINTS.vectors, count=7)
    assert found.tolist() == POINTS.exact(7).tolist()


def test_the_beam_keeps_nodes_then_buckets_below_them() -> None:
    """Bucket 3 scores best but stands below the node that a beam of one drops."""
    router = Router(1, branching=2, width=1, seed=0)
    with torch.no_grad():
        router.nodes.copy_(torch.tensor([[2.0], [1.0]]))
        router.buckets.copy_(torch.tensor([[1.0], [3.0], [2.0], [9.0]]))
        sign = router.eval().query_encoder(torch.ones(1, 1)).sign()
        router.buckets.mul_(sign)
        router.nodes.mul_(sign)
    one = np.ones((1, 1), dtype=np.float32)
    assert router.best_buckets(one, count=1)[0].tolist() == [[1]]
    assert router.best_buckets(one, count=3)[0].tolist() == [[3, 1, 2]]


def test_it_learns_where_the_neighbours_of_a_query_are() -> None:
    """Of the exact top ten, the best four of 16 buckets hold far more than a quarter."""
    router, bucket_of_item = learn_buckets(
        POINTS.vectors,
        POINTS.training_queries(200),
        branching=4,
        width=32,
        rounds=2,
        epochs_per_round=15,
        budget=BUDGET,
    )
    assert np.bincount(bucket_of_item, minlength=16).max() <= np.ceil(1.5 * 400 / 16)
    best, _ = router.best_buckets(POINTS.asked, count=4)
    held = [np.isin(bucket_of_item[exact], row).mean() for exact, row in zip(POINTS.exact(10), best, strict=True)]
    assert np.mean(held) > 0.65


def test_lists_hold_each_item_in_its_bucket() -> None:
    pytest.importorskip("faiss")
    lists = bucket_lists(POINTS.vectors, np.arange(400) % 4, buckets=4)
    only = np.full((50, 1), 2, dtype=np.int64)
    lists.nprobe = 1
    _, items = lists.search_preassigned(POINTS.asked, 100, only, np.zeros((50, 1), dtype=np.float32))
    assert sorted(items[0].tolist()) == list(range(2, 400, 4))
