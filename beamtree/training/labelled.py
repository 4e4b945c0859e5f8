"""Training instances with rectified labels: computed when first met and kept, as compactly as the labels allow."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from beamtree.model.estimator import Estimator
from beamtree.training.horizon import NO_TARGET
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.label_cache import LabelCache
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
        labels_of = _LABELS[rectification]

        def labels(batch: Batch) -> tuple[Labels]:
            leaf_scores = scores_by_leaf(estimator.scores(batch.histories), tree)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            if batch.targets.ndim == 1:
                return (labels_of(leaf_scores, leaves, tree=tree),)
            return (np.stack([labels_of(leaf_scores, column, tree=tree) for column in leaves.T], axis=1),)

        self._instances = instances
        self._rectification = rectification
        self._height = tree.height
        self._cache = LabelCache(instances, labels)

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def seconds(self) -> float:
        """What the labels took so far."""
        return self._cache.seconds

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        batch = self._instances.batch(instances)
        (labels,) = self._cache.of(instances)
        if batch.targets.ndim == 1:
            return replace(batch, level_weights=self._weights(labels))
        is_target = (batch.targets != NO_TARGET)[:, :, None]
        share = is_target / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
        columns = [self._weights(labels[:, column]) for column in range(batch.targets.shape[1])]
        return replace(batch, level_weights=np.stack(columns, axis=1) * share)

    def mean_labels(self) -> npt.NDArray[np.float64]:
        """The mean label of each level, 1 to height, over the (first) targets met so far; empty if there was none."""
        if not self._cache.is_known.any():
            return np.empty(0)
        (labels,) = self._cache.known()
        alone = labels if self._instances.horizon.each == 1 else labels[:, 0]
        return np.asarray(self._weights(alone).mean(axis=0, dtype=np.float64))

    def _weights(self, labels: Labels) -> npt.NDArray[np.float32]:
        return level_weights(labels, rectification=self._rectification, height=self._height)
