"""Any file, folder, glob or in-memory table as Polars frames, one per file.

    data.csv  .tsv  .txt        text with a header line; the separator of .csv and .txt is found in that line
    data.parquet  .pq           Parquet
    data.ndjson  .jsonl  .json  one JSON object per line
    data.inter  .item  .user    RecBole: tab-separated, header fields such as user_id:token
    ratings.dat  movies.dat     MovieLens: fields separated by '::', no header

Each may also be compressed (.gz, .zst). Text stays text here, without the blanks around a field: what an id or a time
is, is decided in `parse`. Empty lines are no rows.
"""

import glob
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from beamtree.data.line_numbers import LineNumbers, json_lines, text_lines
from beamtree.data.malformed import find_bad_json_lines, find_ragged_rows, read_header
from beamtree.data.unpack import COMPRESSIONS, unpacked
from beamtree.errors import DataError

BadRows = Literal["error", "skip"]
Source = Any
"""A path, a glob, or a Polars, pandas or Arrow table."""

_FORMATS: Final = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".inter": "recbole",
    ".item": "recbole",
    ".user": "recbole",
    ".dat": "movielens",
}
_MAGIC: Final = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_HEAD_BYTES: Final = 4096
_TEXT_KINDS: Final = (":token", ":token_seq", ":float_seq")
"""How RecBole's headers mark columns that are texts."""
ROW_INDEX: Final = "__row_index"
"""The place of a row in its file, from 0."""


