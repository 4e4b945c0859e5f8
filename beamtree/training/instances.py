"""Training instances: a target and the items before it, cut from the flat sequences only when a batch is made."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from beamtree.data.sequences import Sequences, cut_histories
from beamtree.data.split import Spans
from beamtree.errors import DataError
from beamtree.training.randomness import draws_below, numpy_generator

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """Histories (instances, positions) of dense items, oldest first, -1 in front; targets (instances,).

    level_weights: (instances, height), the label of the target's ancestor on each level; None where all are 1.
    """

    histories: Int32Array
    targets: Int32Array
    level_weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class TrainingInstances:
    """Every position of every training span, from its first target on, is one instance.

    An instance has a number; `batch` finds its span by bisection. Nothing is stored per instance.
    target_horizon: an instance's target is the next item after its history, or, if more than 1, drawn from the next so
    many of its span, each that exists being as likely. A draw depends on seed, epoch and number alone.
    """

    sequences: Sequences
    spans: Spans
    first_target: int
    history_length: int
    target_horizon: int = 1
    seed: int = 0
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
        start, history_end, target = self._places(instances, epoch=epoch)
        items = self.sequences.items
        histories = cut_histories(items, starts=start, ends=history_end, length=self.history_length)
        return Batch(histories=histories, targets=items[target])

    def targets(self) -> Int32Array:
        """The target of every instance, in the order of their numbers, as drawn in the first epoch."""
        _, _, target = self._places(np.arange(len(self), dtype=np.int64), epoch=0)
        return self.sequences.items[target]

    def _places(self, instances: Int64Array, *, epoch: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Where the history of each instance starts, where it ends, and where its target stands."""
        span = np.searchsorted(self._first_instance, instances, side="right") - 1
        start = self.spans.start[span]
        history_end = start + self.first_target + instances - self._first_instance[span]
        if self.target_horizon == 1:
            return start, history_end, history_end
        choices = np.minimum(self.spans.end[span] - history_end, self.target_horizon)
        ahead = draws_below(choices, numbers=instances, seed=self.seed, purpose="targets", step=epoch)
        return start, history_end, history_end + ahead


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
