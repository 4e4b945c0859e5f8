"""Progress bars and log lines of a fit, for the command line and for Python in a terminal or a notebook."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from beamtree.errors import InputError
from beamtree.training.events import (
    EpochCutShort,
    EstimatorAwaited,
    Event,
    Listener,
    LogPrepared,
    ModelUpdated,
    PartsWeighed,
    Resumed,
    StepDone,
    StoppedEarly,
    TreeRelearned,
    Validated,
    WorkersDone,
)


def is_interactive() -> bool:
    """Whether standard error is interactive: a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def progress_on_stderr() -> AbstractContextManager[Listener]:
    """`fit_progress` on standard error; in a notebook as plain lines."""
    return fit_progress(Console(stderr=True, highlight=False, force_jupyter=False, force_terminal=sys.stderr.isatty()))


def timed_bar(label: str, reached: ProgressColumn, *, console: Console) -> Progress:
    """A progress bar with a label, a counter, the elapsed and the remaining time; removed when it is done."""
    return Progress(
        TextColumn(label),
        BarColumn(),
        reached,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


@contextmanager
def fit_progress(messages: Console, *, log_json: Path | None = None) -> Iterator[Listener]:
    """A listener that draws a progress bar and prints what was read, each validation and other notable events.

    The bar is that of the learner at work, named where it begins. log_json: append one JSON line per event to this
    file; its folder is made where it is missing.
    """
    bar = timed_bar("learning {task.description}", _Status(), console=messages)
    task = bar.add_task("", total=None, loss=float("nan"), instances=0, start=False)
    stream = None if log_json is None else _open_to_append(log_json)
    at_work: tuple[str, int] | None = None

    def show(learner: str, step: int) -> None:
        """Move the bar to a step of a learner; the remaining time is estimated per learner and round."""
        nonlocal at_work
        if at_work is None or at_work[0] != learner:
            messages.print(f"Learning the {learner}.")
        if at_work is None or at_work[0] != learner or step <= at_work[1]:
            bar.reset(task, completed=step, description=learner)
        at_work = learner, step
        bar.update(task, completed=step)

    def listen(event: Event) -> None:
        if stream is not None:
            _write_json_line(stream, event)
        match event:
            case StepDone():
                show(event.learner, event.step)
                bar.update(task, total=event.total_steps, loss=event.loss, instances=event.instances)
            case Resumed():
                show(event.learner, event.step)
                messages.print(f"Resumed after step {event.step:,}.")
            case _:
                _announce(event, messages)

    try:
        with bar:
            yield listen
    finally:
        if stream is not None:
            stream.close()


def _announce(event: Event, messages: Console) -> None:
    """Print an event, if it is notable."""
    match event:
        case LogPrepared() | ModelUpdated():
            messages.print(bullet_list(event.lines), markup=False, soft_wrap=True)
        case EpochCutShort():
            messages.print(bullet_list([event.line]), markup=False, soft_wrap=True)
        case Validated():
            mark = "[green]best[/]" if event.is_best else ""
            messages.print(
                f"epoch {event.epoch:5.2f}  validation recall@20 {event.metrics['recall@20']:.4f}  "
                f"F@20 {event.metrics['f@20']:.4f}  NDCG@20 {event.metrics['ndcg@20']:.4f}  {mark}"
            )
        case EstimatorAwaited():
            said = f"Another run trains the estimator {event.directory}: waiting for {event.holder}."
            messages.print(said, markup=False)
        case TreeRelearned():
            messages.print(
                f"round {event.round}: tree relearned, {event.moved_share:.0%} of the items moved, log-likelihood "
                f"{event.score_before:,.0f} -> {event.score_after:,.0f}"
            )
        case PartsWeighed():
            weights = " ".join(f"{name}={weight:g}" for name, weight in event.weights.items())
            how = "" if event.is_calibrated else "usual weights, "
            reached = "" if event.metric is None else f"validation F@20 {event.metric:.4f}, "
            messages.print(f"all parts together: {how}{reached}{event.seconds:.0f} s", markup=False)
            if weights:
                messages.print(f"--set keeps these weights: {weights}", markup=False, soft_wrap=True)
        case WorkersDone():
            messages.print(
                f"{event.workers} workers: {1000.0 * event.step_seconds:.1f} ms a step, in which each sent "
                f"{event.bytes_sent / 1e6 / max(1, event.steps):.2f} MB to the others."
            )
        case StoppedEarly():
            messages.print(
                f"Stopped at step {event.step:,}: validation has not improved since step {event.best_step:,}."
            )


class _Status(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Step, loss and training instances per second; before the first step, that there is none yet."""
        if task.total is None:
            return Text("preparing")
        rate = f"  {task.speed * task.fields['instances']:,.0f} instances/s" if task.speed else ""
        return Text(f"step {task.completed:,.0f} of {task.total:,.0f}  loss {task.fields['loss']:.3f}{rate}")


def _open_to_append(path: Path) -> TextIO:
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"Could not write events to {path}: {error.strerror or error}. Give another file.") from error


def bullet_list(lines: Iterable[str]) -> str:
    """Lines as a small indented list."""
    return "\n".join(f"  · {line}" for line in lines)


def _write_json_line(stream: TextIO, event: Event) -> None:
    line = {"event": type(event).__name__, **asdict(event)}
    stream.write(json.dumps(line, default=dict) + "\n")
    stream.flush()
