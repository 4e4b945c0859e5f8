"""The training loop of every model: step, report, validate, save."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from beamtree.errors import DivergedError, InterruptedTraining
from beamtree.machine import freed_memory_kept
from beamtree.training.checkpoint import (
    Arrays,
    Checkpoint,
    Identity,
    copied,
    load_checkpoint,
    save_checkpoint,
)
from beamtree.training.events import Listener, Resumed, StepDone, StoppedEarly, Validated
from beamtree.training.learner import Learner
from beamtree.training.schedule import Schedule
from beamtree.types import AnyArray, Int64Array

SELECTION_METRIC = "f@20"
"""The metric by which the best weights are chosen; every validation has it."""

SMOOTHING = 0.02


class Instances(Protocol):
    """Numbered training instances that can be cut into batches."""

    def __len__(self) -> int: ...

    def batch(self, instances: Int64Array, *, epoch: int) -> Any:
        """What the learner takes: the numbered instances as they are in an epoch."""

    def state(self) -> Arrays:
        """What they must remember when a run goes on from a checkpoint."""

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Remember what `state` gave then."""


@dataclass
class Progress:
    """Where a training stands; small, exact, and all there is besides the arrays.

    seconds: spent so far, over all starts.
    """

    step: int = 0
    smoothed_loss: float | None = None
    lowest_loss: float | None = None
    best_step: int = 0
    best_score: float | None = None
    validations_since_best: int = 0
    validations: list[dict[str, float]] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)

    def best_validation(self) -> dict[str, float]:
        """Step, epoch and metrics of the best validation; empty where there was none."""
        return next((entry for entry in self.validations if entry["step"] == self.best_step), {})


@dataclass(frozen=True)
class CheckpointPlan:
    """Where checkpoints go, whose they are, and whether to start from the one that is there.

    minutes: time between checkpoints; validations and the end of training write one anyway. writes: False for those
    workers of a cluster that read what another one writes.
    """

    directory: Path
    identity: Identity
    resume: bool
    minutes: float
    writes: bool = True


