"""Terminal output: one console for results, one for messages, and tables of metrics."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
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


def say(text: str) -> None:
    """A message as it is, without markup and without breaks of its own."""
    messages.print(text, markup=False, soft_wrap=True)


def show(text: str) -> None:
    """The same among the results."""
    results.print(text, markup=False, soft_wrap=True)


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()) -> Table:
    """A table of texts as they are, without markup; columns named in `right` are aligned there."""
    table = Table(header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def fact_table(title: str, rows: Iterable[Sequence[object]]) -> Table:
    """Names and values, without headings and without markup."""
    table = Table(show_header=False, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


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
        say(f"Left out: {reason}")
    results.print(metrics_table(comparison, title=title))
    if comparison.verdict is not None:
        show(comparison.verdict.line())


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
        say(
            f"The model reads features of users ({columns}): give their table with --users, or everybody is asked "
            "without them."
        )
