"""The learning rate over the steps: linear warm-up, then decay."""

import math
from collections.abc import Callable

from beamtree.config import TrainingSettings

FLOOR = 1e-6
"""No decay goes below this learning rate."""

PUBLISHED_DECAY_STEPS = 15_000.0
"""Exponential decay falls to 1/e in so many steps after the warm-up."""

Schedule = Callable[[int], float]


def learning_rates(settings: TrainingSettings, *, total_steps: int) -> Schedule:
    """A function from the step, counted from 0, to its learning rate."""
    peak = settings.learning_rate
    warmup = min(settings.warmup_steps, total_steps // 10)
    remaining = max(total_steps - warmup, 1)

    def decayed(step: int) -> float:
        match settings.decay:
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
