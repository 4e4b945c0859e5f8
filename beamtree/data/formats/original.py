"""What a reader of an original format returns, and how it finds and opens its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from beamtree.errors import DataError


@dataclass(frozen=True, eq=False)
class Original:
    """A data set as its authors publish it, in beamtree's column names.

    interactions: user_id, item_id, timestamp and perhaps more, in an order that breaks ties of time.
    items: item_id, category, title and perhaps more; None where nothing is known about items.
    """

    interactions: pl.DataFrame
    items: pl.DataFrame | None


def find_original(source: Path, *names: str) -> list[Path]:
    """The files with one of these names (a leading * matches any start), at or below a path, sorted.

    A source that is a file is taken as it is.
    """
    if source.is_file():
        return [source]
    return sorted(path for name in names for path in source.rglob(name) if path.is_file())


def require_original(source: Path, *names: str) -> list[Path]:
    """Like `find_original`, but DataError where there is none."""
    found = find_original(source, *names)
    if not found:
        raise DataError(f"{source}: expected a file {' or '.join(names)} there, found none. Give the unpacked folder.")
    return found


def read_headerless(path: Path, *, names: Sequence[str], separator: str, encoding: str = "utf8") -> pl.DataFrame:
    """Separated text without header or quotes, all columns String. DataError where it has other than these columns."""
    content: Path | bytes = path
    if encoding != "utf8":
        content = path.read_bytes().decode(encoding).encode()
    try:
        frame = pl.read_csv(content, separator=separator, has_header=False, quote_char=None, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise DataError(f"{path}: cannot be read as text with {len(names)} fields a row: {problem}") from problem
    if len(frame.columns) != len(names):
        raise DataError(f"{path}: expected {len(names)} fields ({', '.join(names)}), got {len(frame.columns)}.")
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def refuse_nulls(parsed: pl.Series, *, raw: pl.Series, path: Path, expected: str) -> None:
    """DataError at the first value that could not be understood."""
    if parsed.null_count():
        row = int(parsed.is_null().arg_true()[0])
        raise DataError(f"{path}, line {row + 1}, {raw.name}: expected {expected}, got {raw[row]!r}. Fetch it again.")
