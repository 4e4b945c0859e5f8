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


@dataclass(frozen=True)
class EstimatorValidated:
    """An epoch of the estimator is over; score is its metric on the validation users."""

    epoch: int
    most_epochs: int
    loss: float
    score: float
    is_best: bool


@dataclass(frozen=True)
class EstimatorAwaited:
    """Another run is training the very estimator that this one needs; it goes on when that one ends."""

    directory: str


@dataclass(frozen=True)
class TreeRelearned:
    """A round ended with a new tree: how many items moved, and the log-likelihood of the placement before and after."""

    round: int
    moved_share: float
    score_before: float
    score_after: float


Event = StepDone | Validated | Resumed | StoppedEarly | EstimatorValidated | EstimatorAwaited | TreeRelearned
Listener = Callable[[Event], None]
