"""The plan of a fit: rounds and steps within the budget of instances and seconds."""

import time
from dataclasses import dataclass

import numpy as np

from beamtree.baselines.trees.run import TreeRun
from beamtree.training.learner import Learner
from beamtree.training.trainer import Instances

STEPS_TIMED = 3
"""Batches whose gradients are computed, and thrown away, to see how long a step takes; the fastest counts."""
LEARNING_SHARE = 0.7
"""Of the time that there is, what the steps are planned to take; validating and learning the tree take the rest."""


@dataclass(frozen=True)
class Plan:
    """rounds: trainings that follow one another, with a new tree in between; steps: of each."""

    rounds: int
    steps: int


def make_plan(run: TreeRun, learner: Learner, instances: Instances, *, max_rounds: int) -> Plan:
    """As many rounds as published where each can have `min_round_steps`; else fewer, but two at least if published so.

    The first round is trained once for each learning rate, and all share the budget evenly. Without a bound of seconds
    the plan follows from the settings alone.
    """
    steps = run.max_steps
    if run.seconds_left is not None:
        seconds_of_a_step = _seconds_of_a_step(run, learner, instances)
        steps = min(steps, int(LEARNING_SHARE * run.seconds_left / seconds_of_a_step))
    rounds = min(max_rounds, max(2, steps // run.recipe.min_round_steps))
    return Plan(rounds, max(1, steps // (rounds + len(run.recipe.learning_rates) - 1)))


def _seconds_of_a_step(run: TreeRun, learner: Learner, instances: Instances) -> float:
    generator, seconds = np.random.default_rng(run.budget.seed), []
    for step in range(STEPS_TIMED):
        numbers = generator.integers(len(instances), size=run.batch_size)
        started = time.perf_counter()
        learner.gradients(instances.batch(numbers, epoch=0), step=step)
        seconds.append(time.perf_counter() - started)
    return max(min(seconds), 1e-9)
