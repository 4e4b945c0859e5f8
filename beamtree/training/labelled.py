"""Training instances with rectified labels: computed when first met and kept, as compactly as the labels allow."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from beamtree.data.requests import Requests
from beamtree.training.instances import Batch, InstancePart, TrainingInstances
from beamtree.training.label_tally import LabelTally
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, AnyArray, Float32Array, Float64Array, Int64Array

BLOCK = 128


class LabelCache:
    """Arrays with one row per instance, filled as instances are asked for.

    answer: arrays (rows, ...) for a batch of rows. It always gets BLOCK rows, padded by repeating rows: with one shape,
    the result for an instance does not depend on the others in its batch.
    seconds: the time that the answers took so far. Arrays are kept in memory only: a resumed run computes them again.
    """

    def __init__(self, instances: TrainingInstances, answer: Callable[[Batch], tuple[AnyArray, ...]]) -> None:
        self.seconds = 0.0
        self._is_known = np.zeros(len(instances), dtype=bool)
        self._instances = instances
        self._answer = answer
        self._kept: tuple[AnyArray, ...] = ()

    def of(self, instances: Int64Array) -> tuple[AnyArray, ...]:
        """The answers for the numbered instances."""
        missing = np.unique(instances[~self._is_known[instances]])
        started = time.monotonic()
        for first in range(0, len(missing), BLOCK):
            block = missing[first : first + BLOCK]
            self._keep(block, self._answer(self._instances.batch(np.resize(block, BLOCK))))
        self.seconds += time.monotonic() - started
        return tuple(array[instances] for array in self._kept)

    def _keep(self, block: Int64Array, answers: tuple[AnyArray, ...]) -> None:
        if not self._kept:
            self._kept = tuple(np.zeros((len(self._is_known), *array.shape[1:]), array.dtype) for array in answers)
        for kept, array in zip(self._kept, answers, strict=True):
            kept[block] = array[: len(block)]
        self._is_known[block] = True


LabelsOf = Callable[[Int64Array], AnyArray]
"""From target leaves (instances,) to what is kept of their labels (instances, ...)."""


@dataclass(frozen=True)
class LabelRule:
    """On which levels a target counts.

    labels_of: from requests to the function that gives what is kept of one target's labels for each of them; weights:
    from what is kept of some targets to the label of each level, (instances, height).
    """

    labels_of: Callable[[Requests], LabelsOf]
    weights: Callable[[AnyArray], Float32Array]


class RectifiedInstances:
    """The same instances; their batches say on which levels the target counts as positive.

    A label belongs to a history and its target, so every epoch has the targets of the first one.
    """

    def __init__(self, instances: TrainingInstances, *, rule: LabelRule, tree: ItemTree) -> None:
        def labels(batch: Batch) -> tuple[AnyArray]:
            labels_of = rule.labels_of(batch.requests)
            leaves = tree.leaf_of_item[batch.targets].astype(np.int64)
            return (np.stack([labels_of(column) for column in leaves.T], axis=1),)

        self._instances, self._rule = instances, rule
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
        columns = [self._rule.weights(labels[:, column]) for column in range(batch.targets.shape[1])]
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
