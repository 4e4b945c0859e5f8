"""Training instances with rectified labels: computed once for a tree and kept, as compactly as the labels allow."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from beamtree.model.estimator import Estimator
from beamtree.training.horizon import NO_TARGET
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
        on_step: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks the estimator about every instance, in blocks of bounded memory; `seconds` is what that took.

        on_step: called before each block; it may raise to stop.
        """
        self._instances = instances
        self._rectification = rectification
        self._height = tree.height
        started = clock()
        parts: list[Labels] = []
        block = max(1, SCORES_AT_A_TIME // tree.num_leaves)
        for first in range(0, len(instances), block):
            on_step()
            batch = instances.batch(np.arange(first, min(first + block, len(instances))))
            leaf_scores = scores_by_leaf(estimator.scores(batch.histories), tree)
            parts.append(_labels_of_targets(batch.targets, leaf_scores, tree=tree, labels_of=_LABELS[rectification]))
        self._labels = np.concatenate(parts)
        self.seconds = clock() - started

    def __len__(self) -> int:
        return len(self._instances)

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        batch = self._instances.batch(instances)
        labels = self._labels[instances]
        if batch.targets.ndim == 1:
            return replace(batch, level_weights=self._weights(labels))
        is_target = (batch.targets != NO_TARGET)[:, :, None]
        share = is_target / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
        columns = [self._weights(labels[:, column]) for column in range(batch.targets.shape[1])]
        return replace(batch, level_weights=np.stack(columns, axis=1) * share)

    def mean_labels(self) -> npt.NDArray[np.float64]:
        """The mean label of each level, 1 to height, of first targets: (height,); if 0 or 1, the share that counts."""
        total = np.zeros(self._height)
        for first in range(0, len(self), LABELS_AT_A_TIME):
            several = self._labels[first : first + LABELS_AT_A_TIME]
            labels = several if self._instances.horizon.each == 1 else several[:, 0]
            total += self._weights(labels).sum(axis=0, dtype=np.float64)
        return total / len(self)

    def _weights(self, labels: Labels) -> npt.NDArray[np.float32]:
        return level_weights(labels, rectification=self._rectification, height=self._height)


def _labels_of_targets(
    targets: npt.NDArray[np.int32],
    leaf_scores: npt.NDArray[np.float32],
    *,
    tree: ItemTree,
    labels_of: Callable[..., Labels],
) -> Labels:
    """Labels of targets (instances,), or, side by side, of several (instances, targets)."""
    leaves = tree.leaf_of_item[targets].astype(np.int64)
    if targets.ndim == 1:
        return labels_of(leaf_scores, leaves, tree=tree)
    columns = [labels_of(leaf_scores, leaves[:, column], tree=tree) for column in range(targets.shape[1])]
    return np.stack(columns, axis=1)
