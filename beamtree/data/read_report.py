"""Counts of rows read, rejected and filtered, and a report on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from beamtree.data.columns import EVENT_TYPE

Moment = str | float | date


@dataclass(frozen=True)
class ReadReport:
    """Counts of the rows of a log. rows_read = rows kept + rejected + filtered + repeated.

    filters: the filters applied; events: the weights of event types, None without any.
    """

    files: tuple[str, ...] = ()
    rows_read: int = 0
    rows_rejected: int = 0
    rows_filtered: int = 0
    rows_repeated: int = 0
    rejects_file: str | None = None
    filters: tuple[str, ...] = ()
    events: str | None = None

    def lines(self) -> list[str]:
        """The report as sentences to print or to log."""
        files = self.files[0] if len(self.files) == 1 else f"{len(self.files):,} files"
        said = [f"{_count(self.rows_read, 'row')} read from {files}"]
        if self.rows_rejected:
            said.append(f"{_count(self.rows_rejected, 'bad row')} left out, listed in {self.rejects_file}")
        if self.rows_filtered:
            said.append(f"{_count(self.rows_filtered, 'row')} left out by the filters: {', '.join(self.filters)}")
        if self.rows_repeated:
            said.append(f"{_count(self.rows_repeated, 'exact repeat')} dropped")
        if self.events is not None:
            said.append(self.events)
        return said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_filters(
    *,
    min_rating: float | None,
    event_values: Mapping[str, list[str]],
    since: Moment | None,
    until: Moment | None,
    left_out: list[str],
) -> tuple[str, ...]:
    """The filters, one phrase each."""
    filters = [] if min_rating is None else [f"rating at least {min_rating:g}"]
    filters += [f"{EVENT_TYPE} is not {' or '.join(left_out)}"] if left_out else []
    filters += [f"{name} is {' or '.join(values)}" for name, values in event_values.items()]
    filters += [] if since is None else [f"since {since}"]
    return tuple(filters if until is None else [*filters, f"until {until}"])
