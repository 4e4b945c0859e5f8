"""Read a log of interactions, check every row, and keep user_id, item_id, timestamp, and a weight where rows differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from beamtree.config import LogSettings
from beamtree.data.columns import (
    CONTEXT_PREFIX,
    INTERACTION_COLUMNS,
    ITEM_ID,
    MAPPABLE_INTERACTION_COLUMNS,
    TIMESTAMP,
    USER_ID,
    WEIGHT,
    WEIGHTED_COLUMNS,
    check_mapping,
)
from beamtree.data.context import typed_context
from beamtree.data.events import EventTypes
from beamtree.data.log_rows import WantedRows, read_rows
from beamtree.data.parse import bound_in_units, unify_ids
from beamtree.data.read_report import Moment, ReadReport, describe_filters
from beamtree.data.rejects import write_rejects
from beamtree.data.tables import ROW_INDEX, BadRows, Source
from beamtree.errors import DataError, NoRowsError, SettingsError

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
    if row_order and (since is not None or until is not None):
        raise SettingsError("since and until are about timestamps, and row_order reads none: leave one of them out.")
    mapping = check_mapping(columns, allowed=MAPPABLE_INTERACTION_COLUMNS)
    names = {ours: mapping.get(ours, ours) for ours in MAPPABLE_INTERACTION_COLUMNS}
    event_values = {
        name: [values] if isinstance(values, str) else [str(value) for value in values]
        for name, values in (event_type or {}).items()
    }
    events = EventTypes.of(event_weights, target_events)
    read = read_rows(source, WantedRows(names, event_values, events, min_rating, context, row_order), bad_rows=bad_rows)
    origin = read.files[0] if len(read.files) == 1 else f"{source}"
    if read.num_read == 0:
        raise NoRowsError(f"{origin}: no rows. Expected a log with one interaction per row.")

    rejected = read.num_bad
    listed = write_rejects(pl.concat(read.bad), path=rejects_file, source=source) if rejected else None
    frame = pl.DataFrame()
    if read.good:
        frame = typed_context(_limit_times(_join_parts(read.good), since=since, until=until), untyped=read.untyped)
    if frame.height == 0:
        raise NoRowsError(
            f"{origin}: no rows left of {read.num_read:,}; {rejected:,} were bad and "
            f"{read.num_read - rejected:,} were filtered out. Loosen the filters, or check the columns."
        )
    if events is not None:
        frame = events.weigh(frame, origin=origin)
    distinct = _drop_repeats(frame)
    report = ReadReport(
        files=tuple(read.files),
        rows_read=read.num_read,
        rows_rejected=rejected,
        rows_filtered=read.num_read - rejected - frame.height,
        rows_repeated=frame.height - distinct.height,
        rejects_file=listed,
        filters=describe_filters(
            min_rating=min_rating,
            event_values=event_values,
            since=since,
            until=until,
            left_out=[] if events is None else events.left_out,
        ),
        events=None if events is None else events.described(),
    )
    return InteractionLog(distinct, report)


def read_log(source: Source, settings: LogSettings, *, rejects_file: str | Path | None = None) -> InteractionLog:
    """Read a log the way the settings say; see `read_interactions`."""
    return read_interactions(
        source,
        columns=settings.interaction_columns,
        min_rating=settings.min_rating,
        event_type=settings.event_type,
        event_weights=settings.event_weights,
        target_events=settings.target_events,
        context=settings.context_features,
        since=settings.since,
        until=settings.until,
        bad_rows=settings.bad_rows,
        rejects_file=rejects_file,
        row_order=settings.row_order,
    )


def _join_parts(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """All files' rows, ids in one type each."""
    if len(parts) == 1:
        return parts[0]
    for name in (USER_ID, ITEM_ID):
        unified = unify_ids([part[name] for part in parts])
        parts = [part.with_columns(column) for part, column in zip(parts, unified, strict=True)]
    return pl.concat(parts, how="vertical_relaxed", rechunk=True)


def _drop_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the first of equal rows. Only rows whose hash occurs again are compared: few, in most logs none."""
    columns = [name for name in frame.columns if not name.startswith(CONTEXT_PREFIX)]
    hashes = frame.select(columns).hash_rows()
    if hashes.n_unique() == len(hashes):
        return frame
    suspects = frame.with_row_index(ROW_INDEX).filter(hashes.is_duplicated())
    repeats = suspects.filter(~suspects.select(pl.struct(columns).is_first_distinct()).to_series())
    keep = np.ones(frame.height, dtype=np.bool_)
    keep[repeats[ROW_INDEX].to_numpy()] = False
    return frame.filter(pl.Series(keep))


def _limit_times(frame: pl.DataFrame, *, since: Moment | None, until: Moment | None) -> pl.DataFrame:
    times = frame[TIMESTAMP]
    if since is not None:
        frame = frame.filter(pl.col(TIMESTAMP) >= bound_in_units(since, name="since", times=times))
    if until is not None:
        frame = frame.filter(pl.col(TIMESTAMP) < bound_in_units(until, name="until", times=times))
    return frame
