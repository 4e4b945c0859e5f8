"""Parsed rows of a log made clean: columns in one type, times within the bounds, weights by event type, no repeats.

All rows of a log at once, or those of some users at a time: repeats are of one user.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from beamtree.data.columns import EVENT_TYPE, ITEM_ID, TIMESTAMP, USER_ID, WEIGHT, WEIGHTED_COLUMNS
from beamtree.data.context import typed_context
from beamtree.data.log_rows import WantedRows
from beamtree.data.parse import bound_in_units, unify_ids
from beamtree.data.read_report import ReadReport, describe_filters
from beamtree.data.tables import Source
from beamtree.errors import NoRowsError


class CleanRows(NamedTuple):
    """frame: as in `InteractionLog`, with weights wherever there are event types.

    num_kept: rows within the bounds in time, repeats included; events: how many of these are of each event type.
    """

    frame: pl.DataFrame
    num_kept: int
    events: dict[str, int]

    @classmethod
    def none(cls) -> Self:
        """Of a log without rows."""
        return cls(pl.DataFrame(), 0, {})


@dataclass(frozen=True)
class RowCounts:
    """Rows of a log: read, rejected as bad, kept by all filters, distinct ones of these; events: kept ones by type."""

    read: int
    rejected: int
    kept: int
    distinct: int
    events: dict[str, int] = field(default_factory=dict)


def join_parts(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All files' rows, ids in one type each."""
    if len(parts) == 1:
        return parts[0]
    for name in (USER_ID, ITEM_ID):
        unified = unify_ids([part[name] for part in parts])
        parts = [part.with_columns(column) for part, column in zip(parts, unified, strict=True)]
    return pl.concat(parts, how="vertical_relaxed", rechunk=True)


def clean_rows(frame: pl.DataFrame, wanted: WantedRows, *, times: pl.Series, untyped: Collection[str]) -> CleanRows:
    """Joined rows within the bounds in time, the first of equal ones each.

    times: of the whole log, or the first and the last of them: they tell in which unit it counts time. untyped: columns
    whose files carry no types.
    """
    kept = typed_context(_limit_times(frame, wanted, times=times), untyped=untyped)
    events: dict[str, int] = {}
    if wanted.events is not None:
        events = dict(kept.group_by(EVENT_TYPE).len().iter_rows())
        kept = wanted.events.weigh(kept, types=events)
    return CleanRows(_drop_repeats(kept), kept.height, events)


def drop_unit_weights(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a whole log without the column weight where all weights are 1."""
    return frame.drop(WEIGHT) if WEIGHT in frame.columns and (frame[WEIGHT] == 1.0).all() else frame


def read_report(
    counts: RowCounts, wanted: WantedRows, *, source: Source, files: Sequence[str], rejects_file: str | None
) -> ReadReport:
    """The report on a log; NoRowsError where nothing is left of it, DataError where its event types are not the wanted.

    files: their names as found behind the source; rejects_file: where bad rows are listed, if there are any.
    """
    origin = files[0] if len(files) == 1 else f"{source}"
    if counts.read == 0:
        raise NoRowsError(f"{origin}: no rows. Expected a log with one interaction per row.")
    if counts.kept == 0:
        raise NoRowsError(
            f"{origin}: no rows left of {counts.read:,}; {counts.rejected:,} were bad and "
            f"{counts.read - counts.rejected:,} were filtered out. Loosen the filters, or check the columns."
        )
    events = wanted.events
    if events is not None:
        events.check(counts.events, origin=origin)
    return ReadReport(
        files=tuple(files),
        rows_read=counts.read,
        rows_rejected=counts.rejected,
        rows_filtered=counts.read - counts.rejected - counts.kept,
        rows_repeated=counts.kept - counts.distinct,
        rejects_file=rejects_file,
        filters=describe_filters(
            min_rating=wanted.min_rating,
            event_values=wanted.event_values,
            since=wanted.since,
            until=wanted.until,
            left_out=[] if events is None else events.left_out,
        ),
        events=None if events is None else events.described(),
    )


def _limit_times(frame: pl.DataFrame, wanted: WantedRows, *, times: pl.Series) -> pl.DataFrame:
    if wanted.since is not None:
        frame = frame.filter(pl.col(TIMESTAMP) >= bound_in_units(wanted.since, name="since", times=times))
    if wanted.until is not None:
        frame = frame.filter(pl.col(TIMESTAMP) < bound_in_units(wanted.until, name="until", times=times))
    return frame


def _drop_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the first of equal rows. Only rows whose hash occurs again are compared: few, in most logs none."""
    columns = [name for name in frame.columns if name in WEIGHTED_COLUMNS]
    hashes = frame.select(columns).hash_rows()
    if hashes.n_unique() == len(hashes):
        return frame
    is_suspect = hashes.is_duplicated()
    suspects = frame.select(columns).filter(is_suspect)
    keep = np.ones(frame.height, dtype=np.bool_)
    keep[is_suspect.to_numpy()] = suspects.select(pl.struct(columns).is_first_distinct()).to_series().to_numpy()
    return frame.filter(pl.Series(keep))
