"""Context columns of a log, such as device, hour or place.

They follow the other columns of a log as context.NAME and are sorted with their rows.
"""

from collections.abc import Collection

import polars as pl

from beamtree.data.columns import CONTEXT_PREFIX, TIMESTAMP, USER_ID
from beamtree.data.infer import typed
from beamtree.data.parse import parse_times
from beamtree.data.tables import ROW_INDEX
from beamtree.types import Int32Array


def with_context(parsed: pl.DataFrame, rows: pl.DataFrame, *, names: Collection[str]) -> pl.DataFrame:
    """Parsed rows with the context columns of the same rows as they were read, null where a file has no such column.

    parsed, rows: with ROW_INDEX; all parsed rows are among the others, in the same order.
    """
    if not names:
        return parsed
    same = rows.filter(pl.col(ROW_INDEX).is_in(parsed[ROW_INDEX].implode()))
    columns = [
        same[name].alias(CONTEXT_PREFIX + name)
        if name in same.columns
        else pl.Series(CONTEXT_PREFIX + name, [None] * same.height, dtype=pl.String)
        for name in names
    ]
    return parsed.with_columns(columns)


def typed_context(frame: pl.DataFrame, *, untyped: Collection[str]) -> pl.DataFrame:
    """A log with the types that the values of its context columns have; untyped: columns that arrived as texts.

    Dates become seconds since 1970.
    """
    columns = [column for column in frame.iter_columns() if column.name.startswith(CONTEXT_PREFIX)]
    of_type = [
        typed(column) if column.dtype == pl.String and column.name.removeprefix(CONTEXT_PREFIX) in untyped else column
        for column in columns
    ]
    return frame.with_columns(
        parse_times(column).cast(pl.Float64) if column.dtype in (pl.Date, pl.Datetime) else column for column in of_type
    )


def context_in_time(frame: pl.DataFrame, *, dense_user: Int32Array) -> pl.DataFrame | None:
    """The context columns of a log under their own names, rows in the order of `order_in_time`; None without any."""
    names = [name for name in frame.columns if name.startswith(CONTEXT_PREFIX)]
    if not names:
        return None
    ordered = frame.with_columns(pl.Series(USER_ID, dense_user)).sort(USER_ID, TIMESTAMP, maintain_order=True)
    return ordered.select(pl.col(name).alias(name.removeprefix(CONTEXT_PREFIX)) for name in names)
