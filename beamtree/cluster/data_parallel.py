"""Data-parallel learning: every worker has the whole model and learns from its parts of each global batch.

A batch is cut into a fixed number of parts, whatever the number of workers that are alive: the parts of a step, and the
random numbers of each part, do not depend on who computes it. So any number of workers takes the same steps, up to the
rounding of sums.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from beamtree.cluster.exchange import Exchange, Notes, digest_of
from beamtree.errors import InputError
from beamtree.training.checkpoint import Arrays
from beamtree.training.events import WorkersDone
from beamtree.training.gradients import Gradients
from beamtree.training.instances import InstancePart
from beamtree.training.label_tally import merge_states
from beamtree.training.learner import Learner
from beamtree.training.trainer import Instances
from beamtree.types import AnyArray, Int64Array

TIMED_STEPS = 1_000
"""So many of the last steps are timed."""


@runtime_checkable
class DivisibleInstances(Instances, Protocol):
    """Instances whose batches can be cut into parts without being made first."""

    def divide(self, instances: Int64Array, parts: int) -> list[InstancePart]:
        """The numbered instances in exactly so many parts, empty ones among them where there are fewer instances."""
        ...


class NumberedPart(NamedTuple):
    """A part of a global batch, its number among the parts, and its share of the batch's loss."""

    number: int
    batch: Any
    share: float


@dataclass(frozen=True)
class WorkerInstances:
    """The instances as one worker cuts them: only its own parts of a batch are made: rank, rank + workers, ..."""

    instances: DivisibleInstances
    parts: int
    exchange: Exchange

    def __len__(self) -> int:
        return len(self.instances)

    def batch(self, instances: Int64Array, *, epoch: int) -> list[NumberedPart]:
        """This worker's parts of the numbered instances."""
        divided = self.instances.divide(instances, self.parts)
        mine = []
        for number in range(self.exchange.rank, self.parts, self.exchange.workers):
            # Who has nothing to learn from still takes part in the exchange, with something that does not count.
            some, share = divided[number] if len(divided[number].instances) else (instances[:1], 0.0)
            mine.append(NumberedPart(number, self.instances.batch(some, epoch=epoch), share))
        return mine

    def state(self) -> Arrays:
        """What all workers must remember together; every worker has to ask."""
        states = self.exchange.from_all(self.instances.state())
        return merge_states(states) if states[0] else {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """The first worker remembers what all workers did: what they count from now on is added to it."""
        if state and self.exchange.rank == 0:
            self.instances.restore(state)


class DataParallelLearner:
    """Wraps any learner: the gradients of a batch are the sum over the parts of all workers.

    learner: the same on every worker. should_stop: asked before each step; a yes of any worker stops all of them after
    the next one. seconds, is_stopping: what the workers agreed on with the last gradients.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        exchange: Exchange,
        parts: int,
        should_stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if parts < exchange.workers:
            raise InputError(f"Expected at least as many parts as workers ({exchange.workers}), got {parts}.")
        self._learner = learner
        self._exchange = exchange
        self._parts = parts
        self._should_stop = should_stop
        self._clock = clock
        self._started = clock()
        self._agreed = Notes()
        self._steps = 0
        self._updated_at: deque[float] = deque(maxlen=TIMED_STEPS)
        self._table_widths: dict[str, int] | None = None

    def gradients(self, batch: list[NumberedPart], *, step: int) -> Gradients:
        """Loss and gradients of the global batch of which this worker has some parts; every worker has to ask."""
        of_parts = [self._learner.gradients(part.batch, step=step * self._parts + part.number) for part in batch]
        own = _weighted(of_parts, [part.share for part in batch])
        if self._table_widths is None:
            self._table_widths = {
                name: array.shape[1]
                for name, array in self._learner.model_arrays().items()
                if array.ndim == 2 and name not in own.dense
            }
        notes = Notes(self._clock() - self._started, self._should_stop())
        summed, self._agreed = self._exchange.sum(own, notes=notes, table_widths=self._table_widths)
        return summed

    def summary(self, name: str) -> WorkersDone:
        """How many steps were taken and what one costs."""
        seconds = float(np.median(np.diff(self._updated_at))) if len(self._updated_at) > 1 else 0.0
        return WorkersDone(name, self._exchange.workers, self._steps, seconds, self._exchange.bytes_sent)

    def seconds(self) -> float:
        """How long the first worker had been learning when the workers last met."""
        return self._agreed.seconds

    def is_stopping(self) -> bool:
        """Whether any worker had been asked to stop when they last met."""
        return self._agreed.is_stopping

    def validation(self, validate: Callable[[], Mapping[str, float]]) -> Callable[[], Mapping[str, float]]:
        """A validation that the first worker makes and all of them go by.

        InputError where the weights of the workers are no longer the same: their machines round differently.
        """

        def measure() -> Mapping[str, float]:
            digests = self._exchange.from_all(digest_of(self._learner.model_arrays()))
            if len(set(digests)) > 1:
                raise InputError(
                    "Expected the same weights on all workers, but they have drifted apart: their processors or "
                    "libraries round differently. Use nodes of one kind and one environment."
                )
            is_first = self._exchange.rank == 0
            found = (dict(validate()), self._clock() - self._started) if is_first else ({}, 0.0)
            metrics, seconds = self._exchange.from_first(found)
            self._agreed = Notes(seconds, self._agreed.is_stopping)
            return metrics

        return measure

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """Update the weights, on every worker alike."""
        self._learner.apply(gradients, step=step, learning_rate=learning_rate)
        self._updated_at.append(self._clock())
        self._steps += 1

    def model_arrays(self) -> dict[str, AnyArray]:
        """All weights by name, the same on every worker."""
        return self._learner.model_arrays()

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the model."""
        self._learner.load_model_arrays(arrays)

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        """The optimiser's state, for a checkpoint; the same on every worker."""
        return self._learner.optimiser_arrays()

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        self._learner.restore_optimiser(arrays)


def _weighted(gradients: Sequence[Gradients], shares: Sequence[float]) -> Gradients:
    """The weighted sum, running statistics included, of which `Gradients.sum` gives the mean."""
    whole = sum(shares)
    summed = Gradients.sum(gradients, weights=shares)
    of = summed.statistics if whole else gradients[0].statistics
    scaled = {name: value * whole if value.is_floating_point() else value for name, value in of.items()}
    return replace(summed, statistics=scaled)
