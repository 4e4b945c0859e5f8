"""The tasks that cut a log into shards by user: one deals the rows of a file out, another one cleans a shard.

    FOLDER/shard-00012/part-000003.parquet    the rows of file 3 that belong to users of shard 12, until it is clean
    FOLDER/shard-00012.parquet                clean rows of shard 12 in the order of the log, with their places in it
    FOLDER/shard-00012.allow/...              the lists of items that these users may get, where there are any
    FOLDER/shard-00012.users/...              the rows of the user table about them, where there is one
    FOLDER/rejects-000003.parquet             the bad rows of file 3, where there are any

A file is there as a whole or not at all, and the same whoever writes it: a task can be done again.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from beamtree.config import LogSettings
from beamtree.data.clean_rows import clean_rows, join_parts
from beamtree.data.columns import TIMESTAMP, USER_ID
from beamtree.data.log_rows import WantedRows, read_rows
from beamtree.data.tables import ROW_INDEX, BadRows
from beamtree.data.users import read_users
from beamtree.errors import InputError
from beamtree.retrieval.allow_lists import read_allow_lists
from beamtree.storage import replace_file
from beamtree.types import Int64Array

ROW_NUMBER = "__row_number"
"""The place of a row in the log, counted through all files in the order of their names."""
_SHARD = "__shard"


@dataclass(frozen=True)
class FileShare:
    """What one file gave to the shards. columns: of its rows, without any, None where it has no columns.

    places: as in `FileRows`; times: the first and the last, none where it gave no rows.
    """

    shards: tuple[int, ...]
    columns: pl.DataFrame | None
    num_read: int
    num_bad: int
    places: int
    times: tuple[float, ...]
    untyped: frozenset[str]


@dataclass(frozen=True)
class WholeLog:
    """What has to be known of all files to clean the rows of some users.

    columns: of all files together, without rows; times: the first and last ones of the files; places_before: of each
    file, those of the files in front of it.
    """

    wanted: WantedRows
    columns: pl.DataFrame
    times: pl.Series
    untyped: frozenset[str]
    places_before: list[int]


@dataclass(frozen=True)
class CleanShard:
    """What became of a shard: rows within the bounds in time, distinct ones, and rows by event type."""

    num_kept: int
    num_distinct: int
    events: dict[str, int]


def split_file(
    path: Path, number: int, wanted: WantedRows, bad_rows: BadRows, folder: Path, num_shards: int
) -> FileShare:
    """Deal the wanted rows of one file out to the shards; every file of a shard is there as a whole or not at all."""
    (read,) = read_rows(str(path), wanted, bad_rows=bad_rows)
    if read.bad.height:
        replace_file(folder / f"rejects-{number:06d}.parquet", read.bad.write_parquet)
    if read.good is None:
        return FileShare((), None, read.num_read, read.bad.height, read.num_places, (), read.untyped)
    rows = read.good.cast({ROW_INDEX: pl.Int64}).rename({ROW_INDEX: ROW_NUMBER})
    return FileShare(
        shards=_deal(rows, num_shards, suffix="", number=number, folder=folder),
        columns=rows.clear(),
        num_read=read.num_read,
        num_bad=read.bad.height,
        places=read.num_places,
        times=rows.select(first=pl.col(TIMESTAMP).min(), last=pl.col(TIMESTAMP).max()).row(0) if rows.height else (),
        untyped=read.untyped,
    )


def clean_shard(folder: Path, shard: int, numbers: Sequence[int], whole: WholeLog) -> CleanShard:
    """Write the clean rows of a shard, whose rows came from the files with these numbers."""
    parts = [whole.columns]
    for number in numbers:
        part = read_shared(part_file(shard_folder(folder, shard), number))
        place = pl.col(ROW_NUMBER) + whole.places_before[number]
        part = part.with_columns(place, *([place.alias(TIMESTAMP)] if whole.wanted.row_order else []))
        parts.append(part)
    clean = clean_rows(join_parts(parts), whole.wanted, times=whole.times, untyped=whole.untyped)
    if clean.num_kept:
        replace_file(shard_file(folder, shard), clean.frame.write_parquet)
    return CleanShard(clean.num_kept, clean.frame.height, clean.events)


def split_allow_lists(path: Path, number: int, folder: Path, num_shards: int) -> None:
    """Deal lists of items, with a row for each user, out in the same way."""
    _deal(read_allow_lists(str(path)), num_shards, suffix=".allow", number=number, folder=folder)


def split_users(table: str, settings: LogSettings, folder: Path, num_shards: int) -> None:
    """Deal a user table out in the same way; it is read as a whole, so that a column has one type in all shards."""
    _deal(read_users(table, columns=settings.interaction_columns), num_shards, suffix=".users", number=0, folder=folder)


def shard_folder(folder: Path, shard: int, *, suffix: str = "") -> Path:
    """Where the files of a shard lie."""
    return folder / f"shard-{shard:05d}{suffix}"


def part_file(place: Path, number: int) -> Path:
    """Where the rows lie that a file gave to a shard."""
    return place / f"part-{number:06d}.parquet"


def shard_file(folder: Path, shard: int) -> Path:
    """Where the clean rows of a shard lie."""
    return folder / f"shard-{shard:05d}.parquet"


def shard_of_users(users: pl.Series, *, num_shards: int) -> Int64Array:
    """The shard of each user (n,): a checksum of the id as text, the same on every machine and in every version."""
    return np.array([zlib.crc32(str(user).encode()) % num_shards for user in users], dtype=np.int64)


def read_shared(path: Path, *, columns: list[str] | None = None) -> pl.DataFrame:
    """These columns of a file that maybe another node wrote; InputError where it is not to be seen from this one."""
    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except FileNotFoundError as missing:
        raise InputError(
            f"Expected a folder that all nodes share, but {path}, which one of them wrote, is not there. Give one on "
            "a shared file system."
        ) from missing


def _deal(frame: pl.DataFrame, num_shards: int, *, suffix: str, number: int, folder: Path) -> tuple[int, ...]:
    users = frame.select(pl.col(USER_ID).unique())
    keyed = users.with_columns(pl.Series(_SHARD, shard_of_users(users[USER_ID], num_shards=num_shards)))
    parts = frame.join(keyed, on=USER_ID, how="left", maintain_order="left").partition_by(_SHARD, as_dict=True)
    for (shard,), part in parts.items():
        place = shard_folder(folder, int(shard), suffix=suffix)
        place.mkdir(parents=True, exist_ok=True)
        replace_file(part_file(place, number), part.drop(_SHARD).write_parquet)
    return tuple(sorted(int(shard) for (shard,) in parts))
