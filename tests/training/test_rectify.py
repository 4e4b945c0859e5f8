"""Rectified labels against the definition, and the illustrations of the paper."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.training.rectify import (
    first_winning_level,
    level_weights,
    normalised_labels,
    scores_by_leaf,
    winning_child_levels,
)
from beamtree.tree.build import plant
from tests.small import random_tree


def test_a_target_wins_below_and_loses_above() -> None:
    """Sixteen leaves; the target on leaf 5 is best among leaves 4 to 7, but leaf 2 is better: labels 0, 1, 1, 1."""
    tree = plant(np.arange(16), branching=2)
    scores = np.full((1, 16), 0.1, dtype=np.float32)
    scores[0, 5], scores[0, 2] = 0.5, 0.6
    levels = first_winning_level(scores, np.array([5]), tree=tree)
    assert levels.tolist() == [2]
    assert level_weights(levels, rectification="subtree", height=4).tolist() == [[0.0, 1.0, 1.0, 1.0]]


def test_equal_scores_do_not_count_as_better() -> None:
    tree = plant(np.arange(8), branching=2)
    levels = first_winning_level(np.ones((1, 8), dtype=np.float32), np.array([3]), tree=tree)
    assert levels.tolist() == [1]


def test_the_laxer_test_looks_at_children_only() -> None:
    """Leaves 0 to 3 score 3, 1, 0, 2: for leaf 3, its parent's best child is on the path, its grandparent's is not."""
    tree = plant(np.arange(4), branching=2)
    scores = np.array([[3.0, 1.0, 0.0, 2.0]], dtype=np.float32)
    mask = winning_child_levels(scores, np.array([3]), tree=tree)
    assert level_weights(mask, rectification="child", height=2).tolist() == [[1.0, 1.0]]
    loser = winning_child_levels(scores, np.array([2]), tree=tree)
    assert level_weights(loser, rectification="child", height=2).tolist() == [[0.0, 1.0]]


@settings(max_examples=60, deadline=None)
@given(num_items=st.integers(1, 50), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_labels_are_those_of_the_definition(num_items: int, vacant: int, branching: int, seed: int) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    generator = np.random.default_rng(seed)
    item_scores = generator.integers(0, 6, size=(7, num_items)).astype(np.float32)
    targets = generator.integers(0, num_items, size=7)
    leaves = tree.leaf_of_item[targets].astype(np.int64)
    leaf_scores = scores_by_leaf(item_scores, tree)
    subtree = level_weights(
        first_winning_level(leaf_scores, leaves, tree=tree), rectification="subtree", height=tree.height
    )
    child = level_weights(
        winning_child_levels(leaf_scores, leaves, tree=tree), rectification="child", height=tree.height
    )
    for row, leaf in enumerate(leaves):
        for level in range(1, tree.height + 1):
            first, end = tree.leaf_ranges(tree.ancestors(leaf, level), level)
            best = leaf_scores[row, first:end].max()
            assert subtree[row, level - 1] == (leaf_scores[row, leaf] >= best)
            if level < tree.height:
                first, end = tree.leaf_ranges(tree.ancestors(leaf, level + 1), level + 1)
                assert child[row, level - 1] == (leaf_scores[row, first:end].max() >= best)
    assert (subtree[:, -1] == 1.0).all()
    assert (child[:, -1] == 1.0).all()
    assert (np.diff(subtree, axis=1) >= 0.0).all()


def test_normalised_labels_by_hand() -> None:
    """Probabilities .4 .1 | .2 .3: the maxima below the root's children are .4 and .3: winners there count 1/.7."""
    tree = plant(np.arange(4), branching=2)
    scores = np.log(np.array([[0.4, 0.1, 0.2, 0.3]] * 4, dtype=np.float32)) + np.float32(5.0)
    labels = normalised_labels(scores, np.arange(4), tree=tree)
    expected = [[1 / 0.7, 1.0], [0.0, 1.0], [0.0, 1.0], [1 / 0.7, 1.0]]
    np.testing.assert_allclose(labels, expected, rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(num_items=st.integers(1, 40), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_expected_normalised_labels_add_up_to_one_on_every_level(
    num_items: int, vacant: int, branching: int, seed: int
) -> None:
    """Every item once as the target of the same history, weighted by its probability."""
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    logits = np.random.default_rng(seed).normal(0.0, 2.0, size=num_items).astype(np.float32)
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    leaf_scores = scores_by_leaf(np.tile(logits, (num_items, 1)), tree)
    labels = normalised_labels(leaf_scores, tree.leaf_of_item.astype(np.int64), tree=tree)
    np.testing.assert_allclose(probabilities @ labels, np.ones(tree.height), rtol=1e-4)
    assert labels.dtype == np.float32
