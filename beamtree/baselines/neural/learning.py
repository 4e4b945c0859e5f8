"""Learning a network for the comparison: trials of learning rates, then the training, kept for the next time."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.baselines.neural.plan import Pace, Plan, make_plan, measure_pace
from beamtree.baselines.neural.recipe import NetworkSettings, described
from beamtree.baselines.neural.task import ModuleT, Task
from beamtree.baselines.protocol import Budget
from beamtree.data.dataset import Dataset
from beamtree.data.split import HeldOut, Split
from beamtree.errors import DivergedError
from beamtree.evaluation.protocol import describe_protocol, evaluate
from beamtree.fitting.validation import sample_users
from beamtree.training.checkpoint import Checkpoint, Identity, has_checkpoint, load_checkpoint, save_checkpoint
from beamtree.training.estimator_store import EstimatorStore, learning_key
from beamtree.training.events import EstimatorAwaited
from beamtree.training.schedule import epoch_schedule
from beamtree.training.trainer import CheckpointPlan, Trainer

CUTOFFS = (20,)

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
    users = users.take(np.arange(len(users)) < (task.max_validation_users or len(users)))
    if budget.directory is None:
        return _Training(settings, make, dataset, users, budget).run()
    key = learning_key(
        described(settings),
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
        rates = self.settings.recipe.learning_rates if len(self.users) else self.settings.recipe.learning_rates[:1]
        plan, scores = self._begin(trials=len(rates) if len(rates) > 1 else 0)
        for rate in rates if len(rates) > 1 else ():
            if str(rate) not in scores:
                scores[str(rate)] = self._try(rate, plan=plan)
                self._keep(plan, scores)
        best = max(rates, key=lambda rate: scores.get(str(rate), 0.0))
        task = self.make()
        trainer = self._trainer(
            self.settings.name,
            task,
            rate=best,
            steps=plan.steps,
            validations=plan.validations,
            seconds=plan.seconds,
        )
        self._train(trainer, task)
        return task

    def _try(self, rate: float, *, plan: Plan) -> float:
        """F@20 on validation users after a trial; -1 where it diverged."""
        task, name = self.make(), f"{self.settings.name} with learning rate {rate:g}"
        trainer = self._trainer(
            name, task, rate=rate, steps=plan.trial_steps, validations=1, seconds=plan.trial_seconds
        )
        try:
            score = self._train(trainer, task)
        except DivergedError as reason:
            log.info("%s", reason)
            score = -1.0
        log.info("%s: validation F@20 %.4f after a trial", name, score)
        return score

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
            minutes = budget.config.training.checkpoint_minutes
            plan = CheckpointPlan(self.directory / name.replace(" ", "-"), self.identity, resume=True, minutes=minutes)
        return Trainer(
            name,
            task.learner(seed=budget.seed),
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

    def _begin(self, *, trials: int) -> tuple[Plan, dict[str, float]]:
        """The plan, and the scores of trials that are over, as they were kept or new."""
        if self.directory is not None:
            kept = load_checkpoint(self.directory / "plan", kind=self._kind, identity=self.identity)
            if kept is not None:
                return Plan(**kept.progress["plan"]), dict(kept.progress["scores"])
        task, seconds, pace = self.make(), None, Pace(0.0, 0.0)
        if self.budget.seconds is not None:
            size = self.settings.recipe.batch_size
            task.warm_start()
            pace = measure_pace(task, batch_size=size, validate=self._validation(task), budget=self.budget)
            seconds = max(0.0, self.budget.seconds - (time.monotonic() - self.budget.started))
        plan = make_plan(
            self.settings.recipe, num_instances=len(task.instances), trials=trials, seconds=seconds, pace=pace
        )
        log.info("%s: %s", self.settings.name, plan)
        self._keep(plan, {})
        return plan, {}

    def _keep(self, plan: Plan, scores: Mapping[str, float]) -> None:
        if self.directory is not None:
            kept = Checkpoint({"plan": asdict(plan), "scores": scores}, {})
            save_checkpoint(self.directory / "plan", kept, kind=self._kind, identity=self.identity)

    @property
    def _kind(self) -> str:
        return f"plan of {self.settings.name}"