@dataclass(frozen=True)
class Trainer:
    """Trains a learner to the end of its schedule, or until validation stops improving.

    name: what is trained, in events, messages and checkpoints.
    validate: metrics, on the validation users, of what was learned by then; None trains to the end and keeps the last
    weights.
    plan: None keeps no checkpoints. should_stop: asked after every step. max_seconds: training that has taken so long,
    over all starts, ends with the step at hand, which is validated; None = it may take as long as it takes.
    """

    name: str
    learner: Learner
    instances: Instances
    schedule: Schedule
    validate: Callable[[], Mapping[str, float]] | None
    plan: CheckpointPlan | None
    listen: Listener
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    max_seconds: float | None = None

    def run(self, *, seconds_before: float = 0.0) -> Progress:
        """Train, and leave the best weights in the learner.

        seconds_before: what preparing the learner took; counted unless this goes on from a checkpoint.
        Raises DivergedError without saving when the loss is not finite or runs away, and InterruptedTraining after
        saving when `should_stop` says so.
        """
        with freed_memory_kept():
            return self._run(seconds_before)

    def _run(self, seconds_before: float) -> Progress:
        learner, schedule = self.learner, self.schedule
        order, total_steps = schedule.order, schedule.total_steps
        progress, best = self._begin(seconds_before)
        counted_at = saved_at = self.clock()

        is_spent = progress.step > 0 and self.max_seconds is not None and progress.seconds >= self.max_seconds
        while progress.step < total_steps and progress.validations_since_best < schedule.patience and not is_spent:
            step = progress.step
            numbers, rate = order.instances_of(step), schedule.learning_rate(step)
            batch = self.instances.batch(numbers, epoch=step // order.steps_per_epoch)
            gradients = learner.gradients(batch, step=step)
            loss = self._watch(progress, gradients.loss)
            learner.apply(gradients, step=step, learning_rate=rate)
            progress.step += 1
            self.listen(StepDone(self.name, progress.step, total_steps, len(numbers), loss, rate))

            if self.max_seconds is not None:
                is_spent = progress.seconds + self.clock() - counted_at >= self.max_seconds
            is_validation = is_spent or progress.step in schedule.validation_steps
            if is_validation and self.validate is not None:
                metrics = dict(self.validate())
                best = self._compare(progress, metrics, best=best)

            is_stopping, now = self.should_stop(), self.clock()
            is_overdue = self.plan is not None and now - saved_at >= 60.0 * self.plan.minutes
            if is_stopping or is_overdue or is_validation or progress.step == total_steps:
                progress.seconds += now - counted_at
                counted_at = now
                self._save(progress, best)
                saved_at = self.clock()
            if is_stopping and progress.step < total_steps:
                raise InterruptedTraining(self._interrupted(progress.step))

        progress.seconds += self.clock() - counted_at
        if progress.step < total_steps and progress.validations_since_best >= schedule.patience:
            self.listen(StoppedEarly(self.name, progress.step, progress.best_step))
        if progress.best_score is not None:
            learner.load_model_arrays(best)
        return progress

    def _begin(self, seconds_before: float) -> tuple[Progress, Arrays]:
        """The progress and the best weights so far, from the checkpoint if there is one to go on from."""
        plan = self.plan
        if plan is not None and plan.resume:
            kept = load_checkpoint(plan.directory, kind=self.name, identity=plan.identity)
            if kept is not None:
                self.learner.load_model_arrays(kept.group("model"))
                self.learner.restore_optimiser(kept.group("optimiser"))
                self.instances.restore(kept.group("instances"))
                progress = Progress(**kept.progress)
                self.listen(Resumed(self.name, progress.step))
                return progress, kept.group("best")
        return Progress(seconds=seconds_before), {}

    def _watch(self, progress: Progress, loss: float) -> float:
        """Smooth the loss, and stop a run that has gone wrong before it changes or overwrites anything."""
        step = progress.step + 1
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss of the {self.name} became {loss} at step {step}. Nothing was saved since the last "
                f"checkpoint. {self.schedule.remedy}"
            )
        before = loss if progress.smoothed_loss is None else progress.smoothed_loss
        smoothed = before + SMOOTHING * (loss - before)
        lowest = smoothed if progress.lowest_loss is None else min(smoothed, progress.lowest_loss)
        if smoothed > 2.0 * lowest + 1.0:
            raise DivergedError(
                f"The loss of the {self.name} rose from {lowest:.3f} to {smoothed:.3f} by step {step}: training runs "
                f"away. {self.schedule.remedy}"
            )
        progress.smoothed_loss, progress.lowest_loss = smoothed, lowest
        return smoothed

    def _compare(self, progress: Progress, metrics: dict[str, float], *, best: Arrays) -> Arrays:
        """Take note of a validation; the best weights by now."""
        score = metrics[SELECTION_METRIC]
        is_best = progress.best_score is None or score > progress.best_score
        if is_best:
            best = copied(self.learner.model_arrays())
            progress.best_score, progress.best_step, progress.validations_since_best = score, progress.step, 0
        else:
            progress.validations_since_best += 1
        epoch = progress.step / self.schedule.order.steps_per_epoch
        progress.validations.append({"step": progress.step, "epoch": epoch, **metrics})
        loss = progress.smoothed_loss or 0.0
        self.listen(Validated(self.name, progress.step, epoch, loss, metrics, is_best))
        return best

    def _save(self, progress: Progress, best: Arrays) -> None:
        if self.plan is None:
            return
        arrays = {
            "model": self.learner.model_arrays(),
            "optimiser": self.learner.optimiser_arrays(),
            "best": best,
            "instances": self.instances.state(),
        }
        if self.plan.writes:
            checkpoint = Checkpoint(asdict(progress), arrays)
            save_checkpoint(self.plan.directory, checkpoint, kind=self.name, identity=self.plan.identity)

    def _interrupted(self, step: int) -> str:
        done = f"Stopped after step {step} of {self.schedule.total_steps} of the {self.name}"
        if self.plan is None:
            return f"{done}. Nothing was saved: no folder for checkpoints was given."
        return f"{done}; the checkpoint is in {self.plan.directory}. Go on with --resume (resume=True)."


class RunTraining(Protocol):
    """Where a training is carried out: `Trainer.run` does it in this process, `beamtree.cluster` on several ones."""

    def __call__(self, trainer: Trainer, /, *, seconds_before: float = 0.0) -> Progress:
        """Train as `Trainer.run` does, and leave the best weights in the trainer's learner."""
