"""Training instances with rectified labels: computed when first met and kept, as compactly as the labels allow."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from beamtree.data.requests import Requests
from beamtree.model.estimator import Estimator, InnerProductEstimator, expectations_of, scores_of
from beamtree.training.climb import climb, vectors_by_leaf
from beamtree.training.instances import Batch, InstancePart, TrainingInstances
from beamtree.training.label_cache import LabelCache
from beamtree.training.label_tally import LabelTally
from beamtree.training.rectify import (
    Labels,
    Rectification,
    first_winning_level,
    level_weights,
    normalised_labels,
    scores_by_leaf,
    winning_child_levels,
)
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Float64Array, Int64Array

LabelsOf = Callable[[Int64Array], Labels]
"""From target leaves (instances,) to their labels."""

_LABELS: dict[Rectification, Callable[..., Labels]] = {
    "subtree": first_winning_level,
    "child": winning_child_levels,
    "normalised": normalised_labels,
}


class RectifiedInstances:
    """The same instances; their batches say on which levels the target counts as positive.

    A label belongs to a history and its target, so every epoch has the targets of the first one.
    """

    def __init__(
        self, instances: TrainingInstances, *, estimator: Estimator, tree: ItemTree, rectification: Rectification
    ) -> None:
        labels_of_requests = _labeller(estimator, tree, rectification=rectification)

        def labels(batch: Batch) -> tuple[Labels]:
            labels_of = labels_of_requests(batch.requests)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            return (np.stack([labels_of(column) for column in leaves.T], axis=1),)

        self._instances = instances
        self._rectification = rectification
        self._height = tree.height
        self._cache = LabelCache(instances, labels)
        self._tally = LabelTally(len(instances), height=tree.height)

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def seconds(self) -> float:
        """What the labels took so far, over all starts of the run."""
        return self._cache.seconds

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        batch = self._instances.batch(instances)
        (labels,) = self._cache.of(instances)
        is_target = (batch.targets != NOTHING)[:, :, None]
        share = is_target / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
        columns = [self._weights(labels[:, column]) for column in range(batch.targets.shape[1])]
        self._tally.add(instances, columns[0])
        return replace(batch, level_weights=np.stack(columns, axis=1) * share)

    def mean_labels(self) -> Float64Array:
        """The mean label of each level, 1 to height, over the first targets met so far; empty if there was none."""
        return self._tally.means()

    def divide(self, instances: Int64Array, parts: int) -> list[InstancePart]:
        """As the instances without labels are divided."""
        return self._instances.divide(instances, parts)

    def state(self) -> dict[str, AnyArray]:
        """What was met so far and what it took; the labels themselves are computed again."""
        return {"seconds": np.array(self._cache.seconds), **self._tally.state()}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Go on counting from there."""
        self._cache.seconds = float(state["seconds"])
        self._tally.restore(state)

    def _weights(self, labels: Labels) -> Float32Array:
        return level_weights(labels, rectification=self._rectification, height=self._height)


def _labeller(estimator: Estimator, tree: ItemTree, *, rectification: Rectification) -> Callable[[Requests], LabelsOf]:
    """From requests to the function that gives the labels of one target for each of them."""
    if rectification == "subtree" and isinstance(estimator, InnerProductEstimator):
        leaf_vectors = vectors_by_leaf(estimator.item_vectors(), tree)
        return lambda requests: partial(climb, expectations_of(estimator, requests), leaf_vectors, tree=tree)
    labels_of = _LABELS[rectification]
    return lambda requests: partial(labels_of, scores_by_leaf(scores_of(estimator, requests), tree), tree=tree)
