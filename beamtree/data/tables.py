"""Any file, folder, glob or in-memory table as Polars frames, one per file.

    data.csv  .tsv  .txt        text with a header line; the separator of .csv and .txt is found in that line
    data.parquet  .pq           Parquet
    data.ndjson  .jsonl  .json  one JSON object per line
    data.inter  .item  .user    RecBole: tab-separated, header fields such as user_id:token
    ratings.dat  movies.dat     MovieLens: fields separated by '::', no header

Each may also be compressed (.gz, .zst). Text stays text here, without the blanks around a field: what an id or a time
is, is decided in `parse`.
"""

import glob
import gzip
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl
import zstandard

from beamtree.data.malformed import find_bad_json_lines, find_ragged_rows, read_header
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
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}
_MAGIC: Final = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_HEAD_BYTES: Final = 4096


@dataclass(frozen=True)
class Table:
    """One file's rows, in file order.

    file: how messages call it; columns: all column names that the file has; frame: the wanted ones of them.
    malformed: row index -> what is wrong, for rows that are no rows at all; their values in the frame mean nothing.
    """

    file: str
    columns: list[str]
    frame: pl.DataFrame
    malformed: dict[int, str] = field(default_factory=dict)


def read_tables(
    source: Source, *, wanted: Collection[str] | None, headerless: tuple[str, ...], bad_rows: BadRows = "error"
) -> Iterator[Table]:
    """The tables behind a source, one after another, files in order of their names.

    wanted: read only these columns where the file has them (None: all).
    headerless: the column names for files that carry none (MovieLens '::').
    bad_rows="skip" lists rows that cannot be split into fields as malformed; "error" raises DataError at the first.
    """
    if not isinstance(source, str | Path):
        yield _in_memory(source, wanted=wanted)
        return
    for path in find_files(source):
        yield _read_file(path, wanted=wanted, headerless=headerless, bad_rows=bad_rows)


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
) -> Table:
    columns = frame.collect_schema().names()
    present = columns if wanted is None else [name for name in columns if name in wanted]
    return Table(file, columns, frame.lazy().select(present).collect(), malformed or {})


def _format_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def _read_file(path: Path, *, wanted: Collection[str] | None, headerless: tuple[str, ...], bad_rows: BadRows) -> Table:
    file_format = _format_of(path)
    if file_format is None:
        raise DataError(
            f"{path}: cannot tell its format from its name; expected {', '.join(_FORMATS)}, each also .gz or .zst. "
            "Rename the file."
        )
    content = _content(path)
    head = _head(content)
    _check_head(path, head, file_format=file_format)
    if not head.strip():
        return Table(str(path), [], pl.DataFrame())
    try:
        if file_format == "parquet":
            return _selected(str(path), pl.scan_parquet(content, hive_partitioning=False), wanted=wanted)
        if file_format == "ndjson":
            return _read_ndjson(path, content, wanted=wanted, bad_rows=bad_rows)
        if file_format == "movielens":
            return _read_movielens(path, content, wanted=wanted, names=headerless, bad_rows=bad_rows)
        separator = _separator(head) if file_format == "csv" else "\t"
        return _read_text(path, content, wanted=wanted, separator=separator, bad_rows=bad_rows)
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise DataError(
            f"{path}: cannot be read as {file_format} ({_first_line(problem)}). The file is damaged or not what its "
            "name says: fetch or export it again."
        ) from problem


def _content(path: Path) -> Path | bytes:
    """The path of a plain file; the bytes of a compressed one."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        return path
    try:
        with path.open("rb") as file:
            if compression == "gzip":
                return gzip.decompress(file.read())
            return _decompress_zstd(file.read())
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(
            f"{path}: its name says {compression}, but it cannot be unpacked ({problem}). It is damaged, cut short or "
            "not compressed: fetch it again or rename it."
        ) from problem


def _decompress_zstd(packed: bytes) -> bytes:
    """All frames of a zstd file; OSError where one is damaged or cut short, which readers of streams let pass."""
    unpacked = []
    while packed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            unpacked.append(frame.decompress(packed))
        except zstandard.ZstdError as problem:
            raise OSError(str(problem)) from problem
        if not frame.eof:
            raise OSError("it ends in the middle of a frame")
        packed = frame.unused_data
    return b"".join(unpacked)


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
    bad_rows: BadRows,
    names: tuple[str, ...] | None = None,
) -> Table:
    """Separated text; RecBole's `name:type` header fields lose their type. All columns are String, without padding."""
    quote = None if names else '"'
    if names is None:
        _check_header(path, content, separator=separator, wanted=wanted)
    malformed: dict[int, str] = {}
    try:
        frame = pl.read_csv(
            content, separator=separator, has_header=names is None, quote_char=quote, infer_schema=False
        )
    except pl.exceptions.ComputeError:
        malformed = find_ragged_rows(content, separator=separator, has_header=names is None, quote=quote)
        if not malformed:
            raise
        if bad_rows == "error":
            row, reason = next(iter(malformed.items()))
            raise DataError(
                f"{path}, row {row + 1}: {reason}. Fix the row, or skip such rows with bad_rows='skip' "
                "(--bad-rows=skip)."
            ) from None
        frame = pl.read_csv(
            content,
            separator=separator,
            has_header=names is None,
            quote_char=quote,
            infer_schema=False,
            truncate_ragged_lines=True,
        )
    if names is not None:
        frame = frame.rename(dict(zip(frame.columns, names, strict=False)))
    else:
        frame = frame.rename({name: _bare_name(name) for name in frame.columns})
    table = _selected(str(path), frame, wanted=wanted, malformed=malformed)
    return replace(table, frame=table.frame.with_columns(pl.all().str.strip_chars()))


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
    bad_rows: BadRows,
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
    return _read_text(path, separated, wanted=wanted, separator="\t", bad_rows=bad_rows, names=names)


def _read_ndjson(path: Path, content: Path | bytes, *, wanted: Collection[str] | None, bad_rows: BadRows) -> Table:
    """JSON lines; a line that is no object is malformed."""
    try:
        lazy = pl.scan_ndjson(content, infer_schema_length=None)
        return _selected(str(path), lazy, wanted=wanted)
    except pl.exceptions.PolarsError:
        repaired, malformed = find_bad_json_lines(content)
        if not malformed:
            raise
        if bad_rows == "error":
            row, reason = next(iter(malformed.items()))
            raise DataError(
                f"{path}, row {row + 1}: {reason}. Fix the line, or skip such lines with bad_rows='skip' "
                "(--bad-rows=skip)."
            ) from None
        return _selected(
            str(path), pl.scan_ndjson(repaired, infer_schema_length=None), wanted=wanted, malformed=malformed
        )


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n", 1)[0]
