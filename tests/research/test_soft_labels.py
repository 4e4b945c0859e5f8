"""Soft rectified labels: what the likeliest items count on each level."""

import numpy as np

from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.training.instances import TrainingInstances
from beamtree.tree.build import plant
from research.soft_labels import SoftInstances, likeliest_items, soft_level_weights

TREE = plant(np.arange(8, dtype=np.int32), branching=2)
ETA = np.array([0.21, 0.0, 0.12, 0.18, 0.19, 0.0, 0.16, 0.14], dtype=np.float32)


def test_with_every_item_a_node_counts_by_the_highest_probability_below_it() -> None:
    with np.errstate(divide="ignore"):
        items, probabilities = likeliest_items(np.log(ETA)[None], count=8)
    np.testing.assert_array_equal(items[0, :6], [0, 4, 3, 6, 7, 2])
    np.testing.assert_allclose(probabilities[0, :6], [0.21, 0.19, 0.18, 0.16, 0.14, 0.12], atol=1e-6)
    weights = soft_level_weights(items, probabilities, tree=TREE)
    for level in range(1, 4):
        expected = ETA.reshape(2**level, -1).max(axis=1)
        found = np.bincount(TREE.item_ancestors(items[0], level), weights[0, :, level - 1], minlength=2**level)
        np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)


class Fixed:
    """An estimator that always answers the same."""

    history_length = 2

    def scores(self, histories: np.ndarray) -> np.ndarray:
        return np.repeat(np.log(ETA + 1e-9)[None], len(histories), axis=0)


def test_batches_share_the_loss_between_what_was_observed_and_what_is_likely() -> None:
    spans = Spans(user=np.array([0], dtype=np.int32), start=np.array([0]), end=np.array([4]))
    sequences = Sequences(np.array([5, 1, 2, 7], dtype=np.int32), np.array([0, 4]))
    instances = TrainingInstances(sequences, spans, first_target=1)
    soft = SoftInstances(instances, estimator=Fixed(), tree=TREE, items=3, share=0.25)
    batch = soft.batch(np.array([0, 2]))
    np.testing.assert_array_equal(batch.targets, [[1, 0, 4, 3], [7, 0, 4, 3]])
    assert batch.level_weights is not None
    np.testing.assert_allclose(batch.level_weights[:, 0], 0.75)
    np.testing.assert_allclose(batch.level_weights[:, 1:].sum(axis=1), 0.25, atol=1e-6)
    # Item 3 shares the left half with item 0, which is likelier: it says nothing on the first level.
    np.testing.assert_allclose(batch.level_weights[0, 1:, 0], np.array([0.21, 0.19, 0.0]) / 0.40 * 0.25, atol=1e-6)
