"""What a run has used so far, over all the times that it was stopped and taken up again."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from beamtree.storage import replace_text
from beamtree.training.events import ESTIMATOR, Event, Listener, StepDone, Validated
from beamtree.training.trainer import SELECTION_METRIC

Clock = Callable[[], float]


class Journal:
    """Seconds of wall-clock and of CPU time, and epochs of an estimator, kept in a file of the run's folder.

    It listens to the training and passes every event on. Work that is done twice, because a run was killed after its
    last checkpoint, counts twice.
    """

    def __init__(
        self, file: Path, listen: Listener, *, clock: Clock = time.monotonic, cpu_clock: Clock = time.process_time
    ) -> None:
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        self._file = file
        self._listen = listen
        self._clocks = (clock, cpu_clock)
        self._before = (float(kept.get("seconds", 0.0)), float(kept.get("cpu_seconds", 0.0)))
        self._started = (clock(), cpu_clock())
        self._charged = (0.0, 0.0)
        self.starts = int(kept.get("starts", 0)) + 1
        self.epochs: list[dict[str, float]] = kept.get("epochs", [])

    def __call__(self, event: Event) -> None:
        """Take note of an event; all but the single steps are written down at once."""
        if isinstance(event, Validated) and event.learner == ESTIMATOR:
            self.epochs = [entry for entry in self.epochs if entry["epoch"] < event.epoch]
            score = event.metrics[SELECTION_METRIC]
            self.epochs.append({"epoch": round(event.epoch, 3), "loss": event.loss, "score": score})
        if not isinstance(event, StepDone):
            self.save()
        self._listen(event)

    def seconds(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds so far."""
        wall, cpu = (
            before + clock() - started
            for before, clock, started in zip(self._before, self._clocks, self._started, strict=True)
        )
        return wall + self._charged[0], cpu + self._charged[1]

    def leave_out(self, seconds: float, cpu_seconds: float) -> None:
        """Do not count so much of what has passed: it went into waiting for another run."""
        self._before = (self._before[0] - seconds, self._before[1] - cpu_seconds)

    def charge(self, seconds: float, cpu_seconds: float) -> None:
        """Count work that another run did for this one; it is charged once, however often the run is taken up."""
        self._charged = (seconds, cpu_seconds)

    def save(self) -> None:
        """Write down what was used so far."""
        wall, cpu = (total - charged for total, charged in zip(self.seconds(), self._charged, strict=True))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        entry = {"seconds": wall, "cpu_seconds": cpu, "starts": self.starts, "epochs": self.epochs}
        replace_text(self._file, json.dumps(entry))
