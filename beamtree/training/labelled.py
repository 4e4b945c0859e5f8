"""Training instances with rectified labels: computed once for a tree, kept as one small number per instance."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from beamtree.model.estimator import Estimator
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.rectify import (
    Rectification,
    WinningLevels,
    first_winning_level,
    level_weights,
    scores_by_leaf,
    winning_child_levels,
)
from beamtree.tree.item_tree import ItemTree

SCORES_AT_A_TIME = 2**24

_WINNING_LEVELS: dict[Rectification, Callable[..., WinningLevels]] = {
    "subtree": first_winning_level,
    "child": winning_child_levels,
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
        winning = _WINNING_LEVELS[rectification]
        parts: list[WinningLevels] = []
        block = max(1, SCORES_AT_A_TIME // tree.num_leaves)
        for first in range(0, len(instances), block):
            batch = instances.batch(np.arange(first, min(first + block, len(instances))))
            leaf_scores = scores_by_leaf(estimator.scores(batch.histories), tree)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            parts.append(winning(leaf_scores, leaves, tree=tree))
        self._levels = np.concatenate(parts)
        self.seconds = clock() - started

    def __len__(self) -> int:
        return len(self._instances)

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:  # noqa: ARG002
        """Histories, targets and labels of the numbered instances; the same in every epoch."""
        weights = level_weights(self._levels[instances], rectification=self._rectification, height=self._height)
        return replace(self._instances.batch(instances), level_weights=weights)

    def positive_share(self) -> npt.NDArray[np.float64]:
        """The share of instances whose target counts on each level, 1 to height: (height,)."""
        return np.asarray(
            level_weights(self._levels, rectification=self._rectification, height=self._height).mean(
                axis=0, dtype=np.float64
            )
        )
