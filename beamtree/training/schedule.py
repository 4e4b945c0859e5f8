"""Training schedules: the order of the batches, the learning rate of each step, the steps to validate at."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from beamtree.config import EstimatorSettings, TrainingSettings
from beamtree.training.order import ShuffledOrder, full_batches, whole_epochs

FLOOR = 1e-6
"""No decay goes below this learning rate."""

PUBLISHED_DECAY_STEPS = 15_000.0
"""Exponential decay falls to 1/e in this number of steps after the warm-up."""

SHORT_WARMUP_STEPS = 100

Decay = Literal["cosine", "exponential", "constant"]

LearningRate = Callable[[int], float]
"""From the step, counted from 0, to its learning rate."""


@dataclass(frozen=True)
class Schedule:
    """How long a learner trains, on which batches, and how often it is validated.

    validation_steps: the numbers of finished steps at which to validate. patience: validations without an improvement
    that end the training. remedy: the last sentence of the error message of a diverged loss: which settings to change.
    """

    order: ShuffledOrder
    total_steps: int
    learning_rate: LearningRate
    validation_steps: frozenset[int]
    patience: int
    remedy: str


def model_schedule(settings: TrainingSettings, *, num_instances: int) -> Schedule:
    """Full batches for the epochs or instances that the settings allow, with evenly spread validations."""
    order = full_batches(num_instances, batch_size=settings.batch_size, seed=settings.seed)
    total_steps = max(1, round(settings.epochs * order.steps_per_epoch))
    if settings.max_instances is not None:
        batch_size = order.instances_per_epoch // order.steps_per_epoch
        total_steps = min(total_steps, max(1, settings.max_instances // batch_size))
    return Schedule(
        order=order,
        total_steps=total_steps,
        learning_rate=learning_rates(settings, total_steps=total_steps),
        validation_steps=_spread(settings.schedule.validations, total_steps=total_steps),
        patience=settings.schedule.patience,
        remedy=(
            f"Start again (--restart) with a lower training.learning_rate (now {settings.learning_rate:g}), a lower "
            f"training.schedule.clip_norm (now {settings.schedule.clip_norm:g}) or a longer "
            f"training.schedule.warmup_steps (now {settings.schedule.warmup_steps})."
        ),
    )


def epoch_schedule(
    num_instances: int,
    *,
    batch_size: int,
    epochs: float,
    learning_rate: float,
    decay: Decay,
    validations: int,
    patience: int,
    seed: int,
    remedy: str,
) -> Schedule:
    """Every instance once an epoch, in batches of nearly one size; a short warm-up, evenly spread validations."""
    order = whole_epochs(num_instances, batch_size=batch_size, seed=seed)
    total_steps = max(1, round(epochs * order.steps_per_epoch))
    return Schedule(
        order=order,
        total_steps=total_steps,
        learning_rate=_rates(learning_rate, warmup_steps=SHORT_WARMUP_STEPS, decay=decay, total_steps=total_steps),
        validation_steps=_spread(validations, total_steps=total_steps),
        patience=patience,
        remedy=remedy,
    )


def estimator_schedule(
    settings: EstimatorSettings, *, num_items: int, num_windows: int, num_positions: int, seed: int
) -> Schedule:
    """Epochs over windows of `num_positions` positions in total, by the settings of the estimator."""
    epochs = settings.epochs
    if settings.max_positions is not None:
        epochs = min(epochs, settings.max_positions / num_positions)
    return epoch_schedule(
        num_windows,
        batch_size=max(1, round(settings.batch_positions_of(num_items) * num_windows / num_positions)),
        epochs=epochs,
        learning_rate=settings.learning_rate,
        decay=settings.recipe.decay,
        validations=settings.recipe.validations,
        patience=settings.recipe.patience,
        seed=seed,
        remedy=f"Lower estimator.learning_rate (now {settings.learning_rate:g}) and start again.",
    )


def learning_rates(settings: TrainingSettings, *, total_steps: int) -> LearningRate:
    """Linear warm-up over at most a tenth of the steps, then the decay that the settings name."""
    return _rates(
        settings.learning_rate,
        warmup_steps=settings.schedule.warmup_steps,
        decay=settings.schedule.decay,
        total_steps=total_steps,
    )


def _rates(peak: float, *, warmup_steps: int, decay: Decay, total_steps: int) -> LearningRate:
    warmup = min(warmup_steps, total_steps // 10)
    remaining = max(total_steps - warmup, 1)

    def decayed(step: int) -> float:
        match decay:
            case "cosine":
                return 0.5 * peak * (1.0 + math.cos(math.pi * step / remaining))
            case "exponential":
                return peak * math.exp(-step / PUBLISHED_DECAY_STEPS)
            case "constant":
                return peak

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        return max(decayed(step - warmup), min(FLOOR, peak))

    return rate


def _spread(validations: int, *, total_steps: int) -> frozenset[int]:
    """The steps after which to validate, evenly spread up to the last one."""
    return frozenset(round(total_steps * (number + 1) / validations) for number in range(validations))
