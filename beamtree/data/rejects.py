"""Rows that cannot be used: the first one stops the job, or all of them are listed in a file."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import polars as pl

from beamtree.data.tables import BadRows, Table
from beamtree.errors import DataError
from beamtree.storage import replace_file

ROW_INDEX: Final = "__row_index"


@dataclass(frozen=True)
class Reject:
    """A bad row: the file, the row (the first one is 1, a header line is not counted), the value and what is wrong."""

    file: str
    row: int
    column: str
    value: str
    reason: str


@dataclass(frozen=True)
class ParsedColumn:
    """How one column of a file is read: `parse` turns values that are not as `expected` into null."""

    name: str
    ours: str
    parse: Callable[[pl.Series], pl.Series]
    expected: str


def check_rows(
    frame: pl.DataFrame, *, columns: Sequence[ParsedColumn], table: Table, bad_rows: BadRows
) -> tuple[pl.DataFrame, list[Reject]]:
    """The columns parsed and renamed to ours, without the bad rows; and the bad rows.

    frame: rows of the table with ROW_INDEX, their place in the file. bad_rows="error": DataError at the first bad row.
    """
    malformed = [Reject(table.file, row + 1, "", "", reason) for row, reason in table.malformed.items()]
    if malformed:
        frame = frame.filter(~pl.col(ROW_INDEX).is_in(list(table.malformed)))
    parsed = _parse(frame, columns)
    bad = parsed.select(pl.any_horizontal(pl.all().is_null())).to_series()
    if not bad.any():
        return parsed, malformed
    found = _describe_bad(frame.filter(bad), parsed.filter(bad), columns=columns, file=table.file)
    if bad_rows == "error":
        first = found[0]
        others = f" {len(found) - 1:,} more rows are bad too." if len(found) > 1 else ""
        raise DataError(
            f"{first.file}, row {first.row}, column {first.column!r}: {first.reason}.{others} Fix the row, or leave "
            "such rows out with bad_rows='skip' (--bad-rows=skip), which lists them in a rejects file."
        )
    # Parsed again: one bad row must not decide the type of a whole column.
    return _parse(frame.filter(~bad), columns), malformed + found


def write_rejects(rejects: Sequence[Reject], *, path: str | Path | None, source: Any) -> str:
    """List the bad rows in a CSV file and return its path; by default `<name of the source>.rejects.csv` here."""
    if path is None:
        name = Path(source).name.split(".")[0] if isinstance(source, str | Path) else "table"
        stem = "".join(letter for letter in name if letter.isalnum() or letter in "-_") or "log"
        path = Path(f"{stem}.rejects.csv")
    target = Path(path)

    def write(beside: Path) -> None:
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(field.name for field in fields(Reject))
            writer.writerows(astuple(reject) for reject in rejects)

    try:
        replace_file(target, write)
    except OSError as problem:
        raise DataError(
            f"Cannot write the list of {len(rejects):,} bad rows to {target} ({problem}): give rejects_file."
        ) from problem
    return str(target)


def _parse(frame: pl.DataFrame, columns: Sequence[ParsedColumn]) -> pl.DataFrame:
    return pl.DataFrame({column.ours: column.parse(frame[column.name]) for column in columns})


def _describe_bad(
    raw: pl.DataFrame, parsed: pl.DataFrame, *, columns: Sequence[ParsedColumn], file: str
) -> list[Reject]:
    """One Reject per row, for the first of its columns that is bad."""
    found = []
    for place, row in enumerate(raw[ROW_INDEX]):
        column = next(column for column in columns if parsed[column.ours][place] is None)
        value = raw[column.name][place]
        blank = value is None or (isinstance(value, str) and not value.strip())
        reason = f"{column.name} is missing" if blank else f"expected {column.expected}, got {value!r}"
        found.append(Reject(file, row + 1, column.name, "" if value is None else str(value), reason))
    return found