@dataclass(frozen=True)
class Table:
    """One file's rows, in file order.

    file: how messages call it; columns: all column names that the file has; frame: the wanted ones of them.
    malformed: row index -> what is wrong, for rows that are no rows at all; their values in the frame mean nothing.
    untyped: columns whose texts may mean something else, because the file cannot tell. row_index: the places of the
    rows in the file, None where none was left out. lines: on which lines these are, None where it has no lines.
    """

    file: str
    columns: list[str]
    frame: pl.DataFrame
    malformed: dict[int, str] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    row_index: pl.Series | None = None
    lines: LineNumbers | None = None

    @property
    def num_places(self) -> int:
        """How many places the file has, for rows and for empty lines before the last of them."""
        if self.row_index is None or self.row_index.is_empty():
            return self.frame.height
        return int(self.row_index[-1]) + 1

    def numbered(self) -> pl.DataFrame:
        """The frame with ROW_INDEX in front."""
        if self.row_index is None:
            return self.frame.with_row_index(ROW_INDEX)
        return self.frame.select(self.row_index.alias(ROW_INDEX), pl.all())

    def place(self, row: int) -> str:
        """The place of a row, for messages: the line of the file, or the row number if there are no lines."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines([row])[0]}"


def read_tables(
    source: Source,
    *,
    wanted: Collection[str] | None,
    headerless: tuple[str, ...],
    bad_rows: BadRows = "error",
    remedy: str = "Fix the row.",
) -> Iterator[Table]:
    """The tables behind a source, one after another, files in order of their names.

    wanted: read only these columns where the file has them (None: all).
    headerless: the column names for files that carry none (MovieLens '::').
    bad_rows="skip" lists rows that cannot be split into fields as malformed; "error" raises DataError at the first,
    which ends in the remedy.
    """
    if not isinstance(source, str | Path):
        yield _in_memory(source, wanted=wanted)
        return
    for path in find_files(source):
        table = _read_file(path, wanted=wanted, headerless=headerless)
        if table.malformed and bad_rows == "error":
            row, reason = next(iter(table.malformed.items()))
            raise DataError(f"{table.file}, {table.place(row)}: {reason}. {remedy}")
        yield table


def find_files(source: str | Path) -> list[Path]:
    """The files behind a path: itself, all tables below a folder, or what a glob matches, sorted by name."""
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and _format_of(file) and file.name[0] not in "._"]
    elif glob.has_magic(str(source)):
        found = [Path(name) for name in glob.glob(str(source), recursive=True) if Path(name).is_file()]
    else:
        raise DataError(f"{source}: no such file or folder. Check the path.")
    if not found:
        raise DataError(f"{source}: no table found there; expected {', '.join(_FORMATS)}, each also .gz or .zst.")
    return sorted(found)


def _in_memory(source: Source, *, wanted: Collection[str] | None) -> Table:
    """A Polars, pandas or Arrow table; anything else is a DataError."""
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if not isinstance(source, pl.DataFrame):
        try:
            is_pandas = type(source).__module__.partition(".")[0] == "pandas"
            source = pl.from_pandas(source) if is_pandas else pl.DataFrame(pl.from_arrow(source))
        except (TypeError, ValueError, ImportError, pl.exceptions.PolarsError) as problem:
            raise DataError(
                "Expected a path or a Polars, pandas or Arrow table, "
                f"got {type(source).__module__}.{type(source).__name__}: {problem}"
            ) from problem
    return _selected("the table", source, wanted=wanted)


def _selected(
    file: str,
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    wanted: Collection[str] | None,
    malformed: dict[int, str] | None = None,
    lines: LineNumbers | None = None,
) -> Table:
    columns = frame.collect_schema().names()
    present = columns if wanted is None else [name for name in columns if name in wanted]
    return Table(file, columns, frame.lazy().select(present).collect(), malformed or {}, lines=lines)


def _format_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _read_file(path: Path, *, wanted: Collection[str] | None, headerless: tuple[str, ...]) -> Table:
    file_format = _format_of(path)
    if file_format is None:
        raise DataError(
            f"{path}: cannot tell its format from its name; expected {', '.join(_FORMATS)}, each also .gz or .zst. "
            "Rename the file."
        )
    content = unpacked(path)
    head = _head(content)
    _check_head(path, head, file_format=file_format)
    if not head.strip():
        return Table(str(path), [], pl.DataFrame())
    try:
        if file_format == "parquet":
            return _selected(str(path), pl.scan_parquet(content, hive_partitioning=False), wanted=wanted)
        if file_format == "ndjson":
            return _read_ndjson(path, content, wanted=wanted)
        if file_format == "movielens":
            return _read_movielens(path, content, wanted=wanted, names=headerless)
        separator = _separator(head) if file_format == "csv" else "\t"
        return _read_text(path, content, wanted=wanted, separator=separator)
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise DataError(
            f"{path}: cannot be read as {file_format} ({_first_line(problem)}). The file is damaged or not what its "
            "name says: fetch or export it again."
        ) from problem


def _head(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content[:_HEAD_BYTES]
    try:
        with content.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as problem:
        raise DataError(f"{content}: cannot be opened ({problem.strerror}). Check who may read it.") from problem


def _check_head(path: Path, head: bytes, *, file_format: str) -> None:
    """DataError where the first bytes contradict the name."""
    actual = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if actual is None and start[:1] == b"<":
        actual = "an HTML or XML page"
    if actual is None and file_format != "parquet" and b"\x00" in head:
        actual = "binary"
    if actual is None and file_format == "ndjson" and start and start[:1] != b"{":
        actual = "a JSON array" if start[:1] == b"[" else "not JSON"
    if actual is None and file_format not in ("ndjson", "parquet") and start[:2] in (b'{"', b"{ "):
        actual = "JSON"
    if file_format == "parquet" and actual != "Parquet":
        actual = actual or ("empty" if not head else "not Parquet")
    elif file_format == "parquet":
        return
    if actual is not None:
        expected = {"ndjson": "one JSON object per line", "parquet": "Parquet"}.get(file_format, f"{file_format} text")
        raise DataError(
            f"{path}: its name says {expected}, but its content is {actual} (it starts with {head[:12]!r}). "
            "Rename it, or export it again."
        )


def _separator(head: bytes) -> str:
    header = head.split(b"\n", 1)[0].decode("utf-8", errors="replace")
    return max(",;\t|", key=header.count)


def _read_text(
    path: Path,
    content: Path | bytes,
    *,
    wanted: Collection[str] | None,
    separator: str,
    names: tuple[str, ...] | None = None,
) -> Table:
    """Separated text; RecBole's `name:type` header fields lose their type. All columns are String, without padding."""
    quote = None if names else '"'
    if names is None:
        _check_header(path, content, separator=separator, wanted=wanted)
    malformed: dict[int, str] = {}
    lines = text_lines(content, separator=separator, has_header=names is None, quote=quote)
    try:
        frame = pl.read_csv(
            content, separator=separator, has_header=names is None, quote_char=quote, infer_schema=False
        )
    except pl.exceptions.ComputeError:
        malformed = find_ragged_rows(content, separator=separator, has_header=names is None, quote=quote)
        if not malformed:
            raise
        frame = pl.read_csv(
            content,
            separator=separator,
            has_header=names is None,
            quote_char=quote,
            infer_schema=False,
            truncate_ragged_lines=True,
        )
    filled = _filled_rows(frame)
    declared = {} if names else {_bare_name(field): field for field in frame.columns}
    bare = names or tuple(_bare_name(field) for field in frame.columns)
    frame = frame.rename(dict(zip(frame.columns, bare, strict=False)))
    table = _selected(str(path), frame, wanted=wanted, malformed=malformed, lines=lines)
    kept = table.frame if filled is None else table.frame[filled]
    return replace(
        table,
        frame=kept.with_columns(pl.all().str.strip_chars()),
        row_index=filled,
        untyped=frozenset(name for name in table.columns if not declared.get(name, name).endswith(_TEXT_KINDS)),
    )


