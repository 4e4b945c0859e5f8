"""Where results go: tables into Parquet, CSV or NDJSON, written atomically; missing folders are created."""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from beamtree.cli.console import say
from beamtree.errors import InputError
from beamtree.storage import MANIFEST, replace_file

Sink = Callable[[pl.LazyFrame, Path], object]

SINKS: dict[str, Sink] = {
    ".parquet": lambda table, path: table.sink_parquet(path),
    ".csv": lambda table, path: _flat(table).sink_csv(path),
    ".ndjson": lambda table, path: table.sink_ndjson(path),
    ".jsonl": lambda table, path: table.sink_ndjson(path),
}

OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="File to write: .parquet, .csv or .ndjson.")]


def check_out(out: Path | None) -> None:
    """InputError, before any work, for a file that no table can be written to."""
    if out is not None and out.suffix not in SINKS:
        raise InputError(f"--out takes a file ending in {', '.join(SINKS)}; got {out.name!r}.")
    if out is not None:
        check_place_of(out)


def check_place_of(file: Path) -> None:
    """InputError, before any work, if a file cannot be written: its path is a folder, or its parent is a file."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; --out takes a file.")
    nearest = next(folder for folder in file.absolute().parents if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest} is a file, so that no folder can be made there. Give another --out.")


def check_model_folder(folder: Path) -> None:
    """InputError, before any work, for a file, and for a folder that holds other things than a model."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out takes a folder for the model.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds other files and no beamtree model. Give another folder with --out.")


def make_folder_of(file: Path) -> None:
    """Create the parent folder of a file; InputError if that fails."""
    try:
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Could not make the folder {file.parent}: {error.strerror or error}. Give another --out."
        ) from error


def write_tables(tables: Iterable[pl.DataFrame], out: Path) -> None:
    """Write tables of the same columns into one file, and print its number of rows."""
    make_folder_of(out)
    rows = 0
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as parts:
        for number, table in enumerate(tables):
            table.write_parquet(Path(parts) / f"{number:09d}.parquet")
            rows += len(table)
        replace_file(out, lambda path: SINKS[out.suffix](pl.scan_parquet(f"{parts}/*.parquet"), path))
    say(f"Wrote {rows:,} rows to {out}.")


def _flat(table: pl.LazyFrame) -> pl.LazyFrame:
    """Lists of ids as texts, with spaces between the ids: CSV has no lists."""
    lists = [name for name, dtype in table.collect_schema().items() if isinstance(dtype, pl.List)]
    return table.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)
