"""Rows that cannot be used: the first one stops the job, or all of them are listed in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.tables import ROW_INDEX, BadRows, Source, Table
from beamtree.errors import DataError
from beamtree.storage import replace_file

SHOWN_CHARACTERS: Final = 80
SKIP_REMEDY: Final = (
    "Fix the row, or leave such rows out with bad_rows='skip' (--bad-rows=skip), which lists them in a rejects file."
)
REJECT_SCHEMA: Final = {
    "file": pl.String,
    "line": pl.Int64,
    "row": pl.Int64,
    "column": pl.String,
    "value": pl.String,
    "reason": pl.String,
}
"""A bad row. line: of the file, from 1, null where it has no lines; row: from 1, a header is not counted."""


@dataclass(frozen=True)
class ParsedColumn:
    """How one column of a file is read: `parse` turns values that are not as `expected` into null."""

    name: str
    ours: str
    parse: Callable[[pl.Series], pl.Series]
    expected: str


def check_rows(
    frame: pl.DataFrame, *, columns: Sequence[ParsedColumn], table: Table, bad_rows: BadRows, remedy: str = SKIP_REMEDY
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The columns parsed and renamed to ours, without the bad rows; and the bad rows, one REJECT_SCHEMA row each.

    frame: rows of the table with ROW_INDEX, their place in the file. bad_rows="error": DataError at the first bad row,
    which ends in the remedy.
    """
    malformed = _list_malformed(table)
    if malformed.height:
        frame = frame.filter(~pl.col(ROW_INDEX).is_in(list(table.malformed)))
    parsed = _parse(frame, columns)
    bad = parsed.select(pl.any_horizontal(pl.all().is_null())).to_series()
    if not bad.any():
        return parsed, malformed
    if bad_rows == "error":
        place = int(bad.arg_true()[0])
        first = _list_bad(frame[place : place + 1], parsed[place : place + 1], columns=columns, table=table)
        _, _, row, column, _, reason = first.row(0)
        more = int(bad.sum()) - 1
        others = f" {more:,} more {'row is' if more == 1 else 'rows are'} bad too." if more else ""
        raise DataError(f"{table.file}, {table.place(row - 1)}, column {column!r}: {reason}.{others} {remedy}")
    found = _list_bad(frame.filter(bad), parsed.filter(bad), columns=columns, table=table)
    # Parsed again: one bad row must not decide the type of a whole column.
    return _parse(frame.filter(~bad), columns), pl.concat([malformed, found]).sort("row")


def write_rejects(rejects: pl.DataFrame, *, path: str | Path | None, source: Source) -> str:
    """List the bad rows in a CSV file and return its path; by default `<name of the source>.rejects.csv` here."""
    if path is None:
        name = Path(source).name.split(".")[0] if isinstance(source, str | Path) else "table"
        stem = "".join(letter for letter in name if letter.isalnum() or letter in "-_") or "log"
        path = Path(f"{stem}.rejects.csv")
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, lambda beside: rejects.write_csv(beside))
    except OSError as problem:
        raise DataError(
            f"Cannot write the list of {rejects.height:,} bad rows to {target} ({problem}): give rejects_file."
        ) from problem
    return str(target)


def _parse(frame: pl.DataFrame, columns: Sequence[ParsedColumn]) -> pl.DataFrame:
    return pl.DataFrame({column.ours: column.parse(frame[column.name]) for column in columns})


def _list_malformed(table: Table) -> pl.DataFrame:
    lines = table.lines(list(table.malformed)) if table.lines else [None] * len(table.malformed)
    rows = [
        (table.file, line, row + 1, None, None, reason)
        for line, (row, reason) in zip(lines, table.malformed.items(), strict=True)
    ]
    return pl.DataFrame(rows, schema=REJECT_SCHEMA, orient="row")


def _list_bad(
    raw: pl.DataFrame, parsed: pl.DataFrame, *, columns: Sequence[ParsedColumn], table: Table
) -> pl.DataFrame:
    """The bad rows, each with the first of its columns that is bad."""
    parts = []
    for column in columns:
        bad = parsed[column.ours].is_null()
        values = _as_text(raw[column.name].filter(bad))
        mark = "'" if raw[column.name].dtype == pl.String else ""
        blank = values.is_null() | (values.str.strip_chars() == "")
        is_long = values.str.len_chars() > SHOWN_CHARACTERS
        shown = pl.when(is_long).then(values.str.slice(0, SHOWN_CHARACTERS) + "...").otherwise(values)
        arrived = pl.format("expected {}, got " + mark + "{}" + mark, pl.lit(column.expected), shown)
        reason = pl.when(blank).then(pl.lit(f"{column.name} is missing")).otherwise(arrived)
        rows = raw[ROW_INDEX].filter(bad).cast(pl.Int64)
        parts.append(
            pl.select(
                file=pl.lit(table.file),
                line=pl.Series(table.lines(rows.to_list()) if table.lines else [None] * len(rows), dtype=pl.Int64),
                row=rows + 1,
                column=pl.lit(column.name),
                value=values,
                reason=reason,
            )
        )
        raw, parsed = raw.filter(~bad), parsed.filter(~bad)
    return pl.concat(parts).sort("row")


def _as_text(values: pl.Series) -> pl.Series:
    if values.dtype.is_nested() or values.dtype == pl.Binary:
        return pl.Series([None if value is None else str(value) for value in values.to_list()], dtype=pl.String)
    return values.cast(pl.String)
