"""What people see: one console for messages, tables of metrics, and the progress of a fit."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.verdict import METRIC

if TYPE_CHECKING:
    from beamtree.baselines.comparison import Comparison
    from beamtree.training.events import Event, Listener

results = Console(highlight=False)
"""Results go to standard output."""

messages = Console(stderr=True, highlight=False)
"""Everything else goes to standard error."""

SHOWN_METRICS = ("precision", "recall", "F", "NDCG")


def metrics_table(systems: Mapping[str, Metrics], *, title: str, cutoffs: Sequence[int] = (20, 40)) -> Table:
    """For each cutoff a row for each system, with a column for each metric."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("")
    table.add_column("top", justify="right")
    for name in SHOWN_METRICS:
        table.add_column(name, justify="right")
    for cutoff in cutoffs:
        for system, metrics in systems.items():
            cells = [f"{metrics[f'{name.lower()}@{cutoff}']:.4f}" for name in SHOWN_METRICS]
            table.add_row(system, str(cutoff), *cells)
        table.add_section()
    return table


def show_comparison(comparison: "Comparison", *, title: str) -> None:
    """The table of a model and its baselines, what is missing from it, and how the model stands."""
    for reason in comparison.left_out.values():
        messages.print(f"Left out: {reason}", markup=False)
    results.print(metrics_table(comparison, title=title))
    if comparison.verdict is not None:
        results.print(comparison.verdict.line(), markup=False, soft_wrap=True)


def comparison_json(comparison: "Comparison") -> dict[str, Any]:
    """The same as plain values: metrics by system, seconds and absentees among the baselines, and the verdict."""
    verdict = comparison.verdict
    return {
        "metrics": {name: dict(values) for name, values in comparison.items()},
        "baselines": {
            "seconds": {name: round(seconds, 3) for name, seconds in comparison.seconds.items()},
            "left_out": dict(comparison.left_out),
        },
        "verdict": None
        if verdict is None
        else asdict(verdict) | {"interval": verdict.interval._asdict(), "metric": METRIC, "line": verdict.line()},
    }


@contextmanager
def fit_progress(log_json: Path | None = None) -> Iterator["Listener"]:
    """A listener that draws a progress bar and prints each validation; with a path, also one JSON line per event.

    The bar is that of the learner at work, named where it begins.
    """
    from beamtree.training.events import (
        EstimatorAwaited,
        LogPrepared,
        PartsWeighed,
        Resumed,
        StepDone,
        StoppedEarly,
        TreeRelearned,
        Validated,
    )

    bar = Progress(
        TextColumn("learning {task.description}"),
        BarColumn(),
        _Status(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=messages,
        transient=True,
    )
    task = bar.add_task("", total=None, loss=float("nan"), instances=0, start=False)
    stream = log_json.open("a", encoding="utf-8") if log_json else None
    at_work: tuple[str, int] | None = None

    def show(learner: str, step: int) -> None:
        """Move the bar to a step of a learner; the time left is estimated anew for each learner and each round."""
        nonlocal at_work
        if at_work is None or at_work[0] != learner:
            messages.print(f"Learning the {learner}.")
        if at_work is None or at_work[0] != learner or step <= at_work[1]:
            bar.reset(task, completed=step, description=learner)
        at_work = learner, step
        bar.update(task, completed=step)

    def listen(event: "Event") -> None:
        if stream is not None:
            _write_json_line(stream, event)
        match event:
            case LogPrepared():
                messages.print(bullet_list(event.lines), markup=False, soft_wrap=True)
            case StepDone():
                show(event.learner, event.step)
                bar.update(task, total=event.total_steps, loss=event.loss, instances=event.instances)
            case Validated():
                mark = "[green]best[/]" if event.is_best else ""
                messages.print(
                    f"epoch {event.epoch:5.2f}  validation recall@20 {event.metrics['recall@20']:.4f}  "
                    f"F@20 {event.metrics['f@20']:.4f}  NDCG@20 {event.metrics['ndcg@20']:.4f}  {mark}"
                )
            case Resumed():
                show(event.learner, event.step)
                messages.print(f"Resumed after step {event.step:,}.")
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
            case StoppedEarly():
                messages.print(
                    f"Stopped at step {event.step:,}: validation has not improved since step {event.best_step:,}."
                )

    try:
        with bar:
            yield listen
    finally:
        if stream is not None:
            stream.close()


class _Status(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Step, loss and training instances per second; before the first step, that there is none yet."""
        if task.total is None:
            return Text("preparing")
        rate = f"  {task.speed * task.fields['instances']:,.0f} instances/s" if task.speed else ""
        return Text(f"step {task.completed:,.0f} of {task.total:,.0f}  loss {task.fields['loss']:.3f}{rate}")


def bullet_list(lines: Iterable[str]) -> str:
    """Lines as a small indented list."""
    return "\n".join(f"  · {line}" for line in lines)


def _write_json_line(stream: TextIO, event: "Event") -> None:
    line = {"event": type(event).__name__, **asdict(event)}
    stream.write(json.dumps(line, default=dict) + "\n")
    stream.flush()
