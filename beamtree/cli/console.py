"""Terminal output: one console for results, one for messages, and tables of metrics."""

from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from beamtree import progress
from beamtree.data.request_features import RequestFeatures
from beamtree.training.events import Listener

if TYPE_CHECKING:
    from beamtree.baselines.comparison import Comparison

results = Console(highlight=False)
"""Results go to standard output."""

messages = Console(stderr=True, highlight=False)
"""Everything else goes to standard error."""

SHOWN_METRICS = ("precision", "recall", "F", "NDCG")


def metrics_table(comparison: "Comparison", *, title: str) -> Table:
    """One row per cutoff and system, one column per metric."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("")
    table.add_column("top", justify="right")
    for name in SHOWN_METRICS:
        table.add_column(name, justify="right")
    cutoffs = [name.removeprefix("f@") for name in next(iter(comparison.values())) if name.startswith("f@")]
    for cutoff in cutoffs:
        for system, metrics in comparison.labelled().items():
            cells = [f"{metrics[f'{name.lower()}@{cutoff}']:.4f}" for name in SHOWN_METRICS]
            table.add_row(system, cutoff, *cells)
        table.add_section()
    return table


def show_comparison(comparison: "Comparison", *, title: str) -> None:
    """Print the metrics of a model and its baselines, the baselines left out, and the verdict."""
    for reason in dict.fromkeys(comparison.left_out.values()):
        messages.print(f"Left out: {reason}", markup=False, soft_wrap=True)
    results.print(metrics_table(comparison, title=title))
    if comparison.verdict is not None:
        results.print(comparison.verdict.line(), markup=False, soft_wrap=True)


def comparison_json(comparison: "Comparison") -> dict[str, Any]:
    """The same as plain values: metrics by system, seconds of the baselines and those left out, and the verdict."""
    verdict = comparison.verdict
    return {
        "beam": comparison.beam,
        "metrics": {name: dict(values) for name, values in comparison.items()},
        "baselines": {
            "seconds": {name: round(seconds, 3) for name, seconds in comparison.seconds.items()},
            "left_out": dict(comparison.left_out),
        },
        "verdict": None
        if verdict is None
        else asdict(verdict) | {"interval": verdict.interval._asdict(), "line": verdict.line()},
    }


def fit_progress(log_json: Path | None = None) -> AbstractContextManager[Listener]:
    """A listener that draws the progress of a fit among the messages; see `beamtree.progress`."""
    return progress.fit_progress(messages, log_json=log_json)


def hint_at_user_table(read: RequestFeatures, users: str | None) -> None:
    """Say that a model reads features of users where their table was not given."""
    if read.user and users is None:
        columns = ", ".join(column.name for column in read.user.columns)
        messages.print(
            f"The model reads features of users ({columns}): give their table with --users, or everybody is asked "
            "without them.",
            markup=False,
            soft_wrap=True,
        )
