"""Training a network for the comparison: trials of learning rates, then the training, cached for later runs.

The number of steps is limited by epochs and by the budget of seconds.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.baselines.neural.recipe import NetworkSettings, Recipe
from beamtree.baselines.neural.task import ModuleT, Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Split
from beamtree.errors import DivergedError
from beamtree.evaluation.protocol import describe_protocol, evaluate
from beamtree.fitting.validation import sample_users
from beamtree.training.checkpoint import (
    Arrays,
    Checkpoint,
    Identity,
    copied,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from beamtree.training.estimator_store import EstimatorStore, learning_key
from beamtree.training.events import EstimatorAwaited
from beamtree.training.module_arrays import load_module_arrays, module_arrays
from beamtree.training.order import whole_epochs
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import CheckpointPlan, Trainer
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


CUTOFFS = (20,)
DIVERGED = -1.0
"""The score of a trial that diverged: worse than any."""

log = logging.getLogger(__name__)


def learn(
    settings: NetworkSettings,
    make: Callable[[], Task[ModuleT]],
    dataset: Dataset,
    split: Split,
    *,
    budget: Budget,
) -> Task[ModuleT]:
    """A task with its network learned, or found in the budget's directory where it was learned before.

    make: gives the task with a fresh network, the same each time. Found is what has the same data, split, settings,
    seed and seconds. InterruptedTraining when asked to stop; with a directory, the next call goes on from there.
    """
    task = make()
    users = sample_users(split.validation, config=budget.config, seed=budget.seed)
    if task.max_validation_users is not None and len(users) > task.max_validation_users:
        users = users.take(np.linspace(0, len(users) - 1, task.max_validation_users).astype(np.int64))
    if budget.directory is None:
        return _Training(settings, make, dataset, users, budget).run()
    key = learning_key(
        asdict(settings),
        split=split,
        validation_users=users,
        data=dataset.fingerprint,
        history_length=settings.recipe.read_length(budget.config),
        seed=budget.seed,
        seconds=budget.seconds,
        protocol=describe_protocol(budget.config),
    )
    store = EstimatorStore.at(budget.directory, key, name=settings.name)
    if store.load(task.module) is not None:
        return task

    def tell(holder: str) -> None:
        budget.listen(EstimatorAwaited(str(store.finished), holder))

    with store.claimed(on_wait=tell, should_stop=budget.should_stop):
        if store.load(task.module) is None:
            started = time.monotonic()
            task = _Training(settings, make, dataset, users, budget, store.unfinished, store.identity).run()
            store.save(task.module, seconds=time.monotonic() - started)
    return task


@dataclass(frozen=True)
class _Begun:
    """How far a training has come before it begins: its plan, the scores of the trials, the weights of the best one."""

    plan: Plan
    scores: tuple[float, ...] = ()
    best: Arrays = field(default_factory=dict)

    def with_trial(self, score: float, weights: Arrays) -> "_Begun":
        """One trial more."""
        is_best = score > max(self.scores, default=-math.inf)
        return _Begun(self.plan, (*self.scores, score), weights if is_best else self.best)


@dataclass(frozen=True)
class _Training:
    """directory: for the checkpoints of this training and its trials, None = nowhere; users: to validate on."""

    settings: NetworkSettings
    make: Callable[[], Task[Any]]
    dataset: Dataset
    users: HeldOut
    budget: Budget
    directory: Path | None = None
    identity: Identity = field(default_factory=lambda: Identity(""))

    def run(self) -> Task[Any]:
        """The best of the training and its trials."""
        rates = self.settings.recipe.learning_rates if len(self.users) else self.settings.recipe.learning_rates[:1]
        begun = self._begin(trials=len(rates) if len(rates) > 1 else 0)
        for rate in rates[len(begun.scores) :] if len(rates) > 1 else ():
            begun = begun.with_trial(*self._try(rate, plan=begun.plan))
            self._keep(begun)
        chosen = rates[int(np.argmax(begun.scores))] if begun.scores else rates[0]
        task, plan = self.make(), begun.plan
        trainer = self._trainer(
            self.settings.name,
            task,
            rate=chosen,
            steps=plan.steps,
            validations=plan.validations,
            seconds=plan.seconds,
        )
        score = self._train(trainer, task)
        if begun.scores and score < max(begun.scores):
            load_module_arrays(task.module, begun.best)
        return task

    def _try(self, rate: float, *, plan: Plan) -> tuple[float, Arrays]:
        """F@20 on validation users after a trial, and the weights; -1 where it diverged."""
        task, name = self.make(), f"{self.settings.name} with learning rate {rate:g}"
        trainer = self._trainer(
            name, task, rate=rate, steps=plan.trial_steps, validations=1, seconds=plan.trial_seconds
        )
        try:
            score = self._train(trainer, task)
        except DivergedError as reason:
            log.info("%s", reason)
            score = DIVERGED
        log.info("%s: validation F@20 %.4f after a trial", name, score)
        return score, copied(module_arrays(task.module))

    def _train(self, trainer: Trainer, task: Task[Any]) -> float:
        """Train from where an earlier start left it; the best F@20 on validation users, 0 without any."""
        started = time.monotonic()
        if trainer.plan is None or not has_checkpoint(trainer.plan.directory):
            task.warm_start()
        progress = trainer.run(seconds_before=time.monotonic() - started)
        return progress.best_score or 0.0

    def _trainer(
        self, name: str, task: Task[Any], *, rate: float, steps: int, validations: int, seconds: float | None
    ) -> Trainer:
        recipe, budget, num_instances = self.settings.recipe, self.budget, len(task.instances)
        plan = None
        if self.directory is not None:
            minutes = budget.config.training.schedule.checkpoint_minutes
            plan = CheckpointPlan(self.directory / name.replace(" ", "-"), self.identity, resume=True, minutes=minutes)
        return Trainer(
            name,
            task.make_learner(),
            task.instances,
            schedule=epoch_schedule(
                num_instances,
                batch_size=recipe.batch_size,
                epochs=steps / -(-num_instances // recipe.batch_size),
                learning_rate=rate,
                decay=recipe.decay,
                validations=validations,
                patience=recipe.patience,
                seed=budget.seed,
                remedy=f"Give {self.settings.name} lower learning rates than {rate:g}.",
            ),
            validate=self._validation(task),
            plan=plan,
            listen=budget.listen,
            should_stop=budget.should_stop,
            max_seconds=seconds,
        )

    def _validation(self, task: Task[Any]) -> Callable[[], Mapping[str, float]] | None:
        if not len(self.users):
            return None
        return lambda: evaluate(task.answers(), self.dataset, self.users, config=self.budget.config, cutoffs=CUTOFFS)

    def _begin(self, *, trials: int) -> _Begun:
        """The plan, and the trials that are over, as they were kept or new."""
        if self.directory is not None:
            kept = load_checkpoint(self.directory / "plan", kind=self._kind, identity=self.identity)
            if kept is not None:
                return _Begun(Plan(**kept.progress["plan"]), tuple(kept.progress["scores"]), kept.group("best"))
        recipe, task, seconds, pace = self.settings.recipe, self.make(), None, Pace(0.0, 0.0)
        if self.budget.seconds is not None:
            task.warm_start()
            validate = self._validation(task)
            pace = measure_pace(task, batch_size=recipe.batch_size, validate=validate, budget=self.budget)
            seconds = max(0.0, self.budget.seconds - (time.monotonic() - self.budget.started))
        plan = make_plan(recipe, num_instances=len(task.instances), trials=trials, seconds=seconds, pace=pace)
        log.info("%s: %s", self.settings.name, plan)
        begun = _Begun(plan)
        self._keep(begun)
        return begun

    def _keep(self, begun: _Begun) -> None:
        if self.directory is not None:
            kept = Checkpoint({"plan": asdict(begun.plan), "scores": begun.scores}, {"best": begun.best})
            save_checkpoint(self.directory / "plan", kept, kind=self._kind, identity=self.identity)

    @property
    def _kind(self) -> str:
        return f"plan of {self.settings.name}"
