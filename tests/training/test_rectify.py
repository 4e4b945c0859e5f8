"""Rectified labels against the definition, and the illustrations of the paper."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.training.rectify import first_winning_level, labels_from, scores_by_leaf
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array
from tests.small import random_tree


def scored_tree(num_items: int, vacant: int, *, branching: int, seed: int) -> tuple[ItemTree, Float32Array, Int64Array]:
    """A random tree, scores of its leaves with many ties (7, leaves), and the leaf of each row's target (7,)."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    item_scores = generator.integers(0, 6, size=(7, num_items)).astype(np.float32)
    targets = generator.integers(0, num_items, size=7)
    leaves = tree.leaf_of_item[targets].astype(np.int64)
    leaf_scores = scores_by_leaf(item_scores, tree)
    return tree, leaf_scores, leaves


def test_a_target_wins_below_and_loses_above() -> None:
    """Sixteen leaves; the target on leaf 5 is best among leaves 4 to 7, but leaf 2 is better: labels 0, 1, 1, 1."""
    tree = plant(np.arange(16), branching=2)
    scores = np.full((1, 16), 0.1, dtype=np.float32)
    scores[0, 5], scores[0, 2] = 0.5, 0.6
    levels = first_winning_level(scores, np.array([5]), tree=tree)
    assert levels.tolist() == [2]
    assert labels_from(levels, height=4).tolist() == [[0.0, 1.0, 1.0, 1.0]]


def test_equal_scores_do_not_count_as_better() -> None:
    tree = plant(np.arange(8), branching=2)
    levels = first_winning_level(np.ones((1, 8), dtype=np.float32), np.array([3]), tree=tree)
    assert levels.tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(num_items=st.integers(1, 50), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_labels_are_those_of_the_definition(num_items: int, vacant: int, branching: int, seed: int) -> None:
    tree, leaf_scores, leaves = scored_tree(num_items, vacant, branching=branching, seed=seed)
    subtree = labels_from(first_winning_level(leaf_scores, leaves, tree=tree), height=tree.height)
    for row, leaf in enumerate(leaves):
        for level in range(1, tree.height + 1):
            first, end = tree.leaf_ranges(tree.ancestors(leaf, level), level)
            best = leaf_scores[row, first:end].max()
            assert subtree[row, level - 1] == (leaf_scores[row, leaf] >= best)
    assert (subtree[:, -1] == 1.0).all()
    assert (np.diff(subtree, axis=1) >= 0.0).all()
