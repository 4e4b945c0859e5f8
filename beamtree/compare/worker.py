"""A process that fits and measures one system: python -m beamtree.compare.worker TASK.json FOLDER

It says on its standard output, one JSON object per line, how far it is. What comes of it is written to the folder.
A system that is not for this log, or whose library is missing, is an answer too.
"""

import json
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamtree.baselines.protocol import Budget
from beamtree.compare.measurement import measure_system
from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import WORK, Task, write_result
from beamtree.data.interactions import read_log
from beamtree.data.items import read_items
from beamtree.data.prepare import prepare_log
from beamtree.errors import BaselineUnavailable, BeamtreeError, InterruptedTraining
from beamtree.evaluation.protocol import describe_protocol, split_dataset
from beamtree.training.interrupt import stop_requests

if TYPE_CHECKING:
    from beamtree.training.events import Event

SAID_EVERY = 0.5
INTERRUPTED = 130


class Steps:
    """Counts the steps of whatever trains, and passes on how far it is."""

    def __init__(self) -> None:
        self.count = 0
        self._said = 0.0

    def __call__(self, event: "Event") -> None:
        """Hear of an event."""
        from beamtree.training.events import StepDone

        if not isinstance(event, StepDone):
            return
        self.count += 1
        now = time.monotonic()
        if now - self._said >= SAID_EVERY:
            self._said = now
            say(stage="fitting", done=event.step / max(event.total_steps, 1))


def run(task: Task, directory: Path) -> dict[str, Any]:
    """Fit and measure; the answer."""
    say(stage="reading", done=0.0)
    items = None if task.items is None else read_items(task.items)
    prepared = prepare_log(read_log(task.log, task.config.log), config=task.config, items=items)
    dataset, config = prepared.dataset, prepared.config
    split = split_dataset(dataset, config=config)
    steps = Steps()
    with stop_requests() as should_stop:
        work = directory / WORK / f"seed{task.seed}"
        budget = Budget(config, seconds=task.budget_seconds, directory=work, listen=steps, should_stop=should_stop)
        started, cpu_started = time.perf_counter(), time.process_time()
        say(stage="fitting", done=0.0)
        fitted = SYSTEMS[task.system].entry.fit(dataset, split, budget=budget)
        fit_seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        say(stage="measuring", done=1.0)
        measured = measure_system(fitted, dataset, split, config=config, cutoffs=task.cutoffs)
    return {
        **measured.figures(),
        "per_user": {name: values.round(4).tolist() for name, values in measured.metrics.per_user.items()},
        "users": measured.metrics.num_users,
        "catalogue": len(dataset.items),
        "protocol": describe_protocol(config, measured.metrics),
        "fit_seconds": round(fit_seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "steps": steps.count,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "settings": config.model_dump(mode="json"),
    }


def say(**fields: Any) -> None:
    """A line for whoever started this process."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Do the task of a file."""
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
