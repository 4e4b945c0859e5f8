"""Climbing finds the level that the scores of all leaves give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.data.dataset import prepare_dataset
from beamtree.data.split import split_users
from beamtree.model.estimator import Estimator, InnerProductEstimator
from beamtree.training.instances import TrainingInstances
from beamtree.training.labels import RectifiedLabels, climb, vectors_by_leaf
from beamtree.training.rectify import first_winning_level, scores_by_leaf
from tests.small import random_tree, two_group_log


class Products:
    """Scores that are inner products of small whole numbers, so that there are ties and no rounding."""

    history_length = 1

    def __init__(self, *, items: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._vectors = self._generator.integers(-2, 3, size=(items, 3)).astype(np.float32)
        self._of_history = self._generator.integers(-2, 3, size=(items, 3)).astype(np.float32)
        self.scored = 0

    def scores(self, histories: np.ndarray) -> np.ndarray:
        self.scored += len(histories)
        return np.asarray(self.expectations(histories) @ self._vectors.T)

    def expectations(self, histories: np.ndarray) -> np.ndarray:
        return np.asarray(self._of_history[histories[:, -1]])

    def item_vectors(self) -> np.ndarray:
        return self._vectors


@settings(max_examples=80, deadline=None)
@given(
    num_items=st.integers(1, 60), vacant=st.integers(0, 9), branching=st.integers(2, 10), seed=st.integers(0, 10_000)
)
def test_the_level_is_that_of_all_scores(num_items: int, vacant: int, branching: int, seed: int) -> None:
    tree = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    estimator = Products(items=num_items, seed=seed)
    generator = np.random.default_rng(seed)
    histories = generator.integers(0, num_items, size=(9, 1)).astype(np.int32)
    leaves = tree.leaf_of_item[generator.integers(0, num_items, size=9)].astype(np.int64)
    expected = first_winning_level(scores_by_leaf(estimator.scores(histories), tree), leaves, tree=tree)
    leaf_vectors = vectors_by_leaf(estimator.item_vectors(), tree)
    found = climb(estimator.expectations(histories), leaf_vectors, leaves, tree=tree)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int8


class ScoresAlone:
    """The same scores from an estimator that has no vectors to show."""

    history_length = 1

    def __init__(self, products: Products) -> None:
        self.scores = products.scores


@pytest.mark.parametrize("climbs", [True, False])
def test_labels_are_the_same_whether_or_not_an_estimator_has_vectors(climbs: bool) -> None:
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    split, num_items = split_users(dataset.sequences, seed=0), len(dataset.items)
    instances = TrainingInstances(dataset.sequences, split.train, first_target=1)
    tree = random_tree(num_items, branching=2, seed=1)
    products = Products(items=num_items, seed=3)
    estimator: Estimator = products if climbs else ScoresAlone(products)
    assert isinstance(estimator, InnerProductEstimator) == climbs
    labelled = RectifiedLabels().label(instances, tree=tree, estimator=estimator)
    batch = labelled.batch(np.arange(100))
    assert (products.scored == 0) == climbs, "who climbs never scores all items"
    leaf_scores = scores_by_leaf(products.scores(batch.histories.latest(1)), tree)
    winning = first_winning_level(leaf_scores, tree.leaf_of_item[batch.targets[:, 0]].astype(np.int64), tree=tree)
    assert len(np.unique(winning)) > 2
    np.testing.assert_array_equal(batch.level_weights, np.arange(1, tree.height + 1) >= winning[:, None, None])
