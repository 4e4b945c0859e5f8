"""Read a log of interactions, check every row, and keep user_id, item_id, timestamp, and a weight where rows differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from beamtree.config import LogSettings
from beamtree.data.clean_rows import CleanRows, RowCounts, clean_rows, drop_unit_weights, join_parts, read_report
from beamtree.data.columns import (
    CONTEXT_PREFIX,
    INTERACTION_COLUMNS,
    ITEM_ID,
    TIMESTAMP,
    USER_ID,
    WEIGHT,
    WEIGHTED_COLUMNS,
)
from beamtree.data.log_rows import WantedRows, read_rows
from beamtree.data.read_report import Moment, ReadReport
from beamtree.data.rejects import write_rejects
from beamtree.data.tables import ROW_INDEX, BadRows, Source
from beamtree.errors import DataError, SettingsError

_ALLOWED_TYPES: Mapping[str, tuple[type[pl.DataType], ...]] = {
    USER_ID: (pl.Int64, pl.String),
    ITEM_ID: (pl.Int64, pl.String),
    TIMESTAMP: (pl.Int64, pl.Float64),
    WEIGHT: (pl.Float32,),
}


@dataclass(frozen=True, eq=False, repr=False)
class InteractionLog:
    """A checked log in file order: user_id and item_id (Int64 or String), timestamp (Int64 or Float64), no nulls.

    A further column weight (Float32, at least 0) is the weight of each row as a target, 0 = history only. Without
    it all weights are 1. Columns named context.NAME behind it say in which context somebody acted; null
    = unknown.
    """

    frame: pl.DataFrame
    report: ReadReport = field(default_factory=ReadReport)

    def __post_init__(self) -> None:
        own = tuple(name for name in self.frame.columns if not name.startswith(CONTEXT_PREFIX))
        if own not in (INTERACTION_COLUMNS, WEIGHTED_COLUMNS):
            raise DataError(
                f"A log has the columns {', '.join(INTERACTION_COLUMNS)} and maybe {WEIGHT}, got {self.frame.columns}."
            )
        for name in own:
            dtype = self.frame.schema[name]
            allowed = _ALLOWED_TYPES[name]
            if dtype not in allowed:
                raise DataError(
                    f"{name} is {' or '.join(map(str, allowed))} in a log, got {dtype}: use read_interactions."
                )
            if self.frame[name].null_count():
                raise DataError(f"A log holds no nulls, but {name} does: use read_interactions.")
        if self.frame.height == 0:
            raise DataError("A log holds at least one interaction, got none.")
        if WEIGHT in self.frame.columns and not self.frame[WEIGHT].is_between(0.0, float("inf"), closed="left").all():
            raise DataError("The weights of a log are finite and at least 0, but some are not: use read_interactions.")

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        return f"InteractionLog({len(self):,} interactions)"


def read_interactions(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    min_rating: float | None = None,
    event_type: Mapping[str, Collection[str | int]] | None = None,
    event_weights: Mapping[str, float] | None = None,
    target_events: Collection[str] | None = None,
    context: Collection[str] = (),
    since: Moment | None = None,
    until: Moment | None = None,
    bad_rows: BadRows = "error",
    rejects_file: str | Path | None = None,
    row_order: bool = False,
) -> InteractionLog:
    """Read interactions from any file or table that `tables` supports.

    source: a file, a folder, a glob, or a Polars, pandas or Arrow table.
    columns: beamtree's name -> the name in the file, for user_id, item_id, timestamp, rating and event_type.
    min_rating: keep rows whose rating is at least this.
    event_type: keep rows whose column has one of these values, as in {"behaviour": ["buy", "cart"]}.
    event_weights: what a row counts by its event_type, as in {"buy": 5, "view": 1}; 0 leaves such rows out, and a type
    that is not listed is an error. target_events: the types that are recommended; all others are history alone.
    context: columns that say in which context somebody acted, such as a device; missing values are fine.
    since, until: keep since <= timestamp < until; a number on the log's own scale, or a date (UTC).
    bad_rows: "error" stops at a row whose id or time is missing or cannot be understood; "skip" leaves such rows out
    and lists them in rejects_file (by default `<name>.rejects.csv` in the working directory).
    row_order: read no timestamps; the number of a row, counted through all files in the order of their names, is its
    time. Nothing is dropped as a repeat then.

    Filters on rating and event come before the checks, so a row that is filtered away is never a bad row.
    Ids come back in the type they came in: integers, or texts with every character kept. Times that are dates become
    seconds since 1970; numbers stay as they are. A repeat of the same user, item, time and weight is dropped and
    counted.
    """
    if bad_rows not in ("error", "skip"):
        raise SettingsError(f"bad_rows is 'error' or 'skip', got {bad_rows!r}.")
    wanted = WantedRows.of(
        columns=columns,
        min_rating=min_rating,
        event_type=event_type,
        event_weights=event_weights,
        target_events=target_events,
        context=context,
        since=since,
        until=until,
        row_order=row_order,
    )
    return _read(source, wanted, bad_rows=bad_rows, rejects_file=rejects_file)


def read_log(
    source: InteractionLog | Source, settings: LogSettings, *, rejects_file: str | Path | None = None
) -> InteractionLog:
    """Read a log the way the settings say, unless it was read before; see `read_interactions`."""
    if isinstance(source, InteractionLog):
        return source
    return _read(source, wanted_rows(settings), bad_rows=settings.bad_rows, rejects_file=rejects_file)


def wanted_rows(settings: LogSettings) -> WantedRows:
    """The rows of a log that the settings ask for."""
    return WantedRows.of(
        columns=settings.interaction_columns,
        min_rating=settings.min_rating,
        event_type=settings.event_type,
        event_weights=settings.event_weights,
        target_events=settings.target_events,
        context=settings.context_features,
        since=settings.since,
        until=settings.until,
        row_order=settings.row_order,
    )


def _read(source: Source, wanted: WantedRows, *, bad_rows: BadRows, rejects_file: str | Path | None) -> InteractionLog:
    files: list[str] = []
    good: list[pl.DataFrame] = []
    bad: list[pl.DataFrame] = []
    untyped: set[str] = set()
    num_read = 0
    for rows in read_rows(source, wanted, bad_rows=bad_rows):
        files.append(rows.file)
        bad.append(rows.bad)
        num_read += rows.num_read
        untyped |= rows.untyped
        if rows.good is not None:
            good.append(rows.good.drop(ROW_INDEX))
    rejected = sum(part.height for part in bad)
    listed = write_rejects(pl.concat(bad), path=rejects_file, source=source) if rejected else None
    clean = CleanRows.none()
    if num_read:
        joined = join_parts(good)
        clean = clean_rows(joined, wanted, times=joined[TIMESTAMP], untyped=untyped)
    counts = RowCounts(num_read, rejected, clean.num_kept, clean.frame.height, clean.events)
    report = read_report(counts, wanted, source=source, files=files, rejects_file=listed)
    return InteractionLog(drop_unit_weights(clean.frame), report)
