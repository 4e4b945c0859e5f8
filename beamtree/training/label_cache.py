"""What an estimator says about training instances: asked when an instance is first met, and kept."""

import time
from collections.abc import Callable

import numpy as np

from beamtree.training.instances import Batch, TrainingInstances
from beamtree.types import AnyArray, Int64Array

BLOCK = 128


class LabelCache:
    """Arrays with one row per instance, filled as instances are asked for.

    answer: arrays (rows, ...) for a batch of rows. It is always given BLOCK rows, repeated where fewer are needed: with
    one shape for all, what it says of an instance does not depend on the company it comes in.
    seconds: what the answers took so far. Arrays are kept in memory alone: a resumed run asks again.
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