def _filled_rows(frame: pl.DataFrame) -> pl.Series | None:
    """The places of the rows that have a value, where others have none at all: empty lines."""
    if not frame.width or not frame.to_series(0).null_count():
        return None
    is_filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    return None if is_filled.all() else is_filled.arg_true()


def _bare_name(field: str) -> str:
    return field.split(":")[0].strip()


def _check_header(path: Path, content: Path | bytes, *, separator: str, wanted: Collection[str] | None) -> None:
    """DataError where two columns that are read have one name: which of them is meant cannot be known."""
    names = [_bare_name(field) for field in read_header(content, separator=separator)]
    for name in names:
        if name and names.count(name) > 1 and (wanted is None or name in wanted):
            fields = " and ".join(str(place) for place, other in enumerate(names, 1) if other == name)
            raise DataError(
                f"{path}: the header has the column {name!r} in the fields {fields}. Rename or remove all but one."
            )


def _read_movielens(
    path: Path,
    content: Path | bytes,
    *,
    wanted: Collection[str] | None,
    names: tuple[str, ...],
) -> Table:
    """MovieLens' '::' files: no header, no quotes, titles in UTF-8 or Latin-1."""
    raw = content if isinstance(content, bytes) else content.read_bytes()
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        raw = raw.decode("latin-1").encode("utf-8")
    if b"::" not in raw[:_HEAD_BYTES]:
        raise DataError(f"{path}: its name says MovieLens, but its first lines have no '::' between fields. Rename it.")
    separated = raw.replace(b"\t", b" ").replace(b"::", b"\t")
    return _read_text(path, separated, wanted=wanted, separator="\t", names=names)


def _read_ndjson(path: Path, content: Path | bytes, *, wanted: Collection[str] | None) -> Table:
    """JSON lines; a line that is no object is malformed."""
    lines = json_lines(content)
    try:
        lazy = pl.scan_ndjson(content, infer_schema_length=None)
        return _selected(str(path), lazy, wanted=wanted, lines=lines)
    except pl.exceptions.PolarsError:
        repaired, malformed = find_bad_json_lines(content)
        if not malformed:
            raise
        lazy = pl.scan_ndjson(repaired, infer_schema_length=None)
        return _selected(str(path), lazy, wanted=wanted, malformed=malformed, lines=lines)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n", 1)[0]
