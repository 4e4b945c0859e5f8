"""A live table of running fits, with the remaining time."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.live import Live
from rich.table import Table

from beamtree.cli.console import messages, results
from beamtree.compare.runner import Progress, run_tasks
from beamtree.compare.task import Task
from beamtree.errors import InputError
from beamtree.training.exclusive import claimed_folder


@contextmanager
def results_folder(out: Path) -> Iterator[None]:
    """Create and lock the folder of results; InputError with the remedy if it cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with claimed_folder(out, otherwise="give another --out"):
            yield
    except OSError as error:
        raise InputError(
            f"Could not write to {out}: {error.strerror or error}. What is measured is kept; give a folder that can be "
            "written to, or make room, and run the same command again."
        ) from error


def run_shown(tasks: Sequence[Task], out: Path, *, jobs: int) -> list[Progress]:
    """As `run_tasks`, with a live table among the messages."""
    with Live(console=messages, refresh_per_second=2, transient=True) as live:
        return run_tasks(tasks, out, jobs=jobs, show=lambda now: live.update(progress_table(now, jobs=jobs)))


def print_list(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of what there is to choose from; the first column, a name to type, stays on one line."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    results.print(table)


def progress_table(progress: Sequence[Progress], *, jobs: int) -> Table:
    """The progress of each fit."""
    table = Table(title=_title(progress, jobs=jobs), title_justify="left", title_style="bold")
    for column in ("system", "seed", "stage", "seconds", "F@20", "NDCG@20"):
        table.add_column(column, justify="left" if column in ("system", "stage") else "right")
    for one in progress:
        metrics = {} if one.result is None else one.result.get("metrics", {})
        stage = f"{one.stage} {one.done:.0%}" if one.stage == "fitting" else one.stage.replace("_", " ")
        shown = [f"{metrics[name]:.4f}" if name in metrics else "" for name in ("f@20", "ndcg@20")]
        seconds = "" if one.started is None and one.result is None else f"{one.seconds:.0f}"
        table.add_row(one.task.title, one.task.repetition.removeprefix("seed"), stage, seconds, *shown)
    return table


def _title(progress: Sequence[Progress], *, jobs: int) -> str:
    """The number of finished fits, and an upper bound on the remaining time."""
    done = [one for one in progress if one.result is not None]
    left = [_seconds_left(one, done) for one in progress if one.result is None]
    known = [seconds for seconds in left if seconds is not None]
    said = f"{len(done)} of {len(progress)} done"
    if not known:
        return said
    ends = time.strftime("%a %H:%M", time.localtime(time.time() + sum(known) / jobs))
    unknown = f", {len(left) - len(known)} of unknown length" if len(known) < len(left) else ""
    return f"{said}, at most until about {ends}{unknown}"


def _seconds_left(one: Progress, done: Sequence[Progress]) -> float | None:
    """From its budget; without one from its progress, or from the time of finished fits. None if unknown."""
    if one.task.budget_seconds is not None:
        return max(one.task.budget_seconds - one.seconds, 0.0)
    if one.stage == "fitting" and one.done > 0.0 and one.fitting_since is not None:
        done_then, then = one.fitting_since
        if one.done > done_then:
            return (time.monotonic() - then) * (1.0 - one.done) / (one.done - done_then)
    alike = [other.seconds for other in done if other.task.budget_seconds is None and other.stage == "measured"]
    return sum(alike) / len(alike) if alike else None
