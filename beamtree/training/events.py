"""What training tells the outside while it runs. Who listens (progress bar, log lines, nobody) is passed in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StepDone:
    """A step was taken; loss is smoothed over recent steps."""

    step: int
    total_steps: int
    instances: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class Validated:
    """The model was asked for the validation users."""

    step: int
    epoch: float
    metrics: Mapping[str, float]
    is_best: bool


@dataclass(frozen=True)
class Resumed:
    """Training goes on from a checkpoint."""

    step: int


@dataclass(frozen=True)
class StoppedEarly:
    """Validation stopped improving."""

    step: int
    best_step: int


Event = StepDone | Validated | Resumed | StoppedEarly
Listener = Callable[[Event], None]
