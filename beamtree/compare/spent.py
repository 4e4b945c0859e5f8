"""Time and steps of a fit over all restarts, kept on disk."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamtree.compare.task import Task
from beamtree.storage import replace_text

if TYPE_CHECKING:
    from beamtree.training.events import Event

SAVED_EVERY = 5.0
Clock = Callable[[], float]


@dataclass
class Steps:
    """Steps of one learner, and the seconds from one to the next where nothing else happened in between."""

    steps: int = 0
    timed_steps: int = 0
    seconds: float = 0.0


@dataclass
class Spent:
    """Seconds of wall-clock and of CPU time, and the steps of each learner.

    Listens to training. file: of this task alone; what another task left there does not count. Work that is done twice
    after a crash counts twice.
    """

    file: Path
    task: Task
    clock: Clock = time.perf_counter
    cpu_clock: Clock = time.process_time
    learners: dict[str, Steps] = field(default_factory=dict)
    starts: int = 1

    def __post_init__(self) -> None:
        self._before = (0.0, 0.0)
        self._started = (self.clock(), self.cpu_clock())
        self._saved = self._started[0]
        self._latest: tuple[str, float] | None = None
        kept = _read(self.file)
        if kept.get("key") == self.task.key:
            self._before = (kept["seconds"], kept["cpu_seconds"])
            self.learners = {name: Steps(**steps) for name, steps in kept["learners"].items()}
            self.starts = kept["starts"] + 1
        self.save()  # a crash before the next one is a start all the same

    def __call__(self, event: "Event") -> None:
        """Record an event."""
        from beamtree.training.events import StepDone

        now = self.clock()
        if not isinstance(event, StepDone):
            self._latest = None
            return
        learner = self.learners.setdefault(event.learner, Steps())
        learner.steps += 1
        if self._latest is not None and self._latest[0] == event.learner:
            learner.timed_steps += 1
            learner.seconds += now - self._latest[1]
        self._latest = (event.learner, now)
        if now - self._saved >= SAVED_EVERY:
            self.save()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds so far."""
        return self._before[0] + self.clock() - self._started[0]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds so far."""
        return self._before[1] + self.cpu_clock() - self._started[1]

    @property
    def steps(self) -> int:
        """Of all learners."""
        return sum(learner.steps for learner in self.learners.values())

    def figures(self) -> dict[str, Any]:
        """For a result."""
        return {
            "fit_seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "steps": self.steps,
            "starts": self.starts,
            "step_seconds": {
                name: round(learner.seconds / learner.timed_steps, 6)
                for name, learner in self.learners.items()
                if learner.timed_steps
            },
        }

    def save(self) -> None:
        """Write the totals to the file."""
        self._saved = self.clock()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "key": self.task.key,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "starts": self.starts,
            "learners": {name: vars(learner) for name, learner in self.learners.items()},
        }
        replace_text(self.file, json.dumps(kept))


def _read(file: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept
