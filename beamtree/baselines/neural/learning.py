"""Learning a network for the comparison: trials of learning rates, then the training, kept for the next time."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.baselines.neural.plan import Pace, Plan, make_plan, measure_pace
from beamtree.baselines.neural.recipe import NetworkSettings
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
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import CheckpointPlan, Trainer

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
