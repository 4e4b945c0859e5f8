"""Climbing finds the level that the scores of all leaves give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree.model.estimator import Estimator, InnerProductEstimator, PopularityEstimator
from beamtree.training.climb import climb, vectors_by_leaf
from beamtree.training.instances import Batch
from beamtree.training.labelled import RectifiedInstances
from beamtree.training.rectify import first_winning_level, scores_by_leaf
from beamtree.tree.build import plant
from tests.small import random_tree


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


class Numbered:
    """Instances whose history is their own number and whose target is the item after it."""

    def __len__(self) -> int:
        return 40

    def batch(self, instances: np.ndarray, *, epoch: int = 0) -> Batch:
        del epoch
        return Batch(instances[:, None].astype(np.int32), ((instances + 1) % 40).astype(np.int32))


@pytest.mark.parametrize("climbs", [True, False])
def test_labels_are_the_same_whether_or_not_an_estimator_has_vectors(climbs: bool) -> None:
    products = Products(items=40, seed=3)
    estimator: Estimator = products
    if not climbs:
        estimator = PopularityEstimator(np.arange(40))
        estimator.scores = products.scores  # type: ignore[method-assign]
    assert isinstance(estimator, InnerProductEstimator) == climbs
    tree = plant(np.random.default_rng(1).permutation(40).astype(np.int32), branching=2)
    instances = RectifiedInstances(Numbered(), estimator=estimator, tree=tree, rectification="subtree")  # type: ignore[arg-type]
    numbers = np.arange(40)
    weights = instances.batch(numbers).level_weights
    leaves = tree.leaf_of_item[(numbers + 1) % 40].astype(np.int64)
    every_score = scores_by_leaf(products.expectations(numbers[:, None]) @ products.item_vectors().T, tree)
    winning = first_winning_level(every_score, leaves, tree=tree)
    np.testing.assert_array_equal(weights, np.arange(1, tree.height + 1) >= winning[:, None])
    assert (products.scored == 0) == climbs, "who climbs never scores all items"
