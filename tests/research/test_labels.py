"""Other rectified labels against their definitions, and as fits learn from them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.training.rectify import scores_by_leaf
from beamtree.training.strategies import Strategies
from beamtree.tree.build import plant
from research.labels import labels_of_mask, normalised_labels, winning_child_levels
from research.variants import labels_of
from tests.small import random_tree
from tests.training.test_rectify import scored_tree
from tests.training.test_rounds import config_of, fit


def test_the_laxer_test_looks_at_children_only() -> None:
    """Leaves 0 to 3 score 3, 1, 0, 2: for leaf 3, its parent's best child is on the path, its grandparent's is not."""
    tree = plant(np.arange(4), branching=2)
    scores = np.array([[3.0, 1.0, 0.0, 2.0]], dtype=np.float32)
    mask = winning_child_levels(scores, np.array([3]), tree=tree)
    assert labels_of_mask(mask, height=2).tolist() == [[1.0, 1.0]]
    loser = winning_child_levels(scores, np.array([2]), tree=tree)
    assert labels_of_mask(loser, height=2).tolist() == [[0.0, 1.0]]


@settings(max_examples=60, deadline=None)
@given(num_items=st.integers(1, 50), vacant=st.integers(0, 9), branching=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_labels_by_child_are_those_of_the_definition(num_items: int, vacant: int, branching: int, seed: int) -> None:
    tree, leaf_scores, leaves = scored_tree(num_items, vacant, branching=branching, seed=seed)
    child = labels_of_mask(winning_child_levels(leaf_scores, leaves, tree=tree), height=tree.height)
    for row, leaf in enumerate(leaves):
        for level in range(1, tree.height):
            first, end = tree.leaf_ranges(tree.ancestors(leaf, level), level)
            best = leaf_scores[row, first:end].max()
            first, end = tree.leaf_ranges(tree.ancestors(leaf, level + 1), level + 1)
            assert child[row, level - 1] == (leaf_scores[row, first:end].max() >= best)
    assert (child[:, -1] == 1.0).all()


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


@pytest.mark.parametrize("normalisation", ["none", "batch"])
def test_all_labels_learn_in_the_kernels_and_in_torch(normalisation: str) -> None:
    """Batch statistics are learned in torch, everything else in the kernels where they were compiled."""
    config = config_of(training={"rounds": 1}, model={"normalisation": normalisation})
    artefacts = {
        name: fit(config, strategies=replace(Strategies.of(config), labels=labels_of(name)))
        for name in ("subtree", "child", "normalised")
    }
    labels = {name: np.array(each.training["rounds"][0]["mean_labels"]) for name, each in artefacts.items()}
    assert len(labels["subtree"]) == artefacts["subtree"].tree.height
    assert all(each[-1] == 1.0 for each in labels.values())
    assert (labels["subtree"][:-1] < labels["normalised"][:-1]).all(), "divided by less than one"
    assert (labels["subtree"] <= labels["child"]).all(), "the laxer test"
    tables = [each.weights["attention/node_table"] for each in artefacts.values()]
    assert all(np.isfinite(table).all() for table in tables)
    assert (tables[0] != tables[1]).any()
    assert (tables[0] != tables[2]).any()
