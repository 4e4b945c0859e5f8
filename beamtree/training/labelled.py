"""Training instances with rectified labels: computed once for a tree and kept, as compactly as the labels allow."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from beamtree.model.estimator import Estimator
from beamtree.training.instances import Batch, TrainingInstances
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

SCORES_AT_A_TIME = 2**24
LABELS_AT_A_TIME = 2**16

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
        self,
        instances: TrainingInstances,
        *,
        estimator: Estimator,
        tree: ItemTree,
        rectification: Rectification,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks the estimator about every instance, in blocks of bounded memory; `seconds` is what that took."""
        self._instances = instances
        self._rectification = rectification
        self._height = tree.height
        started = clock()
        labels_of = _LABELS[rectification]
        parts: list[Labels] = []
        block = max(1, SCORES_AT_A_TIME // tree.num_leaves)
        for first in range(0, len(instances), block):
            batch = instances.batch(np.arange(first, min(first + block, len(instances))))
            leaf_scores = scores_by_leaf(estimator.scores(batch.histories), tree)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            parts.append(labels_of(leaf_scores, leaves, tree=tree))
        self._labels = np.concatenate(parts)
        self.seconds = clock() - started

    def __len__(self) -> int:
        return len(self._instances)

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        weights = level_weights(self._labels[instances], rectification=self._rectification, height=self._height)
        return replace(self._instances.batch(instances), level_weights=weights)

    def mean_labels(self) -> npt.NDArray[np.float64]:
        """The mean label of each level, 1 to height: (height,); where labels are 0 or 1, the share that counts."""
        total = np.zeros(self._height)
        for first in range(0, len(self), LABELS_AT_A_TIME):
            labels = self._labels[first : first + LABELS_AT_A_TIME]
            total += level_weights(labels, rectification=self._rectification, height=self._height).sum(
                axis=0, dtype=np.float64
            )
        return total / len(self)
