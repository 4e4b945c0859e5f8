"""The training loop, in the open: step, look, validate, save."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beamtree.config import TrainingSettings
from beamtree.errors import DivergedError, InterruptedTraining
from beamtree.training.checkpoint import (
    Progress,
    RunIdentity,
    has_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from beamtree.training.events import Listener, Resumed, StepDone, StoppedEarly, Validated
from beamtree.training.instances import Batch, ShuffledOrder
from beamtree.training.learner import Learner
from beamtree.training.schedule import learning_rates

Validate = Callable[[], Mapping[str, float]]

SELECTION_METRIC = "f@20"
"""The metric by which the best weights are chosen."""

SMOOTHING = 0.02


class Instances(Protocol):
    """Numbered training instances that can be cut into batches."""

    def __len__(self) -> int: ...

    def batch(self, instances: npt.NDArray[np.int64], *, epoch: int = 0) -> Batch:
        """Histories and targets of the numbered instances in an epoch."""
        ...

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """What they must remember when a run goes on from a checkpoint."""
        ...

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Remember what `state` gave then."""
        ...


@dataclass(frozen=True)
class CheckpointPlan:
    """Where checkpoints go, whose they are, and whether to start from the one that is there."""

    directory: Path
    identity: RunIdentity
    resume: bool


def optimise(
    learner: Learner,
    instances: Instances,
    *,
    settings: TrainingSettings,
    validate: Validate | None,
    plan: CheckpointPlan | None,
    listen: Listener,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Train to the end or until validation stops improving, and leave the best weights in the learner's model.

    validate: metrics of the model, as it is now, on the validation users; None trains to the end and keeps the last
    weights.
    Raises DivergedError without saving when the loss is not finite or runs away, and InterruptedTraining after saving
    when `should_stop` says so.
    """
    order = ShuffledOrder(len(instances), batch_size=settings.batch_size, seed=settings.seed)
    total_steps = max(1, round(settings.epochs * order.steps_per_epoch))
    if settings.most_instances is not None:
        total_steps = min(total_steps, max(1, settings.most_instances // order.batch_size))
    rate = learning_rates(settings, total_steps=total_steps)
    validation_steps = {round(total_steps * (i + 1) / settings.validations) for i in range(settings.validations)}
    progress, best = Progress(), _copy(learner.model_arrays())
    if plan is not None and plan.resume and has_checkpoint(plan.directory):
        restored = restore_checkpoint(plan.directory, learner, identity=plan.identity)
        progress, best = restored.progress, restored.best
        instances.restore(restored.instances)
        listen(Resumed(progress.step))

    counted_at = clock()

    def save() -> None:
        nonlocal counted_at
        progress.seconds += clock() - counted_at
        counted_at = clock()
        if plan is not None:
            kept = instances.state()
            save_checkpoint(
                plan.directory, learner, best=best, instances=kept, progress=progress, identity=plan.identity
            )

    saved_at = clock()
    while progress.step < total_steps and progress.validations_since_best < settings.patience:
        step = progress.step
        batch = instances.batch(order.instances_of(step), epoch=step // order.steps_per_epoch)
        gradients = learner.gradients(batch, step=step)
        learner.apply(gradients, step=step, learning_rate=rate(step))
        loss = gradients.loss
        progress.step += 1
        _watch(progress, loss, settings=settings)
        listen(StepDone(progress.step, total_steps, order.batch_size, progress.smoothed_loss or loss, rate(step)))

        if validate is not None and progress.step in validation_steps:
            metrics = dict(validate())
            if progress.best_score is None or metrics[SELECTION_METRIC] > progress.best_score:
                best = _copy(learner.model_arrays())
                progress.best_score, progress.best_step = metrics[SELECTION_METRIC], progress.step
                progress.validations_since_best = 0
            else:
                progress.validations_since_best += 1
            epoch = progress.step / order.steps_per_epoch
            progress.validations.append({"step": progress.step, "epoch": epoch, **metrics})
            listen(Validated(progress.step, epoch, metrics, is_best=progress.best_step == progress.step))

        stopping = should_stop()
        overdue = clock() - saved_at >= 60.0 * settings.checkpoint_minutes
        if stopping or overdue or progress.step in validation_steps or progress.step == total_steps:
            save()
            saved_at = clock()
        if stopping and progress.step < total_steps:
            raise InterruptedTraining(_interrupted(progress.step, total_steps, plan))

    progress.seconds += clock() - counted_at
    if progress.step < total_steps:
        listen(StoppedEarly(progress.step, progress.best_step))
    if validate is not None and progress.best_score is not None:
        learner.load_model_arrays(best)
    return progress


def _watch(progress: Progress, loss: float, *, settings: TrainingSettings) -> None:
    """Smooth the loss and stop a run that has gone wrong before it overwrites anything."""
    if not math.isfinite(loss):
        raise DivergedError(
            f"The loss became {loss} at step {progress.step}. Nothing was saved since the last checkpoint. "
            f"Start again (--restart) with a lower training.learning_rate (now {settings.learning_rate:g}) or "
            f"training.clip_norm (now {settings.clip_norm:g})."
        )
    before = loss if progress.smoothed_loss is None else progress.smoothed_loss
    progress.smoothed_loss = before + SMOOTHING * (loss - before)
    progress.lowest_loss = min(progress.smoothed_loss, progress.lowest_loss or progress.smoothed_loss)
    if progress.smoothed_loss > 2.0 * progress.lowest_loss + 1.0:
        raise DivergedError(
            f"The loss rose from {progress.lowest_loss:.3f} to {progress.smoothed_loss:.3f} by step {progress.step}: "
            "training runs away. Start again (--restart) with a lower training.learning_rate "
            f"(now {settings.learning_rate:g}) or a longer training.warmup_steps (now {settings.warmup_steps})."
        )


def _interrupted(step: int, total_steps: int, plan: CheckpointPlan | None) -> str:
    if plan is None:
        return f"Stopped after step {step} of {total_steps}. Nothing was saved: no folder for checkpoints was given."
    return f"Stopped after step {step} of {total_steps}; the checkpoint is in {plan.directory}. Go on with --resume."


def _copy(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {name: array.copy() for name, array in arrays.items()}
