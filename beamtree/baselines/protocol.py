"""The protocol of a baseline: fitted on a split, then searched with requests."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InterruptedTraining
from beamtree.evaluation.answers import Answers

if TYPE_CHECKING:
    from beamtree.training.events import Listener


@dataclass(frozen=True)
class CurvePoint:
    """A validation during training.

    learner: its name; a system may have several, one after the other. round: of model and tree, from 0. instances: that
    the learner has learned from by then, earlier rounds included. is_round: whether the round ended, with these metrics
    at its best; otherwise it goes on, maybe with a learning rate that is dropped afterwards.
    """

    learner: str
    round: int
    learning_rate: float
    instances: int
    metrics: Mapping[str, float]
    is_round: bool = False


@dataclass(frozen=True)
class Budget:
    """Settings and limits for fitting a baseline.

    config: the protocol that settings are chosen under, the seed, the history length, and SASRec's settings.
    seconds: no further setting of a grid is tried once they have passed; epochs bound what is trained.
    directory: where a baseline that trains keeps its checkpoints and its result; None = nowhere.
    record: called with every point of a learning curve; after a crash, with the latest ones again.
    """

    config: Config
    seconds: float | None = None
    directory: Path | None = None
    listen: "Listener" = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    record: Callable[[CurvePoint], None] = lambda _: None
    started: float = field(default_factory=time.monotonic)

    @property
    def seed(self) -> int:
        """Decides every random choice."""
        return self.config.training.seed

    @property
    def is_spent(self) -> bool:
        """Whether the seconds have passed."""
        return self.seconds is not None and time.monotonic() - self.started >= self.seconds

    def stop_if_asked(self) -> None:
        """InterruptedTraining when asked to stop."""
        if self.should_stop():
            raise InterruptedTraining("Stopped while a baseline was fitted. Nothing of that was saved.")


class Baseline(Protocol):
    """A system that can be fitted."""

    @property
    def name(self) -> str:
        """As in tables."""

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> Answers:
        """Fit on the training spans alone; settings may be tuned on the validation users.

        BaselineUnavailable, with the reason, where this data is not for it.
        """


@runtime_checkable
class Index(Protocol):
    """Search over an index of the items, with an effort that trades speed for recall.

    effort_name: such as "beam" or "probes"; effort: its value, efforts: values to measure,
    ascending. index_bytes: what a search keeps in memory beside the model that makes the query.
    """

    effort_name: str
    effort: int
    efforts: tuple[int, ...]
    index_bytes: int

    def with_effort(self, effort: int) -> Answers:
        """The same index with another effort."""
