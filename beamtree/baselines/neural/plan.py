"""How many steps a training gets: by epochs, and by what fits into the seconds that there are."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beamtree.baselines.neural.recipe import Recipe
from beamtree.baselines.neural.task import Task
from beamtree.baselines.protocol import Budget
from beamtree.training.order import whole_epochs
from beamtree.types import Int64Array

TRIAL_SHARE = 0.1
"""Of the time, and of the steps, that each trial of a learning rate gets."""
VALIDATION_SHARE = 0.2
"""Of a training's time that validations may take; there is always one."""
PROBED_STEPS = 5


@dataclass(frozen=True)
class Plan:
    """Steps, validations and seconds of the training, and of each trial of a learning rate before it.

    Seconds are None where there is no limit.
    """

    steps: int
    validations: int
    seconds: float | None
    trial_steps: int
    trial_seconds: float | None


@dataclass(frozen=True)
class Pace:
    """Seconds that a step takes, and that a validation takes."""

    step: float
    validation: float


def make_plan(recipe: Recipe, *, num_instances: int, trials: int, seconds: float | None, pace: Pace) -> Plan:
    """The plan for some trials; seconds: the remaining ones, None = epochs alone decide, and the pace plays no part.

    Steps are planned so that the learning rate has decayed when the seconds are over.
    """
    steps_per_epoch = -(-num_instances // recipe.batch_size)
    steps = max(1, round(recipe.epochs * steps_per_epoch))
    if seconds is None:
        return Plan(steps, recipe.validations, None, max(1, round(TRIAL_SHARE * steps)), None)
    trial_seconds = TRIAL_SHARE * seconds
    final_seconds = seconds - trials * trial_seconds
    affordable = VALIDATION_SHARE * final_seconds / max(pace.validation, 1e-9)
    validations = int(min(max(affordable, 1), recipe.validations))

    def fitting(available: float, validations: int) -> int:
        return max(1, int((available - validations * pace.validation) / pace.step))

    return Plan(
        steps=min(steps, fitting(final_seconds, validations)),
        validations=validations,
        seconds=final_seconds,
        trial_steps=max(1, min(round(TRIAL_SHARE * steps), fitting(trial_seconds, 1))),
        trial_seconds=trial_seconds,
    )


def measure_pace(
    task: Task[Any],
    *,
    batch_size: int,
    validate: Callable[[], object] | None,
    budget: Budget,
    clock: Callable[[], float] = time.monotonic,
) -> Pace:
    """Of a task that is thrown away afterwards."""
    learner = task.make_learner()
    order = whole_epochs(len(task.instances), batch_size=batch_size, seed=budget.seed)

    def take(step: int) -> None:
        numbers: Int64Array = order.instances_of(step % order.steps_per_epoch)
        learner.apply(learner.gradients(task.instances.batch(numbers, epoch=0), step=step), step=step, learning_rate=0)

    take(0)  # the first one is slower than the others
    started = clock()
    for step in range(1, PROBED_STEPS + 1):
        budget.stop_if_asked()
        take(step)
    stepped = clock()
    if validate is not None:
        validate()
    return Pace((stepped - started) / PROBED_STEPS, clock() - stepped)
