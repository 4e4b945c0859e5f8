"""One fit of a tree system: its data, its budget, its state, and its plan of rounds and steps."""

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.recipe import Recipe
from beamtree.config import MAX_EPOCHS, Config, TrainingSettings
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Split
from beamtree.fitting.validation import sample_users
from beamtree.training.checkpoint import Identity
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import TrainingInstances
from beamtree.training.learner import Learner
from beamtree.training.strategies import Strategies
from beamtree.training.trainer import Instances


@dataclass(frozen=True)
class TreeRun:
    """What every stage of a fit needs.

    name: of the system, in events and as a folder. config: the system's settings, protocol and seed included.
    own_strategies: of DTR, where they are others than the settings choose.
    """

    name: str
    dataset: Dataset
    split: Split
    budget: Budget
    config: Config
    recipe: Recipe
    own_strategies: Strategies | None = None

    @property
    def strategies(self) -> Strategies:
        """How DTR learns its score and its tree."""
        return Strategies.of(self.config) if self.own_strategies is None else self.own_strategies

    @cached_property
    def instances(self) -> TrainingInstances:
        """The training instances, with targets as the recipe says."""
        return TrainingInstances(
            self.dataset.sequences,
            self.split.train,
            first_target=self.split.first_target,
            horizon=TargetHorizon.of(self.config.training, seed=self.budget.seed),
            times=self.dataset.timestamps,
        )

    @property
    def batch_size(self) -> int:
        """Instances per step: the recipe's, or all where there are fewer."""
        return min(self.config.training.batch_size, len(self.instances))

    @cached_property
    def validation_users(self) -> HeldOut:
        """The users on whom learning rate, weights and round are chosen."""
        return sample_users(self.split.validation, config=self.config, seed=self.budget.seed)

    @property
    def seconds_left(self) -> float | None:
        """What is left of the budget; None without a bound."""
        if self.budget.seconds is None:
            return None
        return max(0.0, self.budget.started + self.budget.seconds - time.monotonic())

    @property
    def max_steps(self) -> int:
        """Steps of all rounds together that the comparison's epochs and instances allow."""
        training = self.budget.config.training
        instances = round(training.epochs * len(self.instances))
        if training.max_instances is not None:
            instances = min(instances, training.max_instances)
        return max(1, instances // self.batch_size)

    @cached_property
    def identity(self) -> Identity:
        """What a run must share with another to go on where that one stopped."""
        decisive = [self.name, self.dataset.fingerprint, self.split.description, self.budget.seconds]
        described = json.dumps([*decisive, asdict(self.recipe)], default=str)
        return Identity.of(
            self.config,
            data_fingerprint=hashlib.sha256(described.encode()).hexdigest(),
            strategies=self.strategies.beside(self.config),
        )

    @property
    def directory(self) -> Path | None:
        """Where the state is kept: a place for each combination of data, settings and budget; None = nowhere."""
        if self.budget.directory is None:
            return None
        identity = json.dumps([self.identity.key, self.identity.settings], sort_keys=True)
        return self.budget.directory / f"{self.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def round_settings(run: TreeRun, *, steps: int, learning_rate: float, seed: int) -> TrainingSettings:
    """The settings of one training of a round, by its steps alone."""
    changes = {
        "learning_rate": learning_rate,
        "epochs": MAX_EPOCHS,
        "max_instances": steps * run.batch_size,
        "seed": seed,
    }
    return run.config.training.model_copy(update=changes)


def part_of(budget: Budget, share: float) -> Budget:
    """A share of the instances, and of the seconds that are left now, for one of several stages."""
    training = budget.config.training
    changes: dict[str, float] = {"epochs": share * training.epochs}
    if training.max_instances is not None:
        changes["max_instances"] = max(1, round(share * training.max_instances))
    seconds = None
    if budget.seconds is not None:
        passed = time.monotonic() - budget.started
        seconds = passed + share * max(0.0, budget.seconds - passed)
    config = budget.config.model_copy(update={"training": training.model_copy(update=changes)})
    return replace(budget, config=config, seconds=seconds)


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
