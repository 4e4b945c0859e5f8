"""Tasks in worker processes: finished results are reused, and nothing finished is lost on Ctrl-C or kill."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamtree.compare.task import WORK, Task, read_result, result_path, write_result
from beamtree.errors import InterruptedTraining
from beamtree.storage import replace_text
from beamtree.training.interrupt import stop_requests

POLL_SECONDS = 0.2
GRACE_SECONDS = 600.0
"""Beyond twice its budget, for reading and measuring; then a task is stopped."""
STOP_SECONDS = 30.0
MODULE = "beamtree.compare.worker"


@dataclass
class Progress:
    """Progress of a task. fitting_since: the first report of progress, and its time."""

    task: Task
    stage: str = "waiting"
    done: float = 0.0
    started: float | None = None
    seconds: float = 0.0
    fitting_since: tuple[float, float] | None = None
    result: dict[str, Any] | None = None


Show = Callable[[Sequence[Progress]], None]
"""Called with the progress of all tasks, several times a second."""


@dataclass(eq=False)
class _Running:
    progress: Progress
    process: "subprocess.Popen[str]"
    readers: Sequence[threading.Thread]
    errors: list[str] = field(default_factory=list)


def run_tasks(tasks: Sequence[Task], directory: Path, *, jobs: int, show: Show = lambda _: None) -> list[Progress]:
    """Run all tasks without a result. InterruptedTraining when asked to stop; finished results stay."""
    everything = [Progress(task) for task in tasks]
    for progress in everything:
        kept = read_result(directory, progress.task)
        if kept is not None and "failed" not in kept:  # what failed is tried again
            _settle(progress, kept)
    waiting = [progress for progress in everything if progress.result is None]
    running: list[_Running] = []
    with stop_requests() as should_stop:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_start(waiting.pop(0), directory))
                time.sleep(POLL_SECONDS)
                for one in running:
                    one.progress.seconds = time.monotonic() - (one.progress.started or 0.0)
                    budget = one.progress.task.budget_seconds
                    if budget is not None and one.progress.seconds > 2 * budget + GRACE_SECONDS:
                        one.process.kill()
                running = [one for one in running if not _has_ended(one, directory)]
                show(everything)
                if should_stop():
                    done = sum(one.result is not None for one in everything)
                    raise InterruptedTraining(
                        f"Stopped. {done} of {len(everything)} fits are measured and kept; the same command goes on."
                    )
        finally:
            for one in running:
                one.process.send_signal(signal.SIGINT)
            for one in running:
                try:
                    one.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    one.process.kill()
                    one.process.wait()
                _close(one)
    show(everything)
    return everything


def _start(progress: Progress, directory: Path) -> _Running:
    file = directory / WORK / f"{progress.task.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(file, progress.task.text())
    result_path(directory, progress.task).unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(file), str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process alone, which then asks the others to stop
    )
    progress.started, progress.stage = time.monotonic(), "starting"
    errors: list[str] = []

    def follow() -> None:
        for line in process.stdout or ():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            progress.stage, progress.done = said["stage"], said["done"]
            if progress.fitting_since is None and progress.stage == "fitting" and progress.done > 0.0:
                progress.fitting_since = progress.done, time.monotonic()

    def collect() -> None:
        for line in process.stderr or ():
            errors.append(line)
            del errors[:-20]

    readers = [threading.Thread(target=target, daemon=True) for target in (follow, collect)]
    for reader in readers:
        reader.start()
    return _Running(progress, process, readers, errors)


def _has_ended(one: _Running, directory: Path) -> bool:
    """Whether a process has ended; without a result it counts as failed."""
    code = one.process.poll()
    if code is None:
        return False
    _close(one)
    task = one.progress.task
    result = read_result(directory, task)
    if result is None:
        said = "".join(one.errors).strip() or "it said nothing"
        result = {"failed": f"The process ended with code {code}: {said}"}
        write_result(directory, task, result)
    _settle(one.progress, result)
    return True


def _close(one: _Running) -> None:
    """Read the remaining output of an ended process."""
    for reader in one.readers:
        reader.join()
    for stream in (one.process.stdout, one.process.stderr):
        if stream is not None:
            stream.close()


def _settle(progress: Progress, result: dict[str, Any]) -> None:
    progress.result, progress.done = result, 1.0
    progress.stage = next((kind for kind in ("failed", "left_out") if kind in result), "measured")
    progress.seconds = result.get("fit_seconds", progress.seconds)
