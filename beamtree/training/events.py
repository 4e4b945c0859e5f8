"""Events of a training; listeners (progress bar, log lines, a test) are passed in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

TREE_MODEL = "tree model"
ESTIMATOR = "estimator"
"""Names of learners in events: several may take turns in one fit."""


@dataclass(frozen=True)
class LogPrepared:
    """The log was read and training begins: what it is like and what that decides, in sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class ModelUpdated:
    """A model has gone on with new rows: what there was, and how it does now, in sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class EpochCutShort:
    """Before it begins: a learner will not see every training interaction once, and the setting that decides it."""

    line: str


@dataclass(frozen=True)
class StepDone:
    """A step was taken; loss is smoothed over recent steps, instances is the size of the batch."""

    learner: str
    step: int
    total_steps: int
    instances: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class Validated:
    """A learner was measured on the validation users; loss is smoothed over recent steps."""

    learner: str
    step: int
    epoch: float
    loss: float
    metrics: Mapping[str, float]
    is_best: bool


@dataclass(frozen=True)
class Resumed:
    """Training goes on from a checkpoint."""

    learner: str
    step: int


@dataclass(frozen=True)
class StoppedEarly:
    """Validation stopped improving, or time was up."""

    learner: str
    step: int
    best_step: int


@dataclass(frozen=True)
class WorkersDone:
    """The workers of a cluster have finished a training, or the part of it since one of them was last replaced.

    step_seconds: the median of the last steps, from update to update. bytes_sent: what a worker put on the network in
    all steps.
    """

    learner: str
    workers: int
    steps: int
    step_seconds: float
    bytes_sent: int


@dataclass(frozen=True)
class EstimatorAwaited:
    """Another run, the holder, trains the very estimator that this one needs; it goes on when that one ends."""

    directory: str
    holder: str


@dataclass(frozen=True)
class TreeRelearned:
    """A round ended with a new tree: how many items moved, and the log-likelihood of the placement before and after."""

    round: int
    moved_share: float
    score_before: float
    score_after: float


@dataclass(frozen=True)
class PartsWeighed:
    """The parts of the score were given their weights, by the names of the settings that keep them.

    metric: F@20 of validation users, if any; is_calibrated: whether they were enough to choose by.
    """

    weights: Mapping[str, float]
    metric: float | None
    is_calibrated: bool
    seconds: float


Event = (
    LogPrepared
    | ModelUpdated
    | EpochCutShort
    | StepDone
    | Validated
    | Resumed
    | StoppedEarly
    | WorkersDone
    | EstimatorAwaited
    | TreeRelearned
    | PartsWeighed
)
Listener = Callable[[Event], None]
