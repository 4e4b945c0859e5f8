"""Trees of buckets, what competes on their levels, and where items go, on trees small enough to draw."""

import math

import numpy as np
import pytest
import torch

from beamtree.baselines.trees.bucket_tree import BucketTree, cluster, overlapped
from beamtree.baselines.trees.jtr_model import bucket_candidates, contrast, level_candidates

#       root
#     0        1          level 1
#   0   1    2   3  4     buckets
TREE = BucketTree(
    (np.array([0, 2]), np.array([0, 2, 5])),
    np.array([[0, -1], [0, 3], [1, -1], [2, -1], [3, -1], [4, 0]]),
)


def test_paths_and_buckets() -> None:
    assert (TREE.height, TREE.num_leaves, TREE.size(1), TREE.size(2)) == (2, 5, 2, 5)
    assert TREE.paths.tolist() == [[0, 0, 1, 1, 1], [0, 1, 2, 3, 4]]
    assert TREE.buckets.tolist() == [[0, 1, 5], [2, -1, -1], [3, -1, -1], [1, 4, -1], [5, -1, -1]]


def test_a_beam_keeps_the_best_of_each_level() -> None:
    """Node 1 wins level 1; a beam of one finds its best bucket, 3, a beam of two the best of all, 0."""
    query = np.array([1.0], dtype=np.float32)
    vectors = [np.array([[1.0], [2.0]], dtype=np.float32), np.array([[9.0], [1], [3], [5], [4]], dtype=np.float32)]
    assert TREE.search(query, vectors, beam_width=1).tolist() == [3]
    assert TREE.search(query, vectors, beam_width=2).tolist() == [0, 3]
    assert TREE.search(query, vectors, beam_width=9).tolist() == [0, 3, 4, 2, 1]


def test_items_go_to_the_two_buckets_that_most_queries_found() -> None:
    """Item 1: bucket 4 three times, 0 and 2 once, of which the lower is taken. Item 2: bucket 3 alone. Others stay."""
    items = np.array([1, 1, 1, 2], dtype=np.int32)
    leaves = np.array([[4, 2], [4, 0], [4, -1], [3, -1]])
    expected = [[0, -1], [4, 0], [3, -1], [2, -1], [3, -1], [4, 0]]
    assert overlapped(TREE, items, leaves).tolist() == expected


def test_clusters_are_small_enough_and_hold_each_item_once() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(300, 4)).astype(np.float32)
    vectors[:100] = 1.0  # cannot be told apart
    tree, centres = cluster(vectors, branching=3, max_items=7, generator=generator)
    items = tree.buckets[tree.buckets >= 0]
    assert sorted(items.tolist()) == list(range(300))
    assert tree.buckets.shape[1] <= 7
    assert all(np.diff(first).max() <= 3 and np.diff(first).min() >= 1 for first in tree.first_child)
    for level, of_level in enumerate(centres, start=1):
        assert len(of_level) == tree.size(level)
        node_of_item = tree.paths[level - 1, tree.leaves_of_item[:, 0]]
        for node in range(len(of_level)):
            np.testing.assert_allclose(of_level[node], vectors[node_of_item == node].mean(axis=0), atol=1e-5)


def test_two_groups_far_apart_are_two_buckets() -> None:
    vectors = np.array([[0.0], [10.0], [0.1], [10.1]], dtype=np.float32)
    tree, _ = cluster(vectors, branching=2, max_items=2, generator=np.random.default_rng(0))
    assert {frozenset(bucket.tolist()) for bucket in tree.buckets} == {frozenset({0, 2}), frozenset({1, 3})}


def test_siblings_compete_first_then_others() -> None:
    positives = np.array([0, 3])
    whole = level_candidates(TREE, positives, 2, negatives=4, generator=np.random.default_rng(0))
    assert whole.tolist() == [[0, -1, 1, 2, 3, 4], [3, 0, 1, 2, -1, 4]]
    drawn = level_candidates(TREE, positives, 2, negatives=3, generator=np.random.default_rng(0))
    assert drawn[:, :4].tolist() == [[0, -1, 1, -1], [3, 2, -1, 4]], "the positive and its siblings"


def test_what_is_drawn_is_no_sibling() -> None:
    """Six nodes of two buckets each; of bucket 4, sibling 5 first and then three of the ten others, or fewer."""
    tree = BucketTree((np.array([0, 6]), np.arange(0, 13, 2)), np.stack([np.arange(12), np.full(12, -1)], axis=1))
    found = level_candidates(tree, np.full(50, 4), 2, negatives=5, generator=np.random.default_rng(0))
    assert (found[:, :3] == [4, -1, 5]).all()
    drawn = found[:, 3:]
    assert drawn.shape == (50, 3)
    assert set(drawn.ravel().tolist()) == {-1, *range(4), *range(6, 12)}


def test_the_items_of_the_bucket_compete_with_the_target() -> None:
    assert bucket_candidates(TREE, np.array([1, 3], dtype=np.int32)).tolist() == [[1, 0, -1, 5], [3, -1, -1, -1]]


def test_cross_entropy_of_inner_products_by_hand() -> None:
    """Scores ln 1 and ln 3 against ln 2: -ln(1/4) of the first row's positive; a row without others costs nothing."""
    table = torch.log(torch.tensor([[1.0], [3.0], [2.0]]))
    loss = contrast(torch.ones(2, 1), table, np.array([[0, 1, -1], [2, -1, -1]]))
    assert loss.item() == pytest.approx(math.log(4.0) / 2)
