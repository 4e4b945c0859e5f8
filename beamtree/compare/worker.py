"""A process that fits and measures one system: python -m beamtree.compare.worker TASK.json FOLDER

It reports progress on standard output, one JSON object per line, and writes the result to the folder.
A system that is unavailable for this log, or whose library is missing, is a result too.
"""

import json
import resource
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.compare.curve import CurveFile, curve_path
from beamtree.compare.measurement import measure_system
from beamtree.compare.spent import Spent
from beamtree.compare.systems import System
from beamtree.compare.task import WORK, Task, write_result
from beamtree.data.interactions import read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import prepare_log
from beamtree.errors import BaselineUnavailable, BeamtreeError, InputError, InterruptedTraining
from beamtree.evaluation.protocol import describe_protocol, split_dataset
from beamtree.training.interrupt import stop_requests

if TYPE_CHECKING:
    from beamtree.training.events import Event

SAID_EVERY = 0.5
INTERRUPTED = 130


class ProgressReport:
    """Reports the progress of a fit: by instances over all rounds, if these alone limit it."""

    def __init__(self, task: Task, *, learned: int) -> None:
        self._learned = learned
        self._most = task.config.training.max_instances if task.budget_seconds is None else None
        self._said = 0.0

    def __call__(self, event: "Event") -> None:
        """Report the progress of an event."""
        from beamtree.training.events import ESTIMATOR, StepDone

        if not isinstance(event, StepDone):
            return
        is_tree = event.learner != ESTIMATOR
        self._learned += event.instances if is_tree else 0
        now = time.monotonic()
        if now - self._said >= SAID_EVERY:
            self._said = now
            done = event.step / max(event.total_steps, 1)
            if self._most is not None:
                done = min(1.0, self._learned / self._most) if is_tree else 0.0
            say(stage="fitting" if is_tree or self._most is None else "training the encoder", done=done)


def run(task: Task, directory: Path) -> dict[str, Any]:
    """Fit and measure; return the result."""
    say(stage="reading", done=0.0)
    items = None if task.items is None else read_items(task.items)
    prepared = prepare_log(read_log(task.log, task.config.log), config=task.config, items=items)
    dataset, config = prepared.dataset, prepared.config
    split = split_dataset(dataset, config=config, fold=task.fold)
    if not len(split.test):
        raise InputError(
            f"Nobody is left to be tested on: {split.description}. Hold out others, such as with "
            "--set data.protocol=clean or --set data.min_held_out=5."
        )
    system: System = import_module(task.systems_module).SYSTEMS[task.system].changed(task.changes)
    spent = Spent(directory / WORK / f"{task.name}-spent.json", task)
    curve = CurveFile(curve_path(directory, task), task, seconds=lambda: spent.seconds)
    report_progress = ProgressReport(task, learned=curve.instances)

    def listen(event: "Event") -> None:
        spent(event)
        report_progress(event)

    with stop_requests() as should_stop:
        budget = Budget(
            config,
            seconds=task.budget_seconds,
            directory=directory / WORK / task.repetition,
            listen=listen,
            should_stop=should_stop,
            record=curve.record,
        )
        say(stage="fitting", done=0.0)
        try:
            fitted = system.entry.fit(dataset, split, budget=budget)
        finally:
            spent.save()
        costs = spent.figures()
        say(stage="measuring", done=1.0)
        measured = measure_system(fitted, dataset, split, config=config, cutoffs=task.cutoffs)
    return {
        "family": system.family,
        **measured.figures(),
        "per_user": {name: values.round(4).tolist() for name, values in measured.metrics.per_user.items()},
        "users": measured.metrics.num_users,
        "catalogue": len(dataset.items),
        "protocol": describe_protocol(config, measured.metrics),
        **costs,
        "instances": curve.instances,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "settings": config.model_dump(mode="json"),
        **({"findings": dict(fitted.findings)} if isinstance(fitted, BeamIndex) and fitted.findings else {}),
    }


def say(**fields: Any) -> None:
    """Send a line to the parent process; InterruptedTraining if it is gone."""
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise InterruptedTraining("The comparison that started this fit is gone.") from None


def main(arguments: list[str]) -> int:
    """Run the task in a file."""
    task, directory = Task.from_text(Path(arguments[0]).read_text(encoding="utf-8")), Path(arguments[1])
    try:
        result = run(task, directory)
    except InterruptedTraining:
        return INTERRUPTED
    except BaselineUnavailable as reason:
        result = {"left_out": str(reason)}
    except BeamtreeError as error:
        result = {"failed": str(error)}
    except Exception:
        result = {"failed": traceback.format_exc(limit=-3)}
    write_result(directory, task, result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
