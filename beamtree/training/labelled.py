"""Training instances with rectified labels: computed when first met and kept, as compactly as the labels allow."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.model.estimator import Estimator, InnerProductEstimator
from beamtree.training.climb import climb, vectors_by_leaf
from beamtree.training.horizon import NO_TARGET
from beamtree.training.instances import Batch, TrainingInstances
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

LabelsOf = Callable[[npt.NDArray[np.int64]], Labels]
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
        labels_of_histories = _labeller(estimator, tree, rectification=rectification)

        def labels(batch: Batch) -> tuple[Labels]:
            labels_of = labels_of_histories(batch.histories)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            if batch.targets.ndim == 1:
                return (labels_of(leaves),)
            return (np.stack([labels_of(column) for column in leaves.T], axis=1),)

        self._instances = instances
        self._rectification = rectification
        self._height = tree.height
        self._cache = LabelCache(instances.with_history_length(estimator.history_length), labels)
        self._tally = LabelTally(len(instances), height=tree.height)

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def seconds(self) -> float:
        """What the labels took so far, over all starts of the run."""
        return self._cache.seconds

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        batch = self._instances.batch(instances)
        (labels,) = self._cache.of(instances)
        if batch.targets.ndim == 1:
            weights = self._weights(labels)
            self._tally.add(instances, weights)
            return replace(batch, level_weights=weights)
        is_target = (batch.targets != NO_TARGET)[:, :, None]
        share = is_target / is_target.sum(axis=1, keepdims=True, dtype=np.float32)
        columns = [self._weights(labels[:, column]) for column in range(batch.targets.shape[1])]
        self._tally.add(instances, columns[0])
        return replace(batch, level_weights=np.stack(columns, axis=1) * share)

    def mean_labels(self) -> npt.NDArray[np.float64]:
        """The mean label of each level, 1 to height, over the (first) targets met so far; empty if there was none."""
        return self._tally.means()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """What was met so far and what it took; the labels themselves are computed again."""
        return {"seconds": np.array(self._cache.seconds), **self._tally.state()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on counting from there."""
        self._cache.seconds = float(state["seconds"])
        self._tally.restore(state)

    def _weights(self, labels: Labels) -> npt.NDArray[np.float32]:
        return level_weights(labels, rectification=self._rectification, height=self._height)


def _labeller(
    estimator: Estimator, tree: ItemTree, *, rectification: Rectification
) -> Callable[[npt.NDArray[np.int32]], LabelsOf]:
    """From histories to the function that gives the labels of one target for each of them."""
    if rectification == "subtree" and isinstance(estimator, InnerProductEstimator):
        leaf_vectors = vectors_by_leaf(estimator.item_vectors(), tree)
        return lambda histories: partial(climb, estimator.expectations(histories), leaf_vectors, tree=tree)
    labels_of = _LABELS[rectification]
    return lambda histories: partial(labels_of, scores_by_leaf(estimator.scores(histories), tree), tree=tree)
