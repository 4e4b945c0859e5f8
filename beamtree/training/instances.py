"""Training instances: a target and the items before it, cut from the flat sequences only when a batch is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import Spans
from beamtree.errors import DataError
from beamtree.training.horizon import NO_TARGET, TargetHorizon
from beamtree.training.randomness import numpy_generator

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

VERY_NEXT = TargetHorizon()


@dataclass(frozen=True)
class Batch:
    """Histories (instances, positions) of dense items, oldest first, -1 in front; targets (instances,).

    Several targets of each history are (instances, targets), -1 where there are fewer: they share its negatives.
    level_weights: (instances, height), the label of the target's ancestor on each level, or (instances, targets,
    height); None where all are 1, shared evenly by the targets of a history.
    """

    histories: Int32Array
    targets: Int32Array
    level_weights: npt.NDArray[np.float32] | None = None


def one_target_each(batch: Batch, *, height: int) -> Batch:
    """A batch of several targets as one of more instances: each target with a copy of its history.

    Weights are such that the mean loss over the new instances is the mean over the histories.
    """
    if batch.targets.ndim == 1:
        return batch
    row, column = np.nonzero(batch.targets != NO_TARGET)
    weights = batch.level_weights
    if weights is None:
        share = (1.0 / np.bincount(row)[row]).astype(np.float32)
        chosen = np.repeat(share[:, None], height, axis=1)
    else:
        chosen = weights[row, column]
    scale = len(row) / len(batch.targets)
    return Batch(
        histories=batch.histories[row],
        targets=batch.targets[row, column],
        level_weights=chosen * np.float32(scale),
    )


@dataclass(frozen=True)
class TrainingInstances:
    """Every position of every training span, from its first target on, is one instance.

    An instance has a number; `batch` finds its span by bisection. Nothing is stored per instance.
    """

    sequences: Sequences
    spans: Spans
    first_target: int
    history_length: int
    horizon: TargetHorizon = VERY_NEXT
    _first_instance: Int64Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        targets = np.maximum(self.spans.end - self.spans.start - self.first_target, 0)
        object.__setattr__(self, "_first_instance", np.concatenate([[0], np.cumsum(targets)]).astype(np.int64))
        if len(self) == 0:
            raise DataError(
                f"Expected training users with more than {self.first_target} interactions, found none among "
                f"{len(targets)} users. Use a longer log or hold out fewer users."
            )

    def __len__(self) -> int:
        return int(self._first_instance[-1])

    def batch(self, instances: Int64Array, *, epoch: int = 0) -> Batch:
        """Cut the histories of the numbered instances, and their targets as drawn in an epoch."""
        span, start, history_end = self._places(instances)
        items = self.sequences.items
        return Batch(
            histories=cut_histories(items, starts=start, ends=history_end, length=self.history_length),
            targets=self.horizon.draw(items, history_end, self.spans.end[span], numbers=instances, epoch=epoch),
        )

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Nothing: a batch depends on the numbers of its instances alone."""
        return {}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """There is nothing to remember."""

    def targets(self) -> Int32Array:
        """The (first) target of every instance, in the order of their numbers, as drawn in the first epoch."""
        every = np.arange(len(self), dtype=np.int64)
        span, _, history_end = self._places(every)
        alone = replace(self.horizon, each=1)
        return alone.draw(self.sequences.items, history_end, self.spans.end[span], numbers=every, epoch=0)

    def with_one_target(self) -> "TrainingInstances":
        """The same histories, each with its first target alone."""
        return replace(self, horizon=replace(self.horizon, each=1))

    def with_history_length(self, length: int) -> "TrainingInstances":
        """The same targets, with histories of another length."""
        return replace(self, history_length=length)

    def with_seed(self, seed: int) -> "TrainingInstances":
        """The same histories, with targets drawn by another seed."""
        return replace(self, horizon=replace(self.horizon, seed=seed))

    def _places(self, instances: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The span of each instance, where its history starts, and where it ends: there the next item stands."""
        span = np.searchsorted(self._first_instance, instances, side="right") - 1
        start = self.spans.start[span]
        return span, start, start + self.first_target + instances - self._first_instance[span]


class ShuffledOrder:
    """Which instances make up the batch of a step: a new shuffle each epoch, a pure function of (seed, step)."""

    def __init__(self, num_instances: int, *, batch_size: int, seed: int) -> None:
        self.batch_size = min(batch_size, num_instances)
        self.steps_per_epoch = num_instances // self.batch_size
        self._num_instances = num_instances
        self._seed = seed
        self._epoch = -1
        self._order: Int64Array = np.empty(0, dtype=np.int64)

    def instances_of(self, step: int) -> Int64Array:
        """Numbers of the instances of a step; what does not fill a last batch waits for another epoch's shuffle."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = numpy_generator(self._seed, "order", epoch).permutation(self._num_instances)
            self._epoch = epoch
        first = step_in_epoch * self.batch_size
        return self._order[first : first + self.batch_size]
