"""Soft rectified labels: the expected labels of a level as its target distribution, mixed with the observed targets.

The rectified label of a node is expected to be the highest probability below it. A hard label shows that expectation
one draw at a time and leaves the upper levels almost without data where the target is seldom the best of half the
catalogue. An estimator knows all of it at once: here each history learns from its likeliest items too, and on each
level a node counts by the likeliest item below it.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from beamtree.model.estimator import Estimator, scores_of
from beamtree.training.instances import Batch, InstancePart, TrainingInstances
from beamtree.training.labelled import LabelCache
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Float64Array, Int32Array, Int64Array


class SoftInstances:
    """The same instances; their batches add the likeliest items of each history to its targets, with their weights.

    Kept of each instance that was met: `items` ids and probabilities, whatever the tree. share: how much of the loss
    goes to them; the rest goes to the observed targets, on every level.
    """

    def __init__(
        self, instances: TrainingInstances, *, estimator: Estimator, tree: ItemTree, items: int, share: float
    ) -> None:
        def likeliest(batch: Batch) -> tuple[Int32Array, Float32Array]:
            return likeliest_items(scores_of(estimator, batch.requests), count=min(items, tree.num_items))

        self._instances, self._tree, self._share = instances, tree, share
        self._cache = LabelCache(instances, likeliest)

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def seconds(self) -> float:
        """What the labels took so far, over all starts of the run."""
        return self._cache.seconds

    def mean_labels(self) -> Float64Array:
        """What the labels of each level, 1 to height, add up to: 1 everywhere."""
        return np.ones(self._tree.height)

    def divide(self, instances: Int64Array, parts: int) -> list[InstancePart]:
        """As the instances without labels are divided."""
        return self._instances.divide(instances, parts)

    def state(self) -> dict[str, AnyArray]:
        """What the labels took so far; they themselves are computed again."""
        return {"seconds": np.array(self._cache.seconds)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Go on counting from there."""
        self._cache.seconds = float(state["seconds"])

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> Batch:
        """Histories of the numbered instances, with observed and likely targets and the weights of both."""
        batch = self._instances.batch(instances, epoch=epoch)
        is_target = batch.targets != NOTHING
        hard = (1.0 - self._share) * is_target / is_target.sum(axis=1, keepdims=True)
        hard_levels = np.repeat(hard.astype(np.float32)[:, :, None], self._tree.height, axis=2)
        likely, probabilities = self._cache.of(instances)
        soft = self._share * soft_level_weights(likely, probabilities, tree=self._tree)
        counted = batch.target_weights
        if counted is not None:
            mean = counted.sum(axis=1, keepdims=True) / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
            counted = np.concatenate([counted, np.repeat(mean, likely.shape[1], axis=1)], axis=1)
        return replace(
            batch,
            targets=np.concatenate([batch.targets, likely], axis=1),
            level_weights=np.concatenate([hard_levels, soft], axis=1),
            target_weights=counted,
        )


def likeliest_items(scores: Float32Array, *, count: int) -> tuple[Int32Array, Float32Array]:
    """The items of the highest scores (instances, items), likeliest first, and their softmax, (instances, count)."""
    some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    chosen = np.take_along_axis(scores, some, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    best = np.take_along_axis(some, order, axis=1).astype(np.int32)
    highest = scores.max(axis=1, keepdims=True)
    total = np.exp(scores - highest).sum(axis=1, keepdims=True)
    return best, np.exp(np.take_along_axis(chosen, order, axis=1) - highest) / total


def soft_level_weights(items: Int32Array, probabilities: Float32Array, *, tree: ItemTree) -> Float32Array:
    """What each of the likeliest items counts on each level: (instances, items, height), adding up to 1 on a level.

    items, probabilities: (instances, items), likeliest first. On a level an item counts with its probability if it is
    the likeliest below its ancestor there, else not at all.
    """
    weights = np.zeros((*items.shape, tree.height), dtype=np.float32)
    for level in range(1, tree.height + 1):
        node = tree.item_ancestors(items, level)
        is_first = np.ones(items.shape, dtype=bool)
        for column in range(1, items.shape[1]):
            is_first[:, column] = (node[:, :column] != node[:, column : column + 1]).all(axis=1)
        expected = probabilities * is_first
        weights[:, :, level - 1] = expected / expected.sum(axis=1, keepdims=True)
    return weights
