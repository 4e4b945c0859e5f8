"""The order of training instances: reshuffled each epoch, a pure function of (seed, step)."""

import numpy as np

from beamtree.training.randomness import numpy_generator
from beamtree.types import Int64Array


class ShuffledOrder:
    """Each epoch cuts the first `instances_per_epoch` of a shuffle into `steps_per_epoch` batches of nearly one size.

    `full_batches` and `whole_epochs` are the two ways to choose these numbers.
    """

    def __init__(self, num_instances: int, *, instances_per_epoch: int, steps_per_epoch: int, seed: int) -> None:
        self.instances_per_epoch = instances_per_epoch
        self.steps_per_epoch = steps_per_epoch
        self._num_instances = num_instances
        self._seed = seed
        self._epoch = -1
        self._shuffled: Int64Array = np.empty(0, dtype=np.int64)

    def instances_of(self, step: int) -> Int64Array:
        """Numbers of the instances of a step, counted from 0."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._shuffled = numpy_generator(self._seed, "order", epoch).permutation(self._num_instances)
            self._epoch = epoch
        first, end = (
            self.instances_per_epoch * cut // self.steps_per_epoch for cut in (step_in_epoch, step_in_epoch + 1)
        )
        return self._shuffled[first:end]


def full_batches(num_instances: int, *, batch_size: int, seed: int) -> ShuffledOrder:
    """Batches of exactly `batch_size` (or all instances, if fewer); the rest waits for another epoch's shuffle."""
    size = min(batch_size, num_instances)
    steps = num_instances // size
    return ShuffledOrder(num_instances, instances_per_epoch=steps * size, steps_per_epoch=steps, seed=seed)


def whole_epochs(num_instances: int, *, batch_size: int, seed: int) -> ShuffledOrder:
    """Every instance once an epoch, in batches of at most `batch_size` whose sizes differ by one at most."""
    steps = -(-num_instances // batch_size)
    return ShuffledOrder(num_instances, instances_per_epoch=num_instances, steps_per_epoch=steps, seed=seed)
